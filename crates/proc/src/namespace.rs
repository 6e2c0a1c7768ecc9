//! Which pid namespace this process counts in.

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

/// True in the initial pid namespace, and where it cannot be told.
pub fn in_initial_namespace() -> bool {
    pid_namespace().is_none_or(|ns| ns.ino == INITIAL)
}
