//! The shapes that are compiled and loaded for probes that come later.
//!
//! ```text
//!  probe ──► its kind: the provider, and where the clause can depend on it the name and the types of arguments
//!              a shape has its clauses for that kind ──► known
//!              lowered for it, they are the same code with the same record layouts as those of a shape
//!                                                    ──► known, also for later probes of that kind
//! ```

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use consumer::Layout;
use diagnostics::Few;
use dif::ir;
use probes::{Args, Family, ProbeInfo};

use crate::compile::{ListedClause, Program};
use crate::engine::growth::clause_bits;
use crate::load::assemble::ProbeUse;

/// The shapes that are compiled and loaded for probes that come later.
#[derive(Default)]
pub(super) struct Shapes {
    /// The clauses that later probes can enable; `None` if that is not known yet.
    listed: Option<Arc<[ListedClause]>>,
    /// The descriptions of these that can match later probes.
    patterns: Option<Arc<[probes::Pattern]>>,
    pub(super) known: Vec<Shape>,
    /// Clauses whose programs cannot serve later probes of these providers.
    pub(super) fixed: HashSet<BTreeSet<(usize, Family)>>,
    /// The numbers of the interned strings, by text, as far as they are known.
    pub(super) numbers: HashMap<Arc<[u8]>, u32>,
    pub(super) numbered: usize,
    /// What was said of probes that are left out and of definitions that are not used.
    pub(super) told: Few,
}

impl Shapes {
    /// None, after this was said.
    pub(super) fn new(told: Few) -> Shapes {
        Shapes { told, ..Shapes::default() }
    }

    /// Clauses were added after the others. A probe that they do not match has the same clauses as
    /// before, and so the shape. Programs that were loaded before do not run added clauses of
    /// ERROR.
    pub(super) fn clauses_added(&mut self, of_error: bool) {
        (self.listed, self.patterns) = (None, None);
        if of_error {
            self.known.clear();
        }
    }

    pub(super) fn listed(&mut self, program: &Program) -> Arc<[ListedClause]> {
        self.listed.get_or_insert_with(|| program.listed_clauses().into()).clone()
    }

    pub(super) fn patterns(&mut self, program: &Program) -> Arc<[probes::Pattern]> {
        self.patterns.get_or_insert_with(|| program.later_patterns().into()).clone()
    }
}

/// The kinds of probes that a clause of a shape remembers. They keep the types of modules in
/// memory, which are others each time a module is loaded. A forgotten one is lowered once more.
const KINDS_MAX: usize = 1024;

/// The name of a probe, the types of its arguments, and the number of the definition that its file
/// has of them.
pub(super) type NameAndArgs = (Arc<str>, Args, Option<u32>);

/// For which probes a clause is lowered.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) family: Family,
    /// Where the meaning of the clause can depend on the probe.
    pub(super) only: Option<NameAndArgs>,
}

/// Clauses that are compiled together.
pub(super) struct Shape {
    /// In the order of the program.
    pub(super) clauses: Vec<ShapeClause>,
    /// The number of its programs in the engine.
    pub(super) number: u32,
    pub(super) layouts: Arc<[Option<Arc<Layout>>]>,
    /// Which names of its probe the session uses.
    pub(super) names: [bool; 4],
}

/// A clause of a shape: the whole of a clause in the source, or a part of it.
pub(super) struct ShapeClause {
    /// The clause in the source, by its number among the listed ones.
    pub(super) source: usize,
    pub(super) code: ir::Clause,
    /// The probes for which it is lowered.
    pub(super) kinds: HashSet<Kind>,
    pub(super) usage: ProbeUse,
}

/// A new probe and the listed clauses that it enables, each with its kind.
#[derive(Clone)]
pub(super) struct Matched {
    pub(super) probe: ProbeInfo,
    pub(super) clauses: Vec<(usize, Kind)>,
}

/// Probes for which clauses mean the same.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) only: Option<NameAndArgs>,
    pub(super) all: Vec<Matched>,
}

impl Group {
    /// The number of pairs of a clause and a probe.
    pub(super) fn enablings(&self) -> usize {
        self.all.iter().map(|m| m.clauses.len()).sum()
    }

    /// The clauses that some of its probes enable, each with the family of the provider.
    pub(super) fn sources_of_families(&self) -> BTreeSet<(usize, Family)> {
        let all = self.all.iter().flat_map(|m| &m.clauses);
        all.map(|(source, kind)| (*source, kind.family.clone())).collect()
    }

    /// The clauses that some of its probes enable, in their order.
    pub(super) fn sources(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.all.iter().flat_map(|m| m.clauses.iter().map(|(n, _)| *n)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl ListedClause {
    /// True if the meaning of the clause can depend on a probe, which is `defined`: its file has a
    /// definition of it.
    pub(super) fn depends_on_probe(&self, defined: bool) -> bool {
        self.uses.typed_args || self.uses.returns || self.uses.raw_args && defined
    }
}

impl ShapeClause {
    fn runs_for(&self, m: &Matched) -> bool {
        m.clauses.iter().any(|(source, kind)| *source == self.source && self.kinds.contains(kind))
    }

    /// True if it is this clause of the source, lowered to the same code with the same record.
    fn is_same(&self, source: usize, code: &ir::Clause) -> bool {
        let (mine, other) = (&self.code, code);
        self.source == source
            && mine.record == other.record
            && mine.func.values == other.func.values
            && mine.func.blocks == other.func.blocks
    }
}

impl Shape {
    /// True if the shape has all clauses of a probe.
    pub(super) fn serves(&self, m: &Matched) -> bool {
        let has = |(source, kind): &(usize, Kind)| {
            self.clauses.iter().any(|c| c.source == *source && c.kinds.contains(kind))
        };
        m.clauses.iter().all(has)
    }

    pub(super) fn usage(&self, m: &Matched) -> ProbeUse {
        let mut all = ProbeUse::default();
        self.clauses.iter().filter(|c| c.runs_for(m)).for_each(|c| all.add(c.usage));
        all
    }

    pub(super) fn bits(&self, m: &Matched) -> [u64; 3] {
        clause_bits(self.clauses.iter().map(|clause| clause.runs_for(m)))
    }

    /// The shape becomes one for the kinds of these clauses, if it has the same code in the same
    /// order.
    pub(super) fn learn(&mut self, lowered: &[Lowered<'_>]) -> bool {
        let mut places = Vec::new();
        let mut rest = self.clauses.iter().enumerate();
        for Lowered { source, code, .. } in lowered {
            match rest.find(|(_, clause)| clause.is_same(*source, code)) {
                Some((place, _)) => places.push(place),
                None => return false,
            }
        }
        for (place, lowered) in places.into_iter().zip(lowered) {
            let Some(clause) = self.clauses.get_mut(place) else { continue };
            if clause.kinds.len() >= KINDS_MAX {
                clause.kinds.clear();
            }
            clause.kinds.extend(lowered.kinds.iter().cloned());
        }
        true
    }
}

/// A clause that is lowered for new probes.
pub(super) struct Lowered<'p> {
    /// The number of the group that the probes are of.
    pub(super) group: usize,
    /// The clause in the source, by its number among the listed ones.
    pub(super) source: usize,
    /// Its number in the program.
    pub(super) number: usize,
    pub(super) code: &'p ir::Clause,
    /// The kinds of its probes.
    pub(super) kinds: HashSet<Kind>,
}

/// The clauses of a program that were lowered for new probes, with their groups. `before` is the
/// program without them.
pub(super) fn lowered<'p>(
    program: &'p Program,
    before: &Program,
    groups: &[Group],
    listed: &[ListedClause],
) -> Vec<Lowered<'p>> {
    // The trees of the new program, in their order.
    let trees: Vec<(usize, usize)> = groups
        .iter()
        .enumerate()
        .flat_map(|(group, g)| g.sources().into_iter().map(move |source| (group, source)))
        .collect();
    let mut all = Vec::new();
    for (number, clause) in program.checked.clauses.iter().enumerate().skip(program.running) {
        let tree = program.source_of(before, number).and_then(|n| trees.get(n));
        let (Some((group, source)), Some(code)) = (tree, program.module.clauses.get(number)) else {
            continue;
        };
        let depends =
            |only: &NameAndArgs| listed.get(*source).is_some_and(|c| c.depends_on_probe(only.2.is_some()));
        let only = groups.get(*group).and_then(|g| g.only.clone()).filter(depends);
        let family = |p: &ProbeInfo| program.registry.family(&p.desc.provider).cloned();
        let families: HashSet<Family> = clause.probes.iter().filter_map(family).collect();
        // The kernel's types are compared and hashed by their address.
        #[allow(clippy::mutable_key_type)]
        let kinds = families.into_iter().map(|family| Kind { family, only: only.clone() }).collect();
        all.push(Lowered { group: *group, source: *source, number, code, kinds });
    }
    all
}

/// Enabled-probe ids of removed sites that are still known by name.
#[derive(Default)]
pub(super) struct RemovedIds {
    /// The oldest first, each with the time of its release.
    waiting: VecDeque<(u64, Vec<u32>)>,
}

impl RemovedIds {
    /// Adds ids that are released now. Returns those that were released before `complete`: every
    /// record of them was consumed.
    pub(super) fn add(&mut self, released: Vec<u32>, now: u64, complete: u64) -> Vec<u32> {
        if !released.is_empty() {
            self.waiting.push_back((now, released));
        }
        let count = self.waiting.iter().take_while(|(time, _)| *time < complete).count();
        self.waiting.drain(..count).flat_map(|(_, ids)| ids).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_removed_probes_are_kept_until_older_speculations_are_free() {
        let mut removed = RemovedIds::default();
        assert_eq!(removed.add(vec![1, 2], 10, u64::MAX), [1, 2]);
        // A speculation began at 5.
        assert_eq!(removed.add(vec![3], 10, 5), [0; 0]);
        assert_eq!(removed.add(vec![4], 20, 5), [0; 0]);
        assert_eq!(removed.add(Vec::new(), 30, 10), [0; 0]);
        assert_eq!(removed.add(Vec::new(), 40, 11), [3]);
        assert_eq!(removed.add(vec![5], 50, 45), [4]);
        assert_eq!(removed.add(Vec::new(), 60, 60), [5]);
        assert!(removed.waiting.is_empty());
    }
}
