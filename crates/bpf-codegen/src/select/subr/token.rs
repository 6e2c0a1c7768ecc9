//! `strtok()`: the rest of the string is in the scratch slot, behind a word with the read position
//! (0: no string). All clauses of a firing share the state.

use super::loops::{byte, clear, each, next, put, stop};
use super::needs::{TOKEN_HEAD, WORK};
use crate::mir::{Alu, Arg, Builder, Jmp, Size, V};
use crate::routines::words::NULL;

// Offsets in the work area.
const FROM: i16 = 0;
const START: i16 = 8;
const END: i16 = 16;
const SET: i16 = 64;

/// The word of the delimiter bit set that contains a byte's bit, and the bit's number.
fn bit(b: &mut Builder, work: V, c: V) -> (V, V) {
    let word = b.shr(c, 6);
    let offset = b.shl(word, 3);
    (b.add(work, offset), b.and(c, 63))
}

/// The next token to `target`.
pub(super) fn token(b: &mut Builder, storage: u32) {
    let (target, delimiters, state, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let none = b.label();
    clear(b, storage, target);
    let read = b.load(Size::B8, state, 0);
    b.br(Jmp::Eq, read, 0, none);
    b.store(Size::B8, state, 0, 0);
    for word in 0..4 {
        b.store(Size::B8, work, SET + 8 * word, 0);
    }
    each(b, "dt_delimiters", storage, &[delimiters, work], |b, turn, addresses| {
        let &[delimiters, work] = addresses else { return };
        let end = b.label();
        let c = byte(b, delimiters, turn, storage, end);
        b.br(Jmp::Eq, c, 0, end);
        let (word, number) = bit(b, work, c);
        let one = b.imm(1);
        let mask = b.shl(one, number);
        let set = b.load(Size::B8, word, SET);
        b.update(Alu::Or, set, mask);
        b.store(Size::B8, word, SET, set);
        next(b);
        b.bind(end);
        stop(b);
    });
    let from = b.sub(read, 1);
    b.store(Size::B8, work, FROM, from);
    b.store(Size::B8, work, START, -1);
    b.store(Size::B8, work, END, 0);
    each(b, "dt_token", storage, &[state, work], |b, turn, addresses| {
        let &[state, work] = addresses else { return };
        let (end, on, begins, ends) = (b.label(), b.label(), b.label(), b.label());
        let from = b.load(Size::B8, work, FROM);
        let at = b.add(from, turn);
        let text = b.add(state, TOKEN_HEAD);
        let c = byte(b, text, at, storage, end);
        b.br(Jmp::Eq, c, 0, ends);
        let (word, number) = bit(b, work, c);
        let set = b.load(Size::B8, word, SET);
        let shifted = b.shr(set, number);
        let delimits = b.and(shifted, 1);
        let start = b.load(Size::B8, work, START);
        b.br(Jmp::Slt, start, 0, begins);
        b.br(Jmp::Eq, delimits, 0, on);
        b.bind(ends);
        b.store(Size::B8, work, END, at);
        b.bind(end);
        stop(b);
        b.bind(begins);
        b.br(Jmp::Ne, delimits, 0, on);
        b.store(Size::B8, work, START, at);
        b.bind(on);
        next(b);
    });
    let start = b.load(Size::B8, work, START);
    b.br(Jmp::Slt, start, 0, none);
    let end = b.load(Size::B8, work, END);
    let read = b.add(end, 1);
    b.store(Size::B8, state, 0, read);
    let count = b.sub(end, start);
    let text = b.add(state, TOKEN_HEAD);
    put(b, storage, target, text, start, count);
    b.exit(0);
    b.bind(none);
    b.store(Size::B8, target, 0, NULL);
    b.exit(0);
}

/// The arguments of [`token`].
pub(super) fn args(storage: u32, target: V, delimiters: V, state: V, work: V) -> [Arg; 4] {
    [
        Arg::Memory(target, storage),
        Arg::Memory(delimiters, storage),
        Arg::Memory(state, TOKEN_HEAD + storage),
        Arg::Memory(work, WORK),
    ]
}
