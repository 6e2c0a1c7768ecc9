//! A process that is traced from its start (`-c`) or from the call on (`-p`).

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diagnostics::system_text;

use crate::exec::{Exec, TargetOutput};
use crate::namespace::require_own_proc;
use crate::phase::{ExitStatus, Hold, Phase, TargetState, lock, signal_name, taken};
use crate::poll::poll_readable;
use crate::refusal::{loses_privileges, why_not};
use crate::start::Moment;
use crate::tracer::Tracer;

/// How long it is waited until a process has stopped that is grabbed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a target could not be created or grabbed.
#[derive(Debug)]
pub enum Error {
    /// `-c`: the command and the reason.
    Create(String, io::Error),
    /// `-p`: the process and the reason.
    Grab(i32, io::Error),
    /// `-c`: the process that ended before the moment at which it was to be held, and how.
    Control(i32, ExitStatus),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Create(command, _) if command.is_empty() => {
                f.write_str("failed to execute an empty command")
            }
            Error::Create(command, e) => write!(f, "failed to execute {command}: {}", system_text(e)),
            Error::Grab(pid, e) => write!(f, "failed to grab pid {pid}: {}", system_text(e)),
            Error::Control(pid, ExitStatus::Exited(status)) => {
                write!(f, "failed to control pid {pid}: process exited with status {status}")
            }
            Error::Control(pid, ExitStatus::Signaled(signal)) => {
                write!(f, "failed to control pid {pid}: process died from {}", signal_name(*signal))
            }
            Error::Control(pid, ExitStatus::Unknown) => {
                write!(f, "failed to control pid {pid}: process has ended")
            }
            Error::Control(pid, ExitStatus::Taken) => {
                write!(f, "failed to control pid {pid}: {}", taken())
            }
        }
    }
}

impl std::error::Error for Error {}

/// Changes of the environment of a process that is created. It is otherwise that of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names of variables that are unset.
    pub unset: Vec<OsString>,
    /// Variables that are set, after that.
    pub set: Vec<(OsString, OsString)>,
    /// Where what it writes goes.
    pub output: TargetOutput,
}

impl Environment {
    /// All variables, as `NAME=value`.
    fn variables(&self) -> io::Result<Vec<CString>> {
        let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        self.unset.iter().for_each(|name| _ = all.remove(name));
        all.extend(self.set.iter().cloned());
        let line =
            |(name, value): (OsString, OsString)| [&name.into_vec()[..], b"=", &value.into_vec()].concat();
        Ok(all.into_iter().map(|variable| CString::new(line(variable))).collect::<Result<_, _>>()?)
    }
}

/// A traced process.
#[derive(Debug)]
pub struct Target {
    pid: libc::pid_t,
    created: bool,
    held: bool,
    pidfd: OwnedFd,
    shared: Arc<TargetState>,
    tracer: Arc<Tracer>,
}

impl Target {
    /// Runs `command` (split on blanks, no shell) and stops it at the end of its exec.
    pub fn create(command: impl AsRef<[u8]>) -> Result<Target, Error> {
        Target::create_with(command, &Environment::default())
    }

    /// As [`Target::create`], in a changed environment. The program itself is found by the `PATH`
    /// of this process.
    pub fn create_with(command: impl AsRef<[u8]>, environment: &Environment) -> Result<Target, Error> {
        Target::created(&words(command.as_ref()), environment, None)
    }

    fn created(words: &[&[u8]], environment: &Environment, memory: Option<u64>) -> Result<Target, Error> {
        create(words, environment, memory).map_err(|e| of_create(words, e))
    }

    /// As [`Target::create_with`]. The process then runs to a moment of its start and is stopped
    /// there. If that is not possible, it is stopped at another one, and [`Target::note`] says why.
    /// Returns when the process has stopped: what it runs until then can take any time.
    pub fn create_at(
        command: impl AsRef<[u8]>,
        environment: &Environment,
        moment: Moment,
    ) -> Result<Target, Error> {
        Target::create_with_memory(command, environment, moment, None)
    }

    /// As [`Target::create_at`]. The process maps private memory of this size, rounded up to pages,
    /// before its first instruction: with one `mmap` of its own, by which nothing else of it is
    /// changed. Until it is released it ends with this process, so that nobody meets it in the
    /// middle of that. Where it could not, [`Target::lost_memory`] says why. Where it executes
    /// another program later, the memory is lost.
    pub fn create_with_memory(
        command: impl AsRef<[u8]>,
        environment: &Environment,
        moment: Moment,
        memory: Option<u64>,
    ) -> Result<Target, Error> {
        Target::create_of_words(&words(command.as_ref()), environment, moment, memory)
    }

    /// As [`Target::create_with_memory`], by words of which each is an argument, whatever is in it.
    pub fn create_of_words(
        words: &[impl AsRef<[u8]>],
        environment: &Environment,
        moment: Moment,
        memory: Option<u64>,
    ) -> Result<Target, Error> {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let mut target = Target::created(&words, environment, memory)?;
        if moment > Moment::Exec {
            target.run_to(moment).map_err(|e| of_create(&words, e))?;
        }
        match target.exit_status() {
            None => Ok(target),
            Some(status) => Err(Error::Control(target.pid, status)),
        }
    }

    fn run_to(&mut self, moment: Moment) -> io::Result<()> {
        self.tracer.run_to(self.pid, moment);
        while self.shared.phase() == Phase::Running {
            poll_readable(&[self.shared.event().as_raw_fd()], Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// Why the process was not stopped, or not at the moment that [`Target::create_at`] was asked
    /// for.
    pub fn note(&self) -> Option<String> {
        self.shared.note()
    }

    /// Stops the process `pid`, with all of its threads. One that waits in the kernel is not waited
    /// for longer than a few seconds: [`Target::note`] says so.
    pub fn grab(pid: i32) -> Result<Target, Error> {
        require_own_proc().and_then(|()| grab(pid, PATIENCE)).map_err(|e| Error::Grab(pid, e))
    }

    /// The process id, in the pid namespace of this process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Detaches the process, which then runs. A process that died meanwhile is no error: see
    /// [`Target::exit_status`].
    pub fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.tracer.release(self.pid, None);
        }
    }

    /// Lets the process run, and holds it again at its exit, until [`Target::resume_exit`], or
    /// where it changes, until [`Target::resume_change`]. Until it ends the process stays traced:
    /// no debugger can attach to it, and the tracer passes on each signal to its first thread.
    /// (Other threads are not traced, and nothing holds them.)
    pub fn release_with(&mut self, hold: Hold) {
        if std::mem::take(&mut self.held) {
            let holds = hold.exit || hold.changes || hold.forks || hold.fatal;
            self.tracer.release(self.pid, holds.then_some(hold));
        }
    }

    /// As [`Target::release_with`], held at its exit only.
    pub fn release_until_exit(&mut self, limit: Duration) {
        self.release_with(Hold { exit: true, changes: false, forks: false, fatal: false, limit });
    }

    /// True while the process is held where it has executed a program or changed its libraries.
    pub fn has_changed(&self) -> bool {
        self.shared.phase() == Phase::Changing
    }

    /// Resumes a process that is held where it has changed.
    pub fn resume_change(&mut self) {
        if self.has_changed() {
            self.tracer.resume_change(self.pid);
        }
    }

    /// The children that are held where they have executed a program, until
    /// [`Target::resume_child`].
    pub fn held_children(&self) -> Vec<i32> {
        self.shared.held_children()
    }

    /// Resumes a child that is held.
    pub fn resume_child(&self, pid: i32) {
        self.tracer.resume_child(pid);
    }

    /// Bytes of the private memory that the process has mapped for its tracer: see
    /// [`Target::create_with_memory`].
    pub fn memory(&self) -> Option<u64> {
        lock(&self.shared.memory).map(|memory| memory.size)
    }

    /// Whether the process was created, and did not run before.
    pub fn is_created(&self) -> bool {
        self.created
    }

    /// Writes to the begin of the memory of [`Target::create_with_memory`].
    pub fn write_memory(&self, bytes: &[u8]) -> io::Result<()> {
        let memory = *lock(&self.shared.memory);
        let memory = memory.filter(|memory| bytes.len() as u64 <= memory.size);
        let memory = memory.ok_or_else(|| io::Error::other("it has no such memory"))?;
        // The first thread may have exited, and has no memory then.
        let thread = self.shared.fatal().map_or(self.pid, |(thread, _)| thread);
        crate::inject::write(thread, memory.address, bytes)
    }

    /// Why the process could not map the memory, or has lost it; once.
    pub fn lost_memory(&self) -> Option<String> {
        self.shared.take_lost()
    }

    /// The thread and the signal that is about to end the process with a core file, if it is held
    /// so.
    pub fn fatal_signal(&self) -> Option<(i32, i32)> {
        self.shared.fatal()
    }

    /// Delivers the signal for which the process is held.
    pub fn resume_fatal(&mut self) {
        self.tracer.resume_fatal(self.pid);
    }

    /// True while the process is held at its exit.
    pub fn is_exiting(&self) -> bool {
        self.shared.phase() == Phase::Exiting
    }

    /// Resumes a process that is held at its exit.
    pub fn resume_exit(&mut self) {
        if self.is_exiting() {
            self.tracer.resume_exit(self.pid);
        }
    }

    /// A descriptor that is readable (poll) when the process is held again or has ended.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        let is_detached = !self.created && self.shared.phase() == Phase::Detached;
        if is_detached { self.pidfd.as_fd() } else { self.shared.event() }
    }

    /// How the process ended; `None` while it lives.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if let Phase::Ended(status) = self.shared.phase() {
            self.held = false;
            return Some(status);
        }
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, count 1.
        if self.created || unsafe { libc::poll(&mut poll, 1, 0) } <= 0 {
            return None;
        }
        self.held = false;
        Some(ExitStatus::Unknown)
    }
}

impl Drop for Target {
    /// Releases a target that was never released. A created process that still lives is killed, as
    /// in the original: it was started for the session. (One whose tracer is killed goes on once it
    /// runs.) A forked child of the session's process leaves it as it is.
    fn drop(&mut self) {
        if !self.tracer.is_here() {
            return;
        }
        if self.created && self.exit_status().is_none() {
            let (fd, none) = (self.pidfd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
            // SAFETY: plain system call; the signal has no further information.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
        }
        self.release();
        // The thread ends with its last target. The kernel then detaches the processes without
        // stopping them.
        if Arc::strong_count(&self.tracer) > 1 {
            self.tracer.detach(self.pid);
        }
    }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn pidfd_open(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without memory.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The paths that execvp would try, in order.
fn candidates(program: &[u8]) -> io::Result<Vec<CString>> {
    let list = if program.contains(&b'/') {
        vec![program.to_vec()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into()).into_vec();
        let directories = path.split(|b| *b == b':').map(|d| if d.is_empty() { b"." } else { d });
        directories.map(|d| [d, b"/", program].concat()).collect()
    };
    Ok(list.into_iter().map(CString::new).collect::<Result<_, _>>()?)
}

/// The words of a command, which blanks separate.
fn words(command: &[u8]) -> Vec<&[u8]> {
    command.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect()
}

/// The error of creating a process, with the name of its program.
fn of_create(words: &[&[u8]], e: io::Error) -> Error {
    Error::Create(diagnostics::control::name(words.first().unwrap_or(&&b""[..])).into_owned(), e)
}

fn create(words: &[&[u8]], environment: &Environment, memory: Option<u64>) -> io::Result<Target> {
    let list = words.iter().map(|word| CString::new(*word)).collect::<Result<Vec<_>, _>>()?;
    let Some(program) = words.first() else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    require_own_proc()?;
    let paths = candidates(program)?;
    // SAFETY: the kernel fills the set; nothing is changed.
    let mask = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        mask
    };
    let tracer = Tracer::get_or_start()?;
    let (pid, shared) = tracer.create(Exec {
        words: list,
        paths,
        environment: environment.variables()?,
        output: environment.output,
        mask,
        memory,
    })?;
    // The process is stopped and not reaped, so the pid is not reused.
    let pidfd = pidfd_open(pid);
    let pidfd = pidfd.inspect_err(|_| {
        // SAFETY: plain system call; the pid is our unreaped child.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    })?;
    let target = Target { pid, created: true, held: true, pidfd, shared, tracer };
    if loses_privileges(pid) {
        return Err(io::Error::other("it is a set-id program, and tracing it needs CAP_SYS_PTRACE"));
    }
    Ok(target)
}

/// As [`Target::grab`], which waits for `patience` until all threads have stopped.
fn grab(pid: libc::pid_t, patience: Duration) -> io::Result<Target> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let pidfd = pidfd_open(pid).map_err(|e| why_not(pid, e))?;
    let tracer = Tracer::get_or_start()?;
    let shared = tracer.grab(pid).map_err(|e| why_not(pid, e))?;
    let mut target = Target { pid, created: false, held: true, pidfd, shared, tracer };
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(1));
    while target.shared.phase() == Phase::Stopping {
        if begun.elapsed() > patience {
            let text = "it waits in the kernel and does not stop, so it is not held while tracing begins";
            target.shared.set_note(Some(text.into()));
            break;
        }
        if !poll_readable(&[target.shared.event().as_raw_fd()], pause)?.contains(&true) {
            if target.exit_status().is_some() {
                break;
            }
            target.tracer.look(pid);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }
    match target.exit_status() {
        None => Ok(target),
        Some(_) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

#[cfg(test)]
mod tests;
