//! `chill()`: holds the CPU for a time, within a budget.
//!
//! The wait is a loop that reads the clock. A program's loop must be bounded, and the verifier
//! would need too long for one loop with a bound large enough for half a second. So two functions,
//! each verified once, are nested: [`TURNS`] times [`TURNS`] readings of the clock take longer than
//! the longest wait.

use plane::control::{CHILL_INTERVAL, CHILL_MARK, CHILL_MOST, CHILLED};

use super::Firing;
use crate::mir::{Arg, AtomicOp, Builder, Helper, Jmp, Label, Size, V};

/// Clock readings of the inner loop, and iterations of the outer loop.
const TURNS: i64 = 8192;

/// Holds the CPU for so many nanoseconds. Jumps to `bad` at once when that exceeds the budget.
pub fn chill(b: &mut Builder, firing: &Firing, nanoseconds: V, bad: Label) {
    let over = b.label();
    b.br(Jmp::Gt, nanoseconds, CHILL_MOST as i64, bad);
    let start = b.call(Helper::KTIME_GET_NS, &[]);
    let mark = b.load(Size::B8, firing.percpu, CHILL_MARK as i16);
    let age = b.sub(start, mark);
    b.if_(Jmp::Gt, age, CHILL_INTERVAL as i64, |b| {
        b.store(Size::B8, firing.percpu, CHILL_MARK as i16, start);
        b.store(Size::B8, firing.percpu, CHILLED as i16, 0);
    });
    // Subtracted from the budget first, because another context may interrupt.
    let held = b.atomic_fetch(AtomicOp::Add, Size::B8, firing.percpu, CHILLED as i16, nanoseconds);
    let held = b.add(held, nanoseconds);
    b.br(Jmp::Gt, held, CHILL_MOST as i64, over);
    b.out_of_line(|b| {
        b.bind(over);
        let back = b.neg(nanoseconds);
        b.atomic_add(firing.percpu, CHILLED as i16, back);
        b.jmp(bad);
    });
    let args = [Arg::Word(start), Arg::Word(nanoseconds)];
    b.call_global("dt_chill", &args, |b| {
        let (start, nanoseconds) = (b.param(0), b.param(1));
        turns(b, |b, done| {
            let args = [Arg::Word(start), Arg::Word(nanoseconds)];
            let over = b.call_global("dt_chill_turn", &args, |b| {
                let (start, nanoseconds) = (b.param(0), b.param(1));
                turns(b, |b, done| {
                    let now = b.call(Helper::KTIME_GET_NS, &[]);
                    let passed = b.sub(now, start);
                    b.br(Jmp::Ge, passed, nanoseconds, done);
                });
            });
            b.br(Jmp::Ne, over, 0, done);
        });
    });
}

/// Emits a loop that repeats `turn` until it is done, and then returns 1. Returns 0 when the
/// iterations are exhausted.
fn turns(b: &mut Builder, turn: impl FnOnce(&mut Builder, Label)) {
    let done = b.label();
    b.repeat(TURNS, |b| turn(b, done));
    b.exit(0);
    b.bind(done);
    b.exit(1);
}
