//! A running session: from a compiled program to its end.
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

mod notice;
pub(crate) mod settings;
mod targets;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bpf::features::Features;
use consumer::{Consumer, KernelSymbols, Layout, Output, Probe, ProbeRow, SlotSink};
use consumer::{Symbolizer, SystemSymbols, Text};
use diagnostics::{SourceMap, control};
use plane::control::Activity;
use plane::read::Batch;
use plane::stacks::Stack;
use providers::Unit;
use symbols::Interrupted;

use crate::assemble::{Assembly, assemble};
use crate::attach::{AttachObserver, Progress};
use crate::compile::{Macros, Program, Source};
use crate::deadman::{Alarm, Finding, Overload, OverloadMonitor, OverloadSigns, WINDOW};
use crate::error::Error;
use crate::load::{SystemContext, env, load};
use crate::machine::Machine;
use crate::modules::{ModuleWatcher, NewModules};
use crate::options::{OptionError, Options};
use crate::stop::Stopper;
use notice::{lowered, perf_events};

pub use notice::Notice;

/// The state of a session after [`Session::work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Call [`Session::work`] again.
    Working,
    /// Tracing is over (exit(), or the last target has ended): call [`Session::finish`].
    Done,
}

/// A running session.
pub struct Session<W: Output> {
    /// All enabled programs.
    program: Program,
    /// Interned strings. A number never changes its string.
    strings: Vec<Arc<[u8]>>,
    /// The next free enabled-probe id.
    next_epid: u32,
    /// Suppressed firings that were reported, by program.
    suppressed: BTreeMap<String, u64>,
    machine: Machine,
    consumer: Consumer<W>,
    targets: Vec<proc::Target>,
    options: Options,
    notices: Vec<Notice>,
    next: Deadlines,
    monitor: Option<OverloadMonitor>,
    cpus: Vec<u32>,
    /// Watches for loaded modules, if a description can match their probes.
    modules: Option<ModuleWatcher>,
    /// Targets are held at their exit until their address maps are read.
    hold_exits: bool,
    interrupted: Interrupted,
}

struct Deadlines {
    switch: Instant,
    aggregate: Instant,
    status: Instant,
    /// When the address maps of targets that are not held at their exit are read again, and the
    /// interval after that.
    maps: (Instant, Duration),
}

/// The kernel's data for the consumer.
struct KernelSource<'a> {
    machine: &'a Machine,
    options: &'a mut Options,
    target: Option<u32>,
    /// A snapshot that waited for its grace period is recent enough.
    pending_is_enough: bool,
}

impl consumer::Source for KernelSource<'_> {
    fn snapshot(&mut self, sink: &mut SlotSink<'_>) -> io::Result<()> {
        self.machine.snapshot(self.pending_is_enough, sink)
    }

    fn stack(&mut self, id: u64) -> Option<Stack> {
        self.machine.stack(id)
    }

    fn set_option(&mut self, name: &str, value: Option<&str>) -> Result<consumer::Options, String> {
        set_dynamic(self.options, name, value).map_err(|e| e.to_string())?;
        Ok(consumer_options(self.options, self.target))
    }
}

/// Sets an option that can change while tracing.
fn set_dynamic(options: &mut Options, name: &str, value: Option<&str>) -> Result<(), OptionError> {
    let row = crate::options::find(name).ok_or(OptionError::Name)?;
    if row.when != crate::options::When::Dynamic {
        return Err(OptionError::Active);
    }
    options.set(name, value).map(|_| ())
}

fn consumer_options(options: &Options, target: Option<u32>) -> consumer::Options {
    let n = |name: &str| options.number(name) as usize;
    consumer::Options {
        quiet: options.flag("quiet"),
        flowindent: options.flag("flowindent"),
        rawbytes: options.flag("rawbytes"),
        stackindent: n("stackindent").min(256),
        aggsortkey: options.flag("aggsortkey"),
        aggsortrev: options.flag("aggsortrev"),
        aggsortkeypos: n("aggsortkeypos"),
        aggsortpos: n("aggsortpos"),
        aggzoom: options.flag("aggzoom"),
        agghist: options.flag("agghist"),
        aggpercpu: options.flag("aggpercpu"),
        aggpack: options.flag("aggpack"),
        encoding: match options.text("encoding").as_str() {
            "utf8" => consumer::Encoding::Utf8,
            _ => consumer::Encoding::Ascii,
        },
        droptags: options.flag("droptags"),
        target,
    }
}

impl<W: Output> Session<W> {
    /// Enables all probes, runs BEGIN, and releases the targets.
    pub fn start(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        out: W,
    ) -> Result<Session<W>, Error> {
        Session::start_with_progress(program, options, targets, out, &mut |_| true)
    }

    /// As [`Session::start`]; `progress` is called before the first program is attached, and after
    /// each function if functions are attached one by one. The enabling stops when it returns
    /// `false`.
    pub fn start_with_progress(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        out: W,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Session<W>, Error> {
        Session::start_interruptible(program, options, targets, out, progress, || false)
    }

    /// As [`Session::start_with_progress`]; `interrupted` is called during long operations until
    /// the end of the session. When it returns true, an enabling stops, and the session no longer
    /// waits for symbols of processes: it prints their addresses as numbers.
    pub fn start_interruptible(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        out: W,
        progress: &mut dyn FnMut(Progress) -> bool,
        interrupted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Session<W>, Error> {
        let cpus = bpf::sys::online_cpus();
        settings::check(&options, program, &cpus)?;
        let features = Features::running();
        let env = env(&options, features, &cpus);
        let assembly = assemble(program, &env, 1).map_err(Error::plan)?;
        let symbols = RefCell::default();
        let system = SystemContext { kernel: &program.kernel, features, cpus: &cpus, symbols: &symbols };
        let interrupted: Interrupted = Arc::new(interrupted);
        let stop = || if interrupted() { Err(Error::Interrupted) } else { Ok(()) };
        let mut machine = Machine::load(program, &assembly, &options, &system, &mut || stop())?;
        let mut notices = lowered(machine.lowered());
        notices.extend(perf_events(&assembly));
        let target = targets.first().map(|t| t.pid() as u32);
        let settings = consumer_options(&options, target);
        let mut symbols = SystemSymbols { kernel: symbols.into_inner(), ..SystemSymbols::default() };
        symbols.processes.set_limits(targets::symtimeout(&options), options.number("symmem"));
        symbols.processes.set_interrupted(Some(interrupted.clone()));
        let symbols: Box<dyn Symbolizer> = match options.flag("noresolve") {
            true => Box::new(KernelSymbols(symbols)),
            false => Box::new(symbols),
        };
        let mut consumer = Consumer::new(out, Box::new(Text::default()), symbols, settings);
        register(&mut consumer, program, &assembly, Registered::default())?;
        machine.attach(&mut AttachObserver { progress, interrupted: &*interrupted })?;
        notices.extend(machine.take_details().into_iter().map(Notice::Detail));
        machine.run_begin()?;
        if let Some(control) = machine.control() {
            control.become_state(Activity::Active);
        }
        machine.activate_clocks();
        let now = Instant::now();
        let next =
            Deadlines { switch: now, aggregate: now, status: now, maps: (now, targets::FIRST_MAP_INTERVAL) };
        let program = program.clone();
        let monitor = OverloadMonitor::new(&options);
        let (strings, next_epid) = (assembly.strings, assembly.next);
        let mut session = Session {
            program,
            strings,
            next_epid,
            suppressed: BTreeMap::new(),
            machine,
            consumer,
            targets,
            options,
            notices,
            next,
            monitor,
            cpus,
            modules: None,
            hold_exits: false,
            interrupted,
        };
        session.watch_modules();
        session.next = Deadlines {
            switch: now + session.interval("switchrate"),
            aggregate: now + session.interval("aggrate"),
            status: now + session.interval("statusrate"),
            ..session.next
        };
        // The output of BEGIN is printed before a target runs.
        session.drain(false)?;
        session.release_targets();
        Ok(session)
    }

    /// Enables more programs while the session runs. They can use the variables and aggregations of
    /// the session and add new ones. Their BEGIN fires now, and their probes fire as soon as they
    /// are attached. The running programs are not changed. A clause of ERROR sees the faults of
    /// programs that are enabled with it or after it. If a probe fires clauses that were enabled at
    /// different times, the kernel determines their order. Returns the number of probes that each
    /// source matched.
    ///
    /// After an error the session continues unchanged. (If attaching fails halfway, the output has
    /// the records until then.) The options are those of the session. A script's pragmas can set
    /// the options that [`Session::set_option`] can set.
    pub fn enable(
        &mut self,
        sources: &[Source],
        macros: &Macros,
    ) -> Result<Vec<usize>, (Rc<SourceMap>, Error)> {
        let mut options = self.options.clone();
        let strings = self.strings.iter().map(|s| s.to_vec()).collect();
        let more = self.program.extend(sources, macros, &mut options, strings);
        let more = more.map_err(|(map, e)| (Rc::new(map), e))?;
        let map = more.map.clone();
        let first = self.program.titles.len();
        self.enable_program(more, options).map_err(|e| (map, e))?;
        Ok((first..self.program.titles.len()).map(|n| self.program.matched(n)).collect())
    }

    fn enable_program(&mut self, more: Program, options: Options) -> Result<(), Error> {
        if self.machine.activity().0 != Activity::Active {
            return Err(Error::Setting("could not enable tracing: the session is over".into()));
        }
        let cpus = bpf::sys::online_cpus();
        settings::check(&options, &more, &cpus)?;
        let features = Features::running();
        let env = env(&options, features, &cpus);
        let assembly = assemble(&more, &env, self.next_epid).map_err(Error::plan)?;
        let symbols = RefCell::default();
        let system = SystemContext { kernel: &more.kernel, features, cpus: &cpus, symbols: &symbols };
        // Loading takes time, in which the running programs fill their buffers.
        let running = self.machine.running();
        self.drain(false)?;
        let interrupted = self.interrupted.clone();
        let mut between = || match interrupted() {
            true => Err(Error::Interrupted),
            false => self.drain(false),
        };
        let loaded = load(Some(&running), &more, &assembly, &options, &system, &mut between)?;
        self.notices.extend(lowered(loaded.lowered()));
        self.notices.extend(perf_events(&assembly));
        let registered = Registered { aggs: self.program.module.aggs.len(), strings: self.strings.len() };
        register(&mut self.consumer, &more, &assembly, registered)?;
        // These stay registered even if attaching fails, because a number must not be used twice.
        (self.program, self.strings, self.next_epid) = (more, assembly.strings, assembly.next);
        self.options = options;
        let target = self.consumer.options_mut().target;
        *self.consumer.options_mut() = consumer_options(&self.options, target);
        self.watch_modules();
        let adopted = self.machine.adopt(loaded, &*self.interrupted);
        self.notices.extend(self.machine.take_details().into_iter().map(Notice::Detail));
        adopted
    }

    /// Starts to watch for loaded modules, if a description can match their probes.
    fn watch_modules(&mut self) {
        if self.modules.is_none() {
            match ModuleWatcher::new(&self.program) {
                Ok(modules) => self.modules = modules,
                Err(why) => self.notices.push(Notice::Unavailable(why)),
            }
        }
    }

    /// Enables the probes of loaded modules that descriptions of the session match. An error is
    /// reported, and the session continues.
    fn enable_new_modules(&mut self) -> Result<(), Error> {
        if self.machine.activity().0 != Activity::Active {
            return Ok(());
        }
        let Some(new) = self.modules.as_mut().and_then(|m| m.take_new(&self.program)) else { return Ok(()) };
        let options = self.options.clone();
        let strings = self.strings.iter().map(|s| s.to_vec()).collect();
        let more = match self.program.extend_for_modules(new.probes.clone(), &options, strings) {
            Ok(Some(more)) => more,
            Ok(None) => return Ok(()),
            Err((map, error)) => {
                self.report_not_enabled(&new, &error, &map);
                return Ok(());
            }
        };
        let map = more.map.clone();
        let first = self.program.titles.len();
        let matched: usize = (first..more.titles.len()).map(|n| more.matched(n)).sum();
        match self.enable_program(more, options) {
            Ok(()) => self.notices.push(Notice::Detail(new.enabled_message(matched))),
            Err(error @ Error::Output(_)) => return Err(error),
            // The session is about to end.
            Err(Error::Interrupted) => {}
            // The session ended meanwhile.
            Err(_) if self.machine.activity().0 != Activity::Active => {}
            Err(error) => self.report_not_enabled(&new, &error, &map),
        }
        Ok(())
    }

    fn report_not_enabled(&mut self, new: &NewModules, error: &Error, map: &SourceMap) {
        let why = error.messages(map, self.options.flag("errtags")).join("\n");
        self.notices.push(Notice::Unavailable(new.failed_message(&why)));
    }

    /// The interval of an option. The least is a millisecond, because a lower one would keep a CPU
    /// busy.
    fn interval(&self, option: &str) -> Duration {
        Duration::from_nanos(self.options.number(option)).max(Duration::from_millis(1))
    }

    /// Waits for at most `limit` until there is work, and does it. The call returns early when
    /// `user` is readable, which means that the user has requested something.
    pub fn work(&mut self, user: Option<BorrowedFd<'_>>, limit: Duration) -> Result<Status, Error> {
        if self.machine.activity().0 != Activity::Active {
            return self.check_killed().map(|()| Status::Done);
        }
        let mut first = self.next.switch.min(self.next.aggregate).min(self.next.status);
        if !self.targets.is_empty() && !self.hold_exits {
            first = first.min(self.next.maps.0);
        }
        let wait = first.saturating_duration_since(Instant::now()).min(limit);
        let mut fds: Vec<RawFd> = self.machine.doorbell().map(|d| d.as_raw_fd()).into_iter().collect();
        let doorbells = fds.len();
        fds.extend(user.map(|u| u.as_raw_fd()));
        fds.extend(self.modules.as_ref().map(ModuleWatcher::poll_fd));
        fds.extend(self.targets.iter().map(|t| t.poll_fd().as_raw_fd()));
        let ready = proc::poll_readable(&fds, wait).map_err(Error::Output)?;
        let now = Instant::now();
        if ready.first().copied().unwrap_or(false) && doorbells == 1 || now >= self.next.switch {
            self.drain(false)?;
            self.next.switch = now + self.machine.drain_interval(self.interval("switchrate"));
        }
        self.enable_new_modules()?;
        if now >= self.next.aggregate {
            let ready = self.machine.ready_for_snapshot();
            if ready {
                let (consumer, mut kernel) = self.consumer_and_source();
                kernel.pending_is_enough = true;
                consumer.snapshot(&mut kernel).map_err(Error::Output)?;
            }
            let next = self.interval("aggrate");
            self.next.aggregate = now + if ready { next } else { next.min(WINDOW) };
        }
        if now >= self.next.status {
            self.status(now - self.next.status)?;
            let measuring = self.monitor.as_ref().is_some_and(OverloadMonitor::is_measuring);
            self.next.status = now + if measuring { WINDOW } else { self.interval("statusrate") };
        }
        self.read_maps_at_exit();
        if now >= self.next.maps.0 && !self.hold_exits {
            self.read_maps(now);
        }
        let over = self.targets_ended() || self.machine.activity().0 != Activity::Active;
        self.check_killed()?;
        Ok(if over { Status::Done } else { Status::Working })
    }

    /// Returns an error if the deadman stopped the session.
    fn check_killed(&mut self) -> Result<(), Error> {
        if self.machine.activity().0 != Activity::Killed {
            return Ok(());
        }
        self.report_alarm(None);
        Err(Error::Unresponsive)
    }

    /// Reports an alarm of the session's monitor, or else one of a heartbeat.
    fn report_alarm(&mut self, own: Option<Alarm>) {
        let Some(monitor) = &self.monitor else { return };
        let alarm = own.or_else(|| self.machine.take_alarm().map(|reason| monitor.alarm(reason)));
        self.notices.extend(alarm.map(Notice::Unresponsive));
    }

    /// Checks what share of the CPUs the session takes, if there are signs of an overload.
    fn check_overload(&mut self, lateness: Duration, suppressed: u64) {
        let Some(monitor) = &mut self.monitor else { return };
        let signs = OverloadSigns { lag: self.machine.take_lag(), lateness, suppressed };
        let own = match monitor.update(signs, self.cpus.len(), || self.machine.time_taken()) {
            Some(Finding::Alarm(alarm)) => Some(alarm),
            Some(Finding::HighShare(percent)) => {
                let suppressed = self.suppressed.values().sum();
                self.notices.push(Notice::Overload(Overload { percent, suppressed }));
                None
            }
            None => None,
        };
        if own.is_some()
            && !self.options.flag("destructive")
            && let Some(control) = self.machine.control()
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
        for (program, count) in self.machine.suppressed().unwrap_or_default() {
            *now.entry(program).or_default() += count;
        }
        for (program, total) in now {
            let reported = self.suppressed.entry(program.clone()).or_default();
            let count = total.saturating_sub(std::mem::replace(reported, total));
            if count > 0 {
                self.notices.push(Notice::Suppressed { program, cpu: None, count });
            }
            all += count;
        }
        all
    }

    /// Reports the firings of clocks that were due since the last call and were not served.
    fn report_missing(&mut self, online: &[u32], last: bool) {
        let missing = self.machine.missing_firings(online, last).into_iter();
        let notice = |(program, cpu, count)| Notice::Suppressed { program, cpu: Some(cpu), count };
        self.notices.extend(missing.map(notice));
    }

    fn status(&mut self, lateness: Duration) -> Result<(), Error> {
        let drops = self.machine.drops();
        self.consumer.dropped(drops);
        let suppressed = self.report_suppressed();
        self.check_overload(lateness, suppressed);
        if self.machine.has_clocks() {
            let online = bpf::sys::online_cpus();
            if online != self.cpus {
                self.machine.follow_cpus(&online)?;
                self.cpus.clone_from(&online);
            }
            self.report_missing(&online, false);
        }
        Ok(())
    }

    fn drain(&mut self, all: bool) -> Result<(), Error> {
        self.machine.clear_doorbell();
        let hold = (!all).then(|| Duration::from_nanos(self.options.number("ordertimeout")));
        let batch = self.machine.drain(hold);
        self.consume(&batch)
    }

    /// The consumer and its source.
    fn consumer_and_source(&mut self) -> (&mut Consumer<W>, KernelSource<'_>) {
        let target = self.consumer.options_mut().target;
        (
            &mut self.consumer,
            KernelSource {
                machine: &self.machine,
                options: &mut self.options,
                target,
                pending_is_enough: false,
            },
        )
    }

    fn consume(&mut self, batch: &Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (consumer, mut kernel) = self.consumer_and_source();
        consumer.consume_batch(batch, &mut kernel).map_err(Error::consuming)
    }

    /// The notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let mut all = std::mem::take(&mut self.notices);
        all.extend(self.consumer.take_messages().into_iter().map(Notice::Message));
        all
    }

    /// Firings that the kernel suppressed since the start, by program, because a program was
    /// already running on the CPU. This is an upper bound of the missed firings, because predicates
    /// were not evaluated. It is available until the session is finished.
    pub fn suppressed(&self) -> Result<Vec<(String, u64)>, Error> {
        Ok(self.machine.suppressed()?)
    }

    /// Writes a newline to the output, as after an interrupt.
    pub fn newline(&mut self) -> Result<(), Error> {
        self.consumer.newline().map_err(Error::Output)
    }

    /// A handle that stops the session, for example from a signal handler.
    pub fn stopper(&self) -> Result<Stopper, Error> {
        self.machine.map_control().map(Stopper::new)
    }

    /// Changes an option while tracing.
    pub fn set_option(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        set_dynamic(&mut self.options, name, value)?;
        let target = self.consumer.options_mut().target;
        *self.consumer.options_mut() = consumer_options(&self.options, target);
        Ok(())
    }

    /// Stops tracing, runs END, prints the remaining records, and returns the exit status. Call
    /// [`Session::take_notices`] afterwards, and drop the session to free its resources.
    pub fn finish(&mut self) -> Result<i32, Error> {
        if self.machine.has_counted_clocks() {
            self.report_missing(&bpf::sys::online_cpus(), true);
        }
        if let Some(control) = self.machine.control() {
            control.become_state(Activity::Draining);
        }
        self.check_killed()?;
        self.report_alarm(None);
        if let Some(monitor) = &mut self.monitor {
            monitor.stop_measuring();
        }
        self.read_maps_at_exit();
        self.machine.quiesce()?;
        self.report_suppressed();
        self.drain(true)?;
        self.machine.run_end()?;
        self.drain(true)?;
        let (consumer, mut kernel) = self.consumer_and_source();
        consumer.finish(&mut kernel).map_err(Error::Output)?;
        // The first exit() stops tracing. The last one that was processed, also in END, sets the
        // status. If a later fault discarded its record, the control page has the status of the
        // first one.
        let status = self.consumer.exit_status().unwrap_or_else(|| self.machine.activity().1);
        self.stop();
        let drops = self.machine.drops();
        self.consumer.dropped(drops);
        Ok(status)
    }

    /// Stops without END and without output, as at the second interrupt.
    pub fn abort(&mut self) {
        if let Some(control) = self.machine.control() {
            control.become_state(Activity::Draining);
        }
        self.stop();
    }

    fn stop(&mut self) {
        if let Some(control) = self.machine.control() {
            control.become_state(Activity::Stopped);
        }
        // This follows the output: while the kernel detaches from thousands of functions, each call
        // of one is a breakpoint.
        match self.machine.detach() {
            0 => {}
            1 => self.notices.push(Notice::Detail("closing a link in the background".into())),
            n => self.notices.push(Notice::Detail(format!("closing {n} links in the background"))),
        }
    }
}

/// The number of objects that are registered with a consumer.
#[derive(Default)]
struct Registered {
    aggs: usize,
    strings: usize,
}

/// Registers the new aggregations, strings and enabled probes of an assembly with the consumer.
fn register<W: Output>(
    consumer: &mut Consumer<W>,
    program: &Program,
    assembly: &Assembly,
    registered: Registered,
) -> Result<(), Error> {
    for desc in program.module.aggs.iter().skip(registered.aggs) {
        consumer.add_aggregation(desc.clone());
    }
    for (at, text) in assembly.strings.iter().enumerate().skip(registered.strings) {
        // The program's own strings are printed unchanged. The strings after them are names of
        // probes.
        let shown = match control::name(text) {
            Cow::Owned(escaped) if at >= program.module.strings.len() => escaped.into_bytes().into(),
            _ => text.clone(),
        };
        consumer.intern(at as u32, shown);
    }
    let mut layouts = Vec::new();
    for clause in &program.module.clauses {
        let layout = clause.record.as_ref().map(Layout::new).transpose();
        layouts.push(layout.map_err(|e| Error::Internal(format!("{e:?}")))?.map(Arc::new));
    }
    let mut rows: BTreeMap<usize, ProbeRow> = BTreeMap::new();
    for e in &assembly.enabled {
        let row = rows.entry(e.unit).or_insert_with(|| row(&assembly.units[e.unit].unit));
        consumer.enable_all(e.first, row.clone(), layouts[e.clause].clone());
    }
    Ok(())
}

/// The probes of a unit by their index.
fn row(unit: &Unit) -> ProbeRow {
    let mut row = vec![None; unit.space as usize];
    for (index, probe) in &unit.probes {
        let (d, id) = (&probe.desc, probe.id.0);
        let (provider, module) = (d.provider.clone(), d.module.clone());
        let (function, name) = (d.function.clone(), d.name.clone());
        if let Some(place) = row.get_mut(*index as usize) {
            *place = Some(Arc::new(Probe { id, provider, module, function, name }));
        }
    }
    row.into()
}
