//! Sources of probes: what a provider answers about the probes that it has.
//!
//! ```text
//!  matches    the probes that a description selects, with those that it makes; why there are none     check, -l PATTERN
//!  at         the probe at a position                                                                  -i, ids in scripts
//!  matches    with the empty pattern: all probes that exist, one at a time, in the order of ids        -l
//!  added      the probes of modules that were loaded                                                   ProbesChanged
//!  names      what a field of a description can be, at once                                                completions
//!  removed    what describes the probes of modules that were unloaded                                  ProbesChanged
//! ```
//!
//! The decision that shapes this interface: a probe that exists has a *position*, and the registry
//! makes its id from the provider's first id and the position. So a provider with a hundred
//! thousand probes stores none of them: it finds them in what it has read, and computes a
//! description when it is asked for one. A provider with few probes has a [`ProbeList`], which is
//! such a source.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use probes::{FieldKind, MatchError, Pattern, ProbeDesc};

/// The probes of a provider.
pub trait ProbeSource: Send + Sync {
    /// Which ids its positions have.
    fn ids(&self) -> IdRange {
        IdRange::Counted
    }

    /// The number of positions. A position may have no probe.
    fn positions(&self) -> u32;

    /// The number of ids that an [`Estimated`](IdRange::Estimated) range has, found without
    /// counting the positions.
    fn estimate(&self) -> u32 {
        self.positions()
    }

    /// False if the pattern's globs alone show that it matches no probe of this source. The source
    /// is then not asked, and reads nothing.
    fn may_match(&self, pattern: &Pattern) -> bool {
        let _ = pattern;
        true
    }

    /// Calls `give` with each probe that a pattern matches, in the order of positions, then with
    /// those that it makes for the pattern. The empty pattern matches all that exist and makes
    /// none. An error says why the pattern matches none, if there is more to say.
    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError>;

    /// Calls `give` with what a field of the probes is that a pattern matches, for a user who waits
    /// at a prompt: in any order, some of them perhaps more than once. What takes long is not read,
    /// so that names may be among them of which there is no probe.
    fn names(&self, pattern: &Pattern, field: FieldKind, give: &mut dyn FnMut(&str)) {
        // What cannot be matched has no names.
        let _ = self.matches(pattern, &mut |found| give(found.desc().field(field)));
    }

    /// False if it is known without reading much that there are no probes here.
    fn may_have_probes(&self) -> bool {
        true
    }

    /// Calls `give` with each probe that files of running processes describe: the list of all
    /// probes ends with them, although no pattern without the name of a provider matches them.
    fn running(&self, give: &mut dyn FnMut(ProbeDesc)) {
        let _ = give;
    }

    /// These patterns, which may match probes of this source, will be asked for next: what they
    /// need can be read for all at once.
    fn announce(&self, patterns: &[Pattern]) {
        let _ = patterns;
    }

    /// The probes that a pattern has matched by other names than theirs, as `libc` and `a.out`.
    fn matched_otherwise(&self, pattern: &Pattern) -> Option<Arc<HashSet<Arc<ProbeDesc>>>> {
        let _ = pattern;
        None
    }

    /// True if a pattern selects no later probe of this source but those of
    /// [`ProbeSource::matched_otherwise`], whatever their names.
    fn selects_only_matched(&self, pattern: &Pattern) -> bool {
        let _ = pattern;
        false
    }

    /// The probes that a pattern would match, with their positions, if what they are derived from
    /// existed.
    fn absent(&self, pattern: &Pattern) -> Vec<(u32, Arc<ProbeDesc>)> {
        let _ = pattern;
        Vec::new()
    }

    /// Probes of other sources came, from which some of this one may be derived.
    fn others_changed(&self) {}

    /// The probe at a position.
    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>>;

    /// True if modules that are loaded later have probes of this source.
    fn follows_modules(&self) -> bool {
        false
    }

    /// The probes of modules that were loaded after the source was first asked. They have no
    /// position.
    fn added(&self, modules: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        let _ = modules;
        Vec::new()
    }

    /// Descriptions of the probes that no longer exist, with and without a position, as modules
    /// were unloaded.
    fn removed(&self, modules: &UnloadedModules<'_>) -> Vec<Pattern> {
        let _ = modules;
        Vec::new()
    }
}

/// Which ids the positions of a source have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRange {
    /// As many as this limit, which is known before the probes are. The ids of other providers then
    /// do not depend on the source.
    Reserved(u32),
    /// As many as the source has positions.
    Counted,
    /// As many as [`ProbeSource::estimate`] says. Some may be of no position, and positions beyond
    /// have ids as those beyond a limit.
    Estimated,
}

/// A probe that a pattern matches.
#[derive(Debug)]
pub enum FoundProbe<'a> {
    /// At a position, from a list.
    Listed(u32, &'a Arc<ProbeDesc>),
    /// At a position, computed.
    Computed(u32, ProbeDesc),
    /// Made for the pattern. It is valid in one session.
    Made(Arc<ProbeDesc>),
}

impl FoundProbe<'_> {
    /// Its names.
    pub fn desc(&self) -> &ProbeDesc {
        match self {
            FoundProbe::Listed(_, desc) => desc,
            FoundProbe::Computed(_, desc) => desc,
            FoundProbe::Made(desc) => desc,
        }
    }

    /// Its position, if it has one.
    pub fn position(&self) -> Option<u32> {
        match self {
            FoundProbe::Listed(at, _) | FoundProbe::Computed(at, _) => Some(*at),
            FoundProbe::Made(_) => None,
        }
    }

    /// Its names, to be kept.
    pub fn shared(self) -> Arc<ProbeDesc> {
        match self {
            FoundProbe::Listed(_, desc) => desc.clone(),
            FoundProbe::Computed(_, desc) => Arc::new(desc),
            FoundProbe::Made(desc) => desc,
        }
    }
}

/// Modules that were loaded after the sources were first asked.
#[derive(Clone, Copy, Debug)]
pub struct LoadedModules<'a> {
    /// Their names.
    pub modules: &'a BTreeSet<String>,
    /// All modules that were unloaded since the start. Their positions have no probe any more. A
    /// module that is not among them and has positions was loaded while the source read its list:
    /// its probes are known.
    pub unloaded: &'a BTreeSet<String>,
    /// Counts the changes. Sources that share a list read it once for each change.
    pub sequence: u32,
    /// The id of the first new probe of the source. The others follow.
    pub first_id: u32,
}

/// Modules that were unloaded.
#[derive(Clone, Copy, Debug)]
pub struct UnloadedModules<'a> {
    /// Their names.
    pub modules: &'a BTreeSet<String>,
    /// Counts the changes: see [`LoadedModules::sequence`].
    pub sequence: u32,
}

/// Probes that are few enough for a list, which is made when it is first needed.
pub struct ProbeList {
    ids: IdRange,
    make: Box<dyn Fn() -> Vec<ProbeDesc> + Send + Sync>,
    list: OnceLock<Vec<Arc<ProbeDesc>>>,
    may_match: fn(&Pattern) -> bool,
    on_demand: Option<Box<MakeFn>>,
}

/// Makes the probe that a pattern without globs names. `None` if the name is none of the
/// provider's; an error says why it cannot make it.
pub type MakeFn = dyn Fn(&Pattern) -> Option<Result<ProbeDesc, MatchError>> + Send + Sync;

impl ProbeList {
    /// The list that a function makes.
    pub fn new(make: impl Fn() -> Vec<ProbeDesc> + Send + Sync + 'static) -> ProbeList {
        let make = Box::new(make);
        ProbeList { ids: IdRange::Counted, make, list: OnceLock::new(), may_match: |_| true, on_demand: None }
    }

    /// With ids for this many probes, which is a limit of the list's length.
    pub fn reserve(self, limit: usize) -> ProbeList {
        ProbeList { ids: IdRange::Reserved(limit as u32), ..self }
    }

    /// With a test of patterns that is made before the list is: see [`ProbeSource::may_match`].
    pub fn if_pattern(self, may_match: fn(&Pattern) -> bool) -> ProbeList {
        ProbeList { may_match, ..self }
    }

    /// With probes that are made on demand, where the list has none that a pattern without globs
    /// names.
    pub fn on_demand(
        self,
        make: impl Fn(&Pattern) -> Option<Result<ProbeDesc, MatchError>> + Send + Sync + 'static,
    ) -> ProbeList {
        ProbeList { on_demand: Some(Box::new(make)), ..self }
    }

    /// The probes, which are listed now if they were not.
    pub fn probes(&self) -> &[Arc<ProbeDesc>] {
        self.list.get_or_init(|| (self.make)().into_iter().map(Arc::new).collect())
    }
}

impl ProbeSource for ProbeList {
    fn ids(&self) -> IdRange {
        self.ids
    }

    fn positions(&self) -> u32 {
        self.probes().len() as u32
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        (self.may_match)(pattern)
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        let mut any = false;
        for (at, desc) in (0..).zip(self.probes()).filter(|(_, desc)| pattern.matches(desc)) {
            any = true;
            give(FoundProbe::Listed(at, desc));
        }
        if any || !pattern.is_specific() {
            return Ok(());
        }
        if let Some(made) = self.on_demand.as_ref().and_then(|make| make(pattern)) {
            give(FoundProbe::Made(Arc::new(made?)));
        }
        Ok(())
    }

    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>> {
        self.probes().get(position as usize).cloned()
    }
}
