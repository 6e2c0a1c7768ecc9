//! Files that processes have mapped, and the symbols in them that are known.
//!
//! A file is known by device and inode, not by path: the path may by now name another file, or lie in a mount
//! namespace that is gone with its process. So the session holds a handle of each file (`O_PATH`: it neither opens the
//! file nor, when it is closed, tells a file server), which outlives process, namespace and unlink, and so does the root of the process in
//! which debug files are looked for. Handles are limited: beyond [`MAX_HANDLES`] the file that was not asked for longest is
//! known by its path alone.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diagnostics::control;

use crate::client::{Reader, Trouble};
use crate::maps::MappedFile;
use crate::open::RootKey;
use crate::wire::{self, Answer, FileRef, MAX_NUMBERS, Question};

/// Files held; a process has 10 to 200, most of them shared.
const MAX_HANDLES: usize = 512;

/// Roots held; processes outside of containers share one.
const MAX_ROOTS: usize = 64;

/// Files known. When there are more, all are forgotten.
pub(crate) const MAX_OBJECTS: usize = 1 << 15;

/// The time for which an object that delayed a reader is not read again.
pub(crate) const BARRED: Duration = Duration::from_secs(60);

/// An object by number.
pub(crate) type ObjectId = usize;

/// Symbol and bytes from its start.
pub(crate) type Found = Option<(Arc<str>, u64)>;

struct Object {
    /// Base name, as printed.
    name: Arc<str>,
    path: Vec<u8>,
    inode: u64,
    handle: Option<OwnedFd>,
    root: RootKey,
    /// Symbols by offset in the file.
    known: HashMap<u64, Found>,
    /// Names by offset of the symbol's start: most addresses share one.
    names: HashMap<u64, Arc<str>>,
    /// The number of the last question about it.
    used: u64,
    barred: Option<Instant>,
}

/// All files seen.
#[derive(Default)]
pub(crate) struct Objects {
    objects: Vec<Object>,
    by_file: HashMap<((u32, u32), u64), ObjectId>,
    by_path: HashMap<Vec<u8>, ObjectId>,
    roots: HashMap<RootKey, OwnedFd>,
    handles: usize,
    clock: u64,
    /// Counts the times that everything was forgotten: numbers of files stay unique.
    era: u64,
    raw_names: bool,
    /// Bytes of names that are known.
    bytes: usize,
    /// By offset from the start of the vdso.
    vdso: HashMap<u64, Found>,
}

impl Objects {
    /// Names as the linker has them, instead of demangled ones.
    pub(crate) fn set_raw_names(&mut self, raw: bool) {
        self.raw_names = raw;
        self.forget_names();
    }

    fn forget_names(&mut self) {
        self.vdso.clear();
        self.bytes = 0;
        for object in &mut self.objects {
            object.known.clear();
            object.names.clear();
        }
    }

    /// True when there are too many to add a process's files.
    pub(crate) fn is_full(&self, more: usize) -> bool {
        self.objects.len() + more > MAX_OBJECTS
    }

    /// Forgets all files; their ids mean nothing any more.
    pub(crate) fn forget_all(&mut self) {
        *self = Objects { raw_names: self.raw_names, era: self.era + 1, ..Objects::default() };
    }

    /// Holds a root.
    pub(crate) fn hold_root(&mut self, key: RootKey, fd: OwnedFd) {
        if self.roots.len() < MAX_ROOTS {
            self.roots.insert(key, fd);
        }
    }

    /// The object behind a file of a process's map; with a handle where it is told for the first time.
    pub(crate) fn note(&mut self, file: &MappedFile, root: RootKey, handle: Option<OwnedFd>) -> ObjectId {
        let id = if file.inode == 0 {
            self.by_path.get(&file.path).copied()
        } else {
            self.by_file.get(&(file.dev, file.inode)).copied()
        };
        // An inode that nobody holds may by now be another file's.
        let same = |id: &ObjectId| {
            let object = &self.objects[*id];
            object.handle.is_some() || object.path == file.path
        };
        let id = id.filter(same).unwrap_or_else(|| self.push(file, root));
        if handle.is_some() && self.objects[id].handle.is_none() {
            if self.handles >= MAX_HANDLES {
                self.drop_handle();
            }
            self.objects[id].handle = handle;
            self.handles += 1;
        }
        id
    }

    fn push(&mut self, file: &MappedFile, root: RootKey) -> ObjectId {
        let id = self.objects.len();
        let base = file.path.rsplit(|b| *b == b'/').next().filter(|n| !n.is_empty()).unwrap_or(&file.path);
        self.objects.push(Object {
            name: control::name(base).into(),
            path: file.path.clone(),
            inode: file.inode,
            handle: None,
            root,
            known: HashMap::new(),
            names: HashMap::new(),
            used: self.clock,
            barred: None,
        });
        if file.inode == 0 {
            self.by_path.insert(file.path.clone(), id);
        } else {
            self.by_file.insert((file.dev, file.inode), id);
        }
        id
    }

    fn drop_handle(&mut self) {
        let held = self.objects.iter_mut().filter(|o| o.handle.is_some());
        if let Some(oldest) = held.min_by_key(|o| o.used) {
            oldest.handle = None;
            self.handles -= 1;
        }
    }

    /// Base name of an object.
    pub(crate) fn name(&self, id: ObjectId) -> Option<Arc<str>> {
        self.objects.get(id).map(|o| o.name.clone())
    }

    /// The symbol at an offset of a file, if it was asked for before.
    pub(crate) fn known(&self, id: ObjectId, offset: u64) -> Option<&Found> {
        self.objects.get(id)?.known.get(&offset)
    }

    /// Asks for symbols at offsets of one file; afterwards [`Objects::known`] has those that could be asked for.
    pub(crate) fn resolve(&mut self, id: ObjectId, offsets: &[u64], reader: &mut Reader) {
        let most = reader.limits().memory as usize / 4;
        if self.bytes > most {
            self.forget_names();
        }
        self.clock += 1;
        let (clock, era, raw) = (self.clock, self.era, self.raw_names);
        let Some(object) = self.objects.get_mut(id) else { return };
        object.used = clock;
        let mut wanted: Vec<u64> =
            offsets.iter().copied().filter(|o| !object.known.contains_key(o)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if object.inode == 0 {
            object.known.extend(wanted.into_iter().map(|offset| (offset, None)));
            return;
        }
        if object.barred.is_some_and(|at| at.elapsed() < BARRED) {
            return;
        }
        let root = self.roots.get(&object.root).filter(|_| object.root != RootKey::default());
        for part in wanted.chunks(MAX_NUMBERS) {
            if self.bytes > most {
                // The others are asked for when they are shown.
                return;
            }
            let file = FileRef {
                number: era << 32 | id as u64,
                inode: object.inode,
                path: object.path.clone(),
                handle: object.handle.is_some(),
                root: root.is_some(),
            };
            let question = Question::Symbols { file, raw, offsets: part.to_vec() };
            let fds: Vec<_> = object.handle.iter().chain(root).map(AsFd::as_fd).collect();
            match reader.ask(&question, &fds) {
                Ok((answers, _)) => {
                    let found = symbols(answers);
                    let all = found.into_iter().chain(std::iter::repeat(None));
                    for (&offset, found) in part.iter().zip(all) {
                        self.bytes += 64;
                        let found = found.map(|(delta, name)| {
                            let start = offset.wrapping_sub(delta);
                            let bytes = &mut self.bytes;
                            let name = object.names.entry(start).or_insert_with(|| {
                                *bytes += 64 + name.len();
                                name.into()
                            });
                            (name.clone(), delta)
                        });
                        object.known.insert(offset, found);
                    }
                }
                Err(trouble) => {
                    let path = control::name(&object.path).into_owned();
                    blame(reader, trouble, &format!("the symbols of {path}"));
                    if trouble.is_its_own() {
                        object.barred = Some(Instant::now());
                    }
                    return;
                }
            }
        }
    }

    /// A symbol of the vdso. Every 64-bit process has the same one, so the reader's own is asked.
    pub(crate) fn vdso(&mut self, offset: u64, reader: &mut Reader) -> Found {
        if let Some(known) = self.vdso.get(&offset) {
            return known.clone();
        }
        let question = Question::Vdso { raw: self.raw_names, offsets: vec![offset] };
        let (answers, _) = reader.ask(&question, &[]).ok()?;
        let found = symbols(answers).into_iter().next().flatten().map(|(delta, name)| (name.into(), delta));
        // An image has a few pages.
        if self.vdso.len() < 1 << 16 {
            self.vdso.insert(offset, found.clone());
        }
        found
    }
}

/// The symbols in answers.
pub(crate) fn symbols(answers: Vec<(Answer, Option<OwnedFd>)>) -> Vec<wire::Found> {
    let list = |(answer, _)| match answer {
        Answer::Symbols(list) => list,
        _ => Vec::new(),
    };
    answers.into_iter().flat_map(list).collect()
}

/// Tells of a reader that did not answer, the first time.
pub(crate) fn blame(reader: &mut Reader, trouble: Trouble, what: &str) {
    let limits = reader.limits();
    match trouble {
        Trouble::Late => reader.tell("late", || {
            let ms = limits.time.as_millis();
            format!("reading {what} takes longer than {ms} ms (option symtimeout): its addresses are shown as numbers")
        }),
        Trouble::Ended => reader.tell("ended", || {
            let mb = limits.memory >> 20;
            format!("reading {what} failed, perhaps for want of memory (option symmem, {mb}m): its addresses are shown as numbers")
        }),
        Trouble::Interrupted => reader.tell("interrupted", || {
            format!("reading {what} was interrupted: its addresses are shown as numbers")
        }),
        Trouble::Unavailable => {}
    }
}
