//! A slow clock that is asked more often than it fires.
//!
//! The kernel runs no program of a clock while one at a function runs on that CPU, and counts it nowhere. Where every function is
//! traced that is what a CPU does most of the time, and a clock of a minute has one chance a minute. So a slow clock has several chances a
//! period, and the program that gets one asks how many periods have passed since the event was made: as many as when it last fired, and it
//! is none of its firings. What is kept is that number, a word of the control page.

use plane::control::{TICKS, TICKS_MAX};

use crate::mir::{Alu, Builder, Helper, Jmp, Label, MapRef, Size, V};

/// Goes to `miss` unless a period has passed since clock number `clock` (see [`TICKS_MAX`]) fired last. It is asked every `chance`
/// nanoseconds, of which a whole number are a period, or nearly.
pub fn slow_clock(b: &mut Builder, ctx: V, clock: u32, period: u64, chance: u64, miss: Label) {
    let room = b.stack(24);
    let (to, size) = (b.slot_addr(room, 0), b.imm(24));
    let failed = b.call(Helper::PERF_PROG_READ_VALUE, &[ctx, to, size]);
    b.br(Jmp::Ne, failed, 0, miss);
    // struct bpf_perf_event_value: counter, enabled, running. The timer and this clock may differ a little.
    let enabled = b.slot_load(Size::B8, room, 8);
    let enabled = b.add(enabled, (chance / 2) as i64);
    let period = b.imm(period as i64);
    let now = b.alu(Alu::Div, enabled, period);
    b.br(Jmp::Eq, now, 0, miss);
    let word = b.map_value(MapRef::Control, TICKS + 8 * (clock % TICKS_MAX));
    let last = b.load(Size::B8, word, 0);
    b.br(Jmp::Eq, last, now, miss);
    b.store(Size::B8, word, 0, now);
    let fires = b.label();
    b.br(Jmp::Ne, last, 0, fires);
    // Periods that passed while other probes were still being enabled are no firings.
    b.br(Jmp::Gt, now, 1, miss);
    b.bind(fires);
}
