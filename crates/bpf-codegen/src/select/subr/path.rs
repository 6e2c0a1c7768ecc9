//! Paths: basename, dirname, cleanpath.

use plane::desc::string_storage;

use super::loops::{byte, clear, each, next, put, stop};
use crate::mir::{Builder, Jmp, Size};

// Offsets in the work area, for the components.
const START: i16 = 0;
const END: i16 = 8;
const BEFORE: i16 = 16;
const WITHIN: i16 = 24;

/// `basename(s)` or `dirname(s)` to `target`.
pub(super) fn component(b: &mut Builder, strsize: u32, directory: bool) {
    let storage = string_storage(strsize);
    let (s, target, work) = (b.param(0), b.param(1), b.param(2));
    clear(b, storage, target);
    for at in [START, END, BEFORE, WITHIN] {
        b.store(Size::B8, work, at, 0);
    }
    // The last component: its start, its end, and the end of the component before it.
    each(b, "dt_components", storage, &[s, work], |b, turn, addresses| {
        let &[s, work] = addresses else { return };
        let end = b.label();
        let c = byte(b, s, turn, storage, end);
        b.br(Jmp::Eq, c, 0, end);
        b.if_(Jmp::Ne, c, b'/', |b| {
            let within = b.load(Size::B8, work, WITHIN);
            b.if_(Jmp::Eq, within, 0, |b| {
                let before = b.load(Size::B8, work, END);
                b.store(Size::B8, work, BEFORE, before);
                b.store(Size::B8, work, START, turn);
                b.store(Size::B8, work, WITHIN, 1);
            });
            let behind = b.add(turn, 1);
            b.store(Size::B8, work, END, behind);
            next(b);
        });
        b.store(Size::B8, work, WITHIN, 0);
        next(b);
        b.bind(end);
        stop(b);
    });
    let (dot, root) = (b.label(), b.label());
    let end = b.load(Size::B8, work, END);
    b.if_(Jmp::Ne, end, 0, |b| {
        let start = b.load(Size::B8, work, START);
        if directory {
            let before = b.load(Size::B8, work, BEFORE);
            b.if_(Jmp::Ne, before, 0, |b| {
                let from = b.imm(0);
                put(b, storage, target, s, from, before);
                b.exit(0);
            });
            b.br(Jmp::Eq, start, 0, dot);
            b.jmp(root);
        } else {
            let count = b.sub(end, start);
            put(b, storage, target, s, start, count);
            b.exit(0);
        }
    });
    let c = b.load(Size::B1, s, 0);
    b.br(Jmp::Eq, c, 0, dot);
    b.bind(root);
    b.store(Size::B1, target, 0, b'/');
    b.exit(0);
    b.bind(dot);
    if strsize > 1 {
        b.store(Size::B1, target, 0, b'.');
    }
    b.exit(0);
}

// Offsets in the work area, for cleanpath.
const READ: i16 = 0;
const WRITTEN: i16 = 8;
const HELD: i16 = 16;
const BACK: i16 = 24;
const LAST: i16 = 32;

/// `cleanpath(s)` to `target`. Reading a byte and going back over a byte each take one iteration.
pub(super) fn cleanpath(b: &mut Builder, strsize: u32) {
    let storage = string_storage(strsize);
    let (s, target, work) = (b.param(0), b.param(1), b.param(2));
    clear(b, storage, target);
    for at in [READ, WRITTEN, HELD, BACK, LAST] {
        b.store(Size::B8, work, at, 0);
    }
    each(b, "dt_clean", 3 * storage, &[s, target, work], |b, _, addresses| {
        let &[s, target, work] = addresses else { return };
        let (end, on, back, plain, three, flush) =
            (b.label(), b.label(), b.label(), b.label(), b.label(), b.label());
        let written = b.load(Size::B8, work, WRITTEN);
        b.br(Jmp::Gt, written, storage, end);
        let going = b.load(Size::B8, work, BACK);
        b.br(Jmp::Ne, going, 0, back);
        let read = b.load(Size::B8, work, READ);
        let c = byte(b, s, read, storage, end);
        let read = b.add(read, 1);
        b.store(Size::B8, work, READ, read);
        let held = b.load(Size::B8, work, HELD);
        b.match_(held, [(0, plain), (3, three)]);
        b.br(Jmp::Eq, c, b'/', plain);
        b.br(Jmp::Ne, c, b'.', flush);
        let held = b.add(held, 1);
        b.store(Size::B8, work, HELD, held);
        b.bind(on);
        next(b);

        b.bind(plain);
        b.br(Jmp::Ge, written, strsize.saturating_sub(5), end);
        b.br(Jmp::Eq, c, 0, end);
        b.if_(Jmp::Ne, c, b'/', |b| {
            let p = b.add(target, written);
            b.store(Size::B1, p, 0, c);
            let written_now = b.add(written, 1);
            b.store(Size::B8, work, WRITTEN, written_now);
            b.store(Size::B8, work, HELD, 0);
            next(b);
        });
        b.store(Size::B8, work, HELD, 1);
        next(b);

        // The pending component was no "." or "..", so it is written.
        b.bind(flush);
        b.br(Jmp::Ge, written, strsize.saturating_sub(5), end);
        let held = b.load(Size::B8, work, HELD);
        let held = b.and(held, 3);
        let p = b.add(target, written);
        let out = b.label();
        b.store(Size::B1, p, 0, b'/');
        b.br(Jmp::Lt, held, 2, out);
        b.store(Size::B1, p, 1, b'.');
        b.br(Jmp::Lt, held, 3, out);
        b.store(Size::B1, p, 2, b'.');
        b.bind(out);
        let q = b.add(p, held);
        b.store(Size::B1, q, 0, c);
        let sum = b.add(written, held);
        let sum = b.add(sum, 1);
        b.store(Size::B8, work, WRITTEN, sum);
        b.store(Size::B8, work, HELD, 0);
        b.br(Jmp::Ne, c, 0, on);
        b.bind(end);
        stop(b);

        b.bind(three);
        b.if_(Jmp::Ne, c, b'/', |b| {
            b.br(Jmp::Ne, c, 0, flush);
        });
        b.store(Size::B8, work, LAST, c);
        b.store(Size::B8, work, BACK, 1);
        b.store(Size::B8, work, HELD, 0);
        next(b);

        b.bind(back);
        let at = b.copy(written);
        b.if_(Jmp::Ne, at, 0, |b| {
            b.update(crate::mir::Alu::Sub, at, 1);
            let c = byte(b, target, at, storage, end);
            let p = b.add(target, at);
            b.store(Size::B1, p, 0, 0);
            b.store(Size::B8, work, WRITTEN, at);
            b.br(Jmp::Ne, c, b'/', on);
        });
        b.store(Size::B8, work, BACK, 0);
        let last = b.load(Size::B8, work, LAST);
        b.if_(Jmp::Ne, last, 0, |b| {
            // The slash is read again.
            let read = b.load(Size::B8, work, READ);
            let read = b.sub(read, 1);
            b.store(Size::B8, work, READ, read);
            next(b);
        });
        let at = b.load(Size::B8, work, WRITTEN);
        b.br(Jmp::Ge, at, storage, end);
        let p = b.add(target, at);
        b.store(Size::B1, p, 0, b'/');
        stop(b);
    });
    b.exit(0);
}
