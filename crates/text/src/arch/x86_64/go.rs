//! The place of the entry probe of a function of Go.
//!
//! A function of Go begins with a check of its stack. Where the stack is too small the runtime
//! makes a larger one, and then the function begins anew:
//!
//! ```text
//!  f:      lea  -0x1a0(%rsp),%r12
//!          cmp  0x10(%r14),%r12
//!  ──►     jbe  grow                   the probe: it is entered where this does not jump
//!          sub  $0x220,%rsp            the registers of the arguments and the stack pointer are those of the call
//!          …
//!  grow:   mov  %rax,0x8(%rsp)
//!          call runtime.morestack_noctxt
//!          mov  0x8(%rsp),%rax
//!          jmp  f
//! ```
//!
//! A probe at the first instruction would fire once more for each time that the stack grows. The
//! jump is emulated, so a probe there costs a tenth of one at another instruction. A large frame
//! has two such jumps (the first where the subtraction wraps around): the last one decides.

use crate::arch::x86_64::entry::{EntryProbe, Uses};
use crate::arch::x86_64::function::{Flow, Function, Instruction};
use crate::arch::x86_64::uprobe::Kernel;
use crate::refusal::Refusal;

/// Instructions of the check at most.
const CHECK: usize = 8;
/// Instructions that save the registers of arguments, call and restore them, at most.
const GROWING: usize = 80;

impl Function<'_> {
    /// The place of the entry probe, if the function is one of Go.
    pub fn go_entry(&self, kernel: Kernel, uses: Uses) -> Result<EntryProbe, Refusal> {
        // Without all instructions it is not known whether there is a check.
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if let Some(jump) = self.stack_check()
            && let Flow::Branch { condition: Some(grows), .. } = jump.flow
        {
            let step = self.step(kernel, jump)?;
            let condition = Some(grows.negated());
            return Ok(EntryProbe { offset: jump.offset.into(), step, condition });
        }
        // Arguments are in other registers than those of C.
        self.entry(kernel, if uses.is_nothing() { uses } else { uses.and_registers() })
    }

    /// The last jump of the check.
    fn stack_check(&self) -> Option<&Instruction> {
        let mut last = None;
        for instruction in self.instructions().iter().take(CHECK) {
            match instruction.flow {
                Flow::Next => {}
                Flow::Branch { target, condition: Some(_) } if self.begins_anew(target) => {
                    last = Some(instruction);
                }
                _ => break,
            }
        }
        last
    }

    /// True if the instructions at an offset call one function, and then jump to the beginning.
    fn begins_anew(&self, target: i64) -> bool {
        let first = u32::try_from(target).ok().filter(|target| *target > 0);
        let Some(first) = first else { return false };
        let from = self.instructions().partition_point(|i| i.offset < first);
        let mut calls = 0;
        for instruction in self.instructions().iter().skip(from).take(GROWING) {
            match instruction.flow {
                Flow::Next => {}
                Flow::Call => calls += 1,
                Flow::Jump { target: 0 } => return calls == 1,
                _ => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::condition::Condition;
    use crate::arch::x86_64::uprobe::Step;

    const ARGUMENTS: Uses = Uses::NOTHING;
    const ABOVE: Condition = Condition::from_bits(7);

    fn entry(bytes: &[u8], uses: Uses) -> Result<EntryProbe, Refusal> {
        Function::decode(bytes, 0x1000, &[]).go_entry(Kernel::UNKNOWN, uses)
    }

    /// `cmp 0x10(%r14),%rsp`
    const COMPARE: [u8; 4] = [0x49, 0x3b, 0x66, 0x10];
    /// `mov %rax,8(%rsp); call; mov 8(%rsp),%rax`
    const GROW: [u8; 15] = [0x48, 0x89, 0x44, 0x24, 8, 0xe8, 0, 0x10, 0, 0, 0x48, 0x8b, 0x44, 0x24, 8];

    fn with(check: &[u8], back: &[u8]) -> Vec<u8> {
        // sub $0x40,%rsp; ret
        let body = [0x48, 0x83, 0xec, 0x40, 0xc3];
        [check, &body, &GROW, back].concat()
    }

    #[test]
    fn the_probe_is_at_the_jump_that_leads_to_a_larger_stack() {
        let check = [&COMPARE[..], &[0x76, 5]].concat();
        let code = with(&check, &[0xeb, 0xe4]);
        let place = EntryProbe { offset: 4, step: Step::Emulated, condition: Some(ABOVE) };
        for uses in [ARGUMENTS, ARGUMENTS.and_stack(), ARGUMENTS.and_registers()] {
            assert_eq!(entry(&code, uses), Ok(place));
        }
    }

    #[test]
    fn of_two_jumps_the_last_one_decides() {
        // mov %rsp,%r12; sub $0x1000,%r12; jb grow; cmp 0x10(%r14),%r12; jbe grow
        let check = [
            &[0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0, 0x10, 0, 0, 0x72, 11][..],
            &[0x4d, 0x3b, 0x66, 0x10, 0x76, 5],
        ]
        .concat();
        let code = with(&check, &[0xeb, 0xd8]);
        assert_eq!(entry(&code, ARGUMENTS).map(|p| (p.offset, p.condition)), Ok((16, Some(ABOVE))));
    }

    #[test]
    fn a_function_without_a_check_has_its_probe_where_nothing_that_is_read_has_changed() {
        // mov %rcx,0x18(%rsp); push %rbp; ret
        let code = [0x48, 0x89, 0x4c, 0x24, 0x18, 0x55, 0xc3];
        assert_eq!(entry(&code, ARGUMENTS.and_argument(0)), Ok(EntryProbe::at(0, Step::Single)));
        // xor %eax,%eax; push %rbp; ret: %rax is the first argument of Go.
        let code = [0x31, 0xc0, 0x55, 0xc3];
        assert_eq!(entry(&code, ARGUMENTS.and_argument(0)), Ok(EntryProbe::at(0, Step::Single)));
        assert_eq!(entry(&code, ARGUMENTS), Ok(EntryProbe::at(2, Step::Emulated)));
    }

    #[test]
    fn a_loop_to_the_beginning_is_no_check() {
        // cmp; jbe to a block without a call, or to one that returns
        let check = [&COMPARE[..], &[0x76, 5]].concat();
        for back in [&[0xc3][..], &[0xeb, 0xe8]] {
            assert_eq!(entry(&with(&check, back), ARGUMENTS).map(|p| p.condition), Ok(None));
        }
        let code = [&check[..], &[0x48, 0x83, 0xec, 0x40, 0xc3, 0x90, 0xeb, 0xf2]].concat();
        assert_eq!(entry(&code, ARGUMENTS).map(|p| p.condition), Ok(None));
    }

    #[test]
    fn a_function_that_does_not_decode_has_no_probe() {
        assert_eq!(entry(&[0x55, 0x06, 0xc3], ARGUMENTS), Err(Refusal::Undecodable { offset: 1 }));
    }
}
