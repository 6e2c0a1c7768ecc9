//! Closing what the kernel closes slowly, in a process that does nothing else.
//!
//! To detach a perf event or a trampoline takes the kernel a tenth of a second, and thousands of functions on one link several
//! seconds; each is the close of the last descriptor. So a child takes copies of the descriptors and ends: its memory goes
//! first, then its descriptors, as slowly as it may be, and whoever made it need not wait. It has nothing else of its
//! parent: not its terminal, not its pipes. It ends only when its parent has closed its own: the last close is the slow one.

use super::Link;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Closes links in a background process; these descriptors of ours are closed when this returns. Where there can be no
/// process, they are closed here.
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
    // SAFETY: the child makes system calls only, on memory that was made before, and never returns.
    match unsafe { libc::fork() } {
        // SAFETY: as above.
        0 => unsafe {
            // A second one, so that nobody has to wait for the first.
            if libc::fork() != 0 {
                libc::_exit(0);
            }
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, c"dtrace-closer".as_ptr());
            let _ = libc::chdir(c"/".as_ptr());
            for (first, last) in &holes {
                libc::syscall(libc::SYS_close_range, *first, *last, 0);
            }
            // Nobody writes: it ends when the parent has closed its end, behind all others.
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
            // SAFETY: a child of ours; it ends at once.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0
                && super::last_errno() == libc::EINTR
            {}
        }
        _ => {}
    }
    drop(links);
    drop(gate);
}

/// A pipe: where to wait, and what to close for that to end.
fn gate() -> Option<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers; both descriptors are ours alone.
    unsafe {
        (libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == 0)
            .then(|| (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_closed() {
        assert_eq!(holes(&[]), [(0, u32::MAX)]);
        assert_eq!(holes(&[0, 3, 4, 9]), [(1, 2), (5, 8), (10, u32::MAX)]);
        assert_eq!(holes(&[2]), [(0, 1), (3, u32::MAX)]);
    }
}
