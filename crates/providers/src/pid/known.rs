//! What descriptions of the pid provider have matched: the places of their probes, and the
//! processes that they mean.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use bpf_sys::NestedReturns;
use probes::{Pattern, ProbeDesc, ProbeId};
use symbols::Calling;
use text::{EntryProbe, ReturnSite};

use crate::contract::method::{Detached, HeldFile, HeldProcess};

/// The places of each probe.
pub(super) type Targets = HashMap<Arc<ProbeDesc>, Vec<Target>>;

/// A function or an instruction that has a probe. A program may have a million, so what several
/// have is shared.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) place: Arc<Place>,
    /// Where the function begins in the file.
    pub(super) offset: u64,
    /// The places in the function.
    pub(super) at: At,
}

/// What functions of a file have in common.
#[derive(Debug)]
pub(super) struct Place {
    /// The processes that run it.
    pub(super) processes: Arc<[Arc<HeldProcess>]>,
    /// The file.
    pub(super) file: Arc<HeldFile>,
    /// Where their arguments and results are.
    pub(super) calling: Calling,
}

/// Places in a function.
#[derive(Clone, Debug)]
pub(super) enum At {
    /// The entry.
    Entry(Arc<Entries>),
    /// The returns.
    Return(Arc<Returns>),
    /// An instruction.
    Offset(EntryProbe),
}

/// The entry of a function, for each class of [`crate::process::lists::uses`].
pub(super) type Entries = [Result<EntryProbe, Arc<str>>; 4];

/// The returns of a function.
#[derive(Debug, PartialEq)]
pub(super) struct Returns {
    /// A place near the entry, for a uretprobe.
    pub(super) entry: Result<EntryProbe, Arc<str>>,
    /// The instructions, or why they are not certain.
    pub(super) sites: Result<Vec<ReturnSite>, Arc<str>>,
    /// It returns to the address on the stack.
    pub(super) by_the_stack: bool,
    /// It calls itself.
    pub(super) calls_itself: bool,
}

/// Values that many functions have in common: of those that were seen last, each is there once.
#[derive(Debug)]
pub(super) struct Pool<T>(VecDeque<Arc<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool(VecDeque::new())
    }
}

/// So many of the last values are looked at.
const LAST: usize = 16;

impl<T: PartialEq> Pool<T> {
    /// The value that is like this one, or this one.
    pub(super) fn get(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.0.iter().find(|known| ***known == value) {
            return known.clone();
        }
        let value = Arc::new(value);
        self.0.truncate(LAST - 1);
        self.0.push_front(value.clone());
        value
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        let is_of_same =
            Arc::ptr_eq(&self.processes, &other.processes) && Arc::ptr_eq(&self.file, &other.file);
        is_of_same && self.calling == other.calling
    }
}

/// The probes that a description has found, and their places.
#[derive(Default)]
pub(super) struct Places {
    targets: Targets,
    /// The probes in the order in which they were found.
    order: Vec<Arc<ProbeDesc>>,
}

impl Places {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn add(&mut self, desc: ProbeDesc, target: Target) {
        if let Some(known) = self.targets.get_mut(&desc) {
            known.push(target);
            return;
        }
        let desc = Arc::new(desc);
        self.order.push(desc.clone());
        // Nearly all have one, and the standard library would begin with memory for four.
        self.targets.insert(desc, Vec::from([target]));
    }

    /// The probes in the order in which they were found, and their places.
    pub(super) fn into_parts(self) -> (Vec<Arc<ProbeDesc>>, Targets) {
        (self.order, self.targets)
    }
}

/// What was matched.
#[derive(Default)]
pub(super) struct Matches {
    /// The places of each probe.
    pub(super) targets: Targets,
    /// The places of those that came later. Another probe may have the same names.
    pub(super) later: HashMap<ProbeId, Vec<Target>>,
    /// A process with the file of a probe that came later: the last one, where files of one name
    /// have such a function. Its types are asked for while the process is held, or soon after it
    /// was seen.
    pub(super) runners: HashMap<Arc<ProbeDesc>, u32>,
    /// What has no probe, and why.
    pub(super) left_out: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Why code of a process may unwind through frames.
    pub(super) unwinds: HashMap<u32, Option<String>>,
    /// The processes that the name of a provider means.
    pub(super) meant: BTreeMap<Arc<str>, Meant>,
    /// The probes of each process whose returns the kernel finds by the return address, where that
    /// was this provider's choice.
    pub(super) by_address: HashMap<u32, BTreeMap<ProbeId, Arc<ProbeDesc>>>,
    /// Processes that have code which unwinds since then, and why.
    pub(super) unwinding: Vec<(u32, String)>,
    /// The probes that are attached by links of processes.
    pub(super) links: HashMap<u32, Links>,
    /// What the kernel can do.
    pub(super) can: Abilities,
    /// Processes whose links are to be closed, because their probes are attached again.
    pub(super) detached: Vec<Detached>,
    /// Names of functions that no file has, each with a similar name, if there is one: they are
    /// looked for once.
    pub(super) similar: HashMap<String, Option<String>>,
    /// What is to be reported.
    pub(super) warnings: Vec<String>,
    /// The processes of which the kernel finds returns by the return address.
    pub(super) returned: BTreeSet<u32>,
    /// Where it says which it does not find, from the first of these on.
    pub(super) log: Option<NestedReturns>,
    /// The processes of which it has said so, and of which that was not reported.
    pub(super) nested: BTreeSet<u32>,
    /// Those whose returns are probed at the instructions since then, as far as these are certain,
    /// and of which that was not reported.
    pub(super) moved: BTreeSet<u32>,
    /// The same for as long as they run. It stays so, whatever they load: what unwinds is another
    /// matter.
    pub(super) deep: HashMap<u32, Weak<HeldProcess>>,
    /// The probes of descriptions by other names than theirs.
    pub(super) otherwise: HashMap<Pattern, Arc<HashSet<Arc<ProbeDesc>>>>,
}

/// The processes that the name of a provider means.
#[derive(Default)]
pub(super) struct Meant {
    /// The number of their set in the kernel, if they have one.
    pub(super) set: Option<u32>,
    /// It has come while they were traced, and only for places: what they map is followed for each
    /// of them.
    pub(super) shares: bool,
    /// It is decided whether they have one.
    is_decided: bool,
    /// The processes.
    pub(super) processes: Vec<Arc<HeldProcess>>,
}

/// Probes that are attached by links of a process.
pub(super) struct Links {
    pub(super) process: Arc<HeldProcess>,
    /// Of these it is not known whether the first thread ran when they were attached, or when
    /// others at their places were detached.
    pub(super) new: BTreeMap<ProbeId, Arc<ProbeDesc>>,
    /// It ran.
    pub(super) old: BTreeMap<ProbeId, Arc<ProbeDesc>>,
}

/// What the kernel can do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Abilities {
    /// One link has all places of a file, and keeps them.
    pub(super) multi: bool,
    /// Programs find processes in sets.
    pub(super) sets: bool,
}

impl Matches {
    /// The number of the set of the processes that the name of a provider means, if they have one.
    /// It does not change: what is known of their files depends on it.
    pub(super) fn set_of(
        &mut self,
        provider: &str,
        wants: impl FnOnce(&[Arc<HeldProcess>]) -> bool,
    ) -> Option<u32> {
        let next = self.sets();
        let meant = self.meant.get_mut(provider)?;
        if !std::mem::replace(&mut meant.is_decided, true) && wants(&meant.processes) {
            meant.set = Some(next);
        }
        meant.set
    }

    /// True if the processes that the name of a provider means have a set, and are followed by it.
    pub(super) fn has_set(&self, provider: &str) -> bool {
        self.meant.get(provider).is_some_and(|meant| meant.set.is_some() && !meant.shares)
    }

    /// The names of providers whose sets are among these, which are bits, and one process of each.
    pub(super) fn of_sets(&self, sets: u64) -> Vec<(Arc<str>, Arc<HeldProcess>)> {
        let is_one = |meant: &Meant| {
            !meant.shares && meant.set.is_some_and(|set| sets.checked_shr(set).unwrap_or(0) & 1 != 0)
        };
        let mine = self.meant.iter().filter(|(_, meant)| is_one(meant));
        mine.filter_map(|(name, meant)| Some((name.clone(), meant.processes.first()?.clone()))).collect()
    }

    /// The number of sets.
    pub(super) fn sets(&self) -> u32 {
        self.meant.values().filter(|meant| meant.set.is_some()).count() as u32
    }

    /// True if the name of a provider means a process.
    pub(super) fn means(&self, provider: &str, process: &Arc<HeldProcess>) -> bool {
        let meant = self.meant.get(provider);
        meant.is_some_and(|meant| meant.processes.iter().any(|known| Arc::ptr_eq(known, process)))
    }

    /// Adds processes that the name of a provider means.
    pub(super) fn mean(&mut self, provider: &Arc<str>, processes: &[Arc<HeldProcess>]) {
        let meant = self.meant.entry(provider.clone()).or_default();
        for process in processes {
            if !meant.processes.iter().any(|known| Arc::ptr_eq(known, process)) {
                meant.processes.push(process.clone());
            }
        }
    }

    /// A process that has mapped a file later in which the processes of a provider have probes.
    pub(super) fn later_runner(&self, provider: &str, module: &str) -> Option<u32> {
        let is_this = |desc: &ProbeDesc| *desc.provider == *provider && *desc.module == *module;
        self.runners.iter().find(|(desc, _)| is_this(desc)).map(|(_, pid)| *pid)
    }

    /// The places of a probe.
    pub(super) fn targets(&self, id: ProbeId, desc: &Arc<ProbeDesc>) -> &[Target] {
        let of_names = || self.targets.get(desc);
        self.later.get(&id).or_else(of_names).map_or(&[], Vec::as_slice)
    }

    /// Remembers which probes a description has matched, if not by their names.
    pub(super) fn matched(&mut self, pattern: &Pattern, descs: &[Arc<ProbeDesc>]) {
        if !descs.iter().all(|desc| pattern.matches(desc)) {
            let all = self.otherwise.entry(pattern.clone()).or_default();
            Arc::make_mut(all).extend(descs.iter().cloned());
        }
    }
}
