//! The reader's cache of indexes: symbol tables of files, and perf maps of processes. Their total
//! memory is bounded. Before an index is built, the least recently used ones are dropped until
//! there is space. A dropped index is rebuilt at its next use.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use debuginfo::{Answer, DebugTypes, Lines, Query, SourceFrame};

use super::demangle::demangled;
use super::elf::{Elf, ElfError, Table};
use super::functions::{Listing, Output, Sources, in_source};
use super::perfmap::{self, PerfMap};
use super::servers::AllServers;
use super::split::Finder;
use super::types::{self, NoTypes};
use super::{compressed, debug, demangle, extents, frames, lines, usdt};
use crate::frames::FrameTable;
use crate::functions::{FunctionQuery, SymbolSource};
use crate::usdt::DescribedProbes;
use crate::wire::functions::Running;
use crate::wire::list::FileFunctions;
use crate::wire::{Failure, FileRef, Lookup, PlaceName};
use files::open::{Handle, OpenError, Root};
use proc::maps::{self, Backing};

/// The object of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A file, by the session's number.
    File(u64),
    /// What is compressed in a file.
    Compressed(u64),
    /// The types of a file.
    Types(u64),
    /// The functions and source lines of a file.
    Lines(u64),
    /// A process, by pid and start time.
    Process(u32, u64),
    Vdso,
}

enum Index {
    File(FileIndex),
    PerfMap(PerfMap),
    /// The ELF file in `.gnu_debugdata`, if there is one.
    Unpacked(Option<Rc<Elf>>),
    /// The types, and the headers of the file.
    Types(Rc<DebugTypes>, Elf),
    /// The functions and source lines, if there are any, and the headers of the file.
    Lines(Option<Box<Lines>>, Elf),
}

/// The symbols of a file, and those of its debug file, which are read when a lookup needs them.
struct FileIndex {
    elf: Elf,
    own: Table,
    debug: Debug,
}

enum Debug {
    NotSearched,
    None,
    Table(Table),
}

impl Index {
    fn memory(&self) -> u64 {
        match self {
            Index::PerfMap(map) => map.memory(),
            Index::Types(types, _) => types.memory(),
            Index::Lines(lines, _) => lines.as_ref().map_or(0, |lines| lines.memory()),
            Index::Unpacked(elf) => elf.as_ref().map_or(0, |elf| elf.size()),
            Index::File(file) => {
                let debug = if let Debug::Table(table) = &file.debug { table.memory() } else { 0 };
                file.own.memory() + debug
            }
        }
    }
}

/// All indexes.
pub(super) struct Indexes {
    all: HashMap<Key, (Index, u64)>,
    /// Counts requests, for the time of last use.
    clock: u64,
    /// The memory limit of all indexes, in bytes.
    most: u64,
    /// The servers of debug files.
    servers: AllServers,
}

impl Indexes {
    pub(super) fn new(most: u64) -> Indexes {
        Indexes { all: HashMap::new(), clock: 0, most, servers: AllServers::default() }
    }

    /// The servers of debug files.
    pub(super) fn servers(&mut self) -> &mut AllServers {
        &mut self.servers
    }

    /// Drops all that is known of files whose numbers `is_gone` selects.
    pub(super) fn drop_files(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.all.retain(|key, _| match key {
            Key::File(n) | Key::Compressed(n) | Key::Types(n) | Key::Lines(n) => !is_gone(*n),
            Key::Process(..) | Key::Vdso => true,
        });
    }

    /// Drops indexes until `bytes` fit into the limit or none is left.
    fn make_space(&mut self, bytes: u64) {
        let mut used: u64 = self.all.values().map(|(index, _)| index.memory()).sum();
        while used.saturating_add(bytes) > self.most {
            let Some(key) = self.all.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| *key) else {
                return;
            };
            used -= self.all.remove(&key).map_or(0, |(index, _)| index.memory());
        }
    }

    /// Drops the indexes of files, which hold them open.
    pub(super) fn close(&mut self, files: &[u64]) {
        for number in files {
            self.take(Key::File(*number));
            self.take(Key::Compressed(*number));
            self.take(Key::Types(*number));
            self.take(Key::Lines(*number));
        }
    }

    /// Closes files that cannot be opened again. Their names are read into memory; an index whose
    /// names are too large for it is dropped.
    pub(super) fn close_and_keep(&mut self, files: &[u64]) {
        for number in files {
            let Some(Index::File(mut index)) = self.take(Key::File(*number)) else { continue };
            let debug = if let Debug::Table(table) = &mut index.debug { Some(table) } else { None };
            let mut kept = Ok(());
            for table in debug.into_iter().chain([&mut index.own]) {
                self.make_space(table.names_size());
                kept = kept.and_then(|()| table.read_names(self.most));
            }
            if kept.is_ok() {
                index.elf.close();
                if !matches!(index.debug, Debug::Table(_)) {
                    index.debug = Debug::None;
                }
                self.insert(Key::File(*number), Index::File(index));
            }
        }
    }

    /// Drops the file that was least recently used and is open. False if there is none.
    pub(super) fn close_oldest(&mut self) -> bool {
        let open = |index: &Index| matches!(index, Index::File(file) if file.elf.is_open());
        let all = self.all.iter().filter(|(key, (index, _))| **key != Key::Vdso && open(index));
        let oldest = all.min_by_key(|(_, (_, at))| *at).map(|(key, _)| *key);
        oldest.is_some_and(|key| self.take(key).is_some())
    }

    /// Calls a function that opens files. If it fails for want of descriptors, files are closed,
    /// and it is called again.
    fn opened<T>(&mut self, mut open: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        loop {
            match open() {
                Err(failure) if failure.is_temporary && self.close_oldest() => {}
                result => return result,
            }
        }
    }

    fn take(&mut self, key: Key) -> Option<Index> {
        self.all.remove(&key).map(|(index, _)| index)
    }

    fn insert(&mut self, key: Key, index: Index) {
        self.clock += 1;
        self.all.insert(key, (index, self.clock));
    }

    fn table(&mut self, elf: &Elf) -> Result<Table, Failure> {
        self.make_space(elf.table_size());
        elf.table(self.most).map_err(of_elf)
    }

    /// The symbols at offsets of a file. `Err`: why there are none.
    pub(super) fn symbols(
        &mut self,
        file: &FileRef,
        handle: Option<Handle>,
        root: Option<Root>,
        raw: bool,
        offsets: &[u64],
    ) -> Result<Vec<PlaceName>, Failure> {
        let key = Key::File(file.number);
        let mut index = match self.take(key) {
            Some(Index::File(index)) => index,
            _ => {
                let elf = self.opened(|| open(file, handle.as_ref(), root.as_ref()))?;
                FileIndex { own: self.table(&elf)?, elf, debug: Debug::NotSearched }
            }
        };
        let addrs: Vec<Option<u64>> = offsets.iter().map(|o| index.elf.address(*o)).collect();
        let mut found: Vec<Lookup> = addrs.iter().map(|a| index.own.find((*a)?)).collect();
        let is_missing = |(addr, found): (&Option<u64>, &Lookup)| addr.is_some() && found.is_none();
        if matches!(index.debug, Debug::NotSearched)
            && let Some(root) = &root
            && addrs.iter().zip(&found).any(is_missing)
        {
            // An unreadable debug file counts as missing.
            let debug = debug::find(root, &file.path, file.inode, &index.elf);
            let table = debug.and_then(|elf| self.table(&elf).ok());
            let table = table.or_else(|| self.compressed_table(&index.elf));
            index.debug = table.map_or(Debug::None, Debug::Table);
        }
        if let Debug::Table(table) = &index.debug {
            for (addr, found) in addrs.iter().zip(&mut found) {
                *found = found.take().or_else(|| table.find((*addr)?));
            }
        }
        self.insert(key, Index::File(index));
        Ok(shown(found, &addrs, raw))
    }

    /// The table that is compressed in a file.
    fn compressed_table(&mut self, elf: &Elf) -> Option<Table> {
        let unpacked = compressed::find(elf, self.most)?;
        let mut table = self.table(&unpacked).ok()?;
        self.make_space(table.names_size());
        table.read_names(self.most).ok()?;
        Some(table)
    }

    /// The file that is compressed in a file.
    fn unpacked(&mut self, number: u64, elf: &Elf) -> Option<Rc<Elf>> {
        let key = Key::Compressed(number);
        let unpacked = match self.take(key) {
            Some(Index::Unpacked(unpacked)) => unpacked,
            _ => compressed::find(elf, self.most).map(Rc::new),
        };
        self.make_space(unpacked.as_ref().map_or(0, |elf| elf.size()));
        self.insert(key, Index::Unpacked(unpacked.clone()));
        unpacked
    }

    /// Gives the functions of a file to `out`.
    pub(super) fn functions<O: Output>(
        &mut self,
        file: &FileRef,
        handle: Option<Handle>,
        root: Option<Root>,
        (query, running): (&FunctionQuery, Option<&Running>),
        out: &mut O,
    ) -> Result<Result<FileFunctions, Failure>, O::Error> {
        let elf = match self.opened(|| open(file, handle.as_ref(), root.as_ref())) {
            Ok(elf) => elf,
            Err(why) => return Ok(Err(why)),
        };
        let debug = match &root {
            Some(root) if !elf.has_full_table() => debug::find(root, &file.path, file.inode, &elf),
            _ => None,
        };
        let name = file.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let unpacked = match debug {
            None if !elf.has_full_table() => self.unpacked(file.number, &elf),
            _ => None,
        };
        let unpacked = unpacked.as_deref().map(|unpacked| (unpacked, SymbolSource::Compressed));
        let other = debug.as_ref().map(|debug| (debug, SymbolSource::DebugFile)).or(unpacked);
        let installed = |elf: &Elf| debug::find(root.as_ref()?, &file.path, file.inode, elf);
        let extents = |left| {
            let beside =
                if elf.section_size(types::INFO) > 0 || debug.is_some() { None } else { installed(&elf) };
            let described = debug.as_ref().or(beside.as_ref()).unwrap_or(&elf);
            let left = Cell::new(left);
            let mut files = Finder { root: root.as_ref(), path: &file.path, left: &left };
            extents::read(described, &mut files, may_be_split(described), &left)
        };
        let sources = Sources { own: &elf, name, other, debug: Some(&extents) };
        self.make_space(Listing::memory(&sources));
        let listing = match Listing::read(&sources, self.most) {
            Ok(listing) => listing,
            Err(why) => return Ok(Err(of_elf(why))),
        };
        let answer = listing.answer(query, running, out)?;
        Ok(answer.map(|()| listing.file().clone()).map_err(Failure::from))
    }

    /// Answers a question about the types of a file, and says at which address of the file an
    /// offset is.
    pub(super) fn types(
        &mut self,
        file: &FileRef,
        handle: Option<Handle>,
        root: Option<Root>,
        (offset, query): (u64, &Query),
    ) -> Result<(Answer, Option<u64>), Failure> {
        let key = Key::Types(file.number);
        let (known, elf) = match self.take(key) {
            Some(Index::Types(types, elf)) => (types, elf),
            _ => {
                let mut own = self.opened(|| open(file, handle.as_ref(), root.as_ref()))?;
                let (debug, supplement, not_served) = self.with_debug_information(file, root.as_ref(), &own);
                let elf = debug.as_ref().unwrap_or(&own);
                let size = types::size(elf).saturating_add(supplement.as_ref().map_or(0, types::size));
                self.make_space(if may_be_split(elf) { self.most } else { size.saturating_mul(2) });
                let left = Cell::new(self.most);
                let mut files = Finder { root: root.as_ref(), path: &file.path, left: &left };
                let read = types::read(elf, supplement.as_ref(), &mut files, (&left, self.most));
                let read = read.map_err(|error| match (error, not_served) {
                    (NoTypes::Absent, Some(why)) => of_types(NoTypes::NotServed(why)),
                    (error, _) => of_types(error),
                })?;
                own.close();
                (read, own)
            }
        };
        let answer = known.answer(query).map_err(|error| error.to_string());
        let base = elf.address(offset);
        self.insert(key, Index::Types(known, elf));
        Ok((answer?, base))
    }

    /// The debug file of a file that has no debug information itself, and the file that it shares
    /// some with; and why the servers that the user has named have none.
    fn with_debug_information(
        &mut self,
        file: &FileRef,
        root: Option<&Root>,
        own: &Elf,
    ) -> (Option<Elf>, Option<Elf>, Option<String>) {
        let has_compact = types::has_compact(own);
        let is_bare = own.section_size(types::INFO) == 0;
        let mut not_served = None;
        let installed =
            root.filter(|_| is_bare).and_then(|root| debug::find(root, &file.path, file.inode, own));
        let mut debug = installed.filter(|debug| debug.section_size(types::INFO) > 0 || !has_compact);
        if is_bare
            && !has_compact
            && debug.is_none()
            && let Some(servers) = self.servers.current()
        {
            match servers.find(&own.build_id().unwrap_or_default()) {
                Ok(found) => debug = Some(found),
                Err(why) => not_served = Some(why),
            }
        }
        let of = debug.as_ref().unwrap_or(own);
        let mut supplement = root.and_then(|root| debug::find_supplement(root, &file.path, of));
        if supplement.is_none()
            && let Some(servers) = self.servers.current()
            && let Some((_, id)) = of.supplement_link()
        {
            supplement = servers.find(&id).ok();
        }
        (debug, supplement, not_served)
    }

    /// The functions and source lines at offsets of a file: none of a file without debug
    /// information.
    pub(super) fn lines(
        &mut self,
        file: &FileRef,
        handle: Option<Handle>,
        root: Option<Root>,
        raw: bool,
        offsets: &[u64],
    ) -> Result<Vec<Vec<SourceFrame>>, Failure> {
        let key = Key::Lines(file.number);
        let (mut known, elf) = match self.take(key) {
            Some(Index::Lines(lines, elf)) => (lines, elf),
            _ => {
                let mut own = self.opened(|| open(file, handle.as_ref(), root.as_ref()))?;
                let (debug, supplement, _) = self.with_debug_information(file, root.as_ref(), &own);
                let elf = debug.as_ref().unwrap_or(&own);
                let size = lines::size(elf).saturating_add(supplement.as_ref().map_or(0, lines::size));
                self.make_space(if may_be_split(elf) { self.most } else { size.saturating_mul(3) });
                let left = Cell::new(self.most);
                let mut files = Finder { root: root.as_ref(), path: &file.path, left: &left };
                let read = match size {
                    0 => None,
                    _ => Some(
                        lines::read(elf, supplement.as_ref(), &mut files, (&left, self.most))
                            .map_err(of_types)?,
                    ),
                };
                own.close();
                (read.map(Box::new), own)
            }
        };
        let frames = |lines: &mut Box<Lines>, at| lines::frames(lines, at, raw);
        let at = |offset: &u64| known.as_mut().zip(elf.address(*offset)).map(|(lines, at)| frames(lines, at));
        let found = offsets.iter().map(at).map(Option::unwrap_or_default).collect();
        self.insert(key, Index::Lines(known, elf));
        Ok(found)
    }

    /// The table by which stacks are walked through a file, or the vdso.
    pub(super) fn frames(
        &mut self,
        file: Option<&FileRef>,
        handle: Option<Handle>,
        root: Option<Root>,
    ) -> Result<Option<FrameTable>, Failure> {
        let elf = match file {
            Some(file) => self.opened(|| open(file, handle.as_ref(), root.as_ref()))?,
            None => Elf::open(Rc::new(own_vdso().ok_or("there is none")?)).map_err(of_elf)?,
        };
        // Its memory is needed once: indexes are built again.
        self.make_space(self.most);
        Ok(frames::table(&elf, self.most))
    }

    /// The same of an image that was read from the memory of a process.
    pub(super) fn image_frames(&mut self, image: Vec<u8>) -> Result<Option<FrameTable>, Failure> {
        let elf = Elf::open(Rc::new(image)).map_err(of_elf)?;
        Ok(frames::table(&elf, self.most))
    }

    /// The probes that a file describes, with the functions that contain them.
    pub(super) fn sites(
        &mut self,
        file: &FileRef,
        handle: Option<Handle>,
        root: Option<Root>,
    ) -> Result<DescribedProbes, Failure> {
        let elf = self.opened(|| open(file, handle.as_ref(), root.as_ref()))?;
        // Most files describe none, and their symbols are not read.
        if !elf.is_native() {
            return Ok(DescribedProbes::default());
        }
        let mut sites = usdt::sites(&elf, self.most).map_err(of_elf)?;
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        if offsets.is_empty() {
            return Ok(DescribedProbes::default());
        }
        // Without definitions, arguments have the types that the sites give.
        let providers = usdt::definitions(&elf).unwrap_or_default();
        // A file whose symbols cannot be read has its probes all the same.
        let found = self.symbols(file, handle, root, true, &offsets).unwrap_or_default();
        for (site, found) in sites.iter_mut().zip(found) {
            if let PlaceName::Symbol(into, raw) = found {
                site.function = Some((demangle::names(in_source(raw)).shown().to_owned(), into));
            }
        }
        Ok(DescribedProbes { sites, providers })
    }

    /// The symbols at offsets of the vdso: see [`Request::Vdso`](crate::wire::Request::Vdso).
    pub(super) fn vdso(
        &mut self,
        raw: bool,
        image: Vec<u8>,
        offsets: &[u64],
    ) -> Result<Vec<PlaceName>, Failure> {
        let read = |indexes: &mut Self, image: Vec<u8>| -> Result<FileIndex, Failure> {
            let elf = Elf::open(Rc::new(image)).map_err(of_elf)?;
            Ok(FileIndex { own: indexes.table(&elf)?, elf, debug: Debug::None })
        };
        let find = |index: &FileIndex| -> Vec<PlaceName> {
            let addrs: Vec<Option<u64>> = offsets.iter().map(|o| index.elf.address(*o)).collect();
            let found = addrs.iter().map(|addr| index.own.find((*addr)?)).collect();
            shown(found, &addrs, raw)
        };
        if !image.is_empty() {
            return Ok(find(&read(self, image)?));
        }
        let index = match self.take(Key::Vdso) {
            Some(Index::File(index)) => index,
            _ => read(self, own_vdso().ok_or("there is none")?)?,
        };
        let found = find(&index);
        self.insert(Key::Vdso, Index::File(index));
        Ok(found)
    }

    /// The symbols of JIT code at these addresses, and the process's perf map if it was located
    /// again.
    pub(super) fn jit_symbols(
        &mut self,
        pid: u32,
        start: u64,
        held: Option<Handle>,
        addrs: &[u64],
    ) -> (Vec<PlaceName>, Option<(u32, Handle)>) {
        let key = Key::Process(pid, start);
        let mut map = match self.take(key) {
            Some(Index::PerfMap(map)) => map,
            _ => PerfMap::default(),
        };
        let all = |map: &PerfMap| addrs.iter().map(|a| map.find(*a)).collect::<Vec<_>>();
        let mut found = all(&map);
        let mut fresh = None;
        if found.iter().any(Option::is_none) {
            // While the process runs, the map is located by path again, because it may have been
            // replaced.
            fresh = super::observe::begun_at(pid, start).and_then(|p| perfmap::locate(&p, start));
            if let Some(handle) = fresh.as_ref().map(|(_, handle)| handle).or(held.as_ref())
                && let Some(needed) = map.needs(handle)
            {
                self.make_space(needed);
                if needed <= self.most && map.read(handle).is_ok() {
                    found = all(&map);
                }
            }
        }
        self.insert(key, Index::PerfMap(map));
        (found.into_iter().map(PlaceName::from).collect(), fresh)
    }
}

/// True if the debug information of a file may be in files of their own, whose sizes are not known
/// before.
fn may_be_split(elf: &Elf) -> bool {
    elf.section_size(b".debug_addr") > 0
}

/// True if a system call failed for want of descriptors or memory.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// A failure that another try may not have.
pub(super) fn temporary(why: &str) -> Failure {
    Failure { is_temporary: true, ..why.into() }
}

fn of_io(error: &io::Error) -> Failure {
    Failure { is_temporary: is_temporary(error), ..error.to_string().into() }
}

fn of_types(error: NoTypes) -> Failure {
    match error {
        NoTypes::Elf(ElfError::Io(error)) => of_io(&error),
        other => other.to_string().into(),
    }
}

fn of_elf(error: ElfError) -> Failure {
    match &error {
        ElfError::Io(e) => of_io(e),
        other => other.to_string().into(),
    }
}

/// Demangles the names unless mangled ones are requested. What has none is at one of these
/// addresses.
fn shown(found: Vec<Lookup>, addrs: &[Option<u64>], raw: bool) -> Vec<PlaceName> {
    let shown = |(found, addr): (Lookup, &Option<u64>)| match found {
        Some((delta, name)) => PlaceName::Symbol(delta, if raw { name } else { demangled(name) }),
        None => PlaceName::Unnamed(*addr),
    };
    found.into_iter().zip(addrs).map(shown).collect()
}

/// Opens a file by its handle, otherwise by its path if that still names the same file: one with
/// the same inode or the same build id. A build id that is known must be the file's in any case,
/// because the contents may have been replaced.
fn open(file: &FileRef, handle: Option<&Handle>, root: Option<&Root>) -> Result<Elf, Failure> {
    let by_path = || -> Result<Handle, Failure> {
        let gone = "it cannot be found any more";
        let find = |root: &Root| {
            root.find(&file.path).map_err(|e| if is_temporary(&e) { of_io(&e) } else { gone.into() })
        };
        // A process that another user's is, or that has ended, shows no root.
        let hidden = "the root of its process cannot be seen: it has ended, or CAP_SYS_PTRACE is missing";
        let handle = find(root.ok_or(hidden)?)?;
        let is_it = file.inode == 0 || handle.stat().is_ok_and(|stat| stat.inode == file.inode);
        if is_it { Ok(handle) } else { Err(gone.into()) }
    };
    let found;
    let handle = match handle {
        Some(handle) => handle,
        None => {
            found = by_path()?;
            &found
        }
    };
    let contents = handle.open(&debug::RULES).map_err(|e| match e {
        OpenError::Io(e) => of_io(&e),
        other => other.to_string().into(),
    })?;
    let elf = Elf::open(Rc::new(contents)).map_err(of_elf)?;
    match file.build_id.is_empty() || elf.build_id().is_some_and(|id| id == file.build_id) {
        true => Ok(elf),
        false => Err("its path names another file now".into()),
    }
}

/// The image of the reader's own vdso, which is the same in all 64-bit processes.
fn own_vdso() -> Option<Vec<u8>> {
    let map = maps::parse(&std::fs::read("/proc/self/maps").ok()?);
    let vdso = map.mappings.iter().find(|m| m.backing == Backing::Vdso)?;
    let mut image = vec![0; usize::try_from(vdso.end - vdso.start).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, vdso.start).ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_index_is_dropped_when_memory_is_short() {
        let mut indexes = Indexes::new(100);
        let of = |bytes: usize| Index::PerfMap(PerfMap::of_size(bytes));
        for (n, bytes) in [(1, 40), (2, 40)] {
            indexes.insert(Key::File(n), of(bytes));
        }
        let first = indexes.take(Key::File(1)).unwrap();
        indexes.insert(Key::File(1), first);
        indexes.make_space(20);
        assert_eq!(indexes.all.len(), 2);
        indexes.make_space(30);
        assert_eq!(indexes.all.keys().collect::<Vec<_>>(), [&Key::File(1)]);
        // More than the limit: all indexes are dropped, and the reading itself is rejected by its
        // own limit.
        indexes.make_space(1000);
        assert!(indexes.all.is_empty());
    }
}
