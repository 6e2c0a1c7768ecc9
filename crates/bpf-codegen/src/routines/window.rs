//! Reads memory of a process in parts, each in one page: a window that begins near the stack
//! pointer, has a quarter of a page, and moves to each return address outside of it, then up to the
//! end of the page. A page is mapped as a whole or not at all, so no read fails because the stack
//! ends there.

use plane::unwind::PAGE;

use crate::mir::{Arg, Builder, Helper, Jmp, Label, Size, V};

/// Offsets in the window.
const AT: i16 = 0;
/// The offset behind the last at which a word can begin; 0 where the window is nowhere.
pub(super) const WORDS_END: i16 = 8;
pub(super) const VALUE: i16 = 16;
pub(super) const RETURNS: i16 = 24;
pub(super) const BYTES: i16 = 32;
/// Bytes of the window. A word begins at the last byte of its page at most, as far as the verifier
/// knows.
pub(super) const WINDOW_SIZE: u32 = BYTES as u32 + PAGE as u32 + 8;
/// Bytes that the first window of a walk has, and to which each begins, a power of two: to copy a
/// page costs more than most stacks need of it.
const FIRST_WINDOW: u64 = 1024;

/// A word of the process. With `moves`, the window, which is at an offset from `place`, moves to
/// it.
pub(super) fn read(b: &mut Builder, (place, window): (V, u32), addr: V, moves: bool, broken: Label) -> V {
    let (value, slow, done) = (b.var(), b.label(), b.label());
    let begin = b.load(Size::B8, place, window as i16 + AT);
    let end = b.load(Size::B8, place, window as i16 + WORDS_END);
    let offset = b.sub(addr, begin);
    b.br(Jmp::Ge, offset, end, slow);
    // Less already, but the verifier does not know what is in memory.
    let offset = b.and(offset, PAGE as i64 - 1);
    let there = b.add(place, offset);
    let word = b.load(Size::B8, there, window as i16 + BYTES);
    b.set(value, word);
    b.bind(done);
    b.out_of_line(|b| {
        b.bind(slow);
        let window = b.add(place, window);
        let args = [Arg::Memory(window, WINDOW_SIZE), Arg::Word(addr)];
        let failed = match moves {
            true => b.call_global("dt_unwind_move", &args, move_window),
            false => b.call_global("dt_unwind_read", &args, read_word),
        };
        b.br(Jmp::Ne, failed, 0, broken);
        let word = b.load(Size::B8, window, VALUE);
        b.set(value, word);
        b.jmp(done);
    });
    value
}

/// Reads a word into the window's value. Returns 0 if it could be read.
fn read_word(b: &mut Builder) {
    let failed = read_one(b);
    b.exit(failed);
}

fn read_one(b: &mut Builder) -> V {
    let (window, addr) = (b.param(0), b.param(1));
    let (to, size) = (b.add(window, i32::from(VALUE)), b.imm(8));
    b.call(Helper::PROBE_READ_USER, &[to, size, addr])
}

/// The same, after moving the window to the word.
fn move_window(b: &mut Builder) {
    let (window, addr) = (b.param(0), b.param(1));
    let one = b.label();
    let into = b.and(addr, FIRST_WINDOW as i64 - 1);
    b.br(Jmp::Gt, into, FIRST_WINDOW as i64 - 8, one);
    let begin = b.sub(addr, into);
    let size = b.copy(FIRST_WINDOW as i64);
    let before = b.load(Size::B8, window, WORDS_END);
    b.if_(Jmp::Ne, before, 0, |b| {
        let low = b.and(begin, (PAGE - FIRST_WINDOW) as i64);
        let rest = b.imm(PAGE as i64);
        let rest = b.sub(rest, low);
        b.set(size, rest);
    });
    // What a failed read leaves is nobody's memory.
    b.store(Size::B8, window, WORDS_END, 0);
    let to = b.add(window, i32::from(BYTES));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, size, begin]);
    b.br(Jmp::Ne, failed, 0, one);
    b.store(Size::B8, window, AT, begin);
    let end = b.sub(size, 7);
    b.store(Size::B8, window, WORDS_END, end);
    let there = b.add(window, into);
    let word = b.load(Size::B8, there, BYTES);
    b.store(Size::B8, window, VALUE, word);
    b.exit(0);
    b.bind(one);
    let failed = read_one(b);
    b.exit(failed);
}
