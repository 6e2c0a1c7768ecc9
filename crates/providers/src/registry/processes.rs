//! What the providers of probes in processes are told and asked.

use std::collections::BTreeSet;

use probes::{Pattern, ProbeInfo};
use proc::Selection;
use symbols::Readers;

use super::{Entry, Registry};
use crate::contract::method::{Detached, Members, Semaphores};
use crate::contract::{Change, Env, ProcessProvider};

impl Registry {
    fn of_processes(&self) -> impl Iterator<Item = &dyn ProcessProvider> {
        self.entries.iter().filter_map(|e| e.provider.processes())
    }

    /// Those whose probes one of the patterns can match.
    fn matching(&self, patterns: &[Pattern]) -> impl Iterator<Item = &dyn ProcessProvider> {
        let wanted = |e: &&Entry| patterns.iter().any(|p| e.may_match(p));
        self.entries.iter().filter(wanted).filter_map(|e| e.provider.processes())
    }

    /// The probes that match are to be enabled: see [`ProcessProvider::will_enable`].
    pub fn will_enable(&self) {
        self.of_processes().for_each(|p| p.will_enable());
    }

    /// Says which processes a description can mean that does not name one.
    pub fn select_processes(&self, selection: &Selection) {
        self.of_processes().for_each(|p| p.select_processes(selection));
    }

    /// Reads files of processes by these, which a session shares with others. Before anything is
    /// matched.
    pub fn use_readers(&self, readers: &Readers) {
        self.of_processes().for_each(|p| p.use_readers(readers));
        let _ = self.readers.set(readers.clone());
    }

    /// By what files of processes are read.
    pub fn readers(&self) -> Readers {
        self.readers.get_or_init(Readers::new).clone()
    }

    /// The processes whose changes are to be told to [`Registry::process_changed`], because one of
    /// the patterns can match probes of what they map or execute later.
    pub fn processes(&self, patterns: &[Pattern]) -> BTreeSet<u32> {
        self.matching(patterns).flat_map(|p| p.pids()).collect()
    }

    /// See [`ProcessProvider::follows_all`].
    pub fn follows_all(&self, patterns: &[Pattern]) -> bool {
        let follows = |e: &Entry, pattern: &Pattern| {
            e.provider.processes().is_some_and(|p| p.follows_all(std::slice::from_ref(pattern)))
        };
        patterns.iter().any(|pattern| self.asked(pattern).any(|(_, e)| follows(e, pattern)))
    }

    /// See [`ProcessProvider::running`].
    pub fn running(&self, patterns: &[Pattern]) -> Vec<u32> {
        let of = |(at, e): (usize, &Entry)| {
            let provider = e.provider.processes()?;
            let is_mine = |p: &&Pattern| self.asked(p).any(|(n, _)| n == at);
            let mine: Vec<Pattern> = patterns.iter().filter(is_mine).cloned().collect();
            (!mine.is_empty()).then(|| provider.running(&mine))
        };
        self.entries.iter().enumerate().filter_map(of).flatten().collect()
    }

    /// See [`ProcessProvider::follows_loading`].
    pub fn follows_loading(&self, pid: u32) -> bool {
        self.of_processes().any(|p| p.follows_loading(pid))
    }

    /// See [`ProcessProvider::members`].
    pub fn members(&self, env: &Env<'_>) -> Vec<Members> {
        self.of_processes().flat_map(|p| p.members(env)).collect()
    }

    /// A process, which is in these sets, has mapped or unmapped files, or executed another
    /// program, or ended: the probes that came and those that went.
    pub fn process_changed(&self, process: (u32, u64), patterns: &[Pattern]) -> Vec<Change> {
        // A process that runs may map a file between two looks. Who knows semaphores looks last, at
        // what all others have seen at least: what is attached to a place before its semaphore is
        // known refuses it.
        let (last, first): (Vec<_>, Vec<_>) = self.matching(patterns).partition(|p| p.knows_semaphores());
        first.iter().chain(&last).flat_map(|p| p.process_changed(self, process, patterns)).collect()
    }

    /// See [`ProcessProvider::settle`].
    pub fn settle(&self) -> Vec<Change> {
        self.of_processes().flat_map(|p| p.settle(self)).collect()
    }

    /// See [`ProcessProvider::take_detached`].
    pub fn take_detached(&self) -> Vec<Detached> {
        self.of_processes().flat_map(|p| p.take_detached()).collect()
    }

    /// The semaphores of places of probes that are about to be enabled: as long as the value lives,
    /// whatever is attached to these places has them.
    pub fn semaphores(&self, probes: &[ProbeInfo]) -> Semaphores {
        let mut all = Semaphores::default();
        self.of_processes().for_each(|p| p.semaphores(probes, &mut all));
        all
    }

    /// See [`ProcessProvider::close_unmapped`].
    pub fn close_unmapped(&self) {
        self.of_processes().for_each(|p| p.close_unmapped());
    }

    /// See [`ProcessProvider::missed`].
    pub fn missed(&self) -> Vec<String> {
        self.of_processes().flat_map(|p| p.missed()).collect()
    }

    /// See [`ProcessProvider::take_left_out`].
    pub fn take_left_out(&self) -> Vec<String> {
        self.of_processes().flat_map(|p| p.take_left_out()).collect()
    }

    /// See [`ProcessProvider::take_warnings`].
    pub fn take_warnings(&self) -> Vec<String> {
        self.of_processes().flat_map(|p| p.take_warnings()).collect()
    }

    /// See [`ProcessProvider::take_unwinding`].
    pub fn take_unwinding(&self) -> Vec<(u32, String)> {
        self.of_processes().flat_map(|p| p.take_unwinding()).collect()
    }
}
