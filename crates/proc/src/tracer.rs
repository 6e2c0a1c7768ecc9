//! The thread that makes all ptrace and wait calls for targets.
//!
//! The kernel accepts ptrace requests for a process only from the *thread* that has seized it. So
//! one thread of this process creates, seizes, continues and reaps all targets. A
//! [`Target`](crate::Target) is a handle for any thread.
//!
//! ```text
//!  Target ── command, reply ──► the thread                  the thread ── phase, eventfd ──► Target
//!                                │  waitpid(-1, __WALL | __WNOTHREAD)
//!                                ▼
//!          HELD ── release ──► RUNNING ── PTRACE_EVENT_EXIT ──► EXITING ── resume, or time limit ──► ENDED
//!            │                    │
//!            │                    └── signals are passed on, group stops last (PTRACE_LISTEN)
//!            └── release without hold ──► DETACHED
//! ```
//!
//! Of a process that is grabbed all threads are stopped (`grab`): until then it is STOPPING. All
//! but its first one are detached when it is released.
//!
//! Before it is released, a target that was created may run from its exec to a later moment of its
//! start (`start`), where it is held again.
//!
//! What targets fork can be held too: see [`children`].
//!
//! `__WNOTHREAD` restricts the wait to processes that this thread has seized or created. Children
//! of other threads are not reaped. A signal interrupts `waitpid` when there is a command. It is
//! sent to this thread alone and repeated until the command is executed, because it could arrive
//! just before the thread enters `waitpid`. It is an unused real-time signal whose handler does
//! nothing. (A thread cannot wait in `waitpid` and for a descriptor at the same time. A `signalfd`
//! for SIGCHLD would need that signal blocked in every thread of the program.)
//!
//! The thread runs as long as there is a target. When it ends, the kernel detaches the processes
//! that it has seized, without stopping them.

mod children;
mod create;
mod fatal;
mod limits;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::exec::{Exec, check};
use crate::grab::{Grab, Seized, ptrace, reap};
use crate::image::{Hook, Image, Linking, limited};
use crate::phase::{ExitStatus, Hold, Phase, TargetState, lock};
use crate::start::{Moment, Seek, Step, is_stop};
use limits::Changes;

/// How long it is waited for the stop of a process that is to be detached. It is detached later
/// then.
const STOPS: Duration = Duration::from_millis(100);

enum Command {
    Create(Exec, Sender<io::Result<(i32, Arc<TargetState>)>>),
    Grab(i32, Sender<io::Result<Arc<TargetState>>>),
    /// Looks again which threads a process has that is being stopped.
    Look(i32, Sender<()>),
    /// Lets a created target run until it has reached a moment, where it is held again.
    RunTo(i32, Moment, Sender<()>),
    /// Lets a target run.
    Release(i32, Option<Hold>, Sender<()>),
    ResumeExit(i32, Sender<()>),
    /// Lets a target run on that has changed.
    ResumeChange(i32, Sender<()>),
    /// Lets a child of a target run on that has executed a program.
    ResumeChild(i32, Sender<()>),
    /// Delivers the signals that end a target.
    ResumeFatal(i32, Sender<()>),
    Detach(i32, Sender<()>),
    Quit(Sender<()>),
}

#[derive(Default)]
struct Queue {
    commands: Mutex<VecDeque<Command>>,
    arrived: Condvar,
    /// The thread's id; 0 before the thread runs.
    thread: AtomicI32,
    /// Threads that whoever waits for a command reaps.
    seized: Seized,
    /// When an exit was last resumed on request.
    last_resume: Mutex<Option<Instant>>,
    changes: Arc<Changes>,
}

/// A handle of the thread. The thread ends with its last handle.
pub(crate) struct Tracer {
    queue: Arc<Queue>,
    join: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the thread: [`bpf_sys::forks`].
    forks: u32,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tracer")
    }
}

/// The signal that wakes the thread: the last real-time signal whose action is the default.
fn wake_signal() -> io::Result<i32> {
    extern "C" fn nothing(_: libc::c_int) {}
    static SIGNAL: OnceLock<Option<i32>> = OnceLock::new();
    let found = SIGNAL.get_or_init(|| {
        // SAFETY: all-zero is a valid sigaction. The handler does nothing and is never removed;
        // without SA_RESTART it makes the wait return.
        (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|signal| unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(*signal, std::ptr::null(), &mut action) < 0
                || action.sa_sigaction != libc::SIG_DFL
            {
                return false;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(*signal, &action, std::ptr::null_mut()) == 0
        })
    });
    found.ok_or_else(|| io::Error::other("no real-time signal is free"))
}

impl Tracer {
    /// The tracing thread of this process, which starts if there is none.
    pub(crate) fn get_or_start() -> io::Result<Arc<Tracer>> {
        static RUNNING: Mutex<Weak<Tracer>> = Mutex::new(Weak::new());
        let mut running = lock(&RUNNING);
        if let Some(tracer) = running.upgrade().filter(|tracer| tracer.is_here()) {
            return Ok(tracer);
        }
        let signal = wake_signal()?;
        let queue = Arc::new(Queue::default());
        let of_thread = queue.clone();
        let thread = Thread {
            queue: of_thread,
            tracees: HashMap::new(),
            threads: HashMap::new(),
            leaving: HashSet::new(),
            children: HashSet::new(),
            changing: HashSet::new(),
        };
        let body = move || thread.run(signal);
        let join = threads::spawn("ptrace", 128 << 10, body)?;
        let tracer = Arc::new(Tracer { queue, join: Mutex::new(Some(join)), forks: bpf_sys::forks() });
        *running = Arc::downgrade(&tracer);
        Ok(tracer)
    }

    /// False in a forked child of the process that has the thread.
    pub(crate) fn is_here(&self) -> bool {
        self.forks == bpf_sys::forks()
    }

    /// Sends a command and waits until it is executed.
    fn send<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> io::Result<T> {
        let signal = wake_signal()?;
        let (sender, reply): (_, Receiver<T>) = channel();
        lock(&self.queue.commands).push_back(command(sender));
        self.queue.arrived.notify_all();
        loop {
            let thread = self.queue.thread.load(Ordering::SeqCst);
            if thread != 0 {
                // SAFETY: plain system call; the thread runs as long as this handle exists.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
            }
            match reply.recv_timeout(Duration::from_millis(1)) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) => reap(&self.queue.seized),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the tracing thread has ended"));
                }
            }
        }
    }

    pub(crate) fn create(&self, exec: Exec) -> io::Result<(i32, Arc<TargetState>)> {
        self.send(|reply| Command::Create(exec, reply))?
    }

    /// Begins to stop a process: when it has stopped, its descriptor is readable.
    pub(crate) fn grab(&self, pid: i32) -> io::Result<Arc<TargetState>> {
        self.send(|reply| Command::Grab(pid, reply))?
    }

    /// Looks again which threads a process has that is being stopped.
    pub(crate) fn look(&self, pid: i32) {
        let _ = self.send(|reply| Command::Look(pid, reply));
    }

    pub(crate) fn release(&self, pid: i32, hold: Option<Hold>) {
        let _ = self.send(|reply| Command::Release(pid, hold, reply));
    }

    /// Lets a created target run until it has reached a moment: then its descriptor is readable.
    pub(crate) fn run_to(&self, pid: i32, moment: Moment) {
        let _ = self.send(|reply| Command::RunTo(pid, moment, reply));
    }

    pub(crate) fn resume_exit(&self, pid: i32) {
        *lock(&self.queue.last_resume) = Some(Instant::now());
        let _ = self.send(|reply| Command::ResumeExit(pid, reply));
    }

    pub(crate) fn resume_change(&self, pid: i32) {
        let _ = self.send(|reply| Command::ResumeChange(pid, reply));
    }

    pub(crate) fn resume_child(&self, pid: i32) {
        let _ = self.send(|reply| Command::ResumeChild(pid, reply));
    }

    pub(crate) fn resume_fatal(&self, pid: i32) {
        let _ = self.send(|reply| Command::ResumeFatal(pid, reply));
    }

    /// Removes a target, which continues to run.
    pub(crate) fn detach(&self, pid: i32) {
        let _ = self.send(|reply| Command::Detach(pid, reply));
    }
}

/// Asks for a command without a handle of the tracing thread, which may end meanwhile.
fn request(queue: &Arc<Queue>, command: impl FnOnce(Sender<()>) -> Command) {
    let Ok(signal) = wake_signal() else { return };
    let (sender, reply) = channel();
    lock(&queue.commands).push_back(command(sender));
    queue.arrived.notify_all();
    while reply.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
        let thread = queue.thread.load(Ordering::SeqCst);
        // SAFETY: plain system call. If the thread has ended, the error is ignored.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
        if Arc::strong_count(queue) == 1 {
            return;
        }
    }
}

/// The events of ptrace that a target needs which is held again.
fn events(hold: Hold) -> i32 {
    let one = |wanted: bool, event: i32| if wanted { event } else { 0 };
    one(hold.exit, libc::PTRACE_O_TRACEEXIT)
        | one(hold.changes || hold.fatal, libc::PTRACE_O_TRACEEXEC)
        | one(hold.fatal, libc::PTRACE_O_TRACECLONE)
        | one(hold.forks, children::FORKS)
}

/// True if the signal for which a process has stopped was sent by the kernel, and by no process.
fn is_from_kernel(pid: i32) -> bool {
    const SI_KERNEL: i32 = 0x80;
    // SAFETY: all-zero is a valid siginfo, which the kernel fills.
    let info = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let data = (&raw mut info).cast::<libc::c_void>();
        (libc::ptrace(libc::PTRACE_GETSIGINFO, pid, std::ptr::null_mut::<libc::c_void>(), data) == 0)
            .then_some(info)
    };
    info.is_some_and(|info| info.si_code == SI_KERNEL)
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        let _ = self.send(Command::Quit);
        if let Some(join) = lock(&self.join).take() {
            let _ = join.join();
        }
    }
}

struct Tracee {
    created: bool,
    /// Seized and not yet detached.
    traced: bool,
    /// Where the target is held again.
    hold: Option<Hold>,
    /// Where its dynamic linker tells of its libraries, once that was looked for in the program
    /// that it runs.
    linker: Option<Option<Hook>>,
    /// It is about to stop, because it has told that its libraries are complete.
    linked: bool,
    /// The target runs to a moment of its start.
    seek: Option<Seek>,
    /// The threads of a process that was grabbed, until it is released.
    grab: Option<Grab>,
    shared: Arc<TargetState>,
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl Tracee {
    fn run_to(&mut self, pid: i32, moment: Moment) {
        let (seek, runs) = Seek::begin(pid, moment);
        self.seek = Some(seek);
        if runs {
            self.shared.set(Phase::Running);
            ptrace(libc::PTRACE_CONT, pid, 0);
        } else {
            self.arrive();
        }
    }

    /// True if the dynamic linker has told of a complete list of libraries.
    fn is_linked(&mut self, pid: i32) -> bool {
        let find = || Image::of(pid).and_then(|image| limited(move || image.hook()));
        let hook = *self.linker.get_or_insert_with(find);
        hook.is_none_or(|hook| hook.state(true) == Linking::Done)
    }

    fn arrive(&mut self) {
        self.shared.set_note(self.seek.take().and_then(|seek| seek.note));
        self.shared.set(Phase::Held);
    }
}

struct Thread {
    queue: Arc<Queue>,
    tracees: HashMap<i32, Tracee>,
    /// The processes of threads other than the first one.
    threads: HashMap<i32, i32>,
    /// Threads that are detached as soon as they have stopped.
    leaving: HashSet<i32>,
    /// Processes that targets have forked, and these.
    children: HashSet<i32>,
    /// Those of them that are about to stop, because they have mapped what their tracer looks for.
    changing: HashSet<i32>,
}

impl Thread {
    fn run(mut self, signal: i32) {
        // SAFETY: the set is local. Other threads handle all signals except the wake signal.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut mask);
            libc::sigdelset(&mut mask, signal);
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            self.queue.thread.store(libc::gettid(), Ordering::SeqCst);
        }
        loop {
            let next = lock(&self.queue.commands).pop_front();
            if let Some(command) = next {
                let is_last = self.execute(command);
                if is_last {
                    self.tracees.clear();
                }
                self.queue.changes.tell();
                if is_last {
                    return;
                }
                continue;
            }
            let waits = !self.tracees.is_empty() || !self.leaving.is_empty() || !self.children.is_empty();
            if !waits || !self.wait() {
                // Only commands to wait for. The wait is retried each second in case an event was
                // missed.
                let commands = lock(&self.queue.commands);
                if commands.is_empty() {
                    drop(self.queue.arrived.wait_timeout(commands, Duration::from_secs(1)));
                }
            }
        }
    }

    /// Waits for an event of a process. Returns false if there is no process to wait for.
    fn wait(&mut self) -> bool {
        let mut status = 0;
        // SAFETY: status is a valid int.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        match check(pid.into()) {
            Ok(_) => self.event(pid, status),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return true,
            // Nobody is left to wait for.
            Err(_) => {
                self.find_taken();
                return false;
            }
        }
        self.queue.changes.tell();
        true
    }

    /// The target has ended.
    fn ended(&mut self, pid: i32, status: ExitStatus) {
        if let Some(tracee) = self.tracees.get(&pid) {
            tracee.shared.set(Phase::Ended(status));
        }
        self.detach_others(pid);
        self.threads.retain(|_, process| *process != pid);
        let tracee = self.tracees.remove(&pid);
        tracee.iter().for_each(|tracee| self.resume_children_of(&tracee.shared));
    }

    /// Targets for which another part of this program has waited have ended. (One that waits for
    /// all children takes ours too, as the kernel makes no difference between threads there.)
    fn find_taken(&mut self) {
        // SAFETY: a plain system call; no signal is sent.
        let is_gone = |pid: &i32| unsafe { libc::kill(*pid, 0) } < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        let gone: Vec<_> =
            self.tracees.iter().filter(|(pid, _)| is_gone(pid)).map(|(pid, t)| (*pid, t.created)).collect();
        for (pid, created) in gone {
            self.ended(pid, if created { ExitStatus::Taken } else { ExitStatus::Unknown });
        }
    }

    fn event(&mut self, id: i32, status: i32) {
        let (event, signal) = (status >> 16, (status >> 8) & 0xff);
        if self.leaving.remove(&id) && libc::WIFSTOPPED(status) {
            // A signal is delivered.
            ptrace(libc::PTRACE_DETACH, id, if event == 0 { signal } else { 0 });
            return;
        }
        if self.thread_event(id, status) || self.child_event(id, status) {
            return;
        }
        let pid = self.threads.get(&id).copied().unwrap_or(id);
        let Some(tracee) = self.tracees.get_mut(&pid) else { return };
        let ended = id == pid && !libc::WIFSTOPPED(status);
        if let Some(grab) = tracee.grab.as_mut().filter(|_| !ended) {
            if grab.event(id, status) {
                self.look(pid);
            }
            return;
        }
        if !libc::WIFSTOPPED(status) {
            let ended = match tracee.created {
                false => ExitStatus::Unknown,
                true if libc::WIFEXITED(status) => ExitStatus::Exited(libc::WEXITSTATUS(status)),
                true => ExitStatus::Signaled(libc::WTERMSIG(status)),
            };
            self.ended(pid, ended);
            // Should they have ended at the same time.
            self.find_taken();
            return;
        }
        if event == libc::PTRACE_EVENT_EXEC {
            self.lose_memory(pid);
        }
        let Some(tracee) = self.tracees.get_mut(&pid) else { return };
        if let Some(seek) = &mut tracee.seek {
            match seek.stopped(event, signal) {
                Step::Continue(signal) => ptrace(libc::PTRACE_CONT, pid, signal),
                Step::Listen => ptrace(libc::PTRACE_LISTEN, pid, 0),
                Step::Interrupt => {
                    ptrace(libc::PTRACE_INTERRUPT, pid, 0);
                    ptrace(libc::PTRACE_CONT, pid, 0);
                }
                Step::Arrived => tracee.arrive(),
            }
            return;
        }
        if let Some(hold) = tracee.hold.filter(|_| event == libc::PTRACE_EVENT_STOP) {
            // Of a process that did not stop in time when it was grabbed.
            ptrace(libc::PTRACE_SETOPTIONS, pid, events(hold));
        }
        if let Some(hold) = tracee.hold.filter(|hold| hold.changes) {
            let interrupted = event == libc::PTRACE_EVENT_STOP && !is_stop(signal);
            if event == 0 && signal == libc::SIGCHLD && is_from_kernel(pid) {
                // From an event stop the process runs on unchanged, should the tracer die.
                tracee.linked = tracee.is_linked(pid);
                if tracee.linked {
                    ptrace(libc::PTRACE_INTERRUPT, pid, 0);
                }
                ptrace(libc::PTRACE_CONT, pid, 0);
                return;
            }
            if event == libc::PTRACE_EVENT_EXEC || interrupted && std::mem::take(&mut tracee.linked) {
                if event == libc::PTRACE_EVENT_EXEC {
                    tracee.linker = None;
                }
                tracee.shared.set(Phase::Changing);
                self.resume_change_after(pid, hold.limit);
                return;
            }
        }
        match (event, tracee.hold) {
            (libc::PTRACE_EVENT_EXIT, Some(hold)) => {
                tracee.shared.set(Phase::Exiting);
                self.resume_exit_after(pid, hold.limit);
            }
            (libc::PTRACE_EVENT_STOP, _) if is_stop(signal) => ptrace(libc::PTRACE_LISTEN, pid, 0),
            // A signal is delivered. Other stops need no action.
            (0, _) => ptrace(libc::PTRACE_CONT, pid, signal),
            _ => ptrace(libc::PTRACE_CONT, pid, 0),
        }
    }

    fn resume_change(&mut self, pid: i32) {
        let Some(tracee) = self.tracees.get_mut(&pid) else { return };
        if tracee.shared.phase() == Phase::Changing {
            tracee.shared.clear();
            tracee.shared.set(Phase::Running);
            ptrace(libc::PTRACE_CONT, pid, 0);
        }
    }

    /// Executes a command. Returns true if it was the last one.
    fn execute(&mut self, command: Command) -> bool {
        // The sender may have ended: replies may fail.
        match command {
            Command::Create(exec, reply) => {
                let _ = reply.send(self.create(&exec));
            }
            Command::Grab(pid, reply) => {
                let _ = reply.send(self.grab(pid));
            }
            Command::Look(pid, reply) => {
                self.look(pid);
                let _ = reply.send(());
            }
            Command::RunTo(pid, moment, reply) => {
                if let Some(tracee) = self.tracees.get_mut(&pid) {
                    tracee.run_to(pid, moment);
                }
                let _ = reply.send(());
            }
            Command::Release(pid, hold, reply) => {
                self.release(pid, hold);
                let _ = reply.send(());
            }
            Command::ResumeExit(pid, reply) => {
                let tracee = self.tracees.get(&pid);
                let exits = tracee.is_some_and(|t| t.grab.is_none() && t.shared.phase() == Phase::Exiting);
                if exits && !self.resume_first(pid) {
                    self.release(pid, None);
                }
                let _ = reply.send(());
            }
            Command::ResumeChange(pid, reply) => {
                self.resume_change(pid);
                let _ = reply.send(());
            }
            Command::ResumeChild(pid, reply) => {
                self.resume_child(pid);
                let _ = reply.send(());
            }
            Command::ResumeFatal(pid, reply) => {
                self.resume_fatal(pid);
                let _ = reply.send(());
            }
            Command::Detach(pid, reply) => {
                self.detach(pid);
                let _ = reply.send(());
            }
            Command::Quit(reply) => {
                self.queue.thread.store(0, Ordering::SeqCst);
                let _ = reply.send(());
                return true;
            }
        }
        false
    }

    fn insert(&mut self, pid: i32, created: bool, grab: Option<Grab>) -> io::Result<Arc<TargetState>> {
        let shared = TargetState::new()?;
        let traced = grab.as_ref().is_none_or(Grab::has_first);
        let tracee = Tracee {
            created,
            traced,
            hold: None,
            linker: None,
            linked: false,
            seek: None,
            grab,
            shared: shared.clone(),
        };
        self.tracees.insert(pid, tracee);
        Ok(shared)
    }

    /// Looks which threads a process has that is being stopped, and whether all have stopped.
    fn look(&mut self, pid: i32) {
        let Some(tracee) = self.tracees.get_mut(&pid) else { return };
        let Some(grab) = &mut tracee.grab else { return };
        let all = grab.look();
        tracee.traced = grab.has_first();
        self.threads.extend(grab.others().map(|thread| (thread, pid)));
        if all && tracee.shared.phase() == Phase::Stopping {
            tracee.shared.set(Phase::Held);
        }
    }

    /// Detaches all threads but the first one of a process that was grabbed. Returns what is known
    /// of the first one.
    fn detach_others(&mut self, pid: i32) -> Option<Grab> {
        let grab = self.tracees.get_mut(&pid)?.grab.take()?;
        self.threads.retain(|_, process| *process != pid);
        for thread in grab.others() {
            lock(&self.queue.seized).remove(&thread);
            match grab.has_stopped(thread) {
                true => ptrace(libc::PTRACE_DETACH, thread, 0),
                false => _ = self.leaving.insert(thread),
            }
        }
        Some(grab)
    }

    fn release(&mut self, pid: i32, hold: Option<Hold>) {
        let keeps = hold.is_some_and(|hold| hold.fatal);
        let grab = match keeps {
            true => self.tracees.get_mut(&pid).and_then(|tracee| tracee.grab.take()),
            false => self.detach_others(pid),
        };
        grab.iter().filter(|_| keeps).for_each(|grab| self.keep_threads(grab));
        let Some(tracee) = self.tracees.get_mut(&pid) else { return };
        let hold = hold.filter(|_| tracee.traced);
        tracee.hold = hold;
        let shared = tracee.shared.clone();
        if !hold.is_some_and(|hold| hold.forks) {
            self.resume_children_of(&shared);
        }
        let Some(tracee) = self.tracees.get_mut(&pid) else { return };
        tracee.shared.clear();
        tracee.shared.set(if hold.is_some() { Phase::Running } else { Phase::Detached });
        let is_running = grab.as_ref().is_some_and(|grab| !grab.has_stopped(pid));
        let Some(events) = hold.map(events) else {
            if std::mem::take(&mut tracee.traced) {
                match is_running {
                    true => _ = self.leaving.insert(pid),
                    false => ptrace(libc::PTRACE_DETACH, pid, 0),
                }
            }
            // A child must still be reaped.
            if !tracee.created {
                self.tracees.remove(&pid);
            }
            return;
        };
        if is_running {
            // Its event is still to come.
            return;
        }
        ptrace(libc::PTRACE_SETOPTIONS, pid, events);
        match grab.is_some_and(|grab| grab.is_in_group_stop(pid)) {
            // The process was in a group stop before it was seized, and stays stopped until
            // SIGCONT.
            true => ptrace(libc::PTRACE_LISTEN, pid, 0),
            false => ptrace(libc::PTRACE_CONT, pid, 0),
        }
    }

    fn detach(&mut self, pid: i32) {
        self.resume_fatal(pid);
        let grab = self.detach_others(pid);
        for (thread, _) in self.threads.extract_if(|_, process| *process == pid) {
            ptrace(libc::PTRACE_INTERRUPT, thread, 0);
            self.leaving.insert(thread);
        }
        let Some(tracee) = self.tracees.remove(&pid).filter(|t| t.traced) else { return };
        self.resume_children_of(&tracee.shared);
        let is_running = grab.is_some_and(|grab| !grab.has_stopped(pid));
        if is_running || tracee.shared.phase() == Phase::Running {
            // Only a stopped process can be detached.
            ptrace(libc::PTRACE_INTERRUPT, pid, 0);
            self.leaving.insert(pid);
            let begun = Instant::now();
            while self.leaving.contains(&pid) && begun.elapsed() < STOPS {
                let mut status = 0;
                // SAFETY: status is a valid int.
                match unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::WNOHANG) } {
                    0 => std::thread::sleep(Duration::from_micros(100)),
                    1.. => self.event(pid, status),
                    _ => break,
                }
            }
            return;
        }
        ptrace(libc::PTRACE_DETACH, pid, 0);
    }

    fn grab(&mut self, pid: i32) -> io::Result<Arc<TargetState>> {
        let grab = Grab::begin(pid, self.queue.seized.clone())?;
        let shared = self.insert(pid, false, Some(grab))?;
        shared.set(Phase::Stopping);
        self.look(pid);
        Ok(shared)
    }
}
