//! The functions that this kernel lets be traced, as its own list in tracefs has them.
//!
//! The list is read once, when a description first needs it: 45,000 lines, which the kernel takes longer to write than we to
//! read. Names are kept once each; a probe at entry and one at return, of `fbt` and of `rawfbt`, share them.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// Module of what is in the kernel itself.
pub(super) const CORE: &str = "vmlinux";

/// Entries of code that is gone (a weak function that another replaced).
const INVALID: &str = "__ftrace_invalid_address__";

/// A function that can be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: Arc<str>,
    pub(super) module: Arc<str>,
    /// Where the kernel patches it, as its list says; 0 where it does not (before 6.5).
    pub(super) site: u64,
}

impl Function {
    /// A copy that the compiler made of a function, or a part of one: its arguments need not be those of the source.
    pub(super) fn is_clone(&self) -> bool {
        self.name.contains('.')
    }

    /// Every firing runs it, so that none can be told from those of the tracer itself.
    fn is_tracer(&self) -> bool {
        TRACER.binary_search(&&*self.name).is_ok()
    }

    /// False where its return is never reached.
    pub(super) fn returns(&self) -> bool {
        NORETURN.binary_search(&&*self.name).is_err()
    }
}

/// Reads the list.
pub(super) fn read() -> Result<Vec<Function>, String> {
    read_in(bpf::sys::tracefs()?)
}

fn read_in(tracefs: &Path) -> Result<Vec<Function>, String> {
    for name in ["available_filter_functions_addrs", "available_filter_functions"] {
        let file = tracefs.join(name);
        match text(&file) {
            Ok(text) if !text.is_empty() => return Ok(parse(&text)),
            Ok(_) => return Err(format!("{name} is empty")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{name}: {}", reason(&e))),
        }
    }
    Err("it was built without CONFIG_DYNAMIC_FTRACE".into())
}

/// The system's words.
fn reason(e: &io::Error) -> String {
    e.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// In as large pieces as the kernel gives (a page): the file has no size.
fn text(path: &Path) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("not text"))
}

/// `[address] name [module]`, a line a function.
fn parse(text: &str) -> Vec<Function> {
    let core: Arc<str> = CORE.into();
    let mut module = core.clone();
    let mut all = Vec::with_capacity(text.len() / 24);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().peekable();
        let address = |w: &&str| w.len() == 16 && w.bytes().all(|b| b.is_ascii_hexdigit());
        let site = words.next_if(address).and_then(|w| u64::from_str_radix(w, 16).ok()).unwrap_or(0);
        let Some(name) = words.next().filter(|n| !n.starts_with(INVALID) && !n.contains(':')) else {
            continue;
        };
        // A module's functions stand together.
        match words.next().and_then(|w| w.strip_prefix('[')?.strip_suffix(']')) {
            None => module = core.clone(),
            Some(m) if m == &*module => {}
            Some(m) => module = m.into(),
        }
        let function = Function { name: name.into(), module: module.clone(), site };
        if !function.is_tracer() {
            all.push(function);
        }
    }
    all
}

/// Functions that the kernel itself runs around every program at a function, or to walk the stack for one; sorted. The kernel
/// keeps a probe from firing within a probe, so most of their firings would only be counted as lost, some thirty for each
/// stack; `is_endbr` runs before that guard on kernels that look for the function's entry, and would fire once for each firing.
const TRACER: &[&str] = &[
    "__bpf_prog_enter",
    "__bpf_prog_enter_recur",
    "__bpf_prog_exit",
    "__bpf_prog_exit_recur",
    "__kernel_text_address",
    "__migrate_disable",
    "__migrate_enable",
    "__module_address",
    "__module_text_address",
    "__orc_find",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "__unwind_start",
    "bpf_ksym_find",
    "deref_stack_reg",
    "deref_stack_regs",
    "ftrace_graph_get_ret_stack",
    "ftrace_graph_ret_addr",
    "get_perf_callchain",
    "get_stack_info",
    "in_entry_stack",
    "in_task_stack",
    "is_bpf_text_address",
    "is_endbr",
    "is_ftrace_trampoline",
    "is_kprobe_insn_slot",
    "is_module_text_address",
    "kernel_text_address",
    "migrate_disable",
    "migrate_enable",
    "orc_find",
    "perf_callchain_kernel",
    "rethook_find_ret_addr",
    "stack_access_ok",
    "unwind_get_return_address",
    "unwind_get_return_address_ptr",
    "unwind_next_frame",
    "unwind_recover_rethook",
];

/// Functions that do not return (`tools/objtool/noreturns.h`), sorted.
const NORETURN: &[&str] = &[
    "__fortify_panic",
    "__ia32_sys_exit",
    "__ia32_sys_exit_group",
    "__module_put_and_kthread_exit",
    "__stack_chk_fail",
    "__tdx_hypercall_failed",
    "__ubsan_handle_builtin_unreachable",
    "__x64_sys_exit",
    "__x64_sys_exit_group",
    "acpi_processor_ffh_play_dead",
    "arch_cpu_idle_dead",
    "bch2_trans_in_restart_error",
    "bch2_trans_restart_error",
    "bch2_trans_unlocked_error",
    "bch2_trans_unlocked_or_in_restart_error",
    "cpu_bringup_and_idle",
    "cpu_startup_entry",
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "ex_handler_msr_mce",
    "hlt_play_dead",
    "hv_ghcb_terminate",
    "kthread_complete_and_exit",
    "kthread_exit",
    "kunit_try_catch_throw",
    "machine_real_restart",
    "make_task_dead",
    "mpt_halt_firmware",
    "mwait_play_dead",
    "nmi_panic_self_stop",
    "panic",
    "panic_smp_self_stop",
    "rest_init",
    "rewind_stack_and_make_dead",
    "rust_begin_unwind",
    "rust_helper_BUG",
    "sev_es_terminate",
    "snp_abort",
    "start_kernel",
    "stop_this_cpu",
    "usercopy_abort",
    "x86_64_start_kernel",
    "x86_64_start_reservations",
    "xen_cpu_bringup_again",
    "xen_start_kernel",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[Function]) -> Vec<String> {
        all.iter().map(|f| format!("{}`{} {:x}", f.module, f.name, f.site)).collect()
    }

    #[test]
    fn both_forms_of_the_list_are_read() {
        let addresses = "ffffffff81002014 vfs_read\nffffffff81002084 dup\nffffffffc02ea974 dup [overlay]\n\
                         ffffffffc02ea9d0 ovl.isra.0 [overlay]\nffffffff81003000 last\n";
        let expected = [
            "vmlinux`vfs_read ffffffff81002014",
            "vmlinux`dup ffffffff81002084",
            "overlay`dup ffffffffc02ea974",
            "overlay`ovl.isra.0 ffffffffc02ea9d0",
            "vmlinux`last ffffffff81003000",
        ];
        assert_eq!(names(&parse(addresses)), expected);
        let plain = "__ftrace_invalid_address___496\nvfs_read\nnfs_read [nfs]\n\n";
        assert_eq!(names(&parse(plain)), ["vmlinux`vfs_read 0", "nfs`nfs_read 0"]);
        let all = parse(addresses);
        assert!(all[3].is_clone() && !all[0].is_clone());
        assert!(Arc::ptr_eq(&all[2].module, &all[3].module));
    }

    #[test]
    fn functions_that_do_not_return_are_sorted() {
        assert!(NORETURN.is_sorted() && TRACER.is_sorted());
        assert_eq!(parse("migrate_disable\n"), []);
        assert!(!parse("do_exit\n")[0].returns() && parse("do_exit_not\n")[0].returns());
    }

    #[test]
    fn what_is_missing_is_said() {
        let dir = std::env::temp_dir().join(format!("fbt-list-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(read_in(&dir).unwrap_err().contains("CONFIG_DYNAMIC_FTRACE"));
        std::fs::write(dir.join("available_filter_functions"), "vfs_read\n").unwrap();
        assert_eq!(names(&read_in(&dir).unwrap()), ["vmlinux`vfs_read 0"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
