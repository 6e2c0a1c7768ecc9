//! Which guests' memory may be read, and what is known of them.

use std::collections::HashMap;
use std::time::Instant;

use crate::object::Lookup;

/// Whose guests' memory may be read (the option `guest`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guests {
    /// Nobody's.
    #[default]
    None,
    /// That of every process which runs a virtual processor of KVM.
    All,
    /// That of this process.
    Of(u32),
}

/// What is known of guests.
#[derive(Default)]
pub(super) struct KnownGuests {
    pub(super) named: Guests,
    /// Valid in the batch `batch`: a guest may be started anew.
    pub(super) symbols: HashMap<(u32, u64), Lookup>,
    /// Whether a process runs a virtual processor; valid in that batch.
    pub(super) machines: HashMap<u32, bool>,
    pub(super) batch: u64,
    /// When a guest's memory could not be read.
    pub(super) failed: HashMap<u32, Instant>,
}
