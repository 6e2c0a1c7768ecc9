//! What a provider is: the names it answers for, its probes, their arguments, and how they are attached.

use std::sync::Arc;

use probes::{Args, Calls, Definition, Pattern, ProbeDesc, ProbeId, ProviderFacts, UserObject};
use proc::Selection;
use symbols::Readers;

use crate::changes::{Change, ChangeSource};
use crate::method::{Detached, FunctionMethod, Members};
use crate::pid::Returns;
use crate::registry::Registry;
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
    /// What is traced with selected processes (`-x follow`).
    pub follow: Follow,
    /// The id of the provider's first probe. [`Registry::plan`] sets it.
    pub first: u32,
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
    /// The value of the option.
    pub fn named(name: &str) -> Follow {
        match name {
            "fork" => Follow::Fork,
            "exec" => Follow::Exec,
            "all" => Follow::All,
            _ => Follow::None,
        }
    }

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

    /// The processes of which it has probes, if what they map and execute later has probes too: [`Provider::process_changed`] is called
    /// for these.
    fn processes(&self) -> Option<Vec<u32>> {
        None
    }

    /// True if every process may come to have probes that one of these patterns matches: [`Provider::process_changed`] is called for all.
    fn follows_all(&self, patterns: &[Pattern]) -> bool {
        let _ = patterns;
        false
    }

    /// The processes that run which may have probes of these patterns, where [all are followed](Provider::follows_all).
    fn running(&self, patterns: &[Pattern]) -> Vec<u32> {
        let _ = patterns;
        Vec::new()
    }

    /// True if libraries that a process loads may have probes, or change how those that it has are made.
    fn follows_loading(&self, pid: u32) -> bool {
        let _ = pid;
        false
    }

    /// A process has mapped or unmapped files, or executed another program, or ended. `sets` are those in which it is, as bits. Adds and removes
    /// its probes in the registry, like a [`ChangeSource`]. A call without a change is cheap.
    fn process_changed(
        &self,
        registry: &Registry,
        (pid, sets): (u32, u64),
        patterns: &[Pattern],
    ) -> Vec<Change> {
        let _ = (registry, pid, sets, patterns);
        Vec::new()
    }

    /// What was planned is attached: the probes that are to be attached again, because the process in which they are has changed meanwhile.
    fn settle(&self, registry: &Registry) -> Vec<Change> {
        let _ = registry;
        Vec::new()
    }

    /// The processes whose [links](crate::method::SiteLink::of_process) are to be closed, because their probes are attached again, since the last call.
    fn take_detached(&self) -> Vec<Detached> {
        Vec::new()
    }

    /// Closes the files that no running process has mapped for a while. It is called again and again; most calls do nothing.
    fn close_unmapped(&self) {}

    /// Which probes are left out, and why, since the last call: numbers lack theirs.
    fn take_left_out(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is to be reported since the last call.
    fn take_warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Of which firings it is known that they are missing, since the last call: asked at the end.
    fn missed(&self) -> Vec<String> {
        Vec::new()
    }

    /// The sets of processes that programs of this provider look for: see [`Members`]. They are filled when tracing begins, also where there is no
    /// probe yet.
    fn members(&self, env: &Env<'_>) -> Vec<Members> {
        let _ = env;
        Vec::new()
    }

    /// The processes that have code which unwinds through frames since returns of their functions were probed by their return addresses, and
    /// why, since the last call. Links to them that [keep](crate::method::SiteLink::returns_in) return addresses are to be closed.
    fn take_unwinding(&self) -> Vec<(u32, String)> {
        Vec::new()
    }

    /// The types of a probe's `args[]`: see [`probes::Catalog::args`].
    fn args(&self, probe: &ProbeDesc) -> Args {
        let _ = probe;
        Ok(Arc::new([]))
    }

    /// What the file that has a probe says of its provider: see [`probes::Catalog::definition`].
    fn definition(&self, probe: &ProbeDesc) -> Option<Arc<Definition>> {
        let _ = probe;
        None
    }

    /// The types of a file that the processes of a provider's name run: see [`probes::Catalog::object`].
    fn object(&self, provider: &str, object: &str) -> Option<Result<Arc<dyn UserObject>, String>> {
        let _ = (provider, object);
        None
    }

    /// When a probe of this provider fires.
    fn role(&self, probe: &ProbeDesc) -> Role {
        let _ = probe;
        Role::Probe
    }

    /// The probes that match are to be enabled, and not only listed.
    fn will_enable(&self) {}

    /// Says which processes a name can mean that is not that of one process.
    fn select_processes(&self, selection: &Selection) {
        let _ = selection;
    }

    /// Reads files of processes by these.
    fn use_readers(&self, readers: &Readers) {
        let _ = readers;
    }

    /// Plans how to attach probes of this provider, of all names that it answers for. An error says what this kernel lacks.
    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String>;

    /// Plans the programs that run before those of [`Provider::plan`] in the same firing and may sleep, to bring in pages of the
    /// process. There are none if this kernel has no such programs.
    fn all_before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Vec<Unit> {
        let _ = (probes, env);
        Vec::new()
    }

    /// The only one of [`Provider::all_before`]: probes that come later need no more, since they have one shape.
    fn before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Option<Unit> {
        let mut all = self.all_before(probes, env);
        all.pop().filter(|_| all.is_empty())
    }
}
