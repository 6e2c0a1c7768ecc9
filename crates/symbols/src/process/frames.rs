//! The code that a process has mapped, and the tables by which its stacks are walked.

use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::FileExt;

use files::FileId;
use proc::maps::{Backing, Mapping};
use unwind::Table;

use super::ask::MALFORMED;
use super::{END_OF_32_BIT, Processes};
use crate::frames::FrameTable;
use crate::object::Lookup;
use crate::wire::{Request, Response};

/// The most bytes of a vdso of 32 bits, which has two pages.
const MAX_VDSO: u64 = 4 << 12;

/// The most of them that differ.
const MAX_VDSOS: usize = 16;

/// What a mapping of code is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeSource {
    /// A file.
    File(FileId),
    /// The code that the kernel gives to each process.
    Vdso,
    /// That of a process of 32 bits, by a hash of what is there: the process could change its own.
    Vdso32(u64),
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
    /// The code that a process has mapped now, in the order of addresses. The error says in words
    /// why it is not known.
    pub fn code(&mut self, pid: u32) -> Result<Vec<MappedCode>, String> {
        self.read_map(pid)?;
        let narrow_vdso = self.read_narrow_vdso(pid);
        let Some(process) = self.processes.get(&pid) else { return Ok(Vec::new()) };
        let code = process.mappings.iter().filter(|m| m.is_code).filter_map(|m| {
            let (offset, source) = match m.backing {
                Backing::File(number) => (m.offset, CodeSource::File(*process.objects.get(number as usize)?)),
                Backing::Vdso if m.start < END_OF_32_BIT => (0, narrow_vdso),
                Backing::Vdso => (0, CodeSource::Vdso),
                Backing::Anonymous => (0, CodeSource::Anonymous),
                Backing::Zeros(_) => return None,
            };
            Some(MappedCode { start: m.start, end: m.end, offset, source })
        });
        Ok(code.collect())
    }

    /// Reads the vdso of a process of 32 bits: this process has none of those.
    pub(super) fn read_narrow_vdso(&mut self, pid: u32) -> CodeSource {
        const NONE: CodeSource = CodeSource::Anonymous;
        let Some(process) = self.processes.get(&pid) else { return NONE };
        let is_narrow = |m: &&Mapping| m.backing == Backing::Vdso && m.start < END_OF_32_BIT;
        let Some(vdso) = process.mappings.iter().find(is_narrow) else { return NONE };
        let bytes = vdso.end.saturating_sub(vdso.start).min(MAX_VDSO) as usize;
        let mut image = vec![0; bytes];
        let memory = std::fs::File::open(format!("/proc/{}/mem", proc::thread_with_memory(pid)));
        if memory.and_then(|memory| memory.read_exact_at(&mut image, vdso.start)).is_err() {
            return NONE;
        }
        let mut hasher = self.vdsos.hasher().build_hasher();
        hasher.write(&image);
        let hash = hasher.finish();
        // Only processes that change theirs have others than the kernel's.
        if self.vdsos.len() < MAX_VDSOS || self.vdsos.contains_key(&hash) {
            self.vdsos.insert(hash, image);
            return CodeSource::Vdso32(hash);
        }
        NONE
    }

    /// The symbol at an offset of the vdso of a process of 32 bits. One that has ended had the
    /// kernel's.
    pub(super) fn narrow_vdso_symbol(&mut self, pid: u32, offset: u64) -> Lookup {
        let read = match self.read_narrow_vdso(pid) {
            CodeSource::Vdso32(hash) => self.vdsos.get_key_value(&hash),
            _ if self.vdsos.len() == 1 => self.vdsos.iter().next(),
            _ => None,
        };
        let Some((hash, image)) = read else { return Lookup::Unnamed(None) };
        self.objects.vdso(offset, Some((*hash, image)), &mut self.reader)
    }

    /// The table by which stacks are walked through code. `None`: it has none.
    pub fn frames(&mut self, source: CodeSource) -> Result<Option<FrameTable>, String> {
        const FRAMES: &str = "the call frame information";
        let responses = match source {
            CodeSource::Anonymous => None,
            CodeSource::Vdso => Some(self.ask_of_none(FRAMES, &Request::Frames(None))?),
            CodeSource::Vdso32(hash) => match self.vdsos.get(&hash).cloned() {
                Some(image) => Some(self.ask_of_none(FRAMES, &Request::ImageFrames(image))?),
                None => None,
            },
            CodeSource::File(id) => self.ask(id, FRAMES, |file| Request::Frames(Some(file)))?,
        };
        let found = table_of(responses.into_iter().flatten());
        found.ok_or_else(|| format!("{FRAMES} cannot be read: {MALFORMED}"))
    }
}

/// The table in the reader's answer. `None` if that is malformed.
pub(super) fn table_of(responses: impl Iterator<Item = Response>) -> Option<Option<FrameTable>> {
    let (mut loads, mut bytes, mut runtime) = (Vec::new(), Vec::new(), None);
    for response in responses {
        match response {
            Response::CodeLoads(list) => loads = list,
            Response::Runtime(found) => runtime = Some(found),
            Response::Frames(part) => bytes.extend_from_slice(&part),
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Some(None);
    }
    let table = Table::decode(&bytes)?;
    Some(Some(FrameTable { table, loads, runtime }))
}
