//! The translation of one clause: its state, the values, and where they are.
//!
//! The kinds of operations have files of their own, which add their methods to [`Clause`].

use std::ops::Range;

use dif::ir::{Cond, Function, InstData, Value, VarId};

use super::facts::Facts;
use super::fetch::FetchPoints;
use super::layout::SlotParts;
use super::split::SplitClause;
use super::task::TaskLoads;
use crate::context::{Context, Index, Probe, ProbeTable};
use crate::error::{CodegenError, Result};
use crate::mir::{Builder, Jmp, Label, Operand, V};
use crate::routines::{self, Clock, SlotRef, near};
use crate::session::Session;

/// Where a firing's stack is walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walks {
    /// At its only use.
    #[default]
    Here,
    /// At the first of several uses that is reached.
    Once,
    /// The program has walked it.
    Done,
}

/// Where the two stacks of a firing are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiringWalks {
    /// The kernel stack.
    pub kernel: Walks,
    /// The user stack.
    pub user: Walks,
}

impl FiringWalks {
    /// Of the kernel stack, or of the user stack.
    pub fn of(self, user: bool) -> Walks {
        if user { self.user } else { self.kernel }
    }
}

/// The state of one firing, and where the generated code has it.
pub struct Firing<'e> {
    /// The provider's part of the program.
    pub context: &'e dyn Context,
    /// The program's context argument.
    pub ctx: V,
    /// The index of the probe that fired.
    pub index: Index,
    /// The probes of the program, by index.
    pub probes: &'e [Probe],
    /// The program's table of probes, when there are several.
    pub table: Option<ProbeTable>,
    /// CPU and per-CPU control element.
    pub cpu: routines::Firing,
    /// Where its time is.
    pub clock: Clock,
    /// The scratch slot, when one was taken for its memory.
    pub slot: Option<SlotRef>,
    /// The offsets in the slot.
    pub parts: SlotParts,
    /// Where its stacks are walked.
    pub walks: FiringWalks,
    /// `this->` integers in registers.
    pub this: Vec<Option<V>>,
    /// The program has many clauses. Each resource that a clause needs is obtained in a function.
    pub divided: bool,
    /// `vtimestamp`, in the program itself. Functions of the program load it again.
    pub vtime: Option<V>,
    /// True for ERROR's clauses. A fault there is not reported again.
    pub in_error: bool,
    /// True in END and in what a fault of END fires: `exit()` gives another status to a session
    /// that has ended.
    pub at_end: bool,
}

/// A string value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Str {
    /// Index into the interned strings.
    Interned(Operand),
    /// Words of the comm.
    Comm(V, V),
    /// Memory: a pointer and an offset.
    Bytes(V, i16),
}

/// A DIF value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Val {
    /// An integer or address.
    Int(Operand),
    /// A comparison that is emitted at its only use.
    Cmp(Cond, Operand, Operand),
    /// A string comparison that is emitted in the branch behind it.
    StrCmp(Cond, Str, Str),
    /// A string.
    Str(Str),
    /// An address in a variable that is an object: a constant offset, and an offset known at run
    /// time.
    Place(VarId, i64, Option<V>),
    /// Defined in another segment of the clause: see `segment`.
    Saved,
}

/// A reserved record.
pub(crate) type OpenRecord = routines::RecordRef;

/// The exits of a clause for faults before and after its record is reserved.
pub(crate) struct Faults {
    pub(super) head: V,
    pub(super) value: V,
    pub(super) plain: Option<Label>,
    pub(super) reserved: Option<(Label, OpenRecord)>,
}

impl Faults {
    pub(crate) fn new(b: &mut Builder) -> Faults {
        Faults { head: b.var(), value: b.var(), plain: None, reserved: None }
    }
}

/// The state of the segment being translated.
#[derive(Clone, Copy)]
pub(crate) struct SegmentState<'e> {
    pub(super) split: &'e SplitClause,
    /// Offset of the firing's state in the scratch slot.
    pub(super) state: u32,
    /// The register that holds the next block, and the segment's end.
    pub(super) next: V,
    pub(super) leave: Label,
}

/// A clause as a program uses it.
#[derive(Clone, Copy)]
pub struct ClauseInstance {
    /// Index of the clause in the module.
    pub number: usize,
    /// Id of this clause at probe index 0 of the program.
    pub epid_base: u32,
}

/// The translation of one clause.
pub(crate) struct Clause<'e, 'b> {
    pub(crate) env: &'e Session<'e>,
    pub(crate) firing: &'b Firing<'b>,
    pub(crate) b: &'b mut Builder,
    pub(crate) f: &'e Function,
    /// Index of the clause in the module.
    pub(crate) number: usize,
    /// Id of this clause at probe index 0 of the program.
    pub(crate) epid_base: u32,
    pub(crate) values: Vec<Option<Val>>,
    pub(crate) facts: &'b Facts,
    pub(crate) fetches: FetchPoints,
    pub(crate) tasks: TaskLoads,
    pub(crate) block: usize,
    /// The blocks to translate, and their labels.
    pub(super) blocks: Range<usize>,
    pub(super) labels: Vec<Label>,
    /// The label at the end of the clause.
    pub(crate) end: Label,
    /// The segment of a long clause that is being translated.
    pub(super) segment: Option<SegmentState<'e>>,
    /// The reserved record.
    pub(crate) record: Option<OpenRecord>,
    pub(crate) faults: Faults,
    /// The address of the firing's scratch memory.
    pub(crate) origin: Operand,
    /// Bytes of scratch memory that earlier clauses of the firing keep.
    pub(crate) base: Operand,
    /// What the clause takes of it is kept for the clauses behind it.
    pub(crate) keeps: bool,
    /// Amount of scratch memory taken: a constant, or a register where the clause takes more at run
    /// time.
    pub(crate) top: Operand,
    /// Action and position of the current instruction, for faults.
    pub(crate) at: (u16, u32),
}

impl Clause<'_, '_> {
    /// The temporary of a string value.
    pub(crate) fn temp(&mut self, v: Value) -> Str {
        let number = self.facts.temps.of[v.0 as usize].unwrap_or(0);
        let storage = self.env.module.string_storage();
        let (base, off) = self.place(self.firing.parts.temps + number * storage, storage);
        Str::Bytes(base, off)
    }

    /// An address of `bytes` bytes in the scratch slot, as base and offset for loads and stores.
    pub(crate) fn place(&mut self, at: u32, bytes: u32) -> (V, i16) {
        let slot = self.slot();
        near(self.b, slot, at, bytes)
    }

    /// The scratch slot.
    pub(crate) fn slot(&mut self) -> V {
        self.slot_ref().address
    }

    /// The scratch slot, with its number.
    pub(crate) fn slot_ref(&mut self) -> SlotRef {
        match self.firing.slot {
            Some(slot) => slot,
            // Unreachable: a program whose clauses need a slot takes one.
            None => SlotRef { address: self.b.imm(0), number: self.b.imm(0) },
        }
    }

    pub(crate) fn set(&mut self, inst: &InstData, value: Val) {
        if let Some(r) = inst.result {
            self.values[r.0 as usize] = Some(value);
            self.save(r);
        }
    }

    pub(crate) fn uses(&self, inst: &InstData) -> u32 {
        inst.result.map_or(0, |r| self.facts.uses[r.0 as usize])
    }

    pub(crate) fn error<T>(&self, span: Option<diagnostics::Span>, message: &str) -> Result<T> {
        Err(CodegenError { span, message: message.to_owned() })
    }

    /// The bits of an integer value.
    pub(crate) fn int(&mut self, v: Value) -> Operand {
        match self.values[v.0 as usize] {
            Some(Val::Int(o)) => o,
            Some(Val::Cmp(cond, x, y)) => {
                let result = self.b.var();
                let done = self.b.label();
                self.b.set(result, 1);
                self.branch_ints(cond, x, y, done);
                self.b.set(result, 0);
                self.b.bind(done);
                Operand::V(result)
            }
            Some(Val::Place(var, at, more)) => {
                let start = dif::memory::address(self.env.module.vars[var.0 as usize].scope, var) as i64;
                let bits = self.b.imm(start.wrapping_add(at));
                Operand::V(more.map_or(bits, |more| self.b.add(bits, more)))
            }
            Some(Val::Saved) => self.saved_int(v),
            _ => Operand::Imm(0),
        }
    }

    /// The bits of an integer value, in a register.
    pub(crate) fn reg(&mut self, v: Value) -> V {
        let o = self.int(v);
        self.b.reg(o)
    }

    /// A string value.
    pub(crate) fn string(&mut self, v: Value) -> Str {
        match self.values[v.0 as usize] {
            Some(Val::Str(s)) => s,
            Some(Val::Saved) => self.saved_string(v),
            _ => Str::Interned(Operand::Imm(0)),
        }
    }

    /// Jumps to `yes` when the comparison of the integers holds.
    pub(crate) fn branch_ints(&mut self, cond: Cond, x: Operand, y: Operand, yes: Label) {
        let jmp = match cond {
            Cond::Eq => Jmp::Eq,
            Cond::Ne => Jmp::Ne,
            Cond::Slt => Jmp::Slt,
            Cond::Sle => Jmp::Sle,
            Cond::Sgt => Jmp::Sgt,
            Cond::Sge => Jmp::Sge,
            Cond::Ult => Jmp::Lt,
            Cond::Ule => Jmp::Le,
            Cond::Ugt => Jmp::Gt,
            Cond::Uge => Jmp::Ge,
        };
        match (x, y) {
            (Operand::Imm(a), Operand::Imm(c)) => {
                if dif::eval::cmp(cond, a, c) {
                    self.b.jmp(yes);
                }
            }
            (Operand::Imm(a), Operand::V(c)) => self.b.br(jmp.swap(), c, a, yes),
            (Operand::V(a), c) => self.b.br(jmp, a, c, yes),
        }
    }
}
