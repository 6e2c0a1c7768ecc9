//! An engine executes the programs of a session: [the kernel](crate::engine::kernel), or [the
//! interpreter](crate::engine::interpreter).
//!
//! ```text
//!              load ── the consumer registers ──► attach ──► run_begin ──► ACTIVE
//!                                                                            │
//!   firings ──► records, aggregations, stacks      drain, snapshot, stack ◄──┤
//!                                                  load_more, adopt       ◄──┤  more programs
//!                                                                            ▼
//!   detach ◄── STOPPED ◄── run_end ◄── quiesce ◄──────────────────────── DRAINING
//! ```
//!
//! The session owns the order of these calls, the deadlines and the consumer. An engine owns what
//! executes: it gives records in the layout of `plane`, so the consumer knows no engine. What not
//! every engine has (a doorbell, clocks, alarms) has a default here.

pub(crate) mod bank;
pub(crate) mod clocks;
pub(crate) mod deadman;
pub(crate) mod growth;
pub mod interpreter;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod snapshots;
pub(crate) mod speculation;
pub(crate) mod stack_store;
pub(crate) mod unwinder;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use consumer::{Codes, ProbeRow, SlotSink};
use events::{Clock, Probe};
use plane::control::{Activity, Control, DropDelta};
use plane::deadman::Reason;
use plane::newest::Newest;
use plane::read::Batch;
use plane::stacks::Stack;
use probes::{Calls, ProbeDesc, ProbeId};
use proc::watcher::SharedWatcher;
use providers::method::Detached;

use crate::compile::Program;
pub(crate) use crate::engine::growth::NewProbe;
use crate::error::Error;
use crate::load::attach::AttachObserver;
use crate::options::Options;
use crate::session::Notice;
use crate::session::stop::Stopper;

/// The enabled probes of programs that were loaded, for the consumer.
pub(crate) struct Enabled {
    pub(crate) ranges: Vec<EnabledRange>,
    /// Probes of programs that can serve later ones too.
    pub(crate) sites: Vec<EnabledSite>,
    /// The number of these programs, if there are any: see [`Arrival::shape`].
    pub(crate) shape: Option<u32>,
    /// Interned strings: those of the module, then names of probes.
    pub(crate) strings: Vec<Arc<[u8]>>,
    /// The names of providers of a family of processes, each with its interned prefix and its
    /// process id.
    pub(crate) providers: Vec<(u32, u32, Arc<str>)>,
    /// The first free enabled-probe id.
    pub(crate) next: u32,
}

/// A clause, and the probes for which it may fire: the n-th has the n-th id.
pub(crate) struct EnabledRange {
    pub(crate) first: u32,
    pub(crate) clause: usize,
    pub(crate) probes: ProbeRow,
}

/// A probe, and the id of the first of all clauses that were loaded: the n-th has the n-th id after
/// it.
pub(crate) struct EnabledSite {
    pub(crate) first: u32,
    pub(crate) probe: Arc<Probe>,
}

/// Later probes of programs that were loaded.
pub(crate) struct Arrival {
    /// The number of the programs: [`Enabled::shape`].
    pub(crate) shape: u32,
    pub(crate) probes: Vec<NewProbe>,
}

/// How programs are loaded for a running session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading {
    /// Their enabled-probe ids count from this one.
    pub(crate) first: u32,
    /// They are for probes that came later: the part of them that fails is left out.
    pub(crate) partial: bool,
    /// They serve later probes too, where that is possible.
    pub(crate) grow: bool,
}

/// A probe, for the consumer. `calls` is what its provider says.
pub(crate) fn probe(id: ProbeId, desc: &ProbeDesc, calls: Calls) -> Arc<Probe> {
    let names = [&desc.provider, &desc.module, &desc.function, &desc.name].map(Arc::clone);
    let calls = match calls {
        Calls::None => events::Calls::None,
        Calls::System => events::Calls::System,
        Calls::Kernel => events::Calls::Kernel,
    };
    Arc::new(Probe::new(id.0, names, calls))
}

/// How an engine gets its firings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Firings {
    /// They come by themselves, at any time.
    Asynchronous,
    /// The next drain executes some.
    Ready,
    /// There are no more.
    Exhausted,
}

/// Called between the steps of a long operation, in which running programs fill their buffers.
pub(crate) type Between<'a> = dyn FnMut(&mut dyn Engine) -> Result<(), Error> + 'a;

/// See the [module](self).
pub(crate) trait Engine: Send {
    /// Attaches the programs with which the engine was created.
    fn attach(&mut self, observer: &mut AttachObserver<'_>) -> Result<(), Error>;

    /// Executes BEGIN.
    fn run_begin(&mut self) -> Result<(), Error>;

    /// The session has become active.
    fn activate(&mut self) {}

    /// Loads more programs; nothing of them fires yet.
    fn load_more(
        &mut self,
        program: &Program,
        options: &Options,
        loading: Loading,
        interrupted: &dyn Fn() -> bool,
        between: &mut Between<'_>,
    ) -> Result<Enabled, Error>;

    /// Runs BEGIN of the programs that were loaded last, and attaches them. Returns the first
    /// ids of what is not attached: [sites](EnabledSite) that were rejected, and units that failed.
    fn adopt(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Vec<u32>, Error>;

    /// Attaches later probes to programs that serve probes like them: all but those that are
    /// rejected, or none. `strings` are all interned strings. Returns the first ids of the rejected
    /// ones; `None` where there is no program for a probe.
    fn arrive(
        &mut self,
        _program: &Program,
        _options: &Options,
        _arrivals: &[Arrival],
        _strings: &[Arc<[u8]>],
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u32>>, Error> {
        Ok(None)
    }

    /// These probes fire no more.
    fn remove(&mut self, _probes: &[ProbeId]) {}

    /// Closes links.
    fn close_links(&mut self, which: &[Detached]) {
        let _ = which;
    }

    /// True if the release of removed probes waits for a snapshot.
    fn wants_snapshot(&self) -> bool {
        false
    }

    /// Continues the release of removed probes. Returns the first ids of those of which no record
    /// is to come.
    fn release(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// The activity word and the epoch.
    fn control(&self) -> Option<Control<'_>>;

    /// The time now, by the clock of the records.
    fn now(&self) -> u64 {
        bpf_sys::monotonic_ns()
    }

    /// The time now, and what the time of the day is.
    fn clock(&self) -> Clock {
        Clock { time: self.now(), wall: bpf_sys::wall_ns() }
    }

    /// The time of the first firing, or the time now if that is not known.
    fn first_time(&mut self) -> u64 {
        self.now()
    }

    /// Firings that are given wait from this time on, which it is then: the next [`Engine::drain`]
    /// executes those before it. Firings of a running system do not wait.
    fn pause_at(&mut self, _time: u64) {}

    /// State and exit status.
    fn activity(&self) -> (Activity, i32) {
        self.control().map_or((Activity::Killed, 1), |c| c.activity())
    }

    /// A handle that changes the activity word from elsewhere.
    fn stopper(&self) -> Result<Stopper, Error>;

    /// How the engine gets its firings.
    fn firings(&self) -> Firings {
        Firings::Asynchronous
    }

    /// Readable when a ring fills or a program called exit().
    fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Makes the doorbell unreadable until it rings again.
    fn clear_doorbell(&self) {}

    /// Takes the committed records, in the order of time. Records that may follow one that is not
    /// yet committed are held back for at most `hold`; without `hold`, all records are taken.
    fn drain(&mut self, hold: Option<Duration>) -> Result<Batch, Error>;

    /// What rings that are overwritten have until now. It stays there.
    fn newest(&mut self) -> Newest {
        Newest::default()
    }

    /// The time from which on rings that are overwritten have every record; no program runs any
    /// more.
    fn complete_from(&self) -> u64 {
        0
    }

    /// Every record with a time before this one was given by the drains so far.
    fn complete_until(&self) -> u64 {
        0
    }

    /// True if there are speculations. Those that ended are freed by a drain.
    fn speculates(&self) -> bool {
        false
    }

    /// True if a speculation has ended that is not free yet.
    fn has_ended_speculations(&self) -> bool {
        false
    }

    /// The time until the next drain.
    fn drain_interval(&self, switchrate: Duration) -> Duration {
        switchrate
    }

    /// Begins a snapshot, if none is pending: what is aggregated from now on belongs to the next
    /// one.
    fn begin_snapshot(&mut self);

    /// True if the pending snapshot can be taken without waiting.
    fn snapshot_is_ready(&self) -> bool;

    /// Readable when the pending snapshot is ready.
    fn snapshot_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The number of snapshots that have begun, and how many of them were taken. At most one is
    /// pending.
    fn snapshots(&self) -> (u64, u64);

    /// Takes the values of the pending snapshot and clears them. May wait for the kernel.
    fn take_snapshot(&mut self, sink: &mut SlotSink<'_>);

    /// Gives what walks stacks of processes the watcher of the session.
    fn follow_stacks(&self, _watcher: SharedWatcher) -> bool {
        false
    }

    /// Makes what is needed to walk the stacks of a process. Waits for that until a limit or an
    /// interrupt.
    fn prepare_stacks(&self, _pid: u32, _limit: Duration, _interrupted: &dyn Fn() -> bool) {}

    /// How many stacks are incomplete because the kernel could not tell what their process had
    /// mapped.
    fn busy_stacks(&self) -> u64 {
        0
    }

    /// What functions of an interpreter in stacks are called, the first time that it can be known.
    fn take_codes(&mut self) -> Option<Codes> {
        None
    }

    /// The stack with an id.
    fn stack(&self, id: u64) -> Option<Stack>;

    /// The stacks that the engine has evicted since the last call: [`Engine::stack`] does not have
    /// them any more.
    fn evicted_stacks(&mut self) -> Vec<(u64, Stack)> {
        Vec::new()
    }

    /// Drops since the last call.
    fn drops(&mut self) -> Vec<DropDelta>;

    /// The sets in which a process is, as bits.
    fn sets_of(&mut self, _process: u32) -> u64 {
        0
    }

    /// Firings that were suppressed since the start, by program.
    fn suppressed(&self) -> Result<Vec<(String, u64)>, Error> {
        Ok(Vec::new())
    }

    /// True if what is attached depends on the CPUs that are online.
    fn has_clocks(&self) -> bool {
        false
    }

    /// Attaches clocks to the CPUs that are now online, and only to those.
    fn follow_cpus(&mut self, _online: &[u32]) -> Result<(), Error> {
        Ok(())
    }

    /// True if there is a clock whose missing firings are reported.
    fn has_counted_clocks(&self) -> bool {
        false
    }

    /// Firings of clocks that were due and not served since the last call: probe, CPU and number.
    fn missing_firings(&mut self, _online: &[u32], _last: bool) -> Vec<(String, u32, u64)> {
        Vec::new()
    }

    /// The limit of the deadman that was exceeded since the last call.
    fn take_alarm(&self) -> Option<Reason> {
        None
    }

    /// The greatest lateness of the deadman's clocks since the last call, and the longest silence
    /// of the session.
    fn take_lag(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Nanoseconds that the programs have taken so far.
    fn time_taken(&self) -> u64 {
        0
    }

    /// Details of loading and attaching since the last call.
    fn take_notices(&mut self) -> Vec<Notice>;

    /// Waits, after DRAINING, until no program of a probe runs; none starts again.
    fn quiesce(&mut self) -> Result<(), Error>;

    /// Executes END.
    fn run_end(&mut self) -> Result<(), Error>;

    /// Detaches everything. Returns how many links a process in the background detaches.
    fn detach(&mut self) -> usize {
        0
    }
}
