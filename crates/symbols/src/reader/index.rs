//! The reader's cache of indexes: symbol tables of files, and perf maps of processes. Their total
//! memory is bounded. Before an index is built, the least recently used ones are dropped until
//! there is space. A dropped index is rebuilt at its next use.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use super::demangle::demangled;
use super::elf::{Elf, ElfError, Table};
use super::functions::{Listing, Output, Sources};
use super::perfmap::{self, PerfMap};
use super::{compressed, debug};
use crate::functions::{FileFunctions, FunctionQuery, SymbolSource};
use crate::wire::functions::Running;
use crate::wire::{Failure, FileRef, Lookup};
use files::open::{Handle, OpenError, ProcessDir, Root};
use proc::maps::{self, Backing};

/// The object of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A file, by the session's number.
    File(u64),
    /// What is compressed in a file.
    Compressed(u64),
    /// A process, by pid and start time.
    Process(u32, u64),
    Vdso,
}

enum Index {
    File(FileIndex),
    PerfMap(PerfMap),
    /// The ELF file in `.gnu_debugdata`, if there is one.
    Unpacked(Option<Rc<Elf>>),
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
}

impl Indexes {
    pub(super) fn new(most: u64) -> Indexes {
        Indexes { all: HashMap::new(), clock: 0, most }
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
        }
    }

    /// Closes files that cannot be opened again. Their names are read into memory; an index whose names are
    /// too large for it is dropped.
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

    /// Calls a function that opens files. If it fails for want of descriptors, files are closed, and it is
    /// called again.
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
    ) -> Result<Vec<Lookup>, Failure> {
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
        Ok(shown(found, raw))
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
        let sources = Sources { own: &elf, name, other };
        self.make_space(Listing::memory(&sources));
        let listing = match Listing::read(&sources, self.most) {
            Ok(listing) => listing,
            Err(why) => return Ok(Err(of_elf(why))),
        };
        let answer = listing.answer(query, running, out)?;
        Ok(answer.map(|()| listing.file().clone()).map_err(Failure::from))
    }

    /// The symbols at offsets of the vdso.
    pub(super) fn vdso(&mut self, raw: bool, offsets: &[u64]) -> Result<Vec<Lookup>, Failure> {
        let index = match self.take(Key::Vdso) {
            Some(Index::File(index)) => index,
            _ => {
                let image = own_vdso().ok_or("there is none")?;
                let elf = Elf::open(Rc::new(image)).map_err(of_elf)?;
                FileIndex { own: self.table(&elf)?, elf, debug: Debug::None }
            }
        };
        let found = offsets.iter().map(|o| index.own.find(index.elf.address(*o)?)).collect();
        self.insert(Key::Vdso, Index::File(index));
        Ok(shown(found, raw))
    }

    /// The symbols of JIT code at these addresses, and the process's perf map if it was located
    /// again.
    pub(super) fn jit_symbols(
        &mut self,
        pid: u32,
        start: u64,
        held: Option<Handle>,
        addrs: &[u64],
    ) -> (Vec<Lookup>, Option<(u32, Handle)>) {
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
            let process = ProcessDir::open(pid).ok();
            let process = process.filter(|p| super::observe::identity(p).is_some_and(|i| i.start == start));
            fresh = process.and_then(|p| perfmap::locate(&p, start));
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
        (found, fresh)
    }
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

fn of_elf(error: ElfError) -> Failure {
    match &error {
        ElfError::Io(e) => of_io(e),
        other => other.to_string().into(),
    }
}

/// Demangles the names unless mangled ones are requested.
fn shown(found: Vec<Lookup>, raw: bool) -> Vec<Lookup> {
    let shown = |(delta, name)| (delta, if raw { name } else { demangled(name) });
    found.into_iter().map(|f| f.map(shown)).collect()
}

/// Opens a file by its handle, otherwise by its path if that still names the same file: one with the
/// same inode or the same build id. A build id that is known must be the file's in any case, because
/// the contents may have been replaced.
fn open(file: &FileRef, handle: Option<&Handle>, root: Option<&Root>) -> Result<Elf, Failure> {
    let by_path = || -> Result<Handle, Failure> {
        let gone = "it cannot be found any more";
        let find = |root: &Root| {
            root.find(&file.path).map_err(|e| if is_temporary(&e) { of_io(&e) } else { gone.into() })
        };
        let handle = find(root.ok_or(gone)?)?;
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
