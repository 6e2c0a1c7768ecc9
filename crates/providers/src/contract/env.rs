//! What a provider plans for: the system, the options that matter to it, and the probes that are
//! enabled.

use std::sync::Arc;

use probes::{ProbeDesc, ProbeId};

use super::method::FunctionMethod;

/// The environment that a provider plans for: the running system, and options.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Facilities of the running kernel.
    pub features: &'a bpf_sys::features::Features,
    /// Online CPUs.
    pub cpus: &'a [u32],
    /// Trace this CPU only (`-x cpu`).
    pub only_cpu: Option<u32>,
    /// How to attach to functions of the kernel (`-x fbtmeans`). `None` chooses the best method of
    /// this kernel.
    pub method: Option<FunctionMethod>,
    /// How many functions may be attached one by one at most (`-x fbtmax`).
    pub single_attach_limit: usize,
    /// How returns of functions of processes are probed (`-x pidreturn`).
    pub returns: Returns,
    /// What is traced with selected processes (`-x follow`).
    pub follow: Follow,
    /// The id of the provider's first probe. [`crate::ProviderProbes::plan`] sets it.
    pub first: u32,
}

/// How returns are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// By uretprobe, unless something in the process may unwind through frames.
    #[default]
    Auto,
    /// By uretprobe.
    Uretprobe,
    /// At the instructions that leave the function.
    Instructions,
}

/// What is traced with processes: what they start (`-x follow`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// Nothing.
    #[default]
    None,
    /// The processes that they fork, with the probes that there are.
    Fork,
    /// The programs that these execute.
    Exec,
    /// Both.
    All,
}

impl Follow {
    /// True if processes are followed.
    pub fn any(self) -> bool {
        self != Follow::None
    }

    /// True if a process is traced from its fork on.
    pub fn forks(self) -> bool {
        matches!(self, Follow::Fork | Follow::All)
    }

    /// True if what followed processes execute and load has its probes.
    pub fn programs(self) -> bool {
        matches!(self, Follow::Exec | Follow::All)
    }
}

/// A probe that a session enables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledProbe {
    /// Its id.
    pub id: ProbeId,
    /// Its names.
    pub desc: Arc<ProbeDesc>,
    /// The arguments that its clauses use, as `argN` or `args[N]`: bit N.
    pub args: u64,
    /// A clause sets the result of the probed function (`return()`).
    pub sets_result: bool,
    /// A clause takes the process's stack: `ustack()`, `ucaller`, `ustackdepth`.
    pub user_stack: bool,
    /// A clause reads the process's registers: `uregs[]`.
    pub user_registers: bool,
}
