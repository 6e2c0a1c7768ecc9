//! The arithmetic of D's operators. Constant folding in the checker and in the optimizer, the
//! interpreter and the immediate operands of the back end all call these functions. So folding
//! cannot change a result.
//!
//! The rule is D's: a value has 64 bits, and arithmetic wraps at 64 bits. The type of a value
//! matters in two cases only: the caller states the signedness of a division, a right shift or a
//! comparison, and [`ext`] truncates and extends, as casts, stores and records do. An operator
//! alone never truncates its result to its type: `-(uint16_t)1000` is -1000 in 64 bits until it is
//! stored.
//!
//! This crate knows neither D's types nor the intermediate form. Both are built on it.

use std::cmp::Ordering;

/// Two-operand integer arithmetic.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    Sdiv,
    Udiv,
    Srem,
    Urem,
    And,
    Or,
    Xor,
    Shl,
    /// Logical right shift.
    Lshr,
    /// Arithmetic right shift.
    Ashr,
}

impl BinOp {
    /// Every operation.
    pub const ALL: [BinOp; 13] = [
        BinOp::Add,
        BinOp::Sub,
        BinOp::Mul,
        BinOp::Sdiv,
        BinOp::Udiv,
        BinOp::Srem,
        BinOp::Urem,
        BinOp::And,
        BinOp::Or,
        BinOp::Xor,
        BinOp::Shl,
        BinOp::Lshr,
        BinOp::Ashr,
    ];

    /// True for the operations that fault when the divisor is zero.
    pub fn divides(self) -> bool {
        matches!(self, BinOp::Sdiv | BinOp::Udiv | BinOp::Srem | BinOp::Urem)
    }

    /// True when the operands can be exchanged.
    pub fn commutes(self) -> bool {
        matches!(self, BinOp::Add | BinOp::Mul | BinOp::And | BinOp::Or | BinOp::Xor)
    }
}

/// One-operand integer arithmetic.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnOp {
    Neg,
    /// Bitwise complement.
    Not,
}

/// A comparison; `S` signed, `U` unsigned.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cond {
    Eq,
    Ne,
    Slt,
    Sle,
    Sgt,
    Sge,
    Ult,
    Ule,
    Ugt,
    Uge,
}

impl Cond {
    /// Every comparison.
    pub const ALL: [Cond; 10] = [
        Cond::Eq,
        Cond::Ne,
        Cond::Slt,
        Cond::Sle,
        Cond::Sgt,
        Cond::Sge,
        Cond::Ult,
        Cond::Ule,
        Cond::Ugt,
        Cond::Uge,
    ];

    /// The equivalent condition for exchanged operands.
    #[must_use]
    pub fn swapped(self) -> Cond {
        match self {
            Cond::Eq | Cond::Ne => self,
            Cond::Slt => Cond::Sgt,
            Cond::Sle => Cond::Sge,
            Cond::Sgt => Cond::Slt,
            Cond::Sge => Cond::Sle,
            Cond::Ult => Cond::Ugt,
            Cond::Ule => Cond::Uge,
            Cond::Ugt => Cond::Ult,
            Cond::Uge => Cond::Ule,
        }
    }

    /// The condition that is true exactly when this one is false.
    #[must_use]
    pub fn negated(self) -> Cond {
        match self {
            Cond::Eq => Cond::Ne,
            Cond::Ne => Cond::Eq,
            Cond::Slt => Cond::Sge,
            Cond::Sle => Cond::Sgt,
            Cond::Sgt => Cond::Sle,
            Cond::Sge => Cond::Slt,
            Cond::Ult => Cond::Uge,
            Cond::Ule => Cond::Ugt,
            Cond::Ugt => Cond::Ule,
            Cond::Uge => Cond::Ult,
        }
    }
}

/// Computes a two-operand operation. Returns `None` when the divisor is zero.
pub fn bin(op: BinOp, a: i64, b: i64) -> Option<i64> {
    let (ua, ub) = (a as u64, b as u64);
    Some(match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Sdiv | BinOp::Udiv | BinOp::Srem | BinOp::Urem if b == 0 => return None,
        BinOp::Sdiv => a.wrapping_div(b),
        BinOp::Udiv => (ua / ub) as i64,
        BinOp::Srem => a.wrapping_rem(b),
        BinOp::Urem => (ua % ub) as i64,
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        // The wrapping shifts take the count modulo 64, as the intermediate form and the CPU do.
        BinOp::Shl => a.wrapping_shl(b as u32),
        BinOp::Lshr => ua.wrapping_shr(b as u32) as i64,
        BinOp::Ashr => a.wrapping_shr(b as u32),
    })
}

/// Computes a one-operand operation. Negation wraps.
pub fn un(op: UnOp, a: i64) -> i64 {
    match op {
        UnOp::Neg => a.wrapping_neg(),
        UnOp::Not => !a,
    }
}

/// Compares integers or addresses.
pub fn cmp(cond: Cond, a: i64, b: i64) -> bool {
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Slt => a < b,
        Cond::Sle => a <= b,
        Cond::Sgt => a > b,
        Cond::Sge => a >= b,
        Cond::Ult => (a as u64) < b as u64,
        Cond::Ule => a as u64 <= b as u64,
        Cond::Ugt => a as u64 > b as u64,
        Cond::Uge => a as u64 >= b as u64,
    }
}

/// Compares strings, given without their NUL. Bytes are unsigned.
pub fn str_cmp(cond: Cond, a: &[u8], b: &[u8]) -> bool {
    let order = a.cmp(b);
    match cond {
        Cond::Eq => order == Ordering::Equal,
        Cond::Ne => order != Ordering::Equal,
        Cond::Slt | Cond::Ult => order == Ordering::Less,
        Cond::Sle | Cond::Ule => order != Ordering::Greater,
        Cond::Sgt | Cond::Ugt => order == Ordering::Greater,
        Cond::Sge | Cond::Uge => order != Ordering::Less,
    }
}

/// Sign- or zero-extends the low `bits` of a value. With 64 bits or more, the value is unchanged.
pub fn ext(bits: u8, signed: bool, value: i64) -> i64 {
    let unused = 64u32.saturating_sub(u32::from(bits)) % 64;
    if signed { (value << unused) >> unused } else { (((value as u64) << unused) >> unused) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_and_shift_wrap_at_extreme_operands() {
        assert_eq!(bin(BinOp::Sdiv, i64::MIN, -1), Some(i64::MIN));
        assert_eq!(bin(BinOp::Srem, i64::MIN, -1), Some(0));
        assert_eq!(bin(BinOp::Udiv, 1, 0), None);
        assert_eq!(bin(BinOp::Shl, 1, 65), Some(2));
        assert_eq!(bin(BinOp::Lshr, -1, -1), Some(1));
        assert_eq!(bin(BinOp::Ashr, i64::MIN, 127), Some(-1));
        assert_eq!(bin(BinOp::Sdiv, -7, 2), Some(-3));
        assert_eq!(bin(BinOp::Urem, -1, 10), Some(5));
    }

    #[test]
    fn ext_keeps_the_low_bits_and_extends_their_sign() {
        assert_eq!(ext(8, true, 0x180), -128);
        assert_eq!(ext(8, false, 0x180), 128);
        assert_eq!(ext(32, true, 0xffff_ffff), -1);
        assert_eq!(ext(64, true, -5), -5);
    }

    #[test]
    fn string_bytes_compare_as_unsigned() {
        assert!(str_cmp(Cond::Slt, b"a", b"\xff"));
        assert!(str_cmp(Cond::Slt, b"", b"a"));
        assert!(str_cmp(Cond::Sge, b"ab", b"a"));
    }
}
