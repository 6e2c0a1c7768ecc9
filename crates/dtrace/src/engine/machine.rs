//! The kernel side of a session: its maps, programs and links, and reading from them.
//!
//! All kernel objects are held by file descriptors. Dropping a [`Machine`], or the death of the
//! process, detaches and frees them. Links are closed before programs and maps, so that no probe
//! fires while the session is freed. (The activity word already makes such a firing do nothing.)

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use bpf_codegen::context::Probe;
use bpf_codegen::mir::MapRef;
use bpf_runtime::maps::Maps;
use bpf_runtime::program::ClauseUse;
use bpf_sys::{Doorbell, GracePeriod, Map, Mmap, Prog, SysError, monotonic_ns};
use consumer::SlotSink;
use plane::control::{Activity, Control, DropDelta, DropKind, PerCpu};
use plane::deadman::Reason;
use plane::desc::AggId;
use plane::newest::{Newest, complete_from, copy_newest};
use plane::read::{Batch, RingReader, take_table};
use plane::ring::Policy;
use plane::shares::Counters;
use plane::stacks::Stack;
use probes::ProbeId;
use proc::share::Owners;
use providers::method::{Cpus, Detached, Members, Semaphores, SiteLink};
use symbols::Readers;

use crate::compile::Program;
use crate::engine::bank::{self, Bank, tables};
use crate::engine::deadman::LivenessThread;
use crate::engine::growth::{Growth, LeftOut, LoadedGrowing, ReadState, UnitArrival, attach_each};
use crate::engine::snapshots::Snapshots;
use crate::engine::speculation::SpeculativeBuffers;
use crate::engine::stack_store::StackStore;
use crate::engine::unwinder::Unwinder;
use crate::error::Error;
use crate::load::assemble::Assembly;
use crate::load::attach::{AttachObserver, AttachedProgram, Said, attach, follow};
use crate::load::detach::{close_links, detach};
use crate::load::facts::SystemContext;
use crate::load::kernel_stack::KernelRows;
use crate::load::process_ids::Numbers;
use crate::load::services::Services;
use crate::load::{LoadedPrograms, RunningSession, load};
use crate::options::Options;

/// See the [module](self).
pub(crate) struct Machine {
    attached: Vec<AttachedProgram>,
    /// Probes that come and go.
    growth: Growth,
    begin: Vec<Prog>,
    end: Vec<Prog>,
    control: Mmap,
    /// In the order of creation. New programs use the last bank.
    banks: Vec<Bank>,
    /// The tables of aggregations, by the number of their map.
    aggs: BTreeMap<u32, Mmap>,
    /// The speculative buffers, if a clause speculates.
    pub(crate) speculations: Option<SpeculativeBuffers>,
    /// The stack store, if a clause takes a stack, and its limit in bytes.
    stacks: (Option<StackStore>, u64),
    /// The tables by which stacks of processes are walked, if a clause takes one, and their limit
    /// in bytes.
    unwinder: (Option<Unwinder>, u64),
    /// By what the files of processes are read.
    readers: Readers,
    /// What functions of language runtimes are called ([`plane::calls`]), and its memory until
    /// somebody reads it.
    names: Option<(Map, Option<Mmap>)>,
    /// ERROR and its clauses.
    error: (Probe, Vec<ClauseUse>),
    /// Number of the next program's table.
    next_table: u32,
    /// The programs that serve all clauses.
    services: Services,
    /// By which rows programs walk stacks of the kernel, once it is known.
    kernel_rows: Option<KernelRows>,
    reader: RingReader,
    /// When its rings were empty.
    begun: u64,
    grace: Option<Arc<GracePeriod>>,
    snapshots: Snapshots,
    /// No program of a probe runs any more: see [`Machine::quiesce`].
    quiescent: bool,
    doorbell: Option<Doorbell>,
    only_cpu: Option<u32>,
    /// Details of attaching, for `-v`.
    said: Said,
    liveness: Option<LivenessThread>,
    maps: Maps,
    /// Maps that others have replaced, of which earlier programs have the descriptors.
    replaced: Vec<Map>,
    /// The sets of processes that are to be filled, and the numbers of those that are.
    sets: (Vec<Members>, Vec<u32>),
    /// Numbers of processes in the kernel.
    numbers: Numbers,
    /// Forks and execs that were reported as missed.
    missed_forks: u64,
}

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
        let loaded = load((None, false), program, assembly, options, system, between)?;
        let maps = loaded.maps;
        let map = |at: MapRef| maps.get(at).ok_or_else(|| Error::Internal(format!("no map {at:?}")));
        let begun = monotonic_ns();
        let mut machine = Machine {
            attached: loaded.attached,
            growth: Growth::default(),
            begin: loaded.begin,
            end: loaded.end,
            control: map(MapRef::Control)?.mmap(true)?,
            banks: vec![Bank::new(&maps)?],
            aggs: tables(&maps)?,
            speculations: SpeculativeBuffers::of(&maps)?,
            stacks: (None, options.stacksize.0),
            unwinder: (None, options.unwindsize.0),
            readers: program.registry.readers(),
            names: None,
            error: loaded.error,
            next_table: loaded.next_table,
            services: loaded.services,
            kernel_rows: loaded.kernel_rows,
            reader: RingReader::new(begun),
            begun,
            grace: None,
            snapshots: Snapshots::default(),
            quiescent: false,
            doorbell: None,
            only_cpu: options.cpu.map(|c| c as u32),
            said: Said { details: loaded.details, missing: Vec::new() },
            liveness: None,
            maps,
            replaced: Vec::new(),
            sets: (loaded.sets, Vec::new()),
            numbers: Numbers::default(),
            missed_forks: 0,
        };
        machine.take_stacks()?;
        machine.doorbell = machine.maps.take(MapRef::Doorbell).map(Doorbell::over).transpose()?;
        Ok(machine)
    }

    /// The maps and numbers that programs which are enabled later share with this session.
    pub(crate) fn running(&self) -> RunningSession {
        let mut fds: BTreeMap<MapRef, RawFd> =
            self.maps.iter().map(|(at, m)| (at, m.as_fd().as_raw_fd())).collect();
        fds.extend(self.growth.table.as_ref().map(|t| (MapRef::Probes, t.map().as_fd().as_raw_fd())));
        fds.extend(self.stacks.0.as_ref().map(StackStore::fd));
        fds.extend(self.unwinder.0.iter().flat_map(Unwinder::fds));
        fds.extend(self.names.as_ref().map(|(map, _)| (MapRef::RuntimeNames, map.as_fd().as_raw_fd())));
        fds.extend(self.doorbell.as_ref().map(|d| (MapRef::Doorbell, d.map().as_raw_fd())));
        let (plan, error) = (self.maps.plan.clone(), self.error.clone());
        let names = self.growth.names.clone();
        let kernel_rows = self.kernel_rows.clone();
        let (next_table, services) = (self.next_table, self.services);
        RunningSession { plan, fds, error, next_table, services, names, kernel_rows }
    }

    /// Adds loaded programs, runs their BEGIN, and attaches them. After an error, none of them
    /// stays attached.
    pub(crate) fn adopt(
        &mut self,
        loaded: LoadedPrograms,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LeftOut, Error> {
        let services = self.services;
        let adopted = self.adopt_all(loaded, interrupted);
        if adopted.is_err() {
            // Later programs bring the shared ones that are not attached.
            self.services = services;
        }
        adopted
    }

    fn adopt_all(
        &mut self,
        mut loaded: LoadedPrograms,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LeftOut, Error> {
        let mut left = std::mem::take(&mut loaded.left);
        let maps = &loaded.maps;
        let new_bank = maps.plan.bank != self.maps.plan.bank;
        let bank = new_bank.then(|| Bank::new(maps)).transpose()?;
        let aggs = tables(maps)?;
        let speculations = SpeculativeBuffers::of(maps)?;
        // From here on the session reads what the new programs write, even if attaching fails.
        self.banks.extend(bank);
        self.aggs.extend(aggs);
        self.speculations = self.speculations.take().or(speculations);
        // Growing programs are loaded again for the maps that they had.
        let replaced = self.maps.adopt(loaded.maps).into_iter();
        let needed = replaced.filter(|(at, _)| !matches!(at, MapRef::EmptyProgArray | MapRef::Strings));
        self.replaced.extend(needed.map(|(_, map)| map));
        self.take_stacks()?;
        self.next_table = loaded.next_table;
        self.services = loaded.services;
        self.kernel_rows = loaded.kernel_rows;
        if !self.start_liveness() {
            loaded.attached.retain(|a| !a.is_heartbeat());
        }
        run(&loaded.begin)?;
        if self.activity().0 == Activity::Active {
            let mut observer = AttachObserver { progress: &mut |_| !interrupted(), interrupted };
            let units = loaded.growing.iter().flat_map(|(_, arrival)| arrival.methods());
            // Of those that follow, for the first ones.
            let _semaphores = Semaphores::of(units.chain(loaded.attached.iter().map(|a| &*a.method)));
            let (all, said) = (&mut loaded.attached, &mut self.said);
            let attached = match loaded.partial {
                true => attach_each(all, &mut left, said, &mut observer),
                false => attach(all, said, &mut observer),
            };
            let grown = attached.and_then(|()| {
                self.add_members(&loaded.sets)?;
                self.create_grace_period(!loaded.growing.is_empty())?;
                let growth = &mut self.growth;
                growth.table = growth.table.take().or(loaded.table);
                growth.names = growth.names.take().or(loaded.names);
                let (programs, arrivals): (Vec<LoadedGrowing>, Vec<UnitArrival>) =
                    loaded.growing.into_iter().unzip();
                for (program, arrival) in programs.into_iter().zip(&arrivals) {
                    growth.add_program(arrival.program, program);
                }
                let arrived = growth.arrive(&arrivals, &mut self.said, &mut observer);
                arrivals.iter().for_each(|a| growth.remove_if_never_used(a.program));
                arrived
            });
            let grown = grown.and_then(|more| {
                left.rejected.extend(more.rejected);
                left.failed.extend(more.failed);
                left.attached |= more.attached;
                std::mem::take(&mut left).or_error()
            });
            match grown {
                Ok(all) => left = all,
                Err(e) => {
                    detach(&mut loaded.attached, matches!(e, Error::Interrupted));
                    return Err(e);
                }
            }
        }
        self.error = loaded.error;
        self.attached.append(&mut loaded.attached);
        self.end.append(&mut loaded.end);
        self.create_grace_period(!self.attached.is_empty())?;
        Ok(left)
    }

    /// Attaches new sites of growing programs: see [`Growth::arrive`].
    pub(crate) fn arrive(
        &mut self,
        arrivals: &[UnitArrival],
        strings: &[Arc<[u8]>],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LeftOut, Error> {
        if self.activity().0 != Activity::Active {
            return Err(Error::Interrupted);
        }
        self.growth.add_names(arrivals, strings)?;
        let mut observer = AttachObserver { progress: &mut |_| !interrupted(), interrupted };
        self.growth.arrive(arrivals, &mut self.said, &mut observer)?.or_error()
    }

    /// The sites of these probes fire no more.
    pub(crate) fn remove(&mut self, probes: &[ProbeId]) {
        self.growth.remove(probes);
        if self.attached.iter().all(|a| a.later.is_none()) {
            return;
        }
        let removed: HashSet<u32> = probes.iter().map(|id| id.0).collect();
        let mut kept = Vec::with_capacity(self.attached.len());
        for mut a in std::mem::take(&mut self.attached) {
            match a.later.as_mut().is_some_and(|later| later.remove(&removed)) {
                true => self.growth.remove_fixed(a),
                false => kept.push(a),
            }
        }
        self.attached = kept;
    }

    /// Closes links.
    pub(crate) fn close_links(&mut self, which: &[Detached]) {
        let which: HashSet<Detached> = which.iter().copied().collect();
        let is_meant = |link: &mut SiteLink| {
            let (process, returns) =
                (link.of_process.map(Detached::All), link.returns_in.map(Detached::Returns));
            [process, returns, link.of_file.map(Detached::File)].iter().flatten().any(|d| which.contains(d))
        };
        let fixed = self.attached.iter_mut().map(|a| &mut a.loaded.links);
        let lists = fixed.chain(self.growth.link_lists());
        let links: Vec<SiteLink> = lists.flat_map(|links| links.extract_if(.., is_meant)).collect();
        crate::load::attach::close_at_once(links);
    }

    /// True if removed sites need a snapshot soon.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.growth.wants_snapshot(&|| self.read_state())
    }

    fn read_state(&self) -> ReadState {
        read_state(&self.reader, &self.snapshots, self.aggs.is_empty())
    }

    /// Continues the release of removed sites: see [`Growth::advance`].
    pub(crate) fn release(&mut self) -> Vec<u32> {
        let Machine { growth, grace, reader, snapshots, aggs, .. } = self;
        growth.advance(grace.as_ref(), &|| read_state(reader, snapshots, aggs.is_empty()))
    }

    /// True if there is a growing program with this number.
    pub(crate) fn has_growing(&self, number: u32) -> bool {
        self.growth.has_program(number)
    }

    /// Attaches all programs.
    pub(crate) fn attach(&mut self, observer: &mut AttachObserver<'_>) -> Result<(), Error> {
        if !self.start_liveness() {
            self.attached.retain(|a| !a.is_heartbeat());
        }
        if let Err(e) = attach(&mut self.attached, &mut self.said, observer) {
            detach(&mut self.attached, matches!(e, Error::Interrupted));
            return Err(e);
        }
        let sets = std::mem::take(&mut self.sets.0);
        self.add_members(&sets)?;
        self.create_grace_period(!self.attached.is_empty())
    }

    /// Puts processes in sets, once.
    fn add_members(&mut self, sets: &[Members]) -> Result<(), Error> {
        let Some(map) = self.maps.get(MapRef::Processes) else { return Ok(()) };
        let filled = &self.sets.1;
        let new = || sets.iter().filter(|members| !filled.contains(&members.set));
        crate::load::process_set::add(map, new())?;
        let new: Vec<u32> = new().map(|members| members.set).collect();
        self.sets.1.extend(new);
        Ok(())
    }

    /// The sets in which a process is, as bits.
    pub(crate) fn sets_of(&mut self, process: u32) -> u64 {
        let numbers = &mut self.numbers;
        self.maps
            .get(MapRef::Processes)
            .map_or(0, |map| crate::load::process_set::sets_of(map, process, numbers))
    }

    /// Starts the liveness thread, if there are heartbeats. Returns false if the thread cannot
    /// start. Heartbeats would then stop the session and must not be attached.
    fn start_liveness(&mut self) -> bool {
        if let (Some(interval), None) = (self.services.heartbeat, &self.liveness) {
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
        let programs = self.attached.iter().flat_map(AttachedProgram::programs).chain(self.growth.programs());
        programs.filter_map(|p| Some(p.info().ok()?.run_time_ns)).sum()
    }

    /// What makes the tables by which stacks of processes are walked, if the session has that.
    pub(crate) fn unwinder(&self) -> Option<&Unwinder> {
        self.unwinder.0.as_ref()
    }

    fn create_grace_period(&mut self, needed: bool) -> Result<(), Error> {
        if needed && self.grace.is_none() {
            self.grace = Some(Arc::new(GracePeriod::new()?));
        }
        Ok(())
    }

    /// Detaches all programs. A process in the background closes the links that the kernel detaches
    /// slowly; their number is returned.
    pub(crate) fn detach(&mut self) -> usize {
        let (links, us) = self.growth.take_links();
        let count = close_links(links, us);
        count + detach(&mut self.attached, false)
    }

    /// Details of attaching since the last call.
    pub(crate) fn take_said(&mut self) -> Said {
        std::mem::take(&mut self.said)
    }

    /// Attaches clocks on CPUs that are now online. Moves clocks that run on a single CPU if that
    /// CPU is offline.
    pub(crate) fn follow_cpus(&mut self, online: &[u32]) -> Result<(), Error> {
        let cpus = Cpus { online, only: self.only_cpu };
        for a in self.attached.iter_mut().filter(|a| a.method.follows_cpus()) {
            a.clocks.retain(|clock| online.contains(&clock.cpu()));
            follow(a, cpus)?;
        }
        Ok(())
    }

    /// True if a program has a clock.
    pub(crate) fn has_clocks(&self) -> bool {
        self.attached.iter().any(|a| a.method.follows_cpus())
    }

    /// Runs BEGIN's clauses on the calling thread.
    pub(crate) fn run_begin(&mut self) -> Result<(), SysError> {
        run(&self.begin)?;
        // The records of BEGIN need not wait for those of probes that fire now.
        let now = monotonic_ns();
        let sets = bank::rings(&self.banks);
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
    ///
    /// By another policy than switch, records are taken when tracing has ended.
    pub(crate) fn drain(&mut self, hold: Option<Duration>) -> Batch {
        let now = monotonic_ns();
        let sets = bank::rings(&self.banks);
        if self.maps.plan.policy != Policy::Switch && !self.quiescent {
            if self.maps.plan.policy == Policy::Ring {
                self.reader.pass(&sets, now);
            }
            return SpeculativeBuffers::complete(&mut self.speculations, Batch::default(), now, false);
        }
        let hold = hold.map(|h| u64::try_from(h.as_nanos()).unwrap_or(u64::MAX));
        let batch = match self.maps.plan.policy {
            Policy::Ring => self.reader.take_newest(&sets, now),
            Policy::Switch | Policy::Fill => self.reader.drain_all(&sets, now, hold),
        };
        let newest = self.maps.plan.policy == Policy::Ring;
        SpeculativeBuffers::complete(&mut self.speculations, batch, now, newest)
    }

    /// What rings that are overwritten have until now, while programs run.
    pub(crate) fn newest(&mut self) -> Newest {
        copy_newest(&mut self.reader, &bank::rings(&self.banks), (self.begun, monotonic_ns()), &monotonic_ns)
    }

    /// See [`complete_from`].
    pub(crate) fn complete_from(&self) -> u64 {
        complete_from(&bank::rings(&self.banks), self.begun)
    }

    /// Every record with a time before this one was given by the drains or commits so far.
    pub(crate) fn complete_until(&self) -> u64 {
        let oldest = self.speculations.as_ref().map_or(u64::MAX, SpeculativeBuffers::oldest);
        self.reader.complete_until().min(oldest)
    }

    /// The time until the next drain: `switchrate`, or less if the last drain held records back, or
    /// if stacks are being evicted. The firing or the grace period that they wait for ends soon in
    /// most cases.
    pub(crate) fn drain_interval(&self, switchrate: Duration) -> Duration {
        let evicts = self.stacks.0.as_ref().is_some_and(StackStore::is_evicting);
        let most = match (self.reader.waits(), evicts) {
            (true, _) => Duration::from_millis(2),
            (false, true) => Duration::from_millis(10),
            (false, false) => return switchrate,
        };
        switchrate.min(most)
    }

    /// Drops since the last call.
    pub(crate) fn drops(&mut self) -> Vec<DropDelta> {
        let mut all: Vec<DropDelta> = self.reader.take_late();
        all.extend(self.speculations.as_mut().map(SpeculativeBuffers::take_lost).unwrap_or_default());
        for bank in &mut self.banks {
            let Some(percpu) = PerCpu::new(bank.percpu.words(), bank.cpus) else { continue };
            for d in bank.drops.deltas(percpu) {
                match all.iter_mut().find(|o| (o.kind, o.cpu) == (d.kind, d.cpu)) {
                    Some(same) => same.count += d.count,
                    None => all.push(d),
                }
            }
        }
        let missed = crate::load::process_set::missed_by_all(self.attached.iter());
        let count = missed.saturating_sub(std::mem::replace(&mut self.missed_forks, missed));
        if count > 0 {
            all.push(DropDelta { kind: DropKind::Fork, cpu: 0, count });
        }
        all
    }

    /// Firings that the kernel suppressed since the start, by program, because a program was
    /// already running on the CPU. Firings whose predicate would have been false are included.
    pub(crate) fn suppressed(&self) -> Result<Vec<(String, u64)>, SysError> {
        let mut all: Vec<(String, u64)> = self.growth.suppressed()?;
        for a in self.attached.iter().filter(|a| a.fires()) {
            let (name, count) = (a.name.clone(), a.missed()?);
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
    pub(crate) fn lowered(&self) -> &[bpf_runtime::maps::Lowered] {
        &self.maps.lowered
    }

    /// Begins a snapshot of the aggregations, if none is pending: what is aggregated from now on
    /// belongs to the next one.
    pub(crate) fn begin_snapshot(&mut self) {
        let Some(control) = Control::new(self.control.words()) else { return };
        let grace = self.grace.as_ref().filter(|_| !self.quiescent && !self.aggs.is_empty());
        self.snapshots.begin(control, grace);
    }

    /// True if the pending snapshot can be taken without waiting.
    pub(crate) fn snapshot_is_ready(&self) -> bool {
        self.snapshots.is_ready()
    }

    /// Readable when the pending snapshot is ready.
    pub(crate) fn snapshot_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.snapshots.descriptor()
    }

    /// The number of snapshots that have begun, and how many of them are merged.
    pub(crate) fn snapshots(&self) -> (u64, u64) {
        self.snapshots.counts()
    }

    /// Takes the values of the pending snapshot and clears them, after waiting for its grace
    /// period.
    pub(crate) fn take_snapshot(&mut self, sink: &mut SlotSink<'_>) {
        let Some(side) = self.snapshots.complete() else { return };
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
        self.stacks.0.as_ref()?.find(id)
    }

    /// The memory that says what functions of language runtimes are called, the first time that it
    /// is there.
    pub(crate) fn take_names(&mut self) -> Option<Mmap> {
        self.names.as_mut()?.1.take()
    }

    /// The stacks that the store evicted since the last call. Call it after each drain.
    pub(crate) fn evicted_stacks(&mut self) -> Vec<(u64, Stack)> {
        // A side that ends with the session need not be replaced.
        let fills = matches!(self.activity().0, Activity::Warmup | Activity::Active);
        self.stacks.0.as_mut().map(|store| store.evict(fills)).unwrap_or_default()
    }

    /// Takes over the maps of a new stack store.
    fn take_stacks(&mut self) -> Result<(), Error> {
        if let Some(store) = StackStore::take(&mut self.maps, self.stacks.1)? {
            self.stacks.0 = Some(store);
        }
        if let Some(unwinder) = Unwinder::take(&mut self.maps, self.unwinder.1, &self.readers)? {
            self.unwinder.0 = Some(unwinder);
        }
        if let Some(store) = self.maps.take(MapRef::RuntimeNames) {
            let memory = store.mmap(true)?;
            if let Some(counters) = Counters::new(memory.words(), plane::calls::SHARES_AT) {
                counters.set_subordinate(Owners::default().subordinate());
            }
            self.names = Some((store, Some(memory)));
        }
        Ok(())
    }
}

fn read_state(reader: &RingReader, snapshots: &Snapshots, no_snapshots: bool) -> ReadState {
    let (begun, merged) = snapshots.counts();
    ReadState { complete_until: reader.complete_until(), begun, merged, no_snapshots }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Runs programs on the calling thread.
fn run(progs: &[Prog]) -> Result<(), SysError> {
    progs.iter().try_for_each(|p| p.test_run(&[0; 2], None).map(|_| ()))
}
