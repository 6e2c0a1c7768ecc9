//! Subroutines that change the system: signals, and holding the CPU.

use dif::ir::{FaultKind, Value};

use super::super::Clause;
use crate::mir::{Helper, Jmp, Operand, Size, V};
use crate::routines;

/// `-EINVAL`.
const INVALID: i64 = -22;

impl Clause<'_, '_> {
    /// Sends a signal to the current process. Kernel threads and exiting processes get none.
    pub(super) fn raise(&mut self, signal: Value) -> V {
        let signal = self.reg(signal);
        let bad = self.fault(FaultKind::IllegalOp, Operand::V(signal));
        // The helper's parameter has 32 bits.
        self.b.br(Jmp::Gt, signal, 64, bad);
        let done = self.b.call(Helper::SEND_SIGNAL, &[signal]);
        // The helper's result is an int.
        let done = self.b.shl(done, 32);
        let done = self.b.sar(done, 32);
        self.b.br(Jmp::Eq, done, INVALID, bad);
        self.b.imm(0)
    }

    /// Sets the result of the probed function. The program returns it, where its type allows.
    pub(super) fn set_result(&mut self, result: Value) -> V {
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
