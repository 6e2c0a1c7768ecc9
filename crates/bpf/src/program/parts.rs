//! Big programs: their clauses in functions that the verifier looks at one by one.
//!
//! A jump reaches 32,767 instructions, a frame has 512 bytes, and finding registers takes longer than the square root of
//! what it saves: so a big program is divided ([`Division`] says from where on). Neighbouring clauses make a part;
//! each part is a global function, which knows of its arguments
//! only that they are numbers. The decision that shapes it: what a part needs of the firing goes through the scratch slot, and
//! the function gets the slot's number (and which probe fired). It asks for the CPU again, which is cheaper than
//! saying it.
//!
//! ```text
//!  main       arg0..arg9 that parts ask for, errno, zeros for this->  ──>  slot, state
//!  part       this-> integers it names  <── slot ──>  those it changes
//!             0: go on   1: the session has ended
//! ```
//!
//! A stack can only be taken with the program's context, which no function but the program itself may have on all
//! kernels. Clauses that take one stay in the program.

use std::ops::Range;

use dif::ir::{IntBuiltin, Module, Op};

use super::which::{Table, union_test};
use super::{Context, Index, ProgramSpec, Session, clauses, has, is_this_int};
use crate::mir::{Arg, Builder, Jmp, Label, Size, V};
use crate::routines::{self, SlotRef};
use crate::select::layout::{STATE_ARGS, STATE_ERRNO, STATE_THIS};
use crate::select::{Firing, Result};

/// From what size on a program is divided, and into what: in operations, each of which becomes some 15 instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// A program of no more stays whole.
    pub whole: usize,
    /// A part has so many, more or less: a clause is not divided.
    pub part: usize,
}

impl Default for Division {
    fn default() -> Self {
        Division { whole: 400, part: 250 }
    }
}

/// Some clauses of a program, by their place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// In the program.
    Inline(Range<usize>),
    /// In a function.
    Function(Range<usize>),
}

/// How big a clause is.
pub(crate) fn operations(clause: &dif::ir::Clause) -> usize {
    clause.func.blocks.iter().map(|b| b.insts.len() + 1).sum()
}

fn takes_stack(module: &Module, clause: usize) -> bool {
    use IntBuiltin::{Caller, StackDepth, Ucaller, UstackDepth};
    let needs = |op: &Op| match op {
        Op::Stack { .. } => true,
        Op::Builtin(b) => matches!(b, StackDepth | UstackDepth | Caller | Ucaller),
        _ => false,
    };
    has(module, clause, needs)
}

/// The parts of a program; one, in the program, when it is small.
pub(super) fn divide(session: &Session<'_>, spec: &ProgramSpec<'_>) -> Vec<Part> {
    let module = session.module;
    let size = |i: usize| operations(&module.clauses[spec.clauses[i].clause]);
    let all = 0..spec.clauses.len();
    let Division { whole, part } = session.layout.division;
    if session.layout.state.is_none() || all.clone().map(size).sum::<usize>() <= whole {
        return vec![Part::Inline(all)];
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut room = 0;
    for i in all {
        let inline = spec.context.has_stacks() && takes_stack(module, spec.clauses[i].clause);
        match parts.last_mut() {
            Some(Part::Inline(range)) if inline => range.end = i + 1,
            Some(Part::Function(range)) if !inline && size(i) <= room => {
                range.end = i + 1;
                room -= size(i);
            }
            _ if inline => parts.push(Part::Inline(i..i + 1)),
            _ => {
                parts.push(Part::Function(i..i + 1));
                room = part.saturating_sub(size(i));
            }
        }
    }
    parts
}

/// The firing as a part sees it: what the program left in the slot, whose address stands for the context.
struct State {
    at: u32,
}

impl Context for State {
    fn arg(&self, b: &mut Builder, slot: V, _: Index, n: u8) -> V {
        b.load(Size::B8, slot, place(self.at + STATE_ARGS + 8 * u32::from(n)))
    }

    fn errno(&self, b: &mut Builder, slot: V, _: Index) -> V {
        b.load(Size::B8, slot, place(self.at + STATE_ERRNO))
    }

    fn has_stacks(&self) -> bool {
        false
    }
}

/// Offsets in a slot are below 32 KiB, which was tested.
fn place(at: u32) -> i16 {
    i16::try_from(at).unwrap_or(i16::MAX)
}

/// The parts, one after the other; to `stopped` when the session has ended.
pub(super) fn emit(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    table: &mut Table,
    firing: &Firing<'_>,
    b: &mut Builder,
    parts: &[Part],
    stopped: Label,
) -> Result<()> {
    let (Some(at), Some(slot)) = (session.layout.state, firing.slot) else { return Ok(()) };
    leave_state(session, spec, firing, b, parts, (at, slot.address));
    for part in parts {
        match part {
            Part::Inline(range) => {
                let this = this_in(session, spec, b, range, (at, slot.address));
                let firing = Firing { this, ..*firing };
                clauses(session, spec, table, &firing, b, range.clone(), stopped)?;
                this_out(session, spec, b, range, (at, slot.address), &firing.this);
            }
            Part::Function(range) => {
                let skip = b.label();
                union_test(b, spec, &spec.clauses[range.clone()], table, firing.index, skip);
                let index = match firing.index {
                    Index::V(v) => v,
                    Index::Const(i) => b.imm(i64::from(i)),
                };
                let mut result = Ok(());
                let args = [Arg::Word(index), Arg::Word(slot.number)];
                let ended = b.call_global(&format!("dt_clauses_{}", range.start), &args, |b| {
                    result = function(session, spec, table, firing, b, range);
                });
                result?;
                b.br(Jmp::Ne, ended, 0, stopped);
                b.bind(skip);
            }
        }
    }
    Ok(())
}

/// What the functions will ask for, and zeros for `this->`.
fn leave_state(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    firing: &Firing<'_>,
    b: &mut Builder,
    parts: &[Part],
    (at, slot): (u32, V),
) {
    let apart = || {
        parts.iter().filter_map(|p| match p {
            Part::Function(range) => Some(range.clone()),
            Part::Inline(_) => None,
        })
    };
    let asks = |what: IntBuiltin| {
        let such = |op: &Op| matches!(op, Op::Builtin(b) if *b == what);
        apart().flatten().any(|i| has(session.module, spec.clauses[i].clause, such))
    };
    for n in (0..10).filter(|n| asks(IntBuiltin::Arg(*n))) {
        let arg = firing.context.arg(b, firing.ctx, firing.index, n);
        b.store(Size::B8, slot, place(at + STATE_ARGS + 8 * u32::from(n)), arg);
    }
    if asks(IntBuiltin::Errno) {
        let errno = firing.context.errno(b, firing.ctx, firing.index);
        b.store(Size::B8, slot, place(at + STATE_ERRNO), errno);
    }
    let count = session.module.vars.iter().filter(|v| is_this_int(v)).count() as u32;
    for i in 0..count {
        b.store(Size::B8, slot, place(at + STATE_THIS + 8 * i), 0);
    }
}

/// The function of a part.
fn function(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    table: &mut Table,
    outer: &Firing<'_>,
    b: &mut Builder,
    range: &Range<usize>,
) -> Result<()> {
    let Some(at) = session.layout.state else { return Ok(()) };
    let (index, number) = (b.param(0), b.param(1));
    let (none, stopped) = (b.label(), b.label());
    let index = match outer.index {
        Index::V(_) => {
            b.br(Jmp::Ge, index, spec.probes.len() as u32, none);
            Index::V(index)
        }
        constant => constant,
    };
    let cpu = routines::firing(b, session.plan);
    let address = routines::slot_at(b, session.plan, number, none);
    let context = State { at };
    let firing = Firing {
        context: &context,
        ctx: address,
        index,
        cpu,
        slot: Some(SlotRef { address, number }),
        this: this_in(session, spec, b, range, (at, address)),
        ..*outer
    };
    clauses(session, spec, table, &firing, b, range.clone(), stopped)?;
    this_out(session, spec, b, range, (at, address), &firing.this);
    b.bind(none);
    b.exit(0);
    b.bind(stopped);
    b.exit(1);
    Ok(())
}

/// Which `this->` integers some clauses read or change, by number among all, with the variable's.
fn this_named(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    range: &Range<usize>,
    changed: bool,
) -> Vec<(usize, u32)> {
    let ints = session.module.vars.iter().enumerate().filter(|(_, v)| is_this_int(v));
    let named = |var: usize, op: &Op| match op {
        Op::LoadVar(v) => !changed && v.0 as usize == var,
        Op::StoreVar(v, _) => v.0 as usize == var,
        _ => false,
    };
    let used = |var| range.clone().any(|i| has(session.module, spec.clauses[i].clause, |op| named(var, op)));
    (0..).zip(ints).filter(|(_, (var, _))| used(*var)).map(|(n, (var, _))| (var, n)).collect()
}

/// Registers for the `this->` integers that some clauses name, as they are in the slot.
fn this_in(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    b: &mut Builder,
    range: &Range<usize>,
    (at, slot): (u32, V),
) -> Vec<Option<V>> {
    let mut this = vec![None; session.module.vars.len()];
    for (var, n) in this_named(session, spec, range, false) {
        this[var] = Some(b.load(Size::B8, slot, place(at + STATE_THIS + 8 * n)));
    }
    this
}

/// Puts those back that they may have changed.
fn this_out(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    b: &mut Builder,
    range: &Range<usize>,
    (at, slot): (u32, V),
    this: &[Option<V>],
) {
    for (var, n) in this_named(session, spec, range, true) {
        if let Some(v) = this[var] {
            b.store(Size::B8, slot, place(at + STATE_THIS + 8 * n), v);
        }
    }
}
