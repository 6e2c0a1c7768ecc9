//! A session of C, and the guard of every call.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dtrace::diagnostics::{Diagnostic, SourceKind, SourceMap, Tag, raw};
use dtrace::events::SinkError;
use dtrace::options::{self, OptionError};
use dtrace::{
    CodegenError, CompileError, Effects, Error, Event, Json, Macros, Message, Needs, Options, Output,
    Session, Sink, Source, Status, System, Target,
};

use crate::event::{Current, c_text, dt_event};
use crate::poll::Poll;
use crate::stop::Stop;

/// A session. C has its address only.
pub struct dt_session {
    /// Used by [`dt_session::stop`] while a thread uses the rest.
    stop: Arc<Stop>,
    /// The process that has opened it, by [`dtrace::forks`].
    forks: u32,
    /// A thread uses the rest.
    busy: AtomicBool,
    inner: UnsafeCell<Inner>,
}

/// What is wrong, for C. The texts are those of the `Problem` that has it.
#[repr(C)]
pub struct dt_problem {
    /// The message as the command prints it.
    pub text: *const c_char,
    /// The message alone.
    pub message: *const c_char,
    /// The tag of the original.
    pub tag: *const c_char,
    /// The script.
    pub script: *const c_char,
    /// From 1; 0: there is no place.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

/// What is wrong.
pub(crate) struct Problem {
    seen: dt_problem,
    _texts: [CString; 4],
}

/// At least one.
pub(crate) type Problems = Vec<Problem>;

impl Problem {
    fn new(text: &str, message: &str, tag: &str, (script, line, column): (&str, u32, u32)) -> Problem {
        let texts = [text, message, tag, script].map(|text| c_text(text.as_bytes()));
        let [text, message, tag, script] =
            [0, 1, 2, 3].map(|n: usize| texts.get(n).map_or(ptr::null(), |t| t.as_ptr()));
        Problem { seen: dt_problem { text, message, tag, script, line, column }, _texts: texts }
    }

    fn of(error: &Diagnostic, map: &SourceMap) -> Problem {
        let place = error.span.map(|span| {
            let name = match map.kind(span.file) {
                SourceKind::Specifier => map.text(span.file),
                SourceKind::Script | SourceKind::Library => map.name(span.file),
            };
            let (line, column) = map.line_column(span.file, span.start);
            (name, line, column)
        });
        Problem::new(&error.render(map, false), &error.message, error.tag.name(), place.unwrap_or_default())
    }
}

/// An error that has no place in a program.
fn plain(message: &str) -> Problems {
    vec![Problem::new(message, message, "", ("", 0, 0))]
}

/// A call that the library cannot follow.
pub(crate) fn misuse(message: impl AsRef<str>) -> Problems {
    plain(message.as_ref())
}

fn failed(error: &Error) -> Problems {
    plain(&error.to_string())
}

fn not_compiled(error: &CompileError) -> Problems {
    match &error.error {
        Error::Program(all) if !all.is_empty() => all.iter().map(|d| Problem::of(d, &error.map)).collect(),
        Error::Codegen(CodegenError { span: Some(span), message }) => {
            vec![Problem::of(&Diagnostic::new(Tag::D_UNKNOWN, *span, message.clone()), &error.map)]
        }
        other => failed(other),
    }
}

/// The most events that C leaves before it lets the session work again. What comes in one call, and
/// at the end, is bounded by the buffers and aggregations of the session.
const MOST_EVENTS: usize = 100_000;

/// The events that C has not yet taken.
struct Queue {
    events: VecDeque<Event<'static>>,
    effects: Effects<io::Sink>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { events: VecDeque::new(), effects: Effects::new(io::sink()) }
    }
}

impl Sink for Queue {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.events.push_back(event.clone().into_owned());
        match event {
            Event::Effect(effect) => self.effects.perform(effect),
            _ => Ok(()),
        }
    }

    fn needs(&self) -> Needs {
        Needs { process_ids: true, printed: false }
    }
}

/// Lines of JSON. Messages are lines of it.
#[derive(Default)]
struct Lines(Vec<u8>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Lines {
    fn messages(&mut self, _: &[Message]) -> io::Result<()> {
        Ok(())
    }
}

/// Which executable reads symbols.
#[derive(Default)]
enum Reader {
    /// That of `PATH`, if there is one.
    #[default]
    Found,
    None,
    Of(System),
}

/// What was said before the start.
#[derive(Default)]
struct Setup {
    options: Options,
    sources: Vec<Source>,
    arguments: Vec<String>,
    commands: Vec<Wanted>,
    reader: Reader,
}

enum Wanted {
    Command(Vec<u8>),
    Process(Target),
}

/// Where a session is.
enum Stage {
    Setup(Box<Setup>),
    /// It did not begin.
    Failed,
    Running(Box<Running>),
}

struct Running {
    session: Session<Queue>,
    poll: Poll,
    stop: Arc<Stop>,
    arguments: Vec<String>,
    json: Json<Lines>,
}

/// All of a session but how it is stopped.
pub(crate) struct Inner {
    stage: Stage,
    problems: Problems,
    /// A call panicked.
    is_dead: bool,
    current: Current,
    line: CString,
}

/// The machine whose readers are the `dtrace` of `PATH`, which is looked for once.
fn found_reader() -> System {
    static FOUND: Mutex<Option<System>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let look = || {
        let path = dtrace::reader_on_path();
        path.and_then(|path| System::live_with_reader(&path).ok()).unwrap_or_else(System::live)
    };
    found.get_or_insert_with(look).clone()
}

impl Inner {
    fn setup(&mut self) -> Result<&mut Setup, Problems> {
        match &mut self.stage {
            Stage::Setup(setup) => Ok(setup),
            Stage::Failed => Err(misuse("the session could not begin")),
            Stage::Running(_) => Err(misuse("the session has begun")),
        }
    }

    fn running(&mut self) -> Result<&mut Running, Problems> {
        match &mut self.stage {
            Stage::Running(running) => Ok(running),
            Stage::Failed => Err(misuse("the session could not begin")),
            Stage::Setup(_) => Err(misuse("the session has not begun: call dt_start()")),
        }
    }

    pub(crate) fn option(&mut self, name: &str, value: Option<&str>) -> Result<(), Problems> {
        let set = match &mut self.stage {
            Stage::Running(_) if options::is_elsewhere(name) => Err(OptionError::Elsewhere),
            Stage::Running(running) => running.session.set_option(name, value),
            _ => self.setup()?.options.set_for_session(name, value).map(drop),
        };
        set.map_err(|why| {
            let text = options::failure(name, value, why);
            vec![Problem::new(&text, &text, Tag::D_PRAGMA_OPTSET.name(), ("", 0, 0))]
        })
    }

    pub(crate) fn reader(&mut self, path: &str) -> Result<(), Problems> {
        let setup = self.setup()?;
        setup.reader = match path {
            "" => Reader::None,
            path => {
                let path = raw::bytes(path);
                let system = System::live_with_reader(Path::new(OsStr::from_bytes(&path)));
                Reader::Of(system.map_err(|e| plain(&e.to_string()))?)
            }
        };
        Ok(())
    }

    pub(crate) fn program(&mut self, source: Source) -> Result<(), Problems> {
        self.setup()?.sources.push(source);
        Ok(())
    }

    pub(crate) fn argument(&mut self, text: String) -> Result<(), Problems> {
        self.setup()?.arguments.push(text);
        Ok(())
    }

    pub(crate) fn command(&mut self, command: &str) -> Result<(), Problems> {
        self.setup()?.commands.push(Wanted::Command(raw::bytes(command)));
        Ok(())
    }

    pub(crate) fn process(&mut self, pid: i32) -> Result<(), Problems> {
        let setup = self.setup()?;
        let target = Target::grab(pid).map_err(|e| plain(&e.to_string()))?;
        setup.commands.push(Wanted::Process(target));
        Ok(())
    }

    pub(crate) fn start(&mut self, stop: &Arc<Stop>) -> Result<(), Problems> {
        self.setup()?;
        let begun = self.begin(stop);
        match stop.ends_start() {
            true if begun.is_err() => Err(misuse("the session was stopped before it began")),
            _ => begun,
        }
    }

    fn begin(&mut self, stop: &Arc<Stop>) -> Result<(), Problems> {
        let Stage::Setup(setup) = std::mem::replace(&mut self.stage, Stage::Failed) else {
            return Err(misuse("the session has begun"));
        };
        let Setup { options, sources, arguments, commands, reader } = *setup;
        let bell = stop.bell().map_err(|e| plain(&e.to_string()))?;
        let asked = stop.clone();
        let asked = move || asked.ends_start();
        if asked() {
            return Err(failed(&Error::Interrupted));
        }
        let system = match reader {
            Reader::Found => found_reader(),
            Reader::None => System::live(),
            Reader::Of(system) => system,
        };
        let builder = Session::builder(&system).options(options).arguments(arguments.clone());
        let builder = sources.into_iter().fold(builder, dtrace::Builder::source);
        let builder = commands.into_iter().fold(builder, |builder, wanted| match wanted {
            Wanted::Command(command) => {
                builder.command_of(command.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()))
            }
            Wanted::Process(target) => builder.target(target),
        });
        let session = builder.start_interruptible(Queue::default(), asked).map_err(|e| not_compiled(&e))?;
        let stopper = session.stopper().map_err(|e| failed(&e))?;
        let poll = Poll::new(&waited(&session, bell)).map_err(|e| plain(&e.to_string()))?;
        let json = Json::of_stored_events(Lines::default());
        let running = Running { session, poll, stop: stop.clone(), arguments, json };
        self.stage = Stage::Running(Box::new(running));
        stop.begin(stopper);
        Ok(())
    }

    pub(crate) fn enable(&mut self, source: Source) -> Result<(), Problems> {
        let running = self.running()?;
        let macros = Macros { args: running.arguments.clone(), ..Macros::default() };
        let done = running.session.enable(&[source], &macros).map(drop);
        running.poll_anew(done.as_ref().err().map(|e| &e.error))?;
        done.map_err(|e| not_compiled(&e))
    }

    pub(crate) fn descriptor(&mut self) -> Result<c_int, Problems> {
        Ok(self.running()?.poll.descriptor())
    }

    pub(crate) fn deadline(&mut self) -> Result<Duration, Problems> {
        let has_rows = self.current.has_rows();
        let running = self.running()?;
        if has_rows || running.has_events() {
            return Ok(Duration::ZERO);
        }
        Ok(running.session.next_deadline().saturating_duration_since(Instant::now()))
    }

    pub(crate) fn work(&mut self, limit: Duration) -> Result<Status, Problems> {
        let running = self.running()?;
        if running.session.sink().events.len() > MOST_EVENTS {
            return Err(misuse(format!("more than {MOST_EVENTS} events were not taken: call dt_next()")));
        }
        let bell = running.stop.bell().map_err(|e| plain(&e.to_string()))?;
        let done = running.session.work(Some(bell), limit);
        running.poll_anew(done.as_ref().err())?;
        done.map_err(|e| failed(&e))
    }

    pub(crate) fn next(&mut self) -> Result<Option<*const dt_event>, Problems> {
        loop {
            if let Some(row) = self.current.next_row() {
                return Ok(Some(row));
            }
            let Some(event) = self.running()?.session.sink_mut().events.pop_front() else { return Ok(None) };
            if let Some(event) = self.current.show(event) {
                return Ok(Some(event));
            }
        }
    }

    pub(crate) fn next_json(&mut self) -> Result<Option<*const c_char>, Problems> {
        let running = self.running()?;
        while let Some(event) = running.session.sink_mut().events.pop_front() {
            let written = running.json.event(&event).map_err(|e| plain(&e.to_string()));
            written.and_then(|()| running.json.flush().map_err(|e| plain(&e.to_string())))?;
            let lines = std::mem::take(&mut running.json.output_mut().0);
            if !lines.is_empty() {
                self.line = c_text(lines.trim_ascii_end());
                return Ok(Some(self.line.as_ptr()));
            }
        }
        Ok(None)
    }

    pub(crate) fn finish(&mut self) -> Result<c_int, Problems> {
        let running = self.running()?;
        let done = running.session.finish();
        running.poll_anew(done.as_ref().err())?;
        done.map_err(|e| failed(&e))
    }
}

/// What is waited for: the session, and whoever stops it.
fn waited<'a>(session: &'a Session<Queue>, bell: BorrowedFd<'a>) -> Vec<BorrowedFd<'a>> {
    let mut all = session.descriptors();
    all.push(bell);
    all
}

impl Running {
    fn has_events(&self) -> bool {
        !self.session.sink().events.is_empty()
    }

    /// After a call, with its error. A forked child shares the `epoll` with its parent, and leaves
    /// it alone.
    fn poll_anew(&mut self, error: Option<&Error>) -> Result<(), Problems> {
        if matches!(error, Some(Error::Forked)) {
            return Ok(());
        }
        let bell = self.stop.bell().map_err(|e| plain(&e.to_string()))?;
        self.poll.set(&waited(&self.session, bell)).map_err(|e| plain(&e.to_string()))
    }
}

impl dt_session {
    pub(crate) fn new() -> dt_session {
        let inner = Inner {
            stage: Stage::Setup(Box::default()),
            problems: Vec::new(),
            is_dead: false,
            current: Current::default(),
            line: CString::default(),
        };
        dt_session {
            stop: Arc::default(),
            forks: dtrace::forks(),
            busy: AtomicBool::new(false),
            inner: UnsafeCell::new(inner),
        }
    }

    /// False in a forked child of the process that has opened it.
    fn is_here(&self) -> bool {
        self.forks == dtrace::forks()
    }

    /// Frees it. -1: another thread is using it, and it stays.
    ///
    /// # Safety
    /// NULL, or a session that was not closed.
    pub(crate) unsafe fn close(session: *mut dt_session) -> c_int {
        // SAFETY: guaranteed by the caller.
        let Some(of) = (unsafe { session.as_ref() }) else { return 0 };
        if of.busy.swap(true, Ordering::Acquire) {
            // In a child it stays as it was in the middle of that call, which nobody ends.
            return if of.is_here() { refuse(session, &BUSY) } else { 0 };
        }
        forget_refusal(session);
        // SAFETY: from `dt_open`, and from now on nobody else gets a guard of it.
        let session = unsafe { Box::from_raw(session) };
        // A panic in that ends here.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(session)));
        0
    }

    /// Stops tracing, whatever other threads do with the session. A handler of a signal may be what
    /// calls this.
    ///
    /// # Safety
    /// NULL, or a session that was not closed.
    pub(crate) unsafe fn stop(session: *const dt_session) -> c_int {
        // SAFETY: guaranteed by the caller. The cell inside is not touched.
        match unsafe { session.as_ref() }.filter(|session| session.is_here()) {
            Some(session) => session.stop.ask(),
            None => return -1,
        }
        0
    }

    /// What was wrong in this thread's last call with the session, by number.
    ///
    /// # Safety
    /// NULL, or a session that was not closed.
    pub(crate) unsafe fn problem(session: *mut dt_session, number: usize) -> *const dt_problem {
        let refused =
            |refusal: &'static Refusal| if number == 0 { &raw const refusal.0 } else { ptr::null() };
        let (of, refusal) = REFUSED.get();
        if let Some(refusal) = refusal.filter(|_| ptr::eq(of, session)) {
            return refused(refusal);
        }
        // SAFETY: guaranteed by the caller.
        match unsafe { Guard::look(session) } {
            Ok(mut guard) => {
                let problem = guard.inner().and_then(|inner| inner.problems.get(number));
                problem.map_or(ptr::null(), |problem| &raw const problem.seen)
            }
            Err(refusal) => refused(refusal),
        }
    }
}

/// Why a call is refused that does not get to the session.
struct Refusal(dt_problem);

// SAFETY: its pointers are those of constants.
unsafe impl Sync for Refusal {}

impl Refusal {
    const fn new(text: &'static CStr) -> Refusal {
        let (text, none) = (text.as_ptr(), c"".as_ptr());
        Refusal(dt_problem { text, message: text, tag: none, script: none, line: 0, column: 0 })
    }
}

static MISSING: Refusal = Refusal::new(c"the session is NULL");
static BUSY: Refusal = Refusal::new(c"another thread is using the session");
static FORKED: Refusal =
    Refusal::new(c"the session is of the parent of this process: a forked child cannot use it");

thread_local! {
    /// The last refused call of this thread: of which session, and why.
    static REFUSED: Cell<(*const dt_session, Option<&'static Refusal>)> = const { Cell::new((ptr::null(), None)) };
}

fn refuse(session: *const dt_session, why: &'static Refusal) -> c_int {
    REFUSED.set((session, Some(why)));
    -1
}

/// A call of this thread with the session is not refused.
fn forget_refusal(session: *const dt_session) {
    if ptr::eq(REFUSED.get().0, session) {
        REFUSED.set((ptr::null(), None));
    }
}

/// What a call may use: nothing if it is refused.
pub(crate) struct Guard<'a>(Option<&'a dt_session>);

impl Guard<'_> {
    /// Of a call that can fail: what refuses it is what [`dt_session::problem`] has.
    ///
    /// # Safety
    /// NULL, or a session that is not closed while this exists.
    pub(crate) unsafe fn of<'a>(session: *mut dt_session) -> Guard<'a> {
        // SAFETY: guaranteed by the caller.
        match unsafe { Guard::look(session) } {
            Ok(guard) => {
                forget_refusal(session);
                guard
            }
            Err(why) => {
                refuse(session, why);
                Guard(None)
            }
        }
    }

    /// # Safety
    /// As [`Guard::of`].
    unsafe fn look<'a>(session: *mut dt_session) -> Result<Guard<'a>, &'static Refusal> {
        // SAFETY: guaranteed by the caller.
        let session = unsafe { session.as_ref() }.ok_or(&MISSING)?;
        if !session.is_here() {
            return Err(&FORKED);
        }
        if session.busy.swap(true, Ordering::Acquire) {
            return Err(&BUSY);
        }
        Ok(Guard(Some(session)))
    }

    fn inner(&mut self) -> Option<&mut Inner> {
        // SAFETY: `busy` was set by this guard, which nobody else has; the reference lives as long
        // as one call of a method that has the guard, and no method calls another one with it.
        self.0.map(|session| unsafe { &mut *session.inner.get() })
    }

    /// What a call returns, or `refused`.
    pub(crate) fn value<T>(&mut self, refused: T, body: impl FnOnce(&mut Inner) -> Result<T, Problems>) -> T {
        let Some(inner) = self.inner() else { return refused };
        inner.problems.clear();
        if inner.is_dead {
            inner.problems = misuse("the session has ended by an internal error");
            return refused;
        }
        match catch_unwind(AssertUnwindSafe(|| body(inner))) {
            Ok(Ok(value)) => value,
            Ok(Err(problems)) => {
                inner.problems = problems;
                refused
            }
            Err(panic) => {
                inner.is_dead = true;
                let stage = std::mem::replace(&mut inner.stage, Stage::Failed);
                let _ = catch_unwind(AssertUnwindSafe(|| drop(stage)));
                inner.problems = plain(&format!("internal error: {}", panic_text(&*panic)));
                refused
            }
        }
    }

    /// 0, or -1 for an error.
    pub(crate) fn status(&mut self, body: impl FnOnce(&mut Inner) -> Result<(), Problems>) -> c_int {
        self.value(-1, |inner| body(inner).map(|()| 0))
    }

    pub(crate) fn start(&mut self) -> c_int {
        let Some(stop) = self.0.map(|session| session.stop.clone()) else { return -1 };
        self.status(|inner| inner.start(&stop))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.busy.store(false, Ordering::Release);
        }
    }
}

/// What a panic says.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(problem: *const dt_problem) -> String {
        assert!(!problem.is_null());
        // SAFETY: of a session that the test has; the texts end with a NUL.
        unsafe { std::ffi::CStr::from_ptr((*problem).text) }.to_str().unwrap().to_owned()
    }

    #[test]
    #[allow(clippy::panic)]
    fn a_panic_is_an_error_and_the_session_is_dead() {
        let session = Box::into_raw(Box::new(dt_session::new()));
        // SAFETY: it is closed at the end.
        unsafe {
            assert_eq!(Guard::of(session).status(|_| panic!("number {}", 7)), -1);
            assert_eq!(text_of(dt_session::problem(session, 0)), "internal error: number 7");
            assert!(dt_session::problem(session, 1).is_null());
            assert_eq!(Guard::of(session).status(|s| s.argument("x".into())), -1);
            assert_eq!(
                text_of(dt_session::problem(session, 0)),
                "the session has ended by an internal error"
            );
            assert_eq!(dt_session::close(session), 0);
        }
    }

    #[test]
    fn a_session_that_another_thread_uses_is_refused() {
        let session = Box::into_raw(Box::new(dt_session::new()));
        // SAFETY: as above.
        unsafe {
            let guard = Guard::of(session);
            assert_eq!(Guard::of(session).status(|s| s.argument("x".into())), -1);
            assert_eq!(text_of(dt_session::problem(session, 0)), "another thread is using the session");
            assert!(dt_session::problem(session, 1).is_null());
            assert_eq!(dt_session::close(session), -1);
            assert_eq!(dt_session::stop(session), 0);
            drop(guard);
            // The refusal is what this thread's last call has had.
            assert_eq!(text_of(dt_session::problem(session, 0)), "another thread is using the session");
            assert_eq!(Guard::of(session).status(|s| s.argument("x".into())), 0);
            assert!(dt_session::problem(session, 0).is_null());
            assert_eq!(dt_session::close(session), 0);
        }
    }
}
