//! The built-in variables of D, one row each.

use probes::{Attributes, Class, Stability};

use super::rows::{CpuFact, Fact, VariableKind, VariableRow};
use crate::program::Builtin::{self, Int, Str};
use crate::program::{IntBuiltin::*, StrBuiltin::*};

const fn var(name: &'static str, ty: &'static str, builtin: Builtin, help: &'static str) -> VariableRow {
    VariableRow { name, ty, kind: VariableKind::Builtin(builtin), attributes: Attributes::STABLE, help }
}

const fn foreign(name: &'static str, why: &'static str) -> VariableRow {
    VariableRow {
        name,
        ty: "int",
        kind: VariableKind::NotOnLinux(why),
        attributes: Attributes::STABLE,
        help: why,
    }
}

/// Names with a leading `_` are for D libraries.
const fn fact(name: &'static str, ty: &'static str, kind: VariableKind, help: &'static str) -> VariableRow {
    VariableRow { name, ty, kind, attributes: Attributes::STABLE, help }
}

/// Every built-in variable.
#[rustfmt::skip]
pub const VARIABLES: &[VariableRow] = &[
    fact("_boottime", "int64_t", VariableKind::Fact(Fact::Boottime), "nanoseconds from boot to 1970"),
    fact("_cpu_chip", "int", VariableKind::CpuFact(CpuFact::Chip), "package of a CPU"),
    fact("_cpu_clock", "int", VariableKind::CpuFact(CpuFact::Clock), "clock of a CPU in MHz"),
    fact("_cpu_lgrp", "int", VariableKind::CpuFact(CpuFact::Node), "NUMA node of a CPU"),
    fact("_enumerator", "string", VariableKind::EnumeratorName, "name of a value of an enumeration"),
    fact("_fputypes", "string", VariableKind::Fact(Fact::FpuTypes), "kind of floating-point unit"),
    fact("_pagesize", "uint64_t", VariableKind::Fact(Fact::Pagesize), "bytes of a page"),
    fact("_pidns", "uint_t", VariableKind::Fact(Fact::PidNamespace), "inode of the pid namespace of the tracer"),
    fact("_processor_type", "string", VariableKind::Fact(Fact::ProcessorType), "kind of processor"),
    fact("_tick", "uint64_t", VariableKind::Fact(Fact::Tick), "nanoseconds between two ticks of the kernel"),
    fact("NULL", "long", VariableKind::Null, "the null address and the null string"),
    var("arg0", "int64_t", Int(Arg(0)), "argument 0 of the probe, as 64 bits"),
    var("arg1", "int64_t", Int(Arg(1)), "argument 1 of the probe, as 64 bits"),
    var("arg2", "int64_t", Int(Arg(2)), "argument 2 of the probe, as 64 bits"),
    var("arg3", "int64_t", Int(Arg(3)), "argument 3 of the probe, as 64 bits"),
    var("arg4", "int64_t", Int(Arg(4)), "argument 4 of the probe, as 64 bits"),
    var("arg5", "int64_t", Int(Arg(5)), "argument 5 of the probe, as 64 bits"),
    var("arg6", "int64_t", Int(Arg(6)), "argument 6 of the probe, as 64 bits"),
    var("arg7", "int64_t", Int(Arg(7)), "argument 7 of the probe, as 64 bits"),
    var("arg8", "int64_t", Int(Arg(8)), "argument 8 of the probe, as 64 bits"),
    var("arg9", "int64_t", Int(Arg(9)), "argument 9 of the probe, as 64 bits"),
    fact("args", "<DYN>", VariableKind::TypedArgs, "the arguments of the probe with their types"),
    var("caller", "uintptr_t", Int(Caller), "return address of the probed function; 0 where there is none"),
    var("cpu", "int", Int(Cpu), "number of the CPU"),
    VariableRow {
        name: "curthread",
        ty: "struct vmlinux`task_struct *",
        kind: VariableKind::Builtin(Int(CurThread)),
        attributes: Attributes::new(Stability::Stable, Stability::Private, Class::Common),
        help: "the thread that fired the probe, as the kernel describes it",
    },
    foreign("dispatchqaddr", "there are no dispatch queues"),
    var("epid", "uint_t", Int(Epid), "number of the enabled probe: of probe and clause together"),
    var("errno", "int", Int(Errno), "error of a system call in its return probe; 0 where it succeeded"),
    var("execname", "string", Str(Execname), "name of the thread, at most 15 characters"),
    var("gid", "uint_t", Int(Gid), "real group id"),
    var("id", "uint_t", Int(ProbeId), "number of the probe, as dtrace -l shows it"),
    var("ipl", "uint_t", Int(Ipl), "0 in a thread, 1 in a soft interrupt, 2 in a hard interrupt, 3 in an NMI"),
    foreign("jailname", "there are no jails"),
    foreign("jid", "there are no jails"),
    foreign("machtimestamp", "there are no Mach ticks; timestamp counts nanoseconds"),
    var("pid", "pid_t", Int(Pid), "process id"),
    var("ppid", "pid_t", Int(Ppid), "process id of the parent"),
    var("probefunc", "string", Str(ProbeFunc), "function field of the probe"),
    var("probemod", "string", Str(ProbeMod), "module field of the probe"),
    var("probename", "string", Str(ProbeName), "name field of the probe"),
    var("probeprov", "string", Str(ProbeProv), "provider field of the probe"),
    foreign("pthread_self", "there are handles of threads in the C library alone; tid is the kernel's number"),
    var("stackdepth", "uint32_t", Int(StackDepth), "number of frames of the kernel stack"),
    var("threadname", "string", Str(Execname), "name of the thread, as execname"),
    var("tid", "id_t", Int(Tid), "thread id"),
    var("timestamp", "uint64_t", Int(Timestamp), "nanoseconds of a clock that never goes back, the same on all CPUs"),
    var("ucaller", "uint64_t", Int(Ucaller), "return address of the function in the process; 0 where there is none"),
    var("uid", "uint_t", Int(Uid), "real user id"),
    fact("uregs", "uint64_t", VariableKind::Registers, "registers of the process as it entered the kernel, by the names R_PC, R_SP and so on"),
    var("ustackdepth", "uint32_t", Int(UstackDepth), "number of frames of the user stack"),
    var("vtimestamp", "uint64_t", Int(Vtimestamp), "nanoseconds of CPU time of the thread, without the time of the probes themselves"),
    var("walltimestamp", "int64_t", Int(Walltimestamp), "nanoseconds since 1970"),
];
