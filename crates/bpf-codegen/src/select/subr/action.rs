//! Subroutines that change the system: signals, holding the CPU, speculation.

use dif::ir::{FaultKind, Value};
use plane::speculation::COMMIT_SIZE;

use crate::mir::{Helper, Jmp, Operand, Size, V};
use crate::routines;
use crate::select::clause::Clause;

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

    /// `commit()` or `discard()`.
    pub(super) fn end_speculation(&mut self, id: Value, commits: bool) -> V {
        let id = self.reg(id);
        let bad = self.fault(FaultKind::IllegalOp, Operand::V(id));
        let (plan, cpu, done) = (self.env.plan, self.firing.cpu, self.b.label());
        if let Some(of) = routines::speculation_of(self.b, plan, id, done, bad) {
            let (epid, clock, time) = (self.epid(), self.firing.clock, self.time_read());
            let what = routines::Reserve { size: COMMIT_SIZE, epid, clock, time, flags: 0, exits: false };
            let record = commits.then_some((&what, self.firing.divided));
            routines::end_speculation(self.b, plan, &cpu, &of, record, done);
        }
        self.b.bind(done);
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
