//! Probes that come and go while a session runs.
//!
//! ```text
//!  ChangeSource   something that knows of changes: loaded modules, or what a user of the library brings
//!  Registry       gives the new probes their ids, and matches the removed ones no more
//!  ProbesChanged  what the session turns into sites
//! ```

use std::os::fd::BorrowedFd;

use probes::{Pattern, ProbeId, ProbeInfo};

use crate::registry::Registry;

/// Probes that came and went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbesChanged {
    /// Probes that did not exist before, in the order of their ids, which follow each other.
    pub added: Vec<ProbeInfo>,
    /// Probes that no longer exist.
    pub removed: Vec<ProbeId>,
}

impl ProbesChanged {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// A change, and its cause for messages.
#[derive(Clone, Debug)]
pub struct Change {
    /// What has the probes: `module ext4`.
    pub subject: String,
    /// What happened to it: `was loaded`.
    pub event: &'static str,
    /// The probes.
    pub probes: ProbesChanged,
}

/// A source of changes. A provider has one if its probes come and go ([`crate::Provider::changes`]); modules are one for several
/// providers.
pub trait ChangeSource: Send {
    /// Readable when there may be changes.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The changes since the last call. Probes that come and go together are one change. The source adds and removes the probes
    /// in the registry ([`Registry::add`], [`Registry::remove`]). Only probes that one of the patterns can match are needed.
    fn changes(&mut self, registry: &Registry, patterns: &[Pattern]) -> Vec<Change>;
}
