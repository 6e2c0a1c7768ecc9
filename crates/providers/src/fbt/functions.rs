//! Properties of a function that follow from its name.
//!
//! ARCH(x86-64): names of functions that never return or must not be traced.

/// A function that can be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function<'l> {
    pub(super) name: &'l str,
    pub(super) module: &'l str,
    /// The address that the kernel patches, from its list; 0 before 6.5.
    pub(super) site: u64,
}

impl Function<'_> {
    /// True for a copy or part of a function that the compiler made. It may have other arguments than the function in the source.
    pub(super) fn is_clone(&self) -> bool {
        self.name.contains('.')
    }

    /// True for a function that every firing runs itself: see [`TRACER`].
    pub(super) fn is_tracer(&self) -> bool {
        TRACER_KEYS.may_have(self.name) && TRACER.binary_search(&self.name).is_ok()
    }

    /// False for a function that never returns.
    pub(super) fn returns(&self) -> bool {
        !NORETURN_KEYS.may_have(self.name) || NORETURN.binary_search(&self.name).is_err()
    }
}

/// A filter that most names which are not in a list do not pass. Fifty thousand names are looked up, and nearly all are in no list.
struct Keys([u64; 4]);

impl Keys {
    const fn of(names: &[&str]) -> Keys {
        let mut keys = [0; 4];
        let mut i = 0;
        while i < names.len() {
            let key = Keys::key(names[i].as_bytes());
            keys[key / 64] |= 1 << (key % 64);
            i += 1;
        }
        Keys(keys)
    }

    /// A hash of the name's length and its first and last characters.
    const fn key(name: &[u8]) -> usize {
        let (first, last) = match name {
            [] => (0, 0),
            [first, .., last] => (*first as usize, *last as usize),
            [one] => (*one as usize, 0),
        };
        (name.len() * 37 + first * 11 + last * 5) % 256
    }

    fn may_have(&self, name: &str) -> bool {
        let key = Keys::key(name.as_bytes());
        self.0[key / 64] >> (key % 64) & 1 == 1
    }
}

static TRACER_KEYS: Keys = Keys::of(TRACER);
static NORETURN_KEYS: Keys = Keys::of(NORETURN);

/// Functions that the kernel runs around every program at a function, or that its helpers call: to walk the stack, to read user
/// memory, to find a key or a thread's variables. Sorted. They have no probes. The kernel suppresses a firing within a firing, so
/// most of theirs would only be counted as lost, some thirty for each stack, and each would cost a good part of a firing's time.
/// `is_endbr` runs before the kernel's check on kernels that look for the function's entry, and would fire at each firing.
const TRACER: &[&str] = &[
    "__bpf_get_stack",
    "__bpf_local_storage_insert_cache",
    "__bpf_prog_enter",
    "__bpf_prog_enter_recur",
    "__bpf_prog_exit",
    "__bpf_prog_exit_recur",
    "__bpf_task_storage_get",
    "__check_object_size",
    "__htab_map_lookup_elem",
    "__kernel_text_address",
    "__migrate_disable",
    "__migrate_enable",
    "__module_address",
    "__module_text_address",
    "__orc_find",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "__unwind_start",
    "__virt_addr_valid",
    "alloc_htab_elem",
    "bpf_get_attach_cookie_kprobe_multi",
    "bpf_get_stack",
    "bpf_kprobe_multi_addrs_cmp",
    "bpf_kprobe_multi_cookie_cmp",
    "bpf_ksym_find",
    "bpf_ktime_get_ns",
    "bpf_local_storage_lookup",
    "bpf_probe_read_user",
    "bpf_prog_inc_misses_counter",
    "bpf_task_storage_get",
    "bpf_task_storage_get_recur",
    "callchain_finalize",
    "callchain_store",
    "check_stack_object",
    "copy_from_kernel_nofault_allowed",
    "copy_from_user_nofault",
    "deref_stack_reg",
    "deref_stack_regs",
    "ftrace_graph_get_ret_stack",
    "ftrace_graph_ret_addr",
    "get_callchain_entry",
    "get_perf_callchain",
    "get_stack_info",
    "htab_map_update_elem",
    "in_entry_stack",
    "in_gate_area_no_mm",
    "in_task_stack",
    "is_bpf_text_address",
    "is_endbr",
    "is_ftrace_trampoline",
    "is_kprobe_insn_slot",
    "is_module_text_address",
    "is_vmalloc_addr",
    "kernel_text_address",
    "lookup_elem_raw",
    "lookup_nulls_elem_raw",
    "migrate_disable",
    "migrate_enable",
    "nmi_uaccess_okay",
    "orc_find",
    "perf_callchain_kernel",
    "put_callchain_entry",
    "rcu_read_unlock_special",
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

    #[test]
    fn names_show_clones_tracer_functions_and_functions_that_do_not_return() {
        assert!(NORETURN.is_sorted() && TRACER.is_sorted());
        let f = |name| Function { name, module: "vmlinux", site: 0 };
        assert!(TRACER.iter().all(|name| f(name).is_tracer()));
        assert!(NORETURN.iter().all(|name| !f(name).returns()));
        assert!(f("ovl.isra.0").is_clone() && !f("vfs_read").is_clone());
        assert!(f("migrate_disable").is_tracer() && !f("vfs_read").is_tracer());
        assert!(!f("do_exit").returns() && f("do_exit_not").returns());
    }
}
