//! What the descriptions of the current program match.

use std::collections::HashMap;
use std::sync::Arc;

use probes::{Pattern, ProbeId, ProbeInfo};

use crate::record::{LaterBases, Record, Visibility};

/// The number of no program, while the libraries alone are checked: nothing is recorded.
pub(crate) const NO_PROGRAM: usize = usize::MAX;

/// What the descriptions of the current program match.
pub(crate) struct Matching<'a> {
    /// The number of the current program.
    pub(crate) number: usize,
    pub(crate) visibility: &'a dyn Visibility,
    /// What all programs that are checked were told.
    pub(crate) record: Record,
    /// Probes that descriptions match. Many clauses have the same description, which may match all
    /// functions of the kernel.
    pub(crate) matched: HashMap<Pattern, Arc<[ProbeInfo]>>,
}

impl<'a> Matching<'a> {
    pub(crate) fn new(visibility: &'a dyn Visibility) -> Self {
        let record = visibility.record().cloned().unwrap_or_default();
        Matching { number: 0, visibility, record, matched: HashMap::new() }
    }

    /// What a description of a program matches, if that is known without the catalog: of one that
    /// is checked again, and of one for probes that came later.
    pub(crate) fn known(&self, program: usize, pattern: &Pattern) -> Option<Arc<[ProbeInfo]>> {
        match self.visibility.is_running(program) {
            true => self.recorded(program, pattern),
            false => self.visibility.came(program, pattern),
        }
    }

    /// What a description of a program matched when it was first checked.
    pub(crate) fn recorded(&self, program: usize, pattern: &Pattern) -> Option<Arc<[ProbeInfo]>> {
        self.record.described.get(&(program, pattern.clone())).cloned()
    }

    /// Records what a description of a program matches.
    pub(crate) fn record_described(&mut self, program: usize, pattern: &Pattern, found: &Arc<[ProbeInfo]>) {
        if !self.visibility.is_running(program) {
            self.record.described.insert((program, pattern.clone()), found.clone());
        }
    }

    /// Set while a program is checked for later bases.
    pub(crate) fn later_bases(&self) -> Option<LaterBases<'a>> {
        self.visibility.later_bases(self.number)
    }

    /// The program that has the variables of libraries.
    pub(crate) fn origin(&self) -> usize {
        self.later_bases().map_or(self.number, |later| later.origin)
    }

    /// True if the program was checked before.
    pub(crate) fn is_checked_again(&self) -> bool {
        self.visibility.is_running(self.number)
    }

    /// True if descriptions of the program may match this probe.
    pub(crate) fn is_visible(&self, probe: ProbeId) -> bool {
        self.visibility.is_visible(self.number, probe)
    }

    /// True if the program has clauses of others for probes that came later.
    pub(crate) fn is_for_later(&self) -> bool {
        self.visibility.is_for_later(self.number)
    }
}
