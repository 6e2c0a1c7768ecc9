//! What a process maps, unmaps and executes after its probes were first matched.
//!
//! ```text
//!  a process changed ──► its files now ──► one that no description has searched ──► its probes come
//!                                     └──► one that is not mapped any more       ──► its later probes go
//! ```
//!
//! A probe is a place in a file, and the kernel sets it in every mapping of the file that the
//! process makes. So the links of a file stay where it is unmapped: they cost nothing then, and a
//! file that comes back (`dlclose` and `dlopen`, the same library after an `exec`) has its probes
//! before any of its code runs. A process may map any number of files, so of those that came later
//! only the last [`KEPT`] that were unmapped are kept. An address range means nothing here: a
//! library that is mapped where another one was has probes of its own, or none.
//!
//! Of processes with a set the links are those of files, and serve all of them. So a file is
//! searched when the first of them maps it, and from then on every process of the set has its
//! probes before any of its code runs. Which file is mapped by none of them is found by a look at
//! all processes, when there are many files ([`Files::sweep`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use probes::{MatchError, Pattern, ProbeDesc, ProbeId, glob_matches, is_glob};
use proc::Selection;
use symbols::Processes;

use super::known::{Matches, Target};
use super::matching::Match;
use crate::contract::method::{HeldFile, HeldProcess};
use crate::lock;
use crate::process::lists::Wanted;
use crate::process::object::{Object, Objects};
use crate::process::read::{read_objects, unwinds};

/// How many files that came later and are not mapped any more keep their probes, in each process.
const KEPT: usize = 32;

/// The probes that a description matches, or why there are none.
pub(super) type Answer = Result<Arc<[Arc<ProbeDesc>]>, MatchError>;

/// True if probes are looked for in what comes later.
pub(super) fn may_come(answer: &Answer) -> bool {
    answer.as_ref().map_or_else(|e| e.may_come, |_| true)
}

/// So many files of a set that came later are kept before it is looked which of them a process
/// maps.
const SWEEP: usize = 128;

/// The probes of a file that came or went.
pub(super) struct FileChange {
    /// The name of a provider whose processes have a set.
    pub(super) set: Option<Arc<str>>,
    pub(super) file: Arc<HeldFile>,
    /// Its name as a module.
    pub(super) name: Arc<str>,
    pub(super) came: Vec<(Arc<ProbeDesc>, Vec<Target>)>,
    pub(super) went: Vec<ProbeId>,
}

/// A process of which descriptions have asked for probes.
pub(super) struct Followed {
    process: Arc<HeldProcess>,
    /// What descriptions have matched first.
    answers: HashMap<Pattern, Answer>,
    /// A description may mean a library that is loaded later.
    loads: bool,
    pub(super) files: Files,
    ended: bool,
}

/// Files in which descriptions have looked for functions, by the path to the held file.
#[derive(Default)]
pub(super) struct Files {
    all: HashMap<OsString, Searched>,
    looks: u64,
    /// The number of files with later probes at which it is looked again which of them are mapped.
    sweep: usize,
}

/// A file in which descriptions have looked for functions.
struct Searched {
    file: Arc<HeldFile>,
    /// By these when they were first matched.
    first: HashSet<Pattern>,
    /// By these when it was mapped later.
    again: HashSet<Pattern>,
    later: Vec<ProbeId>,
    /// In which look at the process it was last mapped.
    mapped: u64,
}

impl Searched {
    /// True if it is here because it was mapped later, or has probes for that reason.
    fn came_later(&self) -> bool {
        self.first.is_empty() || !self.later.is_empty()
    }
}

/// A file that a process has mapped.
type Mapped = (Arc<HeldFile>, Object);

impl Followed {
    /// What is known of a process, which is new if its number was another's.
    pub(super) fn of<'a>(
        all: &'a mut HashMap<u32, Followed>,
        process: &Arc<HeldProcess>,
    ) -> &'a mut Followed {
        let new = || Followed {
            process: process.clone(),
            answers: HashMap::new(),
            loads: false,
            files: Files::default(),
            ended: false,
        };
        let known = all.entry(process.pid()).or_insert_with(new);
        if !Arc::ptr_eq(&known.process, process) {
            *known = new();
        }
        known
    }

    /// What a description has matched before, unless the number is another process's now.
    pub(super) fn answer(&self, now: Option<&Arc<HeldProcess>>, pattern: &Pattern) -> Option<Answer> {
        let is_same = now.is_none_or(|now| Arc::ptr_eq(now, &self.process));
        self.answers.get(pattern).filter(|_| is_same).cloned()
    }

    /// The process.
    pub(super) fn process(&self) -> &Arc<HeldProcess> {
        &self.process
    }

    /// True if a library that is loaded may have what a description means, or code that unwinds
    /// through the frames of functions whose returns are probed.
    pub(super) fn follows_loading(&self) -> bool {
        self.loads
    }

    /// A description means this process too.
    pub(super) fn asked(&mut self, pattern: &Pattern, answer: &Answer) {
        let module = pattern.module.as_str();
        let open = module.is_empty() || is_glob(module) || glob_matches(&pattern.name, "return");
        self.loads |= may_come(answer) && (answer.is_err() || open);
    }

    /// Remembers what a description has matched. A refusal that no later file changes is made
    /// again.
    pub(super) fn answered(&mut self, pattern: &Pattern, answer: Answer) {
        self.asked(pattern, &answer);
        if may_come(&answer) {
            self.answers.insert(pattern.clone(), answer);
        }
    }

    /// True if the process has ended and was seen to have.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Looks at the files of the process again: the probes of those that came, and of those that
    /// are gone for good.
    pub(super) fn changes(
        &mut self,
        (symbols, held): (&mut Processes, &mut Objects),
        known: &Mutex<Matches>,
        patterns: &[(Pattern, Wanted)],
    ) -> Vec<FileChange> {
        let pid = self.process.pid();
        self.ended = self.process.has_ended();
        if patterns.is_empty() && !self.ended {
            return Vec::new();
        }
        let objects = match self.ended {
            true => Vec::new(),
            // It is looked at again when it changes next.
            false => match read_objects(pid, symbols) {
                Ok(objects) => objects,
                Err(_) => return Vec::new(),
            },
        };
        let mapped = mapped(&objects, symbols, held);
        self.files.look(&mapped);
        let mut changes = self.files.remove_others(self.ended);
        if self.ended {
            held.release();
            return changes;
        }
        changes.extend(self.move_returns(&objects, (symbols, held), known));
        let came = self.files.search(&self.process, &mapped, (symbols, held), known, patterns);
        let returns = |change: &FileChange| change.came.iter().any(|(desc, _)| *desc.name == *"return");
        if came.iter().any(returns) {
            let unwinds = unwinds(&objects, symbols, held);
            lock(known).unwinds.insert(pid, unwinds);
        }
        changes.extend(came);
        held.release();
        changes
    }

    /// Code that unwinds through frames was loaded, and return addresses on the stack of the
    /// process are the kernel's: the probes of these returns go, and come again at the instructions
    /// that return.
    fn move_returns(
        &self,
        objects: &[Object],
        (symbols, held): (&mut Processes, &mut Objects),
        known: &Mutex<Matches>,
    ) -> Vec<FileChange> {
        let pid = self.process.pid();
        let is_free = lock(known).by_address.get(&pid).is_none_or(BTreeMap::is_empty);
        let Some(why) = (!is_free).then(|| unwinds(objects, symbols, held)).flatten() else {
            return Vec::new();
        };
        let mut known = lock(known);
        known.unwinding.push((pid, why.clone()));
        known.unwinds.insert(pid, Some(why));
        known.moves_returns(&self.process)
    }
}

/// The held files of objects.
fn mapped(objects: &[Object], symbols: &Processes, held: &mut Objects) -> Vec<Mapped> {
    objects.iter().map(|object| (held.file(object, symbols), object.clone())).collect()
}

impl Files {
    /// A description has searched a file when it was first matched.
    pub(super) fn searched(&mut self, file: &Arc<HeldFile>, by: &Pattern) {
        self.file(file).first.insert(by.clone());
    }

    fn file(&mut self, file: &Arc<HeldFile>) -> &mut Searched {
        let (first, again, later) = Default::default();
        let mapped = self.looks;
        let new = || Searched { file: file.clone(), first, again, later, mapped };
        self.all.entry(file.path().into()).or_insert_with(new)
    }

    /// The probes of a file that came have these ids.
    pub(super) fn came(&mut self, file: &Arc<HeldFile>, ids: impl Iterator<Item = ProbeId>) {
        self.file(file).later.extend(ids);
    }

    /// These files are mapped now.
    fn look(&mut self, mapped: &[Mapped]) {
        self.looks += 1;
        for (file, _) in mapped {
            self.all.get_mut(file.path()).into_iter().for_each(|searched| searched.mapped = self.looks);
        }
    }

    /// The probes of files that no description has searched yet.
    fn search(
        &mut self,
        process: &Arc<HeldProcess>,
        mapped: &[Mapped],
        (symbols, held): (&mut Processes, &mut Objects),
        known: &Mutex<Matches>,
        patterns: &[(Pattern, Wanted)],
    ) -> Vec<FileChange> {
        let mut changes = Vec::new();
        for (file, object) in mapped {
            let searched = self.all.get(file.path());
            let is_new = |(pattern, _): &&(Pattern, Wanted)| {
                let is_known = |s: &Searched| s.first.contains(pattern) || s.again.contains(pattern);
                object.is_called(&pattern.module) && !searched.is_some_and(is_known)
            };
            let wanted: Vec<&(Pattern, Wanted)> = patterns.iter().filter(is_new).collect();
            if wanted.is_empty() {
                continue;
            }
            let mut found: BTreeMap<Arc<ProbeDesc>, Vec<Target>> = BTreeMap::new();
            for (pattern, wanted) in wanted {
                let mut matching = Match::new(process.clone(), pattern, *wanted);
                matching.search(object, symbols, held);
                self.file(file).again.insert(pattern.clone());
                let mut known = lock(known);
                known.left_out.extend(std::mem::take(&mut matching.left_out));
                known.left_out.extend(std::mem::take(&mut matching.unread));
                let (descs, targets) = matching.found.into_parts();
                known.matched(pattern, &descs);
                found.extend(targets);
            }
            if !found.is_empty() {
                let (came, went) = (found.into_iter().collect(), Vec::new());
                let (file, name) = (file.clone(), object.name.clone());
                changes.push(FileChange { set: None, file, name, came, went });
            }
        }
        changes
    }

    /// A process of a set has mapped these files: the probes of those that none of them had mapped
    /// before, and of those that none has mapped any more.
    pub(super) fn changes_of_set(
        &mut self,
        name: &Arc<str>,
        process: &Arc<HeldProcess>,
        objects: &[Object],
        (symbols, held): (&mut Processes, &mut Objects),
        known: &Mutex<Matches>,
        patterns: &[(Pattern, Wanted)],
    ) -> Vec<FileChange> {
        let mut changes = self.sweep(symbols, held);
        let mut mapped = mapped(objects, symbols, held);
        // The path to any other is that of one process, and would be another file's in the next:
        // each would have its probes once more.
        mapped.retain(|(file, _)| file.is_held());
        changes.extend(self.search(process, &mapped, (symbols, held), known, patterns));
        changes.iter_mut().for_each(|change| change.set = Some(name.clone()));
        held.release();
        changes
    }

    /// Removes the later probes of files that no process of the system has mapped, and forgets
    /// these files, if there are many.
    fn sweep(&mut self, symbols: &mut Processes, held: &mut Objects) -> Vec<FileChange> {
        let count = self.all.values().filter(|searched| searched.came_later()).count();
        if count < self.sweep.max(SWEEP) {
            return Vec::new();
        }
        self.looks += 1;
        for pid in Selection::default().processes().unwrap_or_default() {
            let objects = read_objects(pid, symbols).unwrap_or_default();
            let mapped = mapped(&objects, symbols, held);
            for (file, _) in mapped {
                self.all.get_mut(file.path()).into_iter().for_each(|searched| searched.mapped = self.looks);
            }
        }
        let changes = self.remove(self.looks - 1);
        self.sweep = self.all.values().filter(|searched| searched.came_later()).count() * 2;
        changes
    }

    /// Removes the later probes of files that are not mapped any more, as far as they are not kept.
    fn remove_others(&mut self, all: bool) -> Vec<FileChange> {
        if all {
            return self.remove(self.looks);
        }
        let unmapped = self.all.values().filter(|s| s.mapped != self.looks && s.came_later());
        let mut times: Vec<u64> = unmapped.map(|searched| searched.mapped).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.get(KEPT).map_or_else(Vec::new, |before| self.remove(*before))
    }

    /// Removes the later probes of files that were not mapped after a look.
    fn remove(&mut self, before: u64) -> Vec<FileChange> {
        let mut changes = Vec::new();
        self.all.retain(|_, searched| {
            if searched.mapped > before || !searched.came_later() {
                return true;
            }
            let went = std::mem::take(&mut searched.later);
            if !went.is_empty() {
                let (file, name) = (searched.file.clone(), searched.file.name().clone());
                changes.push(FileChange { set: None, file, name, came: Vec::new(), went });
            }
            searched.again.clear();
            !searched.first.is_empty()
        });
        changes
    }
}
