//! A call of a subroutine in the interpreter.

use crate::interp::{Val, World};
use crate::ir::{FaultKind, Space};

/// The context of a call in the interpreter.
pub struct Call<'a> {
    /// The arguments.
    pub args: &'a [Val],
    /// Address spaces of pointer arguments.
    pub spaces: &'a [Space],
    /// Bytes of a string with its NUL.
    pub strsize: usize,
    /// What the firing reads from the system.
    pub world: &'a mut dyn World,
    /// The rest of the string that `strtok()` splits. The clauses of a firing share it.
    pub rest: &'a mut Option<Vec<u8>>,
}

/// A fault: its kind and value.
pub type Fault = (FaultKind, u64);

impl Call<'_> {
    /// The `n`th argument, a string.
    pub(super) fn text(&self, n: usize) -> &[u8] {
        match self.args.get(n) {
            Some(Val::Str(s)) => s,
            _ => b"",
        }
    }

    /// The `n`th argument, a number.
    pub(super) fn int(&self, n: usize) -> i64 {
        match self.args.get(n) {
            Some(Val::Int(v)) => *v,
            _ => 0,
        }
    }
}
