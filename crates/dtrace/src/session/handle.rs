//! A session as programs have it: [`Session`].

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bpf_sys::OfProcess;
use events::Sink;

use super::Status;
use super::state::Running;
use super::stop::Stopper;
use crate::compile::{Macros, Program, Source};
use crate::engine::interpreter::Interpreter;
use crate::error::{CompileError, Error};
use crate::load::attach::Progress;
use crate::options::{OptionError, Options};

/// A running session. Its results, drops, faults and messages are the [events](::events) that its
/// sink receives.
///
/// It is of the process that has started it. In a forked child an operation is
/// [`Error::Forked`], and dropping it leaves everything as it is: targets, readers of symbols and
/// what is in the kernel are the parent's. A program that forks while it has sessions asks for that
/// by [`close_in_forked_children`](crate::close_in_forked_children).
pub struct Session<S: Sink>(OfProcess<Running<S>>);

impl<S: Sink> Session<S> {
    /// The session, if this process is the one that has it.
    fn here(&mut self) -> Result<&mut Running<S>, Error> {
        if self.0.is_here() { Ok(&mut self.0) } else { Err(Error::Forked) }
    }

    /// Enables all probes, runs BEGIN, and releases the targets.
    pub fn start(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        sink: S,
    ) -> Result<Session<S>, Error> {
        Session::start_interruptible(program, options, targets, sink, &mut |_| true, || false)
    }

    /// As [`Session::start`]; `progress` is called before the first program is attached, and after
    /// each function if functions are attached one by one: the enabling stops when it returns
    /// `false`. `interrupted` is called during long operations until the end of the session. When
    /// it returns true, an enabling stops, and the session no longer waits for symbols of
    /// processes: it prints their addresses as numbers.
    pub fn start_interruptible(
        program: &Program,
        options: Options,
        targets: Vec<proc::Target>,
        sink: S,
        progress: &mut dyn FnMut(Progress) -> bool,
        interrupted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Session<S>, Error> {
        Running::start_interruptible(program, options, targets, sink, progress, interrupted).map(Session::of)
    }

    /// Starts a session without a kernel: the interpreter executes the program over given firings.
    /// It needs no privilege. See [`crate::engine::interpreter`].
    pub fn interpret(
        program: &Program,
        options: Options,
        interpreter: Interpreter,
        sink: S,
    ) -> Result<Session<S>, Error> {
        Running::interpret(program, options, interpreter, sink).map(Session::of)
    }

    /// Works until tracing is over, and finishes. Returns the argument of `exit()`, 0 without one.
    ///
    /// Without a target and without `exit()` it does not end, unless a [`Stopper`] ends it.
    pub fn run(&mut self) -> Result<i32, Error> {
        self.here()?.run()
    }

    /// Waits for at most `limit` until there is work, and does it. The call returns early when
    /// `user` is readable, which means that the user has requested something.
    ///
    /// A program with an event loop of its own does not wait here: see [`Session::ready`].
    pub fn work(&mut self, user: Option<BorrowedFd<'_>>, limit: Duration) -> Result<Status, Error> {
        self.here()?.work(user, limit)
    }

    /// The descriptors that are readable when there is work: a buffer that fills or `exit()`, a
    /// target that ends, a module that was loaded, processes that started. The list changes when a
    /// target ends, when programs are enabled and with each snapshot of aggregations, so an event
    /// loop asks for it before each wait. They are only for waiting: [`Session::ready`] reads them.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        if self.0.is_here() { self.0.descriptors() } else { Vec::new() }
    }

    /// When [`Session::ready`] is to be called at the latest, though no descriptor is readable:
    /// buffers are read at `switchrate`, aggregations at `aggrate`, losses at `statusrate`,
    /// speculations that ended at `cleanrate`.
    pub fn next_deadline(&self) -> Instant {
        if self.0.is_here() { self.0.next_deadline() } else { Instant::now() }
    }

    /// Does the work that there is, without waiting for more. For programs with an event loop of
    /// their own, which wait until one of the [`Session::descriptors`] is readable or until
    /// [`Session::next_deadline`], whatever comes first. A call without need is cheap and does no
    /// harm.
    ///
    /// "Without waiting" is meant for other work to come: a call prints what was recorded, and may
    /// take the time to read the symbols of a process.
    pub fn ready(&mut self) -> Result<Status, Error> {
        self.here()?.ready()
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
    pub fn enable(&mut self, sources: &[Source], macros: &Macros) -> Result<Vec<usize>, CompileError> {
        let here = self.here().map_err(|error| CompileError { error, map: Arc::default() });
        here?.enable(sources, macros)
    }

    /// Changes an option while tracing.
    pub fn set_option(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        self.0.set_option(name, value)
    }

    /// Delivers all aggregations to the sink as they are now, each in an
    /// [event](events::Aggregation) of its own, in the order of their definition. Text has them as
    /// at the end. The session continues as without this call: what no `printa()` has printed is
    /// delivered at the end too.
    pub fn deliver_aggregations(&mut self) -> Result<(), Error> {
        self.here()?.deliver_aggregations()
    }

    /// Firings that the kernel suppressed since the start, by program, because a program was
    /// already running on the CPU. This is an upper bound of the missed firings, because predicates
    /// were not evaluated. It is available until the session is finished.
    pub fn suppressed(&self) -> Result<Vec<(String, u64)>, Error> {
        if self.0.is_here() { self.0.suppressed() } else { Err(Error::Forked) }
    }

    /// The aggregations, as whoever cannot ask the session any more can still print them: a panic
    /// hook.
    pub fn merged(&self) -> consumer::Merged {
        self.0.merged()
    }

    /// How often clauses have executed `snap()`. [`Session::work`] returns when they do.
    pub fn snaps(&self) -> u64 {
        if self.0.is_here() { self.0.snaps() } else { 0 }
    }

    /// Delivers what the buffers of a session with `bufpolicy=ring` have until now, in the order of
    /// time, behind [`Sink::window`]. They keep it, and probes fire on meanwhile: the next snapshot
    /// and the end deliver it again.
    pub fn snapshot(&mut self) -> Result<(), Error> {
        self.here()?.snapshot()
    }

    /// Tells the sink that the user has interrupted the session: text has a newline there. Call
    /// [`Session::finish`] then.
    pub fn interrupt(&mut self) -> Result<(), Error> {
        self.here()?.interrupt()
    }

    /// A handle that stops the session, for example from a signal handler.
    pub fn stopper(&self) -> Result<Stopper, Error> {
        if self.0.is_here() { self.0.stopper() } else { Err(Error::Forked) }
    }

    /// Stops tracing, runs END, delivers the remaining records and aggregations, and returns the
    /// exit status. Drop the session to free its resources. Another call does nothing and returns
    /// the same status; after an error or [`Session::abort`] it is an error.
    pub fn finish(&mut self) -> Result<i32, Error> {
        self.here()?.finish()
    }

    /// Stops without END and without results, as after an error. Messages say what was counted
    /// until now: faults, failed actions and suppressed firings.
    pub fn abort(&mut self) {
        if let Ok(running) = self.here() {
            running.abort();
        }
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        self.0.sink()
    }

    /// The sink.
    pub fn sink_mut(&mut self) -> &mut S {
        self.0.sink_mut()
    }

    /// The sink, without the session, which is dropped: what it has in the kernel is closed.
    pub fn into_sink(self) -> S {
        let is_here = self.0.is_here();
        let running = self.0.into_inner();
        if is_here { running.into_sink() } else { running.leave() }
    }

    fn of(running: Running<S>) -> Session<S> {
        Session(OfProcess::new(running))
    }
}
