//! The places where a function returns.
//!
//! As in the original, a jump out of the function is a return: the function that is jumped to
//! returns to our caller. At a conditional jump a program tests the [`Condition`], because the
//! breakpoint is hit whether it jumps or not.

use crate::arch::x86_64::condition::Condition;
use crate::arch::x86_64::function::{Flow, Function};
use crate::arch::x86_64::uprobe::{Kernel, Step};
use crate::refusal::Refusal;

/// How a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// `ret`. The result is in its register.
    Return,
    /// A jump to another function, which will return.
    Jump,
    /// A jump to an address in a register or in memory.
    IndirectJump,
    /// The same if the condition holds.
    Branch(Condition),
}

/// A place where a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnSite {
    /// From the beginning of the function. A part of it may be elsewhere, also before.
    pub offset: i64,
    /// How.
    pub departure: Departure,
    /// What a probe there costs.
    pub step: Step,
}

impl Function<'_> {
    /// All places where the function returns, in order; none if it never does. If one of them
    /// cannot be probed, returns would be missed, so there are no return probes.
    pub fn returns(&self, kernel: Kernel) -> Result<Vec<ReturnSite>, Refusal> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let mut sites = self.own_returns(self, kernel)?;
        for part in &self.parts {
            if let Some(refusal) = part.refusal() {
                return Err(refusal);
            }
            let from = part.address.wrapping_sub(self.address) as i64;
            let own = part.own_returns(self, kernel)?;
            sites.extend(own.into_iter().map(|s| ReturnSite { offset: from.wrapping_add(s.offset), ..s }));
        }
        Ok(sites)
    }

    /// True if the function returns to the address on the stack as far as it was decoded, or jumps
    /// to another function, which does. One that is left by indirect jumps alone may be entered
    /// otherwise than by a call (`_dl_runtime_resolve`).
    pub fn returns_by_the_stack(&self) -> bool {
        let by_stack = |f: &Function<'_>| {
            let leaves = |target: &u64| !self.contains(*target);
            f.instructions().iter().any(|i| i.flow == Flow::Return)
                || f.jumps_out().any(|target| leaves(&target))
        };
        by_stack(self) || self.parts.iter().any(by_stack)
    }

    /// Where this part of a function leaves it.
    fn own_returns(&self, whole: &Function<'_>, kernel: Kernel) -> Result<Vec<ReturnSite>, Refusal> {
        let is_outside = |target: i64| !whole.contains(self.address.wrapping_add(target as u64));
        let mut sites = Vec::new();
        for instruction in self.instructions() {
            let offset = u64::from(instruction.offset);
            let departure = match instruction.flow {
                Flow::Return => Departure::Return,
                Flow::IndirectJump => Departure::IndirectJump,
                Flow::Jump { target } if is_outside(target) => Departure::Jump,
                Flow::Branch { target, condition } if is_outside(target) => {
                    Departure::Branch(condition.ok_or(Refusal::UnclearReturn { offset })?)
                }
                _ => continue,
            };
            let step = self.step(kernel, instruction).map_err(|refusal| refusal.at_return(offset))?;
            sites.push(ReturnSite { offset: offset as i64, departure, step });
        }
        Ok(sites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returns(bytes: &[u8]) -> Result<Vec<ReturnSite>, Refusal> {
        Function::decode(bytes, 0x1000, &[]).returns(Kernel::UNKNOWN)
    }

    fn sites(bytes: &[u8]) -> Vec<(i64, Departure, Step)> {
        returns(bytes).unwrap().iter().map(|s| (s.offset, s.departure, s.step)).collect()
    }

    const NOT_EQUAL: Condition = Condition::from_bits(5);

    #[test]
    fn every_ret_is_a_return() {
        // test %edi,%edi; jne 6; ret; nop; 6: repz ret
        let code = [0x85, 0xff, 0x75, 0x02, 0xc3, 0x90, 0xf3, 0xc3];
        assert_eq!(
            sites(&code),
            [(4, Departure::Return, Step::Single), (6, Departure::Return, Step::Single)]
        );
    }

    #[test]
    fn jumps_out_of_the_function_are_returns_and_jumps_inside_are_not() {
        // 0: jne 0x1020; 6: jne 0; 8: jmp 0; 10: jmp 0x1020; 15: jmp *(%rip)
        let code =
            [0x0f, 0x85, 0x1a, 0, 0, 0, 0x75, 0xf8, 0xeb, 0xf6, 0xe9, 0x11, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0];
        assert_eq!(
            sites(&code),
            [
                (0, Departure::Branch(NOT_EQUAL), Step::Emulated),
                (10, Departure::Jump, Step::Emulated),
                (15, Departure::IndirectJump, Step::Single)
            ]
        );
    }

    #[test]
    fn a_jump_to_the_end_is_outside() {
        assert_eq!(sites(&[0xeb, 0]), [(0, Departure::Jump, Step::Emulated)]);
    }

    #[test]
    fn a_jump_through_a_table_is_no_return() {
        assert_eq!(sites(&[0xff, 0x24, 0xc5, 0, 0x10, 0, 0, 0xc3]), [(7, Departure::Return, Step::Single)]);
    }

    #[test]
    fn a_function_that_never_returns_has_no_return_site() {
        // call abort
        assert_eq!(sites(&[0x55, 0xe8, 0, 0, 0, 0]), []);
    }

    #[test]
    fn a_jump_between_parts_is_no_return_and_a_part_may_return() {
        // f: jne part; ret; jmp g    part: jmp f; ret; jne part; jmp *%rax
        let code = [0x0f, 0x85, 0xfa, 0x0f, 0, 0, 0xc3, 0xe9, 0xf4, 0x2f, 0, 0];
        let part = [0xe9, 0xfb, 0xef, 0xff, 0xff, 0xc3, 0x75, 0xf8, 0xff, 0xe0];
        let decode = |address| Function::decode(&part, address, &[]);
        let f = Function::decode(&code, 0x1000, &[]).with_parts(vec![decode(0x2000)]);
        let sites = f.returns(Kernel::UNKNOWN).unwrap();
        let found: Vec<_> = sites.iter().map(|s| (s.offset, s.departure)).collect();
        assert_eq!(
            found,
            [
                (6, Departure::Return),
                (7, Departure::Jump),
                (0x1005, Departure::Return),
                (0x1008, Departure::IndirectJump)
            ]
        );
        // Before the function.
        let code = [0x0f, 0x85, 0xfa, 0xef, 0xff, 0xff];
        let part = Function::decode(&[0x90, 0xc3], 0, &[]);
        let f = Function::decode(&code, 0x1000, &[]).with_parts(vec![part]);
        let sites = f.returns(Kernel::UNKNOWN).unwrap();
        assert_eq!(sites.iter().map(|s| s.offset).collect::<Vec<_>>(), [-0xfff]);
        let bad = Function::decode(&[0x06, 0x90, 0x90], 0x2000, &[]);
        let f = Function::decode(&[0xc3], 0x1000, &[]).with_parts(vec![bad]);
        assert_eq!(f.returns(Kernel::UNKNOWN), Err(Refusal::Undecodable { offset: 0 }));
    }

    #[test]
    fn who_returns_by_the_stack_is_known_as_far_as_the_code_is() {
        let by_stack = |code: &[u8]| Function::decode(code, 0x1000, &[]).returns_by_the_stack();
        assert!(by_stack(&[0xc3]) && by_stack(&[0xc3, 0x06]) && by_stack(&[0xeb, 0x40]));
        assert!(!by_stack(&[0xff, 0xe0]) && !by_stack(&[0x90, 0x06, 0xc3]) && !by_stack(&[0xeb, 0xfe]));
    }

    #[test]
    fn there_are_no_return_probes_where_one_would_be_missed() {
        assert_eq!(returns(&[0xc3, 0xe3, 0x40]), Err(Refusal::UnclearReturn { offset: 1 }));
        let iret = returns(&[0xc3, 0x48, 0xcf]).unwrap_err();
        assert_eq!(
            iret.to_string(),
            "no probe can be at the return at +0x1: the kernel does not accept its opcode (cf)"
        );
        assert_eq!(returns(&[0xc3, 0x06, 0x90, 0x90]), Err(Refusal::Undecodable { offset: 1 }));
    }
}
