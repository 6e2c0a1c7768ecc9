//! Where the built-in variables of a clause are fetched: the last block that dominates all uses.

use std::collections::BTreeMap;
use std::ops::Range;

use dif::ir::{Function, IntBuiltin, Op, StrBuiltin, Subr};

use super::task::TaskLoads;
use crate::mir::{Operand, V};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BuiltinKey {
    Int(IntBuiltin),
    Execname,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fetched {
    Int(Operand),
    Words(V, V),
}

/// Where each builtin of a clause is fetched, and the values fetched so far.
pub(crate) struct FetchPoints {
    /// The block that fetches each builtin, as a position in `idom`.
    pub(super) points: BTreeMap<BuiltinKey, usize>,
    pub(super) fetched: BTreeMap<BuiltinKey, Fetched>,
    /// The current task, valid within a block.
    pub(super) task: Option<V>,
    /// The thread's value of `self->` (or 0), and the block that looked it up.
    pub(super) thread: Option<(usize, V)>,
    /// Immediate dominators. Position 0 is the code before all blocks, position 1 is block `first`,
    /// and so on.
    pub(super) idom: Vec<usize>,
    pub(super) first: usize,
}

impl FetchPoints {
    /// The fetch points of a stretch of blocks that is entered at any of `entries`.
    pub(crate) fn new(
        f: &Function,
        blocks: &Range<usize>,
        entries: &[usize],
        tasks: &TaskLoads,
    ) -> FetchPoints {
        let idom = dominators(f, blocks, entries);
        let mut points: BTreeMap<BuiltinKey, usize> = BTreeMap::new();
        for (i, block) in (1..).zip(&f.blocks[blocks.clone()]) {
            for inst in &block.insts {
                if tasks.is_unused(inst) {
                    continue;
                }
                let keys: &[BuiltinKey] = match inst.op {
                    // The wall clock's time is computed from the other one.
                    Op::Builtin(b @ IntBuiltin::Walltimestamp) => {
                        &[BuiltinKey::Int(b), BuiltinKey::Int(IntBuiltin::Timestamp)]
                    }
                    Op::Builtin(b) => &[BuiltinKey::Int(b)],
                    Op::BuiltinStr(StrBuiltin::Execname) => &[BuiltinKey::Execname],
                    _ => continue,
                };
                for key in keys {
                    let point = points.entry(*key).or_insert(i);
                    *point = common_dominator(&idom, *point, i);
                }
            }
        }
        FetchPoints { points, fetched: BTreeMap::new(), task: None, thread: None, idom, first: blocks.start }
    }

    /// The state of the thread's variables, to be restored by [`FetchPoints::restore_thread`].
    pub(crate) fn known_thread(&self) -> Option<(usize, V)> {
        self.thread
    }

    /// Restores a state. The code emitted since may be skipped at run time.
    pub(crate) fn restore_thread(&mut self, known: Option<(usize, V)>) {
        self.thread = known;
    }

    /// Starts a block.
    pub(crate) fn enter(&mut self) {
        self.task = None;
    }
}

/// True if block `x` dominates block `y`.
pub(super) fn dominates(idom: &[usize], x: usize, mut y: usize) -> bool {
    while y > x {
        y = idom[y];
    }
    y == x
}

/// True for an operation that reserves a record in the session's ring.
pub fn reserves(op: &Op) -> bool {
    matches!(op, Op::Reserve | Op::Call(Subr::Commit, _))
}

/// Whether a clause reads the clock, and whether it may read it before it reserves its record.
pub fn clock_before_reserve(f: &Function) -> (bool, bool) {
    let idom = dominators(f, &(0..f.blocks.len()), &[0]);
    let insts =
        || (1..).zip(&f.blocks).flat_map(|(i, b)| (0..).zip(&b.insts).map(move |(n, inst)| (i, n, &inst.op)));
    // A speculative record has a time, but its reservation is not visible to the consumer.
    let reads = |op: &Op| {
        let clock = matches!(op, Op::Builtin(IntBuiltin::Timestamp | IntBuiltin::Walltimestamp));
        clock || matches!(op, Op::Speculate(_))
    };
    let mut reserved = insts().filter(|(.., op)| reserves(op));
    let first = reserved.next();
    if first.is_some() && reserved.next().is_some() {
        return (true, true);
    }
    let Some((block, place, _)) = first else {
        return (insts().any(|(.., op)| reads(op)), false);
    };
    let before = |(i, n, _): (usize, u32, &Op)| match i == block {
        true => n < place,
        false => !dominates(&idom, block, i),
    };
    let mut reading = insts().filter(|(.., op)| reads(op)).peekable();
    (reading.peek().is_some(), reading.any(before))
}

/// The nearest common dominator.
fn common_dominator(idom: &[usize], mut x: usize, mut y: usize) -> usize {
    while x != y {
        if x > y { x = idom[x] } else { y = idom[y] }
    }
    x
}

/// Immediate dominators. Edges only go forward.
fn dominators(f: &Function, blocks: &Range<usize>, entries: &[usize]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut idom: Vec<usize> = vec![NONE; blocks.len() + 1];
    idom[0] = 0;
    for entry in entries {
        idom[entry + 1 - blocks.start] = 0;
    }
    for (i, block) in (1..).zip(&f.blocks[blocks.clone()]) {
        block.term.for_each_edge(|to, _| {
            let Some(to) = (to.0 as usize).checked_sub(blocks.start).map(|t| t + 1) else { return };
            match idom.get(to) {
                Some(&NONE) => idom[to] = i,
                Some(known) => idom[to] = common_dominator(&idom, *known, i),
                None => {}
            }
        });
    }
    idom.iter_mut().filter(|a| **a == NONE).for_each(|a| *a = 0);
    idom
}
