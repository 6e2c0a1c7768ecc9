//! One process that is traced from its start (`-c`) or from now on (`-p`).

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use crate::tracer::{Exec, Phase, Shared, Tracer};

/// Why a target could not be had.
#[derive(Debug)]
pub enum Error {
    /// `-c`: the command and the reason.
    Create(String, io::Error),
    /// `-p`: the process and the reason.
    Grab(i32, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Create(command, _) if command.is_empty() => {
                f.write_str("failed to execute an empty command")
            }
            Error::Create(command, e) => write!(f, "failed to execute {command}: {}", reason(e)),
            Error::Grab(pid, e) => write!(f, "failed to grab pid {pid}: {}", reason(e)),
        }
    }
}

impl std::error::Error for Error {}

/// The system's text without Rust's "(os error N)".
fn reason(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

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

/// How a target ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is gone; nobody tells us how (`-p`).
    Gone,
    /// `exit(status)`.
    Exited(i32),
    /// Killed by a signal.
    Signaled(i32),
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
        let command = command.as_ref();
        create(command).map_err(|e| {
            let program = words(command).next().unwrap_or_default();
            Error::Create(diagnostics::control::name(program).into_owned(), e)
        })
    }

    /// Stops the process `pid`.
    pub fn grab(pid: i32) -> Result<Target, Error> {
        grab(pid).map_err(|e| Error::Grab(pid, e))
    }

    /// Its process id, as this process's namespace counts.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// True for `-c`.
    pub fn created(&self) -> bool {
        self.created
    }

    /// Lets it run, traced no more. A process that has died meanwhile is no error: [`Target::ended`] tells.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.tracer.release(self.pid, None);
        }
    }

    /// Lets it run, and holds it when it exits, with all that it has mapped, until [`Target::let_go`], or for so long at most.
    /// Until then it stays traced: nobody else can attach to it, and each signal to its first thread passes through us.
    pub fn release_until_exit(&mut self, limit: Duration) {
        if std::mem::take(&mut self.held) {
            self.tracer.release(self.pid, Some(limit));
        }
    }

    /// True while it is held at its exit.
    pub fn is_exiting(&self) -> bool {
        self.shared.phase() == Phase::Exiting
    }

    /// Lets it exit.
    pub fn let_go(&mut self) {
        if self.is_exiting() {
            self.tracer.let_go(self.pid);
        }
    }

    /// Readable (poll) once the process is held at its exit or has ended.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        let is_free = !self.created && self.shared.phase() == Phase::Free;
        if is_free { self.pidfd.as_fd() } else { self.shared.event() }
    }

    /// How it ended; `None` while it lives.
    pub fn ended(&mut self) -> Option<Ended> {
        if let Phase::Ended(how) = self.shared.phase() {
            self.held = false;
            return Some(how);
        }
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, count 1.
        if self.created || unsafe { libc::poll(&mut poll, 1, 0) } <= 0 {
            return None;
        }
        self.held = false;
        Some(Ended::Gone)
    }
}

impl Drop for Target {
    /// A target that was never released is released; a created one that never ran is killed, as the original does.
    fn drop(&mut self) {
        if self.held && self.created {
            // SAFETY: plain system call; the pid is our unreaped child, so it cannot have been reused.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        self.release();
        // The thread ends with its last target, and detaches all without stopping them.
        if Arc::strong_count(&self.tracer) > 1 {
            self.tracer.forget(self.pid);
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

/// What execvp would try, in order.
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

/// The words of a command: what stands between blanks.
fn words(command: &[u8]) -> impl Iterator<Item = &[u8]> {
    command.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

fn create(command: &[u8]) -> io::Result<Target> {
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
    let tracer = Tracer::running()?;
    let (pid, shared) = tracer.create(Exec { words: list, paths, mask })?;
    // It waits for us, so the pid is its own.
    let pidfd = pidfd_open(pid);
    let pidfd = pidfd.inspect_err(|_| {
        // SAFETY: plain system call; the pid is our unreaped child.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    })?;
    Ok(Target { pid, created: true, held: true, pidfd, shared, tracer })
}

fn grab(pid: libc::pid_t) -> io::Result<Target> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let pidfd = pidfd_open(pid)?;
    let tracer = Tracer::running()?;
    let shared = tracer.grab(pid)?;
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
        panic!("it does not come to that");
    }

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(600);

    fn sleeper() -> std::process::Child {
        std::process::Command::new("sleep").arg("100").spawn().unwrap()
    }

    fn signal(pid: i32, signal: i32) {
        // SAFETY: a process that nobody has waited for.
        unsafe { libc::kill(pid, signal) };
    }

    fn wait_end(t: &mut Target) -> Ended {
        for _ in 0..30_000 {
            if let Some(e) = t.ended() {
                return e;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the target did not end");
    }

    #[test]
    fn a_created_target_waits_after_exec_and_runs_to_its_end() {
        let mut t = Target::create("sh -c exit\t3").unwrap();
        assert_eq!(std::fs::read_to_string(format!("/proc/{}/comm", t.pid())).unwrap(), "sh\n");
        assert_eq!(state_of(t.pid()), 't');
        assert_eq!(t.ended(), None);
        t.release();
        assert!(matches!(wait_end(&mut t), Ended::Exited(_)));
    }

    #[test]
    fn the_exit_status_and_the_signal_are_told() {
        let mut t = Target::create("false").unwrap();
        t.release();
        assert_eq!(wait_end(&mut t), Ended::Exited(1));
        let mut t = Target::create("sleep 100").unwrap();
        t.release();
        // SAFETY: our own child.
        unsafe { libc::kill(t.pid(), libc::SIGTERM) };
        assert_eq!(wait_end(&mut t), Ended::Signaled(libc::SIGTERM));
        let names = [libc::SIGTERM, libc::SIGSEGV, libc::SIGSYS, 40].map(signal_name);
        assert_eq!(names, ["SIGTERM", "SIGSEGV", "SIGSYS", "signal 40"]);
    }

    #[test]
    fn a_command_that_is_not_there_says_so() {
        let e = Target::create("/nonexistent/command x").unwrap_err();
        assert_eq!(e.to_string(), "failed to execute /nonexistent/command: No such file or directory");
        assert!(Target::create("   ").is_err());
    }

    #[test]
    fn a_grabbed_process_stops_and_goes_on() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        let mut t = Target::grab(pid).unwrap();
        assert_eq!(state_of(pid), 't');
        t.release();
        // It may be on its way to sleep.
        wait_until(|| state_of(pid) == 'S');
        assert_eq!(tracer_of(pid), 0);
        drop(t);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_not_there_says_so() {
        let text = Target::grab(0x3fff_fff0).unwrap_err().to_string();
        assert!(text.starts_with("failed to grab pid 1073741808: "), "{text}");
        assert!(!text.contains("os error"), "{text}");
    }

    #[test]
    fn a_target_is_held_at_its_exit_with_all_it_has_mapped() {
        let mut t = Target::create("true").unwrap();
        assert!(!t.is_exiting());
        t.release_until_exit(LONG);
        let ready = crate::poll_readable(&[t.poll_fd().as_raw_fd()], LONG).unwrap();
        assert!(ready[0] && t.is_exiting());
        assert_eq!(t.ended(), None);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
        assert!(maps.contains("libc.so"), "{maps}");
        t.let_go();
        assert_eq!(wait_end(&mut t), Ended::Exited(0));
    }

    #[test]
    fn a_target_that_nobody_lets_go_exits_all_the_same() {
        let mut t = Target::create("false").unwrap();
        t.release_until_exit(Duration::from_millis(20));
        assert_eq!(wait_end(&mut t), Ended::Exited(1));
    }

    #[test]
    fn a_killed_target_is_held_too_and_ends_by_the_signal() {
        let mut t = Target::create("sleep 100").unwrap();
        t.release_until_exit(LONG);
        signal(t.pid(), libc::SIGKILL);
        wait_until(|| t.is_exiting());
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
        assert!(!maps.is_empty());
        t.let_go();
        assert_eq!(wait_end(&mut t), Ended::Signaled(libc::SIGKILL));
    }

    #[test]
    fn signals_and_stops_of_a_traced_target_work_as_ever() {
        // Without a shell's quotes: a script in a file.
        let script = std::env::temp_dir().join(format!("proc-signals-{}", std::process::id()));
        let text = "trap 'exit 7' USR1\nkill -STOP $$\nwhile :; do sleep 0.01; done\n";
        std::fs::write(&script, text).unwrap();
        let mut t = Target::create(format!("sh {}", script.display())).unwrap();
        t.release_until_exit(LONG);
        // It stops itself, and stays stopped until it is continued.
        wait_until(|| matches!(state_of(t.pid()), 'T' | 't'));
        signal(t.pid(), libc::SIGUSR1);
        std::thread::sleep(Duration::from_millis(30));
        assert!(matches!(state_of(t.pid()), 'T' | 't'));
        signal(t.pid(), libc::SIGCONT);
        wait_until(|| t.is_exiting());
        t.let_go();
        assert_eq!(wait_end(&mut t), Ended::Exited(7));
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
        t.let_go();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
        assert_eq!(wait_end(&mut t), Ended::Gone);
    }

    #[test]
    fn a_process_that_was_stopped_before_stays_stopped() {
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
    fn a_target_that_is_dropped_is_traced_no_more_whether_or_not_others_are() {
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
    fn a_target_serves_whatever_thread_has_it_and_leaves_other_children_alone() {
        let mut other = std::process::Command::new("true").spawn().unwrap();
        let mut t = std::thread::spawn(|| Target::create("false").unwrap()).join().unwrap();
        t.release_until_exit(LONG);
        let mut t = std::thread::spawn(move || {
            wait_until(|| t.is_exiting());
            t.let_go();
            t
        })
        .join()
        .unwrap();
        assert_eq!(wait_end(&mut t), Ended::Exited(1));
        assert!(other.wait().unwrap().success());
    }
}
