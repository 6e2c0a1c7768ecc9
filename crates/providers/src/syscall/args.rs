//! The types of a call's arguments.
//!
//! They come from the format of the call's event in tracefs, which most kernels have. Else they
//! come from BTF, from the function that implements the call (`__do_sys_NAME`), if the compiler did
//! not inline it. (`__x64_sys_NAME` has only a pointer to registers.) A few calls, most of them for
//! 32-bit programs only, have neither: their types are in [`UNTYPED`]. Every pointer argument
//! points into the process.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::sync::Arc;

use probes::{ArgType, Args};
use system::System;
use types::btf::{Btf, BtfKind, Def};

use super::names::entry;
use crate::trace::Place;

/// Arguments of calls for which a kernel may have no types.
const UNTYPED: &[(&str, &[&str])] = &[
    ("_llseek", &["unsigned int", "unsigned long", "unsigned long", "long long *", "unsigned int"]),
    ("break", &["unsigned long"]),
    ("delete_module", &["const char *", "unsigned int"]),
    ("fadvise64_64", &["int", "unsigned int", "unsigned int", "unsigned int", "unsigned int", "int"]),
    ("fcntl64", &["unsigned int", "unsigned int", "unsigned long"]),
    ("finit_module", &["int", "const char *", "int"]),
    ("fstat64", &["unsigned long", "struct stat64 *"]),
    ("fstatat64", &["unsigned int", "const char *", "struct stat64 *", "int"]),
    ("fstatfs64", &["unsigned int", "size_t", "struct statfs64 *"]),
    ("ftruncate64", &["unsigned int", "unsigned int", "unsigned int"]),
    ("get_thread_area", &["struct user_desc *"]),
    ("init_module", &["void *", "unsigned long", "const char *"]),
    ("ipc", &["unsigned int", "int", "unsigned long", "unsigned long", "void *", "long"]),
    ("kexec_file_load", &["int", "int", "unsigned long", "const char *", "unsigned long"]),
    ("kexec_load", &["unsigned long", "unsigned long", "struct kexec_segment *", "unsigned long"]),
    ("listns", &["const struct ns_id_req *", "uint64_t *", "size_t", "unsigned int"]),
    ("lstat64", &["const char *", "struct stat64 *"]),
    ("map_shadow_stack", &["unsigned long", "unsigned long", "unsigned int"]),
    (
        "mmap2",
        &[
            "unsigned long",
            "unsigned long",
            "unsigned long",
            "unsigned long",
            "unsigned long",
            "unsigned long",
        ],
    ),
    ("nice", &["int"]),
    ("oldfstat", &["unsigned int", "struct __old_kernel_stat *"]),
    ("oldlstat", &["const char *", "struct __old_kernel_stat *"]),
    ("oldolduname", &["struct oldold_utsname *"]),
    ("oldstat", &["const char *", "struct __old_kernel_stat *"]),
    ("olduname", &["struct old_utsname *"]),
    ("readdir", &["unsigned int", "struct old_linux_dirent *", "unsigned int"]),
    ("rseq_slice_yield", &[]),
    ("rt_sigreturn", &[]),
    ("set_thread_area", &["struct user_desc *"]),
    ("sgetmask", &[]),
    ("sigaction", &["int", "const struct old_sigaction *", "struct old_sigaction *"]),
    ("signal", &["int", "void *"]),
    ("sigpending", &["unsigned int *"]),
    ("sigprocmask", &["int", "unsigned int *", "unsigned int *"]),
    ("sigreturn", &[]),
    ("sigsuspend", &["int", "int", "unsigned int"]),
    ("socketcall", &["int", "unsigned long *"]),
    ("ssetmask", &["int"]),
    ("stat64", &["const char *", "struct stat64 *"]),
    ("statfs64", &["const char *", "size_t", "struct statfs64 *"]),
    ("stime", &["int *"]),
    ("truncate64", &["const char *", "unsigned int", "unsigned int"]),
    ("uselib", &["const char *"]),
    ("vm86", &["unsigned long", "unsigned long"]),
    ("vm86old", &["void *"]),
    ("waitpid", &["int", "int *", "int"]),
];

/// 32-bit calls whose event has another name.
const ALIASES: [(&str, &str); 2] = [("_newselect", "select"), ("ugetrlimit", "getrlimit")];

/// The names that a call may have in the names of the kernel's events and functions.
fn names(call: &str) -> Vec<&str> {
    let alias = ALIASES.iter().find(|(n, _)| *n == call).map(|(_, e)| *e);
    let clock = |n: &&str| n.starts_with("clock_") || n.starts_with("timer");
    let wide = call.strip_suffix("_time64").or_else(|| call.strip_suffix("64").filter(clock));
    [Some(entry(call)), alias, wide, call.strip_suffix("32")].into_iter().flatten().collect()
}

/// The arguments of a call at its entry.
pub(super) fn of(call: &str, system: &System) -> Args {
    let names = names(call);
    let format =
        names.iter().find_map(|n| crate::trace::format(system, "syscalls", &format!("sys_enter_{n}")));
    if let Some(format) = format {
        let own = format.fields.iter().filter(|f| f.place == Place::Here && f.name != "__syscall_nr");
        return Ok((0..).zip(own).map(|(n, f)| ArgType::text(n, f.ty.clone()).in_process()).collect());
    }
    if let Some((_, types)) = UNTYPED.iter().find(|(n, _)| *n == call) {
        return Ok((0..).zip(*types).map(|(n, ty)| ArgType::text(n, *ty).in_process()).collect());
    }
    let worker = |btf: &Arc<Btf>| names.iter().find_map(|n| worker(btf, n));
    let btf = system.types().vmlinux().ok();
    btf.and_then(worker).ok_or_else(|| match system.why_no_events() {
        None => format!("this kernel does not say what {call} takes"),
        Some(why) => why,
    })
}

/// The parameters of the function that implements a call.
fn worker(btf: &Arc<Btf>, call: &str) -> Option<Arc<[ArgType]>> {
    let found = ["__do_sys_", "__do_compat_sys_"].iter().find_map(|p| btf.func(&format!("{p}{call}")))?;
    // The function of a call without arguments still takes the registers.
    let registers = |ty: u32| match btf.def(btf.resolve(ty)) {
        Some(Def::Pointer(to)) => Some(btf.resolve(to)) == btf.find(&[BtfKind::Struct], "pt_regs"),
        _ => false,
    };
    let params = (0..).zip(&found.params).filter(|(_, p)| !registers(p.ty));
    Some(params.map(|(n, p)| ArgType::btf(n, btf, p.ty).in_process()).collect())
}

/// The arguments at a call's return: the result.
pub(super) fn of_return() -> Args {
    Ok(Arc::new([ArgType::text(0, "long"), ArgType::text(1, "long")]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_under_the_kernels_names() {
        assert_eq!(names("stat"), ["newstat"]);
        assert_eq!(names("clock_gettime64"), ["clock_gettime64", "clock_gettime"]);
        assert_eq!(names("futex_time64"), ["futex_time64", "futex"]);
        assert_eq!(names("getuid32"), ["getuid32", "getuid"]);
        assert_eq!(names("_newselect"), ["_newselect", "select"]);
        assert_eq!(names("stat64"), ["stat64"]);
    }

    #[test]
    fn calls_without_types_are_sorted_and_unique() {
        assert!(UNTYPED.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
