//! What a provider hands to the session: one program shape and one way to attach it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bpf::program::Context;
use bpf::sys::{AttachType, Counter, Link, Prog, ProgKind, SysError};

use crate::registry::EnabledProbe;
use crate::sites::Sites;

/// When a unit's program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// When its probes fire.
    Probe,
    /// Once, before anything else.
    Begin,
    /// Once, after everything else.
    End,
    /// When a clause faults.
    Error,
}

/// How a program is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Not at all: the session runs it.
    Run,
    /// A raw tracepoint, typed by BTF.
    TpBtf {
        /// `sys_enter`
        name: String,
        /// Id of `btf_trace_NAME`.
        btf_id: u32,
    },
    /// A raw tracepoint.
    RawTp {
        /// `sys_enter`
        name: String,
    },
    /// A clock, or a counter of something else, on each of these CPUs.
    Clock {
        /// What is counted.
        event: Counter,
        /// What is counted between two firings: nanoseconds for the clock.
        period: u64,
        /// Where.
        cpus: Vec<u32>,
        /// Nanoseconds in which its probe is due once, where that is known: how often it did not fire is then told. A
        /// multiple of the period where the program has several chances.
        due: Option<u64>,
        /// Fires on one CPU and moves to another when that goes away; else also on CPUs that come.
        single: bool,
    },
    /// Kernel functions, all at once; the cookie of a function is the index of its probe.
    Functions {
        /// Symbol and index.
        functions: Vec<(String, u64)>,
        /// On return instead of entry.
        on_return: bool,
    },
    /// Raw tracepoints by name; the cookie of each is the index of its probe.
    Tracepoints(Vec<Arc<str>>),
    /// Raw tracepoints by name, where they carry no cookie: each has a copy of the program, whose number is the index of the
    /// probe.
    EachTracepoint(Vec<Arc<str>>),
    /// An event, by perf.
    Event {
        /// The kernel's number of it.
        id: u64,
        /// `sched:sched_switch`, for messages.
        name: String,
    },
    /// Kernel functions by their places in the kernel's own list; those it refuses are left out.
    Sites(Rc<Sites>),
    /// As whoever brought the provider says.
    Custom(CustomAttach),
}

/// A way to attach that this crate does not know: for providers that a user of the library brings along
/// ([`crate::Registry::with`]).
#[derive(Clone)]
pub struct CustomAttach {
    /// The kernel's kind of program.
    pub kind: ProgKind,
    /// How it is to be loaded.
    pub attach_type: AttachType,
    /// Attaches a loaded program, until the links are dropped.
    pub attach: Rc<AttachFn>,
}

/// A function that attaches a program.
pub type AttachFn = dyn Fn(&Prog) -> Result<Vec<Link>, SysError>;

impl fmt::Debug for CustomAttach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomAttach")
            .field("kind", &self.kind)
            .field("attach_type", &self.attach_type)
            .finish_non_exhaustive()
    }
}

impl PartialEq for CustomAttach {
    fn eq(&self, other: &CustomAttach) -> bool {
        (self.kind, self.attach_type) == (other.kind, other.attach_type)
            && Rc::ptr_eq(&self.attach, &other.attach)
    }
}

impl Eq for CustomAttach {}

/// A context of probes without arguments.
pub(crate) struct NoArguments;

impl Context for NoArguments {
    /// The program.
    fn tracer_frames(&self) -> u8 {
        1
    }
}

/// One program to build and attach.
pub struct Unit {
    /// For listings and messages.
    pub name: String,
    /// When it runs.
    pub role: Role,
    /// Its probes, each at its index.
    pub probes: Vec<(u32, EnabledProbe)>,
    /// All indexes are below this.
    pub space: u32,
    /// How a firing knows its probe and arguments.
    pub context: Rc<dyn Context>,
    /// How it is attached.
    pub attach: Attach,
    /// Fires in interrupts, too: `self->` keeps a copy for each context level.
    pub interrupts: bool,
}
