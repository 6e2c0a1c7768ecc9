//! Probes that come and go while a session runs.
//!
//! ```text
//!  ChangeSource   something that knows of changes: loaded modules, or what a user of the library brings
//!  ProbeStore     gives the new probes their ids, and matches the removed ones no more: the registry
//!  ProbesChanged  what the session turns into sites
//! ```

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use probes::{Family, Pattern, ProbeDesc, ProbeId, ProbeInfo};

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

/// Where probes that come get their ids, and those that went are taken out: what sources of changes
/// see of the registry.
pub trait ProbeStore {
    /// Adds probes that did not exist before, and gives them their ids. A probe of which there is
    /// no provider is left out.
    fn add(&self, probes: Vec<ProbeDesc>) -> Vec<ProbeInfo>;

    /// Removes probes that were added: no pattern matches them any more.
    fn remove(&self, probes: &[ProbeId]);

    /// Modules were loaded and unloaded. Gives the probes that came, of the providers that one of
    /// the patterns selects, and those that no longer exist, of all providers that were asked for
    /// probes. No pattern matches the latter any more.
    fn modules_changed(
        &self,
        loaded: &BTreeSet<String>,
        unloaded: &BTreeSet<String>,
        patterns: &[&Pattern],
    ) -> ProbesChanged;

    /// The family of the provider that answers for a name.
    fn family(&self, name: &str) -> Option<&Family>;
}

/// A source of changes. A provider has one if its probes come and go
/// ([`super::Provider::changes`]); modules are one for several providers.
pub trait ChangeSource: Send {
    /// Readable when there may be changes.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The changes since the last call. Probes that come and go together are one change. The source
    /// adds and removes the probes in the store ([`ProbeStore::add`], [`ProbeStore::remove`]). Only
    /// probes that one of the patterns can match are needed.
    fn changes(&mut self, store: &dyn ProbeStore, patterns: &[Pattern]) -> Vec<Change>;
}
