//! What a provider is: the names it answers for, its probes, their arguments, and how they are
//! attached.

use std::sync::Arc;

use bpf_sys::features::Facility;
use probes::{Args, Calls, ProbeDesc, ProviderFacts};

use super::changes::ChangeSource;
use super::env::{EnabledProbe, Env};
use super::process::ProcessProvider;
use super::source::ProbeSource;
use super::unit::{Role, Timing, Unit};

/// Opens a source of changes. It gives none where the system has none.
pub type OpenChanges<'a> = Box<dyn FnOnce() -> Option<Box<dyn ChangeSource>> + 'a>;

/// How descriptions mean the names of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Its probes match only descriptions whose provider field names it
    /// ([`probes::Pattern::names_provider`]). They fire together with those of another provider,
    /// and a description without a provider must not count an event twice.
    pub only_by_provider: bool,
    /// It takes the place of the providers of the system that answer for one of its names.
    /// Otherwise two providers of one name are an error.
    pub replaces: bool,
    /// The module and the function of a description that names the provider do not count.
    pub loose: bool,
    /// Users write the names of its probes alone, without the provider.
    pub alone: bool,
}

/// A provider.
pub trait Provider: Send + Sync {
    /// Properties of all its probes. They never change.
    fn facts(&self) -> ProviderFacts;

    /// How descriptions mean its names.
    fn names(&self) -> Names {
        Names::default()
    }

    /// What its entry and return probes are the ends of. One that [replaces](Names::replaces)
    /// another and says nothing has what that one says.
    fn calls(&self) -> Calls {
        Calls::None
    }

    /// Its probes.
    fn probes(&self) -> &dyn ProbeSource;

    /// The source of changes of its probes, if they come and go otherwise than with modules. It is
    /// opened when a session begins that can match them.
    fn changes(&self) -> Option<OpenChanges<'_>> {
        None
    }

    /// What it is besides, if its probes are in processes.
    fn processes(&self) -> Option<&dyn ProcessProvider> {
        None
    }

    /// The types of a probe's `args[]`: see [`probes::Catalog::args`].
    fn args(&self, probe: &ProbeDesc) -> Args {
        let _ = probe;
        Ok(Arc::new([]))
    }

    /// The facilities of the kernel of which one is needed to attach its probes; none where others
    /// decide.
    fn attached_by(&self) -> &'static [Facility] {
        &[]
    }

    /// Which of its probes this machine lacks, though their names are known everywhere: why, and
    /// what would give them.
    fn lacks(&self) -> Option<(String, String)> {
        None
    }

    /// What is asked from now on is for a user who waits at a prompt: nothing is tried of the
    /// kernel, and what takes long is not read. What may be there counts as being there.
    fn at_prompt(&self) {}

    /// When a probe of this provider fires.
    fn role(&self, probe: &ProbeDesc) -> Role {
        let _ = probe;
        Role::Probe
    }

    /// When time alone fires a probe of this provider; `None` if something else does.
    fn timing(&self, probe: &ProbeDesc) -> Option<Timing> {
        let _ = probe;
        None
    }

    /// Plans how to attach probes of this provider, of all names that it answers for. An error says
    /// what this kernel lacks.
    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String>;

    /// Plans the programs that run before those of [`Provider::plan`] in the same firing and may
    /// sleep, to bring in pages of the process. There are none if this kernel has no such programs.
    fn all_before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Vec<Unit> {
        let _ = (probes, env);
        Vec::new()
    }

    /// The only one of [`Provider::all_before`]: probes that come later need no more, since they
    /// have one shape.
    fn before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Option<Unit> {
        let mut all = self.all_before(probes, env);
        all.pop().filter(|_| all.is_empty())
    }
}
