//! Which system calls the running kernel has, and which kernel functions they are.
//!
//! A probe is a *name*: a 64-bit and a 32-bit caller of `openat` fire the same probe, each through its own table. In the
//! index space of the program a 64-bit call has its number, a 32-bit call its number plus [`IA32_BASE`].
//!
//! What the kernel has is read from the functions in its BTF (`__x64_sys_*`, and `__do_sys_*` for calls without
//! arguments). Without BTF every call of the tables is offered: a probe on a call that the kernel lacks never fires.

use super::table::{IA32, X86_64};

/// First index of 32-bit calls.
pub(super) const IA32_BASE: u32 = 512;
/// All indexes are below this.
pub(super) const SPACE: u32 = 1024;

/// How functions begin that are system calls, in any of the ways that this file asks about.
pub(super) const PREFIXES: [&str; 4] = ["__x64_sys_", "__do_sys_", "__ia32_sys_", "__ia32_compat_sys_"];

/// Calls whose function is not named after them (arch/x86/entry/syscalls/syscall_64.tbl).
const ENTRIES: [(&str, &str); 6] = [
    ("stat", "newstat"),
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("uname", "newuname"),
    ("sendfile", "sendfile64"),
    ("umount2", "umount"),
];

/// Numbers that the 32-bit table keeps for calls that no kernel of this century has.
const GONE: [&str; 21] = [
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

/// Calls that functions do not see as the tracepoints do: they return twice, never, or in another image.
const ONLY_TRACEPOINT: [&str; 9] =
    ["execve", "execveat", "fork", "vfork", "clone", "clone3", "exit", "exit_group", "rt_sigreturn"];

/// Calls whose 32-bit function has another name than the call (syscall_32.tbl): 16-bit ids, 32-bit times, split 64-bit
/// arguments, old structures. By function they would be missed, or taken for another call.
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

/// Numbers of a call: 64-bit, 32-bit.
pub(super) fn numbers(name: &str) -> (Option<u32>, Option<u32>) {
    let of = |table: &[(u16, &str)]| table.iter().find(|(_, n)| *n == name).map(|(nr, _)| u32::from(*nr));
    (of(X86_64), of(IA32))
}

/// The kernel's name of a call in `__x64_sys_NAME`.
pub(super) fn entry(name: &str) -> &str {
    ENTRIES.iter().find(|(n, _)| *n == name).map_or(name, |(_, e)| e)
}

/// Names of the calls a kernel has, in order of their numbers, the 32-bit-only ones last. `has` tells whether the kernel
/// has a function; `None`: there is no BTF to tell.
pub(super) fn calls(has: Option<&dyn Fn(&str) -> bool>) -> Vec<&'static str> {
    let known = |prefixes: &[&str], name: &str| {
        has.is_none_or(|has| prefixes.iter().any(|p| has(&format!("{p}{name}"))))
    };
    let mut names: Vec<&'static str> = Vec::new();
    for (_, name) in X86_64 {
        let gone = GONE.contains(name) || name.starts_with("epoll_") && name.ends_with("_old");
        let offered = match has {
            Some(_) => known(&["__x64_sys_", "__do_sys_"], entry(name)),
            None => !gone,
        };
        if offered {
            names.push(name);
        }
    }
    let compat = known(&["__ia32_compat_sys_", "__ia32_sys_"], "ioctl");
    for (_, name) in IA32 {
        let only_here = !X86_64.iter().any(|(_, n)| n == name);
        if compat && only_here && !GONE.contains(name) {
            names.push(name);
        }
    }
    names
}

/// The kernel functions that are the call, for 64-bit and 32-bit callers; `None` where they do not fire alike.
pub(super) fn functions(name: &str, has: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
    if ONLY_TRACEPOINT.contains(&name) {
        return None;
    }
    let (wide, narrow) = numbers(name);
    let mut found = Vec::new();
    // A call without arguments is one function for both; the 32-bit symbol is an alias of it.
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
    fn the_space_holds_both_tables() {
        assert!(X86_64.iter().all(|(nr, _)| u32::from(*nr) < IA32_BASE));
        assert!(IA32.iter().all(|(nr, _)| u32::from(*nr) + IA32_BASE < SPACE));
    }

    #[test]
    fn without_btf_all_but_the_gone_are_offered() {
        let all = calls(None);
        assert!(all.contains(&"read") && all.contains(&"waitpid") && all.contains(&"mmap2"));
        assert!(!all.contains(&"create_module") && !all.contains(&"break"));
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len(), "each name once");
    }

    #[test]
    fn functions_only_where_they_fire_alike() {
        let has = |s: &str| !s.contains("__do_") && (!s.contains("getppid") || s == "__do_sys_getppid");
        assert_eq!(functions("execve", &has), None);
        assert_eq!(functions("getuid", &has), None, "a 32-bit getuid is getuid16");
        let read = functions("read", &has).unwrap();
        assert_eq!(read, ["__x64_sys_read", "__ia32_compat_sys_read", "__ia32_sys_read"]);
        let bare = |s: &str| has(s) || s == "__do_sys_getppid";
        assert_eq!(functions("getppid", &bare).unwrap(), ["__x64_sys_getppid"]);
    }
}
