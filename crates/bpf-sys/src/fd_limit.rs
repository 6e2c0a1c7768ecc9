//! The limit on open file descriptors. Each link, program and map takes one, and the usual limit is
//! 1,024.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

/// A number of descriptors for which the limit is not checked.
const FEW: u64 = 256;

/// The limit before it was raised first.
static ORIGINAL: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises the limit as far as is allowed to every process.
pub fn raise_fd_limit_at_start() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct, and then reads it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 || limit.rlim_cur >= limit.rlim_max {
            return;
        }
        _ = ORIGINAL.set(limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// How many descriptors may be open.
pub fn fd_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 { limit.rlim_cur } else { FEW }
}

/// In a process that was forked: sets the limit that this program had at its start. Safe between
/// fork and exec.
pub fn give_back_fd_limit() {
    if let Some(original) = ORIGINAL.get() {
        // SAFETY: the struct is read.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, original) };
    }
}

/// A command that is run with the limit that this program had at its start.
pub fn with_original_fd_limit(command: &mut Command) -> &mut Command {
    let give_back = || {
        give_back_fd_limit();
        Ok(())
    };
    // SAFETY: the function makes one system call.
    unsafe { command.pre_exec(give_back) }
}

/// Raises the limit so that this many more descriptors can be opened, as far as that is allowed.
pub fn raise_fd_limit(more: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct.
    if more <= FEW || unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").map_or(FEW, |fds| fds.count() as u64);
    raise_to(limit, more.saturating_add(open).saturating_add(FEW));
}

/// Raises the limit by this many, as far as that is allowed: for descriptors that were not counted
/// when it was raised.
pub fn raise_fd_limit_by(more: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        raise_to(limit, limit.rlim_cur.saturating_add(more));
    }
}

/// Raises the limit, which is this one now.
fn raise_to(limit: libc::rlimit, wanted: u64) {
    if limit.rlim_cur >= wanted {
        return;
    }
    _ = ORIGINAL.set(limit);
    let raised = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
    let allowed = libc::rlimit { rlim_cur: limit.rlim_max.min(wanted), ..limit };
    // SAFETY: the structs are read. Raising the hard limit needs a privilege, which tracers usually
    // have.
    unsafe {
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) != 0 {
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_by_what_was_not_counted_as_far_as_is_allowed() {
        let limits = || {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the kernel fills the struct.
            assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
            (limit.rlim_cur, limit.rlim_max)
        };
        let (soft, hard) = limits();
        raise_fd_limit_by(3);
        let (now, hard_now) = limits();
        assert!(now == soft + 3 || now == hard, "{soft}/{hard}: {now}/{hard_now}");
        assert!(hard_now >= hard);
    }
}
