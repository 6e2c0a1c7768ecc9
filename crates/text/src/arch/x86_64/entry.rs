//! The place of the entry probe.
//!
//! Most functions begin with an instruction that the kernel single-steps, and have one that it
//! emulates a few instructions later (`push`, `call`, a jump). A probe there costs a tenth. It sees
//! the same as one at the first instruction if everything between is invisible:
//!
//! ```text
//!  f:  endbr64                 changes nothing
//!      mov    0x1234(%rip),%rax    changes no argument, cannot fault
//!      sub    $0x18,%rsp           changes the stack pointer: invisible to clauses that do not use the stack
//!      test   %rdi,%rdi            changes flags
//!  ──► je     …                    emulated: the probe
//! ```
//!
//! So the probe moves past instructions that write no register the clauses read ([`Uses`]), store
//! to no memory but the function's own frame, and can neither fault nor wait nor leave the
//! function: a function that faults in its first instruction was entered, and its probe fires.
//! Nothing may jump to an instruction that is moved past or to the place itself, or the probe would
//! fire again.
//!
//! The program counter is not the function's address then. Who prints it (the first frame of a
//! stack, `uregs[R_PC]`) subtracts [`EntryProbe::offset`].

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction as Decoded, InstructionInfo, InstructionInfoFactory,
    Mnemonic, OpAccess, Register, UsedMemory,
};

use crate::arch::x86_64::condition::Condition;
use crate::arch::x86_64::function::Function;
use crate::arch::x86_64::uprobe::{self, Kernel, Step};
use crate::refusal::Refusal;

/// What the clauses of a probe read of the processor's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Uses {
    /// Bit n: `argn`, of the six in registers.
    arguments: u8,
    stack: bool,
    registers: bool,
}

/// The registers of arguments, in order.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

impl Uses {
    /// Only that the probe fires.
    pub const NOTHING: Uses = Uses { arguments: 0, stack: false, registers: false };

    /// Also `argn`. From the seventh on, arguments are on the stack.
    pub fn and_argument(self, n: usize) -> Uses {
        match 1u8.checked_shl(u32::try_from(n).unwrap_or(u32::MAX)) {
            Some(bit) if n < ARGUMENTS.len() => Uses { arguments: self.arguments | bit, ..self },
            _ => self.and_stack(),
        }
    }

    /// Also the stack: `ustack()`, `ucaller`, arguments in memory.
    pub fn and_stack(self) -> Uses {
        Uses { stack: true, ..self }
    }

    /// True if the clauses read nothing.
    pub(crate) fn is_nothing(self) -> bool {
        self == Uses::NOTHING
    }

    /// Also all registers: `uregs[]`.
    pub fn and_registers(self) -> Uses {
        Uses { registers: true, stack: true, ..self }
    }

    /// The uses as a number, for another process.
    pub fn bits(self) -> u8 {
        self.arguments | u8::from(self.stack) << 6 | u8::from(self.registers) << 7
    }

    /// The uses of a number from [`Uses::bits`].
    pub fn from_bits(bits: u8) -> Uses {
        Uses { arguments: bits & 0x3f, stack: bits >> 6 & 1 != 0, registers: bits >> 7 != 0 }
    }

    fn reads(self, register: Register) -> bool {
        let full = register.full_register();
        self.registers
            || (self.stack && full == Register::RSP)
            || ARGUMENTS.iter().enumerate().any(|(n, r)| *r == full && self.arguments >> n & 1 != 0)
    }
}

/// Where the entry probe of a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryProbe {
    /// From the beginning of the function.
    pub offset: u64,
    /// What the probe costs.
    pub step: Step,
    /// The function is entered only where this holds: the instruction is a jump that leads back to
    /// the beginning later.
    pub condition: Option<Condition>,
}

impl EntryProbe {
    /// A place that every entry reaches once.
    pub fn at(offset: u64, step: Step) -> EntryProbe {
        EntryProbe { offset, step, condition: None }
    }
}

/// Instructions that the probe is moved past at most.
const FARTHEST: usize = 16;

impl Function<'_> {
    /// The best place of the entry probe: the first that is not single-stepped, else the first that
    /// the kernel can carry out.
    pub fn entry(&self, kernel: Kernel, uses: Uses) -> Result<EntryProbe, Refusal> {
        let limit = self.limit();
        let mut decoder = Decoder::with_ip(64, self.bytes, self.address, DecoderOptions::NONE);
        let mut factory = InstructionInfoFactory::new();
        let mut single = None;
        let mut refusal = Refusal::Empty;
        for n in 0..=FARTHEST {
            let offset = decoder.position();
            if offset > limit || !decoder.can_decode() {
                break;
            }
            let decoded = decoder.decode();
            let code = self.bytes.get(offset..offset + decoded.len()).unwrap_or(&[]);
            let is_endbr = decoded.mnemonic() == Mnemonic::Endbr64;
            match uprobe::decoded_step(code, &decoded, kernel) {
                Ok(Step::Single) if single.is_none_or(|(_, is_endbr)| is_endbr) => {
                    single = Some((EntryProbe::at(offset as u64, Step::Single), is_endbr));
                }
                Ok(Step::Single) => {}
                Ok(step) => return Ok(EntryProbe::at(offset as u64, step)),
                Err(e) if n == 0 || offset == 4 => refusal = e,
                Err(_) => {}
            }
            if decoded.is_invalid() || !(is_endbr || is_invisible(&decoded, factory.info(&decoded), uses)) {
                break;
            }
        }
        single.map(|(probe, _)| probe).ok_or(refusal)
    }

    /// The last offset where the probe may be: before the first target of a branch. Where targets
    /// are not all known, only past an `endbr64`, which nothing jumps behind.
    fn limit(&self) -> usize {
        const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        let first = self.targets().first().map_or(usize::MAX, |t| (*t as usize).saturating_sub(1));
        if self.refusal().is_some() || self.has_jump_table() {
            return first.min(if self.bytes.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 });
        }
        first
    }
}

/// True if clauses with these uses cannot tell whether the instruction was executed.
fn is_invisible(decoded: &Decoded, info: &InstructionInfo, uses: Uses) -> bool {
    let is_plain = decoded.flow_control() == FlowControl::Next
        && !decoded.is_privileged()
        && !decoded.has_lock_prefix()
        && !decoded.is_string_instruction()
        && !can_fault(decoded.mnemonic());
    let writes = |access| {
        !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
    };
    is_plain
        && !info.used_registers().iter().any(|r| writes(r.access()) && uses.reads(r.register()))
        && info.used_memory().iter().all(|m| !writes(m.access()) || is_own_frame(m, uses))
        && info.used_memory().iter().all(|m| m.access() == OpAccess::NoMemAccess || is_mapped(m))
}

/// Instructions that trap or wait although their operands are registers.
fn can_fault(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Div
            | Mnemonic::Idiv
            | Mnemonic::Cpuid
            | Mnemonic::Rdtsc
            | Mnemonic::Rdtscp
            | Mnemonic::Rdpmc
            | Mnemonic::Wait
            | Mnemonic::Pause
            | Mnemonic::Tpause
            | Mnemonic::Umwait
            | Mnemonic::Fxrstor
            | Mnemonic::Popf
            | Mnemonic::Popfq
    )
}

/// Memory that every function can read: its frame, constants of its file, variables of its thread.
fn is_mapped(memory: &UsedMemory) -> bool {
    let is_thread = matches!(memory.segment(), Register::FS | Register::GS);
    let is_fixed = memory.index() == Register::None
        && matches!(memory.base(), Register::RSP | Register::RIP | Register::EIP | Register::None);
    is_fixed || (is_thread && memory.index() == Register::None)
}

/// The frame that the function makes: below its return address.
fn is_own_frame(memory: &UsedMemory, uses: Uses) -> bool {
    let is_below = (memory.displacement() as i64) < 0;
    memory.base() == Register::RSP && memory.index() == Register::None && (is_below || !uses.stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGS: Uses = Uses { arguments: 0x3f, stack: false, registers: false };

    fn entry(bytes: &[u8], uses: Uses) -> Result<(u64, Step), Refusal> {
        entry_among(bytes, &[], uses)
    }

    fn entry_among(bytes: &[u8], entries: &[u64], uses: Uses) -> Result<(u64, Step), Refusal> {
        let probe = Function::decode(bytes, 0x1000, entries).entry(Kernel::UNKNOWN, uses)?;
        Ok((probe.offset, probe.step))
    }

    const RET: u8 = 0xc3;

    #[test]
    fn a_first_instruction_that_is_emulated_is_the_place() {
        assert_eq!(entry(&[0x55, RET], ARGS.and_stack()), Ok((0, Step::Emulated)));
        assert_eq!(
            entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, RET], ARGS.and_registers()),
            Ok((4, Step::Emulated))
        );
    }

    #[test]
    fn a_single_step_is_at_the_instruction_after_endbr64() {
        assert_eq!(entry(&[0xf3, 0x0f, 0x1e, 0xfa, RET], ARGS), Ok((4, Step::Single)));
        assert_eq!(entry(&[RET], ARGS), Ok((0, Step::Single)));
    }

    #[test]
    fn the_probe_moves_past_what_writes_no_argument_in_use() {
        // mov %rdi,%rax; mov %rax,%rsi; push %rbx
        let code = [0x48, 0x89, 0xf8, 0x48, 0x89, 0xc6, 0x53, RET];
        assert_eq!(entry(&code, Uses::NOTHING.and_argument(0)), Ok((6, Step::Emulated)));
        assert_eq!(entry(&code, Uses::NOTHING.and_argument(1)), Ok((0, Step::Single)));
        assert_eq!(entry(&code, ARGS), Ok((0, Step::Single)));
        // The lower half: mov $1,%esi; push %rbx
        assert_eq!(entry(&[0xbe, 1, 0, 0, 0, 0x53, RET], ARGS), Ok((0, Step::Single)));
    }

    #[test]
    fn the_stack_pointer_counts_only_where_the_stack_is_used() {
        // sub $8,%rsp; call
        let code = [0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, RET];
        assert_eq!(entry(&code, ARGS), Ok((4, Step::Emulated)));
        assert_eq!(entry(&code, ARGS.and_stack()), Ok((0, Step::Single)));
        assert_eq!(entry(&code, ARGS.and_argument(6)), Ok((0, Step::Single)));
    }

    #[test]
    fn all_registers_keep_the_probe_at_the_first_instruction() {
        // xor %eax,%eax; push %rbx
        let code = [0x31, 0xc0, 0x53, RET];
        assert_eq!(entry(&code, Uses::NOTHING.and_registers()), Ok((0, Step::Single)));
        assert_eq!(entry(&code, ARGS.and_stack()), Ok((2, Step::Emulated)));
    }

    #[test]
    fn the_probe_does_not_move_past_what_can_fault_or_store() {
        for (code, past) in [
            (&[0x48, 0x8b, 0x07, 0x53][..], false),              // mov (%rdi),%rax
            (&[0x48, 0x8b, 0x44, 0x24, 8, 0x53], true),          // mov 8(%rsp),%rax
            (&[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x53], true),       // mov (%rip),%rax
            (&[0x48, 0x89, 0x05, 0, 0, 0, 0, 0x53], false),      // mov %rax,(%rip)
            (&[0x64, 0x8b, 4, 0x25, 0x18, 0, 0, 0, 0x53], true), // mov %fs:0x18,%eax
            (&[0x48, 0x8d, 0x07, 0x53], true),                   // lea (%rdi),%rax
            (&[0x48, 0x89, 0x44, 0x24, 0xf8, 0x53], true),       // mov %rax,-8(%rsp)
            (&[0x0f, 0x05, 0x53], false),                        // syscall
            (&[0x48, 0xf7, 0xf3, 0x53], false),                  // div %rbx
        ] {
            let place = if past { (code.len() as u64 - 1, Step::Emulated) } else { (0, Step::Single) };
            let found = entry(code, Uses::NOTHING.and_argument(0));
            if code[1] == 0x05 {
                assert_eq!(found, Err(Refusal::SystemCall));
            } else {
                assert_eq!(found, Ok(place), "{code:02x?}");
            }
        }
    }

    #[test]
    fn the_probe_does_not_move_to_or_past_a_branch_target() {
        // 0: xor %eax,%eax; 2: push %rbx; 3: jne 2
        assert_eq!(entry(&[0x31, 0xc0, 0x53, 0x75, 0xfd, RET], ARGS), Ok((0, Step::Single)));
        // 3: jne 0
        assert_eq!(entry(&[0x31, 0xc0, 0x53, 0x75, 0xfb, RET], ARGS), Ok((2, Step::Emulated)));
        // Another symbol at 2, and one at 3.
        assert_eq!(entry_among(&[0x31, 0xc0, 0x53, RET], &[0x1002], ARGS), Ok((0, Step::Single)));
        assert_eq!(entry_among(&[0x31, 0xc0, 0x53, RET], &[0x1003], ARGS), Ok((2, Step::Emulated)));
    }

    #[test]
    fn unknown_targets_keep_the_probe_at_the_first_instruction() {
        // xor %eax,%eax; push %rbx; jmp *0x1000(,%rax,8)
        let table = [0x31, 0xc0, 0x53, 0xff, 0x24, 0xc5, 0, 0x10, 0, 0];
        assert_eq!(entry(&table, ARGS), Ok((0, Step::Single)));
        // xor %eax,%eax; push %rbx; (no instruction)
        assert_eq!(entry(&[0x31, 0xc0, 0x53, 0x06], ARGS), Ok((0, Step::Single)));
        // endbr64; push %rbx; (no instruction)
        assert_eq!(entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0x53, 0x06], ARGS), Ok((4, Step::Emulated)));
    }

    #[test]
    fn a_refused_first_instruction_is_moved_past_or_is_the_reason() {
        // lock decl (%rdi); ret
        assert_eq!(entry(&[0xf0, 0xff, 0x0f, RET], ARGS), Err(Refusal::Prefix { prefix: 0xf0 }));
        // nopl 0(%rax,%rax,1); push %rbx
        assert_eq!(entry(&[0x0f, 0x1f, 0x44, 0, 0, 0x53, RET], ARGS), Ok((5, Step::Emulated)));
        // endbr64; lock decl (%rdi)
        assert_eq!(entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0xf0, 0xff, 0x0f, RET], ARGS), Ok((0, Step::Single)));
        assert_eq!(entry(&[], ARGS), Err(Refusal::Empty));
        assert_eq!(entry(&[0x06], ARGS), Err(Refusal::Undecodable { offset: 0 }));
    }
}
