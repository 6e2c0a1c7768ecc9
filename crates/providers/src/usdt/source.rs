//! Which probes of USDT a description matches.
//!
//! ```text
//!  python123:libpython3.11.so.1.0:_PyEval_EvalFrameDefault:function-entry
//!     │   │         │                      │                    └─ as the note has it, with `-` for two underscores
//!     │   │         │                      └────────────────────── the function that contains the site; `-` where the file has no symbol there
//!     │   │         └───────────────────────────────────────────── the file that describes it
//!     │   └─────────────────────────────────────────────────────── a process, or a glob: then all processes that run are looked at
//!     └─────────────────────────────────────────────────────────── as the note has it
//! ```
//!
//! A file is read once, by the reader of symbols, however many processes run it. What was matched
//! is remembered with its sites, for the plan. What comes later is [`super::follow`]'s.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use probes::{Family, FieldKind, MatchError, Pattern, ProbeDesc, ProbeId};
use proc::share::{Owner, Owners};
use symbols::{DescribedProbes, ProbeSite, Processes, Readers};
use usdt::Source;

use super::definitions::Definitions;
use super::fair::{ALL, Fair, MAX_PROBES, leave};
use super::follow::{Brought, Followed};
use super::matching::Match;
use super::names::names;
use super::shared::{SharedFiles, Sharing};
use super::sites::{Site, Target};
use super::unread::Unread;
use crate::contract::method::HeldProcess;
use crate::contract::source::{FoundProbe, IdRange, ProbeSource};
use crate::lock;
use crate::process::kernel::{kernel_for, try_aside};
use crate::process::object::{Object, Objects};
use crate::process::read::{read_objects, read_process};

/// How long the reader may take for one request.
const READING: Duration = Duration::from_secs(5);

/// How long what was read of processes is taken for what they are. What they do meanwhile is looked
/// at when tracing begins.
const RECENT: Duration = Duration::from_secs(1);

/// The memory of the reader.
const MEMORY: u64 = 1 << 30;

/// The most files that are known. A process may make files without end; one that is forgotten is
/// read again.
const MOST_FILES: usize = 1 << 16;

/// What was matched.
#[derive(Default)]
pub(super) struct Matches {
    /// The sites of each probe.
    pub(super) targets: HashMap<Arc<ProbeDesc>, Vec<Target>>,
    /// Sites at which there is no probe, and why.
    pub(super) refused: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Those of the probes that came later. Another probe may have the same names.
    later: HashMap<ProbeId, (Arc<ProbeDesc>, Vec<Target>)>,
    /// Those of them that have the names, the newest last.
    named: HashMap<Arc<ProbeDesc>, Vec<ProbeId>>,
    /// The probes of descriptions by other names than theirs, and of those that share probes.
    otherwise: HashMap<Pattern, Arc<HashSet<Arc<ProbeDesc>>>>,
    /// What is to be said, since the last call.
    pub(super) left_out: Vec<String>,
}

impl Matches {
    /// The sites of a probe.
    pub(super) fn of(&self, id: ProbeId, desc: &Arc<ProbeDesc>) -> &[Target] {
        match self.later.get(&id) {
            Some((_, targets)) => targets,
            None => self.targets.get(desc).map_or(&[], Vec::as_slice),
        }
    }

    /// The sites of the last probe that has these names.
    pub(super) fn named(&self, desc: &ProbeDesc) -> &[Target] {
        let newest = self.named.get(desc).and_then(|ids| ids.last());
        let later = newest.and_then(|id| self.later.get(id)).map(|(_, targets)| targets);
        later.or_else(|| self.targets.get(desc)).map_or(&[], Vec::as_slice)
    }

    /// Adds a probe that came later.
    pub(super) fn add(&mut self, id: ProbeId, desc: Arc<ProbeDesc>, targets: Vec<Target>) {
        self.named.entry(desc.clone()).or_default().push(id);
        self.later.insert(id, (desc, targets));
    }

    /// Removes a probe that came later.
    pub(super) fn remove(&mut self, id: ProbeId) {
        let Some((desc, _)) = self.later.remove(&id) else { return };
        if let Some(ids) = self.named.get_mut(&desc) {
            ids.retain(|other| *other != id);
            if !ids.is_empty() {
                return;
            }
            self.named.remove(&desc);
        }
        if self.targets.contains_key(&desc) {
            return;
        }
        self.otherwise.values_mut().filter(|all| all.contains(&desc)).for_each(|all| {
            Arc::make_mut(all).remove(&desc);
        });
    }

    /// Remembers which probes a description has matched, if not by their names. `all`: by whatever
    /// names.
    pub(super) fn matched<'a>(
        &mut self,
        pattern: &Pattern,
        descs: impl Iterator<Item = &'a Arc<ProbeDesc>> + Clone,
        all: bool,
    ) {
        if all || !descs.clone().all(|desc| pattern.matches(desc)) {
            Arc::make_mut(self.otherwise.entry(pattern.clone()).or_default()).extend(descs.cloned());
        }
    }
}

/// What reads processes, and what was found.
pub(super) struct Reading {
    pub(super) symbols: Processes,
    pub(super) held: Objects,
    /// The numbers of files as they are: what was written anew is another one.
    numbers: HashMap<(u64, u64, (i64, u32)), u64>,
    next_number: u64,
    /// The sites of files that were read, by their number.
    files: HashMap<u64, Sites>,
    /// How many there are in all.
    sites: usize,
    pub(super) unread: Unread,
    pub(super) followed: HashMap<u32, Followed>,
    pub(super) brought: Brought,
    /// Processes that descriptions name: what they describe, all of it is used.
    pub(super) named: HashSet<u32>,
    pub(super) shared: SharedFiles,
    /// What descriptions have matched first. A program that runs is checked again when probes come,
    /// and must then match what it matched before.
    pub(super) answers: HashMap<Pattern, Answer>,
    recent: Recent,
    pub(super) definitions: Definitions,
    pub(super) owners: Owners,
}

/// What was read a moment ago: the descriptions of a program are matched one after the other.
#[derive(Default)]
struct Recent {
    since: Option<Instant>,
    describing: HashMap<String, (Vec<Owner>, usize)>,
    objects: HashMap<u32, Vec<Object>>,
}

impl Recent {
    fn now(&mut self) -> &mut Recent {
        if self.since.is_none_or(|since| since.elapsed() > RECENT) {
            *self = Recent { since: Some(Instant::now()), ..Recent::default() };
        }
        self
    }
}

/// The sites of a file.
type Sites = Arc<[Arc<Site>]>;

/// The probes that a description matches, or why there are none.
pub(super) type Answer = Result<Vec<Arc<ProbeDesc>>, MatchError>;

impl Reading {
    fn new(readers: &Readers) -> Reading {
        let mut symbols = Processes::new(readers);
        symbols.set_limits(READING, MEMORY);
        symbols.set_max_handles(max_files());
        Reading {
            symbols,
            held: Default::default(),
            numbers: Default::default(),
            next_number: Default::default(),
            files: Default::default(),
            sites: Default::default(),
            unread: Default::default(),
            followed: Default::default(),
            brought: Default::default(),
            named: Default::default(),
            shared: Default::default(),
            answers: Default::default(),
            recent: Default::default(),
            definitions: Default::default(),
            owners: Default::default(),
        }
    }

    /// The number of a file as it is now.
    pub(super) fn number(&mut self, object: &Object) -> u64 {
        let file = self.symbols.file_number(object.text.file);
        let version = self.symbols.mapped_file(object.text.file).and_then(files::File::version);
        let (size, modified) = version.unwrap_or_default();
        if self.numbers.len() >= MOST_FILES {
            self.numbers.clear();
        }
        let next = &mut self.next_number;
        *self.numbers.entry((file, size, modified)).or_insert_with(|| {
            *next += 1;
            *next
        })
    }

    /// The number of a file, and its sites. One that cannot be read has none, until it can be.
    pub(super) fn sites(&mut self, object: &Object) -> (u64, Sites) {
        let number = self.number(object);
        if let Some(sites) = self.files.get(&number) {
            return (number, sites.clone());
        }
        if self.unread.waits(number, Instant::now()) {
            return (number, Sites::from([]));
        }
        let described = self.symbols.described_probes(object.text.file);
        let file = self.symbols.mapped_file(object.text.file);
        let was_closed = |file: &files::File| file.handle().is_none() && file.version().is_some();
        if described.is_err() && file.is_some_and(was_closed) {
            // More files were held since. It may be held when the process is looked at next.
            return (number, Sites::from([]));
        }
        let DescribedProbes { sites, providers } = match described {
            Ok(described) => described,
            Err(why) => {
                self.unread.failed(number, why, Instant::now());
                return (number, Sites::from([]));
            }
        };
        self.unread.read(number);
        let path = self.symbols.mapped_file(object.text.file).map(|file| file.path.as_slice());
        let path = String::from_utf8_lossy(path.unwrap_or_default()).into_owned();
        let known = match providers.is_empty() {
            true => HashMap::new(),
            false => {
                let owner = match self.named.contains(&object.pid) {
                    true => Owner::new(object.pid, 0, ""),
                    false => self.owners.of(object.pid),
                };
                self.definitions.of_file(&providers, &path, &owner)
            }
        };
        let site = |described: ProbeSite| {
            let definition = known.get(described.provider.as_str()).cloned().flatten();
            Arc::new(Site { described: at_nop(described), definition })
        };
        let sites: Sites = sites.into_iter().map(site).collect();
        if self.files.len() >= MOST_FILES || self.sites > MAX_PROBES {
            self.files.clear();
            self.sites = 0;
        }
        // Another process that runs the file may have a share.
        if !self.definitions.take_refused() {
            self.sites += sites.len();
            self.files.insert(number, sites.clone());
        }
        (number, sites)
    }

    /// What is to be said of files, since the last call.
    pub(super) fn take_said(&mut self) -> Vec<String> {
        let mut all = self.unread.take_said();
        all.extend(self.definitions.take_said());
        all
    }

    /// True if a description was looked for in a file that a process maps.
    pub(super) fn has_searched(&mut self, pattern: &Pattern, number: u64, pid: u32) -> bool {
        self.shared.known(pattern, number, pid) == Some(Sharing::Matches)
            || self.followed.get(&pid).is_some_and(|follow| follow.has_searched(pattern, number))
    }

    /// The processes that run a file which describes probes of a provider, in turns, and how many
    /// could not be asked.
    fn describing(&mut self, provider: &str) -> (Vec<Owner>, usize) {
        let known = &mut self.recent.now().describing;
        let read = || describing(provider, &mut self.symbols, &mut self.owners);
        known.entry(provider.to_owned()).or_insert_with(read).clone()
    }

    /// The files that a process runs.
    pub(super) fn objects(&mut self, pid: u32) -> Result<Vec<Object>, MatchError> {
        if let Some(known) = self.recent.now().objects.get(&pid) {
            return Ok(known.clone());
        }
        let objects = read_objects(pid, &mut self.symbols)?;
        self.recent.objects.insert(pid, objects.clone());
        Ok(objects)
    }

    /// The process of a number. What is followed is held as long as it is.
    pub(super) fn process(&self, pid: u32) -> Result<Arc<HeldProcess>, MatchError> {
        let known = self.followed.get(&pid).map(|follow| &follow.process);
        match known.filter(|process| process.is_current()) {
            Some(process) => Ok(process.clone()),
            None => held_process(pid),
        }
    }

    /// A process is followed from now on.
    pub(super) fn follow(&mut self, process: &Arc<HeldProcess>) -> &mut Followed {
        let mut new = || Followed::new(process.clone(), self.owners.of(process.pid()));
        let known = self.followed.entry(process.pid()).or_insert_with(&mut new);
        if !Arc::ptr_eq(&known.process, process) {
            let old = std::mem::replace(known, new());
            self.brought.give(&old.owner, old.count());
        }
        known
    }
}

/// How many files are held while they are read: a part of the descriptors, because those that have
/// probes need two more, their own and that of their link.
fn max_files() -> usize {
    const FEW: u64 = 512;
    const MOST: u64 = 1 << 14;
    (bpf_sys::fd_limit() / 4).clamp(FEW, MOST) as usize
}

/// The process that has a number.
pub(super) fn held_process(pid: u32) -> Result<Arc<HeldProcess>, MatchError> {
    read_process(pid, &mut Objects::default())
}

/// The source.
pub(super) struct UsdtProbes {
    pub(super) family: Family,
    pub(super) reading: Mutex<Option<Reading>>,
    pub(super) known: Mutex<Matches>,
    /// Globs of processes mean probes of all of them: they are to be enabled.
    shares: AtomicBool,
    readers: OnceLock<Readers>,
}

impl UsdtProbes {
    pub(super) fn new(family: Family) -> UsdtProbes {
        UsdtProbes {
            family,
            reading: Mutex::default(),
            known: Mutex::default(),
            shares: AtomicBool::new(false),
            readers: OnceLock::new(),
        }
    }

    /// Reads files by these.
    pub(super) fn use_readers(&self, readers: &Readers) {
        let _ = self.readers.set(readers.clone());
    }

    pub(super) fn will_enable(&self) {
        self.shares.store(true, Ordering::Relaxed);
    }

    pub(super) fn shares(&self) -> bool {
        self.shares.load(Ordering::Relaxed)
    }

    /// Calls with what was matched so far.
    pub(super) fn with_known<T>(&self, f: impl FnOnce(&mut Matches) -> T) -> T {
        f(&mut lock(&self.known))
    }

    fn search(&self, pattern: &Pattern) -> Answer {
        let mut reading = lock(&self.reading);
        let reading = reading.get_or_insert_with(|| Reading::new(self.readers.get_or_init(Readers::new)));
        if let Some(answer) = reading.answers.get(pattern) {
            return answer.clone();
        }
        let answer = self.search_now(pattern, reading);
        // A refusal that no later file changes is made again.
        if answer.as_ref().map_or_else(|e| e.may_come, |_| true) {
            reading.answers.insert(pattern.clone(), answer.clone());
        }
        answer
    }

    fn search_now(&self, pattern: &Pattern, reading: &mut Reading) -> Answer {
        let mut matching = Match::new(pattern, self.shares());
        let (one, mut fair) = (self.family.pid(&pattern.provider), Fair::new());
        match one {
            Some(pid) => {
                // Says why there is no such process.
                let process = reading.process(pid)?;
                reading.follow(&process);
                reading.named.insert(pid);
                // What a description names it has all of.
                matching.process(&Owner::new(pid, 0, ""), reading, &mut fair)?;
            }
            None => {
                let (owners, others) = reading.describing(&pattern.provider);
                for owner in &owners {
                    // One that has ended, or is not for us to see, has no probes.
                    let _ = matching.process(owner, reading, &mut fair);
                }
                fair.leave_processes(&pattern.provider, others);
            }
        }
        let said = fair.said().into_iter().chain(reading.take_said());
        let mut known = lock(&self.known);
        said.for_each(|text| leave(&mut known.left_out, text));
        drop(known);
        if matching.found.is_empty() {
            if one.is_none() && self.shares() {
                try_aside();
            }
            return matching.nothing(one);
        }
        let mut known = lock(&self.known);
        known.refused.extend(matching.refused);
        let descs: Vec<Arc<ProbeDesc>> = matching.found.keys().cloned().collect();
        known.targets.extend(matching.found);
        known.matched(pattern, descs.iter(), self.selects_only_matched(pattern));
        Ok(descs)
    }
}

impl ProbeSource for UsdtProbes {
    fn ids(&self) -> IdRange {
        IdRange::Reserved(0)
    }

    fn positions(&self) -> u32 {
        0
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        // What describes everything means the same in the next session, and processes come and go.
        if !pattern.names_provider() {
            return Ok(());
        }
        for desc in self.search(pattern)? {
            give(FoundProbe::Made(desc));
        }
        Ok(())
    }

    /// Of one process alone: `node123`, or `*123` for the providers that it has.
    fn names(&self, pattern: &Pattern, field: FieldKind, give: &mut dyn FnMut(&str)) {
        let of_any = pattern.provider.strip_prefix('*').and_then(|pid| pid.parse().ok());
        let Some(pid) = self.family.pid(&pattern.provider).or(of_any) else { return };
        // What cannot be read in the time has no names.
        let _ = names(pid, pattern, field, self.readers.get_or_init(Readers::new), give);
    }

    fn running(&self, give: &mut dyn FnMut(ProbeDesc)) {
        let every = Pattern { provider: "*".into(), ..Pattern::default() };
        // What cannot be read has no probes.
        for desc in self.search(&every).unwrap_or_default() {
            give((*desc).clone());
        }
    }

    /// A process of its own may have a probe whose name a glob matches that shares another one.
    fn selects_only_matched(&self, pattern: &Pattern) -> bool {
        self.shares() && pattern.provider.ends_with('*')
    }

    fn matched_otherwise(&self, pattern: &Pattern) -> Option<Arc<HashSet<Arc<ProbeDesc>>>> {
        lock(&self.known).otherwise.get(pattern).cloned()
    }

    fn at(&self, _: u32) -> Option<Arc<ProbeDesc>> {
        None
    }
}

/// The numbers of the processes that run.
fn processes() -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Those of them that run a file which describes probes of a provider, in the order in which they
/// take turns, and how many there was no time to ask for.
pub(super) fn describing(
    provider: &str,
    symbols: &mut Processes,
    owners: &mut Owners,
) -> (Vec<Owner>, usize) {
    // So many at a time that a file which takes the reader all its time hides few others: these are
    // looked at one by one. Those of root are hidden by nobody else's.
    const MOST: usize = 256;
    let (all, begun) = (owners.in_turns(&processes()), Instant::now());
    let (roots, others) = all.split_at(all.partition_point(Owner::is_root));
    let mut first = true;
    let (mut found, mut left) = (Vec::new(), 0);
    for part in roots.chunks(MOST).chain(others.chunks(MOST)) {
        if begun.elapsed() >= ALL {
            left += part.len();
            continue;
        }
        let pids: Vec<u32> = part.iter().map(|owner| owner.pid).collect();
        let describing = symbols.describing(provider, std::mem::take(&mut first), &pids).unwrap_or(pids);
        let describing: HashSet<u32> = describing.into_iter().collect();
        found.extend(part.iter().filter(|owner| describing.contains(&owner.pid)).cloned());
    }
    (found, left)
}

/// A site as the running kernel has it, which is tried where sites have nops at which kernels
/// differ.
fn at_nop(mut site: ProbeSite) -> ProbeSite {
    if let Some((moved, step)) = site.nop.and_then(|nop| nop.probe(kernel_for(nop))) {
        site.offset = site.offset.saturating_add(moved.into());
        site.step = Ok(step);
        for argument in &mut site.arguments {
            if let Source::Memory(address) = &mut argument.source
                && address.from_site
            {
                address.offset = address.offset.wrapping_sub(moved.into());
            }
        }
    }
    site
}
