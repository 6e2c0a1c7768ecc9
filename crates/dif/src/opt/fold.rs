//! Rules for single operations.
//!
//! A rule sees the operation and, through [`Known`], where its operands come from. It answers with a value that is
//! already there, or with a cheaper operation; constants that it needs are emitted through [`Known`].

use crate::eval;
use crate::interp::Val;
use crate::ir::{BinOp, Cond, Module, Op, StrId, Subr, Ty, UnOp, Value, VarTy};

/// What a rule may ask for.
pub(super) trait Known {
    /// The operation that gives a value; `None` for a block parameter.
    fn def(&self, value: Value) -> Option<&Op>;
    /// A value's type.
    fn ty(&self, value: Value) -> Ty;
    /// A constant.
    fn constant(&mut self, n: i64) -> Value;
    /// The tables.
    fn module(&self) -> &Module;
}

/// What became of an operation.
pub(super) enum Folded {
    /// Nothing better is known.
    Same,
    /// It gives what this value is.
    Value(Value),
    /// It is as good as this one.
    Op(Op),
}

/// The number behind a value, pointers included.
fn number(k: &impl Known, v: Value) -> Option<i64> {
    match k.def(v)? {
        Op::Const(n) => Some(*n),
        // Its operand may itself be a view; two levels are what the front end makes.
        Op::AsPtr(_, v) | Op::AsInt(v) => match k.def(*v)? {
            Op::Const(n) => Some(*n),
            _ => None,
        },
        _ => None,
    }
}

fn text(k: &impl Known, v: Value) -> Option<&[u8]> {
    match k.def(v)? {
        Op::StrConst(id) => k.module().strings.get(id.0 as usize).map(Vec::as_slice),
        _ => None,
    }
}

/// What a comparison sees: NULL is as good as the empty string.
fn compared(k: &impl Known, v: Value) -> Option<&[u8]> {
    match k.def(v)? {
        Op::Null => Some(b""),
        _ => text(k, v),
    }
}

/// The value itself where the types agree, else a view of it as an integer.
fn same(k: &impl Known, v: Value, ty: Ty) -> Folded {
    if k.ty(v) == ty {
        Folded::Value(v)
    } else if ty == Ty::Int {
        Folded::Op(Op::AsInt(v))
    } else {
        Folded::Same
    }
}

/// Simplifies one operation whose result has type `ty`.
pub(super) fn fold(k: &mut impl Known, op: &Op, ty: Ty) -> Folded {
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

/// A call whose arguments are constants. A string that it gives is a constant only where the module has it already: the
/// tables are not changed here.
fn call(k: &impl Known, subr: Subr, args: &[Value]) -> Folded {
    let constant = |v: &Value| match k.def(*v)? {
        Op::StrConst(_) => text(k, *v).map(|t| Val::Str(t.to_vec())),
        _ => number(k, *v).map(Val::Int),
    };
    let Some(values) = args.iter().map(constant).collect::<Option<Vec<_>>>() else { return Folded::Same };
    match subr.of_constants(&values, k.module().strsize) {
        Some(Val::Int(n)) => Folded::Op(Op::Const(n)),
        Some(Val::Str(s)) => match k.module().strings.iter().position(|t| *t == s) {
            Some(i) => Folded::Op(Op::StrConst(StrId(i as u32))),
            None => Folded::Same,
        },
        Some(Val::Null) => Folded::Op(Op::Null),
        Some(Val::Bytes(_)) | None => Folded::Same,
    }
}

fn bin(k: &mut impl Known, op: BinOp, a: Value, b: Value, ty: Ty) -> Folded {
    let (na, nb) = (number(k, a), number(k, b));
    if let (Some(x), Some(y)) = (na, nb)
        && ty == Ty::Int
        && let Some(n) = eval::bin(op, x, y)
    {
        return Folded::Op(Op::Const(n));
    }
    // Constants to the right, else the lower number to the left: equal operations then look equal. A pointer that is
    // added to keeps its place, which gives the result its type.
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

/// With a constant on the right.
fn bin_constant(k: &mut impl Known, op: BinOp, a: Value, n: i64, ty: Ty) -> Folded {
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
            let minus = k.constant(n.wrapping_neg());
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
    // (x op m) op n, where the constants can be put together.
    if let Some(Op::Bin(inner, x, m)) = k.def(a)
        && *inner == op
        && let Some(m) = number(k, *m)
    {
        let x = *x;
        let together = match op {
            BinOp::Add => Some(m.wrapping_add(n)),
            BinOp::Mul => Some(m.wrapping_mul(n)),
            BinOp::And => Some(m & n),
            BinOp::Or => Some(m | n),
            BinOp::Xor => Some(m ^ n),
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
    // A mask that takes nothing away.
    if op == BinOp::And
        && let Some(bits) = mask_bits(n)
        && fits(k, a, bits, false)
    {
        return same(k, a, ty);
    }
    Folded::Same
}

/// How many low bits a mask keeps, where it is 0…01…1.
fn mask_bits(n: i64) -> Option<u8> {
    (n > 0 && (n & n.wrapping_add(1)) == 0).then(|| n.trailing_ones() as u8)
}

fn un(k: &impl Known, op: UnOp, v: Value) -> Folded {
    if let Some(n) = number(k, v) {
        return Folded::Op(Op::Const(eval::un(op, n)));
    }
    match k.def(v) {
        Some(Op::Un(inner, x)) if *inner == op => same(k, *x, Ty::Int),
        _ => Folded::Same,
    }
}

fn cmp(k: &mut impl Known, c: Cond, a: Value, b: Value) -> Folded {
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

fn truth(k: &impl Known, v: Value) -> bool {
    matches!(k.def(v), Some(Op::Cmp(..) | Op::StrCmp(..)))
}

fn str_cmp(k: &impl Known, c: Cond, a: Value, b: Value) -> Folded {
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

fn ext(k: &impl Known, bits: u8, signed: bool, value: Value) -> Folded {
    if let Some(n) = number(k, value) {
        return Folded::Op(Op::Const(eval::ext(bits, signed, n)));
    }
    if fits(k, value, bits, signed) {
        return same(k, value, Ty::Int);
    }
    match k.def(value) {
        // The inner extension keeps at least the bits that the outer takes.
        Some(Op::Ext { bits: inner, signed: _, value }) if *inner >= bits => {
            Folded::Op(Op::Ext { bits, signed, value: *value })
        }
        Some(Op::AsInt(value) | Op::AsPtr(_, value)) => Folded::Op(Op::Ext { bits, signed, value: *value }),
        _ => Folded::Same,
    }
}

/// True when extending the value from `bits` gives the value.
fn fits(k: &impl Known, v: Value, bits: u8, signed: bool) -> bool {
    // What a narrower unsigned number is, it is in any wider form; a signed one only in wider signed forms.
    let within = |has: u8, has_sign: bool| {
        if has_sign { signed && has <= bits } else { has < bits || (has == bits && !signed) }
    };
    match k.def(v) {
        Some(Op::Const(n)) => eval::ext(bits, signed, *n) == *n,
        Some(Op::Cmp(..) | Op::StrCmp(..)) => within(1, false),
        Some(Op::StrLen(_)) => within(32 - k.module().strsize.leading_zeros() as u8, false),
        Some(Op::Ext { bits, signed, .. }) => within(*bits, *signed),
        Some(Op::Load { size, signed, .. }) => within(size * 8, *signed),
        Some(Op::LoadVar(var) | Op::LoadElem(var, _)) => {
            match k.module().vars.get(var.0 as usize).map(|d| d.ty) {
                Some(VarTy::Int { size, signed }) => within(size * 8, signed),
                _ => false,
            }
        }
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
