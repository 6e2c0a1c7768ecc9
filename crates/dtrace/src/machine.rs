//! The kernel side of a session: its maps, programs and links, and what is read out of them.
//!
//! Everything here hangs on file descriptors; dropping a [`Machine`] detaches and frees it all, and so does the death of
//! the process. Links are closed before programs and maps only so that nothing fires into a session that is being taken
//! apart; the activity word already makes such a firing do nothing.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use bpf::features::Features;
use bpf::maps::{Maps, Needs, Plan};
use bpf::mir::MapRef;
use bpf::program::{ClauseUse, ErrorProbe, Layout, Probe, ProgramSpec, Session, compile};
use bpf::sys::{
    AttachType, Doorbell, GracePeriod, Link, Map, MapSpec, Mmap, Prog, ProgKind, SysError, Update,
    monotonic_ns,
};
use consumer::SlotSink;
use diagnostics::SourceMap;
use dif::ir::{Module, Scope};
use plane::control::{Activity, Control, DropDelta, DropTracker, PerCpu};
use plane::desc::AggId;
use plane::read::{Batch, RingReader, Rings, take_table};
use plane::stacks::Stack;
use providers::{Attach, Role};
use types::btf::KernelBtf;

use crate::assemble::{Assembled, Assembly, error_clauses};
use crate::compile::Program;
use crate::error::Error;
use crate::facts::target;
use crate::options::Options;

/// A program and what holds it in place.
struct Attached {
    prog: Prog,
    attach: Attach,
    links: Vec<Link>,
    /// CPUs that have a clock, in the order of `links`.
    cpus: Vec<u32>,
}

/// Rings and control elements that were made together; see [`bpf::maps`].
struct Bank {
    percpu: Mmap,
    rings: Option<Mmap>,
    cpus: u32,
    ring_size: u32,
    drops: DropTracker,
}

impl Bank {
    fn new(maps: &Maps) -> Result<Bank, Error> {
        let percpu = maps.get(MapRef::PerCpu).ok_or_else(|| Error::Internal("no control elements".into()))?;
        Ok(Bank {
            percpu: percpu.mmap(true)?,
            rings: maps.get(MapRef::Rings).map(|m| m.mmap(true)).transpose()?,
            cpus: maps.plan.cpus,
            ring_size: maps.plan.ring_size,
            drops: DropTracker::default(),
        })
    }

    fn rings(&self) -> Option<Rings<'_>> {
        let percpu = PerCpu::new(self.percpu.words(), self.cpus)?;
        Some(Rings { memory: self.rings.as_ref()?.words(), size: self.ring_size, percpu })
    }
}

/// See the [module](self).
pub(crate) struct Machine {
    attached: Vec<Attached>,
    begin: Vec<Prog>,
    end: Vec<Prog>,
    control: Mmap,
    /// In the order they were made; new programs use the last.
    banks: Vec<Bank>,
    /// The tables of aggregations, by their map's number.
    aggs: BTreeMap<u32, Mmap>,
    /// Stack stores that programs from before still fill.
    former_stacks: Vec<Map>,
    /// ERROR and its clauses so far.
    error: (Probe, Vec<ClauseUse>),
    /// Number of the next program's table.
    next_table: u32,
    /// The `self->` arrays among the variables before this one have a program that ends their elements.
    owned: u32,
    reader: RingReader,
    grace: Option<GracePeriod>,
    /// No probe's program runs any more: see [`Machine::settle`].
    still: bool,
    doorbell: Option<Doorbell>,
    only_cpu: Option<u32>,
    maps: Maps,
}

/// What of the running system a session is made for.
pub(crate) struct Surroundings<'a> {
    pub(crate) kernel: &'a KernelBtf,
    pub(crate) features: &'static Features,
    pub(crate) cpus: &'a [u32],
}

/// What programs of a running session share with those that come later. The descriptors are those of its [`Machine`].
pub(crate) struct Running {
    plan: Plan,
    fds: BTreeMap<MapRef, RawFd>,
    error: (Probe, Vec<ClauseUse>),
    next_table: u32,
    owned: u32,
}

/// Programs that are loaded and not attached yet, and the maps that only they have.
pub(crate) struct Loaded {
    attached: Vec<Attached>,
    begin: Vec<Prog>,
    end: Vec<Prog>,
    error: (Probe, Vec<ClauseUse>),
    next_table: u32,
    owned: u32,
    maps: Maps,
}

impl Loaded {
    /// What the kernel was asked for and could not give.
    pub(crate) fn lowered(&self) -> &[bpf::maps::Lowered] {
        &self.maps.lowered
    }
}

impl Machine {
    /// Makes the maps and loads the programs. Nothing is attached yet.
    pub(crate) fn load(
        program: &Program,
        assembly: &Assembly,
        options: &Options,
        around: &Surroundings<'_>,
    ) -> Result<Machine, Error> {
        let loaded = load(None, program, assembly, options, around, &mut || Ok(()))?;
        let maps = loaded.maps;
        let map = |at: MapRef| maps.get(at).ok_or_else(|| Error::Internal(format!("no map {at:?}")));
        let mut machine = Machine {
            attached: loaded.attached,
            begin: loaded.begin,
            end: loaded.end,
            control: map(MapRef::Control)?.mmap(true)?,
            banks: vec![Bank::new(&maps)?],
            aggs: tables(&maps)?,
            former_stacks: Vec::new(),
            error: loaded.error,
            next_table: loaded.next_table,
            owned: loaded.owned,
            reader: RingReader::default(),
            grace: None,
            still: false,
            doorbell: None,
            only_cpu: options.maybe_number("cpu").map(|c| c as u32),
            maps,
        };
        machine.doorbell = machine.maps.take(MapRef::Doorbell).map(Doorbell::over).transpose()?;
        Ok(machine)
    }

    /// What programs that come later must know of.
    pub(crate) fn running(&self) -> Running {
        let mut fds: BTreeMap<MapRef, RawFd> =
            self.maps.iter().map(|(at, m)| (at, m.as_fd().as_raw_fd())).collect();
        fds.extend(self.doorbell.as_ref().map(|d| (MapRef::Doorbell, d.map().as_raw_fd())));
        let (plan, error) = (self.maps.plan.clone(), self.error.clone());
        Running { plan, fds, error, next_table: self.next_table, owned: self.owned }
    }

    /// Takes in what was loaded, runs its BEGIN, and attaches it. Where that fails, nothing of it stays attached.
    pub(crate) fn adopt(&mut self, mut loaded: Loaded) -> Result<(), Error> {
        let maps = &loaded.maps;
        let new_bank = maps.plan.bank != self.maps.plan.bank;
        let bank = new_bank.then(|| Bank::new(maps)).transpose()?;
        let aggs = tables(maps)?;
        // From here on all that the new programs write is read, whether they can all be attached or not.
        self.banks.extend(bank);
        self.aggs.extend(aggs);
        let former = self.maps.adopt(loaded.maps);
        self.former_stacks.extend(former.into_iter().filter(|(at, _)| *at == MapRef::Stacks).map(|(_, m)| m));
        self.next_table = loaded.next_table;
        self.owned = loaded.owned;
        run(&loaded.begin)?;
        if self.activity().0 == Activity::Active {
            attach(&mut loaded.attached)?;
        }
        self.error = loaded.error;
        self.attached.append(&mut loaded.attached);
        self.end.append(&mut loaded.end);
        self.need_grace()
    }

    /// Hangs all programs in.
    pub(crate) fn attach(&mut self) -> Result<(), Error> {
        attach(&mut self.attached)?;
        self.need_grace()
    }

    fn need_grace(&mut self) -> Result<(), Error> {
        if !self.attached.is_empty() && self.grace.is_none() {
            self.grace = Some(GracePeriod::new()?);
        }
        Ok(())
    }

    /// Takes all programs out.
    pub(crate) fn detach(&mut self) {
        for a in &mut self.attached {
            a.links.clear();
            a.cpus.clear();
        }
    }

    /// Gives clocks to CPUs that came, and moves the single ones from CPUs that went.
    pub(crate) fn follow_cpus(&mut self, online: &[u32]) -> Result<(), SysError> {
        for a in &mut self.attached {
            let Attach::Clock { period, single, .. } = &a.attach else { continue };
            let (period, single) = (*period, *single);
            while let Some(gone) = a.cpus.iter().position(|c| !online.contains(c)) {
                a.cpus.remove(gone);
                a.links.remove(gone);
            }
            for cpu in online.iter().filter(|c| self.only_cpu.is_none_or(|only| only == **c)) {
                if a.cpus.contains(cpu) || single && !a.cpus.is_empty() {
                    continue;
                }
                a.links.push(providers::attach::clock(&a.prog, period, *cpu)?);
                a.cpus.push(*cpu);
            }
        }
        Ok(())
    }

    /// True when something has a clock on each CPU.
    pub(crate) fn has_clocks(&self) -> bool {
        self.attached.iter().any(|a| matches!(a.attach, Attach::Clock { .. }))
    }

    /// Runs BEGIN's clauses, here and now.
    pub(crate) fn run_begin(&self) -> Result<(), SysError> {
        run(&self.begin)
    }

    /// Runs END's clauses.
    pub(crate) fn run_end(&self) -> Result<(), SysError> {
        run(&self.end)
    }

    /// The activity word and the epoch.
    pub(crate) fn control(&self) -> Option<Control<'_>> {
        Control::new(self.control.words())
    }

    /// State and exit status.
    pub(crate) fn activity(&self) -> (Activity, i32) {
        self.control().map_or((Activity::Killed, 1), |c| c.activity())
    }

    /// Readable when a ring fills or a program called exit().
    pub(crate) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.doorbell.as_ref().map(|d| d.as_fd())
    }

    /// Takes note of what was rung.
    pub(crate) fn answer_doorbell(&self) {
        if let Some(d) = &self.doorbell {
            d.silence();
        }
    }

    /// Waits until no program runs that started before.
    fn grace(&self) -> Result<(), SysError> {
        match &self.grace {
            Some(grace) if !self.still => grace.wait(),
            _ => Ok(()),
        }
    }

    /// Waits, after DRAINING, until no probe's program runs; none will again. From here on nothing needs a grace period
    /// (each takes 8 to 20 ms): END's programs run only while we call them.
    pub(crate) fn settle(&mut self) -> Result<(), SysError> {
        self.grace()?;
        self.still = true;
        Ok(())
    }

    /// Takes the committed records, in time order; with `all`, none is held back.
    pub(crate) fn drain(&mut self, all: bool) -> Batch {
        let now = monotonic_ns();
        let sets: Vec<Rings<'_>> = self.banks.iter().filter_map(Bank::rings).collect();
        self.reader.drain_all(&sets, now, all)
    }

    /// Losses since the last call.
    pub(crate) fn drops(&mut self) -> Vec<DropDelta> {
        let mut all: Vec<DropDelta> = Vec::new();
        for bank in &mut self.banks {
            let Some(percpu) = PerCpu::new(bank.percpu.words(), bank.cpus) else { continue };
            for d in bank.drops.deltas(percpu) {
                match all.iter_mut().find(|o| (o.kind, o.cpu) == (d.kind, d.cpu)) {
                    Some(same) => same.count += d.count,
                    None => all.push(d),
                }
            }
        }
        all
    }

    /// Firings that the kernel kept from our programs (one was already running where it would have had to run), by
    /// program, since the start. Firings that a predicate would have refused are among them.
    pub(crate) fn suppressed(&self) -> Result<Vec<(String, u64)>, SysError> {
        let of = |a: &Attached| {
            let info = a.prog.info()?;
            let links = a.links.iter().filter_map(|l| l.info().ok()).map(|l| l.missed());
            Ok((a.prog.name().to_string(), info.recursion_misses + links.sum::<u64>()))
        };
        self.attached.iter().map(of).collect()
    }

    /// What the kernel was asked for and could not give.
    pub(crate) fn lowered(&self) -> &[bpf::maps::Lowered] {
        &self.maps.lowered
    }

    /// Takes what the aggregations hold, and empties them.
    pub(crate) fn snapshot(&self, sink: &mut SlotSink<'_>) -> io::Result<()> {
        let Some(control) = self.control().filter(|_| !self.aggs.is_empty()) else { return Ok(()) };
        let side = control.flip();
        self.grace().map_err(|e| io::Error::from_raw_os_error(e.errno))?;
        for (id, agg) in (0..).zip(&self.maps.plan.aggs) {
            let Some(memory) = self.aggs.get(&agg.home.map) else { continue };
            let tables = (memory.words(), agg.home.at, agg.home.stride);
            take_table(tables, (agg.func, agg.shape), (side, agg.cpus), &mut |cpu, key, value| {
                sink(AggId(id), cpu, key, value);
            });
        }
        Ok(())
    }

    /// The stack of an id.
    pub(crate) fn stack(&self, id: u64) -> Option<Stack> {
        let find = |map: &Map| {
            let mut value = vec![0; map.value_size()];
            map.lookup(&id.to_ne_bytes(), &mut value).ok().filter(|found| *found)?;
            Stack::read(&value)
        };
        self.maps.get(MapRef::Stacks).into_iter().chain(&self.former_stacks).find_map(find)
    }
}

/// ENODEV: perf has no such CPU.
const NO_SUCH_CPU: i32 = 19;

/// Attaches programs; on failure those that were attached are detached again, for the links go.
fn attach(all: &mut [Attached]) -> Result<(), Error> {
    for a in all {
        if let Attach::Clock { period, cpus, .. } = &a.attach {
            for cpu in cpus.clone() {
                match providers::attach::clock(&a.prog, *period, cpu) {
                    Ok(link) => {
                        a.links.push(link);
                        a.cpus.push(cpu);
                    }
                    // It went away since we looked; `follow_cpus` sees to the rest.
                    Err(e) if e.errno == NO_SUCH_CPU => {}
                    Err(e) => return Err(e.into()),
                }
            }
        } else {
            a.links = providers::attach::attach(&a.attach, &a.prog)?;
        }
    }
    Ok(())
}

/// Makes the maps and loads the programs of an assembly: of a new session, or of more for a running one, for which nothing
/// changes yet. Calls `between` after each program.
pub(crate) fn load(
    running: Option<&Running>,
    program: &Program,
    assembly: &Assembly,
    options: &Options,
    around: &Surroundings<'_>,
    between: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Loaded, Error> {
    let module = &*program.module;
    let (mut error_probe, mut error) = running.map_or_else(Default::default, |m| m.error.clone());
    error.extend(error_clauses(&assembly.units));
    if error_probe == Probe::default() {
        error_probe = crate::assemble::error_probe(&assembly.units);
    }
    let error_numbers: Vec<usize> = error.iter().map(|c| c.clause).collect();
    let layout = Layout::new(module, &error_numbers);
    let needs = needs(module, assembly, &layout, around);
    let auto = options.text("bufresize") == "auto";
    let mut maps = match running {
        None => {
            let plan = Plan::new(module, &sizes(options), &needs);
            bpf::limits::check_plan(module, &plan)?;
            Maps::create(plan, auto, None)?
        }
        Some(r) => {
            let plan = r.plan.grow(module, &sizes(options), &needs);
            bpf::limits::check_plan(module, &plan)?;
            Maps::grow(&r.plan, plan, auto)?
        }
    };
    add_strings(&mut maps, &assembly.strings, module.strsize)?;
    let target = target(module, around)?;
    let session = Session {
        module,
        plan: &maps.plan.clone(),
        layout: &layout,
        target: &target,
        interned: assembly.strings.len() as u32,
    };
    let first_table = running.map_or(0, |m| m.next_table);
    let mut loaded = Loaded {
        attached: Vec::new(),
        begin: Vec::new(),
        end: Vec::new(),
        error: (error_probe, error.clone()),
        next_table: first_table + assembly.units.len() as u32,
        owned: running.map_or(0, |m| m.owned),
        maps,
    };
    let error = ErrorProbe { probe: error_probe, clauses: &error };
    let making = Making { session: &session, error, running, options, sources: &program.map };
    for (number, a) in (first_table..).zip(&assembly.units) {
        if a.unit.role == Role::Error || a.clauses.is_empty() {
            continue;
        }
        let prog = making.load_unit(a, number, &mut loaded.maps)?;
        between()?;
        match a.unit.role {
            Role::Begin => loaded.begin.push(prog),
            Role::End => loaded.end.push(prog),
            _ => loaded.attached.push(Attached {
                prog,
                attach: a.unit.attach.clone(),
                links: Vec::new(),
                cpus: Vec::new(),
            }),
        }
    }
    if loaded.maps.plan.vtime
        && running.is_none_or(|r| !r.plan.vtime)
        && let Some(btf_id) = crate::facts::tracepoint(around.kernel, "sched_switch")
    {
        let compiled = bpf::program::vtime_switch(btf_id)?;
        let prog = making.load_compiled(&compiled, &loaded.maps)?;
        let attach = Attach::TpBtf { name: "sched_switch".into(), btf_id };
        // Before all others, whose accounts it keeps.
        loaded.attached.insert(0, Attached { prog, attach, links: Vec::new(), cpus: Vec::new() });
    }
    // BEGIN and END alone are the tracer's own thread.
    if !loaded.attached.is_empty()
        && loaded.maps.plan.owned(loaded.owned).next().is_some()
        && let Some(state) = crate::facts::task_state(around.kernel)
    {
        let compiled = bpf::program::end_of_thread(&loaded.maps.plan, loaded.owned, state)?;
        let prog = making.load_compiled(&compiled, &loaded.maps)?;
        loaded.owned = module.vars.len() as u32;
        // Behind all others: the probes of a thread's last moment still see its elements.
        let attach = Attach::RawTp { name: "sched_switch".into() };
        loaded.attached.push(Attached { prog, attach, links: Vec::new(), cpus: Vec::new() });
    }
    Ok(loaded)
}

/// The memory of aggregations.
fn tables(maps: &Maps) -> Result<BTreeMap<u32, Mmap>, Error> {
    let all = maps.iter().filter_map(|(at, map)| match at {
        MapRef::Agg(number) => Some((number, map)),
        _ => None,
    });
    all.map(|(number, map)| Ok((number, map.mmap(true)?))).collect()
}

fn run(progs: &[Prog]) -> Result<(), SysError> {
    progs.iter().try_for_each(|p| p.test_run(&[0; 2], None).map(|_| ()))
}

fn sizes(options: &Options) -> bpf::maps::Options {
    bpf::maps::Options {
        bufsize: options.number("bufsize"),
        aggsize: options.number("aggsize"),
        dynvarsize: options.number("dynvarsize"),
    }
}

fn needs(module: &Module, assembly: &Assembly, layout: &Layout, around: &Surroundings<'_>) -> Needs {
    let probes = || assembly.units.iter().filter(|a| a.unit.role == Role::Probe && !a.clauses.is_empty());
    let thread_locals = module.vars.iter().any(|v| v.scope == Scope::Thread);
    Needs {
        cpus: around.cpus.len() as u32,
        one_shot: probes().next().is_none(),
        slot_bytes: layout.slot_bytes,
        // A thread and what interrupts it are told apart, also by what is enabled later.
        levels: if thread_locals { HARD_INTERRUPT + 1 } else { 1 },
        // Each provider's probes fire at one level, which is known.
        preempt_count: None,
    }
}

/// The context level of clocks.
const HARD_INTERRUPT: u32 = 2;

fn read_only(name: &str, bytes: &[u8]) -> Result<Map, SysError> {
    let map = Map::create(&MapSpec::array(name, bytes.len().max(8) as u32, 1))?;
    let mut value = bytes.to_vec();
    value.resize(bytes.len().max(8).div_ceil(8) * 8, 0);
    map.update(&0u32.to_ne_bytes(), &value, Update::Any)?;
    Ok(map)
}

fn add_strings(maps: &mut Maps, strings: &[Vec<u8>], strsize: u32) -> Result<(), Error> {
    let mut bytes = vec![0; strings.len().max(1) * strsize as usize];
    for (text, place) in strings.iter().zip(bytes.chunks_mut(strsize as usize)) {
        let n = text.len().min(place.len() - 1);
        place[..n].copy_from_slice(&text[..n]);
    }
    maps.insert(MapRef::Strings, read_only("dt_strings", &bytes)?);
    Ok(())
}

/// The kernel's kind of program for a way to attach.
fn kind(a: &Assembled) -> (ProgKind, AttachType, u32) {
    match &a.unit.attach {
        Attach::Run | Attach::RawTp { .. } => (ProgKind::RawTracepoint, AttachType::None, 0),
        Attach::TpBtf { btf_id, .. } => (ProgKind::Tracing, AttachType::TraceRawTp, *btf_id),
        Attach::Clock { .. } => (ProgKind::PerfEvent, AttachType::None, 0),
        Attach::Functions { .. } => (ProgKind::Kprobe, AttachType::KprobeMulti, 0),
        Attach::Own(own) => (own.kind, own.attach, 0),
    }
}

/// What all programs that are loaded together share.
struct Making<'a> {
    session: &'a Session<'a>,
    error: ErrorProbe<'a>,
    running: Option<&'a Running>,
    options: &'a Options,
    sources: &'a SourceMap,
}

impl Making<'_> {
    fn load_unit(&self, a: &Assembled, number: u32, maps: &mut Maps) -> Result<Prog, Error> {
        let (kind, attach, attach_btf_id) = kind(a);
        let activity = match (a.unit.role, self.running) {
            (Role::Begin, None) => Activity::Warmup,
            (Role::End, _) => Activity::Draining,
            // BEGIN of what comes later runs when that comes.
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
        plan.level = if a.unit.interrupts { HARD_INTERRUPT } else { 0 };
        let compiled = compile(&Session { plan: &plan, ..*self.session }, &spec)?;
        if let Some(bytes) = &compiled.table {
            maps.insert(MapRef::Table(number), read_only("dt_table", bytes)?);
        }
        if bpf::program::needs_own_stack(kind, attach) {
            // A table for each: it takes the kind of the first program that names it.
            maps.insert(MapRef::NoProgram, Map::create(&MapSpec::prog_array("dt_no_program"))?);
        }
        self.load_compiled(&compiled, maps)
    }

    fn load_compiled(&self, compiled: &bpf::program::Compiled, maps: &Maps) -> Result<Prog, Error> {
        let fd = |at: MapRef| {
            let new = maps.get(at).map(|m| m.as_fd().as_raw_fd());
            new.or_else(|| self.running.and_then(|r| r.fds.get(&at).copied()))
        };
        let image = compiled.image(fd, Some(self.sources))?;
        let level = u32::from(self.options.flag("bpflog"));
        image.load(level).map(|l| l.prog).map_err(Error::Load)
    }
}
