//! The frames of CPython's interpreter in the stack of a process ([`plane::python`] has what is stored of them).
//!
//! They are followed behind a walk by tables. Each call of the interpreter's function has a struct on the stack (`_PyCFrame`), which
//! leads to the frames of Python that it runs. So where the struct is says which frame of the stack that call has: the walk notes where
//! each of its frames ends, and the frames of Python come to the first whose end is above the struct.
//!
//! A thread is found by the base of its thread-local storage, which `pthread_self()` is everywhere. (Its number would be another one in
//! a pid namespace, and that of the parent after a fork.) If it is the one that runs, that is all. Otherwise a thread-specific value has its
//! state, where the C library is glibc and there is one interpreter. In other cases it is searched in the list of threads, which others
//! may change meanwhile.
//!
//! ```text
//!  area of the stack   frames, state of the walk             see `stack`
//!  calls     +0        count, words                          what is kept
//!            ends      where each frame of the stack ends
//!            state     thread's frame, its struct, the number of a frame of the stack
//!                      a frame, a code object, the heads of its strings
//!            joined    an entry of the store with both
//! ```
//!
//! ARCH(x86-64): the base of the thread-local storage, and where glibc has thread-specific values.
//!
//! The layouts are those of CPython 3.11 on machines of 64 bits (`Include/internal/pycore_frame.h`, `pycore_runtime.h`, `pycore_interp.h`,
//! `Include/cpython/pystate.h`, `code.h`, `unicodeobject.h`). They did not change between its releases: a debug build has others, and its
//! `Py_Version` is the same, but its objects begin with two words more, so that what is read as a string is none.

use plane::control::DropKind;
use plane::python::{
    CODES, ENTRY_MAX, FILE_SIZE, FILE_WIDTH, FIRST, FIRST_LINE, HEAD, INSTRUCTION_SHIFT, KEY, LINES_MAX,
    LINES_SIZE, NAME_MAX, NAME_SIZE, NAME_WIDTH, NO_INSTRUCTION, PLACE_SHIFT, STORE,
};

use super::{count_drop, firing};
use crate::mir::{Alu, Arg, AtomicOp, Builder, Helper, Jmp, Label, MapRef, Size, StackSlot, V};
use crate::plan::Plan;

/// `_PyRuntimeState`: the first interpreter, and the thread that runs.
const INTERPRETERS: i32 = 40;
const RUNNING: i32 = 576;
/// The number of the thread-specific value that is the state of a thread.
const KEY_OF_THREAD: i32 = 596;
/// glibc's `struct pthread`, at the base of the thread-local storage: the first of the thread-specific values, 32 in all, each behind a
/// word. It has been there in all releases for x86-64; what is found is compared with the thread, so nothing depends on it.
const SPECIFIC: i32 = 0x310 + 8;
const SPECIFIC_MAX: i64 = 32;
/// `PyInterpreterState`: the next, and its first thread.
const NEXT_INTERPRETER: i32 = 0;
const THREADS: i32 = 16;
/// `PyThreadState`.
const NEXT_THREAD: i32 = 8;
const CFRAME: i32 = 56;
const THREAD_ID: i32 = 152;
/// `_PyCFrame`.
const CURRENT: i32 = 8;
const PREVIOUS_CFRAME: i32 = 16;
/// `_PyInterpreterFrame`, of which so many bytes are read.
const FRAME_BYTES: u32 = 72;
const F_CODE: i16 = 32;
const F_PREVIOUS: i16 = 48;
const F_INSTRUCTION: i16 = 56;
/// True in the first frame that a call of the interpreter's function runs.
const F_IS_ENTRY: i16 = 68;
/// `PyCodeObject`: where its instructions begin, and the part that is read.
const INSTRUCTIONS: i32 = 184;
const CODE_AT: i32 = 72;
const CODE_BYTES: u32 = 72;
/// In that part: first line, file, qualified name, line table.
const C_FIRST_LINE: i16 = 0;
const C_FILE: i16 = 40;
const C_NAME: i16 = 56;
const C_LINES: i16 = 64;
/// The head of an object with a length, and what follows it in a string: its hash, its state.
const LENGTH: i32 = 16;
const STRING_BYTES: u32 = 24;
const S_STATE: i16 = 16;
/// In the state of a string.
const KIND_SHIFT: i64 = 2;
const COMPACT_BIT: i64 = 5;
const ASCII_BIT: i64 = 6;
/// Where the characters of a string begin: those of an ASCII string, and the difference to others.
const ASCII_AT: i64 = 48;
const OTHERS_MORE: i64 = 24;
/// Where the bytes of `bytes` begin.
const BYTES_AT: i32 = 32;

/// The most steps of the search for a thread.
const THREADS_MAX: i64 = 4096;

/// Offsets in the state.
const FRAME: i16 = 0;
const STRUCT: i16 = 8;
const NUMBER: i16 = 16;
/// What a function gets: the frame of Python, the part of its code object, the heads of its strings.
const GIVEN: u32 = 24;
const G_FRAME: i16 = 0;
const G_CODE: i16 = G_FRAME + FRAME_BYTES as i16;
const G_STRINGS: i16 = G_CODE + CODE_BYTES as i16;
const GIVEN_SIZE: u32 = G_STRINGS as u32 + 3 * STRING_BYTES;
const STATE_SIZE: u32 = GIVEN + GIVEN_SIZE;

/// Where the frames of Python are in the area of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallArea {
    /// The offset of their number, behind which they are.
    pub(super) at: u32,
    /// The most frames of Python.
    pub(super) most: u32,
    /// The most frames of the stack.
    pub(super) frames: u32,
}

impl CallArea {
    /// The offset of where the first frame of the stack ends.
    pub(super) fn ends(self) -> u32 {
        self.at + 8 + 8 * self.most
    }

    fn state(self) -> u32 {
        self.ends() + 8 * self.frames
    }

    /// The offset of an entry with both.
    pub(super) fn joined(self) -> u32 {
        self.state() + STATE_SIZE
    }

    /// The offset behind it.
    pub(super) fn end(self) -> u32 {
        self.joined() + plane::stacks::value_size(self.frames + self.most)
    }
}

/// What is known of the process.
pub(super) struct Interpreter {
    /// The address of `_PyRuntime`.
    pub(super) runtime: V,
    /// The base of the thread-local storage of this thread.
    pub(super) thread: V,
    /// The key of the address space.
    pub(super) space: V,
}

/// Follows the frames of Python of the current thread, and stores them. The stack has been walked into the area at `place`, with the ends of
/// its frames.
pub(super) fn walk(b: &mut Builder, plan: &Plan, place: V, area: CallArea, of: &Interpreter) {
    let state = |at: i16| area.state() as i16 + at;
    let none = b.label();
    let args = [Arg::Word(of.runtime), Arg::Word(of.thread)];
    let thread = b.call_global("dt_python_thread", &args, find_thread);
    b.br(Jmp::Eq, thread, 0, none);
    let cframe = read_word(b, thread, CFRAME, none);
    let frame = read_word(b, cframe, CURRENT, none);
    b.store(Size::B8, place, state(FRAME), frame);
    b.store(Size::B8, place, state(STRUCT), cframe);
    b.store(Size::B8, place, state(NUMBER), 0);
    let given = b.stack(16);
    b.slot_store(Size::B8, given, 0, place);
    b.slot_store(Size::B8, given, 8, of.space);
    let step = b.sub_addr("dt_python_step", 2, |b| {
        let given = b.param(1);
        let place = b.load(Size::B8, given, 0);
        let space = b.load(Size::B8, given, 8);
        step(b, plan, place, area, space);
    });
    let turns = b.imm(i64::from(area.frames + area.most));
    let (given, flags) = (b.slot_addr(given, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, step, given, flags]);
    b.bind(none);
}

/// One turn: a frame of Python is stored, or the next frame of the stack is looked at.
fn step(b: &mut Builder, plan: &Plan, place: V, area: CallArea, space: V) {
    let state = |at: i16| area.state() as i16 + at;
    let (stop, here, numbered, same) = (b.label(), b.label(), b.label(), b.label());
    let frame = b.load(Size::B8, place, state(FRAME));
    b.br(Jmp::Eq, frame, 0, stop);
    let (count, number) = (b.load(Size::B8, place, 0), b.load(Size::B8, place, state(NUMBER)));
    b.br(Jmp::Ge, number, count, stop);
    b.br(Jmp::Ge, number, i64::from(area.frames), stop);
    let offset = b.shl(number, 3);
    let there = b.add(place, offset);
    let end = b.load(Size::B8, there, area.ends() as i16);
    let cframe = b.load(Size::B8, place, state(STRUCT));
    b.br(Jmp::Gt, end, cframe, here);
    let next = b.add(number, 1);
    b.store(Size::B8, place, state(NUMBER), next);
    b.exit(0);

    b.bind(here);
    let calls = b.load(Size::B8, place, area.at as i16);
    b.br(Jmp::Ge, calls, i64::from(area.most), stop);
    let given = b.add(place, area.state() + GIVEN);
    let (to, size) = (b.add(given, i32::from(G_FRAME)), b.imm(i64::from(FRAME_BYTES)));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, size, frame]);
    b.br(Jmp::Ne, failed, 0, stop);
    let args = [Arg::Memory(given, GIVEN_SIZE), Arg::Word(space)];
    let found = b.call_global("dt_python_code", &args, |b| place_of_code(b, plan));
    let code = b.load(Size::B8, given, G_FRAME + F_CODE);
    let at = b.load(Size::B8, given, G_FRAME + F_INSTRUCTION);
    let instruction = b.sub(at, code);
    b.update(Alu::Sub, instruction, INSTRUCTIONS);
    b.update(Alu::Arsh, instruction, 1);
    b.br(Jmp::Lt, instruction, i64::from(NO_INSTRUCTION), numbered);
    b.set(instruction, i64::from(NO_INSTRUCTION));
    b.bind(numbered);
    let word = b.shl(found, i64::from(PLACE_SHIFT));
    let shifted = b.shl(instruction, i64::from(INSTRUCTION_SHIFT));
    let word = b.or(word, shifted);
    let word = b.or(word, number);
    let offset = b.shl(calls, 3);
    let there = b.add(place, offset);
    b.store(Size::B8, there, area.at as i16 + 8, word);
    let calls = b.add(calls, 1);
    b.store(Size::B8, place, area.at as i16, calls);
    let previous = b.load(Size::B8, given, G_FRAME + F_PREVIOUS);
    b.store(Size::B8, place, state(FRAME), previous);
    let is_entry = b.load(Size::B1, given, G_FRAME + F_IS_ENTRY);
    b.br(Jmp::Eq, is_entry, 0, same);
    let outer = read_word(b, cframe, PREVIOUS_CFRAME, stop);
    b.store(Size::B8, place, state(STRUCT), outer);
    b.bind(same);
    b.exit(0);
    b.bind(stop);
    b.exit(1);
}

/// A word of the process at an address and an offset. Jumps to `failed` if it cannot be read.
fn read_word(b: &mut Builder, base: V, offset: i32, failed: Label) -> V {
    let word = b.stack(8);
    b.slot_store(Size::B8, word, 0, 0);
    let from = b.add(base, offset);
    let (to, size) = (b.slot_addr(word, 0), b.imm(8));
    let result = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
    b.br(Jmp::Ne, result, 0, failed);
    b.slot_load(Size::B8, word, 0)
}

/// Offsets in what the search for a thread is given.
const S_THREAD: i16 = 0;
const S_INTERPRETER: i16 = 8;
const S_ID: i16 = 16;
const S_FOUND: i16 = 24;

/// The state of the thread whose thread-local storage has this base, from that of the interpreter; 0 if there is none.
fn find_thread(b: &mut Builder) {
    let (runtime, id) = (b.param(0), b.param(1));
    let (none, other) = (b.label(), b.label());
    // Mostly it is the one that runs.
    let running = read_word(b, runtime, RUNNING, none);
    b.br(Jmp::Eq, running, 0, other);
    let its = read_word(b, running, THREAD_ID, other);
    b.br(Jmp::Ne, its, id, other);
    b.exit(running);
    b.bind(other);
    let specific = b.call_global("dt_python_specific", &[Arg::Word(runtime), Arg::Word(id)], specific);
    let interpreter = read_word(b, runtime, INTERPRETERS, none);
    // The verifier of 6.1 looks at the first step only, so nothing may be known of it: a constant here would make the code of other
    // steps unreachable for it.
    let thread = read_word(b, interpreter, THREADS, none);
    let next = read_word(b, interpreter, NEXT_INTERPRETER, none);
    let (several, given) = (b.label(), b.stack(32));
    b.br(Jmp::Ne, next, 0, several);
    b.br(Jmp::Eq, specific, 0, several);
    b.exit(specific);
    b.bind(several);
    b.slot_store(Size::B8, given, S_THREAD, thread);
    b.slot_store(Size::B8, given, S_INTERPRETER, next);
    b.slot_store(Size::B8, given, S_ID, id);
    b.slot_store(Size::B8, given, S_FOUND, specific);
    let search = b.sub_addr("dt_python_search", 2, search);
    let (turns, to, flags) = (b.imm(THREADS_MAX), b.slot_addr(given, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, search, to, flags]);
    let found = b.slot_load(Size::B8, given, S_FOUND);
    b.exit(found);
    b.bind(none);
    b.exit(0);
}

/// The state of a thread, if it is a thread-specific value of its; 0 otherwise.
fn specific(b: &mut Builder) {
    let (runtime, id) = (b.param(0), b.param(1));
    let none = b.label();
    let number = read_word(b, runtime, KEY_OF_THREAD, none);
    let number = b.low32(number);
    b.br(Jmp::Ge, number, SPECIFIC_MAX, none);
    let offset = b.shl(number, 4);
    let place = b.add(id, offset);
    let thread = read_word(b, place, SPECIFIC, none);
    b.br(Jmp::Eq, thread, 0, none);
    let its = read_word(b, thread, THREAD_ID, none);
    b.br(Jmp::Ne, its, id, none);
    b.exit(thread);
    b.bind(none);
    b.exit(0);
}

/// One step of the search: a thread, or the next interpreter.
fn search(b: &mut Builder) {
    let given = b.param(1);
    let (stop, list, other) = (b.label(), b.label(), b.label());
    let thread = b.load(Size::B8, given, S_THREAD);
    b.br(Jmp::Eq, thread, 0, list);
    let its = read_word(b, thread, THREAD_ID, stop);
    let id = b.load(Size::B8, given, S_ID);
    b.br(Jmp::Ne, its, id, other);
    // A thread has a state in each interpreter that it has been in.
    let cframe = read_word(b, thread, CFRAME, other);
    let frame = read_word(b, cframe, CURRENT, other);
    b.br(Jmp::Eq, frame, 0, other);
    b.store(Size::B8, given, S_FOUND, thread);
    b.exit(1);
    b.bind(other);
    let next = read_word(b, thread, NEXT_THREAD, stop);
    b.store(Size::B8, given, S_THREAD, next);
    b.exit(0);
    b.bind(list);
    let interpreter = b.load(Size::B8, given, S_INTERPRETER);
    b.br(Jmp::Eq, interpreter, 0, stop);
    let first = read_word(b, interpreter, THREADS, stop);
    b.store(Size::B8, given, S_THREAD, first);
    let next = read_word(b, interpreter, NEXT_INTERPRETER, stop);
    b.store(Size::B8, given, S_INTERPRETER, next);
    b.exit(0);
    b.bind(stop);
    b.exit(1);
}

/// The place of the code object of a frame in the store; 0 if it has none.
fn place_of_code(b: &mut Builder, plan: &Plan) {
    let (given, space) = (b.param(0), b.param(1));
    let (none, new) = (b.label(), b.label());
    let code = b.load(Size::B8, given, G_FRAME + F_CODE);
    let (from, size) = (b.add(code, CODE_AT), b.imm(i64::from(CODE_BYTES)));
    let to = b.add(given, i32::from(G_CODE));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
    b.br(Jmp::Ne, failed, 0, none);
    let key = key(b, given, space);
    let (map, at) = (b.map(MapRef::PythonCodes), b.slot_addr(key, 0));
    let found = b.call(Helper::MAP_LOOKUP_ELEM, &[map, at]);
    b.br(Jmp::Eq, found, 0, new);
    let place = b.load(Size::B8, found, 0);
    b.exit(place);
    b.bind(new);
    let args = [Arg::Memory(given, GIVEN_SIZE), Arg::Word(space)];
    let place = b.call_global("dt_python_new", &args, |b| store_code(b, plan));
    b.exit(place);
    b.bind(none);
    b.exit(0);
}

/// The key of a code object, on the stack.
fn key(b: &mut Builder, given: V, space: V) -> StackSlot {
    let key = b.stack(KEY);
    b.slot_store(Size::B8, key, 0, space);
    for (from, size, to) in [
        (G_FRAME + F_CODE, Size::B8, 8),
        (G_CODE + C_FIRST_LINE, Size::B4, 16),
        (G_CODE + C_FILE, Size::B8, 24),
        (G_CODE + C_NAME, Size::B8, 32),
        (G_CODE + C_LINES, Size::B8, 40),
    ] {
        let value = b.load(size, given, from);
        b.slot_store(Size::B8, key, to, value);
    }
    key
}

/// A string or a line table, as it comes into the store.
struct Part {
    /// Where it is in the process.
    from: V,
    /// Its bytes.
    size: V,
    /// The mask that has all of them.
    most: u32,
}

/// Stores a code object, and remembers it. Returns its place, or 0.
fn store_code(b: &mut Builder, plan: &Plan) {
    let (given, space) = (b.param(0), b.param(1));
    let (none, full, known) = (b.label(), b.label(), b.label());
    let (file, file_width) = string(b, given, (C_FILE, 0), none);
    let (name, name_width) = string(b, given, (C_NAME, 1), none);
    let lines = line_table(b, given, none);
    let parts = [file, name, lines];
    let words = b.copy(i64::from(HEAD / 8));
    let mut places = Vec::new();
    for part in &parts {
        places.push(b.copy(words));
        let whole = b.add(part.size, 7);
        let whole = b.shr(whole, 3);
        b.update(Alu::Add, words, whole);
    }
    let store = b.map_value(MapRef::PythonStore, 0);
    let before = b.atomic_fetch(AtomicOp::Add, Size::B8, store, 0, words);
    b.br(Jmp::Gt, before, i64::from((STORE - FIRST - ENTRY_MAX) / 8), full);
    let place = b.add(before, i64::from(FIRST / 8));
    let offset = b.shl(place, 3);
    let entry = b.add(store, offset);
    let first_line = b.load(Size::B4, given, G_CODE + C_FIRST_LINE);
    b.store(Size::B4, entry, FIRST_LINE as i16, first_line);
    b.store(Size::B4, entry, LINES_SIZE as i16, parts[2].size);
    b.store(Size::B2, entry, FILE_SIZE as i16, parts[0].size);
    b.store(Size::B2, entry, NAME_SIZE as i16, parts[1].size);
    b.store(Size::B1, entry, FILE_WIDTH as i16, file_width);
    b.store(Size::B1, entry, NAME_WIDTH as i16, name_width);
    for (part, at) in parts.iter().zip(places) {
        // Less already, but the verifier does not know what became of sums.
        let at = b.and(at, i64::from((ENTRY_MAX / 8).next_power_of_two() - 1));
        let offset = b.shl(at, 3);
        let to = b.add(entry, offset);
        let size = b.and(part.size, i64::from(part.most));
        let failed = b.call(Helper::PROBE_READ_USER, &[to, size, part.from]);
        b.br(Jmp::Ne, failed, 0, none);
    }
    const NOEXIST: i64 = 1;
    let key = key(b, given, space);
    let value = b.stack(8);
    b.slot_store(Size::B8, value, 0, place);
    let (map, at, to, flags) =
        (b.map(MapRef::PythonCodes), b.slot_addr(key, 0), b.slot_addr(value, 0), b.imm(NOEXIST));
    let failed = b.call(Helper::MAP_UPDATE_ELEM, &[map, at, to, flags]);
    b.br(Jmp::Eq, failed, 0, known);
    // Another program was faster, or there is no space to remember it.
    let at = b.slot_addr(key, 0);
    let map = b.map(MapRef::PythonCodes);
    let found = b.call(Helper::MAP_LOOKUP_ELEM, &[map, at]);
    b.br(Jmp::Eq, found, 0, full);
    let its = b.load(Size::B8, found, 0);
    b.exit(its);
    b.bind(known);
    b.exit(place);
    b.bind(full);
    let firing = firing(b, plan);
    count_drop(b, &firing, DropKind::Strings);
    b.bind(none);
    b.exit(0);
}

/// A string of a code object, and the bytes of its characters. `which`: where its address is, and the number of its head.
fn string(b: &mut Builder, given: V, (which, number): (i16, i16), none: Label) -> (Part, V) {
    let (short, fits) = (b.label(), b.label());
    let head = G_STRINGS + number * STRING_BYTES as i16;
    let string = b.load(Size::B8, given, G_CODE + which);
    let from = b.add(string, LENGTH);
    let (to, bytes) = (b.add(given, i32::from(head)), b.imm(i64::from(STRING_BYTES)));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, bytes, from]);
    b.br(Jmp::Ne, failed, 0, none);
    let length = b.load(Size::B8, given, head);
    let state = b.load(Size::B4, given, head + S_STATE);
    let compact = b.shr(state, COMPACT_BIT);
    let compact = b.and(compact, 1);
    b.br(Jmp::Eq, compact, 0, none);
    let width = b.shr(state, KIND_SHIFT);
    let width = b.and(width, 7);
    b.br(Jmp::Le, length, i64::from(NAME_MAX), short);
    b.set(length, i64::from(NAME_MAX));
    b.bind(short);
    let size = b.mul(length, width);
    b.br(Jmp::Le, size, i64::from(NAME_MAX), fits);
    b.set(size, i64::from(NAME_MAX & !3));
    b.bind(fits);
    let ascii = b.shr(state, ASCII_BIT);
    let other = b.and(ascii, 1);
    let other = b.xor(other, 1);
    let from = b.mul(other, OTHERS_MORE);
    let from = b.add(from, ASCII_AT);
    let from = b.add(string, from);
    (Part { from, size, most: NAME_MAX }, width)
}

/// The line table of a code object.
fn line_table(b: &mut Builder, given: V, none: Label) -> Part {
    let short = b.label();
    let table = b.load(Size::B8, given, G_CODE + C_LINES);
    let size = read_word(b, table, LENGTH, none);
    b.br(Jmp::Le, size, i64::from(LINES_MAX), short);
    b.set(size, i64::from(LINES_MAX));
    b.bind(short);
    let from = b.add(table, BYTES_AT);
    Part { from, size, most: LINES_MAX }
}

const _: () =
    assert!(CODES.is_power_of_two() && (NAME_MAX + 1).is_power_of_two() && (LINES_MAX + 1).is_power_of_two());
