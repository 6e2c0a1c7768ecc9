//! Returns that the kernel does not probe, because a thread is in too many probed calls.
//!
//! It keeps the return addresses of 64 calls of a thread. A function that calls itself has its probes at the instructions that return, from the beginning. Others may
//! be nested as deep, through each other or through pointers; that the kernel says in its log when it happens, and then all returns of
//! the process are moved to the instructions.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::sync::Arc;

use bpf_sys::NestedReturns;
use probes::ProbeId;

use super::follow::FileChange;
use super::known::Known;
use crate::method::{Detached, HeldProcess};

/// Why the returns of such a process are probed at the instructions.
const DEEP: &str = "it is in more calls at a time than the kernel probes returns of";

impl Known {
    /// The processes of which the kernel has left out returns, as far as that was not reported, in words.
    pub(super) fn nested(&mut self) -> Vec<String> {
        self.read_log();
        let found = std::mem::take(&mut self.nested);
        let moved = &self.moved;
        let text = |pid: &u32| {
            let until = if moved.contains(pid) { ", until they were moved" } else { "" };
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

    /// The probes that are moved, because the kernel has left out returns of their process, where their place was this provider's choice.
    pub(super) fn too_deep(&mut self) -> Vec<(u32, FileChange)> {
        if self.by_address.values().all(|probes| probes.is_empty()) {
            return Vec::new();
        }
        self.read_log();
        let moved = |pid: &u32| self.by_address.get(pid).is_some_and(|probes| !probes.is_empty());
        let pids: Vec<u32> = self.nested.iter().copied().filter(moved).collect();
        let mut all = Vec::new();
        for pid in pids {
            let Some(process) = self.links.get(&pid).map(|links| links.process.clone()) else { continue };
            self.moved.insert(pid);
            self.detached.push(Detached::Returns(pid));
            self.warnings.push(format!(
                "process {pid} was in more than 64 probed calls at a time, and the kernel probes the return of no more (uretprobe): some \
                 returns are missing, and from now on they are probed at the instructions that return"
            ));
            all.extend(self.moves_returns(&process, DEEP.into()).into_iter().map(|change| (pid, change)));
        }
        all
    }

    /// Return addresses on the stack of a process are the kernel's, and must not be: the probes of these returns go, and come again at the
    /// instructions that return.
    pub(super) fn moves_returns(&mut self, process: &Arc<HeldProcess>, why: String) -> Vec<FileChange> {
        let pid = process.pid();
        self.unwinds.insert(pid, Some(why));
        let mut by_file: HashMap<OsString, FileChange> = HashMap::new();
        for (id, desc) in self.by_address.remove(&pid).unwrap_or_default() {
            let mut targets = self.targets(id, &desc).to_vec();
            targets.retain(|target| target.processes.iter().any(|p| Arc::ptr_eq(p, process)));
            let Some(file) = targets.first().map(|target| target.file.clone()) else { continue };
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
