//! Returns that the kernel does not probe, because a thread is in too many probed calls.
//!
//! It keeps the return addresses of 64 calls of a thread. A function that calls itself has its
//! probes at the instructions that return, from the beginning. Others may be nested as deep,
//! through each other or through pointers; that the kernel says in its log when it happens, and
//! then all returns of the process are moved to the instructions. Where these are not certain the
//! return keeps its uretprobe, which is incomplete and not dangerous.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::sync::Arc;

use bpf_sys::NestedReturns;
use probes::ProbeId;

use super::follow::FileChange;
use super::known::{At, Matches};
use crate::contract::method::{Detached, HeldProcess};

/// Why the returns of such a process are probed at the instructions.
pub(super) const DEEP: &str = "it is in more calls at a time than the kernel probes returns of";

impl Matches {
    /// The processes of which the kernel has left out returns, as far as that was not reported, in
    /// words.
    pub(super) fn nested(&mut self) -> Vec<String> {
        self.read_log();
        let mut found = std::mem::take(&mut self.nested);
        let moved = std::mem::take(&mut self.moved);
        found.extend(&moved);
        let text = |pid: &u32| {
            let keeps = self.by_address.get(pid).is_some_and(|probes| !probes.is_empty());
            let until = match (moved.contains(pid), keeps) {
                (false, _) => "",
                (true, false) => ", until they were moved",
                (true, true) => ", until those whose instructions are certain were moved",
            };
            format!(
                "returns are missing in process {pid}: it was in more than 64 probed calls at a time, and the kernel probes the return of no \
                 more (uretprobe){until}; -x pidreturn=ret probes all"
            )
        };
        found.intersection(&self.returned).map(text).collect()
    }

    fn read_log(&mut self) {
        let found: BTreeSet<u32> = self.log.as_mut().map(NestedReturns::processes).unwrap_or_default();
        self.nested.extend(found);
    }

    /// The probes that are moved, because the kernel has left out returns of their process, where
    /// their place was this provider's choice.
    pub(super) fn too_deep(&mut self) -> Vec<(u32, FileChange)> {
        if self.by_address.values().all(|probes| probes.is_empty()) {
            return Vec::new();
        }
        self.read_log();
        let mut all = Vec::new();
        for pid in self.nested.clone() {
            let Some(process) = self.links.get(&pid).map(|links| links.process.clone()) else { continue };
            if self.is_deep(&process) {
                // Said once: by returns that were omitted before they were moved, or those that
                // stay.
                self.nested.remove(&pid);
                self.moved.insert(pid);
                continue;
            }
            if !self.has_certain_returns(&process) {
                continue;
            }
            self.nested.remove(&pid);
            self.moved.insert(pid);
            self.deep.insert(pid, Arc::downgrade(&process));
            self.detached.push(Detached::Returns(pid));
            self.warnings.push(format!(
                "process {pid} was in more than 64 probed calls at a time, and the kernel probes the return of no more (uretprobe): some \
                 returns are missing, and from now on they are probed at the instructions that return, where these are certain"
            ));
            all.extend(self.moves_returns(&process).into_iter().map(|change| (pid, change)));
        }
        all
    }

    /// True if the returns of a process were moved because the kernel has left out some. Its number
    /// may be another's later.
    pub(super) fn is_deep(&self, process: &Arc<HeldProcess>) -> bool {
        self.deep.get(&process.pid()).is_some_and(|deep| std::ptr::eq(deep.as_ptr(), Arc::as_ptr(process)))
    }

    /// True if returns that the kernel finds by the return address can be probed at the
    /// instructions.
    fn has_certain_returns(&self, process: &Arc<HeldProcess>) -> bool {
        let probes = self.by_address.get(&process.pid());
        let mut targets = probes.into_iter().flatten().flat_map(|(id, desc)| self.targets(*id, desc));
        targets.any(|target| {
            let is_its = target.place.processes.iter().any(|p| Arc::ptr_eq(p, process));
            is_its && matches!(&target.at, At::Return(returns) if returns.sites.is_ok())
        })
    }

    /// Return addresses on the stack of a process are the kernel's, and should not be: the probes
    /// of these returns go, and come again where they are probed now.
    pub(super) fn moves_returns(&mut self, process: &Arc<HeldProcess>) -> Vec<FileChange> {
        let pid = process.pid();
        let mut by_file: HashMap<OsString, FileChange> = HashMap::new();
        for (id, desc) in self.by_address.remove(&pid).unwrap_or_default() {
            let mut targets = self.targets(id, &desc).to_vec();
            targets.retain(|target| target.place.processes.iter().any(|p| Arc::ptr_eq(p, process)));
            let Some(file) = targets.first().map(|target| target.place.file.clone()) else { continue };
            let change = by_file.entry(file.path().into()).or_insert_with(|| FileChange {
                name: file.name().clone(),
                file,
                set: None,
                came: Vec::new(),
                went: Vec::new(),
            });
            change.came.push((desc, targets));
            change.went.push(id);
        }
        let went: Vec<ProbeId> = by_file.values().flat_map(|change| change.went.iter().copied()).collect();
        self.detaches_from_process(pid, &went);
        by_file.into_values().collect()
    }
}
