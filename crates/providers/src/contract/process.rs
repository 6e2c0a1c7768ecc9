//! What a provider of probes in processes is asked, beyond what every provider is.

use std::sync::Arc;

use probes::{Definition, Pattern, ProbeDesc, ProbeInfo, UserObject};
use proc::Selection;
use symbols::Readers;

use super::changes::{Change, ProbeStore};
use super::env::Env;
use super::method::{Detached, Members, Semaphores};

/// A provider of probes in processes: see [`super::Provider::processes`].
pub trait ProcessProvider: Send + Sync {
    /// The processes of which it has probes: [`ProcessProvider::process_changed`] is called for
    /// what they map and execute later.
    fn pids(&self) -> Vec<u32>;

    /// True if every process may come to have probes that one of these patterns matches:
    /// [`ProcessProvider::process_changed`] is called for all.
    fn follows_all(&self, patterns: &[Pattern]) -> bool {
        let _ = patterns;
        false
    }

    /// The processes that run which may have probes of these patterns, where [all are
    /// followed](ProcessProvider::follows_all).
    fn running(&self, patterns: &[Pattern]) -> Vec<u32> {
        let _ = patterns;
        Vec::new()
    }

    /// True if libraries that a process loads may have probes, or change how those that it has are
    /// made.
    fn follows_loading(&self, pid: u32) -> bool {
        let _ = pid;
        false
    }

    /// A process has mapped or unmapped files, or executed another program, or ended. `sets` are
    /// those in which it is, as bits. Adds and removes its probes in the store, like a
    /// [`ChangeSource`]. A call without a change is cheap.
    fn process_changed(
        &self,
        store: &dyn ProbeStore,
        (pid, sets): (u32, u64),
        patterns: &[Pattern],
    ) -> Vec<Change> {
        let _ = (store, pid, sets, patterns);
        Vec::new()
    }

    /// What was planned is attached: the probes that are to be attached again, because the process
    /// in which they are has changed meanwhile.
    fn settle(&self, store: &dyn ProbeStore) -> Vec<Change> {
        let _ = store;
        Vec::new()
    }

    /// The processes whose [links](super::method::SiteLink::of_process) are to be closed, because
    /// their probes are attached again, since the last call.
    fn take_detached(&self) -> Vec<Detached> {
        Vec::new()
    }

    /// True if places of its probes may have semaphores.
    fn knows_semaphores(&self) -> bool {
        false
    }

    /// Adds the semaphores of places of these probes, which are about to be enabled.
    fn semaphores(&self, probes: &[ProbeInfo], to: &mut Semaphores) {
        let _ = (probes, to);
    }

    /// Closes the files that no running process has mapped for a while. It is called again and
    /// again; most calls do nothing.
    fn close_unmapped(&self) {}

    /// Which probes are left out, and why, since the last call: numbers lack theirs.
    fn take_left_out(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is to be reported since the last call.
    fn take_warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Of which firings it is known that they are missing, since the last call: asked at the end.
    fn missed(&self) -> Vec<String> {
        Vec::new()
    }

    /// The sets of processes that programs of this provider look for: see [`Members`]. They are
    /// filled when tracing begins, also where there is no probe yet.
    fn members(&self, env: &Env<'_>) -> Vec<Members> {
        let _ = env;
        Vec::new()
    }

    /// The processes that have code which unwinds through frames since returns of their functions
    /// were probed by their return addresses, and why, since the last call. Links to them that
    /// [keep](super::method::SiteLink::returns_in) return addresses are to be closed.
    fn take_unwinding(&self) -> Vec<(u32, String)> {
        Vec::new()
    }

    /// What the file that has a probe says of its provider: see [`probes::Catalog::definition`].
    fn definition(&self, probe: &ProbeDesc) -> Option<Arc<Definition>> {
        let _ = probe;
        None
    }

    /// The types of a file that the processes of a provider's name run: see
    /// [`probes::Catalog::object`].
    fn object(&self, provider: &str, object: &str) -> Option<Result<Arc<dyn UserObject>, String>> {
        let _ = (provider, object);
        None
    }

    /// The probes that match are to be enabled, and not only listed.
    fn will_enable(&self) {}

    /// Says which processes a name can mean that is not that of one process.
    fn select_processes(&self, selection: &Selection) {
        let _ = selection;
    }

    /// Reads files of processes by these.
    fn use_readers(&self, readers: &Readers) {
        let _ = readers;
    }
}
