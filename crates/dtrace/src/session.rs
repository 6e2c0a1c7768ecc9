//! A running session: from a compiled program to its end. Programs have it as a [`Session`], which
//! calls what is here in the process that has started it.
//!
//! ```text
//!  start    maps, programs, links; BEGIN (WARMUP); ACTIVE
//!  work     wait for the doorbell, a deadline, a target or the user; drain, snapshot, report drops
//!  enable   more programs: new maps for new objects; their BEGIN; links
//!  finish   DRAINING, grace, drain, END, drain, snapshot, print; STOPPED; detach
//! ```
//!
//! The order at the end ensures that no record is lost or printed twice. After DRAINING and a grace
//! period no program of a probe runs any more. So the drain that follows is complete, and END sees
//! everything before it.

pub(crate) mod advice;
mod arrivals;
pub(crate) mod builder;
mod enable;
mod end;
pub(crate) mod file_stops;
mod handle;
mod held;
pub(crate) mod host;
mod intervals;
pub(crate) mod linker;
pub(crate) mod modules;
mod notice;
mod postmortem;
pub(crate) mod processes;
mod recorded;
pub(crate) mod settings;
mod shapes;
mod snapshot;
mod source;
mod state;
pub(crate) mod stop;
mod targets;
mod watch;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::{Consumer, KernelSymbols, Symbolizer, SystemSymbols};
use diagnostics::Few;
use events::{Sink, Start};
use plane::control::Activity;
use symbols::Interrupted;

use crate::compile::Program;
use crate::engine::deadman::{Alarm, Finding, Overload, OverloadMonitor, OverloadSigns, WINDOW};
use crate::engine::interpreter::{Interpreter, InterpreterEngine};
use crate::engine::kernel::Kernel;
use crate::engine::{Enabled, Engine, Firings};
use crate::error::Error;
use crate::load::attach::{AttachObserver, Progress};
use crate::options::{OptionError, Options, UserAddresses, nanoseconds};
use crate::session::advice::advice;
use crate::session::stop::Stopper;
use enable::{Registered, register};
pub use handle::Session;
use held::{HeldRecords, consume, drain};
use intervals::{Intervals, LEAST_INTERVAL, interval};
use recorded::Recorded;
use settings::{consumer_options, set_dynamic};
use shapes::{RemovedIds, Shapes};
use source::EngineSource;
use state::{Deadlines, Ending, Running, over};

pub(crate) use notice::{Notice, more_left_out};
use watch::Watch;

/// The state of a session after [`Session::work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Call [`Session::work`] again.
    Working,
    /// Tracing is over (exit(), or the last target has ended): call [`Session::finish`].
    Done,
}

/// What a session is made of, besides its program.
struct Parts<S> {
    engine: Box<dyn Engine>,
    enabled: Enabled,
    symbols: Box<dyn Symbolizer>,
    options: Options,
    targets: Vec<proc::Target>,
    sink: S,
    monitor: Option<OverloadMonitor>,
    cpus: Vec<u32>,
    /// The first event, without the options.
    start: Start<'static>,
    interrupted: Interrupted,
}

/// The rates that are lower than what was asked for, in the original's words.
fn reduced_rates(options: &Options) -> impl Iterator<Item = Notice> {
    let all = [(options.cleanrate, "cleaning rate"), (options.statusrate, "status rate")].into_iter();
    let reduced = all.filter(|(rate, _)| *rate < LEAST_INTERVAL);
    let hz = Duration::from_secs(1).as_nanos() / LEAST_INTERVAL.as_nanos();
    reduced.map(move |(_, words)| Notice::Lowered(format!("{words} reduced to {hz} hz")))
}

impl<S: Sink> Running<S> {
    pub(super) fn start_interruptible(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        mut sink: S,
        progress: &mut dyn FnMut(Progress) -> bool,
        interrupted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Running<S>, Error> {
        if !program.system.is_live() {
            let release = program.system.release();
            return Err(Error::Setting(format!(
                "the program is compiled for another machine (Linux {release}), where this process does not run"
            )));
        }
        let cpus = program.system.online_cpus();
        settings::check(&options, program.is_destructive(), &cpus)?;
        postmortem::check(&options, &targets)?;
        let interrupted: Interrupted = Arc::new(interrupted);
        let (engine, enabled, kernel) = Kernel::load(program, &options, &cpus, &*interrupted)?;
        let processes = symbols::Processes::new(&program.registry.readers());
        let mut symbols = SystemSymbols { kernel, processes, ..SystemSymbols::default() };
        symbols.processes.set_work_limits(targets::symtimeout(&options), options.symmem.0);
        symbols.processes.set_interrupted(Some(interrupted.clone()));
        (symbols.inlines, symbols.source_lines) = (options.inlines, options.srclines);
        symbols.addresses = options.uaddrs == UserAddresses::Address;
        symbols.processes.set_guests(options.guest);
        symbols.processes.set_sources(symbols.inlines || symbols.source_lines);
        let symbols: Box<dyn Symbolizer> = match options.noresolve {
            true => Box::new(KernelSymbols(symbols)),
            false => Box::new(symbols),
        };
        if proc::proc_has_initial_ids() {
            sink.set_thread_name(proc::thread_name);
        }
        let monitor = OverloadMonitor::new(&options);
        let (engine, start) = (Box::new(engine), host::start(&program.system, &cpus));
        let parts =
            Parts { engine, enabled, symbols, options, targets, sink, monitor, cpus, start, interrupted };
        let mut session = Running::begin(program, parts, progress)?;
        session.report_engine();
        session.follow_system();
        session.settle()?;
        // The output of BEGIN is printed before a target runs.
        session.drain(false)?;
        session.consume_held(true)?;
        session.release_targets()?;
        session.flush()?;
        Ok(session)
    }

    pub(super) fn interpret(
        program: &Program,
        options: Options,
        mut interpreter: Interpreter,
        sink: S,
    ) -> Result<Running<S>, Error> {
        let cpus = interpreter.cpus();
        settings::check(&options, program.is_destructive(), &cpus)?;
        postmortem::check(&options, &[])?;
        let symbols = interpreter.take_symbols();
        let start = interpreter.start(host::VERSION);
        let (engine, enabled) = InterpreterEngine::new(program, &options, interpreter)?;
        let (engine, targets) = (Box::new(engine), Vec::new());
        let (monitor, interrupted) = (None, Arc::new(|| false));
        let parts =
            Parts { engine, enabled, symbols, options, targets, sink, monitor, cpus, start, interrupted };
        Running::begin(program, parts, &mut |_| true)
    }

    /// Attaches the programs of an engine, runs BEGIN, and makes the session active.
    fn begin(
        program: &Program,
        parts: Parts<S>,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Running<S>, Error> {
        let Parts { mut engine, enabled, symbols, options, targets, sink, .. } = parts;
        let Parts { monitor, cpus, start, interrupted, .. } = parts;
        if sink.needs().process_ids && !program.process_ids {
            return Err(Error::Setting(
                "the sink needs the ids of processes, and the program was compiled without the option processids".into(),
            ));
        }
        let target = targets.first().map(|t| t.pid() as u32);
        let mut settings = consumer_options(&options, target);
        settings.discarded = program.captures;
        let mut consumer = Consumer::new(Recorded::new(sink, &options), symbols, settings);
        engine.take_codes().into_iter().for_each(|codes| consumer.set_codes(codes));
        consumer.name_stacks(options.stacksymbols);
        let intervals = match options.every {
            None => Intervals::default(),
            Some(length) => {
                let begin = engine.first_time();
                consumer.keep_intervals(begin);
                Intervals::new(length, begin, &mut *engine)
            }
        };
        consumer.start(start);
        register(&mut consumer, program, &enabled, Registered::default())?;
        consumer.advise(advice(engine.firings(), program, &enabled).filter(|_| !program.captures));
        if program.may_name_addresses(options.stacksymbols) {
            consumer.expect_user_addresses();
        }
        // Before a probe fires, so that every process that it can fire in is known.
        let follows = engine.firings() == Firings::Asynchronous && program.follows_processes();
        let watch = Watch::begin(&mut consumer, &cpus, (&*engine, follows));
        // What is dear is said before it is done.
        let warnings = program.registry.take_warnings();
        for warning in &warnings {
            consumer.report(&Notice::Unavailable(warning.clone()).event(engine.now()));
        }
        let mut told = Few::default();
        program.registry.take_left_out().into_iter().for_each(|text| told.add(text));
        for text in told.take(more_left_out) {
            consumer.report(&Notice::Missed(text).event(engine.now()));
        }
        if !warnings.is_empty() {
            consumer.flush().map_err(Error::Output)?;
        }
        engine.attach(&mut AttachObserver { progress, interrupted: &*interrupted })?;
        let notices = engine.take_notices().into_iter().chain(reduced_rates(&options));
        notices.for_each(|notice| consumer.report(&notice.event(engine.now())));
        engine.run_begin()?;
        if let Some(control) = engine.control() {
            control.become_state(Activity::Active);
        }
        engine.activate();
        let now = Instant::now();
        let next = Deadlines {
            switch: now + interval(options.switchrate),
            aggregate: now + interval(options.aggrate),
            status: now + interval(options.statusrate),
            clean: now + interval(options.cleanrate),
            snapshot: now,
            given_status: engine.now().saturating_add(nanoseconds(options.statusrate)),
        };
        Ok(Running {
            program: program.clone(),
            strings: enabled.strings,
            next_epid: enabled.next,
            suppressed: BTreeMap::new(),
            engine,
            consumer,
            held: HeldRecords::new(intervals),
            targets,
            options,
            next,
            monitor,
            cpus,
            watch,
            sources: Vec::new(),
            follows_modules: false,
            follows_providers: false,
            processes: None,
            linker: None,
            files: None,
            programs: BTreeSet::new(),
            shapes: Shapes::new(told),
            removed: RemovedIds::default(),
            hold_exits: false,
            ending: Ending::None,
            interrupted,
        })
    }

    pub(super) fn run(&mut self) -> Result<i32, Error> {
        while self.work(None, Duration::MAX)? == Status::Working {}
        self.finish()
    }

    pub(super) fn work(&mut self, user: Option<BorrowedFd<'_>>, limit: Duration) -> Result<Status, Error> {
        if self.engine.activity().0 != Activity::Active {
            return self.ready();
        }
        let wait = self.next_deadline().saturating_duration_since(Instant::now()).min(limit);
        let fds: Vec<RawFd> = self.descriptors().iter().chain(&user).map(AsRawFd::as_raw_fd).collect();
        proc::poll_readable(&fds, wait).map_err(Error::Output)?;
        self.ready()
    }

    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let sources = self.sources.iter().map(|s| s.descriptor());
        let targets = self.targets.iter().map(proc::Target::poll_fd);
        let watch = self.watch.as_ref().and_then(|watch| watch.poll_fd(Instant::now()));
        let snapshot = self.engine.snapshot_descriptor();
        self.engine
            .doorbell()
            .into_iter()
            .chain(snapshot)
            .chain(sources)
            .chain(watch)
            .chain(targets)
            .collect()
    }

    pub(super) fn next_deadline(&self) -> Instant {
        if self.engine.activity().0 != Activity::Active || self.engine.firings() != Firings::Asynchronous {
            return Instant::now();
        }
        let mut first = self.next.switch.min(self.next.aggregate).min(self.next.status);
        if self.engine.speculates() {
            first = first.min(self.next.clean);
        }
        let (begun, merged) = self.engine.snapshots();
        match self.held.intervals.next() {
            // What is pending is taken first.
            _ if begun > merged => first = first.min(self.next.snapshot),
            Some(next) => {
                let wait = Duration::from_nanos(next.saturating_sub(self.engine.now()));
                first = Instant::now().checked_add(wait).map_or(first, |end| first.min(end));
            }
            None => {}
        }
        self.watch.as_ref().map_or(first, |watch| first.min(watch.next()))
    }

    pub(super) fn ready(&mut self) -> Result<Status, Error> {
        let done = self.work_now();
        let flushed = self.flush();
        done.and_then(|status| flushed.map(|()| status))
    }

    fn work_now(&mut self) -> Result<Status, Error> {
        if self.engine.activity().0 != Activity::Active {
            return self.check_killed().map(|()| Status::Done);
        }
        let doorbell: Vec<RawFd> = self.engine.doorbell().iter().map(AsRawFd::as_raw_fd).collect();
        let rung = proc::poll_readable(&doorbell, Duration::ZERO).map_err(Error::Output)?;
        let now = Instant::now();
        let is_given = self.engine.firings() == Firings::Ready;
        let mut is_due = rung.contains(&true) || is_given || now >= self.next.switch;
        if self.engine.speculates() && now >= self.next.clean {
            self.next.clean = now + interval(self.options.cleanrate);
            is_due |= self.engine.has_ended_speculations();
        }
        if is_due {
            self.drain(false)?;
            self.next.switch = now + self.engine.drain_interval(interval(self.options.switchrate));
        }
        self.serve_postmortem()?;
        self.follow_targets()?;
        self.follow_changes()?;
        let is_due = now >= self.next.aggregate;
        if is_due {
            self.next.aggregate = now + interval(self.options.aggrate);
        }
        if is_due || self.engine.wants_snapshot() || self.held.intervals.is_due(&*self.engine) {
            self.held.intervals.begin_snapshot(&mut *self.engine);
        }
        self.consume_held(false)?;
        self.next.snapshot = now + held::LOOK;
        let is_due = match self.engine.firings() {
            Firings::Asynchronous => now >= self.next.status,
            Firings::Ready | Firings::Exhausted => self.engine.now() >= self.next.given_status,
        };
        if is_due {
            self.status(now.saturating_duration_since(self.next.status))?;
            self.next.given_status = self.engine.now().saturating_add(nanoseconds(self.options.statusrate));
            let measuring = self.monitor.as_ref().is_some_and(OverloadMonitor::is_measuring);
            self.next.status = now + if measuring { WINDOW } else { interval(self.options.statusrate) };
        }
        self.release_removed();
        self.follow_processes(now);
        self.read_maps_at_exit();
        let over = self.targets_ended()
            || self.engine.firings() == Firings::Exhausted
            || self.engine.activity().0 != Activity::Active;
        self.check_killed()?;
        Ok(if over { Status::Done } else { Status::Working })
    }

    /// As [`drain`].
    pub(super) fn drain(&mut self, all: bool) -> Result<(), Error> {
        let Running { engine, consumer, options, held, .. } = self;
        drain(&mut **engine, consumer, options, held, all)
    }

    /// As [`consume`].
    pub(super) fn consume_held(&mut self, wait: bool) -> Result<(), Error> {
        let Running { engine, consumer, options, held, .. } = self;
        consume(&mut **engine, consumer, options, held, wait)
    }

    /// Returns an error if the deadman stopped the session.
    fn check_killed(&mut self) -> Result<(), Error> {
        if self.engine.activity().0 != Activity::Killed {
            return Ok(());
        }
        self.report_alarm(None);
        self.consumer.abort();
        Err(Error::Unresponsive)
    }

    /// Reports an alarm of the session's monitor, or else one of a heartbeat.
    fn report_alarm(&mut self, own: Option<Alarm>) {
        let Some(monitor) = &self.monitor else { return };
        let alarm = own.or_else(|| self.engine.take_alarm().map(|reason| monitor.alarm(reason)));
        if let Some(alarm) = alarm {
            self.report(&Notice::Unresponsive(alarm));
        }
    }

    /// Checks what share of the CPUs the session takes, if there are signs of an overload.
    fn check_overload(&mut self, lateness: Duration, suppressed: u64) {
        let Some(monitor) = &mut self.monitor else { return };
        let signs = OverloadSigns { lag: self.engine.take_lag(), lateness, suppressed };
        let own = match monitor.update(signs, self.cpus.len(), || self.engine.time_taken()) {
            Some(Finding::Alarm(alarm)) => Some(alarm),
            Some(Finding::HighShare(percent)) => {
                let suppressed = self.suppressed.values().sum();
                self.report(&Notice::Overload(Overload { percent, suppressed }));
                None
            }
            None => None,
        };
        if own.is_some()
            && !self.options.destructive
            && let Some(control) = self.engine.control()
        {
            control.become_state(Activity::Killed);
        }
        self.report_alarm(own);
    }

    /// Reports the firings that the kernel suppressed since the last call, and returns their
    /// number.
    fn report_suppressed(&mut self) -> u64 {
        let mut all = 0;
        // If the counter of a program cannot be read, nothing is reported.
        let mut now: BTreeMap<String, u64> = BTreeMap::new();
        for (program, count) in self.engine.suppressed().unwrap_or_default() {
            *now.entry(program).or_default() += count;
        }
        for (program, total) in now {
            let reported = self.suppressed.entry(program.clone()).or_default();
            // A counter that was closed must not make later firings count twice.
            let count = total.saturating_sub(*reported);
            *reported += count;
            if count > 0 {
                self.report(&Notice::Suppressed { program, cpu: None, count });
            }
            all += count;
        }
        all
    }

    /// Reports the firings of clocks that were due since the last call and were not served.
    fn report_missing(&mut self, online: &[u32], last: bool) {
        for (program, cpu, count) in self.engine.missing_firings(online, last) {
            self.report(&Notice::Suppressed { program, cpu: Some(cpu), count });
        }
    }

    fn report_drops(&mut self) {
        let drops = self.engine.drops();
        self.consumer.dropped(drops, Some(self.engine.now()));
    }

    fn status(&mut self, lateness: Duration) -> Result<(), Error> {
        self.report_drops();
        let suppressed = self.report_suppressed();
        self.check_overload(lateness, suppressed);
        self.check_watcher();
        if self.engine.has_clocks() {
            let online = self.program.system.online_cpus();
            if online != self.cpus {
                self.engine.follow_cpus(&online)?;
                self.cpus.clone_from(&online);
            }
            self.report_missing(&online, false);
        }
        Ok(())
    }

    /// The consumer and its source.
    fn consumer_and_source(&mut self) -> (&mut Consumer<Recorded<S>>, EngineSource<'_>) {
        let target = self.consumer.options().target;
        let (engine, options, intervals) = (&mut *self.engine, &mut self.options, &mut self.held.intervals);
        (&mut self.consumer, EngineSource { engine, options, target, intervals })
    }

    pub(super) fn sink(&self) -> &S {
        &self.consumer.sink().sink
    }

    pub(super) fn sink_mut(&mut self) -> &mut S {
        &mut self.consumer.sink_mut().sink
    }

    pub(super) fn into_sink(self) -> S {
        self.consumer.into_sink().sink
    }

    /// The sink, in a forked child, where all that stands for threads and other processes stays.
    pub(super) fn leave(self) -> S {
        let Running { program, engine, held, targets, watch, sources, processes, linker, files, .. } = self;
        std::mem::forget((program, engine, held, targets, watch, sources, processes, linker, files));
        self.consumer.into_sink().sink
    }

    fn report(&mut self, notice: &Notice) {
        self.consumer.report(&notice.event(self.engine.now()));
    }

    /// The sink writes everything, messages too.
    fn flush(&mut self) -> Result<(), Error> {
        self.consumer.flush().map_err(Error::Output)
    }

    pub(super) fn suppressed(&self) -> Result<Vec<(String, u64)>, Error> {
        self.engine.suppressed()
    }

    pub(super) fn deliver_aggregations(&mut self) -> Result<(), Error> {
        if self.ending != Ending::None {
            return Err(over("deliver aggregations"));
        }
        self.drain(false)?;
        self.consume_held(true)?;
        let (consumer, mut source) = self.consumer_and_source();
        let delivered = consumer.deliver_aggregations(&mut source).map_err(Error::Output);
        let flushed = self.flush();
        delivered.and(flushed)
    }

    pub(super) fn merged(&self) -> consumer::Merged {
        self.consumer.merged()
    }

    pub(super) fn interrupt(&mut self) -> Result<(), Error> {
        let done = self.consumer.interrupt().map_err(Error::Output);
        let flushed = self.flush();
        done.and(flushed)
    }

    pub(super) fn stopper(&self) -> Result<Stopper, Error> {
        self.engine.stopper()
    }

    pub(super) fn set_option(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        set_dynamic(&mut self.options, name, value)?;
        let target = self.consumer.options().target;
        self.consumer.set_options(consumer_options(&self.options, target));
        Ok(())
    }
}
