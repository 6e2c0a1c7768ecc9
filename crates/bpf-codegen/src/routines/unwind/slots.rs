//! Which slot of the directory a process has, and how the consumer is asked for its tables
//! ([`plane::unwind`]).

use plane::unwind::{
    KEY_FACTOR, KEY_SHIFT, PROBES, SLOT, SLOTS, WANTED, WANTED_MAX, WANTED_SHIFT, WANTED_SIZE,
};

use crate::mir::{Alu, AtomicOp, Builder, Helper, Jmp, MapRef, Size, V};
use crate::target::UnwindOffsets;

/// The key of the address space: [`plane::unwind::key`].
pub(super) fn key(b: &mut Builder, mm: V, stack: V, offsets: UnwindOffsets) -> V {
    let code = b.load(Size::B8, mm, offsets.start_code);
    let arguments = b.load(Size::B8, mm, offsets.arg_start);
    let factor = b.imm(KEY_FACTOR as i64);
    let mixed = b.mul(stack, factor);
    let mixed = b.add(mixed, code);
    let mixed = b.mul(mixed, factor);
    let mixed = b.add(mixed, arguments);
    b.or(mixed, 2)
}

/// The offset of the slot of a key, with its lowest bit set; 0 if there is none.
pub(super) fn find_slot(b: &mut Builder) {
    let directory = b.map_value(MapRef::UnwindDirectory, 0);
    let at = b.shr(b.param(0), i64::from(KEY_SHIFT));
    for _ in 0..PROBES {
        let offset = b.mul(at, i64::from(SLOT));
        let offset = b.and(offset, i64::from((SLOTS - 1) * SLOT));
        let slot = b.add(directory, offset);
        let found = b.load(Size::B8, slot, 0);
        b.if_(Jmp::Eq, found, b.param(0), |b| {
            let result = b.or(offset, 1);
            b.exit(result);
        });
        b.update(Alu::Add, at, 1);
    }
    b.exit(0);
}

/// Asks the consumer for the tables of a process, if it is not asked already.
pub(super) fn want(b: &mut Builder) {
    const FORCE_WAKEUP: i64 = 2;
    let (key, process) = (b.param(0), b.param(1));
    let asked = b.label();
    let words = b.map_value(MapRef::UnwindDirectory, WANTED);
    let number = b.shr(key, i64::from(WANTED_SHIFT));
    let number = b.and(number, i64::from(WANTED_MAX) - 1);
    let offset = b.mul(number, i64::from(WANTED_SIZE));
    let word = b.add(words, offset);
    // Usually it is asked already, so that the cache line is not written.
    let before = b.load(Size::B8, word, 0);
    b.br(Jmp::Eq, before, key, asked);
    b.atomic(AtomicOp::Xchg, Size::B8, word, 8, process);
    let before = b.xchg(word, 0, key);
    b.br(Jmp::Eq, before, key, asked);
    let request = b.stack(8);
    b.slot_store(Size::B8, request, 0, 0);
    let (map, data) = (b.map(MapRef::UnwindRequests), b.slot_addr(request, 0));
    let (size, flags) = (b.imm(8), b.imm(FORCE_WAKEUP));
    b.call(Helper::RINGBUF_OUTPUT, &[map, data, size, flags]);
    b.bind(asked);
    b.exit(0);
}
