//! Walks the kernel's stack by the tables by which the kernel walks it itself (ORC).
//!
//! The kernel has a row for every address of its code: where the frame of the caller is (`sp` or
//! `bp` and an offset), where the caller's `bp` is, and whether a call or an interrupt has led
//! there. The rows are sorted, and those of the kernel itself do not change while it runs. They are
//! read where the kernel has them, by direct loads, so there is nothing to copy and nothing to wait
//! for. What was found is remembered for all CPUs in one table of [`KERNEL_ROWS`] words: a word has
//! a row and which address it is of, so it is stored and loaded as a whole, and needs no lock. A
//! frame then costs a few nanoseconds; a search takes as many steps as the number of rows has bits.
//! The kernel's own walk takes over a microsecond to begin.
//!
//! ```text
//!  word   bits 0-15   offset from sp or bp to the frame of the caller
//!         16-31       offset to the caller's bp
//!         32-35       which register the frame is counted from   (ORC_REG_*)
//!         36-37       how bp is restored: 0 not changed, 1 near the frame, 2 near bp, 3 otherwise
//!         38-40       how the code was entered                   (ORC_TYPE_*), 0: nothing is known of the address
//!         41          its caller was interrupted, and has not called
//!         44-63       the low bits of the hash of the address, whose high bits are the number of the word
//!
//!  state  +0   ip  sp  bp, what is subtracted from ip to find its row
//!         +32  number of frames, status; what a search leaves; r10
//! ```
//!
//! The hash has as many different values as there are addresses in the two gigabytes in which the
//! kernel's code is, so a word that has the right bits is that of the address.
//!
//! A module has rows of its own, which are found as the kernel finds them: in a tree whose copy
//! that is not being changed is read, and that says how often it was changed. Rows of modules are
//! remembered until a module comes or goes; from then on they are searched each time, because
//! another module may be where one was.
//!
//! What cannot be walked exactly is not walked: an address without a row (code of BPF,
//! trampolines), a return address that the kernel has replaced, a rule that is not one of the
//! usual. The walk then fails, and the caller takes the whole stack from the kernel.
//!
//! ARCH(x86-64): the tables, their rows and registers.
//!
//! Sources: arch/x86/kernel/unwind_orc.c, arch/x86/include/asm/orc_types.h.

use crate::arch::x86_64::{FLAGS_FIXED, regs};
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, MapRef, Size, V};
use crate::target::{DirectLoad, KernelTables, ModuleTables};
use plane::unwind::INCOMPLETE;

/// Words of [`MapRef::KernelRows`]: the rows, and how often modules had come or gone when the first
/// row of one was remembered.
pub const KERNEL_ROWS: u32 = (1 << ROWS_BITS) + 1;
/// Offset of that number, plus 1.
const CHANGES: u32 = 8 << ROWS_BITS;
const ROWS_BITS: i64 = 13;
/// An odd number, by which the low halves of addresses are mixed: each gives another product.
const FACTOR: i64 = 0x9e37_79b1;
/// Where the hash begins in a word.
const TAG_SHIFT: i64 = 44;

const BP_OFFSET_SHIFT: i64 = 16;
const BASE_SHIFT: i64 = 32;
const BP_SHIFT: i64 = 36;
const TYPE_SHIFT: i64 = 38;
const SIGNAL_SHIFT: i64 = 41;

/// The bit of a row that was found and that must not be remembered.
const FORGET: i64 = 1 << 42;

/// The state of a module whose tables are not sorted yet (`MODULE_STATE_UNFORMED`).
const UNFORMED: i64 = 3;
/// The most levels of the tree of modules: it is balanced, and a module has seven nodes at most.
const LEVELS: i64 = 32;

/// Registers in a word. They have the numbers that kernels gave them before 7.2 (`ORC_REG_*`).
const REG_UNDEFINED: i64 = 0;
const REG_BP: i64 = 4;
const REG_SP: i64 = 5;
const REG_R10: i64 = 6;
const REG_BP_INDIRECT: i64 = 8;
const REG_SP_INDIRECT: i64 = 9;
const REG_UNKNOWN: i64 = 15;

/// How bp is restored, in a word.
const BP_NEAR_FRAME: i64 = 1;
const BP_NEAR_BP: i64 = 2;
const BP_OTHERWISE: i64 = 3;

/// How code was entered (`ORC_TYPE_*`, since 6.4).
const END_OF_STACK: i64 = 1;
const CALL: i64 = 2;
const REGS: i64 = 3;
const REGS_PARTIAL: i64 = 4;

/// The bits of a word from [`BASE_SHIFT`] on where a call has led to code whose frame is found by
/// sp, or by bp.
const CALL_BY_SP: i64 = REG_SP | CALL << (TYPE_SHIFT - BASE_SHIFT);
const CALL_BY_BP: i64 = REG_BP | CALL << (TYPE_SHIFT - BASE_SHIFT);
const BP_BITS: i64 = 3 << (BP_SHIFT - BASE_SHIFT);

/// A frame is smaller than this: the largest stack of a thread.
const FRAME_MAX: i64 = 1 << 15;
/// Among the last addresses, which differ only in so many bits, is the vsyscall page, whose direct
/// load older kernels do not survive.
const LAST_BITS: i64 = 24;
/// The kernel's code, its modules and what else it runs are in the last two gigabytes.
const CODE_BITS: i64 = 31;

/// Offsets in the state.
pub(super) const IP: u32 = 0;
pub(super) const SP: u32 = 8;
pub(super) const BP: u32 = 16;
pub(super) const BACK: u32 = 24;
pub(super) const COUNT: u32 = 32;
const STATUS: u32 = 40;
/// A word that the walk does not use.
pub(super) const SPARE: u32 = 48;
/// The register r10 of the frame, if it was interrupted: functions that align their stack count
/// their frame from it at their beginning and end. It is 0 where it is not known.
const R10: u32 = 56;
/// Bytes of the state.
pub(super) const STATE: u32 = 64;

/// The status of a walk that met what it cannot walk.
const FAILED: i64 = 1;

/// Where a walk puts its frames.
#[derive(Clone, Copy)]
pub(super) struct Frames<'a> {
    /// The address of an area.
    pub(super) place: V,
    /// Offset of the first frame in the area.
    pub(super) pcs: u32,
    /// Offset of the state in the area.
    pub(super) state: u32,
    /// The most frames.
    pub(super) most: u32,
    /// The last frame of a walk that fails is the mark that frames are missing.
    pub(super) marks: bool,
    /// The kernel's tables.
    pub(super) tables: &'a KernelTables,
}

impl Frames<'_> {
    fn at(&self, offset: u32) -> i16 {
        (self.state + offset) as i16
    }
}

/// Loads from any address of the kernel. What cannot be read is 0.
fn direct(b: &mut Builder, how: DirectLoad, size: Size, at: V) -> V {
    let number = b.imm(i64::from(how.number));
    let pointer = b.kfunc(how.cast, &[at, number]);
    b.load(size, pointer, 0)
}

/// The word at an address plus an offset.
fn word_at(b: &mut Builder, how: DirectLoad, base: V, offset: i64) -> V {
    let at = if offset == 0 { base } else { b.add(base, offset) };
    direct(b, how, Size::B8, at)
}

/// Begins at the caller of the program, at which the state comes to be. With `trampoline`, at the
/// caller of its caller, which has a frame pointer.
pub(super) fn begin_at_caller(b: &mut Builder, frames: &Frames<'_>, trampoline: bool) {
    let (load, at) = (frames.tables.load, |offset| frames.at(offset));
    let (own, place) = (at(SP), frames.place);
    // The program's frame may be in memory of its own, which says nothing of the stack. A function
    // with a small frame has it on the stack; there its frame pointer leads to the program's. As
    // soon as the function has returned, others use that memory.
    b.call_sub("dt_frame", &[place], |b| {
        let place = b.param(0);
        let pointer = b.frame_pointer();
        b.store(Size::B8, place, own, pointer);
        let number = b.load(Size::B8, place, own);
        let caller = direct(b, load, Size::B8, number);
        b.store(Size::B8, place, own, caller);
    });
    let mut frame = b.load(Size::B8, place, own);
    if trampoline {
        frame = direct(b, load, Size::B8, frame);
    }
    let bp = direct(b, load, Size::B8, frame);
    b.store(Size::B8, place, at(BP), bp);
    let ip = word_at(b, load, frame, 8);
    b.store(Size::B8, place, at(IP), ip);
    let sp = b.add(frame, 16);
    b.store(Size::B8, place, at(SP), sp);
    b.store(Size::B8, place, at(BACK), 1);
}

/// Begins at the registers that `ctx` has. Goes to `other` where the kernel has not saved all of
/// them.
pub(super) fn begin_at_registers(b: &mut Builder, frames: &Frames<'_>, ctx: V, other: Label) {
    // There, the bit is not set.
    let flags = b.load(Size::B8, ctx, regs::FLAGS);
    let fixed = b.and(flags, FLAGS_FIXED);
    b.br(Jmp::Eq, fixed, 0, other);
    for (register, to) in [(regs::IP, IP), (regs::SP, SP), (regs::BP, BP), (regs::R10, R10)] {
        let value = b.load(Size::B8, ctx, register);
        b.store(Size::B8, frames.place, frames.at(to), value);
    }
    b.store(Size::B8, frames.place, frames.at(BACK), 0);
}

/// Walks from the state on. Falls through with the number of frames in the state; jumps to
/// `failed`, if that is given, where the walk has met what it cannot walk.
pub(super) fn walk(b: &mut Builder, frames: &Frames<'_>, failed: Option<Label>) {
    let given = b.stack(8);
    b.slot_store(Size::B8, given, 0, frames.place);
    b.store(Size::B8, frames.place, frames.at(COUNT), 0);
    b.store(Size::B8, frames.place, frames.at(STATUS), 0);
    let turn = b.sub_addr("dt_kernel_step", 2, |b| {
        let given = b.param(1);
        let place = b.load(Size::B8, given, 0);
        step(b, &Frames { place, ..*frames });
    });
    let (turns, given, flags) = (b.imm(i64::from(frames.most)), b.slot_addr(given, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, turn, given, flags]);
    if let Some(failed) = failed {
        let status = has_failed(b, frames);
        b.br(Jmp::Ne, status, 0, failed);
    }
}

/// Not 0 if the walk has failed.
pub(super) fn has_failed(b: &mut Builder, frames: &Frames<'_>) -> V {
    b.load(Size::B8, frames.place, frames.at(STATUS))
}

/// One turn: stores a frame and finds that of its caller.
fn step(b: &mut Builder, frames: &Frames<'_>) {
    let (place, load) = (frames.place, frames.tables.load);
    let at = |offset: u32| frames.at(offset);
    let [end, failed, slow, has_frame, same_bp, near_frame, decode] = b.labels();
    let count = b.load(Size::B8, place, at(COUNT));
    b.br(Jmp::Ge, count, frames.most, end);
    let ip = b.load(Size::B8, place, at(IP));
    let offset = b.shl(count, 3);
    let frame = b.add(place, offset);
    b.store(Size::B8, frame, frames.pcs as i16, ip);
    b.update(Alu::Add, count, 1);
    b.store(Size::B8, place, at(COUNT), count);
    b.br(Jmp::Eq, count, frames.most, end);
    let back = b.load(Size::B8, place, at(BACK));
    let target = b.sub(ip, back);
    let high = b.sar(target, CODE_BITS);
    b.br(Jmp::Ne, high, -1, failed);

    let factor = b.imm(FACTOR);
    let hash = b.alu32(Alu::Mul, target, factor);
    let number = b.shr(hash, 32 - ROWS_BITS);
    let offset = b.shl(number, 3);
    let rows = b.map_value(MapRef::KernelRows, 0);
    let known = b.add(rows, offset);
    let tag = b.shl(hash, TAG_SHIFT);
    let word = b.load(Size::B8, known, 0);
    let row = b.xor(word, tag);
    if let Some(modules) = &frames.tables.modules {
        let (of_module, kept) = (b.label(), b.label());
        let end = frames.tables.text.iter().map(|(start, size)| start + u64::from(*size)).max().unwrap_or(0);
        let end = b.imm(end as i64);
        b.br(Jmp::Ge, target, end, of_module);
        b.bind(kept);
        b.out_of_line(|b| {
            b.bind(of_module);
            // What is remembered of modules is true while no module has come or gone.
            let remembered = b.map_value(MapRef::KernelRows, CHANGES);
            let remembered = b.load(Size::B8, remembered, 0);
            let changes = number_of_changes(b, load, modules);
            let now = b.add(changes, 1);
            b.br(Jmp::Eq, now, remembered, kept);
            b.set(row, 0);
            b.jmp(kept);
        });
    }

    // A row of another address has bits above the kind, so it is none of these.
    let kind = b.shr(row, BASE_SHIFT);
    let bp_kind = b.and(kind, BP_BITS);
    let kind = b.xor(kind, bp_kind);
    let cfa = b.var();
    let offset = b.shl(row, 48);
    let offset = b.sar(offset, 48);
    let sp = b.load(Size::B8, place, at(SP));
    let by_sp = b.add(sp, offset);
    b.set(cfa, by_sp);
    b.br(Jmp::Eq, kind, CALL_BY_SP, has_frame);
    b.br(Jmp::Ne, kind, CALL_BY_BP, slow);
    let bp = b.load(Size::B8, place, at(BP));
    let by_bp = b.add(bp, offset);
    b.set(cfa, by_bp);
    b.bind(has_frame);
    let size = b.sub(cfa, sp);
    let size = b.sub(size, 1);
    b.br(Jmp::Ge, size, FRAME_MAX, failed);
    b.br(Jmp::Eq, bp_kind, 0, same_bp);
    b.br(Jmp::Eq, bp_kind, BP_NEAR_FRAME << (BP_SHIFT - BASE_SHIFT), near_frame);
    b.jmp(decode);
    b.bind(near_frame);
    let bp = near(b, load, row, cfa);
    b.store(Size::B8, place, at(BP), bp);
    b.bind(same_bp);
    let caller = word_at(b, load, cfa, -8);
    b.store(Size::B8, place, at(SP), cfa);
    b.store(Size::B8, place, at(BACK), 1);
    next(b, frames, caller, failed);

    b.bind(slow);
    let other = b.shr(row, TAG_SHIFT);
    let search = b.label();
    b.br(Jmp::Ne, other, 0, search);
    let entered = field(b, row, TYPE_SHIFT, 7);
    b.br(Jmp::Ne, entered, 0, decode);
    b.bind(search);
    let tables = *frames.tables;
    let found = b.call_global("dt_kernel_row", &[Arg::Word(target)], |b| find_row(b, &tables));
    b.br(Jmp::Eq, found, 0, failed);
    let forget = b.imm(FORGET);
    let known_bits = b.alu(Alu::And, found, forget);
    let plain = b.xor(found, known_bits);
    b.set(row, plain);
    b.br(Jmp::Ne, known_bits, 0, decode);
    let word = b.xor(plain, tag);
    b.store(Size::B8, known, 0, word);
    b.bind(decode);
    any_row(b, frames, row, (end, failed));

    b.bind(failed);
    if frames.marks {
        let full = b.label();
        let count = b.load(Size::B8, place, at(COUNT));
        b.br(Jmp::Ge, count, frames.most, full);
        let offset = b.shl(count, 3);
        let frame = b.add(place, offset);
        b.store(Size::B8, frame, frames.pcs as i16, INCOMPLETE);
        b.update(Alu::Add, count, 1);
        b.store(Size::B8, place, at(COUNT), count);
        b.bind(full);
    }
    b.store(Size::B8, place, at(STATUS), FAILED);
    b.bind(end);
    b.exit(1);
}

/// Some bits of a row.
fn field(b: &mut Builder, row: V, shift: i64, mask: i64) -> V {
    let bits = b.shr(row, shift);
    b.and(bits, mask)
}

/// The word at the row's second offset from an address.
fn near(b: &mut Builder, load: DirectLoad, row: V, base: V) -> V {
    let offset = b.shl(row, 64 - BP_OFFSET_SHIFT - 16);
    let offset = b.sar(offset, 48);
    let at = b.add(base, offset);
    direct(b, load, Size::B8, at)
}

/// Ends the turn: the next frame is at `caller`, a return address.
fn next(b: &mut Builder, frames: &Frames<'_>, caller: V, failed: Label) {
    b.br(Jmp::Sge, caller, 0, failed);
    for replaced in frames.tables.replaced.into_iter().flatten() {
        let replaced = b.imm(replaced as i64);
        b.br(Jmp::Eq, caller, replaced, failed);
    }
    b.store(Size::B8, frames.place, frames.at(IP), caller);
    b.exit(0);
}

/// Goes to `failed` unless the address is one of the kernel's memory, which can be loaded from.
fn must_be_kernel(b: &mut Builder, address: V, failed: Label) {
    b.br(Jmp::Sge, address, 0, failed);
    let high = b.sar(address, LAST_BITS);
    b.br(Jmp::Eq, high, -1, failed);
}

/// Ends the turn by a row of any kind.
fn any_row(b: &mut Builder, frames: &Frames<'_>, row: V, (end, failed): (Label, Label)) {
    let (place, load) = (frames.place, frames.tables.load);
    let at = |offset: u32| frames.at(offset);
    let [direct_base, by_sp, by_bp, by_r10, has_frame, of_call, partial, same_bp, near_bp, has_bp] =
        b.labels();
    let entered = field(b, row, TYPE_SHIFT, 7);
    b.br(Jmp::Eq, entered, END_OF_STACK, end);
    let base = field(b, row, BASE_SHIFT, 15);
    let offset = b.shl(row, 48);
    let offset = b.sar(offset, 48);
    let (sp, bp) = (b.load(Size::B8, place, at(SP)), b.load(Size::B8, place, at(BP)));
    let cfa = b.var();
    b.br(Jmp::Eq, base, REG_SP, by_sp);
    b.br(Jmp::Eq, base, REG_BP, by_bp);
    b.br(Jmp::Eq, base, REG_R10, by_r10);
    // The stack of an interrupt ends with where the other stack is.
    let indirect = b.copy(sp);
    let (load_it, behind) = (b.label(), b.copy(offset));
    b.br(Jmp::Eq, base, REG_SP_INDIRECT, load_it);
    b.br(Jmp::Ne, base, REG_BP_INDIRECT, failed);
    let there = b.add(bp, offset);
    b.set(indirect, there);
    b.set(behind, 0);
    b.bind(load_it);
    must_be_kernel(b, indirect, failed);
    let loaded = direct(b, load, Size::B8, indirect);
    let loaded = b.add(loaded, behind);
    b.set(cfa, loaded);
    must_be_kernel(b, cfa, failed);
    b.jmp(has_frame);
    b.bind(by_sp);
    let there = b.add(sp, offset);
    b.set(cfa, there);
    b.jmp(direct_base);
    b.bind(by_r10);
    // Of code that has called it is not known.
    let back = b.load(Size::B8, place, at(BACK));
    b.br(Jmp::Ne, back, 0, failed);
    let r10 = b.load(Size::B8, place, at(R10));
    let there = b.add(r10, offset);
    b.set(cfa, there);
    b.jmp(direct_base);
    b.bind(by_bp);
    let there = b.add(bp, offset);
    b.set(cfa, there);
    b.bind(direct_base);
    // Registers may be at the stack pointer itself.
    let size = b.sub(cfa, sp);
    b.br(Jmp::Ge, size, FRAME_MAX, failed);
    b.bind(has_frame);
    let signal = field(b, row, SIGNAL_SHIFT, 1);
    let back = b.xor(signal, 1);
    b.store(Size::B8, place, at(BACK), back);
    b.br(Jmp::Eq, entered, CALL, of_call);

    // Code was interrupted: its registers are there. What is restored of bp is theirs.
    let bp_kind = field(b, row, BP_SHIFT, 3);
    b.br(Jmp::Ne, bp_kind, 0, failed);
    let saved = b.copy(cfa);
    b.store(Size::B8, place, at(R10), 0);
    b.br(Jmp::Eq, entered, REGS_PARTIAL, partial);
    b.br(Jmp::Ne, entered, REGS, failed);
    let saved_bp = word_at(b, load, saved, i64::from(regs::BP));
    b.store(Size::B8, place, at(BP), saved_bp);
    let saved_r10 = word_at(b, load, saved, i64::from(regs::R10));
    b.store(Size::B8, place, at(R10), saved_r10);
    b.update(Alu::Add, saved, i64::from(regs::IP));
    b.bind(partial);
    let level = word_at(b, load, saved, i64::from(regs::CS - regs::IP));
    let level = b.and(level, 3);
    // A process was interrupted, or has called.
    b.br(Jmp::Ne, level, 0, end);
    let saved_sp = word_at(b, load, saved, i64::from(regs::SP - regs::IP));
    must_be_kernel(b, saved_sp, failed);
    b.store(Size::B8, place, at(SP), saved_sp);
    let ip = direct(b, load, Size::B8, saved);
    next(b, frames, ip, failed);

    b.bind(of_call);
    let bp_kind = field(b, row, BP_SHIFT, 3);
    b.br(Jmp::Eq, bp_kind, 0, same_bp);
    b.br(Jmp::Eq, bp_kind, BP_NEAR_BP, near_bp);
    b.br(Jmp::Eq, bp_kind, BP_OTHERWISE, failed);
    let restored = b.copy(cfa);
    b.jmp(has_bp);
    b.bind(near_bp);
    must_be_kernel(b, bp, failed);
    b.set(restored, bp);
    b.bind(has_bp);
    let bp = near(b, load, row, restored);
    b.store(Size::B8, place, at(BP), bp);
    b.bind(same_bp);
    b.store(Size::B8, place, at(SP), cfa);
    let caller = word_at(b, load, cfa, -8);
    next(b, frames, caller, failed);
}

/// The row of an address in the form of [`MapRef::KernelRows`], without the hash; 0 if there is
/// none.
fn find_row(b: &mut Builder, tables: &KernelTables) {
    let address = b.param(0);
    let load = tables.load;
    let [none, in_text, search] = b.labels();
    let (places, rows, count, sequence) = (b.var(), b.var(), b.var(), b.copy(0));
    for (start, size) in tables.text {
        let start = b.imm(start as i64);
        let into = b.sub(address, start);
        b.br(Jmp::Lt, into, i64::from(size), in_text);
    }
    match &tables.modules {
        None => b.jmp(none),
        Some(modules) => {
            let module = find_module(b, load, modules, (address, sequence), none);
            for (to, at) in [(places, modules.places), (rows, modules.rows)] {
                let found = word_at(b, load, module, at.into());
                b.set(to, found);
            }
            let at = b.add(module, i64::from(modules.count));
            let found = direct(b, load, Size::B4, at);
            b.set(count, found);
            b.br(Jmp::Eq, count, 0, none);
            b.jmp(search);
        }
    }
    b.bind(in_text);
    b.set(places, tables.places as i64);
    b.set(rows, tables.rows as i64);
    b.set(count, i64::from(tables.count));
    b.bind(search);
    let at = b.copy(0);
    for step in (0..row_bits(tables.count)).rev() {
        // Without a branch, so that the search is verified once.
        let next = b.add(at, 1i64 << step);
        let within = b.sub(next, count);
        let within = b.shr(within, 63);
        let offset = b.shl(next, 2);
        let place = b.add(places, offset);
        let distance = direct(b, load, Size::B4, place);
        let distance = b.shl(distance, 32);
        let distance = b.sar(distance, 32);
        let start = b.add(place, distance);
        // Addresses of the kernel differ by less than 2^63.
        let behind = b.sub(address, start);
        let behind = b.shr(behind, 63);
        let reached = b.xor(behind, 1);
        let by = b.and(reached, within);
        let by = b.shl(by, i64::from(step));
        b.update(Alu::Add, at, by);
    }
    let found = read_row(b, tables, (rows, at), none);
    if let Some(modules) = &tables.modules {
        must_be_unchanged(b, load, modules, (found, sequence), none);
    }
    b.exit(found);
    b.bind(none);
    b.exit(0);
}

/// How many steps a search takes. A module has fewer rows than the kernel.
fn row_bits(count: u32) -> u32 {
    (u32::BITS - count.leading_zeros()).max(16)
}

/// Reads a row. Jumps to `none` if it says nothing.
fn read_row(b: &mut Builder, tables: &KernelTables, (rows, number): (V, V), none: Label) -> V {
    let (load, layout) = (tables.load, tables.layout);
    let offset = b.mul(number, i64::from(layout.size));
    let row = b.add(rows, offset);
    let bits = b.add(row, i64::from(layout.bits));
    let bits = direct(b, load, Size::B2, bits);
    let offsets = direct(b, load, Size::B4, row);
    let entered = field(b, bits, layout.entered.into(), 7);
    b.br(Jmp::Eq, entered, 0, none);
    let number = field(b, bits, layout.sp_register.into(), 15);
    let registers = tables.registers;
    let base = b.copy(REG_UNKNOWN);
    let usual = [(registers.sp, REG_SP), (registers.bp, REG_BP)];
    let rare = registers.rare.into_iter().flatten().zip([REG_R10, REG_BP_INDIRECT, REG_SP_INDIRECT]);
    for (own, register) in usual.into_iter().chain(rare) {
        let other = b.label();
        b.br(Jmp::Ne, number, i64::from(own), other);
        b.set(base, register);
        b.bind(other);
    }
    let bp = field(b, bits, layout.bp_register.into(), 15);
    let signal = field(b, bits, layout.signal.into(), 1);
    let (bp_kind, has_kind) = (b.copy(0), b.label());
    for (register, kind) in [(registers.prev_sp, BP_NEAR_FRAME), (registers.bp, BP_NEAR_BP)] {
        let other = b.label();
        b.br(Jmp::Ne, bp, i64::from(register), other);
        b.set(bp_kind, kind);
        b.bind(other);
    }
    b.br(Jmp::Ne, bp_kind, 0, has_kind);
    b.br(Jmp::Eq, bp, REG_UNDEFINED, has_kind);
    b.set(bp_kind, BP_OTHERWISE);
    b.bind(has_kind);
    let found = b.copy(offsets);
    for (bits, shift) in
        [(base, BASE_SHIFT), (bp_kind, BP_SHIFT), (entered, TYPE_SHIFT), (signal, SIGNAL_SHIFT)]
    {
        let bits = b.shl(bits, shift);
        b.update(Alu::Or, found, bits);
    }
    found
}

/// The address of the module that an address is in, as the kernel finds it. Sets `sequence` to one
/// more than the number of changes of the tree. Jumps to `none` if there is no such module, or its
/// tables are not ready.
fn find_module(
    b: &mut Builder,
    load: DirectLoad,
    modules: &ModuleTables,
    (address, sequence): (V, V),
    none: Label,
) -> V {
    let [again, left, next, found] = b.labels();
    let changes = number_of_changes(b, load, modules);
    let more = b.add(changes, 1);
    b.set(sequence, more);
    let copy = b.and(changes, 1);
    let offset = b.shl(copy, 3);
    let roots = b.imm(modules.roots as i64);
    let root = b.add(roots, offset);
    let root = direct(b, load, Size::B8, root);
    let node = b.copy(root);
    let behind = b.mul(copy, i64::from(modules.node_size));
    let behind = b.add(behind, i64::from(modules.nodes));
    let (level, memory) = (b.copy(0), b.var());
    b.bind(again);
    b.br(Jmp::Eq, node, 0, none);
    let start = b.sub(node, behind);
    b.set(memory, start);
    let base = word_at(b, load, memory, modules.base.into());
    b.br(Jmp::Lt, address, base, left);
    let into = b.sub(address, base);
    let size = b.add(memory, i64::from(modules.size));
    let size = direct(b, load, Size::B4, size);
    b.br(Jmp::Lt, into, size, found);
    let other = word_at(b, load, node, modules.right.into());
    b.set(node, other);
    b.jmp(next);
    b.bind(left);
    let other = word_at(b, load, node, modules.left.into());
    b.set(node, other);
    b.bind(next);
    b.update(Alu::Add, level, 1);
    b.br(Jmp::Lt, level, LEVELS, again);
    b.jmp(none);
    b.bind(found);
    let module = word_at(b, load, memory, modules.module.into());
    let state = b.add(module, i64::from(modules.state));
    let state = direct(b, load, Size::B4, state);
    b.br(Jmp::Eq, state, UNFORMED, none);
    module
}

/// How often the tree of modules was changed.
fn number_of_changes(b: &mut Builder, load: DirectLoad, modules: &ModuleTables) -> V {
    let at = b.imm(modules.sequence as i64);
    direct(b, load, Size::B4, at)
}

/// Jumps to `none` if the tree of modules was changed while a row was found in it. Marks a row that
/// must not be remembered. `sequence` is 0 for a row of the kernel itself.
fn must_be_unchanged(
    b: &mut Builder,
    load: DirectLoad,
    modules: &ModuleTables,
    (found, sequence): (V, V),
    none: Label,
) {
    let done = b.label();
    b.br(Jmp::Eq, sequence, 0, done);
    let changes = number_of_changes(b, load, modules);
    let now = b.add(changes, 1);
    b.br(Jmp::Ne, now, sequence, none);
    let remembered = b.map_value(MapRef::KernelRows, CHANGES);
    let before = b.cmpxchg(remembered, 0, 0, sequence);
    b.br(Jmp::Eq, before, 0, done);
    b.br(Jmp::Eq, before, sequence, done);
    let forget = b.imm(FORGET);
    b.update(Alu::Or, found, forget);
    b.bind(done);
}
