//! MIR: eBPF instructions over virtual registers, and the builder that writes them.
//!
//! A [`Func`] is a list of [`Inst`] in layout order. A virtual register [`V`] may be assigned more
//! than once, since block parameters become plain moves. Labels may be bound anywhere. A jump may
//! go backwards where the verifier can see the bound (compare-exchange loops, word loops over
//! strings).
//!
//! The decision that shapes MIR: it is *not* SSA. DIF is SSA, and everything worth optimizing was
//! optimized there. The remaining task is to assign registers, and [`crate::regalloc`] does that
//! from liveness alone. Routines can therefore be written like assembly, without naming machine
//! registers.
//!
//! Kernel objects are symbolic ([`MapRef`], [`KsymId`]) and become file descriptors at load. Code
//! generation therefore needs no kernel, and golden tests can print the code.
//!
//! ```text
//!  let now = b.call(Helper::KTIME_GET_NS, &[]);        a value in some register
//!  let full = b.label();
//!  b.br(Jmp::Ugt, now, limit, full);                  to `full` when now > limit
//!  b.store(Size::B8, base, 8, now);
//!  b.out_of_line(|b| { b.bind(full); ... b.jmp(done) }) slow paths go behind the function
//! ```

mod build;

use diagnostics::Span;

pub use build::Builder;

pub use bpf_sys::insn::{Alu, Helper, Jmp, Size};
pub use bpf_sys::load::Param;

/// A virtual register: 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct V(pub u32);

/// A jump target in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(pub u32);

/// An object on the stack of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackSlot(pub u32);

/// BTF id of a kernel variable or function of vmlinux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KsymId(pub u32);

/// True when the operation is commutative.
pub(crate) fn commutes(op: Alu) -> bool {
    matches!(op, Alu::Add | Alu::Mul | Alu::And | Alu::Or | Alu::Xor)
}

/// Atomic read-modify-write operations. All but `Xchg` also exist without fetch.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    Add,
    And,
    Or,
    Xor,
    Xchg,
}

/// A register or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    V(V),
    /// A constant. The builder puts it into a register when it does not fit a sign-extended 32-bit
    /// immediate.
    Imm(i64),
}

impl From<V> for Operand {
    fn from(v: V) -> Self {
        Operand::V(v)
    }
}

macro_rules! operand_from {
    ($($t:ty)*) => { $(impl From<$t> for Operand {
        fn from(i: $t) -> Self {
            Operand::Imm(i as i64)
        }
    })* };
}
operand_from!(i64 i32 u32 u64 u16 u8);

/// A map of the session, resolved to a file descriptor at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MapRef {
    /// The control page: one element, reached by address.
    Control,
    /// Per-CPU control elements.
    PerCpu,
    /// The rings.
    Rings,
    /// The control words of speculations: one element, reached by address.
    SpeculationControl,
    /// The rings of speculations.
    SpeculationRings,
    /// The BPF ring buffer of one page that wakes the consumer.
    Doorbell,
    /// Global scalars: one element, reached by address.
    Globals,
    /// Task storage of `self->`.
    SelfStore,
    /// Scratch slots.
    Slots,
    /// The first side of the stack store.
    StackSide,
    /// The stack store: a map of the side in use.
    Stacks,
    /// Tables of an aggregation, by [`plane::desc::AggId`].
    Agg(u32),
    /// An associative array, by `VarId`.
    Var(u32),
    /// Associative arrays in one map of maps, by the `VarId` of the first.
    Arrays(u32),
    /// Task storage of the CPU-time accounts of `vtimestamp`.
    Vtime,
    /// Nodes of the elements of a `self->` array, by `VarId`.
    Nodes(u32),
    /// Task storage of the heads of a `self->` array that was added to a running session, by
    /// `VarId`.
    Heads(u32),
    /// The set of processes: see [`plane::processes`].
    Processes,
    /// Read-only constants of the session: interned strings.
    Strings,
    /// Read-only table of the program being built: bitmaps, probe ids; one element, reached by
    /// address.
    Table(u32),
    /// The probe table: see [`plane::probe_table`].
    Probes,
    /// The table of names: see [`plane::names`].
    Names,
    /// The table of addresses of the functions between a tracepoint and a program: see
    /// [`crate::routines::tracer_functions`].
    TracerFunctions,
    /// Results of searches in that table.
    TracerCache,
    /// Rows of the kernel's own tables that were found: see [`crate::routines::KERNEL_ROWS`].
    KernelRows,
    /// An empty program array: see `must_avoid_private_stack` in `bpf-runtime`.
    EmptyProgArray,
    /// The address spaces whose stacks can be walked: see [`plane::unwind`]; one element, reached
    /// by address.
    UnwindDirectory,
    /// A chunk of the tables of files, which [`MapRef::UnwindChunks`] begins with.
    UnwindChunk,
    /// The chunks of the tables of files.
    UnwindChunks,
    /// Files by device and inode: see [`plane::unwind`].
    UnwindFiles,
    /// Files that programs have met and that are not known.
    UnwindUnknown,
    /// The rows of tables that each CPU remembers: see [`plane::unwind`].
    UnwindFound,
    /// The BPF ring buffer of one page in which programs ask for tables.
    UnwindRequests,
    /// Where code objects of language runtimes are in the store of names, by their content: see
    /// [`plane::calls`].
    RuntimeCodes,
    /// The frames of language runtimes that each CPU remembers.
    RuntimeFound,
    /// What code objects of language runtimes are called; one element, reached by address.
    RuntimeNames,
    /// Counters of the program being built, a word for each CPU: see
    /// [`crate::routines::count_served`].
    Served,
}

/// A 64-bit constant that does not fit an immediate, or that only the loader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    /// A number.
    Int(i64),
    /// A map, as an argument of a helper.
    Map(MapRef),
    /// Address of a byte of the value of a one-element array map.
    MapValue(MapRef, u32),
    /// Address of a kernel variable, typed by BTF.
    Ksym(KsymId),
    /// The number of this copy of the program, where one copy is loaded for each probe.
    Copy,
}

/// One instruction.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inst {
    /// `dst = constant`. The register allocator repeats it instead of spilling `dst`.
    Const { dst: V, value: Const },
    /// `dst = src`; with `w32` the upper half becomes 0.
    Mov { dst: V, src: V, w32: bool },
    /// `dst = a op b`; with `w32` on 32 bits, upper half 0.
    Alu { op: Alu, w32: bool, dst: V, a: V, b: Operand },
    /// `dst = -a`.
    Neg { dst: V, a: V },
    /// `dst` = the low `bits` (16, 32, 64) of `a` in big-endian order. That is a swap on
    /// little-endian machines.
    ToBe { bits: u8, dst: V, a: V },
    /// `dst = *(w *)(base + off)`, zero-extended.
    Load { w: Size, dst: V, base: V, off: i16 },
    /// `*(w *)(base + off) = src`.
    Store { w: Size, base: V, off: i16, src: Operand },
    /// `dst = &slot + off`.
    SlotAddr { dst: V, slot: StackSlot, off: i16 },
    /// `dst` = the frame pointer of this function.
    FramePointer { dst: V },
    /// `dst = *(w *)(slot + off)`.
    SlotLoad { w: Size, dst: V, slot: StackSlot, off: i16 },
    /// `*(w *)(slot + off) = src`.
    SlotStore { w: Size, slot: StackSlot, off: i16, src: Operand },
    /// Atomic operation on 4 or 8 bytes. `dst`, when given, gets the old value.
    Atomic { op: AtomicOp, w: Size, dst: Option<V>, base: V, off: i16, src: V },
    /// `dst` = old value; stores `new` when it was `expected`.
    CmpXchg { w: Size, dst: V, base: V, off: i16, expected: V, new: V },
    /// Calls a helper.
    Call { helper: Helper, args: Vec<V>, dst: Option<V> },
    /// Calls a kernel function, by BTF id of vmlinux.
    Kfunc { id: KsymId, args: Vec<V>, dst: Option<V> },
    /// Calls another function of this program, by name.
    CallSub { name: String, args: Vec<V>, dst: Option<V> },
    /// Address of a function of this program, for helpers with callbacks.
    FuncAddr { dst: V, name: String },
    /// A conditional jump. With `w32` it compares the low halves.
    Br { cond: Jmp, w32: bool, a: V, b: Operand, to: Label },
    /// A jump.
    Jmp { to: Label },
    /// Binds a label to this position.
    Bind { label: Label },
    /// Returns.
    Exit { value: Operand },
}

impl Inst {
    /// The register that the instruction assigns.
    pub fn def(&self) -> Option<V> {
        match self {
            Inst::Const { dst, .. }
            | Inst::Mov { dst, .. }
            | Inst::Alu { dst, .. }
            | Inst::Neg { dst, .. }
            | Inst::ToBe { dst, .. }
            | Inst::Load { dst, .. }
            | Inst::SlotAddr { dst, .. }
            | Inst::FramePointer { dst }
            | Inst::SlotLoad { dst, .. }
            | Inst::CmpXchg { dst, .. }
            | Inst::FuncAddr { dst, .. } => Some(*dst),
            Inst::Atomic { dst, .. }
            | Inst::Call { dst, .. }
            | Inst::Kfunc { dst, .. }
            | Inst::CallSub { dst, .. } => *dst,
            _ => None,
        }
    }

    /// Calls `f` with each register that the instruction reads. `f` may rename it.
    pub fn uses_mut(&mut self, mut f: impl FnMut(&mut V)) {
        fn op(o: &mut Operand, f: &mut impl FnMut(&mut V)) {
            if let Operand::V(v) = o {
                f(v);
            }
        }
        match self {
            Inst::Mov { src, .. } => f(src),
            Inst::Alu { a, b, .. } | Inst::Br { a, b, .. } => {
                f(a);
                op(b, &mut f);
            }
            Inst::Neg { a, .. } | Inst::ToBe { a, .. } => f(a),
            Inst::Load { base, .. } => f(base),
            Inst::Store { base, src, .. } => {
                f(base);
                op(src, &mut f);
            }
            Inst::SlotStore { src, .. } => op(src, &mut f),
            Inst::Atomic { base, src, .. } => {
                f(base);
                f(src);
            }
            Inst::CmpXchg { base, expected, new, .. } => {
                f(base);
                f(expected);
                f(new);
            }
            Inst::Call { args, .. } | Inst::Kfunc { args, .. } | Inst::CallSub { args, .. } => {
                args.iter_mut().for_each(f);
            }
            Inst::Exit { value } => op(value, &mut f),
            Inst::Const { .. }
            | Inst::SlotAddr { .. }
            | Inst::FramePointer { .. }
            | Inst::SlotLoad { .. }
            | Inst::FuncAddr { .. }
            | Inst::Jmp { .. }
            | Inst::Bind { .. } => {}
        }
    }

    /// The register that the instruction assigns, to be renamed.
    pub fn def_mut(&mut self) -> Option<&mut V> {
        match self {
            Inst::Const { dst, .. }
            | Inst::Mov { dst, .. }
            | Inst::Alu { dst, .. }
            | Inst::Neg { dst, .. }
            | Inst::ToBe { dst, .. }
            | Inst::Load { dst, .. }
            | Inst::SlotAddr { dst, .. }
            | Inst::FramePointer { dst }
            | Inst::SlotLoad { dst, .. }
            | Inst::CmpXchg { dst, .. }
            | Inst::FuncAddr { dst, .. } => Some(dst),
            Inst::Atomic { dst, .. }
            | Inst::Call { dst, .. }
            | Inst::Kfunc { dst, .. }
            | Inst::CallSub { dst, .. } => dst.as_mut(),
            _ => None,
        }
    }

    /// True when the instruction can be removed if its result is not read.
    pub fn is_pure(&self) -> bool {
        matches!(
            self,
            Inst::Const { .. }
                | Inst::Mov { .. }
                | Inst::Alu { .. }
                | Inst::Neg { .. }
                | Inst::ToBe { .. }
                | Inst::Load { .. }
                | Inst::SlotAddr { .. }
                | Inst::FramePointer { .. }
                | Inst::SlotLoad { .. }
                | Inst::FuncAddr { .. }
        )
    }

    /// True when the instruction clobbers the caller-saved registers.
    pub fn is_call(&self) -> bool {
        matches!(self, Inst::Call { .. } | Inst::Kfunc { .. } | Inst::CallSub { .. })
    }
}

/// An argument for a function that is verified on its own.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A number.
    Word(V),
    /// The address of so many bytes that may be read and written, in a map or on the stack.
    Memory(V, u32),
}

/// A function: what [`Builder::finish`] gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Func {
    /// The name in listings and BTF.
    pub name: String,
    /// The registers of the parameters, at most five.
    pub params: Vec<V>,
    /// The types of the parameters.
    pub param_types: Vec<Param>,
    /// Instructions in layout order, each with the D text it comes from.
    pub insts: Vec<(Inst, Option<Span>)>,
    /// Registers used.
    pub regs: u32,
    /// Labels used.
    pub labels: u32,
    /// Bytes of each stack object.
    pub slots: Vec<u32>,
    /// Verified on its own (BTF global linkage) instead of at each call.
    pub global: bool,
}
