//! Resolved symbols of the files that processes have mapped ([`files::Files`]).

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diagnostics::control;
use files::open::RootKey;
use files::real::RealInode;
use files::{File, FileId, Files};
use proc::maps::MappedFile;
use proc::watcher;

use crate::client::{Reader, RequestError};
use crate::sources::Sources;
use crate::wire::{FileRef, MAX_NUMBERS, PlaceName, Request, Response};

mod lines;

/// The time for which an object is not queried again after a failure.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Files whose symbols are read ahead in one call.
const READ_AHEAD: usize = 4;

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The symbol's name, and the offset in the symbol.
    Symbol(Arc<str>, u64),
    /// No symbol contains the address. Where it is in the file, as the file's headers have it.
    Unnamed(Option<u64>),
}

impl From<PlaceName> for Lookup {
    fn from(found: PlaceName) -> Lookup {
        match found {
            PlaceName::Symbol(delta, name) => Lookup::Symbol(name.into(), delta),
            PlaceName::Unnamed(address) => Lookup::Unnamed(address),
        }
    }
}

/// What is known of a file's symbols.
#[derive(Default)]
struct Object {
    /// Lookup results by offset in the file.
    known: HashMap<u64, Lookup>,
    /// Names by offset of the symbol's start. Most addresses share a symbol.
    names: HashMap<u64, Arc<str>>,
    /// The path, escaped for output.
    path: Option<Arc<str>>,
    failed_at: Option<Instant>,
    sources: Sources,
}

/// All objects.
#[derive(Default)]
pub(crate) struct Objects {
    files: Files,
    objects: HashMap<FileId, Object>,
    raw_names: bool,
    /// Symbols are no longer read ahead.
    no_read_ahead: bool,
    /// Bytes of the stored names.
    bytes: usize,
    /// Lookup results by offset from the start of the vdso, and the hash of an image.
    vdso: HashMap<(u64, Option<u64>), Lookup>,
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
        for object in self.objects.values_mut() {
            object.known.clear();
            object.names.clear();
            object.sources = Sources::default();
        }
    }

    /// True when `more` objects would exceed the limit.
    pub(crate) fn is_full(&self, more: usize) -> bool {
        self.files.is_full(more)
    }

    /// Drops all objects. Their ids become invalid.
    pub(crate) fn forget_all(&mut self) {
        self.forget_names();
        self.objects.clear();
        self.files.forget_all();
    }

    /// Stores the descriptor of a root.
    pub(crate) fn hold_root(&mut self, key: RootKey, fd: OwnedFd) {
        self.files.hold_root(key, fd);
    }

    /// The object of a mapped file. The reader sends a handle with the file's first occurrence.
    pub(crate) fn note(&mut self, file: &MappedFile, root: RootKey, handle: Option<OwnedFd>) -> FileId {
        self.files.note(file, root, handle)
    }

    /// As [`Objects::note`], for a file that is known below overlays.
    pub(crate) fn note_real(
        &mut self,
        file: &MappedFile,
        root: RootKey,
        handle: Option<OwnedFd>,
        real: RealInode,
    ) -> FileId {
        self.files.note_real(file, root, handle, real)
    }

    /// The object of a file that the watcher reported.
    pub(crate) fn note_watched(&mut self, file: &watcher::File) -> FileId {
        self.files.note_watched(file)
    }

    /// The table of files.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// The table of files.
    pub(crate) fn files_mut(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Closes what no running process uses: handles of files, and roots. The reader first reads the
    /// symbols of a file that cannot be found by its path again, at most [`READ_AHEAD`] in a call.
    pub(crate) fn close_unused(
        &mut self,
        mapped: &HashSet<FileId>,
        namespaces: &HashSet<u64>,
        now: Instant,
        reader: &mut Reader,
    ) {
        let mut left = READ_AHEAD;
        let (mut closed, mut without_path) = (Vec::new(), Vec::new());
        for id in self.files.due(mapped, now) {
            if self.files.has_path(id) {
                closed.push(self.files.unique_number(id));
            } else {
                if !self.no_read_ahead {
                    if left == 0 {
                        continue;
                    }
                    left -= 1;
                    self.read_ahead(id, reader);
                }
                without_path.push(self.files.unique_number(id));
            }
            self.files.close(id);
        }
        self.files.close_roots(mapped, namespaces, now);
        self.tell_closed(&closed, &without_path, reader);
    }

    /// As [`Objects::close_unused`], where nothing of a file is asked for any more that no process
    /// has mapped.
    pub(crate) fn close_unmapped(&mut self, mapped: &HashSet<FileId>, now: Instant, reader: &mut Reader) {
        let due = self.files.due(mapped, now);
        let closed: Vec<u64> = due.iter().map(|id| self.files.unique_number(*id)).collect();
        due.into_iter().for_each(|id| self.files.close(id));
        self.files.close_roots(mapped, &HashSet::new(), now);
        self.tell_closed(&closed, &[], reader);
    }

    /// Tells the readers which files are closed.
    fn tell_closed(&mut self, closed: &[u64], without_path: &[u64], reader: &mut Reader) {
        if self.files.take_closed() {
            reader.forget(closed, without_path);
        }
    }

    /// Makes the reader read a file's symbols. What fails is not reported: nobody has asked for
    /// them. Whoever has a file that takes too long could take all the time that the session has
    /// for symbols, so it is the last one that is read ahead.
    fn read_ahead(&mut self, id: FileId, reader: &mut Reader) {
        let Some(mapped) = self.files.get(id) else { return };
        let object = self.objects.entry(id).or_default();
        if object.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            return;
        }
        let (request, fds) = request(&self.files, id, mapped, self.raw_names, Vec::new());
        if reader.query(&request, &fds).is_err_and(RequestError::excludes_object) {
            object.failed_at = Some(Instant::now());
            self.no_read_ahead = true;
        }
    }

    /// Files whose symbols could not be read are tried again now.
    #[cfg(test)]
    pub(crate) fn retry_now(&mut self) {
        self.objects.values_mut().for_each(|object| object.failed_at = None);
    }

    /// Base name of an object.
    pub(crate) fn name(&self, id: FileId) -> Option<Arc<str>> {
        self.files.get(id).map(|file| file.name.clone())
    }

    /// The path of an object, escaped for output.
    pub(crate) fn path(&mut self, id: FileId) -> Option<Arc<str>> {
        let file = self.files.get(id).filter(|file| !file.path.is_empty())?;
        let object = self.objects.entry(id).or_default();
        Some(object.path.get_or_insert_with(|| control::name(&file.path).into()).clone())
    }

    /// The result for an offset of a file, if it was resolved before.
    pub(crate) fn known(&self, id: FileId, offset: u64) -> Option<&Lookup> {
        self.objects.get(&id)?.known.get(&offset)
    }

    /// Requests symbols at offsets of one file. Afterwards [`Objects::known`] has the results of
    /// the requests that succeeded.
    pub(crate) fn resolve(&mut self, id: FileId, offsets: &[u64], reader: &mut Reader) {
        let most = reader.limits().memory as usize / 4;
        if self.bytes > most {
            self.forget_names();
        }
        self.files.touch(id);
        let raw = self.raw_names;
        let Some(mapped) = self.files.get(id) else { return };
        let object = self.objects.entry(id).or_default();
        let mut wanted: Vec<u64> =
            offsets.iter().copied().filter(|o| !object.known.contains_key(o)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if mapped.inode == 0 && mapped.build_id.is_none() {
            object.known.extend(wanted.into_iter().map(|offset| (offset, Lookup::Unnamed(None))));
            return;
        }
        if object.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            return;
        }
        for part in wanted.chunks(MAX_NUMBERS) {
            if self.bytes > most {
                // The remaining offsets are resolved when they are printed.
                return;
            }
            let (request, fds) = request(&self.files, id, mapped, raw, part.to_vec());
            match reader.query(&request, &fds) {
                Ok((_, Some(failure))) if failure.is_temporary => {
                    let path = control::name(&mapped.path).into_owned();
                    reader.report_once("temporary", || {
                        let why = &failure.why;
                        format!("reading the symbols of {path} failed: {why}; for now its addresses are shown as numbers")
                    });
                    object.failed_at = Some(Instant::now());
                    return;
                }
                Ok((responses, _)) => {
                    let found = symbols(responses);
                    let all = found.into_iter().chain(std::iter::repeat(PlaceName::Unnamed(None)));
                    for (&offset, found) in part.iter().zip(all) {
                        self.bytes += 64;
                        let found = match found {
                            PlaceName::Symbol(delta, name) => {
                                let start = offset.wrapping_sub(delta);
                                let bytes = &mut self.bytes;
                                let name = object.names.entry(start).or_insert_with(|| {
                                    *bytes += 64 + name.len();
                                    name.into()
                                });
                                Lookup::Symbol(name.clone(), delta)
                            }
                            unnamed @ PlaceName::Unnamed(_) => unnamed.into(),
                        };
                        object.known.insert(offset, found);
                    }
                }
                Err(error) => {
                    let path = control::name(&mapped.path).into_owned();
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
    /// uses its own. Of others it is given the image, and what distinguishes it.
    pub(crate) fn vdso(&mut self, offset: u64, image: Option<(u64, &[u8])>, reader: &mut Reader) -> Lookup {
        let key = (offset, image.map(|(hash, _)| hash));
        if let Some(known) = self.vdso.get(&key) {
            return known.clone();
        }
        let image = image.map_or(Vec::new(), |(_, image)| image.to_vec());
        let request = Request::Vdso { raw: self.raw_names, image, offsets: vec![offset] };
        let Ok((responses, _)) = reader.query(&request, &[]) else { return Lookup::Unnamed(None) };
        let found = symbols(responses).into_iter().next().map_or(Lookup::Unnamed(None), Lookup::from);
        // The image has a few pages, so this limit only guards against wrong offsets.
        if self.vdso.len() < 1 << 16 {
            self.vdso.insert(key, found.clone());
        }
        found
    }
}

/// The request for symbols of a file, and the descriptors that go with it.
fn request<'a>(
    files: &'a Files,
    id: FileId,
    mapped: &'a File,
    raw: bool,
    offsets: Vec<u64>,
) -> (Request, Vec<BorrowedFd<'a>>) {
    let (file, fds) = file_ref(files, id, mapped);
    (Request::Symbols { file, raw, offsets }, fds)
}

/// What the reader opens a file by, and the descriptors that go with it.
pub(crate) fn file_ref<'a>(files: &'a Files, id: FileId, mapped: &'a File) -> (FileRef, Vec<BorrowedFd<'a>>) {
    let root = files.root(mapped);
    let file = FileRef {
        number: files.unique_number(id),
        inode: mapped.inode,
        build_id: mapped.build_id.map(|id| id.as_bytes().to_vec()).unwrap_or_default(),
        path: mapped.path.clone(),
        handle: mapped.handle().is_some(),
        root: root.is_some(),
    };
    let fds = mapped.handle().into_iter().chain(root).map(AsFd::as_fd).collect();
    (file, fds)
}

/// The symbols of a response.
pub(crate) fn symbols(responses: Vec<(Response, Option<OwnedFd>)>) -> Vec<PlaceName> {
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
        RequestError::Timeout | RequestError::Working => reader.report_once("timeout", || {
            let taken = limits.exceeded(error);
            format!("reading {what} takes {taken}: its addresses are shown as numbers")
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
