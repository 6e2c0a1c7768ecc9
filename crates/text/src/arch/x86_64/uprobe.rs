//! What the kernel does with a probe at an instruction.
//!
//! The kernel reads the instruction, refuses it by its prefixes and by a table of opcodes, and then
//! chooses how to carry it out:
//!
//! | Instruction | 6.1, 6.12 | 6.18 | 7.2 |
//! |---|---|---|---|
//! | `nop` (`90`), `jmp`, `jcc`, `call rel32`, `push reg` | emulated | emulated | emulated |
//! | other nops (`0f 1f /0`) | single-stepped | emulated up to 8 bytes | emulated |
//! | nop of 5 bytes | single-stepped | a call that overwrites the red zone | emulated |
//! | `66 2e 0f 1f 84` + 5 bytes | refused (prefix `cs`) | refused | a call |
//! | all others of the table | single-stepped | single-stepped | single-stepped |
//! | `lock`, `es`, `cs`, `ss`, `ds`; `jmp`, `call` with `66`; `mov ss`; opcodes not in the table | refused | refused | refused |
//!
//! The table is for opcodes of one byte. Every opcode after `0f` is accepted, because `0f` itself
//! has its bit in the table. An instruction with a VEX or EVEX prefix is looked up by its opcode
//! alone: `vpxor` (`ef`) is refused like `out`, and `vpaddb` (`fc`) accepted like `cld`.

use iced_x86::{Code, CpuidFeature, Decoder, DecoderOptions, Instruction as Decoded, Mnemonic};

use crate::arch::x86_64::encoding::{Encoding, Form};
use crate::refusal::Refusal;

/// How the kernel carries out the instruction that a probe is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The kernel replaces the instruction by a call. No trap.
    Call,
    /// The kernel emulates it. One trap.
    Emulated,
    /// The processor executes a copy of it. Two traps, and twelve times the time.
    Single,
}

/// What uprobes of the running kernel do, where kernels differ. Known by trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Nops of several bytes are emulated.
    pub emulates_long_nops: bool,
    /// A nop of five bytes is replaced by a call that overwrites the red zone, the 128 bytes below
    /// the stack pointer that a function may use without reserving them.
    pub clobbers_at_nop5: bool,
    /// A probe at the nop `66 2e 0f 1f 84` with five more bytes is accepted. It becomes a call,
    /// which spares the red zone.
    pub accepts_nop10: bool,
}

impl Kernel {
    /// Right for every kernel: it expects the worst of each.
    pub const UNKNOWN: Kernel =
        Kernel { emulates_long_nops: false, clobbers_at_nop5: true, accepts_nop10: false };

    /// A kernel that does everything well.
    pub const BEST: Kernel = Kernel::tried(true, false);

    /// A kernel that was tried with the two nops. One that accepts a probe at that of ten bytes
    /// emulates the others.
    pub const fn tried(accepts_nop10: bool, clobbers_at_nop5: bool) -> Kernel {
        Kernel { emulates_long_nops: accepts_nop10, clobbers_at_nop5, accepts_nop10 }
    }
}

/// A nop at which kernels differ, where a program has a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nop {
    /// The marker is a nop of five bytes.
    Five,
    /// That of ten bytes is so many bytes after the marker: 0, or 1 where a nop of one byte is
    /// before it, at which every kernel accepts a probe.
    Ten {
        /// See above.
        after: u8,
    },
}

impl Nop {
    /// The nop of the marker that begins `code`.
    pub fn of_marker(code: &[u8], address: u64) -> Option<Nop> {
        const NOP: u8 = 0x90;
        let is_call = |code: &[u8], address| step(code, address, Kernel::BEST) == Ok(Step::Call);
        match code.split_first()? {
            _ if step(code, address, Kernel::UNKNOWN) == Err(Refusal::RedZone) => Some(Nop::Five),
            _ if is_call(code, address) => Some(Nop::Ten { after: 0 }),
            (&NOP, rest) if is_call(rest, address.wrapping_add(1)) => Some(Nop::Ten { after: 1 }),
            _ => None,
        }
    }

    /// Where a kernel that does well at the nop has the probe, from the marker, and what it does
    /// there. `None`: the nop is no gain.
    pub fn probe(self, kernel: Kernel) -> Option<(u8, Step)> {
        match self {
            Nop::Five if kernel.clobbers_at_nop5 => None,
            Nop::Five if kernel.emulates_long_nops => Some((0, Step::Emulated)),
            Nop::Five => Some((0, Step::Single)),
            Nop::Ten { after } => kernel.accepts_nop10.then_some((after, Step::Call)),
        }
    }
}

/// The nop that a kernel with [`Kernel::accepts_nop10`] accepts.
pub const NOP10: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// The longest instruction.
pub(crate) const LONGEST_INSTRUCTION: usize = 15;

/// What the kernel does with a probe at the instruction that begins `code`. Its address matters
/// only for its place in the page.
pub fn step(code: &[u8], address: u64, kernel: Kernel) -> Result<Step, Refusal> {
    let code = code.get(..LONGEST_INSTRUCTION).unwrap_or(code);
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return Err(Refusal::Empty);
    }
    decoded_step(code, &decoder.decode(), kernel)
}

/// The opcodes of one byte that the kernel accepts in 64-bit programs, as 16 rows of bits.
const ACCEPTED: [u16; 16] = [
    0b1011_1111_0011_1111, // 00: no `push` and `pop` of segments; 0f is accepted
    0b0011_1111_0011_1111, // 10
    0b0111_1111_0111_1111, // 20
    0b0111_1111_0111_1111, // 30
    0xffff,                // 40
    0xffff,                // 50
    0b0000_1111_1111_1000, // 60: no `ins`, `outs`
    0xffff,                // 70
    0b1111_1111_1111_1011, // 80
    0b1111_1011_1111_1111, // 90
    0xffff,                // a0
    0xffff,                // b0
    0b0000_1111_1111_1111, // c0: no `int3`, `int`, `iret`
    0b1111_1111_1000_1111, // d0
    0b0000_1011_0000_1111, // e0: no `in`, `out`
    0b1111_0011_1110_1101, // f0: no `int1`, `hlt`, `cli`, `sti`
];

fn is_accepted(opcode: u8) -> bool {
    let row = ACCEPTED.get(usize::from(opcode >> 4)).copied().unwrap_or(0);
    row >> (opcode & 0xf) & 1 != 0
}

/// Opcodes that the kernel treats specially. In an instruction with a VEX or EVEX prefix they mean
/// something else, which it does not see: it would emulate a jump, a call or a nop; or treat the
/// copy as `popf`, a return or a call.
fn is_special(opcode: u8) -> bool {
    matches!(opcode, 0x70..=0x7f | 0x90 | 0x9a | 0x9d | 0xc2 | 0xc3 | 0xca | 0xcb | 0xe8..=0xeb | 0xff)
}

/// [`step`] of an instruction that is decoded.
pub(crate) fn decoded_step(code: &[u8], decoded: &Decoded, kernel: Kernel) -> Result<Step, Refusal> {
    if decoded.is_invalid() {
        return Err(Refusal::Undecodable { offset: 0 });
    }
    let encoding = Encoding::read(code);
    if kernel.accepts_nop10 && is_nop10(code, decoded) {
        return Ok(Step::Call);
    }
    if encoding.form == Form::Xop || encoding.is_odd() || is_amds(decoded) {
        return Err(Refusal::Unusual);
    }
    if let Some(prefix) = encoding.bad_prefix {
        return Err(Refusal::Prefix { prefix });
    }
    let opcode = encoding.opcode;
    let masks_exceptions = opcode == 0x8e && encoding.reg() == 2;
    let is_jump = match encoding.form {
        Form::Plain => matches!(opcode, 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb),
        Form::Escaped(second) => matches!(second, 0x80..=0x8f),
        Form::Vector | Form::Xop => false,
    };
    if masks_exceptions || !is_accepted(opcode) || (is_jump && encoding.operand_size) {
        return Err(Refusal::NotSupported { opcode });
    }
    if encoding.form == Form::Vector {
        return if is_special(opcode) { Err(Refusal::Misread { opcode }) } else { Ok(Step::Single) };
    }
    // `xchg %r8,%rax` is `nop` with a REX prefix.
    if encoding.form == Form::Plain && opcode == 0x90 && encoding.rex.is_some_and(|rex| rex & 1 != 0) {
        return Err(Refusal::Misread { opcode });
    }
    match decoded.mnemonic() {
        Mnemonic::Syscall | Mnemonic::Sysenter => return Err(Refusal::SystemCall),
        Mnemonic::Pushf | Mnemonic::Pushfq => return Err(Refusal::StoresFlags),
        Mnemonic::Xbegin => return Err(Refusal::Transaction),
        _ => {}
    }
    let is_nop = decoded.mnemonic() == Mnemonic::Nop;
    if is_nop && decoded.len() == 5 && kernel.clobbers_at_nop5 {
        return Err(Refusal::RedZone);
    }
    let is_long_nop = encoding.form == Form::Escaped(0x1f) && is_nop && encoding.reg() == 0;
    let is_push = encoding.form == Form::Plain
        && matches!(opcode, 0x50..=0x57)
        && (decoded.len() == 1 || (decoded.len() == 2 && encoding.rex == Some(0x41)));
    let is_short_nop = encoding.form == Form::Plain && opcode == 0x90;
    let is_emulated = is_jump || is_push || is_short_nop || (is_long_nop && kernel.emulates_long_nops);
    Ok(if is_emulated { Step::Emulated } else { Step::Single })
}

/// Instructions that only AMD's processors of 2007 to 2017 have. The kernels' decoders differ in
/// them.
fn is_amds(decoded: &Decoded) -> bool {
    let is_one = |f: &CpuidFeature| matches!(f, CpuidFeature::SSE4A | CpuidFeature::FMA4 | CpuidFeature::XOP);
    decoded.cpuid_features().iter().any(is_one)
}

/// True for the nop of ten bytes that the kernel replaces, which must not cross a page.
fn is_nop10(code: &[u8], decoded: &Decoded) -> bool {
    const PAGE: u64 = 4096;
    decoded.len() == NOP10.len()
        && decoded.code() == Code::Nop_rm16
        && code.starts_with(&[0x66, 0x2e, 0x0f, 0x1f, 0x84])
        && PAGE - decoded.ip() % PAGE >= NOP10.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Kernel = Kernel { emulates_long_nops: true, clobbers_at_nop5: false, accepts_nop10: true };

    fn at(code: &[u8]) -> Result<Step, Refusal> {
        step(code, 0x1000, Kernel::UNKNOWN)
    }

    #[test]
    fn jumps_calls_pushes_and_nop_are_emulated() {
        for code in [
            &[0x90][..],
            &[0x66, 0x90],
            &[0xf3, 0x90],
            &[0x55],
            &[0x41, 0x57],
            &[0xe8, 0, 0, 0, 0],
            &[0xe9, 1, 0, 0, 0],
            &[0xeb, 5],
            &[0x74, 5],
            &[0x0f, 0x85, 1, 0, 0, 0],
        ] {
            assert_eq!(at(code), Ok(Step::Emulated), "{code:02x?}");
        }
    }

    #[test]
    fn other_instructions_are_single_stepped() {
        for code in [
            &[0xf3, 0x0f, 0x1e, 0xfa][..], // endbr64
            &[0xc3],
            &[0x48, 0x89, 0xe5],
            &[0x48, 0x83, 0xec, 8],
            &[0x66, 0x50],
            &[0x48, 0x50],
            &[0xff, 0x25, 0, 0, 0, 0], // jmp *(%rip)
            &[0xc9],
            &[0xc5, 0xf9, 0xfc, 0xc0], // vpaddb
        ] {
            assert_eq!(at(code), Ok(Step::Single), "{code:02x?}");
        }
    }

    #[test]
    fn the_kernels_refusals_are_known() {
        for (code, refusal) in [
            (&[0xf0, 0xff, 0x0f][..], Refusal::Prefix { prefix: 0xf0 }),
            (&[0x3e, 0xff, 0xe0], Refusal::Prefix { prefix: 0x3e }),
            (&[0x2e, 0x0f, 0x1f, 0x00], Refusal::Prefix { prefix: 0x2e }),
            (&[0xcc], Refusal::NotSupported { opcode: 0xcc }),
            (&[0xcd, 0x80], Refusal::NotSupported { opcode: 0xcd }),
            (&[0xf4], Refusal::NotSupported { opcode: 0xf4 }),
            (&[0x8e, 0xd0], Refusal::NotSupported { opcode: 0x8e }),
            (&[0x66, 0xe9, 0, 0, 0, 0], Refusal::NotSupported { opcode: 0xe9 }),
            (&[0xc5, 0xf9, 0xef, 0xc0], Refusal::NotSupported { opcode: 0xef }), // vpxor
        ] {
            assert_eq!(at(code), Err(refusal), "{code:02x?}");
            assert!(refusal.is_by_kernel());
        }
    }

    #[test]
    fn what_the_kernel_accepts_and_does_wrong_is_refused() {
        for (code, refusal) in [
            (&[0xc5, 0xf9, 0x76, 0xc0][..], Refusal::Misread { opcode: 0x76 }), // vpcmpeqd
            (&[0xc5, 0xf8, 0x77], Refusal::Misread { opcode: 0x77 }),           // vzeroupper
            (&[0xc5, 0xf8, 0xc2, 0xc1, 0], Refusal::Misread { opcode: 0xc2 }),  // vcmpps
            (&[0x49, 0x90], Refusal::Misread { opcode: 0x90 }),                 // xchg %r8,%rax
            (&[0x0f, 0x05], Refusal::SystemCall),
            (&[0x9c], Refusal::StoresFlags),
            (&[0x48, 0x66, 0x90], Refusal::Unusual),
            (&[0x8f, 0xe9, 0x78, 0x81, 0xc0], Refusal::Unusual), // vfrczpd
            (&[0xf2, 0x0f, 0x79, 0xc0], Refusal::Unusual),       // insertq
            (&[0xc4, 0xe3, 0x79, 0x69, 0xc0, 0], Refusal::Unusual), // vfmaddpd of AMD
            (&[0xc7, 0xf8, 0, 0, 0, 0], Refusal::Transaction),
        ] {
            assert_eq!(at(code), Err(refusal), "{code:02x?}");
            assert!(!refusal.is_by_kernel());
        }
    }

    #[test]
    fn a_nop_of_five_bytes_is_refused_where_its_call_clobbers_the_red_zone() {
        let nop5 = [0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(at(&nop5), Err(Refusal::RedZone));
        assert_eq!(step(&nop5, 0, Kernel { clobbers_at_nop5: false, ..Kernel::UNKNOWN }), Ok(Step::Single));
        assert_eq!(step(&nop5, 0, NEW), Ok(Step::Emulated));
    }

    #[test]
    fn a_nop_of_ten_bytes_is_a_call_where_the_kernel_accepts_it_within_a_page() {
        assert_eq!(at(&NOP10), Err(Refusal::Prefix { prefix: 0x2e }));
        assert_eq!(step(&NOP10, 0x1000, NEW), Ok(Step::Call));
        assert_eq!(step(&NOP10, 0x1ff6, NEW), Ok(Step::Call));
        assert_eq!(step(&NOP10, 0x1ff7, NEW), Err(Refusal::Prefix { prefix: 0x2e }));
        assert_eq!(Kernel::BEST, NEW);
        assert_eq!(Kernel::tried(false, true), Kernel::UNKNOWN);
    }

    #[test]
    fn a_marker_is_probed_at_the_nop_where_the_kernel_does_well() {
        let both = [&[0x90][..], &NOP10].concat();
        let nop = |code: &[u8]| Nop::of_marker(code, 0x1000);
        assert_eq!(nop(&both), Some(Nop::Ten { after: 1 }));
        assert_eq!(nop(&NOP10), Some(Nop::Ten { after: 0 }));
        assert_eq!(nop(&[0x0f, 0x1f, 0x44, 0, 0]), Some(Nop::Five));
        assert_eq!((nop(&[0x90, 0x90]), nop(&[0x55]), nop(&[])), (None, None, None));
        // The second nop crosses a page.
        assert_eq!(Nop::of_marker(&both, 0x1ff6), None);
        let ten = Nop::Ten { after: 1 };
        assert_eq!((ten.probe(NEW), ten.probe(Kernel::UNKNOWN)), (Some((1, Step::Call)), None));
        let old = Kernel::tried(false, false);
        let five = [NEW, old, Kernel::UNKNOWN].map(|kernel| Nop::Five.probe(kernel));
        assert_eq!(five, [Some((0, Step::Emulated)), Some((0, Step::Single)), None]);
    }

    #[test]
    fn bytes_that_are_no_instruction_are_refused() {
        assert_eq!(at(&[]), Err(Refusal::Empty));
        assert_eq!(at(&[0x06]), Err(Refusal::Undecodable { offset: 0 }));
        assert_eq!(at(&[0xe8, 0]), Err(Refusal::Undecodable { offset: 0 }));
    }
}
