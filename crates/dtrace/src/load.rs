//! Creating the maps and loading the programs of a new session, or of more programs for a running
//! one.
//!
//! This module attaches nothing and does not change a running session. [`crate::machine`] adds the
//! loaded programs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bpf::features::{Capabilities, Features};
use bpf::load::{LoadError, ProgramImage};
use bpf::maps::{Area, Maps, Needs, Plan, PreemptCount};
use bpf::mir::MapRef;
use bpf::program::{ClauseUse, Compiled, ErrorProbe, Layout, Probe, ProgramSpec, Session, compile};
use bpf::sys::{AttachType, Map, MapSpec, Prog, ProgKind, SysError, Update};
use diagnostics::SourceMap;
use dif::ir::{IntBuiltin, Module, Op, Scope};
use plane::control::Activity;
use providers::sites::{AttachMethod, Sites};
use providers::{Attach, Env, Role, Unit};
use types::btf::KernelBtf;

use crate::assemble::{Assembly, EnabledUnit, assemble, error_clauses, uses};
use crate::clocks::Served;
use crate::compile::Program;
use crate::error::Error;
use crate::facts::target;
use crate::machine::AttachedProgram;
use crate::options::Options;
use crate::prefault::Prefault;

/// The system that a session runs on.
pub(crate) struct SystemContext<'a> {
    pub(crate) kernel: &'a KernelBtf,
    pub(crate) features: &'static Features,
    pub(crate) cpus: &'a [u32],
    /// The kernel's symbols.
    pub(crate) symbols: &'a RefCell<symbols::Kernel>,
}

/// The maps and numbers that programs of a running session share with later ones. The descriptors
/// belong to its [`Machine`](crate::machine::Machine).
pub(crate) struct RunningSession {
    pub(crate) plan: Plan,
    pub(crate) fds: BTreeMap<MapRef, RawFd>,
    pub(crate) error: (Probe, Vec<ClauseUse>),
    pub(crate) next_table: u32,
    pub(crate) freed_arrays: u32,
    pub(crate) heartbeat: bool,
}

/// Programs that are loaded and not yet attached, and the maps that only they use.
pub(crate) struct LoadedPrograms {
    pub(crate) attached: Vec<AttachedProgram>,
    pub(crate) begin: Vec<Prog>,
    pub(crate) end: Vec<Prog>,
    pub(crate) error: (Probe, Vec<ClauseUse>),
    pub(crate) next_table: u32,
    pub(crate) freed_arrays: u32,
    /// Nanoseconds between heartbeats, if a heartbeat is among the programs.
    pub(crate) heartbeat: Option<u64>,
    pub(crate) maps: Maps,
}

impl LoadedPrograms {
    /// Sizes that were lowered because the kernel did not have the memory.
    pub(crate) fn lowered(&self) -> &[bpf::maps::Lowered] {
        &self.maps.lowered
    }
}

/// Creates the maps and loads the programs of an assembly, for a new session or a running one. A
/// running session does not change yet. Calls `between` after each program.
pub(crate) fn load(
    running: Option<&RunningSession>,
    program: &Program,
    assembly: &Assembly,
    options: &Options,
    system: &SystemContext<'_>,
    between: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<LoadedPrograms, Error> {
    let module = &*program.module;
    let (mut error_probe, mut error) = running.map_or_else(Default::default, |m| m.error.clone());
    error.extend(error_clauses(&assembly.units));
    if error_probe == Probe::default() {
        error_probe = crate::assemble::error_probe(&assembly.units);
    }
    let error_numbers: Vec<usize> = error.iter().map(|c| c.clause).collect();
    let layout = Layout::new(module, &error_numbers);
    let needs = Needs { threads: options.flag("flowindent"), ..needs(module, assembly, &layout, system) };
    let auto = options.text("bufresize") == "auto";
    let mut maps = match running {
        None => {
            let plan = Plan::new(module, &sizes(options), &needs);
            bpf::limits::check_plan(module, &plan, |n| system.features.allows_thread_value(n))?;
            Maps::create(plan, auto, None)?
        }
        Some(r) => {
            let plan = r.plan.extend(module, &sizes(options), &needs);
            bpf::limits::check_plan(module, &plan, |n| system.features.allows_thread_value(n))?;
            Maps::extend(&r.plan, plan, auto)?
        }
    };
    let mut target = target(module, system)?;
    target.tracer_functions = tracer_functions((module, assembly), running, system, &mut maps)?;
    let session = Session {
        module,
        plan: &maps.plan.clone(),
        layout: &layout,
        target: &target,
        interned: assembly.strings.len() as u32,
    };
    let first_table = running.map_or(0, |m| m.next_table);
    let mut loaded = LoadedPrograms {
        attached: Vec::new(),
        begin: Vec::new(),
        end: Vec::new(),
        error: (error_probe, error.clone()),
        next_table: first_table + (assembly.units.len() + assembly.prefaults.len()) as u32,
        freed_arrays: running.map_or(0, |m| m.freed_arrays),
        heartbeat: None,
        maps,
    };
    let error = ErrorProbe { probe: error_probe, clauses: &error };
    let preempt_count = preempt_count(module, assembly, system);
    let (strings, sources) = (&assembly.strings, &program.map);
    let loader =
        ProgramLoader { session: &session, error, running, strings, options, sources, preempt_count };
    let first_unit = first_table + assembly.prefaults.len() as u32;
    for (number, prefault) in (first_table..first_unit).zip(&assembly.prefaults) {
        let prog = loader.load_prefault(prefault, number, &mut loaded.maps)?;
        // These run before all others at the same tracepoint.
        loaded.attached.push(AttachedProgram::new(prog, prefault.unit.attach.clone(), false));
    }
    for (number, a) in (first_unit..).zip(&assembly.units) {
        if a.unit.role == Role::Error || a.clauses.is_empty() {
            continue;
        }
        if let Attach::EachTracepoint(names) = &a.unit.attach {
            let image = loader.image(a, number, &mut loaded.maps)?;
            bpf::sys::raise_fd_limit(names.len() as u64);
            let (count, mut names) = (names.len() as u32, names.iter());
            let mut stopped = Ok(());
            let each = |prog| {
                let attach = names.next().map(|name| Attach::Tracepoints(vec![name.clone()]));
                loaded.attached.extend(attach.map(|attach| AttachedProgram::new(prog, attach, true)));
                stopped = between();
                stopped.is_ok()
            };
            image.load_copies(count, loader.log_level(), each).map_err(Error::Load)?;
            stopped?;
            continue;
        }
        if let Attach::Sites(sites) = &a.unit.attach
            && matches!(sites.method, AttachMethod::Fentry | AttachMethod::Modify)
        {
            let mut image = loader.image(a, number, &mut loaded.maps)?;
            let mut first = None;
            // If the kernel accepts one copy, the program is valid.
            let targets = sites.sites.iter().map(|s| s.btf).filter(|id| *id != 0).take(FIRST_TRIES);
            let tries = image.load_for(targets, |made| {
                first = Some(made);
                first.as_ref().is_some_and(Result::is_err)
            });
            tries.map_err(Error::Load)?;
            let missing = || Error::Setting("the kernel's types have none of these functions".into());
            let prog = first.ok_or_else(missing)?.map_err(|e| rejection(sites, e))?;
            loaded.attached.push(AttachedProgram::for_each_function(prog, image, a.unit.attach.clone()));
            between()?;
            continue;
        }
        let prog = loader.load_unit(a, number, &mut loaded.maps)?;
        let served = loaded.maps.take(MapRef::Served);
        between()?;
        match a.unit.role {
            Role::Begin => loaded.begin.push(prog),
            Role::End => loaded.end.push(prog),
            _ => {
                let mut attached = AttachedProgram::new(prog, a.unit.attach.clone(), true);
                let name = a.unit.probes.first().map(|(_, probe)| probe.desc.name.to_string());
                if let (Some(map), Some(name)) = (served, name) {
                    attached.served = Some(Served { name, memory: map.mmap(true)? });
                }
                loaded.attached.push(attached);
            }
        }
    }
    let needs_heartbeat =
        |a: &AttachedProgram| a.fires && !matches!(a.attach, Attach::Clock { single: true, .. });
    if !running.is_some_and(|r| r.heartbeat)
        && loaded.attached.iter().any(needs_heartbeat)
        && let Some(limits) = crate::deadman::limits(options)
    {
        let kills = !options.flag("destructive");
        let compiled = bpf::program::heartbeat(ProgKind::PerfEvent, &loaded.maps.plan, limits, kills)?;
        let prog = loader.load_compiled(&compiled, &loaded.maps)?;
        let (event, cpus) = (bpf::sys::Counter::clock(), system.cpus.to_vec());
        let attach = Attach::Clock { event, period: limits.interval, due: None, cpus, single: false };
        // The heartbeat is attached before all other programs.
        loaded.attached.insert(0, AttachedProgram::new(prog, attach, false));
        loaded.heartbeat = Some(limits.interval);
    }
    if loaded.maps.plan.vtime
        && running.is_none_or(|r| !r.plan.vtime)
        && let Some(btf_id) = crate::facts::tracepoint(system.kernel, "sched_switch")
    {
        let compiled = bpf::program::vtime_switch(btf_id)?;
        let prog = loader.load_compiled(&compiled, &loaded.maps)?;
        let attach = Attach::TpBtf { name: "sched_switch".into(), btf_id };
        // This program runs before all others, because it accounts for their time.
        loaded.attached.insert(0, AttachedProgram::new(prog, attach, true));
    }
    // BEGIN and END alone run only on a thread of the tracer.
    if !loaded.attached.is_empty()
        && loaded.maps.plan.owned(loaded.freed_arrays).next().is_some()
        && let Some(state) = crate::facts::task_state(system.kernel)
    {
        let compiled = bpf::program::end_of_thread(&loaded.maps.plan, loaded.freed_arrays, state)?;
        let prog = loader.load_compiled(&compiled, &loaded.maps)?;
        loaded.freed_arrays = module.vars.len() as u32;
        // This program runs after all others, so that the last probes of a thread still see its
        // elements.
        let attach = Attach::RawTp { name: "sched_switch".into() };
        loaded.attached.push(AttachedProgram::new(prog, attach, true));
    }
    crate::attach::order(&mut loaded.attached, system.kernel);
    Ok(loaded)
}

/// The environment for the plans of providers.
pub(crate) fn env<'a>(options: &Options, features: &'a Features, cpus: &'a [u32]) -> Env<'a> {
    let method = match options.text("fbtmeans").as_str() {
        "multi" => Some(AttachMethod::Multi),
        "fentry" => Some(AttachMethod::Fentry),
        "kprobe" => Some(AttachMethod::Kprobe),
        _ => None,
    };
    Env {
        features,
        cpus,
        only_cpu: options.maybe_number("cpu").map(|c| c as u32),
        method,
        single_attach_limit: options.number("fbtmax") as usize,
        first: 0,
    }
}

impl Program {
    /// Generates the programs of a session without creating kernel objects, and reports what
    /// exceeds a limit of the back end, as enabling does. Without the privilege to trace, some ways
    /// to attach cannot be chosen, and their programs are not generated.
    pub fn check_limits(&self, options: &Options) -> Result<(), Error> {
        let (features, cpus) = (Features::running(), bpf::sys::online_cpus());
        let Ok(assembly) = assemble(self, &env(options, features, &cpus), 1) else {
            return Ok(());
        };
        let symbols = RefCell::default();
        let system = SystemContext { kernel: &self.kernel, features, cpus: &cpus, symbols: &symbols };
        let can_trace = Capabilities::of_this_thread().can_trace();
        let module = &*self.module;
        let error = error_clauses(&assembly.units);
        let numbers: Vec<usize> = error.iter().map(|c| c.clause).collect();
        let layout = Layout::new(module, &numbers);
        let plan = Plan::new(module, &sizes(options), &needs(module, &assembly, &layout, &system));
        bpf::limits::check_plan(module, &plan, |n| !can_trace || features.allows_thread_value(n))?;
        // Enabling reports what this kernel does not have.
        let target = target(module, &system).unwrap_or_default();
        let interned = assembly.strings.len() as u32;
        let session = Session { module, plan: &plan, layout: &layout, target: &target, interned };
        let error = ErrorProbe { probe: crate::assemble::error_probe(&assembly.units), clauses: &error };
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
        };
        for (number, a) in (0..).zip(&assembly.units) {
            if a.unit.role != Role::Error && !a.clauses.is_empty() {
                loader.compile_unit(a, number)?;
            }
        }
        Ok(())
    }
}

/// Creates the map of the functions between tracepoints and programs, if a clause takes a stack
/// there. Returns whether the map exists. Symbols are read only for this map.
fn tracer_functions(
    (module, assembly): (&Module, &Assembly),
    running: Option<&RunningSession>,
    system: &SystemContext<'_>,
    maps: &mut Maps,
) -> Result<bool, Error> {
    let stacks = |op: &Op| {
        matches!(op, Op::Stack { user: false, .. })
            || matches!(op, Op::Builtin(IntBuiltin::StackDepth | IntBuiltin::Caller))
    };
    if running.is_some_and(|r| r.fds.contains_key(&MapRef::TracerFunctions)) {
        return Ok(true);
    }
    if !uses(module, stacks) || !assembly.units.iter().any(|a| a.unit.context.behind_tracepoint()) {
        return Ok(false);
    }
    let is_tracer =
        |name: &str| ["bpf_trace_run", "__bpf_trace_", "__traceiter_"].iter().any(|p| name.starts_with(p));
    let ranges = system.symbols.borrow_mut().ranges(is_tracer);
    let Some(table) = bpf::routines::tracer_functions(&ranges).filter(|_| !ranges.is_empty()) else {
        return Ok(false);
    };
    maps.insert(MapRef::TracerFunctions, read_only("dt_own_funcs", &table)?);
    Ok(true)
}

/// Why the kernel rejected a program for all functions. It may not allow the program to change
/// their results.
fn rejection(sites: &Sites, e: Box<LoadError>) -> Error {
    let not_modifiable = e.reason.as_deref().is_some_and(|r| r.ends_with("is not modifiable"));
    match sites.sites.first().filter(|_| not_modifiable) {
        Some(site) => Error::Provider(format!(
            "return( ) in {}: this kernel lets no program change the result of this function, only the results of functions that \
             check permissions (fbt::security_*:entry)",
            site.probe
        )),
        None => Error::Load(e),
    }
}

/// The number of functions that are tried before a program is reported as invalid.
const FIRST_TRIES: usize = 8;

fn sizes(options: &Options) -> bpf::maps::Options {
    bpf::maps::Options {
        bufsize: options.number("bufsize"),
        aggsize: options.number("aggsize"),
        dynvarsize: options.number("dynvarsize"),
    }
}

fn needs(module: &Module, assembly: &Assembly, layout: &Layout, system: &SystemContext<'_>) -> Needs {
    let probes = || assembly.units.iter().filter(|a| a.unit.role == Role::Probe && !a.clauses.is_empty());
    Needs {
        cpus: system.cpus.len() as u32,
        one_shot: probes().next().is_none(),
        slot_bytes: layout.slot_bytes,
        // A thread and an interrupt have separate levels, also for programs that are enabled later.
        levels: if has_thread_locals(module) { HARD_INTERRUPT + 1 } else { 1 },
        // Set for each unit.
        preempt_count: None,
        threads: false,
    }
}

fn has_thread_locals(module: &Module) -> bool {
    module.vars.iter().any(|v| v.scope == Scope::Thread)
}

/// True for a unit whose probes fire in threads and in interrupts. Clocks fire in interrupts only.
fn fires_at_any_level(unit: &Unit) -> bool {
    unit.interrupts && !matches!(unit.attach, Attach::Clock { .. })
}

/// Where programs read their context level, if one of them needs it.
fn preempt_count(module: &Module, assembly: &Assembly, system: &SystemContext<'_>) -> Option<PreemptCount> {
    let needed = has_thread_locals(module) && assembly.units.iter().any(|a| fires_at_any_level(&a.unit));
    needed.then(|| crate::facts::preempt_count(system)).flatten()
}

/// The context level of clocks.
const HARD_INTERRUPT: u32 = 2;

fn read_only(name: &str, bytes: &[u8]) -> Result<Map, SysError> {
    let mut value = bytes.to_vec();
    value.resize(bytes.len().max(8).next_multiple_of(8), 0);
    let map = Map::create(&MapSpec::array(name, value.len() as u32, 1))?;
    map.update(&0u32.to_ne_bytes(), &value, Update::Any)?;
    Ok(map)
}

/// A map of the interned strings, for programs that use their text and not only their numbers.
fn strings(area: Area, strings: &[Arc<[u8]>]) -> Result<Map, SysError> {
    let total = u32::try_from(area.total()).unwrap_or(u32::MAX);
    let (stride, count) = if area.direct() { (total, 1) } else { (area.stride, area.count) };
    let map = Map::create(&MapSpec::mmapable("dt_strings", stride, count))?;
    // Written in place, because the names of a kernel are many megabytes.
    let memory = map.mmap(true)?;
    let slots = memory.words().chunks(area.stride as usize / 8);
    for (text, slot) in strings.iter().zip(slots) {
        let text = &text[..text.len().min(area.stride as usize - 1)];
        for (chunk, word) in text.chunks(8).zip(slot) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }
    Ok(map)
}

/// The kernel's program type, attach type and BTF id for a way to attach.
fn kind(attach: &Attach) -> (ProgKind, AttachType, u32) {
    match attach {
        Attach::Run | Attach::RawTp { .. } | Attach::Tracepoints(_) | Attach::EachTracepoint(_) => {
            (ProgKind::RawTracepoint, AttachType::None, 0)
        }
        Attach::TpBtf { btf_id, .. } => (ProgKind::Tracing, AttachType::TraceRawTp, *btf_id),
        Attach::Clock { .. } => (ProgKind::PerfEvent, AttachType::None, 0),
        Attach::Functions { .. } => (ProgKind::Kprobe, AttachType::KprobeMulti, 0),
        Attach::Sites(sites) => match (sites.method, sites.on_return) {
            (AttachMethod::Multi, _) => (ProgKind::Kprobe, AttachType::KprobeMulti, 0),
            (AttachMethod::Kprobe, _) => (ProgKind::Kprobe, AttachType::None, 0),
            (AttachMethod::Fentry, false) => (ProgKind::Tracing, AttachType::TraceFentry, 0),
            (AttachMethod::Modify, _) => (ProgKind::Tracing, AttachType::ModifyReturn, 0),
            (AttachMethod::Fentry, true) => (ProgKind::Tracing, AttachType::TraceFexit, 0),
        },
        Attach::Event { .. } => (ProgKind::Tracepoint, AttachType::None, 0),
        Attach::Custom(custom) => (custom.kind, custom.attach_type, 0),
    }
}

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
}

impl ProgramLoader<'_> {
    fn load_unit(&self, a: &EnabledUnit, number: u32, maps: &mut Maps) -> Result<Prog, Error> {
        self.load_image(&self.image(a, number, maps)?)
    }

    /// The image of a unit's program. Creates the maps that only it uses.
    fn image(&self, a: &EnabledUnit, number: u32, maps: &mut Maps) -> Result<ProgramImage, Error> {
        let compiled = self.compile_unit(a, number)?;
        let wants_strings = compiled.code.relocs.iter().any(|(_, map)| *map == MapRef::Strings);
        if wants_strings && maps.get(MapRef::Strings).is_none() {
            maps.insert(MapRef::Strings, strings(self.session.strings(), self.strings)?);
        }
        if let Some(bytes) = &compiled.table {
            maps.insert(MapRef::Table(number), read_only("dt_table", bytes)?);
        }
        if compiled.code.relocs.iter().any(|(_, map)| *map == MapRef::Served) {
            let size = 8 * bpf::sys::cpu_numbers_end();
            maps.insert(MapRef::Served, Map::create(&MapSpec::mmapable("dt_served", size, 1))?);
        }
        if bpf::program::must_avoid_private_stack(compiled.kind, compiled.attach) {
            // Each program has its own, because the map takes the type of the first program that
            // uses it.
            maps.insert(MapRef::EmptyProgArray, Map::create(&MapSpec::prog_array("dt_no_program"))?);
        }
        self.image_of(&compiled, maps)
    }

    fn compile_unit(&self, a: &EnabledUnit, number: u32) -> Result<Compiled, Error> {
        let (kind, attach, attach_btf_id) = kind(&a.unit.attach);
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
            error: self.error,
            table: number,
        };
        let mut plan = self.session.plan.clone();
        match fires_at_any_level(&a.unit) {
            true => plan.preempt_count = self.preempt_count,
            false => plan.level = if a.unit.interrupts { HARD_INTERRUPT } else { 0 },
        }
        Ok(compile(&Session { plan: &plan, ..*self.session }, &spec)?)
    }

    fn load_prefault(&self, prefault: &Prefault, number: u32, maps: &mut Maps) -> Result<Prog, Error> {
        let (kind, attach, attach_btf_id) = kind(&prefault.unit.attach);
        let spec = ProgramSpec {
            name: &prefault.unit.name,
            kind,
            attach,
            attach_btf_id,
            activity: Activity::Active,
            context: prefault.unit.context.as_ref(),
            probes: &prefault.probes,
            clauses: &prefault.uses,
            error: ErrorProbe::default(),
            table: number,
        };
        let compiled = bpf::program::prefault(&spec, &prefault.accesses)?;
        if let Some(bytes) = &compiled.table {
            maps.insert(MapRef::Table(number), read_only("dt_table", bytes)?);
        }
        self.load_compiled(&compiled, maps)
    }

    fn load_compiled(&self, compiled: &Compiled, maps: &Maps) -> Result<Prog, Error> {
        self.load_image(&self.image_of(compiled, maps)?)
    }

    fn image_of(&self, compiled: &Compiled, maps: &Maps) -> Result<ProgramImage, Error> {
        let fd = |at: MapRef| {
            let new = maps.get(at).map(|m| m.as_fd().as_raw_fd());
            new.or_else(|| self.running.and_then(|r| r.fds.get(&at).copied()))
        };
        Ok(compiled.image(fd, Some(self.sources))?)
    }

    fn load_image(&self, image: &ProgramImage) -> Result<Prog, Error> {
        image.load(self.log_level()).map(|l| l.prog).map_err(Error::Load)
    }

    fn log_level(&self) -> u32 {
        u32::from(self.options.flag("bpflog"))
    }
}
