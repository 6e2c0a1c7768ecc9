//! x86-64: what eight bytes can express of the rules of call frame information, by the numbers of
//! registers and the shapes of expressions.

use gimli::{
    CfaRule, EndianSlice, LittleEndian, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow,
};
use plane::unwind::{FramePointer, Kind, Rule};

/// The bytes of a section.
pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// What differs between files of 64 bits and of 32.
pub(crate) struct Machine {
    /// Bytes of an address.
    pub(crate) word: u8,
    /// Numbers of registers in call frame information.
    bp: u16,
    sp: u16,
    return_address: u16,
    /// The words of the saved registers (`struct pt_regs`, arch/x86/include/asm/ptrace.h) by these
    /// numbers, without the two above.
    saved_words: &'static [Option<i32>],
    /// What the kernel saves at the interruption of a process, in bytes from the stack pointer:
    /// frame pointer and program counter in `struct sigcontext`.
    signal_bp: i64,
    signal_ip: i64,
    /// The expression of entries of procedure linkage tables around its number: see
    /// [`Machine::plt`].
    plt: ([u8; 6], [u8; 4]),
}

impl Machine {
    pub(crate) const WIDE: Machine = Machine {
        word: 8,
        bp: 6,
        sp: 7,
        return_address: 16,
        saved_words: &SAVED_WORDS,
        signal_bp: -40,
        signal_ip: 8,
        plt: ([0x77, 8, 0x80, 0, 0x3f, 0x1a], [0x2a, 0x33, 0x24, 0x22]),
    };

    pub(crate) const NARROW: Machine = Machine {
        word: 4,
        bp: 5,
        sp: 4,
        return_address: 8,
        // eax, ecx, edx, ebx, esp, ebp, esi, edi
        saved_words: &[Some(10), Some(11), Some(12), Some(5), None, None, Some(13), Some(14)],
        signal_bp: -4,
        signal_ip: 28,
        plt: ([0x74, 4, 0x78, 0, 0x3f, 0x1a], [0x2a, 0x32, 0x24, 0x22]),
    };

    /// The stack pointer plus a word, and plus one more if the low bits of the instruction pointer
    /// are at least a number: breg7 8, breg16 0, lit15, and, litN, ge, lit3, shl, plus.
    fn plt(&self, code: &[u8]) -> Option<i32> {
        let (before, rest) = code.split_first_chunk::<6>()?;
        let (literal @ 0x30..=0x3f, after) = rest.split_first()? else { return None };
        (*before == self.plt.0 && after == self.plt.1).then(|| i32::from(literal - 0x30))
    }
}

/// Those of 64 bits.
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

/// The rule of a row of call frame information.
pub(crate) fn rule<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    row: &UnwindTableRow<usize>,
    machine: &Machine,
) -> Rule {
    let of = |number| row.register(gimli::Register(number));
    let (ra, bp) = (of(machine.return_address), of(machine.bp));
    let word = i64::from(machine.word);
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let kind = match register.0 {
                number if number == machine.sp => Kind::Sp,
                number if number == machine.bp => Kind::Bp,
                _ => Kind::Register,
            };
            let offset = i32::try_from(*offset).ok();
            let offset = match kind {
                Kind::Register => offset.and_then(|offset| machine.with_register(register.0, offset)),
                _ => offset,
            };
            offset.map(|offset| (kind, offset))
        }
        CfaRule::Expression(expression) => match bytes(section, expression).and_then(|e| machine.cfa(e)) {
            Some((Kind::Signal, at)) => return signal(section, at, (ra, bp), machine),
            shape => shape,
        },
    };
    let Some((kind, offset)) = cfa else { return Rule::UNKNOWN };
    if let (Kind::Sp, Some(RegisterRule::Offset(sp))) = (kind, of(machine.sp)) {
        return machine.signal_at_cfa(i64::from(offset), sp, (&ra, &bp));
    }
    match ra {
        Some(RegisterRule::Offset(at)) if at == -word => {}
        None | Some(RegisterRule::Undefined) => return Rule::END,
        _ => return Rule::UNKNOWN,
    }
    let words = |offset: i64| i8::try_from(offset / word).ok().filter(|_| offset % word == 0);
    let bp = match bp {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(FramePointer::Same),
        Some(RegisterRule::Offset(at)) => words(at).map(FramePointer::AtCfa),
        Some(RegisterRule::Expression(expression)) => match bytes(section, &expression).and_then(register) {
            Some((number, at, [])) if number == machine.bp => words(at).map(FramePointer::AtBp),
            _ => None,
        },
        _ => None,
    };
    match bp {
        Some(bp) => Rule { kind, offset, bp },
        None => Rule::UNKNOWN,
    }
}

impl Machine {
    /// The offset of [`Kind::Register`].
    fn with_register(&self, number: u16, offset: i32) -> Option<i32> {
        let word = (*self.saved_words.get(usize::from(number))?)?;
        offset.checked_mul(16)?.checked_add(word)
    }
}

/// The rule of a signal frame, if its registers are where the kernel saves them.
fn signal<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    at: i32,
    (ra, bp): (Option<RegisterRule<usize>>, Option<RegisterRule<usize>>),
    machine: &Machine,
) -> Rule {
    let is_at = |rule, offset: i64| match rule {
        Some(RegisterRule::Expression(e)) => {
            let found = bytes(section, &e).and_then(register);
            found.is_some_and(|(number, found, rest)| {
                number == machine.sp && found == i64::from(at) + offset && rest.is_empty()
            })
        }
        _ => false,
    };
    match is_at(ra, machine.signal_ip) && is_at(bp, machine.signal_bp) {
        true => Rule { kind: Kind::Signal, offset: at, bp: FramePointer::Same },
        false => Rule::UNKNOWN,
    }
}

fn bytes<'a, S: UnwindSection<Bytes<'a>>>(section: &S, e: &UnwindExpression<usize>) -> Option<&'a [u8]> {
    e.get(section).ok().map(|expression| expression.0.slice())
}

impl Machine {
    /// The rule of a signal frame whose CFA is the registers that the kernel saves, if they are
    /// around the stack pointer there as they are elsewhere. (The vdso of 32 bits in newer
    /// kernels.)
    fn signal_at_cfa(
        &self,
        cfa: i64,
        sp: i64,
        (ra, bp): (&Option<RegisterRule<usize>>, &Option<RegisterRule<usize>>),
    ) -> Rule {
        let is_at = |rule: &Option<RegisterRule<usize>>, offset: i64| matches!(rule, Some(RegisterRule::Offset(at)) if at.checked_sub(sp) == Some(offset));
        let at = cfa.checked_add(sp).and_then(|at| i32::try_from(at).ok());
        match at.filter(|_| is_at(ra, self.signal_ip) && is_at(bp, self.signal_bp)) {
            Some(offset) => Rule { kind: Kind::Signal, offset, bp: FramePointer::Same },
            None => Rule::UNKNOWN,
        }
    }

    /// The shapes of expressions that are a CFA.
    fn cfa(&self, code: &[u8]) -> Option<(Kind, i32)> {
        if let Some(number) = self.plt(code) {
            return Some((Kind::Plt, number));
        }
        let (number, at, rest) = register(code)?;
        let at = i32::try_from(at).ok()?;
        match rest {
            [DEREF] if number == self.bp => Some((Kind::Realigned, at)),
            [DEREF] if number == self.sp => Some((Kind::Signal, at)),
            // The bytes of the return address are added.
            [DEREF, PLUS, bytes] if number == self.sp && *bytes == self.word => Some((Kind::Saved, at)),
            _ => None,
        }
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

    fn cfa_expression(code: &[u8]) -> Option<(Kind, i32)> {
        Machine::WIDE.cfa(code)
    }

    fn with_register(number: u16, offset: i32) -> Option<i32> {
        Machine::WIDE.with_register(number, offset)
    }

    #[test]
    fn expressions_of_32_bit_files_have_other_registers() {
        let plt = [0x74, 4, 0x78, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x32, 0x24, 0x22];
        assert_eq!(Machine::NARROW.cfa(&plt), Some((Kind::Plt, 11)));
        assert_eq!(cfa_expression(&plt), None);
        // breg5 -4, deref; breg4 32, deref
        assert_eq!(Machine::NARROW.cfa(&[0x75, 0x7c, 6]), Some((Kind::Realigned, -4)));
        assert_eq!(Machine::NARROW.cfa(&[0x74, 32, 6]), Some((Kind::Signal, 32)));
        assert_eq!(Machine::NARROW.cfa(&[0x76, 0x78, 6]), None);
        // ecx + 4, edi
        assert_eq!(Machine::NARROW.with_register(1, 4), Some(4 * 16 + 11));
        assert_eq!(Machine::NARROW.with_register(7, 0), Some(14));
        assert_eq!((Machine::NARROW.with_register(4, 0), Machine::NARROW.with_register(8, 0)), (None, None));
    }

    #[test]
    fn saved_registers_at_the_cfa_are_a_signal_frame() {
        let at = |offset| Some(RegisterRule::Offset(offset));
        let signal = |offset| Rule { kind: Kind::Signal, offset, bp: FramePointer::Same };
        // esp + 4, where the kernel has a struct sigcontext of 32 bits: esp at 28, eip at 56, ebp
        // at 24.
        assert_eq!(Machine::NARROW.signal_at_cfa(4, 28, (&at(56), &at(24))), signal(32));
        for (ra, bp) in [(at(-4), at(24)), (at(56), None), (at(56), at(28)), (None, at(24))] {
            assert_eq!(Machine::NARROW.signal_at_cfa(4, 28, (&ra, &bp)), Rule::UNKNOWN);
        }
        assert_eq!(Machine::WIDE.signal_at_cfa(0, 160, (&at(168), &at(120))), signal(160));
        assert_eq!(Machine::WIDE.signal_at_cfa(i64::MAX, 160, (&at(168), &at(120))), Rule::UNKNOWN);
    }

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
        for (number, offset) in [(7, 8), (6, 8), (16, 8), (40, 8), (11, i32::MAX), (11, i32::MIN)] {
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
