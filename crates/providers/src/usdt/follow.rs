//! Processes that start, fork, execute and load files with probes after descriptions were first
//! matched.
//!
//! ```text
//!  a process changed ──► its files now ──► one that a description has not searched in it ──► its probes come
//!                                     └──► it has ended, or has unmapped too many         ──► its later probes go
//! ```
//!
//! As with functions of processes (`pid`), what a file has stays where it is unmapped, so that a
//! file which comes back has its probes before any of its code runs. A process may map any number
//! of files that describe any number of probes, so what is kept of each and of all has a limit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use probes::{Pattern, ProbeDesc, ProbeId};
use proc::share::{Owner, Shares};

use super::fair::{MAX_PROBES, leave};
use super::matching::Match;
use super::sites::{FileChange, Target};
use super::source::{Reading, UsdtProbes, held_process};
use crate::contract::method::{Detached, HeldProcess};
use crate::contract::source::ProbeSource;
use crate::lock;
use crate::process::object::Object;
use crate::process::read::read_objects;

/// How many files that came later and are not mapped any more keep their probes, in each process.
const KEPT: usize = 32;

/// The most probes that come later in one process.
const MAX_LATER: usize = 1 << 14;

/// How many of the probes that came later each process has brought.
pub(super) struct Brought {
    shares: Shares,
    processes: HashMap<u32, usize>,
}

impl Default for Brought {
    fn default() -> Brought {
        Brought { shares: Shares::new(MAX_PROBES), processes: HashMap::new() }
    }
}

impl Brought {
    /// A process has brought so many more.
    fn take(&mut self, by: &Owner, count: usize) {
        if count > 0 {
            self.shares.take(by, count);
            *self.processes.entry(by.pid).or_default() += count;
        }
    }

    /// So many that a process has brought are gone.
    pub(super) fn give(&mut self, by: &Owner, count: usize) {
        self.shares.give(by, count);
        if let Some(known) = self.processes.get_mut(&by.pid) {
            *known = known.saturating_sub(count);
            if *known == 0 {
                self.processes.remove(&by.pid);
            }
        }
    }

    /// How many more a process may bring, and that are left to it.
    fn left(&self, owner: &Owner) -> (usize, usize) {
        let mine = self.processes.get(&owner.pid).copied().unwrap_or(0);
        (MAX_LATER.saturating_sub(mine), self.shares.left(owner))
    }
}

/// A process that descriptions name, or that has probes which a glob matches.
pub(super) struct Followed {
    pub(super) process: Arc<HeldProcess>,
    pub(super) owner: Owner,
    /// The files in which each description was looked for.
    searched: HashMap<Pattern, HashSet<u64>>,
    /// The probes that came later, by file.
    later: HashMap<u64, Later>,
    looks: u64,
    /// It was said that it has more probes than are kept.
    is_full: bool,
}

struct Later {
    name: Arc<str>,
    ids: Vec<ProbeId>,
    /// In which look at the process the file was last mapped.
    mapped: u64,
}

impl Followed {
    pub(super) fn new(process: Arc<HeldProcess>, owner: Owner) -> Followed {
        let (searched, later) = Default::default();
        Followed { process, owner, searched, later, looks: 0, is_full: false }
    }

    /// A description was looked for in a file. False if it was before.
    pub(super) fn search(&mut self, pattern: &Pattern, file: u64) -> bool {
        match self.searched.get_mut(pattern) {
            Some(files) => files.insert(file),
            None => self.searched.insert(pattern.clone(), HashSet::from([file])).is_none(),
        }
    }

    /// True if a description was looked for in a file.
    pub(super) fn has_searched(&self, pattern: &Pattern, file: u64) -> bool {
        self.searched.get(pattern).is_some_and(|files| files.contains(&file))
    }

    pub(super) fn count(&self) -> usize {
        self.later.values().map(|later| later.ids.len()).sum()
    }

    /// The probes of later files that are not mapped any more, as far as they are not kept.
    fn unmapped(&mut self, mapped: &HashSet<u64>) -> Vec<FileChange> {
        self.looks += 1;
        let looks = self.looks;
        self.later.iter_mut().filter(|(n, _)| mapped.contains(n)).for_each(|(_, l)| l.mapped = looks);
        let mut times: Vec<u64> = self.later.values().map(|l| l.mapped).filter(|at| *at != looks).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        match times.get(KEPT).copied() {
            Some(before) => self.remove(|later| later.mapped <= before),
            None => Vec::new(),
        }
    }

    fn remove(&mut self, which: impl Fn(&Later) -> bool) -> Vec<FileChange> {
        let pid = Some(self.process.pid());
        let gone: Vec<u64> = self.later.iter().filter(|(_, l)| which(l)).map(|(n, _)| *n).collect();
        let change = |number: u64| {
            let Later { name, ids, .. } = self.later.remove(&number)?;
            for files in self.searched.values_mut() {
                files.remove(&number);
            }
            Some(FileChange { pid, number, name, came: Vec::new(), went: ids, by: self.owner.clone() })
        };
        gone.into_iter().filter_map(change).collect()
    }
}

/// The files that a process runs. It may end at any time.
fn objects(pid: u32, reading: &mut Reading) -> Option<Vec<Object>> {
    // Most processes that start have ended when they are looked at; to ask the reader takes longer.
    std::path::Path::new(&format!("/proc/{pid}")).exists().then_some(())?;
    read_objects(pid, &mut reading.symbols).ok()
}

/// What went with the files that a process does not run any more. `None`: it runs none of which we
/// know.
fn gone(pid: u32, reading: &mut Reading, objects: Option<&[Object]>) -> Vec<FileChange> {
    let Some(objects) = objects else { return reading.shared.maps(pid, &HashSet::new()) };
    let numbers: HashSet<u64> = objects.iter().map(|object| reading.number(object)).collect();
    let follow = reading.followed.get_mut(&pid);
    let mut changes = follow.map_or_else(Vec::new, |follow| follow.unmapped(&numbers));
    changes.extend(reading.shared.maps(pid, &numbers));
    changes
}

impl UsdtProbes {
    /// The processes of which descriptions have asked for probes.
    pub(super) fn followed(&self) -> Vec<u32> {
        lock(&self.reading).as_ref().map_or_else(Vec::new, |r| r.followed.keys().copied().collect())
    }

    /// True if a process is one of these, or may become one.
    pub(super) fn follows(&self, pid: u32) -> bool {
        let reading = lock(&self.reading);
        let any = |reading: &Reading| reading.answers.keys().any(|pattern| self.means_any(pattern));
        reading.as_ref().is_some_and(|r| r.followed.contains_key(&pid) || any(r))
    }

    /// True if a description means processes by a glob.
    pub(super) fn means_any(&self, pattern: &Pattern) -> bool {
        pattern.names_provider()
            && self.family.pid(&pattern.provider).is_none()
            && self.family.matches(&pattern.provider)
    }

    /// The processes that run which may have probes of these descriptions.
    pub(super) fn running(&self, patterns: &[Pattern]) -> Vec<u32> {
        let mut reading = lock(&self.reading);
        let Some(reading) = reading.as_mut() else { return Vec::new() };
        let any = patterns.iter().filter(|pattern| self.means_any(pattern));
        let names: HashSet<&str> = any.map(|pattern| pattern.provider.as_str()).collect();
        let Reading { symbols, owners, .. } = reading;
        let of = |name| super::source::describing(name, symbols, owners).0;
        names.into_iter().flat_map(of).map(|owner| owner.pid).collect()
    }

    /// A process has mapped other files, or executed another program, or was forked, or has ended:
    /// what came and what went for these descriptions.
    pub(super) fn changed(&self, pid: u32, patterns: &[&Pattern]) -> Vec<FileChange> {
        let mut reading = lock(&self.reading);
        let Some(reading) = reading.as_mut() else { return Vec::new() };
        let mut changes = Vec::new();
        if reading.followed.get(&pid).is_some_and(|f| f.process.has_ended() || !f.process.is_current()) {
            let ended = reading.followed.remove(&pid);
            // Another process that has the number is not the one that a description named.
            reading.named.remove(&pid);
            changes.extend(ended.into_iter().flat_map(|mut ended| ended.remove(|_| true)));
        }
        let is_wanted = |p: &&Pattern| self.family.pid(&p.provider) == Some(pid) || self.means_any(p);
        let wanted: Vec<&Pattern> = patterns.iter().copied().filter(is_wanted).collect();
        let objects = if wanted.is_empty() { None } else { objects(pid, reading) };
        if !wanted.is_empty() {
            changes.extend(gone(pid, reading, objects.as_deref()));
        }
        changes.iter().for_each(|change| reading.brought.give(&change.by, change.went.len()));
        // Before what came is matched: that may have the names of what went, of which nothing is to
        // be remembered.
        let mut known = lock(&self.known);
        changes.iter().flat_map(|change| &change.went).for_each(|id| known.remove(*id));
        drop(known);
        changes.extend(self.look(pid, reading, (&objects.unwrap_or_default(), &wanted)));
        // Also where a file goes that had no later probes.
        if changes.iter().any(|change| change.came.is_empty()) {
            reading.held.release();
        }
        changes
    }

    /// What came with the files that a process runs.
    fn look(
        &self,
        pid: u32,
        reading: &mut Reading,
        (objects, wanted): (&[Object], &[&Pattern]),
    ) -> Vec<FileChange> {
        let mut changes = Vec::new();
        let owner = reading.owners.of(pid);
        let (of_this, of_all) = reading.brought.left(&owner);
        let mut left = of_this.min(of_all);
        let why = match of_this <= of_all {
            true => format!("a process brings at most {MAX_LATER} while tracing"),
            false => format!("it has its share of the {MAX_PROBES} that come while tracing"),
        };
        for object in objects {
            let (number, sites) = reading.sites(object);
            if sites.is_empty() {
                continue;
            }
            let mut process = reading.followed.get(&pid).map(|follow| follow.process.clone());
            let mut found: BTreeMap<Arc<ProbeDesc>, Vec<Target>> = BTreeMap::new();
            let mut is_beyond = false;
            for pattern in wanted {
                let mut matching = Match::new(pattern, self.shares());
                if !matching.selects(object, &sites, pid) {
                    continue;
                }
                if process.is_none() {
                    process = held_process(pid).ok();
                }
                let Some(process) = &process else { break };
                // It is looked for again when others have gone. Until then nothing of the file is
                // kept, not even the file.
                if left == 0 && !reading.has_searched(pattern, number, pid) {
                    is_beyond = true;
                    continue;
                }
                let is_new =
                    reading.followed.get_mut(&pid).is_none_or(|follow| follow.search(pattern, number));
                matching.came((object, number, &sites), (process, is_new), reading);
                let mut known = lock(&self.known);
                let (mine, refused) = (matching.found, matching.refused);
                known.refused.extend(refused);
                known.matched(pattern, mine.keys(), self.selects_only_matched(pattern));
                found.extend(mine);
            }
            is_beyond |= found.len() > left;
            let Some(process) = process.filter(|_| is_beyond || !found.is_empty()) else { continue };
            let new = || {
                let mut follow = Followed::new(process, owner.clone());
                for pattern in wanted.iter().filter(|_| !found.is_empty()) {
                    follow.search(pattern, number);
                }
                follow
            };
            let follow = reading.followed.entry(pid).or_insert_with(new);
            if is_beyond && !std::mem::replace(&mut follow.is_full, true) {
                let text = format!("probes of {} in {owner} are not enabled: {why}", object.name);
                leave(&mut lock(&self.known).left_out, text);
            }
            let came: Vec<_> = found.into_iter().take(left).collect();
            left -= came.len();
            let (shared, own): (Vec<_>, Vec<_>) =
                came.into_iter().partition(|(desc, _)| self.family.is_of_several(&desc.provider));
            for (pid, came) in [(None, shared), (Some(pid), own)] {
                if !came.is_empty() {
                    let (name, went) = (object.name.clone(), Vec::new());
                    changes.push(FileChange { pid, number, name, came, went, by: owner.clone() });
                }
            }
        }
        let said = reading.take_said();
        let mut known = lock(&self.known);
        said.into_iter().for_each(|text| leave(&mut known.left_out, text));
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

    /// Files whose links are to be closed, since the last call.
    pub(super) fn detached(&self) -> Vec<Detached> {
        let mut reading = lock(&self.reading);
        reading.as_mut().map(|reading| std::mem::take(&mut reading.shared.detached)).unwrap_or_default()
    }

    /// The probes of a file that came have these ids.
    pub(super) fn came(&self, (pid, number, name): (Option<u32>, u64, &Arc<str>), ids: &[ProbeId]) {
        let mut reading = lock(&self.reading);
        let Some(reading) = reading.as_mut() else { return };
        let Some(pid) = pid else {
            let by = reading.shared.came(number, ids);
            return by.into_iter().for_each(|by| reading.brought.take(by, ids.len()));
        };
        if let Some(follow) = reading.followed.get_mut(&pid) {
            let mapped = follow.looks;
            let new = || Later { name: name.clone(), ids: Vec::new(), mapped };
            follow.later.entry(number).or_insert_with(new).ids.extend(ids);
            reading.brought.take(&follow.owner, ids.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_brought_and_what_went_is_as_if_it_had_never_come() {
        let mut brought = Brought::default();
        let owners: Vec<Owner> = (1..2000).map(|pid| Owner::new(pid, 1000 + pid % 3, "")).collect();
        let free = brought.left(&owners[0]);
        owners.iter().for_each(|owner| brought.take(owner, 20));
        let (of_this, of_all) = brought.left(&owners[0]);
        assert!(of_this == MAX_LATER - 20 && of_all < free.1, "{of_this} {of_all}");
        // An owner that has gone is not known any more.
        owners.iter().for_each(|owner| brought.give(owner, 20));
        assert_eq!(brought.left(&owners[0]), free);
        assert!(brought.processes.is_empty());
    }
}
