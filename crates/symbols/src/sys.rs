//! System calls without a safe wrapper in the standard library: packets that carry descriptors,
//! limits of the own process, names for files without one, and clocks.
//!
//! All `unsafe` code of the crate is in this module and in [`crate::entry`].

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum size of a packet in bytes. A socket buffer holds 208 KB by default, including the
/// kernel's overhead.
pub(crate) const PACKET: usize = 60 << 10;

/// Maximum number of descriptors in a packet.
pub(crate) const DESCRIPTORS: usize = 2;

fn result(value: libc::c_long) -> io::Result<libc::c_long> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Creates a connected pair of `SOCK_SEQPACKET` sockets, which preserve packet boundaries.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: fds holds two ints.
    result(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }.into())?;
    // SAFETY: the kernel has just given us these descriptors.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Buffer for the control message of [`DESCRIPTORS`] descriptors, with the alignment of its header.
type Control = [u64; 4];

/// Sends one packet. With `wait`, blocks until the socket buffer has space.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    wait: bool,
) -> io::Result<()> {
    let raw: Vec<RawFd> = fds.iter().take(DESCRIPTORS).map(AsRawFd::as_raw_fd).collect();
    let mut control: Control = [0; 4];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: all-zero is a valid msghdr; its parts outlive the call. The control buffer is
        // aligned and holds a header and DESCRIPTORS descriptors, no more than which are written.
        // sendmsg reads only.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &mut part;
            message.msg_iovlen = 1;
            if !raw.is_empty() {
                let length = size_of_val(&raw[..]) as u32;
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = libc::CMSG_SPACE(length) as _;
                let header = libc::CMSG_FIRSTHDR(&message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(length) as _;
                libc::CMSG_DATA(header).cast::<RawFd>().copy_from_nonoverlapping(raw.as_ptr(), raw.len());
            }
            libc::sendmsg(socket.as_raw_fd(), &message, flags)
        };
        match result(sent as libc::c_long) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Receives one packet into `buffer`. Returns its length, or 0 if the peer closed the socket, and
/// its descriptors. A truncated packet is an error.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control: Control = [0; 4];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: all-zero is a valid msghdr; the buffers outlive the call and have the given lengths.
    // Headers are walked by the macros, within the length that the kernel has set; descriptors in
    // them have just been given to us.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>() as _;
        let got = result(libc::recvmsg(socket.as_raw_fd(), &mut message, flags) as libc::c_long)?;
        let mut fds = Vec::new();
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                let all = (0..bytes / size_of::<RawFd>()).map(|i| data.add(i).read_unaligned());
                fds.extend(all.map(|fd| OwnedFd::from_raw_fd(fd)));
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
        if message.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((got as usize, fds))
    }
}

/// Waits until a descriptor is readable (with `write`, writable), at most `limit`. `None`:
/// interrupted by a signal.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, write: bool, limit: Duration) -> io::Result<Option<bool>> {
    let events = if write { libc::POLLOUT } else { libc::POLLIN };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one valid pollfd, count 1.
    match result(unsafe { libc::poll(&mut poll, 1, ms) }.into()) {
        Ok(ready) => Ok(Some(ready > 0)),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(e) => Err(e),
    }
}

/// Ends this process when the other end of its socket is closed, from another thread: its session
/// has ended, and nobody waits for what the first thread does. A thread that sleeps uninterruptibly
/// in the kernel ends when it wakes.
pub(crate) fn end_with(socket: Arc<OwnedFd>) -> io::Result<()> {
    /// The memory of a reader is limited, and stacks count.
    const STACK: usize = 32 << 10;
    let wait = move || {
        // A hang-up is reported without being asked for.
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one valid pollfd, count 1.
        while unsafe { libc::poll(&mut poll, 1, -1) } < 0 {}
        // SAFETY: no memory is passed. Nothing of this process outlives it.
        unsafe { libc::_exit(0) }
    };
    threads::spawn("end", STACK, wait).map(drop)
}

/// Gives a file that was opened without a name (`O_TMPFILE`) one.
pub(crate) fn link(file: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    // AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH.
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(name.as_os_str().as_bytes())?;
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both names end in NUL and outlive the call.
    result(unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) }.into()).map(|_| ())
}

/// A clock, in nanoseconds.
fn now(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::clock_gettime(clock, &mut t) };
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// Nanoseconds since boot at a time of the monotonic clock, which stands still while the system
/// sleeps. Right if it has not slept since then.
pub fn since_boot(monotonic: u64) -> u64 {
    /// What the system has slept never becomes less. A pause between the two clocks makes it too
    /// short.
    static SLEPT: AtomicU64 = AtomicU64::new(0);
    let slept = now(libc::CLOCK_BOOTTIME).saturating_sub(now(libc::CLOCK_MONOTONIC));
    monotonic.saturating_add(slept.max(SLEPT.fetch_max(slept, Ordering::Relaxed)))
}

/// The time at which the clock of `/proc/PID/stat` was 0, in seconds since 1970.
pub(crate) fn boot_time() -> f64 {
    let seconds = |clock| now(clock) as f64 / 1e9;
    seconds(libc::CLOCK_REALTIME) - seconds(libc::CLOCK_BOOTTIME)
}

/// Clock ticks per second in `/proc/PID/stat`.
pub(crate) fn ticks() -> u64 {
    // SAFETY: no memory is passed.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

/// Prepares this process as the reader: closes all descriptors except the standard ones, changes to
/// the root directory, limits memory, and drops the capabilities that reading does not need.
pub(crate) fn become_reader(memory: u64) {
    // For reading all files and directories, for reading processes, and for /proc/PID/map_files
    // (linux/capability.h).
    const DAC_READ_SEARCH: u64 = 1 << 2;
    const SYS_PTRACE: u64 = 1 << 19;
    const CHECKPOINT_RESTORE: u64 = 1 << 40;
    const VERSION_3: u32 = 0x2008_0522;
    // SAFETY: plain system calls; structs are on this stack and have the size that the kernel
    // expects. The process is just starting, so no other code owns descriptors. A failed call
    // changes nothing.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32);
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"dtrace-symbols".as_ptr());
        let most = libc::rlimit { rlim_cur: memory, rlim_max: memory };
        libc::setrlimit(libc::RLIMIT_DATA, &most);
        // The files whose symbols were read are kept open, as many as are allowed.
        let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 {
            files.rlim_cur = files.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        }
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        let mut header = [VERSION_3, 0];
        // Effective, permitted, inheritable: low halves, then high halves.
        let mut sets = [0u32; 6];
        if libc::getauxval(libc::AT_SECURE) != 0 {
            // The executable is set-user-id or has file capabilities. The process that started this
            // one is not trusted with the additional privileges.
            let (uid, gid) = (libc::getuid(), libc::getgid());
            libc::setresgid(gid, gid, gid);
            libc::setresuid(uid, uid, uid);
            libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_mut_ptr());
        } else if libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) == 0 {
            let effective = u64::from(sets[0]) | u64::from(sets[3]) << 32;
            // Without SYS_PTRACE the kernel allows access only to processes whose capabilities are
            // a subset of the reader's.
            if effective & SYS_PTRACE != 0 {
                let kept = effective & (DAC_READ_SEARCH | SYS_PTRACE | CHECKPOINT_RESTORE);
                let (low, high) = (kept as u32, (kept >> 32) as u32);
                sets = [low, low, 0, high, high, 0];
                libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_mut_ptr());
            }
        }
    }
}

/// The CPU time of a process, as long as it was not waited for.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let (mut clock, mut now) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both write what they are given.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut now) == 0
    };
    let nanos = u32::try_from(now.tv_nsec).ok().filter(|_| is_known)?;
    Some(Duration::new(u64::try_from(now.tv_sec).ok()?, nanos))
}

/// Sets an alarm that ends this process after `limit`; `None` cancels it. It ends a blocked reader
/// whose session has exited. The session's own deadline is shorter.
pub(crate) fn set_alarm(limit: Option<Duration>) {
    let limit = limit.unwrap_or_default();
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let value = libc::timeval { tv_sec: limit.as_secs() as _, tv_usec: limit.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: zero, it_value: value };
    // SAFETY: the struct outlives the call; the old value is not requested. The default action of
    // SIGALRM ends the process.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
}

/// Writes to standard output, without the buffers of the standard library. True if all was written.
pub(crate) fn tell(text: &[u8]) -> bool {
    // SAFETY: as many bytes as there are.
    let written = unsafe { libc::write(libc::STDOUT_FILENO, text.as_ptr().cast(), text.len()) };
    usize::try_from(written) == Ok(text.len())
}

/// Standard input, which is the reader's socket.
pub(crate) fn standard_input() -> OwnedFd {
    // SAFETY: the parent process opened this descriptor, and no other code in this process uses
    // standard input.
    unsafe { OwnedFd::from_raw_fd(0) }
}
