//! Searching a string in a string.

use super::loops::{byte, each, next, stop};
use super::text::suffix;
use crate::mir::{Arg, Builder, Jmp, Size, V};

// Offsets in the work area.
const FROM: i16 = 0;
const FOUND: i16 = 8;
const HERE: i16 = 16;
const DIFFERS: i16 = 24;

/// The position of `sub` (not empty) in `s` that is nearest to `from` in the direction of the
/// search, or -1.
fn find(b: &mut Builder, storage: u32, backward: bool) {
    let (s, sub, from, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    b.store(Size::B8, work, FROM, from);
    b.store(Size::B8, work, FOUND, -1);
    let name = if backward { "dt_look_back" } else { "dt_look" };
    each(b, name, storage, &[s, sub, work], |b, turn, addresses| {
        let &[s, sub, work] = addresses else { return };
        let (end, on) = (b.label(), b.label());
        let from = b.load(Size::B8, work, FROM);
        let at = if backward { b.sub(from, turn) } else { b.add(from, turn) };
        let c = byte(b, s, at, storage, end);
        if !backward {
            b.br(Jmp::Eq, c, 0, end);
        }
        let want = b.load(Size::B1, sub, 0);
        b.br(Jmp::Ne, c, want, on);
        b.store(Size::B8, work, HERE, at);
        b.store(Size::B8, work, DIFFERS, 0);
        each(b, "dt_same", storage, &[s, sub, work], |b, turn, addresses| {
            let &[s, sub, work] = addresses else { return };
            let (end, on, differs) = (b.label(), b.label(), b.label());
            let want = byte(b, sub, turn, storage, end);
            b.br(Jmp::Eq, want, 0, end);
            let here = b.load(Size::B8, work, HERE);
            let at = b.add(here, turn);
            let c = byte(b, s, at, storage, differs);
            b.br(Jmp::Eq, c, want, on);
            b.bind(differs);
            b.store(Size::B8, work, DIFFERS, 1);
            b.bind(end);
            stop(b);
            b.bind(on);
            next(b);
        });
        let differs = b.load(Size::B8, work, DIFFERS);
        b.br(Jmp::Ne, differs, 0, on);
        let here = b.load(Size::B8, work, HERE);
        b.store(Size::B8, work, FOUND, here);
        b.bind(end);
        stop(b);
        b.bind(on);
        next(b);
    });
    let found = b.load(Size::B8, work, FOUND);
    b.exit(found);
}

/// Calls the search function with `s`, `sub`, `from` and the work area. Returns the position.
fn place(b: &mut Builder, storage: u32, backward: bool, (s, sub, from, work): (V, V, V, V)) -> V {
    let args = [
        Arg::Memory(s, storage),
        Arg::Memory(sub, storage),
        Arg::Word(from),
        Arg::Memory(work, super::needs::WORK),
    ];
    let name = if backward { "dt_find_back" } else { "dt_find" };
    b.call_global(name, &args, |b| find(b, storage, backward))
}

/// `index(s, sub, pos)` or `rindex(s, sub, pos)`.
pub(super) fn index(b: &mut Builder, storage: u32, backward: bool) {
    let (s, sub, pos, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let pos = b.copy(pos);
    let len = super::text::length(b, storage, s);
    let (positive, look) = (b.label(), b.label());
    b.if_(Jmp::Sgt, pos, len, |b| {
        b.set(pos, len);
    });
    let first = b.load(Size::B1, sub, 0);
    if backward {
        b.br(Jmp::Ne, first, 0, look);
        b.br(Jmp::Sge, pos, 0, positive);
        b.set(pos, 0);
        b.bind(positive);
        b.exit(pos);
        b.bind(look);
    } else {
        b.br(Jmp::Sge, pos, 0, positive);
        b.set(pos, 0);
        b.bind(positive);
        b.br(Jmp::Ne, first, 0, look);
        b.exit(pos);
        b.bind(look);
    }
    let found = place(b, storage, backward, (s, sub, pos, work));
    b.exit(found);
}

/// `strstr(s, sub)` to `target`.
pub(super) fn strstr(b: &mut Builder, storage: u32) {
    let (s, sub, target, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let at = b.copy(0);
    let first = b.load(Size::B1, sub, 0);
    b.if_(Jmp::Ne, first, 0, |b| {
        let found = place(b, storage, false, (s, sub, at, work));
        b.set(at, found);
    });
    suffix(b, storage, target, s, at);
    b.exit(0);
}
