//! Files that processes have mapped, and their resolved symbols.
//!
//! A file is identified by device and inode. Its path may now name another file, or be in a mount
//! namespace that no longer exists. The session therefore holds a handle of each file (`O_PATH`:
//! neither opening nor closing it reaches a file server). The handle outlives the process, its
//! namespace and the file's link. The session also holds the root of the process, in which debug
//! files are searched. At most [`MAX_HANDLES`] handles are held; the least recently used file falls
//! back to its path.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diagnostics::control;

use crate::client::{Reader, RequestError};
use crate::maps::MappedFile;
use crate::open::RootKey;
use crate::wire::{self, FileRef, MAX_NUMBERS, Request, Response};

/// Maximum number of file handles. A process maps 10 to 200 files, most of them shared.
const MAX_HANDLES: usize = 512;

/// Maximum number of roots. Processes outside of containers share one.
const MAX_ROOTS: usize = 64;

/// Maximum number of objects. When it is exceeded, all are dropped.
pub(crate) const MAX_OBJECTS: usize = 1 << 15;

/// The time for which an object is not queried again after a failure.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The number of an object.
pub(crate) type ObjectId = usize;

/// The result of a lookup: the symbol's name, and the offset in the symbol.
pub(crate) type Lookup = Option<(Arc<str>, u64)>;

struct Object {
    /// Base name, escaped for output.
    name: Arc<str>,
    path: Vec<u8>,
    inode: u64,
    handle: Option<OwnedFd>,
    root: RootKey,
    /// Lookup results by offset in the file.
    known: HashMap<u64, Lookup>,
    /// Names by offset of the symbol's start. Most addresses share a symbol.
    names: HashMap<u64, Arc<str>>,
    /// The number of the last request for the object.
    used: u64,
    failed_at: Option<Instant>,
}

/// All objects.
#[derive(Default)]
pub(crate) struct Objects {
    objects: Vec<Object>,
    by_file: HashMap<((u32, u32), u64), ObjectId>,
    by_path: HashMap<Vec<u8>, ObjectId>,
    roots: HashMap<RootKey, OwnedFd>,
    handles: usize,
    clock: u64,
    /// The number of times that all objects were dropped. It keeps the reader's file numbers
    /// unique.
    era: u64,
    raw_names: bool,
    /// Bytes of the stored names.
    bytes: usize,
    /// Lookup results by offset from the start of the vdso.
    vdso: HashMap<u64, Lookup>,
}

impl Objects {
    /// Chooses between mangled names and demangled ones.
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

    /// True when `more` objects would exceed the limit.
    pub(crate) fn is_full(&self, more: usize) -> bool {
        self.objects.len() + more > MAX_OBJECTS
    }

    /// Drops all objects. Their ids become invalid.
    pub(crate) fn forget_all(&mut self) {
        *self = Objects { raw_names: self.raw_names, era: self.era + 1, ..Objects::default() };
    }

    /// Stores the descriptor of a root.
    pub(crate) fn hold_root(&mut self, key: RootKey, fd: OwnedFd) {
        if self.roots.len() < MAX_ROOTS {
            self.roots.insert(key, fd);
        }
    }

    /// The object of a mapped file. The reader sends a handle with the file's first occurrence.
    pub(crate) fn note(&mut self, file: &MappedFile, root: RootKey, handle: Option<OwnedFd>) -> ObjectId {
        let id = if file.inode == 0 {
            self.by_path.get(&file.path).copied()
        } else {
            self.by_file.get(&(file.dev, file.inode)).copied()
        };
        // Without a handle the inode may have been reused by another file.
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
            failed_at: None,
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

    /// The result for an offset of a file, if it was resolved before.
    pub(crate) fn known(&self, id: ObjectId, offset: u64) -> Option<&Lookup> {
        self.objects.get(id)?.known.get(&offset)
    }

    /// Requests symbols at offsets of one file. Afterwards [`Objects::known`] has the results of
    /// the requests that succeeded.
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
        if object.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            return;
        }
        let root = self.roots.get(&object.root).filter(|_| object.root != RootKey::default());
        for part in wanted.chunks(MAX_NUMBERS) {
            if self.bytes > most {
                // The remaining offsets are resolved when they are printed.
                return;
            }
            let file = FileRef {
                number: era << 32 | id as u64,
                inode: object.inode,
                path: object.path.clone(),
                handle: object.handle.is_some(),
                root: root.is_some(),
            };
            let request = Request::Symbols { file, raw, offsets: part.to_vec() };
            let fds: Vec<_> = object.handle.iter().chain(root).map(AsFd::as_fd).collect();
            match reader.query(&request, &fds) {
                Ok((responses, _)) => {
                    let found = symbols(responses);
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
                Err(error) => {
                    let path = control::name(&object.path).into_owned();
                    report_failure(reader, error, &format!("the symbols of {path}"));
                    if error.excludes_object() {
                        object.failed_at = Some(Instant::now());
                    }
                    return;
                }
            }
        }
    }

    /// The symbol at an offset of the vdso. Every 64-bit process has the same vdso, so the reader
    /// uses its own.
    pub(crate) fn vdso(&mut self, offset: u64, reader: &mut Reader) -> Lookup {
        if let Some(known) = self.vdso.get(&offset) {
            return known.clone();
        }
        let request = Request::Vdso { raw: self.raw_names, offsets: vec![offset] };
        let (responses, _) = reader.query(&request, &[]).ok()?;
        let found = symbols(responses).into_iter().next().flatten().map(|(delta, name)| (name.into(), delta));
        // The image has a few pages, so this limit only guards against wrong offsets.
        if self.vdso.len() < 1 << 16 {
            self.vdso.insert(offset, found.clone());
        }
        found
    }
}

/// The symbols of a response.
pub(crate) fn symbols(responses: Vec<(Response, Option<OwnedFd>)>) -> Vec<wire::Lookup> {
    let list = |(response, _)| match response {
        Response::Symbols(list) => list,
        _ => Vec::new(),
    };
    responses.into_iter().flat_map(list).collect()
}

/// Reports a failed request, once per kind of failure.
pub(crate) fn report_failure(reader: &mut Reader, error: RequestError, what: &str) {
    let limits = reader.limits();
    match error {
        RequestError::Timeout => reader.report_once("timeout", || {
            let ms = limits.time.as_millis();
            format!("reading {what} takes longer than {ms} ms (option symtimeout): its addresses are shown as numbers")
        }),
        RequestError::Failed => reader.report_once("failed", || {
            let mb = limits.memory >> 20;
            format!("reading {what} failed, perhaps for want of memory (option symmem, {mb}m): its addresses are shown as numbers")
        }),
        RequestError::Interrupted => reader.report_once("interrupted", || {
            format!("reading {what} was interrupted: its addresses are shown as numbers")
        }),
        RequestError::Unavailable => {}
    }
}
