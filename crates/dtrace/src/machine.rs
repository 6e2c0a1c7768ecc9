//! The kernel side of a session: its maps, programs and links, and reading from them.
//!
//! All kernel objects are held by file descriptors. Dropping a [`Machine`], or the death of the
//! process, detaches and frees them. Links are closed before programs and maps, so that no probe
//! fires while the session is freed. (The activity word already makes such a firing do nothing.)

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bpf::load::ProgramImage;
use bpf::maps::Maps;
use bpf::mir::MapRef;
use bpf::program::{ClauseUse, Probe};
use bpf::sys::{Doorbell, GracePeriod, Link, Map, Mmap, Prog, SysError, monotonic_ns};
use consumer::SlotSink;
use plane::control::{Activity, Control, DropDelta, DropTracker, PerCpu};
use plane::deadman::Reason;
use plane::desc::AggId;
use plane::read::{Batch, RingReader, Rings, take_table};
use plane::stacks::Stack;
use providers::Attach;
use providers::attach::detach_us;
use providers::sites::AttachMethod;

use crate::assemble::Assembly;
use crate::attach::{AttachObserver, attach};
use crate::clocks::{CpuClock, Schedule, Served};
use crate::compile::Program;
use crate::deadman::LivenessThread;
use crate::error::Error;
use crate::load::{LoadedPrograms, RunningSession, SystemContext, load};
use crate::options::Options;

/// A program and its links.
pub(crate) struct AttachedProgram {
    pub(crate) prog: Prog,
    /// The image of `prog`, if each function has a copy of the program.
    pub(crate) image: Option<ProgramImage>,
    /// The copies.
    pub(crate) copies: Vec<Prog>,
    /// The program runs clauses, and its suppressed firings are reported. The other programs are
    /// attached if the kernel allows it.
    pub(crate) fires: bool,
    pub(crate) attach: Attach,
    pub(crate) links: Vec<Link>,
    /// The CPUs that have a clock, in the order of `links`.
    pub(crate) cpus: Vec<u32>,
    /// Counters of the served firings of a clock, if the number of due firings is known.
    pub(crate) served: Option<Served>,
    /// The clocks of the CPUs, if the number of due firings is known.
    pub(crate) clocks: Vec<CpuClock>,
}

impl AttachedProgram {
    pub(crate) fn new(prog: Prog, attach: Attach, fires: bool) -> AttachedProgram {
        AttachedProgram {
            prog,
            image: None,
            copies: Vec::new(),
            fires,
            attach,
            links: Vec::new(),
            cpus: Vec::new(),
            served: None,
            clocks: Vec::new(),
        }
    }

    /// A program that is loaded once for each function.
    pub(crate) fn for_each_function(prog: Prog, image: ProgramImage, attach: Attach) -> AttachedProgram {
        AttachedProgram { image: Some(image), ..AttachedProgram::new(prog, attach, true) }
    }

    /// Attaches the clock of a CPU. It is no error if the CPU is offline: [`Machine::follow_cpus`]
    /// attaches the clock later. It is no error either if the kernel rejects a clock that runs no
    /// clauses.
    pub(crate) fn attach_clock(&mut self, cpu: u32) -> Result<(), SysError> {
        let Attach::Clock { event, period, due, .. } = &self.attach else { return Ok(()) };
        match providers::attach::clock(&self.prog, event, *period, cpu) {
            Ok(link) => {
                if let (Some(due), Some(served)) = (due, &self.served) {
                    let schedule = Schedule { period: *due, interval: *period };
                    self.clocks.push(CpuClock::new(cpu, schedule, served, &link));
                }
                self.links.push(link);
                self.cpus.push(cpu);
                Ok(())
            }
            Err(e) if !self.fires || e.errno == ENODEV => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// True for the heartbeat.
    fn is_heartbeat(&self) -> bool {
        !self.fires && matches!(self.attach, Attach::Clock { .. })
    }
}

/// The error of perf for a CPU that is offline.
const ENODEV: i32 = 19;

/// Rings and control elements that were created together; see [`bpf::maps`].
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
    attached: Vec<AttachedProgram>,
    begin: Vec<Prog>,
    end: Vec<Prog>,
    control: Mmap,
    /// In the order of creation. New programs use the last bank.
    banks: Vec<Bank>,
    /// The tables of aggregations, by the number of their map.
    aggs: BTreeMap<u32, Mmap>,
    /// Earlier stack maps, which earlier programs still write.
    former_stacks: Vec<Map>,
    /// ERROR and its clauses.
    error: (Probe, Vec<ClauseUse>),
    /// Number of the next program's table.
    next_table: u32,
    /// A program frees the elements of the `self->` arrays with variable numbers below this one,
    /// when their thread ends.
    freed_arrays: u32,
    reader: RingReader,
    grace: Option<Arc<GracePeriod>>,
    /// A snapshot that waits for its grace period.
    pending: RefCell<Option<PendingSnapshot>>,
    /// The last grace period took longer than [`SLOW`], or there was none.
    slow: Cell<bool>,
    /// No program of a probe runs any more: see [`Machine::quiesce`].
    quiescent: bool,
    doorbell: Option<Doorbell>,
    only_cpu: Option<u32>,
    /// Details of attaching, for `-v`.
    details: Vec<String>,
    /// Nanoseconds between heartbeats, if there are heartbeats.
    heartbeat: Option<u64>,
    liveness: Option<LivenessThread>,
    maps: Maps,
}

/// A snapshot that waits for its grace period.
struct PendingSnapshot {
    side: u32,
    grace: JoinHandle<Result<Duration, SysError>>,
}

/// Grace periods that take this long are awaited in a thread. Usually one takes some 20 ms.
const SLOW: Duration = Duration::from_secs(1);

impl Machine {
    /// Creates the maps and loads the programs, without attaching them. Calls `between` after each
    /// program.
    pub(crate) fn load(
        program: &Program,
        assembly: &Assembly,
        options: &Options,
        system: &SystemContext<'_>,
        between: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Machine, Error> {
        let loaded = load(None, program, assembly, options, system, between)?;
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
            freed_arrays: loaded.freed_arrays,
            reader: RingReader::new(monotonic_ns()),
            grace: None,
            pending: RefCell::default(),
            slow: Cell::new(true),
            quiescent: false,
            doorbell: None,
            only_cpu: options.maybe_number("cpu").map(|c| c as u32),
            details: Vec::new(),
            heartbeat: loaded.heartbeat,
            liveness: None,
            maps,
        };
        machine.doorbell = machine.maps.take(MapRef::Doorbell).map(Doorbell::over).transpose()?;
        Ok(machine)
    }

    /// The maps and numbers that programs which are enabled later share with this session.
    pub(crate) fn running(&self) -> RunningSession {
        let mut fds: BTreeMap<MapRef, RawFd> =
            self.maps.iter().map(|(at, m)| (at, m.as_fd().as_raw_fd())).collect();
        fds.extend(self.doorbell.as_ref().map(|d| (MapRef::Doorbell, d.map().as_raw_fd())));
        let (plan, error) = (self.maps.plan.clone(), self.error.clone());
        RunningSession {
            plan,
            fds,
            error,
            next_table: self.next_table,
            freed_arrays: self.freed_arrays,
            heartbeat: self.heartbeat.is_some(),
        }
    }

    /// Adds loaded programs, runs their BEGIN, and attaches them. After an error, none of them
    /// stays attached.
    pub(crate) fn adopt(
        &mut self,
        mut loaded: LoadedPrograms,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let maps = &loaded.maps;
        let new_bank = maps.plan.bank != self.maps.plan.bank;
        let bank = new_bank.then(|| Bank::new(maps)).transpose()?;
        let aggs = tables(maps)?;
        // From here on the session reads what the new programs write, even if attaching fails.
        self.banks.extend(bank);
        self.aggs.extend(aggs);
        let former = self.maps.adopt(loaded.maps);
        self.former_stacks.extend(former.into_iter().filter(|(at, _)| *at == MapRef::Stacks).map(|(_, m)| m));
        self.next_table = loaded.next_table;
        self.freed_arrays = loaded.freed_arrays;
        self.heartbeat = self.heartbeat.or(loaded.heartbeat);
        if !self.start_liveness() {
            loaded.attached.retain(|a| !a.is_heartbeat());
        }
        run(&loaded.begin)?;
        if self.activity().0 == Activity::Active {
            let mut observer = AttachObserver { progress: &mut |_| !interrupted(), interrupted };
            if let Err(e) = attach(&mut loaded.attached, &mut self.details, &mut observer) {
                detach(&mut loaded.attached, matches!(e, Error::Interrupted));
                return Err(e);
            }
        }
        self.error = loaded.error;
        self.attached.append(&mut loaded.attached);
        self.end.append(&mut loaded.end);
        self.create_grace_period()
    }

    /// Attaches all programs.
    pub(crate) fn attach(&mut self, observer: &mut AttachObserver<'_>) -> Result<(), Error> {
        if !self.start_liveness() {
            self.attached.retain(|a| !a.is_heartbeat());
        }
        if let Err(e) = attach(&mut self.attached, &mut self.details, observer) {
            detach(&mut self.attached, matches!(e, Error::Interrupted));
            return Err(e);
        }
        self.create_grace_period()
    }

    /// Starts the liveness thread, if there are heartbeats. Returns false if the thread cannot
    /// start. Heartbeats would then stop the session and must not be attached.
    fn start_liveness(&mut self) -> bool {
        if let (Some(interval), None) = (self.heartbeat, &self.liveness) {
            let control = self.maps.get(MapRef::Control).and_then(|m| m.mmap(true).ok());
            let interval = Duration::from_nanos(interval);
            self.liveness = control.and_then(|c| LivenessThread::start(c, interval).ok());
        }
        self.liveness.is_some()
    }

    /// The limit that was exceeded according to a heartbeat since the last call.
    pub(crate) fn take_alarm(&self) -> Option<Reason> {
        self.control()?.take_alarm()
    }

    /// The greatest lateness of heartbeats since the last call, and the longest time without a sign
    /// of the liveness thread.
    pub(crate) fn take_lag(&self) -> (u64, u64) {
        let each = self.banks.iter().filter_map(|b| Some(PerCpu::new(b.percpu.words(), b.cpus)?.take_lag()));
        each.fold((0, 0), |most, lag| (most.0.max(lag.0), most.1.max(lag.1)))
    }

    /// Nanoseconds that the kernel counted for the session's programs.
    pub(crate) fn time_taken(&self) -> u64 {
        let programs = self.attached.iter().flat_map(|a| a.copies.iter().chain([&a.prog]));
        programs.filter_map(|p| Some(p.info().ok()?.run_time_ns)).sum()
    }

    fn create_grace_period(&mut self) -> Result<(), Error> {
        if !self.attached.is_empty() && self.grace.is_none() {
            self.grace = Some(Arc::new(GracePeriod::new()?));
        }
        Ok(())
    }

    /// Detaches all programs. A process in the background closes the links that the kernel detaches
    /// slowly; their number is returned.
    pub(crate) fn detach(&mut self) -> usize {
        detach(&mut self.attached, false)
    }

    /// Details of attaching since the last call.
    pub(crate) fn take_details(&mut self) -> Vec<String> {
        std::mem::take(&mut self.details)
    }

    /// Attaches clocks on CPUs that are now online. Moves clocks that run on a single CPU if that
    /// CPU is offline.
    pub(crate) fn follow_cpus(&mut self, online: &[u32]) -> Result<(), SysError> {
        for a in &mut self.attached {
            let Attach::Clock { single, .. } = a.attach else { continue };
            while let Some(offline) = a.cpus.iter().position(|c| !online.contains(c)) {
                let cpu = a.cpus.remove(offline);
                a.clocks.retain(|clock| clock.cpu() != cpu);
                a.links.remove(offline);
            }
            for cpu in online.iter().filter(|c| self.only_cpu.is_none_or(|only| only == **c)) {
                if a.cpus.contains(cpu) || single && !a.cpus.is_empty() {
                    continue;
                }
                a.attach_clock(*cpu)?;
            }
        }
        Ok(())
    }

    /// True if a program has a clock.
    pub(crate) fn has_clocks(&self) -> bool {
        self.attached.iter().any(|a| matches!(a.attach, Attach::Clock { .. }))
    }

    /// Runs BEGIN's clauses on the calling thread.
    pub(crate) fn run_begin(&mut self) -> Result<(), SysError> {
        run(&self.begin)?;
        // The records of BEGIN need not wait for those of probes that fire now.
        let now = monotonic_ns();
        let sets: Vec<Rings<'_>> = self.banks.iter().filter_map(Bank::rings).collect();
        self.reader.look(&sets, now);
        Ok(())
    }

    /// Runs END's clauses.
    pub(crate) fn run_end(&self) -> Result<(), SysError> {
        run(&self.end)
    }

    /// The activity word and the epoch.
    pub(crate) fn control(&self) -> Option<Control<'_>> {
        Control::new(self.control.words())
    }

    /// A new mapping of the control page.
    pub(crate) fn map_control(&self) -> Result<Mmap, Error> {
        let control = self.maps.get(MapRef::Control);
        Ok(control.ok_or_else(|| Error::Internal("no control page".into()))?.mmap(true)?)
    }

    /// State and exit status.
    pub(crate) fn activity(&self) -> (Activity, i32) {
        self.control().map_or((Activity::Killed, 1), |c| c.activity())
    }

    /// Readable when a ring fills or a program called exit().
    pub(crate) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.doorbell.as_ref().map(|d| d.as_fd())
    }

    /// Makes the doorbell unreadable until it rings again.
    pub(crate) fn clear_doorbell(&self) {
        if let Some(d) = &self.doorbell {
            d.silence();
        }
    }

    /// Waits until every program run that started before has ended.
    fn grace(&self) -> Result<(), SysError> {
        match &self.grace {
            Some(grace) if !self.quiescent => grace.wait(),
            _ => Ok(()),
        }
    }

    /// Waits, after DRAINING, until no program of a probe runs; none starts again. From here on no
    /// grace period is needed (each takes 8 to 20 ms), because END's programs run only on the
    /// calling thread.
    pub(crate) fn quiesce(&mut self) -> Result<(), SysError> {
        self.grace()?;
        self.quiescent = true;
        Ok(())
    }

    /// Takes the committed records, in the order of time. Records that may follow one that is not
    /// yet committed are held back for at most `hold`; without `hold`, all records are taken.
    pub(crate) fn drain(&mut self, hold: Option<Duration>) -> Batch {
        let now = monotonic_ns();
        let sets: Vec<Rings<'_>> = self.banks.iter().filter_map(Bank::rings).collect();
        let hold = hold.map(|h| u64::try_from(h.as_nanos()).unwrap_or(u64::MAX));
        self.reader.drain_all(&sets, now, hold)
    }

    /// The time until the next drain: `switchrate`, or less if the last drain held records back.
    /// The firing that they wait for ends soon in most cases.
    pub(crate) fn drain_interval(&self, switchrate: Duration) -> Duration {
        if self.reader.waits() { switchrate.min(Duration::from_millis(2)) } else { switchrate }
    }

    /// Drops since the last call.
    pub(crate) fn drops(&mut self) -> Vec<DropDelta> {
        let mut all: Vec<DropDelta> = self.reader.take_late();
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

    /// Firings that the kernel suppressed since the start, by program, because a program was
    /// already running on the CPU. Firings whose predicate would have been false are included.
    pub(crate) fn suppressed(&self) -> Result<Vec<(String, u64)>, SysError> {
        let of = |a: &AttachedProgram| {
            let copies =
                a.copies.iter().filter_map(|p| p.info().ok()).map(|i| i.recursion_misses).sum::<u64>();
            let info = a.prog.info()?;
            // Links of tracepoints count nothing, and there can be thousands. Links at the entry of
            // functions count only functions that the program itself calls.
            let counts = match &a.attach {
                Attach::Sites(s) if s.method == AttachMethod::Multi => s.on_return,
                Attach::Sites(s) => s.method == AttachMethod::Kprobe,
                other => !providers::attach::shares_tracepoints(other),
            };
            let missed = a.links.iter().filter(|_| counts).filter_map(|l| l.info().ok()).map(|l| l.missed());
            Ok((a.prog.name().to_string(), info.recursion_misses + copies + missed.sum::<u64>()))
        };
        let mut all: Vec<(String, u64)> = Vec::new();
        for a in self.attached.iter().filter(|a| a.fires) {
            let (name, count) = of(a)?;
            // Copies of one program are adjacent.
            match all.last_mut() {
                Some(last) if last.0 == name => last.1 += count,
                _ => all.push((name, count)),
            }
        }
        Ok(all)
    }

    /// Records that the session is active: missing firings of clocks are reported from now on.
    pub(crate) fn activate_clocks(&mut self) {
        let now = monotonic_ns();
        for AttachedProgram { served, clocks, .. } in &mut self.attached {
            if let Some(served) = served {
                clocks.iter_mut().for_each(|clock| clock.become_active(served, now));
            }
        }
    }

    /// True if there is a clock whose missing firings are reported.
    pub(crate) fn has_counted_clocks(&self) -> bool {
        self.attached.iter().any(|a| !a.clocks.is_empty())
    }

    /// Firings of clocks that were due and not served since the last call: probe, CPU and number.
    /// Only of `online` CPUs, because the clocks of others have stopped. `last`: the session ends.
    pub(crate) fn missing_firings(&mut self, online: &[u32], last: bool) -> Vec<(String, u32, u64)> {
        let mut all = Vec::new();
        for AttachedProgram { served, clocks, .. } in &mut self.attached {
            let Some(served) = served else { continue };
            for clock in clocks.iter_mut().filter(|clock| online.contains(&clock.cpu())) {
                let count = clock.take_missing(served, monotonic_ns(), last);
                if count > 0 {
                    all.push((served.name.clone(), clock.cpu(), count));
                }
            }
        }
        all
    }

    /// Sizes that were lowered because the kernel did not have the memory.
    pub(crate) fn lowered(&self) -> &[bpf::maps::Lowered] {
        &self.maps.lowered
    }

    /// True if a snapshot can be taken now. If grace periods take long (half a minute on an
    /// overloaded machine), a thread waits for the grace period, and the session continues, because
    /// it must handle `exit()` and interrupts.
    pub(crate) fn ready_for_snapshot(&self) -> bool {
        let mut pending = self.pending.borrow_mut();
        if let Some(pending) = &*pending {
            return pending.grace.is_finished();
        }
        let (true, false, Some(grace), Some(control)) =
            (self.slow.get() && !self.aggs.is_empty(), self.quiescent, self.grace.clone(), self.control())
        else {
            return true;
        };
        let wait = move || {
            let begun = Instant::now();
            grace.wait().map(|()| begun.elapsed())
        };
        // The flip comes first. After the grace period no program writes the other side.
        let side = control.flip();
        match std::thread::Builder::new().name("grace".into()).stack_size(64 << 10).spawn(wait) {
            Ok(grace) => *pending = Some(PendingSnapshot { side, grace }),
            Err(_) => {
                control.flip();
                self.slow.set(false);
            }
        }
        pending.is_none()
    }

    /// Takes the values of the aggregations and clears them. With `pending_is_enough`, a snapshot
    /// whose grace period [`Machine::ready_for_snapshot`] has awaited is the only one taken.
    pub(crate) fn snapshot(&self, pending_is_enough: bool, sink: &mut SlotSink<'_>) -> io::Result<()> {
        let Some(control) = self.control().filter(|_| !self.aggs.is_empty()) else { return Ok(()) };
        let failed = |e: SysError| io::Error::from_raw_os_error(e.errno);
        if let Some(pending) = self.pending.take() {
            let ended = || io::Error::other("the thread that awaits a grace period has ended");
            let took = pending.grace.join().map_err(|_| ended())?.map_err(failed)?;
            self.slow.set(took >= SLOW);
            self.take_side(pending.side, sink);
            if pending_is_enough {
                return Ok(());
            }
        }
        let begun = Instant::now();
        let side = control.flip();
        self.grace().map_err(failed)?;
        self.slow.set(begun.elapsed() >= SLOW);
        self.take_side(side, sink);
        Ok(())
    }

    /// Takes and clears the side that no program writes any more.
    fn take_side(&self, side: u32, sink: &mut SlotSink<'_>) {
        for (id, agg) in (0..).zip(&self.maps.plan.aggs) {
            let Some(memory) = self.aggs.get(&agg.location.map) else { continue };
            let tables = (memory.words(), agg.location.at, agg.location.stride);
            take_table(tables, (agg.func, agg.shape), (side, agg.cpus), &mut |cpu, key, value| {
                sink(AggId(id), cpu, key, value);
            });
        }
    }

    /// The stack with an id.
    pub(crate) fn stack(&self, id: u64) -> Option<Stack> {
        let find = |map: &Map| {
            let mut value = vec![0; map.value_size()];
            map.lookup(&id.to_ne_bytes(), &mut value).ok().filter(|found| *found)?;
            Stack::read(&value)
        };
        self.maps.get(MapRef::Stacks).into_iter().chain(&self.former_stacks).find_map(find)
    }
}

/// Detaches programs, the last one first. Of two programs on a tracepoint, the kernel detaches the
/// later one at once. If the first one is detached before the other, the kernel waits for a grace
/// period (some 10 ms). With thousands of tracepoints that is half a minute. (A process that ends
/// closes its descriptors in the order of their numbers, and the kernel detaches in the reverse
/// order.)
///
/// A process in the background closes the links that the kernel detaches slowly. It closes all
/// links if the enabling was interrupted, because the kernel may still be attaching and hold the
/// locks for detaching.
fn detach(attached: &mut [AttachedProgram], interrupted: bool) -> usize {
    let time = |a: &AttachedProgram| if a.links.is_empty() { 0 } else { detach_us(&a.attach) };
    let in_background = interrupted || attached.iter().map(time).sum::<u64>() > DETACH_LIMIT_US;
    let mut slow = Vec::new();
    for a in attached.iter_mut().rev() {
        a.cpus.clear();
        a.clocks.clear();
        if in_background && (interrupted || detach_us(&a.attach) > 0) {
            slow.append(&mut a.links);
        }
        while a.links.pop().is_some() {}
    }
    let count = slow.len();
    if count > 0 {
        bpf::sys::close_in_background(slow);
    }
    count
}

/// Detaching that takes longer than this is left to a process in the background.
const DETACH_LIMIT_US: u64 = 200_000;

impl Drop for Machine {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Maps the tables of aggregations into memory.
fn tables(maps: &Maps) -> Result<BTreeMap<u32, Mmap>, Error> {
    let all = maps.iter().filter_map(|(at, map)| match at {
        MapRef::Agg(number) => Some((number, map)),
        _ => None,
    });
    all.map(|(number, map)| Ok((number, map.mmap(true)?))).collect()
}

/// Runs programs on the calling thread.
fn run(progs: &[Prog]) -> Result<(), SysError> {
    progs.iter().try_for_each(|p| p.test_run(&[0; 2], None).map(|_| ()))
}
