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
//! A file is read once, by the reader of symbols, however many processes run it. What was matched is remembered with its sites,
//! for the plan. What comes later is [`super::follow`]'s.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use diagnostics::Tag;
use probes::{
    Definition, FIELD_LIMITS, Family, MatchError, Pattern, ProbeDesc, ProbeId, glob_matches, is_glob,
};
use symbols::{DescribedProbes, ProbeSite, Processes, Readers};
use usdt::{Source, probe_name, provider_name};

use super::definitions::Definitions;
use super::follow::Followed;
use super::shared::{Forms, Shared, Sharing};
use crate::kernel::{kernel_for, try_aside};
use crate::lock;
use crate::method::{HeldFile, HeldProcess};
use crate::pid::object::{Held, Object, cut};
use crate::pid::processes::{read_objects, read_process};
use crate::source::{Found, IdRange, ProbeSource};

/// How long the reader may take for one request.
const READING: Duration = Duration::from_secs(5);

/// How long all processes may take, where a description names none.
const ALL: Duration = Duration::from_secs(20);

/// How long what was read of processes is taken for what they are. What they do meanwhile is looked at when tracing begins.
const RECENT: Duration = Duration::from_secs(1);

/// The memory of the reader.
const MEMORY: u64 = 1 << 30;

/// The function of a site where the file has no symbol.
const NO_FUNCTION: &str = "-";

/// The most probes that one description matches. A file of a hostile process may describe as many as it has bytes for.
pub(super) const MAX_PROBES: usize = 1 << 18;

/// The most files that are known. A process may make files without end; one that is forgotten is read again.
const MOST_FILES: usize = 1 << 16;

/// A site in a file.
#[derive(Debug)]
pub(super) struct Site {
    described: ProbeSite,
    /// What the file says of its provider.
    pub(super) definition: Option<Arc<Definition>>,
}

impl Deref for Site {
    type Target = ProbeSite;

    fn deref(&self) -> &ProbeSite {
        &self.described
    }
}

impl Site {
    /// What it has to have in common with others of a probe.
    fn form(&self) -> (Option<u32>, Vec<(u8, bool)>) {
        let number = self.definition.as_ref().map(|definition| definition.number);
        (number, self.arguments.iter().map(|a| (a.size, a.signed)).collect())
    }
}

/// A site in a process.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The process. `None`: all that run the file.
    pub(super) process: Option<Arc<HeldProcess>>,
    pub(super) file: Arc<HeldFile>,
    pub(super) site: Arc<Site>,
}

/// What was matched.
#[derive(Default)]
pub(super) struct Known {
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
    /// What is to be said.
    pub(super) warnings: Vec<String>,
}

impl Known {
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

    /// Remembers which probes a description has matched, if not by their names. `all`: by whatever names.
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
    pub(super) held: Held,
    /// The numbers of files as they are: what was written anew is another one.
    numbers: HashMap<(u64, u64, (i64, u32)), u64>,
    next_number: u64,
    /// The sites of files that were read, by their number.
    files: HashMap<u64, Sites>,
    /// How many there are in all.
    sites: usize,
    pub(super) followed: HashMap<u32, Followed>,
    pub(super) shared: Shared,
    /// What descriptions have matched first. A program that runs is checked again when probes come, and must then match what it matched before.
    pub(super) answers: HashMap<Pattern, Answer>,
    recent: Recent,
    definitions: Definitions,
}

/// What was read a moment ago: the descriptions of a program are matched one after the other.
#[derive(Default)]
struct Recent {
    since: Option<Instant>,
    describing: HashMap<String, Vec<u32>>,
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
type Answer = Result<Vec<Arc<ProbeDesc>>, MatchError>;

impl Reading {
    fn new(readers: &Readers) -> Reading {
        let mut symbols = Processes::new(readers);
        symbols.set_limits(READING, MEMORY);
        symbols.set_max_handles(max_files());
        let (held, numbers, next_number, files, sites, followed, shared, answers, recent, definitions) =
            Default::default();
        Reading {
            symbols,
            held,
            numbers,
            next_number,
            files,
            sites,
            followed,
            shared,
            answers,
            recent,
            definitions,
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

    /// The number of a file, and its sites. One that cannot be read has none.
    pub(super) fn sites(&mut self, object: &Object) -> (u64, Sites) {
        let number = self.number(object);
        if let Some(sites) = self.files.get(&number) {
            return (number, sites.clone());
        }
        let described = self.symbols.described_probes(object.text.file);
        let file = self.symbols.mapped_file(object.text.file);
        let was_closed = |file: &files::File| file.handle().is_none() && file.version().is_some();
        if described.is_err() && file.is_some_and(was_closed) {
            // More files were held since. It may be held when the process is looked at next.
            return (number, Sites::from([]));
        }
        let DescribedProbes { sites, providers } = described.unwrap_or_default();
        let path = self.symbols.mapped_file(object.text.file).map(|file| file.path.as_slice());
        let path = String::from_utf8_lossy(path.unwrap_or_default()).into_owned();
        let known = self.definitions.of_file(&providers, &path);
        let site = |described: ProbeSite| {
            let definition = known.get(described.provider.as_str()).cloned().flatten();
            Arc::new(Site { described: at_nop(described), definition })
        };
        let sites: Sites = sites.into_iter().map(site).collect();
        if self.files.len() >= MOST_FILES || self.sites > MAX_PROBES {
            self.files.clear();
            self.sites = 0;
        }
        self.sites += sites.len();
        self.files.insert(number, sites.clone());
        (number, sites)
    }

    /// True if a description was looked for in a file that a process maps.
    pub(super) fn has_searched(&mut self, pattern: &Pattern, number: u64, pid: u32) -> bool {
        self.shared.known(pattern, number, pid) == Some(Sharing::Known)
            || self.followed.get(&pid).is_some_and(|follow| follow.has_searched(pattern, number))
    }

    /// The processes that run a file which describes probes of a provider.
    fn describing(&mut self, provider: &str) -> Vec<u32> {
        let known = &mut self.recent.now().describing;
        let read = || describing(provider, &mut self.symbols);
        known.entry(provider.to_owned()).or_insert_with(read).clone()
    }

    /// The files that a process runs.
    fn objects(&mut self, pid: u32) -> Result<Vec<Object>, MatchError> {
        if let Some(known) = self.recent.now().objects.get(&pid) {
            return Ok(known.clone());
        }
        let objects = read_objects(pid, &mut self.symbols)?;
        self.recent.objects.insert(pid, objects.clone());
        Ok(objects)
    }

    /// The process of a number. What is followed is held as long as it is.
    fn process(&self, pid: u32) -> Result<Arc<HeldProcess>, MatchError> {
        let known = self.followed.get(&pid).map(|follow| &follow.process);
        match known.filter(|process| process.is_current()) {
            Some(process) => Ok(process.clone()),
            None => held_process(pid),
        }
    }

    /// A process is followed from now on.
    fn follow(&mut self, process: &Arc<HeldProcess>) -> &mut Followed {
        let known = self.followed.entry(process.pid()).or_insert_with(|| Followed::new(process.clone()));
        if !Arc::ptr_eq(&known.process, process) {
            *known = Followed::new(process.clone());
        }
        known
    }
}

/// How many files are held while they are read: a part of the descriptors, because those that have probes need two more, their own and that of
/// their link.
fn max_files() -> usize {
    const FEW: u64 = 512;
    const MOST: u64 = 1 << 14;
    (bpf_sys::fd_limit() / 4).clamp(FEW, MOST) as usize
}

/// The process that has a number.
pub(super) fn held_process(pid: u32) -> Result<Arc<HeldProcess>, MatchError> {
    read_process(pid, &mut Held::default())
}

/// The source.
pub(super) struct UsdtProbes {
    pub(super) family: Family,
    pub(super) reading: Mutex<Option<Reading>>,
    pub(super) known: Mutex<Known>,
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
    pub(super) fn with_known<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
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
        let one = self.family.pid(&pattern.provider);
        match one {
            Some(pid) => {
                // Says why there is no such process.
                let process = reading.process(pid)?;
                reading.follow(&process);
                matching.process(pid, reading)?;
            }
            None => {
                let begun = Instant::now();
                for pid in reading.describing(&pattern.provider) {
                    // One that has ended, or is not for us to see, has no probes.
                    let _ = matching.process(pid, reading);
                    if begun.elapsed() > ALL || matching.found.len() > MAX_PROBES {
                        break;
                    }
                }
            }
        }
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

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(Found<'_>)) -> Result<(), MatchError> {
        // What describes everything means the same in the next session, and processes come and go.
        if !pattern.names_provider() {
            return Ok(());
        }
        for desc in self.search(pattern)? {
            give(Found::Made((*desc).clone()));
        }
        Ok(())
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

/// Those of them that run a file which describes probes of a provider.
pub(super) fn describing(provider: &str, symbols: &mut Processes) -> Vec<u32> {
    // So many at a time that a file which takes the reader all its time hides few others: these are looked at one by one.
    const MOST: usize = 256;
    let (all, begun) = (processes(), Instant::now());
    let parts = all.chunks(MOST).enumerate().take_while(|_| begun.elapsed() < ALL);
    let found =
        parts.map(|(n, part)| symbols.describing(provider, n == 0, part).unwrap_or_else(|_| part.to_vec()));
    found.flatten().collect()
}

/// A site as the running kernel has it, which is tried where sites have nops at which kernels differ.
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

/// One description, and what it has matched.
pub(super) struct Match<'a> {
    pattern: &'a Pattern,
    /// A probe may be that of all processes.
    shares: bool,
    pub(super) found: BTreeMap<Arc<ProbeDesc>, Vec<Target>>,
    pub(super) refused: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// The providers that the process has, if the description names one process.
    others: HashSet<String>,
}

impl<'a> Match<'a> {
    pub(super) fn new(pattern: &'a Pattern, shares: bool) -> Match<'a> {
        let (found, refused, others) = Default::default();
        Match { pattern, shares: shares && pattern.provider.ends_with('*'), found, refused, others }
    }

    fn process(&mut self, pid: u32, reading: &mut Reading) -> Result<(), MatchError> {
        self.others.clear();
        // It may run any number of files that describe any number of probes.
        let mut read = 0;
        for object in reading.objects(pid)? {
            if self.found.len().max(read) > MAX_PROBES {
                break;
            }
            let (number, sites) = reading.sites(&object);
            read += sites.len();
            if !sites.is_empty() {
                self.others.extend(sites.iter().filter_map(|site| provider_name(&site.provider)));
                // A process is held only if it has probes.
                if self.selects(&object, &sites, pid) {
                    let process = reading.process(pid)?;
                    if self.object((&object, number, &sites), (&process, true), reading) {
                        reading.follow(&process);
                    }
                }
            }
            if let Some(follow) = reading.followed.get_mut(&pid) {
                follow.search(self.pattern, number);
            }
        }
        Ok(())
    }

    /// True if the description selects a site of a file in a process.
    pub(super) fn selects(&self, object: &Object, sites: &[Arc<Site>], pid: u32) -> bool {
        let selects = |site: &Arc<Site>| self.desc(object, site, (pid, self.shares)).is_some();
        object.is_called(&self.pattern.module) && sites.iter().any(selects)
    }

    /// Adds the sites of a file. `own`: also those that are of this process alone. True if there are any of those.
    pub(super) fn object(
        &mut self,
        (object, number, sites): (&Object, u64, &[Arc<Site>]),
        (process, own): (&Arc<HeldProcess>, bool),
        reading: &mut Reading,
    ) -> bool {
        let Reading { symbols, held, shared, .. } = reading;
        let pid = process.pid();
        let select = |shares: bool| -> Vec<(Arc<ProbeDesc>, bool, Arc<Site>)> {
            let of = |site: &Arc<Site>| {
                let (desc, is_shared) = self.desc(object, site, (pid, shares))?;
                Some((Arc::new(desc), is_shared, site.clone()))
            };
            sites.iter().filter_map(of).collect()
        };
        let mut selected = select(self.shares);
        let mut file = None;
        let mut find = || -> Arc<HeldFile> { file.get_or_insert_with(|| held.file(object, symbols)).clone() };
        let sharing = match shared.known(self.pattern, number, pid) {
            Some(sharing) => sharing,
            None => {
                let mut forms: HashMap<Arc<ProbeDesc>, Forms> = HashMap::new();
                for (desc, _, site) in selected.iter().filter(|(_, is_shared, _)| *is_shared) {
                    forms.entry(desc.clone()).or_default().insert(site.form());
                }
                match forms.is_empty() {
                    true => Sharing::Own,
                    false => shared.share((self.pattern, number), (&find(), &object.name), pid, forms),
                }
            }
        };
        if self.shares && sharing == Sharing::Own {
            selected = select(false);
        }
        let mut any_own = false;
        for (desc, is_shared, site) in selected {
            let is_wanted = if is_shared { sharing == Sharing::New } else { own };
            if !is_wanted {
                continue;
            }
            any_own |= !is_shared;
            if let Err(why) = &site.step {
                self.refused.insert(desc, why.as_str().into());
                continue;
            }
            let process = (!is_shared).then(|| process.clone());
            self.found.entry(desc).or_default().push(Target { process, file: find(), site });
        }
        any_own
    }

    /// The probe of a site, if the description selects it, and whether it is that of all processes.
    fn desc(
        &self,
        object: &Object,
        site: &ProbeSite,
        (pid, shares): (u32, bool),
    ) -> Option<(ProbeDesc, bool)> {
        let pattern = self.pattern;
        let is = |pattern: &str, text: &str| pattern == text || glob_matches(pattern, text);
        let provider = provider_name(&site.provider)?;
        // A glob that matches the name of the provider and ends with `*` matches it with any number.
        let is_shared = shares && is(&pattern.provider, &provider);
        let provider = if is_shared { format!("{provider}*") } else { format!("{provider}{pid}") };
        if !is(&pattern.provider, &provider) {
            return None;
        }
        let name = probe_name(&site.name)?;
        let function = site.function.as_ref().map_or(NO_FUNCTION, |(name, _)| cut(name, FIELD_LIMITS[2]));
        let selected = is(&pattern.function, function) && is(&pattern.name, &name);
        selected.then(|| (ProbeDesc::new(provider, object.name.clone(), function, name), is_shared))
    }

    /// Why nothing matches: said of descriptions of one process.
    fn nothing(self, pid: Option<u32>) -> Answer {
        if let Some((desc, why)) = self.refused.iter().next() {
            let message = format!("{}`{} has no such probe: {why}", desc.module, desc.name);
            return Err(MatchError::new(message).tagged(Tag::D_PROC_CREATEFAIL));
        }
        let Some(pid) = pid.filter(|_| !is_glob(&self.pattern.provider)) else { return Ok(Vec::new()) };
        let provider = self.pattern.provider.trim_end_matches(|c: char| c.is_ascii_digit());
        let mut others: Vec<String> = self.others.into_iter().collect();
        others.sort_unstable();
        let is_there = others.iter().any(|other| other == provider);
        if is_there {
            return Ok(Vec::new());
        }
        let message = format!("process {pid} has no probes of the provider \"{provider}\"");
        let error = MatchError { may_come: true, ..MatchError::new(message).tagged(Tag::D_PROC_USDT) };
        Err(match others.is_empty() {
            true => error.with_help("no file that it runs describes probes"),
            false => error.with_help(format!("its files describe {}", others.join(", "))),
        })
    }
}
