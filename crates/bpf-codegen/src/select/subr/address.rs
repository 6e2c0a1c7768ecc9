//! Network and link addresses as text. The address bytes were read into the work area.

use super::loops::{LENGTH, append, byte, each, next, put_appended, stop};
use crate::mir::{Alu, Builder, Inst, Jmp, Size, V};

/// Offset of the address in the work area.
pub(super) const ADDRESS: i16 = 64;

// Offsets in the work area for the longest run of zero groups.
const RUN: i16 = 16;
const BEST: i16 = 24;
const BEST_START: i16 = 32;

/// How to print an IPv6 address that contains an IPv4 address.
pub(super) const PLAIN: u8 = 0;

/// The hexadecimal digit of a number below 16.
fn hex(b: &mut Builder, value: V) -> V {
    // The letters are 39 further than the digits. No branch.
    let nine = b.imm(9);
    let over = b.sub(nine, value);
    let sign = b.sar(over, 63);
    let more = b.and(sign, i32::from(b'a' - b'0' - 10));
    let c = b.add(value, i32::from(b'0'));
    b.add(c, more)
}

/// Four numbers separated by points, from `at` in the work area.
fn dotted(b: &mut Builder, work: V, at: i16) {
    let start = b.add(work, i32::from(at));
    each(b, &format!("dt_dotted_{at}"), 4, &[start, work], |b, turn, addresses| {
        let &[start, work] = addresses else { return };
        let end = b.label();
        let value = byte(b, start, turn, 4, end);
        b.if_(Jmp::Ne, turn, 0, |b| {
            append(b, work, b'.');
        });
        let hundred = b.alu(Alu::Div, value, 100);
        let rest = b.alu(Alu::Mod, value, 100);
        let ten = b.alu(Alu::Div, rest, 10);
        let one = b.alu(Alu::Mod, rest, 10);
        b.if_(Jmp::Ge, value, 10, |b| {
            b.if_(Jmp::Ge, value, 100, |b| {
                let c = b.add(hundred, i32::from(b'0'));
                append(b, work, c);
            });
            let c = b.add(ten, i32::from(b'0'));
            append(b, work, c);
        });
        let c = b.add(one, i32::from(b'0'));
        append(b, work, c);
        next(b);
        b.bind(end);
        stop(b);
    });
}

/// Formats the IPv4 address in the work area into `target`.
pub(super) fn inet4(b: &mut Builder, strsize: u32) {
    let (target, work) = (b.param(0), b.param(1));
    b.store(Size::B8, work, LENGTH, 0);
    dotted(b, work, ADDRESS);
    put_appended(b, strsize, target, work);
    b.exit(0);
}

/// Formats the IPv6 address in the work area into `target`. A third argument of 0 prints a
/// contained IPv4 address as IPv4.
pub(super) fn inet6(b: &mut Builder, strsize: u32) {
    let (target, work, full) = (b.param(0), b.param(1), b.param(2));
    for at in [LENGTH, RUN, BEST, BEST_START] {
        b.store(Size::B8, work, at, 0);
    }
    let (groups, within, mapped, done, bare) = (b.label(), b.label(), b.label(), b.label(), b.label());
    let high = b.load(Size::B8, work, ADDRESS);
    b.br(Jmp::Ne, high, 0, groups);
    let middle = b.load(Size::B4, work, ADDRESS + 8);
    b.br(Jmp::Eq, middle, 0xffff_0000_u32, mapped);
    b.br(Jmp::Ne, middle, 0, groups);
    let low = b.load(Size::B4, work, ADDRESS + 12);
    let dst = b.var();
    b.push(Inst::ToBe { bits: 32, dst, a: low });
    b.br(Jmp::Gt, dst, 1, within);

    b.bind(groups);
    each(b, "dt_zero_groups", 8, &[work], |b, turn, addresses| {
        let &[work] = addresses else { return };
        let (end, on, nonzero) = (b.label(), b.label(), b.label());
        b.br(Jmp::Ge, turn, 8, end);
        let offset = b.shl(turn, 1);
        let p = b.add(work, offset);
        let group = b.load(Size::B2, p, ADDRESS);
        b.br(Jmp::Ne, group, 0, nonzero);
        let run = super::loops::step(b, work, RUN, 1);
        let best = b.load(Size::B8, work, BEST);
        b.br(Jmp::Le, run, best, on);
        b.store(Size::B8, work, BEST, run);
        let behind = b.add(turn, 1);
        let start = b.sub(behind, run);
        b.store(Size::B8, work, BEST_START, start);
        b.bind(on);
        next(b);
        b.bind(nonzero);
        b.store(Size::B8, work, RUN, 0);
        next(b);
        b.bind(end);
        stop(b);
    });
    let best = b.load(Size::B8, work, BEST);
    b.if_(Jmp::Lt, best, 2, |b| {
        // A run of one group is not abbreviated: it is moved behind the end.
        b.store(Size::B8, work, BEST, 0);
        b.store(Size::B8, work, BEST_START, 8);
    });
    each(b, "dt_groups", 8, &[work], |b, turn, addresses| {
        let &[work] = addresses else { return };
        let (end, on, shown, joined) = (b.label(), b.label(), b.label(), b.label());
        b.br(Jmp::Ge, turn, 8, end);
        let start = b.load(Size::B8, work, BEST_START);
        let count = b.load(Size::B8, work, BEST);
        let behind = b.add(start, count);
        b.br(Jmp::Lt, turn, start, shown);
        b.br(Jmp::Ge, turn, behind, shown);
        b.br(Jmp::Ne, turn, start, on);
        append(b, work, b':');
        append(b, work, b':');
        b.bind(on);
        next(b);
        b.bind(shown);
        b.br(Jmp::Eq, turn, 0, joined);
        b.if_(Jmp::Eq, turn, behind, |b| {
            b.br(Jmp::Ne, count, 0, joined);
        });
        append(b, work, b':');
        b.bind(joined);
        let offset = b.shl(turn, 1);
        let p = b.add(work, offset);
        let raw = b.load(Size::B2, p, ADDRESS);
        let group = b.var();
        b.push(Inst::ToBe { bits: 16, dst: group, a: raw });
        for shift in [12, 8, 4, 0] {
            let skip = b.label();
            let upper = b.shr(group, shift);
            if shift > 0 {
                b.br(Jmp::Eq, upper, 0, skip);
            }
            let value = b.and(upper, 15);
            let c = hex(b, value);
            append(b, work, c);
            b.bind(skip);
        }
        next(b);
        b.bind(end);
        stop(b);
    });
    b.jmp(done);

    b.bind(mapped);
    b.br(Jmp::Eq, full, i32::from(PLAIN), bare);
    for c in *b"::ffff:" {
        append(b, work, c);
    }
    b.jmp(bare);
    b.bind(within);
    b.br(Jmp::Eq, full, i32::from(PLAIN), bare);
    append(b, work, b':');
    append(b, work, b':');
    b.bind(bare);
    dotted(b, work, ADDRESS + 12);
    b.bind(done);
    put_appended(b, strsize, target, work);
    b.exit(0);
}

/// Formats so many bytes of the work area into `target`, in hexadecimal with colons.
pub(super) fn link(b: &mut Builder, strsize: u32) {
    let (target, work, count) = (b.param(0), b.param(1), b.param(2));
    b.store(Size::B8, work, LENGTH, 0);
    each(b, "dt_link", count, &[work], |b, turn, addresses| {
        let &[work] = addresses else { return };
        b.if_(Jmp::Lt, turn, 20, |b| {
            b.if_(Jmp::Ne, turn, 0, |b| {
                append(b, work, b':');
            });
            let p = b.add(work, turn);
            let value = b.load(Size::B1, p, ADDRESS);
            for shift in [4, 0] {
                let upper = b.shr(value, shift);
                let figure = b.and(upper, 15);
                let c = hex(b, figure);
                append(b, work, c);
            }
            next(b);
        });
        stop(b);
    });
    put_appended(b, strsize, target, work);
    b.exit(0);
}
