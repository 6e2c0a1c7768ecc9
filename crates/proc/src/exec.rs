//! The child that becomes a target: from the fork to its exec.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Where the output of a process that is created goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetOutput {
    /// Where that of this process goes.
    #[default]
    Inherited,
    /// To the standard error of this process, whose standard output has a format of its own.
    ToStderr,
    /// Nowhere, its errors too, and it reads nothing: the terminal is in use.
    Discarded,
}

/// The arguments of exec.
pub(crate) struct Exec {
    pub(crate) words: Vec<CString>,
    /// The paths to try, in order.
    pub(crate) paths: Vec<CString>,
    /// The environment, as `NAME=value`.
    pub(crate) environment: Vec<CString>,
    /// Where its output goes.
    pub(crate) output: TargetOutput,
    /// The signal mask of the new process.
    pub(crate) mask: libc::sigset_t,
    /// Bytes of private memory that it maps for the session, before its first instruction.
    pub(crate) memory: Option<u64>,
}

pub(crate) fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0i32; 2];
    // SAFETY: fds holds two ints.
    check(i64::from(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    // SAFETY: the kernel has just given us these descriptors.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// The child's side of the tracing thread's `create`: only async-signal-safe calls, then exec or
/// the errno through the pipe.
pub(crate) fn child(
    start: i32,
    report: i32,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    exec: &Exec,
) -> ! {
    let mut byte = 0u8;
    // SAFETY: every pointer was built before the fork and stays valid; sigprocmask, signal,
    // setrlimit, open, dup2, close, read, execve, write and _exit are async-signal-safe.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &exec.mask, std::ptr::null_mut());
        // Rust's runtime ignores it, and a program inherits that. The standard library does the
        // same for the commands that it runs.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        bpf_sys::give_back_fd_limit();
        if libc::read(start, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127); // the tracer died before it could seize us
        }
        match exec.output {
            TargetOutput::Inherited => {}
            // Where standard error is closed, so is then the output.
            TargetOutput::ToStderr => {
                if libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) < 0 {
                    libc::close(libc::STDOUT_FILENO);
                }
            }
            TargetOutput::Discarded => {
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
                    libc::dup2(null, standard);
                }
                if null > libc::STDERR_FILENO {
                    libc::close(null);
                }
            }
        }
        let mut errno = libc::ENOENT;
        for path in &exec.paths {
            libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
            let e = *libc::__errno_location();
            if e != libc::ENOENT && e != libc::ENOTDIR {
                errno = e;
            }
        }
        libc::write(report, (&raw const errno).cast(), 4);
        libc::_exit(127);
    }
}
