//! The pid namespace and the ids of this process.

use std::os::linux::fs::MetadataExt;

/// Inode of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL: u64 = 0xEFFF_FFFC;

/// A pid namespace as `bpf_get_ns_current_pid_tgid` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace {
    /// Device of the namespace file system.
    pub dev: u64,
    /// Inode of the namespace.
    pub ino: u64,
}

/// The namespace of this process; `None` without `/proc`.
pub fn pid_namespace() -> Option<PidNamespace> {
    let meta = std::fs::metadata("/proc/self/ns/pid").ok()?;
    Some(PidNamespace { dev: meta.st_dev(), ino: meta.st_ino() })
}

/// True in the initial pid namespace, and if the namespace is unknown.
pub fn in_initial_namespace() -> bool {
    pid_namespace().is_none_or(|ns| ns.ino == INITIAL)
}

/// An error where `/proc` shows another pid namespace: what it says of a number is of another
/// process.
pub(crate) fn require_own_proc() -> std::io::Result<()> {
    let own = std::process::id().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(shown) if shown.as_os_str() != &*own => Err(std::io::Error::other(
            "/proc shows the processes of another pid namespace: mount -t proc proc /proc",
        )),
        _ => Ok(()),
    }
}

/// Whether `/proc` has the processes by the ids that programs in the kernel see.
pub fn proc_has_initial_ids() -> bool {
    in_initial_namespace() && require_own_proc().is_ok()
}

/// The name of a thread of a process, as `/proc` has them.
pub fn thread_name(pid: u32, tid: u32) -> Option<Vec<u8>> {
    let mut name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    name.truncate(name.trim_ascii_end().len());
    Some(name)
}

/// The ids of this process.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identities {
    pub pid: u64,
    pub ppid: u64,
    pub uid: u64,
    pub euid: u64,
    pub gid: u64,
    pub egid: u64,
    /// Process group.
    pub pgid: u64,
    /// Session.
    pub sid: u64,
}

/// The ids of this process, for the macro variables `$pid` to `$sid`.
pub fn identities() -> Identities {
    // SAFETY: none of these calls takes memory or can fail for the calling process.
    unsafe {
        Identities {
            pid: libc::getpid() as u64,
            ppid: libc::getppid() as u64,
            uid: u64::from(libc::getuid()),
            euid: u64::from(libc::geteuid()),
            gid: u64::from(libc::getgid()),
            egid: u64::from(libc::getegid()),
            pgid: libc::getpgid(0) as u64,
            sid: libc::getsid(0) as u64,
        }
    }
}
