//! Which clauses are for the probe that fired: tests of bits, and the table that holds them where they do not fit an
//! instruction.

use super::{ClauseUse, Index, Probe, ProbeSet, ProgramSpec};
use crate::mir::{Builder, Jmp, Label, MapRef, Size, V};

/// The bytes of a program's table: bitmaps of 64-bit words, then a row a probe.
#[derive(Default)]
pub(super) struct Table {
    pub(super) bytes: Vec<u8>,
    words: u32,
}

impl Table {
    fn bitmap(&mut self, contains: impl Fn(u32) -> bool, n: u32) -> u32 {
        let at = self.bytes.len() as u32;
        for w in 0..n.div_ceil(64) {
            let word = (0..64).filter(|i| contains(w * 64 + i)).fold(0u64, |word, i| word | 1 << i);
            self.bytes.extend(word.to_le_bytes());
        }
        self.words = n.div_ceil(64);
        at
    }

    pub(super) fn rows(&mut self, probes: &[Probe]) -> u32 {
        let at = self.bytes.len() as u32;
        for p in probes {
            for word in [p.id, p.names[0], p.names[1], p.names[2], p.names[3]] {
                self.bytes.extend(word.to_le_bytes());
            }
        }
        at
    }
}

pub(super) fn probe_index(b: &mut Builder, spec: &ProgramSpec<'_>, ctx: V, out: Label) -> Index {
    match spec.context.index(b, ctx, out) {
        Index::V(_) if spec.probes.len() <= 1 => Index::Const(0),
        Index::V(v) => {
            b.br(Jmp::Ge, v, spec.probes.len() as u32, out);
            Index::V(v)
        }
        constant => constant,
    }
}

/// Goes to `out` when none of these clauses wants the probe.
pub(super) fn union_test(
    b: &mut Builder,
    spec: &ProgramSpec<'_>,
    clauses: &[ClauseUse],
    table: &mut Table,
    index: Index,
    out: Label,
) {
    let Index::V(v) = index else { return };
    let n = spec.probes.len() as u32;
    let wanted = |i| clauses.iter().any(|c| c.probes.contains(i));
    if !(0..n).all(wanted) {
        bit_test(b, spec.table, table, wanted, (v, n), out);
    }
}

/// Goes to `out` unless the bit of the probe is set.
fn bit_test(
    b: &mut Builder,
    number: u32,
    table: &mut Table,
    contains: impl Fn(u32) -> bool,
    (v, n): (V, u32),
    out: Label,
) {
    let word = if n <= 64 {
        b.imm((0..n).filter(|i| contains(*i)).fold(0u64, |w, i| w | 1 << i) as i64)
    } else {
        let at = table.bitmap(contains, n);
        let base = b.map_value(MapRef::Table(number), at);
        let word = b.shr(v, 6);
        let off = b.shl(word, 3);
        let place = b.add(base, off);
        b.load(Size::B8, place, 0)
    };
    let within = b.and(v, 63);
    let bit = b.shr(word, within);
    let bit = b.and(bit, 1);
    b.br(Jmp::Eq, bit, 0, out);
}

pub(super) fn clause_test(
    b: &mut Builder,
    spec: &ProgramSpec<'_>,
    table: &mut Table,
    c: &ClauseUse,
    index: Index,
    skip: Label,
) {
    let n = spec.probes.len() as u32;
    match (index, &c.probes) {
        (Index::Const(i), set) => {
            if !set.contains(i) {
                b.jmp(skip);
            }
        }
        (Index::V(_), set) if (0..n).all(|i| set.contains(i)) => {}
        (Index::V(v), ProbeSet::One(i)) => b.br(Jmp::Ne, v, *i, skip),
        // What the union let pass is ours.
        (Index::V(_), _) if spec.clauses.len() == 1 => {}
        (Index::V(v), set) => bit_test(b, spec.table, table, |i| set.contains(i), (v, n), skip),
    }
}
