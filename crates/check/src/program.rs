//! The checked program, the input of `lower`.
//!
//! It is a second tree instead of annotations on the first one, because checking changes the shape:
//! names become numbers, implicit conversions become nodes, unreachable branches of `?:` disappear,
//! and an action is not an expression any more. Code that walks this tree needs no rule of the D
//! language: every operation has an explicit width and sign, and every recorded value has an
//! explicit place.
//!
//! Invariants: expressions are well typed; every [`VarId`] and [`AggId`] is an index into the
//! tables of [`Checked`]; columns of keys are final (the join of all uses in the session).

use std::sync::Arc;

/// Arithmetic on 64-bit integers, with explicit signedness.
pub use arith::BinOp as Arith;
use arith::Cond;
use diagnostics::Span;
/// Built-in variables.
pub use plane::builtin::{Builtin, IntBuiltin, StrBuiltin};
use plane::desc::{AggDesc, AggId, Field, RecordDesc};
use probes::{Attributes, Pattern, ProbeInfo};
use types::{Padding, TypeId};

use crate::record::Record;
use crate::uses::ClauseUses;

/// A variable of the session: an index into [`Checked::vars`].
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
    /// For each aggregation, the expressions of the columns of its key; empty where statements
    /// differ.
    pub agg_keys: Vec<Vec<Arc<str>>>,
    /// For each aggregation, whether no value that is added to it can be negative.
    pub agg_unsigned: Vec<bool>,
    /// Bytes of a string, its NUL included; a multiple of 8.
    pub strsize: u32,
    /// What descriptions of libraries meant.
    pub record: Record,
    /// What definitions of programs say that is not used, and probes that are left out because of
    /// it.
    pub left_out: Vec<String>,
    /// It was told to stop before it was done: nothing of this is whole.
    pub is_stopped: bool,
    /// For each program, what each of its items uses that is a clause.
    pub uses: Vec<Vec<ClauseUses>>,
}

/// A clause, or a part of a clause that `if` divides. Such a part is a clause in every respect
/// except for its description.
#[derive(Clone, Debug)]
pub struct Clause {
    /// The whole clause.
    pub span: Span,
    /// Index of its program.
    pub program: usize,
    /// True when `if` divides a clause and this is a further part of the clause before it.
    pub part: bool,
    /// The probe descriptions.
    pub patterns: Vec<ClausePattern>,
    /// The probes that match now, without duplicates, by id.
    pub probes: Arc<[ProbeInfo]>,
    /// Scalar expression.
    pub predicate: Option<Expr>,
    /// In order.
    pub body: Vec<Stmt>,
    /// What it records, if anything.
    pub record: Option<RecordDesc>,
    /// For each action of the record, the expressions of its values in the program.
    pub names: Vec<Vec<Arc<str>>>,
    /// The minimum of the attributes of everything it uses.
    pub attributes: Attributes,
    /// True when it has an action that needs `-w`.
    pub destructive: bool,
    /// Set where a library fires the probe of the clause; `probes` are then the probes at which it
    /// does.
    pub derived: Option<Derived>,
}

impl Clause {
    /// The probes of which the clause is one: those that the program describes. A clause of a
    /// library has none.
    pub fn described(&self) -> &[ProbeInfo] {
        match &self.derived {
            None => &self.probes,
            Some(derived) if derived.of_library => &[],
            Some(derived) => std::slice::from_ref(&derived.probe),
        }
    }
}

/// What is derived about a clause.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The probe whose clause it is; of a library's clause, one for which it runs.
    pub probe: ProbeInfo,
    /// Its place among the clauses of the program at the same base.
    pub order: Vec<u32>,
    /// It is a clause of the library.
    pub of_library: bool,
}

/// One description of a clause.
#[derive(Clone, Debug)]
pub struct ClausePattern {
    /// Position of the description.
    pub span: Span,
    /// What it matches.
    pub pattern: Pattern,
}

/// The scope of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One instance per session.
    Global,
    /// `self->`: one instance per thread.
    Thread,
    /// `this->`: one instance per firing.
    Clause,
}

impl Scope {
    /// The prefix of the name in D.
    pub fn prefix(self) -> &'static str {
        match self {
            Scope::Global => "",
            Scope::Thread => "self->",
            Scope::Clause => "this->",
        }
    }
}

/// Maximum size of a variable in bytes.
pub(crate) const LARGEST: u64 = 16 << 10;

/// The representation of a value.
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
    /// Name without `self->` or `this->`.
    pub name: String,
    /// Its scope.
    pub scope: Scope,
    /// Its type, or the type of its elements.
    pub ty: TypeId,
    /// The type's text.
    pub type_name: String,
    /// Its representation.
    pub repr: Repr,
    /// Columns of an associative array's key; `None` for a scalar.
    pub key: Option<Vec<Field>>,
    /// Bytes of the key.
    pub key_size: u32,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// Position of the statement.
    pub span: Span,
    /// Its number in the clause, from 1. Faults refer to it.
    pub action: u16,
    /// Its effect in the kernel.
    pub kind: StmtKind,
}

/// The effect of a [`Stmt`] in the kernel. The consumer's part is in the clause's [`RecordDesc`].
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// Evaluates an expression for its side effects.
    Expr(Expr),
    /// Writes fields of the record.
    Record(Vec<(Field, KeyValue)>),
    /// Records the status and ends tracing.
    Exit(Field, Expr),
    /// Records the reason. A snapshot of the rings is requested when the record is complete.
    Snap(Field, Expr),
    /// Makes the rest of the clause part of the speculation with this id.
    Speculate(Expr),
    /// Adds a sample to an aggregation.
    Aggregate {
        /// The aggregation.
        agg: AggId,
        /// One value per column.
        key: Vec<KeyValue>,
        /// Arguments of the function that are evaluated at run time.
        args: Vec<Expr>,
    },
}

/// A value that can be recorded or be a key column.
#[derive(Clone, Debug)]
pub enum KeyValue {
    /// An integer, pointer or string.
    Expr(Expr),
    /// The bytes at an address.
    Bytes {
        /// The address.
        addr: Expr,
        /// True for user memory.
        user: bool,
        /// Maximum number of bytes, and the field that records it; see `dif::ir::Op::RecordBytes`.
        len: Option<(Field, Expr)>,
    },
    /// The packet of the socket buffer at an address; see `dif::ir::Op::RecordPacket`.
    Packet(Expr),
    /// `stack()`, `ustack()`, `jstack()`.
    Stack {
        /// User frames.
        user: bool,
        /// Maximum number of frames.
        frames: u32,
        /// The frames of an interpreter too.
        calls: bool,
    },
    /// `sym()`, `func()`, `mod()`.
    KernelAddr(Expr),
    /// `usym()`, `ufunc()`, `umod()`, `uaddr()`.
    UserAddr(Expr),
}

/// A typed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The operation.
    pub kind: ExprKind,
    /// Its type in D.
    pub ty: TypeId,
    /// Position of the expression.
    pub span: Span,
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
    /// The corresponding comparison of integers with this signedness.
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

/// A place that can be assigned to.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A scalar.
    Var(VarId),
    /// An element of an associative array; key values in column order.
    Elem(VarId, Vec<Expr>),
    /// A scalar in memory.
    Memory(Memory),
    /// One character of a string.
    Char {
        /// The place of the string.
        string: Box<Place>,
        /// The index. It faults unless it is below strsize.
        index: Box<Expr>,
    },
}

/// A scalar in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Its address. If it is computed from [`ExprKind::ElemAddr`], the element is stored back after
    /// a change.
    pub addr: Box<Expr>,
    /// Its representation in memory.
    pub form: Form,
}

/// The representation of a scalar in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An integer or pointer.
    Int {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Sign.
        signed: bool,
    },
    /// A bit-field.
    Bits {
        /// Size of the integer that contains it, in bytes.
        size: u8,
        /// The lowest bit.
        shift: u8,
        /// Width in bits.
        bits: u8,
        /// Sign.
        signed: bool,
    },
    /// A string: strsize bytes.
    Str,
}

/// Memory operations that are called like functions.
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

/// The operation of an [`Expr`]. Integers are 64 bits wide; only [`ExprKind::Convert`] narrows.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant.
    Int(i64),
    /// A string constant.
    Str(Vec<u8>),
    /// NULL as a string.
    Null,
    /// A built-in variable. `uregs[n]` faults in a kernel thread.
    Builtin(Builtin),
    /// `argN`, with a value that is known to be a kernel address.
    KernelArg(u8),
    /// `probeprov` of a clause whose probes can be of a family of processes.
    FamilyProbeprov,
    /// Reads a variable or element.
    Read(Place),
    /// In [`ExprKind::Update`]: the old value of the place.
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
        /// The comparison.
        relation: Relation,
        /// True for a signed comparison.
        signed: bool,
        /// Left.
        left: Box<Expr>,
        /// Right.
        right: Box<Expr>,
    },
    /// Compares strings, bytewise unsigned.
    CompareStr(Relation, Box<Expr>, Box<Expr>),
    /// Logic. `And` and `Or` evaluate the right operand only when needed.
    Logic(Logic, Box<Expr>, Box<Expr>),
    /// `?:`
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Evaluates both. The value is the second.
    Comma(Box<Expr>, Box<Expr>),
    /// The low `size` bytes (1, 2, 4), extended.
    Convert {
        /// Bytes.
        size: u8,
        /// Sign-extended.
        signed: bool,
        /// The operand.
        value: Box<Expr>,
    },
    /// 1 when the operand is not 0: conversion to `_Bool`.
    Truth(Box<Expr>),
    /// The object at an address, not read: a struct, or the operand of `&`. Never occurs where a
    /// value is needed.
    Deref {
        /// Its address.
        addr: Box<Expr>,
        /// True for user memory.
        user: bool,
    },
    /// A translated value, of type `<DYN>`. Its members are values. Never occurs in a checked
    /// program.
    Xlated {
        /// Index of the translator in the checker.
        translator: usize,
        /// True for `xlate <out *>`.
        pointer: bool,
        /// The translated expression.
        input: Box<Expr>,
    },
    /// Evaluates `value` once, then `body`, in which [`ExprKind::Bound`] refers to the value.
    Let {
        /// A number that is unique in the program.
        id: u32,
        /// The value, evaluated first.
        value: Box<Expr>,
        /// The expression that uses it.
        body: Box<Expr>,
    },
    /// The value of the [`ExprKind::Let`] with this number.
    Bound(u32),
    /// The address of an array, used in place of the array. `bytes` is its size, or 0 if unknown.
    Array {
        /// Address of the first element.
        addr: Box<Expr>,
        /// Its size.
        bytes: u64,
    },
    /// The address of a variable that is an object.
    AddrVar(VarId),
    /// The address of an element that is an object. It is the address of a copy, which lasts for
    /// the statement.
    ElemAddr(VarId, Vec<Expr>),
    /// An object as a key: its bytes, with zeros in its padding.
    KeyObject {
        /// Its address.
        addr: Box<Expr>,
        /// True for user memory.
        user: bool,
        /// Its size.
        size: u32,
        /// Its padding.
        padding: Arc<[Padding]>,
    },
    /// The address of a string's bytes. It is the address of a copy, which lasts for the statement.
    StrAddr(Box<Expr>),
    /// An index that faults unless it is below `count`.
    Bounded {
        /// The index.
        index: Box<Expr>,
        /// Number of elements of the array.
        count: i64,
    },
    /// Copies an object. The value is the destination address.
    CopyObject {
        /// Destination.
        dst: Box<Expr>,
        /// Source.
        src: Box<Expr>,
        /// True when the source is in user memory.
        user: bool,
        /// Bytes.
        size: u32,
    },
    /// Allocates, copies or writes memory.
    MemoryCall {
        /// The operation.
        call: MemoryCall,
        /// Arguments, converted to the prototype's types.
        args: Vec<Expr>,
        /// True when the source is in user memory.
        user: bool,
    },
    /// Reads memory, checked.
    Load {
        /// The address.
        addr: Box<Expr>,
        /// 1, 2, 4 or 8.
        size: u8,
        /// True to sign-extend.
        signed: bool,
        /// True for user memory.
        user: bool,
    },
    /// Reads a NUL-terminated string, checked.
    LoadStr {
        /// The address.
        addr: Box<Expr>,
        /// True for user memory.
        user: bool,
        /// Maximum number of bytes.
        max: Option<Box<Expr>>,
    },
    /// Length of a string.
    Strlen(Box<Expr>),
    /// A subroutine call, by the subroutine's name in DIF. Its value is within the expression's
    /// type.
    Call {
        /// The subroutine.
        name: &'static str,
        /// Arguments, converted to the prototype's types. Optional arguments may be missing at the
        /// end.
        args: Vec<Expr>,
        /// True when pointers among the arguments point into user memory.
        user: bool,
    },
    /// Stores a value. The result is the stored value.
    Assign(Place, Box<Expr>),
    /// Deletes an element, or frees a `self->` variable, by assigning the constant 0. The result is
    /// 0 or "".
    Delete(Place),
    /// Reads the old value, evaluates `new` with [`ExprKind::Old`], and stores the result.
    Update {
        /// The changed place.
        place: Place,
        /// The new value, already converted to the place's type.
        new: Box<Expr>,
        /// True when the result is the old value.
        post: bool,
    },
}

/// The origin of a string. It determines how a column stores the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrSource {
    /// A constant.
    Const {
        /// Bytes.
        length: usize,
        /// It has a digit, so it may be a name of a family of processes.
        digits: bool,
        /// It may be in a column of network addresses.
        address: bool,
    },
    /// The module, function or name of the probe, known before the firing.
    ProbeName,
    /// The name of the provider.
    Provider {
        /// It may be of a family of processes.
        family: bool,
    },
    /// `execname`.
    Comm,
    /// The text of a network address, or a text in its place.
    Address,
    /// Anything else.
    Dynamic,
}

impl Expr {
    /// The value of an integer constant.
    pub fn as_const(&self) -> Option<i64> {
        match self.kind {
            ExprKind::Int(v) => Some(v),
            _ => None,
        }
    }

    /// The size in bytes of the array whose address this is.
    pub(crate) fn array_bytes(&self) -> Option<u64> {
        match self.kind {
            ExprKind::Array { bytes, .. } => Some(bytes).filter(|b| *b > 0),
            _ => None,
        }
    }

    /// The origin of this string.
    pub(crate) fn str_source(&self) -> StrSource {
        match &self.kind {
            ExprKind::Str(s) => StrSource::Const {
                length: s.len(),
                digits: s.iter().any(u8::is_ascii_digit),
                address: plane::address::words_of(s).is_some(),
            },
            ExprKind::Call { name: "inet_ntoa" | "inet_ntoa6", .. } => StrSource::Address,
            ExprKind::Cond(_, a, b) => match (a.str_source(), b.str_source()) {
                (StrSource::Address, StrSource::Address | StrSource::Const { address: true, .. })
                | (StrSource::Const { address: true, .. }, StrSource::Address) => StrSource::Address,
                _ => StrSource::Dynamic,
            },
            ExprKind::Builtin(Builtin::Str(StrBuiltin::Execname)) => StrSource::Comm,
            ExprKind::Builtin(Builtin::Str(StrBuiltin::ProbeProv)) => StrSource::Provider { family: false },
            ExprKind::FamilyProbeprov => StrSource::Provider { family: true },
            ExprKind::Builtin(Builtin::Str(_)) => StrSource::ProbeName,
            ExprKind::Let { body, .. } => body.str_source(),
            _ => StrSource::Dynamic,
        }
    }
}

/// Both conditions.
pub(crate) fn and(left: Option<Expr>, right: Option<Expr>, span: Span) -> Option<Expr> {
    match (left, right) {
        (Some(left), Some(right)) => {
            let kind = ExprKind::Logic(Logic::And, Box::new(left), Box::new(right));
            Some(Expr { kind, ty: TypeId::INT, span })
        }
        (left, right) => left.or(right),
    }
}
