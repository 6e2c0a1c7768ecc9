//! The kernel's helper functions: numbers and names (`uapi/linux/bpf.h`).
//!
//! The constants below are the helpers that we call. The kernel's list of helpers is closed (newer
//! functions are kfuncs, called by BTF id), so the table does not grow.

use std::fmt;

/// A helper function by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Helper(pub i32);

#[allow(missing_docs)]
impl Helper {
    pub const MAP_LOOKUP_ELEM: Helper = Helper(1);
    pub const MAP_UPDATE_ELEM: Helper = Helper(2);
    pub const MAP_DELETE_ELEM: Helper = Helper(3);
    pub const PROBE_READ: Helper = Helper(4);
    pub const KTIME_GET_NS: Helper = Helper(5);
    pub const TRACE_PRINTK: Helper = Helper(6);
    pub const GET_PRANDOM_U32: Helper = Helper(7);
    pub const GET_SMP_PROCESSOR_ID: Helper = Helper(8);
    pub const TAIL_CALL: Helper = Helper(12);
    pub const GET_CURRENT_PID_TGID: Helper = Helper(14);
    pub const GET_CURRENT_UID_GID: Helper = Helper(15);
    pub const GET_CURRENT_COMM: Helper = Helper(16);
    pub const PERF_EVENT_READ: Helper = Helper(22);
    pub const PERF_EVENT_OUTPUT: Helper = Helper(25);
    pub const GET_STACKID: Helper = Helper(27);
    pub const GET_CURRENT_TASK: Helper = Helper(35);
    pub const PROBE_WRITE_USER: Helper = Helper(36);
    pub const CURRENT_TASK_UNDER_CGROUP: Helper = Helper(37);
    pub const GET_NUMA_NODE_ID: Helper = Helper(42);
    pub const PROBE_READ_STR: Helper = Helper(45);
    pub const PERF_EVENT_READ_VALUE: Helper = Helper(55);
    pub const PERF_PROG_READ_VALUE: Helper = Helper(56);
    pub const OVERRIDE_RETURN: Helper = Helper(58);
    pub const GET_STACK: Helper = Helper(67);
    pub const GET_CURRENT_CGROUP_ID: Helper = Helper(80);
    pub const SPIN_LOCK: Helper = Helper(93);
    pub const SPIN_UNLOCK: Helper = Helper(94);
    pub const SEND_SIGNAL: Helper = Helper(109);
    pub const PROBE_READ_USER: Helper = Helper(112);
    pub const PROBE_READ_KERNEL: Helper = Helper(113);
    pub const PROBE_READ_USER_STR: Helper = Helper(114);
    pub const PROBE_READ_KERNEL_STR: Helper = Helper(115);
    pub const SEND_SIGNAL_THREAD: Helper = Helper(117);
    pub const JIFFIES64: Helper = Helper(118);
    pub const GET_NS_CURRENT_PID_TGID: Helper = Helper(120);
    pub const KTIME_GET_BOOT_NS: Helper = Helper(125);
    pub const SEQ_WRITE: Helper = Helper(127);
    pub const RINGBUF_OUTPUT: Helper = Helper(130);
    pub const RINGBUF_RESERVE: Helper = Helper(131);
    pub const RINGBUF_SUBMIT: Helper = Helper(132);
    pub const RINGBUF_DISCARD: Helper = Helper(133);
    pub const RINGBUF_QUERY: Helper = Helper(134);
    pub const GET_TASK_STACK: Helper = Helper(141);
    pub const COPY_FROM_USER: Helper = Helper(148);
    pub const SNPRINTF_BTF: Helper = Helper(149);
    pub const PER_CPU_PTR: Helper = Helper(153);
    pub const THIS_CPU_PTR: Helper = Helper(154);
    pub const TASK_STORAGE_GET: Helper = Helper(156);
    pub const TASK_STORAGE_DELETE: Helper = Helper(157);
    pub const GET_CURRENT_TASK_BTF: Helper = Helper(158);
    pub const KTIME_GET_COARSE_NS: Helper = Helper(160);
    pub const FOR_EACH_MAP_ELEM: Helper = Helper(164);
    pub const SNPRINTF: Helper = Helper(165);
    pub const TIMER_INIT: Helper = Helper(169);
    pub const GET_FUNC_IP: Helper = Helper(173);
    pub const GET_ATTACH_COOKIE: Helper = Helper(174);
    pub const TASK_PT_REGS: Helper = Helper(175);
    pub const KALLSYMS_LOOKUP_NAME: Helper = Helper(179);
    pub const FIND_VMA: Helper = Helper(180);
    pub const LOOP: Helper = Helper(181);
    pub const STRNCMP: Helper = Helper(182);
    pub const GET_FUNC_ARG: Helper = Helper(183);
    pub const GET_FUNC_RET: Helper = Helper(184);
    pub const GET_FUNC_ARG_CNT: Helper = Helper(185);
    pub const COPY_FROM_USER_TASK: Helper = Helper(191);
    pub const MAP_LOOKUP_PERCPU_ELEM: Helper = Helper(195);
    pub const KTIME_GET_TAI_NS: Helper = Helper(208);
}

impl Helper {
    /// The helper with this name, without `bpf_`.
    pub fn by_name(name: &str) -> Option<Helper> {
        NAMES.iter().position(|n| *n == name).map(|i| Helper(i as i32 + 1))
    }

    /// The helper's name, without `bpf_`. `None` when the table does not have it.
    pub fn name(self) -> Option<&'static str> {
        usize::try_from(self.0).ok()?.checked_sub(1).and_then(|i| NAMES.get(i)).copied()
    }
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "helper#{}", self.0),
        }
    }
}

impl fmt::Debug for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names by number, from 1.
#[rustfmt::skip]
const NAMES: [&str; 211] = [
    "map_lookup_elem", "map_update_elem", "map_delete_elem", "probe_read", "ktime_get_ns", "trace_printk",
    "get_prandom_u32", "get_smp_processor_id", "skb_store_bytes", "l3_csum_replace", "l4_csum_replace",
    "tail_call", "clone_redirect", "get_current_pid_tgid", "get_current_uid_gid", "get_current_comm",
    "get_cgroup_classid", "skb_vlan_push", "skb_vlan_pop", "skb_get_tunnel_key", "skb_set_tunnel_key",
    "perf_event_read", "redirect", "get_route_realm", "perf_event_output", "skb_load_bytes", "get_stackid",
    "csum_diff", "skb_get_tunnel_opt", "skb_set_tunnel_opt", "skb_change_proto", "skb_change_type",
    "skb_under_cgroup", "get_hash_recalc", "get_current_task", "probe_write_user",
    "current_task_under_cgroup", "skb_change_tail", "skb_pull_data", "csum_update", "set_hash_invalid",
    "get_numa_node_id", "skb_change_head", "xdp_adjust_head", "probe_read_str", "get_socket_cookie",
    "get_socket_uid", "set_hash", "setsockopt", "skb_adjust_room", "redirect_map", "sk_redirect_map",
    "sock_map_update", "xdp_adjust_meta", "perf_event_read_value", "perf_prog_read_value", "getsockopt",
    "override_return", "sock_ops_cb_flags_set", "msg_redirect_map", "msg_apply_bytes", "msg_cork_bytes",
    "msg_pull_data", "bind", "xdp_adjust_tail", "skb_get_xfrm_state", "get_stack", "skb_load_bytes_relative",
    "fib_lookup", "sock_hash_update", "msg_redirect_hash", "sk_redirect_hash", "lwt_push_encap",
    "lwt_seg6_store_bytes", "lwt_seg6_adjust_srh", "lwt_seg6_action", "rc_repeat", "rc_keydown",
    "skb_cgroup_id", "get_current_cgroup_id", "get_local_storage", "sk_select_reuseport",
    "skb_ancestor_cgroup_id", "sk_lookup_tcp", "sk_lookup_udp", "sk_release", "map_push_elem", "map_pop_elem",
    "map_peek_elem", "msg_push_data", "msg_pop_data", "rc_pointer_rel", "spin_lock", "spin_unlock",
    "sk_fullsock", "tcp_sock", "skb_ecn_set_ce", "get_listener_sock", "skc_lookup_tcp", "tcp_check_syncookie",
    "sysctl_get_name", "sysctl_get_current_value", "sysctl_get_new_value", "sysctl_set_new_value", "strtol",
    "strtoul", "sk_storage_get", "sk_storage_delete", "send_signal", "tcp_gen_syncookie", "skb_output",
    "probe_read_user", "probe_read_kernel", "probe_read_user_str", "probe_read_kernel_str", "tcp_send_ack",
    "send_signal_thread", "jiffies64", "read_branch_records", "get_ns_current_pid_tgid", "xdp_output",
    "get_netns_cookie", "get_current_ancestor_cgroup_id", "sk_assign", "ktime_get_boot_ns", "seq_printf",
    "seq_write", "sk_cgroup_id", "sk_ancestor_cgroup_id", "ringbuf_output", "ringbuf_reserve",
    "ringbuf_submit", "ringbuf_discard", "ringbuf_query", "csum_level", "skc_to_tcp6_sock", "skc_to_tcp_sock",
    "skc_to_tcp_timewait_sock", "skc_to_tcp_request_sock", "skc_to_udp6_sock", "get_task_stack",
    "load_hdr_opt", "store_hdr_opt", "reserve_hdr_opt", "inode_storage_get", "inode_storage_delete", "d_path",
    "copy_from_user", "snprintf_btf", "seq_printf_btf", "skb_cgroup_classid", "redirect_neigh", "per_cpu_ptr",
    "this_cpu_ptr", "redirect_peer", "task_storage_get", "task_storage_delete", "get_current_task_btf",
    "bprm_opts_set", "ktime_get_coarse_ns", "ima_inode_hash", "sock_from_file", "check_mtu",
    "for_each_map_elem", "snprintf", "sys_bpf", "btf_find_by_name_kind", "sys_close", "timer_init",
    "timer_set_callback", "timer_start", "timer_cancel", "get_func_ip", "get_attach_cookie", "task_pt_regs",
    "get_branch_snapshot", "trace_vprintk", "skc_to_unix_sock", "kallsyms_lookup_name", "find_vma", "loop",
    "strncmp", "get_func_arg", "get_func_ret", "get_func_arg_cnt", "get_retval", "set_retval",
    "xdp_get_buff_len", "xdp_load_bytes", "xdp_store_bytes", "copy_from_user_task", "skb_set_tstamp",
    "ima_file_hash", "kptr_xchg", "map_lookup_percpu_elem", "skc_to_mptcp_sock", "dynptr_from_mem",
    "ringbuf_reserve_dynptr", "ringbuf_submit_dynptr", "ringbuf_discard_dynptr", "dynptr_read",
    "dynptr_write", "dynptr_data", "tcp_raw_gen_syncookie_ipv4", "tcp_raw_gen_syncookie_ipv6",
    "tcp_raw_check_syncookie_ipv4", "tcp_raw_check_syncookie_ipv6", "ktime_get_tai_ns", "user_ringbuf_drain",
    "cgrp_storage_get", "cgrp_storage_delete",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(Helper::by_name("map_lookup_elem"), Some(Helper(1)));
        assert_eq!(Helper::by_name("ringbuf_output"), Some(Helper(130)));
        assert_eq!(Helper::by_name("loop"), Some(Helper::LOOP));
        assert_eq!(Helper::LOOP.0, 181);
        assert_eq!(Helper(0).name(), None);
        assert_eq!(Helper(211).name(), Some("cgrp_storage_delete"));
        assert_eq!(Helper(212).name(), None);
    }
}
