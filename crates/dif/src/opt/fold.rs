//! Rewrite rules for single operations.
//!
//! A rule gets the operation and, through [`Context`], the definitions of its operands. It returns
//! an existing value or a cheaper operation. [`Context`] emits the constants that a rule needs.

use crate::eval;
use crate::interp::Val;
use crate::ir::{BinOp, Cond, Module, Op, StrId, Subr, Ty, UnOp, Value};

/// What a rule can query and emit.
pub(super) trait Context {
    /// The operation that defines a value; `None` for a block parameter.
    fn def(&self, value: Value) -> Option<&Op>;
    /// A value's type.
    fn ty(&self, value: Value) -> Ty;
    /// Emits a constant.
    fn constant(&mut self, n: i64) -> Value;
    /// The module's tables.
    fn module(&self) -> &Module;
}

/// The result of a rule.
pub(super) enum Folded {
    /// No simplification.
    Same,
    /// The operation's result is this value.
    Value(Value),
    /// The operation can be replaced by this one.
    Op(Op),
}

/// The constant number of a value, pointers included.
fn number(k: &impl Context, v: Value) -> Option<i64> {
    match k.def(v)? {
        Op::Const(n) => Some(*n),
        // The operand may itself be a reinterpretation. The front end makes at most two levels.
        Op::AsPtr(_, v) | Op::AsInt(v) => match k.def(*v)? {
            Op::Const(n) => Some(*n),
            _ => None,
        },
        _ => None,
    }
}

fn text(k: &impl Context, v: Value) -> Option<&[u8]> {
    match k.def(v)? {
        Op::StrConst(id) => k.module().strings.get(id.0 as usize).map(Vec::as_slice),
        _ => None,
    }
}

/// The constant string that a comparison sees: NULL compares as the empty string.
fn compared(k: &impl Context, v: Value) -> Option<&[u8]> {
    match k.def(v)? {
        Op::Null => Some(b""),
        _ => text(k, v),
    }
}

/// The value itself if the types agree, otherwise the value reinterpreted as an integer.
fn same(k: &impl Context, v: Value, ty: Ty) -> Folded {
    if k.ty(v) == ty {
        Folded::Value(v)
    } else if ty == Ty::Int {
        Folded::Op(Op::AsInt(v))
    } else {
        Folded::Same
    }
}

/// Simplifies one operation whose result has type `ty`.
pub(super) fn fold(k: &mut impl Context, op: &Op, ty: Ty) -> Folded {
    match op {
        Op::Bin(op, a, b) => bin(k, *op, *a, *b, ty),
        Op::Un(op, v) => un(k, *op, *v),
        Op::Cmp(c, a, b) => cmp(k, *c, *a, *b),
        Op::StrCmp(c, a, b) => str_cmp(k, *c, *a, *b),
        Op::Ext { bits, signed, value } => ext(k, *bits, *signed, *value),
        Op::AsPtr(space, v) => match k.def(*v) {
            _ if k.ty(*v) == ty => Folded::Value(*v),
            Some(Op::AsInt(inner) | Op::AsPtr(_, inner)) => Folded::Op(Op::AsPtr(*space, *inner)),
            _ => Folded::Same,
        },
        Op::AsInt(v) => match k.def(*v) {
            Some(Op::AsPtr(_, inner)) => same(k, *inner, Ty::Int),
            _ => Folded::Same,
        },
        Op::StrLen(v) => match text(k, *v) {
            Some(s) => Folded::Op(Op::Const(s.len() as i64)),
            None => Folded::Same,
        },
        Op::Call(subr, args) => call(k, *subr, args),
        _ => Folded::Same,
    }
}

/// A call with constant arguments. A string result becomes a constant only if the module already
/// has that string, because the tables are not changed here.
fn call(k: &impl Context, subr: Subr, args: &[Value]) -> Folded {
    let constant = |v: &Value| match k.def(*v)? {
        Op::StrConst(_) => text(k, *v).map(|t| Val::Str(t.to_vec())),
        _ => number(k, *v).map(Val::Int),
    };
    let Some(values) = args.iter().map(constant).collect::<Option<Vec<_>>>() else { return Folded::Same };
    match subr.fold(&values, k.module().strsize) {
        Some(Val::Int(n)) => Folded::Op(Op::Const(n)),
        Some(Val::Str(s)) => match k.module().strings.iter().position(|t| *t == s) {
            Some(i) => Folded::Op(Op::StrConst(StrId(i as u32))),
            None => Folded::Same,
        },
        Some(Val::Null) => Folded::Op(Op::Null),
        Some(Val::Bytes(_)) | None => Folded::Same,
    }
}

fn bin(k: &mut impl Context, op: BinOp, a: Value, b: Value, ty: Ty) -> Folded {
    let (na, nb) = (number(k, a), number(k, b));
    if let (Some(x), Some(y)) = (na, nb)
        && ty == Ty::Int
        && let Some(n) = eval::bin(op, x, y)
    {
        return Folded::Op(Op::Const(n));
    }
    // Canonical order makes equal operations identical: a constant is on the right, otherwise the
    // lower value number is on the left. A pointer operand of an addition stays on the left,
    // because it determines the type of the result.
    let misplaced = nb.is_none() && (na.is_some() || b < a);
    if op.commutes() && misplaced && ty == Ty::Int && k.ty(b) == k.ty(a) {
        return Folded::Op(Op::Bin(op, b, a));
    }
    if a == b {
        match op {
            BinOp::Sub | BinOp::Xor if ty == Ty::Int => return Folded::Op(Op::Const(0)),
            BinOp::And | BinOp::Or => return same(k, a, ty),
            _ => {}
        }
    }
    match nb {
        Some(n) => bin_constant(k, op, a, n, ty),
        None => Folded::Same,
    }
}

/// A two-operand operation with a constant on the right.
fn bin_constant(k: &mut impl Context, op: BinOp, a: Value, n: i64, ty: Ty) -> Folded {
    let shift = n.cast_unsigned().is_power_of_two().then(|| i64::from(n.cast_unsigned().trailing_zeros()));
    match (op, n) {
        (BinOp::Add | BinOp::Sub | BinOp::Or | BinOp::Xor, 0) => return same(k, a, ty),
        (BinOp::Mul | BinOp::Sdiv | BinOp::Udiv, 1) | (BinOp::And, -1) => return same(k, a, ty),
        (BinOp::Shl | BinOp::Lshr | BinOp::Ashr, n) if n % 64 == 0 => return same(k, a, ty),
        (BinOp::Mul | BinOp::And, 0) | (BinOp::Srem | BinOp::Urem, 1) | (BinOp::Srem, -1) => {
            return Folded::Op(Op::Const(0));
        }
        (BinOp::Or, -1) => return Folded::Op(Op::Const(-1)),
        (BinOp::Mul | BinOp::Sdiv, -1) => return Folded::Op(Op::Un(UnOp::Neg, a)),
        (BinOp::Xor, -1) => return Folded::Op(Op::Un(UnOp::Not, a)),
        (BinOp::Sub, n) => {
            let minus = k.constant(eval::un(UnOp::Neg, n));
            return Folded::Op(Op::Bin(BinOp::Add, a, minus));
        }
        _ => {}
    }
    // A power of two: shifts and masks cost the kernel a twentieth of a division.
    let cheaper = match (op, shift) {
        (BinOp::Mul, Some(s)) => Some((BinOp::Shl, s)),
        (BinOp::Udiv, Some(s)) => Some((BinOp::Lshr, s)),
        (BinOp::Urem, Some(_)) => Some((BinOp::And, n.wrapping_sub(1))),
        _ => None,
    };
    if let Some((op, n)) = cheaper {
        let right = k.constant(n);
        return Folded::Op(Op::Bin(op, a, right));
    }
    // (x op m) op n, if the constants can be combined.
    if let Some(Op::Bin(inner, x, m)) = k.def(a)
        && *inner == op
        && let Some(m) = number(k, *m)
    {
        let x = *x;
        let together = match op {
            BinOp::Add | BinOp::Mul | BinOp::And | BinOp::Or | BinOp::Xor => eval::bin(op, m, n),
            _ => None,
        };
        if let Some(c) = together
            && (ty == Ty::Int || k.ty(x) == ty)
            && (op != BinOp::Add || k.ty(x) == ty)
        {
            let right = k.constant(c);
            return Folded::Op(Op::Bin(op, x, right));
        }
    }
    // A mask that clears no bit.
    if op == BinOp::And
        && let Some(bits) = mask_bits(n)
        && fits(k, a, bits, false)
    {
        return same(k, a, ty);
    }
    Folded::Same
}

/// Number of low bits that a mask keeps, if the mask has the form 0…01…1.
fn mask_bits(n: i64) -> Option<u8> {
    (n > 0 && (n & n.wrapping_add(1)) == 0).then(|| n.trailing_ones() as u8)
}

fn un(k: &impl Context, op: UnOp, v: Value) -> Folded {
    if let Some(n) = number(k, v) {
        return Folded::Op(Op::Const(eval::un(op, n)));
    }
    match k.def(v) {
        Some(Op::Un(inner, x)) if *inner == op => same(k, *x, Ty::Int),
        _ => Folded::Same,
    }
}

fn cmp(k: &mut impl Context, c: Cond, a: Value, b: Value) -> Folded {
    let (na, nb) = (number(k, a), number(k, b));
    if let (Some(x), Some(y)) = (na, nb) {
        return Folded::Op(Op::Const(eval::cmp(c, x, y).into()));
    }
    if a == b {
        return Folded::Op(Op::Const(eval::cmp(c, 0, 0).into()));
    }
    if na.is_some() || (nb.is_none() && b < a) {
        return Folded::Op(Op::Cmp(c.swapped(), b, a));
    }
    match (c, nb) {
        (Cond::Ult, Some(0)) => Folded::Op(Op::Const(0)),
        (Cond::Uge, Some(0)) => Folded::Op(Op::Const(1)),
        // A comparison of a comparison.
        (Cond::Ne, Some(0)) if truth(k, a) => same(k, a, Ty::Int),
        (Cond::Eq, Some(0)) => match k.def(a) {
            Some(Op::Cmp(inner, x, y)) => Folded::Op(Op::Cmp(inner.negated(), *x, *y)),
            Some(Op::StrCmp(inner, x, y)) => Folded::Op(Op::StrCmp(inner.negated(), *x, *y)),
            _ => Folded::Same,
        },
        _ => Folded::Same,
    }
}

fn truth(k: &impl Context, v: Value) -> bool {
    matches!(k.def(v), Some(Op::Cmp(..) | Op::StrCmp(..)))
}

fn str_cmp(k: &impl Context, c: Cond, a: Value, b: Value) -> Folded {
    if a == b {
        return Folded::Op(Op::Const(eval::str_cmp(c, b"", b"").into()));
    }
    match (compared(k, a), compared(k, b)) {
        (Some(x), Some(y)) => Folded::Op(Op::Const(eval::str_cmp(c, x, y).into())),
        (Some(_), None) => Folded::Op(Op::StrCmp(c.swapped(), b, a)),
        (None, None) if b < a => Folded::Op(Op::StrCmp(c.swapped(), b, a)),
        _ => Folded::Same,
    }
}

fn ext(k: &impl Context, bits: u8, signed: bool, value: Value) -> Folded {
    if let Some(n) = number(k, value) {
        return Folded::Op(Op::Const(eval::ext(bits, signed, n)));
    }
    if fits(k, value, bits, signed) {
        return same(k, value, Ty::Int);
    }
    match k.def(value) {
        // The inner extension keeps at least the bits that the outer one takes.
        Some(Op::Ext { bits: inner, signed: _, value }) if *inner >= bits => {
            Folded::Op(Op::Ext { bits, signed, value: *value })
        }
        Some(Op::AsInt(value) | Op::AsPtr(_, value)) => Folded::Op(Op::Ext { bits, signed, value: *value }),
        _ => Folded::Same,
    }
}

/// True when extending the value from `bits` does not change it.
fn fits(k: &impl Context, v: Value, bits: u8, signed: bool) -> bool {
    // A narrower unsigned number fits any wider form, a narrower signed number only wider signed
    // forms.
    let within = |has: u8, has_sign: bool| {
        if has_sign { signed && has <= bits } else { has < bits || (has == bits && !signed) }
    };
    match k.def(v) {
        Some(Op::Const(n)) => eval::ext(bits, signed, *n) == *n,
        Some(Op::Cmp(..) | Op::StrCmp(..)) => within(1, false),
        Some(Op::StrLen(_)) => within(32 - k.module().strsize.leading_zeros() as u8, false),
        Some(Op::Ext { bits, signed, .. }) => within(*bits, *signed),
        Some(Op::Load { size, signed, .. }) => within(size * 8, *signed),
        Some(Op::Bin(BinOp::And, _, mask)) => match k.def(*mask) {
            Some(Op::Const(n)) if *n >= 0 => within(64 - n.leading_zeros() as u8, false),
            _ => false,
        },
        Some(Op::Bin(BinOp::Lshr, _, count)) => match k.def(*count) {
            Some(Op::Const(n)) if *n > 0 && *n < 64 => within(64 - *n as u8, false),
            _ => false,
        },
        _ => false,
    }
}
