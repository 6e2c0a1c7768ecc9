//! The system calls of the running kernel, and the kernel functions that implement them.
//!
//! A probe has a call's *name*: `openat` of a 64-bit and of a 32-bit caller is the same probe,
//! though the numbers differ. The program's index of a 64-bit call is its number, that of a 32-bit
//! call its number plus [`NARROW_BASE`].
//!
//! The functions in BTF show which calls the kernel has (`__x64_sys_*`, and `__do_sys_*` for calls
//! without arguments). Without BTF every call of the tables has probes; those of a call that the
//! kernel lacks never fire.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::arch::CALLS;

/// The index of the first 32-bit call.
pub(super) const NARROW_BASE: u32 = 512;
/// The number of indexes.
pub(super) const SPACE: u32 = 1024;

/// True for the name of a function that implements a system call.
pub(super) fn is_function(name: &str) -> bool {
    let [compat, narrow] = CALLS.narrow_prefixes;
    [CALLS.prefix, CALLS.bare_prefix, compat, narrow].iter().any(|prefix| name.starts_with(prefix))
}

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

/// Calls whose function has other firings than the tracepoints: they return twice, never, or in
/// another program.
const ONLY_TRACEPOINT: [&str; 9] =
    ["execve", "execveat", "fork", "vfork", "clone", "clone3", "exit", "exit_group", "rt_sigreturn"];

/// The numbers of a call: 64-bit and 32-bit.
pub(super) fn numbers(name: &str) -> (Option<u32>, Option<u32>) {
    let of = |table: &[(u16, &str)]| table.iter().find(|(_, n)| *n == name).map(|(nr, _)| u32::from(*nr));
    (of(CALLS.wide), of(CALLS.narrow))
}

/// The name of a call in that of its function.
pub(super) fn entry(name: &str) -> &str {
    CALLS.entries.iter().find(|(n, _)| *n == name).map_or(name, |(_, e)| e)
}

/// The names of the kernel's calls, in the order of their numbers; those for 32-bit programs only
/// are last. `has` tells whether the kernel has a function; it is `None` without BTF.
pub(super) fn calls(has: Option<&dyn Fn(&str) -> bool>) -> Vec<&'static str> {
    let known = |prefixes: &[&str], name: &str| {
        has.is_none_or(|has| prefixes.iter().any(|p| has(&format!("{p}{name}"))))
    };
    let mut names: Vec<&'static str> = Vec::new();
    for (_, name) in CALLS.wide {
        let removed = REMOVED.contains(name) || name.starts_with("epoll_") && name.ends_with("_old");
        let offered = match has {
            Some(_) => known(&[CALLS.prefix, CALLS.bare_prefix], entry(name)),
            None => !removed,
        };
        if offered {
            names.push(name);
        }
    }
    let compat = known(&CALLS.narrow_prefixes, "ioctl");
    for (_, name) in CALLS.narrow {
        let only_here = !CALLS.wide.iter().any(|(_, n)| n == name);
        if compat && only_here && !REMOVED.contains(name) {
            names.push(name);
        }
    }
    names
}

/// The kernel functions that implement a call, for 64-bit and 32-bit callers. `None` if they have
/// other firings than the tracepoints.
pub(super) fn functions(name: &str, has: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
    if ONLY_TRACEPOINT.contains(&name) {
        return None;
    }
    let (wide, narrow) = numbers(name);
    let mut found = Vec::new();
    // A call without arguments has one function for both. The 32-bit symbol is an alias.
    let bare = wide.is_some()
        && !has(&format!("{}{}", CALLS.prefix, entry(name)))
        && has(&format!("{}{}", CALLS.bare_prefix, entry(name)));
    if wide.is_some() {
        found.push(format!("{}{}", CALLS.prefix, entry(name)));
    }
    if narrow.is_some() && CALLS.narrow_prefixes.iter().any(|prefix| has(&format!("{prefix}ioctl"))) {
        if CALLS.other_in_narrow.contains(&name) {
            return None;
        }
        if !bare {
            let before = found.len();
            for prefix in CALLS.narrow_prefixes {
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
        assert!(CALLS.wide.iter().all(|(nr, _)| u32::from(*nr) < NARROW_BASE));
        assert!(CALLS.narrow.iter().all(|(nr, _)| u32::from(*nr) + NARROW_BASE < SPACE));
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
