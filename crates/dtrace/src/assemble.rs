//! From clauses and probes to programs: which clauses run in which program, and under which ids.
//!
//! Each provider makes as few units as it can of the probes that are enabled; a clause is then part of every unit that
//! has one of its probes. Enabled-probe ids are handed out in program order: each clause owns, in each unit, a range as
//! long as the unit's index space, so that a program computes an id by one addition.

use std::collections::BTreeMap;

use bpf::program::{ClauseUse, Probe, ProbeSet};
use check::program::Clause;
use dif::ir::{IntBuiltin, Module, Op, StrBuiltin, Subr};
use probes::ProbeDesc;
use providers::{EnabledProbe, Env, Role, Unit};

use crate::compile::Program;
use crate::pages::{Bringer, bringer};

/// A unit with the clauses that run in it.
pub(crate) struct Assembled {
    pub(crate) unit: Unit,
    pub(crate) clauses: Vec<ClauseUse>,
    /// By index; holes are default.
    pub(crate) probes: Vec<Probe>,
}

/// An enabled probe: what the consumer must know of an id.
pub(crate) struct Enabled {
    pub(crate) epid: u32,
    pub(crate) clause: usize,
    pub(crate) probe: EnabledProbe,
}

/// All programs of a session, before code.
pub(crate) struct Assembly {
    pub(crate) units: Vec<Assembled>,
    pub(crate) enabled: Vec<Enabled>,
    /// Interned strings: those of the module, then names of probes.
    pub(crate) strings: Vec<Vec<u8>>,
    /// The first id that is free.
    pub(crate) next: u32,
    /// What runs before them.
    pub(crate) bringers: Vec<Bringer>,
}

/// The `argN` that a clause asks for: bit N.
fn arguments(module: &Module, clause: usize) -> u64 {
    let insts = module.clauses.get(clause).into_iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
    insts.fold(0, |args, inst| match inst.op {
        Op::Builtin(IntBuiltin::Arg(n)) => args | 1u64.checked_shl(n.into()).unwrap_or(0),
        _ => args,
    })
}

/// The probes that the clauses enable, each once, by id. `first` is the number of the first clause.
fn enabled_probes(module: &Module, first: usize, clauses: &[Clause]) -> BTreeMap<u32, EnabledProbe> {
    let mut all: BTreeMap<u32, EnabledProbe> = BTreeMap::new();
    for (number, clause) in (first..).zip(clauses) {
        let args = arguments(module, number);
        for p in clause.probes.iter() {
            let new = || EnabledProbe { id: p.id, desc: p.desc.clone(), args: 0 };
            all.entry(p.id.0).or_insert_with(new).args |= args;
        }
    }
    all
}

/// Plans all units of the clauses that do not run yet, and hands out ids from `next` on.
pub(crate) fn assemble(program: &Program, env: &Env<'_>, mut next: u32) -> Result<Assembly, String> {
    let Program { module, registry, running, .. } = program;
    let clauses = program.checked.clauses.get(*running..).unwrap_or_default();
    let mut by_provider: BTreeMap<std::sync::Arc<str>, Vec<EnabledProbe>> = BTreeMap::new();
    for probe in enabled_probes(module, *running, clauses).into_values() {
        by_provider.entry(probe.desc.provider.clone()).or_default().push(probe);
    }
    let mut names = Names::new(module);
    let mut units = Vec::new();
    let mut bringers = Vec::new();
    for (provider, probes) in by_provider {
        let from = registry.get(&provider).ok_or_else(|| format!("no provider {provider}"))?;
        for unit in registry.plan(&provider, &probes, env)? {
            let mut table = vec![Probe::default(); unit.space as usize];
            for (index, probe) in &unit.probes {
                if let Some(row) = table.get_mut(*index as usize) {
                    *row = Probe { id: probe.id.0, names: names.of(&probe.desc) };
                }
            }
            units.push(Assembled { unit, clauses: Vec::new(), probes: table });
        }
        let before = |readers: &[EnabledProbe]| from.before(readers, env);
        bringers.extend(bringer(module, (*running, clauses), &probes, before));
    }
    let mut enabled = Vec::new();
    for (number, clause) in (*running..).zip(clauses) {
        let ids: std::collections::HashSet<u32> = clause.probes.iter().map(|p| p.id.0).collect();
        for a in &mut units {
            let mine: Vec<&(u32, EnabledProbe)> =
                a.unit.probes.iter().filter(|(_, p)| ids.contains(&p.id.0)).collect();
            if mine.is_empty() {
                continue;
            }
            let probes = probe_set(&mine, a.unit.space);
            a.clauses.push(ClauseUse { clause: number, probes, epid_base: next });
            enabled.extend(mine.iter().map(|(index, probe)| Enabled {
                epid: next + index,
                clause: number,
                probe: probe.clone(),
            }));
            next = next.checked_add(a.unit.space).ok_or("too many enabled probes")?;
        }
    }
    Ok(Assembly { units, enabled, strings: names.strings, next, bringers })
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

/// Interned strings, each text once.
struct Names {
    strings: Vec<Vec<u8>>,
    known: std::collections::HashMap<Vec<u8>, u32>,
    /// Bytes of a string, its NUL included.
    strsize: usize,
    /// Some clause asks for the names of its probe.
    wanted: bool,
}

impl Names {
    fn new(module: &Module) -> Names {
        let strings = module.strings.clone();
        let known = (0..).zip(&strings).map(|(i, s)| (s.clone(), i)).collect();
        let wanted = uses(module, |op| matches!(op, Op::BuiltinStr(b) if *b != StrBuiltin::Execname));
        Names { strings, known, strsize: module.strsize as usize, wanted }
    }

    fn of(&mut self, desc: &ProbeDesc) -> [u32; 4] {
        if self.wanted { desc.fields().map(|f| self.intern(f)) } else { [0; 4] }
    }

    fn intern(&mut self, text: &str) -> u32 {
        let mut bytes = text.as_bytes().to_vec();
        bytes.truncate(self.strsize.saturating_sub(1));
        let next = self.strings.len() as u32;
        let strings = &mut self.strings;
        *self.known.entry(bytes).or_insert_with_key(|bytes| {
            strings.push(bytes.clone());
            next
        })
    }
}

/// True when some operation of the module is such.
pub(crate) fn uses(module: &Module, such: impl Fn(&Op) -> bool) -> bool {
    module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).any(|i| such(&i.op))
}

/// True when some operation needs the layout of a task.
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
pub(crate) fn error_clauses(units: &[Assembled]) -> Vec<ClauseUse> {
    let error = units.iter().filter(|a| a.unit.role == Role::Error);
    error.flat_map(|a| a.clauses.iter().cloned()).collect()
}

/// ERROR itself, if a clause names it.
pub(crate) fn error_probe(units: &[Assembled]) -> Probe {
    units
        .iter()
        .find(|a| a.unit.role == Role::Error)
        .and_then(|a| a.probes.first())
        .copied()
        .unwrap_or_default()
}
