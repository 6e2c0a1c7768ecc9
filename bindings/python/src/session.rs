//! The class `Session`: a session of the library, for any thread of Python.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use dtrace::diagnostics::raw;
use dtrace::events::Event;
use dtrace::options::{self, Options};
use dtrace::{CompileError, Macros, Source, Status, Stopper, System, flame, heat};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::convert;
use crate::errors::Failure;
use crate::receiver::Receiver;
use crate::signals::Signals;

/// The longest wait until Python is asked for signals.
const WAIT: Duration = Duration::from_millis(100);

/// A name, which a text has not, and a program.
type Program = (Option<Vec<u8>>, Vec<u8>);

/// What is traced: the words of a command, a command as one text, or a process.
#[derive(FromPyObject)]
enum Target {
    Process(i32),
    Command(Vec<u8>),
    Words(Vec<Vec<u8>>),
}

/// A session of the library until it is over, and then what its sink has.
enum State {
    Running(Box<dtrace::Session<Receiver>>),
    /// Tracing is over. A failure is raised when the events before it are taken.
    Over(Box<Receiver>, Option<Failure>),
    /// Between two others.
    Closed,
    /// A panic ended it.
    Dead(Failure),
}

/// See the [module](self).
#[pyclass(frozen, module = "dtrace._dtrace")]
pub(crate) struct Session {
    /// The process that began it, for messages. Which one it is `forks` says: numbers are used
    /// again, and another pid namespace has its own.
    owner: u32,
    /// [`dtrace::forks`] in that process.
    forks: u32,
    /// The thread that has the state; 0: none. The handlers of its signals run meanwhile, and may
    /// use this package.
    holder: AtomicU64,
    /// A child of `fork` does not drop its copy: see [`Session::drop`].
    state: ManuallyDrop<Mutex<State>>,
    stopper: ManuallyDrop<Mutex<Stopper>>,
    signals: Arc<Signals>,
    /// The next taking of an event panics, for the tests of this package.
    panics: AtomicBool,
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // SAFETY: they are used no more.
        let parts = unsafe { (ManuallyDrop::take(&mut self.state), ManuallyDrop::take(&mut self.stopper)) };
        drop_detached(parts);
    }
}

/// Drops a session, which waits for the kernel and for threads: without the GIL.
fn drop_detached<T: Send>(value: T) {
    let mut value = Some(value);
    // Where the interpreter is about to end there is no GIL to be had.
    let _ = Python::try_attach(|py| py.detach(|| guarded(|| drop(value.take()))));
    let _ = guarded(|| drop(value.take()));
}

fn source((name, text): Program) -> Source {
    let text = raw::text(text);
    match name {
        Some(name) => Source::Script(raw::text(name), text),
        None => Source::Specifier(dtrace::Field::Name, text),
    }
}

/// An option and its value, each as bytes.
type Setting = (Vec<u8>, Option<Vec<u8>>);

fn set(options: &mut Options, (name, value): Setting) -> Result<(), Failure> {
    let (name, value) = (raw::text(name), value.map(raw::text));
    let set = options.set_for_session(&name, value.as_deref());
    set.map(drop).map_err(|why| Failure::of_option(options::failure(&name, value.as_deref(), why)))
}

/// Does something that is not to panic. A panic is a failure.
fn guarded<T>(done: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(done)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        Failure::new(format!("internal error: {text}"))
    })
}

#[pymethods]
impl Session {
    /// Compiles programs, enables their probes, and releases the targets.
    #[new]
    #[pyo3(signature = (programs, targets, arguments, settings, keeps_text, reader))]
    fn new(
        py: Python<'_>,
        programs: Vec<Program>,
        targets: Vec<Target>,
        arguments: Vec<Vec<u8>>,
        settings: Vec<Setting>,
        keeps_text: bool,
        reader: Option<PathBuf>,
    ) -> PyResult<Session> {
        let signals = Arc::new(Signals::new());
        let asked = signals.clone();
        let started = py.detach(|| {
            let begin = || {
                check_threads()?;
                let system = system(reader)?;
                begin(&system, programs, targets, arguments, settings, keeps_text, asked)
            };
            guarded(begin).and_then(|started| started)
        });
        // What a handler raised says more than the error that the enabling was interrupted.
        if let Err(raised) = signals.check(py) {
            drop_detached(started);
            return Err(raised);
        }
        let (session, stopper) = started.map_err(|failure| failure.raise(py))?;
        Ok(Session {
            owner: std::process::id(),
            forks: dtrace::forks(),
            holder: AtomicU64::new(0),
            state: ManuallyDrop::new(Mutex::new(State::Running(session))),
            stopper: ManuallyDrop::new(Mutex::new(stopper)),
            signals,
            panics: AtomicBool::new(false),
        })
    }

    /// The next event. None: the session is over, or there was none in this time (in seconds).
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let deadline = timeout.map(after).transpose()?;
        loop {
            self.signals.check(py)?;
            self.check_holder(py)?;
            let popped = match self.try_lock(py)? {
                Some(mut state) => self.pop(&mut state),
                None => py.detach(|| self.pop(&mut self.lock())),
            };
            match popped.map_err(|failure| failure.raise(py))? {
                Popped::Event(event) => match converted(py, &event)? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                },
                Popped::Over => return Ok(None),
                Popped::Nothing => {}
            }
            let left = deadline.map_or(WAIT, |end| end.saturating_duration_since(Instant::now()));
            if deadline.is_some() && left.is_zero() {
                return Ok(None);
            }
            self.with(py, |state| work(state, left.min(WAIT)))?;
        }
    }

    /// True when tracing is over; events may be left.
    fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| Ok(!matches!(state, State::Running(_))))
    }

    /// Enables more programs, and returns how many probes each matched.
    fn enable(
        &self,
        py: Python<'_>,
        programs: Vec<Program>,
        arguments: Vec<Vec<u8>>,
    ) -> PyResult<Vec<usize>> {
        self.with(py, |state| {
            let State::Running(session) = state else {
                return Err(Failure::new("the session is over: it can enable no more programs"));
            };
            let sources: Vec<Source> = programs.into_iter().map(source).collect();
            let args = arguments.into_iter().map(raw::text).collect();
            let macros = Macros { args, ..Macros::default() };
            session.enable(&sources, &macros).map_err(|failed| Failure::of_programs(&failed))
        })
    }

    /// Stops the probes at once, whatever other threads do with the session.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        self.stopper.lock().unwrap_or_else(PoisonError::into_inner).stop();
        Ok(())
    }

    /// All aggregations as they are now.
    fn aggregations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let all = self.with(py, |state| {
            let State::Running(session) = state else {
                return Err(Failure::new("the session is over: its last events have its aggregations"));
            };
            session.deliver_aggregations()?;
            Ok(session.sink_mut().take_demanded())
        })?;
        let mut found = Vec::new();
        for event in &all {
            found.extend(converted(py, event)?);
        }
        PyTuple::new(py, found)
    }

    /// What the command would have printed since the last call.
    fn take_text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let text = self.with(py, |state| Ok(receiver(state).map(Receiver::take_text)))?;
        Ok(PyBytes::new(py, &text.unwrap_or_default()))
    }

    /// The stacks in keys of aggregations in the format of files with this name.
    fn draw_stacks<'py>(&self, py: Python<'py>, file: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let format = flame::Format::of_name(file);
        let format = format.ok_or_else(|| ending(file, flame::Format::ENDINGS))?;
        self.draw(py, |receiver| receiver.draw_stacks(format))
    }

    /// The distributions over time in the format of files with this name.
    fn draw_heat<'py>(&self, py: Python<'py>, file: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let format = heat::Format::of_name(file);
        let format = format.ok_or_else(|| ending(file, heat::Format::ENDINGS))?;
        self.draw(py, |receiver| receiver.draw_heat(format))
    }

    /// Ends the session without its results. What it has in the kernel is closed; pictures can be
    /// drawn of what has come.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_here() {
            return Ok(());
        }
        self.stop(py)?;
        if self.is_held_here() {
            return Ok(());
        }
        py.detach(|| {
            let mut state = self.lock();
            let before = std::mem::replace(&mut *state, State::Closed);
            *state = guarded(|| before.closed()).unwrap_or_else(State::Dead);
        });
        Ok(())
    }

    /// Panics within the session, at once or where the next event is taken, for the tests of this
    /// package.
    #[pyo3(name = "_panic", signature = (later=false))]
    fn panic(&self, py: Python<'_>, later: bool) -> PyResult<()> {
        if later {
            self.panics.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.with(py, |_| std::panic::resume_unwind(Box::new("a panic of a test")))
    }
}

/// An event as an object. A panic is an error.
fn converted<'py>(py: Python<'py>, event: &Event<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
    guarded(|| convert::event(py, event)).unwrap_or_else(|failure| Err(failure.raise(py)))
}

fn after(seconds: f64) -> PyResult<Instant> {
    // Not `max`, which takes 0 for what is no number.
    let time = Duration::try_from_secs_f64(if seconds < 0.0 { 0.0 } else { seconds });
    let end = time.ok().and_then(|time| Instant::now().checked_add(time));
    end.ok_or_else(|| PyValueError::new_err(format!("{seconds} seconds are no time to wait")))
}

fn ending(file: &str, endings: &str) -> PyErr {
    PyValueError::new_err(format!("{file:?}: the name of a picture or profile ends with {endings}"))
}

/// The process that has begun sessions: it, or one that has forked it. One more than its number of
/// forks, and its pid for messages.
static TRACER: AtomicU32 = AtomicU32::new(0);
static TRACER_PID: AtomicU32 = AtomicU32::new(0);

/// A child of a process that has traced lacks the threads that trace, and may have their locks as
/// they were held: no session begins there.
fn check_threads() -> Result<(), Failure> {
    let this = dtrace::forks().wrapping_add(1);
    match TRACER.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
        Err(tracer) if tracer != this => Err(Failure::new(format!(
            "process {}, which has forked this one, has traced before: no session can begin in a copy of it (multiprocessing has the method spawn)",
            TRACER_PID.load(Ordering::Relaxed)
        ))),
        _ => {
            TRACER_PID.store(std::process::id(), Ordering::Relaxed);
            Ok(())
        }
    }
}

/// This machine. The files of processes are read by the executable that was named, which is that of
/// the package where it has one; without one addresses of processes are numbers.
fn system(reader: Option<PathBuf>) -> Result<System, Failure> {
    match reader {
        Some(reader) => System::live_with_reader(&reader).map_err(|e| Failure::new(e.to_string())),
        None => Ok(System::live()),
    }
}

fn begin(
    system: &System,
    programs: Vec<Program>,
    targets: Vec<Target>,
    arguments: Vec<Vec<u8>>,
    settings: Vec<Setting>,
    keeps_text: bool,
    signals: Arc<Signals>,
) -> Result<(Box<dtrace::Session<Receiver>>, Stopper), Failure> {
    let mut options = Options { quiet: true, ..Options::default() };
    settings.into_iter().try_for_each(|setting| set(&mut options, setting))?;
    let receiver = Receiver::new(&options, keeps_text);
    let mut builder =
        dtrace::Session::builder(system).options(options).arguments(arguments.into_iter().map(raw::text));
    for program in programs {
        builder = builder.source(source(program));
    }
    for target in targets {
        builder = match target {
            Target::Process(pid) => builder.process(pid),
            Target::Command(text) => {
                builder.command_of(text.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()))
            }
            Target::Words(words) => builder.command_of(words),
        };
    }
    let session = builder.start_interruptible(receiver, move || signals.pending());
    let session = session.map_err(|failed: CompileError| Failure::of_programs(&failed))?;
    let stopper = session.stopper()?;
    Ok((Box::new(session), stopper))
}

/// What a session has for who asks for the next event.
enum Popped {
    Event(Box<Event<'static>>),
    /// Not yet.
    Nothing,
    Over,
}

fn receiver(state: &mut State) -> Option<&mut Receiver> {
    match state {
        State::Running(session) => Some(session.sink_mut()),
        State::Over(receiver, _) => Some(receiver),
        State::Closed | State::Dead(_) => None,
    }
}

fn pop(state: &mut State) -> Result<Popped, Failure> {
    if let Some(event) = receiver(state).and_then(Receiver::pop) {
        return Ok(Popped::Event(Box::new(event)));
    }
    match state {
        State::Running(_) => Ok(Popped::Nothing),
        State::Over(_, failure) => failure.take().map_or(Ok(Popped::Over), Err),
        State::Closed => Ok(Popped::Over),
        State::Dead(failure) => Err(failure.clone()),
    }
}

/// Waits and works. A session that is done is finished.
fn work(state: &mut State, limit: Duration) -> Result<(), Failure> {
    let State::Running(session) = state else { return Ok(()) };
    let done = match session.work(None, limit) {
        Ok(Status::Working) => return Ok(()),
        Ok(Status::Done) => session.finish(),
        Err(failed) => Err(failed),
    };
    if let State::Running(session) = std::mem::replace(state, State::Closed) {
        *state = State::Over(Box::new(session.into_sink()), done.err().map(Failure::from));
    }
    Ok(())
}

/// A panic ends a session.
fn die(state: &mut State, panic: Failure) -> Failure {
    let before = std::mem::replace(state, State::Dead(panic.clone()));
    // Dropping what is half done may panic again.
    let _ = guarded(|| drop(before));
    panic
}

/// No thread has the state any more.
struct Free<'a>(&'a AtomicU64);

impl Drop for Free<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A number that no other thread has at this time, and not 0.
fn this_thread() -> u64 {
    thread_local!(static OWN: u8 = const { 0 });
    OWN.with(|own| std::ptr::from_ref(own) as u64)
}

impl State {
    /// What is left of it without the session.
    fn closed(self) -> State {
        let mut receiver = match self {
            State::Running(session) => Box::new(session.into_sink()),
            State::Over(receiver, _) => receiver,
            State::Closed | State::Dead(_) => return self,
        };
        receiver.forget_events();
        State::Over(receiver, None)
    }
}

impl Session {
    fn is_here(&self) -> bool {
        self.forks == dtrace::forks()
    }

    /// Takes the next event. A panic ends the session, as in [`Session::with`].
    fn pop(&self, state: &mut State) -> Result<Popped, Failure> {
        let popped = guarded(|| {
            if self.panics.swap(false, Ordering::Relaxed) {
                std::panic::resume_unwind(Box::new("a panic of a test"));
            }
            pop(state)
        });
        popped.unwrap_or_else(|panic| Err(die(state, panic)))
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let owner = self.owner;
        Err(Failure::new(format!("the session is that of process {owner}, which has forked this one"))
            .raise(py))
    }

    fn is_held_here(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == this_thread()
    }

    /// An error in a handler of a signal that came while this thread has the state.
    fn check_holder(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_held_here() {
            return Ok(());
        }
        let why =
            "the session is at work in this thread: a handler of a signal can only stop() or close() it";
        Err(Failure::new(why).raise(py))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if no other thread has it.
    fn try_lock(&self, py: Python<'_>) -> PyResult<Option<MutexGuard<'_, State>>> {
        self.check_process(py)?;
        Ok(match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    /// Does something with the state, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        done: impl FnOnce(&mut State) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        self.signals.check(py)?;
        self.check_holder(py)?;
        let done = py.detach(|| {
            let mut state = self.lock();
            self.holder.store(this_thread(), Ordering::Relaxed);
            let _free = Free(&self.holder);
            if let State::Dead(failure) = &*state {
                return Err(failure.clone());
            }
            guarded(|| done(&mut state)).unwrap_or_else(|panic| Err(die(&mut state, panic)))
        });
        // What was taken is not to be lost: the next call raises what a handler has raised.
        match done {
            Ok(value) => Ok(value),
            Err(failure) => self.signals.check(py).and_then(|()| Err(failure.raise(py))),
        }
    }

    fn draw<'py>(
        &self,
        py: Python<'py>,
        draw: impl FnOnce(&mut Receiver) -> Option<Vec<u8>> + Send,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let drawn = self.with(py, |state| Ok(receiver(state).and_then(draw)))?;
        Ok(drawn.map(|bytes| PyBytes::new(py, &bytes)))
    }
}
