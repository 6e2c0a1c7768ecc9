//! The words of D: built-in variables, functions, aggregating functions.
//!
//! One row a word; nothing else in the compiler knows a name of the language. A word that is D but is not compiled yet
//! has its row too, so that a script gets "not supported yet" with a place instead of "undefined". Adding a built-in is
//! a row here and an arm in `lower`.

use probes::{Attributes, Class, Stability};

use crate::program::{Builtin, MemoryCall};

/// What a built-in variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// Compiled.
    Builtin(Builtin),
    /// The constant zero, of the row's type.
    Null,
    /// `uregs[]`: the saved registers of the process.
    Registers,
    /// `args[]`: arguments of the probe, as what they are.
    TypedArgs,
    /// D elsewhere, and without a meaning on Linux: why.
    Foreign(&'static str),
    /// What is known when the session begins; for D libraries.
    Fact(Fact),
    /// The same of each CPU: a table that is indexed by CPU.
    CpuFact(CpuFact),
}

/// A number or string that is known when the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Nanoseconds from boot to 1970's.
    Boottime,
    /// Bytes of a page.
    Pagesize,
    /// Inode of the tracer's pid namespace; 0 for the initial one.
    PidNamespace,
    /// The machine, a string.
    ProcessorType,
    /// What it computes floating point with, a string.
    FpuTypes,
}

/// A number that is known of each CPU when the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuFact {
    /// The package it is in.
    Chip,
    /// The NUMA node it is in.
    Node,
    /// Its clock in MHz.
    Clock,
}

/// A built-in variable.
#[derive(Clone, Copy, Debug)]
pub struct VariableRow {
    /// The word.
    pub name: &'static str,
    /// Its type; where it is none of D's own, a script that names the word makes us look at the kernel's.
    pub ty: &'static str,
    /// What it is.
    pub kind: VariableKind,
    /// What it promises.
    pub attributes: Attributes,
}

const fn var(name: &'static str, ty: &'static str, builtin: Builtin) -> VariableRow {
    VariableRow { name, ty, kind: VariableKind::Builtin(builtin), attributes: Attributes::STABLE }
}

const fn foreign(name: &'static str, why: &'static str) -> VariableRow {
    VariableRow { name, ty: "int", kind: VariableKind::Foreign(why), attributes: Attributes::STABLE }
}

/// Registers that `uregs[]` has.
pub const UREGS: u8 = 26;

/// Names with `_` before them are for D libraries.
const fn fact(name: &'static str, ty: &'static str, kind: VariableKind) -> VariableRow {
    VariableRow { name, ty, kind, attributes: Attributes::STABLE }
}

/// Every built-in variable.
pub const VARIABLES: &[VariableRow] = &[
    fact("_boottime", "int64_t", VariableKind::Fact(Fact::Boottime)),
    fact("_cpu_chip", "int", VariableKind::CpuFact(CpuFact::Chip)),
    fact("_cpu_clock", "int", VariableKind::CpuFact(CpuFact::Clock)),
    fact("_cpu_lgrp", "int", VariableKind::CpuFact(CpuFact::Node)),
    fact("_fputypes", "string", VariableKind::Fact(Fact::FpuTypes)),
    fact("_pagesize", "uint64_t", VariableKind::Fact(Fact::Pagesize)),
    fact("_pidns", "uint_t", VariableKind::Fact(Fact::PidNamespace)),
    fact("_processor_type", "string", VariableKind::Fact(Fact::ProcessorType)),
    VariableRow { name: "NULL", ty: "long", kind: VariableKind::Null, attributes: Attributes::STABLE },
    var("arg0", "int64_t", Builtin::Arg(0)),
    var("arg1", "int64_t", Builtin::Arg(1)),
    var("arg2", "int64_t", Builtin::Arg(2)),
    var("arg3", "int64_t", Builtin::Arg(3)),
    var("arg4", "int64_t", Builtin::Arg(4)),
    var("arg5", "int64_t", Builtin::Arg(5)),
    var("arg6", "int64_t", Builtin::Arg(6)),
    var("arg7", "int64_t", Builtin::Arg(7)),
    var("arg8", "int64_t", Builtin::Arg(8)),
    var("arg9", "int64_t", Builtin::Arg(9)),
    fact("args", "<DYN>", VariableKind::TypedArgs),
    var("caller", "uintptr_t", Builtin::Caller),
    var("cpu", "int", Builtin::Cpu),
    VariableRow {
        name: "curthread",
        ty: "struct vmlinux`task_struct *",
        kind: VariableKind::Builtin(Builtin::Curthread),
        attributes: Attributes::new(Stability::Stable, Stability::Private, Class::Common),
    },
    foreign("dispatchqaddr", "there are no dispatch queues"),
    var("epid", "uint_t", Builtin::Epid),
    var("errno", "int", Builtin::Errno),
    var("execname", "string", Builtin::Execname),
    var("gid", "uint_t", Builtin::Gid),
    var("id", "uint_t", Builtin::Id),
    var("ipl", "uint_t", Builtin::Ipl),
    foreign("jailname", "there are no jails"),
    foreign("jid", "there are no jails"),
    foreign("machtimestamp", "there are no Mach ticks; timestamp counts nanoseconds"),
    var("pid", "pid_t", Builtin::Pid),
    var("ppid", "pid_t", Builtin::Ppid),
    var("probefunc", "string", Builtin::Probefunc),
    var("probemod", "string", Builtin::Probemod),
    var("probename", "string", Builtin::Probename),
    var("probeprov", "string", Builtin::Probeprov),
    foreign(
        "pthread_self",
        "there are handles of threads in the C library alone; tid is the kernel's number",
    ),
    var("stackdepth", "uint32_t", Builtin::Stackdepth),
    var("threadname", "string", Builtin::Execname),
    var("tid", "id_t", Builtin::Tid),
    var("timestamp", "uint64_t", Builtin::Timestamp),
    var("ucaller", "uint64_t", Builtin::Ucaller),
    var("uid", "uint_t", Builtin::Uid),
    VariableRow {
        name: "uregs",
        ty: "uint64_t",
        kind: VariableKind::Registers,
        attributes: Attributes::STABLE,
    },
    var("ustackdepth", "uint32_t", Builtin::Ustackdepth),
    foreign("vmregs", "there are no probes in a hypervisor of the kernel's own"),
    var("vtimestamp", "uint64_t", Builtin::Vtimestamp),
    var("walltimestamp", "int64_t", Builtin::Walltimestamp),
];

/// Functions that give a value.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subroutine {
    Copyinstr,
    Strlen,
    Strtok,
    /// An inline of the libraries, of the same name, which takes the arguments.
    Library,
    /// Takes, copies or writes memory.
    Memory(MemoryCall),
    /// One that is nothing but a call, by its name in the intermediate form.
    Call(&'static str),
    /// An address and a length in scratch memory, for `printm()`.
    Memref,
}

/// Actions.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    Print,
    Printm,
    Tracemem,
    Trace,
    Printf,
    Printa,
    Exit,
    Clear,
    Trunc,
    Normalize,
    Denormalize,
    Stack,
    Ustack,
    Jstack,
    Sym,
    Func,
    Mod,
    Usym,
    Ufunc,
    Umod,
    Uaddr,
    System,
    Freopen,
    Ftruncate,
    Setopt,
    Raise,
    Return,
    Stop,
    Chill,
}

/// Aggregating functions.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregating {
    Count,
    Sum,
    Min,
    Max,
    Avg,
    Stddev,
    Quantize,
    Lquantize,
    Llquantize,
}

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Gives a value.
    Subroutine(Subroutine),
    /// Is a statement.
    Action(ActionKind),
    /// Stands right of `@a =`.
    Aggregating(Aggregating),
    /// Gives a value; not compiled yet.
    LaterSubroutine,
    /// Gives a value that Linux has nothing for: why.
    NeverSubroutine(&'static str),
    /// Is a statement; not compiled yet.
    LaterAction,
    /// Is a statement that Linux gives no means for: why.
    NeverAction(&'static str),
}

impl FunctionKind {
    /// DTrace's name for the kind.
    pub fn word(self) -> &'static str {
        match self {
            FunctionKind::Subroutine(_)
            | FunctionKind::LaterSubroutine
            | FunctionKind::NeverSubroutine(_) => "function",
            FunctionKind::Action(_) | FunctionKind::LaterAction | FunctionKind::NeverAction(_) => {
                "tracing function"
            }
            FunctionKind::Aggregating(_) => "aggregating function",
        }
    }
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRow {
    /// The word.
    pub name: &'static str,
    /// Return type.
    pub ret: &'static str,
    /// Parameter types: `@` any, `[t]` optional, `...` any number.
    pub params: &'static str,
    /// What it is.
    pub kind: FunctionKind,
    /// What it promises.
    pub attributes: Attributes,
}

impl FunctionRow {
    /// An inline of the libraries.
    pub(crate) fn is_library(&self) -> bool {
        self.kind == FunctionKind::Subroutine(Subroutine::Library)
    }
}

const fn row(name: &'static str, ret: &'static str, params: &'static str, kind: FunctionKind) -> FunctionRow {
    FunctionRow { name, ret, params, kind, attributes: Attributes::STABLE }
}

const fn sub(name: &'static str, ret: &'static str, params: &'static str, s: Subroutine) -> FunctionRow {
    row(name, ret, params, FunctionKind::Subroutine(s))
}

const fn call(name: &'static str, ret: &'static str, params: &'static str) -> FunctionRow {
    sub(name, ret, params, Subroutine::Call(name))
}

const fn mem(name: &'static str, ret: &'static str, params: &'static str, m: MemoryCall) -> FunctionRow {
    sub(name, ret, params, Subroutine::Memory(m))
}

const fn act(name: &'static str, ret: &'static str, params: &'static str, a: ActionKind) -> FunctionRow {
    row(name, ret, params, FunctionKind::Action(a))
}

const fn agg(name: &'static str, params: &'static str, a: Aggregating) -> FunctionRow {
    row(name, "void", params, FunctionKind::Aggregating(a))
}

const fn later_sub(name: &'static str) -> FunctionRow {
    row(name, "int", "...", FunctionKind::LaterSubroutine)
}

const fn nothing(name: &'static str, why: &'static str) -> FunctionRow {
    row(name, "void", "...", FunctionKind::NeverSubroutine(why))
}

const fn later_act(name: &'static str) -> FunctionRow {
    row(name, "void", "...", FunctionKind::LaterAction)
}

const fn never(name: &'static str, why: &'static str) -> FunctionRow {
    row(name, "void", "...", FunctionKind::NeverAction(why))
}

/// Every function.
pub const FUNCTIONS: &[FunctionRow] = &[
    mem("alloca", "void *", "size_t", MemoryCall::Alloca),
    agg("avg", "@", Aggregating::Avg),
    call("basename", "string", "string"),
    mem("bcopy", "void", "void *, void *, size_t", MemoryCall::Bcopy),
    never("breakpoint", "the kernel lets no program of ours enter its debugger"),
    act("chill", "void", "int", ActionKind::Chill),
    call("cleanpath", "string", "string"),
    act("clear", "void", "...", ActionKind::Clear),
    later_act("commit"),
    mem("copyin", "void *", "uintptr_t, size_t", MemoryCall::Copyin),
    sub("copyinstr", "string", "uintptr_t, [size_t]", Subroutine::Copyinstr),
    mem("copyinto", "void", "uintptr_t, size_t, void *", MemoryCall::Copyinto),
    mem("copyout", "void", "void *, uintptr_t, size_t", MemoryCall::Copyout),
    mem("copyoutstr", "void", "string, uintptr_t, size_t", MemoryCall::Copyoutstr),
    agg("count", "", Aggregating::Count),
    call("_args", "string", "uintptr_t, uintptr_t"),
    call("_fullpath", "string", "struct path *"),
    call("_mountpoint", "string", "struct path *"),
    call("d_path", "string", "struct path *"),
    nothing("ddi_pathname", "Linux has no device tree of this kind: see the args of the io provider"),
    act("denormalize", "void", "...", ActionKind::Denormalize),
    call("dirname", "string", "string"),
    later_act("discard"),
    act("exit", "void", "int", ActionKind::Exit),
    act("freopen", "void", "@, ...", ActionKind::Freopen),
    act("ftruncate", "void", "", ActionKind::Ftruncate),
    act("func", "_symaddr", "uintptr_t", ActionKind::Func),
    sub("getf", "int", "...", Subroutine::Library),
    call("getmajor", "uint32_t", "uint32_t"),
    call("getminor", "uint32_t", "uint32_t"),
    call("htonl", "uint32_t", "uint32_t"),
    call("htonll", "uint64_t", "uint64_t"),
    call("htons", "uint16_t", "uint16_t"),
    call("index", "int", "string, string, [int]"),
    call("inet_ntoa", "string", "ipaddr_t *"),
    call("inet_ntoa6", "string", "void *"),
    call("inet_ntop", "string", "int, void *"),
    call("json", "string", "string, string"),
    act("jstack", "stack", "...", ActionKind::Jstack),
    call("link_ntop", "string", "int, void *"),
    nothing("kdebug_trace", "it is a facility of macOS"),
    nothing("kdebug_trace_string", "it is a facility of macOS"),
    agg("llquantize", "@, @, @, @, @, ...", Aggregating::Llquantize),
    call("lltostr", "string", "int64_t, [int]"),
    agg("lquantize", "@, @, @, ...", Aggregating::Lquantize),
    agg("max", "@", Aggregating::Max),
    sub("memref", "uintptr_t *", "void *, size_t", Subroutine::Memref),
    call("memstr", "string", "void *, char, size_t"),
    agg("min", "@", Aggregating::Min),
    act("mod", "_symaddr", "uintptr_t", ActionKind::Mod),
    nothing("msgdsize", "Linux has no STREAMS messages; a socket buffer has its length in its member len"),
    nothing("msgsize", "Linux has no STREAMS messages; a socket buffer has its length in its member len"),
    sub("mutex_owned", "int", "...", Subroutine::Library),
    sub("mutex_owner", "int", "...", Subroutine::Library),
    sub("mutex_type_adaptive", "int", "...", Subroutine::Library),
    sub("mutex_type_spin", "int", "...", Subroutine::Library),
    nothing("mtons", "it converts the time unit of macOS; times here are nanoseconds"),
    act("normalize", "void", "...", ActionKind::Normalize),
    sub("ntohl", "uint32_t", "uint32_t", Subroutine::Call("htonl")),
    sub("ntohll", "uint64_t", "uint64_t", Subroutine::Call("htonll")),
    sub("ntohs", "uint16_t", "uint16_t", Subroutine::Call("htons")),
    never("panic", "the kernel lets no program of ours stop it"),
    never("pcap", "use tracemem( ), or tcpdump, which filters packets in the kernel"),
    act("print", "void", "@", ActionKind::Print),
    act("printa", "void", "@, ...", ActionKind::Printa),
    act("printf", "void", "@, ...", ActionKind::Printf),
    act("printm", "void", "@, @", ActionKind::Printm),
    call("progenyof", "int", "pid_t"),
    nothing("ptrauth_strip", "addresses of the kernel carry no signature that D sees"),
    agg("quantize", "@, ...", Aggregating::Quantize),
    act("raise", "void", "int", ActionKind::Raise),
    call("rand", "int", ""),
    act("return", "void", "int", ActionKind::Return),
    call("rindex", "int", "string, string, [int]"),
    sub("rw_iswriter", "int", "...", Subroutine::Library),
    sub("rw_read_held", "int", "...", Subroutine::Library),
    sub("rw_write_held", "int", "...", Subroutine::Library),
    act("setopt", "void", "string, [string]", ActionKind::Setopt),
    later_act("speculate"),
    later_sub("speculation"),
    act("stack", "stack", "...", ActionKind::Stack),
    agg("stddev", "@", Aggregating::Stddev),
    act("stop", "void", "", ActionKind::Stop),
    call("strchr", "string", "string, char"),
    call("strjoin", "string", "string, string"),
    sub("strlen", "size_t", "string", Subroutine::Strlen),
    call("strrchr", "string", "string, char"),
    call("strstr", "string", "string, string"),
    sub("strtok", "string", "string, string", Subroutine::Strtok),
    call("strtoll", "int64_t", "string, [int]"),
    call("substr", "string", "string, int, [int]"),
    agg("sum", "@", Aggregating::Sum),
    nothing("sx_exclusive_held", "sx locks are FreeBSD's: see rw_write_held( )"),
    nothing("sx_isexclusive", "sx locks are FreeBSD's: see rw_iswriter( )"),
    nothing("sx_shared_held", "sx locks are FreeBSD's: see rw_read_held( )"),
    act("sym", "_symaddr", "uintptr_t", ActionKind::Sym),
    act("system", "void", "@, ...", ActionKind::System),
    call("tolower", "string", "string"),
    call("toupper", "string", "string"),
    act("trace", "void", "@", ActionKind::Trace),
    act("tracemem", "void", "@, @, ...", ActionKind::Tracemem),
    act("trunc", "void", "...", ActionKind::Trunc),
    act("uaddr", "_usymaddr", "uintptr_t", ActionKind::Uaddr),
    act("ufunc", "_usymaddr", "uintptr_t", ActionKind::Ufunc),
    act("umod", "_usymaddr", "uintptr_t", ActionKind::Umod),
    act("ustack", "stack", "...", ActionKind::Ustack),
    act("usym", "_usymaddr", "uintptr_t", ActionKind::Usym),
    nothing(
        "vm_kernel_addrperm",
        "it hides addresses of the kernel on macOS; here they are shown as they are",
    ),
];

/// Providers that scripts for other systems name and that are not here yet; a description of one is told so. `pid` goes
/// with a number.
const PROVIDERS_LATER: &[&str] = &[
    "cpc",
    "fpuinfo",
    "fsinfo",
    "io",
    "ip",
    "kinst",
    "lockstat",
    "mib",
    "nfsv3",
    "nfsv4",
    "pid",
    "plockstat",
    "proc",
    "rawtp",
    "sched",
    "sctp",
    "sdt",
    "sysinfo",
    "tcp",
    "udp",
    "udplite",
    "vminfo",
];

/// True for the name of a provider that DTrace has elsewhere and not here yet.
pub fn is_later_provider(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit());
    PROVIDERS_LATER.contains(&name) || plain == "pid"
}

/// Functions that change what they look at: only where the user allows it (`-w`).
const DESTRUCTIVE: &[&str] = &[
    "breakpoint",
    "chill",
    "copyout",
    "copyoutstr",
    "freopen",
    "panic",
    "raise",
    "return",
    "stop",
    "system",
];

/// True for a function that needs `-w`.
pub fn is_destructive(name: &str) -> bool {
    DESTRUCTIVE.contains(&name)
}

/// The variable of a name.
pub fn variable(name: &str) -> Option<&'static VariableRow> {
    VARIABLES.iter().find(|r| r.name == name)
}

/// The function of a name.
pub fn function(name: &str) -> Option<&'static FunctionRow> {
    FUNCTIONS.iter().find(|r| r.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_once() {
        let mut words: Vec<&str> =
            VARIABLES.iter().map(|r| r.name).chain(FUNCTIONS.iter().map(|r| r.name)).collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
    }

    #[test]
    fn destructive_words_are_functions() {
        assert!(DESTRUCTIVE.is_sorted());
        assert!(DESTRUCTIVE.iter().all(|name| function(name).is_some()));
        assert!(!is_destructive("ftruncate") && !is_destructive("exit"));
    }

    #[test]
    fn providers_of_other_systems_are_known() {
        assert!(PROVIDERS_LATER.is_sorted());
        for name in ["io", "pid", "pid123", "nfsv3"] {
            assert!(is_later_provider(name), "{name}");
        }
        for name in ["syscall", "fbt1", "", "sycall"] {
            assert!(!is_later_provider(name), "{name}");
        }
    }
}
