//! The contexts of programs at places in processes: how a firing finds its probe, its arguments and its result.
//!
//! The cookie of a place has the index of its probe, and above it what the program needs to know of the place:
//!
//! ```text
//!  bits  0–31   the index of the probe
//!       32–55   at an entry: the bytes from the function's beginning to the place; at a return: the offset of the instruction
//!       56–59   the condition under which a jump leaves the function
//!       60      there is a condition
//! ```
//!
//! ARCH(x86-64): the registers of arguments and of results, and the flags.

use bpf_codegen::arch::{self, regs};
use bpf_codegen::context::{Context, Index};
use bpf_codegen::mir::{Alu, Builder, Helper, Jmp, Label, Size, V};
use text::Condition;

/// What a cookie says of a place, above the index.
pub(super) fn place_bits(offset: u64, condition: Option<Condition>) -> u32 {
    let condition = condition.map_or(0, |c| u32::from(c.bits()) << 24 | CONDITIONAL);
    (offset as u32 & OFFSET_MASK) | condition
}

const OFFSET_MASK: u32 = (1 << 24) - 1;
const CONDITIONAL: u32 = 1 << 28;

/// When the programs of a unit run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At the entry of a function.
    Entry,
    /// At an instruction, before it is executed.
    Instruction,
    /// At an instruction that leaves a function.
    Leaving {
        /// Some of them are conditional.
        conditional: bool,
    },
    /// After a function has returned.
    Returned,
}

/// The context of all of them: the registers of the process.
pub(super) struct Place {
    pub(super) when: When,
    /// Some entry probes are behind the first instruction.
    pub(super) moved: bool,
    /// The sets of processes that it serves, one bit each, where the kernel runs it in all.
    pub(super) sets: Option<u64>,
    /// Which process fires is known when it does.
    pub(super) several: bool,
}

impl Place {
    fn bits(b: &mut Builder, ctx: V) -> V {
        let cookie = b.call(Helper::GET_ATTACH_COOKIE, &[ctx]);
        b.shr(cookie, 32)
    }
}

impl Context for Place {
    fn index(&self, b: &mut Builder, ctx: V, miss: Label) -> Index {
        let cookie = b.call(Helper::GET_ATTACH_COOKIE, &[ctx]);
        if self.when == (When::Leaving { conditional: true }) {
            let stays = b.copy(cookie);
            b.update(Alu::Rsh, stays, 32);
            jump_if_it_stays(b, ctx, stays, miss);
        }
        Index::V(b.low32(cookie))
    }

    fn process_sets(&self) -> Option<u64> {
        self.sets
    }

    fn is_of_any_process(&self) -> bool {
        self.several
    }

    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        match (self.when, n) {
            (When::Entry | When::Instruction, n) => match arch::FUNCTION_ARGS.get(usize::from(n)) {
                Some(register) => b.load(Size::B8, ctx, *register),
                None => argument_on_the_stack(b, ctx, n),
            },
            (When::Leaving { .. }, 0) => {
                let bits = Place::bits(b, ctx);
                b.and(bits, i64::from(OFFSET_MASK))
            }
            (When::Leaving { .. } | When::Returned, 1) => b.load(Size::B8, ctx, regs::AX),
            _ => b.imm(0),
        }
    }

    fn moved_by(&self, b: &mut Builder, ctx: V) -> Option<V> {
        (self.moved && self.when == When::Entry).then(|| {
            let bits = Place::bits(b, ctx);
            b.and(bits, i64::from(OFFSET_MASK))
        })
    }

    /// Behind a return the innermost frame is the caller's.
    fn user_caller_frame(&self) -> u8 {
        u8::from(self.when != When::Returned)
    }

    /// Where the probes of clauses that take stacks are, the stack pointer is that of the entry.
    fn return_address(&self, b: &mut Builder, ctx: V) -> Option<V> {
        (self.when == When::Entry).then(|| b.load(Size::B8, ctx, regs::SP))
    }
}

/// `argN` from the seventh on, which the caller has pushed: behind the return address.
fn argument_on_the_stack(b: &mut Builder, ctx: V, n: u8) -> V {
    let sp = b.load(Size::B8, ctx, regs::SP);
    let behind = usize::from(n).saturating_sub(arch::FUNCTION_ARGS.len()) + 1;
    let from = b.add(sp, 8 * behind as i64);
    let to = b.stack(8);
    b.slot_store(Size::B8, to, 0, 0);
    let (address, size) = (b.slot_addr(to, 0), b.imm(8));
    b.call(Helper::PROBE_READ_USER, &[address, size, from]);
    b.slot_load(Size::B8, to, 0)
}

/// Goes to `stays` where a conditional jump does not leave the function.
fn jump_if_it_stays(b: &mut Builder, ctx: V, bits: V, stays: Label) {
    const ZERO: u32 = 6;
    const SIGN: u32 = 7;
    const OVERFLOW: u32 = 11;
    let leaves = b.label();
    let conditional = b.and(bits, i64::from(CONDITIONAL));
    b.br(Jmp::Eq, conditional, 0, leaves);
    let flags = b.load(Size::B8, ctx, regs::FLAGS);
    let bit = |b: &mut Builder, at: u32| {
        let shifted = b.shr(flags, i64::from(at));
        b.and(shifted, 1)
    };
    let (carry, parity) = (bit(b, 0), bit(b, 2));
    let (zero, sign, overflow) = (bit(b, ZERO), bit(b, SIGN), bit(b, OVERFLOW));
    let below = b.or(carry, zero);
    let less = b.xor(sign, overflow);
    let not_greater = b.or(zero, less);
    // The eight tests in the order of their numbers, as bits of one word.
    let tests = b.copy(0);
    for (number, test) in
        [overflow, carry, zero, below, sign, parity, less, not_greater].into_iter().enumerate()
    {
        let at = b.shl(test, number as i64);
        b.update(Alu::Or, tests, at);
    }
    let number = b.shr(bits, 25);
    let number = b.and(number, 7);
    let test = b.alu(Alu::Rsh, tests, number);
    let negated = b.shr(bits, 24);
    let taken = b.xor(test, negated);
    let taken = b.and(taken, 1);
    b.br(Jmp::Eq, taken, 0, stays);
    b.bind(leaves);
}
