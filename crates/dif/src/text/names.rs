//! The words of the text form, as tables that both the printer and the parser read.

use plane::desc::AddrForm;

use crate::ir::{BinOp, Cond, FaultKind, Scope, Space, Ty, UnOp};

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
    (AddrForm::Guest, "guest"),
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
