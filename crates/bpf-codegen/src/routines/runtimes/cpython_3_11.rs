//! The frames of CPython's interpreter in the stack of a process ([`plane::calls`] has what is
//! stored of them).
//!
//! They are followed behind a walk by tables. Each call of the interpreter's function has a struct
//! on the stack (`_PyCFrame`), which leads to the frames of Python that it runs. So where the
//! struct is says which frame of the stack that call has: the walk notes where each of its frames
//! ends, and the frames of Python come to the first whose end is above the struct.
//!
//! The state of a thread is the one whose struct is on the stack of this thread. (Numbers of
//! threads would not do: they are others in a pid namespace, those of the parent after a fork, and
//! those of the creator in an interpreter that another thread runs.) Mostly it is that of the
//! thread that runs, or a thread-specific value of glibc's has it. Where there are several
//! interpreters, or another C library, it is searched in the lists of threads, which others may
//! change meanwhile.
//!
//! ```text
//!  state     a frame of Python, its struct, the one before, the number of a frame of the stack
//!            a frame, its code object and strings            see `code`
//! ```
//!
//! A clock may meet the interpreter between the two stores by which it enters a call. Then the
//! struct is what was there before. It is known by this: the first frame of a call comes behind the
//! frame at which the struct before is. Where that does not hold, the walk ends with a frame that
//! is not known.
//!
//! ARCH(x86-64): the base of the thread-local storage, and where glibc has thread-specific values.
//!
//! The layouts are those of [`runtimes::cpython_3_11`].

mod code;
mod given;
mod line;

use plane::calls::FOUND_BYTES;
use runtimes::cpython_3_11::{
    CFRAME, CURRENT, F_IS_ENTRY, F_PREVIOUS, FRAME_BYTES, INTERPRETERS, KEY_OF_THREAD, NEXT_INTERPRETER,
    NEXT_THREAD, RUNNING, THREADS,
};

use super::area::{CallArea, LOW, Process, STATE_HEAD, read_word};
use crate::mir::{Arg, Builder, Helper, Jmp, Label, MapRef, Size, V};
use crate::plan::Plan;
use crate::routines::window::WINDOW_SIZE;
use code::frame_name;
use given::{G_FRAME, G_KEPT, GIVEN_SIZE};

/// glibc's `struct pthread`, at the base of the thread-local storage: the first of the
/// thread-specific values, 32 in all, each behind a word. It has been there in all releases for
/// x86-64; what is found is compared with the stack, so nothing depends on it.
const SPECIFIC: i32 = 0x310 + 8;
const SPECIFIC_MAX: i64 = 32;
/// The most steps of the search for a thread.
const THREADS_MAX: i64 = 4096;

/// Offsets in the state.
const FRAME: i16 = STATE_HEAD as i16;
const STRUCT: i16 = FRAME + 8;
const OUTER: i16 = FRAME + 16;
const NUMBER: i16 = FRAME + 24;
/// What is known of a frame: see [`code`].
const GIVEN: u32 = STATE_HEAD + 32;
/// Bytes of the state behind its head.
pub(super) const STATE: u32 = 32 + GIVEN_SIZE;

/// Follows the frames of Python of the current thread, and stores them. `runtime`: the address of
/// `_PyRuntime`.
pub(super) fn walk(b: &mut Builder, plan: &Plan, place: V, area: CallArea, runtime: V, of: &Process) {
    let state = |at: i16| area.state() as i16 + at;
    let none = b.label();
    let low = b.load(Size::B8, place, state(LOW));
    // The storage of a thread is above its stack, that of the first one elsewhere.
    let high = b.copy(of.thread);
    b.if_(Jmp::Le, high, low, |b| {
        b.set(high, of.start_stack);
    });
    let args = [Arg::Word(runtime), Arg::Word(of.thread), Arg::Word(low), Arg::Word(high)];
    let cframe = b.call_global("dt_python_struct", &args, find_struct);
    b.br(Jmp::Eq, cframe, 0, none);
    let (frame, outer) = read_struct(b, cframe, none);
    for (at, value) in [(FRAME, frame), (STRUCT, cframe), (OUTER, outer)] {
        b.store(Size::B8, place, state(at), value);
    }
    b.store(Size::B8, place, state(NUMBER), 0);
    for kept in G_KEPT {
        b.store(Size::B8, place, state(GIVEN as i16 + kept), 0);
    }
    let given = b.stack(24);
    b.slot_store(Size::B8, given, 0, 0);
    let (map, zero) = (b.map(MapRef::RuntimeFound), b.slot_addr(given, 0));
    let found = b.call(Helper::MAP_LOOKUP_ELEM, &[map, zero]);
    b.br(Jmp::Eq, found, 0, none);
    b.slot_store(Size::B8, given, 0, place);
    b.slot_store(Size::B8, given, 8, found);
    b.slot_store(Size::B8, given, 16, of.who);
    let step = b.sub_addr("dt_python_step", 2, |b| {
        let given = b.param(1);
        let place = b.load(Size::B8, given, 0);
        step(b, plan, place, area, of.window);
    });
    let turns = b.imm(i64::from(area.frames + area.most));
    let (given, flags) = (b.slot_addr(given, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, step, given, flags]);
    b.bind(none);
}

/// One turn: a frame of Python is stored, or the next frame of the stack is looked at.
fn step(b: &mut Builder, plan: &Plan, place: V, area: CallArea, window: u32) {
    let state = |at: i16| area.state() as i16 + at;
    let (stop, same, torn) = (b.label(), b.label(), b.label());
    let frame = b.load(Size::B8, place, state(FRAME));
    b.br(Jmp::Eq, frame, 0, stop);
    let (count, number) = (b.load(Size::B8, place, 0), b.load(Size::B8, place, state(NUMBER)));
    b.br(Jmp::Ge, number, count, stop);
    b.br(Jmp::Ge, number, i64::from(area.frames), stop);
    let offset = b.shl(number, 3);
    let there = b.add(place, offset);
    let end = b.load(Size::B8, there, area.ends() as i16);
    let cframe = b.load(Size::B8, place, state(STRUCT));
    b.if_(Jmp::Le, end, cframe, |b| {
        let next = b.add(number, 1);
        b.store(Size::B8, place, state(NUMBER), next);
        b.exit(0);
    });
    let calls = b.load(Size::B8, place, area.at as i16);
    b.br(Jmp::Ge, calls, i64::from(area.most), stop);
    let given = b.add(place, area.state() + GIVEN);
    let (to, size) = (b.add(given, i32::from(G_FRAME)), b.imm(i64::from(FRAME_BYTES)));
    let failed = b.call(Helper::PROBE_READ_USER, &[to, size, frame]);
    b.br(Jmp::Ne, failed, 0, stop);
    let (found, who) = (b.load(Size::B8, b.param(1), 8), b.load(Size::B8, b.param(1), 16));
    let window = b.add(place, window);
    let args = [
        Arg::Memory(given, GIVEN_SIZE),
        Arg::Memory(found, FOUND_BYTES),
        Arg::Memory(window, WINDOW_SIZE),
        Arg::Word(who),
    ];
    let name = b.call_global("dt_python_name", &args, |b| frame_name(b, plan));
    let word = b.or(name, number);
    let calls = area.push(b, place, calls, word);
    let previous = b.load(Size::B8, given, G_FRAME + F_PREVIOUS);
    b.store(Size::B8, place, state(FRAME), previous);
    let is_entry = b.load(Size::B1, given, G_FRAME + F_IS_ENTRY);
    b.br(Jmp::Eq, is_entry, 0, same);
    // The outermost frame of a thread has none before.
    b.br(Jmp::Eq, previous, 0, same);
    let cframe = b.load(Size::B8, place, state(OUTER));
    let (current, outer) = read_struct(b, cframe, torn);
    b.br(Jmp::Ne, current, previous, torn);
    b.store(Size::B8, place, state(STRUCT), cframe);
    b.store(Size::B8, place, state(OUTER), outer);
    b.bind(same);
    b.exit(0);
    b.bind(torn);
    b.br(Jmp::Ge, calls, i64::from(area.most), stop);
    area.push(b, place, calls, number);
    b.bind(stop);
    b.exit(1);
}

/// The frame of a struct, and the struct before it.
fn read_struct(b: &mut Builder, cframe: V, failed: Label) -> (V, V) {
    let words = b.stack(16);
    b.slot_store(Size::B8, words, 0, 0);
    b.slot_store(Size::B8, words, 8, 0);
    let from = b.add(cframe, CURRENT);
    let (to, size) = (b.slot_addr(words, 0), b.imm(16));
    let result = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
    b.br(Jmp::Ne, result, 0, failed);
    (b.slot_load(Size::B8, words, 0), b.slot_load(Size::B8, words, 8))
}

/// Jumps to `other` unless the struct of a thread is on the stack between two addresses. Returns
/// its address.
fn struct_of(b: &mut Builder, thread: V, (low, high): (V, V), other: Label) -> V {
    let cframe = read_word(b, thread, CFRAME, other);
    b.br(Jmp::Lt, cframe, low, other);
    b.br(Jmp::Ge, cframe, high, other);
    cframe
}

/// Offsets in what the search for a thread is given.
const S_THREAD: i16 = 0;
const S_INTERPRETER: i16 = 8;
const S_LOW: i16 = 16;
const S_HIGH: i16 = 24;
const S_FOUND: i16 = 32;

/// The struct of the thread that has it on this stack, from the state of the interpreter; 0 if
/// there is none.
fn find_struct(b: &mut Builder) {
    let (runtime, id, low, high) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let (none, other, several) = (b.label(), b.label(), b.label());
    let running = read_word(b, runtime, RUNNING, none);
    b.br(Jmp::Eq, running, 0, other);
    let cframe = struct_of(b, running, (low, high), other);
    b.exit(cframe);
    b.bind(other);
    let args = [Arg::Word(runtime), Arg::Word(id), Arg::Word(low), Arg::Word(high)];
    let specific = b.call_global("dt_python_specific", &args, specific);
    let interpreter = read_word(b, runtime, INTERPRETERS, none);
    // The verifier of 6.1 looks at the first step only, so nothing may be known of it: a constant
    // here would make the code of other steps unreachable for it.
    let thread = read_word(b, interpreter, THREADS, none);
    let next = read_word(b, interpreter, NEXT_INTERPRETER, none);
    b.br(Jmp::Ne, next, 0, several);
    b.br(Jmp::Eq, specific, 0, several);
    b.exit(specific);
    b.bind(several);
    let given = b.stack(40);
    for (at, value) in [(S_THREAD, thread), (S_INTERPRETER, next), (S_LOW, low), (S_HIGH, high)] {
        b.slot_store(Size::B8, given, at, value);
    }
    b.slot_store(Size::B8, given, S_FOUND, 0);
    let search = b.sub_addr("dt_python_search", 2, search);
    let (turns, to, flags) = (b.imm(THREADS_MAX), b.slot_addr(given, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, search, to, flags]);
    let best = b.slot_load(Size::B8, given, S_FOUND);
    b.if_(Jmp::Eq, best, 0, |b| {
        b.exit(specific);
    });
    b.exit(best);
    b.bind(none);
    b.exit(0);
}

/// The struct of a thread whose state is a thread-specific value of its; 0 if that is not so.
fn specific(b: &mut Builder) {
    let (runtime, id, low, high) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let none = b.label();
    let number = read_word(b, runtime, KEY_OF_THREAD, none);
    let number = b.low32(number);
    b.br(Jmp::Ge, number, SPECIFIC_MAX, none);
    let offset = b.shl(number, 4);
    let place = b.add(id, offset);
    let thread = read_word(b, place, SPECIFIC, none);
    b.br(Jmp::Eq, thread, 0, none);
    let cframe = struct_of(b, thread, (low, high), none);
    b.exit(cframe);
    b.bind(none);
    b.exit(0);
}

/// One step of the search: a thread, or the next interpreter. Of several on one stack the innermost
/// is found.
fn search(b: &mut Builder) {
    let given = b.param(1);
    let (stop, other) = (b.label(), b.label());
    let thread = b.load(Size::B8, given, S_THREAD);
    b.if_(Jmp::Ne, thread, 0, |b| {
        let (low, high) = (b.load(Size::B8, given, S_LOW), b.load(Size::B8, given, S_HIGH));
        let cframe = struct_of(b, thread, (low, high), other);
        b.store(Size::B8, given, S_FOUND, cframe);
        b.store(Size::B8, given, S_HIGH, cframe);
        b.bind(other);
        let next = read_word(b, thread, NEXT_THREAD, stop);
        b.store(Size::B8, given, S_THREAD, next);
        b.exit(0);
    });
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
