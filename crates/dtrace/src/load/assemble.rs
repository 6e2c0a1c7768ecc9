//! From clauses and probes to programs: which clauses run in which program, and with which ids.
//!
//! Each provider plans as few units as possible for the enabled probes. A clause is part of every
//! unit that has one of its probes. Enabled-probe ids are assigned in program order: each clause
//! has, in each unit, a range as long as the unit's index space. So a program computes an id by one
//! addition.

use std::collections::HashMap;
use std::sync::Arc;

use bpf_codegen::context::{Probe, ProbeSet};
use bpf_runtime::program::{ClauseUse, Stretch};
use check::program::Clause;
use dif::ir::{IntBuiltin, Module, Op, StrBuiltin, Subr};
use plane::probe_table::CLAUSES_MAX;
use probes::{FIELD_LIMITS, Family, ProbeDesc, ProbeInfo};
use providers::method::{Copies, Members, ProgramType};
use providers::{EnabledProbe, Env, Role, Unit};

use crate::compile::Program;
use crate::compile::probe_set::probe_set;
use crate::engine::growth::{NewProbe, NewSite, clause_bits};
use crate::load::facts::uses;
use crate::load::prefault::{Prefault, prefault, stretches};

/// A unit and the clauses that run in it.
pub(crate) struct EnabledUnit {
    pub(crate) unit: Unit,
    pub(crate) clauses: Vec<ClauseUse>,
    /// By index. An unused index has the default.
    pub(crate) probes: Vec<Probe>,
    /// The probes are served by a program that also serves later ones.
    pub(crate) growing: Option<GrowingUnit>,
}

/// A unit whose program also serves later probes.
pub(crate) struct GrowingUnit {
    /// The program's number, once it is loaded.
    pub(crate) program: u32,
    pub(crate) sites: Vec<NewSite>,
    /// The user memory that its clauses read.
    pub(crate) stretches: Vec<Stretch>,
    /// How the program is attached that faults it in, if there is one.
    pub(crate) prefault: Option<Unit>,
}

impl GrowingUnit {
    /// The clauses that read user memory: bit n is the n-th one.
    pub(crate) fn readers(&self) -> [u64; 3] {
        let mut bits = [0u64; 3];
        for n in self.stretches.iter().flat_map(|s| &s.clauses) {
            if let Some(word) = bits.get_mut(*n as usize / 64) {
                *word |= 1 << (n % 64);
            }
        }
        bits
    }
}

/// The probes of sites that have one of these clauses, each once.
pub(crate) fn probes_with(sites: &[NewSite], clauses: [u64; 3]) -> Vec<EnabledProbe> {
    let has = |site: &&NewSite| site.new.clauses.iter().zip(clauses).any(|(mine, wanted)| mine & wanted != 0);
    let mut probes: Vec<EnabledProbe> = sites.iter().filter(has).map(|site| site.new.probe.clone()).collect();
    probes.sort_by_key(|p| p.id);
    probes.dedup_by_key(|p| p.id);
    probes
}

/// What a growing program is loaded for: units with equal shapes can have the same program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitShape {
    program: ProgramType,
    context: String,
    interrupts: bool,
}

impl UnitShape {
    /// The shape of a unit, if one program can serve all units like it.
    pub(crate) fn of(unit: &Unit) -> Option<UnitShape> {
        let method = &unit.method;
        let grows = unit.role == Role::Probe && method.has_cookies() && method.copies() == Copies::None;
        let context = unit.context.shape().filter(|_| grows && !method.only_interrupts())?;
        Some(UnitShape { program: method.program(), context, interrupts: unit.interrupts })
    }
}

/// A clause in a unit, and its first enabled-probe id. Each index of the unit has an id.
pub(crate) struct EnabledClause {
    pub(crate) first: u32,
    pub(crate) clause: usize,
    pub(crate) unit: usize,
}

/// The plan of all programs of a session, before code generation.
pub(crate) struct Assembly {
    pub(crate) units: Vec<EnabledUnit>,
    pub(crate) enabled: Vec<EnabledClause>,
    /// Interned strings: those of the module, then names of probes.
    pub(crate) strings: Vec<Arc<[u8]>>,
    /// The first free id.
    pub(crate) next: u32,
    /// The programs that fault in user memory before the units run.
    pub(crate) prefaults: Vec<Prefault>,
    /// The sets of processes.
    pub(crate) sets: Vec<Members>,
}

impl Assembly {
    /// The numbers of the clauses that run for a role.
    pub(crate) fn clauses_of(&self, role: Role) -> Vec<u32> {
        let units = self.units.iter().filter(|a| a.unit.role == role);
        units.flat_map(|a| &a.clauses).map(|c| c.clause as u32).collect()
    }
}

/// How a clause uses its probes: the `argN` that it reads (bit N), whether it sets the results of
/// their functions, and whether it reads the process's stack and registers.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProbeUse {
    pub(crate) args: u64,
    pub(crate) sets_result: bool,
    pub(crate) user_stack: bool,
    pub(crate) user_registers: bool,
}

impl ProbeUse {
    pub(crate) fn of(module: &Module, clause: usize) -> ProbeUse {
        let insts =
            module.clauses.get(clause).into_iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
        insts.fold(ProbeUse::default(), |all, inst| match &inst.op {
            Op::Builtin(IntBuiltin::Arg(n)) => {
                ProbeUse { args: all.args | 1u64.checked_shl((*n).into()).unwrap_or(0), ..all }
            }
            Op::Call(Subr::Return, _) => ProbeUse { sets_result: true, ..all },
            Op::Builtin(IntBuiltin::UstackDepth | IntBuiltin::Ucaller) | Op::Stack { user: true, .. } => {
                ProbeUse { user_stack: true, ..all }
            }
            Op::Builtin(IntBuiltin::Ureg(_)) => ProbeUse { user_registers: true, ..all },
            _ => all,
        })
    }

    /// A probe that is used so.
    pub(crate) fn of_probe(self, probe: &ProbeInfo) -> EnabledProbe {
        let ProbeUse { args, sets_result, user_stack, user_registers } = self;
        EnabledProbe { id: probe.id, desc: probe.desc.clone(), args, sets_result, user_stack, user_registers }
    }

    pub(crate) fn add(&mut self, other: ProbeUse) {
        self.args |= other.args;
        self.sets_result |= other.sets_result;
        self.user_stack |= other.user_stack;
        self.user_registers |= other.user_registers;
    }
}

/// The probes that the clauses enable, each once, in the order of their ids. `first` is the number
/// of the first clause.
fn enabled_probes(module: &Module, first: usize, clauses: &[Clause]) -> impl Iterator<Item = EnabledProbe> {
    // Clauses of one description share their list of probes.
    let mut lists: Vec<(&Arc<[ProbeInfo]>, ProbeUse)> = Vec::new();
    for (number, clause) in (first..).zip(clauses) {
        let usage = ProbeUse::of(module, number);
        match lists.last_mut() {
            Some((list, all)) if Arc::ptr_eq(list, &clause.probes) => all.add(usage),
            _ => lists.push((&clause.probes, usage)),
        }
    }
    let mut all: Vec<(&ProbeInfo, ProbeUse)> = Vec::new();
    for (list, usage) in lists {
        all.extend(list.iter().map(|p| (p, usage)));
    }
    all.sort_by_key(|(p, _)| p.id);
    all.dedup_by(|(p, usage), (first, all)| {
        let same = p.id == first.id;
        if same {
            all.add(*usage);
        }
        same
    });
    all.into_iter().map(|(p, usage)| usage.of_probe(p))
}

/// Plans all units of the clauses that do not run yet, and assigns ids from `next` on.
///
/// With `grow`, units become growing ones where that is possible.
pub(crate) fn assemble(
    program: &Program,
    env: &Env<'_>,
    mut next: u32,
    grow: bool,
) -> Result<Assembly, String> {
    let Program { module, registry, running, .. } = program;
    let clauses = program.checked.clauses.get(*running..).unwrap_or_default();
    let mut names = Names::new(module);
    let mut units = Vec::new();
    let mut prefaults = Vec::new();
    for provider in registry.by_provider(enabled_probes(module, *running, clauses))? {
        let first = units.len();
        for unit in provider.plan(env)? {
            let mut table = vec![Probe::default(); unit.space as usize];
            for (index, probe) in &unit.probes {
                if let Some(row) = table.get_mut(*index as usize) {
                    let (names, pid) = names.of(&probe.desc, provider.family());
                    *row = Probe { id: probe.id.0, names, pid };
                }
            }
            units.push(EnabledUnit { unit, clauses: Vec::new(), probes: table, growing: None });
        }
        let before = |readers: &[EnabledProbe]| provider.before(readers, env);
        for unit in units.iter_mut().skip(first).filter(|_| grow) {
            become_growing(unit, module, (*running, clauses), &before, &mut next)?;
        }
        let fixed = units.iter().skip(first).filter(|unit| unit.growing.is_none());
        let mut probes: Vec<EnabledProbe> =
            fixed.flat_map(|a| &a.unit.probes).map(|(_, probe)| probe.clone()).collect();
        probes.sort_by_key(|p| p.id);
        probes.dedup_by_key(|p| p.id);
        let all_before = |readers: &[EnabledProbe]| provider.all_before(readers, env);
        prefaults.extend(prefault(module, (*running, clauses), &probes, all_before));
    }
    let mut enabled = Vec::new();
    let mut sets: HashMap<*const ProbeInfo, Vec<Option<ProbeSet>>> = HashMap::new();
    for (number, clause) in (*running..).zip(clauses) {
        // Clauses of one description share their list of probes, and so their set of probes in each
        // unit.
        let of_units = sets.entry(clause.probes.as_ptr()).or_insert_with(|| {
            let mut ids: Vec<u32> = clause.probes.iter().map(|p| p.id.0).collect();
            ids.sort_unstable();
            let of_unit = |a: &EnabledUnit| {
                let probes = a.unit.probes.iter();
                let mine: Vec<_> = probes.filter(|(_, p)| ids.binary_search(&p.id.0).is_ok()).collect();
                (!mine.is_empty()).then(|| probe_set(&mine, a.unit.space))
            };
            units.iter().map(of_unit).collect::<Vec<_>>()
        });
        for (unit, (a, probes)) in units.iter_mut().zip(of_units.iter()).enumerate() {
            if a.growing.is_some() {
                continue;
            }
            let Some(probes) = probes.clone() else { continue };
            a.clauses.push(ClauseUse { clause: number, probes, epid_base: next });
            enabled.push(EnabledClause { first: next, clause: number, unit });
            next = next.checked_add(a.unit.space).ok_or(NO_IDS)?;
        }
    }
    let sets = registry.members(env);
    Ok(Assembly { units, enabled, strings: names.strings, next, prefaults, sets })
}

/// Makes a unit's program one that finds its probes in the probe table, if it can be one: it then
/// has all of these clauses, and each site tells which of them are enabled.
fn become_growing(
    a: &mut EnabledUnit,
    module: &Module,
    (running, clauses): (usize, &[Clause]),
    before: &dyn Fn(&[EnabledProbe]) -> Option<Unit>,
    next: &mut u32,
) -> Result<(), String> {
    if clauses.len() > CLAUSES_MAX || UnitShape::of(&a.unit).is_none() {
        return Ok(());
    }
    let numbers: Vec<usize> = (running..).take(clauses.len()).collect();
    let mut epid = *next;
    let mut sites = Vec::new();
    for (index, probe) in &a.unit.probes {
        let enabled = |clause: &Clause| clause.probes.binary_search_by_key(&probe.id, |p| p.id).is_ok();
        let bits = clause_bits(clauses.iter().map(enabled));
        let Probe { names, pid, .. } = a.probes.get(*index as usize).copied().unwrap_or_default();
        let new = NewProbe { probe: probe.clone(), names, pid, first: epid, clauses: bits };
        sites.push(NewSite { index: *index, new });
        epid = epid.checked_add(clauses.len() as u32).ok_or(NO_IDS)?;
    }
    let stretches = stretches(module, &numbers);
    let mut growing = GrowingUnit { program: 0, sites, stretches, prefault: None };
    let readers = probes_with(&growing.sites, growing.readers());
    if !readers.is_empty() {
        growing.prefault = before(&readers);
    }
    if growing.prefault.as_ref().is_some_and(|unit| UnitShape::of(unit).is_none()) {
        return Ok(());
    }
    let each = (0..).zip(numbers);
    a.clauses = each.map(|(n, clause)| ClauseUse { clause, probes: ProbeSet::All, epid_base: n }).collect();
    a.growing = Some(growing);
    *next = epid;
    Ok(())
}

/// The end of the enabled-probe ids.
pub(crate) const NO_IDS: &str = "too many enabled probes";

/// Which of the names of a probe a clause uses.
pub(crate) fn names_used(module: &Module) -> [bool; 4] {
    use StrBuiltin::{ProbeFunc, ProbeMod, ProbeName, ProbeProv};
    [ProbeProv, ProbeMod, ProbeFunc, ProbeName]
        .map(|name| uses(module, |op| matches!(op, Op::BuiltinStr(b) if *b == name)))
}

/// The process id that follows the prefix in the name of a probe's provider; 0 where the whole name
/// is one string. Strings that are shorter than a name truncate it.
pub(crate) fn provider_pid(desc: &ProbeDesc, family: &Family, strsize: usize) -> u32 {
    // The program has that of the process that fires.
    const ANY: u32 = u32::MAX;
    let pid = family.pid(&desc.provider).or_else(|| family.is_of_several(&desc.provider).then_some(ANY));
    pid.filter(|_| strsize >= FIELD_LIMITS[0]).unwrap_or(0)
}

/// Interns strings, each text once.
struct Names {
    strings: Vec<Arc<[u8]>>,
    known: HashMap<Arc<[u8]>, u32>,
    /// Names that probes share, by their address, because most names are looked up a hundred
    /// thousand times.
    shared: HashMap<*const u8, u32>,
    /// The greatest size of a string in bytes, with its NUL.
    strsize: usize,
    /// Which of the names of a probe a clause uses.
    used: [bool; 4],
}

impl Names {
    fn new(module: &Module) -> Names {
        let strings: Vec<Arc<[u8]>> = module.strings.iter().map(|s| s.as_slice().into()).collect();
        let known = (0..).zip(&strings).map(|(i, s)| (s.clone(), i)).collect();
        let used = names_used(module);
        Names { strings, known, shared: HashMap::new(), strsize: module.strsize as usize, used }
    }

    /// The names of a probe, and the process id that follows the first in a family of processes.
    fn of(&mut self, desc: &ProbeDesc, family: &Family) -> ([u32; 4], u32) {
        let fields = desc.fields();
        let pid = provider_pid(desc, family, self.strsize);
        let names = std::array::from_fn(|i| match self.used[i] {
            true if i == 0 && pid != 0 => self.intern(family.prefix_of(&desc.provider)),
            // Probes rarely share the name of a function.
            true if i == 2 => self.intern(fields[i]),
            true => match self.shared.get(&fields[i].as_ptr()) {
                Some(known) => *known,
                None => {
                    let id = self.intern(fields[i]);
                    self.shared.insert(fields[i].as_ptr(), id);
                    id
                }
            },
            false => 0,
        });
        (names, pid)
    }

    fn intern(&mut self, text: &str) -> u32 {
        let bytes = text.as_bytes();
        let bytes = &bytes[..bytes.len().min(self.strsize.saturating_sub(1))];
        if let Some(known) = self.known.get(bytes) {
            return *known;
        }
        let (id, bytes): (u32, Arc<[u8]>) = (self.strings.len() as u32, bytes.into());
        self.strings.push(bytes.clone());
        self.known.insert(bytes, id);
        id
    }
}

/// The clauses of ERROR.
pub(crate) fn error_clauses(units: &[EnabledUnit]) -> Vec<ClauseUse> {
    let error = units.iter().filter(|a| a.unit.role == Role::Error);
    error.flat_map(|a| a.clauses.iter().cloned()).collect()
}

/// The ERROR probe, if a clause enables it.
pub(crate) fn error_probe(units: &[EnabledUnit]) -> Probe {
    units
        .iter()
        .find(|a| a.unit.role == Role::Error)
        .and_then(|a| a.probes.first())
        .copied()
        .unwrap_or_default()
}
