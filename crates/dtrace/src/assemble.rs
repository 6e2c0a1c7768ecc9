//! From clauses and probes to programs: which clauses run in which program, and with which ids.
//!
//! Each provider plans as few units as possible for the enabled probes. A clause is part of every
//! unit that has one of its probes. Enabled-probe ids are assigned in program order: each clause
//! has, in each unit, a range as long as the unit's index space. So a program computes an id by one
//! addition.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use bpf::program::{ClauseUse, Probe, ProbeSet};
use check::program::Clause;
use dif::ir::{IntBuiltin, Module, Op, StrBuiltin, Subr};
use probes::{ProbeDesc, ProbeInfo};
use providers::{EnabledProbe, Env, Role, Unit};

use crate::compile::Program;
use crate::prefault::{Prefault, prefault};

/// A unit and the clauses that run in it.
pub(crate) struct EnabledUnit {
    pub(crate) unit: Unit,
    pub(crate) clauses: Vec<ClauseUse>,
    /// By index. An unused index has the default.
    pub(crate) probes: Vec<Probe>,
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
}

/// How a clause uses its probes: the `argN` that it reads (bit N), and whether it sets the results
/// of their functions.
#[derive(Clone, Copy, Default)]
struct ProbeUse {
    args: u64,
    sets_result: bool,
}

impl ProbeUse {
    fn of(module: &Module, clause: usize) -> ProbeUse {
        let insts =
            module.clauses.get(clause).into_iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
        insts.fold(ProbeUse::default(), |all, inst| match &inst.op {
            Op::Builtin(IntBuiltin::Arg(n)) => {
                ProbeUse { args: all.args | 1u64.checked_shl((*n).into()).unwrap_or(0), ..all }
            }
            Op::Call(Subr::Return, _) => ProbeUse { sets_result: true, ..all },
            _ => all,
        })
    }

    fn add(&mut self, other: ProbeUse) {
        self.args |= other.args;
        self.sets_result |= other.sets_result;
    }
}

/// The probes that the clauses enable, each once, in the order of their ids. `first` is the number
/// of the first clause.
fn enabled_probes(module: &Module, first: usize, clauses: &[Clause]) -> impl Iterator<Item = EnabledProbe> {
    // Clauses of one description share their list of probes.
    let mut lists: Vec<(&Rc<[ProbeInfo]>, ProbeUse)> = Vec::new();
    for (number, clause) in (first..).zip(clauses) {
        let usage = ProbeUse::of(module, number);
        match lists.last_mut() {
            Some((list, all)) if Rc::ptr_eq(list, &clause.probes) => all.add(usage),
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
    all.into_iter().map(|(p, usage)| EnabledProbe {
        id: p.id,
        desc: p.desc.clone(),
        args: usage.args,
        sets_result: usage.sets_result,
    })
}

/// Plans all units of the clauses that do not run yet, and assigns ids from `next` on.
pub(crate) fn assemble(program: &Program, env: &Env<'_>, mut next: u32) -> Result<Assembly, String> {
    let Program { module, registry, running, .. } = program;
    let clauses = program.checked.clauses.get(*running..).unwrap_or_default();
    let mut by_provider: BTreeMap<Arc<str>, Vec<EnabledProbe>> = BTreeMap::new();
    for probe in enabled_probes(module, *running, clauses) {
        by_provider.entry(probe.desc.provider.clone()).or_default().push(probe);
    }
    let mut names = Names::new(module);
    let mut units = Vec::new();
    let mut prefaults = Vec::new();
    for (provider, probes) in by_provider {
        let from = registry.get(&provider).ok_or_else(|| format!("no provider {provider}"))?;
        for unit in registry.plan(&provider, &probes, env)? {
            let mut table = vec![Probe::default(); unit.space as usize];
            for (index, probe) in &unit.probes {
                if let Some(row) = table.get_mut(*index as usize) {
                    *row = Probe { id: probe.id.0, names: names.of(&probe.desc) };
                }
            }
            units.push(EnabledUnit { unit, clauses: Vec::new(), probes: table });
        }
        let before = |readers: &[EnabledProbe]| from.before(readers, env);
        prefaults.extend(prefault(module, (*running, clauses), &probes, before));
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
            let Some(probes) = probes.clone() else { continue };
            a.clauses.push(ClauseUse { clause: number, probes, epid_base: next });
            enabled.push(EnabledClause { first: next, clause: number, unit });
            next = next.checked_add(a.unit.space).ok_or("too many enabled probes")?;
        }
    }
    Ok(Assembly { units, enabled, strings: names.strings, next, prefaults })
}

pub(crate) fn probe_set(mine: &[&(u32, EnabledProbe)], space: u32) -> ProbeSet {
    match mine {
        _ if mine.len() == space as usize => ProbeSet::All,
        [(index, _)] => ProbeSet::One(*index),
        _ => {
            let mut words = vec![0u64; space.div_ceil(64) as usize];
            for (index, _) in mine {
                words[*index as usize / 64] |= 1 << (index % 64);
            }
            ProbeSet::Bitmap(words)
        }
    }
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
        use StrBuiltin::{ProbeFunc, ProbeMod, ProbeName, ProbeProv};
        let strings: Vec<Arc<[u8]>> = module.strings.iter().map(|s| s.as_slice().into()).collect();
        let known = (0..).zip(&strings).map(|(i, s)| (s.clone(), i)).collect();
        let used = [ProbeProv, ProbeMod, ProbeFunc, ProbeName]
            .map(|name| uses(module, |op| matches!(op, Op::BuiltinStr(b) if *b == name)));
        Names { strings, known, shared: HashMap::new(), strsize: module.strsize as usize, used }
    }

    fn of(&mut self, desc: &ProbeDesc) -> [u32; 4] {
        let fields = desc.fields();
        std::array::from_fn(|i| match self.used[i] {
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
        })
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

/// True if the predicate holds for an operation of the module.
pub(crate) fn uses(module: &Module, predicate: impl Fn(&Op) -> bool) -> bool {
    module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).any(|i| predicate(&i.op))
}

/// True if an operation needs the layout of `task_struct`.
pub(crate) fn uses_task(module: &Module) -> bool {
    use IntBuiltin::{CurThread, Ppid, Ureg, UserThread};
    uses(module, |op| match op {
        Op::BuiltinStr(b) => *b == StrBuiltin::Execname,
        Op::Builtin(b) => matches!(b, CurThread | Ppid | UserThread | Ureg(_)),
        Op::Call(Subr::Progenyof, _) => true,
        _ => false,
    })
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
