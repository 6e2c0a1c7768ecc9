//! Polling file descriptors.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Waits until a descriptor is readable, for at most `limit`. Returns for each descriptor whether
/// it is readable. A signal ends the wait early.
pub fn poll_readable(fds: &[RawFd], limit: Duration) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: `polled` holds as many entries as said; the timespec is valid; no mask is given.
    let n = unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as u64, &limit, std::ptr::null()) };
    if n < 0 {
        let e = io::Error::last_os_error();
        return if e.kind() == io::ErrorKind::Interrupted { Ok(vec![false; fds.len()]) } else { Err(e) };
    }
    Ok(polled.iter().map(|p| p.revents != 0).collect())
}
