//! The functions of D, one row each: subroutines, actions, aggregating functions.

use probes::Attributes;

use super::rows::{ActionKind, Aggregating, FunctionKind, FunctionRow, Subroutine};
use crate::program::MemoryCall;

type Text = &'static str;

const fn row(
    name: Text,
    ret: Text,
    params: Text,
    kind: FunctionKind,
    usage: Text,
    help: Text,
) -> FunctionRow {
    FunctionRow { name, ret, params, kind, attributes: Attributes::STABLE, usage, help }
}

const fn sub(name: Text, ret: Text, params: Text, s: Subroutine, usage: Text, help: Text) -> FunctionRow {
    row(name, ret, params, FunctionKind::Subroutine(s), usage, help)
}

const fn call(name: Text, ret: Text, params: Text, usage: Text, help: Text) -> FunctionRow {
    sub(name, ret, params, Subroutine::Call(name), usage, help)
}

const fn mem(name: Text, ret: Text, params: Text, m: MemoryCall, usage: Text, help: Text) -> FunctionRow {
    sub(name, ret, params, Subroutine::Memory(m), usage, help)
}

const fn act(name: Text, ret: Text, params: Text, a: ActionKind, usage: Text, help: Text) -> FunctionRow {
    row(name, ret, params, FunctionKind::Action(a), usage, help)
}

const fn agg(name: Text, params: Text, a: Aggregating, usage: Text, help: Text) -> FunctionRow {
    row(name, "void", params, FunctionKind::Aggregating(a), usage, help)
}

const fn sub_not_on_linux(name: Text, why: Text) -> FunctionRow {
    row(name, "void", "...", FunctionKind::SubroutineNotOnLinux(why), "...", why)
}

const fn act_not_on_linux(name: Text, why: Text) -> FunctionRow {
    row(name, "void", "...", FunctionKind::ActionNotOnLinux(why), "...", why)
}

/// Every function.
#[rustfmt::skip]
pub const FUNCTIONS: &[FunctionRow] = &[
    mem("alloca", "void *", "size_t", MemoryCall::Alloca, "n", "take n bytes of scratch memory, for the clause or, if a variable has its address, for the firing"),
    agg("avg", "@", Aggregating::Avg, "x", "average"),
    call("basename", "string", "string", "path", "last component of a path"),
    mem("bcopy", "void", "void *, void *, size_t", MemoryCall::Bcopy, "from, to, n", "copy n bytes from kernel memory, a variable or scratch memory to scratch memory"),
    act_not_on_linux("breakpoint", "the kernel lets no program of ours enter its debugger"),
    act("chill", "void", "int", ActionKind::Chill, "ns", "hold the CPU for ns nanoseconds, at most half a second in each second"),
    call("cleanpath", "string", "string", "path", "the path without //, /./ and /x/../; symbolic links are not followed"),
    act("clear", "void", "...", ActionKind::Clear, "@a", "set the values of an aggregation to 0 and keep its keys"),
    act("commit", "void", "int", ActionKind::Commit, "id", "print the records of a speculation"),
    mem("copyin", "void *", "uintptr_t, size_t", MemoryCall::Copyin, "address, n", "copy n bytes of the process to scratch memory"),
    sub("copyinstr", "string", "uintptr_t, [size_t]", Subroutine::Copyinstr, "address[, n]", "string of the process, at most n characters"),
    mem("copyinto", "void", "uintptr_t, size_t, void *", MemoryCall::Copyinto, "address, n, to", "copy n bytes of the process to scratch memory that was taken before"),
    mem("copyout", "void", "void *, uintptr_t, size_t", MemoryCall::Copyout, "from, address, n", "write n bytes to memory of the process"),
    mem("copyoutstr", "void", "string, uintptr_t, size_t", MemoryCall::Copyoutstr, "s, address, n", "write a string, at most n bytes with its NUL, to memory of the process"),
    agg("count", "", Aggregating::Count, "", "number of firings"),
    call("_args", "string", "uintptr_t, uintptr_t", "from, to", "arguments of a process"),
    call("_container", "string", "struct cgroup *", "c", "the container that a control group is in"),
    call("_dentrypath", "string", "struct dentry *, struct vfsmount *", "file, mount", "path from the root of the system"),
    call("_fullpath", "string", "struct path *", "p", "path from the root of the system"),
    call("_mountpoint", "string", "struct path *", "p", "mount point of a path"),
    call("_pod", "string", "struct cgroup *", "c", "the pod that a control group is in"),
    call("d_path", "string", "struct path *", "p", "the path of a struct path, as the process sees it"),
    sub_not_on_linux("ddi_pathname", "Linux has no device tree of this kind: see the args of the io provider"),
    act("denormalize", "void", "...", ActionKind::Denormalize, "@a", "end the effect of normalize()"),
    call("dirname", "string", "string", "path", "the path without its last component"),
    act("discard", "void", "int", ActionKind::Discard, "id", "forget the records of a speculation"),
    act("exit", "void", "int", ActionKind::Exit, "status", "end tracing; status is the exit status of dtrace"),
    act("freopen", "void", "@, ...", ActionKind::Freopen, "format, ...", "append the output to the named file; an empty name restores the first output"),
    act("ftruncate", "void", "", ActionKind::Ftruncate, "", "truncate the output where it is a file"),
    act("func", "_symaddr", "uintptr_t", ActionKind::Func, "address", "name of the kernel function at an address"),
    sub("getf", "int", "...", Subroutine::Library, "fd", "the struct file of a descriptor of the process; 0 where it is not open"),
    call("getmajor", "uint32_t", "uint32_t", "device", "major number of a device number of the kernel"),
    call("getminor", "uint32_t", "uint32_t", "device", "minor number of a device number of the kernel"),
    act("guestsym", "_usymaddr", "uintptr_t", ActionKind::Guestsym, "address", "symbol at an address of the kernel of a guest (-x guest)"),
    call("htonl", "uint32_t", "uint32_t", "n", "32 bits in network byte order"),
    call("htonll", "uint64_t", "uint64_t", "n", "64 bits in network byte order"),
    call("htons", "uint16_t", "uint16_t", "n", "16 bits in network byte order"),
    call("index", "int", "string, string, [int]", "s, t[, from]", "position of the first t in s, counted from 0; -1 where there is none"),
    call("inet_ntoa", "string", "ipaddr_t *", "p", "text of the IPv4 address at p"),
    call("inet_ntoa6", "string", "void *, [int]", "p[, strict]", "text of the IPv6 address at p; an IPv4 address in it is bare, unless the constant strict is not 0"),
    call("inet_ntop", "string", "int, void *", "family, p", "text of the address at p; family is AF_INET or AF_INET6"),
    call("json", "string", "string, string", "s, element", "element of a JSON document, such as \"a.b[2]\"; NULL where there is none"),
    act("jstack", "stack", "...", ActionKind::Jstack, "[frames[, strsize]]", "record the user stack, with the limits jstackframes and jstackstrsize"),
    call("link_ntop", "string", "int, void *", "type, p", "text of the hardware address at p; type is ARPHRD_ETHER or ARPHRD_INFINIBAND"),
    sub_not_on_linux("kdebug_trace", "it is a facility of macOS"),
    sub_not_on_linux("kdebug_trace_string", "it is a facility of macOS"),
    agg("llquantize", "@, @, @, @, @, ...", Aggregating::Llquantize, "x, factor, low, high, steps[, weight]", "distribution by powers of factor, each in equal steps"),
    call("lltostr", "string", "int64_t, [int]", "n[, base]", "text of a number"),
    agg("lquantize", "@, @, @, ...", Aggregating::Lquantize, "x, low, high[, step[, weight]]", "distribution in equal steps"),
    agg("max", "@", Aggregating::Max, "x", "greatest value"),
    sub("memref", "uintptr_t *", "void *, size_t", Subroutine::Memref, "address, n", "address and length together, for printm()"),
    call("memstr", "string", "void *, char, size_t", "address, c, n", "the n - 1 bytes at an address, with the character c for each NUL"),
    agg("min", "@", Aggregating::Min, "x", "least value"),
    act("mod", "_symaddr", "uintptr_t", ActionKind::Mod, "address", "name of the kernel module at an address"),
    sub_not_on_linux("msgdsize", "Linux has no STREAMS messages; a socket buffer has its length in its member len"),
    sub_not_on_linux("msgsize", "Linux has no STREAMS messages; a socket buffer has its length in its member len"),
    sub("mutex_owned", "int", "...", Subroutine::Library, "mutex", "1 where this thread holds the mutex"),
    sub("mutex_owner", "int", "...", Subroutine::Library, "mutex", "the thread that holds the mutex"),
    sub("mutex_type_adaptive", "int", "...", Subroutine::Library, "mutex", "1: all mutexes of Linux are adaptive"),
    sub("mutex_type_spin", "int", "...", Subroutine::Library, "mutex", "0: no mutex of Linux is a spin mutex"),
    sub_not_on_linux("mtons", "it converts the time unit of macOS; times here are nanoseconds"),
    act("normalize", "void", "...", ActionKind::Normalize, "@a, n", "divide the printed values of an aggregation by n"),
    sub("ntohl", "uint32_t", "uint32_t", Subroutine::Call("htonl"), "n", "32 bits in the byte order of the machine"),
    sub("ntohll", "uint64_t", "uint64_t", Subroutine::Call("htonll"), "n", "64 bits in the byte order of the machine"),
    sub("ntohs", "uint16_t", "uint16_t", Subroutine::Call("htons"), "n", "16 bits in the byte order of the machine"),
    act_not_on_linux("panic", "the kernel lets no program of ours stop it"),
    act("pcap", "void", "@, @", ActionKind::Pcap, "skb, protocol", "record a packet; with freopen(), it goes to a pcapng file"),
    act("print", "void", "@", ActionKind::Print, "x", "record a value and print it by its type, with all its members"),
    act("printa", "void", "@, ...", ActionKind::Printa, "[format, ]@a, ...", "print aggregations now; with a format, one row for each key"),
    act("printf", "void", "@, ...", ActionKind::Printf, "format, ...", "record values and print them by a format"),
    act("printm", "void", "@, @", ActionKind::Printm, "n, memref(address, length)", "record memory and print it as a dump of at most n bytes"),
    call("progenyof", "int", "pid_t", "pid", "1 where the process is pid or descends from it"),
    sub_not_on_linux("ptrauth_strip", "addresses of the kernel carry no signature that D sees"),
    agg("quantize", "@, ...", Aggregating::Quantize, "x[, weight]", "distribution by powers of two"),
    act("raise", "void", "int", ActionKind::Raise, "signal", "send a signal to the process"),
    call("rand", "int", "", "", "random number from 0 to 2147483647; not for secrets"),
    act("return", "void", "int", ActionKind::Return, "value", "give the result of the probed kernel function, which does not run"),
    call("rindex", "int", "string, string, [int]", "s, t[, from]", "position of the last t in s; -1 where there is none"),
    sub("rw_iswriter", "int", "...", Subroutine::Library, "lock", "1 where a writer holds the lock or waits for it"),
    sub("rw_read_held", "int", "...", Subroutine::Library, "lock", "1 where readers hold the lock"),
    sub("rw_write_held", "int", "...", Subroutine::Library, "lock", "1 where a writer holds the lock"),
    act("setopt", "void", "string, [string]", ActionKind::Setopt, "name[, value]", "set an option that may change while tracing"),
    act("snap", "void", "string", ActionKind::Snap, "reason", "write a capture's last moments (bufpolicy=ring) to a file with this reason in its name"),
    act("speculate", "void", "int", ActionKind::Speculate, "id", "make the rest of this clause part of a speculation"),
    call("speculation", "int", "", "", "begin a speculation; its id, or 0 where none is free"),
    act("stack", "stack", "...", ActionKind::Stack, "[frames]", "record the kernel stack"),
    agg("stddev", "@", Aggregating::Stddev, "x", "standard deviation"),
    act("stop", "void", "", ActionKind::Stop, "", "stop the process when it leaves the kernel; kill -CONT continues it"),
    call("strchr", "string", "string, char", "s, c", "rest of s from the first c; NULL where there is none"),
    call("strjoin", "string", "string, string", "s, t", "s followed by t"),
    sub("strlen", "size_t", "string", Subroutine::Strlen, "s", "length of a string in bytes"),
    call("strrchr", "string", "string, char", "s, c", "rest of s from the last c; NULL where there is none"),
    call("strstr", "string", "string, string", "s, t", "rest of s from the first t; NULL where there is none"),
    sub("strtok", "string", "string, string", Subroutine::Strtok, "s, delimiters", "next part of s between delimiters; with NULL for s, of the string before"),
    call("strtoll", "int64_t", "string, [int]", "s[, base]", "the number at the start of s"),
    call("substr", "string", "string, int, [int]", "s, from[, n]", "part of a string; a negative from counts from the end"),
    agg("sum", "@", Aggregating::Sum, "x", "sum of the values"),
    sub_not_on_linux("sx_exclusive_held", "sx locks are FreeBSD's: see rw_write_held( )"),
    sub_not_on_linux("sx_isexclusive", "sx locks are FreeBSD's: see rw_iswriter( )"),
    sub_not_on_linux("sx_shared_held", "sx locks are FreeBSD's: see rw_read_held( )"),
    act("sym", "_symaddr", "uintptr_t", ActionKind::Sym, "address", "kernel symbol at an address"),
    act("system", "void", "@, ...", ActionKind::System, "format, ...", "run a command of the shell"),
    call("tolower", "string", "string", "s", "s with small letters; ASCII only"),
    call("toupper", "string", "string", "s", "s with capital letters; ASCII only"),
    act("trace", "void", "@", ActionKind::Trace, "x", "record a value; print a number, a string or a dump of its bytes"),
    act("tracemem", "void", "@, @, ...", ActionKind::Tracemem, "address, n[, length]", "record n bytes and print a dump of at most length bytes"),
    act("trunc", "void", "...", ActionKind::Trunc, "@a[, n]", "keep the n keys with the highest values, -n: the lowest; without n, none"),
    act("uaddr", "_usymaddr", "uintptr_t", ActionKind::Uaddr, "address", "symbol and offset at an address of the process"),
    act("ufunc", "_usymaddr", "uintptr_t", ActionKind::Ufunc, "address", "function at an address of the process"),
    act("umod", "_usymaddr", "uintptr_t", ActionKind::Umod, "address", "file that is mapped at an address of the process"),
    act("ustack", "stack", "...", ActionKind::Ustack, "[frames]", "record the user stack"),
    act("usym", "_usymaddr", "uintptr_t", ActionKind::Usym, "address", "symbol at an address of the process"),
    sub_not_on_linux("vm_kernel_addrperm", "it hides addresses of the kernel on macOS; here they are shown as they are"),
];
