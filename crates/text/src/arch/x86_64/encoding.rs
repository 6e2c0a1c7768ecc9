//! The parts of one encoded instruction that the kernel's rules are about: prefixes, opcode, ModRM.
//!
//! A disassembler tells what an instruction does; the kernel decides by single bytes. This file
//! finds these bytes as the kernel's decoder (`insn_decode`) does. Validity and length are not
//! checked here.

/// How the opcode is introduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One byte.
    Plain,
    /// `0f`, and the byte after it.
    Escaped(u8),
    /// A VEX or EVEX prefix.
    Vector,
    /// AMD's XOP prefix.
    Xop,
}

/// An encoded instruction, as far as the kernel looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    /// A prefix `lock`, `es`, `cs`, `ss` or `ds` (`notrack`, branch hints).
    pub(crate) bad_prefix: Option<u8>,
    /// The operand-size prefix `66`.
    pub(crate) operand_size: bool,
    /// Legacy prefixes, counted without repetition.
    pub(crate) prefixes: u8,
    /// The REX prefix.
    pub(crate) rex: Option<u8>,
    /// Plain or after an escape or vector prefix.
    pub(crate) form: Form,
    /// The first byte of the opcode: `0f` for an escaped one, the byte after the prefix for a
    /// vector one.
    pub(crate) opcode: u8,
    /// The byte after the opcode, which is the ModRM byte if the instruction has one.
    pub(crate) modrm: u8,
}

const LOCK: u8 = 0xf0;
const SEGMENTS: [u8; 4] = [0x26, 0x2e, 0x36, 0x3e];
const LEGACY: [u8; 11] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, LOCK, 0xf2, 0xf3];

impl Encoding {
    /// Reads the head of an instruction. Bytes after the end of `code` count as zero.
    pub(crate) fn read(code: &[u8]) -> Encoding {
        let byte = |at: usize| code.get(at).copied().unwrap_or(0);
        let mut seen = [0u8; LEGACY.len()];
        let mut count = 0usize;
        let mut at = 0;
        let mut bad_prefix = None;
        while let Some(b) = code.get(at).copied().filter(|b| LEGACY.contains(b)) {
            if !seen.contains(&b) {
                if let Some(slot) = seen.get_mut(count) {
                    *slot = b;
                }
                count += 1;
            }
            if b == LOCK || SEGMENTS.contains(&b) {
                bad_prefix = Some(b);
            }
            at += 1;
        }
        let rex = (byte(at) & 0xf0 == 0x40).then(|| byte(at));
        at += usize::from(rex.is_some());
        let (form, opcode_at) = match byte(at) {
            0x0f => (Form::Escaped(byte(at + 1)), at),
            0xc5 => (Form::Vector, at + 2),
            0xc4 => (Form::Vector, at + 3),
            0x62 => (Form::Vector, at + 4),
            // Maps 8 and above: `pop` has 0 there.
            0x8f if byte(at + 1) & 0x1f >= 8 => (Form::Xop, at + 3),
            _ => (Form::Plain, at),
        };
        let modrm_at = match form {
            Form::Escaped(0x38 | 0x3a) => opcode_at + 3,
            Form::Escaped(_) => opcode_at + 2,
            _ => opcode_at + 1,
        };
        Encoding {
            bad_prefix,
            operand_size: seen.contains(&0x66),
            prefixes: u8::try_from(count).unwrap_or(u8::MAX),
            rex,
            form,
            opcode: byte(opcode_at),
            modrm: byte(modrm_at),
        }
    }

    /// The field `reg` of the ModRM byte, without the extension.
    pub(crate) fn reg(&self) -> u8 {
        self.modrm >> 3 & 7
    }

    /// A legacy prefix stands where the opcode is expected: after a REX prefix, which has no effect
    /// then.
    pub(crate) fn is_odd(&self) -> bool {
        const FOUR: u8 = 4;
        self.prefixes > FOUR || (self.form == Form::Plain && LEGACY.contains(&self.opcode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: &[u8]) -> Encoding {
        Encoding::read(code)
    }

    #[test]
    fn the_opcode_is_found_after_every_kind_of_prefix() {
        assert_eq!((read(&[0x55]).form, read(&[0x55]).opcode), (Form::Plain, 0x55));
        assert_eq!((read(&[0x41, 0x54]).rex, read(&[0x41, 0x54]).opcode), (Some(0x41), 0x54));
        assert_eq!(read(&[0xf3, 0x0f, 0x1e, 0xfa]).form, Form::Escaped(0x1e));
        assert_eq!(read(&[0xf3, 0x0f, 0x1e, 0xfa]).modrm, 0xfa);
        let vpcmpeqd = read(&[0xc5, 0xf9, 0x76, 0xc0]);
        assert_eq!((vpcmpeqd.form, vpcmpeqd.opcode, vpcmpeqd.modrm), (Form::Vector, 0x76, 0xc0));
        assert_eq!(read(&[0x62, 0xf1, 0x7f, 0x48, 0x6f, 6]).opcode, 0x6f);
        assert_eq!(read(&[0x8f, 0xc0]).form, Form::Plain);
        assert_eq!(read(&[0x8f, 0xe8, 0x78, 0xc2]).form, Form::Xop);
    }

    #[test]
    fn prefixes_are_counted_without_repetition() {
        let nop = read(&[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]);
        assert_eq!((nop.prefixes, nop.bad_prefix, nop.operand_size), (2, Some(0x2e), true));
        assert_eq!(read(&[0xf0, 0x0f, 0xb1, 0x17]).bad_prefix, Some(0xf0));
        assert!(read(&[0x48, 0x66, 0x90]).is_odd());
        assert!(read(&[0x64, 0x65, 0x66, 0x67, 0xf2, 0x90]).is_odd());
    }

    #[test]
    fn bytes_that_end_early_are_zero() {
        assert_eq!(read(&[]).opcode, 0);
        assert_eq!(read(&[0xc4]).opcode, 0);
        assert_eq!(read(&[0x66; 40]).opcode, 0);
    }
}
