//! Faults. Every operation that may fault has a stub behind the program, which loads the fault's
//! data and jumps to the clause's fault exit. That exit discards the record, writes the fault
//! record, runs ERROR's clauses and ends the clause.
//!
//! The report is a subprogram of its own that contains ERROR's clauses, so a program has those
//! once. Its arguments are four numbers (the clause, the kind and position, the value, the scratch
//! slot's number), so it can be a global function.

use dif::ir::FaultKind;

use super::clause::Clause;
use crate::context::Index;
use crate::error::Result;
use crate::mir::{Builder, Label, Operand, V};
use crate::routines;

/// The name of the subprogram that reports a fault.
pub const REPORT: &str = "dt_report";

/// The first word of a fault record.
pub(crate) fn head(kind: FaultKind, action: u16, offset: u32) -> u64 {
    u64::from(kind as u16) | u64::from(action) << 16 | u64::from(offset) << 32
}

impl Clause<'_, '_> {
    /// The label to which the current instruction jumps when it faults with this value.
    pub(crate) fn fault(&mut self, kind: FaultKind, value: Operand) -> Label {
        self.fault_with(kind, |b, var| b.set(var, value))
    }

    /// The same with a value that is computed in the stub.
    pub(crate) fn fault_with(&mut self, kind: FaultKind, value: impl FnOnce(&mut Builder, V)) -> Label {
        let exit = match self.record {
            Some(record) => match self.faults.reserved {
                Some((label, _)) => label,
                None => {
                    let label = self.b.label();
                    self.faults.reserved = Some((label, record));
                    label
                }
            },
            None => match self.faults.plain {
                Some(label) => label,
                None => {
                    let label = self.b.label();
                    self.faults.plain = Some(label);
                    label
                }
            },
        };
        let head = head(kind, self.at.0, self.at.1);
        let (head_var, value_var) = (self.faults.head, self.faults.value);
        let stub = self.b.label();
        self.b.out_of_line(|b| {
            b.bind(stub);
            b.set(head_var, head);
            value(b, value_var);
            b.jmp(exit);
        });
        stub
    }

    /// Where a clause with `exit()` continues whose record finds no space in buffers that nobody
    /// reads while tracing: it ends the session all the same, if it can with its status.
    pub(super) fn refused_exit(&mut self) -> Label {
        let refused = self.b.label();
        let (status, cpu, end) = (self.f.exit_status().unwrap_or(0), self.firing.cpu, self.end);
        let at_end = self.firing.at_end;
        self.b.out_of_line(|b| {
            b.bind(refused);
            let status = b.imm(status);
            routines::exit(b, &cpu, status, at_end);
            b.jmp(end);
        });
        refused
    }

    /// Emits the fault exits, once the clause is complete.
    pub(crate) fn finish_faults(&mut self) -> Result<()> {
        let report = self.b.label();
        if self.faults.plain.is_none() && self.faults.reserved.is_none() {
            return Ok(());
        }
        if let Some((label, record)) = self.faults.reserved {
            self.b.out_of_line(|b| {
                b.bind(label);
                routines::discard(b, &record);
                b.jmp(report);
            });
        }
        let (index, base) = (self.firing.index, self.epid_base);
        let plain = self.faults.plain;
        let (head, value, end) = (self.faults.head, self.faults.value, self.end);
        let (cpu, in_error) = (self.firing.cpu, self.firing.in_error);
        let number = match self.firing.clock {
            routines::Clock::Slot(number) => Some(number),
            _ => self.firing.slot.map(|s| s.number),
        };
        self.b.out_of_line(|b| {
            if let Some(plain) = plain {
                b.bind(plain);
            }
            b.bind(report);
            if in_error {
                // A fault in ERROR's clauses is only counted.
                routines::count_drop(b, &cpu, plane::control::DropKind::DoubleError);
            } else {
                let epid = match index {
                    Index::Const(i) => b.imm(i64::from(base + i)),
                    Index::V(v) => b.add(v, base),
                    Index::Row { at, .. } => {
                        let first = routines::row_epid(b, at);
                        b.add(first, base)
                    }
                };
                let number = b.reg(number.map_or(Operand::Imm(0), Operand::V));
                b.call_named(REPORT, &[epid, head, value, number]);
            }
            b.jmp(end);
        });
        Ok(())
    }
}
