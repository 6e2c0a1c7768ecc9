//! Processes whose first thread ends while they are traced.
//!
//! ```text
//!  planned ──► attached ──► the first thread runs still  ──► its links are complete
//!                      └──► it has ended: the kernel may have found no memory to set probes in ──► attached again, by the links of files
//! ```
//!
//! The kernel's link of a process finds the memory of the process by its first thread, which has
//! none when it has ended (`pthread_exit` in `main`). A link of many places has its probes in the
//! memory as before, can set no more, and loses one when any other link to its place is closed: the
//! kernel then asks whether somebody still wants it there. A link of one place loses its probe
//! where it is next reached; a uretprobe is not asked, and fires as long as another one has the
//! place. So what is lost is attached again to the files, for a set with these processes, as where
//! the first thread had ended before the process was matched.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::Arc;

use plane::processes::SETS_MAX;
use probes::{ProbeDesc, ProbeId};

use super::follow::FileChange;
use super::known::{Links, Matches, Target};
use crate::contract::method::{Detached, HeldProcess};

impl Matches {
    /// These probes are about to be attached by links of their processes.
    pub(super) fn attaches_to_processes(&mut self, probes: impl Iterator<Item = (ProbeId, Arc<ProbeDesc>)>) {
        for (id, desc) in probes {
            let targets = self.later.get(&id).or_else(|| self.targets.get(&desc));
            for process in targets.into_iter().flatten().flat_map(|target| target.place.processes.iter()) {
                let new = || Links { process: process.clone(), new: BTreeMap::new(), old: BTreeMap::new() };
                let links = self.links.entry(process.pid()).or_insert_with(new);
                if !Arc::ptr_eq(&links.process, process) {
                    *links = new();
                }
                links.new.insert(id, desc.clone());
            }
        }
    }

    /// These probes of a process are about to be detached, which perhaps removes others.
    pub(super) fn detaches_from_process(&mut self, pid: u32, ids: &[ProbeId]) {
        if let Some(links) = self.links.get_mut(&pid) {
            links.new.append(&mut links.old);
            ids.iter().for_each(|id| drop(links.new.remove(id)));
        }
    }

    /// Processes with links that were not looked at since they were attached.
    pub(super) fn unsettled(&self) -> Vec<Arc<HeldProcess>> {
        self.links.values().filter(|links| !links.new.is_empty()).map(|links| links.process.clone()).collect()
    }

    /// A process is looked at: the probes that are to be attached again because its first thread
    /// has ended. `is_of_several`: the name of a provider means more processes than one.
    pub(super) fn without_first_thread(
        &mut self,
        process: &Arc<HeldProcess>,
        is_of_several: impl Fn(&str) -> bool,
    ) -> Vec<FileChange> {
        let (pid, can) = (process.pid(), self.can);
        let Some(links) = self.links.get_mut(&pid).filter(|links| Arc::ptr_eq(&links.process, process))
        else {
            return Vec::new();
        };
        if !process.lacks_first_thread() {
            links.old.append(&mut links.new);
            return Vec::new();
        }
        let is_complete = links.new.is_empty() && can.multi;
        let mut lost = if is_complete { BTreeMap::new() } else { std::mem::take(&mut links.new) };
        if !is_complete {
            lost.append(&mut links.old);
        }
        // What comes later is attached so too.
        let names: Vec<Arc<str>> = self
            .meant
            .iter()
            .filter(|(name, _)| self.means(name, process))
            .map(|(name, _)| name.clone())
            .collect();
        let has_sets = can.sets && names.iter().all(|name| self.share(name));
        if lost.is_empty() {
            return Vec::new();
        }
        let count = lost.len();
        let s = if count == 1 { "" } else { "s" };
        if !has_sets {
            self.warnings.push(format!(
                "the first thread of process {pid} has ended, and with it {count} probe{s}: this kernel has no other way to attach to the process"
            ));
            return Vec::new();
        }
        self.warnings.push(format!(
            "the first thread of process {pid} has ended, and with it {count} probe{s}: attached again in another way; what fired meanwhile is lost"
        ));
        // Links of single places are lost already, but for uretprobes, and each takes the kernel
        // long to close.
        self.detached.push(if can.multi { Detached::All(pid) } else { Detached::Returns(pid) });
        let mut by_file: HashMap<(OsString, Arc<str>), FileChange> = HashMap::new();
        for (id, desc) in lost {
            self.by_address.values_mut().for_each(|probes| drop(probes.remove(&id)));
            let targets: Vec<Target> = self.targets(id, &desc).to_vec();
            let Some(file) = targets.first().map(|target| target.place.file.clone()) else { continue };
            let name = desc.provider.clone();
            let change = by_file.entry((file.path().into(), name.clone())).or_insert_with(|| FileChange {
                name: file.name().clone(),
                file,
                // Those of one process go with it.
                set: is_of_several(&name).then_some(name),
                came: Vec::new(),
                went: Vec::new(),
            });
            change.came.push((desc, targets));
            change.went.push(id);
        }
        by_file.into_values().collect()
    }

    /// The processes that the name of a provider means have a set from now on, for what is attached
    /// later. False if there are too many sets.
    fn share(&mut self, provider: &str) -> bool {
        let next = self.sets();
        let Some(meant) = self.meant.get_mut(provider) else { return false };
        if meant.set.is_none() && next < SETS_MAX {
            meant.set = Some(next);
            meant.shares = true;
        }
        meant.set.is_some()
    }
}
