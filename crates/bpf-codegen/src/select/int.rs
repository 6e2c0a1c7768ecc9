//! Integer arithmetic with D's semantics.
//!
//! The machine's division is unsigned and gives 0 for a zero divisor. Kernels from 6.6 also have a
//! signed division, which on some of them traps on `i64::MIN / -1`. So signed division is composed
//! from the unsigned one on every kernel: two shifts and four additions without a branch, so the
//! verifier does not fork.

use dif::ir::{BinOp, Cond, FaultKind, InstData, UnOp, Value};

use super::clause::{Clause, Val};
use crate::mir::{Alu, Builder, Operand, V};

impl Clause<'_, '_> {
    pub(crate) fn bin(&mut self, inst: &InstData, op: BinOp, x: Value, y: Value) {
        if let (BinOp::Add | BinOp::Sub, Some(Val::Place(var, at, more))) = (op, self.values[x.0 as usize]) {
            let place = match self.int(y) {
                Operand::Imm(n) if op == BinOp::Add => Val::Place(var, at.wrapping_add(n), more),
                Operand::Imm(n) => Val::Place(var, at.wrapping_sub(n), more),
                Operand::V(v) => {
                    let v = if op == BinOp::Add { v } else { self.b.neg(v) };
                    Val::Place(var, at, Some(more.map_or(v, |more| self.b.add(more, v))))
                }
            };
            return self.set(inst, place);
        }
        let (x, y) = (self.int(x), self.int(y));
        let divides = matches!(op, BinOp::Sdiv | BinOp::Udiv | BinOp::Srem | BinOp::Urem);
        if divides && !matches!(y, Operand::Imm(i) if i != 0) {
            let bad = self.fault(FaultKind::DivZero, Operand::Imm(0));
            self.branch_ints(Cond::Eq, y, Operand::Imm(0), bad);
        }
        let value = match (x, y) {
            (Operand::Imm(a), Operand::Imm(c)) => Operand::Imm(dif::eval::bin(op, a, c).unwrap_or(0)),
            _ => Operand::V(arithmetic(self.b, op, x, y)),
        };
        self.set(inst, Val::Int(value));
    }

    pub(crate) fn un(&mut self, inst: &InstData, op: UnOp, x: Value) {
        let value = match (op, self.int(x)) {
            (_, Operand::Imm(i)) => Operand::Imm(dif::eval::un(op, i)),
            (UnOp::Neg, Operand::V(v)) => Operand::V(self.b.neg(v)),
            (UnOp::Not, Operand::V(v)) => Operand::V(self.b.xor(v, -1)),
        };
        self.set(inst, Val::Int(value));
    }

    pub(crate) fn ext(&mut self, inst: &InstData, bits: u8, signed: bool, x: Value) {
        let value = match self.int(x) {
            Operand::Imm(i) => Operand::Imm(dif::eval::ext(bits, signed, i)),
            Operand::V(v) => Operand::V(extend(self.b, bits, signed, v)),
        };
        self.set(inst, Val::Int(value));
    }
}

/// Extends the low `bits` of a register.
pub(crate) fn extend(b: &mut Builder, bits: u8, signed: bool, v: V) -> V {
    match (bits, signed) {
        (64.., _) => v,
        (32, false) => b.low32(v),
        (_, false) => b.and(v, (1i64 << bits) - 1),
        (_, true) => {
            let up = b.shl(v, 64 - i64::from(bits));
            b.sar(up, 64 - i64::from(bits))
        }
    }
}

fn arithmetic(b: &mut Builder, op: BinOp, x: Operand, y: Operand) -> V {
    let simple = match op {
        BinOp::Add => Alu::Add,
        BinOp::Sub => Alu::Sub,
        BinOp::Mul => Alu::Mul,
        BinOp::And => Alu::And,
        BinOp::Or => Alu::Or,
        BinOp::Xor => Alu::Xor,
        BinOp::Udiv => Alu::Div,
        BinOp::Urem => Alu::Mod,
        BinOp::Shl | BinOp::Lshr | BinOp::Ashr => {
            let alu = match op {
                BinOp::Shl => Alu::Lsh,
                BinOp::Lshr => Alu::Rsh,
                _ => Alu::Arsh,
            };
            let x = b.reg(x);
            let count = match y {
                Operand::Imm(i) => Operand::Imm(i & 63),
                Operand::V(v) => Operand::V(b.and(v, 63)),
            };
            return b.alu(alu, x, count);
        }
        BinOp::Sdiv | BinOp::Srem => return signed_division(b, op == BinOp::Srem, x, y),
    };
    let x = b.reg(x);
    match (simple, y) {
        // A divisor that does not fit an immediate, or a 0 behind its fault check, goes into a
        // register.
        (Alu::Div | Alu::Mod, Operand::Imm(i)) if i <= 0 || i32::try_from(i).is_err() => {
            let y = b.imm(i);
            b.alu(simple, x, y)
        }
        _ => b.alu(simple, x, y),
    }
}

/// `|x| op |y|` with the sign restored. `s = v >> 63; (v ^ s) - s` is `|v|`. `i64::MIN` stays as it
/// is, which is correct as an unsigned number.
fn signed_division(b: &mut Builder, remainder: bool, x: Operand, y: Operand) -> V {
    let x = b.reg(x);
    let sign_x = b.sar(x, 63);
    let flipped = b.xor(x, sign_x);
    let abs_x = b.sub(flipped, sign_x);
    let (abs_y, sign) = match y {
        Operand::Imm(i) => {
            let magnitude = i.unsigned_abs() as i64;
            let abs_y = if i32::try_from(magnitude).is_ok_and(|m| m > 0) {
                Operand::Imm(magnitude)
            } else {
                Operand::V(b.imm(magnitude))
            };
            (abs_y, if i < 0 { b.xor(sign_x, -1) } else { sign_x })
        }
        Operand::V(y) => {
            let sign_y = b.sar(y, 63);
            let flipped = b.xor(y, sign_y);
            let abs_y = b.sub(flipped, sign_y);
            (Operand::V(abs_y), b.xor(sign_x, sign_y))
        }
    };
    let sign = if remainder { sign_x } else { sign };
    let magnitude = b.alu(if remainder { Alu::Mod } else { Alu::Div }, abs_x, abs_y);
    let flipped = b.xor(magnitude, sign);
    b.sub(flipped, sign)
}
