//! The line of an instruction, from the line table of its code object (CPython 3.11,
//! `Objects/locations.md`).
//!
//! An entry begins with a byte whose highest bit is set, and no other byte has it. The first byte
//! has the kind, and the number of instructions that it is for. Of the kinds only these say
//! something of the line:
//!
//! ```text
//!  10 to 12   it is 0 to 2 further than in the entry before
//!  13, 14     the difference follows: six bits a byte, the lowest first, the sign in the lowest bit; the seventh says that more follow
//!  15         there is none
//! ```

use runtimes::cpython_3_11::LENGTH;

use super::given::{
    AT, COUNT, END, FROM, G_FIRST_LINE, G_LINES, KNOWN, LINE, LINE_TEXT, LINE_WINDOW, READING, SHIFT, SIZE,
    TABLE, TARGET, VALUE,
};
use crate::mir::{Alu, Builder, Helper, Jmp, Size};
use crate::routines::runtimes::area::read_word;

/// The instruction before the first, which has the first line.
pub(super) const BEFORE: i64 = -1;

/// The most bytes of a table that are looked at: some thousand lines of source.
const MOST: i64 = 8192;
/// The bits of a line in the word of a frame.
const LINES: i64 = (1 << 24) - 1;

/// The line of the instruction, 0 if it has none.
pub(super) fn find(b: &mut Builder) {
    let given = b.param(0);
    let none = b.label();
    let first = b.load(Size::B4, given, G_FIRST_LINE);
    let target = b.load(Size::B8, given, TARGET);
    b.if_(Jmp::Eq, target, BEFORE, |b| {
        let line = b.and(first, LINES);
        b.exit(line);
    });
    let table = b.load(Size::B8, given, G_LINES);
    let size = read_word(b, table, LENGTH, none);
    let bytes = b.add(table, LENGTH + 16);
    for (at, value) in [(TABLE, bytes), (SIZE, size), (LINE, first)] {
        b.store(Size::B8, given, at, value);
    }
    for at in [AT, END, KNOWN, READING, VALUE, SHIFT, FROM, COUNT] {
        b.store(Size::B8, given, at, 0);
    }
    let state = b.stack(8);
    b.slot_store(Size::B8, state, 0, given);
    let step = b.sub_addr("dt_python_byte", 2, step);
    let (turns, to, flags) = (b.imm(MOST), b.slot_addr(state, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, step, to, flags]);
    let end = b.load(Size::B8, given, END);
    b.br(Jmp::Ge, target, end, none);
    let known = b.load(Size::B8, given, KNOWN);
    b.br(Jmp::Eq, known, 0, none);
    // The number is not whole.
    let reading = b.load(Size::B8, given, READING);
    b.br(Jmp::Ne, reading, 0, none);
    let line = b.load(Size::B8, given, LINE);
    let line = b.and(line, LINES);
    b.exit(line);
    b.bind(none);
    b.exit(0);
}

/// Looks at a byte.
fn step(b: &mut Builder) {
    let given = b.load(Size::B8, b.param(1), 0);
    let (stop, failed, have, some, follows, next, minus) =
        (b.label(), b.label(), b.label(), b.label(), b.label(), b.label(), b.label());
    let at = b.load(Size::B8, given, AT);
    let size = b.load(Size::B8, given, SIZE);
    b.br(Jmp::Ge, at, size, stop);
    let from = b.load(Size::B8, given, FROM);
    let into = b.sub(at, from);
    let count = b.load(Size::B8, given, COUNT);
    b.br(Jmp::Lt, into, count, have);
    let rest = b.sub(size, at);
    b.br(Jmp::Le, rest, i64::from(LINE_WINDOW), some);
    b.set(rest, i64::from(LINE_WINDOW));
    b.bind(some);
    let table = b.load(Size::B8, given, TABLE);
    let (to, from) = (b.add(given, i32::from(LINE_TEXT)), b.add(table, at));
    let result = b.call(Helper::PROBE_READ_USER, &[to, rest, from]);
    b.br(Jmp::Ne, result, 0, failed);
    b.store(Size::B8, given, FROM, at);
    b.store(Size::B8, given, COUNT, rest);
    b.set(into, 0);
    b.bind(have);
    let into = b.and(into, i64::from(LINE_WINDOW) - 1);
    let there = b.add(given, into);
    let byte = b.load(Size::B1, there, LINE_TEXT);
    let begins = b.and(byte, 128);
    b.br(Jmp::Eq, begins, 0, follows);
    let end = b.load(Size::B8, given, END);
    let target = b.load(Size::B8, given, TARGET);
    b.br(Jmp::Lt, target, end, stop);
    let more = b.and(byte, 7);
    let end = b.add(end, more);
    let end = b.add(end, 1);
    b.store(Size::B8, given, END, end);
    let kind = b.shr(byte, 3);
    let kind = b.and(kind, 15);
    // 1 from 13 on, 1 below 15.
    let beyond = b.add(kind, 3);
    let beyond = b.shr(beyond, 4);
    b.store(Size::B8, given, READING, beyond);
    let none = b.add(kind, 1);
    let none = b.shr(none, 4);
    let known = b.xor(none, 1);
    b.store(Size::B8, given, KNOWN, known);
    b.store(Size::B8, given, VALUE, 0);
    b.store(Size::B8, given, SHIFT, 0);
    b.br(Jmp::Le, kind, 10, next);
    b.br(Jmp::Gt, kind, 12, next);
    let line = b.load(Size::B8, given, LINE);
    let line = b.add(line, kind);
    let line = b.sub(line, 10);
    b.store(Size::B8, given, LINE, line);
    b.jmp(next);

    b.bind(follows);
    let reading = b.load(Size::B8, given, READING);
    b.br(Jmp::Eq, reading, 0, next);
    let (value, shift) = (b.load(Size::B8, given, VALUE), b.load(Size::B8, given, SHIFT));
    let bits = b.and(byte, 63);
    let shift = b.and(shift, 63);
    let bits = b.shl(bits, shift);
    let value = b.or(value, bits);
    b.store(Size::B8, given, VALUE, value);
    let shift = b.add(shift, 6);
    b.store(Size::B8, given, SHIFT, shift);
    let goes_on = b.and(byte, 64);
    b.br(Jmp::Ne, goes_on, 0, next);
    b.store(Size::B8, given, READING, 0);
    let line = b.load(Size::B8, given, LINE);
    let sign = b.and(value, 1);
    b.update(Alu::Rsh, value, 1);
    b.br(Jmp::Ne, sign, 0, minus);
    let line_after = b.add(line, value);
    b.store(Size::B8, given, LINE, line_after);
    b.jmp(next);
    b.bind(minus);
    let line_after = b.sub(line, value);
    b.store(Size::B8, given, LINE, line_after);
    b.bind(next);
    let at = b.load(Size::B8, given, AT);
    let at = b.add(at, 1);
    b.store(Size::B8, given, AT, at);
    b.exit(0);
    b.bind(failed);
    b.store(Size::B8, given, END, 0);
    b.bind(stop);
    b.exit(1);
}
