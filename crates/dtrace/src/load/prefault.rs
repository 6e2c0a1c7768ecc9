//! Programs that fault in user memory before probes read it: see
//! [`bpf_runtime::program::prefault`].

use std::collections::{BTreeMap, BTreeSet};

use bpf_codegen::context::Probe;
use bpf_runtime::program::{ClauseUse, Stretch};
use check::program::Clause;
use dif::ir::Module;
use dif::user_access::{UserAccess, reads_user, user_accesses};
use providers::{EnabledProbe, Unit};

use crate::compile::probe_set::probe_set;

/// A program that faults in pages.
pub(crate) struct Prefault {
    pub(crate) unit: Unit,
    /// By index.
    pub(crate) probes: Vec<Probe>,
    /// The probes of each access.
    pub(crate) uses: Vec<ClauseUse>,
    pub(crate) accesses: Vec<Stretch>,
}

/// What the clauses of a program for later probes read of user memory.
pub(crate) fn stretches(module: &Module, clauses: &[usize]) -> Vec<Stretch> {
    if !reads_user(module) {
        return Vec::new();
    }
    let mut all: BTreeMap<UserAccess, Vec<u32>> = BTreeMap::new();
    for (position, accesses) in (0..).zip(user_accesses(module, clauses)) {
        for access in accesses {
            all.entry(access).or_default().push(position);
        }
    }
    let all = all.into_iter().take(MAX_ACCESSES);
    all.map(|(access, clauses)| Stretch { access, clauses }).collect()
}

/// The greatest number of accesses of a program. More are not faulted in.
const MAX_ACCESSES: usize = 64;

/// The prefault programs for probes of a provider, if their clauses read user memory that can be
/// faulted in. `clauses` are the clauses from number `first` on.
pub(crate) fn prefault(
    module: &Module,
    (first, clauses): (usize, &[Clause]),
    probes: &[EnabledProbe],
    before: impl FnOnce(&[EnabledProbe]) -> Vec<Unit>,
) -> Vec<Prefault> {
    if !reads_user(module) {
        return Vec::new();
    }
    let enabled: BTreeSet<u32> = probes.iter().map(|p| p.id.0).collect();
    let of =
        |clause: &Clause| clause.probes.iter().map(|p| p.id.0).filter(|id| enabled.contains(id)).collect();
    let fires: Vec<(usize, BTreeSet<u32>)> = (first..).zip(clauses.iter().map(of)).collect();
    let fires: Vec<(usize, BTreeSet<u32>)> = fires.into_iter().filter(|(_, ids)| !ids.is_empty()).collect();
    let numbers: Vec<usize> = fires.iter().map(|(number, _)| *number).collect();
    let mut probes_of: BTreeMap<UserAccess, BTreeSet<u32>> = BTreeMap::new();
    for ((_, ids), accesses) in fires.iter().zip(user_accesses(module, &numbers)) {
        for access in accesses {
            probes_of.entry(access).or_default().extend(ids);
        }
    }
    let all: BTreeSet<u32> = probes_of.values().flatten().copied().collect();
    let readers: Vec<EnabledProbe> = probes.iter().filter(|p| all.contains(&p.id.0)).cloned().collect();
    if readers.is_empty() {
        return Vec::new();
    }
    before(&readers).into_iter().filter_map(|unit| of_unit(unit, &probes_of)).collect()
}

/// The program of a unit, if it has probes that need it.
fn of_unit(unit: Unit, probes_of: &BTreeMap<UserAccess, BTreeSet<u32>>) -> Option<Prefault> {
    let mut uses = Vec::new();
    let mut accesses = Vec::new();
    for (access, ids) in probes_of {
        let mine: Vec<&(u32, EnabledProbe)> =
            unit.probes.iter().filter(|(_, p)| ids.contains(&p.id.0)).collect();
        if !mine.is_empty() && accesses.len() < MAX_ACCESSES {
            uses.push(ClauseUse {
                clause: accesses.len(),
                probes: probe_set(&mine, unit.space),
                epid_base: 0,
            });
            accesses.push(Stretch { access: *access, clauses: Vec::new() });
        }
    }
    let probes = vec![Probe::default(); unit.space as usize];
    (!uses.is_empty()).then_some(Prefault { unit, probes, uses, accesses })
}
