//! Networks of the tests' own: a namespace with a loopback, and what sends packets there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::Verdict::{self, Skip};
use crate::tool::{Output, dtrace, suppressed, workload};

/// A clause that keeps the network namespace of the target in `ns`, from its first `getppid` on.
const NAMESPACE: &str =
    "syscall::getppid:entry /pid == $target/ { ns = (uintptr_t)curthread->nsproxy->net_ns; } ";

/// Runs a workload in a namespace of its own. The kernel may suppress a firing: then it runs again.
pub(crate) fn traced(name: &str, count: u32, script: &str) -> Result<Output, Verdict> {
    let script = format!("{NAMESPACE}{script}");
    let mut tries = 0;
    loop {
        let o = dtrace(&["-q", "-c", &workload(name, count), "-n", &script]).code(0);
        if let Some(why) = o.out.lines().find(|l| l.starts_with("no network")) {
            return Err(Skip(why.to_string()));
        }
        tries += 1;
        if suppressed(&o) == 0 || tries == 5 {
            assert!(!o.err.contains("drop"), "{o:?}");
            return Ok(o);
        }
    }
}

/// The lines of the output, sorted.
pub(crate) fn lines(o: &Output) -> Vec<&str> {
    let mut all: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    all.sort_unstable();
    all
}

/// The loopback's address of IPv4 or IPv6.
pub(crate) fn loopback(version: u32) -> IpAddr {
    if version == 4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) }
}

/// The result of a system call.
pub(crate) fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Enters a network namespace of its own, whose loopback has this MTU. Tells the script.
pub(crate) fn namespace(mtu: i32) -> io::Result<()> {
    // SAFETY: no pointers; a new descriptor, which is ours alone.
    let socket = unsafe {
        checked(libc::unshare(libc::CLONE_NEWNET))?;
        OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0))?)
    };
    // SAFETY: the struct is plain data, for which zero bytes are valid, and lives across the calls.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_mtu = mtu;
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &raw const request))?;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request))?;
        libc::getppid();
    }
    Ok(())
}
