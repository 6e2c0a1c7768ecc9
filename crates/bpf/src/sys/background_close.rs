//! Closes links in a background process, because the kernel takes long to detach them.
//!
//! Detaching a perf event or a trampoline takes the kernel a tenth of a second. Detaching a link
//! with thousands of functions takes several seconds. Both happen when the last descriptor is
//! closed. So a child process holds copies of the descriptors and exits. Its memory is freed first,
//! then its descriptors are closed, and the parent does not wait. The child has nothing else of its
//! parent, neither the terminal nor pipes. It exits only after its parent has closed the parent's
//! descriptors, because only the last close is slow.

use super::Link;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Closes links in a background process. The caller's descriptors are closed when this returns.
/// Where no process can be created, the links are closed here.
pub fn close_in_background(links: Vec<Link>) {
    let mut keep: Vec<RawFd> = Vec::with_capacity(2 * links.len());
    for link in &links {
        keep.push(link.as_raw_fd());
        keep.extend(link.event().map(AsRawFd::as_raw_fd));
    }
    let gate = gate();
    keep.extend(gate.iter().map(|(wait, _)| wait.as_raw_fd()));
    keep.sort_unstable();
    let holes = holes(&keep);
    // SAFETY: the child makes system calls only, on memory that was allocated before the fork, and
    // never returns.
    match unsafe { libc::fork() } {
        // SAFETY: as above.
        0 => unsafe {
            // A second fork, so that the parent does not wait for the process that closes.
            if libc::fork() != 0 {
                libc::_exit(0);
            }
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, c"dtrace-closer".as_ptr());
            let _ = libc::chdir(c"/".as_ptr());
            for (first, last) in &holes {
                libc::syscall(libc::SYS_close_range, *first, *last, 0);
            }
            // Nothing is written to the pipe. The read returns when the parent has closed its end,
            // which it closes last.
            if let Some((wait, _)) = &gate {
                let mut byte = 0u8;
                while libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) < 0
                    && super::last_errno() == libc::EINTR
                {}
            }
            libc::_exit(0);
        },
        child if child > 0 => {
            let mut status = 0;
            // SAFETY: a child of ours, which exits at once.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0
                && super::last_errno() == libc::EINTR
            {}
        }
        _ => {}
    }
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

/// The ranges of descriptors between these, which are sorted.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_between_the_kept_ones_are_closed() {
        assert_eq!(holes(&[]), [(0, u32::MAX)]);
        assert_eq!(holes(&[0, 3, 4, 9]), [(1, 2), (5, 8), (10, u32::MAX)]);
        assert_eq!(holes(&[2]), [(0, 1), (3, u32::MAX)]);
    }
}
