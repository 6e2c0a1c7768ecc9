//! The condition of a jump.

use iced_x86::{ConditionCode, Instruction as Decoded};

/// The condition of a jump: the low four bits of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition(u8);

impl Condition {
    /// The condition of an instruction, if it has one that the flags decide.
    pub(crate) fn of(decoded: &Decoded) -> Option<Condition> {
        let code = match decoded.condition_code() {
            ConditionCode::None => return None,
            code => code as u8,
        };
        // `loop` and `loopne` count too.
        (decoded.is_jcc_short_or_near()).then(|| Condition(code.wrapping_sub(1)))
    }

    /// The condition with these bits, of which only four count.
    pub const fn from_bits(bits: u8) -> Condition {
        Condition(bits & 0xf)
    }

    /// The four bits: the lowest negates, the others are the test (overflow, carry, zero, carry or
    /// zero, sign, parity, less, less or equal).
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The condition that holds where this one does not.
    pub(crate) fn negated(self) -> Condition {
        Condition(self.0 ^ 1)
    }

    /// True if a jump with this condition jumps with these flags (`rflags`).
    pub fn holds(self, flags: u64) -> bool {
        let bit = |at: u32| flags >> at & 1 != 0;
        let (carry, parity, zero, sign, overflow) = (bit(0), bit(2), bit(6), bit(7), bit(11));
        let test = match self.0 >> 1 {
            0 => overflow,
            1 => carry,
            2 => zero,
            3 => carry || zero,
            4 => sign,
            5 => parity,
            6 => sign != overflow,
            _ => zero || sign != overflow,
        };
        test != (self.0 & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    #[test]
    fn conditions_are_tested_as_the_processor_does() {
        const CARRY: u64 = 1;
        const ZERO: u64 = 1 << 6;
        const SIGN: u64 = 1 << 7;
        const OVERFLOW: u64 = 1 << 11;
        let not_equal = Condition(5);
        assert!(not_equal.holds(0) && !not_equal.holds(ZERO));
        let below_or_equal = Condition(6);
        assert!(below_or_equal.holds(CARRY) && below_or_equal.holds(ZERO) && !below_or_equal.holds(SIGN));
        let less = Condition(0xc);
        assert!(less.holds(SIGN) && less.holds(OVERFLOW) && !less.holds(SIGN | OVERFLOW));
        let greater = Condition(0xf);
        assert!(greater.holds(0) && !greater.holds(ZERO) && greater.holds(SIGN | OVERFLOW));
    }

    #[test]
    fn the_condition_is_that_of_the_opcode() {
        let of = |code: &[u8]| Condition::of(&Decoder::new(64, code, DecoderOptions::NONE).decode());
        for bits in 0..16u8 {
            assert_eq!(of(&[0x70 | bits, 0x40]), Some(Condition(bits)));
            assert_eq!(of(&[0x0f, 0x80 | bits, 0x40, 0, 0, 0]), Some(Condition(bits)));
        }
        assert_eq!(
            (of(&[0xe2, 0]), of(&[0xe0, 0]), of(&[0xe3, 0]), of(&[0xeb, 0])),
            (None, None, None, None)
        );
    }
}
