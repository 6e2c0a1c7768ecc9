//! The system calls of the running kernel, and the kernel functions that implement them.
//!
//! A probe has a call's *name*: `openat` of a 64-bit and of a 32-bit caller is the same probe, though the numbers differ. The
//! program's index of a 64-bit call is its number, that of a 32-bit call its number plus [`IA32_BASE`].
//!
//! The functions in BTF show which calls the kernel has (`__x64_sys_*`, and `__do_sys_*` for calls without arguments). Without BTF
//! every call of the tables has probes; those of a call that the kernel lacks never fire.
//!
//! ARCH(x86-64): the functions of both tables of system calls, and their prefixes.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::table::{IA32, X86_64};

/// The index of the first 32-bit call.
pub(super) const IA32_BASE: u32 = 512;
/// The number of indexes.
pub(super) const SPACE: u32 = 1024;

/// The prefixes of functions that implement system calls.
pub(super) const PREFIXES: [&str; 4] = ["__x64_sys_", "__do_sys_", "__ia32_sys_", "__ia32_compat_sys_"];

/// Calls whose function has another name (arch/x86/entry/syscalls/syscall_64.tbl).
const ENTRIES: [(&str, &str); 6] = [
    ("stat", "newstat"),
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("uname", "newuname"),
    ("sendfile", "sendfile64"),
    ("umount2", "umount"),
];

/// Calls that no supported kernel implements. The 32-bit table still has their numbers.
const REMOVED: [&str; 21] = [
    "break",
    "stty",
    "gtty",
    "ftime",
    "prof",
    "lock",
    "mpx",
    "ulimit",
    "profil",
    "idle",
    "afs_syscall",
    "bdflush",
    "create_module",
    "get_kernel_syms",
    "query_module",
    "nfsservctl",
    "getpmsg",
    "putpmsg",
    "vserver",
    "_sysctl",
    "lookup_dcookie",
];

/// Calls whose function has other firings than the tracepoints: they return twice, never, or in another program.
const ONLY_TRACEPOINT: [&str; 9] =
    ["execve", "execveat", "fork", "vfork", "clone", "clone3", "exit", "exit_group", "rt_sigreturn"];

/// Calls whose 32-bit function has another name than the call (syscall_32.tbl): 16-bit ids, 32-bit times, divided 64-bit arguments,
/// old structures. By function they would be missed or confused with another call.
const OTHER_IN_32: [&str; 73] = [
    "chown",
    "lchown",
    "fchown",
    "setuid",
    "getuid",
    "setgid",
    "getgid",
    "geteuid",
    "getegid",
    "setreuid",
    "setregid",
    "getgroups",
    "setgroups",
    "setresuid",
    "getresuid",
    "setresgid",
    "getresgid",
    "setfsuid",
    "setfsgid",
    "select",
    "mmap",
    "getrlimit",
    "stat",
    "lstat",
    "fstat",
    "uname",
    "time",
    "stime",
    "nanosleep",
    "futex",
    "clock_settime",
    "clock_gettime",
    "clock_getres",
    "clock_nanosleep",
    "clock_adjtime",
    "adjtimex",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "sched_rr_get_interval",
    "timer_settime",
    "timer_gettime",
    "timerfd_settime",
    "timerfd_gettime",
    "ppoll",
    "pselect6",
    "recvmmsg",
    "mq_timedsend",
    "mq_timedreceive",
    "semtimedop",
    "rt_sigtimedwait",
    "io_getevents",
    "io_pgetevents",
    "pread64",
    "pwrite64",
    "readahead",
    "fadvise64",
    "sync_file_range",
    "fallocate",
    "umount",
    "umount2",
    "oldumount",
    "olduname",
    "signal",
    "sigaction",
    "sigreturn",
    "iopl",
    "arch_prctl",
    "msgctl",
    "semctl",
    "shmctl",
    "sendfile",
];

/// The numbers of a call: 64-bit and 32-bit.
pub(super) fn numbers(name: &str) -> (Option<u32>, Option<u32>) {
    let of = |table: &[(u16, &str)]| table.iter().find(|(_, n)| *n == name).map(|(nr, _)| u32::from(*nr));
    (of(X86_64), of(IA32))
}

/// The name of a call in `__x64_sys_NAME`.
pub(super) fn entry(name: &str) -> &str {
    ENTRIES.iter().find(|(n, _)| *n == name).map_or(name, |(_, e)| e)
}

/// The names of the kernel's calls, in the order of their numbers; those for 32-bit programs only are last. `has` tells whether the
/// kernel has a function; it is `None` without BTF.
pub(super) fn calls(has: Option<&dyn Fn(&str) -> bool>) -> Vec<&'static str> {
    let known = |prefixes: &[&str], name: &str| {
        has.is_none_or(|has| prefixes.iter().any(|p| has(&format!("{p}{name}"))))
    };
    let mut names: Vec<&'static str> = Vec::new();
    for (_, name) in X86_64 {
        let removed = REMOVED.contains(name) || name.starts_with("epoll_") && name.ends_with("_old");
        let offered = match has {
            Some(_) => known(&["__x64_sys_", "__do_sys_"], entry(name)),
            None => !removed,
        };
        if offered {
            names.push(name);
        }
    }
    let compat = known(&["__ia32_compat_sys_", "__ia32_sys_"], "ioctl");
    for (_, name) in IA32 {
        let only_here = !X86_64.iter().any(|(_, n)| n == name);
        if compat && only_here && !REMOVED.contains(name) {
            names.push(name);
        }
    }
    names
}

/// The kernel functions that implement a call, for 64-bit and 32-bit callers. `None` if they have other firings than the tracepoints.
pub(super) fn functions(name: &str, has: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
    if ONLY_TRACEPOINT.contains(&name) {
        return None;
    }
    let (wide, narrow) = numbers(name);
    let mut found = Vec::new();
    // A call without arguments has one function for both. The 32-bit symbol is an alias.
    let bare = wide.is_some()
        && !has(&format!("__x64_sys_{}", entry(name)))
        && has(&format!("__do_sys_{}", entry(name)));
    if wide.is_some() {
        found.push(format!("__x64_sys_{}", entry(name)));
    }
    if narrow.is_some() && has("__ia32_sys_ioctl") | has("__ia32_compat_sys_ioctl") {
        if OTHER_IN_32.contains(&name) {
            return None;
        }
        if !bare {
            let before = found.len();
            for prefix in ["__ia32_compat_sys_", "__ia32_sys_"] {
                let symbol = format!("{prefix}{name}");
                if has(&symbol) {
                    found.push(symbol);
                }
            }
            if found.len() == before {
                return None;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_own_number_in_each_table() {
        assert_eq!(numbers("read"), (Some(0), Some(3)));
        assert_eq!(numbers("getppid"), (Some(110), Some(64)));
        assert_eq!(numbers("waitpid"), (None, Some(7)));
        assert_eq!(numbers("nosuch"), (None, None));
    }

    #[test]
    fn indexes_of_both_tables_fit() {
        assert!(X86_64.iter().all(|(nr, _)| u32::from(*nr) < IA32_BASE));
        assert!(IA32.iter().all(|(nr, _)| u32::from(*nr) + IA32_BASE < SPACE));
    }

    #[test]
    fn without_btf_every_call_that_kernels_implement_is_offered() {
        let all = calls(None);
        assert!(all.contains(&"read") && all.contains(&"waitpid") && all.contains(&"mmap2"));
        assert!(!all.contains(&"create_module") && !all.contains(&"break"));
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len(), "each name once");
    }

    #[test]
    fn only_calls_with_the_same_firings_by_function_have_functions() {
        let has = |s: &str| !s.contains("__do_") && (!s.contains("getppid") || s == "__do_sys_getppid");
        assert_eq!(functions("execve", &has), None);
        assert_eq!(functions("getuid", &has), None, "a 32-bit getuid is getuid16");
        let read = functions("read", &has).unwrap();
        assert_eq!(read, ["__x64_sys_read", "__ia32_compat_sys_read", "__ia32_sys_read"]);
        let bare = |s: &str| has(s) || s == "__do_sys_getppid";
        assert_eq!(functions("getppid", &bare).unwrap(), ["__x64_sys_getppid"]);
    }
}
