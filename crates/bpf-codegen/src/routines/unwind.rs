//! Walks the stack of a process by tables ([`plane::unwind`] has their layout).
//!
//! The walk is one `bpf_loop`. A turn stores the address of a frame and finds that of its caller;
//! between two turns everything is in the scratch slot, behind the frames, so the verifier checks
//! one turn. The rule of an address is mostly among those that the CPU remembers; otherwise it is
//! looked up in the tables. An address that no range has is looked up in the mappings of the
//! process ([`mappings`]).
//!
//! Memory of the process is read by a window ([`super::window`]).
//!
//! ```text
//!  area of the stack   frames, count                          see `stack`
//!  state               program counter, stack pointer, frame pointer, status
//!                      the language runtime of the process
//!                      the last range: start, length, table, delta
//!                      window: its address, where its words end, a word that was read, the next return
//!                      that is probed, a page
//! ```
//!
//! Where the return of a function is probed by the kernel (`uretprobe`), its return address is that
//! of a trampoline. The kernel has a list of the true ones, innermost first, with the places on the
//! stack where they were; the walk follows the list as it meets them.
//!
//! ARCH(x86-64): a return address is below the canonical frame address; the registers of signal
//! frames.

mod mappings;
mod returns;
mod rows;
mod slots;

use plane::siphash;
use plane::unwind::{
    AMBIGUOUS, BP_AT_CFA, BP_MODE_SHIFT, BP_MODES, BP_SHIFT, BUSY, FOUND, FOUND_ROW, FOUND_SHIFT, INCOMPLETE,
    KEY_FACTOR, KIND_SHIFT, KINDS, Kind, NO_TABLE, OFFSET_SHIFT, PAGE_SHIFT, PENDING, RANGE_DELTA, RANGE_END,
    RANGE_SHIFT, RANGE_TABLE, RANGES_END, SLOT, SLOTS, VERSION,
};

use super::numbers::{Numbered, current_number};
use super::runtimes::{self, CallArea, Process};
use super::window::{RETURNS, VALUE, WINDOW_SIZE, WORDS_END, read};
use crate::arch::x86_64::{self, regs};
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, MapRef, Operand, Size, V};
use crate::plan::Plan;
use crate::target::{ReturnOffsets, Target, UnwindOffsets};
use returns::find_return;
use rows::{find_row, search};
use slots::{find_slot, key, want};

/// Offsets in the state.
const PC: u32 = 0;
const SP: u32 = 8;
const BP: u32 = 16;
/// What is subtracted from the program counter to find its rule: 1 for return addresses and behind
/// `syscall`, because the call may be the last instruction of its function.
const BACK: u32 = 24;
const STATUS: u32 = 32;
const START: u32 = 40;
const LENGTH: u32 = 48;
const TABLE: u32 = 56;
const DELTA: u32 = 64;
const FIRST: u32 = 72;
const COUNT: u32 = 80;
/// 1 at the first instruction of a function, which has not made its frame yet; in programs that run
/// there.
const ENTRY: u32 = 88;
/// The address to which functions return whose return is probed.
const TRAMPOLINE: u32 = 96;
/// What makes the tags of this address space, as it is now, different from all others.
const SPACE: u32 = 104;
/// The language runtime of the process and the address of its state, 0 if it has none that is
/// known.
const RUNTIME: u32 = 112;
/// Bytes of an address of the process: 8, or 4.
const WORD: u32 = 120;
/// How often the kernel may still be asked for a mapping: one stack of many objects must not cost
/// too much.
const ASKS: u32 = 128;
/// How often a table had been removed when the walk began.
const REMOVED: u32 = 136;
/// The window, which a function gets.
const WINDOW: u32 = 144;

/// Bytes of the state.
pub(super) const STATE: u32 = WINDOW + WINDOW_SIZE;

/// The status: everything is known so far.
const WHOLE: i64 = 0;
/// Frames are missing.
const BROKEN: i64 = 1;
/// A table is missing, which the consumer is asked for.
const WANTING: i64 = 2;

/// The most mappings that the kernel is asked for in one walk.
const MOST_ASKS: i64 = 32;

/// The end of a frame that is not known is above everything.
const UNKNOWN_END: i64 = -1;

/// A trampoline that there is none of is nowhere.
const NOWHERE: i64 = i64::MIN;
/// Lower addresses are never those of code or of a stack.
const LOWEST: i64 = 4096;

/// What a walk needs.
#[derive(Clone, Copy)]
pub(super) struct Frames {
    /// The address of the area, whose count is the first word.
    pub(super) place: V,
    /// Offset of the frames in the area.
    pub(super) pcs: u32,
    /// Offset of the state in the area.
    pub(super) state: u32,
    /// The most frames.
    pub(super) most: u32,
    /// The process is at the first instruction of a function.
    pub(super) entry: bool,
    /// The process runs code of 32 bits. The turns are generated for both, because each frame would
    /// pay for the difference.
    pub(super) narrow: bool,
    /// Where the kernel has the members that a walk needs.
    pub(super) offsets: UnwindOffsets,
    /// The key of the session.
    pub(super) key: siphash::Key,
    /// Where the frames of a language runtime come to, if they are followed.
    pub(super) calls: Option<CallArea>,
}

impl Frames {
    /// The area, and the offset of the window in it.
    fn window(&self) -> (V, u32) {
        (self.place, self.state + WINDOW)
    }

    /// Bytes of an address, as a power of two.
    fn word_shift(&self) -> i64 {
        if self.narrow { 2 } else { 3 }
    }

    /// Bytes of an address.
    fn word(&self) -> i64 {
        1 << self.word_shift()
    }

    /// A register or a word of the process as an address.
    fn address(&self, b: &mut Builder, value: V) -> V {
        if self.narrow { b.low32(value) } else { value }
    }
}

/// Walks the stack of the current process. Falls through with the frames and their number stored;
/// the last frame is [`INCOMPLETE`] where others are missing. Jumps to `other` if the process runs
/// neither 64-bit code nor 32-bit code.
pub(super) fn walk(b: &mut Builder, frames: &Frames, target: &Target, plan: &Plan, other: Label) {
    let at = |offset: u32| (frames.state + offset) as i16;
    let (place, offsets) = (frames.place, frames.offsets);
    let (done, walk, stable) = (b.label(), b.label(), b.label());
    b.store(Size::B8, place, 0, 0);
    b.store(Size::B8, place, at(STATUS), WHOLE);
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    let mm = b.load(Size::B8, task, offsets.mm);
    let stack = b.load(Size::B8, mm, offsets.start_stack);
    // A thread of the kernel.
    b.br(Jmp::Eq, stack, 0, done);
    let key = key(b, mm, stack, offsets);
    let saved = b.call(Helper::TASK_PT_REGS, &[task]);
    let code = b.load(Size::B2, saved, regs::CS);
    let word = b.copy(8);
    b.if_(Jmp::Ne, code, x86_64::USER_CS, |b| {
        b.br(Jmp::Ne, code, x86_64::USER32_CS, other);
        b.set(word, 4);
    });
    b.store(Size::B8, place, at(WORD), word);
    for (register, to) in [(regs::IP, PC), (regs::SP, SP), (regs::BP, BP)] {
        let value = b.load(Size::B8, saved, register);
        b.store(Size::B8, place, at(to), value);
        if let Some(area) = frames.calls.filter(|_| to == SP) {
            b.store(Size::B8, place, area.low(), value);
        }
    }
    for zero in [BACK, START, LENGTH, FIRST, COUNT, RUNTIME] {
        b.store(Size::B8, place, at(zero), 0);
    }
    let (elsewhere, behind) = (b.label(), b.load(Size::B8, saved, regs::CX));
    let pc = b.load(Size::B8, place, at(PC));
    b.br(Jmp::Ne, behind, pc, elsewhere);
    // A call through that register looks alike, but there the process was interrupted, and has no
    // number of a system call.
    let call = b.load(Size::B8, saved, regs::ORIG_AX);
    let interrupted = b.shr(call, 63);
    let back = b.xor(interrupted, 1);
    b.store(Size::B8, place, at(BACK), back);
    b.bind(elsewhere);
    if frames.entry {
        b.store(Size::B8, place, at(ENTRY), 1);
    }
    b.store(Size::B8, place, at(WINDOW) + WORDS_END, 0);
    probed_returns(b, frames, task, mm);
    let directory = b.map_value(MapRef::UnwindDirectory, 0);
    let found = b.call_global("dt_unwind_slot", &[Arg::Word(key)], find_slot);
    let (slot, state, space) = (b.var(), b.copy(0), b.var());
    b.set(slot, directory);
    let version = b.map_value(MapRef::UnwindDirectory, VERSION);
    let removed = b.load(Size::B8, version, 0);
    b.store(Size::B8, place, at(REMOVED), removed);
    let most_asks = if offsets.mappings.is_some() { MOST_ASKS } else { 0 };
    b.store(Size::B8, place, at(ASKS), most_asks);
    b.if_(Jmp::Eq, found, 0, |b| {
        if offsets.mappings.is_some() {
            let process = current_number(b, target, Numbered::Process);
            b.call_global("dt_unwind_want", &[Arg::Word(key), Arg::Word(process)], want);
            // What a process has mapped without a slot may be something else in its next walk: rows
            // are those of this walk.
            let now = b.call(Helper::KTIME_GET_NS, &[]);
            b.set(space, now);
        } else {
            b.store(Size::B8, place, at(STATUS), WANTING);
            b.set(space, key);
        }
        b.jmp(walk);
    });
    let offset = b.and(found, i64::from((SLOTS - 1) * SLOT));
    let there = b.add(directory, offset);
    b.set(slot, there);
    let now = b.load(Size::B8, slot, 8);
    b.set(state, now);
    let first = b.low32(state);
    b.store(Size::B8, place, at(FIRST), first);
    let count = b.shr(state, 32);
    let count = b.and(count, 0xffff);
    b.store(Size::B8, place, at(COUNT), count);
    if frames.calls.is_some() {
        let behind = b.add(first, count);
        let number = b.and(behind, i64::from(RANGES_END) - 1);
        let offset = b.shl(number, i64::from(RANGE_SHIFT));
        let range = b.add(directory, offset);
        let runtime = b.load(Size::B8, range, 0);
        b.store(Size::B8, place, at(RUNTIME), runtime);
    }
    b.set(space, key);
    b.bind(walk);
    let removed = b.load(Size::B8, place, at(REMOVED));
    let mixed = b.add(state, removed);
    let mixed = b.mul(mixed, KEY_FACTOR as i64);
    let mixed = b.xor(mixed, space);
    b.store(Size::B8, place, at(SPACE), mixed);
    let (narrow, walked) = (b.label(), b.label());
    let word = b.load(Size::B8, place, at(WORD));
    b.br(Jmp::Ne, word, 8, narrow);
    turns(b, frames, done);
    b.jmp(walked);
    b.bind(narrow);
    turns(b, &Frames { narrow: true, ..*frames }, done);
    b.bind(walked);
    // What was used has not changed meanwhile.
    let (changed, status) = (b.label(), b.load(Size::B8, place, at(STATUS)));
    b.br(Jmp::Eq, status, WANTING, stable);
    let version = b.map_value(MapRef::UnwindDirectory, VERSION);
    let (before, removed) = (b.load(Size::B8, place, at(REMOVED)), b.load(Size::B8, version, 0));
    b.br(Jmp::Ne, before, removed, changed);
    b.br(Jmp::Eq, found, 0, stable);
    let (again, later) = (b.load(Size::B8, slot, 0), b.load(Size::B8, slot, 8));
    b.br(Jmp::Ne, again, key, changed);
    b.br(Jmp::Eq, later, state, stable);
    b.bind(changed);
    b.store(Size::B8, place, at(STATUS), BROKEN);
    b.store(Size::B8, place, at(RUNTIME), 0);
    b.bind(stable);
    let [whole, ask, settled] = b.labels();
    let status = b.load(Size::B8, place, at(STATUS));
    b.br(Jmp::Eq, status, WHOLE, whole);
    let count = b.load(Size::B8, place, 0);
    b.if_(Jmp::Lt, count, frames.most, |b| {
        let offset = b.shl(count, 3);
        let end = b.add(place, offset);
        b.store(Size::B8, end, frames.pcs as i16, INCOMPLETE);
        ends_at(b, frames, end, UNKNOWN_END);
        b.update(Alu::Add, count, 1);
        b.store(Size::B8, place, 0, count);
    });
    b.br(Jmp::Eq, status, WANTING, ask);
    b.bind(whole);
    // What the kernel was asked for is asked of the consumer, too: its ranges are found faster.
    let left = b.load(Size::B8, place, at(ASKS));
    b.br(Jmp::Eq, left, most_asks, settled);
    b.bind(ask);
    let process = current_number(b, target, Numbered::Process);
    b.call_global("dt_unwind_want", &[Arg::Word(key), Arg::Word(process)], want);
    b.bind(settled);
    if let (Some(area), Some(fs_base)) = (frames.calls, offsets.fs_base) {
        let runtime = b.load(Size::B8, place, at(RUNTIME));
        b.br(Jmp::Eq, runtime, 0, done);
        let thread = b.load(Size::B8, task, fs_base);
        let who = program(b, key, task, target);
        let window = frames.state + WINDOW;
        let of = Process { runtime, thread, start_stack: stack, who, window };
        runtimes::walk(b, plan, place, area, &of);
    }
    b.bind(done);
}

/// What tells the program that a process runs from others: its address space, its number and when
/// it began.
fn program(b: &mut Builder, key: V, task: V, target: &Target) -> V {
    let both = b.call(Helper::GET_CURRENT_PID_TGID, &[]);
    let process = b.shr(both, 32);
    let mixed = b.xor(key, process);
    let mixed = b.mul(mixed, KEY_FACTOR as i64);
    let Some(offsets) = target.generation else { return mixed };
    let leader = b.load(Size::B8, task, offsets.leader);
    let start = b.load(Size::B8, leader, offsets.start);
    b.xor(mixed, start)
}

/// Notes where a frame ends, if that is needed. `frame`: the area plus the offset of the frame
/// among the frames.
fn ends_at(b: &mut Builder, frames: &Frames, frame: V, end: impl Into<Operand>) {
    if let Some(area) = frames.calls {
        b.store(Size::B8, frame, area.ends() as i16, end);
    }
}

/// Stores the trampoline of returns that are probed, and the first of these.
fn probed_returns(b: &mut Builder, frames: &Frames, task: V, mm: V) {
    let at = |offset: u32| (frames.state + offset) as i16;
    let Some(offsets) = frames.offsets.returns else { return };
    let none = b.label();
    b.store(Size::B8, frames.place, at(TRAMPOLINE), NOWHERE);
    let utask = b.load(Size::B8, task, offsets.utask);
    b.br(Jmp::Eq, utask, 0, none);
    let first = b.load(Size::B8, utask, offsets.instances);
    b.br(Jmp::Eq, first, 0, none);
    let area = b.load(Size::B8, mm, offsets.area);
    b.br(Jmp::Eq, area, 0, none);
    let trampoline = b.load(Size::B8, area, offsets.vaddr);
    b.store(Size::B8, frames.place, at(TRAMPOLINE), trampoline);
    b.store(Size::B8, frames.place, at(WINDOW) + RETURNS, first);
    b.bind(none);
}

/// All turns. Jumps to `none` if the CPU has no memory for rows, which does not happen.
fn turns(b: &mut Builder, frames: &Frames, none: Label) {
    let given = b.stack(16);
    b.slot_store(Size::B8, given, 0, 0);
    let (map, zero) = (b.map(MapRef::UnwindFound), b.slot_addr(given, 0));
    let found = b.call(Helper::MAP_LOOKUP_ELEM, &[map, zero]);
    b.br(Jmp::Eq, found, 0, none);
    b.slot_store(Size::B8, given, 0, frames.place);
    b.slot_store(Size::B8, given, 8, found);
    let frames = *frames;
    let name = if frames.narrow { "dt_unwind_step_32" } else { "dt_unwind_step" };
    let step = b.sub_addr(name, 2, |b| {
        let given = b.param(1);
        let place = b.load(Size::B8, given, 0);
        let found = b.load(Size::B8, given, 8);
        step(b, &Frames { place, ..frames }, found);
    });
    let (turns, given, flags) = (b.imm(i64::from(frames.most)), b.slot_addr(given, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, step, given, flags]);
}

/// One turn: stores a frame and finds its caller. `remembered`: the rows that this CPU has found
/// before.
fn step(b: &mut Builder, frames: &Frames, remembered: V) {
    let at = |offset: u32| (frames.state + offset) as i16;
    let place = frames.place;
    let (stop, broken) = (b.label(), b.label());
    let [by_frame_pointer, wanting, has_range, found, has_row, no_row, new, called] = b.labels();
    let count = b.load(Size::B8, place, 0);
    b.br(Jmp::Ge, count, frames.most, stop);
    let pc = b.load(Size::B8, place, at(PC));
    let pc = frames.address(b, pc);
    let offset = b.shl(count, 3);
    let frame = b.add(place, offset);
    b.store(Size::B8, frame, frames.pcs as i16, pc);
    ends_at(b, frames, frame, UNKNOWN_END);
    let count = b.add(count, 1);
    b.store(Size::B8, place, 0, count);
    let back = b.load(Size::B8, place, at(BACK));
    let target = b.sub(pc, back);

    let (cfa, bp_at) = (b.var(), b.var());
    let space = b.load(Size::B8, place, at(SPACE));
    let tag = b.mul(target, KEY_FACTOR as i64);
    let tag = b.xor(tag, space);
    let number = b.shr(tag, 64 - i64::from(FOUND_SHIFT));
    let offset = b.shl(number, i64::from(FOUND.trailing_zeros()));
    let memory = b.add(remembered, offset);
    let row = b.var();
    let before = b.load(Size::B8, memory, FOUND_ROW as i16);
    b.set(row, before);
    let mark = b.load(Size::B8, memory, 0);
    let mark = b.xor(mark, row);
    b.br(Jmp::Eq, mark, tag, has_row);
    // What called nothing has pushed its return address. No code is there, so this is never
    // remembered.
    b.br(Jmp::Lt, target, LOWEST, called);

    let start = b.load(Size::B8, place, at(START));
    let length = b.load(Size::B8, place, at(LENGTH));
    let into = b.sub(target, start);
    b.br(Jmp::Lt, into, length, has_range);
    let unlisted = b.label();
    look_up_range(b, frames, target, unlisted);
    b.bind(has_range);
    let table = b.load(Size::B8, place, at(TABLE));
    b.match_(table, [(PENDING, wanting), (NO_TABLE, no_row), (AMBIGUOUS, broken)]);
    let delta = b.load(Size::B8, place, at(DELTA));
    let into = b.add(target, delta);
    let page = b.shr(into, i64::from(PAGE_SHIFT));
    let pages = b.shr(table, 32);
    b.br(Jmp::Ge, page, pages, no_row);
    let first = b.low32(table);
    let word = b.add(first, page);
    let there = b.call_global("dt_unwind_row", &[Arg::Word(word), Arg::Word(into)], find_row);
    b.set(row, there);
    b.jmp(new);
    b.bind(no_row);
    b.set(row, 0);
    b.bind(new);
    let mark = b.xor(tag, row);
    b.store(Size::B8, memory, 0, mark);
    b.store(Size::B8, memory, FOUND_ROW as i16, row);
    b.bind(has_row);

    let (sp, bp) = stack_pointers(b, frames);
    let kind = b.shr(row, i64::from(KIND_SHIFT));
    let kind = b.and(kind, KINDS as i64);
    let offset = b.sar(row, i64::from(OFFSET_SHIFT));
    let [by_bp, by_sp, plt, realigned, signal, saved, by_register] = b.labels();
    for (which, to) in [
        (Kind::Sp, by_sp),
        (Kind::Bp, by_bp),
        (Kind::None, by_frame_pointer),
        (Kind::Plt, plt),
        (Kind::Realigned, realigned),
        (Kind::Signal, signal),
        (Kind::End, stop),
        (Kind::Saved, saved),
        (Kind::Register, by_register),
    ] {
        b.br(Jmp::Eq, kind, which as u8, to);
    }
    b.jmp(broken);
    b.bind(by_sp);
    let sum = b.add(sp, offset);
    b.set(cfa, sum);
    b.jmp(found);
    b.bind(by_bp);
    let sum = b.add(bp, offset);
    b.set(cfa, sum);
    b.jmp(found);
    b.bind(plt);
    let low = b.and(pc, 15);
    // 1 where the offset of the row is at most that in the entry of the table.
    let beyond = b.sub(offset, low);
    let beyond = b.sub(beyond, 1);
    let more = b.shr(beyond, 63);
    let more = b.shl(more, frames.word_shift());
    let sum = b.add(sp, frames.word());
    let sum = b.add(sum, more);
    b.set(cfa, sum);
    b.jmp(found);
    b.bind(saved);
    let there = b.add(sp, offset);
    let entry = address(b, frames, there, false, broken);
    let above = b.add(entry, frames.word());
    b.set(cfa, above);
    b.jmp(found);
    b.bind(by_register);
    // The registers of callers are not known.
    b.br(Jmp::Ne, count, 1, broken);
    let value = saved_register(b, offset, broken);
    let value = frames.address(b, value);
    let above = b.sar(offset, 4);
    let sum = b.add(value, above);
    b.set(cfa, sum);
    b.jmp(found);
    b.bind(realigned);
    let there = b.add(bp, offset);
    let aligned = address(b, frames, there, false, broken);
    b.set(cfa, aligned);
    b.bind(found);
    let mode = b.shr(row, i64::from(BP_MODE_SHIFT));
    let mode = b.and(mode, BP_MODES as i64);
    let words = b.shl(row, 64 - 8 - i64::from(BP_SHIFT));
    let words = b.sar(words, 64 - 8);
    let words = b.shl(words, frames.word_shift());
    let has_place = b.label();
    b.set(bp_at, 0);
    b.br(Jmp::Eq, mode, 0, has_place);
    b.if_(Jmp::Eq, mode, BP_AT_CFA, |b| {
        let there = b.add(cfa, words);
        b.set(bp_at, there);
        b.jmp(has_place);
    });
    let there = b.add(bp, words);
    b.set(bp_at, there);
    b.bind(has_place);
    next(b, frames, frame, (sp, cfa, bp_at), (stop, broken));

    b.bind(signal);
    let saved = b.add(sp, offset);
    signal_frame(b, frames, frame, saved, broken);

    b.bind(unlisted);
    if let Some(mappings) = frames.offsets.mappings {
        let (offsets, key) = (frames.offsets, frames.key);
        let left = b.load(Size::B8, place, at(ASKS));
        b.br(Jmp::Eq, left, 0, wanting);
        let left = b.sub(left, 1);
        b.store(Size::B8, place, at(ASKS), left);
        let result = b.add(place, frames.state + START);
        let args = [Arg::Memory(result, mappings::RESULT), Arg::Word(target)];
        let narrow = frames.narrow;
        let name = if narrow { "dt_unwind_mapped_narrow" } else { "dt_unwind_mapped" };
        let known = b.call_global(name, &args, |b| mappings::find(b, (offsets, mappings), key, narrow));
        b.br(Jmp::Eq, known, mappings::KNOWN, has_range);
        // What was stored of the mapping is of no use.
        b.store(Size::B8, place, at(LENGTH), 0);
        b.br(Jmp::Ne, known, mappings::REFUSED, wanting);
        // A stack is counted once.
        let status = b.load(Size::B8, place, at(STATUS));
        b.br(Jmp::Ne, status, WHOLE, wanting);
        let busy = b.map_value(MapRef::UnwindDirectory, BUSY);
        b.atomic_add(busy, 0, 1);
    }
    b.bind(wanting);
    b.store(Size::B8, place, at(STATUS), WANTING);
    b.bind(by_frame_pointer);
    if frames.entry {
        let entry = b.load(Size::B8, place, at(ENTRY));
        b.br(Jmp::Ne, entry, 0, called);
    }
    let (sp, bp) = stack_pointers(b, frames);
    b.br(Jmp::Eq, bp, 0, stop);
    b.br(Jmp::Lt, bp, sp, broken);
    let above = b.add(bp, 2 * frames.word());
    b.set(cfa, above);
    b.set(bp_at, bp);
    next(b, frames, frame, (sp, cfa, bp_at), (stop, broken));

    b.bind(called);
    let (sp, _) = stack_pointers(b, frames);
    let above = b.add(sp, frames.word());
    b.set(cfa, above);
    b.set(bp_at, 0);
    next(b, frames, frame, (sp, cfa, bp_at), (stop, broken));

    b.bind(broken);
    let status = b.load(Size::B8, place, at(STATUS));
    b.br(Jmp::Ne, status, WHOLE, stop);
    b.store(Size::B8, place, at(STATUS), BROKEN);
    b.bind(stop);
    b.exit(1);
}

/// The register of the process whose word the low bits of an offset are.
fn saved_register(b: &mut Builder, offset: V, broken: Label) -> V {
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    let saved = b.call(Helper::TASK_PT_REGS, &[task]);
    let word = b.and(offset, 15);
    let at = b.shl(word, 3);
    let from = b.add(saved, at);
    let to = b.stack(8);
    b.slot_store(Size::B8, to, 0, 0);
    let (address, size) = (b.slot_addr(to, 0), b.imm(8));
    let failed = b.call(Helper::PROBE_READ_KERNEL, &[address, size, from]);
    b.br(Jmp::Ne, failed, 0, broken);
    b.slot_load(Size::B8, to, 0)
}

/// A word of the process that is an address. See [`read`].
fn address(b: &mut Builder, frames: &Frames, at: V, moves: bool, broken: Label) -> V {
    let value = read(b, frames.window(), at, moves, broken);
    frames.address(b, value)
}

/// The stack pointer and the frame pointer. What the kernel has saved of a 32-bit process may have
/// more bits.
fn stack_pointers(b: &mut Builder, frames: &Frames) -> (V, V) {
    let at = |offset: u32| (frames.state + offset) as i16;
    let sp = b.load(Size::B8, frames.place, at(SP));
    let bp = b.load(Size::B8, frames.place, at(BP));
    (frames.address(b, sp), frames.address(b, bp))
}

/// Finds the range of an address and stores it. Jumps to `none` if there is none.
fn look_up_range(b: &mut Builder, frames: &Frames, target: V, none: Label) {
    let at = |offset: u32| (frames.state + offset) as i16;
    let place = frames.place;
    let first = b.load(Size::B8, place, at(FIRST));
    let count = b.load(Size::B8, place, at(COUNT));
    b.br(Jmp::Eq, count, 0, none);
    let args = [Arg::Word(target), Arg::Word(first), Arg::Word(count)];
    let number = b.call_global("dt_unwind_range", &args, |b| {
        let (target, first, count) = (b.param(0), b.param(1), b.param(2));
        let directory = b.map_value(MapRef::UnwindDirectory, 0);
        let place = |b: &mut Builder, number: V| {
            let number = b.and(number, i64::from(RANGES_END) - 1);
            let offset = b.shl(number, i64::from(RANGE_SHIFT));
            b.add(directory, offset)
        };
        search(b, target, first, count, 0, |b, number| {
            let range = place(b, number);
            b.load(Size::B8, range, 0)
        });
        b.exit(first);
    });
    let number = b.and(number, i64::from(RANGES_END) - 1);
    let offset = b.shl(number, i64::from(RANGE_SHIFT));
    let directory = b.map_value(MapRef::UnwindDirectory, 0);
    let range = b.add(directory, offset);
    let start = b.load(Size::B8, range, 0);
    let end = b.load(Size::B8, range, RANGE_END as i16);
    let (length, into) = (b.sub(end, start), b.sub(target, start));
    b.br(Jmp::Ge, into, length, none);
    b.store(Size::B8, place, at(START), start);
    b.store(Size::B8, place, at(LENGTH), length);
    for (from, to) in [(RANGE_TABLE, TABLE), (RANGE_DELTA, DELTA)] {
        let value = b.load(Size::B8, range, from as i16);
        b.store(Size::B8, place, at(to), value);
    }
}

/// Ends a turn: the caller's stack pointer is known, and where its frame pointer is (0: in its
/// register).
fn next(
    b: &mut Builder,
    frames: &Frames,
    frame: V,
    (sp, cfa, bp_at): (V, V, V),
    (stop, broken): (Label, Label),
) {
    let at = |offset: u32| (frames.state + offset) as i16;
    let place = frames.place;
    b.br(Jmp::Le, cfa, sp, broken);
    ends_at(b, frames, frame, cfa);
    let there = b.sub(cfa, frames.word());
    let pc = address(b, frames, there, true, broken);
    if let Some(offsets) = frames.offsets.returns {
        true_address(b, frames, offsets, pc, there);
    }
    b.store(Size::B8, place, at(PC), pc);
    b.store(Size::B8, place, at(SP), cfa);
    b.store(Size::B8, place, at(BACK), 1);
    if frames.entry {
        b.store(Size::B8, place, at(ENTRY), 0);
    }
    b.if_(Jmp::Ne, bp_at, 0, |b| {
        let bp = address(b, frames, bp_at, false, broken);
        b.store(Size::B8, place, at(BP), bp);
    });
    b.br(Jmp::Eq, pc, 0, stop);
    b.br(Jmp::Lt, pc, LOWEST, broken);
    b.exit(0);
}

/// Replaces the return address `pc`, which is at `there`, if it is the trampoline of returns that
/// are probed. It remains where the kernel does not know the true one.
fn true_address(b: &mut Builder, frames: &Frames, offsets: ReturnOffsets, pc: V, there: V) {
    let (probed, done) = (b.label(), b.label());
    let trampoline = b.load(Size::B8, frames.place, (frames.state + TRAMPOLINE) as i16);
    b.br(Jmp::Eq, pc, trampoline, probed);
    b.bind(done);
    b.out_of_line(|b| {
        b.bind(probed);
        let window = b.add(frames.place, frames.state + WINDOW);
        let args = [Arg::Memory(window, WINDOW_SIZE), Arg::Word(there)];
        let unknown = b.call_global("dt_unwind_return", &args, |b| find_return(b, offsets));
        b.br(Jmp::Ne, unknown, 0, done);
        let address = b.load(Size::B8, window, VALUE);
        b.set(pc, address);
        b.jmp(done);
    });
}

/// Ends a turn at the frame of a signal handler: the interrupted stack pointer is at `saved`, the
/// frame pointer and the program counter around it.
fn signal_frame(b: &mut Builder, frames: &Frames, frame: V, saved: V, broken: Label) {
    let at = |offset: u32| (frames.state + offset) as i16;
    let place = frames.place;
    let (bp_at, pc_at) = if frames.narrow { (-4, 28) } else { (-40, 8) };
    for (from, to) in [(bp_at, BP), (pc_at, PC), (0, SP)] {
        let there = b.add(saved, from);
        let value = address(b, frames, there, false, broken);
        b.store(Size::B8, place, at(to), value);
        if to == SP {
            ends_at(b, frames, frame, value);
        }
    }
    b.store(Size::B8, place, at(BACK), 0);
    if frames.entry {
        b.store(Size::B8, place, at(ENTRY), 0);
    }
    b.exit(0);
}
