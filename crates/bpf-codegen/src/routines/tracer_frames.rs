//! The frames of a kernel stack that belong to the tracer.
//!
//! Between a tracepoint and a program there are the functions that dispatch the firing: always
//! `bpf_trace_runN`, on some kernels `__bpf_trace_NAME` before it (where the compiler made no tail
//! call), and `__traceiter_NAME` when the tracepoint has another user too. So the number of frames
//! to skip changes while a session runs. The routine determines that number for each stack, by
//! looking its first frames up in a table of all these functions.

use plane::table::HASH_MULTIPLIER;

use crate::mir::{Alu, Arg, Builder, Jmp, MapRef, Size, V};

/// Entries of the table, a power of two. The kernel has some 3,000 such functions.
const ENTRIES: usize = 1 << STEPS;
const STEPS: u32 = 13;
/// Bytes of an entry: the start of a function, and its length.
const ENTRY_SHIFT: u32 = 4;

/// Number of frames that are looked up.
pub(crate) const FRAMES_CHECKED: u32 = 4;

/// Words of [`MapRef::TracerCache`], a power of two.
pub const CACHED: u32 = 512;

/// Lowest kernel address.
const KERNEL: u64 = 1 << 63;

/// The table of functions for [`MapRef::TracerFunctions`], from ranges (start, end). `None` when
/// there are too many.
pub fn tracer_functions(ranges: &[(u64, u64)]) -> Option<Vec<u8>> {
    // The first entry is never compared. It is the result when all others are greater, and contains
    // no function.
    let mut entries = vec![(KERNEL, 0)];
    entries
        .extend(ranges.iter().filter(|(start, _)| *start > KERNEL).map(|(start, end)| (*start, end - start)));
    entries.sort_unstable();
    if entries.len() > ENTRIES {
        return None;
    }
    entries.resize(ENTRIES, (u64::MAX, 0));
    Some(
        entries
            .iter()
            .flat_map(|(start, length)| [start.to_le_bytes(), length.to_le_bytes()])
            .flatten()
            .collect(),
    )
}

/// The number of innermost frames that are the tracer's, at most [`FRAMES_CHECKED`]; `usual` if
/// none is found. `pcs` is the address of the frames, [`FRAMES_CHECKED`] or more.
pub(crate) fn own_frames(b: &mut Builder, pcs: V, usual: i64) -> V {
    let own = b.call_global("dt_own_frames", &[Arg::Memory(pcs, 8 * FRAMES_CHECKED)], |b| {
        let frames = b.param(0);
        let known = b.map_value(MapRef::TracerCache, 0);
        let multiplier = b.imm(HASH_MULTIPLIER as i64);
        let own = b.copy(usual);
        for i in 0..FRAMES_CHECKED as i16 {
            let pc = b.load(Size::B8, frames, 8 * i);
            let hit = is_own(b, known, multiplier, pc);
            // own = hit ? i + 1 : own, without a branch, so that the search is verified once.
            let count = b.imm(i64::from(i) + 1);
            let more = b.sub(count, own);
            let more = b.mul(more, hit);
            b.update(Alu::Add, own, more);
        }
        b.exit(own);
    });
    // Masked for the verifier, which knows no bounds of a function's result.
    b.and(own, 7)
}

/// 1 where an address is in one of the functions, else 0. A search is 13 steps through 128 KiB, so
/// its result is stored: a word of the cache has an address, without its highest bit if the address
/// is in one of the functions. Whichever result is stored last is right, so a plain store suffices.
fn is_own(b: &mut Builder, known: V, multiplier: V, pc: V) -> V {
    let (hit, search, done) = (b.var(), b.label(), b.label());
    let number = b.mul(pc, multiplier);
    let number = b.shr(number, 64 - i64::from(CACHED.ilog2()));
    let offset = b.shl(number, 3);
    let at = b.add(known, offset);
    let word = b.load(Size::B8, at, 0);
    let difference = b.xor(word, pc);
    let result = b.shr(difference, 63);
    b.set(hit, result);
    b.update(Alu::Lsh, difference, 1);
    b.br(Jmp::Ne, difference, 0, search);
    b.bind(done);
    b.out_of_line(|b| {
        b.bind(search);
        let found = b.call_global("dt_is_own", &[Arg::Word(pc)], |b| {
            let (table, pc) = (b.map_value(MapRef::TracerFunctions, 0), b.param(0));
            let found = is_in(b, table, pc);
            b.exit(found);
        });
        b.set(hit, found);
        let bit = b.shl(found, 63);
        let word = b.xor(pc, bit);
        b.store(Size::B8, at, 0, word);
        b.jmp(done);
    });
    hit
}

/// 1 where an address is in one of the functions, else 0.
fn is_in(b: &mut Builder, table: V, pc: V) -> V {
    let at = b.copy(0);
    let entry = |b: &mut Builder, at: V| {
        let off = b.shl(at, i64::from(ENTRY_SHIFT));
        b.add(table, off)
    };
    for step in (0..STEPS).rev() {
        let next = b.add(at, 1i64 << step);
        let start = entry(b, next);
        let start = b.load(Size::B8, start, 0);
        // Kernel addresses differ by less than 2^63, so the sign says which is greater.
        let beyond = b.sub(pc, start);
        let before = b.shr(beyond, 63);
        let from = b.xor(before, 1);
        let by = b.shl(from, i64::from(step));
        b.update(Alu::Add, at, by);
    }
    let entry = entry(b, at);
    let (start, length) = (b.load(Size::B8, entry, 0), b.load(Size::B8, entry, 8));
    let offset = b.sub(pc, start);
    let beyond = b.sub(offset, length);
    b.shr(beyond, 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_padded_to_its_size() {
        let text = KERNEL + 0x7fff_ff81_0000_0000;
        let table = tracer_functions(&[(text + 64, text + 80), (text, text + 32), (16, 20)]).unwrap();
        assert_eq!(table.len(), ENTRIES << ENTRY_SHIFT);
        let word = |i: usize| u64::from_le_bytes(table[8 * i..][..8].try_into().unwrap());
        assert_eq!([word(0), word(1), word(2), word(3)], [KERNEL, 0, text, 32]);
        assert_eq!([word(4), word(5), word(6), word(7)], [text + 64, 16, u64::MAX, 0]);
        assert!(tracer_functions(&vec![(text, text + 1); ENTRIES]).is_none());
    }
}
