//! Closes links in a background process, because the kernel takes long to detach them.
//!
//! Detaching a perf event or a trampoline takes the kernel a tenth of a second. Detaching a link
//! with thousands of functions takes several seconds. Both happen when the last descriptor is
//! closed. So a child process (`dtrace-closer`) holds copies of the descriptors and exits. Its
//! memory is freed first, then its descriptors are closed, and the parent does not wait. The child
//! has nothing else of its parent, neither the terminal nor pipes. It exits only after its parent
//! has closed the parent's descriptors, because only the last close is slow. For each link the
//! kernel waits for grace periods, which links that are closed at the same time share: so many
//! links have several such processes.

use crate::child;
use crate::link::Link;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Closes links in a background process. The caller's descriptors are closed when this returns.
/// Where no process can be created, the links are closed here.
pub fn close_in_background(mut links: Vec<Link>) {
    const LINKS: usize = 16;
    const CLOSERS: usize = 16;
    let each = links.len().div_ceil((links.len() / LINKS).clamp(1, CLOSERS));
    while !links.is_empty() {
        let rest = links.split_off(each.min(links.len()));
        close_by_one(std::mem::replace(&mut links, rest));
    }
}

/// Closes links in one process.
fn close_by_one(links: Vec<Link>) {
    let mut keep: Vec<RawFd> = Vec::with_capacity(2 * links.len());
    for link in &links {
        keep.push(link.as_raw_fd());
        keep.extend(link.event().map(AsRawFd::as_raw_fd));
    }
    let gate = gate();
    let wait = gate.as_ref().map(|(wait, _)| wait.as_raw_fd());
    keep.extend(wait);
    let body = || {
        // Nobody writes: it ends when the parent has closed its end, behind all others.
        if let Some(wait) = wait {
            let mut byte = 0u8;
            // SAFETY: one byte of memory that lives across the call.
            while unsafe { libc::read(wait, (&raw mut byte).cast(), 1) } < 0
                && crate::syscall::last_errno() == libc::EINTR
            {}
        }
    };
    // SAFETY: `body` makes system calls only.
    unsafe { child::detached(c"dtrace-closer", &keep, body) };
    drop(links);
    drop(gate);
}

/// A pipe: the end that the child reads, and the end that the parent closes to release it.
fn gate() -> Option<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers. Nothing else owns the two descriptors.
    unsafe {
        (libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == 0)
            .then(|| (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Ends this process at once with an exit status. Everything that it holds of BPF and perf is left
/// to a closer, so that the end of the process does not wait for the kernel's slow closes. Safe in
/// a signal handler: it allocates nothing, takes no lock, and makes system calls only.
pub fn end_process(status: i32) -> ! {
    // SAFETY: system calls only, on memory of this stack. A raw clone without a stack of its own is
    // a fork; it runs none of the C library's handlers, one of which could wait for a lock that the
    // interrupted code holds.
    unsafe {
        let parent = libc::getpid();
        let flags = libc::SIGCHLD as libc::c_long;
        if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
            libc::prctl(libc::PR_SET_NAME, c"dtrace-closer".as_ptr());
            libc::setsid();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            let _ = libc::chdir(c"/".as_ptr());
            close_all_but_kernel_objects();
            // The parent has closed its own when it is gone.
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            while libc::getppid() == parent {
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
            }
            libc::_exit(0);
        }
        libc::_exit(status);
    }
}

/// Closes the descriptors of this process that are neither BPF's nor perf's. System calls only.
fn close_all_but_kernel_objects() {
    /// Where a `linux_dirent64` has its length and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut entries = [0u64; 512];
    let mut link = [0u8; 64];
    // SAFETY: strings and buffers live across the calls and are as long as said; entries are read
    // within what the kernel wrote.
    unsafe {
        let dir = libc::open(c"/proc/self/fd".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
        if dir < 0 {
            // What is most likely a pipe that somebody reads.
            libc::syscall(libc::SYS_close_range, 0, 2, 0);
            return;
        }
        loop {
            let size = size_of_val(&entries);
            let got = libc::syscall(libc::SYS_getdents64, dir, entries.as_mut_ptr(), size);
            let Some(got) = usize::try_from(got).ok().filter(|got| *got > 0) else { break };
            let bytes = std::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), got.min(size));
            let mut rest = bytes;
            while let Some(length) = rest.get(LENGTH..).and_then(|r| r.first_chunk()) {
                let length = usize::from(u16::from_ne_bytes(*length));
                let Some((entry, after)) = rest.split_at_checked(length) else { break };
                let Some(name) = entry.get(NAME..).filter(|name| !name.is_empty()) else { break };
                rest = after;
                let digits = name.iter().take_while(|b| b.is_ascii_digit());
                let fd = digits.fold(-1i64, |n, b| n.max(0) * 10 + i64::from(b - b'0')) as RawFd;
                if fd < 0 || fd == dir {
                    continue;
                }
                let length =
                    libc::readlinkat(dir, name.as_ptr().cast(), link.as_mut_ptr().cast(), link.len());
                let target = link.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
                if !is_kernel_object(target) {
                    libc::close(fd);
                }
            }
        }
        libc::close(dir);
    }
}

/// Whether a link of `/proc/self/fd` is of a program, a map, a link or a perf event.
fn is_kernel_object(target: &[u8]) -> bool {
    let starts = |p: &[u8]| target.starts_with(p);
    starts(b"anon_inode:bpf") || starts(b"anon_inode:[perf_event]") || starts(b"anon_inode:[bpf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_objects_are_known_by_their_names_in_proc() {
        for name in
            ["anon_inode:bpf-map", "anon_inode:bpf-prog", "anon_inode:bpf_link", "anon_inode:[perf_event]"]
        {
            assert!(is_kernel_object(name.as_bytes()), "{name}");
        }
        for name in ["pipe:[12]", "/dev/null", "anon_inode:[eventfd]", "socket:[1]", ""] {
            assert!(!is_kernel_object(name.as_bytes()), "{name}");
        }
    }
}
