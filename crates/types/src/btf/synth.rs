//! A writer of small BTF blobs, and a synthetic miniature kernel, for tests.
//!
//! Golden files must not depend on the machine's kernel, so they are made with [`kernel`]. It has
//! the structs, functions and variables that D programs and our own code look up, laid out as in no
//! real kernel. The blob is written by code and not checked in, so that its contents are readable
//! and a new test can extend it. The loader's own BTF is written elsewhere; this writer supports
//! only what tests need.
//!
//! ARCH(x86-64): the miniature kernel of the tests has the registers and the functions of x86-64.

use std::collections::HashMap;

use super::blob::{Btf, BtfKind};

/// Writes types in the order of their ids. The first id is 1.
#[derive(Debug)]
pub struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    known: HashMap<String, u32>,
    next: u32,
    /// The offset of the first string: after those of the blob that this one extends.
    first_string: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Self { types: Vec::new(), strings: vec![0], known: HashMap::new(), next: 1, first_string: 0 }
    }
}

/// Flags of an integer's encoding.
pub mod encoding {
    /// Unsigned number.
    pub const NONE: u32 = 0;
    /// Signed.
    pub const SIGNED: u32 = 1;
    /// Character.
    pub const CHAR: u32 = 2;
    /// `_Bool`.
    pub const BOOL: u32 = 4;
}

impl Builder {
    /// A blob that extends another one, as that of a module does.
    pub fn extending(base: &Btf) -> Builder {
        Builder {
            next: base.end_id(),
            first_string: base.first_string.saturating_add(base.strings.len() as u32),
            ..Builder::default()
        }
    }

    /// The id of the next type. With it a type can refer to a later one.
    pub fn next_id(&self) -> u32 {
        self.next
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&at) = self.known.get(text) {
            return at;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        self.known.insert(text.into(), at);
        at
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
    }

    fn head(&mut self, name: &str, kind: BtfKind, flag: bool, vlen: usize, size_or_type: u32) -> u32 {
        let name = self.string(name);
        let info = (u32::from(flag) << 31) | ((kind as u32) << 24) | (vlen as u32 & 0xffff);
        self.words(&[name, info, size_or_type]);
        self.next += 1;
        self.next - 1
    }

    /// An integer; see [`encoding`].
    pub fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        let id = self.head(name, BtfKind::Int, false, 0, size);
        self.words(&[(encoding << 24) | (size * 8)]);
        id
    }

    /// A pointer.
    pub fn pointer(&mut self, target: u32) -> u32 {
        self.head("", BtfKind::Ptr, false, 0, target)
    }

    /// A typedef.
    pub fn typedef(&mut self, name: &str, target: u32) -> u32 {
        self.head(name, BtfKind::Typedef, false, 0, target)
    }

    /// A qualifier, a `Typedef` without name or a `TypeTag`.
    pub fn modifier(&mut self, kind: BtfKind, name: &str, target: u32) -> u32 {
        self.head(name, kind, false, 0, target)
    }

    /// An array.
    pub fn array(&mut self, elem: u32, len: u32) -> u32 {
        let id = self.head("", BtfKind::Array, false, 0, 0);
        self.words(&[elem, 1, len]);
        id
    }

    /// A struct or union with members (name, type, offset in bytes).
    pub fn sou(&mut self, union: bool, tag: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let members: Vec<_> = members.iter().map(|(n, t, at)| (*n, *t, at * 8, 0)).collect();
        self.sou_bits(union, tag, size, &members)
    }

    /// A struct or union with members (name, type, offset in bits, width of a bit-field or 0).
    pub fn sou_bits(&mut self, union: bool, tag: &str, size: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let kind = if union { BtfKind::Union } else { BtfKind::Struct };
        let id = self.head(tag, kind, true, members.len(), size);
        for (name, ty, at, bits) in members {
            let name = self.string(name);
            self.words(&[name, *ty, (bits << 24) | at]);
        }
        id
    }

    /// A forward declaration.
    pub fn forward(&mut self, union: bool, tag: &str) -> u32 {
        self.head(tag, BtfKind::Fwd, union, 0, 0)
    }

    /// A four-byte enumeration.
    pub fn enumeration(&mut self, tag: &str, values: &[(&str, i32)]) -> u32 {
        let signed = values.iter().any(|(_, v)| *v < 0);
        let id = self.head(tag, BtfKind::Enum, signed, values.len(), 4);
        for (name, value) in values {
            let name = self.string(name);
            self.words(&[name, *value as u32]);
        }
        id
    }

    /// An eight-byte enumeration.
    pub fn enumeration64(&mut self, tag: &str, values: &[(&str, u64)]) -> u32 {
        let id = self.head(tag, BtfKind::Enum64, false, values.len(), 8);
        for (name, value) in values {
            let name = self.string(name);
            self.words(&[name, *value as u32, (value >> 32) as u32]);
        }
        id
    }

    /// A prototype.
    pub fn proto(&mut self, ret: u32, params: &[(&str, u32)]) -> u32 {
        let id = self.head("", BtfKind::FuncProto, false, params.len(), ret);
        for (name, ty) in params {
            let name = self.string(name);
            self.words(&[name, *ty]);
        }
        id
    }

    /// A function with its prototype. Returns the function's id.
    pub fn func(&mut self, name: &str, ret: u32, params: &[(&str, u32)]) -> u32 {
        let proto = self.proto(ret, params);
        self.head(name, BtfKind::Func, false, 0, proto)
    }

    /// A variable.
    pub fn var(&mut self, name: &str, ty: u32) -> u32 {
        let id = self.head(name, BtfKind::Var, false, 0, ty);
        self.words(&[1]);
        id
    }

    /// A section of variables (id, offset, size).
    pub fn datasec(&mut self, name: &str, size: u32, vars: &[(u32, u32, u32)]) -> u32 {
        let id = self.head(name, BtfKind::Datasec, false, vars.len(), size);
        for (var, offset, len) in vars {
            self.words(&[*var, *offset, *len]);
        }
        id
    }

    /// The blob.
    pub fn finish(self) -> Vec<u8> {
        blob(&self.types, &self.strings)
    }
}

/// A blob of these types and strings.
pub(super) fn blob(types: &[u8], strings: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&0xeb9fu16.to_ne_bytes());
    out.extend_from_slice(&[1, 0]);
    for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
        out.extend_from_slice(&u32::to_ne_bytes(word));
    }
    out.extend_from_slice(types);
    out.extend_from_slice(strings);
    out
}

/// System calls of the miniature kernel.
pub const SYSCALLS: &[&str] = &[
    "clone",
    "close",
    "execve",
    "exit_group",
    "fork",
    "getpid",
    "getppid",
    "mmap",
    "nanosleep",
    "newfstat",
    "openat",
    "read",
    "write",
];

/// A miniature kernel (x86-64): `task_struct` and the structs that it points to, `pt_regs`, per-CPU
/// variables, system calls, the prototypes of `sys_enter` and `sys_exit`.
pub fn kernel() -> Vec<u8> {
    let mut b = Builder::default();
    let int = b.int("int", 4, encoding::SIGNED);
    let uint = b.int("unsigned int", 4, encoding::NONE);
    let long = b.int("long int", 8, encoding::SIGNED);
    let ulong = b.int("long unsigned int", 8, encoding::NONE);
    let ullong = b.int("long long unsigned int", 8, encoding::NONE);
    let chr = b.int("char", 1, encoding::NONE);
    let ushort = b.int("short unsigned int", 2, encoding::NONE);
    let bool = b.int("_Bool", 1, encoding::BOOL);
    let wide = b.int("unsigned __int128", 16, encoding::NONE);
    b.typedef("u128", wide);
    let void_ptr = b.pointer(0);
    let char_ptr = b.pointer(chr);
    let u32t = b.typedef("u32", uint);
    let u64t = b.typedef("u64", ullong);
    let pid_t = b.typedef("pid_t", int);
    let uid_t = b.typedef("uid_t", uint);
    let size_t = b.typedef("size_t", ulong);

    let kuid = b.sou(false, "", 4, &[("val", uid_t, 0)]);
    let kuid_t = b.typedef("kuid_t", kuid);
    let kgid = b.sou(false, "", 4, &[("val", uid_t, 0)]);
    let kgid_t = b.typedef("kgid_t", kgid);
    let cred = b.sou(false, "cred", 32, &[("usage", long, 0), ("uid", kuid_t, 8), ("gid", kgid_t, 12)]);
    let const_cred = b.modifier(BtfKind::Const, "", cred);
    let cred_ptr = b.pointer(const_cred);
    let thread_info = b.sou(
        false,
        "thread_info",
        24,
        &[("flags", ulong, 0), ("syscall_work", ulong, 8), ("status", u32t, 16), ("cpu", u32t, 20)],
    );
    let comm = b.array(chr, 16);
    let ns_common = b.sou(false, "ns_common", 16, &[("ops", void_ptr, 0), ("inum", uint, 8)]);
    let pid_namespace = b.sou(false, "pid_namespace", 32, &[("level", uint, 0), ("ns", ns_common, 8)]);
    let pid_namespace_ptr = b.pointer(pid_namespace);
    let upid = b.sou(false, "upid", 16, &[("nr", int, 0), ("ns", pid_namespace_ptr, 8)]);
    let upids = b.array(upid, 0);
    let pid = b.sou(false, "pid", 16, &[("count", uint, 0), ("level", uint, 4), ("numbers", upids, 16)]);
    let pid_ptr = b.pointer(pid);
    let mm = b.forward(false, "mm_struct");
    let mm_ptr = b.pointer(mm);
    let signal = b.sou(
        false,
        "signal_struct",
        64,
        &[("nr_threads", int, 0), ("tty", void_ptr, 8), ("pids", pid_ptr, 16)],
    );
    let signal_ptr = b.pointer(signal);
    let list = b.next_id() + 1;
    let list_ptr = b.pointer(list);
    let list_head = b.sou(false, "list_head", 16, &[("next", list_ptr, 0), ("prev", list_ptr, 8)]);
    debug_assert_eq!(list, list_head);
    let node = b.next_id() + 2;
    let node_ptr = b.pointer(node);
    let node_ptr_ptr = b.pointer(node_ptr);
    let hlist_node = b.sou(false, "hlist_node", 16, &[("next", node_ptr, 0), ("pprev", node_ptr_ptr, 8)]);
    debug_assert_eq!(node, hlist_node);
    let pid_links = b.array(hlist_node, 4);
    let row = b.array(int, 3);
    let matrix = b.array(row, 2);
    let enqueue = b.proto(0, &[("rq", void_ptr), ("flags", int)]);
    let enqueue_ptr = b.pointer(enqueue);
    let sched_class =
        b.sou(false, "sched_class", 16, &[("enqueue_task", enqueue_ptr, 0), ("name", char_ptr, 8)]);
    let const_class = b.modifier(BtfKind::Const, "", sched_class);
    let class_ptr = b.pointer(const_class);
    let task = b.next_id() + 3;
    let task_ptr = b.pointer(task);
    // An anonymous union and a bit-field, as in the real `task_struct`.
    let _state = b.sou(true, "", 4, &[("__state", uint, 0), ("saved_state", int, 0)]);
    let _bits = b.sou_bits(false, "", 4, &[("sched_reset_on_fork", uint, 0, 1), ("in_execve", uint, 1, 1)]);
    let task_made = b.sou(
        false,
        "task_struct",
        256,
        &[
            ("thread_info", thread_info, 0),
            ("", _state, 24),
            ("stack", void_ptr, 32),
            ("flags", uint, 40),
            ("prio", int, 44),
            ("mm", mm_ptr, 48),
            ("exit_state", int, 56),
            ("", _bits, 60),
            ("pid", pid_t, 64),
            ("tgid", pid_t, 68),
            ("real_parent", task_ptr, 72),
            ("group_leader", task_ptr, 80),
            ("thread_pid", pid_ptr, 88),
            ("start_time", u64t, 96),
            ("start_boottime", u64t, 104),
            ("cred", cred_ptr, 112),
            ("comm", comm, 120),
            ("signal", signal_ptr, 136),
            ("tasks", list_head, 144),
            ("matrix", matrix, 160),
            ("sched_class", class_ptr, 184),
            ("pid_links", pid_links, 192),
        ],
    );
    debug_assert_eq!(task, task_made);

    const REGS: [&str; 21] = [
        "r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di",
        "orig_ax", "ip", "cs", "flags", "sp", "ss",
    ];
    let regs: Vec<_> = REGS.iter().enumerate().map(|(i, name)| (*name, ulong, i as u32 * 8)).collect();
    let pt_regs = b.sou(false, "pt_regs", 168, &regs);
    let pt_regs_ptr = b.pointer(pt_regs);
    let const_regs = b.modifier(BtfKind::Const, "", pt_regs);
    let const_regs_ptr = b.pointer(const_regs);
    b.enumeration(
        "pid_type",
        &[("PIDTYPE_PID", 0), ("PIDTYPE_TGID", 1), ("PIDTYPE_PGID", 2), ("PIDTYPE_SID", 3)],
    );
    b.enumeration64("wide", &[("WIDE_ONE", 1), ("WIDE_TOP", 1 << 63)]);

    for name in SYSCALLS {
        b.func(&format!("__x64_sys_{name}"), long, &[("regs", const_regs_ptr)]);
    }
    let user_char = b.modifier(BtfKind::TypeTag, "user", chr);
    let user_char_ptr = b.pointer(user_char);
    let file = b.forward(false, "file");
    let file_ptr = b.pointer(file);
    b.func("vfs_read", long, &[("file", file_ptr), ("buf", user_char_ptr), ("count", size_t)]);
    b.func("_printk", int, &[("fmt", char_ptr), ("", 0)]);
    for (name, last) in [("btf_trace_sys_enter", ("id", long)), ("btf_trace_sys_exit", ("ret", long))] {
        let proto = b.proto(0, &[("__data", void_ptr), ("regs", pt_regs_ptr), last]);
        let ptr = b.pointer(proto);
        b.typedef(name, ptr);
    }
    let count = b.var("__preempt_count", int);
    let current = b.var("current_task", task_ptr);
    let flag = b.var("a_flag", bool);
    b.datasec(".data..percpu", 64, &[(flag, 0, 1), (count, 8, 4), (current, 16, 8)]);
    let _ = ushort;
    b.finish()
}
