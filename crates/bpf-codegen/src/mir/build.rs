//! The builder: writes a [`Func`] and the subprograms it calls.

use std::collections::BTreeMap;

use diagnostics::Span;

use super::{
    Alu, Arg, AtomicOp, Const, Func, Helper, Inst, Jmp, KsymId, Label, MapRef, Operand, Param, Size,
    StackSlot, V,
};
use crate::arch::Machine;

type Code = Vec<(Inst, Option<Span>)>;

/// Builds a [`Func`] and the subprograms that it calls.
#[derive(Debug, Default)]
pub struct Builder {
    func: Func,
    cold: Vec<Code>,
    span: Option<Span>,
    subs: BTreeMap<String, Option<Func>>,
    machine: &'static Machine,
}

impl Builder {
    /// Starts a function of `params` parameters, which [`Builder::param`] returns.
    pub fn new(name: impl Into<String>, params: u32) -> Self {
        let func = Func {
            name: name.into(),
            params: (0..params).map(V).collect(),
            param_types: vec![Param::Word; params as usize],
            regs: params,
            ..Func::default()
        };
        Self { func, ..Self::default() }
    }

    /// The function is for this machine, and not for the one that runs this.
    pub fn for_machine(self, machine: &'static Machine) -> Self {
        Self { machine, ..self }
    }

    /// The machine that the function is for.
    pub fn machine(&self) -> &'static Machine {
        self.machine
    }

    /// The `n`th parameter.
    pub fn param(&self, n: usize) -> V {
        self.func.params[n]
    }

    /// Sets the D text that the following instructions come from. Returns the previous one.
    pub fn set_span(&mut self, span: Option<Span>) -> Option<Span> {
        std::mem::replace(&mut self.span, span)
    }

    /// Ends the function. Slow paths are placed at its end. Returns the function and its
    /// subprograms.
    pub fn finish(mut self) -> (Func, Vec<Func>) {
        for code in self.cold {
            self.func.insts.extend(code);
        }
        (self.func, self.subs.into_values().flatten().collect())
    }

    /// Number of instructions so far.
    pub fn len(&self) -> usize {
        self.func.insts.len() + self.cold.iter().map(Vec::len).sum::<usize>()
    }

    /// True when no instruction was emitted yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends an instruction.
    ///
    /// Not inlined, and neither is what the functions below have in common: they are called in
    /// thousands of places, and were a tenth of the program.
    #[inline(never)]
    pub fn push(&mut self, inst: Inst) {
        self.func.insts.push((inst, self.span));
    }

    /// A new register without a value. Every path must [`Builder::set`] it before reading it.
    pub fn var(&mut self) -> V {
        self.func.regs += 1;
        V(self.func.regs - 1)
    }

    /// A new label, to be bound once.
    pub fn label(&mut self) -> Label {
        self.func.labels += 1;
        Label(self.func.labels - 1)
    }

    /// New labels.
    pub fn labels<const N: usize>(&mut self) -> [Label; N] {
        [(); N].map(|()| self.label())
    }

    /// A new stack object; its size is rounded up to 8 bytes and it is aligned to 8.
    pub fn stack(&mut self, bytes: u32) -> StackSlot {
        self.func.slots.push(bytes.div_ceil(8) * 8);
        StackSlot(self.func.slots.len() as u32 - 1)
    }

    /// Places what `f` emits behind the function's end. That code must begin with a label and end
    /// with a jump or exit.
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
    #[inline(never)]
    pub fn constant(&mut self, value: Const) -> V {
        let dst = self.var();
        self.push(Inst::Const { dst, value });
        dst
    }

    /// A map, as an argument of a helper.
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

    fn short(&mut self, value: Operand) -> Operand {
        match value {
            Operand::Imm(i) if i32::try_from(i).is_err() => Operand::V(self.imm(i)),
            other => other,
        }
    }

    /// Assigns `dst`.
    pub fn set(&mut self, dst: V, value: impl Into<Operand>) {
        self.push_set(dst, value.into());
    }

    #[inline(never)]
    fn push_set(&mut self, dst: V, value: Operand) {
        match value {
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
        self.push_alu(op, false, a, b.into())
    }

    #[inline(never)]
    fn push_alu(&mut self, op: Alu, w32: bool, a: V, b: Operand) -> V {
        let b = self.short(b);
        let dst = self.var();
        self.push(Inst::Alu { op, w32, dst, a, b });
        dst
    }

    /// `a op b` on 32 bits, zero-extended.
    pub fn alu32(&mut self, op: Alu, a: V, b: impl Into<Operand>) -> V {
        self.push_alu(op, true, a, b.into())
    }

    /// `dst = dst op b`.
    pub fn update(&mut self, op: Alu, dst: V, b: impl Into<Operand>) {
        self.push_update(op, dst, b.into());
    }

    #[inline(never)]
    fn push_update(&mut self, op: Alu, dst: V, b: Operand) {
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

    /// Logical `a >> b`.
    pub fn shr(&mut self, a: V, b: impl Into<Operand>) -> V {
        self.alu(Alu::Rsh, a, b)
    }

    /// Arithmetic `a >> b`.
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
    #[inline(never)]
    pub fn load(&mut self, w: Size, base: V, off: i16) -> V {
        let dst = self.var();
        self.push(Inst::Load { w, dst, base, off });
        dst
    }

    /// `*(w *)(base + off) = src`.
    pub fn store(&mut self, w: Size, base: V, off: i16, src: impl Into<Operand>) {
        self.push_store(w, base, off, src.into());
    }

    #[inline(never)]
    fn push_store(&mut self, w: Size, base: V, off: i16, src: Operand) {
        let src = self.short(src);
        self.push(Inst::Store { w, base, off, src });
    }

    /// `&slot + off`.
    #[inline(never)]
    pub fn slot_addr(&mut self, slot: StackSlot, off: i16) -> V {
        let dst = self.var();
        self.push(Inst::SlotAddr { dst, slot, off });
        dst
    }

    /// The frame pointer of this function. Stored to memory and loaded again, it is a number.
    pub fn frame_pointer(&mut self) -> V {
        let dst = self.var();
        self.push(Inst::FramePointer { dst });
        dst
    }

    /// `*(w *)(&slot + off)`.
    #[inline(never)]
    pub fn slot_load(&mut self, w: Size, slot: StackSlot, off: i16) -> V {
        let dst = self.var();
        self.push(Inst::SlotLoad { w, dst, slot, off });
        dst
    }

    /// `*(w *)(&slot + off) = src`.
    pub fn slot_store(&mut self, w: Size, slot: StackSlot, off: i16, src: impl Into<Operand>) {
        self.push_slot_store(w, slot, off, src.into());
    }

    #[inline(never)]
    fn push_slot_store(&mut self, w: Size, slot: StackSlot, off: i16, src: Operand) {
        let src = self.short(src);
        self.push(Inst::SlotStore { w, slot, off, src });
    }

    /// An atomic operation without result. `w` is B4 or B8.
    pub fn atomic(&mut self, op: AtomicOp, w: Size, base: V, off: i16, src: impl Into<Operand>) {
        let src = self.reg(src);
        // The machine has no exchange without fetch.
        let dst = (op == AtomicOp::Xchg).then(|| self.var());
        self.push(Inst::Atomic { op, w, dst, base, off, src });
    }

    /// An atomic operation that returns the old value.
    pub fn atomic_fetch(&mut self, op: AtomicOp, w: Size, base: V, off: i16, src: impl Into<Operand>) -> V {
        let src = self.reg(src);
        let dst = self.var();
        self.push(Inst::Atomic { op, w, dst: Some(dst), base, off, src });
        dst
    }

    /// `fetch_add` without result on 64 bits, for counters.
    pub fn atomic_add(&mut self, base: V, off: i16, src: impl Into<Operand>) {
        self.atomic(AtomicOp::Add, Size::B8, base, off, src);
    }

    /// Exchange on 64 bits. Returns the old value.
    pub fn xchg(&mut self, base: V, off: i16, new: impl Into<Operand>) -> V {
        self.atomic_fetch(AtomicOp::Xchg, Size::B8, base, off, new)
    }

    /// Compare-exchange on 64 bits. Returns the old value, which equals `expected` on success.
    pub fn cmpxchg(&mut self, base: V, off: i16, expected: impl Into<Operand>, new: impl Into<Operand>) -> V {
        let expected = self.reg(expected);
        let new = self.reg(new);
        let dst = self.var();
        self.push(Inst::CmpXchg { w: Size::B8, dst, base, off, expected, new });
        dst
    }

    // ---- calls

    /// Calls a helper with at most five arguments. Returns its result.
    #[inline(never)]
    pub fn call(&mut self, helper: Helper, args: &[V]) -> V {
        let dst = self.var();
        self.push(Inst::Call { helper, args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// Calls a kernel function. Returns its result.
    #[inline(never)]
    pub fn kfunc(&mut self, id: KsymId, args: &[V]) -> V {
        let dst = self.var();
        self.push(Inst::Kfunc { id, args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// Calls the subprogram `name`. `body` builds it when the program has no subprogram of this
    /// name yet, so a name must have one meaning throughout the program.
    pub fn call_sub(&mut self, name: &str, args: &[V], body: impl FnOnce(&mut Builder)) -> V {
        self.define(name, &vec![Param::Word; args.len()], false, body);
        self.call_named(name, args)
    }

    /// Calls a subprogram that [`Builder::define`] builds before or after this call.
    #[inline(never)]
    pub fn call_named(&mut self, name: &str, args: &[V]) -> V {
        let dst = self.var();
        self.push(Inst::CallSub { name: name.to_owned(), args: args.to_vec(), dst: Some(dst) });
        dst
    }

    /// Like [`Builder::call_sub`], for a global function: the verifier checks it once for all
    /// calls. Inside, the verifier knows of the parameters only what [`Arg`] says. The caller knows
    /// of the result only that it is a number.
    pub fn call_global(&mut self, name: &str, args: &[Arg], body: impl FnOnce(&mut Builder)) -> V {
        let param_types = args.iter().map(|a| match a {
            Arg::Word(_) => Param::Word,
            Arg::Memory(_, bytes) => Param::Memory(*bytes),
        });
        self.define(name, &param_types.collect::<Vec<_>>(), true, body);
        let args = args.iter().map(|a| match a {
            Arg::Word(v) | Arg::Memory(v, _) => *v,
        });
        self.call_named(name, &args.collect::<Vec<V>>())
    }

    /// The address of the subprogram `name` of `params` parameters, for helpers with callbacks such
    /// as `bpf_loop`.
    pub fn sub_addr(&mut self, name: &str, params: u32, body: impl FnOnce(&mut Builder)) -> V {
        self.define(name, &vec![Param::Word; params as usize], false, body);
        let dst = self.var();
        self.push(Inst::FuncAddr { dst, name: name.to_owned() });
        dst
    }

    /// Builds the subprogram `name`, unless it exists.
    pub fn define(
        &mut self,
        name: &str,
        param_types: &[Param],
        global: bool,
        body: impl FnOnce(&mut Builder),
    ) {
        let Some((mut sub, null)) = self.begin(name, param_types, global) else { return };
        body(&mut sub);
        self.end(name, sub, null);
    }

    /// The builder of a subprogram, unless it exists, and the label for an address that is null.
    #[inline(never)]
    fn begin(&mut self, name: &str, param_types: &[Param], global: bool) -> Option<(Builder, Label)> {
        if self.subs.contains_key(name) {
            return None;
        }
        self.subs.insert(name.to_owned(), None);
        let mut sub = Builder::new(name, param_types.len() as u32).for_machine(self.machine);
        sub.func.global = global;
        sub.func.param_types = param_types.to_vec();
        sub.subs = std::mem::take(&mut self.subs);
        // No caller passes a null address, but the verifier requires the test.
        let null = sub.label();
        let addresses =
            param_types.iter().zip(sub.func.params.clone()).filter(|(ty, _)| matches!(ty, Param::Memory(_)));
        for (_, v) in addresses {
            sub.br(Jmp::Eq, v, 0, null);
        }
        Some((sub, null))
    }

    /// Ends a subprogram.
    #[inline(never)]
    fn end(&mut self, name: &str, mut sub: Builder, null: Label) {
        sub.bind(null);
        sub.exit(0);
        self.subs = std::mem::take(&mut sub.subs);
        let (func, _) = sub.finish();
        self.subs.insert(name.to_owned(), Some(func));
    }

    // ---- control

    /// Binds `label` to this position.
    #[inline(never)]
    pub fn bind(&mut self, label: Label) {
        self.push(Inst::Bind { label });
    }

    /// Jumps.
    #[inline(never)]
    pub fn jmp(&mut self, to: Label) {
        self.push(Inst::Jmp { to });
    }

    #[inline(never)]
    fn push_br(&mut self, cond: Jmp, w32: bool, a: V, b: Operand, to: Label) {
        let b = self.short(b);
        self.push(Inst::Br { cond, w32, a, b, to });
    }

    /// Jumps when `a cond b`.
    pub fn br(&mut self, cond: Jmp, a: V, b: impl Into<Operand>, to: Label) {
        self.push_br(cond, false, a, b.into(), to);
    }

    /// Jumps when `a cond b` holds for the low halves.
    pub fn br32(&mut self, cond: Jmp, a: V, b: impl Into<Operand>, to: Label) {
        self.push_br(cond, true, a, b.into(), to);
    }

    /// Runs the code of `body` when `a cond b`.
    pub fn if_(&mut self, cond: Jmp, a: V, b: impl Into<Operand>, body: impl FnOnce(&mut Builder)) {
        let end = self.label();
        self.br_unless(cond, a, b, end);
        body(self);
        self.bind(end);
    }

    /// Runs the code of `then` when `a cond b`, else that of `or`.
    pub fn if_else(
        &mut self,
        cond: Jmp,
        a: V,
        b: impl Into<Operand>,
        then: impl FnOnce(&mut Builder),
        or: impl FnOnce(&mut Builder),
    ) {
        let (other, end) = (self.label(), self.label());
        self.br_unless(cond, a, b, other);
        then(self);
        self.jmp(end);
        self.bind(other);
        or(self);
        self.bind(end);
    }

    /// Jumps to the label of the arm whose number is `value`, if there is one.
    pub fn match_<T: Into<Operand>>(&mut self, value: V, arms: impl IntoIterator<Item = (T, Label)>) {
        for (number, to) in arms {
            self.br(Jmp::Eq, value, number, to);
        }
    }

    /// Emits a loop: a jump to the label that `body` is given begins the next turn, and the end of
    /// its code leaves the loop. The verifier must see that it ends.
    pub fn loop_(&mut self, body: impl FnOnce(&mut Builder, Label)) {
        let again = self.label();
        self.bind(again);
        body(self, again);
    }

    /// Runs the code of `body` so many times, at least once. It may jump out of the loop.
    pub fn repeat(&mut self, turns: impl Into<i64>, body: impl FnOnce(&mut Builder)) {
        let left = self.copy(turns.into());
        self.loop_(|b, again| {
            body(b);
            b.update(Alu::Sub, left, 1);
            b.br(Jmp::Ne, left, 0, again);
        });
    }

    /// Jumps unless `a cond b`.
    fn br_unless(&mut self, cond: Jmp, a: V, b: impl Into<Operand>, to: Label) {
        let Some(opposite) = cond.negate() else {
            // The machine has no test that all of these bits are 0.
            let then = self.label();
            self.br(cond, a, b, then);
            self.jmp(to);
            self.bind(then);
            return;
        };
        self.br(opposite, a, b, to);
    }

    /// Returns.
    pub fn exit(&mut self, value: impl Into<Operand>) {
        let value = self.short(value.into());
        self.push(Inst::Exit { value });
    }
}
