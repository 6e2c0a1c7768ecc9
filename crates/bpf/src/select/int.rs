//! Integers: arithmetic as D means it, and checked loads.
//!
//! The machine's division is unsigned and gives 0 for a zero divisor; kernels from 6.6 have a signed one, which on some of
//! them traps on `i64::MIN / -1`. So signed division is made of the unsigned one everywhere: two shifts and four
//! additions without a branch, for which the verifier has nothing to fork on.

use dif::ir::{BinOp, Cond, FaultKind, InstData, Space, Ty, UnOp, Value};

use super::{Clause, Result, Val};
use crate::mir::{Alu, Builder, Helper, Jmp, Operand, Size, V};

impl Clause<'_, '_> {
    pub(crate) fn bin(&mut self, inst: &InstData, op: BinOp, x: Value, y: Value) {
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

    /// Where a pointer's bytes are: `Some(true)` in the process, `Some(false)` in the kernel, `None` to be seen.
    fn space(&self, inst: &InstData, addr: Value) -> Result<Option<bool>> {
        match self.f.values[addr.0 as usize] {
            Ty::Ptr(Space::Kernel) => Ok(Some(false)),
            Ty::Ptr(Space::User) => Ok(Some(true)),
            Ty::Ptr(Space::Scratch | Space::Static) => {
                self.error(inst.span, "loads from alloca memory and variables are not compiled yet")
            }
            Ty::Ptr(Space::Unknown) | Ty::Int | Ty::Str => Ok(None),
        }
    }

    pub(crate) fn load(&mut self, inst: &InstData, size: u8, signed: bool, addr: Value) -> Result<()> {
        let user = self.space(inst, addr)?;
        let address = self.reg(addr);
        let bad = self.fault(FaultKind::BadAddr, Operand::V(address));
        let room = self.b.stack(8);
        let b = &mut *self.b;
        let read = |b: &mut Builder, user: bool| {
            let dst = b.slot_addr(room, 0);
            let size = b.imm(i64::from(size));
            let helper = if user { Helper::PROBE_READ_USER } else { Helper::PROBE_READ_KERNEL };
            let failed = b.call(helper, &[dst, size, address]);
            b.br(Jmp::Ne, failed, 0, bad);
        };
        match user {
            Some(user) => read(b, user),
            None => {
                // Addresses of the kernel are negative.
                let (kernel, done) = (b.label(), b.label());
                b.br(Jmp::Slt, address, 0, kernel);
                read(b, true);
                b.jmp(done);
                b.bind(kernel);
                read(b, false);
                b.bind(done);
            }
        }
        let w = Size::of(u32::from(size)).unwrap_or(Size::B8);
        let raw = b.slot_load(w, room, 0);
        let value = if signed && size < 8 { extend(b, size * 8, true, raw) } else { raw };
        self.set(inst, Val::Int(Operand::V(value)));
        Ok(())
    }

    pub(crate) fn load_str(&mut self, inst: &InstData, addr: Value, max: Option<Value>) -> Result<()> {
        let user = self.space(inst, addr)?;
        let address = self.reg(addr);
        let max = max.map(|m| self.int(m));
        let bad = self.fault(FaultKind::BadAddr, Operand::V(address));
        let Some(result) = inst.result else { return Ok(()) };
        let temp = self.temp(result);
        if let super::strings::Str::Bytes(base, off) = temp {
            self.load_string(address, user, max, base, off, bad)?;
        }
        self.set(inst, Val::Str(temp));
        Ok(())
    }
}

/// The low `bits` of a register.
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
        // A divisor that does not fit an immediate, or 0 behind its fault check, is in a register.
        (Alu::Div | Alu::Mod, Operand::Imm(i)) if i <= 0 || i32::try_from(i).is_err() => {
            let y = b.imm(i);
            b.alu(simple, x, y)
        }
        _ => b.alu(simple, x, y),
    }
}

/// `|x| op |y|` with the sign put back. `s = v >> 63; (v ^ s) - s` is `|v|`; `i64::MIN` stays, and is right unsigned.
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
