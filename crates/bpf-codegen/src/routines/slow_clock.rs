//! Slow clocks: timers with more chances than firings.
//!
//! While a program runs on a CPU because of a function probe, the kernel skips the program of a
//! clock on that CPU, and counts that nowhere. When every function is traced, a CPU spends most of
//! its time so, and a clock of a minute has one chance in a minute. A slow clock therefore has
//! several chances in a period. The program that runs computes how many periods have passed since
//! the event was created. When that number equals the number at the last firing, the program does
//! not fire. The number is a word of the control page.

use plane::control::{TICKS, TICKS_MAX};

use crate::mir::{Alu, Builder, Helper, Jmp, Label, MapRef, Size, V};

/// Jumps to `miss` unless a period has passed since clock number `clock` (see [`TICKS_MAX`]) last
/// fired. The program runs once in `chance` nanoseconds. A period is a whole number of chances, or
/// nearly so.
pub fn slow_clock(b: &mut Builder, ctx: V, clock: u32, period: u64, chance: u64, miss: Label) {
    let buffer = b.stack(24);
    let (to, size) = (b.slot_addr(buffer, 0), b.imm(24));
    let failed = b.call(Helper::PERF_PROG_READ_VALUE, &[ctx, to, size]);
    b.br(Jmp::Ne, failed, 0, miss);
    // struct bpf_perf_event_value: counter, enabled, running. The timer and this clock may differ
    // slightly.
    let enabled = b.slot_load(Size::B8, buffer, 8);
    let enabled = b.add(enabled, (chance / 2) as i64);
    let period = b.imm(period as i64);
    let now = b.alu(Alu::Div, enabled, period);
    b.br(Jmp::Eq, now, 0, miss);
    let word = b.map_value(MapRef::Control, TICKS + 8 * (clock % TICKS_MAX));
    let last = b.load(Size::B8, word, 0);
    b.br(Jmp::Eq, last, now, miss);
    b.store(Size::B8, word, 0, now);
    b.if_(Jmp::Eq, last, 0, |b| {
        // Periods that passed while other probes were being enabled do not count.
        b.br(Jmp::Gt, now, 1, miss);
    });
}
