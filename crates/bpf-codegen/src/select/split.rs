//! Long clauses are split into segments, each a function of its own.
//!
//! A function has 32,767 instructions at most, since a jump reaches no further. The time of
//! register allocation grows faster than the square of a function's length. Edges between blocks
//! only go forward, so a segment is a contiguous range of blocks (a block that spans a segment
//! boundary is divided there), and a clause is a sequence of calls. Each call takes the block at
//! which to begin, and returns the block at which to continue:
//!
//! ```text
//!  next = segment_0(probe, slot, 0)
//!  if next < end of segment 1: next = segment_1(probe, slot, next)    segments that are jumped over are not called
//!  if next < end of segment 2: …                                      END, greater than all: the clause is over
//! ```
//!
//! A value that is defined in one segment and used in another is passed through the scratch slot.
//! Registers have words there ([`SplitClause::saved`]), strings in memory are in the slot anyway,
//! and the record is found again by its stamp.
//!
//! Operations that need the program's context (stacks) get segments of their own, which are inlined
//! in the program. Where there are many such operations, the program captures the stack once for
//! all of them.

use std::collections::BTreeMap;
use std::ops::Range;

use dif::ir::{
    BinOp, Block, BlockData, Function, InstData, IntBuiltin, Op, Space, StrId, Term, Value, VarId,
};

use super::facts::{Facts, Shape, each_term_use};

/// The size from which a program is divided, and the size of a part, in operations. An operation
/// becomes some 15 instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// A program of at most this size is not divided.
    pub whole: usize,
    /// The approximate size of a part. A clause that is not much longer is not split.
    pub part: usize,
}

impl Default for Division {
    fn default() -> Self {
        Division { whole: 400, part: 250 }
    }
}

/// The size of a clause.
pub fn operations(clause: &dif::ir::Clause) -> usize {
    clause.func.blocks.iter().map(|b| b.insts.len() + 1).sum()
}

/// "The clause is over": greater than all block numbers.
pub const END: u32 = i32::MAX as u32;

/// Words that a value takes in the slot.
const WORDS_MAX: usize = 2;

/// A clause split into segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitClause {
    /// The clause's code, with blocks divided at segment boundaries.
    pub(crate) func: Function,
    /// The segments, in order.
    pub segments: Vec<Segment>,
    /// For each value that is used outside its segment: its first word in the slot.
    pub(crate) saved: Vec<Option<u32>>,
    /// Number of words in the slot.
    pub(crate) words: u32,
    /// For each block, whether the record is reserved at its start.
    pub(crate) open: Vec<bool>,
    /// Compile-time constants, which every segment materializes for itself.
    pub(crate) constants: BTreeMap<Value, Constant>,
    /// Values that are addresses in objects, with the object's variable.
    pub(crate) object_bases: BTreeMap<Value, VarId>,
    /// Facts about the whole clause, computed once for all segments.
    pub(crate) facts: Facts,
}

/// A value that is the same wherever it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Constant {
    Int(i64),
    Str(StrId),
    /// An address in an object, so many bytes from the object's start.
    Place(VarId, i64),
}

/// The constants, and the addresses in objects.
fn constants(f: &Function) -> (BTreeMap<Value, Constant>, BTreeMap<Value, VarId>) {
    let mut constants: BTreeMap<Value, Constant> = BTreeMap::new();
    let mut object_bases: BTreeMap<Value, VarId> = BTreeMap::new();
    for (_, inst) in f.instructions() {
        let Some(r) = inst.result else { continue };
        let of = |v: &Value| constants.get(v).copied();
        let root = match &inst.op {
            Op::AddrVar(var) => Some(*var),
            Op::Bin(BinOp::Add | BinOp::Sub, a, _) | Op::AsInt(a) => object_bases.get(a).copied(),
            Op::AsPtr(Space::Static | Space::Unknown, a) => object_bases.get(a).copied(),
            _ => None,
        };
        object_bases.extend(root.map(|var| (r, var)));
        let value = match &inst.op {
            Op::Const(i) => Some(Constant::Int(*i)),
            Op::StrConst(id) => Some(Constant::Str(*id)),
            Op::AddrVar(var) => Some(Constant::Place(*var, 0)),
            Op::Bin(op @ (BinOp::Add | BinOp::Sub), a, n) => match (of(a), of(n)) {
                (Some(Constant::Place(var, at)), Some(Constant::Int(n))) => Some(Constant::Place(
                    var,
                    if *op == BinOp::Add { at.wrapping_add(n) } else { at.wrapping_sub(n) },
                )),
                _ => None,
            },
            Op::AsInt(a) | Op::AsPtr(Space::Static | Space::Unknown, a) => {
                of(a).filter(|k| matches!(k, Constant::Place(..)))
            }
            _ => None,
        };
        constants.extend(value.map(|value| (r, value)));
    }
    (constants, object_bases)
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its blocks.
    pub blocks: Range<usize>,
    /// The blocks at which the segment may be entered.
    pub(crate) entries: Vec<usize>,
    /// The segment is inlined in the program.
    pub inline: bool,
}

/// True for operations that need the program's context. On some kernels only the program itself may
/// have the context, and no other function.
pub fn needs_context(op: &Op) -> bool {
    stack_kind(op).is_some()
}

/// Whether an operation takes a stack: `Some(true)` for that of the process, `Some(false)` for the
/// kernel's.
pub fn stack_kind(op: &Op) -> Option<bool> {
    use IntBuiltin::{Caller, StackDepth, Ucaller, UstackDepth};
    match op {
        Op::Stack { user, .. } => Some(*user),
        Op::Builtin(StackDepth | Caller) => Some(false),
        Op::Builtin(UstackDepth | Ucaller) => Some(true),
        _ => None,
    }
}

impl SplitClause {
    /// Splits a function into segments of `size` operations each. With `apart`, operations that
    /// need the program's context are inlined in the program.
    pub(crate) fn new(f: &Function, null_vars: &[bool], size: usize, apart: bool) -> SplitClause {
        let (func, starts) = divided(f, size.max(1), apart);
        let ends = starts.iter().skip(1).copied().chain([func.blocks.len()]);
        let ranges: Vec<Range<usize>> = starts.iter().zip(ends).map(|(s, e)| *s..e).collect();
        let mut segment_of = vec![0; func.blocks.len()];
        for (n, range) in ranges.iter().enumerate() {
            segment_of[range.clone()].fill(n);
        }
        let entries = entries(&func, &segment_of, ranges.len());
        let wants = |range: &Range<usize>| {
            apart && func.blocks[range.clone()].iter().flat_map(|b| &b.insts).any(|i| needs_context(&i.op))
        };
        let segments = ranges.iter().zip(entries).map(|(blocks, entries)| Segment {
            blocks: blocks.clone(),
            entries,
            inline: wants(blocks),
        });
        let segments: Vec<Segment> = segments.collect();
        let facts = Facts::new(&func, null_vars);
        let (constants, object_bases) = constants(&func);
        let (saved, words) = saved(&func, &segment_of, &facts.temps.shape, &constants);
        SplitClause { open: open(&func), saved, words, segments, constants, object_bases, facts, func }
    }
}

/// The function with its blocks divided, and the first blocks of the segments.
fn divided(f: &Function, size: usize, apart: bool) -> (Function, Vec<usize>) {
    let mut blocks: Vec<BlockData> = Vec::with_capacity(f.blocks.len() + f.blocks.len() / 4);
    let mut first = Vec::with_capacity(f.blocks.len());
    let mut starts = vec![0];
    let mut left = size;
    // The next operation starts a new segment.
    let mut due = false;
    let go_on = |to: usize| Term::Jump(Block(to as u32), Vec::new());
    for block in &f.blocks {
        first.push(blocks.len());
        let mut params = block.params.clone();
        let mut insts: Vec<InstData> = Vec::new();
        let alone = |i: usize| apart && block.insts.get(i).is_some_and(|inst| needs_context(&inst.op));
        // The end of a block counts as an operation.
        for i in 0..=block.insts.len() {
            if due || left == 0 || alone(i) && left < size {
                if !insts.is_empty() {
                    let next = blocks.len() + 1;
                    let (params, insts) = (std::mem::take(&mut params), std::mem::take(&mut insts));
                    blocks.push(BlockData { params, insts, term: go_on(next) });
                }
                if starts.last() != Some(&blocks.len()) {
                    starts.push(blocks.len());
                }
                left = size;
            }
            due = alone(i);
            left -= 1;
            insts.extend(block.insts.get(i).cloned());
        }
        blocks.push(BlockData { params, insts, term: block.term.clone() });
    }
    // Jumps name blocks by their old numbers. The jumps that were added name new numbers, and are
    // not the last of a block.
    let last: Vec<usize> = first.iter().skip(1).map(|i| i - 1).chain([blocks.len() - 1]).collect();
    for i in last {
        blocks[i].term.for_each_edge_mut(|to, _| *to = Block(first[to.0 as usize] as u32));
    }
    let func = Function { name: f.name.clone(), blocks, values: f.values.clone() };
    (func, starts)
}

/// For each segment, the blocks that other segments jump to.
fn entries(f: &Function, segment_of: &[usize], segments: usize) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); segments];
    out[0].push(0);
    for (i, block) in f.blocks.iter().enumerate() {
        block.term.for_each_edge(|to, _| {
            let to = to.0 as usize;
            let entries = &mut out[segment_of[to]];
            if segment_of[to] != segment_of[i] && !entries.contains(&to) {
                entries.push(to);
            }
        });
    }
    out
}

/// For each block, whether the record is reserved at its start.
fn open(f: &Function) -> Vec<bool> {
    let mut open = vec![false; f.blocks.len()];
    let records = f.instructions().any(|(_, inst)| inst.op == Op::Commit);
    for (i, block) in f.blocks.iter().enumerate() {
        let mut now = open[i];
        for inst in &block.insts {
            match inst.op {
                Op::Reserve => now = true,
                Op::Speculate(_) => now = records,
                Op::Commit => now = false,
                _ => {}
            }
        }
        block.term.for_each_edge(|to, _| open[to.0 as usize] = now);
    }
    open
}

/// Assigns words to the values that cross segments. Values that are not live at the same time share
/// words.
fn saved(
    f: &Function,
    segment_of: &[usize],
    shapes: &[Option<Shape>],
    constants: &BTreeMap<Value, Constant>,
) -> (Vec<Option<u32>>, u32) {
    let n = f.values.len();
    let (mut first, mut last) = (vec![usize::MAX; n], vec![0; n]);
    let seen = |v: Value, segment: usize, first: &mut Vec<usize>, last: &mut Vec<usize>| {
        let v = v.0 as usize;
        first[v] = first[v].min(segment);
        last[v] = last[v].max(segment);
    };
    for (i, block) in f.blocks.iter().enumerate() {
        let segment = segment_of[i];
        block.params.iter().for_each(|p| seen(*p, segment, &mut first, &mut last));
        for inst in &block.insts {
            inst.op.for_each_use(|v| seen(v, segment, &mut first, &mut last));
            if let Some(r) = inst.result {
                seen(r, segment, &mut first, &mut last);
            }
        }
        each_term_use(&block.term, |v| seen(v, segment, &mut first, &mut last));
        // A parameter is written where the jumps to its block are.
        block.term.for_each_edge(|to, _| {
            for p in &f.blocks[to.0 as usize].params {
                seen(*p, segment, &mut first, &mut last);
            }
        });
    }
    let mut order: Vec<usize> =
        (0..n).filter(|v| first[*v] < last[*v] && !constants.contains_key(&Value(*v as u32))).collect();
    order.sort_by_key(|v| first[*v]);
    let mut out = vec![None; n];
    let mut words = 0;
    // Words that become free behind each segment, and free words, by their length.
    let mut ends: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    let mut free: [Vec<u32>; WORDS_MAX + 1] = Default::default();
    for v in order {
        let length = match shapes[v] {
            None | Some(Shape::Interned) => 1,
            Some(Shape::Comm) => 2,
            Some(Shape::Bytes) => 0,
        };
        while let Some(entry) = ends.first_entry().filter(|e| *e.key() < first[v]) {
            entry.remove().into_iter().for_each(|(length, at)| free[length].push(at));
        }
        let at = free[length].pop().unwrap_or_else(|| {
            words += length as u32;
            words - length as u32
        });
        ends.entry(last[v]).or_default().push((length, at));
        out[v] = Some(at);
    }
    (out, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
module strsize 32
string s0 = ""
var var0 = global "n" int

clause "long" {
b0:
    v0:int = builtin arg0
    v1:int = builtin arg1
    branch v0, b1, b2
b1:
    v2:int = add v0, v1
    jump b3(v2)
b2:
    v3:int = sub v0, v1
    jump b3(v3)
b3(v4:int):
    v5:int = mul v4, v0
    storevar var0, v5
    storevar var0, v4
    return
}
"#;

    #[test]
    fn segments_are_ranges_of_blocks_and_crossing_values_have_a_word() {
        let module = dif::text::parse(TEXT).unwrap();
        let cut = SplitClause::new(&module.clauses[0].func, &[], 3, true);
        let ranges: Vec<_> = cut.segments.iter().map(|p| p.blocks.clone()).collect();
        assert_eq!(ranges, [0..1, 1..3, 3..5, 5..6]);
        let entries: Vec<_> = cut.segments.iter().map(|p| p.entries.clone()).collect();
        assert_eq!(entries, [vec![0], vec![1, 2], vec![4, 3], vec![5]]);
        let crossing: Vec<_> = (0..cut.saved.len()).filter(|v| cut.saved[*v].is_some()).collect();
        assert_eq!(crossing, [0, 1, 3, 4]);
        assert_eq!(cut.words, 4);
    }

    #[test]
    fn splitting_keeps_the_order_and_number_of_operations() {
        let module = dif::text::parse(TEXT).unwrap();
        let f = &module.clauses[0].func;
        for size in 1..9 {
            let cut = SplitClause::new(f, &[], size, true);
            let of = |f: &Function| f.instructions().map(|(n, i)| (n, i.clone())).collect::<Vec<_>>();
            assert_eq!(of(&cut.func), of(f), "{size}");
            let copy = dif::ir::Module {
                clauses: vec![dif::ir::Clause { func: cut.func, ..module.clauses[0].clone() }],
                ..module.clone()
            };
            dif::verify::verify(&copy).unwrap();
        }
    }
}
