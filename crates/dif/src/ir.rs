//! The form itself: modules, functions, blocks, operations.
//!
//! Semantics that both executors share:
//! - Integer values have 64 bits, and arithmetic wraps. The static type of D matters only in
//!   [`Op::Ext`], which the front end emits (casts, stores in memory, records), and in the
//!   signedness of `Div`, `Rem`, `Shr` and [`Op::Cmp`].
//! - Shift counts are taken modulo 64. `Sdiv`/`Srem`: `i64::MIN / -1` wraps to `i64::MIN`,
//!   remainder 0.
//! - A zero divisor faults with [`FaultKind::DivZero`] (value 0). A failed load faults with
//!   [`FaultKind::BadAddr`] (value: the address).
//! - A string value is a sequence of at most `strsize - 1` non-NUL bytes, or NULL. A subroutine
//!   that finds nothing returns NULL. NULL can be assigned, passed to a block and compared (it
//!   equals ""). Any other use faults with [`FaultKind::BadAddr`] (value 0); see
//!   [`Op::for_each_text`]. A variable that was never assigned is "".
//! - A fault ends the function: the record is discarded, and nothing after the fault happens.
//!   Earlier changes to variables and aggregations remain. The fault's *action* is the
//!   instruction's [`InstData::action`] (0: predicate), its *offset* the instruction's position in
//!   block order.
//! - A counted drop (no space in a ring, table or variable storage) is not a fault. A full ring at
//!   [`Op::Reserve`] ends the function before it has any effect, and a full buffer at
//!   [`Op::Speculate`] ends it before anything that follows. Any other drop skips only that
//!   operation (a dropped load reads 0 or "").

pub use arith::{BinOp, Cond, UnOp};
use diagnostics::Span;
pub use plane::builtin::{ARGS, IntBuiltin, StrBuiltin, UREGS};
pub use plane::desc::{AggDesc, AggFunc, AggId, Datum, FaultKind, Field, ProcessFields, RecordDesc};

pub use crate::subr::Subr;

/// An SSA value of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A block of a function. Blocks are ordered so that every edge goes forward. Block 0 is the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(pub u32);

/// An interned constant string of the module. String 0 is "".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(pub u32);

/// A variable of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);

/// The address space of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Kernel memory. Reads are checked.
    Kernel,
    /// Memory of the current process. Reads are checked.
    User,
    /// Memory of this firing (`alloca`, `copyin`). An access is an offset, checked against its
    /// bounds.
    Scratch,
    /// Storage of a D variable. An access is an offset, checked against its bounds.
    Static,
    /// Known only at run time: kernel, scratch or static, decoded from the address
    /// ([`crate::memory`]).
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

/// One operation. The comment of an operation with a result begins with the result's type.
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
    /// Int 0 or 1; operands Str. Ordered conditions are bytewise unsigned (`Slt` and `Ult` mean the
    /// same).
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
    /// Ptr(space) from an Int or Ptr. Emits no code, only reinterprets.
    AsPtr(Space, Value),
    /// Int from a Ptr. Emits no code, only reinterprets.
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
    /// Str: NUL-terminated bytes at a pointer (kernel or user), truncated at `strsize - 1` bytes
    /// and, if given, at `max` bytes. Faults BadAddr.
    LoadStr {
        /// The address.
        addr: Value,
        /// Maximum length without NUL. Values above `strsize - 1` have no effect.
        max: Option<Value>,
    },
    /// Int: length without NUL.
    StrLen(Value),
    /// Int or Str: a subroutine call. The table in [`crate::subr`] describes parameters, result and
    /// effects.
    Call(Subr, Vec<Value>),
    /// Int or Str by the variable's type: a scalar variable.
    LoadVar(VarId),
    /// Ptr(Static): the address of a variable that is an object.
    AddrVar(VarId),
    /// Stores the low `size` bytes of an Int at an address of D memory. Faults BadAddr for any
    /// other address.
    Store {
        /// 1, 2, 4 or 8.
        size: u8,
        /// The address.
        addr: Value,
        /// What is stored.
        value: Value,
    },
    /// Ptr(Scratch): this number of bytes of scratch memory, aligned to 8, with undefined content.
    /// Faults NoScratch.
    Alloca(Value),
    /// Copies bytes from any readable address to D memory. A length of 0 copies and checks nothing.
    /// Faults BadAddr with `dst`, then with `src`, before anything is changed. Unless `dst` is a
    /// Ptr(Scratch), the length is a constant. If `dst` is one and the ranges overlap, the copied
    /// bytes are undefined.
    Copy {
        /// Destination.
        dst: Value,
        /// Source.
        src: Value,
        /// Bytes.
        len: Value,
    },
    /// Ptr(Scratch): a copy of an element that is an object, at offset `at` of the scratch memory.
    /// The copy is all zeros when there is no such element.
    CopyElem {
        /// The array.
        var: VarId,
        /// The key.
        key: Vec<Value>,
        /// A multiple of 8.
        at: u32,
    },
    /// Ptr(Scratch): a copy of the object at an address, at offset `at` of the scratch memory, with
    /// zeros up to the next word. A `Bytes` column of a key requires such a copy. Faults BadAddr.
    CopyObj {
        /// Address of the object.
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
        /// Address of the object.
        addr: Value,
    },
    /// Ptr(Scratch): the bytes of a string, padded with NULs to strsize, at offset `at` of the
    /// scratch memory.
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
        /// Source.
        addr: Value,
        /// Number of bytes to read; the rest of the field is 0. `None`, 0, and numbers above the
        /// field's size read the whole field.
        len: Option<Value>,
    },
    /// Writes a `Bytes` field from the socket buffer of the kernel at an address, an Int or Ptr, in
    /// the layout of [`plane::packet`]. Records the bytes up to the first that cannot be read.
    /// Faults BadAddr with the address when the socket buffer itself cannot be read.
    RecordPacket {
        /// The field.
        field: Field,
        /// Address of the `struct sk_buff`.
        skb: Value,
    },
    /// Writes bytes to memory of the current process. Destructive. Faults BadAddr with `src`, then
    /// with `addr`.
    CopyOut {
        /// Source.
        src: Value,
        /// Destination: an address in the process.
        addr: Value,
        /// Number of bytes. Faults NoScratch when it exceeds the scratch memory.
        len: Value,
    },
    /// Writes a string with its NUL, at most `max` bytes, to memory of the current process.
    /// Destructive. Faults BadAddr.
    CopyOutStr {
        /// The string.
        value: Value,
        /// Destination: an address in the process.
        addr: Value,
        /// Maximum number of bytes.
        max: Value,
    },
    /// Stores a scalar variable: of an integer all 64 bits.
    StoreVar(VarId, Value),
    /// Int or Str: an element of an associative array. A missing element reads 0 or "".
    LoadElem(VarId, Vec<Value>),
    /// Stores an element.
    StoreElem(VarId, Vec<Value>, Value),
    /// Int: adds to an element of 64 bits, atomically: two that add at once both count, and each
    /// gets the sum with its own. A missing element is 0. A dropped addition reads 0.
    AddElem(VarId, Vec<Value>, Value),
    /// Deletes an element (assignment of the constant 0).
    DeleteElem(VarId, Vec<Value>),
    /// Int: captures the stack into the stack store. The result is its id, or 0 when it could not
    /// be captured.
    Stack {
        /// User frames instead of kernel frames.
        user: bool,
        /// Maximum number of frames.
        frames: u32,
        /// The frames of an interpreter too, as many again. Only with `user`.
        calls: bool,
    },
    /// Reserves the clause's record. At most once, before any `Record`. A full ring ends the
    /// function (a counted drop).
    Reserve,
    /// Directs the rest of the clause to the speculation with this id. If the clause has a record,
    /// it is reserved in the buffer of the speculation; at most once, instead of `Reserve`. Ends
    /// the function if the id is 0 or its speculation is not active, or if the buffer is full (a
    /// counted drop). Faults IllegalOp with an id that does not exist.
    Speculate(Value),
    /// Writes a field of the reserved record. The value's type must fit the datum: Int for `Int`,
    /// `KernelStack`, `UserStack`, `KernelAddr`; Str for `Str` and `Interned` (for the latter, a
    /// constant or a probe name).
    Record(Field, Value),
    /// Writes a field of two values: address and process id of a `UserAddr`, string and process id
    /// of a `Provider`.
    RecordPair(Field, Value, Value),
    /// Commits the record.
    Commit,
    /// Aggregates `args` under `key` (one value per key column; a column of two values takes two:
    /// address, process id).
    Aggregate {
        /// The aggregation.
        agg: AggId,
        /// Key values in column order.
        key: Vec<Value>,
        /// Arguments of the function: none for count; otherwise the value, then the increment
        /// (quantize family).
        args: Vec<Value>,
    },
    /// `exit(status)`: changes activity to DRAINING with this status. The first `exit` wins; in END
    /// it replaces the status.
    Exit(Value),
    /// `snap(reason)`: requests a snapshot of the rings. The record with the reason is committed
    /// before.
    Snap,
    /// Faults with this kind when the first Int operand is 0. The second operand is the fault's
    /// value. The front end adds such checks.
    FaultUnless(FaultKind, Value, Value),
}

/// The terminator of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// Jumps to a block, with its arguments.
    Jump(Block, Vec<Value>),
    /// Jumps to `then` when the Int or Ptr is not 0.
    Branch {
        /// The condition.
        cond: Value,
        /// Target when it is not 0.
        then: (Block, Vec<Value>),
        /// Target when it is 0.
        other: (Block, Vec<Value>),
    },
    /// Ends the clause. The record is committed, or none was reserved.
    Return,
    /// The predicate was false.
    PredicateFalse,
}

/// An instruction: an operation with its result and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstData {
    /// The operation.
    pub op: Op,
    /// The result.
    pub result: Option<Value>,
    /// The D text it was compiled from.
    pub span: Option<Span>,
    /// Index of its action, from 1. 0 is the predicate.
    pub action: u16,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockData {
    /// Parameters: each jump to the block passes their values.
    pub params: Vec<Value>,
    /// Instructions, in order.
    pub insts: Vec<InstData>,
    /// The terminator.
    pub term: Term,
}

/// The code of one clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name in listings: `clause_0`.
    pub name: String,
    /// Blocks in topological order. The first is the entry.
    pub blocks: Vec<BlockData>,
    /// Type of each value, indexed by [`Value`].
    pub values: Vec<Ty>,
}

/// The scope of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One instance per session.
    Global,
    /// One instance per thread and context level.
    Thread,
    /// One instance per firing. Zero at its start.
    Clause,
}

/// Type of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VarTy {
    /// 64 bits: an integer or pointer, whatever the size of its type.
    Int,
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
    /// Name without `self->`. That of a variable of a library's clauses begins with `%`.
    pub name: String,
    /// Its scope.
    pub scope: Scope,
    /// The type of its value.
    pub ty: VarTy,
    /// Columns of an associative array's key; `None` for a scalar. Strings in keys are `Str`, or
    /// `Interned` when every use in the session is a constant or probe name. A struct is `Bytes`:
    /// its value is an [`Op::CopyObj`] of that size, and the bytes at the time of the key's use
    /// count.
    pub key: Option<Vec<Field>>,
    /// Bytes of the key, a multiple of 8.
    pub key_size: u32,
}

impl VarDesc {
    /// True of a string that is NULL until it is assigned: a thread-local one, or an element of an
    /// array. They have no memory before; global and clause-local strings have, and begin empty.
    pub fn begins_null(&self) -> bool {
        self.ty == VarTy::Str && (self.scope == Scope::Thread || self.key.is_some())
    }
}

/// A clause of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Its code.
    pub func: Function,
    /// The layout of its record, if it records.
    pub record: Option<RecordDesc>,
    /// The whole clause in the source.
    pub span: Option<Span>,
}

/// All code and tables of a session.
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
    /// Bytes of a string with its NUL. In memory it takes [`Module::string_storage`].
    pub strsize: u32,
    /// Bytes of scratch memory that a clause may allocate by [`Op::Alloca`]; a multiple of 8.
    pub scratchsize: u32,
}
