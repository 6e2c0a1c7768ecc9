//! Creating the maps and loading the programs of a new session, or of more programs for a running
//! one.
//!
//! This module attaches nothing and does not change a running session. [`crate::engine::machine`]
//! adds the loaded programs.

pub(crate) mod assemble;
pub(crate) mod attach;
pub(crate) mod detach;
pub(crate) mod environment;
pub(crate) mod facts;
pub(crate) mod kernel_stack;
pub(crate) mod linear_map;
pub(crate) mod names;
pub(crate) mod prefault;
pub(crate) mod probe_table;
pub(crate) mod process_ids;
pub(crate) mod process_set;
pub(crate) mod services;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use bpf_codegen::context::Probe;
use bpf_codegen::mir::MapRef;
use bpf_codegen::plan::{Needs, Plan};
use bpf_codegen::target::{KernelTables, PreemptCount, Target};
use bpf_codegen::{Layout, Session};
use bpf_runtime::maps::Maps;
use bpf_runtime::program::{ClauseUse, Compiled, ErrorProbe, ProgramSpec, Stretch, compile};
use bpf_sys::Capabilities;
use bpf_sys::load::{LoadError, ProgramImage};
use bpf_sys::{Map, MapSpec, Prog};
use diagnostics::SourceMap;
use dif::ir::{Module, Op, Scope};
use plane::control::Activity;
use plane::ring::Policy;
use providers::method::{Copies, Members, ProgramType};
use providers::{EnabledProbe, Registry, Role, Unit};

use crate::compile::Program;
use crate::engine::clocks::Served;
use crate::engine::growth::{LeftOut, LoadedGrowing, UnitArrival};
use crate::error::Error;
use crate::load::assemble::{Assembly, EnabledUnit, GrowingUnit, assemble, error_clauses};
use crate::load::attach::{AttachedProgram, LaterProbes, Purpose, probes_text};
use crate::load::environment::{env, sizes};
use crate::load::facts::{SystemContext, read_only, target};
use crate::load::kernel_stack::{KernelRows, Programs};
use crate::load::names::{NameTable, strings};
use crate::load::prefault::Prefault;
use crate::load::probe_table::ProbeTable;
use crate::load::services::{Needed, Place, SERVICES, Services};
use crate::options::{BufResize, KernelWalk, Options};

/// The maps and numbers that programs of a running session share with later ones. The descriptors
/// belong to its [`Machine`](crate::engine::machine::Machine).
pub(crate) struct RunningSession {
    pub(crate) plan: Plan,
    pub(crate) fds: BTreeMap<MapRef, RawFd>,
    pub(crate) error: (Probe, Vec<ClauseUse>),
    pub(crate) next_table: u32,
    pub(crate) services: Services,
    pub(crate) names: Option<Arc<NameTable>>,
    pub(crate) kernel_rows: Option<KernelRows>,
}

/// Programs that are loaded and not yet attached, and the maps that only they use.
pub(crate) struct LoadedPrograms {
    /// The sets of processes.
    pub(crate) sets: Vec<Members>,
    pub(crate) attached: Vec<AttachedProgram>,
    /// Programs that serve later probes, and their first sites.
    pub(crate) growing: Vec<(LoadedGrowing, UnitArrival)>,
    /// The probe table, if the session did not have one.
    pub(crate) table: Option<ProbeTable>,
    /// The table of names, if these programs use it.
    pub(crate) names: Option<Arc<NameTable>>,
    pub(crate) begin: Vec<Prog>,
    pub(crate) end: Vec<Prog>,
    /// Units that fail are left out.
    pub(crate) partial: bool,
    /// Those of which no program is loaded.
    pub(crate) left: LeftOut,
    /// For `-v`.
    pub(crate) details: Vec<String>,
    pub(crate) error: (Probe, Vec<ClauseUse>),
    pub(crate) next_table: u32,
    /// Those of the session when these are attached.
    pub(crate) services: Services,
    /// By which rows they walk stacks of the kernel, once it is known.
    pub(crate) kernel_rows: Option<KernelRows>,
    pub(crate) maps: Maps,
}

impl LoadedPrograms {
    /// Sizes that were lowered because the kernel did not have the memory.
    pub(crate) fn lowered(&self) -> &[bpf_runtime::maps::Lowered] {
        &self.maps.lowered
    }
}

/// Creates the maps and loads the programs of an assembly, for a new session or a running one. A
/// running session does not change yet; with `true`, units that fail are left out, if one does not.
/// Calls `between` after each program.
pub(crate) fn load(
    session: (Option<&RunningSession>, bool),
    program: &Program,
    assembly: &Assembly,
    options: &Options,
    system: &SystemContext<'_>,
    between: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<LoadedPrograms, Error> {
    let rows = session.0.and_then(|running| running.kernel_rows.clone());
    let mut walks = None;
    let loaded = load_as(session, program, assembly, options, system, (rows, &mut walks), between);
    let refusals = |loaded: &Result<LoadedPrograms, Error>| match loaded {
        Ok(loaded) => loaded.left.failed.iter().filter(|(_, e)| matches!(e, Error::Load(_))).count(),
        Err(e) => usize::from(matches!(e, Error::Load(_))),
    };
    let refused = refusals(&loaded);
    let Some(rows) = walks.filter(|_| refused > 0 && options.kstackwalk == KernelWalk::Auto) else {
        return loaded;
    };
    // Perhaps it is the walk of the kernel's stack that this kernel's verifier does not accept. If
    // not, it refuses the others, too. The maps of the first try go before those of the second are
    // made.
    drop(loaded);
    let answer = Some(kernel_stack::refused());
    let mut loaded = load_as(session, program, assembly, options, system, (answer, &mut None), between);
    if refusals(&loaded) == refused
        && let Ok(loaded) = &mut loaded
    {
        loaded.kernel_rows = Some(Ok(rows));
    }
    loaded
}

/// The same, with what is known of the kernel's rows. `walks` becomes those by which programs walk
/// the kernel's stack themselves.
fn load_as(
    (running, partial): (Option<&RunningSession>, bool),
    program: &Program,
    assembly: &Assembly,
    options: &Options,
    system: &SystemContext<'_>,
    (mut rows, walks): (Option<KernelRows>, &mut Option<KernelTables>),
    between: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<LoadedPrograms, Error> {
    let module = &*program.module;
    let (mut error_probe, mut error) = running.map_or_else(Default::default, |m| m.error.clone());
    error.extend(error_clauses(&assembly.units));
    if error_probe == Probe::default() {
        error_probe = crate::load::assemble::error_probe(&assembly.units);
    }
    let error_numbers: Vec<usize> = error.iter().map(|c| c.clause).collect();
    let layout = Layout::new(module, &error_numbers);
    let unwind = crate::load::facts::unwind_offsets(&layout, options, system);
    let needs = Needs {
        threads: options.flowindent,
        processes: process_set::size(assembly, options),
        unwind: unwind.is_some(),
        runtimes: unwind.is_some_and(|unwind| unwind.fs_base.is_some())
            && layout.stacks.user.is_some_and(|area| area.calls > 0),
        ..needs(module, assembly, &layout, system)
    };
    bpf_runtime::limits::check_buffers(module, options.bufsize.0, options.aggsize.0)?;
    let auto = options.bufresize == BufResize::Auto;
    let limits = crate::load::environment::memory_limits();
    let mut maps = match running {
        None => {
            let plan = Plan::new(module, &sizes(options), &needs);
            bpf_runtime::limits::check_plan(module, &plan, |n| system.features.allows_thread_value(n))?;
            Maps::create(plan, (auto, &limits[..]), None)?
        }
        Some(r) => {
            let plan = r.plan.extend(module, &sizes(options), &needs);
            bpf_runtime::limits::check_plan(module, &plan, |n| system.features.allows_thread_value(n))?;
            Maps::extend(&r.plan, plan, (auto, &limits[..]))?
        }
    };
    let mut target = Target { unwind, ..target(module, maps.plan.processes > 0, system)? };
    let programs = Programs { module, assembly, running };
    let stacks = kernel_stack::prepare(programs, options, system, (&mut target, &mut maps, &mut rows))?;
    *walks = target.kernel_walk.map(|walk| walk.tables);
    let session = Session {
        module,
        plan: &maps.plan.clone(),
        layout: &layout,
        target: &target,
        interned: assembly.strings.len() as u32,
    };
    let first_table = running.map_or(0, |m| m.next_table);
    let mut loaded = LoadedPrograms {
        sets: Vec::new(),
        attached: Vec::new(),
        growing: Vec::new(),
        table: None,
        names: None,
        begin: Vec::new(),
        end: Vec::new(),
        partial,
        left: LeftOut::default(),
        details: stacks.into_iter().collect(),
        error: (error_probe, error.clone()),
        next_table: first_table + (assembly.units.len() + assembly.prefaults.len()) as u32,
        services: running.map_or_else(Services::default, |m| m.services),
        kernel_rows: rows,
        maps,
    };
    let error = ErrorProbe { probe: error_probe, clauses: &error };
    let preempt_count = preempt_count(module, assembly, system);
    let (strings, sources) = (&assembly.strings, &program.map);
    let mut loader = ProgramLoader {
        session: &session,
        error,
        running,
        strings,
        options,
        sources,
        preempt_count,
        probes: None,
        names: running.and_then(|r| r.names.clone()).map_or_else(OnceCell::new, OnceCell::from),
    };
    let first_unit = first_table + assembly.prefaults.len() as u32;
    let later = LaterIn(&program.registry);
    let mut last_prefaults = Vec::new();
    for (number, prefault) in (first_table..first_unit).zip(&assembly.prefaults) {
        let prog = loader.load_prefault(prefault, number, &mut loaded.maps)?;
        // These run before all others at the same tracepoint.
        let method = prefault.unit.method.clone();
        let last = method.newest_runs_first();
        let mut program = AttachedProgram::new(prog, method, Purpose::Prefault);
        program.later = later.of(&prefault.unit, &[], number, &mut loaded.maps);
        if last { last_prefaults.push(program) } else { loaded.attached.push(program) }
    }
    for (number, a) in (first_unit..).zip(&assembly.units) {
        if a.unit.role == Role::Error || a.clauses.is_empty() {
            continue;
        }
        match load_one(&mut loader, (a, number), &later, &mut loaded, between) {
            Ok(()) => loaded.left.attached = true,
            Err(e) if !partial || matches!(e, Error::Interrupted) => return Err(e),
            Err(e) => {
                loaded.left.failed.push((probes_text(a.unit.probes.iter().map(|(_, p)| &*p.desc)), e));
                let sites = a.growing.iter().flat_map(|growing| &growing.sites);
                loaded.left.rejected.extend(sites.map(|site| site.new.first));
                let fixed = a.clauses.iter().filter(|_| a.growing.is_none());
                loaded.left.rejected.extend(fixed.map(|clause| clause.epid_base));
            }
        }
    }
    loaded.left = std::mem::take(&mut loaded.left).or_error()?;
    loaded.left.attached = false;
    loaded.attached.extend(last_prefaults);
    loaded.names = loader.names.get().cloned();
    let attached = loaded.attached.iter().filter(|a| a.fires()).map(|a| &a.method);
    let mut methods = attached.chain(loaded.growing.iter().map(|(_, arrival)| &arrival.unit.method));
    let mut needed = Needed {
        assembly,
        options,
        system,
        target: &target,
        plan: &loaded.maps.plan,
        variables: module.vars.len() as u32,
        can_overload: methods.any(|method| method.can_overload()),
        has_others: !(loaded.attached.is_empty() && loaded.growing.is_empty()),
    };
    let mut first = Vec::new();
    for service in SERVICES {
        for (compiled, method, purpose) in service.programs(&needed, &mut loaded.services)? {
            let prog = loader.load_compiled(&compiled, &loaded.maps)?;
            let program = AttachedProgram::new(prog, method, purpose);
            match service.place {
                Place::First => first.push(program),
                Place::Last => loaded.attached.push(program),
            }
            needed.has_others = true;
        }
    }
    loaded.attached.splice(..0, first);
    loaded.sets.clone_from(&assembly.sets);
    crate::load::attach::order(&mut loaded.attached, system.kernel);
    Ok(loaded)
}

/// Loads the program of a unit.
fn load_one(
    loader: &mut ProgramLoader<'_>,
    (a, number): (&EnabledUnit, u32),
    later: &LaterIn<'_>,
    loaded: &mut LoadedPrograms,
    between: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    if let Some(growing) = &a.growing {
        if !loader.running.is_some_and(|r| r.fds.contains_key(&MapRef::Probes)) && loaded.table.is_none() {
            loaded.table = Some(ProbeTable::new()?);
        }
        loader.probes = loaded.table.as_ref().map(|t| t.map().as_fd().as_raw_fd());
        let program = loader.load_growing(a, growing, number, &mut loaded.maps)?;
        let (sites, prefault) = (growing.sites.clone(), growing.prefault.clone());
        let arrival = UnitArrival { program: growing.program, unit: a.unit.clone(), sites, prefault };
        loaded.growing.push((program, arrival));
        return between();
    }
    let epids: Vec<u32> = a.clauses.iter().map(|clause| clause.epid_base).collect();
    let copies = a.unit.method.copies();
    if copies != Copies::None {
        let mut program = loader.load_copied(a, copies, number, &mut loaded.maps, between)?;
        program.later = later.of(&a.unit, &epids, number, &mut loaded.maps);
        loaded.attached.push(program);
        return Ok(());
    }
    let prog = loader.load_unit(a, number, &mut loaded.maps)?;
    let served = loaded.maps.take(MapRef::Served);
    between()?;
    match a.unit.role {
        Role::Begin => loaded.begin.push(prog),
        Role::End => loaded.end.push(prog),
        _ => {
            let mut attached = AttachedProgram::of_unit(prog, &a.unit);
            let name = a.unit.probes.first().map(|(_, probe)| probe.desc.name.to_string());
            if let (Some(map), Some(name)) = (served, name) {
                attached.served = Some(Served { name, memory: map.mmap(true)? });
            }
            attached.later = later.of(&a.unit, &epids, number, &mut loaded.maps);
            loaded.attached.push(attached);
        }
    }
    Ok(())
}

/// Takes the maps that only the program with this number uses.
fn own_maps(number: u32, maps: &mut Maps) -> Vec<Map> {
    [MapRef::Table(number), MapRef::EmptyProgArray].into_iter().filter_map(|at| maps.take(at)).collect()
}

/// Knows which probes came later.
struct LaterIn<'a>(&'a Registry);

impl LaterIn<'_> {
    /// The probes of a fixed program, if all of them came later, and the maps that only it uses.
    fn of(&self, unit: &Unit, epids: &[u32], number: u32, maps: &mut Maps) -> Option<LaterProbes> {
        let is_later = |(_, probe): &(u32, EnabledProbe)| self.0.is_later(probe.id);
        if unit.probes.is_empty() || !unit.probes.iter().all(is_later) {
            return None;
        }
        let ids = unit.probes.iter().map(|(_, probe)| probe.id.0).collect();
        let text = probes_text(unit.probes.iter().map(|(_, probe)| &*probe.desc));
        Some(LaterProbes { ids, epids: epids.to_vec(), _maps: own_maps(number, maps), text })
    }
}

impl Program {
    /// Generates the programs of a session without creating kernel objects, and reports what
    /// exceeds a limit of the back end, as enabling does. Without the privilege to trace, some ways
    /// to attach cannot be chosen, and their programs are not generated.
    pub fn check_limits(&self, options: &Options) -> Result<(), Error> {
        let (features, cpus) = (self.system.features(), self.system.online_cpus());
        let Ok(assembly) = assemble(self, &env(options, features, &cpus), 1, false) else {
            return Ok(());
        };
        let symbols = RefCell::new(self.system.symbols());
        let system = SystemContext::new(&self.system, &cpus, &symbols);
        // What is known of another machine, somebody who can trace has tried.
        let can_trace = !self.system.is_live() || Capabilities::of_this_thread().can_trace();
        let module = &*self.module;
        let error = error_clauses(&assembly.units);
        let numbers: Vec<usize> = error.iter().map(|c| c.clause).collect();
        let layout = Layout::new(module, &numbers);
        let plan = Plan::new(module, &sizes(options), &needs(module, &assembly, &layout, &system));
        bpf_runtime::limits::check_plan(module, &plan, |n| !can_trace || features.allows_thread_value(n))?;
        // Enabling reports what this kernel does not have.
        let target = target(module, process_set::size(&assembly, options) > 0, &system).unwrap_or_default();
        let interned = assembly.strings.len() as u32;
        let session = Session { module, plan: &plan, layout: &layout, target: &target, interned };
        let error =
            ErrorProbe { probe: crate::load::assemble::error_probe(&assembly.units), clauses: &error };
        let preempt_count = preempt_count(module, &assembly, &system);
        let (strings, sources) = (&assembly.strings, &self.map);
        let loader = ProgramLoader {
            session: &session,
            error,
            running: None,
            strings,
            options,
            sources,
            preempt_count,
            probes: None,
            names: OnceCell::new(),
        };
        for (number, a) in (0..).zip(&assembly.units) {
            if a.unit.role != Role::Error && !a.clauses.is_empty() {
                loader.compile_unit(a, number)?;
            }
        }
        Ok(())
    }
}

/// The number of functions that are tried before a program is reported as invalid.
const FIRST_TRIES: usize = 8;

fn needs(module: &Module, assembly: &Assembly, layout: &Layout, system: &SystemContext<'_>) -> Needs {
    let probes = || assembly.units.iter().filter(|a| a.unit.role == Role::Probe && !a.clauses.is_empty());
    Needs {
        cpus: system.cpus.len() as u32,
        one_shot: probes().next().is_none(),
        slot_bytes: layout.slot_bytes,
        // A thread and an interrupt have separate levels, also for programs that are enabled later.
        levels: if has_thread_locals(module) { HARD_INTERRUPT + 1 } else { 1 },
        end: assembly.clauses_of(Role::End),
        ..Needs::default()
    }
}

fn has_thread_locals(module: &Module) -> bool {
    module.vars.iter().any(|v| v.scope == Scope::Thread)
}

/// True for a unit whose probes fire in threads and in interrupts. Clocks fire in interrupts only.
fn fires_at_any_level(unit: &Unit) -> bool {
    unit.interrupts && !unit.method.only_interrupts()
}

/// Where programs read their context level, if one of them needs it.
fn preempt_count(module: &Module, assembly: &Assembly, system: &SystemContext<'_>) -> Option<PreemptCount> {
    let needed = has_thread_locals(module) && assembly.units.iter().any(|a| fires_at_any_level(&a.unit));
    needed.then(|| crate::load::facts::preempt_count(system)).flatten()
}

/// The context level of clocks.
const HARD_INTERRUPT: u32 = 2;

/// Loads the programs of an assembly.
struct ProgramLoader<'a> {
    session: &'a Session<'a>,
    error: ErrorProbe<'a>,
    running: Option<&'a RunningSession>,
    strings: &'a [Arc<[u8]>],
    options: &'a Options,
    sources: &'a SourceMap,
    /// Where programs whose probes fire at any context level read the level.
    preempt_count: Option<PreemptCount>,
    /// The probe table, where it is new.
    probes: Option<RawFd>,
    /// The table of names, once a program uses it.
    names: OnceCell<Arc<NameTable>>,
}

impl ProgramLoader<'_> {
    fn load_unit(&self, a: &EnabledUnit, number: u32, maps: &mut Maps) -> Result<Prog, Error> {
        self.load_image(&self.image(a, number, maps)?)
    }

    /// Loads a program that its method needs in copies. Copies for targets are loaded when they are
    /// attached; until then the first one that the kernel accepts shows that the program is valid.
    fn load_copied(
        &self,
        a: &EnabledUnit,
        copies: Copies,
        number: u32,
        maps: &mut Maps,
        between: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<AttachedProgram, Error> {
        let mut image = self.image(a, number, maps)?;
        let mut progs: Vec<Prog> = Vec::new();
        let mut stopped = Ok(());
        let (mut missing, mut targets) = ("this unit has no probes", Vec::new());
        match copies {
            Copies::None => progs.push(self.load_image(&image)?),
            Copies::Numbered(count) => {
                bpf_sys::raise_fd_limit(count.into());
                let each = |prog| {
                    progs.push(prog);
                    stopped = between();
                    stopped.is_ok()
                };
                image.load_copies(count, self.log_level(), each).map_err(Error::Load)?;
                stopped?;
            }
            Copies::Targets(all) => {
                missing = "the kernel's types have none of these functions";
                targets = all;
            }
        }
        let mut rejected = None;
        let tries = targets.iter().copied().filter(|id| *id != 0).take(FIRST_TRIES);
        let first = |loaded: Result<Prog, Box<LoadError>>| {
            match loaded {
                Ok(prog) => progs.push(prog),
                Err(e) => rejected = Some(e),
            }
            progs.is_empty()
        };
        image.load_for(tries, first).map_err(Error::Load)?;
        let mut progs = progs.into_iter();
        let prog = progs.next().ok_or_else(|| match rejected {
            Some(e) => match e.reason.as_deref().and_then(|why| a.unit.method.explain(why)) {
                Some(why) => Error::Provider(why),
                None => Error::Load(e),
            },
            None => Error::Setting(missing.into()),
        })?;
        between()?;
        let mut program = AttachedProgram::of_unit(prog, &a.unit);
        program.loaded.copies = progs.collect();
        program.loaded.image = (!targets.is_empty()).then_some(image);
        Ok(program)
    }

    /// The image of a unit's program. Creates the maps that only it uses.
    fn image(&self, a: &EnabledUnit, number: u32, maps: &mut Maps) -> Result<ProgramImage, Error> {
        self.image_with_maps(&self.compile_unit(a, number)?, number, maps)
    }

    fn image_with_maps(
        &self,
        compiled: &Compiled,
        number: u32,
        maps: &mut Maps,
    ) -> Result<ProgramImage, Error> {
        let wants_strings = compiled.code.relocs.iter().any(|(_, map)| *map == MapRef::Strings);
        if wants_strings && maps.get(MapRef::Strings).is_none() {
            maps.insert(MapRef::Strings, strings(self.session.strings(), self.strings)?);
        }
        if let Some(bytes) = &compiled.table {
            maps.insert(MapRef::Table(number), read_only("dt_table", bytes)?);
        }
        if compiled.code.relocs.iter().any(|(_, map)| *map == MapRef::Served) {
            let size = 8 * bpf_sys::cpu_numbers_end();
            maps.insert(MapRef::Served, Map::create(&MapSpec::mmapable("dt_served", size, 1))?);
        }
        if bpf_runtime::program::must_avoid_private_stack(compiled.kind, compiled.attach) {
            // Each program has its own, because the map takes the type of the first program that
            // uses it.
            maps.insert(MapRef::EmptyProgArray, Map::create(&MapSpec::prog_array("dt_no_program"))?);
        }
        self.image_of(compiled, maps)
    }

    /// Loads a program for later probes, and the one that faults in what its clauses read.
    fn load_growing(
        &self,
        a: &EnabledUnit,
        growing: &GrowingUnit,
        number: u32,
        maps: &mut Maps,
    ) -> Result<LoadedGrowing, Error> {
        let compiled = self.compile_unit(a, number)?;
        let uses_names = compiled.code.relocs.iter().any(|(_, map)| *map == MapRef::Names);
        if uses_names {
            self.add_names(a)?;
        }
        let image = self.image_with_maps(&compiled, number, maps)?;
        let prog = self.load_image(&image)?;
        let prefault = growing.prefault.as_ref().map(|unit| -> Result<_, Error> {
            let probes = vec![Probe::default(); unit.space as usize];
            let compiled = self.compile_prefault((unit, &probes), (&[], &growing.stretches), true, number)?;
            let image = self.image_of(&compiled, maps)?;
            Ok((self.load_image(&image)?, image))
        });
        let prefault = prefault.transpose()?;
        let uses_strings = maps.get(MapRef::Strings).is_some();
        let maps = own_maps(number, maps);
        Ok(LoadedGrowing { prog, image: (!uses_strings).then_some(image), prefault, uses_names, maps })
    }

    /// Makes the strings of a growing program known to it: the names of its first probes, and its
    /// constants, because a value can be one or the other.
    fn add_names(&self, a: &EnabledUnit) -> Result<(), Error> {
        if self.names.get().is_none() {
            let table = NameTable::new(self.session.module.string_storage())?;
            let _ = self.names.set(Arc::new(table));
        }
        let Some(table) = self.names.get() else { return Ok(()) };
        let clauses = a.clauses.iter().filter_map(|c| self.session.module.clauses.get(c.clause));
        let constants = clauses.flat_map(|c| c.func.blocks.iter().flat_map(|b| &b.insts));
        let constants = constants.filter_map(|i| match i.op {
            Op::StrConst(id) => Some(id.0),
            _ => None,
        });
        let names = a.growing.iter().flat_map(|g| &g.sites).flat_map(|site| site.new.names);
        table.add(names.chain(constants), |n| self.strings.get(n as usize).map(|text| &**text))
    }

    fn compile_unit(&self, a: &EnabledUnit, number: u32) -> Result<Compiled, Error> {
        let ProgramType { kind, attach, btf: attach_btf_id } = a.unit.method.program();
        let activity = match (a.unit.role, self.running) {
            (Role::Begin, None) => Activity::Warmup,
            (Role::End, _) => Activity::Draining,
            // BEGIN of a program that is enabled later runs while the session is active.
            _ => Activity::Active,
        };
        let spec = ProgramSpec {
            name: &a.unit.name,
            kind,
            attach,
            attach_btf_id,
            activity,
            context: a.unit.context.as_ref(),
            probes: &a.probes,
            clauses: &a.clauses,
            growing: a.growing.is_some(),
            error: self.error,
            table: number,
        };
        let mut plan = self.session.plan.clone();
        if a.unit.role == Role::End && plan.policy == Policy::Fill {
            plan.policy = Policy::Switch;
        }
        match fires_at_any_level(&a.unit) {
            true => plan.preempt_count = self.preempt_count,
            false => plan.level = if a.unit.interrupts { HARD_INTERRUPT } else { 0 },
        }
        Ok(compile(&Session { plan: &plan, ..*self.session }, &spec)?)
    }

    fn load_prefault(&self, prefault: &Prefault, number: u32, maps: &mut Maps) -> Result<Prog, Error> {
        let Prefault { unit, probes, uses, accesses } = prefault;
        let compiled = self.compile_prefault((unit, probes), (uses, accesses), false, number)?;
        if let Some(bytes) = &compiled.table {
            maps.insert(MapRef::Table(number), read_only("dt_table", bytes)?);
        }
        self.load_compiled(&compiled, maps)
    }

    fn compile_prefault(
        &self,
        (unit, probes): (&Unit, &[Probe]),
        (clauses, stretches): (&[ClauseUse], &[Stretch]),
        growing: bool,
        table: u32,
    ) -> Result<Compiled, Error> {
        let ProgramType { kind, attach, btf: attach_btf_id } = unit.method.program();
        let spec = ProgramSpec {
            name: &unit.name,
            kind,
            attach,
            attach_btf_id,
            activity: Activity::Active,
            context: unit.context.as_ref(),
            probes,
            clauses,
            growing,
            error: ErrorProbe::default(),
            table,
        };
        Ok(bpf_runtime::program::prefault(&spec, stretches, self.session.target.processes)?)
    }

    fn load_compiled(&self, compiled: &Compiled, maps: &Maps) -> Result<Prog, Error> {
        self.load_image(&self.image_of(compiled, maps)?)
    }

    fn image_of(&self, compiled: &Compiled, maps: &Maps) -> Result<ProgramImage, Error> {
        let fd = |at: MapRef| {
            let new = maps.get(at).map(|m| m.as_fd().as_raw_fd());
            let new = new.or(self.probes.filter(|_| at == MapRef::Probes));
            let new = new.or(self.names.get().filter(|_| at == MapRef::Names).map(|names| names.fd()));
            new.or_else(|| self.running.and_then(|r| r.fds.get(&at).copied()))
        };
        Ok(compiled.image(fd, Some(self.sources))?)
    }

    fn load_image(&self, image: &ProgramImage) -> Result<Prog, Error> {
        image.load(self.log_level()).map(|l| l.prog).map_err(Error::Load)
    }

    fn log_level(&self) -> u32 {
        u32::from(self.options.bpflog)
    }
}
