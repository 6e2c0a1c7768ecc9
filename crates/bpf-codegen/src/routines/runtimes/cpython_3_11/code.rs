//! What a frame of Python is called: the place of its code object in the store, and its line.
//!
//! The strings of a code object are read into the window of the walk, where an entry of the store
//! is made of them ([`names`](super::super::names)). The tag by which a word is remembered is of
//! the program, the code object, the instruction, the addresses of the strings and of the line
//! table, and of each string the length and the hash that the interpreter keeps of it, or its
//! characters where it keeps none. So a code object that takes the place of another is another one.
//! (Of the line table it is the address only: lines could be those of a function that was there
//! with the same names.)
//!
//! ```text
//!  given   the frame, a part of its code object, its strings (from their lengths on)
//!          what is needed to find a line                      see `line`
//! ```

use plane::calls::{
    FILE_SIZE_SHIFT, HEAD, LINE_SHIFT, NAME_MAX, NAME_SIZE_SHIFT, NAME_WIDTH_SHIFT, PLACE_SHIFT,
};
use runtimes::cpython_3_11::*;

use super::given::*;
use super::line;
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, Size, V};
use crate::plan::Plan;
use crate::routines::runtimes::names::{self, mix};
use crate::routines::window::{BYTES, WINDOW_SIZE};

/// Bytes that are read at the end of a long string.
const TAIL: u32 = 64;

/// A string of a code object: where its address is, where it is read to, and how much of it.
#[derive(Clone, Copy)]
struct Text {
    address: i16,
    at: i16,
    bytes: u32,
}

const FILE: Text = Text { address: G_CODE + C_FILE, at: G_FILE, bytes: FILE_BYTES };
const NAME: Text = Text { address: G_CODE + C_NAME, at: G_NAME, bytes: NAME_BYTES };

/// The word of a frame without the number of a frame of the stack; 0 if it cannot be read. Its
/// parameters: what is known of the frame, the words that this CPU remembers, the window, and what
/// tells the program from others.
pub(super) fn frame_name(b: &mut Builder, plan: &Plan) {
    let (given, remembered, window, who) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let none = b.label();
    let code = b.load(Size::B8, given, G_FRAME + F_CODE);
    let kept = b.load(Size::B8, given, KEPT_CODE);
    b.if_(Jmp::Ne, kept, code, |b| {
        read_code(b, given, code, none);
    });
    let at = b.load(Size::B8, given, G_FRAME + F_INSTRUCTION);
    let instruction = b.sub(at, code);
    b.update(Alu::Sub, instruction, INSTRUCTIONS);
    b.update(Alu::Arsh, instruction, 1);
    b.if_(Jmp::Slt, instruction, 0, |b| {
        b.set(instruction, line::BEFORE);
    });
    b.store(Size::B8, given, TARGET, instruction);
    let tag = names::tag(b, plan);
    for word in [who, code, instruction] {
        mix(b, tag, word);
    }
    for (at, size) in
        [(G_FIRST_LINE, Size::B4), (FILE.address, Size::B8), (NAME.address, Size::B8), (G_LINES, Size::B8)]
    {
        let word = b.load(size, given, at);
        mix(b, tag, word);
    }
    for text in [FILE, NAME] {
        mix_text(b, given, text, tag, none);
    }
    let memory = names::exit_with_remembered(b, plan, remembered, tag);
    let args = [Arg::Memory(given, GIVEN_SIZE), Arg::Memory(window, WINDOW_SIZE)];
    let place = b.call_global("dt_python_code", &args, |b| place_of_code(b, plan));
    b.br(Jmp::Eq, place, 0, none);
    let line = b.call_global("dt_python_line", &[Arg::Memory(given, GIVEN_SIZE)], line::find);
    let value = b.shl(place, i64::from(PLACE_SHIFT));
    let line = b.shl(line, i64::from(LINE_SHIFT));
    let value = b.or(value, line);
    names::remember(b, memory, tag, value);
    b.exit(value);
    b.bind(none);
    b.exit(0);
}

/// Reads a code object and its strings.
fn read_code(b: &mut Builder, given: V, code: V, none: Label) {
    b.store(Size::B8, given, KEPT_CODE, 0);
    let (from, size) = (b.add(code, CODE_AT), b.imm(i64::from(CODE_BYTES)));
    let to = b.add(given, i32::from(G_CODE));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
    b.br(Jmp::Ne, failed, 0, none);
    let file = b.load(Size::B8, given, FILE.address);
    let kept = b.load(Size::B8, given, KEPT_FILE);
    b.if_(Jmp::Ne, kept, file, |b| {
        b.store(Size::B8, given, KEPT_FILE, 0);
        read_text(b, given, FILE, none);
        b.store(Size::B8, given, KEPT_FILE, file);
    });
    read_text(b, given, NAME, none);
    b.store(Size::B8, given, KEPT_CODE, code);
}

/// Reads a string from its length on.
fn read_text(b: &mut Builder, given: V, text: Text, none: Label) {
    let string = b.load(Size::B8, given, text.address);
    let from = b.add(string, LENGTH);
    let to = b.add(given, i32::from(text.at));
    let size = b.imm(i64::from(text.bytes));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
    b.if_(Jmp::Ne, failed, 0, |b| {
        // What is behind it may not be there.
        let head = b.imm(i64::from(S_TEXT));
        let failed = b.call(Helper::PROBE_READ_USER, &[to, head, from]);
        b.br(Jmp::Ne, failed, 0, none);
        let Shape { size, more, .. } = shape(b, given, text, none);
        let size = b.add(size, more);
        let most = i64::from(text.bytes) - i64::from(S_TEXT);
        b.if_(Jmp::Gt, size, most, |b| {
            b.set(size, most);
        });
        let (to, from) = (b.add(to, i32::from(S_TEXT)), b.add(from, i32::from(S_TEXT)));
        let failed = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
        b.br(Jmp::Ne, failed, 0, none);
    });
}

/// What a string says of itself.
struct Shape {
    /// The bytes of its characters, of which there may be more.
    size: V,
    /// By how much they are behind those of an ASCII string.
    more: V,
    /// The bytes of a character.
    width: V,
}

fn shape(b: &mut Builder, given: V, text: Text, none: Label) -> Shape {
    let length = b.load(Size::B8, given, text.at);
    let state = b.load(Size::B4, given, text.at + S_STATE);
    let compact = b.shr(state, COMPACT_BIT);
    let compact = b.and(compact, 1);
    b.br(Jmp::Eq, compact, 0, none);
    let width = b.shr(state, KIND_SHIFT);
    let width = b.and(width, 7);
    b.if_(Jmp::Gt, length, i64::from(NAME_MAX), |b| {
        b.set(length, i64::from(NAME_MAX));
    });
    let size = b.mul(length, width);
    b.if_(Jmp::Gt, size, i64::from(NAME_MAX), |b| {
        b.set(size, i64::from(NAME_MAX));
    });
    let ascii = b.shr(state, ASCII_BIT);
    let other = b.and(ascii, 1);
    let other = b.xor(other, 1);
    let more = b.mul(other, OTHERS_MORE);
    Shape { size, more, width }
}

/// Adds a string to a tag: its length and its hash, or its characters if it has no hash yet.
fn mix_text(b: &mut Builder, given: V, text: Text, tag: V, none: Label) {
    let done = b.label();
    let length = b.load(Size::B8, given, text.at);
    mix(b, tag, length);
    let hash = b.load(Size::B8, given, text.at + S_HASH);
    mix(b, tag, hash);
    b.br(Jmp::Ne, hash, NO_HASH, done);
    let Shape { size, more, .. } = shape(b, given, text, none);
    let size = b.add(size, more);
    let here = text.bytes - S_TEXT as u32;
    for at in (0..here).step_by(8) {
        b.br(Jmp::Le, size, i64::from(at), done);
        let word = b.load(Size::B8, given, text.at + S_TEXT + at as i16);
        mix(b, tag, word);
    }
    b.br(Jmp::Le, size, i64::from(here), done);
    let string = b.load(Size::B8, given, text.address);
    let end = b.add(string, size);
    let from = b.add(end, LENGTH + i32::from(S_TEXT) - TAIL as i32);
    let (to, bytes) = (b.add(given, i32::from(LINE_TEXT)), b.imm(i64::from(TAIL)));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, bytes, from]);
    b.br(Jmp::Ne, failed, 0, none);
    for at in (0..TAIL as i16).step_by(8) {
        let word = b.load(Size::B8, given, LINE_TEXT + at);
        mix(b, tag, word);
    }
    b.bind(done);
}

/// The place of a code object in the store: by its content, which is stored if it is new. 0 if it
/// cannot be read, [`NO_SPACE`] if it cannot be stored.
fn place_of_code(b: &mut Builder, plan: &Plan) {
    let (given, window) = (b.param(0), b.param(1));
    let none = b.label();
    let entry = b.add(window, i32::from(BYTES));
    let head = b.load(Size::B4, given, G_FIRST_LINE);
    let widths = b.copy(0);
    let words = b.copy(i64::from(HEAD / 8));
    for (text, size_shift, width_shift) in
        [(FILE, FILE_SIZE_SHIFT, 0), (NAME, NAME_SIZE_SHIFT, NAME_WIDTH_SHIFT)]
    {
        let Shape { size, more, width } = shape(b, given, text, none);
        let above = b.shl(size, i64::from(size_shift));
        b.update(Alu::Or, head, above);
        let above = b.shl(width, i64::from(width_shift));
        b.update(Alu::Or, widths, above);
        let offset = b.shl(words, 3);
        let to = b.add(entry, offset);
        // What is behind its last byte is hashed, too.
        let whole = b.shr(size, 3);
        let offset = b.shl(whole, 3);
        let end = b.add(to, offset);
        b.store(Size::B8, end, 0, 0);
        let string = b.load(Size::B8, given, text.address);
        let from = b.add(string, more);
        let from = b.add(from, LENGTH + i32::from(S_TEXT));
        let failed = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
        b.br(Jmp::Ne, failed, 0, none);
        let taken = b.add(size, 7);
        let taken = b.shr(taken, 3);
        b.update(Alu::Add, words, taken);
    }
    b.store(Size::B8, entry, 0, head);
    b.store(Size::B8, entry, 8, widths);
    names::exit_with_entry(b, plan, entry, words);
    b.bind(none);
    b.exit(0);
}

const _: () = assert!(NAME_MAX.is_multiple_of(8));
