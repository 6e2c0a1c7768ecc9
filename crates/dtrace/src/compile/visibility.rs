//! The probes that the trees of a session can match. A tree that was enabled before a probe came
//! does not see the probe: it belongs to another tree.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use probes::{Catalog, Pattern, ProbeId, ProbeInfo};
use providers::Registry;

/// The probes that programs are compiled for.
#[derive(Clone, Copy)]
pub(crate) struct Candidates<'a> {
    /// Those that came, in the order of their ids; `None`: all of the registry.
    pub(crate) came: Option<&'a [ProbeInfo]>,
    pub(crate) registry: &'a Registry,
}

impl Candidates<'_> {
    /// Those that a description matches. The work does not grow with the probes that are there
    /// already if only some came.
    pub(crate) fn matching(&self, pattern: &Pattern) -> Vec<ProbeInfo> {
        let Some(came) = self.came else { return self.registry.matches(pattern).unwrap_or_default() };
        let selects = self.registry.selects(pattern);
        came.iter().filter(|probe| selects(&probe.desc)).cloned().collect()
    }

    /// Of those that came with these ids, the ones that a description matches.
    fn matching_of(&self, ids: &BTreeSet<u32>, pattern: &Pattern) -> Option<Vec<ProbeInfo>> {
        let (came, selects) = (self.came?, self.registry.selects(pattern));
        let of_id = |id: &u32| came.get(came.binary_search_by_key(id, |probe| probe.id.0).ok()?);
        Some(ids.iter().filter_map(of_id).filter(|probe| selects(&probe.desc)).cloned().collect())
    }
}

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

/// What descriptions match, by the place of the set of ids.
type Matched = HashMap<(*const BTreeSet<u32>, Pattern), Arc<[ProbeInfo]>>;

/// The probes that the trees can match, for the checker.
pub(crate) struct Visible<'a> {
    pub(crate) trees: &'a [Visibility],
    pub(crate) candidates: Candidates<'a>,
    /// The number of trees that run.
    pub(crate) running: usize,
    pub(crate) record: Option<&'a check::Record>,
    /// What was matched of probes that came: the trees of a group share their set of ids.
    pub(crate) matched: RefCell<Matched>,
}

impl check::Visibility for Visible<'_> {
    fn is_visible(&self, program: usize, id: ProbeId) -> bool {
        self.trees.get(program).is_none_or(|s| {
            if self.candidates.registry.is_later(id) { s.later.contains(id.0) } else { s.listed }
        })
    }

    fn later_bases(&self, program: usize) -> Option<check::LaterBases<'_>> {
        let bases = self.trees.get(program)?.bases.as_ref()?;
        Some(check::LaterBases { origin: bases.origin, ids: &bases.ids })
    }

    fn is_for_later(&self, program: usize) -> bool {
        self.trees.get(program).is_some_and(|s| !s.listed)
    }

    fn came(&self, program: usize, pattern: &Pattern) -> Option<Arc<[ProbeInfo]>> {
        let tree = self.trees.get(program).filter(|tree| !tree.listed && tree.bases.is_none())?;
        let Later::Only(ids) = &tree.later else { return None };
        let key = (Arc::as_ptr(ids), pattern.clone());
        if let Some(known) = self.matched.borrow().get(&key) {
            return Some(known.clone());
        }
        let found: Arc<[ProbeInfo]> = self.candidates.matching_of(ids, pattern)?.into();
        self.matched.borrow_mut().insert(key, found.clone());
        Some(found)
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

#[cfg(test)]
mod tests {
    use super::*;
    use check::Visibility as _;
    use probes::{FieldKind, ProbeDesc};
    use system::System;

    #[test]
    fn clauses_for_the_same_probes_that_came_have_one_list_of_them() {
        let registry = Registry::new(&System::live());
        let probe = |id: u32| {
            let desc = ProbeDesc::new("app1", "m", format!("f{id}"), "hit");
            ProbeInfo { id: ProbeId(id), desc: Arc::new(desc) }
        };
        let came: Vec<ProbeInfo> = (1..=4).map(probe).collect();
        let [both, other]: [Arc<BTreeSet<u32>>; 2] =
            [[1, 2].into(), [3, 4].into()].map(|ids: BTreeSet<u32>| Arc::new(ids));
        let tree = |ids: &Arc<BTreeSet<u32>>| Visibility {
            listed: false,
            later: Later::Only(ids.clone()),
            bases: None,
        };
        let visible = Visible {
            trees: &[tree(&both), tree(&both), tree(&other)],
            candidates: Candidates { came: Some(&came), registry: &registry },
            running: 0,
            record: None,
            matched: RefCell::default(),
        };
        let found = |tree: usize, text: &str| {
            visible.came(tree, &Pattern::parse(text, FieldKind::Name).unwrap()).unwrap()
        };
        let ids = |found: &[ProbeInfo]| found.iter().map(|probe| probe.id.0).collect::<Vec<u32>>();
        let all = [found(0, "app1:::hit"), found(1, "app1:::hit"), found(2, "app1:::hit")];
        assert!(Arc::ptr_eq(&all[0], &all[1]));
        assert_eq!(all.each_ref().map(|found| ids(found)), [vec![1, 2], vec![1, 2], vec![3, 4]]);
        assert_eq!(ids(&found(0, "app1::f2:hit")), [2]);
    }
}
