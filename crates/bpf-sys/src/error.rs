//! Errors of system calls, with an explanation.
//!
//! The kernel's errno alone says little (EPERM has six causes). So the error is created where the
//! attempt is known. The state of the system that explains it (capabilities, lockdown, sysctls) is
//! read only then.

use crate::system::{Capabilities, Lockdown};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// A failed system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysError {
    /// The attempt: completes "cannot …".
    pub what: String,
    /// The kernel's error number.
    pub errno: i32,
    /// A remedy, where known.
    pub hint: Option<String>,
}

impl SysError {
    /// The failure `errno` of an attempt, with a hint where the system's state explains it.
    pub fn new(what: impl Into<String>, errno: i32) -> SysError {
        if matches!(errno, libc::EMFILE | libc::ENFILE) {
            RAN_OUT_OF_FILES.store(true, Ordering::Relaxed);
        }
        SysError { what: what.into(), errno, hint: hint(errno) }
    }

    /// Adds the caller's hint when there is no better one.
    #[must_use]
    pub fn or_hint(mut self, hint: impl FnOnce() -> Option<String>) -> SysError {
        if self.hint.is_none() {
            self.hint = hint();
        }
        self
    }

    /// True when a privilege is missing.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno, libc::EPERM | libc::EACCES)
    }

    /// True when memory is missing.
    pub fn is_memory(&self) -> bool {
        matches!(self.errno, libc::ENOMEM | libc::E2BIG)
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.what, crate::errno::text(self.errno))?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SysError {}

fn hint(errno: i32) -> Option<String> {
    match errno {
        libc::EPERM | libc::EACCES => permission_hint(errno),
        libc::ENOSYS => Some("this kernel has no bpf(2)".into()),
        libc::ENOMEM => Some("not enough kernel memory, or the memory cgroup's limit is reached".into()),
        libc::EMFILE | libc::ENFILE => Some("too many open files: raise `ulimit -n`".into()),
        _ => None,
    }
}

/// Some system call of this crate failed for want of descriptors.
static RAN_OUT_OF_FILES: AtomicBool = AtomicBool::new(false);

/// The error to report when a system call of this crate has failed for want of descriptors: what
/// was found missing by trying may be there.
pub fn out_of_files() -> Option<SysError> {
    let ran_out = RAN_OUT_OF_FILES.load(Ordering::Relaxed);
    ran_out.then(|| SysError::new("try what this kernel has", libc::EMFILE))
}

/// What this process lacks to trace at all, whatever the kernel has: capabilities, or being in the
/// initial user namespace.
pub fn missing_privilege() -> Option<String> {
    let caps = Capabilities::of_this_thread();
    if !caps.can_trace() {
        let missing: Vec<&str> = [("CAP_BPF", caps.bpf), ("CAP_PERFMON", caps.perfmon)]
            .iter()
            .filter(|(_, has)| !has && !caps.sys_admin)
            .map(|(name, _)| *name)
            .collect();
        return Some(format!("needs {}, or root", missing.join(" and ")));
    }
    in_user_namespace().then(|| "capabilities of a user namespace do not count here".into())
}

fn permission_hint(errno: i32) -> Option<String> {
    if let Some(missing) = missing_privilege() {
        return Some(missing);
    }
    match Lockdown::of_this_kernel() {
        Lockdown::None => {}
        state => return Some(format!("the kernel is locked down: {state}")),
    }
    // The filters of containers answer EPERM. EACCES is the answer of a setting that the caller
    // knows.
    if errno != libc::EPERM {
        return None;
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let filtered = status.lines().any(|l| l.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    filtered.then(|| "perhaps a seccomp filter of this process or container refuses it".into())
}

fn in_user_namespace() -> bool {
    // In the initial user namespace the map is the identity over all ids.
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().ne(["0", "0", "4294967295"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_attempt_the_reason_and_a_remedy() {
        let e = SysError { what: "create map x".into(), errno: libc::ENOENT, hint: Some("do y".into()) };
        assert_eq!(e.to_string(), "cannot create map x: No such file or directory (do y)");
    }
}
