//! Long clauses are cut into pieces, each a function of its own.
//!
//! A function has 32,767 instructions at most, as far as a jump reaches, and finding registers takes longer than the
//! square of its length is worth. Edges between blocks only go forward, so a piece is a stretch of blocks (a block is
//! cut in two where a piece ends in it), and a clause is a row of calls. Each is told at which block to begin, and says
//! at which block to go on:
//!
//! ```text
//!  next = piece_0(probe, slot, 0)
//!  if next < end of piece 1: next = piece_1(probe, slot, next)        a jump over pieces: they are not called
//!  if next < end of piece 2: …                                        END, greater than all: the clause is over
//! ```
//!
//! What is made in one piece and used in another goes through the scratch slot: registers have words there
//! ([`Cut::saved`]), strings in memory are in it anyway, and the record is found again by its stamp.
//!
//! Operations that want the program's context (stacks) stand in pieces of their own, which stay in the program; where
//! there are many, the program captures the stack for all of them.

use std::collections::BTreeMap;
use std::ops::Range;

use dif::ir::{
    BinOp, Block, BlockData, Function, InstData, IntBuiltin, Op, Space, StrId, Term, Value, VarId,
};

use super::layout::{Temps, each_term_use};
use super::strings::Shape;

/// "The clause is over": beyond all blocks.
pub(crate) const END: u32 = i32::MAX as u32;

/// Words a value takes in the slot.
const WORDS_MAX: usize = 2;

/// A clause in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The clause's code with its blocks cut where pieces end.
    pub(crate) func: Function,
    pub(crate) pieces: Vec<Piece>,
    /// For each value that is made in one piece and used in another: its first word in the slot.
    pub(crate) saved: Vec<Option<u32>>,
    /// Words of the slot.
    pub(crate) words: u32,
    /// For each block, whether the record is reserved where it begins.
    pub(crate) open: Vec<bool>,
    /// The clock is read in several pieces, and must give the same.
    pub(crate) keeps_time: bool,
    /// Values that are known, which every piece makes for itself.
    pub(crate) known: BTreeMap<Value, Known>,
    /// Values that are addresses in objects, and in which.
    pub(crate) rooted: BTreeMap<Value, VarId>,
    /// Facts about the whole clause, found once for all pieces.
    pub(crate) facts: Facts,
}

/// A value that is the same wherever it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Int(i64),
    Str(StrId),
    /// An address in an object, so many bytes from its start.
    Place(VarId, i64),
}

/// The values that are known, and those that are addresses in objects.
fn known(f: &Function) -> (BTreeMap<Value, Known>, BTreeMap<Value, VarId>) {
    let mut known: BTreeMap<Value, Known> = BTreeMap::new();
    let mut rooted: BTreeMap<Value, VarId> = BTreeMap::new();
    for (_, inst) in f.instructions() {
        let Some(r) = inst.result else { continue };
        let of = |v: &Value| known.get(v).copied();
        let root = match &inst.op {
            Op::AddrVar(var) => Some(*var),
            Op::Bin(BinOp::Add | BinOp::Sub, a, _) | Op::AsInt(a) => rooted.get(a).copied(),
            Op::AsPtr(Space::Static | Space::Unknown, a) => rooted.get(a).copied(),
            _ => None,
        };
        rooted.extend(root.map(|var| (r, var)));
        let value = match &inst.op {
            Op::Const(i) => Some(Known::Int(*i)),
            Op::StrConst(id) => Some(Known::Str(*id)),
            Op::AddrVar(var) => Some(Known::Place(*var, 0)),
            Op::Bin(op @ (BinOp::Add | BinOp::Sub), a, n) => match (of(a), of(n)) {
                (Some(Known::Place(var, at)), Some(Known::Int(n))) => Some(Known::Place(
                    var,
                    if *op == BinOp::Add { at.wrapping_add(n) } else { at.wrapping_sub(n) },
                )),
                _ => None,
            },
            Op::AsInt(a) | Op::AsPtr(Space::Static | Space::Unknown, a) => {
                of(a).filter(|k| matches!(k, Known::Place(..)))
            }
            _ => None,
        };
        known.extend(value.map(|value| (r, value)));
    }
    (known, rooted)
}

/// What is known of a function before code is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// How often each value is used.
    pub(crate) uses: Vec<u32>,
    /// Whether each may be a NULL string.
    pub(crate) nulls: Vec<bool>,
    pub(crate) temps: Temps,
}

impl Facts {
    /// Of a function in a module whose [`dif::ir::Module::null_vars`] these are.
    pub(crate) fn new(f: &Function, null_vars: &[bool]) -> Facts {
        let mut uses = vec![0; f.values.len()];
        for block in &f.blocks {
            for inst in &block.insts {
                inst.op.for_each_use(|v| uses[v.0 as usize] += 1);
            }
            each_term_use(&block.term, |v| uses[v.0 as usize] += 1);
        }
        Facts { uses, nulls: f.nulls(null_vars), temps: Temps::new(f) }
    }
}

/// A piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) blocks: Range<usize>,
    /// The blocks it may begin at.
    pub(crate) entries: Vec<usize>,
    /// It stands in the program.
    pub(crate) inline: bool,
}

/// True for what can only be done with the program's context, which no function but the program itself may have on all
/// kernels.
pub(crate) fn wants_context(op: &Op) -> bool {
    wants_stack(op).is_some()
}

/// Whether an operation wants a stack, and that of the process.
pub(crate) fn wants_stack(op: &Op) -> Option<bool> {
    use IntBuiltin::{Caller, StackDepth, Ucaller, UstackDepth};
    match op {
        Op::Stack { user, .. } => Some(*user),
        Op::Builtin(StackDepth | Caller) => Some(false),
        Op::Builtin(UstackDepth | Ucaller) => Some(true),
        _ => None,
    }
}

impl Cut {
    /// Pieces of `size` operations each. `apart`: what wants the program's context stands in the program.
    pub(crate) fn new(f: &Function, null_vars: &[bool], size: usize, apart: bool) -> Cut {
        let (func, starts) = divided(f, size.max(1), apart);
        let ends = starts.iter().skip(1).copied().chain([func.blocks.len()]);
        let ranges: Vec<Range<usize>> = starts.iter().zip(ends).map(|(s, e)| *s..e).collect();
        let mut piece_of = vec![0; func.blocks.len()];
        for (n, range) in ranges.iter().enumerate() {
            piece_of[range.clone()].fill(n);
        }
        let entries = entries(&func, &piece_of, ranges.len());
        let wants = |range: &Range<usize>| {
            apart && func.blocks[range.clone()].iter().flat_map(|b| &b.insts).any(|i| wants_context(&i.op))
        };
        let pieces = ranges.iter().zip(entries).map(|(blocks, entries)| Piece {
            blocks: blocks.clone(),
            entries,
            inline: wants(blocks),
        });
        let pieces: Vec<Piece> = pieces.collect();
        let facts = Facts::new(&func, null_vars);
        let (known, rooted) = known(&func);
        let (saved, words) = saved(&func, &piece_of, &facts.temps.shape, &known);
        let clocks = |op: &Op| matches!(op, Op::Builtin(IntBuiltin::Timestamp | IntBuiltin::Walltimestamp));
        let asking = pieces
            .iter()
            .filter(|p| func.blocks[p.blocks.clone()].iter().flat_map(|b| &b.insts).any(|i| clocks(&i.op)));
        Cut {
            keeps_time: asking.count() > 1,
            open: open(&func),
            saved,
            words,
            pieces,
            known,
            rooted,
            facts,
            func,
        }
    }
}

/// The function with its blocks cut, and the blocks that pieces begin with.
fn divided(f: &Function, size: usize, apart: bool) -> (Function, Vec<usize>) {
    let mut blocks: Vec<BlockData> = Vec::with_capacity(f.blocks.len() + f.blocks.len() / 4);
    let mut first = Vec::with_capacity(f.blocks.len());
    let mut starts = vec![0];
    let mut room = size;
    // A new piece is due: in front of the next operation.
    let mut due = false;
    let go_on = |to: usize| Term::Jump(Block(to as u32), Vec::new());
    for block in &f.blocks {
        first.push(blocks.len());
        let mut params = block.params.clone();
        let mut insts: Vec<InstData> = Vec::new();
        let alone = |i: usize| apart && block.insts.get(i).is_some_and(|inst| wants_context(&inst.op));
        // The end of a block counts as an operation.
        for i in 0..=block.insts.len() {
            if due || room == 0 || alone(i) && room < size {
                if !insts.is_empty() {
                    let next = blocks.len() + 1;
                    let (params, insts) = (std::mem::take(&mut params), std::mem::take(&mut insts));
                    blocks.push(BlockData { params, insts, term: go_on(next) });
                }
                if starts.last() != Some(&blocks.len()) {
                    starts.push(blocks.len());
                }
                room = size;
            }
            due = alone(i);
            room -= 1;
            insts.extend(block.insts.get(i).cloned());
        }
        blocks.push(BlockData { params, insts, term: block.term.clone() });
    }
    // Jumps name blocks by their old numbers; those that were added name the new ones, and stand before the last of a block.
    let last: Vec<usize> = first.iter().skip(1).map(|i| i - 1).chain([blocks.len() - 1]).collect();
    for i in last {
        blocks[i].term.for_each_edge_mut(|to, _| *to = Block(first[to.0 as usize] as u32));
    }
    let func = Function { name: f.name.clone(), blocks, values: f.values.clone() };
    (func, starts)
}

/// The blocks of each piece that other pieces go to.
fn entries(f: &Function, piece_of: &[usize], pieces: usize) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); pieces];
    out[0].push(0);
    for (i, block) in f.blocks.iter().enumerate() {
        block.term.for_each_edge(|to, _| {
            let to = to.0 as usize;
            let entries = &mut out[piece_of[to]];
            if piece_of[to] != piece_of[i] && !entries.contains(&to) {
                entries.push(to);
            }
        });
    }
    out
}

/// Where the record is reserved when a block begins.
fn open(f: &Function) -> Vec<bool> {
    let mut open = vec![false; f.blocks.len()];
    for (i, block) in f.blocks.iter().enumerate() {
        let mut now = open[i];
        for inst in &block.insts {
            match inst.op {
                Op::Reserve => now = true,
                Op::Commit => now = false,
                _ => {}
            }
        }
        block.term.for_each_edge(|to, _| open[to.0 as usize] = now);
    }
    open
}

/// Words for the values that cross from piece to piece; values that are not needed at the same time share them.
fn saved(
    f: &Function,
    piece_of: &[usize],
    shapes: &[Option<Shape>],
    known: &BTreeMap<Value, Known>,
) -> (Vec<Option<u32>>, u32) {
    let n = f.values.len();
    let (mut first, mut last) = (vec![usize::MAX; n], vec![0; n]);
    let seen = |v: Value, piece: usize, first: &mut Vec<usize>, last: &mut Vec<usize>| {
        let v = v.0 as usize;
        first[v] = first[v].min(piece);
        last[v] = last[v].max(piece);
    };
    for (i, block) in f.blocks.iter().enumerate() {
        let piece = piece_of[i];
        block.params.iter().for_each(|p| seen(*p, piece, &mut first, &mut last));
        for inst in &block.insts {
            inst.op.for_each_use(|v| seen(v, piece, &mut first, &mut last));
            if let Some(r) = inst.result {
                seen(r, piece, &mut first, &mut last);
            }
        }
        each_term_use(&block.term, |v| seen(v, piece, &mut first, &mut last));
        // A parameter is written where the jumps to its block are.
        block.term.for_each_edge(|to, _| {
            for p in &f.blocks[to.0 as usize].params {
                seen(*p, piece, &mut first, &mut last);
            }
        });
    }
    let mut order: Vec<usize> =
        (0..n).filter(|v| first[*v] < last[*v] && !known.contains_key(&Value(*v as u32))).collect();
    order.sort_by_key(|v| first[*v]);
    let mut out = vec![None; n];
    let mut words = 0;
    // Places that become free behind a piece, and free ones, by their length.
    let mut ends: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    let mut free: [Vec<u32>; WORDS_MAX + 1] = Default::default();
    for v in order {
        let length = match shapes[v] {
            None | Some(Shape::Known) => 1,
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
var var0 = global "n" i64

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
    fn pieces_are_stretches_of_blocks_and_what_crosses_has_a_word() {
        let module = dif::text::parse(TEXT).unwrap();
        let cut = Cut::new(&module.clauses[0].func, &[], 3, true);
        let ranges: Vec<_> = cut.pieces.iter().map(|p| p.blocks.clone()).collect();
        assert_eq!(ranges, [0..1, 1..3, 3..5, 5..6]);
        let entries: Vec<_> = cut.pieces.iter().map(|p| p.entries.clone()).collect();
        assert_eq!(entries, [vec![0], vec![1, 2], vec![4, 3], vec![5]]);
        let crossing: Vec<_> = (0..cut.saved.len()).filter(|v| cut.saved[*v].is_some()).collect();
        assert_eq!(crossing, [0, 1, 3, 4]);
        assert_eq!(cut.words, 4);
    }

    #[test]
    fn operations_keep_their_order_and_number() {
        let module = dif::text::parse(TEXT).unwrap();
        let f = &module.clauses[0].func;
        for size in 1..9 {
            let cut = Cut::new(f, &[], size, true);
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
