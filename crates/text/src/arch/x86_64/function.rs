//! A function: its instructions, and where its branches lead.
//!
//! One pass from the first byte to the last. What the code cannot tell (the size, other symbols
//! inside) the caller gives. A refusal is a part of the result, because the entry of a function
//! that does not decode is still known.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, Mnemonic, OpKind, Register,
};

use crate::arch::x86_64::condition::Condition;
use crate::arch::x86_64::references::{Reference, references};
use crate::arch::x86_64::uprobe::{self, Kernel, Step};
use crate::refusal::Refusal;

/// Bytes of a function above which it is not decoded.
pub const LONGEST: usize = 4 << 20;

/// What an instruction does to the flow of control. Targets are offsets from the beginning of the
/// function, which may be outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction follows.
    Next,
    /// A call, direct or indirect.
    Call,
    /// A jump.
    Jump {
        /// Where to.
        target: i64,
    },
    /// A conditional jump. Without a condition it is `loop` or `jrcxz`.
    Branch {
        /// Where to.
        target: i64,
        /// When.
        condition: Option<Condition>,
    },
    /// A jump through a table, as of a `switch`. Its targets are not known.
    Table,
    /// An indirect jump that leaves the function.
    IndirectJump,
    /// `ret` in all its forms.
    Return,
    /// A system call or another interrupt; also `xbegin`.
    Trap,
    /// What has no next instruction: `ud2`, `hlt`.
    Stop,
}

/// An instruction of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its first byte, from the beginning of the function.
    pub offset: u32,
    /// Its bytes.
    pub length: u8,
    /// What it does to the flow of control.
    pub flow: Flow,
}

/// A decoded function.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) address: u64,
    instructions: Vec<Instruction>,
    /// Where branches and other symbols lead to, in order.
    targets: Vec<u32>,
    refusal: Option<Refusal>,
    has_table: bool,
    calls_itself: bool,
    /// Code elsewhere that belongs to the function.
    pub(crate) parts: Vec<Function<'a>>,
}

impl<'a> Function<'a> {
    /// Decodes a function.
    ///
    /// `entries` are the addresses at which other code may enter this function, as far as known:
    /// the symbols that lie inside. Addresses outside are ignored.
    pub fn decode(bytes: &'a [u8], address: u64, entries: &[u64]) -> Function<'a> {
        let mut function = Function {
            bytes,
            address,
            instructions: Vec::new(),
            targets: Vec::new(),
            refusal: None,
            has_table: false,
            calls_itself: false,
            parts: Vec::new(),
        };
        function.refusal = function.sweep().err();
        function.find_targets(entries);
        function
    }

    /// The same function with code elsewhere that belongs to it: what a compiler moves away because
    /// it is rarely executed. A jump between the parts neither enters nor leaves the function. What
    /// was decoded of another section of the file has its addresses.
    pub fn with_parts(mut self, parts: Vec<Function<'a>>) -> Function<'a> {
        let jumps: Vec<Vec<u64>> = parts.iter().map(|part| part.jumps_out().collect()).collect();
        let own: Vec<u64> = self.jumps_out().collect();
        self.find_targets(&jumps.concat());
        for mut part in parts {
            references(part.bytes, part.address, |reference, target| {
                self.calls_itself |= reference == Reference::Call && target == self.address;
            });
            part.find_targets(&own);
            part.find_targets(&jumps.concat());
            self.parts.push(part);
        }
        self
    }

    /// The addresses outside to which the function jumps.
    pub fn jumps_out(&self) -> impl Iterator<Item = u64> + '_ {
        let length = self.bytes.len() as i64;
        self.instructions.iter().filter_map(move |i| match i.flow {
            Flow::Jump { target } | Flow::Branch { target, .. } if !(0..length).contains(&target) => {
                Some(self.address.wrapping_add(target as u64))
            }
            _ => None,
        })
    }

    /// True if an address is in the function or in one of its parts.
    pub(crate) fn contains(&self, address: u64) -> bool {
        let is_in = |f: &Function<'_>| address.wrapping_sub(f.address) < f.bytes.len() as u64;
        is_in(self) || self.parts.iter().any(is_in)
    }

    fn sweep(&mut self) -> Result<(), Refusal> {
        match self.bytes.len() {
            0 => return Err(Refusal::Empty),
            length if length > LONGEST => return Err(Refusal::TooLong { length: length as u64 }),
            _ => {}
        }
        let mut decoder = Decoder::with_ip(64, self.bytes, self.address, DecoderOptions::NONE);
        let mut tables = Tables::default();
        let mut decoded = Decoded::default();
        while decoder.can_decode() {
            let offset = decoder.position();
            decoder.decode_out(&mut decoded);
            if decoded.is_invalid() {
                let ended = decoder.last_error() == iced_x86::DecoderError::NoMoreBytes;
                let offset = offset as u64;
                return Err(if ended {
                    Refusal::CutShort { offset }
                } else {
                    Refusal::Undecodable { offset }
                });
            }
            let flow = self.flow(&decoded, &tables);
            tables.follow(&decoded);
            self.has_table |= flow == Flow::Table;
            self.calls_itself |= flow == Flow::Call
                && decoded.code() == Code::Call_rel32_64
                && decoded.near_branch_target() == self.address;
            self.instructions.push(Instruction {
                offset: u32::try_from(offset).unwrap_or(u32::MAX),
                length: u8::try_from(decoded.len()).unwrap_or(u8::MAX),
                flow,
            });
        }
        Ok(())
    }

    fn flow(&self, decoded: &Decoded, tables: &Tables) -> Flow {
        let target = || decoded.near_branch_target().wrapping_sub(self.address) as i64;
        match decoded.flow_control() {
            FlowControl::Next => Flow::Next,
            FlowControl::Call | FlowControl::IndirectCall => match decoded.code() {
                Code::Syscall | Code::Sysenter => Flow::Trap,
                _ => Flow::Call,
            },
            FlowControl::UnconditionalBranch if decoded.is_jmp_short_or_near() => {
                Flow::Jump { target: target() }
            }
            FlowControl::UnconditionalBranch => Flow::IndirectJump,
            FlowControl::ConditionalBranch => {
                let condition = Condition::of(decoded);
                Flow::Branch { target: target(), condition }
            }
            FlowControl::IndirectBranch if tables.is_behind(decoded) => Flow::Table,
            FlowControl::IndirectBranch => Flow::IndirectJump,
            FlowControl::Return => Flow::Return,
            FlowControl::Interrupt | FlowControl::XbeginXabortXend => Flow::Trap,
            FlowControl::Exception => Flow::Stop,
        }
    }

    fn find_targets(&mut self, entries: &[u64]) {
        let length = self.bytes.len() as u64;
        let inside = |offset: u64| u32::try_from(offset).ok().filter(|o| *o != 0 && u64::from(*o) < length);
        let branches = self.instructions.iter().filter_map(|i| match i.flow {
            Flow::Jump { target } | Flow::Branch { target, .. } => u64::try_from(target).ok(),
            _ => None,
        });
        let others = entries.iter().map(|entry| entry.wrapping_sub(self.address));
        let known = self.targets.iter().map(|target| u64::from(*target));
        self.targets = branches.chain(others).chain(known).filter_map(inside).collect();
        self.targets.sort_unstable();
        self.targets.dedup();
        if self.refusal.is_none() {
            let inside =
                self.targets.iter().map(|target| u64::from(*target)).find(|t| !self.may_be_reached(*t));
            self.refusal = inside.map(|target| Refusal::IntoInstruction { target });
        }
    }

    /// True if an instruction begins at an offset. Behind a `lock` prefix the same begins without
    /// it, and the positions are as certain: a program that has one thread jumps over it.
    fn may_be_reached(&self, offset: u64) -> bool {
        const LOCK: u8 = 0xf0;
        let is_lock = |before: u64| self.bytes.get(before as usize) == Some(&LOCK);
        let behind_lock = || offset.checked_sub(1).is_some_and(|b| is_lock(b) && self.find(b).is_some());
        self.find(offset).is_some() || behind_lock()
    }

    /// The instructions, in order: all of them, or those before the place of [`Function::refusal`].
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Why the positions of the instructions are not certain, so that there are no return and no
    /// offset probes.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// The function has a jump through a table, so not all of its branch targets are known.
    pub fn has_jump_table(&self) -> bool {
        self.has_table
    }

    /// The function calls itself, as far as it was decoded: any number of its calls may be nested.
    pub fn calls_itself(&self) -> bool {
        self.calls_itself
    }

    /// Offsets in the function that branches and other symbols lead to, in order, without the
    /// beginning.
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// The instruction that begins at an offset.
    pub fn find(&self, offset: u64) -> Option<&Instruction> {
        let at = self.instructions.binary_search_by_key(&offset, |i| u64::from(i.offset)).ok()?;
        self.instructions.get(at)
    }

    /// Whether and how a probe can be at an offset. An offset probe is possible at every
    /// instruction that the kernel can carry out.
    pub fn offset(&self, kernel: Kernel, offset: u64) -> Result<Step, Refusal> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let instruction = self.find(offset).ok_or(Refusal::NotAnInstruction { offset })?;
        self.step(kernel, instruction)
    }

    /// The offsets of all offset probes.
    pub fn offsets(&self, kernel: Kernel) -> impl Iterator<Item = (u64, Step)> + '_ {
        let certain = if self.refusal.is_none() { self.instructions.as_slice() } else { &[] };
        certain.iter().filter_map(move |i| Some((u64::from(i.offset), self.step(kernel, i).ok()?)))
    }

    pub(crate) fn step(&self, kernel: Kernel, instruction: &Instruction) -> Result<Step, Refusal> {
        let start = instruction.offset as usize;
        let code = self.bytes.get(start..start + usize::from(instruction.length)).unwrap_or(&[]);
        uprobe::step(code, self.address.wrapping_add(start as u64), kernel)
    }
}

/// Recognizes jumps through tables, as compilers make them:
///
/// ```text
///  movslq (%rdx,%rax,4),%rax          a table of distances       jmp *table(,%rax,8)     a table of addresses
///  add    %rdx,%rax                                              notrack jmp *%rax       what a compiler marks
///  jmp    *%rax
/// ```
///
/// Any other indirect jump is a call in the last place. (One through an array of functions,
/// `jmp *array(,%rax,8)`, cannot be told from a table of addresses, and counts as one: code that is
/// independent of its position has no such tables.) A register counts as loaded from a table until
/// it is loaded from elsewhere, a call or a jump.
#[derive(Default)]
struct Tables {
    /// Bits of the registers that hold an element of a table, or a sum with one.
    elements: u16,
}

/// The bit of a 64-bit register or of its lower half.
fn bit(register: Register) -> u16 {
    let full = register.full_register();
    if full.is_gpr64() { 1u16.checked_shl(full.number() as u32).unwrap_or(0) } else { 0 }
}

impl Tables {
    fn follow(&mut self, decoded: &Decoded) {
        if decoded.flow_control() != FlowControl::Next
            && decoded.flow_control() != FlowControl::ConditionalBranch
        {
            self.elements = 0;
            return;
        }
        let written = match decoded.op_count() {
            0 => return,
            _ if decoded.op0_kind() == OpKind::Register => bit(decoded.op0_register()),
            _ => return,
        };
        if written == 0 || matches!(decoded.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
            return;
        }
        let source = match (decoded.op_count(), decoded.op1_kind()) {
            (2, OpKind::Register) => bit(decoded.op1_register()),
            _ => 0,
        };
        let is_element = match decoded.mnemonic() {
            Mnemonic::Movsxd | Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx => {
                is_indexed(decoded) || self.elements & source != 0
            }
            Mnemonic::Add | Mnemonic::Sub => self.elements & (source | written) != 0,
            Mnemonic::Lea => self.elements & (bit(decoded.memory_base()) | bit(decoded.memory_index())) != 0,
            _ => false,
        };
        self.elements = if is_element { self.elements | written } else { self.elements & !written };
    }

    fn is_behind(&self, jump: &Decoded) -> bool {
        match jump.op0_kind() {
            OpKind::Register => {
                jump.segment_prefix() == Register::DS || self.elements & bit(jump.op0_register()) != 0
            }
            _ => is_indexed(jump),
        }
    }
}

/// A memory operand with an index, of elements of 1 to 8 bytes.
fn is_indexed(decoded: &Decoded) -> bool {
    decoded.memory_index() != Register::None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Function<'_> {
        Function::decode(bytes, 0x1000, &[])
    }

    fn flows(bytes: &[u8]) -> Vec<Flow> {
        decode(bytes).instructions().iter().map(|i| i.flow).collect()
    }

    #[test]
    fn a_function_decodes_to_its_end() {
        // push %rbp; mov %rsp,%rbp; pop %rbp; ret
        let f = decode(&[0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3]);
        assert_eq!(f.refusal(), None);
        assert_eq!(
            f.instructions().iter().map(|i| (i.offset, i.length)).collect::<Vec<_>>(),
            [(0, 1), (1, 3), (4, 1), (5, 1)]
        );
        assert_eq!(f.offset(Kernel::UNKNOWN, 2), Err(Refusal::NotAnInstruction { offset: 2 }));
        assert_eq!(f.offset(Kernel::UNKNOWN, 1), Ok(Step::Single));
        assert_eq!(f.offsets(Kernel::UNKNOWN).map(|o| o.0).collect::<Vec<_>>(), [0, 1, 4, 5]);
    }

    #[test]
    fn a_function_that_does_not_decode_says_where() {
        assert_eq!(decode(&[]).refusal(), Some(Refusal::Empty));
        assert_eq!(decode(&[0x55, 0x06, 0xc3]).refusal(), Some(Refusal::Undecodable { offset: 1 }));
        assert_eq!(decode(&[0x55, 0xe8, 0, 0]).refusal(), Some(Refusal::CutShort { offset: 1 }));
        let long = vec![0x90; LONGEST + 1];
        assert_eq!(decode(&long).refusal(), Some(Refusal::TooLong { length: LONGEST as u64 + 1 }));
        assert_eq!(decode(&[0x55, 0x06]).offsets(Kernel::UNKNOWN).count(), 0);
    }

    #[test]
    fn a_branch_into_an_instruction_is_found() {
        // je .+3; mov $0x90c3,%ax; ret
        let f = decode(&[0x74, 0x01, 0x66, 0xb8, 0xc3, 0x90, 0xc3]);
        assert_eq!(f.refusal(), Some(Refusal::IntoInstruction { target: 3 }));
        assert_eq!(f.offset(Kernel::UNKNOWN, 0), Err(Refusal::IntoInstruction { target: 3 }));
    }

    #[test]
    fn a_jump_over_a_lock_prefix_leaves_the_positions_certain() {
        // je 1f; lock; 1: cmpxchg %edx,(%rdi); ret
        let f = decode(&[0x74, 0x01, 0xf0, 0x0f, 0xb1, 0x17, 0xc3]);
        assert_eq!((f.refusal(), f.targets()), (None, &[3][..]));
        let offsets: Vec<u32> = f.instructions().iter().map(|i| i.offset).collect();
        assert_eq!(offsets, [0, 2, 6]);
        // What is behind another prefix, or a byte of an operand, is another instruction.
        let f = decode(&[0x74, 0x01, 0xf3, 0x0f, 0xb8, 0xc7, 0xc3]);
        assert_eq!(f.refusal(), Some(Refusal::IntoInstruction { target: 3 }));
        let f = decode(&[0x74, 0x03, 0x66, 0xb8, 0xf0, 0x90, 0xc3]);
        assert_eq!(f.refusal(), Some(Refusal::IntoInstruction { target: 5 }));
    }

    #[test]
    fn jumps_from_another_part_are_targets() {
        // f: nop; 1: nop; jmp 0x2000; 7: ret    part: jmp f+1
        let code = [0x90, 0x90, 0xe9, 0xf9, 0x0f, 0, 0, 0xc3];
        let part = [0xe9, 0xfc, 0xef, 0xff, 0xff];
        let f = decode(&code);
        assert_eq!((f.targets(), f.jumps_out().collect::<Vec<_>>()), (&[][..], vec![0x2000]));
        let f = f.with_parts(vec![Function::decode(&part, 0x2000, &[])]);
        assert_eq!((f.targets(), f.refusal()), (&[1][..], None));
        assert!(!f.calls_itself());
        assert!(f.contains(0x1007) && f.contains(0x2004) && !f.contains(0x2005) && !f.contains(0x1008));
    }

    #[test]
    fn another_symbol_inside_is_a_target_and_may_not_be_inside_an_instruction() {
        let code = [0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3];
        let f = Function::decode(&code, 0x1000, &[0x1001, 0x1000, 0xfff, 0x1006]);
        assert_eq!((f.targets(), f.refusal()), (&[1][..], None));
        let f = Function::decode(&code, 0x1000, &[0x1002]);
        assert_eq!(f.refusal(), Some(Refusal::IntoInstruction { target: 2 }));
    }

    #[test]
    fn a_function_that_calls_itself_is_known() {
        // call f; ret    call f+1; ret    jmp f
        assert!(decode(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]).calls_itself());
        assert!(!decode(&[0xe8, 0xfc, 0xff, 0xff, 0xff, 0xc3]).calls_itself());
        assert!(!decode(&[0xeb, 0xfe]).calls_itself());
        // In a part of it: call f
        let part = [0xe8, 0xfb, 0xef, 0xff, 0xff];
        let f = decode(&[0xc3]).with_parts(vec![Function::decode(&part, 0x2000, &[])]);
        assert!(f.calls_itself());
    }

    #[test]
    fn targets_of_branches_are_offsets() {
        // 0: jmp 3; 2: ret; 3: jne 0; 5: jmp -1
        let f = decode(&[0xeb, 0x01, 0xc3, 0x75, 0xfb, 0xeb, 0xf8]);
        assert_eq!(f.targets(), [3]);
        assert_eq!(f.instructions().last().map(|i| i.flow), Some(Flow::Jump { target: -1 }));
    }

    #[test]
    fn a_table_is_told_from_a_call_in_the_last_place() {
        // movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax
        let distances = [0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0];
        assert_eq!(flows(&distances).last(), Some(&Flow::Table));
        assert!(decode(&distances).has_jump_table());
        // jmp *0x1000(,%rax,8)
        assert_eq!(flows(&[0xff, 0x24, 0xc5, 0, 0x10, 0, 0]), [Flow::Table]);
        // notrack jmp *%rax
        assert_eq!(flows(&[0x3e, 0xff, 0xe0]), [Flow::Table]);
        // mov (%rdi),%rax; jmp *%rax
        let last = flows(&[0x48, 0x8b, 0x07, 0xff, 0xe0]);
        assert_eq!(last.last(), Some(&Flow::IndirectJump));
        // jmp *(%rip), jmp *0x18(%rax)
        assert_eq!(flows(&[0xff, 0x25, 0, 0, 0, 0]), [Flow::IndirectJump]);
        assert_eq!(flows(&[0xff, 0x60, 0x18]), [Flow::IndirectJump]);
    }

    #[test]
    fn calls_returns_and_traps_are_told_apart() {
        assert_eq!(flows(&[0xe8, 0, 0, 0, 0, 0xff, 0xd0]), [Flow::Call, Flow::Call]);
        assert_eq!(flows(&[0x0f, 0x05]), [Flow::Trap]);
        assert_eq!(flows(&[0xf3, 0xc3, 0xc2, 8, 0]), [Flow::Return, Flow::Return]);
        assert_eq!(flows(&[0x0f, 0x0b]), [Flow::Stop]);
        assert_eq!(flows(&[0xe3, 0]), [Flow::Branch { target: 2, condition: None }]);
    }
}
