//! The function that a resolver chooses.
//!
//! Of some functions (`memcpy`) a file has several implementations. Its symbol is that of a
//! *resolver*, which the dynamic linker calls, and which looks at the processor and returns the
//! address of one. A file has a record of the choice only where it calls the function itself. So
//! the resolver is executed here, instruction by instruction, on a model of the processor: it reads
//! the memory of the process and writes nothing. Where it does anything that the model does not
//! have, as calling another function, there is no answer.
//!
//! A wrong answer would be a probe on a function that the process never calls. So a register or
//! flag counts only if it is known, and the caller lets the model read only memory that the process
//! cannot write: what a resolver reads there now is what it read when the dynamic linker called it.
//! The code is the process's, which may be hostile: the steps of all resolvers of a file are
//! limited by one [`Steps`].

use std::fmt;

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::arch::x86_64::uprobe::LONGEST_INSTRUCTION;

/// The most instructions of one resolver that are executed. Those of glibc have less than a
/// hundred.
const MOST: u32 = 1000;

/// The instructions that may still be executed for the resolvers of a file.
#[derive(Debug)]
pub struct Steps(u32);

impl Default for Steps {
    /// Libraries have about a hundred indirect functions.
    fn default() -> Self {
        Steps(50 * MOST)
    }
}

/// Why the function is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The resolver calls a function.
    Calls,
    /// It has an instruction that the model does not execute, or of which an operand is not known.
    Unknown,
    /// It reads memory that cannot be read, or that may have changed.
    Memory,
    /// It executes too many instructions.
    TooLong,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unresolved::Calls => "its resolver calls other functions",
            Unresolved::Unknown => "its resolver is not understood",
            Unresolved::Memory => "its resolver reads memory that may have changed since",
            Unresolved::TooLong => "its resolver executes too many instructions",
        })
    }
}

/// The address that the resolver at `entry` returns in a process whose memory `read` reads. `read`
/// refuses memory that can change.
pub fn resolve(
    entry: u64,
    steps: &mut Steps,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Result<u64, Unresolved> {
    let mut model = Model { registers: [None; 16], flags: Flags::default(), read };
    let mut at = entry;
    for _ in 0..MOST {
        steps.0 = steps.0.checked_sub(1).ok_or(Unresolved::TooLong)?;
        let decoded = model.instruction(at)?;
        at = match decoded.flow_control() {
            FlowControl::Next => {
                model.execute(&decoded)?;
                decoded.next_ip()
            }
            FlowControl::UnconditionalBranch => decoded.near_branch_target(),
            // `loope` has a condition too, and counts besides.
            FlowControl::ConditionalBranch if decoded.is_jcc_short_or_near() => {
                match model.flags.hold(decoded.condition_code()) {
                    Some(true) => decoded.near_branch_target(),
                    Some(false) => decoded.next_ip(),
                    None => return Err(Unresolved::Unknown),
                }
            }
            FlowControl::Return if decoded.mnemonic() == Mnemonic::Ret => {
                return model.register(Register::RAX).ok_or(Unresolved::Unknown);
            }
            FlowControl::Call | FlowControl::IndirectCall => return Err(Unresolved::Calls),
            _ => return Err(Unresolved::Unknown),
        };
    }
    Err(Unresolved::TooLong)
}

/// What is known of the flags.
#[derive(Clone, Copy, Default)]
struct Flags {
    zero: Option<bool>,
    sign: Option<bool>,
    carry: Option<bool>,
    overflow: Option<bool>,
}

impl Flags {
    /// The flags after an operation with this result.
    fn of(result: u64, size: usize, carry: bool, overflow: bool) -> Flags {
        Flags {
            zero: Some(result == 0),
            sign: Some(result >> (8 * size - 1) & 1 != 0),
            carry: Some(carry),
            overflow: Some(overflow),
        }
    }

    fn hold(&self, condition: ConditionCode) -> Option<bool> {
        let below = || Some(self.carry? || self.zero?);
        let less = || Some(self.sign? != self.overflow?);
        let less_or_equal = || Some(self.zero? || self.sign? != self.overflow?);
        match condition {
            ConditionCode::e => self.zero,
            ConditionCode::ne => self.zero.map(|zero| !zero),
            ConditionCode::b => self.carry,
            ConditionCode::ae => self.carry.map(|carry| !carry),
            ConditionCode::be => below(),
            ConditionCode::a => below().map(|below| !below),
            ConditionCode::s => self.sign,
            ConditionCode::ns => self.sign.map(|sign| !sign),
            ConditionCode::o => self.overflow,
            ConditionCode::no => self.overflow.map(|overflow| !overflow),
            ConditionCode::l => less(),
            ConditionCode::ge => less().map(|less| !less),
            ConditionCode::le => less_or_equal(),
            ConditionCode::g => less_or_equal().map(|less| !less),
            ConditionCode::p | ConditionCode::np | ConditionCode::None => None,
        }
    }
}

struct Model<'a> {
    /// Those that are known.
    registers: [Option<u64>; 16],
    flags: Flags,
    read: &'a mut dyn FnMut(u64, &mut [u8]) -> bool,
}

/// A number of so many bytes.
fn low(value: u64, size: usize) -> u64 {
    if size >= 8 { value } else { value & ((1 << (8 * size)) - 1) }
}

/// True for the second byte of a register (`%ah`).
fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::CH | Register::DH | Register::BH)
}

impl Model<'_> {
    fn instruction(&mut self, at: u64) -> Result<Instruction, Unresolved> {
        let mut code = [0; LONGEST_INSTRUCTION];
        // The next page may not be there.
        let there = (4096 - at % 4096).min(LONGEST_INSTRUCTION as u64) as usize;
        let (first, rest) = code.split_at_mut(there);
        if !(self.read)(at, first) {
            return Err(Unresolved::Memory);
        }
        let more = rest.is_empty() || (self.read)(at.wrapping_add(there as u64), rest);
        let code = if more { &code[..] } else { code.get(..there).unwrap_or_default() };
        let decoded = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        if decoded.is_invalid() { Err(Unresolved::Unknown) } else { Ok(decoded) }
    }

    fn register(&self, register: Register) -> Option<u64> {
        let whole = register.full_register();
        let value = (*self.registers.get(whole.number()).filter(|_| whole.is_gpr64())?)?;
        Some(low(if is_high(register) { value >> 8 } else { value }, register.size()))
    }

    fn set(&mut self, register: Register, value: Option<u64>) -> Result<(), Unresolved> {
        let whole = register.full_register();
        let slot = self.registers.get_mut(whole.number()).filter(|_| whole.is_gpr64());
        let slot = slot.ok_or(Unresolved::Unknown)?;
        let shift = if is_high(register) { 8 } else { 0 };
        let mask = low(u64::MAX, register.size()) << shift;
        *slot = match register.size() {
            4 | 8 => value,
            _ => slot.zip(value).map(|(old, new)| old & !mask | new << shift & mask),
        };
        Ok(())
    }

    fn address(&self, decoded: &Instruction) -> Option<u64> {
        if decoded.is_ip_rel_memory_operand() {
            return Some(decoded.ip_rel_memory_address());
        }
        let part = |register| match register {
            Register::None => Some(0),
            register => self.register(register),
        };
        let (base, index) = (decoded.memory_base(), decoded.memory_index());
        // Addresses of 32 bits (`67`) are cut off.
        if [base, index].iter().any(|r| *r != Register::None && !r.is_gpr64()) {
            return None;
        }
        let (base, index) = (part(base)?, part(index)?);
        let scaled = index.wrapping_mul(decoded.memory_index_scale().into());
        Some(base.wrapping_add(scaled).wrapping_add(decoded.memory_displacement64()))
    }

    /// The value of an operand, if it is known.
    fn operand(&mut self, decoded: &Instruction, n: u32) -> Result<Option<u64>, Unresolved> {
        Ok(match decoded.op_kind(n) {
            OpKind::Register => self.register(decoded.op_register(n)),
            OpKind::Memory if decoded.segment_prefix() == Register::None => {
                let size = decoded.memory_size().size();
                let mut bytes = [0; 8];
                let into =
                    bytes.get_mut(..size).filter(|into| !into.is_empty()).ok_or(Unresolved::Unknown)?;
                let address = self.address(decoded).ok_or(Unresolved::Unknown)?;
                if !(self.read)(address, into) {
                    return Err(Unresolved::Memory);
                }
                Some(u64::from_le_bytes(bytes))
            }
            OpKind::Memory => return Err(Unresolved::Unknown),
            _ => Some(decoded.try_immediate(n).map_err(|_| Unresolved::Unknown)?),
        })
    }

    /// The size of the first operand.
    fn size(decoded: &Instruction) -> usize {
        match decoded.op_kind(0) {
            OpKind::Register => decoded.op_register(0).size(),
            _ => decoded.memory_size().size(),
        }
    }

    fn execute(&mut self, decoded: &Instruction) -> Result<(), Unresolved> {
        let mnemonic = decoded.mnemonic();
        if matches!(mnemonic, Mnemonic::Nop | Mnemonic::Endbr64) {
            return Ok(());
        }
        let writes = !matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt);
        // It would write to memory, or to what is no general register.
        if decoded.op_count() == 0 || (writes && decoded.op_kind(0) != OpKind::Register) {
            return Err(Unresolved::Unknown);
        }
        let to = decoded.op_register(0);
        let size = Model::size(decoded);
        if size == 0 || size > 8 {
            return Err(Unresolved::Unknown);
        }
        let is_same =
            decoded.op_count() == 2 && decoded.op_kind(1) == OpKind::Register && decoded.op_register(1) == to;
        match mnemonic {
            Mnemonic::Mov | Mnemonic::Movzx => {
                let value = self.operand(decoded, 1)?;
                self.set(to, value.map(|value| low(value, size)))
            }
            Mnemonic::Lea => {
                let address = self.address(decoded);
                self.set(to, address.map(|address| low(address, size)))
            }
            Mnemonic::Xor if is_same => {
                self.flags = Flags::of(0, size, false, false);
                self.set(to, Some(0))
            }
            Mnemonic::And
            | Mnemonic::Test
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Cmp => {
                let both = self.operand(decoded, 0)?.zip(self.operand(decoded, 1)?);
                let computed = both.map(|(a, b)| compute(mnemonic, low(a, size), low(b, size), size));
                self.flags = computed.map_or_else(Flags::default, |(_, flags)| flags);
                match writes {
                    true => self.set(to, computed.map(|(result, _)| result)),
                    false => Ok(()),
                }
            }
            Mnemonic::Shl | Mnemonic::Shr => {
                let both = self.operand(decoded, 0)?.zip(self.operand(decoded, 1)?);
                self.flags = Flags::default();
                let bits = if size == 8 { 63 } else { 31 };
                let shifted = both.map(|(value, by)| match mnemonic {
                    Mnemonic::Shl => low(value << (by & bits), size),
                    _ => value >> (by & bits),
                });
                self.set(to, shifted)
            }
            Mnemonic::Not => {
                let value = self.operand(decoded, 0)?;
                self.set(to, value.map(|value| low(!value, size)))
            }
            Mnemonic::Bt if decoded.op_kind(0) == OpKind::Register => {
                let both = self.operand(decoded, 0)?.zip(self.operand(decoded, 1)?);
                let carry = both.map(|(value, bit)| value >> (bit % (8 * size as u64)) & 1 != 0);
                self.flags = Flags { carry, ..Flags::default() };
                Ok(())
            }
            _ => match decoded.condition_code() {
                ConditionCode::None => Err(Unresolved::Unknown),
                condition => {
                    let holds = self.flags.hold(condition).ok_or(Unresolved::Unknown)?;
                    // `setcc` has one operand, `cmovcc` two.
                    let value = match (decoded.op_count(), holds) {
                        (1, holds) => Some(holds.into()),
                        (_, true) => self.operand(decoded, 1)?,
                        (_, false) => self.operand(decoded, 0)?,
                    };
                    self.set(to, value)
                }
            },
        }
    }
}

/// The result of an operation on numbers of a size, and the flags.
fn compute(mnemonic: Mnemonic, a: u64, b: u64, size: usize) -> (u64, Flags) {
    let top = |bits: u64| bits >> (8 * size - 1) & 1 != 0;
    let logical = |result: u64| (result, Flags::of(result, size, false, false));
    match mnemonic {
        Mnemonic::And | Mnemonic::Test => logical(a & b),
        Mnemonic::Or => logical(a | b),
        Mnemonic::Xor => logical(a ^ b),
        Mnemonic::Add => {
            let result = low(a.wrapping_add(b), size);
            (result, Flags::of(result, size, result < a, top(!(a ^ b) & (a ^ result))))
        }
        _ => {
            let result = low(a.wrapping_sub(b), size);
            (result, Flags::of(result, size, a < b, top((a ^ b) & (a ^ result))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executes code at an address; 16 bytes of data are at 0x2000.
    fn run(code: &[u8], data: [u8; 16]) -> Result<u64, Unresolved> {
        resolve(0x1000, &mut Steps::default(), &mut |address, into| {
            let (begin, memory): (u64, &[u8]) =
                if address < 0x2000 { (0x1000, code) } else { (0x2000, &data) };
            let from = usize::try_from(address - begin).unwrap();
            if begin == 0x2000 && from + into.len() > memory.len() {
                return false;
            }
            into.fill(0xcc);
            let there = memory.get(from..).unwrap_or_default();
            let length = there.len().min(into.len());
            into[..length].copy_from_slice(&there[..length]);
            true
        })
    }

    fn bit(n: usize) -> [u8; 16] {
        let mut data = [0; 16];
        data[n / 8] = 1 << (n % 8);
        data
    }

    #[test]
    fn the_branch_that_the_process_takes_decides() {
        let code = [
            &[0xf3, 0x0f, 0x1e, 0xfa][..],         // endbr64
            &[0x48, 0x8d, 0x0d, 0xf5, 0x0f, 0, 0], // lea 0xff5(%rip),%rcx  # 2000
            &[0x8b, 0x11],                         // mov (%rcx),%edx
            &[0x48, 0x8d, 0x05, 0xec, 0x1f, 0, 0], // lea 0x1fec(%rip),%rax # 3000
            &[0xf6, 0xc6, 0x02],                   // test $2,%dh
            &[0x74, 0x0b],                         // je
            &[0x81, 0xe2, 0, 0, 1, 0],             // and $0x10000,%edx
            &[0xb8, 0x44, 0, 0, 0],                // mov $0x44,%eax
            &[0xc3],                               // 1: ret
        ]
        .concat();
        assert_eq!(run(&code, bit(0)), Ok(0x3000));
        assert_eq!(run(&code, bit(9)), Ok(0x44));
    }

    #[test]
    fn conditions_are_those_of_the_flags() {
        // mov 0x2000,%eax ; cmp $5,%eax ; mov $1,%edx ; mov $2,%eax ; cmovCC %rdx,%rax ; ret
        let chosen = |condition: u8, value: u8| {
            let code = [
                &[0x8b, 0x04, 0x25, 0, 0x20, 0, 0, 0x83, 0xf8, 0x05, 0xba, 1, 0, 0, 0, 0xb8, 2, 0, 0, 0][..],
                &[0x48, 0x0f, 0x40 | condition, 0xc2, 0xc3],
            ]
            .concat();
            let mut data = [0; 16];
            data[0] = value;
            run(&code, data).unwrap() == 1
        };
        for value in [0u8, 4, 5, 6, 200] {
            let expected = [
                (0x2, value < 5),
                (0x3, value >= 5),
                (0x4, value == 5),
                (0x5, value != 5),
                (0x6, value <= 5),
                (0x7, value > 5),
                (0x8, value < 5),
                (0xc, value < 5),
                (0xd, value >= 5),
                (0xe, value <= 5),
                (0xf, value > 5),
            ];
            for (condition, holds) in expected {
                assert_eq!(chosen(condition, value), holds, "{condition:x} {value}");
            }
        }
    }

    #[test]
    fn what_the_model_does_not_have_ends_it() {
        for (code, why) in [
            (&[0xe8, 0, 0, 0, 0][..], Unresolved::Calls),
            (&[0x50], Unresolved::Unknown),       // push %rax
            (&[0x0f, 0xa2], Unresolved::Unknown), // cpuid
            (&[0xc3], Unresolved::Unknown),       // ret, with nothing in %rax
            (&[0x48, 0x89, 0x04, 0x25, 0, 0x20, 0, 0], Unresolved::Unknown), // mov %rax,0x2000
            (&[0x48, 0x8b, 0x04, 0x25, 0, 0x30, 0, 0], Unresolved::Memory), // mov 0x3000,%rax
            (&[0x74, 0xfe], Unresolved::Unknown), // je, with unknown flags
            (&[0xeb, 0xfe], Unresolved::TooLong),
            (&[0x31, 0xc0, 0xe1, 0xfe], Unresolved::Unknown), // xor %eax,%eax ; loope
            (&[0x31, 0xc0, 0x48, 0xcf], Unresolved::Unknown), // xor %eax,%eax ; iretq
            (&[0x31, 0xc0, 0x67, 0x8d, 0x40, 0xff, 0xc3], Unresolved::Unknown), // lea -1(%eax),%eax
            (&[0x8c, 0xd8, 0xc3], Unresolved::Unknown),       // mov %ds,%eax
            (&[0x65, 0x48, 0x8b, 0x04, 0x25, 0, 0x20, 0, 0, 0xc3], Unresolved::Unknown), // mov %gs:0x2000,%rax
            (&[0xcc], Unresolved::Unknown),
        ] {
            assert_eq!(run(code, [0; 16]), Err(why), "{code:02x?}");
        }
    }

    #[test]
    fn the_resolvers_of_a_file_share_a_limit() {
        let mut steps = Steps::default();
        let mut read = |_, into: &mut [u8]| {
            into.fill(0x90);
            true
        };
        let mut all = 0;
        while steps.0 > 0 {
            assert_eq!(resolve(0x1000, &mut steps, &mut read), Err(Unresolved::TooLong));
            all += 1;
        }
        assert_eq!(all, 50);
        assert_eq!(resolve(0x1000, &mut steps, &mut read), Err(Unresolved::TooLong));
    }

    /// Whatever the bytes are, there is an end and no panic.
    #[test]
    fn any_code_comes_to_an_end() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        // Opcodes that the model executes, so that it comes far.
        const KNOWN: [u8; 24] = [
            0x31, 0x89, 0x8b, 0x8d, 0x0f, 0x48, 0x66, 0x67, 0xb8, 0xc0, 0xc1, 0x21, 0x09, 0x01, 0x29, 0x39,
            0x85, 0xf7, 0xd3, 0x80, 0x81, 0x83, 0xba, 0x41,
        ];
        for _ in 0..20_000 {
            let mut code = [0; 64];
            code.iter_mut().for_each(|byte| {
                let r = next();
                *byte = if r & 3 == 0 { (r >> 8) as u8 } else { KNOWN[(r >> 8) as usize % KNOWN.len()] };
            });
            code[..4].copy_from_slice(&[0x31, 0xc0, 0x31, 0xc9]);
            let _ = resolve(0x1000, &mut Steps::default(), &mut |address: u64, into| {
                let at = address.wrapping_sub(0x1000);
                into.iter_mut()
                    .zip(0..)
                    .for_each(|(b, n)| *b = code[at.wrapping_add(n) as usize % code.len()]);
                address != 0
            });
        }
    }
}
