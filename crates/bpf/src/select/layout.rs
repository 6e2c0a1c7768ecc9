//! What a firing's scratch slot holds.
//!
//! Computed once from the module, before any code and any map ([`crate::maps::Needs::slot_bytes`]), because every program of the
//! session must agree on it. The decision that shapes it: fixed places, so that every address is the slot's base plus a
//! constant, which is all that the verifier has to know. Strings that are never alive together share a place.
//!
//! ```text
//!  scratch slot                              ERROR's clauses have all but the first a second time, behind
//!    state   of the firing, for clauses that are functions of their own; stacks captured for them
//!    this->  strings (integers are registers, unless there are many)
//!    temps   strsize each: strings in the making, as many as the busiest clause needs at once
//!    key     the longest key, for those that do not fit registers
//!    buffer  frames of a stack
//!    image   an element of an array of strings or objects before it is stored
//!    path    in the making, and a name that does not fit
//!    far     D's own memory (once): `far`
//!    work    what loops of subroutines carry
//!    token   what strtok() has left of its string
//!    result  what return() gives
//!    behind  nothing, for the verifier (see strjoin); once
//! ```

use std::collections::BTreeMap;

use dif::ir::{
    Clause, Function, IntBuiltin, Module, Op, Scope, StrBuiltin, Subr, Term, Ty, Value, VarId, VarTy,
};

use super::cut::{Cut, wants_context, wants_stack};
use super::far::{self, Far};
use super::strings::Shape;
use super::subr;
use crate::program::Division;
use crate::routines::CAPTURED;

/// Bytes of an address.
const WORD: u32 = 8;

/// Places in the scratch slots of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Offset of each `this->` variable among those that are in the slot: strings, and integers too where there are too
    /// many for registers, or functions between which registers do not pass; of each object among those.
    pub this: Vec<Option<u32>>,
    /// Places in the slot for the clauses of probes.
    pub main: SlotParts,
    /// Places in the slot for the clauses of ERROR.
    pub error: SlotParts,
    /// What a firing is, where there are clauses enough to be divided.
    pub state: Option<u32>,
    /// Stacks that a divided program captures for its functions, where its clauses take many.
    pub captured: Option<Captured>,
    /// When that is.
    pub division: Division,
    /// There is memory of D's own that a pointer might lead to.
    pub own: bool,
    /// Where that is.
    pub far: Far,
    /// Bytes of objects of `this->`.
    pub objects: u32,
    /// Which variables may hold a NULL string.
    pub(crate) null_vars: Vec<bool>,
    /// Clauses that are too long for one function, by their numbers.
    pub(crate) cut: BTreeMap<usize, Cut>,
    /// Bytes used of a slot; 0 when no clause needs one.
    pub slot_bytes: u32,
}

/// Where the arguments are in the state.
pub(crate) const STATE_ARGS: u32 = 0;
/// Where the error number is.
pub(crate) const STATE_ERRNO: u32 = STATE_ARGS + WORD * dif::ir::ARGS as u32;
/// Where the commit word of a cut clause's record is.
pub(crate) const STATE_STAMP: u32 = STATE_ERRNO + 8;
/// Where a cut clause's time is.
pub(crate) const STATE_TIME: u32 = STATE_ERRNO + 16;
/// Where it is how much scratch memory a cut clause has taken.
pub(crate) const STATE_TOP: u32 = STATE_ERRNO + 24;
/// Where values of a cut clause are.
pub(crate) const STATE_SAVED: u32 = STATE_ERRNO + 32;

/// So many `this->` integers are in registers.
const THIS_IN_REGISTERS: usize = 6;

/// Where captured stacks are in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The kernel's.
    pub kernel: Option<u32>,
    /// The process's.
    pub user: Option<u32>,
}

impl Captured {
    pub(crate) fn of(self, user: bool) -> Option<u32> {
        if user { self.user } else { self.kernel }
    }
}

/// With more operations than so many that want a stack, a divided program captures it once, whether a clause then comes to
/// the operation or not; with fewer, the clauses that want it stay in the program.
const STACKS_INLINE: usize = 12;

/// One set of places in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotParts {
    /// `this->` strings.
    pub this: u32,
    /// Temporaries.
    pub temps: u32,
    /// The key.
    pub key: u32,
    /// The buffer for stacks.
    pub buffer: u32,
    /// The image of a string element.
    pub image: u32,
    /// A path in the making.
    pub path: u32,
    /// Objects of `this->`: far off, see [`super::far`].
    pub objects: u32,
    /// The work area of subroutines.
    pub work: u32,
    /// The state of `strtok()`, when it is called.
    pub token: Option<u32>,
    /// What `return()` gives, when it is called.
    pub result: Option<u32>,
}

impl Layout {
    /// Lays out for `module`; `error` are the indices of ERROR's clauses.
    pub fn new(module: &Module, error: &[usize]) -> Layout {
        Layout::divided(module, error, Division::default())
    }

    /// The same, with programs divided by other measures than the usual.
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
                // And a word that nobody uses: see `maps::object_room`.
                VarTy::Bytes { size } => (Some(&mut layout.objects), size.div_ceil(WORD) * WORD + WORD),
            };
            layout.this.push(end.map(|end| {
                *end += size;
                *end - size
            }));
        }
        // A clause of ERROR may be another probe's as well.
        let main: Vec<_> = module.clauses.iter().enumerate().collect();
        let error: Vec<_> = main.iter().copied().filter(|(i, _)| error.contains(i)).collect();
        let mut end = 0;
        if large {
            let ops = || module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
            let captures = ops().filter(|i| wants_context(&i.op)).count() > STACKS_INLINE;
            let long = division.part.max(1) + division.part / 2;
            let cut = main.iter().filter(|(_, c)| operations(c) > long);
            layout.cut = cut
                .map(|(i, c)| (*i, Cut::new(&c.func, &layout.null_vars, division.part, !captures)))
                .collect();
            layout.state = Some(end);
            end += STATE_SAVED + WORD * layout.cut.values().map(|c| c.words).max().unwrap_or(0);
            if captures {
                let mut place = |user| {
                    let wanted = ops().any(|i| wants_stack(&i.op) == Some(user));
                    end += if wanted { CAPTURED } else { 0 };
                    wanted.then(|| end - CAPTURED)
                };
                layout.captured = Some(Captured { kernel: place(false), user: place(true) });
            }
        }
        layout.main = layout.parts(module, &main, this_size, &mut end);
        layout.error = layout.parts(module, &error, this_size, &mut end);
        layout.own = far::has_own(module);
        let needs = far::needs(module, layout.own, module.clauses.iter());
        let (far, [main, error]) = far::lay_out(module, needs, layout.objects, &mut end);
        layout.far = far;
        (layout.main.objects, layout.error.objects) = (main, error);
        let ops = || module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).map(|i| &i.op);
        if ops().any(|op| subr::needs(op).behind) {
            end += module.strsize;
        }
        layout.slot_bytes = end;
        layout
    }

    /// True when the clause cannot do with registers and stack.
    pub(crate) fn needs_slot(&self, module: &Module, clause: usize) -> bool {
        let mut end = 0;
        // The size of a `this->` variable does not matter here.
        self.parts(module, &[(clause, &module.clauses[clause])], WORD, &mut end);
        end > 0 || far::needs(module, self.own, module.clauses.get(clause).into_iter()).any()
    }

    /// Lays out for some clauses from `end` on.
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
            // The thread's word comes before the key of a `self->` array.
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

/// An element before it is stored, with the number of its node.
fn element_image(data: u32) -> u32 {
    plane::assoc::value_size(data) + plane::assoc::NODE
}

/// Frames that a stack has at most.
pub(crate) const FRAMES: u32 = plane::stacks::FRAMES_MAX;

/// Keys up to so many bytes are made in registers.
const KEY_ON_STACK: u32 = 8 * crate::routines::KEY_WORDS_MAX as u32;

/// Bytes of the key of an array as its map has it.
fn key_bytes(module: &Module, var: VarId) -> u32 {
    let desc = &module.vars[var.0 as usize];
    desc.key_size + if desc.scope == Scope::Thread { WORD } else { 0 }
}

/// Which temporaries of the slot a clause's strings use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Temps {
    /// For each value that needs one, its number.
    pub(crate) of: Vec<Option<u32>>,
    /// How a string is represented, for each value of type string.
    pub(crate) shape: Vec<Option<Shape>>,
    /// How many there are.
    pub(crate) count: u32,
}

impl Temps {
    /// Edges only go forward, so a value lives from where it is made to the last instruction that names it.
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
            // The instruction that reads it last may not write its own result over it.
            free_from[slot] = last[i].max(first[i]) + 1;
            of[i] = Some(slot as u32);
        }
        Temps { of, shape, count: free_from.len() as u32 }
    }
}

/// How each string value is represented.
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
                Op::StrConst(_) => Shape::Known,
                Op::BuiltinStr(StrBuiltin::Execname) if !called[r.0 as usize] => Shape::Comm,
                Op::BuiltinStr(StrBuiltin::Execname) => Shape::Bytes,
                Op::BuiltinStr(_) => Shape::Known,
                _ => Shape::Bytes,
            });
        }
    }
    // Blocks are in topological order, so what jumps to a block has been seen before the block's own jumps.
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

/// Calls `f` for each value a block's end names.
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
