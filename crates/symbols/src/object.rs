//! Files that processes have mapped, and the symbols in them.
//!
//! A file is known by device and inode, not by path: the path may by now name another file, or lie in a mount
//! namespace that is gone with its process. So the file is opened when it is first seen, through the process
//! (`/proc/PID/map_files`, else its root), and symbolized later through our own descriptor, which outlives process,
//! namespace and unlink. A file is opened once, however many processes map it. Descriptors are limited: beyond
//! [`MAX_OPEN`] files only their path is kept.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blazesym::Pid;
use blazesym::symbolize::source::{Elf, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use crate::maps::{Backing, Mapping};

/// Files held open; a process has 10 to 200, most of them shared.
const MAX_OPEN: usize = 512;

/// An object by number.
pub(crate) type ObjectId = usize;

/// Symbol and bytes from its start.
pub(crate) type Found = Option<(Arc<str>, u64)>;

struct Object {
    /// Base name, as printed.
    name: Arc<str>,
    path: PathBuf,
    file: Option<File>,
    inode: u64,
    /// By offset in the file.
    known: HashMap<u64, Found>,
}

/// All objects seen, and the symbolizer, which is made with the first question.
#[derive(Default)]
pub(crate) struct Objects {
    objects: Vec<Object>,
    by_file: HashMap<(String, u64), ObjectId>,
    by_path: HashMap<String, ObjectId>,
    open: usize,
    symbolizer: Option<Symbolizer>,
    raw_names: bool,
    /// By offset from the start of the vdso.
    vdso: HashMap<u64, Found>,
}

impl Objects {
    /// Names as the linker has them, instead of demangled ones.
    pub(crate) fn set_raw_names(&mut self, raw: bool) {
        self.raw_names = raw;
        self.symbolizer = None;
        self.vdso.clear();
        self.objects.iter_mut().for_each(|o| o.known.clear());
    }

    /// The object behind a mapping of a process that is alive; opens it when it is new.
    pub(crate) fn note(&mut self, pid: u32, mapping: &Mapping) -> Option<ObjectId> {
        let Backing::File { dev, inode, path } = &mapping.backing else { return None };
        if *inode == 0 {
            return Some(self.by_path(path));
        }
        if let Some(&id) = self.by_file.get(&(dev.clone(), *inode)) {
            return Some(id);
        }
        let file = if self.open < MAX_OPEN { open(pid, mapping, path) } else { None };
        self.open += usize::from(file.is_some());
        let id = self.push(path, file, *inode);
        self.by_file.insert((dev.clone(), *inode), id);
        Some(id)
    }

    fn by_path(&mut self, path: &str) -> ObjectId {
        if let Some(&id) = self.by_path.get(path) {
            return id;
        }
        let id = self.push(path, None, 0);
        self.by_path.insert(path.into(), id);
        id
    }

    fn push(&mut self, path: &str, file: Option<File>, inode: u64) -> ObjectId {
        let name = path.rsplit('/').next().filter(|n| !n.is_empty()).unwrap_or(path);
        let known = HashMap::new();
        self.objects.push(Object { name: name.into(), path: path.into(), file, inode, known });
        self.objects.len() - 1
    }

    /// Base name of an object.
    pub(crate) fn name(&self, id: ObjectId) -> Option<Arc<str>> {
        self.objects.get(id).map(|o| o.name.clone())
    }

    /// The symbol at an offset of a file, if it was asked for before.
    pub(crate) fn known(&self, id: ObjectId, offset: u64) -> Option<&Found> {
        self.objects.get(id)?.known.get(&offset)
    }

    /// Symbolizes offsets of one file; afterwards [`Objects::known`] has them all.
    pub(crate) fn resolve(&mut self, id: ObjectId, offsets: &[u64]) {
        let symbolizer = self.symbolizer.get_or_insert_with(|| make(self.raw_names));
        let Some(object) = self.objects.get_mut(id) else { return };
        let mut wanted: Vec<u64> =
            offsets.iter().copied().filter(|o| !object.known.contains_key(o)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let path = object.readable_path();
        // First the file's own symbol tables, which cost little; split debug files only for what is not there.
        for debug_syms in [false, true] {
            if wanted.is_empty() {
                break;
            }
            let mut elf = Elf::new(&path);
            elf.debug_syms = debug_syms;
            let Ok(found) = symbolizer.symbolize(&Source::Elf(elf), Input::FileOffset(&wanted)) else {
                continue;
            };
            for (offset, symbol) in wanted.iter().zip(&found) {
                if let Some(found) = of(symbol) {
                    object.known.insert(*offset, Some(found));
                }
            }
            wanted.retain(|o| !object.known.contains_key(o));
        }
        for offset in wanted {
            object.known.insert(offset, None);
        }
    }

    /// A symbol of the vdso. Every process of our kind has the same one, so our own is asked.
    pub(crate) fn vdso(&mut self, offset: u64) -> Found {
        if let Some(known) = self.vdso.get(&offset) {
            return known.clone();
        }
        let symbolizer = self.symbolizer.get_or_insert_with(|| make(self.raw_names));
        let found = crate::own_vdso_base().and_then(|base| {
            let source = Source::Process(Process::new(Pid::Slf));
            let symbol =
                symbolizer.symbolize_single(&source, Input::AbsAddr(base.checked_add(offset)?)).ok()?;
            of(&symbol)
        });
        self.vdso.insert(offset, found.clone());
        found
    }
}

impl Object {
    /// The path where it still names this file (split debug files are found beside it), else our descriptor.
    fn readable_path(&self) -> PathBuf {
        let Some(file) = &self.file else { return self.path.clone() };
        let same = match (std::fs::metadata(&self.path), file.metadata()) {
            (Ok(now), Ok(then)) => {
                (now.dev(), now.ino()) == (then.dev(), then.ino()) && now.ino() == self.inode
            }
            _ => false,
        };
        if same { self.path.clone() } else { format!("/proc/self/fd/{}", file.as_raw_fd()).into() }
    }
}

fn make(raw_names: bool) -> Symbolizer {
    // Lines and inlined functions would need DWARF, and D has no place for them.
    Symbolizer::builder()
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(!raw_names)
        .build()
}

fn of(symbol: &Symbolized<'_>) -> Found {
    let symbol = symbol.as_sym()?;
    Some((Arc::from(&*symbol.name), symbol.offset as u64))
}

fn open(pid: u32, mapping: &Mapping, path: &str) -> Option<File> {
    let proc = Path::new("/proc").join(pid.to_string());
    let exact = proc.join(format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
    let rooted = proc.join("root").join(path.trim_start_matches('/'));
    [exact, rooted].into_iter().find_map(|p| {
        // Only regular files: opening a device or a pipe can have effects, or wait for ever.
        let file = std::fs::metadata(&p).ok().filter(|m| m.is_file()).and_then(|_| File::open(&p).ok())?;
        let same = p.starts_with(proc.join("map_files")) || matches_inode(&file, mapping);
        same.then_some(file)
    })
}

/// Whether a path still leads to the mapped file. (Device numbers differ on btrfs and overlayfs, inodes do not.)
fn matches_inode(file: &File, mapping: &Mapping) -> bool {
    let Backing::File { inode, .. } = &mapping.backing else { return false };
    file.metadata().is_ok_and(|m| m.ino() == *inode)
}
