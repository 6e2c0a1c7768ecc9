//! Lowers memory accesses: address spaces of pointers, objects and scalars in memory, scratch
//! memory.

use check::program::{Builtin, Expr, ExprKind, Form, IntBuiltin, Memory, MemoryCall};
use dif::ir::{BinOp, FaultKind, Space, Ty, Value, VarId};
use types::Padding;

use crate::Lowering;

/// A copy of an array element that is an object, in scratch memory. After a change, the copy is
/// stored back into the array.
pub(crate) struct ElementCopy {
    var: VarId,
    key: Vec<Value>,
    at: Value,
}

/// A scalar in memory, with its address lowered to a value.
pub(crate) struct MemoryScalar {
    addr: Value,
    form: Form,
    element: Option<ElementCopy>,
}

/// True for an address that is always in kernel memory: members of the current thread and of the
/// probe's arguments, and what these point to.
fn is_kernel_address(addr: &Expr) -> bool {
    match &addr.kind {
        ExprKind::Builtin(Builtin::Int(IntBuiltin::CurThread)) | ExprKind::KernelArg(_) => true,
        ExprKind::Int(n) => *n < 0,
        ExprKind::Arith(_, base, _) => is_kernel_address(base),
        ExprKind::Array { addr, .. } | ExprKind::Load { addr, user: false, .. } => is_kernel_address(addr),
        _ => false,
    }
}

impl Lowering<'_> {
    /// A value as a pointer. Its address space is as exact as known at compile time.
    pub(crate) fn pointer(&mut self, e: &Expr, user: bool, value: Value) -> Value {
        let space = match (user, self.b.ty(value)) {
            // A copy of a process's memory, whose type is that of the process.
            (true, Ty::Ptr(known @ (Space::Static | Space::Scratch))) => known,
            (true, _) => Space::User,
            (false, Ty::Ptr(known @ (Space::Static | Space::Scratch | Space::Kernel))) => known,
            (false, _) if is_kernel_address(e) => Space::Kernel,
            (false, _) => Space::Unknown,
        };
        self.b.as_ptr(space, value)
    }

    pub(crate) fn load(&mut self, e: &Expr, user: bool, size: u8, signed: bool) -> Value {
        let value = self.value(e);
        let addr = self.pointer(e, user, value);
        self.b.load(size, signed, addr)
    }

    /// Allocates scratch memory for a copy that lasts until the end of the statement. Returns its
    /// offset.
    fn alloc_scratch(&mut self, bytes: u32) -> u32 {
        let at = self.scratch;
        self.scratch = at.saturating_add(bytes.div_ceil(8) * 8);
        at
    }

    pub(crate) fn object_size(&self, var: VarId) -> u32 {
        self.module.object_size(var).unwrap_or(0)
    }

    fn copy_element(&mut self, var: VarId, keys: &[Expr]) -> ElementCopy {
        let key = self.array_key(var, keys);
        let alloc_scratch = self.alloc_scratch(self.object_size(var));
        let at = self.b.copy_elem(var, key.clone(), alloc_scratch);
        ElementCopy { var, key, at }
    }

    pub(crate) fn elem_addr(&mut self, var: VarId, keys: &[Expr]) -> Value {
        self.copy_element(var, keys).at
    }

    pub(crate) fn str_addr(&mut self, e: &Expr) -> Value {
        let value = self.value(e);
        let at = self.alloc_scratch(self.module.string_storage());
        self.b.str_addr(value, at)
    }

    /// A copy of an object, with zeros in its padding.
    pub(crate) fn key_object(&mut self, e: &Expr, user: bool, size: u32, padding: &[Padding]) -> Value {
        let value = self.value(e);
        let from = self.pointer(e, user, value);
        let at = self.alloc_scratch(size);
        let copy = self.b.copy_obj(from, size, at);
        let mut rest = padding;
        while let Some((first, tail)) = rest.split_first() {
            let by = self.b.int(i64::from(first.offset));
            let place = self.b.bin(BinOp::Add, copy, by);
            if first.member_bits != 0 {
                let bits = self.b.load(1, false, place);
                let mask = self.b.int(i64::from(first.member_bits));
                let bits = self.b.bin(BinOp::And, bits, mask);
                self.b.store(1, place, bits);
                rest = tail;
                continue;
            }
            // Clears as many consecutive aligned bytes as possible at once.
            let row = (first.offset..)
                .zip(rest)
                .take_while(|(at, p)| p.offset == *at && p.member_bits == 0)
                .count();
            let fits = |n: usize| n <= row && first.offset.is_multiple_of(n as u32);
            let count = [8, 4, 2].into_iter().find(|n| fits(*n)).unwrap_or(1);
            let zero = self.b.int(0);
            self.b.store(count as u8, place, zero);
            rest = rest.get(count..).unwrap_or_default();
        }
        copy
    }

    pub(crate) fn checked_index(&mut self, index: &Expr, count: i64) -> Value {
        let index = self.value(index);
        let end = self.b.int(count);
        let within = self.b.cmp(dif::ir::Cond::Ult, index, end);
        self.b.fault_unless(FaultKind::BadIndex, within, index);
        index
    }

    /// The address of a write, and the element copy that contains it, if any.
    fn write_address(&mut self, e: &Expr) -> (Value, Option<ElementCopy>) {
        match &e.kind {
            ExprKind::ElemAddr(var, keys) => {
                let copy_element = self.copy_element(VarId(var.0), keys);
                (copy_element.at, Some(copy_element))
            }
            ExprKind::Arith(op, base, by) => {
                let (base, copy_element) = self.write_address(base);
                let by = self.value(by);
                (self.b.bin(*op, base, by), copy_element)
            }
            ExprKind::Array { addr, .. } => self.write_address(addr),
            _ => (self.value(e), None),
        }
    }

    /// Stores a changed copy back into its array.
    fn write_back(&mut self, copy_element: Option<ElementCopy>) {
        if let Some(ElementCopy { var, key, at }) = copy_element {
            self.b.store_obj(var, key, at);
        }
    }

    pub(crate) fn memory_place(&mut self, m: &Memory) -> MemoryScalar {
        let (value, element) = self.write_address(&m.addr);
        let addr = self.pointer(&m.addr, false, value);
        MemoryScalar { addr, form: m.form, element }
    }

    pub(crate) fn read_memory(&mut self, place: &MemoryScalar) -> Value {
        match place.form {
            Form::Int { size, signed } => self.b.load(size, signed, place.addr),
            Form::Bits { size, shift, bits, signed } => {
                let word = self.b.load(size, false, place.addr);
                self.field(word, shift, bits, signed)
            }
            Form::Str => self.b.load_str(place.addr, None),
        }
    }

    /// Extracts a bit-field from a word and extends it.
    fn field(&mut self, word: Value, shift: u8, bits: u8, signed: bool) -> Value {
        let up = self.b.int(64 - i64::from(shift) - i64::from(bits));
        let up = self.b.bin(BinOp::Shl, word, up);
        let down = self.b.int(64 - i64::from(bits));
        self.b.bin(if signed { BinOp::Ashr } else { BinOp::Lshr }, up, down)
    }

    /// Stores a value. Returns the value that the place then has.
    pub(crate) fn store_memory(&mut self, place: MemoryScalar, value: Value) -> Value {
        let stored = match place.form {
            Form::Int { size, .. } => {
                self.b.store(size, place.addr, value);
                value
            }
            Form::Bits { size, shift, bits, signed } => {
                let ones = if bits >= 64 { -1 } else { (1i64 << bits) - 1 };
                let old = self.b.load(size, false, place.addr);
                let others = self.b.int(!(ones << shift));
                let others = self.b.bin(BinOp::And, old, others);
                let mask = self.b.int(ones);
                let new = self.b.bin(BinOp::And, value, mask);
                let by = self.b.int(i64::from(shift));
                let new = self.b.bin(BinOp::Shl, new, by);
                let word = self.b.bin(BinOp::Or, others, new);
                self.b.store(size, place.addr, word);
                self.field(value, 0, bits, signed)
            }
            Form::Str => {
                let at = self.alloc_scratch(self.module.string_storage());
                let from = self.b.str_addr(value, at);
                let len = self.b.int(i64::from(self.module.strsize));
                self.b.copy(place.addr, from, len);
                value
            }
        };
        self.write_back(place.element);
        stored
    }

    /// Copies an object. Returns the address of the destination.
    pub(crate) fn copy_object(&mut self, dst: &Expr, src: &Expr, user: bool, size: u32) -> Value {
        // An entire element is stored directly, without a copy.
        if let ExprKind::ElemAddr(var, keys) = &dst.kind {
            let key = self.array_key(VarId(var.0), keys);
            let value = self.value(src);
            let from = self.pointer(src, user, value);
            self.b.store_obj(VarId(var.0), key, from);
            return self.b.as_int(from);
        }
        let (value, element) = self.write_address(dst);
        let to = self.pointer(dst, false, value);
        let value = self.value(src);
        let from = self.pointer(src, user, value);
        let len = self.b.int(i64::from(size));
        self.b.copy(to, from, len);
        self.write_back(element);
        to
    }

    pub(crate) fn memory_call(&mut self, call: MemoryCall, args: &[Expr], user: bool) -> Value {
        let values: Vec<Value> = args.iter().map(|a| self.value(a)).collect();
        let (&[a, ref rest @ ..], [first, ..]) = (&values[..], args) else { return self.b.int(0) };
        let (b, c) = (rest.first().copied().unwrap_or(a), rest.get(1).copied().unwrap_or(a));
        match call {
            MemoryCall::Alloca => return self.b.alloca(a),
            MemoryCall::Copyin => {
                let from = self.b.as_ptr(Space::User, a);
                let to = self.b.alloca(b);
                self.b.copy(to, from, b);
                return to;
            }
            MemoryCall::Bcopy => {
                let from = self.pointer(first, user, a);
                let to = self.b.as_ptr(Space::Scratch, b);
                self.b.copy(to, from, c);
            }
            MemoryCall::Copyinto => {
                let from = self.b.as_ptr(Space::User, a);
                let to = self.b.as_ptr(Space::Scratch, c);
                self.b.copy(to, from, b);
            }
            MemoryCall::Copyout => {
                let from = self.pointer(first, user, a);
                self.b.copy_out(from, b, c);
            }
            MemoryCall::Copyoutstr => self.b.copy_out_str(a, b, c),
        }
        self.b.int(0)
    }
}
