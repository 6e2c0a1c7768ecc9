//! Aggregations: from a key to its slot. [`plane::table`] describes the layout and its reasons.
//!
//! The common cases are inline: no key, or the key's first slot holds it. All others use one
//! subprogram for each aggregation, `dt_find_N(table, hash, key address)`, which does the bounded
//! probing, claiming and comparing. The subprogram returns an offset and not an address, so that
//! the caller's bounds check covers both paths.
//!
//! ARCH(x86-64): counting a claim is an atomic addition without fetch, which BPF leaves unordered
//! on weaker machines.

use plane::control::{DropKind, EPOCH};
use plane::table::{
    BUSY, CLAIMED, HASH_MULTIPLIER, KEY, PROBES, STATE, TABLE_HEADER, TableShape, shows_itself,
};

use super::agg_value::{Sample, add_sample};
use super::words::{RUN, copy_words, each_word, end_of_string, is_long};
use super::{Firing, KEY_WORDS_MAX, Key, count_drop, element, key_address, near};
use crate::mir::{Alu, Arg, Builder, Jmp, Label, MapRef, Operand, Size, V};
use crate::plan::{AggPlan, Area, KeyColumn, Plan};

/// Adds a sample to aggregation `agg` under `key`. `args` is empty for count, else the value, and
/// for the quantize family an optional increment. When the table is full, an aggregation drop is
/// counted.
pub fn aggregate(b: &mut Builder, plan: &Plan, firing: &Firing, agg: u32, key: Key<'_>, args: &[Operand]) {
    let (Some(of), Some(area)) = (plan.aggs.get(agg as usize), plan.agg(agg)) else { return };
    let (done, drop) = (b.label(), b.label());
    b.out_of_line(|b| {
        b.bind(drop);
        count_drop(b, firing, DropKind::Aggregation);
        b.jmp(done);
    });
    let table = table_index(b, of, firing);
    // The address of the slot minus TABLE_HEADER, which is added in the instructions' offsets.
    let slot = b.var();
    if of.shape.key_size == 0 {
        let base = element(b, area, table, firing.words, drop);
        b.set(slot, base);
        if !shows_itself(of.func) {
            mark(b, slot);
        }
    } else {
        find(b, of, area, firing, &SlotSearch { agg, table, slot, drop }, key);
    }
    let (slot, offset) = near(b, slot, TABLE_HEADER + of.shape.value(), of.shape.value_size);
    let sample = Sample {
        slot,
        offset,
        drop,
        value: args.first().copied().unwrap_or(Operand::Imm(0)),
        increment: args.get(1).copied().unwrap_or(Operand::Imm(1)),
    };
    add_sample(b, of.func, &sample);
    b.bind(done);
}

/// Keys of more bytes are written and compared by separate functions, because the verifier
/// processes the loop over slots once for each slot.
const KEY_INLINE: u32 = 64;

struct SlotSearch {
    agg: u32,
    table: V,
    slot: V,
    drop: Label,
}

/// (epoch & 1) * n + CPU index. The verifier sees its bound.
fn table_index(b: &mut Builder, of: &AggPlan, firing: &Firing) -> V {
    let control = b.map_value(MapRef::Control, EPOCH);
    let epoch = b.load(Size::B8, control, 0);
    let side = b.and(epoch, 1);
    if of.cpus == 1 {
        return side;
    }
    let first = b.mul(side, of.cpus);
    b.add(first, firing.index)
}

/// Marks a keyless slot as used, where the value alone does not show that.
fn mark(b: &mut Builder, slot: V) {
    let (fresh, marked) = (b.label(), b.label());
    let state = b.load(Size::B8, slot, (TABLE_HEADER + STATE) as i16);
    b.br(Jmp::Eq, state, 0, fresh);
    b.bind(marked);
    b.out_of_line(|b| {
        b.bind(fresh);
        b.store(Size::B8, slot, (TABLE_HEADER + STATE) as i16, BUSY);
        b.jmp(marked);
    });
}

fn find(b: &mut Builder, of: &AggPlan, area: Area, firing: &Firing, at: &SlotSearch, key: Key<'_>) {
    let shape = of.shape;
    let hash = key_hash(b, &of.columns, key);
    let last = i64::from((shape.slots() - 1) * shape.stride);
    let (slow, hit) = (b.label(), b.label());
    if let Key::Words(words) = key {
        let base = element(b, area, at.table, firing.words, at.drop);
        let index = slot_index(b, shape, hash);
        let offset = b.mul(index, shape.stride);
        let slot = b.add(base, offset);
        b.set(at.slot, slot);
        let tag = b.or(hash, 2);
        let state = b.load(Size::B8, slot, (TABLE_HEADER + STATE) as i16);
        b.br(Jmp::Ne, state, tag, slow);
        for (i, w) in (0..).zip(words) {
            let there = b.load(Size::B8, slot, (TABLE_HEADER + KEY) as i16 + 8 * i);
            b.br(Jmp::Ne, there, *w, slow);
        }
    } else {
        b.jmp(slow);
    }
    b.bind(hit);
    b.out_of_line(|b| {
        b.bind(slow);
        // Computed again instead of kept, so that only the key stays live on this path.
        let table = table_index(b, of, firing);
        let address = key_address(b, firing, key);
        let mut args = vec![Arg::Word(table), Arg::Word(hash), Arg::Memory(address, shape.key_size)];
        let mut name = format!("dt_find_{}", at.agg);
        // Aggregations that share a map also share the function if they have the same shape. An
        // argument says which is meant.
        if shape.table_size < area.stride {
            let (first, TableShape { stride, slots_log2, .. }) = (of.location.map, shape);
            name = format!("dt_find_{first}_{stride}_{slots_log2}{}", signature(&of.columns));
            args.push(Arg::Word(b.imm(i64::from(area.at))));
        }
        let offset = b.call_global(&name, &args, |b| find_body(b, of, area));
        // Slots are whole words apart, which the verifier does not know here.
        let offset = b.and(offset, -8);
        b.br(Jmp::Gt, offset, last, at.drop);
        let base = element(b, area, table, firing.words, at.drop);
        let slot = b.add(base, offset);
        b.set(at.slot, slot);
        b.jmp(hit);
    });
}

/// The first slot to probe: the high bits of the hash.
fn slot_index(b: &mut Builder, shape: TableShape, hash: V) -> V {
    if shape.slots_log2 == 0 { b.imm(0) } else { b.shr(hash, 64 - shape.slots_log2) }
}

/// The slot's offset from the first slot, or -1.
fn find_body(b: &mut Builder, of: &AggPlan, area: Area) {
    let shape = of.shape;
    let (table, hash, key) = (b.param(0), b.param(1), b.param(2));
    let (none, next) = (b.label(), b.label());
    let words = b.stack(8);
    b.br(Jmp::Ge, table, area.count, none);
    let mut base = element(b, Area { at: 0, ..area }, table, words, none);
    if shape.table_size < area.stride {
        let at = b.param(3);
        let at = b.and(at, -8);
        b.br(Jmp::Gt, at, area.stride - shape.table_size, none);
        base = b.add(base, at);
    }
    let tag = b.or(hash, 2);
    let first = slot_index(b, shape, hash);
    let index = b.copy(first);
    let step = b.copy(0);
    let offset = b.var();
    let slot = b.var();
    b.loop_(|b, again| {
        b.set(offset, index);
        b.update(Alu::Mul, offset, shape.stride);
        b.set(slot, base);
        b.update(Alu::Add, slot, offset);
        let at = |off: u32| (TABLE_HEADER + off) as i16;
        let state = b.load(Size::B8, slot, at(STATE));
        b.if_(Jmp::Ne, state, tag, |b| {
            b.br(Jmp::Ne, state, 0, next);
            let old = b.cmpxchg(slot, at(STATE), 0, BUSY);
            b.br(Jmp::Ne, old, 0, next);
            let to = b.add(slot, i32::from(at(KEY)));
            copy_words(b, to, key, shape.key_size);
            b.xchg(slot, at(STATE), tag);
            b.atomic_add(base, CLAIMED as i16, 1);
            b.exit(offset);
        });
        if shape.key_size > KEY_INLINE {
            let there = b.add(slot, i32::from(at(KEY)));
            let args = [Arg::Memory(there, shape.key_size), Arg::Memory(key, shape.key_size)];
            let same = b.call_global(&format!("dt_same{}", signature(&of.columns)), &args, |b| {
                let (there, key, other) = (b.param(0), b.param(1), b.label());
                compare_keys(b, &of.columns, there, key, other);
                b.exit(1);
                b.bind(other);
                b.exit(0);
            });
            b.br(Jmp::Eq, same, 0, next);
        } else {
            let there = b.add(slot, i32::from(at(KEY)));
            compare_keys(b, &of.columns, there, key, next);
        }
        b.exit(offset);
        b.bind(next);
        b.update(Alu::Add, step, 1);
        b.br(Jmp::Eq, step, PROBES, none);
        b.update(Alu::Add, index, step);
        b.update(Alu::And, index, shape.slots() - 1);
        b.jmp(again);
    });
    b.bind(none);
    b.exit(-1);
}

/// The columns as part of a subprogram's name.
fn signature(columns: &[KeyColumn]) -> String {
    columns.iter().map(|c| format!("_{}{}", if c.string { "s" } else { "i" }, c.words)).collect()
}

/// Jumps to `other` when the keys differ.
fn compare_keys(b: &mut Builder, columns: &[KeyColumn], there: V, key: V, other: Label) {
    let mut at = 0;
    for column in columns {
        let bytes = 8 * column.words;
        if is_long(bytes) {
            let (x, y) = (b.add(there, at), b.add(key, at));
            let args = [Arg::Memory(x, bytes), Arg::Memory(y, bytes)];
            let name = format!("dt_same_long_{}", column.words);
            let same = b.call_global(&name, &args, |b| same_long(b, bytes));
            b.br(Jmp::Eq, same, 0, other);
        } else {
            let end = b.label();
            let (x, from) = near(b, there, at, bytes);
            let (y, also) = near(b, key, at, bytes);
            for w in (0..bytes as i16).step_by(8) {
                let x = b.load(Size::B8, x, from + w);
                let y = b.load(Size::B8, y, also + w);
                b.br(Jmp::Ne, x, y, other);
                if column.string && u32::from(w as u16) + 8 < bytes {
                    end_of_string(b, x, end);
                }
            }
            b.bind(end);
        }
        at += bytes;
    }
}

/// Long columns are compared in groups of so many bytes, because the verifier keeps at most 8,192
/// branches. Columns are zero-padded, so comparing beyond a string's end within a group does no
/// harm.
const GROUP: i16 = 256;

/// True behind the last word of a group or of a shorter run.
fn ends_group(at: i16, bytes: u32) -> bool {
    let next = at + 8;
    next % GROUP == 0 || next as u32 == bytes % RUN
}

/// 1 when two long columns are equal.
fn same_long(b: &mut Builder, bytes: u32) {
    let params = [b.param(0), b.param(1)];
    let (differs, other, end) = (b.var(), b.label(), b.label());
    each_word(b, &params, bytes, |b, p, at, _| {
        let (x, y) = (b.load(Size::B8, p[0], at), b.load(Size::B8, p[1], at));
        let difference = b.xor(x, y);
        match at % GROUP {
            0 => b.set(differs, difference),
            _ => b.update(Alu::Or, differs, difference),
        }
        if ends_group(at, bytes) {
            b.br(Jmp::Ne, differs, 0, other);
            end_of_string(b, x, end);
        }
    });
    b.bind(end);
    b.exit(1);
    b.bind(other);
    b.exit(0);
}

/// The hash of a key, the same for both forms of a key.
pub(crate) fn key_hash(b: &mut Builder, columns: &[KeyColumn], key: Key<'_>) -> V {
    match key {
        Key::Words(words) => {
            let multiplier = b.imm(HASH_MULTIPLIER as i64);
            let h = b.var();
            for (i, w) in words.iter().enumerate() {
                mix(b, h, *w, multiplier, i == 0);
            }
            h
        }
        Key::Memory(place) => {
            let address = place.address(b);
            let name = signature(columns);
            let bytes = columns.iter().map(|c| 8 * c.words).sum();
            let args = [Arg::Memory(address, bytes)];
            b.call_global(&format!("dt_hash{name}"), &args, |b| hash_body(b, columns))
        }
    }
}

/// `plane::table::hash` for one word.
fn mix(b: &mut Builder, h: V, word: V, multiplier: V, first: bool) {
    if first {
        b.set(h, word);
    } else {
        let high = b.shr(h, 32);
        b.update(Alu::Xor, h, high);
        b.update(Alu::Xor, h, word);
    }
    b.update(Alu::Mul, h, multiplier);
}

/// Hashes all words. Of keys that are too long for registers, strings are hashed only up to their
/// end.
fn hash_body(b: &mut Builder, columns: &[KeyColumn]) {
    let key = b.param(0);
    let long = columns.iter().map(|c| c.words as usize).sum::<usize>() > KEY_WORDS_MAX;
    let multiplier = b.imm(HASH_MULTIPLIER as i64);
    let h = b.var();
    let (mut at, mut first) = (0, true);
    for column in columns {
        let bytes = 8 * column.words;
        if is_long(bytes) {
            if std::mem::take(&mut first) {
                b.set(h, 0);
            }
            let from = b.add(key, at);
            let name = format!("dt_mix_{}{}", if column.string { "s" } else { "i" }, column.words);
            let mixed = b.call_global(&name, &[Arg::Memory(from, bytes), Arg::Word(h)], |b| {
                mix_long(b, column);
            });
            b.set(h, mixed);
        } else {
            let end = b.label();
            let (from, off) = near(b, key, at, bytes);
            for w in (0..bytes as i16).step_by(8) {
                let word = b.load(Size::B8, from, off + w);
                mix(b, h, word, multiplier, std::mem::take(&mut first));
                if long && column.string && u32::from(w as u16) + 8 < bytes {
                    end_of_string(b, word, end);
                }
            }
            b.bind(end);
        }
        at += bytes;
    }
    b.exit(h);
}

/// Mixes the words of a long column into a hash.
fn mix_long(b: &mut Builder, column: &KeyColumn) {
    let (from, given) = (b.param(0), b.param(1));
    let multiplier = b.imm(HASH_MULTIPLIER as i64);
    let (h, end) = (b.copy(given), b.label());
    let bytes = 8 * column.words;
    each_word(b, &[from], bytes, |b, p, at, _| {
        let word = b.load(Size::B8, p[0], at);
        mix(b, h, word, multiplier, false);
        if column.string && ends_group(at, bytes) {
            end_of_string(b, word, end);
        }
    });
    b.bind(end);
    b.exit(h);
}
