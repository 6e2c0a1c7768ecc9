//! Which probes a description of the pid provider matches.
//!
//! ```text
//!  pid123:libc:mal*:entry
//!      │    │    │    └─ entry, return, the offset of an instruction; a glob of them
//!      │    │    └────── functions of the files, which the reader of symbols lists (with the places of their probes); `-`: none, the
//!      │    │            offset is an address of the file
//!      │    └─────────── files that the process runs
//!      └──────────────── one process, or a glob: those of the selection (`-x processes`) that it matches
//! ```
//!
//! The probes of a glob are not those of each process, but one for each function, with the glob in
//! the place of the process: a thousand processes that run one library have as many probes as one
//! has. Which process fired is known when it fires.
//!
//! No probe is listed before a description asks for it. What was matched is remembered with its
//! place, for the plan, and the answer itself, because a program that runs is checked again when
//! probes come, and must then match what it matched before. What a process maps later is
//! [`super::follow`]'s.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use super::follow::{Answer, FileChange, Files, Followed, may_come};
use super::known::{Matches, Target};
use super::matching::{Match, READING};
use crate::contract::method::{HeldFile, HeldProcess};
use crate::contract::source::{FoundProbe, IdRange, ProbeSource};
use crate::lock;
use crate::process::lists::{Wanted, similar, wants_similar};
use crate::process::object::{Object, Objects};
use crate::process::read::{Group, PROMPT, read_objects, read_process, unwinds};
use probes::{Family, FieldKind, MatchError, Pattern, ProbeDesc, ProbeId, glob_matches, is_glob};
use proc::Selection;
use symbols::{FunctionQuery, Processes, Readers, Select};

/// So many processes are attached to one by one at most: see [`super::sides`].
pub(super) const FEW_PROCESSES: usize = 8;

/// The memory of the reader.
const MEMORY: u64 = 1 << 30;

impl Matches {
    /// For each file that has a probe, a process that runs it.
    pub(super) fn runners(&self, probe: &ProbeDesc) -> Vec<u32> {
        let mut all: Vec<(&Arc<HeldFile>, u32)> = Vec::new();
        for target in self.targets.get(probe).into_iter().flatten() {
            let is_new = !all.iter().any(|(file, _)| Arc::ptr_eq(file, &target.place.file));
            let one = target.place.processes.first().filter(|_| is_new);
            all.extend(one.map(|one| (&target.place.file, one.pid())));
        }
        all.into_iter().map(|(_, pid)| pid).collect()
    }

    /// The processes that have probes of a provider.
    pub(super) fn probed(&self, provider: &str) -> BTreeSet<u32> {
        let of_provider = self.targets.iter().filter(|(desc, _)| &*desc.provider == provider);
        let places = of_provider.flat_map(|(_, targets)| targets).map(|target| &target.place);
        let processes = places.flat_map(|place| place.processes.iter());
        processes.map(|process| process.pid()).collect()
    }

    /// Remembers what a description has found, and gives the probes.
    fn remember(&mut self, pattern: &Pattern, mut matching: Match<'_>) -> Arc<[Arc<ProbeDesc>]> {
        self.left_out.extend(std::mem::take(&mut matching.left_out));
        self.left_out.extend(std::mem::take(&mut matching.unread));
        let (descs, targets) = matching.found.into_parts();
        descs.iter().for_each(|desc| drop(self.left_out.remove(desc)));
        if self.targets.is_empty() {
            self.targets = targets;
        } else {
            self.targets.extend(targets);
        }
        self.matched(pattern, &descs);
        descs.into()
    }
}

/// What reads processes, and what was found.
struct Reading {
    symbols: Processes,
    held: Objects,
    followed: HashMap<u32, Followed>,
    /// The files of the processes that the name of a provider means.
    files: HashMap<Arc<str>, Files>,
    /// What descriptions of several processes have matched.
    several: HashMap<Pattern, Answer>,
}

impl Reading {
    fn new(readers: &Readers) -> Reading {
        let mut symbols = Processes::new(readers);
        symbols.set_limits(READING, MEMORY);
        let (held, followed, files, several) = Default::default();
        Reading { symbols, held, followed, files, several }
    }
}

/// The source.
pub(super) struct PidProbes {
    family: Family,
    reading: Mutex<Option<Reading>>,
    known: Mutex<Matches>,
    selection: OnceLock<Selection>,
    readers: OnceLock<Readers>,
}

impl PidProbes {
    pub(super) fn new(family: Family) -> PidProbes {
        let (reading, known, selection, readers) = Default::default();
        PidProbes { family, reading, known, selection, readers }
    }

    /// Reads files by these.
    pub(super) fn use_readers(&self, readers: &Readers) {
        let _ = self.readers.set(readers.clone());
    }

    /// What reads processes, for the first one that is asked for.
    fn begin(&self) -> Reading {
        Reading::new(self.readers.get_or_init(Readers::new))
    }

    /// Sets which processes a glob can mean.
    pub(super) fn select(&self, selection: &Selection) {
        let _ = self.selection.set(selection.clone());
    }

    /// The processes that the provider of a description means, which is a glob.
    fn several(&self, pattern: &Pattern) -> Result<Vec<u32>, MatchError> {
        let every = Selection::default();
        let all = self.selection.get().unwrap_or(&every).processes();
        let all = all.map_err(|e| MatchError::new(format!("the processes cannot be listed: {e}")))?;
        let is_meant =
            |pid: &u32| self.family.name_of(*pid).is_some_and(|name| glob_matches(&pattern.provider, &name));
        Ok(all.into_iter().filter(is_meant).collect())
    }

    /// The description of one process that this one is: a glob that ends with the id of the process
    /// whose provider it matches (`p*d123`), as in the original.
    fn of_one(&self, pattern: &Pattern) -> Option<Pattern> {
        let glob = &pattern.provider;
        if !is_glob(glob) || self.family.is_of_several(glob) {
            return None;
        }
        let name = self.family.name_like(glob).filter(|name| glob_matches(glob, name))?;
        Some(Pattern { provider: name, ..pattern.clone() })
    }

    /// Calls with what was matched so far.
    pub(super) fn with_known<T>(&self, f: impl FnOnce(&mut Matches) -> T) -> T {
        f(&mut lock(&self.known))
    }

    fn match_process(&self, pid: u32, pattern: &Pattern) -> Answer {
        let wanted = Wanted::of(pattern)?;
        let mut reading = lock(&self.reading);
        let Reading { symbols, held, followed, files, .. } = reading.get_or_insert_with(|| self.begin());
        let process = read_process(pid, held);
        if let Some(answer) = followed.get(&pid).and_then(|f| f.answer(process.as_ref().ok(), pattern)) {
            return answer;
        }
        let process = process?;
        let provider: Arc<str> = pattern.provider.as_str().into();
        lock(&self.known).mean(&provider, std::slice::from_ref(&process));
        let follow = Followed::of(followed, &process);
        let files = files.entry(provider).or_default();
        let answer = self.match_now(pid, process, (pattern, wanted), symbols, held, (follow, files));
        follow.answered(pattern, answer.clone());
        answer
    }

    /// The probes of several processes. They are the same when the description is matched again.
    fn match_several(&self, pattern: &Pattern) -> Answer {
        let wanted = Wanted::of(pattern)?;
        let mut reading = lock(&self.reading);
        let reading = reading.get_or_insert_with(|| self.begin());
        if let Some(known) = reading.several.get(pattern) {
            return known.clone();
        }
        let group =
            Group::of(&self.several(pattern)?, &pattern.module, (&mut reading.symbols, &mut reading.held))?;
        let answer = self.match_group(&group, (pattern, wanted), reading);
        for process in &group.processes {
            Followed::of(&mut reading.followed, process).asked(pattern, &answer);
        }
        if may_come(&answer) {
            reading.several.insert(pattern.clone(), answer.clone());
        }
        answer
    }

    fn match_group(
        &self,
        group: &Group,
        (pattern, wanted): (&Pattern, Wanted),
        reading: &mut Reading,
    ) -> Answer {
        let Reading { symbols, held, followed, files, .. } = reading;
        let provider: Arc<str> = pattern.provider.as_str().into();
        lock(&self.known).mean(&provider, &group.processes);
        let Some(first) = group.processes.first().filter(|_| !group.files.is_empty()) else {
            return Err(group.no_object(&pattern.module));
        };
        let mut matching = Match::new(first.clone(), pattern, wanted);
        let files = files.entry(provider).or_default();
        for run in &group.files {
            matching.processes = run.processes.as_slice().into();
            matching.search(&run.object, symbols, held);
            files.searched(&run.file, pattern);
            for process in &run.processes {
                Followed::of(followed, process).files.searched(&run.file, pattern);
            }
        }
        let few = group.processes.len() <= FEW_PROCESSES;
        let may_return = wanted.returns && !matching.found.is_empty() && few;
        let unwound: Vec<_> = match may_return {
            true => group.objects.iter().map(|objects| unwinds(objects, symbols, held)).collect(),
            false => Vec::new(),
        };
        let mut known = lock(&self.known);
        known.unwinds.extend(group.processes.iter().map(|process| process.pid()).zip(unwound));
        if matching.found.is_empty() {
            let called: Vec<&Object> = group.files.iter().map(|run| &run.object).collect();
            drop(known);
            return Err(self.with_similar(matching.nothing(&called), pattern, &called, symbols));
        }
        Ok(known.remember(pattern, matching))
    }

    /// The error, with the name of a similar function where there is none of this name.
    fn with_similar(
        &self,
        error: MatchError,
        pattern: &Pattern,
        called: &[&Object],
        symbols: &mut Processes,
    ) -> MatchError {
        let function = &pattern.function;
        if !wants_similar(&error, function) {
            return error;
        }
        let known = lock(&self.known).similar.get(function).cloned();
        let near = known.unwrap_or_else(|| {
            let near = similar(function, called, symbols);
            lock(&self.known).similar.insert(function.clone(), near.clone());
            near
        });
        match near {
            Some(near) => error.with_help(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    fn match_now(
        &self,
        pid: u32,
        process: Arc<HeldProcess>,
        (pattern, wanted): (&Pattern, Wanted),
        symbols: &mut Processes,
        held: &mut Objects,
        (follow, files): (&mut Followed, &mut Files),
    ) -> Answer {
        let objects = read_objects(pid, symbols)?;
        let mut matching = Match::new(process, pattern, wanted);
        let called: Vec<&Object> = objects.iter().filter(|o| o.is_called(&pattern.module)).collect();
        if called.is_empty() {
            return Err(matching.no_object(&objects));
        }
        for object in &called {
            matching.search(object, symbols, held);
            let file = held.file(object, symbols);
            follow.files.searched(&file, pattern);
            files.searched(&file, pattern);
        }
        let unwinds =
            (!matching.found.is_empty() && wanted.returns).then(|| unwinds(&objects, symbols, held));
        let mut known = lock(&self.known);
        if let Some(why) = unwinds {
            known.unwinds.insert(pid, why);
        }
        if matching.found.is_empty() {
            known.left_out.extend(matching.left_out.clone());
            known.left_out.extend(matching.unread.clone());
            drop(known);
            return Err(self.with_similar(matching.nothing(&called), pattern, &called, symbols));
        }
        Ok(known.remember(pattern, matching))
    }

    /// The processes whose probes descriptions have asked for.
    pub(super) fn processes(&self) -> Vec<u32> {
        lock(&self.reading).as_ref().map_or_else(Vec::new, |r| r.followed.keys().copied().collect())
    }

    /// True if libraries that a process loads matter to a description.
    pub(super) fn follows_loading(&self, pid: u32) -> bool {
        lock(&self.reading).as_ref().and_then(|r| r.followed.get(&pid)).is_some_and(Followed::follows_loading)
    }

    /// A process, which is in these sets, has mapped other files, or executed another program, or
    /// ended: what came and what went for these descriptions.
    pub(super) fn changed(&self, (pid, sets): (u32, u64), patterns: &[Pattern]) -> Vec<FileChange> {
        let mut reading = lock(&self.reading);
        let Some(Reading { symbols, held, followed, files, .. }) = reading.as_mut() else {
            return Vec::new();
        };
        let patterns: Vec<Pattern> =
            patterns.iter().map(|p| self.of_one(p).unwrap_or_else(|| p.clone())).collect();
        let wanted = |p: &'_ Pattern| Some((p.clone(), Wanted::of(p).ok()?));
        let mut changes = Vec::new();
        if let Some(follow) = followed.get_mut(&pid) {
            let known = lock(&self.known);
            let is_mine =
                |p: &&Pattern| !known.has_set(&p.provider) && known.means(&p.provider, follow.process());
            let mine: Vec<(Pattern, Wanted)> = patterns.iter().filter(is_mine).filter_map(wanted).collect();
            drop(known);
            let is_of_several = |name: &str| self.family.is_of_several(name);
            changes = lock(&self.known).without_first_thread(follow.process(), is_of_several);
            changes.extend(follow.changes((symbols, held), &self.known, &mine));
            if follow.has_ended() {
                followed.remove(&pid);
                lock(&self.known).links.remove(&pid);
            }
        }
        let of_sets = lock(&self.known).of_sets(sets);
        if let Some(objects) = (!of_sets.is_empty()).then(|| read_objects(pid, symbols).ok()).flatten() {
            for (name, process) in of_sets {
                let mine: Vec<(Pattern, Wanted)> =
                    patterns.iter().filter(|p| *p.provider == *name).filter_map(wanted).collect();
                let files = files.entry(name.clone()).or_default();
                changes.extend(files.changes_of_set(
                    &name,
                    &process,
                    &objects,
                    (symbols, held),
                    &self.known,
                    &mine,
                ));
            }
        }
        let mut known = lock(&self.known);
        changes.iter().flat_map(|change| &change.went).for_each(|id| drop(known.later.remove(id)));
        changes
    }

    /// Closes the files that no running process has mapped for a while.
    pub(super) fn close_unmapped(&self) {
        if let Some(Reading { symbols, held, .. }) = lock(&self.reading).as_mut()
            && symbols.close_unmapped(Instant::now())
        {
            // What has gone was held by its links until they were closed.
            held.release();
        }
    }

    /// What is attached is looked at: the probes of processes that are to be attached again,
    /// because their first thread has ended, or their calls are nested too deep.
    pub(super) fn settle(&self) -> Vec<(u32, FileChange)> {
        let is_of_several = |name: &str| self.family.is_of_several(name);
        let mut known = lock(&self.known);
        let mut all = Vec::new();
        for process in known.unsettled() {
            let changes = known.without_first_thread(&process, is_of_several);
            all.extend(changes.into_iter().map(|change| (process.pid(), change)));
        }
        all.extend(known.too_deep());
        all.iter().flat_map(|(_, change)| &change.went).for_each(|id| drop(known.later.remove(id)));
        all
    }

    /// The probes of a file that came have these ids. `set`: in a set of processes of this name.
    pub(super) fn came(
        &self,
        (pid, set): (u32, Option<&Arc<str>>),
        file: &Arc<HeldFile>,
        probes: Vec<(ProbeId, Vec<Target>)>,
    ) {
        if let Some(reading) = lock(&self.reading).as_mut() {
            let files = match set {
                Some(name) => reading.files.get_mut(name),
                None => reading.followed.get_mut(&pid).map(|follow| &mut follow.files),
            };
            files.into_iter().for_each(|files| files.came(file, probes.iter().map(|(id, _)| *id)));
        }
        lock(&self.known).later.extend(probes);
    }
}

/// Calls with the names of a field at a prompt: the files of a process, or their functions. No code
/// is decoded.
fn names(
    pid: u32,
    pattern: &Pattern,
    field: FieldKind,
    symbols: &mut Processes,
    give: &mut dyn FnMut(&str),
) -> Result<(), MatchError> {
    let objects = read_objects(pid, symbols)?;
    let called = objects.iter().filter(|object| object.is_called(&pattern.module));
    if field == FieldKind::Module {
        called.for_each(|object| give(&object.name));
        return Ok(());
    }
    let query = FunctionQuery::names(Select::Matching(vec![pattern.function.clone()]));
    for list in called.filter_map(|object| symbols.functions(object.text.file, &query).ok()) {
        let whole = list.functions.into_iter().filter(|f| f.part.is_none() && f.unresolved.is_none());
        for function in whole.collect::<Vec<_>>() {
            function.forms().filter(|form| glob_matches(&pattern.function, form)).for_each(&mut *give);
        }
    }
    Ok(())
}

impl ProbeSource for PidProbes {
    fn ids(&self) -> IdRange {
        IdRange::Reserved(0)
    }

    fn positions(&self) -> u32 {
        0
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        let name = &pattern.provider;
        self.family.pid(name).is_some() || self.family.is_of_several(name) || self.of_one(pattern).is_some()
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        let descs = match self.family.pid(&pattern.provider) {
            Some(pid) => self.match_process(pid, pattern),
            None if self.family.is_of_several(&pattern.provider) => self.match_several(pattern),
            // It means the probes of other providers too, so that it has none here is no error.
            None => {
                let _: Option<Result<(), MatchError>> =
                    self.of_one(pattern).map(|one| self.matches(&one, give));
                return Ok(());
            }
        };
        if let Some(reading) = lock(&self.reading).as_mut() {
            reading.held.lists.answered(pattern);
        }
        for desc in descs?.iter() {
            give(FoundProbe::Made(desc.clone()));
        }
        Ok(())
    }

    fn names(&self, pattern: &Pattern, field: FieldKind, give: &mut dyn FnMut(&str)) {
        let Some(pid) = self.family.pid(&pattern.provider) else { return };
        match field {
            FieldKind::Provider => give(&pattern.provider),
            FieldKind::Module | FieldKind::Function => {
                let mut symbols = Processes::new(self.readers.get_or_init(Readers::new));
                symbols.set_limits(PROMPT, MEMORY);
                // What cannot be read in the time has no names.
                let _ = names(pid, pattern, field, &mut symbols, give);
            }
            FieldKind::Name => {
                ["entry", "return"]
                    .iter()
                    .filter(|name| glob_matches(&pattern.name, name))
                    .for_each(|name| give(name));
            }
        }
    }

    fn announce(&self, patterns: &[Pattern]) {
        lock(&self.reading).get_or_insert_with(|| self.begin()).held.lists.announce(patterns);
    }

    fn matched_otherwise(&self, pattern: &Pattern) -> Option<Arc<HashSet<Arc<ProbeDesc>>>> {
        lock(&self.known).otherwise.get(pattern).cloned()
    }

    fn at(&self, _: u32) -> Option<Arc<ProbeDesc>> {
        None
    }
}
