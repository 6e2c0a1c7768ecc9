//! Files whose probes are those of all processes that run them, because a description has a glob
//! for the process.
//!
//! ```text
//!  a process maps a file ──► not searched for this description: its probes come, by one link for all processes
//!                       └──► searched: nothing is to be done, the kernel has changed the process's code already
//!  no process maps it any more ──► its links are closed
//! ```
//!
//! The kernel sets a place in whatever a file has there when it is mapped. While a process runs a
//! program nobody can write to its file; so a file that nobody runs is not attached to.
//!
//! Two files whose sites of a probe differ in their arguments or in what they say of them have no
//! probe in common: the second one's are those of each process, and stay so.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;

use probes::{Pattern, ProbeDesc, ProbeId};
use proc::share::{Owner, Owners};

use super::sites::{FileChange, Forms};
use crate::contract::method::{Detached, HeldFile};

/// Whose the probes are that a description has matched in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Those of each process.
    Own,
    /// Those of all processes, and they are known.
    Matches,
    /// Those of all processes, which are new.
    New,
}

/// A file that was searched.
struct SharedFile {
    held: Arc<HeldFile>,
    searched: HashSet<Pattern>,
    forms: HashMap<Arc<ProbeDesc>, Forms>,
    /// The probes that came later.
    ids: Vec<ProbeId>,
    name: Arc<str>,
    /// Whose process brought them.
    by: Owner,
    /// The processes that map it.
    users: HashSet<u32>,
}

/// All such files.
#[derive(Default)]
pub(super) struct SharedFiles {
    /// By path: two overlays of one file have one.
    files: HashMap<OsString, SharedFile>,
    /// The paths by number.
    paths: HashMap<u64, OsString>,
    /// The numbers of files whose probes are those of each process, by description.
    own: HashMap<Pattern, HashSet<u64>>,
    /// Files whose links are to be closed.
    pub(super) detached: Vec<Detached>,
}

impl SharedFiles {
    /// Notes that a process maps a file, if that is shared. `None`: it was not searched for the
    /// description.
    pub(super) fn known(&mut self, pattern: &Pattern, number: u64, pid: u32) -> Option<Sharing> {
        if self.own.get(pattern).is_some_and(|own| own.contains(&number)) {
            return Some(Sharing::Own);
        }
        let file = self.paths.get(&number).and_then(|path| self.files.get_mut(path))?;
        file.users.insert(pid);
        file.searched.contains(pattern).then_some(Sharing::Matches)
    }

    /// A file that a process maps has these probes for a description. They are known where it is an
    /// overlay of one that was searched.
    pub(super) fn share(
        &mut self,
        (pattern, number): (&Pattern, u64),
        (held, name): (&Arc<HeldFile>, &Arc<str>),
        (pid, owners): (u32, &mut Owners),
        forms: HashMap<Arc<ProbeDesc>, Forms>,
    ) -> Sharing {
        let path: OsString = held.path().into();
        let differs = |(other, file): (&OsString, &SharedFile)| {
            let known =
                |(desc, own): (&Arc<ProbeDesc>, &Forms)| file.forms.get(desc).is_some_and(|f| f != own);
            *other != path && forms.iter().any(known)
        };
        if self.files.iter().any(differs) {
            self.own.entry(pattern.clone()).or_default().insert(number);
            return Sharing::Own;
        }
        let new = || SharedFile {
            held: held.clone(),
            searched: HashSet::new(),
            forms: HashMap::new(),
            ids: Vec::new(),
            name: name.clone(),
            by: owners.of(pid),
            users: HashSet::new(),
        };
        self.paths.insert(number, path.clone());
        let file = self.files.entry(path).or_insert_with(new);
        file.users.insert(pid);
        file.forms.extend(forms);
        if file.searched.insert(pattern.clone()) { Sharing::New } else { Sharing::Matches }
    }

    /// The later probes of a file have these ids. Returns who brought them.
    pub(super) fn came(&mut self, number: u64, ids: &[ProbeId]) -> Option<&Owner> {
        let file = self.paths.get(&number).and_then(|path| self.files.get_mut(path))?;
        file.ids.extend(ids);
        Some(&file.by)
    }

    /// A process maps these files and no others: what has gone with the others.
    pub(super) fn maps(&mut self, pid: u32, numbers: &HashSet<u64>) -> Vec<FileChange> {
        let SharedFiles { files, paths, .. } = self;
        let mapped: HashSet<&OsString> = numbers.iter().filter_map(|number| paths.get(number)).collect();
        let others = files.iter_mut().filter(|(path, _)| !mapped.contains(path));
        let left = others.filter_map(|(path, file)| {
            let is_left = file.users.remove(&pid) && file.users.is_empty();
            is_left.then(|| path.clone())
        });
        let left: Vec<OsString> = left.collect();
        left.into_iter().filter_map(|path| self.remove(&path)).collect()
    }

    fn remove(&mut self, path: &OsString) -> Option<FileChange> {
        let SharedFile { held, ids, name, by, .. } = self.files.remove(path)?;
        self.detached.push(Detached::File(held.number()));
        let numbers: Vec<u64> = self.paths.extract_if(|_, known| known == path).map(|(n, _)| n).collect();
        let number = numbers.first().copied().unwrap_or(0);
        // Also where there is no later probe: its links are closed.
        Some(FileChange { pid: None, number, name, came: Vec::new(), went: ids, by })
    }
}
