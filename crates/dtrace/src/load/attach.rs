//! Attaching programs. Attaching to kernel functions can take long.
//!
//! If the kernel attaches to functions one by one, the progress and the remaining time are
//! reported. The user can interrupt an enabling between two system calls, and also during the
//! system call that attaches to all functions. A child process makes that call
//! ([`bpf_sys::Link::kprobe_multi`]). One call for all functions takes 3 s in a guest. Several
//! calls for parts of them would take longer, because for each the kernel patches its code and
//! waits for all CPUs. After an interrupt, a process in the background detaches what was attached.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bpf_sys::{Link, Map, Prog, SysError};
use probes::ProbeDesc;
use providers::Unit;
use providers::method::{
    AttachError, Attaching, Cpus, Functions, Loaded, Method, Observer, Rejected, Schedule, Semaphores,
    SiteLink,
};
use types::btf::KernelBtf;

use crate::engine::clocks::{CpuClock, Served};
use crate::error::Error;

/// Closes links to processes. For each the kernel waits until no CPU runs a program of it (some 40
/// ms). Those that are closed at the same time wait together.
pub(crate) fn close_at_once(links: Vec<SiteLink>) {
    let count = links.len();
    let links = Mutex::new(links);
    close_together(count, &|| links.lock().unwrap_or_else(PoisonError::into_inner).pop());
}

/// As [`close_at_once`], so many links that are taken one by one.
pub(crate) fn close_together(count: usize, take: &(dyn Fn() -> Option<SiteLink> + Sync)) {
    let close = || while take().is_some() {};
    std::thread::scope(|scope| {
        for _ in 1..count.min(CLOSED_TOGETHER) {
            // Where there is no thread, the others close them.
            let _ = threads::spawn_scoped(scope, "detach", threads::SMALL_STACK, close);
        }
        close();
    });
}

/// How many links are closed at the same time.
pub(crate) const CLOSED_TOGETHER: usize = 64;

/// Why a session has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It runs clauses or accounts for them, and its suppressed firings are reported.
    Clauses,
    /// It keeps the set of processes.
    Set,
    /// It keeps the set of processes, and another program does the same: what one of them misses is
    /// not lost.
    Twice,
    /// It brings in pages. It is attached if the kernel allows it.
    Prefault,
    /// It watches the session. It is attached if the kernel allows it.
    Heartbeat,
}

/// A program, how it is attached, and its links.
pub(crate) struct AttachedProgram {
    pub(crate) loaded: Loaded,
    /// What messages call it.
    pub(crate) name: String,
    pub(crate) purpose: Purpose,
    pub(crate) method: Arc<dyn Method>,
    /// Counters of the served firings of a clock, if the number of due firings is known.
    pub(crate) served: Option<Served>,
    /// The clocks of the CPUs, if the number of due firings is known.
    pub(crate) clocks: Vec<CpuClock>,
    /// All its probes came later.
    pub(crate) later: Option<LaterProbes>,
}

/// The probes of a fixed program that all came later. When they do not exist any more, it is
/// unloaded.
pub(crate) struct LaterProbes {
    /// The ids of those that exist.
    pub(crate) ids: HashSet<u32>,
    /// The first enabled-probe ids of its clauses.
    pub(crate) epids: Vec<u32>,
    /// The maps that only it uses.
    pub(crate) _maps: Vec<Map>,
    /// What it serves, for messages.
    pub(crate) text: String,
}

impl LaterProbes {
    /// Removes probes. True if none is left.
    pub(crate) fn remove(&mut self, probes: &HashSet<u32>) -> bool {
        if self.ids.len() <= probes.len() {
            self.ids.retain(|id| !probes.contains(id));
        } else {
            for id in probes {
                self.ids.remove(id);
            }
        }
        self.ids.is_empty()
    }
}

impl AttachedProgram {
    pub(crate) fn new(prog: Prog, method: Arc<dyn Method>, purpose: Purpose) -> AttachedProgram {
        let (name, loaded, clocks) = (prog.name().to_string(), Loaded::new(prog), Vec::new());
        AttachedProgram { loaded, name, purpose, method, served: None, clocks, later: None }
    }

    /// A program that runs the clauses of a unit's probes.
    pub(crate) fn of_unit(prog: Prog, unit: &Unit) -> AttachedProgram {
        let program = AttachedProgram::new(prog, unit.method.clone(), Purpose::Clauses);
        AttachedProgram { name: reported_name(unit, &program.name), ..program }
    }

    /// Firings that the kernel suppressed, because a program was already running on the CPU.
    pub(crate) fn missed(&self) -> Result<u64, SysError> {
        let copies = self.loaded.copies.iter().filter_map(|p| p.info().ok());
        let copies = copies.map(|i| i.recursion_misses).sum::<u64>();
        let links = self.loaded.links.iter().filter(|_| self.method.links_count_missed());
        let links = links.filter_map(|l| l.link.info().ok()).map(|i| i.missed()).sum::<u64>();
        Ok(self.loaded.prog.info()?.recursion_misses + copies + links)
    }

    /// True if the program runs clauses or accounts for them.
    pub(crate) fn fires(&self) -> bool {
        self.purpose == Purpose::Clauses
    }

    /// True if the session does not do without it.
    fn is_needed(&self) -> bool {
        matches!(self.purpose, Purpose::Clauses | Purpose::Set | Purpose::Twice)
    }

    pub(crate) fn is_heartbeat(&self) -> bool {
        self.purpose == Purpose::Heartbeat
    }

    /// The program and its copies.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Prog> {
        self.loaded.copies.iter().chain([&self.loaded.prog])
    }
}

/// The probes of a unit, for a message: the first one, and the number of the others.
pub(crate) fn probes_text<'a>(mut probes: impl Iterator<Item = &'a ProbeDesc>) -> String {
    let Some(first) = probes.next() else { return "no probes".into() };
    match probes.count() {
        0 => first.to_string(),
        1 => format!("{first} and 1 more"),
        n => format!("{first} and {n} more"),
    }
}

/// What messages call the program of a unit.
pub(crate) fn reported_name(unit: &Unit, program: &str) -> String {
    match unit.method.is_reported_by_probes() {
        true => probes_text(unit.probes.iter().map(|(_, probe)| &*probe.desc)),
        false => program.into(),
    }
}

/// The progress of a long enabling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of functions that are attached.
    pub done: usize,
    /// The number of all functions.
    pub total: usize,
    /// The estimated time for the remaining functions.
    pub remaining: Duration,
}

/// Sorts programs into the order in which they are attached.
///
/// Of several programs at one function, the kernel runs the last attached one first. At the
/// function's return the order is reversed, as calls nest; if the function graph hooks returns, the
/// order is the same. A script that sets a variable in a `syscall` probe and reads it in `fbt`
/// probes at the call's own function expects nesting at entry and return.
pub(crate) fn order(all: &mut [AttachedProgram], kernel: &KernelBtf) {
    let at_return = all.iter().enumerate().filter(|(_, a)| a.method.at_return());
    let places: Vec<usize> = at_return.map(|(place, _)| place).collect();
    if places.len() < 2 || !kernel.vmlinux().is_ok_and(|btf| btf.field("fprobe.hlist_array").is_some()) {
        return;
    }
    for (a, b) in places.iter().zip(places.iter().rev()).take(places.len() / 2) {
        all.swap(*a, *b);
    }
}

/// Callbacks that report the progress of attaching and interrupt it.
pub(crate) struct AttachObserver<'t> {
    /// Called with the progress. Attaching stops if it returns false.
    pub(crate) progress: &'t mut dyn FnMut(Progress) -> bool,
    /// Called during long steps. Attaching stops if it returns true.
    pub(crate) interrupted: &'t dyn Fn() -> bool,
}

/// Attaches programs. After an error, `all` has the links that were attached before it.
pub(crate) fn attach(
    all: &mut [AttachedProgram],
    said: &mut Said,
    observer: &mut AttachObserver<'_>,
) -> Result<(), Error> {
    // Also those of each other.
    let _semaphores = Semaphores::of(all.iter().map(|a| &*a.method));
    let descriptors: usize = all.iter().map(|a| a.method.descriptors()).sum();
    bpf_sys::raise_fd_limit(descriptors as u64);
    let functions = all.iter().filter_map(|a| a.method.functions()).map(|f| f.count).sum();
    // Until here, the kernel frees everything at once when the process ends.
    if !(observer.progress)(Progress { done: 0, total: functions, remaining: Duration::ZERO }) {
        return Err(Error::Interrupted);
    }
    for a in all {
        if (observer.interrupted)() {
            return Err(Error::Interrupted);
        }
        match attach_one(a, observer) {
            Ok(rejected) => report(&*a.method, a.loaded.prog.name(), &rejected, said),
            // The user stops all programs.
            Err(AttachError::Interrupted) => return Err(Error::Interrupted),
            Err(_) if !a.is_needed() => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

impl From<AttachError> for Error {
    fn from(e: AttachError) -> Error {
        match e {
            AttachError::System(e) => e.into(),
            AttachError::Load(e) => Error::Load(e),
            AttachError::Interrupted => Error::Interrupted,
        }
    }
}

fn attach_one(a: &mut AttachedProgram, observer: &mut AttachObserver<'_>) -> Result<Rejected, AttachError> {
    let clocks = ClockStarts {
        schedule: a.method.schedule(),
        served: a.served.as_ref(),
        started: Some(&mut a.clocks),
    };
    let mut steps = Steps { clocks, ..steps(&*a.method, observer) };
    // The cookie of a probe is its index.
    let cookie = |index| u64::from(index);
    a.method.attach(&mut Attaching { loaded: &mut a.loaded, cookie: &cookie, observer: &mut steps })
}

/// Reports the progress of attaching by a method.
pub(crate) fn steps<'a, 't>(method: &dyn Method, observer: &'a mut AttachObserver<'t>) -> Steps<'a, 't> {
    let clocks = ClockStarts { schedule: None, served: None, started: None };
    let total = method.functions().map_or(0, |f| f.count);
    Steps { start: Instant::now(), done: 0, total, observer, clocks }
}

/// Attaches a program's clocks to CPUs that came online.
pub(crate) fn follow(a: &mut AttachedProgram, cpus: Cpus<'_>) -> Result<(), Error> {
    let mut clocks = ClockStarts {
        schedule: a.method.schedule(),
        served: a.served.as_ref(),
        started: Some(&mut a.clocks),
    };
    let cookie = |index| u64::from(index);
    let mut to = Attaching { loaded: &mut a.loaded, cookie: &cookie, observer: &mut clocks };
    Ok(a.method.follow(&mut to, cpus)?)
}

/// Records the clocks that start, if their missing firings are reported.
struct ClockStarts<'a> {
    schedule: Option<Schedule>,
    served: Option<&'a Served>,
    started: Option<&'a mut Vec<CpuClock>>,
}

impl Observer for ClockStarts<'_> {
    fn started(&mut self, cpu: u32, link: &Link) {
        if let (Some(schedule), Some(served), Some(started)) = (self.schedule, self.served, &mut self.started)
        {
            started.push(CpuClock::new(cpu, schedule, served, link));
        }
    }
}

/// Counts attached functions and reports the progress.
pub(crate) struct Steps<'a, 't> {
    start: Instant,
    done: usize,
    total: usize,
    observer: &'a mut AttachObserver<'t>,
    clocks: ClockStarts<'a>,
}

impl Observer for Steps<'_, '_> {
    fn step(&mut self) -> bool {
        self.done += 1;
        let each = self.start.elapsed() / u32::try_from(self.done).unwrap_or(u32::MAX);
        let left = self.total.saturating_sub(self.done);
        let remaining = each * u32::try_from(left).unwrap_or(u32::MAX);
        (self.observer.progress)(Progress { done: self.done, total: self.total, remaining })
    }

    fn interrupted(&self) -> bool {
        (self.observer.interrupted)()
    }

    fn started(&mut self, cpu: u32, link: &Link) {
        self.clocks.started(cpu, link);
    }
}

/// What there is to say of attaching.
#[derive(Default)]
pub(crate) struct Said {
    /// What `-v` says.
    pub(crate) details: Vec<String>,
    /// What is missing, and was not known to be missing.
    pub(crate) missing: Vec<String>,
}

/// The number of rejected functions that a detail names.
const NAMED: usize = 5;

/// Adds a detail of the attached and the rejected functions, and what is missing unexpectedly.
pub(crate) fn report(method: &dyn Method, program: &str, rejected: &Rejected, said: &mut Said) {
    let Said { details, missing } = said;
    let Some(Functions { count, by }) = method.functions() else { return };
    let attached = count.saturating_sub(rejected.len());
    let functions = if attached == 1 { "function" } else { "functions" };
    details.push(format!("{program}: {attached} {functions} by {by}"));
    details.extend(method.notes().iter().cloned());
    if let Some((_, why)) = rejected.first() {
        let names: Vec<&str> = rejected.iter().take(NAMED).map(|(p, _)| &*p.function).collect();
        let more = if rejected.len() > NAMED { ", ..." } else { "" };
        details.push(format!("left out: {} ({}{more}): {why}", rejected.len(), names.join(", ")));
    }
    let unexpected: Vec<_> = rejected.iter().filter(|(_, why)| method.expects_no(why)).collect();
    if let Some((_, why)) = unexpected.first() {
        let names: Vec<String> = unexpected.iter().take(NAMED).map(|(probe, _)| probe.to_string()).collect();
        let more = if unexpected.len() > NAMED { ", ..." } else { "" };
        missing.push(format!("not enabled: {}{more}: {why}", names.join(", ")));
    }
}
