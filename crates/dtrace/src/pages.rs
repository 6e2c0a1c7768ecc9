//! Which user memory is to be brought before which probes: see [`bpf::program::prefault`].

use std::collections::{BTreeMap, BTreeSet};

use bpf::program::{ClauseUse, Probe};
use check::program::Clause;
use dif::ir::Module;
use dif::user_access::{UserAccess, reads_user, user_accesses};
use providers::{EnabledProbe, Unit};

use crate::assemble::probe_set;

/// A program that brings pages.
pub(crate) struct Bringer {
    pub(crate) unit: Unit,
    /// By index.
    pub(crate) probes: Vec<Probe>,
    /// Which probes want which stretch.
    pub(crate) wanted: Vec<ClauseUse>,
    pub(crate) stretches: Vec<UserAccess>,
}

/// So many stretches a program; what is more is left as it is.
const STRETCHES: usize = 64;

/// The bringer for some probes of a provider, where their clauses read user memory and there is something that it can
/// do. `clauses` are those from number `first` on.
pub(crate) fn bringer(
    module: &Module,
    (first, clauses): (usize, &[Clause]),
    probes: &[EnabledProbe],
    before: impl FnOnce(&[EnabledProbe]) -> Option<Unit>,
) -> Option<Bringer> {
    if !reads_user(module) {
        return None;
    }
    let ours: BTreeSet<u32> = probes.iter().map(|p| p.id.0).collect();
    let of = |clause: &Clause| clause.probes.iter().map(|p| p.id.0).filter(|id| ours.contains(id)).collect();
    let fires: Vec<(usize, BTreeSet<u32>)> = (first..).zip(clauses.iter().map(of)).collect();
    let fires: Vec<(usize, BTreeSet<u32>)> = fires.into_iter().filter(|(_, ids)| !ids.is_empty()).collect();
    let numbers: Vec<usize> = fires.iter().map(|(number, _)| *number).collect();
    let mut wanted: BTreeMap<UserAccess, BTreeSet<u32>> = BTreeMap::new();
    for ((_, ids), stretches) in fires.iter().zip(user_accesses(module, &numbers)) {
        for stretch in stretches {
            wanted.entry(stretch).or_default().extend(ids);
        }
    }
    let all: BTreeSet<u32> = wanted.values().flatten().copied().collect();
    let readers: Vec<EnabledProbe> = probes.iter().filter(|p| all.contains(&p.id.0)).cloned().collect();
    if readers.is_empty() {
        return None;
    }
    let unit = before(&readers)?;
    let mut uses = Vec::new();
    let mut stretches = Vec::new();
    for (stretch, ids) in wanted {
        let mine: Vec<&(u32, EnabledProbe)> =
            unit.probes.iter().filter(|(_, p)| ids.contains(&p.id.0)).collect();
        if !mine.is_empty() && stretches.len() < STRETCHES {
            uses.push(ClauseUse {
                clause: stretches.len(),
                probes: probe_set(&mine, unit.space),
                epid_base: 0,
            });
            stretches.push(stretch);
        }
    }
    let probes = vec![Probe::default(); unit.space as usize];
    (!uses.is_empty()).then_some(Bringer { unit, probes, wanted: uses, stretches })
}
