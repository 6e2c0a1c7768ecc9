//! Methods: how a program is attached.
//!
//! ```text
//!  Unit ── method ──► program    what the program is loaded as, and how many copies it needs
//!                     attach     links; the sites that the kernel rejected
//!                     follow     links that change when CPUs come and go
//!                     the rest   what attaching and detaching take, what the kernel counts as missed, the order
//! ```
//!
//! The decision that shapes it: a method has the sites that it attaches to, and a site has the
//! index of its probe. The session gives the cookie of an index ([`Attaching::cookie`]), so the
//! same method attaches a program that finds its probes by index and one that finds them in a table
//! of probes. The session never asks what a method is.

mod custom;
mod functions;
mod perf;
mod process;
mod semaphores;
mod tracepoint;
mod uprobes;

use std::fmt;
use std::sync::Arc;

use bpf_sys::errno;
use bpf_sys::load::{LoadError, ProgramImage};
use bpf_sys::{AttachType, Link, Prog, ProgKind, SysError};
use probes::ProbeDesc;

pub use custom::{AttachFn, CustomAttach, Run};
pub use files::real::RealInode;
pub use functions::{FunctionMethod, FunctionSites, Site};
pub use perf::{Clock, Event};
pub use process::{HeldProcess, Members};
pub use semaphores::Semaphores;
use semaphores::semaphore_at;
pub use tracepoint::{RawTp, TpBtf, Tracepoints};
pub use uprobes::{HeldFile, UprobeFile, UprobeSite, Uprobes};

/// What a program is loaded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramType {
    /// The kernel's kind of program.
    pub kind: ProgKind,
    /// How it is attached.
    pub attach: AttachType,
    /// The BTF id of what it is attached to, or 0.
    pub btf: u32,
}

impl ProgramType {
    /// A program without BTF.
    pub const fn new(kind: ProgKind, attach: AttachType) -> ProgramType {
        ProgramType { kind, attach, btf: 0 }
    }
}

/// The copies of a program that a method needs, where one program cannot serve all sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies {
    /// One program serves all sites.
    None,
    /// As many copies as there are sites. A copy knows its number, which is the index of its probe.
    Numbered(u32),
    /// A copy for each of these BTF ids. A site with id 0 is not known to BTF.
    Targets(Vec<u32>),
}

/// What the session hears about the attaching of a program.
pub trait Observer {
    /// One more function was attached. Attaching stops if it returns false.
    fn step(&mut self) -> bool {
        true
    }

    /// Called during long steps. Attaching stops if it returns true.
    fn interrupted(&self) -> bool {
        false
    }

    /// A clock was started on a CPU.
    fn started(&mut self, cpu: u32, link: &Link) {
        let _ = (cpu, link);
    }
}

/// A link, and the CPU of a clock.
#[derive(Debug)]
pub struct SiteLink {
    /// The link.
    pub link: Link,
    /// The CPU on which it fires, if it fires on one.
    pub cpu: Option<u32>,
    /// The process in which the kernel keeps the return addresses of functions for it, if it does.
    pub returns_in: Option<u32>,
    /// The process in which alone it fires, if its probes may be attached again in another way.
    pub of_process: Option<u32>,
    /// The number of the file, if it fires in all processes that run it.
    pub of_file: Option<u64>,
    /// Of its places: what comes to them while it is there has the same.
    pub semaphores: Semaphores,
}

/// Links that are to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Detached {
    /// Those of a process whose probes are attached again in another way.
    All(u32),
    /// Of these those by which the kernel keeps the return addresses of functions.
    Returns(u32),
    /// Those of a file that no process runs any more: its contents may be replaced.
    File(u64),
}

impl From<Link> for SiteLink {
    fn from(link: Link) -> SiteLink {
        SiteLink {
            link,
            cpu: None,
            returns_in: None,
            of_process: None,
            of_file: None,
            semaphores: Semaphores::default(),
        }
    }
}

/// A loaded program and its links.
#[derive(Debug)]
pub struct Loaded {
    /// The program. Of a program with copies it is the first one that the kernel accepted.
    pub prog: Prog,
    /// The other copies.
    pub copies: Vec<Prog>,
    /// The image, if more copies are loaded when they are attached.
    pub image: Option<ProgramImage>,
    /// What is attached until it is dropped.
    pub links: Vec<SiteLink>,
}

impl Loaded {
    /// A program that is not attached.
    pub fn new(prog: Prog) -> Loaded {
        Loaded { prog, copies: Vec::new(), image: None, links: Vec::new() }
    }
}

/// A program that is being attached.
pub struct Attaching<'a> {
    /// The program. Links are added to it, also where an error follows.
    pub loaded: &'a mut Loaded,
    /// The attach cookie of the probe at an index. A method without cookies ignores it.
    pub cookie: &'a dyn Fn(u32) -> u64,
    /// Reports progress.
    pub observer: &'a mut dyn Observer,
}

impl Attaching<'_> {
    /// An error if attaching is to stop.
    fn check(&self) -> Result<(), AttachError> {
        if self.observer.interrupted() { Err(AttachError::Interrupted) } else { Ok(()) }
    }

    /// Counts a function that was attached or rejected.
    fn step(&mut self) -> Result<(), AttachError> {
        if self.observer.step() { Ok(()) } else { Err(AttachError::Interrupted) }
    }
}

/// Why a program could not be attached.
#[derive(Debug)]
pub enum AttachError {
    /// A system call failed.
    System(SysError),
    /// A copy of the program could not be loaded.
    Load(Box<LoadError>),
    /// The user interrupted the enabling.
    Interrupted,
}

impl From<SysError> for AttachError {
    fn from(e: SysError) -> AttachError {
        if e.errno == errno::EINTR { AttachError::Interrupted } else { AttachError::System(e) }
    }
}

/// The CPUs that clocks run on.
#[derive(Clone, Copy, Debug)]
pub struct Cpus<'a> {
    /// Those that are online.
    pub online: &'a [u32],
    /// The only one that is traced (`-x cpu`).
    pub only: Option<u32>,
}

/// Sites that the kernel rejected, and why.
pub type Rejected = Vec<(Arc<ProbeDesc>, SysError)>;

/// Programs that take long to detach because of how they are attached, in words for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowRelease {
    /// `event by perf`
    pub one: &'static str,
    /// `events by perf`
    pub many: &'static str,
    /// What this method is for.
    pub purpose: &'static str,
}

/// How a program is attached to sites of its probes.
pub trait Method: fmt::Debug + Send + Sync {
    /// What the program is loaded as.
    fn program(&self) -> ProgramType;

    /// The copies that it needs.
    fn copies(&self) -> Copies {
        Copies::None
    }

    /// Attaches the program. It is an error where the kernel rejects all sites.
    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError>;

    /// True if the reason for which a site is rejected is nothing that was known before: it is
    /// always reported.
    fn expects_no(&self, why: &SysError) -> bool {
        let _ = why;
        false
    }

    /// Adds the semaphores of its places.
    fn semaphores(&self, to: &mut Semaphores) {
        let _ = to;
    }

    /// True if each site has its own attach cookie: one program can then serve probes that come
    /// later.
    fn has_cookies(&self) -> bool {
        false
    }

    /// True if messages about the program name its probes: the name of the program says nothing to
    /// a user.
    fn is_reported_by_probes(&self) -> bool {
        false
    }

    /// Attaches to CPUs that came online, and detaches from those that are offline.
    fn follow(&self, to: &mut Attaching<'_>, cpus: Cpus<'_>) -> Result<(), AttachError> {
        let _ = (to, cpus);
        Ok(())
    }

    /// True if [`Method::follow`] has to be called when CPUs come and go.
    fn follows_cpus(&self) -> bool {
        false
    }

    /// The functions that are attached, if their number is reported.
    fn functions(&self) -> Option<Functions> {
        None
    }

    /// What `-v` says with the number of functions.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// How many file descriptors attaching takes.
    fn descriptors(&self) -> usize {
        1
    }

    /// About how many microseconds the kernel takes to detach. Measured; decides only whether
    /// detaching is reported as slow.
    fn release_us(&self) -> u64 {
        0
    }

    /// What the user is told if detaching is slow by design.
    fn slow_release(&self) -> Option<SlowRelease> {
        None
    }

    /// True if links count the firings that the kernel suppressed. (Programs always count theirs.)
    fn links_count_missed(&self) -> bool {
        true
    }

    /// When the program is due, if it is a clock whose missing firings are known by its schedule.
    fn schedule(&self) -> Option<Schedule> {
        None
    }

    /// True if the program runs at the return of functions and the kernel runs several such
    /// programs by the function graph.
    fn at_return(&self) -> bool {
        false
    }

    /// True if the kernel runs, of several programs at one place, the one first that was attached
    /// last. Asked of the programs that bring in pages ([`crate::Provider::before`]).
    fn newest_runs_first(&self) -> bool {
        false
    }

    /// True if the program only runs in hard interrupts.
    fn only_interrupts(&self) -> bool {
        false
    }

    /// False if the program cannot take so much time that the session must be watched.
    fn can_overload(&self) -> bool {
        true
    }

    /// Why the kernel rejected the program itself, where the verifier's reason says more to a user
    /// in other words.
    fn explain(&self, verifier: &str) -> Option<String> {
        let _ = verifier;
        None
    }
}

/// Functions of the kernel that a program is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions {
    /// Their number.
    pub count: usize,
    /// The name of the kernel's facility.
    pub by: &'static str,
}

/// The times at which a clock is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Nanoseconds between two firings.
    pub period: u64,
    /// Nanoseconds between two runs of the program. Less than the period if a firing may be late by
    /// some of them.
    pub interval: u64,
}
