//! A process that is traced from its start (`-c`) or from the call on (`-p`).
//!
//! ARCH(x86-64): the numbers of signals.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use diagnostics::system_text;

use crate::phase::{ExitStatus, Phase, Shared};
use crate::poll::poll_readable;
use crate::refusal::{loses_privileges, why_not};
use crate::start::Moment;
use crate::tracer::{Exec, Tracer};

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
        }
    }
}

impl std::error::Error for Error {}

/// The name of a signal, as in `SIGTERM`.
pub fn signal_name(signal: i32) -> String {
    // The numbers are those of x86 and of every newer architecture.
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal - 1).ok().and_then(|at| NAMES.get(at)) {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}

/// Changes of the environment of a process that is created. It is otherwise that of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names of variables that are unset.
    pub unset: Vec<OsString>,
    /// Variables that are set, after that.
    pub set: Vec<(OsString, OsString)>,
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
    shared: Arc<Shared>,
    tracer: Arc<Tracer>,
}

impl Target {
    /// Runs `command` (split on blanks, no shell) and stops it at the end of its exec.
    pub fn create(command: impl AsRef<[u8]>) -> Result<Target, Error> {
        Target::create_with(command, &Environment::default())
    }

    /// As [`Target::create`], in a changed environment. The program itself is found by the `PATH` of
    /// this process.
    pub fn create_with(command: impl AsRef<[u8]>, environment: &Environment) -> Result<Target, Error> {
        let command = command.as_ref();
        create(command, environment).map_err(|e| {
            let program = words(command).next().unwrap_or_default();
            Error::Create(diagnostics::control::name(program).into_owned(), e)
        })
    }

    /// As [`Target::create_with`]. The process then runs to a moment of its start and is stopped
    /// there. If that is not possible, it is stopped at another one, and [`Target::note`] says why.
    /// Returns when the process has stopped: what it runs until then can take any time.
    pub fn create_at(
        command: impl AsRef<[u8]>,
        environment: &Environment,
        moment: Moment,
    ) -> Result<Target, Error> {
        let command = command.as_ref();
        let mut target = Target::create_with(command, environment)?;
        if moment > Moment::Exec {
            target.run_to(moment).map_err(|e| {
                let program = words(command).next().unwrap_or_default();
                Error::Create(diagnostics::control::name(program).into_owned(), e)
            })?;
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

    /// Why the process was not stopped at the moment that [`Target::create_at`] was asked for.
    pub fn note(&self) -> Option<String> {
        self.shared.note()
    }

    /// Stops the process `pid`.
    pub fn grab(pid: i32) -> Result<Target, Error> {
        grab(pid).map_err(|e| Error::Grab(pid, e))
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

    /// Lets the process run, and holds it at its exit, with its address space, until
    /// [`Target::resume_exit`], for at most `limit`. Until then the process stays traced: no
    /// debugger can attach to it, and the tracer passes on each signal to its first thread.
    pub fn release_until_exit(&mut self, limit: Duration) {
        if std::mem::take(&mut self.held) {
            self.tracer.release(self.pid, Some(limit));
        }
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

    /// A descriptor that is readable (poll) when the process is held at its exit or has ended.
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
    /// Releases a target that was never released. A created process that never ran is killed, as in
    /// the original.
    fn drop(&mut self) {
        if self.held && self.created {
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
fn words(command: &[u8]) -> impl Iterator<Item = &[u8]> {
    command.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

fn create(command: &[u8], environment: &Environment) -> io::Result<Target> {
    let list = words(command).map(CString::new).collect::<Result<Vec<_>, _>>()?;
    let Some(program) = words(command).next() else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    let paths = candidates(program)?;
    // SAFETY: the kernel fills the set; nothing is changed.
    let mask = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        mask
    };
    let tracer = Tracer::get_or_start()?;
    let (pid, shared) =
        tracer.create(Exec { words: list, paths, environment: environment.variables()?, mask })?;
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

fn grab(pid: libc::pid_t) -> io::Result<Target> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let pidfd = pidfd_open(pid).map_err(|e| why_not(pid, e))?;
    let tracer = Tracer::get_or_start()?;
    let shared = tracer.grab(pid).map_err(|e| why_not(pid, e))?;
    Ok(Target { pid, created: false, held: true, pidfd, shared, tracer })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of(pid: i32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|s| s.trim().chars().next()).unwrap_or('?')
    }

    fn tracer_of(pid: i32) -> i32 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("TracerPid:")).unwrap();
        line.trim().parse().unwrap()
    }

    fn wait_until(mut done: impl FnMut() -> bool) {
        for _ in 0..30_000 {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the condition did not become true");
    }

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(600);

    fn sleeper() -> std::process::Child {
        std::process::Command::new("sleep").arg("100").spawn().unwrap()
    }

    fn signal(pid: i32, signal: i32) {
        // SAFETY: a process that was not reaped yet.
        unsafe { libc::kill(pid, signal) };
    }

    fn wait_end(t: &mut Target) -> ExitStatus {
        for _ in 0..30_000 {
            if let Some(e) = t.exit_status() {
                return e;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the target did not end");
    }

    #[test]
    fn a_created_target_stops_after_exec_until_it_is_released() {
        let mut t = Target::create("sh -c exit\t3").unwrap();
        assert_eq!(std::fs::read_to_string(format!("/proc/{}/comm", t.pid())).unwrap(), "sh\n");
        assert_eq!(state_of(t.pid()), 't');
        assert_eq!(t.exit_status(), None);
        t.release();
        assert!(matches!(wait_end(&mut t), ExitStatus::Exited(_)));
    }

    #[test]
    fn the_exit_status_or_the_signal_of_a_created_target_is_reported() {
        let mut t = Target::create("false").unwrap();
        t.release();
        assert_eq!(wait_end(&mut t), ExitStatus::Exited(1));
        let mut t = Target::create("sleep 100").unwrap();
        t.release();
        // SAFETY: our own child.
        unsafe { libc::kill(t.pid(), libc::SIGTERM) };
        assert_eq!(wait_end(&mut t), ExitStatus::Signaled(libc::SIGTERM));
        let names = [libc::SIGTERM, libc::SIGSEGV, libc::SIGSYS, 40].map(signal_name);
        assert_eq!(names, ["SIGTERM", "SIGSEGV", "SIGSYS", "signal 40"]);
    }

    #[test]
    fn a_command_that_does_not_exist_is_named_in_the_error() {
        let e = Target::create("/nonexistent/command x").unwrap_err();
        assert_eq!(e.to_string(), "failed to execute /nonexistent/command: No such file or directory");
        assert!(Target::create("   ").is_err());
    }

    /// A debug register of a process that nobody traces.
    fn debug_register(pid: i32, register: usize) -> libc::c_long {
        let place = std::mem::offset_of!(libc::user, u_debugreg) + 8 * register;
        // SAFETY: plain system calls; the kernel writes to the valid word. The process is a child.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, pid, 0usize, 0usize), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0usize, 0usize), 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, libc::__WALL), pid);
            let mut value = 0;
            let read = libc::PTRACE_PEEKUSER;
            assert_eq!(libc::syscall(libc::SYS_ptrace, read, pid, place, &raw mut value), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_DETACH, pid, 0usize, 0usize), 0);
            value
        }
    }

    #[test]
    fn a_target_stops_at_each_moment_and_runs_on_without_breakpoints() {
        for moment in [Moment::Exec, Moment::Preinit, Moment::Postinit, Moment::Main] {
            let mut t = Target::create_at("sleep 100", &Environment::default(), moment).unwrap();
            assert_eq!((t.note(), state_of(t.pid())), (None, 't'), "{moment:?}");
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
            assert_eq!(maps.contains("libc.so"), moment > Moment::Exec, "{moment:?}");
            t.release();
            wait_until(|| state_of(t.pid()) == 'S');
            for register in [0, 1, 2, 3, 7] {
                assert_eq!(debug_register(t.pid(), register), 0, "{moment:?} {register}");
            }
            signal(t.pid(), libc::SIGTERM);
            assert_eq!(wait_end(&mut t), ExitStatus::Signaled(libc::SIGTERM), "{moment:?}");
        }
    }

    #[test]
    fn a_target_that_ends_before_its_moment_is_an_error_that_says_how() {
        let mut environment = Environment::default();
        environment.set.push(("LD_TRACE_LOADED_OBJECTS".into(), "1".into()));
        let e = Target::create_at("true", &environment, Moment::Main).unwrap_err().to_string();
        assert!(e.starts_with("failed to control pid "), "{e}");
        assert!(e.ends_with(": process exited with status 0"), "{e}");
    }

    #[test]
    fn what_cannot_be_grabbed_is_named_in_the_error() {
        let says = |pid: i32| Target::grab(pid).unwrap_err().to_string();
        let me = std::process::id() as i32;
        assert_eq!(says(me), format!("failed to grab pid {me}: attempt to grab self"));
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        let pid = zombie.id() as i32;
        wait_until(|| state_of(pid) == 'Z');
        assert_eq!(says(pid), format!("failed to grab pid {pid}: zombie process"));
        zombie.wait().unwrap();
        // A thread of this process.
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: no arguments.
            send.send(unsafe { libc::gettid() }).unwrap();
            _ = ended.recv();
        });
        let tid = receive.recv().unwrap();
        assert_eq!(says(tid), format!("failed to grab pid {tid}: it is a thread of pid {me}"));
        drop(end);
        thread.join().unwrap();
        // One that is a target already.
        let target = Target::create("sleep 100").unwrap();
        let text = says(target.pid());
        assert!(text.starts_with(&format!("failed to grab pid {}: process is traced by pid ", target.pid())));
    }

    #[test]
    fn a_grabbed_process_stops_until_it_is_released() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        let mut t = Target::grab(pid).unwrap();
        assert_eq!(state_of(pid), 't');
        t.release();
        // The process may not have reached its sleep yet.
        wait_until(|| state_of(pid) == 'S');
        assert_eq!(tracer_of(pid), 0);
        drop(t);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_exist_is_named_in_the_error() {
        let text = Target::grab(0x3fff_fff0).unwrap_err().to_string();
        assert!(text.starts_with("failed to grab pid 1073741808: "), "{text}");
        assert!(!text.contains("os error"), "{text}");
    }

    #[test]
    fn a_target_is_held_at_its_exit_with_its_address_space() {
        let mut t = Target::create("true").unwrap();
        assert!(!t.is_exiting());
        t.release_until_exit(LONG);
        let ready = crate::poll_readable(&[t.poll_fd().as_raw_fd()], LONG).unwrap();
        assert!(ready[0] && t.is_exiting());
        assert_eq!(t.exit_status(), None);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
        assert!(maps.contains("libc.so"), "{maps}");
        t.resume_exit();
        assert_eq!(wait_end(&mut t), ExitStatus::Exited(0));
    }

    #[test]
    fn a_target_held_at_its_exit_exits_when_the_time_limit_has_passed() {
        let mut t = Target::create("false").unwrap();
        t.release_until_exit(Duration::from_millis(20));
        assert_eq!(wait_end(&mut t), ExitStatus::Exited(1));
    }

    #[test]
    fn a_killed_target_is_held_at_its_exit_and_reports_the_signal() {
        let mut t = Target::create("sleep 100").unwrap();
        t.release_until_exit(LONG);
        signal(t.pid(), libc::SIGKILL);
        wait_until(|| t.is_exiting());
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
        assert!(!maps.is_empty());
        t.resume_exit();
        assert_eq!(wait_end(&mut t), ExitStatus::Signaled(libc::SIGKILL));
    }

    #[test]
    fn signals_and_group_stops_work_while_a_target_is_traced() {
        // A script in a file, because commands have no shell quotes.
        let script = std::env::temp_dir().join(format!("proc-signals-{}", std::process::id()));
        let text = "trap 'exit 7' USR1\nkill -STOP $$\nwhile :; do sleep 0.01; done\n";
        std::fs::write(&script, text).unwrap();
        let mut t = Target::create(format!("sh {}", script.display())).unwrap();
        t.release_until_exit(LONG);
        // The script stops itself and stays stopped until SIGCONT.
        wait_until(|| matches!(state_of(t.pid()), 'T' | 't'));
        signal(t.pid(), libc::SIGUSR1);
        std::thread::sleep(Duration::from_millis(30));
        assert!(matches!(state_of(t.pid()), 'T' | 't'));
        signal(t.pid(), libc::SIGCONT);
        wait_until(|| t.is_exiting());
        t.resume_exit();
        assert_eq!(wait_end(&mut t), ExitStatus::Exited(7));
        std::fs::remove_file(script).unwrap();
    }

    #[test]
    fn a_grabbed_process_is_held_at_its_exit_and_its_parent_gets_its_status() {
        let mut child = sleeper();
        let pid = child.id() as i32;
        let mut t = Target::grab(pid).unwrap();
        t.release_until_exit(LONG);
        wait_until(|| state_of(pid) == 'S');
        assert_ne!(tracer_of(pid), 0);
        signal(pid, libc::SIGTERM);
        wait_until(|| t.is_exiting());
        assert_eq!(child.try_wait().unwrap(), None);
        t.resume_exit();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
        assert_eq!(wait_end(&mut t), ExitStatus::Unknown);
    }

    #[test]
    fn a_process_that_was_stopped_before_it_was_grabbed_stays_stopped() {
        let mut child = sleeper();
        let pid = child.id() as i32;
        signal(pid, libc::SIGSTOP);
        wait_until(|| state_of(pid) == 'T');
        let mut t = Target::grab(pid).unwrap();
        t.release_until_exit(LONG);
        std::thread::sleep(Duration::from_millis(20));
        assert!(matches!(state_of(pid), 'T' | 't'));
        drop(t);
        wait_until(|| state_of(pid) == 'T');
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_dropped_target_is_detached_and_the_others_stay_traced() {
        let (mut one, mut two) = (sleeper(), sleeper());
        let grab = |child: &std::process::Child| {
            let mut t = Target::grab(child.id() as i32).unwrap();
            t.release_until_exit(LONG);
            t
        };
        let (first, second) = (grab(&one), grab(&two));
        drop(first);
        wait_until(|| tracer_of(one.id() as i32) == 0);
        assert_ne!(tracer_of(two.id() as i32), 0);
        drop(second);
        wait_until(|| tracer_of(two.id() as i32) == 0);
        for child in [&mut one, &mut two] {
            wait_until(|| state_of(child.id() as i32) == 'S');
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_target_works_in_any_thread_and_other_children_are_not_reaped() {
        let mut other = std::process::Command::new("true").spawn().unwrap();
        let mut t = std::thread::spawn(|| Target::create("false").unwrap()).join().unwrap();
        t.release_until_exit(LONG);
        let mut t = std::thread::spawn(move || {
            wait_until(|| t.is_exiting());
            t.resume_exit();
            t
        })
        .join()
        .unwrap();
        assert_eq!(wait_end(&mut t), ExitStatus::Exited(1));
        assert!(other.wait().unwrap().success());
    }
}
