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
//!  5d01 oooooooooooo   scratch memory of the running clause, at offset o
//!  5d02 vvvv oooooooo  this->    variable v at offset o
//!  5d03 vvvv oooooooo  self->    variable v of the current thread
//!  5d10 vvvv oooooooo  global    variable v
//!  bit 63 set          kernel memory
//!  anything else       user memory or invalid: readable by copyin() only
//! ```
//!
//! An offset from a variable's address must stay within 31 bits. Beyond that, an access faults or,
//! if the sum happens to be the address of another variable, accesses that variable.

use crate::ir::{Function, Module, Op, Scope, VarId, VarTy};

/// The tag of scratch memory, shifted into place.
pub const SCRATCH: u64 = 0x5d01 << 48;

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
    /// Scratch memory, at this offset.
    Scratch(u64),
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
        0x5d01 => return Place::Scratch(addr & ((1 << 48) - 1)),
        0x5d02 => Scope::Clause,
        0x5d03 => Scope::Thread,
        0x5d10 => Scope::Global,
        _ => return Place::Invalid,
    };
    Place::Var(scope, var, addr & 0xffff_ffff)
}

/// The bytes that `alloca()` of this size takes.
pub fn rounded(bytes: u64) -> u64 {
    bytes.saturating_add(7) & !7
}

impl Module {
    /// Bytes of a variable that is an object.
    pub fn object_size(&self, var: VarId) -> Option<u32> {
        match self.vars.get(var.0 as usize)?.ty {
            VarTy::Bytes { size } => Some(size),
            VarTy::Int | VarTy::Str => None,
        }
    }

    /// The bytes at the start of a clause's scratch memory that are assigned at compile time:
    /// copies of elements, objects and strings. `alloca()` memory follows them.
    pub fn fixed_scratch(&self, function: &Function) -> u32 {
        let end = |op: &Op| match op {
            Op::CopyElem { var, at, .. } => at.saturating_add(self.object_size(*var).unwrap_or(0)),
            Op::CopyObj { at, size, .. } => at.saturating_add(*size),
            Op::StrAddr { at, .. } => at.saturating_add(self.strsize),
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
        assert_eq!(place(SCRATCH + 8), Place::Scratch(8));
        assert_eq!(place(u64::MAX), Place::Kernel);
        assert_eq!(place(0), Place::Invalid);
        assert_eq!(place(0x7fff_0000_0000), Place::Invalid);
    }
}
