//! Addresses of D's own memory: scratch memory and the storage of variables that are objects.
//!
//! A pointer to such memory can be stored, compared and computed with like any other, but it is no machine address: it
//! says what is meant, and is looked up and bounds-checked at every access. (The kernel's verifier forgets what a stored
//! pointer points to, and an address that a script has must not outlive what it was made for.) The high 16 bits are a
//! tag that makes it non-canonical, so that no address of kernel or process looks like it:
//!
//! ```text
//!  5d01 oooooooooooo   scratch memory of the running clause, at offset o
//!  5d02 vvvv oooooooo  this->    variable v at offset o
//!  5d03 vvvv oooooooo  self->    variable v of the thread that asks
//!  5d10 vvvv oooooooo  global    variable v
//!  bit 63 set          kernel memory
//!  all else            nothing that may be read without copyin()
//! ```
//!
//! Offsets computed from a variable's address are meant to stay within 31 bits; beyond that an access faults or, if the
//! sum happens to be the address of another variable, may find that.

use crate::ir::{Function, Module, Op, Scope, VarId, VarTy};

/// Tag of scratch memory, in place.
pub const SCRATCH: u64 = 0x5d01 << 48;

/// Variables that can have an address: as many as there are numbers in it.
pub const VARS_MAX: usize = 1 << 16;

/// Bytes of scratch memory that a clause may take with `alloca()` and its like, unless told otherwise.
pub const SCRATCH_SIZE: u32 = 4096;

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Kernel memory.
    Kernel,
    /// Scratch memory, at this offset.
    Scratch(u64),
    /// A variable, at this offset.
    Var(Scope, VarId, u64),
    /// Nowhere.
    Nowhere,
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

/// Where an address leads, by its look alone.
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
        _ => return Place::Nowhere,
    };
    Place::Var(scope, var, addr & 0xffff_ffff)
}

/// What an `alloca()` of so many bytes takes.
pub fn rounded(bytes: u64) -> u64 {
    bytes.saturating_add(7) & !7
}

impl Module {
    /// Bytes of a variable that is an object.
    pub fn object_size(&self, var: VarId) -> Option<u32> {
        match self.vars.get(var.0 as usize)?.ty {
            VarTy::Bytes { size } => Some(size),
            VarTy::Int { .. } | VarTy::Str => None,
        }
    }

    /// Bytes at the start of a clause's scratch memory that have their place in the code: copies of elements, objects and strings.
    /// What `alloca()` gives stands behind them.
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
    fn an_address_says_what_it_was_made_of() {
        for scope in [Scope::Global, Scope::Thread, Scope::Clause] {
            let addr = address(scope, VarId(300)) + 17;
            assert_eq!(place(addr), Place::Var(scope, VarId(300), 17));
        }
        assert_eq!(place(SCRATCH + 8), Place::Scratch(8));
        assert_eq!(place(u64::MAX), Place::Kernel);
        assert_eq!(place(0), Place::Nowhere);
        assert_eq!(place(0x7fff_0000_0000), Place::Nowhere);
    }
}
