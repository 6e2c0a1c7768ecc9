//! Attaching programs, which for the kernel's functions can take long.
//!
//! Where the kernel attaches to its functions one by one, the user is told how far it is and how
//! long it will still take. The user can stop any enabling: between two system calls, and during
//! the one that attaches to all functions, which is made in a child process
//! ([`bpf::sys::Link::kprobe_multi`]). One call for all functions takes 3 s in a guest; portions of
//! it would take longer in sum, for each portion has the kernel patch its code and wait for all
//! CPUs anew. What was attached until then is detached in the background.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bpf::sys::{Link, Prog, SysError};
use probes::ProbeDesc;
use providers::Attach;
use providers::sites::{self, AttachMethod, Refused, Sites};
use types::btf::KernelBtf;

use crate::error::Error;
use crate::machine::Attached;

/// How far a long enabling is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Functions that are attached to.
    pub done: usize,
    /// All of them.
    pub of: usize,
    /// How long the others will take, by what these took.
    pub left: Duration,
}

/// Puts programs into the order in which they are to be attached.
///
/// Of programs at one function, the kernel runs that first which was attached last; at its return
/// in the reverse order, as calls nest, or, where returns are hooked by the function graph, in the
/// same. A script that sets a variable in a `syscall` probe and asks for it in `fbt`'s at the
/// call's own function wants them to nest on both.
pub(crate) fn order(all: &mut [Attached], kernel: &KernelBtf) {
    let at_return = |a: &Attached| match &a.attach {
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

/// How an enabling tells of itself, and is stopped.
pub(crate) struct Follow<'t> {
    /// Is told how far it is; false stops it.
    pub(crate) tell: &'t mut dyn FnMut(Progress) -> bool,
    /// Asked while one step takes long: true stops it.
    pub(crate) interrupted: &'t dyn Fn() -> bool,
}

/// Attaches programs. After an error, `all` holds what was attached until then.
pub(crate) fn attach(
    all: &mut [Attached],
    details: &mut Vec<String>,
    follow: &mut Follow<'_>,
) -> Result<(), Error> {
    let descriptors: usize = all.iter().map(|a| providers::attach::descriptors(&a.attach)).sum();
    bpf::sys::raise_fd_limit(descriptors as u64);
    let functions =
        all.iter().map(|a| if let Attach::Sites(s) = &a.attach { s.sites.len() } else { 0 }).sum();
    // What has been loaded until here, a dying process frees at once.
    if !(follow.tell)(Progress { done: 0, of: functions, left: Duration::ZERO }) {
        return Err(Error::Interrupted);
    }
    for a in all {
        if (follow.interrupted)() {
            return Err(Error::Interrupted);
        }
        attach_one(a, details, follow).map_err(|e| match e {
            Error::System(e) if e.errno == EINTR => Error::Interrupted,
            other => other,
        })?;
    }
    Ok(())
}

/// A system call was interrupted because the user wants no more.
const EINTR: i32 = 4;

fn attach_one(a: &mut Attached, details: &mut Vec<String>, follow: &mut Follow<'_>) -> Result<(), Error> {
    match a.attach.clone() {
        Attach::Clock { cpus, .. } => {
            for cpu in cpus {
                a.give_clock(cpu)?;
            }
        }
        // What fires no clauses helps as far as the kernel lets it.
        how if !a.fires => {
            let _ = providers::attach::attach(&how, &a.prog, &mut a.links, follow.interrupted);
        }
        Attach::Sites(sites) => {
            let refused = match sites.method {
                AttachMethod::Multi => sites::attach(&sites, &a.prog, &mut a.links, follow.interrupted)?,
                AttachMethod::Fentry | AttachMethod::Modify => trampolines(a, &sites, follow.tell)?,
                AttachMethod::Kprobe => kprobes(a, &sites, follow.tell)?,
            };
            report(a, &sites, &refused, details);
        }
        how => providers::attach::attach(&how, &a.prog, &mut a.links, follow.interrupted)?,
    }
    Ok(())
}

/// Counts functions, and tells of it.
struct Steps<'t> {
    start: Instant,
    done: usize,
    of: usize,
    tell: &'t mut dyn FnMut(Progress) -> bool,
}

impl<'t> Steps<'t> {
    fn of(sites: &Sites, tell: &'t mut dyn FnMut(Progress) -> bool) -> Steps<'t> {
        Steps { start: Instant::now(), done: 0, of: sites.sites.len(), tell }
    }

    /// One more is done. An error where the user wants no more.
    fn step(&mut self) -> Result<(), Error> {
        self.done += 1;
        let each = self.start.elapsed() / u32::try_from(self.done).unwrap_or(u32::MAX);
        let left = each * u32::try_from(self.of - self.done.min(self.of)).unwrap_or(u32::MAX);
        match (self.tell)(Progress { done: self.done, of: self.of, left }) {
            true => Ok(()),
            false => Err(Error::Interrupted),
        }
    }
}

fn trampolines(
    a: &mut Attached,
    sites: &Sites,
    tell: &mut dyn FnMut(Progress) -> bool,
) -> Result<Refused, Error> {
    let mut refused = Refused::new();
    let mut steps = Steps::of(sites, tell);
    let Some(image) = a.image.as_mut() else { return Ok(refused) };
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
            Err(e) => refused.push((site.probe.clone(), e)),
        }
        stopped = steps.step();
        stopped.is_ok()
    };
    image.load_for(sites.sites.iter().map(|s| s.btf), attach).map_err(Error::Load)?;
    stopped?;
    none_left(a, refused)
}

fn kprobes(
    a: &mut Attached,
    sites: &Sites,
    tell: &mut dyn FnMut(Progress) -> bool,
) -> Result<Refused, Error> {
    let mut refused = Refused::new();
    let mut steps = Steps::of(sites, tell);
    for (cookie, site) in sites.sites.iter().enumerate() {
        match sites::kprobe(sites, cookie, &a.prog) {
            Ok(link) => a.links.push(link),
            Err(e) => refused.push((site.probe.clone(), e)),
        }
        steps.step()?;
    }
    none_left(a, refused)
}

/// What was refused; an error where that is all.
fn none_left(a: &Attached, mut refused: Refused) -> Result<Refused, Error> {
    match (a.links.is_empty(), refused.pop()) {
        (true, Some((_, why))) => Err(why.into()),
        (_, last) => {
            refused.extend(last);
            Ok(refused)
        }
    }
}

/// So many names are said of what was refused.
const NAMED: usize = 5;

fn report(a: &Attached, sites: &Sites, refused: &[(Arc<ProbeDesc>, SysError)], details: &mut Vec<String>) {
    let attached = sites.sites.len() - refused.len();
    let functions = if attached == 1 { "function" } else { "functions" };
    details.push(format!("{}: {attached} {functions} by {}", a.prog.name(), sites.method.name()));
    if let Some((_, why)) = refused.first() {
        let names: Vec<&str> = refused.iter().take(NAMED).map(|(p, _)| &*p.function).collect();
        let more = if refused.len() > NAMED { ", ..." } else { "" };
        details.push(format!("left out: {} ({}{more}): {why}", refused.len(), names.join(", ")));
    }
}
