//! Layout of a firing's scratch slot.
//!
//! The layout is computed once from the module, before any code is generated and any map is created
//! ([`crate::maps::Needs::slot_bytes`]), because all programs of the session must agree on it. The
//! decision that shapes it: offsets are fixed, so every address is the slot's base plus a constant,
//! and the verifier needs to know nothing else. Strings that are never live together share an
//! offset.
//!
//! ```text
//!  scratch slot                              all but the state exist a second time, for ERROR's clauses
//!    state   of the firing, for clauses that are separate functions; the captured stacks
//!    this->  strings (integers are in registers, unless there are many)
//!    temps   temporary strings of strsize bytes, as many as the busiest clause needs at once
//!    key     the longest key that does not fit registers
//!    buffer  frames of a stack
//!    image   an element of an array of strings or objects before it is stored
//!    path    a path under construction, and space for a name that does not fit
//!    d memory  (once): see `d_memory`
//!    work    the work area: loop variables of subroutines
//!    token   the rest of strtok()'s string
//!    result  the value of return()
//!    behind  padding for the verifier (see strjoin); once
//! ```

use std::collections::BTreeMap;

use dif::ir::{
    Clause, Function, IntBuiltin, Module, Op, Scope, StrBuiltin, Subr, Term, Ty, Value, VarId, VarTy,
};

use super::d_memory::{self, DMemory};
use super::split::{SplitClause, needs_context, stack_kind};
use super::strings::Shape;
use super::subr;
use crate::program::Division;
use crate::routines::CAPTURED;

/// Bytes of an address.
const WORD: u32 = 8;

/// Offsets in the scratch slots of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Offset of each `this->` variable that is stored in the slot: strings; integers where there
    /// are too many for registers, or where functions share them; objects, relative to the objects'
    /// area.
    pub this: Vec<Option<u32>>,
    /// Offsets for the clauses of probes.
    pub main: SlotParts,
    /// Offsets for the clauses of ERROR.
    pub error: SlotParts,
    /// Offset of the firing's state, where there are enough clauses to divide programs.
    pub state: Option<u32>,
    /// Stacks that a divided program captures for its functions, where its clauses take many.
    pub captured: Option<Captured>,
    /// The sizes from which programs are divided.
    pub division: Division,
    /// The program has D memory that a pointer may point to.
    pub has_d_memory: bool,
    /// The offsets of D memory.
    pub d_memory: DMemory,
    /// Bytes of the objects of `this->`.
    pub objects: u32,
    /// Which variables may hold a NULL string.
    pub(crate) null_vars: Vec<bool>,
    /// Clauses that are too long for one function, by their index.
    pub(crate) split: BTreeMap<usize, SplitClause>,
    /// Bytes used of a slot; 0 when no clause needs one.
    pub slot_bytes: u32,
}

/// Offset of the arguments in the state.
pub(crate) const STATE_ARGS: u32 = 0;
/// Offset of the error number in the state.
pub(crate) const STATE_ERRNO: u32 = STATE_ARGS + WORD * dif::ir::ARGS as u32;
/// Offset of the commit word of a split clause's record in the state.
pub(crate) const STATE_STAMP: u32 = STATE_ERRNO + 8;
/// Offset in the state of the amount of scratch memory that a split clause has taken.
pub(crate) const STATE_TOP: u32 = STATE_ERRNO + 16;
/// Offset of a split clause's values in the state.
pub(crate) const STATE_SAVED: u32 = STATE_ERRNO + 24;

/// Maximum number of `this->` integers in registers.
const THIS_IN_REGISTERS: usize = 6;

/// Offsets of captured stacks in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The kernel stack.
    pub kernel: Option<u32>,
    /// The user stack.
    pub user: Option<u32>,
}

impl Captured {
    pub(crate) fn of(self, user: bool) -> Option<u32> {
        if user { self.user } else { self.kernel }
    }
}

/// Above this number of stack operations, a divided program captures the stack once, whether or not
/// a clause then reaches such an operation. Below it, the clauses that take a stack stay in the
/// program.
const STACKS_INLINE: usize = 12;

/// One set of offsets in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotParts {
    /// `this->` strings.
    pub this: u32,
    /// Temporaries.
    pub temps: u32,
    /// The key.
    pub key: u32,
    /// The buffer for stack frames.
    pub buffer: u32,
    /// The image of an element before it is stored.
    pub image: u32,
    /// A path under construction.
    pub path: u32,
    /// Objects of `this->`: see [`super::d_memory`].
    pub objects: u32,
    /// The work area of subroutines.
    pub work: u32,
    /// The state of `strtok()`, when it is called.
    pub token: Option<u32>,
    /// The value of `return()`, when it is called.
    pub result: Option<u32>,
}

impl Layout {
    /// Lays out the slots for `module`. `error` holds the indices of ERROR's clauses.
    pub fn new(module: &Module, error: &[usize]) -> Layout {
        Layout::divided(module, error, Division::default())
    }

    /// The same with other sizes from which programs are divided.
    pub fn divided(module: &Module, error: &[usize], division: Division) -> Layout {
        let null_vars = module.null_vars();
        let mut layout = Layout { division, null_vars, ..Layout::default() };
        let operations = |c: &Clause| crate::program::operations(c);
        let large = module.clauses.iter().map(operations).sum::<usize>() > division.whole;
        let ints = module.vars.iter().filter(|v| crate::program::is_this_int(v)).count();
        let ints_too = large || ints > THIS_IN_REGISTERS;
        let mut this_size = 0;
        for var in &module.vars {
            let (end, size) = match var.ty {
                _ if var.scope != Scope::Clause || var.key.is_some() => (None, 0),
                VarTy::Int { .. } => (ints_too.then_some(&mut this_size), WORD),
                VarTy::Str => (Some(&mut this_size), module.strsize),
                // One unused word behind it: see `maps::object_space`.
                VarTy::Bytes { size } => (Some(&mut layout.objects), size.div_ceil(WORD) * WORD + WORD),
            };
            layout.this.push(end.map(|end| {
                *end += size;
                *end - size
            }));
        }
        // A clause of ERROR may also belong to other probes.
        let main: Vec<_> = module.clauses.iter().enumerate().collect();
        let error: Vec<_> = main.iter().copied().filter(|(i, _)| error.contains(i)).collect();
        let mut end = 0;
        if large {
            let ops = || module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
            let captures = ops().filter(|i| needs_context(&i.op)).count() > STACKS_INLINE;
            let long = division.part.max(1) + division.part / 2;
            let long_clauses = main.iter().filter(|(_, c)| operations(c) > long);
            layout.split = long_clauses
                .map(|(i, c)| (*i, SplitClause::new(&c.func, &layout.null_vars, division.part, !captures)))
                .collect();
            layout.state = Some(end);
            end += STATE_SAVED + WORD * layout.split.values().map(|c| c.words).max().unwrap_or(0);
            if captures {
                let mut place = |user| {
                    let wanted = ops().any(|i| stack_kind(&i.op) == Some(user));
                    end += if wanted { CAPTURED } else { 0 };
                    wanted.then(|| end - CAPTURED)
                };
                layout.captured = Some(Captured { kernel: place(false), user: place(true) });
            }
        }
        layout.main = layout.parts(module, &main, this_size, &mut end);
        layout.error = layout.parts(module, &error, this_size, &mut end);
        layout.has_d_memory = d_memory::has_d_memory(module);
        let needs = d_memory::needs(module, layout.has_d_memory, module.clauses.iter());
        let (d_memory, [main, error]) = d_memory::lay_out(module, needs, layout.objects, &mut end);
        layout.d_memory = d_memory;
        (layout.main.objects, layout.error.objects) = (main, error);
        let ops = || module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).map(|i| &i.op);
        if ops().any(|op| subr::needs(op).behind) {
            end += module.strsize;
        }
        layout.slot_bytes = end;
        layout
    }

    /// True when registers and stack are not enough for the clause.
    pub(crate) fn needs_slot(&self, module: &Module, clause: usize) -> bool {
        let mut end = 0;
        // The size of the `this->` variables does not matter here.
        self.parts(module, &[(clause, &module.clauses[clause])], WORD, &mut end);
        end > 0 || d_memory::needs(module, self.has_d_memory, module.clauses.get(clause).into_iter()).any()
    }

    /// Lays out the slot for some clauses from `end` on.
    fn parts(
        &self,
        module: &Module,
        clauses: &[(usize, &Clause)],
        this_size: u32,
        end: &mut u32,
    ) -> SlotParts {
        let in_words = |v: VarId| {
            self.this[v.0 as usize].is_some() && !matches!(module.vars[v.0 as usize].ty, VarTy::Bytes { .. })
        };
        let uses_this = |op: &Op| match op {
            Op::LoadVar(v) | Op::StoreVar(v, _) => in_words(*v),
            _ => false,
        };
        let insts = || clauses.iter().flat_map(|(_, c)| &c.func.blocks).flat_map(|b| &b.insts);
        let this_size = if insts().any(|i| uses_this(&i.op)) { this_size } else { 0 };
        parts(module, clauses, this_size, end)
    }
}

fn parts(module: &Module, clauses: &[(usize, &Clause)], this_size: u32, end: &mut u32) -> SlotParts {
    let temps = clauses.iter().map(|(_, c)| Temps::new(&c.func).count).max().unwrap_or(0);
    let insts = || clauses.iter().flat_map(|(_, c)| &c.func.blocks).flat_map(|b| &b.insts);
    let key = insts()
        .map(|i| match &i.op {
            // The thread's word precedes the key of a `self->` array.
            Op::LoadElem(var, _)
            | Op::StoreElem(var, ..)
            | Op::DeleteElem(var, _)
            | Op::CopyElem { var, .. }
            | Op::StoreObj { var, .. } => key_bytes(module, *var),
            Op::Aggregate { agg, .. } => module.aggs[agg.0 as usize].key_size,
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    let buffer = insts()
        .map(|i| match i.op {
            Op::Stack { frames, .. } => frames.min(FRAMES) * WORD + plane::stacks::PCS,
            Op::Builtin(IntBuiltin::StackDepth | IntBuiltin::UstackDepth) => FRAMES * WORD,
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    let image = insts()
        .map(|i| match i.op {
            Op::StoreElem(v, ..) if module.vars[v.0 as usize].ty == VarTy::Str => {
                element_image(module.strsize)
            }
            Op::StoreObj { var, .. } => element_image(module.object_size(var).unwrap_or(0)),
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    let paths = insts().any(|i| matches!(i.op, Op::Call(Subr::DPath | Subr::Fullpath | Subr::Mountpoint, _)));
    let path = if paths { module.strsize + crate::routines::NAME } else { 0 };
    let (work, token) = (insts().any(|i| subr::needs(&i.op).work), insts().any(|i| subr::needs(&i.op).token));
    let result = insts().any(|i| subr::needs(&i.op).result);
    let mut take = |size: u32| {
        *end += size.div_ceil(WORD) * WORD;
        *end - size.div_ceil(WORD) * WORD
    };
    SlotParts {
        this: take(this_size),
        temps: take(temps * module.strsize),
        key: take(if key > KEY_ON_STACK { key } else { 0 }),
        buffer: take(buffer),
        image: take(image),
        path: take(path),
        objects: 0,
        work: take(if work { subr::WORK } else { 0 }),
        token: token.then(|| take(subr::TOKEN_HEAD + module.strsize)),
        result: result.then(|| take(WORD)),
    }
}

/// Bytes of an element before it is stored, with the number of its node.
fn element_image(data: u32) -> u32 {
    plane::assoc::value_size(data) + plane::assoc::NODE
}

/// Maximum number of frames of a stack.
pub(crate) const FRAMES: u32 = plane::stacks::FRAMES_MAX;

/// Keys of at most this many bytes are built in registers.
const KEY_ON_STACK: u32 = 8 * crate::routines::KEY_WORDS_MAX as u32;

/// Bytes of an array's key in its map.
fn key_bytes(module: &Module, var: VarId) -> u32 {
    let desc = &module.vars[var.0 as usize];
    desc.key_size + if desc.scope == Scope::Thread { WORD } else { 0 }
}

/// The temporaries that a clause's strings use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Temps {
    /// The temporary's number, for each value that needs one.
    pub(crate) of: Vec<Option<u32>>,
    /// The representation of each value of type string.
    pub(crate) shape: Vec<Option<Shape>>,
    /// Number of temporaries.
    pub(crate) count: u32,
}

impl Temps {
    /// Edges only go forward, so a value is live from its definition to the last instruction that
    /// uses it.
    pub(crate) fn new(f: &Function) -> Temps {
        let n = f.values.len();
        let shape = shapes(f);
        let mut last = vec![0usize; n];
        let mut first = vec![usize::MAX; n];
        let mut at = 0;
        let mut block_start = Vec::new();
        for block in &f.blocks {
            block_start.push(at);
            for p in &block.params {
                first[p.0 as usize] = at;
            }
            for inst in &block.insts {
                inst.op.for_each_use(|v| last[v.0 as usize] = last[v.0 as usize].max(at));
                if let Some(r) = inst.result {
                    first[r.0 as usize] = at;
                }
                at += 1;
            }
            each_term_use(&block.term, |v| last[v.0 as usize] = last[v.0 as usize].max(at));
            at += 1;
        }
        // A parameter's temporary is written where the jumps to its block are.
        let mut at = 0;
        for block in &f.blocks {
            at += block.insts.len();
            let targets: Vec<(dif::ir::Block, &Vec<Value>)> = match &block.term {
                Term::Jump(b, args) => vec![(*b, args)],
                Term::Branch { then, other, .. } => vec![(then.0, &then.1), (other.0, &other.1)],
                _ => Vec::new(),
            };
            for (target, _) in targets {
                for p in &f.blocks[target.0 as usize].params {
                    first[p.0 as usize] = first[p.0 as usize].min(at);
                }
            }
            at += 1;
        }
        let mut order: Vec<usize> =
            (0..n).filter(|i| shape[*i].is_some_and(Shape::needs_temp) && first[*i] != usize::MAX).collect();
        order.sort_by_key(|i| (first[*i], *i));
        let mut free_from: Vec<usize> = Vec::new();
        let mut of = vec![None; n];
        for i in order {
            let slot = free_from.iter().position(|from| *from <= first[i]).unwrap_or_else(|| {
                free_from.push(0);
                free_from.len() - 1
            });
            // The last instruction that reads the temporary must not write its own result to it.
            free_from[slot] = last[i].max(first[i]) + 1;
            of[i] = Some(slot as u32);
        }
        Temps { of, shape, count: free_from.len() as u32 }
    }
}

/// The representation of each string value.
fn shapes(f: &Function) -> Vec<Option<Shape>> {
    let mut shape: Vec<Option<Shape>> = f.values.iter().map(|_| None).collect();
    // Subroutines take strings as bytes.
    let mut called = vec![false; f.values.len()];
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        if let Op::Call(_, args) = &inst.op {
            args.iter().for_each(|a| called[a.0 as usize] = true);
        }
    }
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let Some(r) = inst.result else { continue };
        if f.values[r.0 as usize] == Ty::Str {
            shape[r.0 as usize] = Some(match inst.op {
                Op::StrConst(_) => Shape::Interned,
                Op::BuiltinStr(StrBuiltin::Execname) if !called[r.0 as usize] => Shape::Comm,
                Op::BuiltinStr(StrBuiltin::Execname) => Shape::Bytes,
                Op::BuiltinStr(_) => Shape::Interned,
                _ => Shape::Bytes,
            });
        }
    }
    // Blocks are in topological order, so all jumps to a block are processed before the block's own
    // jumps.
    for block in &f.blocks {
        let mut pass = |target: dif::ir::Block, args: &[Value]| {
            for (p, a) in f.blocks[target.0 as usize].params.iter().zip(args) {
                if f.values[p.0 as usize] == Ty::Str {
                    let from = match shape[a.0 as usize].unwrap_or(Shape::Bytes) {
                        Shape::Comm if called[p.0 as usize] => Shape::Bytes,
                        from => from,
                    };
                    let now = shape[p.0 as usize];
                    shape[p.0 as usize] = Some(now.map_or(from, |now| now.join(from)));
                }
            }
        };
        match &block.term {
            Term::Jump(b, args) => pass(*b, args),
            Term::Branch { then, other, .. } => {
                pass(then.0, &then.1);
                pass(other.0, &other.1);
            }
            Term::Return | Term::PredicateFalse => {}
        }
    }
    shape
}

/// Calls `f` for each value that a block's terminator uses.
pub(crate) fn each_term_use(term: &Term, mut f: impl FnMut(Value)) {
    match term {
        Term::Jump(_, args) => args.iter().copied().for_each(f),
        Term::Branch { cond, then, other } => {
            f(*cond);
            then.1.iter().chain(&other.1).copied().for_each(f);
        }
        Term::Return | Term::PredicateFalse => {}
    }
}
