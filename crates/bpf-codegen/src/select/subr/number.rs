//! Numbers: conversion to and from text, byte order, device numbers, random numbers.

use dif::ir::{FaultKind, Value};

use super::loops::{LENGTH, byte, each, next, prepend, put_prepended, stop};
use super::needs::WORK;
use crate::mir::{Alu, Arg, Builder, Helper, Inst, Jmp, Operand, Size, V};
use crate::select::clause::Clause;

/// The largest base: ten digits and 26 letters.
const BASES: i64 = 36;

impl Clause<'_, '_> {
    /// The low `bits` in network byte order.
    pub(super) fn swap(&mut self, bits: u8, value: Value) -> V {
        let a = self.reg(value);
        let dst = self.b.var();
        self.b.push(Inst::ToBe { bits, dst, a });
        dst
    }

    /// 31 bits, because D's `rand()` is an `int` that is never negative.
    pub(super) fn rand(&mut self) -> V {
        let random = self.b.call(Helper::GET_PRANDOM_U32, &[]);
        self.b.and(random, 0x7fff_ffff)
    }

    /// The major or minor number of the kernel's `dev_t`.
    pub(super) fn device(&mut self, major: bool, value: Value) -> V {
        let device = self.reg(value);
        if major {
            let low = self.b.low32(device);
            self.b.shr(low, 20)
        } else {
            self.b.and(device, (1 << 20) - 1)
        }
    }

    /// A base. Faults when the base is invalid.
    pub(super) fn base(&mut self, value: Value) -> Arg {
        let base = self.reg(value);
        let bad = self.fault(FaultKind::IllegalOp, Operand::Imm(0));
        self.b.br(Jmp::Slt, base, 2, bad);
        self.b.br(Jmp::Sgt, base, BASES, bad);
        Arg::Word(base)
    }
}

// Offsets in the work area. The length of the text is there too.
const LEFT: i16 = 0;
const BASE: i16 = 16;
const NEGATIVE: i16 = 24;
const PHASE: i16 = 32;

/// `lltostr(value, base)` to `target`.
pub(super) fn lltostr(b: &mut Builder, strsize: u32) {
    let (target, value, base, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    b.store(Size::B8, work, LENGTH, 0);
    b.store(Size::B8, work, BASE, base);
    let left = b.copy(value);
    let (unsigned, sign, done) = (b.label(), b.label(), b.label());
    b.br(Jmp::Ne, base, 10, unsigned);
    b.br(Jmp::Sge, left, 0, unsigned);
    let minus = b.neg(left);
    b.set(left, minus);
    b.bind(unsigned);
    b.store(Size::B8, work, LEFT, left);
    each(b, "dt_digits", 64, &[work], |b, _, addresses| {
        let &[work] = addresses else { return };
        let end = b.label();
        let left = b.load(Size::B8, work, LEFT);
        let base = b.load(Size::B8, work, BASE);
        b.br(Jmp::Eq, left, 0, end);
        let value = b.alu(Alu::Mod, left, base);
        let rest = b.alu(Alu::Div, left, base);
        b.store(Size::B8, work, LEFT, rest);
        let c = b.add(value, i32::from(b'0'));
        b.if_(Jmp::Ge, value, 10, |b| {
            b.update(Alu::Add, c, i32::from(b'a' - b'0' - 10));
        });
        prepend(b, work, c);
        next(b);
        b.bind(end);
        stop(b);
    });
    let plain = b.label();
    b.if_(Jmp::Ne, base, 8, |b| {
        b.br(Jmp::Ne, base, 16, plain);
        b.if_(Jmp::Eq, value, 0, |b| {
            prepend(b, work, b'0');
        });
        prepend(b, work, b'x');
    });
    prepend(b, work, b'0');
    b.jmp(done);
    b.bind(plain);
    b.if_(Jmp::Ne, value, 0, |b| {
        b.br(Jmp::Eq, base, 10, sign);
        b.jmp(done);
    });
    prepend(b, work, b'0');
    b.jmp(done);
    b.bind(sign);
    b.br(Jmp::Sge, value, 0, done);
    prepend(b, work, b'-');
    b.bind(done);
    put_prepended(b, strsize, target, work);
    b.exit(0);
}

/// `strtoll(s, base)`.
pub(super) fn strtoll(b: &mut Builder, storage: u32) {
    let (s, base, work) = (b.param(0), b.param(1), b.param(2));
    for at in [LEFT, NEGATIVE, PHASE] {
        b.store(Size::B8, work, at, 0);
    }
    b.store(Size::B8, work, BASE, base);
    // Phases: blanks and sign; a zero that may start "0x"; the x; digits.
    each(b, "dt_number", storage, &[s, work], |b, turn, addresses| {
        let &[s, work] = addresses else { return };
        let (end, on, zero, x, digits) = (b.label(), b.label(), b.label(), b.label(), b.label());
        let c = byte(b, s, turn, storage, end);
        let base = b.load(Size::B8, work, BASE);
        let phase = b.load(Size::B8, work, PHASE);
        b.match_(phase, [(1, zero), (2, x), (3, digits)]);
        let (minus, plus) = (b.label(), b.label());
        b.match_(c, [(b' ', on), (b'\t', on), (b'-', minus)]);
        b.br(Jmp::Ne, c, b'+', zero);
        b.jmp(plus);
        b.bind(minus);
        b.store(Size::B8, work, NEGATIVE, 1);
        b.bind(plus);
        b.store(Size::B8, work, PHASE, 1);
        b.bind(on);
        next(b);
        b.bind(zero);
        b.store(Size::B8, work, PHASE, 3);
        b.br(Jmp::Ne, base, 16, digits);
        b.br(Jmp::Ne, c, b'0', digits);
        b.store(Size::B8, work, PHASE, 2);
        next(b);
        b.bind(x);
        b.store(Size::B8, work, PHASE, 3);
        let lower = b.or(c, 0x20);
        b.br(Jmp::Eq, lower, b'x', on);
        b.bind(digits);
        digit(b, work, c, base, LEFT, end);
        next(b);
        b.bind(end);
        stop(b);
    });
    let value = b.load(Size::B8, work, LEFT);
    let negative = b.load(Size::B8, work, NEGATIVE);
    b.if_(Jmp::Ne, negative, 0, |b| {
        let minus = b.neg(value);
        b.exit(minus);
    });
    b.exit(value);
}

/// Adds a digit to a number in the work area. Jumps to `end` when the character is no digit.
pub(super) fn digit(
    b: &mut Builder,
    work: V,
    c: V,
    base: impl Into<Operand>,
    at: i16,
    end: crate::mir::Label,
) {
    let base = b.reg(base);
    let value = b.sub(c, i32::from(b'0'));
    b.if_(Jmp::Ge, value, 10, |b| {
        // A letter. Unsigned, so all characters before 'a' become large.
        let lower = b.or(c, 0x20);
        let letter = b.sub(lower, i32::from(b'a'));
        b.br(Jmp::Ge, letter, 26, end);
        let letter = b.add(letter, 10);
        b.set(value, letter);
    });
    b.br(Jmp::Ge, value, base, end);
    let sum = b.load(Size::B8, work, at);
    let sum = b.mul(sum, base);
    let sum = b.add(sum, value);
    b.store(Size::B8, work, at, sum);
}

/// The work area as an argument of a function.
pub(super) fn work(work: V) -> Arg {
    Arg::Memory(work, WORK)
}
