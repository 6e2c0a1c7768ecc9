//! Generates objects, scratch memory and pointers.
//!
//! The generated code reads only memory with defined content: it fills `alloca()` memory at once,
//! and its offsets are either within the object or so far outside that the access must fault. The
//! variables named [`KEPT`] lead to memory that an earlier clause of the firing has taken, or
//! nowhere.

use super::body::Body;
use crate::ir::{BinOp, Space, Ty, Value, VarId};

/// A pointer to D memory, with the number of bytes from there that have defined content.
#[derive(Clone, Copy)]
pub(super) struct DPtr {
    value: Value,
    size: u32,
}

/// The variable that clauses leave addresses of scratch memory in.
pub(super) const KEPT: &str = "kept";

/// Bytes that an address in [`KEPT`] leads to.
const KEPT_SIZE: u32 = 8;

impl Body<'_> {
    fn kept(&mut self) -> Option<VarId> {
        let all = (0u32..).map(VarId).zip(&self.module.vars);
        let kept: Vec<VarId> = all.filter(|(_, v)| v.name == KEPT).map(|(id, _)| id).collect();
        self.rng.pick(&kept)
    }

    fn object(&mut self, array: bool) -> Option<(VarId, u32)> {
        let module = self.module;
        let fits: Vec<(VarId, u32)> = (0u32..)
            .map(VarId)
            .zip(&module.vars)
            .filter(|(_, v)| v.key.is_some() == array)
            .filter_map(|(id, _)| Some((id, module.object_size(id)?)))
            .collect();
        self.rng.pick(&fits)
    }

    /// A pointer to at least `least` bytes, if one is in scope or can be made.
    fn d_ptr(&mut self, least: u32) -> Option<DPtr> {
        if self.rng.one_in(2) {
            let fits: Vec<DPtr> = self.d_ptrs.iter().copied().filter(|o| o.size >= least).collect();
            if let Some(d_ptr) = self.rng.pick(&fits) {
                return Some(d_ptr);
            }
        }
        let d_ptr = match self.kept() {
            Some(kept) if self.rng.one_in(6) => {
                let bits = self.b.load_var(kept, Ty::Int);
                DPtr { value: self.b.as_ptr(Space::Unknown, bits), size: KEPT_SIZE }
            }
            _ => {
                let (var, size) = self.object(false)?;
                DPtr { value: self.b.addr_var(var), size }
            }
        };
        let size = d_ptr.size;
        self.d_ptrs.push(d_ptr);
        (size >= least).then_some(d_ptr)
    }

    /// An address of `size` bytes within an object, or sometimes far outside. Uses every form of
    /// address computation.
    fn within(&mut self, d_ptr: DPtr, size: u32) -> Value {
        let far = self.config.faults && self.rng.one_in(12);
        let slack = (d_ptr.size - size) as usize;
        let at = if far { 1 << (20 + self.rng.below(10)) } else { self.rng.below(slack + 1) as i64 };
        let mut pointer = d_ptr.value;
        if self.rng.one_in(3) {
            let bits = self.b.as_int(pointer);
            pointer = self.b.as_ptr(Space::Unknown, bits);
        }
        let offset = if self.rng.one_in(2) || far {
            self.b.int(at)
        } else {
            let any = self.int(1);
            let masked = self.b.int((slack + 1).next_power_of_two() as i64 / 2);
            let limit = self.b.int(slack as i64 + 1);
            let small = self.b.bin(BinOp::And, any, masked);
            self.b.bin(BinOp::Urem, small, limit)
        };
        self.b.bin(BinOp::Add, pointer, offset)
    }

    pub(super) fn object_load(&mut self) -> Option<Value> {
        let size = [1u8, 2, 4, 8][self.rng.below(4)];
        let d_ptr = self.d_ptr(u32::from(size))?;
        let addr = self.within(d_ptr, u32::from(size));
        let signed = self.rng.one_in(2);
        Some(self.b.load(size, signed, addr))
    }

    pub(super) fn object_string(&mut self) -> Option<Value> {
        let d_ptr = self.d_ptr(1)?;
        let addr = self.within(d_ptr, 1);
        // The bytes that follow may have no NUL.
        let max = self.b.int(0);
        let max = if self.rng.one_in(2) { max } else { self.b.int(1) };
        Some(self.b.load_str(addr, Some(max)))
    }

    /// The address of bytes for a field of a record.
    pub(super) fn object_bytes(&mut self, size: u32) -> Option<Value> {
        let d_ptr = self.d_ptr(size)?;
        Some(self.within(d_ptr, size))
    }

    /// A copy of an object for a key. Some bytes are cleared, as padding is.
    pub(super) fn key_object(&mut self, size: u32) -> Value {
        let from = match self.d_ptr(size) {
            Some(d_ptr) if !self.rng.one_in(4) => self.within(d_ptr, size),
            _ => match self.address(size.into()) {
                Some((pointer, _)) => pointer,
                None => {
                    let null = self.b.int(0);
                    self.b.as_ptr(Space::Kernel, null)
                }
            },
        };
        let at = self.fixed;
        self.fixed += size.div_ceil(8) * 8;
        let copy = self.b.copy_obj(from, size, at);
        for _ in 0..self.rng.below(3) {
            let hole = self.rng.below(size as usize) as i64;
            let (hole, zero) = (self.b.int(hole), self.b.int(0));
            let place = self.b.bin(BinOp::Add, copy, hole);
            self.b.store(1, place, zero);
        }
        copy
    }

    pub(super) fn memory_statement(&mut self) {
        match self.rng.below(7) {
            0..=1 => {
                let size = [1u8, 2, 4, 8][self.rng.below(4)];
                let Some(d_ptr) = self.d_ptr(u32::from(size)) else { return };
                let addr = self.within(d_ptr, u32::from(size));
                let value = self.int(2);
                self.b.store(size, addr, value);
            }
            2 => self.allocate(),
            3 => {
                let (Some(to), Some((from, size))) = (self.d_ptr(1), self.object(false)) else { return };
                let from = self.b.addr_var(from);
                let n = 1 + self.rng.below(size.min(to.size) as usize) as i64;
                let len = self.b.int(n);
                let to = self.within(to, n as u32);
                self.b.copy(to, from, len);
            }
            4 => {
                let Some((var, size)) = self.object(true) else { return };
                let key = self.array_key(var);
                let at = self.fixed;
                self.fixed += size.div_ceil(8) * 8;
                let value = self.b.copy_elem(var, key, at);
                self.d_ptrs.push(DPtr { value, size });
            }
            5 => {
                let Some((var, size)) = self.object(true) else { return };
                let key = self.array_key(var);
                if self.rng.one_in(4) {
                    return self.b.delete_elem(var, key);
                }
                let Some(d_ptr) = self.d_ptr(size) else { return };
                let from = self.within(d_ptr, size);
                self.b.store_obj(var, key, from);
            }
            _ if self.config.strings => {
                let value = self.string(1);
                let at = self.fixed;
                self.fixed += self.module.string_storage();
                let value = self.b.str_addr(value, at);
                self.d_ptrs.push(DPtr { value, size: self.module.string_storage() });
            }
            _ => {}
        }
    }

    fn allocate(&mut self) {
        let Some((var, size)) = self.object(false) else { return };
        let size = size / 8 * 8;
        if size == 0 {
            return;
        }
        let wanted = if self.config.faults && self.rng.one_in(8) { 1i64 << 20 } else { i64::from(size) };
        let wanted = self.b.int(wanted);
        let value = self.b.alloca(wanted);
        let from = self.b.addr_var(var);
        let mut len = self.b.int(i64::from(size));
        self.b.copy(value, from, len);
        // Copies a part again, with a length that is known only at run time.
        if self.rng.one_in(2) {
            let any = self.int(1);
            let mask = self.b.int(7);
            len = self.b.bin(BinOp::And, any, mask);
            self.b.copy(value, from, len);
        }
        if let Some(kept) = self.kept()
            && size >= KEPT_SIZE
            && self.rng.one_in(2)
        {
            let bits = self.b.as_int(value);
            self.b.store_var(kept, bits);
        }
        self.d_ptrs.push(DPtr { value, size });
    }
}
