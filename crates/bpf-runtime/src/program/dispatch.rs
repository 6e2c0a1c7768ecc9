//! Dispatch: which clauses run for the probe that fired. Bit tests, and the table with bitmaps that
//! do not fit an instruction.

use std::collections::BTreeMap;

use bpf_codegen::context::{Index, Probe, ProbeSet, ProbeTable};
use bpf_codegen::mir::{Builder, Jmp, Label, MapRef, Size, V};
use bpf_codegen::routines::{self, Numbered};
use bpf_codegen::target::{ProcessOffsets, Target};

use super::spec::{ClauseUse, ProgramSpec};

/// The bytes of a program's table: bitmaps of 64-bit words, then one row for each probe.
#[derive(Default)]
pub(super) struct Table {
    pub(super) bytes: Vec<u8>,
    /// Offsets of the bitmaps.
    bitmaps: BTreeMap<Vec<u64>, u32>,
}

/// Sets the bits of a set's probes.
fn mark(words: &mut [u64], n: u32, set: &ProbeSet) {
    match set {
        ProbeSet::All => words.copy_from_slice(&full(n)),
        ProbeSet::One(i) => words.get_mut(*i as usize / 64).into_iter().for_each(|w| *w |= 1 << (i % 64)),
        ProbeSet::Bitmap(of) => words.iter_mut().zip(of).for_each(|(w, of)| *w |= of),
    }
}

/// The bitmap with all of `n` probes.
fn full(n: u32) -> Vec<u64> {
    let mut words = vec![u64::MAX; n as usize / 64];
    words.resize(n.div_ceil(64) as usize, (1 << (n % 64)) - 1);
    words
}

/// The bitmap of the probes for which some of the clauses run.
pub(super) fn union_of(n: u32, clauses: &[ClauseUse]) -> Vec<u64> {
    let mut words = vec![0; n.div_ceil(64) as usize];
    clauses.iter().for_each(|c| mark(&mut words, n, &c.probes));
    words
}

impl Table {
    /// Adds a bitmap to the table, unless it is there.
    fn bitmap(&mut self, words: Vec<u64>) -> u32 {
        let at = (self.bytes.len() as u32).next_multiple_of(8);
        *self.bitmaps.entry(words).or_insert_with_key(|words| {
            self.bytes.resize(at as usize, 0);
            self.bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            at
        })
    }

    /// Adds a row of facts for each probe, in the order of their columns. The last one is left out
    /// where no probe is of a family of processes.
    pub(super) fn rows(&mut self, number: u32, probes: &[Probe]) -> ProbeTable {
        let columns = if probes.iter().any(|p| p.pid != 0) { 6 } else { 5 };
        let rows = self.bytes.len() as u32;
        for p in probes {
            let words = [p.id, p.names[0], p.names[1], p.names[2], p.names[3], p.pid];
            self.bytes.extend(words.iter().take(columns).flat_map(|word| word.to_le_bytes()));
        }
        ProbeTable { number, rows, stride: 4 * columns as u32 }
    }
}

/// Jumps to `out` unless the process is in one of the sets of processes that the program serves.
/// Where processes cannot be found in the kernel no program has such a set.
pub(super) fn member_test(
    b: &mut Builder,
    spec: &ProgramSpec<'_>,
    processes: Option<ProcessOffsets>,
    out: Label,
) {
    match (spec.context.process_sets(), processes) {
        (Some(sets), Some(at)) => routines::require_member(b, at, sets, out),
        (Some(_), None) => b.jmp(out),
        (None, _) => {}
    }
}

/// Jumps to `out` where the process has no number in the tracer's namespace, if the kernel runs the
/// program in all processes.
pub(super) fn number_test(b: &mut Builder, spec: &ProgramSpec<'_>, target: &Target, out: Label) {
    if spec.context.is_of_any_process() && target.pid_namespace.is_some() {
        let number = routines::current_number(b, target, Numbered::Process);
        b.br(Jmp::Eq, number, 0, out);
    }
}

pub(super) fn probe_index(b: &mut Builder, spec: &ProgramSpec<'_>, ctx: V, out: Label) -> Index {
    if spec.growing {
        let cookie = spec.context.cookie(b, ctx);
        let (row, at) = routines::probe_of_cookie(b, cookie, out);
        return Index::Row { row, at };
    }
    match spec.context.index(b, ctx, out) {
        Index::V(_) if spec.probes.len() <= 1 => Index::Const(0),
        Index::V(v) => {
            b.br(Jmp::Ge, v, spec.probes.len() as u32, out);
            Index::V(v)
        }
        constant => constant,
    }
}

/// Jumps to `out` when none of these clauses runs for the probe.
pub(super) fn union_test(
    b: &mut Builder,
    spec: &ProgramSpec<'_>,
    clauses: &[ClauseUse],
    table: &mut Table,
    index: Index,
    out: Label,
) {
    let v = match index {
        Index::V(v) => v,
        Index::Row { at, .. } => {
            return routines::row_has_clause(b, at, clauses.iter().map(|c| c.epid_base), out);
        }
        Index::Const(_) => return,
    };
    let n = spec.probes.len() as u32;
    let wanted = union_of(n, clauses);
    if wanted != full(n) {
        bit_test(b, spec.table, table, wanted, v, out);
    }
}

/// Jumps to `out` unless the probe's bit is set.
fn bit_test(b: &mut Builder, number: u32, table: &mut Table, words: Vec<u64>, v: V, out: Label) {
    let word = if let [word] = words[..] {
        b.imm(word as i64)
    } else {
        let at = table.bitmap(words);
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
        // The test of the program or of its part has passed, and this is the only clause.
        (Index::Row { .. }, _) if spec.clauses.len() == 1 => {}
        (Index::Row { at, .. }, _) => {
            routines::row_has_clause(b, at, std::iter::once(c.epid_base), skip);
        }
        (Index::V(_), ProbeSet::All) => {}
        (Index::V(v), ProbeSet::One(i)) if n > 1 => b.br(Jmp::Ne, v, *i, skip),
        // The union test has passed, and this is the only clause.
        (Index::V(_), _) if spec.clauses.len() == 1 => {}
        (Index::V(v), _) => {
            let wanted = union_of(n, std::slice::from_ref(c));
            if wanted != full(n) {
                bit_test(b, spec.table, table, wanted, v, skip);
            }
        }
    }
}
