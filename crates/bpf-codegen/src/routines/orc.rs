//! Walks the kernel's stack by the tables by which the kernel walks it itself (ORC).
//!
//! The kernel has a row for every address of its code: where the frame of the caller is (`sp` or `bp` and an offset), where
//! the caller's `bp` is, and whether a call or an interrupt has led there. The rows are sorted, and do not change while the
//! kernel runs. They are read where the kernel has them, by direct loads, so there is nothing to copy and nothing to wait
//! for. What was found is remembered for all CPUs in one table of [`KERNEL_ROWS`] words: a word has a row and which address
//! it is of, so it is stored and loaded as a whole, and needs no lock. A frame then costs a few nanoseconds; a search
//! takes as many steps as the number of rows has bits. The kernel's own walk takes over a microsecond to begin.
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
//!         +32  number of frames, status
//! ```
//!
//! The hash has as many different values as there are addresses in the two gigabytes in which the kernel's code is, so a
//! word that has the right bits is that of the address.
//!
//! What cannot be walked exactly is not walked: an address without a row (modules, code of BPF, trampolines), a return
//! address that the kernel has replaced, a rule that is not one of the usual. The walk then fails, and the caller takes
//! the whole stack from the kernel.
//!
//! ARCH(x86-64): all of it. Sources: arch/x86/kernel/unwind_orc.c, arch/x86/include/asm/orc_types.h.

use crate::arch::regs;
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, MapRef, Size, V};
use crate::target::{DirectLoad, KernelTables};
use plane::unwind::INCOMPLETE;

/// Words of [`MapRef::KernelRows`].
pub const KERNEL_ROWS: u32 = 1 << ROWS_BITS;
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

/// Registers (`ORC_REG_*`).
const REG_UNDEFINED: i64 = 0;
const REG_PREV_SP: i64 = 1;
const REG_BP: i64 = 4;
const REG_SP: i64 = 5;
const REG_R10: i64 = 6;
const REG_BP_INDIRECT: i64 = 8;
const REG_SP_INDIRECT: i64 = 9;

/// How bp is restored, in a word.
const BP_NEAR_FRAME: i64 = 1;
const BP_NEAR_BP: i64 = 2;
const BP_OTHERWISE: i64 = 3;

/// How code was entered (`ORC_TYPE_*`, since 6.4).
const END_OF_STACK: i64 = 1;
const CALL: i64 = 2;
const REGS: i64 = 3;
const REGS_PARTIAL: i64 = 4;

/// The bits of a word from [`BASE_SHIFT`] on where a call has led to code whose frame is found by sp, or by bp.
const CALL_BY_SP: i64 = REG_SP | CALL << (TYPE_SHIFT - BASE_SHIFT);
const CALL_BY_BP: i64 = REG_BP | CALL << (TYPE_SHIFT - BASE_SHIFT);
const BP_BITS: i64 = 3 << (BP_SHIFT - BASE_SHIFT);

/// A frame is smaller than this: the largest stack of a thread.
const FRAME_MAX: i64 = 1 << 15;
/// Among the last addresses, which differ only in so many bits, is the vsyscall page, whose direct load older kernels do not survive.
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
/// The register r10 of the frame, if it was interrupted: functions that align their stack count their frame from it at their
/// beginning and end. It is 0 where it is not known.
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

/// Begins at the caller of the program, at which the state comes to be. With `trampoline`, at the caller of its caller,
/// which has a frame pointer.
pub(super) fn begin_at_caller(b: &mut Builder, frames: &Frames<'_>, trampoline: bool) {
    let (load, at) = (frames.tables.load, |offset| frames.at(offset));
    let (own, place) = (at(SP), frames.place);
    // The program's frame may be in memory of its own, which says nothing of the stack. A function with a small frame has it on the
    // stack; there its frame pointer leads to the program's. As soon as the function has returned, others use that memory.
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

/// Begins at the registers that `ctx` has.
pub(super) fn begin_at_registers(b: &mut Builder, frames: &Frames<'_>, ctx: V) {
    for (register, to) in [(regs::IP, IP), (regs::SP, SP), (regs::BP, BP), (regs::R10, R10)] {
        let value = b.load(Size::B8, ctx, register);
        b.store(Size::B8, frames.place, frames.at(to), value);
    }
    b.store(Size::B8, frames.place, frames.at(BACK), 0);
}

/// Walks from the state on. Falls through with the number of frames in the state; jumps to `failed`, if that is given,
/// where the walk has met what it cannot walk.
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
    let [end, failed, slow, has_frame, same_bp, near_frame, decode] = [(); 7].map(|()| b.label());
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
    let row = b.copy(row);

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
    b.set(row, found);
    let word = b.xor(found, tag);
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
        [(); 10].map(|()| b.label());
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

/// The row of an address in the form of [`MapRef::KernelRows`], without the hash; 0 if there is none.
fn find_row(b: &mut Builder, tables: &KernelTables) {
    let address = b.param(0);
    let load = tables.load;
    let (none, within) = (b.label(), b.label());
    for (start, size) in tables.text {
        let start = b.imm(start as i64);
        let into = b.sub(address, start);
        b.br(Jmp::Lt, into, i64::from(size), within);
    }
    b.jmp(none);
    b.bind(within);
    let at = b.copy(0);
    for step in (0..u32::BITS - tables.count.saturating_sub(1).leading_zeros()).rev() {
        // Without a branch, so that the search is verified once.
        let next = b.add(at, 1i64 << step);
        let within = b.sub(next, i64::from(tables.count));
        let within = b.shr(within, 63);
        let offset = b.shl(next, 2);
        let places = b.imm(tables.places as i64);
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
    let layout = tables.layout;
    let offset = b.mul(at, i64::from(layout.size));
    let rows = b.imm(tables.rows as i64);
    let row = b.add(rows, offset);
    let bits = b.add(row, i64::from(layout.bits));
    let bits = direct(b, load, Size::B2, bits);
    let offsets = direct(b, load, Size::B4, row);
    let entered = field(b, bits, layout.entered.into(), 7);
    b.br(Jmp::Eq, entered, 0, none);
    let base = field(b, bits, layout.sp_register.into(), 15);
    let bp = field(b, bits, layout.bp_register.into(), 15);
    let signal = field(b, bits, layout.signal.into(), 1);
    let (bp_kind, has_kind) = (b.copy(REG_UNDEFINED), b.label());
    for (register, kind) in [(REG_PREV_SP, BP_NEAR_FRAME), (REG_BP, BP_NEAR_BP)] {
        let other = b.label();
        b.br(Jmp::Ne, bp, register, other);
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
    b.exit(found);
    b.bind(none);
    b.exit(0);
}
