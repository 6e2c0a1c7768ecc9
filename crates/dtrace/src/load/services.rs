//! The programs that serve all clauses of a session, and are attached once: a table.
//!
//! ```text
//!  row               is made when                                       needs of the kernel        runs
//!  members           processes of a set are followed                    typed tracepoints          before all
//!  members that end  there is a set of processes                        typed tracepoint           then
//!  vtimestamp        a clause reads it                                  typed tracepoint           then
//!  heartbeat         a probe can take all time of the CPUs              perf_event_open(2)         then
//!  (the programs of clauses)
//!  ends of threads   there are thread-local arrays, and other programs  raw tracepoint             last
//! ```
//!
//! They are made after the programs of the clauses, because what they need follows from these. A
//! session that enables more programs makes those that it has not yet.

use std::sync::Arc;

use bpf_codegen::plan::Plan;
use bpf_codegen::target::Target;
use bpf_runtime::program::{end_of_thread, heartbeat, vtime_switch};
use bpf_sys::{Counter, ProgKind};
use providers::method::{Clock, RawTp, TpBtf};

use crate::error::Error;
use crate::load::assemble::Assembly;
use crate::load::attach::Purpose;
use crate::load::facts::SystemContext;
use crate::load::process_set::{self, ServiceProgram};
use crate::options::Options;

/// Those that a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Services {
    /// A program frees the elements of the `self->` arrays with variable numbers below this one,
    /// when their thread ends.
    pub(crate) freed_arrays: u32,
    /// Nanoseconds between heartbeats, if there are heartbeats.
    pub(crate) heartbeat: Option<u64>,
    /// A program accounts for `vtimestamp`.
    vtime: bool,
    /// A program takes processes that end out of the set of processes.
    leaves: bool,
    /// Programs put what they fork in.
    inherits: bool,
}

/// From what it follows which ones are needed, and what they are made of.
pub(crate) struct Needed<'a> {
    pub(crate) assembly: &'a Assembly,
    pub(crate) options: &'a Options,
    pub(crate) system: &'a SystemContext<'a>,
    pub(crate) target: &'a Target,
    pub(crate) plan: &'a Plan,
    /// The variables of the programs.
    pub(crate) variables: u32,
    /// A program of a clause can take all time of the CPUs.
    pub(crate) can_overload: bool,
    /// There are other programs than those of BEGIN and END, which run only on a thread of the
    /// tracer.
    pub(crate) has_others: bool,
}

/// When a service runs, and so when it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before the programs of clauses, which find done what it does.
    First,
    /// After them: they still find what it takes away.
    Last,
}

/// A row of the table.
pub(crate) struct Service {
    /// True if the programs need it, and the session has it not.
    is_missing: fn(&Needed<'_>, &Services) -> bool,
    pub(crate) place: Place,
    /// Its programs, in the order in which they are attached; none if the kernel does not have what
    /// it needs and clauses run without it.
    make: fn(&Needed<'_>, &Services) -> Result<Vec<ServiceProgram>, Error>,
    /// Notes that the session has it.
    note: fn(&Needed<'_>, &mut Services),
}

impl Service {
    /// The programs of the service, if they are needed; the session has them then.
    pub(crate) fn programs(
        &self,
        needed: &Needed<'_>,
        has: &mut Services,
    ) -> Result<Vec<ServiceProgram>, Error> {
        if !(self.is_missing)(needed, has) {
            return Ok(Vec::new());
        }
        let made = (self.make)(needed, has)?;
        if !made.is_empty() {
            (self.note)(needed, has);
        }
        Ok(made)
    }
}

/// All services, in the order in which they are attached, with the programs of clauses before the
/// first one that is last.
pub(crate) const SERVICES: &[Service] = &[
    Service {
        is_missing: |needed, has| !has.inherits && needed.assembly.sets.iter().any(|set| set.heirs),
        place: Place::First,
        make: |n, _| process_set::inheriting(n.options.follow, n.target, n.plan, n.system.kernel),
        note: |_, has| has.inherits = true,
    },
    Service {
        is_missing: |needed, has| !has.leaves && !needed.assembly.sets.is_empty(),
        place: Place::First,
        make: |needed, _| process_set::leaving(needed.target, needed.system.kernel),
        note: |_, has| has.leaves = true,
    },
    Service {
        is_missing: |needed, has| needed.plan.vtime && !has.vtime,
        place: Place::First,
        make: accounts,
        note: |_, has| has.vtime = true,
    },
    Service {
        is_missing: |needed, has| has.heartbeat.is_none() && needed.can_overload,
        place: Place::First,
        make: beating,
        note: |needed, has| {
            has.heartbeat = crate::engine::deadman::limits(needed.options).map(|l| l.interval)
        },
    },
    Service {
        is_missing: |needed, has| needed.has_others && needed.plan.owned(has.freed_arrays).next().is_some(),
        place: Place::Last,
        make: ends_of_threads,
        note: |needed, has| has.freed_arrays = needed.variables,
    },
];

/// They account for the time of threads.
fn accounts(needed: &Needed<'_>, _: &Services) -> Result<Vec<ServiceProgram>, Error> {
    let found = crate::load::facts::tracepoint(needed.system.kernel, "sched_switch");
    let make = |btf| -> Result<ServiceProgram, Error> {
        Ok((vtime_switch(btf)?, Arc::new(TpBtf { btf }), Purpose::Clauses))
    };
    found.map(make).into_iter().collect()
}

fn beating(needed: &Needed<'_>, _: &Services) -> Result<Vec<ServiceProgram>, Error> {
    let Some(limits) = crate::engine::deadman::limits(needed.options) else { return Ok(Vec::new()) };
    let kills = !needed.options.destructive;
    let compiled = heartbeat(ProgKind::PerfEvent, needed.plan, limits, kills)?;
    let (event, cpus) = (Counter::clock(), needed.system.cpus.to_vec());
    let clock = Clock { event, period: limits.interval, due: None, cpus, single: false, optional: true };
    Ok(vec![(compiled, Arc::new(clock), Purpose::Heartbeat)])
}

/// It frees the elements of threads that end.
fn ends_of_threads(needed: &Needed<'_>, has: &Services) -> Result<Vec<ServiceProgram>, Error> {
    let Some(state) = crate::load::facts::task_state(needed.system.kernel) else { return Ok(Vec::new()) };
    let compiled = end_of_thread(needed.plan, has.freed_arrays, state)?;
    Ok(vec![(compiled, Arc::new(RawTp { name: "sched_switch" }), Purpose::Clauses)])
}
