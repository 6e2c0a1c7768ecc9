//! The words of the text form, as tables that both the printer and the parser read.

use plane::desc::AddrForm;

use crate::ir::{BinOp, Cond, FaultKind, IntBuiltin, Scope, Space, StrBuiltin, Ty, UnOp};

/// The word of an entry.
pub(super) fn name_of<T: Copy + PartialEq>(table: &[(T, &'static str)], item: T) -> &'static str {
    table.iter().find(|(t, _)| *t == item).map_or("?", |(_, name)| name)
}

/// The entry of a word.
pub(super) fn item_of<T: Copy>(table: &[(T, &'static str)], name: &str) -> Option<T> {
    table.iter().find(|(_, n)| *n == name).map(|(t, _)| *t)
}

pub(super) const BIN: &[(BinOp, &str)] = &[
    (BinOp::Add, "add"),
    (BinOp::Sub, "sub"),
    (BinOp::Mul, "mul"),
    (BinOp::Sdiv, "sdiv"),
    (BinOp::Udiv, "udiv"),
    (BinOp::Srem, "srem"),
    (BinOp::Urem, "urem"),
    (BinOp::And, "and"),
    (BinOp::Or, "or"),
    (BinOp::Xor, "xor"),
    (BinOp::Shl, "shl"),
    (BinOp::Lshr, "lshr"),
    (BinOp::Ashr, "ashr"),
];

pub(super) const UN: &[(UnOp, &str)] = &[(UnOp::Neg, "neg"), (UnOp::Not, "not")];

pub(super) const COND: &[(Cond, &str)] = &[
    (Cond::Eq, "eq"),
    (Cond::Ne, "ne"),
    (Cond::Slt, "slt"),
    (Cond::Sle, "sle"),
    (Cond::Sgt, "sgt"),
    (Cond::Sge, "sge"),
    (Cond::Ult, "ult"),
    (Cond::Ule, "ule"),
    (Cond::Ugt, "ugt"),
    (Cond::Uge, "uge"),
];

/// `(bits, signed)` of an extension.
pub(super) const EXT: &[((u8, bool), &str)] = &[
    ((8, true), "sext8"),
    ((16, true), "sext16"),
    ((32, true), "sext32"),
    ((8, false), "zext8"),
    ((16, false), "zext16"),
    ((32, false), "zext32"),
];

/// `(bytes, signed)` of an integer in memory.
pub(super) const INT: &[((u8, bool), &str)] = &[
    ((1, true), "i8"),
    ((2, true), "i16"),
    ((4, true), "i32"),
    ((8, true), "i64"),
    ((1, false), "u8"),
    ((2, false), "u16"),
    ((4, false), "u32"),
    ((8, false), "u64"),
];

pub(super) const TY: &[(Ty, &str)] = &[
    (Ty::Int, "int"),
    (Ty::Str, "str"),
    (Ty::Ptr(Space::Kernel), "ptr.kernel"),
    (Ty::Ptr(Space::User), "ptr.user"),
    (Ty::Ptr(Space::Scratch), "ptr.scratch"),
    (Ty::Ptr(Space::Static), "ptr.static"),
    (Ty::Ptr(Space::Unknown), "ptr.unknown"),
];

pub(super) const SCOPE: &[(Scope, &str)] =
    &[(Scope::Global, "global"), (Scope::Thread, "self"), (Scope::Clause, "this")];

pub(super) const INT_BUILTIN: &[(IntBuiltin, &str)] = &[
    (IntBuiltin::Arg(0), "arg0"),
    (IntBuiltin::Arg(1), "arg1"),
    (IntBuiltin::Arg(2), "arg2"),
    (IntBuiltin::Arg(3), "arg3"),
    (IntBuiltin::Arg(4), "arg4"),
    (IntBuiltin::Arg(5), "arg5"),
    (IntBuiltin::Arg(6), "arg6"),
    (IntBuiltin::Arg(7), "arg7"),
    (IntBuiltin::Arg(8), "arg8"),
    (IntBuiltin::Arg(9), "arg9"),
    (IntBuiltin::Arg(10), "arg10"),
    (IntBuiltin::Arg(11), "arg11"),
    (IntBuiltin::Arg(12), "arg12"),
    (IntBuiltin::Arg(13), "arg13"),
    (IntBuiltin::Arg(14), "arg14"),
    (IntBuiltin::Arg(15), "arg15"),
    (IntBuiltin::Arg(16), "arg16"),
    (IntBuiltin::Arg(17), "arg17"),
    (IntBuiltin::Arg(18), "arg18"),
    (IntBuiltin::Arg(19), "arg19"),
    (IntBuiltin::Arg(20), "arg20"),
    (IntBuiltin::Arg(21), "arg21"),
    (IntBuiltin::Arg(22), "arg22"),
    (IntBuiltin::Arg(23), "arg23"),
    (IntBuiltin::Arg(24), "arg24"),
    (IntBuiltin::Arg(25), "arg25"),
    (IntBuiltin::Arg(26), "arg26"),
    (IntBuiltin::Arg(27), "arg27"),
    (IntBuiltin::Arg(28), "arg28"),
    (IntBuiltin::Arg(29), "arg29"),
    (IntBuiltin::Arg(30), "arg30"),
    (IntBuiltin::Arg(31), "arg31"),
    (IntBuiltin::Pid, "pid"),
    (IntBuiltin::Ppid, "ppid"),
    (IntBuiltin::Tid, "tid"),
    (IntBuiltin::Uid, "uid"),
    (IntBuiltin::Gid, "gid"),
    (IntBuiltin::Cpu, "cpu"),
    (IntBuiltin::Timestamp, "timestamp"),
    (IntBuiltin::Walltimestamp, "walltimestamp"),
    (IntBuiltin::Errno, "errno"),
    (IntBuiltin::Epid, "epid"),
    (IntBuiltin::ProbeId, "id"),
    (IntBuiltin::StackDepth, "stackdepth"),
    (IntBuiltin::UstackDepth, "ustackdepth"),
    (IntBuiltin::Caller, "caller"),
    (IntBuiltin::Ucaller, "ucaller"),
    (IntBuiltin::Ipl, "ipl"),
    (IntBuiltin::Vtimestamp, "vtimestamp"),
    (IntBuiltin::UserThread, "userthread"),
    (IntBuiltin::Ureg(0), "ureg0"),
    (IntBuiltin::Ureg(1), "ureg1"),
    (IntBuiltin::Ureg(2), "ureg2"),
    (IntBuiltin::Ureg(3), "ureg3"),
    (IntBuiltin::Ureg(4), "ureg4"),
    (IntBuiltin::Ureg(5), "ureg5"),
    (IntBuiltin::Ureg(6), "ureg6"),
    (IntBuiltin::Ureg(7), "ureg7"),
    (IntBuiltin::Ureg(8), "ureg8"),
    (IntBuiltin::Ureg(9), "ureg9"),
    (IntBuiltin::Ureg(10), "ureg10"),
    (IntBuiltin::Ureg(11), "ureg11"),
    (IntBuiltin::Ureg(12), "ureg12"),
    (IntBuiltin::Ureg(13), "ureg13"),
    (IntBuiltin::Ureg(14), "ureg14"),
    (IntBuiltin::Ureg(15), "ureg15"),
    (IntBuiltin::Ureg(16), "ureg16"),
    (IntBuiltin::Ureg(17), "ureg17"),
    (IntBuiltin::Ureg(18), "ureg18"),
    (IntBuiltin::Ureg(19), "ureg19"),
    (IntBuiltin::Ureg(20), "ureg20"),
    (IntBuiltin::Ureg(21), "ureg21"),
    (IntBuiltin::Ureg(22), "ureg22"),
    (IntBuiltin::Ureg(23), "ureg23"),
    (IntBuiltin::Ureg(24), "ureg24"),
    (IntBuiltin::Ureg(25), "ureg25"),
    (IntBuiltin::CurThread, "curthread"),
    (IntBuiltin::ProviderPid, "providerpid"),
];

pub(super) const STR_BUILTIN: &[(StrBuiltin, &str)] = &[
    (StrBuiltin::Execname, "execname"),
    (StrBuiltin::ProbeProv, "probeprov"),
    (StrBuiltin::ProbeMod, "probemod"),
    (StrBuiltin::ProbeFunc, "probefunc"),
    (StrBuiltin::ProbeName, "probename"),
];

pub(super) const FAULT: &[(FaultKind, &str)] = &[
    (FaultKind::Unknown, "unknown"),
    (FaultKind::BadAddr, "badaddr"),
    (FaultKind::BadAlign, "badalign"),
    (FaultKind::IllegalOp, "illop"),
    (FaultKind::DivZero, "divzero"),
    (FaultKind::NoScratch, "noscratch"),
    (FaultKind::KernelPrivilege, "kpriv"),
    (FaultKind::UserPrivilege, "upriv"),
    (FaultKind::TupleOverflow, "tupoflow"),
    (FaultKind::BadStack, "badstack"),
    (FaultKind::BadSize, "badsize"),
    (FaultKind::BadIndex, "badindex"),
    (FaultKind::Library, "library"),
];

pub(super) const ADDR: &[(AddrForm, &str)] = &[
    (AddrForm::Symbol, "symbol"),
    (AddrForm::Function, "function"),
    (AddrForm::Module, "module"),
    (AddrForm::Address, "address"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_kind_has_a_word() {
        for kind in FaultKind::ALL {
            assert_ne!(name_of(FAULT, kind), "?");
        }
    }
}
