//! What the reader does with a file, in this process and with files that are in memory: for fuzzing
//! and for files that are trusted.

use std::cell::Cell;
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;

use debuginfo::{Answer, NoSplitFiles, Query, SourceFrame, SplitFiles, SplitUnit, Take};

use super::elf::Elf;
use super::functions::{Listing, Output, Sources};
use super::perfmap::{self, PerfMap};
use super::types::NoTypes;
use super::{compressed, debug, extents, frames, lines, servers, types, usdt};
use crate::frames::FrameTable;
use crate::functions::{Function, FunctionQuery, SymbolSource};
use crate::usdt::DescribedProbes;
use crate::wire::functions::Instructions;
use crate::wire::list::{Assembly, FileFunctions, Functions};

/// Puts an answer together as the session does.
#[derive(Default)]
struct Collector {
    list: Assembly,
    is_malformed: bool,
}

impl Output for Collector {
    type Error = Infallible;

    fn function(&mut self, function: Function, instructions: Option<Instructions>) -> Result<(), Infallible> {
        self.list.functions(Functions::of(&[function]));
        self.is_malformed |= instructions.is_some_and(|part| self.list.instructions(part).is_none());
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Lists the functions of an ELF file, which needs at most `most` bytes of memory besides the file.
pub fn functions_of_bytes(bytes: Vec<u8>, query: &FunctionQuery, most: u64) -> Result<FileFunctions, String> {
    let elf = Elf::open(Rc::new(bytes)).map_err(|e| e.to_string())?;
    let unpacked = if elf.has_full_table() { None } else { compressed::find(&elf, most) };
    let other = unpacked.as_ref().map(|unpacked| (unpacked, SymbolSource::Compressed));
    let extents = |left| extents::read(&elf, &mut NoSplitFiles, false, &Cell::new(left));
    let sources = Sources { own: &elf, name: b"", other, debug: Some(&extents) };
    let listing = Listing::read(&sources, most).map_err(|e| e.to_string())?;
    let mut kept = Collector::default();
    let Ok(answer) = listing.answer(query, None, &mut kept);
    answer?;
    kept.list.file(listing.file().clone());
    match kept.is_malformed {
        true => Err("the instructions do not belong to a function".into()),
        false => Ok(kept.list.finish()),
    }
}

/// The bytes of a file, and of those that belong to it; empty where there is none.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The file.
    pub own: &'a [u8],
    /// Its debug file, if it has the build id or the checksum.
    pub debug: &'a [u8],
    /// The file with the types that it shares with others.
    pub supplement: &'a [u8],
    /// The package of split debug information, or the file of each unit.
    pub split: &'a [u8],
}

/// What is read of a file.
#[derive(Debug, Default)]
pub struct Read {
    /// The symbol at each address.
    pub symbols: Vec<Option<(u64, String)>>,
    /// The probes that it describes.
    pub probes: DescribedProbes,
    /// The table by which stacks are walked through it.
    pub frames: Option<FrameTable>,
    /// The answers about its types.
    pub types: Vec<Answer>,
    /// The functions and lines at each address.
    pub lines: Vec<Vec<SourceFrame>>,
}

/// Reads what there is to know of a file, in at most `most` bytes of memory for each subject.
pub fn file_facts(
    files: &Files<'_>,
    most: u64,
    addresses: &[u64],
    queries: &[Query],
) -> Result<Read, String> {
    let text = |e: super::elf::ElfError| e.to_string();
    let open = |bytes: &[u8]| Elf::open(Rc::new(bytes.to_vec()));
    let elf = open(files.own).map_err(text)?;
    let mut read = Read::default();
    if let Ok(table) = elf.table(most) {
        read.symbols = addresses.iter().map(|addr| table.find(*addr)).collect();
    }
    read.probes.sites = usdt::sites(&elf, most).unwrap_or_default();
    read.probes.providers = usdt::definitions(&elf).unwrap_or_default();
    let _ = usdt::providers(&elf);
    read.frames = frames::table(&elf, most);
    let link = elf.debug_link();
    debug::search_paths(b"/bin/x", elf.build_id().as_deref(), link.as_ref().map(|(name, _)| &name[..]));
    let debug = open(files.debug).ok().filter(|other| debug::belongs(&elf, link.as_ref(), other));
    let elf = debug.as_ref().filter(|_| elf.section_size(types::INFO) == 0).unwrap_or(&elf);
    let supplement = elf.supplement_link().and_then(|(_, id)| {
        let other = open(files.supplement).ok()?;
        (other.build_id().as_ref() == Some(&id)).then_some(other)
    });
    let left = Cell::new(most);
    let mut split = Given { bytes: files.split, left: &left };
    if types::size(elf) <= most
        && let Ok(found) = types::read(elf, supplement.as_ref(), &mut split, (&left, most))
    {
        read.types = queries.iter().filter_map(|query| found.answer(query).ok()).collect();
    }
    left.set(most);
    if lines::size(elf) <= most
        && let Ok(mut found) = lines::read(elf, supplement.as_ref(), &mut split, (&left, most))
    {
        read.lines = addresses.iter().map(|addr| lines::frames(&mut found, *addr, false)).collect();
    }
    Ok(read)
}

/// A file of split debug information that is in memory.
struct Given<'a> {
    bytes: &'a [u8],
    left: &'a Cell<u64>,
}

impl Given<'_> {
    fn section(&self, elf: &Elf, name: &str) -> Result<Vec<u8>, NoTypes> {
        let bytes = elf.contents(name.as_bytes(), self.left.get()).unwrap_or_default();
        self.left.set(self.left.get().saturating_sub(bytes.len() as u64));
        Ok(bytes)
    }
}

impl SplitFiles<NoTypes> for Given<'_> {
    fn package(&mut self, read: debuginfo::Read<'_, NoTypes>) -> Result<(), NoTypes> {
        match Elf::open(Rc::new(self.bytes.to_vec())) {
            Ok(elf) if elf.section_size(b".debug_cu_index") > 0 => {
                read(&mut |name: &str| self.section(&elf, name))
            }
            _ => Ok(()),
        }
    }

    fn object(&mut self, _: &SplitUnit, take: Take<'_, NoTypes>) -> Result<(), NoTypes> {
        let Ok(elf) = Elf::open(Rc::new(self.bytes.to_vec())) else { return Ok(()) };
        take(&mut |name: &str| self.section(&elf, name)).map(|_| ())
    }
}

/// The symbols of JIT code in a perf map at addresses, and the bytes of memory that the map takes.
pub fn perf_map(text: &[u8], addresses: &[u64]) -> (Vec<Option<(u64, String)>>, u64) {
    let map = PerfMap::of(text).unwrap_or_default();
    (addresses.iter().map(|addr| map.find(*addr)).collect(), map.memory())
}

/// The ids that a process has in each namespace, and its user, in the text of `/proc/PID/status`.
pub fn process_ids(status: &[u8]) -> Option<(Vec<u32>, u32)> {
    perfmap::status_of(status)
}

/// Fetches the debug file with a build id from a server to a place, as the reader does.
pub fn fetched(url: &str, id: &[u8], place: &Path) -> Result<(), String> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    servers::transfer(url, &hex, id, place)
}
