//! The form itself: modules, functions, blocks, operations.
//!
//! Semantics that both executors share:
//! - Integer values are 64 bits; arithmetic wraps. The static type of D matters only where the front end emits
//!   [`Op::Ext`] (casts, stores, records) and in the signedness of `Div`, `Rem`, `Shr` and [`Op::Cmp`].
//! - Shift counts are taken modulo 64. `Sdiv`/`Srem`: `i64::MIN / -1` wraps to `i64::MIN`, remainder 0.
//! - A zero divisor faults [`FaultKind::DivZero`] (value 0). A load that fails faults [`FaultKind::BadAddr`] with the
//!   address.
//! - A string value is a sequence of at most `strsize - 1` non-NUL bytes, or NULL: what a subroutine gives that found
//!   nothing. NULL is assigned, passed on and compared (it equals ""); any other use of it faults
//!   [`FaultKind::BadAddr`] with 0 ([`Op::for_each_text`]). A variable that was never assigned is "".
//! - A fault ends the function: the record is discarded, nothing after it happens, and what happened to variables and
//!   aggregations stays. The fault's *action* is the instruction's [`InstData::action`] (0: predicate), its *offset*
//!   the instruction's position in block order.
//! - A counted drop (no room in ring, table, variable space) is not a fault. A full ring at [`Op::Reserve`] ends the
//!   function before anything happened; any other drop skips only that operation (a dropped load reads 0 or "").

pub use arith::{BinOp, Cond, UnOp};
use diagnostics::Span;
pub use plane::desc::{AggDesc, AggFunc, AggId, Datum, FaultKind, Field, RecordDesc};

pub use crate::subr::Subr;

/// An SSA value of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A block of a function; blocks are ordered so that every edge goes forward. Block 0 is the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(pub u32);

/// An interned constant string of the module; 0 is "".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(pub u32);

/// A variable of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);

/// Where a pointer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Kernel memory: checked reads.
    Kernel,
    /// Memory of the current process: checked user reads.
    User,
    /// Memory of this firing (`alloca`, `copyin`): an offset, bounds-checked.
    Scratch,
    /// Storage of a D variable: an offset, bounds-checked.
    Static,
    /// Not known before run time: kernel, scratch or static, by the address ([`crate::memory`]).
    Unknown,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// A 64-bit integer.
    Int,
    /// A 64-bit address.
    Ptr(Space),
    /// A string.
    Str,
}

/// Integers a firing can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntBuiltin {
    /// `arg0` … `arg9`, raw; those after them up to [`ARGS`] are only reached by `args[]`.
    Arg(u8),
    /// Process id as the tracer's pid namespace sees it.
    Pid,
    /// Parent's process id, likewise.
    Ppid,
    /// Thread id, likewise.
    Tid,
    /// Real user id.
    Uid,
    /// Real group id.
    Gid,
    /// CPU of the firing.
    Cpu,
    /// Nanoseconds, monotonic; constant within a clause.
    Timestamp,
    /// Nanoseconds since 1970; constant within a clause.
    Walltimestamp,
    /// Error of the system call that returns, else 0.
    Errno,
    /// Id of the enabled probe.
    Epid,
    /// Id of the probe, as `dtrace -l` shows it.
    ProbeId,
    /// Kernel frames.
    StackDepth,
    /// User frames.
    UstackDepth,
    /// Where the function that the probe is in returns to, in the kernel; 0 where there is no such frame.
    Caller,
    /// Likewise in the process.
    Ucaller,
    /// Context level: 0 thread, 1 soft interrupt, 2 hard interrupt, 3 NMI.
    Ipl,
    /// Nanoseconds that the thread has run, less those in the session's programs; constant within a firing.
    Vtimestamp,
    /// 1 where the current thread has a user half, 0 in a thread of the kernel.
    UserThread,
    /// Saved user register `uregs[n]`, below [`UREGS`].
    Ureg(u8),
    /// Address of the kernel's description of the current thread.
    CurThread,
}

/// Arguments that a probe has at most.
pub const ARGS: u8 = 32;

/// How many `uregs[]` there are: the saved registers in the kernel's order, then DS ES FS GS and the trap's number.
pub const UREGS: u8 = 26;

/// Strings a firing can be asked for.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StrBuiltin {
    /// At most 15 characters.
    Execname,
    ProbeProv,
    ProbeMod,
    ProbeFunc,
    ProbeName,
}

/// One operation. Those that give a value say its type; the rest give none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Int: a constant.
    Const(i64),
    /// Str: a constant.
    StrConst(StrId),
    /// Str: NULL.
    Null,
    /// Int (or Ptr when the left operand is one and the operation is Add or Sub).
    Bin(BinOp, Value, Value),
    /// Int.
    Un(UnOp, Value),
    /// Int 0 or 1; operands Int or Ptr.
    Cmp(Cond, Value, Value),
    /// Int 0 or 1; operands Str. Ordered conditions are bytewise unsigned (`Slt` and `Ult` mean the same).
    StrCmp(Cond, Value, Value),
    /// Int: the low `bits` (8, 16, 32) of the operand, sign- or zero-extended.
    Ext {
        /// 8, 16 or 32.
        bits: u8,
        /// Sign-extend.
        signed: bool,
        /// The operand, Int or Ptr.
        value: Value,
    },
    /// Ptr(space) from an Int or Ptr: no code, a change of view.
    AsPtr(Space, Value),
    /// Int from a Ptr: no code, a change of view.
    AsInt(Value),
    /// Int: a builtin.
    Builtin(IntBuiltin),
    /// Str: a builtin.
    BuiltinStr(StrBuiltin),
    /// Int: a checked load of `size` bytes from a pointer.
    Load {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Sign-extend.
        signed: bool,
        /// The address.
        addr: Value,
    },
    /// Str: NUL-terminated bytes at a pointer (kernel or user), truncated at `strsize - 1` and, where given, at `max`
    /// bytes. Faults BadAddr.
    LoadStr {
        /// The address.
        addr: Value,
        /// Longest length without NUL, at most `strsize - 1` matters.
        max: Option<Value>,
    },
    /// Int: length without NUL.
    StrLen(Value),
    /// Int or Str: a subroutine; the table in [`crate::subr`] says what it takes, gives and does.
    Call(Subr, Vec<Value>),
    /// Int or Str by the variable's type: a scalar variable.
    LoadVar(VarId),
    /// Ptr(Static): the address of a variable that is an object.
    AddrVar(VarId),
    /// Stores the low `size` bytes of an Int at an address of D's own memory. Faults BadAddr, for kernel memory too.
    Store {
        /// 1, 2, 4 or 8.
        size: u8,
        /// The address.
        addr: Value,
        /// What is stored.
        value: Value,
    },
    /// Ptr(Scratch): so many bytes of scratch memory, aligned to 8, their content undefined. Faults NoScratch.
    Alloca(Value),
    /// Copies bytes from anywhere to D's own memory. A length of 0 copies and checks nothing. Faults BadAddr with `dst`,
    /// then with `src`, before anything is changed. Unless `dst` is a Ptr(Scratch), the length is a constant; where it is one,
    /// and the bytes overlap, what they become is undefined.
    Copy {
        /// Where to.
        dst: Value,
        /// Where from.
        src: Value,
        /// Bytes.
        len: Value,
    },
    /// Ptr(Scratch): a copy of an element that is an object, at offset `at` of the scratch memory; zeros where there is no
    /// element.
    CopyElem {
        /// The array.
        var: VarId,
        /// The key.
        key: Vec<Value>,
        /// A multiple of 8.
        at: u32,
    },
    /// Ptr(Scratch): a copy of the object at an address, at offset `at` of the scratch memory, with zeros up to the next
    /// word: what a `Bytes` column of a key takes. Faults BadAddr.
    CopyObj {
        /// Where the object is.
        addr: Value,
        /// Bytes, not 0.
        size: u32,
        /// A multiple of 8.
        at: u32,
    },
    /// Stores the object at an address as an element. Faults BadAddr.
    StoreObj {
        /// The array.
        var: VarId,
        /// The key.
        key: Vec<Value>,
        /// Where the object is.
        addr: Value,
    },
    /// Ptr(Scratch): the bytes of a string, padded with NULs to strsize, at offset `at` of the scratch memory.
    StrAddr {
        /// The string.
        value: Value,
        /// A multiple of 8.
        at: u32,
    },
    /// Writes a `Bytes` field from memory. Faults BadAddr.
    RecordBytes {
        /// The field.
        field: Field,
        /// Where from.
        addr: Value,
        /// So many bytes are read, and the rest is 0; all where there is none, or it is 0 or more than the field has.
        len: Option<Value>,
    },
    /// Writes bytes to memory of the process. Destructive. Faults BadAddr with `src`, then with `addr`.
    CopyOut {
        /// Where from.
        src: Value,
        /// Where to: an address in the process.
        addr: Value,
        /// Bytes; more than there is scratch memory faults NoScratch.
        len: Value,
    },
    /// Writes a string with its NUL, at most `max` bytes, to memory of the process. Destructive. Faults BadAddr.
    CopyOutStr {
        /// The string.
        value: Value,
        /// Where to: an address in the process.
        addr: Value,
        /// Bytes at most.
        max: Value,
    },
    /// Stores a scalar variable; the front end has already extended integers to the variable's type.
    StoreVar(VarId, Value),
    /// Int or Str: an element of an associative array; missing reads 0 or "".
    LoadElem(VarId, Vec<Value>),
    /// Stores an element.
    StoreElem(VarId, Vec<Value>, Value),
    /// Deletes an element (assignment of the constant 0).
    DeleteElem(VarId, Vec<Value>),
    /// Int: takes the stack of this firing into the stack store; its id. 0 when it could not be taken.
    Stack {
        /// User frames instead of kernel frames.
        user: bool,
        /// At most so many.
        frames: u32,
    },
    /// Reserves the clause's record. At most one, before any `Record`; a full ring ends the function (counted).
    Reserve,
    /// Writes a field of the reserved record. The value's type fits the datum: Int for `Int`, `KernelStack`,
    /// `UserStack`, `KernelAddr`; Str for `Str` and `Interned` (then the value is a constant or a probe name).
    Record(Field, Value),
    /// Writes a `UserAddr` field: address and process id.
    RecordUserAddr(Field, Value, Value),
    /// Commits the record.
    Commit,
    /// Aggregates `args` under `key` (one value a key column; a `UserAddr` column takes two: address, process id).
    Aggregate {
        /// The aggregation.
        agg: AggId,
        /// Key values in column order.
        key: Vec<Value>,
        /// Arguments of the function: none for count, the value, then the increment (quantize family).
        args: Vec<Value>,
    },
    /// `exit(status)`: activity goes to DRAINING with this status; the first one wins.
    Exit(Value),
    /// Faults ILLOP when the Int operand is 0; for checks that the front end adds.
    FaultUnless(FaultKind, Value, Value),
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// To a block, with its arguments.
    Jump(Block, Vec<Value>),
    /// To `then` when the Int or Ptr is not 0.
    Branch {
        /// The condition.
        cond: Value,
        /// Where to when it is not 0.
        then: (Block, Vec<Value>),
        /// Where to when it is 0.
        other: (Block, Vec<Value>),
    },
    /// The end of the clause: committed, or nothing was reserved.
    Return,
    /// The predicate was false.
    PredicateFalse,
}

/// An operation in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstData {
    /// What it does.
    pub op: Op,
    /// The value it gives.
    pub result: Option<Value>,
    /// The D text it comes from.
    pub span: Option<Span>,
    /// Index of the action it belongs to, from 1; 0 is the predicate.
    pub action: u16,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockData {
    /// Values given by those who jump here.
    pub params: Vec<Value>,
    /// In order.
    pub insts: Vec<InstData>,
    /// The end.
    pub term: Term,
}

/// One clause's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// For listings: `clause_0`.
    pub name: String,
    /// In topological order; the first is the entry.
    pub blocks: Vec<BlockData>,
    /// Type of each value, indexed by [`Value`].
    pub values: Vec<Ty>,
}

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One for the session.
    Global,
    /// One a thread and context level.
    Thread,
    /// One a firing, zero at its start.
    Clause,
}

/// Type of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VarTy {
    /// An integer or pointer of `size` bytes; kept in 64 bits, already extended.
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

/// A variable of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarDesc {
    /// Name without `self->`.
    pub name: String,
    /// Where it lives.
    pub scope: Scope,
    /// What it holds.
    pub ty: VarTy,
    /// Columns of an associative array's key; `None` for a scalar. Strings in keys are `Str` (or `Interned` where every
    /// use in the session is a constant or probe name). A struct is `Bytes`; its value is an [`Op::CopyObj`] of that size,
    /// and counts as it is when the key is used.
    pub key: Option<Vec<Field>>,
    /// Bytes of the key, a multiple of 8.
    pub key_size: u32,
}

/// A clause of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Its code.
    pub func: Function,
    /// What it records, if anything.
    pub record: Option<RecordDesc>,
    /// The whole clause in the source.
    pub span: Option<Span>,
}

/// Everything a session runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Clauses in program order.
    pub clauses: Vec<Clause>,
    /// Interned constants by [`StrId`]; entry 0 is "". Without NUL, shorter than `strsize`.
    pub strings: Vec<Vec<u8>>,
    /// Variables by [`VarId`].
    pub vars: Vec<VarDesc>,
    /// Aggregations by [`AggId`].
    pub aggs: Vec<AggDesc>,
    /// Bytes of a string with its NUL; a multiple of 8.
    pub strsize: u32,
    /// Bytes of scratch memory that a clause may take by [`Op::Alloca`]; a multiple of 8.
    pub scratchsize: u32,
}
