//! The checked program: what `lower` reads.
//!
//! A second tree rather than annotations on the first one, because checking changes the shape: names become numbers,
//! conversions that D leaves unsaid become nodes, an arm of `?:` that a constant drops is gone, and an action is no
//! expression any more. Whoever walks this tree needs no rule of the D language: every operation says its width and
//! sign, and every recorded value its place.
//!
//! Invariants: expressions are well typed; every [`VarId`] and [`AggId`] is an index of the tables of [`Checked`];
//! columns of keys are final (the join of all uses in the session).

use std::rc::Rc;

/// Arithmetic on 64-bit integers, sign resolved.
pub use arith::BinOp as Arith;
use arith::Cond;
use diagnostics::Span;
use plane::desc::{AggDesc, AggId, Field, RecordDesc};
use probes::{Attributes, Pattern, ProbeInfo};
use types::{Padding, TypeId};

/// A variable of the session; index of [`Checked::vars`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);

/// All programs of a session, checked.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Clauses in program order.
    pub clauses: Vec<Clause>,
    /// Variables in order of appearance.
    pub vars: Vec<Var>,
    /// Aggregations in order of appearance.
    pub aggs: Vec<AggDesc>,
    /// Bytes of a string, its NUL included; a multiple of 8.
    pub strsize: u32,
}

/// A clause, or a part of one that `if` divides: then it is a clause of its own in all but its description.
#[derive(Clone, Debug)]
pub struct Clause {
    /// All of it.
    pub span: Span,
    /// Which of the programs it stands in.
    pub program: usize,
    /// A part of the clause before it, which `if` divides.
    pub part: bool,
    /// What it enables.
    pub patterns: Vec<ClausePattern>,
    /// The probes there are for it now, each once, by id.
    pub probes: Rc<[ProbeInfo]>,
    /// Scalar expression.
    pub predicate: Option<Expr>,
    /// In order.
    pub body: Vec<Stmt>,
    /// What it records, if anything.
    pub record: Option<RecordDesc>,
    /// The least of what it uses.
    pub attributes: Attributes,
    /// Has an action that needs `-w`.
    pub destructive: bool,
}

/// One description of a clause.
#[derive(Clone, Debug)]
pub struct ClausePattern {
    /// Where it stands.
    pub span: Span,
    /// What it matches.
    pub pattern: Pattern,
}

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One for the session.
    Global,
    /// `self->`: one a thread.
    Thread,
    /// `this->`: one a firing.
    Clause,
}

impl Scope {
    /// What stands before the name in D.
    pub fn prefix(self) -> &'static str {
        match self {
            Scope::Global => "",
            Scope::Thread => "self->",
            Scope::Clause => "this->",
        }
    }
}

/// How a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repr {
    /// An integer or pointer.
    Int {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Sign.
        signed: bool,
    },
    /// A string.
    Str,
    /// An object in memory: a struct, a union, an array.
    Bytes {
        /// Its size.
        size: u32,
    },
}

/// A variable.
#[derive(Clone, Debug)]
pub struct Var {
    /// Without `self->` or `this->`.
    pub name: String,
    /// Where it lives.
    pub scope: Scope,
    /// Its type, or its elements'.
    pub ty: TypeId,
    /// The type's text.
    pub type_name: String,
    /// How it is kept.
    pub repr: Repr,
    /// Columns of an associative array's key; `None` for a scalar.
    pub key: Option<Vec<Field>>,
    /// Bytes of the key.
    pub key_size: u32,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// Where it stands.
    pub span: Span,
    /// Its number in the clause, from 1; faults name it.
    pub action: u16,
    /// What it does in the kernel.
    pub kind: StmtKind,
}

/// What a [`Stmt`] does in the kernel. What the consumer does for it is in the clause's [`RecordDesc`].
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// Computes for the side effects.
    Expr(Expr),
    /// Writes fields of the record.
    Record(Vec<(Field, KeyValue)>),
    /// Writes the status and ends tracing.
    Exit(Field, Expr),
    /// Aggregates.
    Aggregate {
        /// Which.
        agg: AggId,
        /// One value a column.
        key: Vec<KeyValue>,
        /// Arguments of the function that are computed.
        args: Vec<Expr>,
    },
}

/// What can be recorded or be a key column, beyond expressions.
#[derive(Clone, Debug)]
pub enum KeyValue {
    /// Integer, pointer or string.
    Expr(Expr),
    /// The bytes at an address.
    Bytes {
        /// Where.
        addr: Expr,
        /// In user memory.
        user: bool,
        /// At most so many of them, and where that is recorded: see `dif::ir::Op::RecordBytes`.
        len: Option<(Field, Expr)>,
    },
    /// `stack()`, `ustack()`.
    Stack {
        /// User frames.
        user: bool,
        /// At most so many.
        frames: u32,
    },
    /// `sym()`, `func()`, `mod()`.
    KernelAddr(Expr),
    /// `usym()`, `ufunc()`, `umod()`, `uaddr()`.
    UserAddr(Expr),
}

/// A typed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Its type in D.
    pub ty: TypeId,
    /// Where it stands.
    pub span: Span,
}

/// Values that a firing provides.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    Arg(u8),
    /// The same, known to be an address in the kernel.
    KernelArg(u8),
    Pid,
    Ppid,
    Tid,
    Uid,
    Gid,
    Cpu,
    Timestamp,
    Walltimestamp,
    Vtimestamp,
    Errno,
    Epid,
    Id,
    Stackdepth,
    Ustackdepth,
    Caller,
    Ucaller,
    Ipl,
    /// `uregs[n]`, below [`crate::tables::UREGS`]; in a thread of the kernel a fault.
    Ureg(u8),
    Curthread,
    Execname,
    Probeprov,
    Probemod,
    Probefunc,
    Probename,
}

impl Builtin {
    /// A string rather than an integer.
    pub fn is_string(self) -> bool {
        matches!(
            self,
            Builtin::Execname
                | Builtin::Probeprov
                | Builtin::Probemod
                | Builtin::Probefunc
                | Builtin::Probename
        )
    }
}

/// Comparisons.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Relation {
    /// The comparison of integers that this is, by their signedness.
    pub fn cond(self, signed: bool) -> Cond {
        match (self, signed) {
            (Relation::Eq, _) => Cond::Eq,
            (Relation::Ne, _) => Cond::Ne,
            (Relation::Lt, true) => Cond::Slt,
            (Relation::Le, true) => Cond::Sle,
            (Relation::Gt, true) => Cond::Sgt,
            (Relation::Ge, true) => Cond::Sge,
            (Relation::Lt, false) => Cond::Ult,
            (Relation::Le, false) => Cond::Ule,
            (Relation::Gt, false) => Cond::Ugt,
            (Relation::Ge, false) => Cond::Uge,
        }
    }
}

/// `&&`, `||`, `^^`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Logic {
    And,
    Or,
    Xor,
}

/// What can be assigned.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A scalar.
    Var(VarId),
    /// An element of an associative array; key values in column order.
    Elem(VarId, Vec<Expr>),
    /// A scalar in memory.
    Memory(Memory),
    /// A character of a string.
    Char {
        /// The string's place.
        string: Box<Place>,
        /// Which: a fault unless it is below strsize.
        index: Box<Expr>,
    },
}

/// A scalar in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Where it is. Where that is computed from [`ExprKind::ElemAddr`], the element is stored again.
    pub addr: Box<Expr>,
    /// How it is kept there.
    pub form: Form,
}

/// How a scalar is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An integer or pointer.
    Int {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Sign.
        signed: bool,
    },
    /// Some bits of an integer.
    Bits {
        /// Bytes of that.
        size: u8,
        /// The lowest bit.
        shift: u8,
        /// How many.
        bits: u8,
        /// Sign.
        signed: bool,
    },
    /// A string: strsize bytes.
    Str,
}

/// What has to do with memory and is called like a function.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    Alloca,
    Bcopy,
    Copyin,
    Copyinto,
    Copyout,
    Copyoutstr,
}

/// What an [`Expr`] computes. Integers are 64 bits wide; only [`ExprKind::Convert`] narrows.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant.
    Int(i64),
    /// A string constant.
    Str(Vec<u8>),
    /// NULL as a string.
    Null,
    /// From the firing.
    Builtin(Builtin),
    /// Reads a variable or element.
    Read(Place),
    /// In [`ExprKind::Update`]: what the place held.
    Old,
    /// Minus.
    Neg(Box<Expr>),
    /// Complement.
    BitNot(Box<Expr>),
    /// 1 when the operand is 0.
    Not(Box<Expr>),
    /// Arithmetic.
    Arith(Arith, Box<Expr>, Box<Expr>),
    /// Compares integers or pointers.
    Compare {
        /// How.
        relation: Relation,
        /// As signed numbers.
        signed: bool,
        /// Left.
        left: Box<Expr>,
        /// Right.
        right: Box<Expr>,
    },
    /// Compares strings, bytewise unsigned.
    CompareStr(Relation, Box<Expr>, Box<Expr>),
    /// Logic; `And` and `Or` compute the right side only where it matters.
    Logic(Logic, Box<Expr>, Box<Expr>),
    /// `?:`
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Computes both; the value of the second.
    Comma(Box<Expr>, Box<Expr>),
    /// The low `size` bytes (1, 2, 4), extended.
    Convert {
        /// Bytes.
        size: u8,
        /// Sign-extended.
        signed: bool,
        /// Of this.
        value: Box<Expr>,
    },
    /// 1 when the operand is not 0: conversion to `_Bool`.
    Truth(Box<Expr>),
    /// The object at an address, not read: a struct, or what `&` is taken of. Never stands where a value is needed.
    Deref {
        /// Its address.
        addr: Box<Expr>,
        /// In user memory.
        user: bool,
    },
    /// A translated value, of type `<DYN>`; its members are values. Never stands in a checked program.
    Xlated {
        /// Index of the checker's translators.
        translator: usize,
        /// `xlate <out *>`.
        pointer: bool,
        /// What is translated.
        input: Box<Expr>,
    },
    /// Computes `value` once, then `body`, in which [`ExprKind::Bound`] is it.
    Let {
        /// Unique in the program.
        id: u32,
        /// Computed first.
        value: Box<Expr>,
        /// The value.
        body: Box<Expr>,
    },
    /// What the [`ExprKind::Let`] of this number computed.
    Bound(u32),
    /// The address of an array, in place of the array: so many bytes belong to it, 0 where nobody knows.
    Array {
        /// Where it begins.
        addr: Box<Expr>,
        /// Its size.
        bytes: u64,
    },
    /// The address of a variable that is an object.
    AddrVar(VarId),
    /// The address of an element that is an object: of a copy, which lasts for the statement.
    ElemAddr(VarId, Vec<Expr>),
    /// An object as a key: its bytes, with zeros for what is padding.
    KeyObject {
        /// Where it is.
        addr: Box<Expr>,
        /// That is user memory.
        user: bool,
        /// Bytes.
        size: u32,
        /// What is padding.
        padding: Rc<[Padding]>,
    },
    /// The address of a string's bytes: of a copy, which lasts for the statement.
    StrAddr(Box<Expr>),
    /// An index, which faults unless it is below `count`.
    Bounded {
        /// The index.
        index: Box<Expr>,
        /// Elements of the array.
        count: i64,
    },
    /// Copies an object; the value is the address that was copied to.
    CopyObject {
        /// Where to.
        dst: Box<Expr>,
        /// Where from.
        src: Box<Expr>,
        /// That is user memory.
        user: bool,
        /// Bytes.
        size: u32,
    },
    /// Takes, copies or writes memory.
    MemoryCall {
        /// Which.
        call: MemoryCall,
        /// Converted to the prototype's types.
        args: Vec<Expr>,
        /// Where bytes come from is user memory.
        user: bool,
    },
    /// Reads memory, checked.
    Load {
        /// Where.
        addr: Box<Expr>,
        /// 1, 2, 4 or 8.
        size: u8,
        /// Sign-extended.
        signed: bool,
        /// In user memory.
        user: bool,
    },
    /// Reads a NUL-terminated string, checked.
    LoadStr {
        /// Where.
        addr: Box<Expr>,
        /// In user memory.
        user: bool,
        /// At most so many bytes.
        max: Option<Box<Expr>>,
    },
    /// Length of a string.
    Strlen(Box<Expr>),
    /// A subroutine, by the name that the intermediate form has for it. Its value is within the expression's type.
    Call {
        /// Which.
        name: &'static str,
        /// Converted to the prototype's types; optional ones may be missing at the end.
        args: Vec<Expr>,
        /// Pointers among the arguments point into user memory.
        user: bool,
    },
    /// Stores; the value is what is stored.
    Assign(Place, Box<Expr>),
    /// Deletes an element (or frees a `self->` variable) by the constant 0; the value is 0 or "".
    Delete(Place),
    /// Reads, computes `new` with [`ExprKind::Old`], stores.
    Update {
        /// What is changed.
        place: Place,
        /// Already converted to the place's type.
        new: Box<Expr>,
        /// The value is the old one.
        post: bool,
    },
}

/// Where a string comes from; it decides how a column keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrSource {
    /// A constant of so many bytes.
    Const(usize),
    /// A name of the probe: known before the firing.
    ProbeName,
    /// `execname`.
    Comm,
    /// Anything else.
    Dynamic,
}

impl Expr {
    /// The constant, if it is an integer constant.
    pub fn as_const(&self) -> Option<i64> {
        match self.kind {
            ExprKind::Int(v) => Some(v),
            _ => None,
        }
    }

    /// The bytes of the array whose address this is.
    pub(crate) fn array_bytes(&self) -> Option<u64> {
        match self.kind {
            ExprKind::Array { bytes, .. } => Some(bytes).filter(|b| *b > 0),
            _ => None,
        }
    }

    /// Where this string comes from.
    pub(crate) fn str_source(&self) -> StrSource {
        match &self.kind {
            ExprKind::Str(s) => StrSource::Const(s.len()),
            ExprKind::Builtin(Builtin::Execname) => StrSource::Comm,
            ExprKind::Builtin(b) if b.is_string() => StrSource::ProbeName,
            ExprKind::Let { body, .. } => body.str_source(),
            _ => StrSource::Dynamic,
        }
    }
}
