//! The code that a process has mapped, and the tables by which its stacks are walked.

use files::FileId;
use proc::maps::Backing;
use unwind::Table;

use super::Processes;
use super::ask::MALFORMED;
use crate::frames::FrameTable;
use crate::wire::{Request, Response};

/// What a mapping of code is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeSource {
    /// A file.
    File(FileId),
    /// The code that the kernel gives to each process.
    Vdso,
    /// No file: the process has made it.
    Anonymous,
}

/// Code that a process has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedCode {
    /// The first address, and the one after the last.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// The offset of `start` in the file.
    pub offset: u64,
    /// What it is of.
    pub source: CodeSource,
}

impl Processes {
    /// The code that a process has mapped now, in the order of addresses. The error says in words why it is not known.
    pub fn code(&mut self, pid: u32) -> Result<Vec<MappedCode>, String> {
        self.read_map(pid)?;
        let Some(process) = self.processes.get(&pid) else { return Ok(Vec::new()) };
        let code = process.mappings.iter().filter(|m| m.is_code).filter_map(|m| {
            let (offset, source) = match m.backing {
                Backing::File(number) => (m.offset, CodeSource::File(*process.objects.get(number as usize)?)),
                Backing::Vdso => (0, CodeSource::Vdso),
                Backing::Anonymous => (0, CodeSource::Anonymous),
                Backing::Zeros(_) => return None,
            };
            Some(MappedCode { start: m.start, end: m.end, offset, source })
        });
        Ok(code.collect())
    }

    /// The table by which stacks are walked through a file, or without one the vdso. `None`: it has none.
    pub fn frames(&mut self, file: Option<FileId>) -> Result<Option<FrameTable>, String> {
        const FRAMES: &str = "the call frame information";
        let responses = match file {
            None => Some(self.ask_of_none(FRAMES, &Request::Frames(None))?),
            Some(id) => self.ask(id, FRAMES, |file| Request::Frames(Some(file)))?,
        };
        let found = table_of(responses.into_iter().flatten());
        found.ok_or_else(|| format!("{FRAMES} cannot be read: {MALFORMED}"))
    }
}

/// The table in the reader's answer. `None` if that is malformed.
pub(super) fn table_of(responses: impl Iterator<Item = Response>) -> Option<Option<FrameTable>> {
    let (mut loads, mut bytes, mut python) = (Vec::new(), Vec::new(), None);
    for response in responses {
        match response {
            Response::CodeLoads(list) => loads = list,
            Response::Python(address) => python = Some(address),
            Response::Frames(part) => bytes.extend_from_slice(&part),
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Some(None);
    }
    let table = Table::decode(&bytes)?;
    Some(Some(FrameTable { table, loads, python }))
}
