//! Addresses of D memory: scratch memory and the storage of variables that are objects.
//!
//! A D program can store, compare and compute with a pointer to D memory like any other pointer.
//! But the pointer is not a machine address: it encodes what it refers to, and every access decodes
//! it and checks bounds. There are two reasons. The kernel's verifier forgets what a stored pointer
//! points to. And an address in a script must not outlive the memory that it was made for. The high
//! 16 bits are a tag that makes the address non-canonical, so no kernel or user address looks like
//! it:
//!
//! ```text
//!  5d01 sssssss ooooo   scratch memory, at offset o (22 bits) of the firing with serial number s (26 bits)
//!  5d02 vvvv oooooooo  this->    variable v at offset o
//!  5d03 vvvv oooooooo  self->    variable v of the current thread
//!  5d10 vvvv oooooooo  global    variable v
//!  bit 63 set          kernel memory
//!  anything else       user memory or invalid: readable by copyin() only
//! ```
//!
//! Scratch memory lives as long as the firing: a clause that leaves an address of it in a variable
//! keeps what it has taken ([`Module::keeps_scratch`]), and the memory of later clauses follows.
//! What another clause takes is free at its end. A module of which no clause keeps any has the
//! serial number 0 everywhere, because no address of it outlives its clause.
//!
//! An offset from a variable's address must stay within 31 bits. Beyond that, an access faults or,
//! if the sum happens to be the address of another variable, accesses that variable.

use crate::ir::{Function, Module, Op, Scope, Value, VarId, VarTy};

/// The tag of scratch memory, shifted into place.
pub const SCRATCH: u64 = 0x5d01 << 48;

/// Bits of an offset in scratch memory.
pub const SCRATCH_BITS: u32 = 22;

/// Bytes of a firing's scratch memory, and of a buffer behind it that is as long as that of a
/// clause.
const SCRATCH_MAX: u32 = 960 << 10;

/// The most clauses of a module for whose kept memory there is space, beside that of the running
/// clause. Where more keep some, the last of them may fault for want of it.
const KEEPERS_MAX: u32 = 7;

/// Maximum number of variables that can have an address: the range of the variable number in an
/// address.
pub const VARS_MAX: usize = 1 << 16;

/// Default for the bytes of scratch memory that a clause may allocate by `alloca()` and similar
/// subroutines.
pub const SCRATCH_SIZE: u32 = 4096;

/// What an address refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Kernel memory.
    Kernel,
    /// Scratch memory: serial number and offset.
    Scratch(u64, u64),
    /// A variable, at this offset.
    Var(Scope, VarId, u64),
    /// Nothing that a load may read.
    Invalid,
}

/// The address of a variable.
pub fn address(scope: Scope, var: VarId) -> u64 {
    let tag: u64 = match scope {
        Scope::Clause => 0x5d02,
        Scope::Thread => 0x5d03,
        Scope::Global => 0x5d10,
    };
    tag << 48 | u64::from(var.0 & 0xffff) << 32
}

/// Decodes an address.
pub fn place(addr: u64) -> Place {
    if addr >> 63 != 0 {
        return Place::Kernel;
    }
    let var = VarId((addr >> 32 & 0xffff) as u32);
    let scope = match addr >> 48 {
        0x5d01 => {
            let serial = addr << 16 >> (16 + SCRATCH_BITS);
            return Place::Scratch(serial, addr & ((1 << SCRATCH_BITS) - 1));
        }
        0x5d02 => Scope::Clause,
        0x5d03 => Scope::Thread,
        0x5d10 => Scope::Global,
        _ => return Place::Invalid,
    };
    Place::Var(scope, var, addr & 0xffff_ffff)
}

/// As much of the serial number of a firing as an address of its scratch memory has.
pub fn scratch_serial(firing: u64) -> u64 {
    firing & ((1 << (48 - SCRATCH_BITS)) - 1)
}

/// The address of the scratch memory of the firing with this serial number.
pub fn scratch(serial: u64) -> u64 {
    SCRATCH | scratch_serial(serial) << SCRATCH_BITS
}

/// The bytes that `alloca()` of this size takes.
pub fn rounded(bytes: u64) -> u64 {
    bytes.saturating_add(7) & !7
}

/// Its result is an address of scratch memory.
fn is_taken(op: &Op) -> bool {
    matches!(op, Op::Alloca(_) | Op::CopyElem { .. } | Op::CopyObj { .. } | Op::StrAddr { .. })
}

impl Module {
    /// Bytes of a variable that is an object.
    pub fn object_size(&self, var: VarId) -> Option<u32> {
        match self.vars.get(var.0 as usize)?.ty {
            VarTy::Bytes { size } => Some(size),
            VarTy::Int | VarTy::Str => None,
        }
    }

    /// True if the clause may leave an address of scratch memory in a variable, or in other memory.
    pub fn keeps_scratch(&self, function: &Function) -> bool {
        // Whether each value may be such an address. Every edge goes forward.
        let mut derived = vec![false; function.values.len()];
        for block in &function.blocks {
            for inst in &block.insts {
                let of = |v: &Value| derived.get(v.0 as usize).copied().unwrap_or_default();
                let is_derived = match &inst.op {
                    Op::StoreVar(_, v) | Op::StoreElem(_, _, v) | Op::AddElem(_, _, v) if of(v) => {
                        return true;
                    }
                    Op::Store { value, .. } if of(value) => return true,
                    Op::Bin(_, a, b) => of(a) || of(b),
                    Op::Un(_, a) | Op::AsPtr(_, a) | Op::AsInt(a) | Op::Ext { value: a, .. } => of(a),
                    op => is_taken(op),
                };
                if let Some(result) = inst.result
                    && let Some(place) = derived.get_mut(result.0 as usize)
                {
                    *place = is_derived;
                }
            }
            block.term.for_each_edge(|to, args| {
                let params = function.blocks.get(to.0 as usize).map_or(&[][..], |b| &b.params);
                for (param, arg) in params.iter().zip(args) {
                    let is_derived = derived.get(arg.0 as usize).copied().unwrap_or_default();
                    if let Some(place) = derived.get_mut(param.0 as usize) {
                        *place |= is_derived;
                    }
                }
            });
        }
        false
    }

    /// How many clauses keep scratch memory.
    fn keepers(&self) -> u32 {
        self.clauses.iter().filter(|c| self.keeps_scratch(&c.func)).count() as u32
    }

    /// The bytes of scratch memory that each clause has at least.
    pub fn scratch_frame(&self) -> u32 {
        let fixed = self.clauses.iter().map(|c| self.fixed_scratch(&c.func)).max().unwrap_or(0);
        let takes = |op: &Op| matches!(op, Op::Alloca(_) | Op::CopyOut { .. });
        let dynamic =
            self.clauses.iter().flat_map(|c| c.func.instructions()).any(|(_, inst)| takes(&inst.op));
        fixed + if dynamic { self.scratchsize } else { 0 }
    }

    /// The most bytes that the clauses of a firing keep; 0 where none keeps any.
    pub fn scratch_kept(&self) -> u32 {
        let frame = self.scratch_frame();
        let left = SCRATCH_MAX.saturating_sub(frame.saturating_mul(2));
        frame.saturating_mul(self.keepers().min(KEEPERS_MAX)).min(left)
    }

    /// The bytes at the start of a clause's scratch memory that are assigned at compile time:
    /// copies of elements, objects and strings. `alloca()` memory follows them.
    pub fn fixed_scratch(&self, function: &Function) -> u32 {
        let end = |op: &Op| match op {
            Op::CopyElem { var, at, .. } => at.saturating_add(self.object_size(*var).unwrap_or(0)),
            Op::CopyObj { at, size, .. } => at.saturating_add(*size),
            Op::StrAddr { at, .. } => at.saturating_add(self.string_storage()),
            _ => 0,
        };
        let last = function.instructions().map(|(_, inst)| end(&inst.op)).max().unwrap_or(0);
        last.saturating_add(7) & !7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_decodes_what_address_encodes() {
        for scope in [Scope::Global, Scope::Thread, Scope::Clause] {
            let addr = address(scope, VarId(300)) + 17;
            assert_eq!(place(addr), Place::Var(scope, VarId(300), 17));
        }
        assert_eq!(place(scratch(0) + 8), Place::Scratch(0, 8));
        assert_eq!(place(scratch((5 << 26) + 3) + 8), Place::Scratch(3, 8));
        assert_eq!(place(u64::MAX), Place::Kernel);
        assert_eq!(place(0), Place::Invalid);
        assert_eq!(place(0x7fff_0000_0000), Place::Invalid);
    }
}
