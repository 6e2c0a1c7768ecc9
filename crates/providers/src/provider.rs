//! What a provider is: the names it answers for, its probes, their arguments, and how they are attached.

use std::sync::Arc;

use probes::{Args, Calls, ProbeDesc, ProbeId, ProviderFacts};

use crate::changes::ChangeSource;
use crate::method::FunctionMethod;
use crate::pid::Returns;
use crate::source::ProbeSource;
use crate::unit::{Role, Unit};

/// The environment that a provider plans for: the running system, and options.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Facilities of the running kernel.
    pub features: &'a bpf_sys::features::Features,
    /// Online CPUs.
    pub cpus: &'a [u32],
    /// Trace this CPU only (`-x cpu`).
    pub only_cpu: Option<u32>,
    /// How to attach to functions of the kernel (`-x fbtmeans`). `None` chooses the best method of this kernel.
    pub method: Option<FunctionMethod>,
    /// How many functions may be attached one by one at most (`-x fbtmax`).
    pub single_attach_limit: usize,
    /// How returns of functions of processes are probed (`-x pidreturn`).
    pub returns: Returns,
    /// The id of the provider's first probe. [`Registry::plan`] sets it.
    pub first: u32,
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

/// A provider.
pub trait Provider: Send + Sync {
    /// Properties of all its probes. They never change.
    fn facts(&self) -> ProviderFacts;

    /// What its entry and return probes are the ends of. One that [replaces](Provider::replaces) another and says nothing has what
    /// that one says.
    fn calls(&self) -> Calls {
        Calls::None
    }

    /// True if its probes match only descriptions whose provider field names it ([`probes::Pattern::names_provider`]). Its probes
    /// fire together with those of another provider, and a description without a provider must not count an event twice.
    fn only_by_name(&self) -> bool {
        false
    }

    /// True if it takes the place of the providers of the system that answer for one of its names. Otherwise two providers of one
    /// name are an error.
    fn replaces(&self) -> bool {
        false
    }

    /// True if the module and the function of a description that names the provider do not count.
    fn has_loose_names(&self) -> bool {
        false
    }

    /// Its probes.
    fn probes(&self) -> &dyn ProbeSource;

    /// True if its probes come and go otherwise than with modules: [`Provider::changes`] knows how.
    fn has_changes(&self) -> bool {
        false
    }

    /// The source of changes of its probes. It is opened when a session begins that can match them.
    fn changes(&self) -> Option<Box<dyn ChangeSource>> {
        None
    }

    /// The types of a probe's `args[]`: see [`probes::Catalog::args`].
    fn args(&self, probe: &ProbeDesc) -> Args {
        let _ = probe;
        Ok(Arc::new([]))
    }

    /// When a probe of this provider fires.
    fn role(&self, probe: &ProbeDesc) -> Role {
        let _ = probe;
        Role::Probe
    }

    /// Plans how to attach probes of this provider, of all names that it answers for. An error says what this kernel lacks.
    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String>;

    /// Plans a program that runs before those of [`Provider::plan`] in the same firing and may sleep, to bring in pages of the
    /// process. `None` if this kernel has no such programs.
    fn before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Option<Unit> {
        let _ = (probes, env);
        None
    }
}
