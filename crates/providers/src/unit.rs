//! A unit: the plan of one program, from a provider to the session. It says how the program finds its probe and its arguments,
//! and how it is attached.

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
    /// It is not attached: the session runs it.
    Run,
    /// A raw tracepoint with the kernel's types (`tp_btf`).
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
    /// A clock or another perf counter, one event on each of these CPUs.
    Clock {
        /// What is counted.
        event: Counter,
        /// How much is counted between two runs of the program. A clock counts nanoseconds.
        period: u64,
        /// The CPUs.
        cpus: Vec<u32>,
        /// Nanoseconds between two firings of its probe, if they are known: missing firings are then reported. A multiple of
        /// the period if the program runs several times for a firing.
        due: Option<u64>,
        /// Fires on one CPU, and moves to another when that CPU goes offline. Else it also fires on CPUs that come online.
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
    /// Raw tracepoints by name, on kernels where they have no cookie. Each has a copy of the program; the number of the copy is
    /// the index of its probe.
    EachTracepoint(Vec<Arc<str>>),
    /// An event, by a perf event.
    Event {
        /// The kernel's number of the event.
        id: u64,
        /// `sched:sched_switch`, for messages.
        name: String,
    },
    /// Kernel functions from the kernel's own list. Those that the kernel refuses are left out.
    Sites(Rc<Sites>),
    /// By a function that came with the provider.
    Custom(CustomAttach),
}

/// A way to attach that this crate does not know, for providers of a user of the library ([`crate::Registry::with`]).
#[derive(Clone)]
pub struct CustomAttach {
    /// The kernel's kind of program.
    pub kind: ProgKind,
    /// How the program is loaded.
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
    /// The frame of the program itself.
    fn tracer_frames(&self) -> u8 {
        1
    }
}

/// One program to build and attach.
pub struct Unit {
    /// The program's name, in the kernel's lists and in messages.
    pub name: String,
    /// When the program runs.
    pub role: Role,
    /// Its probes, each with its index.
    pub probes: Vec<(u32, EnabledProbe)>,
    /// One more than the greatest possible index.
    pub space: u32,
    /// How a firing finds its probe and its arguments.
    pub context: Rc<dyn Context>,
    /// How the program is attached.
    pub attach: Attach,
    /// True if it also fires in interrupts. `self->` then has a copy for each context level.
    pub interrupts: bool,
}
