//! Attaching programs. Attaching to kernel functions can take long.
//!
//! If the kernel attaches to functions one by one, the progress and the remaining time are
//! reported. The user can interrupt an enabling between two system calls, and also during the
//! system call that attaches to all functions. A child process makes that call
//! ([`bpf::sys::Link::kprobe_multi`]). One call for all functions takes 3 s in a guest. Several
//! calls for parts of them would take longer, because for each the kernel patches its code and
//! waits for all CPUs. After an interrupt, a process in the background detaches what was attached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bpf::sys::{Link, Prog, SysError};
use probes::ProbeDesc;
use providers::Attach;
use providers::sites::{self, AttachMethod, Refused, Sites};
use types::btf::KernelBtf;

use crate::error::Error;
use crate::machine::AttachedProgram;

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
    let at_return = |a: &AttachedProgram| match &a.attach {
        Attach::Functions { on_return, .. } => *on_return,
        Attach::Sites(sites) => sites.on_return && sites.method == AttachMethod::Multi,
        _ => false,
    };
    let places: Vec<usize> =
        all.iter().enumerate().filter(|(_, a)| at_return(a)).map(|(place, _)| place).collect();
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
    details: &mut Vec<String>,
    observer: &mut AttachObserver<'_>,
) -> Result<(), Error> {
    let descriptors: usize = all.iter().map(|a| providers::attach::descriptors(&a.attach)).sum();
    bpf::sys::raise_fd_limit(descriptors as u64);
    let functions =
        all.iter().map(|a| if let Attach::Sites(s) = &a.attach { s.sites.len() } else { 0 }).sum();
    // Until here, the kernel frees everything at once when the process ends.
    if !(observer.progress)(Progress { done: 0, total: functions, remaining: Duration::ZERO }) {
        return Err(Error::Interrupted);
    }
    for a in all {
        if (observer.interrupted)() {
            return Err(Error::Interrupted);
        }
        attach_one(a, details, observer).map_err(|e| match e {
            Error::System(e) if e.errno == EINTR => Error::Interrupted,
            other => other,
        })?;
    }
    Ok(())
}

/// The error of a system call that the user interrupted.
const EINTR: i32 = 4;

fn attach_one(
    a: &mut AttachedProgram,
    details: &mut Vec<String>,
    observer: &mut AttachObserver<'_>,
) -> Result<(), Error> {
    match a.attach.clone() {
        Attach::Clock { cpus, .. } => {
            for cpu in cpus {
                a.attach_clock(cpu)?;
            }
        }
        // For a program that runs no clauses, a failure is no error.
        method if !a.fires => {
            let _ = providers::attach::attach(&method, &a.prog, &mut a.links, observer.interrupted);
        }
        Attach::Sites(sites) => {
            let rejected = match sites.method {
                AttachMethod::Multi => sites::attach(&sites, &a.prog, &mut a.links, observer.interrupted)?,
                AttachMethod::Fentry | AttachMethod::Modify => trampolines(a, &sites, observer.progress)?,
                AttachMethod::Kprobe => kprobes(a, &sites, observer.progress)?,
            };
            report(a, &sites, &rejected, details);
        }
        method => providers::attach::attach(&method, &a.prog, &mut a.links, observer.interrupted)?,
    }
    Ok(())
}

/// Counts attached functions and reports the progress.
struct Steps<'t> {
    start: Instant,
    done: usize,
    total: usize,
    progress: &'t mut dyn FnMut(Progress) -> bool,
}

impl<'t> Steps<'t> {
    fn new(sites: &Sites, progress: &'t mut dyn FnMut(Progress) -> bool) -> Steps<'t> {
        Steps { start: Instant::now(), done: 0, total: sites.sites.len(), progress }
    }

    /// Counts one more function. Returns an error if the user interrupted the enabling.
    fn step(&mut self) -> Result<(), Error> {
        self.done += 1;
        let each = self.start.elapsed() / u32::try_from(self.done).unwrap_or(u32::MAX);
        let left = self.total.saturating_sub(self.done);
        let remaining = each * u32::try_from(left).unwrap_or(u32::MAX);
        match (self.progress)(Progress { done: self.done, total: self.total, remaining }) {
            true => Ok(()),
            false => Err(Error::Interrupted),
        }
    }
}

fn trampolines(
    a: &mut AttachedProgram,
    sites: &Sites,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Refused, Error> {
    let mut rejected = Refused::new();
    let mut steps = Steps::new(sites, progress);
    let Some(image) = a.image.as_mut() else { return Ok(rejected) };
    let mut stopped = Ok(());
    let mut each = sites.sites.iter().enumerate();
    let (links, copies): (&mut Vec<Link>, &mut Vec<Prog>) = (&mut a.links, &mut a.copies);
    let attach = |loaded: Result<Prog, Box<bpf::load::LoadError>>| {
        let Some((cookie, site)) = each.next() else { return false };
        let linked = loaded.map_err(|e| e.error).and_then(|prog| {
            let link = Link::tracing(&prog, cookie as u64)?;
            Ok((prog, link))
        });
        match linked {
            Ok((prog, link)) => {
                copies.push(prog);
                links.push(link);
            }
            Err(e) => rejected.push((site.probe.clone(), e)),
        }
        stopped = steps.step();
        stopped.is_ok()
    };
    image.load_for(sites.sites.iter().map(|s| s.btf), attach).map_err(Error::Load)?;
    stopped?;
    rejected_or_error(a, rejected)
}

fn kprobes(
    a: &mut AttachedProgram,
    sites: &Sites,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Refused, Error> {
    let mut rejected = Refused::new();
    let mut steps = Steps::new(sites, progress);
    for (cookie, site) in sites.sites.iter().enumerate() {
        match sites::kprobe(sites, cookie, &a.prog) {
            Ok(link) => a.links.push(link),
            Err(e) => rejected.push((site.probe.clone(), e)),
        }
        steps.step()?;
    }
    rejected_or_error(a, rejected)
}

/// Returns the functions that the kernel rejected, or an error if it rejected all.
fn rejected_or_error(a: &AttachedProgram, mut rejected: Refused) -> Result<Refused, Error> {
    match (a.links.is_empty(), rejected.pop()) {
        (true, Some((_, why))) => Err(why.into()),
        (_, last) => {
            rejected.extend(last);
            Ok(rejected)
        }
    }
}

/// The number of rejected functions that a detail names.
const NAMED: usize = 5;

/// Adds a detail of the attached and the rejected functions.
fn report(
    a: &AttachedProgram,
    sites: &Sites,
    rejected: &[(Arc<ProbeDesc>, SysError)],
    details: &mut Vec<String>,
) {
    let attached = sites.sites.len() - rejected.len();
    let functions = if attached == 1 { "function" } else { "functions" };
    details.push(format!("{}: {attached} {functions} by {}", a.prog.name(), sites.method.name()));
    if let Some((_, why)) = rejected.first() {
        let names: Vec<&str> = rejected.iter().take(NAMED).map(|(p, _)| &*p.function).collect();
        let more = if rejected.len() > NAMED { ", ..." } else { "" };
        details.push(format!("left out: {} ({}{more}): {why}", rejected.len(), names.join(", ")));
    }
}
