//! What eight bytes can express of the rules of call frame information.
//!
//! ARCH(x86-64): the numbers of registers, and the shapes of expressions.

use gimli::{
    CfaRule, EndianSlice, LittleEndian, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow,
};
use plane::unwind::{FramePointer, Kind, Rule};

/// The bytes of a section.
pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Numbers of registers in call frame information.
const BP: u16 = 6;
const SP: u16 = 7;
const RETURN_ADDRESS: u16 = 16;

/// The words of the saved registers (`struct pt_regs`, arch/x86/include/asm/ptrace.h) by these numbers, without [`BP`] and [`SP`].
const SAVED_WORDS: [Option<i32>; 16] = [
    Some(10),
    Some(12),
    Some(11),
    Some(5),
    Some(13),
    Some(14),
    None,
    None,
    Some(9),
    Some(8),
    Some(7),
    Some(6),
    Some(3),
    Some(2),
    Some(1),
    Some(0),
];

/// `DW_OP_breg0`; a register's number is added.
const BREG: u8 = 0x70;
const DEREF: u8 = 0x06;
/// `DW_OP_plus_uconst`.
const PLUS: u8 = 0x23;

/// What the kernel saves at the interruption of a process, in words from the stack pointer: `rbp` and `rip`
/// in `struct sigcontext`.
const SIGNAL_BP: i64 = -40;
const SIGNAL_IP: i64 = 8;

/// The rule of a row of call frame information.
pub(crate) fn rule<'a, S: UnwindSection<Bytes<'a>>>(section: &S, row: &UnwindTableRow<usize>) -> Rule {
    let of = |number| row.register(gimli::Register(number));
    let (ra, bp) = (of(RETURN_ADDRESS), of(BP));
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let kind = match register.0 {
                SP => Kind::Sp,
                BP => Kind::Bp,
                _ => Kind::Register,
            };
            let offset = i32::try_from(*offset).ok();
            let offset = match kind {
                Kind::Register => offset.and_then(|offset| with_register(register.0, offset)),
                _ => offset,
            };
            offset.map(|offset| (kind, offset))
        }
        CfaRule::Expression(expression) => match bytes(section, expression).and_then(cfa_expression) {
            Some((Kind::Signal, at)) => return signal(section, at, ra, bp),
            shape => shape,
        },
    };
    let Some((kind, offset)) = cfa else { return Rule::UNKNOWN };
    match ra {
        Some(RegisterRule::Offset(-8)) => {}
        None | Some(RegisterRule::Undefined) => return Rule::END,
        _ => return Rule::UNKNOWN,
    }
    let words = |offset: i64| i8::try_from(offset / 8).ok().filter(|_| offset % 8 == 0);
    let bp = match bp {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(FramePointer::Same),
        Some(RegisterRule::Offset(at)) => words(at).map(FramePointer::AtCfa),
        Some(RegisterRule::Expression(expression)) => match bytes(section, &expression).and_then(register) {
            Some((BP, at, [])) => words(at).map(FramePointer::AtBp),
            _ => None,
        },
        _ => None,
    };
    match bp {
        Some(bp) => Rule { kind, offset, bp },
        None => Rule::UNKNOWN,
    }
}

/// The offset of [`Kind::Register`].
fn with_register(number: u16, offset: i32) -> Option<i32> {
    let word = (*SAVED_WORDS.get(usize::from(number))?)?;
    offset.checked_mul(16)?.checked_add(word)
}

/// The rule of a signal frame, if its registers are where the kernel saves them.
fn signal<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    at: i32,
    ra: Option<RegisterRule<usize>>,
    bp: Option<RegisterRule<usize>>,
) -> Rule {
    let is_at = |rule, offset: i64| match rule {
        Some(RegisterRule::Expression(e)) => {
            matches!(bytes(section, &e).and_then(register), Some((SP, found, [])) if found == i64::from(at) + offset)
        }
        _ => false,
    };
    match is_at(ra, SIGNAL_IP) && is_at(bp, SIGNAL_BP) {
        true => Rule { kind: Kind::Signal, offset: at, bp: FramePointer::Same },
        false => Rule::UNKNOWN,
    }
}

fn bytes<'a, S: UnwindSection<Bytes<'a>>>(section: &S, e: &UnwindExpression<usize>) -> Option<&'a [u8]> {
    e.get(section).ok().map(|expression| expression.0.slice())
}

/// The shapes of expressions that are a CFA.
fn cfa_expression(code: &[u8]) -> Option<(Kind, i32)> {
    // The stack pointer plus 8, and plus 8 more if the low bits of the instruction pointer are at least a
    // number: breg7 8, breg16 0, lit15, and, litN, ge, lit3, shl, plus.
    if let [0x77, 8, 0x80, 0, 0x3f, 0x1a, literal @ 0x30..=0x3f, 0x2a, 0x33, 0x24, 0x22] = code {
        return Some((Kind::Plt, i32::from(literal - 0x30)));
    }
    match register(code)? {
        (BP, at, [DEREF]) => Some((Kind::Realigned, i32::try_from(at).ok()?)),
        (SP, at, [DEREF]) => Some((Kind::Signal, i32::try_from(at).ok()?)),
        // The bytes of the return address are added.
        (SP, at, [DEREF, PLUS, 8]) => Some((Kind::Saved, i32::try_from(at).ok()?)),
        _ => None,
    }
}

/// A register plus an offset, at the start of an expression, and the rest of it.
fn register(code: &[u8]) -> Option<(u16, i64, &[u8])> {
    let (first, rest) = code.split_first()?;
    let number = first.checked_sub(BREG).filter(|n| *n < 32)?;
    let length = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    // Longer numbers are no offsets in a frame.
    let (digits, rest) = rest.split_at_checked(length).filter(|_| length <= 4)?;
    let value = digits.iter().rev().fold(0i64, |value, byte| value << 7 | i64::from(byte & 0x7f));
    let unused = 64 - 7 * length;
    Some((number.into(), value << unused >> unused, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_known_shapes_are_rules() {
        let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(cfa_expression(&plt), Some((Kind::Plt, 11)));
        assert_eq!(cfa_expression(&[0x76, 0x78, 6]), Some((Kind::Realigned, -8)));
        assert_eq!(cfa_expression(&[0x77, 0xa0, 1, 6]), Some((Kind::Signal, 160)));
        // libcrypto's sha256_block_data_order.
        assert_eq!(cfa_expression(&[0x77, 0xd8, 0, 6, 0x23, 8]), Some((Kind::Saved, 88)));
        assert_eq!(cfa_expression(&[0x77, 0xd8, 0, 6, 0x23, 16]), None);
        for at in 0..plt.len() {
            let mut other = plt;
            other[at] ^= 0x40;
            assert_eq!(cfa_expression(&other), None);
            assert_eq!(cfa_expression(&plt[..at]), None);
        }
        assert_eq!(cfa_expression(&[0x76, 0x78, 6, 6]), None);
        assert_eq!(cfa_expression(&[0x73, 0x78, 6]), None);
    }

    #[test]
    fn a_register_is_named_by_its_word() {
        // r11 + 8, rbx + 16, r15 - 8.
        assert_eq!(with_register(11, 8), Some(8 * 16 + 6));
        assert_eq!(with_register(3, 16), Some(16 * 16 + 5));
        assert_eq!(with_register(15, -8).map(|offset| (offset >> 4, offset & 15)), Some((-8, 0)));
        for (number, offset) in [(SP, 8), (BP, 8), (16, 8), (40, 8), (11, i32::MAX), (11, i32::MIN)] {
            assert_eq!(with_register(number, offset), None);
        }
    }

    #[test]
    fn numbers_in_expressions_have_a_sign() {
        assert_eq!(register(&[0x76, 0]), Some((6, 0, &[][..])));
        assert_eq!(register(&[0x77, 0xf8, 0]), Some((7, 120, &[][..])));
        assert_eq!(register(&[0x80, 0x80, 0x7f, 6]), Some((16, -128, &[6][..])));
        assert_eq!(register(&[0x76, 0x80]), None);
        assert_eq!(register(&[0x76, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!((register(&[0x12, 0]), register(&[])), (None, None));
    }
}
