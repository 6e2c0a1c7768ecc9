//! The system calls of the test run that the standard library does not have.
//!
//! Each function wraps one call; none keeps state.

use std::ffi::CString;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Makes this process the parent of the orphans below it, so that nothing that a test leaves
/// escapes (`PR_SET_CHILD_SUBREAPER`, prctl(2)).
pub(crate) fn adopt_orphans() -> Result<(), String> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(format!("prctl: {}", Error::last_os_error())),
    }
}

/// Sends a signal to a process, or to a group when `pid` is negative. A process that is gone is no
/// error.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: the call takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// Reaps a child if it has ended. Not for a child of [`std::process::Child`].
pub(crate) fn reap(pid: i32) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
}

/// What [`reap_any`] came back with.
pub(crate) enum Reaped {
    /// A child: its id, and its exit status or 128 and the signal.
    Child(i32, u8),
    /// A signal came first.
    Interrupted,
    /// There is no child.
    None,
}

/// Waits until any child ends, and reaps it.
pub(crate) fn reap_any() -> Reaped {
    let mut status = 0;
    // SAFETY: the status is an int of this function.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
    if pid > 0 {
        let code =
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
        return Reaped::Child(pid, code as u8);
    }
    match Error::last_os_error().kind() {
        std::io::ErrorKind::Interrupted => Reaped::Interrupted,
        _ => Reaped::None,
    }
}

/// Lets the kernel send this process SIGTERM when its parent ends (`PR_SET_PDEATHSIG`, prctl(2)).
pub(crate) fn end_with_parent() {
    // SAFETY: the call takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// A descriptor that becomes readable when the process ends (pidfd_open(2), Linux 5.3).
pub(crate) fn end_of(pid: u32) -> Option<OwnedFd> {
    // SAFETY: the call takes numbers only; the descriptor is new.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Makes reads of a descriptor return at once.
pub(crate) fn never_block(fd: &impl AsRawFd) {
    let fd = fd.as_raw_fd();
    // SAFETY: flags of a descriptor of this process.
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) };
}

/// Waits until one of the descriptors is readable or at its end, or until the time is over.
pub(crate) fn wait_for_any(fds: &[i32], limit: Duration) {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let ms = limit.as_millis().min(60_000) as i32;
    // SAFETY: the array has as many elements as the call is told.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
}

/// Bytes of a file system: all of it, and those that are available.
pub(crate) fn space(path: &Path) -> Result<(u64, u64), String> {
    let name = c_path(path)?;
    // SAFETY: zeroes are a valid value, and the path ends with a zero.
    let (result, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(name.as_ptr(), &raw mut stat), stat)
    };
    match result {
        0 => Ok((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)),
        _ => Err(format!("{}: {}", path.display(), Error::last_os_error())),
    }
}

/// Detaches a mount, also one that is in use (`MNT_DETACH`, umount(2)).
pub(crate) fn detach_mount(path: &Path) {
    if let Ok(name) = c_path(path) {
        // SAFETY: the path ends with a zero.
        unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Detaches the file of a loop device (`LOOP_CLR_FD`, loop(4)).
pub(crate) fn detach_loop_device(device: &Path) {
    const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
    if let Ok(file) = std::fs::File::open(device) {
        // SAFETY: the request has no argument.
        unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CLR_FD as _, 0) };
    }
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether the user has asked this program to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on ^C, SIGTERM and SIGHUP are noted for [`interrupted`] instead of ending this process,
/// which has to end what it started first. System calls end with EINTR then. What is ignored
/// (`nohup`) stays ignored.
pub(crate) fn note_interrupts() {
    let handler: extern "C" fn(i32) = note_interrupt;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: zeroes are a valid value; the handler only stores to an atomic variable.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            if old.sa_sigaction != libc::SIG_IGN {
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = handler as libc::sighandler_t;
                libc::sigaction(signal, &raw const new, std::ptr::null_mut());
            }
        }
    }
}

/// Whether ^C, SIGTERM or SIGHUP has come.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Whether a descriptor is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stdout())
}
