//! The probes that the trees of a session can match. A tree that was enabled before a probe came does not
//! see the probe: it belongs to another tree.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use probes::ProbeId;
use providers::Registry;

/// The probes that a tree can match.
#[derive(Clone, Debug)]
pub(crate) struct Visibility {
    /// The probes that were listed at the start are visible.
    pub(crate) listed: bool,
    /// The visible ones of the probes that came later.
    pub(crate) later: Later,
    /// It has the clauses of another tree for derived probes, for later bases of these.
    pub(crate) bases: Option<NewBases>,
}

/// Bases of derived probes that came later.
#[derive(Clone, Debug)]
pub(crate) struct NewBases {
    /// The tree with the clauses.
    pub(crate) origin: usize,
    pub(crate) ids: Arc<BTreeSet<u32>>,
}

/// The probes that the trees can match, for the checker.
pub(crate) struct Visible<'a> {
    pub(crate) trees: &'a [Visibility],
    pub(crate) registry: &'a Registry,
    /// The number of trees that run.
    pub(crate) running: usize,
    pub(crate) record: Option<&'a check::Record>,
}

impl check::Visibility for Visible<'_> {
    fn is_visible(&self, program: usize, id: ProbeId) -> bool {
        self.trees
            .get(program)
            .is_none_or(|s| if self.registry.is_later(id) { s.later.contains(id.0) } else { s.listed })
    }

    fn later_bases(&self, program: usize) -> Option<check::LaterBases<'_>> {
        let bases = self.trees.get(program)?.bases.as_ref()?;
        Some(check::LaterBases { origin: bases.origin, ids: &bases.ids })
    }

    fn is_for_later(&self, program: usize) -> bool {
        self.trees.get(program).is_some_and(|s| !s.listed)
    }

    fn is_running(&self, program: usize) -> bool {
        program < self.running
    }

    fn record(&self) -> Option<&check::Record> {
        self.record
    }
}

/// Probes that came later.
#[derive(Clone, Debug)]
pub(crate) enum Later {
    Range(Range<u32>),
    Only(Arc<BTreeSet<u32>>),
}

impl Later {
    fn contains(&self, id: u32) -> bool {
        match self {
            Later::Range(ids) => ids.contains(&id),
            Later::Only(ids) => ids.contains(&id),
        }
    }
}
