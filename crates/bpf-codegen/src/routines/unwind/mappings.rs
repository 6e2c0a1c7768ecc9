//! Finds what is mapped at an address where the consumer has not said it: the kernel tells the
//! mapping, and the file is found by its inode ([`plane::unwind`] says when and why).
//!
//! The kernel calls a function with the mapping while it holds the lock of the address space. That
//! function copies numbers; all else is done behind it.

use plane::siphash::Key;
use plane::unwind::{
    FILE_BASE, FILE_CONTENTS, FILE_INODE, FILE_LOAD, FILE_LOADS, KEY_FACTOR, MAX_LOADS, NO_TABLE, SHARES_AT,
    UNKNOWN_FILE, UNKNOWN_FILES,
};

use crate::mir::{Builder, Helper, Jmp, MapRef, Size};
use crate::routines::shares;
use crate::target::{MappingOffsets, UnwindOffsets};

/// Offsets in the result: start, length, table, delta of a range.
const LENGTH: i16 = 8;
const TABLE: i16 = 16;
const DELTA: i16 = 24;
/// Bytes of the result.
pub(super) const RESULT: u32 = 32;

/// Offsets in what is copied of a mapping. The first two words are the key of its file.
const DEVICE: i16 = 0;
const INODE: i16 = FILE_INODE as i16;
const START: i16 = 16;
const END: i16 = 24;
const OFFSET: i16 = 32;
const CONTENTS: i16 = 40;
/// [`NONE`], [`FILE`] or [`ANONYMOUS`].
const WHAT: i16 = 48;
/// Where the vdso begins, which the kernel maps without a file.
const VDSO: i16 = 56;
/// Bytes of all of it.
const COPY: u32 = 64;

/// The bits of nanoseconds. Since 6.13 the highest of the word says that somebody has asked for the
/// time (`I_CTIME_QUERIED`).
const NANOSECONDS: i64 = (1 << 30) - 1;

/// Nothing is mapped.
const NONE: i64 = 0;
/// A file.
const FILE: i64 = 1;
/// Memory without a file.
const ANONYMOUS: i64 = 2;

/// What the function gives if the range of the address is in the result.
pub(super) const KNOWN: i64 = 1;
/// The kernel could not tell it at this time.
pub(super) const REFUSED: i64 = 2;

/// What `bpf_find_vma` gives while the mappings are locked or, with interrupts disabled, if it was
/// called before: `-EBUSY`.
const BUSY: i64 = -16;

/// The body of a function of a result and an address: [`KNOWN`], [`REFUSED`], or 0 if the range is
/// not known; then the consumer is asked for the file. `narrow`: the process has 32 bits; its vdso
/// is another one, which is not known so.
pub(super) fn find(
    b: &mut Builder,
    (offsets, mappings): (UnwindOffsets, MappingOffsets),
    key: Key,
    narrow: bool,
) {
    let (result, target) = (b.param(0), b.param(1));
    let [none, anonymous, unknown, is_new, found, told] = b.labels();
    let copy = b.stack(COPY);
    for at in (0..COPY as i16).step_by(8) {
        b.slot_store(Size::B8, copy, at, NONE);
    }
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    if !narrow {
        let mm = b.load(Size::B8, task, offsets.mm);
        let vdso = b.load(Size::B8, mm, mappings.vdso);
        b.slot_store(Size::B8, copy, VDSO, vdso);
    }
    let callback = b.sub_addr("dt_unwind_mapping", 3, |b| copy_mapping(b, mappings));
    let (to, flags) = (b.slot_addr(copy, 0), b.imm(0));
    let failed = b.call(Helper::FIND_VMA, &[task, target, callback, to, flags]);
    b.br(Jmp::Eq, failed, 0, told);
    b.br(Jmp::Ne, failed, BUSY, none);
    b.exit(REFUSED);
    b.bind(told);
    let start = b.slot_load(Size::B8, copy, START);
    let end = b.slot_load(Size::B8, copy, END);
    let length = b.sub(end, start);
    b.store(Size::B8, result, 0, start);
    b.store(Size::B8, result, LENGTH, length);
    b.store(Size::B8, result, TABLE, NO_TABLE as i64);
    b.store(Size::B8, result, DELTA, 0);
    let what = b.slot_load(Size::B8, copy, WHAT);
    b.br(Jmp::Eq, what, ANONYMOUS, anonymous);
    b.br(Jmp::Ne, what, FILE, none);
    let (map, at) = (b.map(MapRef::UnwindFiles), b.slot_addr(copy, 0));
    let file = b.call(Helper::MAP_LOOKUP_ELEM, &[map, at]);
    b.br(Jmp::Eq, file, 0, unknown);
    let known = b.load(Size::B8, file, FILE_CONTENTS as i16);
    let now = b.slot_load(Size::B8, copy, CONTENTS);
    b.br(Jmp::Ne, known, now, unknown);
    let table = b.load(Size::B8, file, 0);
    b.br(Jmp::Eq, table, NO_TABLE as i64, anonymous);
    b.store(Size::B8, result, TABLE, table);
    let offset = b.slot_load(Size::B8, copy, OFFSET);
    let moved = b.var();
    for load in 0..MAX_LOADS {
        let at = |word: u32| (FILE_LOADS + load * FILE_LOAD + 8 * word) as i16;
        let first = b.load(Size::B8, file, at(0));
        let bytes = b.load(Size::B8, file, at(1));
        let into = b.sub(offset, first);
        b.if_(Jmp::Lt, into, bytes, |b| {
            let value = b.load(Size::B8, file, at(2));
            b.set(moved, value);
            b.jmp(found);
        });
    }
    // The process has mapped it in a way of its own.
    b.store(Size::B8, result, TABLE, NO_TABLE as i64);
    b.bind(anonymous);
    b.exit(KNOWN);

    b.bind(found);
    let base = b.load(Size::B8, file, FILE_BASE as i16);
    let address = b.add(offset, moved);
    let delta = b.sub(address, start);
    let delta = b.sub(delta, base);
    b.store(Size::B8, result, DELTA, delta);
    b.exit(KNOWN);

    b.bind(unknown);
    const UNLESS_THERE: i64 = 1;
    const FORCE_WAKEUP: i64 = 2;
    let both = b.call(Helper::GET_CURRENT_PID_TGID, &[]);
    let process = b.shr(both, 32);
    let asked = b.stack(UNKNOWN_FILE);
    b.slot_store(Size::B8, asked, 0, process);
    b.slot_store(Size::B8, asked, 8, start);
    let (map, at) = (b.map(MapRef::UnwindUnknown), b.slot_addr(copy, 0));
    let known = b.call(Helper::MAP_LOOKUP_ELEM, &[map, at]);
    b.br(Jmp::Ne, known, 0, none);
    let counters = b.map_value(MapRef::UnwindDirectory, SHARES_AT);
    let (table, one) = (shares::Table { counters, most: UNKNOWN_FILES, key }, b.copy(1));
    let share = shares::take(b, table, one, none);
    b.slot_store(Size::B8, asked, 16, share);
    let (map, at, value) = (b.map(MapRef::UnwindUnknown), b.slot_addr(copy, 0), b.slot_addr(asked, 0));
    let flags = b.imm(UNLESS_THERE);
    let failed = b.call(Helper::MAP_UPDATE_ELEM, &[map, at, value, flags]);
    b.br(Jmp::Eq, failed, 0, is_new);
    // It is asked for meanwhile, or too many are.
    shares::give(b, table, share, one);
    b.jmp(none);
    b.bind(is_new);
    let (map, data) = (b.map(MapRef::UnwindRequests), b.slot_addr(asked, 0));
    let (size, flags) = (b.imm(8), b.imm(FORCE_WAKEUP));
    b.call(Helper::RINGBUF_OUTPUT, &[map, data, size, flags]);
    b.bind(none);
    b.exit(0);
}

/// The function that the kernel calls: of a task, a mapping, and where to copy it to.
fn copy_mapping(b: &mut Builder, of: MappingOffsets) {
    let (mapping, to) = (b.param(1), b.param(2));
    let [anonymous, vdso] = b.labels();
    let start = b.load(Size::B8, mapping, of.start);
    b.store(Size::B8, to, START, start);
    let end = b.load(Size::B8, mapping, of.end);
    b.store(Size::B8, to, END, end);
    let file = b.load(Size::B8, mapping, of.file);
    b.br(Jmp::Eq, file, 0, anonymous);
    let page = b.load(Size::B8, mapping, of.page);
    let offset = b.shl(page, 12);
    b.store(Size::B8, to, OFFSET, offset);
    let inode = b.load(Size::B8, file, of.inode);
    let number = b.load(Size::B8, inode, of.number);
    b.store(Size::B8, to, INODE, number);
    let size = b.load(Size::B8, inode, of.size);
    let seconds = b.load(Size::B8, inode, of.changed);
    let nanoseconds = b.load(Size::B4, inode, of.changed_ns);
    let nanoseconds = b.and(nanoseconds, NANOSECONDS);
    let contents = b.mul(size, KEY_FACTOR as i64);
    let contents = b.add(contents, seconds);
    let contents = b.mul(contents, KEY_FACTOR as i64);
    let contents = b.add(contents, nanoseconds);
    b.store(Size::B8, to, CONTENTS, contents);
    let superblock = b.load(Size::B8, inode, of.superblock);
    let device = b.load(Size::B4, superblock, of.device);
    b.store(Size::B8, to, DEVICE, device);
    b.store(Size::B8, to, WHAT, FILE);
    b.exit(0);
    b.bind(anonymous);
    let known = b.load(Size::B8, to, VDSO);
    b.br(Jmp::Eq, known, start, vdso);
    b.store(Size::B8, to, WHAT, ANONYMOUS);
    b.exit(0);
    b.bind(vdso);
    // Its key has no device and no inode, and all processes of 64 bits have the same one.
    b.store(Size::B8, to, WHAT, FILE);
    b.exit(0);
}
