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
//! The probes of a glob are not those of each process, but one for each function, with the glob in the place of the process: a
//! thousand processes that run one library have as many probes as one has. Which process fired is known when it fires.
//!
//! No probe is listed before a description asks for it. What was matched is remembered with its place, for the plan, and the answer
//! itself, because a program that runs is checked again when probes come, and must then match what it matched before. What a process
//! maps later is [`super::follow`]'s.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::follow::{Answer, FileChange, Files, Followed, may_come};
use super::known::{At, Known, Target};
use super::lists::{NO_FUNCTION, WITH_STACK, Wanted, similar, wants_similar};
use super::object::{Held, Object, cut};
use super::processes::{Group, read_objects, read_process, unwinds};
use crate::lock;
use crate::method::{HeldFile, HeldProcess};
use crate::source::{Found, IdRange, ProbeSource};
use diagnostics::Tag;
use probes::{FIELD_LIMITS, Family, MatchError, Pattern, ProbeDesc, ProbeId, glob_matches};
use proc::Selection;
use symbols::{Function, Processes, Readers, SymbolSource};
use text::EntryProbe;

/// How long the reader may take for one request. Lists are read before tracing begins, and decoding a great library takes
/// seconds on an emulated processor.
const READING: Duration = Duration::from_secs(20);

/// So many processes are attached to one by one at most: see [`super::sides`].
pub(super) const FEW_PROCESSES: usize = 8;

/// The memory of the reader.
const MEMORY: u64 = 1 << 30;

impl Known {
    /// For each file that has a probe, a process that runs it.
    pub(super) fn runners(&self, probe: &ProbeDesc) -> Vec<u32> {
        let mut all: Vec<(&Arc<HeldFile>, u32)> = Vec::new();
        for target in self.targets.get(probe).into_iter().flatten() {
            let is_new = !all.iter().any(|(file, _)| Arc::ptr_eq(file, &target.file));
            all.extend(target.processes.first().filter(|_| is_new).map(|one| (&target.file, one.pid())));
        }
        all.into_iter().map(|(_, pid)| pid).collect()
    }

    /// The processes that have probes of a provider.
    pub(super) fn probed(&self, provider: &str) -> BTreeSet<u32> {
        let of_provider = self.targets.iter().filter(|(desc, _)| &*desc.provider == provider);
        let targets = of_provider.flat_map(|(_, targets)| targets);
        targets.flat_map(|target| target.processes.iter()).map(|process| process.pid()).collect()
    }

    /// Remembers what a description has found, and gives the probes.
    fn remember(&mut self, pattern: &Pattern, mut matching: Match<'_>) -> Vec<Arc<ProbeDesc>> {
        self.left_out.extend(std::mem::take(&mut matching.left_out));
        self.left_out.extend(std::mem::take(&mut matching.unread));
        let mut descs = Vec::new();
        for (desc, targets) in matching.found() {
            self.left_out.remove(&desc);
            descs.push(desc.clone());
            self.targets.insert(desc, targets);
        }
        self.matched(pattern, &descs);
        descs
    }
}

/// What reads processes, and what was found.
struct Reading {
    symbols: Processes,
    held: Held,
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
    known: Mutex<Known>,
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

    /// Calls with what was matched so far.
    pub(super) fn with_known<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
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
        held: &mut Held,
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

    /// A process, which is in these sets, has mapped other files, or executed another program, or ended: what came and what went for these
    /// descriptions.
    pub(super) fn changed(&self, (pid, sets): (u32, u64), patterns: &[Pattern]) -> Vec<FileChange> {
        let mut reading = lock(&self.reading);
        let Some(Reading { symbols, held, followed, files, .. }) = reading.as_mut() else {
            return Vec::new();
        };
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

    /// What is attached is looked at: the probes of processes that are to be attached again, because their first thread has ended, or their
    /// calls are nested too deep.
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

impl ProbeSource for PidProbes {
    fn ids(&self) -> IdRange {
        IdRange::Reserved(0)
    }

    fn positions(&self) -> u32 {
        0
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        self.family.pid(&pattern.provider).is_some() || self.family.is_of_several(&pattern.provider)
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(Found<'_>)) -> Result<(), MatchError> {
        let descs = match self.family.pid(&pattern.provider) {
            Some(pid) => self.match_process(pid, pattern),
            None if self.family.is_of_several(&pattern.provider) => self.match_several(pattern),
            None => return Ok(()),
        };
        if let Some(reading) = lock(&self.reading).as_mut() {
            reading.held.lists.answered(pattern);
        }
        for desc in descs? {
            give(Found::Made((*desc).clone()));
        }
        Ok(())
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

/// A file whose functions were listed.
struct Listed<'a> {
    object: &'a Object,
    file: Arc<HeldFile>,
}

impl std::ops::Deref for Listed<'_> {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.object
    }
}

/// One description, and what it has matched.
pub(super) struct Match<'a> {
    process: Arc<HeldProcess>,
    /// The processes that run the file that is searched.
    processes: Arc<[Arc<HeldProcess>]>,
    pattern: &'a Pattern,
    wanted: Wanted,
    provider: Arc<str>,
    found: BTreeMap<Arc<ProbeDesc>, (usize, Vec<Target>)>,
    pub(super) left_out: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Files whose functions could not be read, as descriptions without a function, and why.
    pub(super) unread: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// The first function that has no instruction at the offset which is asked for.
    refused: Option<MatchError>,
    /// Reading one has taken all the time that there is.
    is_late: bool,
    /// Where the names of the last file were found.
    source: SymbolSource,
}

impl<'a> Match<'a> {
    pub(super) fn new(process: Arc<HeldProcess>, pattern: &'a Pattern, wanted: Wanted) -> Match<'a> {
        let provider = pattern.provider.as_str().into();
        let (found, left_out, unread) = Default::default();
        let processes = [process.clone()].into();
        Match {
            process,
            processes,
            pattern,
            wanted,
            provider,
            found,
            left_out,
            unread,
            refused: None,
            is_late: false,
            source: SymbolSource::Full,
        }
    }

    /// What was found, in the order of the files and of their functions.
    pub(super) fn found(self) -> Vec<(Arc<ProbeDesc>, Vec<Target>)> {
        let mut all: Vec<_> = self.found.into_iter().collect();
        all.sort_unstable_by_key(|(_, (number, _))| *number);
        all.into_iter().map(|(desc, (_, targets))| (desc, targets)).collect()
    }

    pub(super) fn search(&mut self, object: &Object, symbols: &mut Processes, held: &mut Held) {
        let by_address = self.pattern.function == NO_FUNCTION;
        if self.is_late {
            let why = "reading another file of the process has taken all the time";
            self.unread.insert(self.desc(object, "", ""), why.into());
            return;
        }
        let begun = Instant::now();
        let list = match held.lists.functions(object, (self.pattern, self.wanted), symbols) {
            Ok(list) => list,
            Err(why) => {
                // A process may have any number of files that a server of its own does not give.
                self.is_late = begun.elapsed() >= READING;
                self.unread.insert(self.desc(object, "", ""), why.into());
                return;
            }
        };
        self.source = list.source();
        let mut functions = list.functions(self.pattern).peekable();
        if functions.peek().is_none() {
            return;
        }
        let object = &Listed { object, file: held.file(object, symbols) };
        if by_address {
            // Symbols may overlap: the innermost whose instructions are certain.
            let all: Vec<&Function> = functions.collect();
            let is_certain = |f: &&&Function| matches!(f.instructions, Some(Ok(_)));
            let function = all.iter().rev().find(is_certain).or(all.last());
            if let Some(function) = function {
                self.instruction(object, function, NO_FUNCTION, function.address);
            }
            return;
        }
        for function in functions {
            let Some(shown) = self.name_of(function) else { continue };
            if let Some(why) = &function.part {
                // Another description has named it.
                if function.forms().any(|form| form == self.pattern.function) {
                    self.leave_out(object, &shown, &self.pattern.name, why.as_str().into());
                }
                continue;
            }
            if let Some(why) = &function.unresolved {
                let name = if self.wanted.entry { "entry" } else { self.pattern.name.as_str() };
                self.leave_out(object, &shown, name, why.as_str().into());
                continue;
            }
            self.function(object, function, &shown);
        }
    }

    /// The name that a function's probes have: the preferred one, or the one that the description matches.
    fn name_of(&self, function: &Function) -> Option<String> {
        let matching = function.names.iter().find(|name| name.matches(&self.pattern.function));
        let name = matching.or_else(|| function.names.first())?;
        let mut shown = name.shown();
        if shown.len() >= FIELD_LIMITS[2] {
            shown = &name.raw;
        }
        Some(cut(shown, FIELD_LIMITS[2]).into())
    }

    fn function(&mut self, object: &Listed<'_>, function: &Function, shown: &str) {
        let place = |n: usize| match function.entries.get(n) {
            Some(Ok(probe)) => Ok(*probe),
            Some(Err(why)) => Err(why.as_str().into()),
            None => Err("it was not decoded".into()),
        };
        if self.wanted.entry {
            let places = [place(0), place(1), place(2), place(3)];
            match places.iter().find_map(|p| p.as_ref().err()).cloned() {
                Some(why) if places.iter().all(Result::is_err) => self.leave_out(object, shown, "entry", why),
                _ => self.add(object, shown, "entry", function, At::Entry(places)),
            }
        }
        if self.wanted.returns {
            match &function.returns {
                Some(Ok(sites)) if sites.is_empty() => {
                    self.leave_out(object, shown, "return", "it never returns".into());
                }
                Some(Err(why)) if !function.returns_by_the_stack || place(WITH_STACK).is_err() => {
                    self.leave_out(object, shown, "return", why.as_str().into());
                }
                Some(sites) => {
                    let at = At::Return {
                        entry: place(WITH_STACK),
                        sites: sites.clone().map_err(|why| why.as_str().into()),
                        by_the_stack: function.returns_by_the_stack,
                        calls_itself: function.calls_itself,
                    };
                    self.add(object, shown, "return", function, at);
                }
                None => {}
            }
        }
        if self.wanted.instructions || self.wanted.offset.is_some() {
            self.instruction(object, function, shown, 0);
        }
    }

    /// Why a function has no instruction at the offset that is asked for. Another one that the description matches may have it.
    fn refuse(&mut self, tag: Tag, why: MatchError) {
        self.refused.get_or_insert(why.tagged(tag));
    }

    /// Adds the instructions of a function whose offset, from `base`, is asked for.
    fn instruction(&mut self, object: &Listed<'_>, function: &Function, shown: &str, base: u64) {
        let name = match function.names.is_empty() {
            true => format!("the function at {:x}", function.address),
            false => function.name().into(),
        };
        let sites = match &function.instructions {
            Some(Ok(sites)) => sites,
            Some(Err(why)) if self.wanted.offset.is_some() => {
                let why = MatchError::new(format!("the instructions of {name} are not known: {why}"));
                return self.refuse(Tag::D_PROC_OFF, why);
            }
            Some(Err(why)) => {
                return self.leave_out(object, shown, "offsets", why.as_str().into());
            }
            None => return,
        };
        if let Some(wanted) = self.wanted.offset {
            let offset = wanted.wrapping_sub(base);
            let site = sites.iter().find(|site| u64::from(site.offset) == offset);
            return match site.map(|site| site.step) {
                Some(Some(step)) => {
                    let at = At::Offset(EntryProbe::at(offset, step));
                    self.add(object, shown, &format!("{wanted:x}"), function, at);
                }
                Some(None) => {
                    let why = MatchError::new(format!("the kernel takes no probe at {name}+{offset:#x}"));
                    self.refuse(Tag::D_PROC_CREATEFAIL, why);
                }
                None if offset >= function.size => {
                    let why = MatchError::new(format!("{name} has only {:#x} bytes", function.size));
                    self.refuse(Tag::D_PROC_OFF, why);
                }
                None => {
                    let before = sites.iter().rev().find(|site| u64::from(site.offset) < offset);
                    let before = before.map_or(0, |site| u64::from(site.offset));
                    let after = sites.iter().find(|site| u64::from(site.offset) > offset);
                    let after = after.map_or(function.size, |site| u64::from(site.offset));
                    let error = MatchError::new(format!("no instruction of {name} begins at {wanted:x}"));
                    let (before, after) = (before.wrapping_add(base), after.wrapping_add(base));
                    let error = error.with_help(format!("instructions begin at {before:x} and {after:x}"));
                    self.refuse(Tag::D_PROC_ALIGN, error);
                }
            };
        }
        for site in sites {
            let text = format!("{:x}", site.offset);
            if let Some(step) = site.step.filter(|_| glob_matches(&self.pattern.name, &text)) {
                let at = At::Offset(EntryProbe::at(site.offset.into(), step));
                self.add(object, shown, &text, function, at);
            }
        }
    }

    fn desc(&self, object: &Object, function: &str, name: &str) -> Arc<ProbeDesc> {
        Arc::new(ProbeDesc::new(self.provider.clone(), object.name.clone(), function, name))
    }

    fn add(&mut self, object: &Listed<'_>, shown: &str, name: &str, function: &Function, at: At) {
        let (processes, file) = (self.processes.clone(), object.file.clone());
        let (offset, calling) = (function.offset, function.calling.clone());
        let target = Target { processes, file, offset, at, calling };
        let number = self.found.len();
        let (_, targets) =
            self.found.entry(self.desc(object, shown, name)).or_insert_with(|| (number, Vec::new()));
        targets.push(target);
    }

    fn leave_out(&mut self, object: &Object, function: &str, name: &str, why: Arc<str>) {
        self.left_out.insert(self.desc(object, function, name), why);
    }

    fn no_object(&self, objects: &[Object]) -> MatchError {
        const NAMED: usize = 8;
        let names: Vec<&str> = objects.iter().take(NAMED).map(|o| &*o.name).collect();
        let more = if objects.len() > NAMED { ", ..." } else { "" };
        let message = format!("process {} runs no file \"{}\"", self.process.pid(), self.pattern.module);
        let error = MatchError::new(message).tagged(Tag::D_PROC_LIB);
        let error = MatchError { may_come: true, ..error };
        match names[..] {
            [] => error,
            // Another one runs its dynamic linker too.
            [name] => error
                .with_help(format!("{name} is a static program: functions of libraries are its own (a.out)")),
            _ => error.with_help(format!("it runs {}{more}", names.join(", "))),
        }
    }

    /// Why nothing matches, although files do.
    fn nothing(&self, called: &[&Object]) -> MatchError {
        if let Some(refused) = &self.refused {
            return refused.clone();
        }
        if let Some((desc, why)) = self.left_out.iter().next() {
            let message = format!("{}`{} has no such probe: {why}", desc.module, desc.function);
            return MatchError::new(message).tagged(Tag::D_PROC_CREATEFAIL);
        }
        if let Some((file, why)) = self.unread.iter().next() {
            // The reader's answer says it with the path.
            let message = match why.starts_with("the functions of ") {
                true => why.to_string(),
                false => format!("the functions of {} cannot be read: {why}", file.module),
            };
            return MatchError::new(message).tagged(Tag::D_PROC_FUNC);
        }
        let files: Vec<&str> = called.iter().map(|o| &*o.name).take(3).collect();
        let more = if called.len() > files.len() { ", ..." } else { "" };
        let (function, files) = (&self.pattern.function, files.join(", "));
        let message = match function.as_str() {
            NO_FUNCTION => format!("no function of {files}{more} is at this address"),
            "" => format!("no functions in {files}{more}"),
            _ => format!("no function \"{function}\" in {files}{more}"),
        };
        if function == NO_FUNCTION {
            let error = MatchError::new(message).tagged(Tag::D_PROC_OFF);
            return error.with_help("symbols and the table of .eh_frame tell where functions are");
        }
        // A library that is loaded later may have it, or a program that the process executes.
        let error = MatchError { may_come: true, ..MatchError::new(message).tagged(Tag::D_PROC_FUNC) };
        match (called, self.source) {
            ([one], SymbolSource::None) => error.with_help(format!(
                "{} is stripped of all names: a debug file with its build id has them",
                one.name
            )),
            ([one], SymbolSource::Dynamic) => error.with_help(format!(
                "{} is stripped and has the names of its exported functions only: a debug file with its build id has all",
                one.name
            )),
            _ => error,
        }
    }
}
