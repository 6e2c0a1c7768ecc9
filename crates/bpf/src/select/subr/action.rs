//! What changes the system: signals, and holding the CPU.

use dif::ir::{FaultKind, Value};

use super::super::Clause;
use crate::mir::{Helper, Jmp, Operand, Size, V};
use crate::routines;

/// `-EINVAL`.
const INVALID: i64 = -22;

impl Clause<'_, '_> {
    /// A signal to the current process. What may have none (a thread of the kernel, a process that ends) gets none.
    pub(super) fn raise(&mut self, signal: Value) -> V {
        let signal = self.reg(signal);
        let bad = self.fault(FaultKind::IllegalOp, Operand::V(signal));
        // The helper takes 32 bits.
        self.b.br(Jmp::Gt, signal, 64, bad);
        let done = self.b.call(Helper::SEND_SIGNAL, &[signal]);
        // Its result is an int.
        let done = self.b.shl(done, 32);
        let done = self.b.sar(done, 32);
        self.b.br(Jmp::Eq, done, INVALID, bad);
        self.b.imm(0)
    }

    /// The result of the function that fired the probe: the program ends with it, where it is one that may.
    pub(super) fn give(&mut self, result: Value) -> V {
        let result = self.reg(result);
        if let Some(at) = self.firing.parts.result {
            let (base, at) = self.place(at, 8);
            self.b.store(Size::B8, base, at, result);
        }
        self.b.imm(0)
    }

    /// Holds the CPU.
    pub(super) fn chill(&mut self, nanoseconds: Value) -> V {
        let nanoseconds = self.reg(nanoseconds);
        let bad = self.fault(FaultKind::IllegalOp, Operand::V(nanoseconds));
        routines::chill(self.b, &self.firing.cpu, nanoseconds, bad);
        self.b.imm(0)
    }
}
