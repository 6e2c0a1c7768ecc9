//! The kernel side of a session: its maps, programs and links, and what is read out of them.
//!
//! Everything here hangs on file descriptors; dropping a [`Machine`] detaches and frees it all, and so does the death of
//! the process. Links are closed before programs and maps only so that nothing fires into a session that is being taken
//! apart; the activity word already makes such a firing do nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use bpf::features::{Facility, Features};
use bpf::maps::{Maps, Needs};
use bpf::mir::MapRef;
use bpf::program::{ErrorProbe, Layout, PidNamespace, ProgramSpec, Session, Target, TaskOffsets, compile};
use bpf::sys::{
    AttachType, Doorbell, GracePeriod, Link, Map, MapBtf, MapSpec, Mmap, Prog, ProgKind, SysError, Update,
    monotonic_ns,
};
use consumer::SlotSink;
use diagnostics::SourceMap;
use dif::ir::{Module, Scope};
use plane::control::{Activity, Control, DropDelta, DropTracker, PerCpu};
use plane::desc::AggId;
use plane::read::{Batch, RingReader, take_table};
use plane::stacks::Stack;
use providers::{Attach, Role};
use types::btf::KernelBtf;

use crate::assemble::{Assembled, Assembly, error_clauses, error_probe, uses_task};
use crate::error::Error;
use crate::options::Options;

/// A program and what holds it in place.
struct Attached {
    prog: Prog,
    attach: Attach,
    links: Vec<Link>,
    /// CPUs that have a clock, in the order of `links`.
    cpus: Vec<u32>,
}

/// See the [module](self).
pub(crate) struct Machine {
    attached: Vec<Attached>,
    begin: Vec<Prog>,
    end: Vec<Prog>,
    control: Mmap,
    percpu: Mmap,
    rings: Option<Mmap>,
    aggs: Vec<Mmap>,
    drops: DropTracker,
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

impl Machine {
    /// Makes the maps and loads the programs. Nothing is attached yet.
    pub(crate) fn load(
        module: &Module,
        assembly: &Assembly,
        options: &Options,
        around: &Surroundings<'_>,
        sources: &SourceMap,
    ) -> Result<Machine, Error> {
        let error = error_clauses(&assembly.units);
        let error_numbers: Vec<usize> = error.iter().map(|c| c.clause).collect();
        let layout = Layout::new(module, &error_numbers);
        let plan = bpf::maps::Plan::new(module, &sizes(options), &needs(module, assembly, &layout, around));
        let auto = options.text("bufresize") == "auto";
        let thread = plan.thread.map(|t| t.value_size());
        let mut maps = match thread {
            Some(bytes) => {
                let btf = thread_btf(bytes)?;
                let described = MapBtf { btf: btf.0.as_fd(), key: btf.1, value: btf.2 };
                Maps::create(plan, auto, Some(described))?
            }
            None => Maps::create(plan, auto, None)?,
        };
        add_strings(&mut maps, &assembly.strings, module.strsize)?;
        let target = target(module, around);
        let session = Session {
            module,
            plan: &maps.plan.clone(),
            layout: &layout,
            target: &target,
            interned: assembly.strings.len() as u32,
        };
        let error = ErrorProbe { probe: error_probe(&assembly.units), clauses: &error };
        let (mut attached, mut begin, mut end) = (Vec::new(), Vec::new(), Vec::new());
        for (number, a) in (0..).zip(&assembly.units) {
            if a.unit.role == Role::Error || a.clauses.is_empty() {
                continue;
            }
            let prog = load_unit(&session, a, error, number, &mut maps, sources, options)?;
            match a.unit.role {
                Role::Begin => begin.push(prog),
                Role::End => end.push(prog),
                _ => attached.push(Attached {
                    prog,
                    attach: a.unit.attach.clone(),
                    links: Vec::new(),
                    cpus: Vec::new(),
                }),
            }
        }
        let map = |at: MapRef| maps.get(at).ok_or_else(|| Error::Internal(format!("no map {at:?}")));
        let mmap = |at: MapRef| Ok::<_, Error>(map(at)?.mmap(true)?);
        let aggs = (0..module.aggs.len() as u32).map(|a| mmap(MapRef::Agg(a))).collect::<Result<_, _>>()?;
        let mut machine = Machine {
            attached,
            begin,
            end,
            control: mmap(MapRef::Control)?,
            percpu: mmap(MapRef::PerCpu)?,
            rings: maps.get(MapRef::Rings).map(|m| m.mmap(true)).transpose()?,
            aggs,
            drops: DropTracker::default(),
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

    /// Hangs all programs in.
    pub(crate) fn attach(&mut self) -> Result<(), Error> {
        for a in &mut self.attached {
            if let Attach::Clock { period, cpus, .. } = &a.attach {
                for cpu in cpus.clone() {
                    a.links.push(providers::attach::clock(&a.prog, *period, cpu)?);
                    a.cpus.push(cpu);
                }
            } else {
                a.links = providers::attach::attach(&a.attach, &a.prog)?;
            }
        }
        if !self.attached.is_empty() {
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
        let plan = &self.maps.plan;
        match (&self.rings, PerCpu::new(self.percpu.words(), plan.cpus)) {
            (Some(rings), Some(percpu)) => self.reader.drain(rings.words(), plan.ring_size, percpu, now, all),
            _ => Batch::default(),
        }
    }

    /// Losses since the last call.
    pub(crate) fn drops(&mut self) -> Vec<DropDelta> {
        let count = self.maps.plan.cpus;
        PerCpu::new(self.percpu.words(), count).map_or_else(Vec::new, |p| self.drops.deltas(p))
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
        for (id, (memory, agg)) in (0..).zip(self.aggs.iter().zip(&self.maps.plan.aggs)) {
            let shape = (agg.func, agg.shape);
            take_table(memory.words(), shape, (side, self.maps.plan.cpus), &mut |key, value| {
                sink(AggId(id), key, value);
            });
        }
        Ok(())
    }

    /// The stack of an id.
    pub(crate) fn stack(&self, id: u64) -> Option<Stack> {
        let map = self.maps.get(MapRef::Stacks)?;
        let mut value = vec![0; map.value_size()];
        map.lookup(&id.to_ne_bytes(), &mut value).ok().filter(|found| *found)?;
        Stack::read(&value)
    }
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
        // A thread and what interrupts it are told apart only where something can interrupt.
        levels: if thread_locals && probes().any(|a| a.unit.interrupts) { HARD_INTERRUPT + 1 } else { 1 },
        // Each provider's probes fire at one level, which is known.
        preempt_count: None,
    }
}

/// The context level of clocks.
const HARD_INTERRUPT: u32 = 2;

fn target(module: &Module, around: &Surroundings<'_>) -> Target {
    let task = uses_task(module).then(|| task_offsets(around.kernel)).flatten();
    let pid_namespace = (!proc::in_initial_namespace()).then(proc::pid_namespace).flatten().map(|ns| {
        // The kernel counts a device as 12 bits of major and 20 of minor number.
        let dev = u64::from(libc_major(ns.dev)) << 20 | u64::from(libc_minor(ns.dev));
        PidNamespace { dev, ino: ns.ino }
    });
    Target {
        task,
        task_btf: task.is_some() && around.features.has(Facility::TaskBtf),
        pid_namespace,
        wall_offset: wall_offset(),
    }
}

/// Major number of a device as `stat` shows it.
fn libc_major(dev: u64) -> u32 {
    ((dev >> 8) & 0xfff) as u32
}

/// Minor number, likewise.
fn libc_minor(dev: u64) -> u32 {
    ((dev & 0xff) | ((dev >> 12) & 0xf_ff00)) as u32
}

fn task_offsets(kernel: &KernelBtf) -> Option<TaskOffsets> {
    let btf = kernel.vmlinux().ok()?;
    let offset = |member: &str| btf.field(&format!("task_struct.{member}")).map(|f| f.offset() as i16);
    Some(TaskOffsets { comm: offset("comm")?, real_parent: offset("real_parent")?, tgid: offset("tgid")? })
}

/// Nanoseconds from the monotonic clock to 1970's: the least of a few readings, so that a pause between two clocks does
/// not count.
fn wall_offset() -> i64 {
    let one = || {
        let before = monotonic_ns() as i64;
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let after = monotonic_ns() as i64;
        (after - before, wall.as_nanos() as i64 - (before + (after - before) / 2))
    };
    (0..5).map(|_| one()).min().map_or(0, |(_, offset)| offset)
}

fn thread_btf(bytes: u32) -> Result<(bpf::sys::BtfObject, u32, u32), Error> {
    let mut b = bpf::btf::Builder::new();
    let key = b.i32();
    let value = b.words("dt_self", bytes.div_ceil(8));
    Ok((b.load()?, key.0, value.0))
}

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

fn load_unit(
    session: &Session<'_>,
    a: &Assembled,
    error: ErrorProbe<'_>,
    number: u32,
    maps: &mut Maps,
    sources: &SourceMap,
    options: &Options,
) -> Result<Prog, Error> {
    let (kind, attach, attach_btf_id) = kind(a);
    let activity = match a.unit.role {
        Role::Begin => Activity::Warmup,
        Role::End => Activity::Draining,
        Role::Probe | Role::Error => Activity::Active,
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
        error,
        table: number,
    };
    let mut plan = session.plan.clone();
    plan.level = if a.unit.interrupts { HARD_INTERRUPT } else { 0 };
    let compiled = compile(&Session { plan: &plan, ..*session }, &spec)?;
    if let Some(bytes) = &compiled.table {
        maps.insert(MapRef::Table(number), read_only("dt_table", bytes)?);
    }
    if bpf::program::needs_own_stack(kind, attach) {
        // A table for each: it takes the kind of the first program that names it.
        maps.insert(MapRef::NoProgram, Map::create(&MapSpec::prog_array("dt_no_program"))?);
    }
    let image = compiled.image(|at| maps.get(at).map(|m| m.as_fd().as_raw_fd()), Some(sources))?;
    let level = u32::from(options.flag("bpflog"));
    image.load(level).map(|l| l.prog).map_err(Error::Load)
}
