//! A running session: from a compiled program to its end.
//!
//! ```text
//!  start    maps, programs, links; BEGIN (WARMUP); ACTIVE
//!  work     wait for the doorbell, a clock, a target or the user; drain, snapshot, look for drops
//!  enable   more programs: new maps where there is something new; their BEGIN; links
//!  finish   DRAINING, grace, drain, END, drain, snapshot, print; STOPPED; detach
//! ```
//!
//! The order at the end is the promise that nothing is lost or doubled: after DRAINING and a grace period no probe's
//! program runs any more, so the drain that follows is complete, and END sees everything before it.

mod notice;
pub(crate) mod refusal;
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
use crate::attach::{Follow, Progress};
use crate::compile::{Macros, Program, Source};
use crate::deadman::{Alarm, Finding, Overload, Signs, WINDOW, Watch};
use crate::error::Error;
use crate::load::{Surroundings, env, load};
use crate::machine::Machine;
use crate::modules::{Modules, NewModules};
use crate::options::{OptionError, Options};
use crate::stop::Stopper;
use notice::{events, lowered};

pub use notice::Notice;

/// What the session wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Call [`Session::work`] again.
    Working,
    /// Tracing is over (exit(), or the last target is gone): call [`Session::finish`].
    Done,
}

/// A running session.
pub struct Session<W: Output> {
    /// All that is enabled.
    program: Program,
    /// Interned strings: a number stays what it is.
    strings: Vec<Arc<[u8]>>,
    /// The next enabled probe's id.
    next_epid: u32,
    /// What was told of suppressed firings.
    suppressed: BTreeMap<String, u64>,
    machine: Machine,
    consumer: Consumer<W>,
    targets: Vec<proc::Target>,
    options: Options,
    notices: Vec<Notice>,
    next: Deadlines,
    watch: Option<Watch>,
    cpus: Vec<u32>,
    /// Looks out for modules, where a description waits for them.
    modules: Option<Modules>,
    /// Targets are held at their exit until their address maps are read.
    holds: bool,
    interrupted: Interrupted,
}

struct Deadlines {
    switch: Instant,
    aggregate: Instant,
    status: Instant,
    /// When the address maps of targets that are not held at their exit are read again, and how long until the time after.
    note: (Instant, Duration),
}

/// Reads for the consumer.
struct Kernel<'a> {
    machine: &'a Machine,
    options: &'a mut Options,
    target: Option<u32>,
    /// A snapshot need not be of this moment.
    late: bool,
}

impl consumer::Source for Kernel<'_> {
    fn snapshot(&mut self, sink: &mut SlotSink<'_>) -> io::Result<()> {
        self.machine.snapshot(self.late, sink)
    }

    fn stack(&mut self, id: u64) -> Option<Stack> {
        self.machine.stack(id)
    }

    fn set_option(&mut self, name: &str, value: Option<&str>) -> Result<consumer::Options, String> {
        set_dynamic(self.options, name, value).map_err(|e| e.to_string())?;
        Ok(consumer_options(self.options, self.target))
    }
}

/// Sets an option that may change while tracing.
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
    /// Enables everything, runs BEGIN, and lets the targets go.
    pub fn start(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        out: W,
    ) -> Result<Session<W>, Error> {
        Session::start_telling(program, options, targets, out, &mut |_| true)
    }

    /// As [`Session::start`]; `tell` is told how far it is, before the first program is attached and where it takes long after each
    /// function, and stops it by `false`.
    pub fn start_telling(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        out: W,
        tell: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Session<W>, Error> {
        Session::start_interruptible(program, options, targets, out, tell, || false)
    }

    /// As [`Session::start_telling`]; `interrupted` is asked, from now to the end of the session, while something takes long: true
    /// stops an enabling, and makes a session not wait for what it can do without. (That is names of addresses of processes: an
    /// address is a number then.)
    pub fn start_interruptible(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        out: W,
        tell: &mut dyn FnMut(Progress) -> bool,
        interrupted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Session<W>, Error> {
        let cpus = bpf::sys::online_cpus();
        refusal::refuse(&options, program, &cpus)?;
        let features = Features::running();
        let env = env(&options, features, &cpus);
        let assembly = assemble(program, &env, 1).map_err(Error::plan)?;
        let symbols = RefCell::default();
        let around = Surroundings { kernel: &program.kernel, features, cpus: &cpus, symbols: &symbols };
        let interrupted: Interrupted = Arc::new(interrupted);
        let stop = || if interrupted() { Err(Error::Interrupted) } else { Ok(()) };
        let mut machine = Machine::load(program, &assembly, &options, &around, &mut || stop())?;
        let mut notices = lowered(machine.lowered());
        notices.extend(events(&assembly));
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
        introduce(&mut consumer, program, &assembly, Known::default())?;
        machine.attach(&mut Follow { tell, interrupted: &*interrupted })?;
        notices.extend(machine.take_details().into_iter().map(Notice::Detail));
        machine.run_begin()?;
        if let Some(control) = machine.control() {
            control.become_state(Activity::Active);
        }
        machine.activate_clocks();
        let now = Instant::now();
        let next = Deadlines { switch: now, aggregate: now, status: now, note: (now, targets::NOTE_FIRST) };
        let program = program.clone();
        let watch = Watch::new(&options);
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
            watch,
            cpus,
            modules: None,
            holds: false,
            interrupted,
        };
        session.await_modules();
        session.next = Deadlines {
            switch: now + session.every("switchrate"),
            aggregate: now + session.every("aggrate"),
            status: now + session.every("statusrate"),
            ..session.next
        };
        // BEGIN's output is shown before any target runs.
        session.drain(false)?;
        session.release_targets();
        Ok(session)
    }

    /// Enables more while the session runs: programs that may use and add to its variables and aggregations. Their BEGIN
    /// fires now; their probes fire as soon as they are attached; what runs already goes on undisturbed. A clause of ERROR
    /// sees the faults of what is enabled with it or after it. Where a probe fires clauses that were enabled at different times,
    /// their order is the kernel's. Gives the number of probes that each source matched.
    ///
    /// What is wrong, refused, or more than the kernel can give changes nothing: the session goes on as it was. (When
    /// attaching fails halfway, what has fired till then is in the output.) Options are those of the session; a script's
    /// pragmas may set those that [`Session::set_option`] may.
    pub fn enable(
        &mut self,
        sources: &[Source],
        macros: &Macros,
    ) -> Result<Vec<usize>, (Rc<SourceMap>, Error)> {
        let mut options = self.options.clone();
        let strings = self.strings.iter().map(|s| s.to_vec()).collect();
        let more = self.program.and(sources, macros, &mut options, strings);
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
        refusal::refuse(&options, &more, &cpus)?;
        let features = Features::running();
        let env = env(&options, features, &cpus);
        let assembly = assemble(&more, &env, self.next_epid).map_err(Error::plan)?;
        let symbols = RefCell::default();
        let around = Surroundings { kernel: &more.kernel, features, cpus: &cpus, symbols: &symbols };
        // Making all this takes its time, in which what runs goes on recording.
        let running = self.machine.running();
        self.drain(false)?;
        let interrupted = self.interrupted.clone();
        let mut between = || match interrupted() {
            true => Err(Error::Interrupted),
            false => self.drain(false),
        };
        let loaded = load(Some(&running), &more, &assembly, &options, &around, &mut between)?;
        self.notices.extend(lowered(loaded.lowered()));
        self.notices.extend(events(&assembly));
        let known = Known { aggs: self.program.module.aggs.len(), strings: self.strings.len() };
        introduce(&mut self.consumer, &more, &assembly, known)?;
        // What is introduced stays so, even when attaching fails: numbers are never given twice.
        (self.program, self.strings, self.next_epid) = (more, assembly.strings, assembly.next);
        self.options = options;
        let target = self.consumer.options_mut().target;
        *self.consumer.options_mut() = consumer_options(&self.options, target);
        self.await_modules();
        let adopted = self.machine.adopt(loaded, &*self.interrupted);
        self.notices.extend(self.machine.take_details().into_iter().map(Notice::Detail));
        adopted
    }

    /// Looks out for modules from now on, if a description waits for their probes.
    fn await_modules(&mut self) {
        if self.modules.is_none() {
            match Modules::of(&self.program) {
                Ok(modules) => self.modules = modules,
                Err(why) => self.notices.push(Notice::Without(why)),
            }
        }
    }

    /// Enables the probes of modules that were loaded, for the clauses that wait for them. An error is reported, and the session goes on.
    fn enable_new_modules(&mut self) -> Result<(), Error> {
        if self.machine.activity().0 != Activity::Active {
            return Ok(());
        }
        let Some(new) = self.modules.as_mut().and_then(|m| m.look(&self.program)) else { return Ok(()) };
        let options = self.options.clone();
        let strings = self.strings.iter().map(|s| s.to_vec()).collect();
        let more = match self.program.with_later(new.probes.clone(), &options, strings) {
            Ok(Some(more)) => more,
            Ok(None) => return Ok(()),
            Err((map, error)) => {
                self.without(&new, &error, &map);
                return Ok(());
            }
        };
        let map = more.map.clone();
        let first = self.program.titles.len();
        let matched: usize = (first..more.titles.len()).map(|n| more.matched(n)).sum();
        match self.enable_program(more, options) {
            Ok(()) => self.notices.push(Notice::Detail(new.tell(matched))),
            Err(error @ Error::Output(_)) => return Err(error),
            // The session is about to end.
            Err(Error::Interrupted) => {}
            // It ended meanwhile.
            Err(_) if self.machine.activity().0 != Activity::Active => {}
            Err(error) => self.without(&new, &error, &map),
        }
        Ok(())
    }

    fn without(&mut self, new: &NewModules, error: &Error, map: &SourceMap) {
        let why = error.messages(map, self.options.flag("errtags")).join("\n");
        self.notices.push(Notice::Without(new.failed(&why)));
    }

    fn every(&self, option: &str) -> Duration {
        // A rate of nothing would keep a CPU busy; a millisecond is as good as at once.
        Duration::from_nanos(self.options.number(option)).max(Duration::from_millis(1))
    }

    /// Waits for something to do, at most `limit`, and does it. `user` becomes readable when the user wants something;
    /// the call then returns early.
    pub fn work(&mut self, user: Option<BorrowedFd<'_>>, limit: Duration) -> Result<Status, Error> {
        if self.machine.activity().0 != Activity::Active {
            return self.alive().map(|()| Status::Done);
        }
        let mut first = self.next.switch.min(self.next.aggregate).min(self.next.status);
        if !self.targets.is_empty() && !self.holds {
            first = first.min(self.next.note.0);
        }
        let wait = first.saturating_duration_since(Instant::now()).min(limit);
        let mut fds: Vec<RawFd> = self.machine.doorbell().map(|d| d.as_raw_fd()).into_iter().collect();
        let rung = fds.len();
        fds.extend(user.map(|u| u.as_raw_fd()));
        fds.extend(self.modules.as_ref().map(Modules::poll_fd));
        fds.extend(self.targets.iter().map(|t| t.poll_fd().as_raw_fd()));
        let ready = proc::poll_readable(&fds, wait).map_err(Error::Output)?;
        let now = Instant::now();
        if ready.first().copied().unwrap_or(false) && rung == 1 || now >= self.next.switch {
            self.drain(false)?;
            self.next.switch = now + self.machine.drain_interval(self.every("switchrate"));
        }
        self.enable_new_modules()?;
        if now >= self.next.aggregate {
            let ready = self.machine.ready_for_snapshot();
            if ready {
                let (consumer, mut kernel) = self.reading();
                kernel.late = true;
                consumer.snapshot(&mut kernel).map_err(Error::Output)?;
            }
            let next = self.every("aggrate");
            self.next.aggregate = now + if ready { next } else { next.min(WINDOW) };
        }
        if now >= self.next.status {
            self.status(now - self.next.status)?;
            let measuring = self.watch.as_ref().is_some_and(Watch::is_measuring);
            self.next.status = now + if measuring { WINDOW } else { self.every("statusrate") };
        }
        self.note_exits();
        if now >= self.next.note.0 && !self.holds {
            self.note_targets(now);
        }
        let over = self.targets_ended() || self.machine.activity().0 != Activity::Active;
        self.alive()?;
        Ok(if over { Status::Done } else { Status::Working })
    }

    /// Fails when the session was stopped for what it did to the machine.
    fn alive(&mut self) -> Result<(), Error> {
        if self.machine.activity().0 != Activity::Killed {
            return Ok(());
        }
        self.heed(None);
        Err(Error::Unresponsive)
    }

    /// Tells of an alarm: of the session's own watch, or of a heartbeat.
    fn heed(&mut self, own: Option<Alarm>) {
        let Some(watch) = &self.watch else { return };
        let alarm = own.or_else(|| self.machine.take_alarm().map(|reason| watch.alarm(reason)));
        self.notices.extend(alarm.map(Notice::Unresponsive));
    }

    /// Looks whether the session leaves the machine enough time.
    fn watch(&mut self, behind: Duration, suppressed: u64) {
        let Some(watch) = &mut self.watch else { return };
        let signs = Signs { lag: self.machine.take_lag(), behind, suppressed };
        let own = match watch.look(signs, self.cpus.len(), || self.machine.time_taken()) {
            Some(Finding::Alarm(alarm)) => Some(alarm),
            Some(Finding::Much(percent)) => {
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
        self.heed(own);
    }

    /// Tells of firings that the kernel suppressed since the last time, and gives their number.
    fn tell_suppressed(&mut self) -> u64 {
        let mut all = 0;
        // A program's counter can be read as long as there is the program; where it cannot, there is nothing to tell.
        let mut now: BTreeMap<String, u64> = BTreeMap::new();
        for (program, count) in self.machine.suppressed().unwrap_or_default() {
            *now.entry(program).or_default() += count;
        }
        for (program, total) in now {
            let told = self.suppressed.entry(program.clone()).or_default();
            let count = total.saturating_sub(std::mem::replace(told, total));
            if count > 0 {
                self.notices.push(Notice::Suppressed { program, cpu: None, count });
            }
            all += count;
        }
        all
    }

    /// Tells of firings of clocks that were due and that no program served since the last time.
    fn tell_missing(&mut self, online: &[u32], last: bool) {
        let missing = self.machine.missing_firings(online, last).into_iter();
        let tell = |(program, cpu, count)| Notice::Suppressed { program, cpu: Some(cpu), count };
        self.notices.extend(missing.map(tell));
    }

    fn status(&mut self, behind: Duration) -> Result<(), Error> {
        let drops = self.machine.drops();
        self.consumer.dropped(drops);
        let suppressed = self.tell_suppressed();
        self.watch(behind, suppressed);
        if self.machine.has_clocks() {
            let online = bpf::sys::online_cpus();
            if online != self.cpus {
                self.machine.follow_cpus(&online)?;
                self.cpus.clone_from(&online);
            }
            self.tell_missing(&online, false);
        }
        Ok(())
    }

    fn drain(&mut self, all: bool) -> Result<(), Error> {
        self.machine.answer_doorbell();
        let hold = (!all).then(|| Duration::from_nanos(self.options.number("ordertimeout")));
        let batch = self.machine.drain(hold);
        self.consume(&batch)
    }

    /// The consumer, and what it reads from.
    fn reading(&mut self) -> (&mut Consumer<W>, Kernel<'_>) {
        let target = self.consumer.options_mut().target;
        (
            &mut self.consumer,
            Kernel { machine: &self.machine, options: &mut self.options, target, late: false },
        )
    }

    fn consume(&mut self, batch: &Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (consumer, mut kernel) = self.reading();
        consumer.consume_batch(batch, &mut kernel).map_err(Error::consuming)
    }

    /// What there is to tell, since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let mut all = std::mem::take(&mut self.notices);
        all.extend(self.consumer.take_messages().into_iter().map(Notice::Message));
        all
    }

    /// Firings that the kernel kept from the session's programs, because one of them was already running there: by
    /// program, since the start, as long as the session is not finished. An upper bound of what was missed, for predicates
    /// were not asked.
    pub fn suppressed(&self) -> Result<Vec<(String, u64)>, Error> {
        Ok(self.machine.suppressed()?)
    }

    /// A newline on the output, as after an interrupt.
    pub fn newline(&mut self) -> Result<(), Error> {
        self.consumer.newline().map_err(Error::Output)
    }

    /// What stops the session from outside, such as a signal handler.
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

    /// Stops tracing, runs END, prints what is left; the exit status. Call [`Session::take_notices`] afterwards, and
    /// drop the session to free what it holds.
    pub fn finish(&mut self) -> Result<i32, Error> {
        if self.machine.has_counted_clocks() {
            self.tell_missing(&bpf::sys::online_cpus(), true);
        }
        if let Some(control) = self.machine.control() {
            control.become_state(Activity::Draining);
        }
        self.alive()?;
        self.heed(None);
        if let Some(watch) = &mut self.watch {
            watch.stop_measuring();
        }
        self.note_exits();
        self.machine.settle()?;
        self.tell_suppressed();
        self.drain(true)?;
        self.machine.run_end()?;
        self.drain(true)?;
        let (consumer, mut kernel) = self.reading();
        consumer.finish(&mut kernel).map_err(Error::Output)?;
        // The first exit() stops tracing; the last one processed, END's too, gives the status. Where its record was
        // discarded by a later fault, the kernel knows what the first one was given.
        let status = self.consumer.exit_status().unwrap_or_else(|| self.machine.activity().1);
        self.stop();
        let drops = self.machine.drops();
        self.consumer.dropped(drops);
        Ok(status)
    }

    /// Stops without END and without output: the second interrupt.
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
        // Not before the output: while the kernel detaches from thousands of functions, each call of one of them is a breakpoint.
        match self.machine.detach() {
            0 => {}
            1 => self.notices.push(Notice::Detail("closing a link in the background".into())),
            n => self.notices.push(Notice::Detail(format!("closing {n} links in the background"))),
        }
    }
}

/// What a consumer has been told of already.
#[derive(Default)]
struct Known {
    aggs: usize,
    strings: usize,
}

/// Tells the consumer of all that an assembly enables.
fn introduce<W: Output>(
    consumer: &mut Consumer<W>,
    program: &Program,
    assembly: &Assembly,
    known: Known,
) -> Result<(), Error> {
    for desc in program.module.aggs.iter().skip(known.aggs) {
        consumer.add_aggregation(desc.clone());
    }
    for (at, text) in assembly.strings.iter().enumerate().skip(known.strings) {
        // The program's own texts are printed as they are; those after them are names of probes.
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
