//! Makes a program that records what a program reads.
//!
//! ```text
//!  clause          reads ──► computes ──► prints, aggregates, changes variables
//!  instrumented    reads ──► computes ──► changes variables
//!                    └─────► the record: for each read whether it was tried and whether it
//!                            succeeded, the address, what was there
//! ```
//!
//! The clauses are those of the program, with its predicates and its variables, so that each
//! reads in the kernel what it would have read. Their record is reserved first and has a place for
//! each read. A clause that faults discards its record in the ring; a session that captures takes
//! it all the same, and the read that was tried and did not succeed is the one that faulted.

use std::collections::BTreeSet;
use std::sync::Arc;

use capture::{Place, Word};
use dif::ir::{
    BinOp, BlockData, Clause, Cond, Datum, Field, Function, InstData, IntBuiltin, Module, Op, RecordDesc,
    Scope, Space, StrBuiltin, Subr, Term, Ty, Value,
};
use events::ConversionArg;
use plane::builtin::Builtin;
use plane::desc::{Action, AddrForm, LayoutBuilder, string_storage};

/// The most bytes that are recorded of memory whose length is known only when it is read.
const LONGEST_COPY: u32 = 512;

/// What a field of the record of an instrumented clause is. In events it is the field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// A built-in variable.
    Word(Word),
    /// `execname`
    Execname,
    /// How the clause ended: [`MATCHED`] at its end, [`UNMATCHED`], 0 by a fault.
    Outcome,
    /// How far a read came: [`TRIED`], [`SUCCEEDED`], or 0. Its other fields follow.
    Read(Kind),
    /// Of a read.
    Address,
    /// Of a read: what was there.
    Value,
    /// Of a read, behind its value: how many bytes were asked for at most.
    Length,
    /// The status of `exit()`.
    Exit,
    /// The reason of `snap()`.
    Snap,
    /// The stack of the kernel, or of the process.
    Stack(bool),
    /// An address that is shown by its name.
    Symbol,
}

/// The clause came to its end.
pub(super) const MATCHED: u64 = 1;
/// The predicate was false.
pub(super) const UNMATCHED: u64 = 2;
/// The read was tried.
pub(super) const TRIED: u64 = 1;
/// The read succeeded.
pub(super) const SUCCEEDED: u64 = 2;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number at an address.
    Number(Place),
    /// A string at an address; with a limit, of no more bytes than that.
    Text(Place, bool),
    /// Bytes at an address, as many as the field has or, with a length, as that says.
    Bytes(Place, bool),
    /// The path of a struct at an address.
    Path(Place),
    /// The bytes of an address of the network, from its text.
    NetworkAddress(Place),
    /// The arguments of a process: text in its memory.
    Arguments,
    /// Whether the process descends from the one whose id stands for the address.
    Descends,
}

impl Slot {
    /// The field's name.
    fn name(self) -> String {
        let place = Place::name;
        match self {
            Slot::Word(word) => format!("word {}", word.code()),
            Slot::Execname => "execname".into(),
            Slot::Outcome => "outcome".into(),
            Slot::Address => "address".into(),
            Slot::Value => "value".into(),
            Slot::Length => "length".into(),
            Slot::Exit => "exit".into(),
            Slot::Snap => "snap".into(),
            Slot::Stack(false) => "stack".into(),
            Slot::Stack(true) => "ustack".into(),
            Slot::Symbol => "symbol".into(),
            Slot::Read(Kind::Number(p)) => format!("number {}", place(p)),
            Slot::Read(Kind::Text(p, false)) => format!("text {}", place(p)),
            Slot::Read(Kind::Text(p, true)) => format!("array {}", place(p)),
            Slot::Read(Kind::Bytes(p, false)) => format!("bytes {}", place(p)),
            Slot::Read(Kind::Bytes(p, true)) => format!("some {}", place(p)),
            Slot::Read(Kind::Path(p)) => format!("path {}", place(p)),
            Slot::Read(Kind::NetworkAddress(p)) => format!("network {}", place(p)),
            Slot::Read(Kind::Arguments) => "arguments".into(),
            Slot::Read(Kind::Descends) => "descends".into(),
        }
    }

    /// The field of a name.
    pub(super) fn named(name: &str) -> Option<Slot> {
        let (word, rest) = name.split_once(' ').unwrap_or((name, ""));
        let place = || Place::ALL.into_iter().find(|place| place.name() == rest);
        Some(match word {
            "word" => Slot::Word(Word::of_code(rest.parse().ok()?)?),
            "execname" => Slot::Execname,
            "outcome" => Slot::Outcome,
            "address" => Slot::Address,
            "value" => Slot::Value,
            "length" => Slot::Length,
            "exit" => Slot::Exit,
            "snap" => Slot::Snap,
            "stack" => Slot::Stack(false),
            "ustack" => Slot::Stack(true),
            "symbol" => Slot::Symbol,
            "number" => Slot::Read(Kind::Number(place()?)),
            "text" => Slot::Read(Kind::Text(place()?, false)),
            "array" => Slot::Read(Kind::Text(place()?, true)),
            "bytes" => Slot::Read(Kind::Bytes(place()?, false)),
            "some" => Slot::Read(Kind::Bytes(place()?, true)),
            "path" => Slot::Read(Kind::Path(place()?)),
            "network" => Slot::Read(Kind::NetworkAddress(place()?)),
            "arguments" => Slot::Read(Kind::Arguments),
            "descends" => Slot::Read(Kind::Descends),
            _ => return None,
        })
    }
}

/// The variable of a capture for a built-in variable. `None`: a replay has it without one.
pub(super) fn word(builtin: IntBuiltin) -> Option<Word> {
    use IntBuiltin as B;
    Some(match builtin {
        B::Arg(n) => Word::Arg(n),
        B::Ureg(n) => Word::Register(n),
        B::Pid => Word::Pid,
        B::Ppid => Word::Ppid,
        B::Tid => Word::Tid,
        B::Uid => Word::Uid,
        B::Gid => Word::Gid,
        B::Walltimestamp => Word::Wall,
        B::Vtimestamp => Word::CpuTime,
        B::Errno => Word::Errno,
        B::Ipl => Word::Level,
        B::UserThread => Word::UserThread,
        B::CurThread => Word::CurThread,
        B::Caller => Word::Caller,
        B::Ucaller => Word::Ucaller,
        B::StackDepth => Word::StackDepth,
        B::UstackDepth => Word::UstackDepth,
        B::Cpu | B::Timestamp | B::Epid | B::ProbeId | B::ProviderPid => return None,
    })
}

/// An instrumented clause, and for each action of its record the name of its value.
pub(super) struct Instrumented {
    pub(super) clause: Clause,
    pub(super) names: Vec<Vec<Arc<str>>>,
}

/// Instruments a clause. `computes`: it does something with the texts that it makes. `Err`: what it
/// does that cannot be captured.
pub(super) fn instrument(module: &Module, clause: &Clause, computes: bool) -> Result<Instrumented, String> {
    let addresses = clause.record.as_ref().map_or(Ok(Vec::new()), addresses)?;
    let func = Function { blocks: Vec::new(), ..clause.func.clone() };
    let (layout, actions, slots, snaps) = (LayoutBuilder::default(), Vec::new(), Vec::new(), Vec::new());
    Recorder { module, source: &clause.func, computes, addresses, func, layout, actions, slots, snaps }
        .run(clause)
}

/// What a clause does besides what it prints: it changes variables, and calls `exit()` and
/// `snap()`. Everything else of its firings is captured by other clauses.
pub(super) fn trigger(clause: &Clause) -> Instrumented {
    let mut layout = LayoutBuilder::default();
    let (mut actions, mut names, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    for action in clause.record.iter().flat_map(|record| &record.actions) {
        let (field, slot) = match action {
            Action::Snap(field) => (field, Slot::Snap),
            Action::Exit(field) => (field, Slot::Exit),
            _ => continue,
        };
        let new = layout.push(field.datum);
        actions.push(if slot == Slot::Snap { Action::Snap(new) } else { Action::Exit(new) });
        names.push(vec![slot.name().into()]);
        moved.push((*field, new));
    }
    // Where a clause faults, it has not called anything.
    let outcome = layout.push(BYTE);
    actions.push(Action::Trace(outcome));
    names.push(vec![Slot::Outcome.name().into()]);
    let mut func = clause.func.clone();
    let one = Value(func.values.len() as u32);
    func.values.push(Ty::Int);
    for block in &mut func.blocks {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in block.insts.drain(..) {
            match &mut inst.op {
                Op::Reserve if moved.is_empty() => continue,
                Op::Commit if moved.is_empty() => continue,
                Op::Commit => {
                    insts.push(InstData { op: Op::Const(1), result: Some(one), ..inst.clone() });
                    insts.push(InstData { op: Op::Record(outcome, one), result: None, ..inst.clone() });
                }
                Op::Record(field, _) => match moved.iter().find(|(of, _)| of == field) {
                    Some((_, new)) => *field = *new,
                    None => continue,
                },
                Op::RecordPair(..)
                | Op::RecordBytes { .. }
                | Op::RecordPacket { .. }
                | Op::Aggregate { .. } => {
                    continue;
                }
                _ => {}
            }
            insts.push(inst);
        }
        block.insts = insts;
    }
    let record = (!moved.is_empty()).then(|| RecordDesc { size: layout.size(), actions, process: None });
    let names = if moved.is_empty() { Vec::new() } else { names };
    Instrumented { clause: Clause { func, record, span: clause.span }, names }
}

/// The numbers of a record that are printed as addresses of the kernel. `Err`: what a clause prints
/// that is not in its numbers, strings, addresses and memory.
fn addresses(record: &RecordDesc) -> Result<Vec<Field>, String> {
    let mut all: Vec<Field> = Vec::new();
    for action in &record.actions {
        match action {
            Action::Printf { format, args } | Action::System { format, args } => {
                let parsed = events::Format::parse(format.as_str()).map_err(|e| e.to_string())?;
                let shown = parsed.pieces().iter().filter_map(|piece| match piece {
                    events::Piece::Conversion(conversion) => Some(conversion.arg),
                    _ => None,
                });
                let shown: Vec<ConversionArg> = shown.collect();
                if shown.contains(&ConversionArg::UserAddr) {
                    return Err(format!("\"{format}\": %A cannot be captured yet: use %a of uaddr()"));
                }
                // Where a width is an argument, there are more of them than conversions.
                if shown.contains(&ConversionArg::KernelAddr) {
                    all.extend(args.iter().filter(|field| matches!(field.datum, Datum::Int { size: 8, .. })));
                }
            }
            Action::Pcap { .. } => return Err("pcap(): a capture does not have packets yet".into()),
            _ => {}
        }
    }
    Ok(all)
}

struct Recorder<'a> {
    module: &'a Module,
    source: &'a Function,
    computes: bool,
    /// Of its record.
    addresses: Vec<Field>,
    func: Function,
    layout: LayoutBuilder,
    actions: Vec<Action>,
    slots: Vec<Slot>,
    /// The fields of the reasons of `snap()`, in the clause's record and in this one.
    snaps: Vec<(Field, Field)>,
}

/// True if a variable may have another value when the predicate is found false.
fn predicate_stores(func: &Function) -> bool {
    // Blocks from which the predicate's end is reached, the last ones first.
    let mut before: BTreeSet<usize> =
        (0..).zip(&func.blocks).filter(|(_, b)| b.term == Term::PredicateFalse).map(|(at, _)| at).collect();
    loop {
        let leads = |block: &BlockData| match &block.term {
            Term::Jump(to, _) => before.contains(&(to.0 as usize)),
            Term::Branch { then, other, .. } => {
                [then, other].iter().any(|(to, _)| before.contains(&(to.0 as usize)))
            }
            Term::Return | Term::PredicateFalse => false,
        };
        let more: BTreeSet<usize> =
            (0..).zip(&func.blocks).filter(|(_, b)| leads(b)).map(|(at, _)| at).collect();
        if more.is_subset(&before) {
            break;
        }
        before.extend(more);
    }
    let stores = |inst: &InstData| {
        matches!(
            inst.op,
            Op::Store { .. }
                | Op::Copy { .. }
                | Op::StoreObj { .. }
                | Op::StoreVar(..)
                | Op::StoreElem(..)
                | Op::AddElem(..)
                | Op::DeleteElem(..)
        )
    };
    before.iter().filter_map(|at| func.blocks.get(*at)).flat_map(|block| &block.insts).any(stores)
}

/// Constants of a function.
#[derive(Clone, Copy)]
struct Constants {
    one: Value,
    two: Value,
}

/// An instruction of the clause, whose place in the source the new ones have.
type At<'a> = &'a InstData;

impl Recorder<'_> {
    fn run(mut self, clause: &Clause) -> Result<Instrumented, String> {
        let ints = used(&clause.func);
        let mut first = Vec::new();
        let plain = InstData { op: Op::Reserve, result: None, span: clause.span, action: 0 };
        first.push(plain.clone());
        let one = self.emit(&mut first, &plain, Op::Const(1), Ty::Int);
        let two = self.emit(&mut first, &plain, Op::Const(2), Ty::Int);
        let constants = Constants { one, two };
        let mut words = BTreeSet::new();
        // The owner of variables of threads.
        words.extend([IntBuiltin::Pid, IntBuiltin::Tid]);
        if self.module.vars.iter().any(|var| var.scope == Scope::Thread) {
            words.insert(IntBuiltin::Ipl);
        }
        words.extend(ints.0);
        for builtin in words {
            if let Some(word) = word(builtin) {
                let value = self.emit(&mut first, &plain, Op::Builtin(builtin), Ty::Int);
                let field = self.field(Slot::Word(word), INT);
                first.push(InstData { op: Op::Record(field, value), ..plain.clone() });
            }
        }
        if ints.1 {
            let name = self.emit(&mut first, &plain, Op::BuiltinStr(StrBuiltin::Execname), Ty::Str);
            let field =
                self.field(Slot::Execname, Datum::Name { size: string_storage(self.module.strsize).min(16) });
            first.push(InstData { op: Op::Record(field, name), ..plain.clone() });
        }
        let outcome = self.field(Slot::Outcome, BYTE);
        let exits = clause.record.as_ref().is_some_and(RecordDesc::exits);
        let exit = exits.then(|| {
            let field = self.layout.push(Datum::Int { size: 4, signed: true });
            self.actions.push(Action::Exit(field));
            self.slots.push(Slot::Exit);
            field
        });
        self.keep_snaps(clause);
        let stores = predicate_stores(&clause.func);
        for block in &clause.func.blocks {
            let mut insts = std::mem::take(&mut first);
            for inst in &block.insts {
                self.inst(&mut insts, inst, constants, exit)?;
            }
            let mut term = block.term.clone();
            let ended = match term {
                Term::Return => Some(one),
                Term::PredicateFalse => {
                    term = Term::Return;
                    // A predicate with an effect has to run in a replay too.
                    Some(if stores { one } else { two })
                }
                Term::Jump(..) | Term::Branch { .. } => None,
            };
            if let Some(how) = ended {
                insts.push(InstData { op: Op::Record(outcome, how), ..plain.clone() });
                insts.push(InstData { op: Op::Commit, ..plain.clone() });
                if block.term == Term::Return && !self.snaps.is_empty() {
                    insts.push(InstData { op: Op::Snap, ..plain.clone() });
                }
            }
            self.func.blocks.push(BlockData { params: block.params.clone(), insts, term });
        }
        let record = RecordDesc { size: self.layout.size(), actions: self.actions, process: None };
        let names = self.slots.iter().map(|slot| vec![slot.name().into()]).collect();
        let clause = Clause { func: self.func, record: Some(record), span: clause.span };
        Ok(Instrumented { clause, names })
    }

    fn field(&mut self, slot: Slot, datum: Datum) -> Field {
        let field = self.layout.push(datum);
        self.actions.push(Action::Trace(field));
        self.slots.push(slot);
        field
    }

    /// Gives the reasons of `snap()` a place in the record.
    fn keep_snaps(&mut self, clause: &Clause) {
        for action in clause.record.iter().flat_map(|record| &record.actions) {
            if let Action::Snap(field) = action {
                let new = self.layout.push(field.datum);
                self.actions.push(Action::Snap(new));
                self.slots.push(Slot::Snap);
                self.snaps.push((*field, new));
            }
        }
    }

    fn emit(&mut self, insts: &mut Vec<InstData>, at: At<'_>, op: Op, ty: Ty) -> Value {
        let value = Value(self.func.values.len() as u32);
        self.func.values.push(ty);
        insts.push(InstData { op, result: Some(value), span: at.span, action: at.action });
        value
    }

    /// Whose memory an address is in, if it is not only the program's own.
    fn place(&self, addr: Value) -> Option<Place> {
        match self.func.values.get(addr.0 as usize) {
            Some(Ty::Ptr(Space::User)) => Some(Place::User),
            Some(Ty::Ptr(Space::Scratch | Space::Static)) => None,
            _ => Some(Place::Kernel),
        }
    }

    /// Records that a read is tried, and its address.
    fn tried(&mut self, insts: &mut Vec<InstData>, at: At<'_>, kind: Kind, addr: Value, one: Value) -> Field {
        let state = self.field(Slot::Read(kind), BYTE);
        let address = self.field(Slot::Address, INT);
        let is_pointer = matches!(self.func.values.get(addr.0 as usize), Some(Ty::Ptr(_)));
        let addr = if is_pointer { self.emit(insts, at, Op::AsInt(addr), Ty::Int) } else { addr };
        for (field, value) in [(state, one), (address, addr)] {
            insts.push(InstData { op: Op::Record(field, value), result: None, ..at.clone() });
        }
        state
    }

    /// An operation whose result is recorded.
    fn read(
        &mut self,
        insts: &mut Vec<InstData>,
        at: At<'_>,
        (kind, addr, datum): (Kind, Value, Datum),
        constants: Constants,
    ) {
        let state = self.tried(insts, at, kind, addr, constants.one);
        insts.push(at.clone());
        let field = self.field(Slot::Value, datum);
        let record = |field, value| InstData { op: Op::Record(field, value), result: None, ..at.clone() };
        insts.extend(at.result.map(|result| record(field, result)));
        if let Op::LoadStr { max: Some(max), .. } = at.op {
            let field = self.field(Slot::Length, INT);
            insts.push(record(field, max));
        }
        insts.push(record(state, constants.two));
    }

    /// Records the bytes at an address; `length`: only so many.
    fn bytes(
        &mut self,
        insts: &mut Vec<InstData>,
        at: At<'_>,
        (addr, size, length): (Value, u32, Option<Value>),
        constants: Constants,
    ) {
        let Some(place) = self.place(addr).filter(|_| size > 0) else { return };
        let kind = Kind::Bytes(place, length.is_some());
        let state = self.tried(insts, at, kind, addr, constants.one);
        let field = self.field(Slot::Value, Datum::Bytes { size });
        let length = length.map(|length| {
            // To record no byte is to record all. Of none, one is read.
            let none = self.emit(insts, at, Op::Const(0), Ty::Int);
            let none = self.emit(insts, at, Op::Cmp(Cond::Eq, length, none), Ty::Int);
            let some = self.emit(insts, at, Op::Bin(BinOp::Or, length, none), Ty::Int);
            let field = self.field(Slot::Length, INT);
            insts.push(InstData { op: Op::Record(field, some), result: None, ..at.clone() });
            some
        });
        let op = Op::RecordBytes { field, addr, len: length };
        insts.push(InstData { op, result: None, ..at.clone() });
        insts.push(InstData { op: Op::Record(state, constants.two), result: None, ..at.clone() });
    }

    /// Copies an instruction, with what records it.
    fn inst(
        &mut self,
        insts: &mut Vec<InstData>,
        inst: At<'_>,
        constants: Constants,
        exit: Option<Field>,
    ) -> Result<(), String> {
        let text = Datum::Str { size: string_storage(self.module.strsize) };
        match &inst.op {
            Op::Load { size, addr, .. } if self.place(*addr).is_some() => {
                let kind = Kind::Number(self.place(*addr).unwrap_or(Place::Kernel));
                let datum = Datum::Int { size: *size, signed: false };
                self.read(insts, inst, (kind, *addr, datum), constants);
            }
            Op::LoadStr { addr, max } if self.place(*addr).is_some() => {
                let kind = Kind::Text(self.place(*addr).unwrap_or(Place::Kernel), max.is_some());
                self.read(insts, inst, (kind, *addr, text), constants);
            }
            Op::RecordBytes { field, addr, len } => {
                self.bytes(insts, inst, (*addr, field.datum.size(), *len), constants);
            }
            Op::CopyObj { addr, size, .. } => {
                self.bytes(insts, inst, (*addr, *size, None), constants);
                insts.push(inst.clone());
            }
            Op::StoreObj { var, addr, .. } => {
                let size = self.module.object_size(*var).unwrap_or(0);
                self.bytes(insts, inst, (*addr, size, None), constants);
                insts.push(inst.clone());
            }
            Op::Copy { src, len, .. } => {
                let (size, length) = match self.constant(*len) {
                    Some(known) => (u32::try_from(known).unwrap_or(0).min(1 << 16), None),
                    None => (LONGEST_COPY, Some(*len)),
                };
                self.bytes(insts, inst, (*src, size, length), constants);
                insts.push(inst.clone());
            }
            Op::Call(subr, args) => self.call(insts, inst, (*subr, args), constants)?,
            Op::Exit(status) => {
                let record =
                    |field| InstData { op: Op::Record(field, *status), result: None, ..inst.clone() };
                insts.extend(exit.map(record));
                insts.push(inst.clone());
            }
            // Its record is another one, and of what it aggregates only names are captured.
            Op::Reserve | Op::Commit | Op::Snap => {}
            Op::Record(field, value) if self.snaps.iter().any(|(of, _)| of == field) => {
                let new = self.snaps.iter().find(|(of, _)| of == field).map(|(_, new)| *new);
                insts.extend(new.map(|new| InstData { op: Op::Record(new, *value), ..inst.clone() }));
            }
            Op::Record(field, value) => {
                let is_address = self.addresses.contains(field);
                let datum = if is_address { Datum::KernelAddr(AddrForm::Address) } else { field.datum };
                self.symbol(insts, inst, datum, *value, None);
            }
            Op::RecordPair(field, value, process) => {
                self.symbol(insts, inst, field.datum, *value, Some(*process));
            }
            Op::Aggregate { agg, key, .. } => {
                let columns = self.module.aggs.get(agg.0 as usize).map_or(&[][..], |agg| &agg.key);
                let mut key = key.iter().copied();
                for column in columns {
                    let Some(value) = key.next() else { break };
                    let has_two = matches!(column.datum, Datum::UserAddr(_) | Datum::Provider);
                    let process = if has_two { key.next() } else { None };
                    self.symbol(insts, inst, column.datum, value, process);
                }
            }
            Op::Stack { calls: true, .. } => return Err("jstack() cannot be captured yet".into()),
            Op::Stack { user, frames, .. } => {
                let datum = match user {
                    true => Datum::UserStack { frames: *frames, strsize: 0 },
                    false => Datum::KernelStack { frames: *frames },
                };
                let field = self.field(Slot::Stack(*user), datum);
                insts.push(inst.clone());
                let record = |id| InstData { op: Op::Record(field, id), result: None, ..inst.clone() };
                insts.extend(inst.result.map(record));
            }
            Op::Speculate(_) => return Err("speculate(): speculations cannot be captured yet".into()),
            Op::RecordPacket { .. } => return Err("pcap(): a capture does not have packets yet".into()),
            Op::CopyOut { .. } | Op::CopyOutStr { .. } => {
                return Err("destructive actions cannot be captured".into());
            }
            _ => insts.push(inst.clone()),
        }
        Ok(())
    }

    /// Records an address that is shown by its name, with the process where it is in one.
    fn symbol(
        &mut self,
        insts: &mut Vec<InstData>,
        at: At<'_>,
        datum: Datum,
        value: Value,
        process: Option<Value>,
    ) {
        let is_pointer = matches!(self.func.values.get(value.0 as usize), Some(Ty::Ptr(_)));
        let op = |field, value| match (datum, process) {
            (Datum::KernelAddr(_), None) => Some(Op::Record(field, value)),
            (Datum::UserAddr(_), Some(process)) => Some(Op::RecordPair(field, value, process)),
            _ => None,
        };
        if !matches!((datum, process), (Datum::KernelAddr(_), None) | (Datum::UserAddr(_), Some(_))) {
            return;
        }
        let value = if is_pointer { self.emit(insts, at, Op::AsInt(value), Ty::Int) } else { value };
        let field = self.field(Slot::Symbol, datum);
        insts.extend(op(field, value).map(|op| InstData { op, result: None, ..at.clone() }));
    }

    fn call(
        &mut self,
        insts: &mut Vec<InstData>,
        inst: At<'_>,
        (subr, args): (Subr, &[Value]),
        constants: Constants,
    ) -> Result<(), String> {
        let text = Datum::Str { size: string_storage(self.module.strsize) };
        let raw = |recorder: &mut Self, insts: &mut Vec<InstData>, bytes| {
            recorder.bytes(insts, inst, bytes, constants);
            insts.push(inst.clone());
            Ok(())
        };
        let first = args.first().copied();
        // To write an address of the network as text is much code, and only its bytes are captured.
        if let (Subr::InetNtoa | Subr::InetNtoa6, Some(addr), false) = (subr, first, self.computes) {
            self.bytes(insts, inst, (addr, if subr == Subr::InetNtoa { 4 } else { 16 }, None), constants);
            insts.push(InstData { op: Op::Null, ..inst.clone() });
            return Ok(());
        }
        let read = match (subr, first, args.get(1).copied()) {
            (Subr::Args, Some(addr), _) => Some((Kind::Arguments, addr, text)),
            (Subr::DPath, Some(addr), _) => Some((Kind::Path(Place::Path), addr, text)),
            (Subr::Fullpath, Some(addr), _) => Some((Kind::Path(Place::FullPath), addr, text)),
            (Subr::Mountpoint, Some(addr), _) => Some((Kind::Path(Place::MountPath), addr, text)),
            (Subr::DentryPath, Some(addr), _) => Some((Kind::Path(Place::DentryPath), addr, text)),
            (Subr::Container, Some(addr), _) => Some((Kind::Path(Place::Container), addr, text)),
            (Subr::Pod, Some(addr), _) => Some((Kind::Path(Place::Pod), addr, text)),
            // The text that is made of them may be cut, or have other bytes.
            (Subr::InetNtoa, Some(addr), _) => return raw(self, insts, (addr, 4, None)),
            (Subr::InetNtoa6, Some(addr), _) => return raw(self, insts, (addr, 16, None)),
            (Subr::InetNtop, Some(family), Some(addr)) => match self.constant(family) {
                Some(AF_INET) => return raw(self, insts, (addr, 4, None)),
                Some(AF_INET6) => return raw(self, insts, (addr, 16, None)),
                _ => self.place(addr).map(|place| (Kind::NetworkAddress(place), addr, text)),
            },
            (Subr::Memstr, Some(addr), _) => {
                let longest = self.module.strsize.saturating_sub(1);
                let Some(size) = args.get(2).copied() else { return Ok(()) };
                let known = self.constant(size).map(|size| (size as u64).saturating_sub(1));
                let known = known.map(|size| size.min(longest.into()) as u32);
                let length = known.is_none().then(|| {
                    let one = self.emit(insts, inst, Op::Const(1), Ty::Int);
                    self.emit(insts, inst, Op::Bin(BinOp::Sub, size, one), Ty::Int)
                });
                return raw(self, insts, (addr, known.unwrap_or(longest), length));
            }
            (Subr::Progenyof, Some(pid), _) => Some((Kind::Descends, pid, BYTE)),
            (Subr::LinkNtop, ..) => return Err("link_ntop(): it cannot be captured yet".into()),
            (Subr::Speculation | Subr::Discard | Subr::Commit, ..) => {
                return Err("speculation(): speculations cannot be captured yet".into());
            }
            (Subr::Chill | Subr::Raise | Subr::Return, ..) => {
                return Err("destructive actions cannot be captured".into());
            }
            _ => None,
        };
        match read {
            Some(read) => self.read(insts, inst, read, constants),
            None => insts.push(inst.clone()),
        }
        Ok(())
    }

    /// The value of a constant.
    fn constant(&self, value: Value) -> Option<i64> {
        let mut insts = self.source.blocks.iter().flat_map(|block| &block.insts);
        insts.find_map(|inst| match inst.op {
            Op::Const(n) if inst.result == Some(value) => Some(n),
            _ => None,
        })
    }
}

/// Families of addresses (include/linux/socket.h).
const AF_INET: i64 = 2;
const AF_INET6: i64 = 10;

const INT: Datum = Datum::Int { size: 8, signed: false };
const BYTE: Datum = Datum::Int { size: 1, signed: false };

/// The built-in variables of a function that captures have.
pub(super) fn captured(func: &Function) -> Vec<Builtin> {
    let (ints, execname) = used(func);
    let ints = ints.into_iter().filter(|builtin| word(*builtin).is_some()).map(Builtin::Int);
    ints.chain(execname.then_some(Builtin::Str(StrBuiltin::Execname))).collect()
}

/// The built-in variables of a function: numbers, and whether `execname` is one.
fn used(func: &Function) -> (BTreeSet<IntBuiltin>, bool) {
    let ops = || func.blocks.iter().flat_map(|block| &block.insts).map(|inst| &inst.op);
    let ints = ops().filter_map(|op| match op {
        Op::Builtin(builtin) => Some(*builtin),
        _ => None,
    });
    (ints.collect(), ops().any(|op| matches!(op, Op::BuiltinStr(StrBuiltin::Execname))))
}
