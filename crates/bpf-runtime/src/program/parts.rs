//! Division of big programs into functions that the verifier checks one by one.
//!
//! A jump reaches 32,767 instructions, a frame has 512 bytes, and the time of register allocation
//! grows faster than the length. So a big program is divided (see [`Division`] for the sizes).
//! Neighbouring clauses form a part, and a long clause forms several segments
//! ([`split`](bpf_codegen::select::split)). Each part is a global function, which knows of its
//! parameters only that they are numbers. The decision that shapes the division: the state of the
//! firing is passed through the scratch slot, and the function's parameters are the slot's number
//! and the index of the probe. The function determines the CPU again, which is cheaper than passing
//! it. `this->` variables are in the slot.
//!
//! ```text
//!  main       arg0..arg9 that parts use, errno  ──>  state in the slot
//!  part       (probe, slot)           0: continue   1: the session has ended
//!  segment    (probe, slot, block)    the block at which the clause continues
//!
//!  ERROR      (epid, place, value, slot), called by faults; its parts and segments have the same parameters
//! ```
//!
//! A stack can be walked only with the program's context. On some kernels only the program itself
//! may have the context, and no other function. So clauses that take a stack stay in the program.
//! Where many clauses do, the program walks the stack first, and all clauses are functions.

use std::collections::BTreeSet;
use std::ops::Range;

use bpf_codegen::context::{Context, Index};
use bpf_codegen::mir::{Arg, Builder, Jmp, Label, Size, V};
use bpf_codegen::routines::{self, Clock, SlotRef, Walk};
use bpf_codegen::select::{
    ClauseInstance, END, Firing, FiringWalks, STATE_ARGS, STATE_ERRNO, SplitClause, Walks, clause,
    needs_context, operations, segment, stack_kind,
};
use bpf_codegen::{CodegenError, Division, Result, Session};
use dif::ir::{IntBuiltin, Op};

use super::clauses::{ErrorContext, clauses, gate_behind};
use super::dispatch::{Table, clause_test, union_test};
use super::facts::{has, may_fault};
use super::spec::{ClauseUse, ProgramSpec};

/// Maximum number of operations of a program. They stay below the million instructions that the
/// verifier processes.
const OPERATIONS_MAX: usize = 25_000;

/// Maximum number of functions for a program's clauses. The kernel allows 256, including the
/// routines.
const FUNCTIONS_MAX: usize = 210;

/// Some clauses of a program, by their position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Inlined in the program.
    Inline(Range<usize>),
    /// In a function.
    Function(Range<usize>),
    /// A clause that is split into several functions.
    Split(usize),
}

/// Divides a program into parts. A small program is one inlined part. Too many parts are rejected
/// before code is generated.
pub(super) fn divide(session: &Session<'_>, spec: &ProgramSpec<'_>) -> Result<Vec<Part>> {
    let parts = parts(session, spec.clauses, spec.context.has_stacks());
    if session.layout.division != Division::default() {
        return Ok(parts);
    }
    let (mut functions, mut operations_seen) = (0, 0);
    let of_error = error_parts(session, spec);
    let all = parts.iter().map(|p| (spec.clauses, p)).chain(of_error.iter().map(|p| (spec.error.clauses, p)));
    for (uses, part) in all {
        let (range, more) = match part {
            Part::Inline(range) => (range.clone(), 0),
            Part::Function(range) => (range.clone(), 1),
            Part::Split(i) => {
                let split = session.layout.split.get(&uses[*i].clause);
                (*i..*i + 1, split.map_or(0, |c| c.segments.iter().filter(|p| !p.inline).count()))
            }
        };
        functions += more;
        let clauses = || range.clone().map(|i| &session.module.clauses[uses[i].clause]);
        operations_seen += clauses().map(operations).sum::<usize>();
        let why = if operations_seen > OPERATIONS_MAX {
            let all = spec
                .clauses
                .iter()
                .chain(spec.error.clauses)
                .map(|c| operations(&session.module.clauses[c.clause]));
            format!("{} operations; a program has {OPERATIONS_MAX} at most", all.sum::<usize>())
        } else if functions > FUNCTIONS_MAX {
            format!("its clauses are more than {FUNCTIONS_MAX} functions")
        } else {
            continue;
        };
        return Err(CodegenError {
            span: clauses().next().and_then(|c| c.span),
            message: format!("too much for one probe: {why}"),
        });
    }
    Ok(parts)
}

/// The parts of ERROR's clauses in a program that may fault.
pub(super) fn error_parts(session: &Session<'_>, spec: &ProgramSpec<'_>) -> Vec<Part> {
    let faults = spec.clauses.iter().any(|c| may_fault(session, c.clause));
    if faults { parts(session, spec.error.clauses, false) } else { Vec::new() }
}

fn parts(session: &Session<'_>, uses: &[ClauseUse], has_stacks: bool) -> Vec<Part> {
    let module = session.module;
    let sizes: Vec<usize> = uses.iter().map(|c| operations(&module.clauses[c.clause])).collect();
    let Division { whole, part } = session.layout.division;
    if session.layout.state.is_none() || sizes.iter().sum::<usize>() <= whole {
        return vec![Part::Inline(0..sizes.len())];
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut space = 0;
    for (i, size) in sizes.into_iter().enumerate() {
        let clause = uses[i].clause;
        let inline = has_stacks && !session.layout.stacks.first && has(module, clause, needs_context);
        match parts.last_mut() {
            _ if session.layout.split.contains_key(&clause) => parts.push(Part::Split(i)),
            Some(Part::Inline(range)) if inline => range.end = i + 1,
            Some(Part::Function(range)) if !inline && size <= space => {
                range.end = i + 1;
                space -= size;
            }
            _ if inline => parts.push(Part::Inline(i..i + 1)),
            _ => {
                parts.push(Part::Function(i..i + 1));
                space = part.saturating_sub(size);
            }
        }
    }
    parts
}

/// The context of a part: loads from the state that the program left in the slot. The slot's
/// address replaces the context.
struct State {
    at: u32,
    caller_frame: u8,
    user_caller_frame: u8,
}

impl Context for State {
    fn arg(&self, b: &mut Builder, slot: V, _: Index, n: u8) -> V {
        b.load(Size::B8, slot, place(self.at + STATE_ARGS + 8 * u32::from(n)))
    }

    fn errno(&self, b: &mut Builder, slot: V, _: Index) -> V {
        b.load(Size::B8, slot, place(self.at + STATE_ERRNO))
    }

    fn caller_frame(&self) -> u8 {
        self.caller_frame
    }

    fn user_caller_frame(&self) -> u8 {
        self.user_caller_frame
    }

    fn has_stacks(&self) -> bool {
        false
    }
}

/// The state starts at the beginning of a slot, and its fixed words are among the slot's first
/// bytes.
fn place(at: u32) -> i16 {
    i16::try_from(at).unwrap_or(i16::MAX)
}

/// Emits the parts in order. Jumps to `stopped` when the session has ended.
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
            Part::Inline(range) => clauses(session, spec, table, firing, b, range.clone(), stopped)?,
            Part::Function(range) => {
                let skip = b.label();
                union_test(b, spec, &spec.clauses[range.clone()], table, firing.index, skip);
                let index = index_word(b, firing.index);
                let mut result = Ok(());
                let args = [Arg::Word(index), Arg::Word(slot.number)];
                let ended = b.call_global(&format!("dt_clauses_{}", range.start), &args, |b| {
                    result = function(session, spec, firing, b, 0, &mut |b, firing, stopped| {
                        let mut firing = Firing { this: firing.this.clone(), ..*firing };
                        firing.cpu.ring = ring(session, spec, &firing, b, range, stopped);
                        clauses(session, spec, table, &firing, b, range.clone(), stopped)
                    });
                });
                result?;
                b.br(Jmp::Ne, ended, 0, stopped);
                b.bind(skip);
            }
            Part::Split(i) => {
                let (c, skip) = (&spec.clauses[*i], b.label());
                let Some(split) = session.layout.split.get(&c.clause) else { continue };
                clause_test(b, spec, table, c, firing.index, skip);
                segments(session, spec, firing, b, *i, split)?;
                b.bind(skip);
                gate_behind(session, spec, b, *i, stopped);
            }
        }
    }
    Ok(())
}

/// The CPU's ring, looked up once for all records of a part. The kernel inlines each look-up at
/// load, which takes time in proportion to the program's length.
fn ring(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    firing: &Firing<'_>,
    b: &mut Builder,
    range: &Range<usize>,
    none: Label,
) -> Option<V> {
    let records = |i: usize| session.module.clauses[spec.clauses[i].clause].record.is_some();
    let many = range.clone().filter(|i| records(*i)).count() > 1;
    many.then(|| routines::ring(b, session.plan, &firing.cpu, none))
}

fn which(uses: &[ClauseUse], i: usize) -> ClauseInstance {
    ClauseInstance { number: uses[i].clause, epid_base: uses[i].epid_base }
}

/// Emits the calls of a clause's segments.
fn segments(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    firing: &Firing<'_>,
    b: &mut Builder,
    i: usize,
    split: &SplitClause,
) -> Result<()> {
    let Some(slot) = firing.slot else { return Ok(()) };
    let which = which(spec.clauses, i);
    let next = b.copy(0);
    for (n, p) in split.segments.iter().enumerate() {
        let over = b.label();
        if n > 0 {
            b.br(Jmp::Ge, next, p.blocks.end as u32, over);
        }
        if p.inline && firing.context.has_stacks() {
            segment(session, firing, b, which, n, next)?;
        } else {
            let index = index_word(b, firing.index);
            let mut result = Ok(());
            let args = [Arg::Word(index), Arg::Word(slot.number), Arg::Word(next)];
            let then = b.call_global(&format!("dt_clause_{i}_{n}"), &args, |b| {
                result = function(session, spec, firing, b, END, &mut |b, firing, _| {
                    let next = b.copy(b.param(2));
                    segment(session, firing, b, which, n, next)?;
                    b.exit(next);
                    Ok(())
                });
            });
            result?;
            b.set(next, then);
        }
        b.bind(over);
    }
    Ok(())
}

/// Emits ERROR's clauses, as functions of the fault record. The firing is that of the function that
/// faults call.
pub(super) fn emit_error(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    firing: &Firing<'_>,
    b: &mut Builder,
    parts: &[Part],
) -> Result<()> {
    let (Some(_), Some(slot)) = (session.layout.state, firing.slot) else { return Ok(()) };
    let fault = [b.param(0), b.param(1), b.param(2), slot.number].map(Arg::Word);
    let uses = spec.error.clauses;
    for part in parts {
        let mut result = Ok(());
        match part {
            Part::Inline(range) | Part::Function(range) => {
                b.call_global(&format!("dt_error_{}", range.start), &fault, |b| {
                    result = error_function(session, firing, b, &mut |b, firing| {
                        range.clone().try_for_each(|i| clause(session, firing, b, which(uses, i)))
                    });
                    b.exit(0);
                });
                result?;
            }
            Part::Split(i) => {
                let Some(split) = session.layout.split.get(&uses[*i].clause) else { continue };
                let next = b.copy(0);
                for (n, p) in split.segments.iter().enumerate() {
                    let over = b.label();
                    if n > 0 {
                        b.br(Jmp::Ge, next, p.blocks.end as u32, over);
                    }
                    let mut args = fault.to_vec();
                    args.push(Arg::Word(next));
                    let mut result = Ok(());
                    let then = b.call_global(&format!("dt_error_{i}_{n}"), &args, |b| {
                        result = error_function(session, firing, b, &mut |b, firing| {
                            let next = b.copy(b.param(4));
                            segment(session, firing, b, which(uses, *i), n, next)?;
                            b.exit(next);
                            Ok(())
                        });
                        b.exit(END);
                    });
                    result?;
                    b.set(next, then);
                    b.bind(over);
                }
            }
        }
    }
    Ok(())
}

/// A function of ERROR: loads what it needs, runs `body`, and falls through where `body` does.
fn error_function(
    session: &Session<'_>,
    outer: &Firing<'_>,
    b: &mut Builder,
    body: &mut dyn FnMut(&mut Builder, &Firing<'_>) -> Result<()>,
) -> Result<()> {
    let (epid, head, value, number) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let none = b.label();
    let cpu = routines::firing(b, session.plan);
    let address = routines::slot_at(b, session.plan, number, none);
    let context = ErrorContext { epid, head, value };
    let (slot, clock) = (Some(SlotRef { address, number }), Clock::Slot(number));
    let this = outer.this.clone();
    let firing = Firing { context: &context, ctx: epid, cpu, slot, clock, divided: true, this, ..*outer };
    body(b, &firing)?;
    b.bind(none);
    Ok(())
}

/// The index of the probe that fired, as a number for a function.
fn index_word(b: &mut Builder, index: Index) -> V {
    match index {
        Index::V(v) | Index::Row { row: v, .. } => v,
        Index::Const(i) => b.imm(i64::from(i)),
    }
}

/// Stores the state that the functions will load.
fn leave_state(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    firing: &Firing<'_>,
    b: &mut Builder,
    parts: &[Part],
    (at, slot): (u32, V),
) {
    let apart = parts.iter().flat_map(|p| match p {
        Part::Function(range) => range.clone(),
        Part::Split(i) => *i..*i + 1,
        Part::Inline(_) => 0..0,
    });
    let clauses = apart.map(|i| &session.module.clauses[spec.clauses[i].clause]);
    let (mut args, mut errno) = (BTreeSet::new(), false);
    let mut stacks = BTreeSet::new();
    for inst in clauses.flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts) {
        match inst.op {
            Op::Builtin(IntBuiltin::Arg(n)) => drop(args.insert(n)),
            Op::Builtin(IntBuiltin::Errno) => errno = true,
            _ => stacks.extend(stack_kind(&inst.op)),
        }
    }
    for user in stacks.into_iter().filter(|_| firing.context.has_stacks()) {
        let Some(area) = session.layout.stacks.of(user).filter(|_| session.layout.stacks.first) else {
            continue;
        };
        let place = b.add(slot, area.at);
        let (target, context, ctx) = (session.target, firing.context, firing.ctx);
        let (frames, calls) = (area.frames, area.calls);
        routines::walk(b, place, &Walk { target, context, ctx, user, plan: session.plan, frames, calls });
    }
    for n in args {
        let arg = firing.context.arg(b, firing.ctx, firing.index, n);
        b.store(Size::B8, slot, place(at + STATE_ARGS + 8 * u32::from(n)), arg);
    }
    if errno {
        let errno = firing.context.errno(b, firing.ctx, firing.index);
        b.store(Size::B8, slot, place(at + STATE_ERRNO), errno);
    }
}

/// The code inside a function. It gets the firing, and the label for a session that has ended.
type Body<'a> = dyn FnMut(&mut Builder, &Firing<'_>, Label) -> Result<()> + 'a;

/// A function of the program: loads what it needs, and runs `body`. Returns `otherwise` behind
/// `body`, and 1 when the session has ended.
fn function(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    outer: &Firing<'_>,
    b: &mut Builder,
    otherwise: u32,
    body: &mut Body<'_>,
) -> Result<()> {
    let Some(at) = session.layout.state else { return Ok(()) };
    let (index, number) = (b.param(0), b.param(1));
    let (none, stopped) = (b.label(), b.label());
    let index = match outer.index {
        Index::V(_) => {
            b.br(Jmp::Ge, index, spec.probes.len() as u32, none);
            Index::V(index)
        }
        // The grace period of a removal waits for the program, so the row is still that of the
        // firing.
        Index::Row { .. } => Index::Row { row: index, at: routines::probe_row(b, index, none) },
        constant => constant,
    };
    let cpu = routines::firing(b, session.plan);
    let address = routines::slot_at(b, session.plan, number, none);
    let (caller_frame, user_caller_frame) = (outer.context.caller_frame(), outer.context.user_caller_frame());
    let context = State { at, caller_frame, user_caller_frame };
    let firing = Firing {
        context: &context,
        ctx: address,
        index,
        cpu,
        clock: Clock::Slot(number),
        slot: Some(SlotRef { address, number }),
        this: outer.this.clone(),
        vtime: None,
        walks: if session.layout.stacks.first && outer.context.has_stacks() {
            FiringWalks { kernel: Walks::Done, user: Walks::Done }
        } else {
            FiringWalks::default()
        },
        ..*outer
    };
    body(b, &firing, stopped)?;
    b.bind(none);
    b.exit(otherwise);
    b.bind(stopped);
    b.exit(1);
    Ok(())
}
