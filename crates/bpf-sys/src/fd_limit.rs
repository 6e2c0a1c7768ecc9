//! The limit on open file descriptors. Each link, program and map takes one, and the usual limit is
//! 1,024.

/// A number of descriptors for which the limit is not checked.
const FEW: u64 = 256;

/// Raises the limit so that this many more descriptors can be opened, as far as that is allowed.
pub fn raise_fd_limit(more: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct.
    if more <= FEW || unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").map_or(FEW, |fds| fds.count() as u64);
    let wanted = more.saturating_add(open).saturating_add(FEW);
    if limit.rlim_cur >= wanted {
        return;
    }
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
