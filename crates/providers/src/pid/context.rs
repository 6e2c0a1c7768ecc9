//! The contexts of programs at places in processes: how a firing finds its probe, its arguments and
//! its result.
//!
//! The cookie of a place has the index of its probe, and above it what the program needs to know of
//! the place:
//!
//! ```text
//!  bits  0–31   the index of the probe
//!       32–55   at an entry: the bytes from the function's beginning to the place; at a return: the offset of the instruction,
//!                negative in a part of the function that is before it, 0 where it is farther than 8 MB away
//!       56–59   the condition under which the probe fires: a jump leaves the function, or its stack is large enough
//!       60      there is a condition
//!       61      the function is one of Go
//! ```
//!
//! ARCH(x86-64): the flags, and the numbers of the conditions.

use bpf_codegen::arch::x86_64::regs::FLAGS;
use bpf_codegen::context::{Context, Index};
use bpf_codegen::mir::{Alu, Builder, Helper, Jmp, Label, Size, V};
use text::Condition;

/// What a cookie says of a place, above the index.
pub(super) fn place_bits(offset: i64, condition: Option<Condition>, is_go: bool) -> u32 {
    const LIMIT: i64 = 1 << (OFFSET_BITS - 1);
    let condition = condition.map_or(0, |c| u32::from(c.bits()) << 24 | CONDITIONAL);
    let offset = if (-LIMIT..LIMIT).contains(&offset) { offset as u32 } else { 0 };
    (offset & OFFSET_MASK) | condition | if is_go { GO } else { 0 }
}

const OFFSET_BITS: u32 = 24;
const OFFSET_MASK: u32 = (1 << OFFSET_BITS) - 1;
const CONDITIONAL: u32 = 1 << 28;
const GO: u32 = 1 << 29;

/// When the programs of a unit run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At the entry of a function.
    Entry,
    /// At an instruction, before it is executed.
    Instruction,
    /// At an instruction that leaves a function.
    Leaving,
    /// After a function has returned.
    Returned,
}

/// Whose calling conventions the functions of places have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Callings {
    /// That of C.
    pub(super) c: bool,
    /// That of Go.
    pub(super) go: bool,
}

impl Callings {
    /// Those of both.
    pub(super) fn or(self, other: Callings) -> Callings {
        Callings { c: self.c || other.c, go: self.go || other.go }
    }
}

/// The context of all of them: the registers of the process.
pub(super) struct Place {
    pub(super) when: When,
    /// Some entry probes are behind the first instruction.
    pub(super) moved: bool,
    /// Some places have a condition.
    pub(super) conditional: bool,
    /// Whose functions they are in.
    pub(super) callings: Callings,
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
        if self.conditional {
            let place = b.copy(cookie);
            b.update(Alu::Rsh, place, 32);
            jump_unless_it_holds(b, ctx, place, miss);
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
        match self.callings {
            Callings { go: false, .. } => self.arg_of_c(b, ctx, n),
            Callings { c: false, .. } => self.arg_of_go(b, ctx, n),
            Callings { .. } => {
                let bits = Place::bits(b, ctx);
                let is_go = b.and(bits, i64::from(GO));
                let (go, end) = (b.label(), b.label());
                let value = b.copy(0);
                b.br(Jmp::Ne, is_go, 0, go);
                let of_c = self.arg_of_c(b, ctx, n);
                b.set(value, of_c);
                b.jmp(end);
                b.bind(go);
                let of_go = self.arg_of_go(b, ctx, n);
                b.set(value, of_go);
                b.bind(end);
                value
            }
        }
    }

    fn moved_by(&self, b: &mut Builder, ctx: V) -> Option<V> {
        (self.moved && self.when == When::Entry).then(|| offset(b, ctx))
    }

    /// Behind a return the innermost frame is the caller's.
    fn user_caller_frame(&self) -> u8 {
        u8::from(self.when != When::Returned)
    }

    /// Where the probes of clauses that take stacks are, the stack pointer is that of the entry.
    fn return_address(&self, b: &mut Builder, ctx: V) -> Option<V> {
        (self.when == When::Entry).then(|| b.load(Size::B8, ctx, b.machine().sp))
    }
}

impl Place {
    fn arg_of_c(&self, b: &mut Builder, ctx: V, n: u8) -> V {
        let args = b.machine().args;
        match (self.when, n) {
            (When::Entry | When::Instruction, n) => register_or_stack(b, ctx, args, n),
            (When::Leaving, 0) => offset(b, ctx),
            (When::Leaving | When::Returned, 1) => b.load(Size::B8, ctx, b.machine().result),
            _ => b.imm(0),
        }
    }

    /// Results are in the registers of arguments, behind the place of the return.
    fn arg_of_go(&self, b: &mut Builder, ctx: V, n: u8) -> V {
        let args = b.machine().go_args;
        match (self.when, n) {
            (When::Entry | When::Instruction, n) => register_or_stack(b, ctx, args, n),
            (When::Leaving, 0) => offset(b, ctx),
            (When::Leaving, n) => register_or_stack(b, ctx, args, n - 1),
            // No return of Go is probed so.
            (When::Returned, _) => b.imm(0),
        }
    }
}

/// The offset of a place in its function, with its sign.
fn offset(b: &mut Builder, ctx: V) -> V {
    let bits = Place::bits(b, ctx);
    let above = i64::from(u64::BITS - OFFSET_BITS);
    let top = b.shl(bits, above);
    b.alu(Alu::Arsh, top, above)
}

/// A value in one of these registers, or in the words on the stack that follow them.
fn register_or_stack(b: &mut Builder, ctx: V, registers: &[i16], n: u8) -> V {
    if let Some(register) = registers.get(usize::from(n)) {
        return b.load(Size::B8, ctx, *register);
    }
    let sp = b.load(Size::B8, ctx, b.machine().sp);
    let behind = usize::from(n).saturating_sub(registers.len());
    let from = b.add(sp, b.machine().stack_args + 8 * behind as i64);
    let to = b.stack(8);
    b.slot_store(Size::B8, to, 0, 0);
    let (address, size) = (b.slot_addr(to, 0), b.imm(8));
    b.call(Helper::PROBE_READ_USER, &[address, size, from]);
    b.slot_load(Size::B8, to, 0)
}

/// Goes to `miss` where the condition of a place does not hold.
fn jump_unless_it_holds(b: &mut Builder, ctx: V, bits: V, miss: Label) {
    const ZERO: u32 = 6;
    const SIGN: u32 = 7;
    const OVERFLOW: u32 = 11;
    let holds = b.label();
    let conditional = b.and(bits, i64::from(CONDITIONAL));
    b.br(Jmp::Eq, conditional, 0, holds);
    let flags = b.load(Size::B8, ctx, FLAGS);
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
    b.br(Jmp::Eq, taken, 0, miss);
    b.bind(holds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context_tests::compare;

    #[test]
    fn arguments_and_results_are_found_on_each_machine() {
        let of = |when, callings| Place {
            when,
            moved: false,
            conditional: false,
            callings,
            sets: None,
            several: false,
        };
        let c = Callings { c: true, go: false };
        compare("pid-entry", &of(When::Entry, c), &[0, 5, 6, 7, 8]);
        compare("pid-return", &of(When::Returned, c), &[1]);
        compare("pid-go", &of(When::Entry, Callings { c: false, go: true }), &[0, 8, 9, 16]);
    }
}
