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
pub(super) fn json(b: &mut Builder, room: u32) {
    let (doc, path, target, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    clear(b, room, target);
    for at in (0..=PHASE).step_by(8) {
        b.store(Size::B8, work, at, 0);
    }
    let begin = b.label();
    let c = b.load(Size::B1, path, 0);
    b.br(Jmp::Ne, c, b'[', begin);
    b.store(Size::B8, work, START, 1);
    b.bind(begin);
    element(b, room, path, work);
    each(b, "dt_json_byte", room, &[doc, path, work], |b, turn, addresses| {
        let &[doc, path, work] = addresses else { return };
        turn_of(b, room, turn, (doc, path, work));
    });
    let (from, to) = (b.load(Size::B8, work, FROM), b.load(Size::B8, work, TO));
    let none = b.label();
    b.br(Jmp::Eq, to, 0, none);
    let count = b.sub(to, from);
    put(b, room, target, doc, from, count);
    b.exit(0);
    b.bind(none);
    b.store(Size::B8, target, 0, NULL);
    b.exit(0);
}

/// Measures the element that starts at `START`, and parses it as a number.
fn element(b: &mut Builder, room: u32, path: V, work: V) {
    for at in [NEXT, NUMERAL, NEGATIVE, PHASE] {
        b.store(Size::B8, work, at, 0);
    }
    each(b, "dt_json_element", room, &[path, work], |b, turn, addresses| {
        let &[path, work] = addresses else { return };
        let (end, on, ends) = (b.label(), b.label(), b.label());
        let start = b.load(Size::B8, work, START);
        let at = b.add(start, turn);
        let c = byte(b, path, at, room, end);
        b.br(Jmp::Eq, c, 0, ends);
        for separator in [b'.', b'[', b']'] {
            b.br(Jmp::Eq, c, separator, ends);
        }
        // Phases of the number: blanks and sign, digits, the rest.
        let (minus, plus, digits, over) = (b.label(), b.label(), b.label(), b.label());
        let phase = b.load(Size::B8, work, PHASE);
        b.br(Jmp::Eq, phase, 1, digits);
        b.br(Jmp::Eq, phase, 2, on);
        b.br(Jmp::Eq, c, b' ', on);
        b.br(Jmp::Eq, c, b'\t', on);
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
        let (single, double) = (b.label(), b.label());
        b.br(Jmp::Ne, c, b']', single);
        let c = byte(b, path, behind, room, end);
        b.br(Jmp::Eq, c, b'.', double);
        b.br(Jmp::Ne, c, b'[', single);
        b.bind(double);
        b.update(Alu::Add, behind, 1);
        b.bind(single);
        let c = byte(b, path, behind, room, end);
        b.br(Jmp::Eq, c, 0, end);
        b.store(Size::B8, work, NEXT, behind);
        b.bind(end);
        stop(b);
    });
    let positive = b.label();
    let negative = b.load(Size::B8, work, NEGATIVE);
    b.br(Jmp::Eq, negative, 0, positive);
    let value = b.load(Size::B8, work, NUMERAL);
    let minus = b.neg(value);
    b.store(Size::B8, work, NUMERAL, minus);
    b.bind(positive);
}

/// Sets the state for the next byte.
fn set_state(b: &mut Builder, work: V, at: i32) {
    b.store(Size::B8, work, AT, at);
    next(b);
}

fn turn_of(b: &mut Builder, room: u32, turn: V, (doc, path, work): (V, V, V)) {
    let end = b.label();
    let c = byte(b, doc, turn, room, end);
    b.br(Jmp::Eq, c, 0, end);
    let at = b.load(Size::B8, work, AT);
    let (text, whole, scalar, comma, inner) = (b.label(), b.label(), b.label(), b.label(), b.label());
    let on = b.label();
    for state in [KEY, TEXT, WHOLE_TEXT] {
        b.br(Jmp::Eq, at, state, text);
    }
    b.br(Jmp::Eq, at, WHOLE, whole);
    for state in [WORD, NUMBER, FRACTION, EXPONENT] {
        b.br(Jmp::Eq, at, state, scalar);
    }

    // Blanks, and the characters between values.
    let between = b.label();
    b.bind(between);
    b.br(Jmp::Eq, c, b' ', on);
    let control = b.sub(c, i32::from(b'\t'));
    b.br(Jmp::Lt, control, 5, on);
    let (object, colon, value) = (b.label(), b.label(), b.label());
    b.br(Jmp::Eq, at, OBJECT, object);
    b.br(Jmp::Eq, at, COLON, colon);
    b.br(Jmp::Eq, at, VALUE, value);
    b.br(Jmp::Eq, at, COMMA, comma);
    b.br(Jmp::Eq, c, b'{', inner);
    b.br(Jmp::Eq, c, b'[', inner);
    b.bind(end);
    stop(b);
    b.bind(object);
    b.br(Jmp::Ne, c, b'"', end);
    b.store(Size::B8, work, SAME, 0);
    set_state(b, work, KEY);
    b.bind(colon);
    b.br(Jmp::Ne, c, b':', end);
    set_state(b, work, VALUE);
    b.bind(comma);
    b.br(Jmp::Ne, c, b',', end);
    let another = b.label();
    let array = b.load(Size::B8, work, ARRAY);
    b.br(Jmp::Ne, array, 0, another);
    set_state(b, work, OBJECT);
    b.bind(another);
    let position = step(b, work, POSITION, 1);
    begin_item(b, work, position);

    // A value starts.
    b.bind(value);
    let (nested, in_braces, quoted, number) = (b.label(), b.label(), b.label(), b.label());
    b.store(Size::B8, work, FROM, turn);
    b.br(Jmp::Eq, c, b'{', nested);
    b.br(Jmp::Eq, c, b'[', nested);
    b.br(Jmp::Eq, c, b'"', quoted);
    b.br(Jmp::Eq, c, b'-', number);
    let figure = b.sub(c, i32::from(b'0'));
    b.br(Jmp::Lt, figure, 10, number);
    let letter = b.sub(c, i32::from(b'a'));
    b.br(Jmp::Ge, letter, 26, end);
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
    element(b, room, path, work);
    // The path leads into this object or array.
    b.bind(inner);
    let list = b.label();
    b.br(Jmp::Eq, c, b'[', list);
    b.store(Size::B8, work, ARRAY, 0);
    b.store(Size::B8, work, FOUND, 0);
    set_state(b, work, OBJECT);
    b.bind(list);
    b.store(Size::B8, work, ARRAY, 1);
    b.store(Size::B8, work, POSITION, 0);
    let zero = b.imm(0);
    begin_item(b, work, zero);
    b.bind(passed);
    b.store(Size::B8, work, BRACES, 0);
    b.store(Size::B8, work, BRACKETS, 0);
    let count = b.label();
    b.jmp(count);

    // An object or array that is skipped as a whole.
    b.bind(whole);
    let quote = b.label();
    b.br(Jmp::Eq, c, b'"', quote);
    b.bind(count);
    b.br(Jmp::Eq, c, b'{', in_braces);
    let (in_brackets, out_brace, out_bracket, counted) = (b.label(), b.label(), b.label(), b.label());
    b.br(Jmp::Eq, c, b'[', in_brackets);
    b.br(Jmp::Eq, c, b'}', out_brace);
    b.br(Jmp::Eq, c, b']', out_bracket);
    b.jmp(counted);
    b.bind(in_braces);
    step(b, work, BRACES, 1);
    set_state(b, work, WHOLE);
    b.bind(in_brackets);
    step(b, work, BRACKETS, 1);
    set_state(b, work, WHOLE);
    b.bind(quote);
    set_state(b, work, WHOLE_TEXT);
    b.bind(out_brace);
    let left = step(b, work, BRACES, -1);
    b.br(Jmp::Slt, left, 0, end);
    b.jmp(counted);
    b.bind(out_bracket);
    let left = step(b, work, BRACKETS, -1);
    b.br(Jmp::Slt, left, 0, end);
    b.bind(counted);
    let (braces, brackets) = (b.load(Size::B8, work, BRACES), b.load(Size::B8, work, BRACKETS));
    let open = b.or(braces, brackets);
    b.br(Jmp::Ne, open, 0, on);
    let found = b.load(Size::B8, work, FOUND);
    let missed = b.label();
    b.br(Jmp::Eq, found, 0, missed);
    let to = b.add(turn, 1);
    b.store(Size::B8, work, TO, to);
    stop(b);
    b.bind(missed);
    set_state(b, work, COMMA);

    // Words and numbers.
    b.bind(scalar);
    let (word, ends, figures, no_number) = (b.label(), b.label(), b.label(), b.label());
    b.br(Jmp::Eq, at, WORD, word);
    let figure = b.sub(c, i32::from(b'0'));
    b.br(Jmp::Lt, figure, 10, on);
    let sign = b.label();
    b.br(Jmp::Eq, c, b'+', sign);
    b.br(Jmp::Eq, c, b'-', sign);
    b.br(Jmp::Eq, at, EXPONENT, ends);
    let lower = b.or(c, 0x20);
    b.br(Jmp::Eq, lower, b'e', figures);
    b.br(Jmp::Eq, at, FRACTION, ends);
    b.br(Jmp::Eq, lower, b'x', no_number);
    b.br(Jmp::Ne, c, b'.', ends);
    set_state(b, work, FRACTION);
    b.bind(figures);
    set_state(b, work, EXPONENT);
    b.bind(sign);
    b.br(Jmp::Eq, at, EXPONENT, on);
    b.bind(no_number);
    stop(b);
    b.bind(word);
    let letter = b.sub(c, i32::from(b'a'));
    let over = b.label();
    b.br(Jmp::Ge, letter, 26, over);
    let letters = b.load(Size::B8, work, LETTERS);
    // A word that is too long stays too long.
    b.br(Jmp::Gt, letters, 0xff_ffff_ffff_i64, on);
    let letters = b.shl(letters, 8);
    let letters = b.or(letters, c);
    b.store(Size::B8, work, LETTERS, letters);
    b.bind(on);
    next(b);
    b.bind(over);
    let letters = b.load(Size::B8, work, LETTERS);
    for known in [0x7472_7565_i64, 0x66_616c_7365, 0x6e75_6c6c] {
        b.br(Jmp::Eq, letters, known, ends);
    }
    stop(b);
    b.bind(ends);
    result(b, work, turn, between, at);

    // Strings.
    b.bind(text);
    let (escape, plain) = (b.label(), b.label());
    let escaped = b.load(Size::B8, work, ESCAPE);
    b.br(Jmp::Ne, escaped, 0, escape);
    b.br(Jmp::Ne, c, b'\\', plain);
    b.store(Size::B8, work, ESCAPE, 5);
    let compare = b.label();
    b.jmp(compare);
    b.bind(escape);
    let (first, hex) = (b.label(), b.label());
    b.br(Jmp::Eq, escaped, 5, first);
    let figure = b.sub(c, i32::from(b'0'));
    b.br(Jmp::Lt, figure, 10, hex);
    let lower = b.or(c, 0x20);
    let letter = b.sub(lower, i32::from(b'a'));
    b.br(Jmp::Ge, letter, 6, no_number);
    b.bind(hex);
    step(b, work, ESCAPE, -1);
    b.jmp(compare);
    b.bind(first);
    let unicode = b.label();
    b.br(Jmp::Eq, c, b'u', unicode);
    b.store(Size::B8, work, ESCAPE, 0);
    b.jmp(compare);
    b.bind(unicode);
    b.store(Size::B8, work, ESCAPE, 4);
    b.jmp(compare);
    b.bind(plain);
    let (closes, key_ends, text_ends) = (b.label(), b.label(), b.label());
    b.br(Jmp::Eq, c, b'"', closes);
    b.bind(compare);
    b.br(Jmp::Ne, at, KEY, on);
    let differs = b.label();
    let same = b.load(Size::B8, work, SAME);
    b.br(Jmp::Slt, same, 0, on);
    let start = b.load(Size::B8, work, START);
    let place = b.add(start, same);
    let stops = b.load(Size::B8, work, END);
    b.br(Jmp::Ge, place, stops, differs);
    let wanted = byte(b, path, place, room, differs);
    b.br(Jmp::Ne, wanted, c, differs);
    step(b, work, SAME, 1);
    next(b);
    b.bind(differs);
    b.store(Size::B8, work, SAME, -1);
    next(b);
    b.bind(closes);
    b.br(Jmp::Eq, at, KEY, key_ends);
    b.br(Jmp::Eq, at, TEXT, text_ends);
    set_state(b, work, WHOLE);
    b.bind(key_ends);
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
    b.bind(text_ends);
    let behind = b.label();
    result(b, work, turn, behind, at);
    b.bind(behind);
    set_state(b, work, COMMA);
}

/// Starts an item of an array, which may be the element.
fn begin_item(b: &mut Builder, work: V, position: V) {
    let other = b.label();
    let wanted = b.load(Size::B8, work, NUMERAL);
    b.store(Size::B8, work, FOUND, 0);
    b.br(Jmp::Ne, position, wanted, other);
    b.store(Size::B8, work, FOUND, 1);
    b.bind(other);
    set_state(b, work, VALUE);
}

/// Ends a value before the byte of this iteration. When the value is the element, it is the result,
/// unless the path continues. Otherwise the code at `behind` handles the byte, with `at` as a
/// comma.
fn result(b: &mut Builder, work: V, turn: V, behind: Label, at: V) {
    let (missed, leads_on) = (b.label(), b.label());
    let found = b.load(Size::B8, work, FOUND);
    b.br(Jmp::Eq, found, 0, missed);
    let following = b.load(Size::B8, work, NEXT);
    b.br(Jmp::Ne, following, 0, leads_on);
    b.store(Size::B8, work, TO, turn);
    b.bind(leads_on);
    stop(b);
    b.bind(missed);
    b.store(Size::B8, work, AT, COMMA);
    b.set(at, COMMA);
    b.jmp(behind);
}
