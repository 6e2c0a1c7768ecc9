//! Layout of a firing's scratch slot.
//!
//! The layout is computed once from the module, before any code is generated and any map is created
//! ([`crate::plan::Needs::slot_bytes`]), because all programs of the session must agree on it. The
//! decision that shapes it: offsets are fixed, so every address is the slot's base plus a constant,
//! and the verifier needs to know nothing else. Strings that are never live together share an
//! offset.
//!
//! ```text
//!  scratch slot                              all but the state exist a second time, for ERROR's clauses
//!    state   of the firing, for clauses that are separate functions
//!    stacks  the kernel stack and the user stack of the firing; once
//!    this->  strings (integers are in registers, unless there are many)
//!    temps   temporary strings, as many as the busiest clause needs at once
//!    key     the longest key that does not fit registers
//!    image   an element of an array of strings or objects before it is stored
//!    path    a path under construction, and space for a name that does not fit
//!    d memory  (once): see `d_memory`
//!    work    the work area: loop variables of subroutines
//!    token   the rest of strtok()'s string
//!    result  the value of return()
//!    behind  padding for the verifier (see strjoin); once
//! ```

use std::collections::BTreeMap;

use dif::ir::{Clause, IntBuiltin, Module, Op, Scope, VarId, VarTy};

use super::d_memory::{self, DMemory};
use super::facts::{Temps, is_this_int};
use super::split::{Division, SplitClause, needs_context, stack_kind};
use super::subr::needs::{TOKEN_HEAD, WORK, needs as subr_needs};
use crate::routines::stack_area;

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
    /// The firing's stacks.
    pub stacks: Stacks,
    /// The sizes from which programs are divided.
    pub division: Division,
    /// The program has D memory that a pointer may point to.
    pub has_d_memory: bool,
    /// The offsets of D memory.
    pub d_memory: DMemory,
    /// Bytes of the objects of `this->`.
    pub objects: u32,
    /// Which variables may hold a NULL string.
    pub null_vars: Vec<bool>,
    /// Clauses that are too long for one function, by their index.
    pub split: BTreeMap<usize, SplitClause>,
    /// Bytes used of a slot; 0 when no clause needs one.
    pub slot_bytes: u32,
}

/// Offset of the arguments in the state.
pub const STATE_ARGS: u32 = 0;
/// Offset of the error number in the state.
pub const STATE_ERRNO: u32 = STATE_ARGS + WORD * dif::ir::ARGS as u32;
/// Offset of the commit word of a split clause's record in the state.
pub(crate) const STATE_STAMP: u32 = STATE_ERRNO + 8;
/// Offset in the state of the amount of scratch memory that a split clause has taken.
pub(crate) const STATE_TOP: u32 = STATE_ERRNO + 16;
/// Offset in the state of the index of the speculation that a split clause's record is part of.
pub(crate) const STATE_SPECULATION: u32 = STATE_ERRNO + 24;
/// Offset of a split clause's values in the state.
pub(crate) const STATE_SAVED: u32 = STATE_ERRNO + 32;

/// Maximum number of `this->` integers in registers.
const THIS_IN_REGISTERS: usize = 6;

/// The place of a firing's stack in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackArea {
    /// Its offset.
    pub at: u32,
    /// The most frames that a clause needs.
    pub frames: u32,
    /// The most frames of an interpreter in them; 0 if no clause takes those.
    pub calls: u32,
}

/// The places of a firing's stacks in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// The kernel stack.
    pub kernel: Option<StackArea>,
    /// The user stack.
    pub user: Option<StackArea>,
    /// A divided program walks the stacks first, for its functions.
    pub first: bool,
}

impl Stacks {
    /// The kernel stack, or the user stack.
    pub fn of(self, user: bool) -> Option<StackArea> {
        if user { self.user } else { self.kernel }
    }
}

/// Frames of a stack that an operation needs, of the kernel or of the process.
fn stack_frames(op: &Op, user: bool) -> u32 {
    match op {
        _ if stack_kind(op) != Some(user) => 0,
        Op::Stack { frames, .. } => (*frames).clamp(1, FRAMES),
        Op::Builtin(IntBuiltin::StackDepth | IntBuiltin::UstackDepth) => FRAMES,
        // The caller.
        _ => 2,
    }
}

/// Frames of an interpreter that an operation needs.
fn call_frames(op: &Op) -> u32 {
    match op {
        Op::Stack { user: true, calls: true, frames } => (*frames).clamp(1, FRAMES),
        _ => 0,
    }
}

/// Above this number of stack operations, a divided program walks the stack first, whether or not a
/// clause then reaches such an operation. Below it, the clauses that take a stack stay in the
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
    /// The image of an element before it is stored.
    pub image: u32,
    /// A path under construction.
    pub path: u32,
    /// Objects of `this->`: see `d_memory`.
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

    /// True when the clause reaches D memory.
    pub(crate) fn reaches_d_memory(&self, module: &Module, clause: usize) -> bool {
        d_memory::needs(module, self.has_d_memory, module.clauses.get(clause).into_iter()).any()
    }

    /// True when these clauses can reach objects of `this->`.
    pub fn reaches_objects<'m>(&self, module: &Module, clauses: impl Iterator<Item = &'m Clause>) -> bool {
        d_memory::needs(module, self.has_d_memory, clauses).objects
    }

    /// The same with other sizes from which programs are divided.
    pub fn divided(module: &Module, error: &[usize], division: Division) -> Layout {
        let null_vars = module.null_vars();
        let mut layout = Layout { division, null_vars, ..Layout::default() };
        let operations = |c: &Clause| crate::select::split::operations(c);
        let large = module.clauses.iter().map(operations).sum::<usize>() > division.whole;
        let ints = module.vars.iter().filter(|v| is_this_int(v)).count();
        let ints_too = large || ints > THIS_IN_REGISTERS;
        let mut this_size = 0;
        for var in &module.vars {
            let (end, size) = match var.ty {
                _ if var.scope != Scope::Clause || var.key.is_some() => (None, 0),
                VarTy::Int => (ints_too.then_some(&mut this_size), WORD),
                VarTy::Str => (Some(&mut this_size), module.string_storage()),
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
        let ops = || module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
        if large {
            let captures = ops().filter(|i| needs_context(&i.op)).count() > STACKS_INLINE;
            let long = division.part.max(1) + division.part / 2;
            let long_clauses = main.iter().filter(|(_, c)| operations(c) > long);
            layout.split = long_clauses
                .map(|(i, c)| (*i, SplitClause::new(&c.func, &layout.null_vars, division.part, !captures)))
                .collect();
            layout.state = Some(end);
            end += STATE_SAVED + WORD * layout.split.values().map(|c| c.words).max().unwrap_or(0);
            layout.stacks.first = captures;
        }
        let mut area = |user| {
            let frames = ops().map(|i| stack_frames(&i.op, user)).max().filter(|n| *n > 0)?;
            let calls = ops().map(|i| call_frames(&i.op)).max().filter(|_| user).unwrap_or(0);
            let size = stack_area(frames, calls, user);
            end += size;
            Some(StackArea { at: end - size, frames, calls })
        };
        (layout.stacks.kernel, layout.stacks.user) = (area(false), area(true));
        layout.main = layout.parts(module, &main, this_size, &mut end);
        layout.error = layout.parts(module, &error, this_size, &mut end);
        layout.has_d_memory = d_memory::has_d_memory(module);
        let needs = d_memory::needs(module, layout.has_d_memory, module.clauses.iter());
        let (d_memory, [main, error]) = d_memory::lay_out(module, needs, layout.objects, &mut end);
        layout.d_memory = d_memory;
        (layout.main.objects, layout.error.objects) = (main, error);
        let ops = || module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).map(|i| &i.op);
        if ops().any(|op| subr_needs(op).behind) {
            end += module.string_storage();
        }
        layout.slot_bytes = end;
        layout
    }

    /// True when registers and stack are not enough for the clause.
    pub fn needs_slot(&self, module: &Module, clause: usize) -> bool {
        let mut end = 0;
        let insts =
            || module.clauses.get(clause).into_iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
        if insts().any(|i| needs_context(&i.op)) {
            return true;
        }
        // The size of the `this->` variables does not matter here.
        self.parts(module, &[(clause, &module.clauses[clause])], WORD, &mut end);
        end > 0 || self.reaches_d_memory(module, clause)
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
            | Op::AddElem(var, ..)
            | Op::DeleteElem(var, _)
            | Op::CopyElem { var, .. }
            | Op::StoreObj { var, .. } => key_bytes(module, *var),
            Op::Aggregate { agg, .. } => module.aggs[agg.0 as usize].key_size,
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    let image = insts()
        .map(|i| match i.op {
            Op::StoreElem(v, ..) if module.vars[v.0 as usize].ty == VarTy::Str => {
                element_image(module.string_storage())
            }
            Op::StoreObj { var, .. } => element_image(module.object_size(var).unwrap_or(0)),
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    let paths = insts().any(|i| matches!(i.op, Op::Call(subr, _) if subr.makes_path() || subr.names_group()));
    let path = if paths { module.string_storage() + crate::routines::NAME } else { 0 };
    let (work, token) = (insts().any(|i| subr_needs(&i.op).work), insts().any(|i| subr_needs(&i.op).token));
    let result = insts().any(|i| subr_needs(&i.op).result);
    let mut take = |size: u32| {
        *end += size.div_ceil(WORD) * WORD;
        *end - size.div_ceil(WORD) * WORD
    };
    SlotParts {
        this: take(this_size),
        temps: take(temps * module.string_storage()),
        key: take(if key > KEY_ON_STACK { key } else { 0 }),
        image: take(image),
        path: take(path),
        objects: 0,
        work: take(if work { WORK } else { 0 }),
        token: token.then(|| take(TOKEN_HEAD + module.string_storage())),
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
