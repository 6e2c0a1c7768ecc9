//! The storage of a firing's clock, and whether the firing publishes its clock. [`plane::order`]
//! describes the protocol.

use bpf_codegen::Session;
use bpf_codegen::mir::{Builder, V};
use bpf_codegen::routines::Clock;
use bpf_codegen::select::{clock_before_reserve, reserves};

use super::dispatch::union_of;
use super::facts::may_fault;
use super::spec::{ClauseUse, ProgramSpec};

/// The use of the firing's clock by some clauses.
#[derive(Clone, Copy, Default)]
struct Needs {
    /// A clause records.
    records: bool,
    /// Two clauses that run for one probe use the clock. A record contains the time, so every
    /// clause that records uses the clock.
    shared: bool,
    /// A record is reserved after the clock was read.
    early: bool,
}

impl Needs {
    fn of(session: &Session<'_>, uses: &[ClauseUse], probes: u32) -> Needs {
        let mut needs = Needs::default();
        // The probes for which a clause up to here may have read the clock.
        let mut read = vec![0; probes.div_ceil(64) as usize];
        for c in uses {
            let clause = &session.module.clauses[c.clause];
            let (asks, before) = clock_before_reserve(&clause.func);
            let records = clause.func.blocks.iter().flat_map(|b| &b.insts).any(|i| reserves(&i.op));
            if !asks && !records {
                continue;
            }
            let own = union_of(probes, std::slice::from_ref(c));
            let known = own.iter().zip(&read).any(|(own, read)| own & read != 0);
            needs.records |= records;
            needs.shared |= known;
            needs.early |= records && (known || before);
            read.iter_mut().zip(own).for_each(|(read, own)| *read |= own);
        }
        needs
    }
}

/// The clock storage of a program.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    main: Needs,
    error: Needs,
    /// The clock is in the word of a scratch slot.
    in_slot: bool,
}

impl Clocks {
    /// Determines the storage. `divided` is true where the program's clauses or those of ERROR are
    /// functions.
    pub(super) fn new(session: &Session<'_>, spec: &ProgramSpec<'_>, divided: bool) -> Clocks {
        let main = Needs::of(session, spec.clauses, spec.probes.len() as u32);
        let faults = spec.clauses.iter().any(|c| may_fault(session, c.clause));
        let error = if faults { Needs::of(session, spec.error.clauses, 1) } else { Needs::default() };
        Clocks { main, error, in_slot: divided || main.early || error.early }
    }

    /// True when the clock is in the word of a scratch slot, so the program must take a slot.
    pub(super) fn in_slot(&self) -> bool {
        self.in_slot
    }

    /// True when firings publish their clock for the consumer.
    pub(super) fn publishes(&self) -> bool {
        self.in_slot && (self.main.records || self.error.records)
    }

    /// The clock for the program, where `slot` is the number of its slot.
    pub(super) fn main(&self, b: &mut Builder, slot: Option<V>) -> Clock {
        self.keep(b, self.main, slot)
    }

    /// The clock for the function with ERROR's clauses.
    pub(super) fn error(&self, b: &mut Builder, slot: V) -> Clock {
        self.keep(b, self.error, Some(slot))
    }

    fn keep(&self, b: &mut Builder, needs: Needs, slot: Option<V>) -> Clock {
        match slot {
            Some(number) if self.in_slot => Clock::Slot(number),
            _ if needs.shared => Clock::Register(b.copy(0)),
            _ => Clock::Once,
        }
    }
}
