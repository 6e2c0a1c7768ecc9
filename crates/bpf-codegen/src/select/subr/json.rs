//! `json()`: the state machine of `dif::subr`, one iteration a byte, with its state in the work
//! area.

use super::loops::{byte, clear, each, next, put, step, stop};
use super::number::digit;
use crate::mir::{Alu, Builder, Jmp, Label, Size, V};
use crate::routines::words::NULL;

// States: what the next byte belongs to.
const OBJECT: i32 = 1;
const KEY: i32 = 2;
const COLON: i32 = 3;
const VALUE: i32 = 4;
const TEXT: i32 = 5;
const WHOLE: i32 = 6;
const WHOLE_TEXT: i32 = 7;
const WORD: i32 = 8;
const NUMBER: i32 = 9;
const FRACTION: i32 = 10;
const EXPONENT: i32 = 11;
const COMMA: i32 = 12;

// Offsets in the work area.
const AT: i16 = 0;
const ARRAY: i16 = 8;
const POSITION: i16 = 16;
const FOUND: i16 = 24;
const BRACES: i16 = 32;
const BRACKETS: i16 = 40;
const ESCAPE: i16 = 48;
/// Letters of a word, at most eight.
const LETTERS: i16 = 56;
/// Number of characters of a key that match the element so far, or -1.
const SAME: i16 = 64;
/// Start and end of the value.
const FROM: i16 = 72;
const TO: i16 = 80;
/// The current element of the path: start, end, start of the next element (0: none), and its
/// number.
const START: i16 = 88;
const END: i16 = 96;
const NEXT: i16 = 104;
const NUMERAL: i16 = 112;
const NEGATIVE: i16 = 120;
const PHASE: i16 = 128;

/// `json(doc, path)` to `target`.
pub(super) fn json(b: &mut Builder, storage: u32) {
    let (doc, path, target, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    clear(b, storage, target);
    for at in (0..=PHASE).step_by(8) {
        b.store(Size::B8, work, at, 0);
    }
    let c = b.load(Size::B1, path, 0);
    b.if_(Jmp::Eq, c, b'[', |b| {
        b.store(Size::B8, work, START, 1);
    });
    element(b, storage, path, work);
    each(b, "dt_json_byte", storage, &[doc, path, work], |b, turn, addresses| {
        let &[doc, path, work] = addresses else { return };
        turn_of(b, storage, turn, (doc, path, work));
    });
    let (from, to) = (b.load(Size::B8, work, FROM), b.load(Size::B8, work, TO));
    b.if_(Jmp::Ne, to, 0, |b| {
        let count = b.sub(to, from);
        put(b, storage, target, doc, from, count);
        b.exit(0);
    });
    b.store(Size::B8, target, 0, NULL);
    b.exit(0);
}

/// Measures the element that starts at `START`, and parses it as a number.
fn element(b: &mut Builder, storage: u32, path: V, work: V) {
    for at in [NEXT, NUMERAL, NEGATIVE, PHASE] {
        b.store(Size::B8, work, at, 0);
    }
    each(b, "dt_json_element", storage, &[path, work], |b, turn, addresses| {
        let &[path, work] = addresses else { return };
        let (end, on, ends) = (b.label(), b.label(), b.label());
        let start = b.load(Size::B8, work, START);
        let at = b.add(start, turn);
        let c = byte(b, path, at, storage, end);
        b.match_(c, [0, b'.', b'[', b']'].map(|separator| (separator, ends)));
        // Phases of the number: blanks and sign, digits, the rest.
        let (minus, plus, digits, over) = (b.label(), b.label(), b.label(), b.label());
        let phase = b.load(Size::B8, work, PHASE);
        b.match_(phase, [(1, digits), (2, on)]);
        b.match_(c, [(b' ', on), (b'\t', on)]);
        b.store(Size::B8, work, PHASE, 1);
        b.br(Jmp::Eq, c, b'-', minus);
        b.br(Jmp::Ne, c, b'+', digits);
        b.jmp(plus);
        b.bind(minus);
        b.store(Size::B8, work, NEGATIVE, 1);
        b.bind(plus);
        next(b);
        b.bind(digits);
        digit(b, work, c, 10, NUMERAL, over);
        b.bind(on);
        next(b);
        b.bind(over);
        b.store(Size::B8, work, PHASE, 2);
        next(b);

        b.bind(ends);
        b.store(Size::B8, work, END, at);
        b.br(Jmp::Eq, c, 0, end);
        let behind = b.add(at, 1);
        let single = b.label();
        b.br(Jmp::Ne, c, b']', single);
        let c = byte(b, path, behind, storage, end);
        b.if_(Jmp::Ne, c, b'.', |b| {
            b.br(Jmp::Ne, c, b'[', single);
        });
        b.update(Alu::Add, behind, 1);
        b.bind(single);
        let c = byte(b, path, behind, storage, end);
        b.br(Jmp::Eq, c, 0, end);
        b.store(Size::B8, work, NEXT, behind);
        b.bind(end);
        stop(b);
    });
    let negative = b.load(Size::B8, work, NEGATIVE);
    b.if_(Jmp::Ne, negative, 0, |b| {
        let value = b.load(Size::B8, work, NUMERAL);
        let minus = b.neg(value);
        b.store(Size::B8, work, NUMERAL, minus);
    });
}

/// Sets the state for the next byte.
fn set_state(b: &mut Builder, work: V, at: i32) {
    b.store(Size::B8, work, AT, at);
    next(b);
}

/// What the code of all states uses.
struct Turn {
    storage: u32,
    /// The number of the byte.
    turn: V,
    path: V,
    work: V,
    /// The byte.
    c: V,
    /// The state.
    at: V,
    /// Where a byte between values is handled.
    between: Label,
    /// Where a byte of an object or array that is skipped is handled, unless it is a quote.
    skipped: Label,
    /// Keeps the state for the next byte.
    on: Label,
    /// Ends the loop.
    end: Label,
}

fn turn_of(b: &mut Builder, storage: u32, turn: V, (doc, path, work): (V, V, V)) {
    let [between, skipped, on, end, text, whole, scalar] = b.labels();
    let c = byte(b, doc, turn, storage, end);
    b.br(Jmp::Eq, c, 0, end);
    let at = b.load(Size::B8, work, AT);
    let t = Turn { storage, turn, path, work, c, at, between, skipped, on, end };
    b.match_(at, [(KEY, text), (TEXT, text), (WHOLE_TEXT, text), (WHOLE, whole)]);
    b.match_(at, [WORD, NUMBER, FRACTION, EXPONENT].map(|state| (state, scalar)));
    b.bind(between);
    between_values(b, &t);
    b.bind(whole);
    whole_value(b, &t);
    b.bind(scalar);
    word_or_number(b, &t);
    b.bind(text);
    string(b, &t);
    b.bind(on);
    next(b);
    b.bind(end);
    stop(b);
}

/// Blanks, the characters between values, and the first character of a value.
fn between_values(b: &mut Builder, t: &Turn) {
    let Turn { turn, work, c, at, .. } = *t;
    b.br(Jmp::Eq, c, b' ', t.on);
    let control = b.sub(c, i32::from(b'\t'));
    b.br(Jmp::Lt, control, 5, t.on);
    let [object, colon, value, comma, inner] = b.labels();
    b.match_(at, [(OBJECT, object), (COLON, colon), (VALUE, value), (COMMA, comma)]);
    b.match_(c, [(b'{', inner), (b'[', inner)]);
    b.jmp(t.end);
    b.bind(object);
    b.br(Jmp::Ne, c, b'"', t.end);
    b.store(Size::B8, work, SAME, 0);
    set_state(b, work, KEY);
    b.bind(colon);
    b.br(Jmp::Ne, c, b':', t.end);
    set_state(b, work, VALUE);
    b.bind(comma);
    b.br(Jmp::Ne, c, b',', t.end);
    let array = b.load(Size::B8, work, ARRAY);
    b.if_(Jmp::Eq, array, 0, |b| set_state(b, work, OBJECT));
    let position = step(b, work, POSITION, 1);
    begin_item(b, work, position);

    // A value starts.
    b.bind(value);
    let [nested, quoted, number] = b.labels();
    b.store(Size::B8, work, FROM, turn);
    b.match_(c, [(b'{', nested), (b'[', nested), (b'"', quoted), (b'-', number)]);
    let figure = b.sub(c, i32::from(b'0'));
    b.br(Jmp::Lt, figure, 10, number);
    let letter = b.sub(c, i32::from(b'a'));
    b.br(Jmp::Ge, letter, 26, t.end);
    b.store(Size::B8, work, LETTERS, c);
    set_state(b, work, WORD);
    b.bind(number);
    set_state(b, work, NUMBER);
    b.bind(quoted);
    let from = b.add(turn, 1);
    b.store(Size::B8, work, FROM, from);
    set_state(b, work, TEXT);
    b.bind(nested);
    let passed = b.label();
    let found = b.load(Size::B8, work, FOUND);
    b.br(Jmp::Eq, found, 0, passed);
    let following = b.load(Size::B8, work, NEXT);
    b.br(Jmp::Eq, following, 0, passed);
    b.store(Size::B8, work, START, following);
    element(b, t.storage, t.path, work);
    // The path leads into this object or array.
    b.bind(inner);
    b.if_(Jmp::Ne, c, b'[', |b| {
        b.store(Size::B8, work, ARRAY, 0);
        b.store(Size::B8, work, FOUND, 0);
        set_state(b, work, OBJECT);
    });
    b.store(Size::B8, work, ARRAY, 1);
    b.store(Size::B8, work, POSITION, 0);
    let zero = b.imm(0);
    begin_item(b, work, zero);
    b.bind(passed);
    b.store(Size::B8, work, BRACES, 0);
    b.store(Size::B8, work, BRACKETS, 0);
    b.jmp(t.skipped);
}

/// An object or array that is skipped as a whole.
fn whole_value(b: &mut Builder, t: &Turn) {
    let Turn { turn, work, c, .. } = *t;
    b.if_(Jmp::Eq, c, b'"', |b| set_state(b, work, WHOLE_TEXT));
    b.bind(t.skipped);
    let [in_braces, in_brackets, out_brace, out_bracket, counted] = b.labels();
    b.match_(c, [(b'{', in_braces), (b'[', in_brackets), (b'}', out_brace), (b']', out_bracket)]);
    b.jmp(counted);
    b.bind(in_braces);
    step(b, work, BRACES, 1);
    set_state(b, work, WHOLE);
    b.bind(in_brackets);
    step(b, work, BRACKETS, 1);
    set_state(b, work, WHOLE);
    b.bind(out_brace);
    let left = step(b, work, BRACES, -1);
    b.br(Jmp::Slt, left, 0, t.end);
    b.jmp(counted);
    b.bind(out_bracket);
    let left = step(b, work, BRACKETS, -1);
    b.br(Jmp::Slt, left, 0, t.end);
    b.bind(counted);
    let (braces, brackets) = (b.load(Size::B8, work, BRACES), b.load(Size::B8, work, BRACKETS));
    let open = b.or(braces, brackets);
    b.br(Jmp::Ne, open, 0, t.on);
    let found = b.load(Size::B8, work, FOUND);
    b.if_(Jmp::Ne, found, 0, |b| {
        let to = b.add(turn, 1);
        b.store(Size::B8, work, TO, to);
        stop(b);
    });
    set_state(b, work, COMMA);
}

fn word_or_number(b: &mut Builder, t: &Turn) {
    let Turn { turn, work, c, at, .. } = *t;
    let [sign, ends, exponent] = b.labels();
    b.if_(Jmp::Eq, at, WORD, |b| {
        let letter = b.sub(c, i32::from(b'a'));
        b.if_(Jmp::Lt, letter, 26, |b| {
            let letters = b.load(Size::B8, work, LETTERS);
            // A word that is too long stays too long.
            b.br(Jmp::Gt, letters, 0xff_ffff_ffff_i64, t.on);
            let letters = b.shl(letters, 8);
            let letters = b.or(letters, c);
            b.store(Size::B8, work, LETTERS, letters);
            next(b);
        });
        let letters = b.load(Size::B8, work, LETTERS);
        b.match_(letters, [0x7472_7565_i64, 0x66_616c_7365, 0x6e75_6c6c].map(|known| (known, ends)));
        stop(b);
    });
    let figure = b.sub(c, i32::from(b'0'));
    b.br(Jmp::Lt, figure, 10, t.on);
    b.match_(c, [(b'+', sign), (b'-', sign)]);
    b.br(Jmp::Eq, at, EXPONENT, ends);
    let lower = b.or(c, 0x20);
    b.br(Jmp::Eq, lower, b'e', exponent);
    b.br(Jmp::Eq, at, FRACTION, ends);
    b.br(Jmp::Eq, lower, b'x', t.end);
    b.br(Jmp::Ne, c, b'.', ends);
    set_state(b, work, FRACTION);
    b.bind(exponent);
    set_state(b, work, EXPONENT);
    b.bind(sign);
    b.br(Jmp::Eq, at, EXPONENT, t.on);
    stop(b);
    b.bind(ends);
    result(b, work, turn, t.between, at);
}

/// A key, or a value between quotes.
fn string(b: &mut Builder, t: &Turn) {
    let Turn { turn, work, c, at, .. } = *t;
    let [plain, compare, closes] = b.labels();
    let escaped = b.load(Size::B8, work, ESCAPE);
    b.if_(Jmp::Eq, escaped, 0, |b| {
        b.br(Jmp::Ne, c, b'\\', plain);
        b.store(Size::B8, work, ESCAPE, 5);
        b.jmp(compare);
    });
    b.if_(Jmp::Ne, escaped, 5, |b| {
        let figure = b.sub(c, i32::from(b'0'));
        b.if_(Jmp::Ge, figure, 10, |b| {
            let lower = b.or(c, 0x20);
            let letter = b.sub(lower, i32::from(b'a'));
            b.br(Jmp::Ge, letter, 6, t.end);
        });
        step(b, work, ESCAPE, -1);
        b.jmp(compare);
    });
    b.if_else(
        Jmp::Ne,
        c,
        b'u',
        |b| b.store(Size::B8, work, ESCAPE, 0),
        |b| b.store(Size::B8, work, ESCAPE, 4),
    );
    b.jmp(compare);
    b.bind(plain);
    b.br(Jmp::Eq, c, b'"', closes);
    b.bind(compare);
    compare_key(b, t);

    b.bind(closes);
    b.if_(Jmp::Eq, at, TEXT, |b| {
        let behind = b.label();
        result(b, work, turn, behind, at);
        b.bind(behind);
        set_state(b, work, COMMA);
    });
    b.if_(Jmp::Ne, at, KEY, |b| set_state(b, work, WHOLE));
    let same = b.load(Size::B8, work, SAME);
    let start = b.load(Size::B8, work, START);
    let stops = b.load(Size::B8, work, END);
    let place = b.add(start, same);
    let unequal = b.label();
    b.store(Size::B8, work, FOUND, 0);
    b.br(Jmp::Slt, same, 0, unequal);
    b.br(Jmp::Ne, place, stops, unequal);
    b.store(Size::B8, work, FOUND, 1);
    b.bind(unequal);
    set_state(b, work, COLON);
}

/// Compares a character of a key with the element.
fn compare_key(b: &mut Builder, t: &Turn) {
    let Turn { work, c, at, .. } = *t;
    b.br(Jmp::Ne, at, KEY, t.on);
    let differs = b.label();
    let same = b.load(Size::B8, work, SAME);
    b.br(Jmp::Slt, same, 0, t.on);
    let start = b.load(Size::B8, work, START);
    let place = b.add(start, same);
    let stops = b.load(Size::B8, work, END);
    b.br(Jmp::Ge, place, stops, differs);
    let wanted = byte(b, t.path, place, t.storage, differs);
    b.br(Jmp::Ne, wanted, c, differs);
    step(b, work, SAME, 1);
    next(b);
    b.bind(differs);
    b.store(Size::B8, work, SAME, -1);
    next(b);
}

/// Starts an item of an array, which may be the element.
fn begin_item(b: &mut Builder, work: V, position: V) {
    let wanted = b.load(Size::B8, work, NUMERAL);
    b.store(Size::B8, work, FOUND, 0);
    b.if_(Jmp::Eq, position, wanted, |b| {
        b.store(Size::B8, work, FOUND, 1);
    });
    set_state(b, work, VALUE);
}

/// Ends a value before the byte of this iteration. When the value is the element, it is the result,
/// unless the path continues. Otherwise the code at `behind` handles the byte, with `at` as a
/// comma.
fn result(b: &mut Builder, work: V, turn: V, behind: Label, at: V) {
    let found = b.load(Size::B8, work, FOUND);
    b.if_(Jmp::Ne, found, 0, |b| {
        let following = b.load(Size::B8, work, NEXT);
        b.if_(Jmp::Eq, following, 0, |b| {
            b.store(Size::B8, work, TO, turn);
        });
        stop(b);
    });
    b.store(Size::B8, work, AT, COMMA);
    b.set(at, COMMA);
    b.jmp(behind);
}
