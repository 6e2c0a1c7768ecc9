//! The kernel side of a session: its maps, programs and links, and what is read out of them.
//!
//! File descriptors hold everything here; dropping a [`Machine`] detaches and frees it all, and so does the death of
//! the process. Links are closed before programs and maps only so that nothing fires into a session that is being taken
//! apart; the activity word already makes such a firing do nothing.

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
use crate::attach::{Follow, attach};
use crate::clocks::{CpuClock, Schedule, Served};
use crate::compile::Program;
use crate::deadman::Life;
use crate::error::Error;
use crate::load::{Loaded, Running, Surroundings, load};
use crate::options::Options;

/// A program and what holds it in place.
pub(crate) struct Attached {
    pub(crate) prog: Prog,
    /// What `prog` is made of, where each function has a copy of it.
    pub(crate) image: Option<ProgramImage>,
    /// These.
    pub(crate) copies: Vec<Prog>,
    /// It fires clauses: what the kernel keeps from it is lost. The others help where they can be attached.
    pub(crate) fires: bool,
    pub(crate) attach: Attach,
    pub(crate) links: Vec<Link>,
    /// CPUs that have a clock, in the order of `links`.
    pub(crate) cpus: Vec<u32>,
    /// Counters of the firings that a clock serves, if it is known how many are due.
    pub(crate) served: Option<Served>,
    /// The clocks of single CPUs, if it is known how many firings are due.
    pub(crate) clocks: Vec<CpuClock>,
}

impl Attached {
    pub(crate) fn new(prog: Prog, attach: Attach, fires: bool) -> Attached {
        Attached {
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

    /// One whose program is loaded once for each function.
    pub(crate) fn each(prog: Prog, image: ProgramImage, attach: Attach) -> Attached {
        Attached { image: Some(image), ..Attached::new(prog, attach, true) }
    }

    /// Gives a CPU its clock. One that helps goes without where the kernel refuses it, and so does all where the CPU went offline
    /// since somebody looked: [`Machine::follow_cpus`] sees to the rest.
    pub(crate) fn give_clock(&mut self, cpu: u32) -> Result<(), SysError> {
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
            Err(e) if !self.fires || e.errno == NO_SUCH_CPU => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// It is the heartbeat.
    fn beats(&self) -> bool {
        !self.fires && matches!(self.attach, Attach::Clock { .. })
    }
}

/// ENODEV: perf has no such CPU.
const NO_SUCH_CPU: i32 = 19;

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
    grace: Option<Arc<GracePeriod>>,
    /// A snapshot that waits for its grace period.
    pending: RefCell<Option<Pending>>,
    /// The last grace period took long, or there was none.
    slow: Cell<bool>,
    /// No probe's program runs any more: see [`Machine::settle`].
    still: bool,
    doorbell: Option<Doorbell>,
    only_cpu: Option<u32>,
    /// How things were attached, for those who want to know.
    details: Vec<String>,
    /// Nanoseconds between heartbeats, when there are some.
    heart: Option<u64>,
    life: Option<Life>,
    maps: Maps,
}

/// What a snapshot waits for.
struct Pending {
    side: u32,
    grace: JoinHandle<Result<Duration, SysError>>,
}

/// A grace period that takes so long is awaited aside; usually it takes some 20 ms.
const SLOW: Duration = Duration::from_secs(1);

impl Machine {
    /// Makes the maps and loads the programs. Nothing is attached yet. Calls `between` after each program.
    pub(crate) fn load(
        program: &Program,
        assembly: &Assembly,
        options: &Options,
        around: &Surroundings<'_>,
        between: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Machine, Error> {
        let loaded = load(None, program, assembly, options, around, between)?;
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
            reader: RingReader::new(monotonic_ns()),
            grace: None,
            pending: RefCell::default(),
            slow: Cell::new(true),
            still: false,
            doorbell: None,
            only_cpu: options.maybe_number("cpu").map(|c| c as u32),
            details: Vec::new(),
            heart: loaded.heart,
            life: None,
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
        let heart = self.heart.is_some();
        Running { plan, fds, error, next_table: self.next_table, owned: self.owned, heart }
    }

    /// Takes in what was loaded, runs its BEGIN, and attaches it. Where that fails, nothing of it stays attached.
    pub(crate) fn adopt(&mut self, mut loaded: Loaded, interrupted: &dyn Fn() -> bool) -> Result<(), Error> {
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
        self.heart = self.heart.or(loaded.heart);
        if !self.live() {
            loaded.attached.retain(|a| !a.beats());
        }
        run(&loaded.begin)?;
        if self.activity().0 == Activity::Active {
            let mut follow = Follow { tell: &mut |_| !interrupted(), interrupted };
            if let Err(e) = attach(&mut loaded.attached, &mut self.details, &mut follow) {
                detach(&mut loaded.attached, matches!(e, Error::Interrupted));
                return Err(e);
            }
        }
        self.error = loaded.error;
        self.attached.append(&mut loaded.attached);
        self.end.append(&mut loaded.end);
        self.need_grace()
    }

    /// Attaches all programs.
    pub(crate) fn attach(&mut self, follow: &mut Follow<'_>) -> Result<(), Error> {
        if !self.live() {
            self.attached.retain(|a| !a.beats());
        }
        if let Err(e) = attach(&mut self.attached, &mut self.details, follow) {
            detach(&mut self.attached, matches!(e, Error::Interrupted));
            return Err(e);
        }
        self.need_grace()
    }

    /// Gives signs of life, where there are heartbeats that look for them. Where they cannot be given, heartbeats would take
    /// that for silence, and must not beat: false.
    fn live(&mut self) -> bool {
        if let (Some(interval), None) = (self.heart, &self.life) {
            let control = self.maps.get(MapRef::Control).and_then(|m| m.mmap(true).ok());
            self.life = control.and_then(|c| Life::start(c, Duration::from_nanos(interval)).ok());
        }
        self.life.is_some()
    }

    /// The limit that a heartbeat found passed since the last call.
    pub(crate) fn take_alarm(&self) -> Option<Reason> {
        self.control()?.take_alarm()
    }

    /// The greatest lateness of heartbeats and the longest silence of ours that they saw since the last call.
    pub(crate) fn take_lag(&self) -> (u64, u64) {
        let each = self.banks.iter().filter_map(|b| Some(PerCpu::new(b.percpu.words(), b.cpus)?.take_lag()));
        each.fold((0, 0), |most, lag| (most.0.max(lag.0), most.1.max(lag.1)))
    }

    /// Nanoseconds that the kernel counted for the session's programs.
    pub(crate) fn time_taken(&self) -> u64 {
        let programs = self.attached.iter().flat_map(|a| a.copies.iter().chain([&a.prog]));
        programs.filter_map(|p| Some(p.info().ok()?.run_time_ns)).sum()
    }

    fn need_grace(&mut self) -> Result<(), Error> {
        if !self.attached.is_empty() && self.grace.is_none() {
            self.grace = Some(Arc::new(GracePeriod::new()?));
        }
        Ok(())
    }

    /// Detaches all programs. What the kernel detaches slowly is left to a process in the background: so many links.
    pub(crate) fn detach(&mut self) -> usize {
        detach(&mut self.attached, false)
    }

    /// How things were attached since the last call.
    pub(crate) fn take_details(&mut self) -> Vec<String> {
        std::mem::take(&mut self.details)
    }

    /// Gives clocks to CPUs that are now online, and moves the single ones from CPUs that are offline.
    pub(crate) fn follow_cpus(&mut self, online: &[u32]) -> Result<(), SysError> {
        for a in &mut self.attached {
            let Attach::Clock { single, .. } = a.attach else { continue };
            while let Some(gone) = a.cpus.iter().position(|c| !online.contains(c)) {
                let cpu = a.cpus.remove(gone);
                a.clocks.retain(|clock| clock.cpu() != cpu);
                a.links.remove(gone);
            }
            for cpu in online.iter().filter(|c| self.only_cpu.is_none_or(|only| only == **c)) {
                if a.cpus.contains(cpu) || single && !a.cpus.is_empty() {
                    continue;
                }
                a.give_clock(*cpu)?;
            }
        }
        Ok(())
    }

    /// True when something has a clock on each CPU.
    pub(crate) fn has_clocks(&self) -> bool {
        self.attached.iter().any(|a| matches!(a.attach, Attach::Clock { .. }))
    }

    /// Runs BEGIN's clauses, here and now.
    pub(crate) fn run_begin(&mut self) -> Result<(), SysError> {
        run(&self.begin)?;
        // Its records need not wait for those of probes that fire now.
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

    /// A mapping of the control page of its own.
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

    /// Takes the committed records, in the order of time. What may have to stand behind one that is still made is held back for
    /// `hold`; without, nothing is.
    pub(crate) fn drain(&mut self, hold: Option<Duration>) -> Batch {
        let now = monotonic_ns();
        let sets: Vec<Rings<'_>> = self.banks.iter().filter_map(Bank::rings).collect();
        let hold = hold.map(|h| u64::try_from(h.as_nanos()).unwrap_or(u64::MAX));
        self.reader.drain_all(&sets, now, hold)
    }

    /// The time until the next drain: `switchrate`, or less where the last one held records back for a firing. Most firings end
    /// soon.
    pub(crate) fn drain_interval(&self, switchrate: Duration) -> Duration {
        if self.reader.waits() { switchrate.min(Duration::from_millis(2)) } else { switchrate }
    }

    /// Losses since the last call.
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

    /// Firings that the kernel kept from our programs (one was already running where it would have had to run), by
    /// program, since the start. Firings that a predicate would have refused are among them.
    pub(crate) fn suppressed(&self) -> Result<Vec<(String, u64)>, SysError> {
        let of = |a: &Attached| {
            let copies =
                a.copies.iter().filter_map(|p| p.info().ok()).map(|i| i.recursion_misses).sum::<u64>();
            let info = a.prog.info()?;
            // Links of tracepoints count nothing, and may be thousands; those at the entry of functions count nothing but what
            // the program itself calls.
            let tells = match &a.attach {
                Attach::Sites(s) if s.method == AttachMethod::Multi => s.on_return,
                Attach::Sites(s) => s.method == AttachMethod::Kprobe,
                other => !providers::attach::shares_tracepoints(other),
            };
            let missed = a.links.iter().filter(|_| tells).filter_map(|l| l.info().ok()).map(|l| l.missed());
            Ok((a.prog.name().to_string(), info.recursion_misses + copies + missed.sum::<u64>()))
        };
        let mut all: Vec<(String, u64)> = Vec::new();
        for a in self.attached.iter().filter(|a| a.fires) {
            let (name, count) = of(a)?;
            // Copies of one program come one after the other.
            match all.last_mut() {
                Some(last) if last.0 == name => last.1 += count,
                _ => all.push((name, count)),
            }
        }
        Ok(all)
    }

    /// The session has become active: from now on, missing firings of clocks are reported.
    pub(crate) fn activate_clocks(&mut self) {
        let now = monotonic_ns();
        for Attached { served, clocks, .. } in &mut self.attached {
            if let Some(served) = served {
                clocks.iter_mut().for_each(|clock| clock.become_active(served, now));
            }
        }
    }

    /// True if there is a clock whose missing firings are reported.
    pub(crate) fn has_counted_clocks(&self) -> bool {
        self.attached.iter().any(|a| !a.clocks.is_empty())
    }

    /// Firings of clocks that were due and not served since the last call: probe, CPU and number. Only of `online` CPUs, because
    /// the clocks of others have stopped. `last`: the session ends.
    pub(crate) fn missing_firings(&mut self, online: &[u32], last: bool) -> Vec<(String, u32, u64)> {
        let mut all = Vec::new();
        for Attached { served, clocks, .. } in &mut self.attached {
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

    /// What the kernel was asked for and could not give.
    pub(crate) fn lowered(&self) -> &[bpf::maps::Lowered] {
        &self.maps.lowered
    }

    /// True when a snapshot may be taken now. Where grace periods take long (on a machine that has hardly any time left, half
    /// a minute), one is awaited aside, and the session goes on with its work: it must handle `exit()` and interrupts.
    pub(crate) fn ready_for_snapshot(&self) -> bool {
        let mut pending = self.pending.borrow_mut();
        if let Some(pending) = &*pending {
            return pending.grace.is_finished();
        }
        let (true, false, Some(grace), Some(control)) =
            (self.slow.get() && !self.aggs.is_empty(), self.still, self.grace.clone(), self.control())
        else {
            return true;
        };
        let wait = move || {
            let begun = Instant::now();
            grace.wait().map(|()| begun.elapsed())
        };
        // The flip comes first: what it leaves idle is what the grace period is for.
        let side = control.flip();
        match std::thread::Builder::new().name("grace".into()).stack_size(64 << 10).spawn(wait) {
            Ok(grace) => *pending = Some(Pending { side, grace }),
            Err(_) => {
                control.flip();
                self.slow.set(false);
            }
        }
        pending.is_none()
    }

    /// Takes what the aggregations hold, and empties them; with `late`, no more than what [`Machine::ready_for_snapshot`] has
    /// waited for.
    pub(crate) fn snapshot(&self, late: bool, sink: &mut SlotSink<'_>) -> io::Result<()> {
        let Some(control) = self.control().filter(|_| !self.aggs.is_empty()) else { return Ok(()) };
        let failed = |e: SysError| io::Error::from_raw_os_error(e.errno);
        if let Some(pending) = self.pending.take() {
            let gone = || io::Error::other("the thread that awaits a grace period has ended");
            let took = pending.grace.join().map_err(|_| gone())?.map_err(failed)?;
            self.slow.set(took >= SLOW);
            self.take_side(pending.side, sink);
            if late {
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

    /// Empties the side that nobody writes any more.
    fn take_side(&self, side: u32, sink: &mut SlotSink<'_>) {
        for (id, agg) in (0..).zip(&self.maps.plan.aggs) {
            let Some(memory) = self.aggs.get(&agg.location.map) else { continue };
            let tables = (memory.words(), agg.location.at, agg.location.stride);
            take_table(tables, (agg.func, agg.shape), (side, agg.cpus), &mut |cpu, key, value| {
                sink(AggId(id), cpu, key, value);
            });
        }
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

/// Detaches, the last first: of two programs on a tracepoint the kernel detaches the later one at once, but waits a grace
/// period (some 10 ms) when the first one is detached and the other stays. With thousands of tracepoints that is half a
/// minute. (A process that ends closes its descriptors in the order of their numbers, and the kernel detaches in the reverse order.)
///
/// What takes the kernel long is left to a process in the background, and all of it when the enabling was interrupted: the kernel
/// may still be attaching for it, and holds the locks that it needs to detach.
fn detach(attached: &mut [Attached], interrupted: bool) -> usize {
    let slow = |a: &Attached| if a.links.is_empty() { 0 } else { detach_us(&a.attach) };
    let aside = interrupted || attached.iter().map(slow).sum::<u64>() > PATIENCE_US;
    let mut left = Vec::new();
    for a in attached.iter_mut().rev() {
        a.cpus.clear();
        a.clocks.clear();
        if aside && (interrupted || detach_us(&a.attach) > 0) {
            left.append(&mut a.links);
        }
        while a.links.pop().is_some() {}
    }
    let count = left.len();
    if count > 0 {
        bpf::sys::close_in_background(left);
    }
    count
}

/// A user does not wait longer than this for a session to be detached.
const PATIENCE_US: u64 = 200_000;

impl Drop for Machine {
    fn drop(&mut self) {
        self.detach();
    }
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
