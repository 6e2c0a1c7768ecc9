//! Why a process cannot be a target: what the error numbers of the kernel do not say.

use std::ffi::CString;
use std::fmt;
use std::io;

/// True for a process that may trace processes whatever their privileges are, or where that is
/// unknown.
pub fn may_trace_all() -> bool {
    const SYS_PTRACE: u64 = 1 << 19;
    let capabilities = status_field("self", "CapEff", 0).and_then(|text| u64::from_str_radix(&text, 16).ok());
    capabilities.is_none_or(|has| has & SYS_PTRACE != 0)
}

/// True where the kernel withholds the privileges of a set-id program because it is traced, or has
/// given it privileges and so lets this process read nothing of it.
pub(crate) fn loses_privileges(pid: libc::pid_t) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: plain system calls.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if may_trace_all() || status_field("self", "NoNewPrivs", 0).as_deref() == Some("1") {
        return false;
    }
    let effective = |name| status_field(pid, name, 1).and_then(|text| text.parse::<u32>().ok());
    if effective("Uid").is_some_and(|id| id != uid) || effective("Gid").is_some_and(|id| id != gid) {
        return true;
    }
    let path = format!("/proc/{pid}/exe");
    let Ok(file) = std::fs::metadata(&path) else { return false };
    let Ok(path) = CString::new(path) else { return false };
    // SAFETY: strings that live across the calls; the kernel fills the struct; the size 0 asks for
    // the size of the attribute alone.
    let (nosuid, has_capabilities) = unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        let known = libc::statvfs(path.as_ptr(), &mut system) == 0;
        let nosuid = known && system.f_flag & libc::ST_NOSUID != 0;
        let name = c"security.capability".as_ptr();
        let has = libc::getxattr(path.as_ptr(), name, std::ptr::null_mut(), 0) > 0;
        (nosuid, has)
    };
    // An id that the user namespace does not have is not given to a program.
    let gains = |id: u32, own: u32| id != own && id != UNMAPPED;
    let user = file.mode() & libc::S_ISUID != 0 && gains(file.uid(), uid);
    let both = libc::S_ISGID | libc::S_IXGRP;
    let group = file.mode() & both == both && gains(file.gid(), gid);
    !nosuid && (user || group || has_capabilities)
}

/// The id that stands for all those that a user namespace does not have.
const UNMAPPED: u32 = 65534;

/// A word of a field of `/proc/PID/status`.
pub(crate) fn status_field(pid: impl fmt::Display, name: &str, word: usize) -> Option<String> {
    field_in(&std::fs::read(format!("/proc/{pid}/status")).ok()?, name, word)
}

/// A word of a field in the text of `/proc/PID/status`.
pub fn field_in(status: &[u8], name: &str, word: usize) -> Option<String> {
    let text = String::from_utf8_lossy(status);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(word).map(String::from)
}

/// What Yama lets trace whom: 0 to 3, of the kernel's `Documentation/admin-guide/LSM/Yama.rst`.
/// `None` where the kernel has no such module.
fn yama_scope() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Why a process could not be seized: what the kernel's error number does not say.
pub(crate) fn why_not(pid: libc::pid_t, error: io::Error) -> io::Error {
    const KERNEL_THREAD: u32 = 0x20_0000;
    let field = |name| status_field(pid, name, 0);
    let number = |name| field(name).and_then(|text| text.parse::<i32>().ok());
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let flags =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse().ok());
    let why = match (number("Tgid"), number("TracerPid")) {
        _ if pid == std::process::id() as i32 => "attempt to grab self".into(),
        (Some(process), _) if process != pid => format!("it is a thread of pid {process}"),
        _ if field("State").as_deref() == Some("Z") => "zombie process".into(),
        _ if flags.is_some_and(|flags: u32| flags & KERNEL_THREAD != 0) => "system process".into(),
        (_, Some(tracer)) if tracer != 0 => {
            // The field has the id of a thread.
            let process = status_field(tracer, "Tgid", 0).and_then(|text| text.parse().ok());
            let process: i32 = process.unwrap_or(tracer);
            match process == std::process::id() as i32 {
                true => "it is a target already".into(),
                false => format!("process is traced by pid {process}"),
            }
        }
        // It has ended meanwhile.
        (None, _) => return io::Error::from_raw_os_error(libc::ESRCH),
        _ if error.raw_os_error() == Some(libc::EPERM) && yama_scope() == Some(3) => {
            "Operation not permitted: kernel.yama.ptrace_scope is 3, which refuses it to everybody until \
             the machine is booted again"
                .into()
        }
        _ if error.raw_os_error() == Some(libc::EPERM) && !may_trace_all() => {
            "Operation not permitted: it has privileges or a user that dtrace does not have, or \
             kernel.yama.ptrace_scope forbids it, which needs CAP_SYS_PTRACE"
                .into()
        }
        _ => return error,
    };
    io::Error::other(why)
}
