//! Searches in the tables: [`plane::unwind`] has their layout.

use plane::unwind::{CHUNK_SHIFT, CHUNK_WORDS, PAGE};

use crate::mir::{Alu, Builder, Helper, Jmp, Label, MapRef, Size, V};

/// Advances `first` to the last of `count` sorted items whose value is at most `target`, or to the
/// first item. There are fewer than 4096, plus one if `more` is 1.
pub(super) fn search(
    b: &mut Builder,
    target: V,
    first: V,
    count: V,
    more: u32,
    value: impl Fn(&mut Builder, V) -> V,
) {
    let done = b.label();
    for _ in 0..12 + more {
        b.br(Jmp::Le, count, 1, done);
        let half = b.shr(count, 1);
        let middle = b.add(first, half);
        let found = value(b, middle);
        // 1 where it is at most the target: both are less than 2^63.
        let less = b.sub(found, target);
        let less = b.sub(less, 1);
        let less = b.shr(less, 63);
        let step = b.mul(half, less);
        b.update(Alu::Add, first, step);
        // The upper half has what the lower half has not.
        let twice = b.shl(half, 1);
        let odd = b.sub(count, twice);
        let odd = b.mul(odd, less);
        let rest = b.add(half, odd);
        b.set(count, rest);
    }
    b.bind(done);
}

/// The row for an offset in a table, from the word of its page; 0 if there is none.
pub(super) fn find_row(b: &mut Builder) {
    let (word, into) = (b.param(0), b.param(1));
    let none = b.label();
    let mask = i64::from(CHUNK_WORDS) - 1;
    let place = |b: &mut Builder, chunk: V, word: V| {
        let word = b.and(word, mask);
        let offset = b.shl(word, 3);
        b.add(chunk, offset)
    };
    let pages = chunk(b, word, none);
    let page = place(b, pages, word);
    let page = b.load(Size::B8, page, 0);
    let (first, count) = (b.low32(page), b.shr(page, 32));
    b.br(Jmp::Eq, count, 0, none);
    // Mostly the rows are in the chunk of the pages.
    let rows = b.copy(pages);
    let differs = b.xor(first, word);
    b.if_(Jmp::Ge, differs, i64::from(CHUNK_WORDS), |b| {
        let other = chunk(b, first, none);
        b.set(rows, other);
    });
    let low = b.and(into, PAGE as i64 - 1);
    search(b, low, first, count, 1, |b, number| {
        let row = place(b, rows, number);
        let row = b.load(Size::B2, row, 0);
        b.and(row, PAGE as i64 - 1)
    });
    let row = place(b, rows, first);
    let row = b.load(Size::B8, row, 0);
    b.exit(row);
    b.bind(none);
    b.exit(0);
}

/// The address of the chunk of a word.
fn chunk(b: &mut Builder, word: V, none: Label) -> V {
    let key = b.stack(8);
    let number = b.shr(word, i64::from(CHUNK_SHIFT));
    b.slot_store(Size::B4, key, 0, number);
    let (chunks, at) = (b.map(MapRef::UnwindChunks), b.slot_addr(key, 0));
    let chunk = b.call(Helper::MAP_LOOKUP_ELEM, &[chunks, at]);
    b.br(Jmp::Eq, chunk, 0, none);
    b.slot_store(Size::B4, key, 0, 0);
    let at = b.slot_addr(key, 0);
    let memory = b.call(Helper::MAP_LOOKUP_ELEM, &[chunk, at]);
    b.br(Jmp::Eq, memory, 0, none);
    memory
}
