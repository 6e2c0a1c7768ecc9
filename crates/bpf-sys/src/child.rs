//! Child processes that make system calls only: for what the kernel does slowly and no signal
//! interrupts.
//!
//! A child has its own session (a terminal's signals are not for it) and no descriptors but those
//! it is given, so it keeps no pipe and no file of the tracer open. Maps that the tracer has mapped
//! stay in the kernel until the child ends.
//!
//! [`detached`] is for what happens at the end of the tracer and beyond it; [`Maker`] for what we
//! wait for.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::arch::raw;
use crate::syscall::last_errno;

/// Forks a child, twice, so that nobody has to wait for it (its parent is the system's first
/// process), that runs `body` with the descriptors `keep` alone and ends. False where there can be
/// no process.
///
/// # Safety
/// `body` may make system calls only, on memory that was made before: another thread may hold any
/// lock.
pub(super) unsafe fn detached(name: &CStr, keep: &[RawFd], body: impl FnOnce()) -> bool {
    let mut keep = keep.to_vec();
    keep.sort_unstable();
    let holes = holes(&keep);
    // SAFETY: the child makes system calls only, on memory that was made before, and never returns.
    match unsafe { fork() } {
        // SAFETY: as above.
        0 => unsafe {
            // A second one, so that nobody has to wait for the first.
            if fork() != 0 {
                libc::_exit(0);
            }
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            let _ = libc::chdir(c"/".as_ptr());
            for (first, last) in &holes {
                libc::syscall(libc::SYS_close_range, *first, *last, 0);
            }
            body();
            libc::_exit(0);
        },
        child if child > 0 => {
            let mut status = 0;
            // SAFETY: a child of ours; it ends at once.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 && last_errno() == libc::EINTR {}
            true
        }
        _ => false,
    }
}

/// A fork without the handlers of the C library and of others: ours would close what the child is
/// to hold ([`crate::fork`]), and one could wait for a lock.
///
/// # Safety
/// The child may make system calls only.
unsafe fn fork() -> libc::pid_t {
    // SAFETY: without a stack of its own the child goes on with a copy of this one.
    unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(libc::SIGCHLD), 0, 0, 0, 0) as libc::pid_t }
}

/// The ranges of descriptors around these, which are sorted.
fn holes(keep: &[RawFd]) -> Vec<(u32, u32)> {
    let mut first = 0;
    let mut all = Vec::new();
    for fd in keep.iter().filter_map(|fd| u32::try_from(*fd).ok()) {
        if fd > first {
            all.push((first, fd - 1));
        }
        first = fd + 1;
    }
    all.push((first, u32::MAX));
    all
}

/// Makes a system call that gives a descriptor in a child process of our own memory, and takes the
/// descriptor from it.
///
/// A `fork` would copy the page tables of all that is known of a hundred thousand functions, and
/// each page that one of both changes; the child would do nothing with it. So the child shares our
/// memory (as that of `vfork` does), but we go on meanwhile. It has a stack of its own and makes
/// system calls without the C library, whose `errno` it would share with us. When it is left
/// behind, what it uses of our memory stays as it is until this process ends.
pub(super) struct Maker {
    ours: OwnedFd,
    pid: libc::pid_t,
    work: Box<Work>,
}

/// What the child needs.
struct Work {
    name: &'static CStr,
    holes: Vec<(u32, u32)>,
    call: [i64; 4],
    socket: RawFd,
    packet: Packet,
    stack: Vec<u128>,
}

/// A number and a descriptor, ready to be sent.
struct Packet {
    number: i32,
    part: libc::iovec,
    control: Control,
    message: libc::msghdr,
}

// SAFETY: the addresses inside are of the packet itself, and of memory that nobody else looks at.
unsafe impl Send for Packet {}

/// A control message of one descriptor, aligned as its header must be.
type Control = [u64; 3];

/// Words of the child's stack: 32 KB.
const STACK: usize = 2048;

impl Maker {
    /// Begins the system call `number` with these arguments; the child keeps the descriptors `keep`
    /// alone. `None`: there can be no process.
    ///
    /// # Safety
    /// The system call must give a descriptor, and all memory that it is told of must stay as it is
    /// until [`Maker::take`] has given a result, or for ever.
    pub(super) unsafe fn begin(
        name: &'static CStr,
        keep: &[RawFd],
        number: libc::c_long,
        arguments: [i64; 3],
    ) -> Option<Maker> {
        let (ours, theirs) = socket_pair()?;
        let mut keep = keep.to_vec();
        keep.push(theirs.as_raw_fd());
        keep.sort_unstable();
        let mut work = Box::new(Work {
            name,
            holes: holes(&keep),
            call: [number, arguments[0], arguments[1], arguments[2]],
            socket: theirs.as_raw_fd(),
            packet: Packet::new(),
            stack: vec![0; STACK],
        });
        work.packet.tie();
        let top = work.stack.as_mut_ptr_range().end;
        // No signal's handler runs in the child: it would change our memory. SAFETY: the sets are
        // valid; the stack is the child's alone, is aligned, and grows down from its end; the work
        // outlives the child, or is never freed (see `Drop`).
        let pid = unsafe {
            let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            let pid = libc::clone(make, top.cast(), libc::CLONE_VM, (&raw mut *work).cast());
            libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
            pid
        };
        (pid > 0).then_some(Maker { ours, pid, work })
    }

    /// Where the result comes.
    pub(super) fn result(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// The result, which has come: the descriptor or the error.
    pub(super) fn take(mut self) -> Result<OwnedFd, i32> {
        let result = receive(self.ours.as_fd());
        let mut status = 0;
        // SAFETY: a child of ours that ends now. It sends no signal at its end, so only this waits
        // for it.
        while unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } < 0
            && last_errno() == libc::EINTR
        {}
        self.pid = 0;
        match result {
            Some((_, Some(fd))) => Ok(fd),
            Some((errno, None)) if errno > 0 => Err(errno),
            // It was killed.
            _ => Err(libc::ECHILD),
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        if self.pid > 0 {
            // It is abandoned, and still uses its work and its stack.
            let empty = Work {
                name: c"",
                holes: Vec::new(),
                call: [0; 4],
                socket: -1,
                packet: Packet::new(),
                stack: Vec::new(),
            };
            std::mem::forget(std::mem::replace(&mut self.work, Box::new(empty)));
        }
    }
}

impl Packet {
    fn new() -> Packet {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: size_of::<i32>() };
        // SAFETY: all-zero is a valid msghdr.
        Packet { number: 0, part, control: [0; 3], message: unsafe { std::mem::zeroed() } }
    }

    /// Fills in the addresses of its parts: it must not move any more.
    fn tie(&mut self) {
        self.part.iov_base = (&raw mut self.number).cast();
        self.message.msg_iov = &raw mut self.part;
        self.message.msg_iovlen = 1;
        self.message.msg_control = self.control.as_mut_ptr().cast();
        // SAFETY: computes a size; the buffer is aligned and holds a header and one descriptor.
        unsafe {
            self.message.msg_controllen = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const self.message);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = self.message.msg_controllen;
        }
    }

    /// Puts in the result of a system call.
    fn put(&mut self, result: i64) {
        if result < 0 {
            self.number = -result as i32;
            self.message.msg_controllen = 0;
        } else {
            // SAFETY: as in `tie`.
            unsafe {
                let first = libc::CMSG_FIRSTHDR(&raw const self.message);
                libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(result as RawFd);
            }
        }
    }
}

/// The child: raw system calls only.
extern "C" fn make(work: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `begin` gave it the address of its work, which nobody else touches while it runs.
    let work = unsafe { &mut *work.cast::<Work>() };
    // SAFETY: strings and structs of the work live as long as this child.
    unsafe {
        raw(libc::SYS_setsid, 0, 0, 0);
        raw(libc::SYS_prctl, libc::PR_SET_NAME.into(), work.name.as_ptr() as i64, 0);
        raw(libc::SYS_chdir, c"/".as_ptr() as i64, 0, 0);
        for (first, last) in &work.holes {
            raw(libc::SYS_close_range, i64::from(*first), i64::from(*last), 0);
        }
        let [number, a, b, c] = work.call;
        let result = raw(number, a, b, c);
        work.packet.put(result);
        let message = &raw const work.packet.message;
        raw(libc::SYS_sendmsg, work.socket.into(), message as i64, libc::MSG_NOSIGNAL.into());
        raw(libc::SYS_exit_group, 0, 0, 0);
    }
    0
}

/// Two ends of a connection that keeps the borders of packets.
fn socket_pair() -> Option<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two numbers; both descriptors are ours alone.
    unsafe {
        (libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) == 0)
            .then(|| (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Takes what was sent: the number, and the descriptor. `None`: the other end was closed, or
/// nothing has come yet.
fn receive(socket: BorrowedFd<'_>) -> Option<(i32, Option<OwnedFd>)> {
    let mut packet = Packet::new();
    packet.tie();
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the parts of the packet outlive the call; a descriptor that came is ours alone.
    unsafe {
        let got = libc::recvmsg(socket.as_raw_fd(), &raw mut packet.message, flags);
        if got != size_of::<i32>() as isize {
            return None;
        }
        let first = libc::CMSG_FIRSTHDR(&raw const packet.message);
        let fd = (!first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned()));
        Some((packet.number, fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_are_not_kept_are_closed() {
        assert_eq!(holes(&[]), [(0, u32::MAX)]);
        assert_eq!(holes(&[0, 3, 4, 9]), [(1, 2), (5, 8), (10, u32::MAX)]);
        assert_eq!(holes(&[2]), [(0, 1), (3, u32::MAX)]);
    }

    fn wait(maker: &Maker) {
        let mut ready = libc::pollfd { fd: maker.result().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives across the call.
        assert_eq!(unsafe { libc::poll(&raw mut ready, 1, 60_000) }, 1);
    }

    #[test]
    fn a_child_makes_a_descriptor_and_gives_it_away() {
        let (from, to) = std::io::pipe().unwrap();
        // SAFETY: dup takes a number.
        let maker =
            unsafe { Maker::begin(c"test", &[to.as_raw_fd()], libc::SYS_dup, [to.as_raw_fd().into(), 0, 0]) };
        let maker = maker.unwrap();
        wait(&maker);
        let fd = maker.take().unwrap();
        drop(to);
        std::io::Write::write_all(&mut std::fs::File::from(fd), b"x").unwrap();
        // Nobody else has the other end any more.
        let text = std::io::read_to_string(from).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn an_error_in_the_child_is_its_result() {
        // SAFETY: dup takes a number.
        let maker = unsafe { Maker::begin(c"test", &[], libc::SYS_dup, [-1, 0, 0]) }.unwrap();
        wait(&maker);
        assert_eq!(maker.take().map(drop), Err(libc::EBADF));
    }

    #[test]
    fn a_child_that_is_left_behind_goes_on() {
        let (from, to) = std::io::pipe().unwrap();
        // It opens a pipe that nobody writes.
        let path = std::env::temp_dir().join(format!("dtrace-child-{}", std::process::id()));
        let name: &'static CStr =
            Box::leak(std::ffi::CString::new(path.to_str().unwrap()).unwrap().into_boxed_c_str());
        // SAFETY: the string is never freed.
        let maker = unsafe {
            assert_eq!(libc::mkfifo(name.as_ptr(), 0o600), 0);
            let open = [libc::AT_FDCWD.into(), name.as_ptr() as i64, libc::O_RDONLY.into()];
            Maker::begin(c"test", &[to.as_raw_fd()], libc::SYS_openat, open)
        };
        let maker = maker.unwrap();
        let pid = maker.pid;
        drop((maker, to));
        // It holds what it was given until its system call is over.
        std::fs::File::options().write(true).open(&path).unwrap();
        assert_eq!(std::io::read_to_string(from).unwrap(), "");
        std::fs::remove_file(&path).unwrap();
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    }
}
