//! One process that is traced from its start (`-c`) or from now on (`-p`).

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

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
    ended: Option<Ended>,
}

impl Target {
    /// Runs `command` (split on blanks, no shell) and stops it at the end of its exec.
    pub fn create(command: impl AsRef<[u8]>) -> Result<Target, Error> {
        let command = command.as_ref();
        create(command).map_err(|e| {
            let program = words(command).next().unwrap_or_default();
            Error::Create(String::from_utf8_lossy(program).into_owned(), e)
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

    /// Lets it run. A process that has died meanwhile is no error: [`Target::ended`] tells.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            // SAFETY: plain system call on a process we have seized; no memory is passed.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0usize, 0usize) };
        }
    }

    /// Readable (poll) once the process has ended.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.pidfd.as_fd()
    }

    /// How it ended; `None` while it lives.
    pub fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_some() {
            return self.ended;
        }
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, count 1.
        if unsafe { libc::poll(&mut poll, 1, 0) } <= 0 {
            return None;
        }
        self.ended = Some(if self.created { self.reap() } else { Ended::Gone });
        self.held = false;
        self.ended
    }

    fn reap(&self) -> Ended {
        let mut status = 0;
        loop {
            // SAFETY: status is a valid int.
            let got = unsafe { libc::waitpid(self.pid, &mut status, 0) };
            if got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return match got {
                _ if got != self.pid => Ended::Gone,
                _ if libc::WIFEXITED(status) => Ended::Exited(libc::WEXITSTATUS(status)),
                _ if libc::WIFSIGNALED(status) => Ended::Signaled(libc::WTERMSIG(status)),
                _ => continue,
            };
        }
    }
}

impl Drop for Target {
    /// A target that was never released is let go; a created one that never ran is killed, as the original does.
    fn drop(&mut self) {
        if self.held && self.created {
            // SAFETY: plain system call; the pid is our unreaped child, so it cannot have been reused.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        self.release();
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

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0i32; 2];
    // SAFETY: fds holds two ints.
    check(i64::from(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    // SAFETY: the kernel has just given us these descriptors.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

fn seize(pid: libc::pid_t, options: i32) -> io::Result<()> {
    // SAFETY: plain system call; the data argument is a number.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0usize, options as usize) })?;
    Ok(())
}

/// Waits for the next stop of `pid`; the wait status.
fn wait_stop(pid: libc::pid_t) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: status is a valid int. __WALL: a thread of another thread group counts, too.
        match check(i64::from(unsafe { libc::waitpid(pid, &mut status, libc::__WALL) })) {
            Ok(_) => return Ok(status),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The child's side of [`create`]: only async-signal-safe calls, then exec or the errno through the pipe.
fn child(go: i32, report: i32, argv: &[*const libc::c_char], paths: &[CString]) -> ! {
    let mut byte = 0u8;
    // SAFETY: every pointer was built before the fork and stays valid; read, execv, write and _exit are
    // async-signal-safe.
    unsafe {
        if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127); // the tracer died before it could seize us
        }
        let mut errno = libc::ENOENT;
        for path in paths {
            libc::execv(path.as_ptr(), argv.as_ptr());
            let e = *libc::__errno_location();
            if e != libc::ENOENT && e != libc::ENOTDIR {
                errno = e;
            }
        }
        libc::write(report, (&raw const errno).cast(), 4);
        libc::_exit(127);
    }
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
    let mut argv: Vec<*const libc::c_char> = list.iter().map(|w| w.as_ptr()).collect();
    argv.push(std::ptr::null());
    let (go_read, go_write) = pipe()?;
    let (report_read, report_write) = pipe()?;
    // SAFETY: the child runs only `child`, which allocates nothing and never returns.
    let pid = check(i64::from(unsafe { libc::fork() }))? as libc::pid_t;
    if pid == 0 {
        // SAFETY: closing our copy of the write end, so that the tracer's death is seen as end of file.
        unsafe { libc::close(go_write.as_raw_fd()) };
        child(go_read.as_raw_fd(), report_write.as_raw_fd(), &argv, &paths);
    }
    drop(report_write);
    let mut target = Target { pid, created: true, held: true, pidfd: pidfd_open(pid)?, ended: None };
    seize(pid, libc::PTRACE_O_TRACEEXEC)?;
    // SAFETY: one byte from a valid buffer.
    check(unsafe { libc::write(go_write.as_raw_fd(), [1u8].as_ptr().cast(), 1) } as i64)?;
    loop {
        let status = wait_stop(pid)?;
        if libc::WIFSTOPPED(status) && status >> 8 == (libc::SIGTRAP | (libc::PTRACE_EVENT_EXEC << 8)) {
            return Ok(target);
        }
        if libc::WIFSTOPPED(status) {
            // A signal on its way to exec: hand it on.
            let signal = (status >> 8) & 0xff;
            // SAFETY: plain system call; the data argument is the signal's number.
            check(unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0usize, signal as usize) })?;
            continue;
        }
        target.held = false;
        let mut errno = 0i32;
        // SAFETY: four bytes into a valid int.
        let got = unsafe { libc::read(report_read.as_raw_fd(), (&raw mut errno).cast(), 4) };
        return Err(io::Error::from_raw_os_error(if got == 4 { errno } else { libc::ECHILD }));
    }
}

fn grab(pid: libc::pid_t) -> io::Result<Target> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let mut target = Target { pid, created: false, held: false, pidfd: pidfd_open(pid)?, ended: None };
    seize(pid, 0)?;
    target.held = true;
    // SAFETY: plain system call without memory.
    check(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0usize, 0usize) })?;
    wait_stop(pid)?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn state_of(pid: i32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|s| s.trim().chars().next()).unwrap_or('?')
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
        for _ in 0..30_000 {
            if state_of(pid) != 'S' {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        assert_eq!(state_of(pid), 'S');
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
}
