//! MIR: eBPF instructions over virtual registers, and the builder that writes them.
//!
//! A [`Func`] is a list of [`Inst`] in layout order. A virtual register [`V`] may be assigned more than once (block
//! parameters become plain moves), labels may be bound anywhere, and a jump may go backwards where the verifier can
//! see the bound (compare-exchange loops, word loops over strings). The decision that shapes it: MIR is *not* SSA.
//! Everything worth optimizing was optimized in DIF, which is; what is left to do here is to find registers, and
//! [`crate::regalloc`] does that from liveness alone. So routines can be written like assembly, without registers.
//!
//! Kernel objects are symbolic ([`MapRef`], [`KsymId`]) and become file descriptors at load, so that code generation needs no
//! kernel and golden tests can print it.
//!
//! ```text
//!  let now = b.call(Helper::KTIME_GET_NS, &[]);        a value in some register
//!  let full = b.label();
//!  b.br(Jmp::Ugt, now, limit, full);                  to `full` when now > limit
//!  b.store(Size::B8, base, 8, now);
//!  b.out_of_line(|b| { b.bind(full); ... b.jmp(done) }) slow paths go behind the function
//! ```

use std::collections::BTreeMap;

use diagnostics::Span;

pub use crate::insn::{Alu, Helper, Jmp, Size};

/// A virtual register: 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct V(pub u32);

/// A place in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(pub u32);

/// An object on the stack of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackSlot(pub u32);

/// BTF id of a kernel variable or function of vmlinux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KsymId(pub u32);

/// True when the operands can change places.
pub(crate) fn commutes(op: Alu) -> bool {
    matches!(op, Alu::Add | Alu::Mul | Alu::And | Alu::Or | Alu::Xor)
}

/// Atomic read-modify-write operations; all but `Xchg` exist without fetch too.
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
    /// A constant; the builder puts what does not fit a sign-extended 32-bit immediate into a register.
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
    /// The one-page BPF ring buffer that wakes the consumer.
    Doorbell,
    /// Global scalars: one element, reached by address.
    Globals,
    /// Task storage of `self->`.
    SelfStore,
    /// Scratch slots.
    Slots,
    /// The stack store.
    Stacks,
    /// Tables of an aggregation, by [`plane::desc::AggId`].
    Agg(u32),
    /// An associative array, by `VarId`.
    Var(u32),
    /// Read-only constants of the session: interned strings.
    Strings,
    /// Read-only table of the program being built: bitmaps, probe ids; one element, reached by address.
    Table(u32),
    /// A program array without a program: see [`crate::program::needs_own_stack`].
    NoProgram,
}

/// A 64-bit constant that only the loader knows, or that does not fit an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    /// A number.
    Int(i64),
    /// A map, as helpers take it.
    Map(MapRef),
    /// Address of a byte of the value of a one-element array map.
    MapValue(MapRef, u32),
    /// Address of a kernel variable, typed by BTF.
    Ksym(KsymId),
}

/// One instruction.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inst {
    /// `dst = constant`; rematerialized rather than spilled.
    Const { dst: V, value: Const },
    /// `dst = src`; with `w32` the upper half becomes 0.
    Mov { dst: V, src: V, w32: bool },
    /// `dst = a op b`; with `w32` on 32 bits, upper half 0.
    Alu { op: Alu, w32: bool, dst: V, a: V, b: Operand },
    /// `dst = -a`.
    Neg { dst: V, a: V },
    /// `dst` = the low `bits` (16, 32, 64) of `a` in big-endian order (a swap on little-endian machines).
    ToBe { bits: u8, dst: V, a: V },
    /// `dst = *(w *)(base + off)`, zero-extended.
    Load { w: Size, dst: V, base: V, off: i16 },
    /// `*(w *)(base + off) = src`.
    Store { w: Size, base: V, off: i16, src: Operand },
    /// `dst = &slot + off`.
    SlotAddr { dst: V, slot: StackSlot, off: i16 },
    /// `dst = *(w *)(slot + off)`.
    SlotLoad { w: Size, dst: V, slot: StackSlot, off: i16 },
    /// `*(w *)(slot + off) = src`.
    SlotStore { w: Size, slot: StackSlot, off: i16, src: Operand },
    /// Atomic on 4 or 8 bytes; `dst` gets the old value when given.
    Atomic { op: AtomicOp, w: Size, dst: Option<V>, base: V, off: i16, src: V },
    /// `dst` = old value; stores `new` when it was `expected`.
    CmpXchg { w: Size, dst: V, base: V, off: i16, expected: V, new: V },
    /// A helper.
    Call { helper: Helper, args: Vec<V>, dst: Option<V> },
    /// A kernel function, by BTF id of vmlinux.
    Kfunc { id: KsymId, args: Vec<V>, dst: Option<V> },
    /// Another function of this program, by name.
    CallSub { name: String, args: Vec<V>, dst: Option<V> },
    /// Address of a function of this program, for helpers that take callbacks.
    FuncAddr { dst: V, name: String },
    /// A conditional jump; with `w32` compares the low halves.
    Br { cond: Jmp, w32: bool, a: V, b: Operand, to: Label },
    /// A jump.
    Jmp { to: Label },
    /// A label stands here.
    Bind { label: Label },
    /// Returns.
    Exit { value: Operand },
}

impl Inst {
    /// The register it assigns.
    pub fn def(&self) -> Option<V> {
        match self {
            Inst::Const { dst, .. }
            | Inst::Mov { dst, .. }
            | Inst::Alu { dst, .. }
            | Inst::Neg { dst, .. }
            | Inst::ToBe { dst, .. }
            | Inst::Load { dst, .. }
            | Inst::SlotAddr { dst, .. }
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

    /// Calls `f` with each register it reads, through which it can also be renamed.
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
            | Inst::SlotLoad { .. }
            | Inst::FuncAddr { .. }
            | Inst::Jmp { .. }
            | Inst::Bind { .. } => {}
        }
    }

    /// The register it assigns, to be renamed.
    pub fn def_mut(&mut self) -> Option<&mut V> {
        match self {
            Inst::Const { dst, .. }
            | Inst::Mov { dst, .. }
            | Inst::Alu { dst, .. }
            | Inst::Neg { dst, .. }
            | Inst::ToBe { dst, .. }
            | Inst::Load { dst, .. }
            | Inst::SlotAddr { dst, .. }
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

    /// True when it can go if nobody wants its result.
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
                | Inst::SlotLoad { .. }
                | Inst::FuncAddr { .. }
        )
    }

    /// True when the caller-saved registers are lost.
    pub fn is_call(&self) -> bool {
        matches!(self, Inst::Call { .. } | Inst::Kfunc { .. } | Inst::CallSub { .. })
    }
}

/// A function: what [`Builder::finish`] gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Func {
    /// For listings and BTF.
    pub name: String,
    /// The registers its arguments arrive in, at most five.
    pub params: Vec<V>,
    /// Instructions in layout order, each with the D text it comes from.
    pub insts: Vec<(Inst, Option<Span>)>,
    /// Registers used.
    pub regs: u32,
    /// Labels used.
    pub labels: u32,
    /// Bytes of each stack object.
    pub slots: Vec<u32>,
    /// Verified on its own (BTF global linkage; scalar arguments only) instead of at each call.
    pub global: bool,
}

type Code = Vec<(Inst, Option<Span>)>;

/// Writes a [`Func`], and the subprograms it calls.
#[derive(Debug, Default)]
pub struct Builder {
    func: Func,
    cold: Vec<Code>,
    span: Option<Span>,
    subs: BTreeMap<String, Option<Func>>,
}

impl Builder {
    /// Starts a function of `params` arguments; [`Builder::param`] gives them.
    pub fn new(name: impl Into<String>, params: u32) -> Self {
        let func =
            Func { name: name.into(), params: (0..params).map(V).collect(), regs: params, ..Func::default() };
        Self { func, ..Self::default() }
    }

    /// The `n`th argument.
    pub fn param(&self, n: usize) -> V {
        self.func.params[n]
    }

    /// The D text the following instructions come from; returns what it was.
    pub fn set_span(&mut self, span: Option<Span>) -> Option<Span> {
        std::mem::replace(&mut self.span, span)
    }

    /// Ends the function: slow paths go to its end. The subprograms it needs come with it.
    pub fn finish(mut self) -> (Func, Vec<Func>) {
        for code in self.cold {
            self.func.insts.extend(code);
        }
        (self.func, self.subs.into_values().flatten().collect())
    }

    /// Instructions so far.
    pub fn len(&self) -> usize {
        self.func.insts.len() + self.cold.iter().map(Vec::len).sum::<usize>()
    }

    /// True when nothing was emitted yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends an instruction.
    pub fn push(&mut self, inst: Inst) {
        self.func.insts.push((inst, self.span));
    }

    /// A new register without a value; every path must [`Builder::set`] it before it is read.
    pub fn var(&mut self) -> V {
        self.func.regs += 1;
        V(self.func.regs - 1)
    }

    /// A new label, to be bound once.
    pub fn label(&mut self) -> Label {
        self.func.labels += 1;
        Label(self.func.labels - 1)
    }

    /// A new stack object; its size is rounded up to 8 bytes and it is aligned to 8.
    pub fn stack(&mut self, bytes: u32) -> StackSlot {
        self.func.slots.push(bytes.div_ceil(8) * 8);
        StackSlot(self.func.slots.len() as u32 - 1)
    }

    /// What `f` emits goes behind the function's end. It must begin with a label and end with a jump or exit.
    pub fn out_of_line<R>(&mut self, f: impl FnOnce(&mut Builder) -> R) -> R {
        let main = std::mem::take(&mut self.func.insts);
        let result = f(self);
        let code = std::mem::replace(&mut self.func.insts, main);
        self.cold.push(code);
        result
    }

    // ---- values

    /// A number in a register.
    pub fn imm(&mut self, value: i64) -> V {
        self.constant(Const::Int(value))
    }

    /// A constant in a register.
    pub fn constant(&mut self, value: Const) -> V {
        let dst = self.var();
        self.push(Inst::Const { dst, value });
        dst
    }

    /// A map, as helpers take it.
    pub fn map(&mut self, map: MapRef) -> V {
        self.constant(Const::Map(map))
    }

    /// Address of byte `off` of the value of a one-element array map.
    pub fn map_value(&mut self, map: MapRef, off: u32) -> V {
        self.constant(Const::MapValue(map, off))
    }

    /// The operand in a register.
    pub fn reg(&mut self, value: impl Into<Operand>) -> V {
        match value.into() {
            Operand::V(v) => v,
            Operand::Imm(i) => self.imm(i),
        }
    }

    fn short(&mut self, value: impl Into<Operand>) -> Operand {
        match value.into() {
            Operand::Imm(i) if i32::try_from(i).is_err() => Operand::V(self.imm(i)),
            other => other,
        }
    }

    /// Assigns `dst`.
    pub fn set(&mut self, dst: V, value: impl Into<Operand>) {
        match value.into() {
            Operand::V(src) => self.push(Inst::Mov { dst, src, w32: false }),
            Operand::Imm(i) => self.push(Inst::Const { dst, value: Const::Int(i) }),
        }
    }

    /// A copy in a new register.
    pub fn copy(&mut self, value: impl Into<Operand>) -> V {
        let dst = self.var();
        self.set(dst, value);
        dst
    }

    /// The low 32 bits, zero-extended.
    pub fn low32(&mut self, src: V) -> V {
        let dst = self.var();
        self.push(Inst::Mov { dst, src, w32: true });
        dst
    }

    /// `a op b`.
    pub fn alu(&mut self, op: Alu, a: V, b: impl Into<Operand>) -> V {
        let b = self.short(b);
        let dst = self.var();
        self.push(Inst::Alu { op, w32: false, dst, a, b });
        dst
    }

    /// `a op b` on 32 bits, zero-extended.
    pub fn alu32(&mut self, op: Alu, a: V, b: impl Into<Operand>) -> V {
        let b = self.short(b);
        let dst = self.var();
        self.push(Inst::Alu { op, w32: true, dst, a, b });
        dst
    }

    /// `dst = dst op b`.
    pub fn update(&mut self, op: Alu, dst: V, b: impl Into<Operand>) {
        let b = self.short(b);
        self.push(Inst::Alu { op, w32: false, dst, a: dst, b });
    }

    /// `a + b`.
    pub fn add(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Add, a, b)
    }

    /// `a - b`.
    pub fn sub(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Sub, a, b)
    }

    /// `a * b`.
    pub fn mul(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Mul, a, b)
    }

    /// `a & b`.
    pub fn and(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::And, a, b)
    }

    /// `a | b`.
    pub fn or(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Or, a, b)
    }

    /// `a ^ b`.
    pub fn xor(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Xor, a, b)
    }

    /// `a << b`.
    pub fn shl(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Lsh, a, b)
    }

    /// `a >> b`, zeros in.
    pub fn shr(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Rsh, a, b)
    }

    /// `a >> b`, sign in.
    pub fn sar(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Arsh, a, b)
    }

    /// `-a`.
    pub fn neg(&mut self, a: V) -> V {
        let dst = self.var();
        self.push(Inst::Neg { dst, a });
        dst
    }

    /// The 64 bits in big-endian order.
    pub fn to_be64(&mut self, a: V) -> V {
        let dst = self.var();
        self.push(Inst::ToBe { bits: 64, dst, a });
        dst
    }

    // ---- memory

    /// `*(w *)(base + off)`, zero-extended.
    pub fn load(&mut self, w: Size, base: V, off: i16) -> V {
        let dst = self.var();
        self.push(Inst::Load { w, dst, base, off });
        dst
    }

    /// `*(w *)(base + off) = src`.
    pub fn store(&mut self, w: Size, base: V, off: i16, src: impl Into<Operand>) {
        let src = self.short(src);
        self.push(Inst::Store { w, base, off, src });
    }

    /// `&slot + off`.
    pub fn slot_addr(&mut self, slot: StackSlot, off: i16) -> V {
        let dst = self.var();
        self.push(Inst::SlotAddr { dst, slot, off });
        dst
    }

    /// `*(w *)(&slot + off)`.
    pub fn slot_load(&mut self, w: Size, slot: StackSlot, off: i16) -> V {
        let dst = self.var();
        self.push(Inst::SlotLoad { w, dst, slot, off });
        dst
    }

    /// `*(w *)(&slot + off) = src`.
    pub fn slot_store(&mut self, w: Size, slot: StackSlot, off: i16, src: impl Into<Operand>) {
        let src = self.short(src);
        self.push(Inst::SlotStore { w, slot, off, src });
    }

    /// Atomic operation without result; `w` is B4 or B8.
    pub fn atomic(&mut self, op: AtomicOp, w: Size, base: V, off: i16, src: impl Into<Operand>) {
        let src = self.reg(src);
        // The machine has no exchange without fetch.
        let dst = (op == AtomicOp::Xchg).then(|| self.var());
        self.push(Inst::Atomic { op, w, dst, base, off, src });
    }

    /// Atomic operation; the old value.
    pub fn atomic_fetch(&mut self, op: AtomicOp, w: Size, base: V, off: i16, src: impl Into<Operand>) -> V {
        let src = self.reg(src);
        let dst = self.var();
        self.push(Inst::Atomic { op, w, dst: Some(dst), base, off, src });
        dst
    }

    /// `fetch_add` without result on 64 bits: counters.
    pub fn atomic_add(&mut self, base: V, off: i16, src: impl Into<Operand>) {
        self.atomic(AtomicOp::Add, Size::B8, base, off, src);
    }

    /// Exchange on 64 bits; the old value.
    pub fn xchg(&mut self, base: V, off: i16, new: impl Into<Operand>) -> V {
        self.atomic_fetch(AtomicOp::Xchg, Size::B8, base, off, new)
    }

    /// Compare-exchange on 64 bits; the old value (equal to `expected` when it was done).
    pub fn cmpxchg(&mut self, base: V, off: i16, expected: impl Into<Operand>, new: impl Into<Operand>) -> V {
        let expected = self.reg(expected);
        let new = self.reg(new);
        let dst = self.var();
        self.push(Inst::CmpXchg { w: Size::B8, dst, base, off, expected, new });
        dst
    }

    // ---- calls

    /// Calls a helper with at most five arguments; its result.
    pub fn call(&mut self, helper: Helper, args: &[V]) -> V {
        let dst = self.var();
        self.push(Inst::Call { helper, args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// Calls a kernel function; its result.
    pub fn kfunc(&mut self, id: KsymId, args: &[V]) -> V {
        let dst = self.var();
        self.push(Inst::Kfunc { id, args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// Calls the subprogram `name`; `body` writes it the first time that it is named in this program. The names and
    /// meanings of subprograms must agree throughout the program.
    pub fn call_sub(&mut self, name: &str, args: &[V], body: impl FnOnce(&mut Builder)) -> V {
        self.define(name, args.len() as u32, false, body);
        let dst = self.var();
        self.push(Inst::CallSub { name: name.to_owned(), args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// Calls a subprogram that [`Builder::define`] writes, sooner or later.
    pub fn call_named(&mut self, name: &str, args: &[V]) -> V {
        let dst = self.var();
        self.push(Inst::CallSub { name: name.to_owned(), args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// As [`Builder::call_sub`], for a function that the verifier looks at once for all its calls; its arguments are
    /// scalars.
    pub fn call_global(&mut self, name: &str, args: &[V], body: impl FnOnce(&mut Builder)) -> V {
        self.define(name, args.len() as u32, true, body);
        let dst = self.var();
        self.push(Inst::CallSub { name: name.to_owned(), args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// The address of the subprogram `name` of `params` arguments, for `bpf_loop` and its like.
    pub fn sub_addr(&mut self, name: &str, params: u32, body: impl FnOnce(&mut Builder)) -> V {
        self.define(name, params, false, body);
        let dst = self.var();
        self.push(Inst::FuncAddr { dst, name: name.to_owned() });
        dst
    }

    /// Writes the subprogram `name`, unless there is one already.
    pub fn define(&mut self, name: &str, params: u32, global: bool, body: impl FnOnce(&mut Builder)) {
        if self.subs.contains_key(name) {
            return;
        }
        self.subs.insert(name.to_owned(), None);
        let mut sub = Builder::new(name, params);
        sub.func.global = global;
        sub.subs = std::mem::take(&mut self.subs);
        body(&mut sub);
        self.subs = std::mem::take(&mut sub.subs);
        let (func, _) = sub.finish();
        self.subs.insert(name.to_owned(), Some(func));
    }

    // ---- control

    /// `label` stands here.
    pub fn bind(&mut self, label: Label) {
        self.push(Inst::Bind { label });
    }

    /// Jumps.
    pub fn jmp(&mut self, to: Label) {
        self.push(Inst::Jmp { to });
    }

    /// Jumps when `a cond b`.
    pub fn br(&mut self, cond: Jmp, a: V, b: impl Into<Operand>, to: Label) {
        let b = self.short(b);
        self.push(Inst::Br { cond, w32: false, a, b, to });
    }

    /// Jumps when the low halves compare so.
    pub fn br32(&mut self, cond: Jmp, a: V, b: impl Into<Operand>, to: Label) {
        let b = self.short(b);
        self.push(Inst::Br { cond, w32: true, a, b, to });
    }

    /// Returns.
    pub fn exit(&mut self, value: impl Into<Operand>) {
        let value = self.short(value);
        self.push(Inst::Exit { value });
    }
}
