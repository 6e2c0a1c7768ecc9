//! The functions of the files of a process.

use std::sync::Arc;

use files::{File, FileId};
use proc::maps::Backing;

use super::Processes;
use super::ask::MALFORMED;
use crate::functions::{Function, FunctionQuery, MAX_USES, Select};
use crate::wire::functions::{MAX_PATTERNS, Running};
use crate::wire::list::{Assembly, FileFunctions, FunctionList};
use crate::wire::{MAX_NUMBERS, Request, Response};

/// A part of a file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedText {
    /// The file. Two processes that have mapped one file have the same number, also below overlays.
    pub file: FileId,
    /// Its base name, escaped for output.
    pub name: Arc<str>,
    /// The first address, and the one after the last.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// The offset of `start` in the file.
    pub offset: u64,
    /// The process may execute it.
    pub is_code: bool,
}

impl Processes {
    /// The files that a process has mapped now, in the order of addresses. The error says in words
    /// why they are not known.
    pub fn mapped(&mut self, pid: u32) -> Result<Vec<MappedText>, String> {
        self.read_map(pid)?;
        let Some(process) = self.processes.get(&pid) else { return Ok(Vec::new()) };
        let mapped = process.mappings.iter().filter_map(|m| {
            let Backing::File(number) = m.backing else { return None };
            let file = *process.objects.get(number as usize)?;
            let name = self.objects.name(file)?;
            let (start, end, offset) = (m.start, m.end, m.offset);
            Some(MappedText { file, name, start, end, offset, is_code: m.is_code })
        });
        Ok(mapped.collect())
    }

    /// Reads what a process has mapped now.
    pub(super) fn read_map(&mut self, pid: u32) -> Result<(), String> {
        self.begin_batch();
        let failed = self.processes.get(&pid).and_then(|p| p.failed_at);
        let snapshot = self.observe(pid);
        match snapshot {
            Some(snapshot) => self.store(pid, snapshot),
            None if self
                .processes
                .get(&pid)
                .is_some_and(|p| p.failed_at.is_some() && p.failed_at == failed) =>
            {
                return Err(format!("reading the address map of process {pid} failed a short time ago"));
            }
            None => {
                return Err(format!(
                    "the address map of process {pid} cannot be read: it has ended, or CAP_SYS_PTRACE is missing"
                ));
            }
        }
        Ok(())
    }

    /// A file that a process has mapped: its path, and the handle by which a probe is attached.
    pub fn mapped_file(&self, file: FileId) -> Option<&File> {
        self.objects.files().get(file)
    }

    /// The functions of a file that a process has mapped. Those that the dynamic linker has chosen
    /// for indirect functions of the process are known, if the file has a record of them.
    pub fn functions_in(
        &mut self,
        pid: u32,
        mapped: &MappedText,
        query: &FunctionQuery,
    ) -> Result<FileFunctions, String> {
        let running = Running { pid, start: mapped.start, offset: mapped.offset };
        self.functions_of(mapped.file, Some(running), query)
    }

    /// The functions of a file. The error says in words why they are not known.
    pub fn functions(&mut self, file: FileId, query: &FunctionQuery) -> Result<FileFunctions, String> {
        self.functions_of(file, None, query)
    }

    fn functions_of(
        &mut self,
        file: FileId,
        running: Option<Running>,
        query: &FunctionQuery,
    ) -> Result<FileFunctions, String> {
        if query.entries.len() > MAX_USES {
            return Err(format!("more than {MAX_USES} kinds of entry probes"));
        }
        match &query.select {
            Select::At(addrs) => {
                let mut addrs = addrs.clone();
                addrs.sort_unstable();
                addrs.dedup();
                let parts: Vec<Select> =
                    addrs.chunks(MAX_NUMBERS).map(|part| Select::At(part.to_vec())).collect();
                self.parts((file, running), query, parts)
            }
            Select::Matching(patterns) => {
                let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
                for pattern in patterns {
                    if pattern.len() > crate::wire::MAX_NAME {
                        return Err("the name of the function is too long".into());
                    }
                    bytes += pattern.len() + 4;
                    if bytes > MAX_PATTERNS {
                        parts.push(Select::Matching(std::mem::take(&mut part)));
                        bytes = pattern.len() + 4;
                    }
                    part.push(pattern.clone());
                }
                parts.push(Select::Matching(part));
                self.parts((file, running), query, parts)
            }
            select => self.parts((file, running), query, vec![select.clone()]),
        }
    }

    /// The functions of several queries, each once.
    fn parts(
        &mut self,
        file: (FileId, Option<Running>),
        query: &FunctionQuery,
        parts: Vec<Select>,
    ) -> Result<FileFunctions, String> {
        let is_one = parts.len() <= 1;
        let mut all = FileFunctions::default();
        for select in parts {
            let part = self.list(file, FunctionQuery { select, ..query.clone() })?;
            let mut before = std::mem::replace(&mut all, part).functions;
            std::mem::swap(&mut before, &mut all.functions);
            all.functions.append(before);
        }
        if !is_one {
            all.functions = each_once(&all.functions);
        }
        Ok(all)
    }

    fn list(
        &mut self,
        (id, running): (FileId, Option<Running>),
        query: FunctionQuery,
    ) -> Result<FileFunctions, String> {
        const FUNCTIONS: &str = "the functions";
        let request = |file| Request::Functions { file, running, query };
        let Some(responses) = self.ask(id, FUNCTIONS, request)? else {
            return Err(self.unusable(id, FUNCTIONS, "it is no file on a disk"));
        };
        let mut list = Assembly::default();
        for response in responses {
            match response {
                Response::Functions(functions) => list.functions(functions),
                Response::Instructions(part) => {
                    let malformed = || self.unusable(id, FUNCTIONS, MALFORMED);
                    list.instructions(part).ok_or_else(malformed)?;
                }
                Response::FileFunctions(file) => list.file(file),
                _ => {}
            }
        }
        Ok(list.finish())
    }
}

/// The functions of a list in the order of addresses, each once.
fn each_once(list: &FunctionList) -> FunctionList {
    let mut all: Vec<Function> = list.iter().collect();
    all.sort_by(|a, b| (a.address, &a.names).cmp(&(b.address, &b.names)));
    all.dedup_by(|a, b| (a.address, &a.names) == (b.address, &b.names));
    all.into_iter().collect()
}

#[cfg(test)]
mod tests;
