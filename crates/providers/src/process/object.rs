//! The files that a process runs: its modules, as descriptions name them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::sync::{Arc, Weak};

use files::FileId;
use files::open::Handle;
use files::real::{RealFiles, RealInode};
use probes::{FIELD_LIMITS, glob_matches};
use symbols::{MappedText, Processes};

use super::lists::Lists;
use crate::contract::method::{HeldFile, HeldProcess};

/// Another name of the program's own file.
const MAIN: &str = "a.out";

/// The kernel's prefix of the name of a file in memory.
const MEMFD: &str = "memfd:";

/// A file that a process runs code of.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// The process.
    pub(crate) pid: u32,
    /// The last part of its path, which is the module of its probes.
    pub(crate) name: Arc<str>,
    /// It is the program itself.
    pub(crate) is_main: bool,
    /// A part of the file that it has mapped.
    pub(crate) text: MappedText,
    /// A path that leads to the file as long as the process has it mapped there.
    pub(crate) path: OsString,
}

impl Object {
    /// True if the module of a description means this file.
    pub(crate) fn is_called(&self, module: &str) -> bool {
        (self.is_main && module == MAIN) || is_called(&self.name, module)
    }
}

/// True if a module names the file of this name, perhaps without its version: `libc.so.6` is
/// `libc.so` and `libc` too.
fn is_called(name: &str, module: &str) -> bool {
    const LIBRARY: &str = ".so";
    if glob_matches(module, name) {
        return true;
    }
    let Some(end) = name.find(LIBRARY) else { return false };
    let (short, version) = name.split_at(end);
    let version = version.strip_prefix(LIBRARY).unwrap_or_default();
    (version.is_empty() || version.starts_with('.'))
        && (glob_matches(module, short) || glob_matches(module, &format!("{short}{LIBRARY}")))
}

/// What a file is, as long as it is held: below overlays, because what is attached to a file of a
/// lower directory fires through every overlay of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    file: RealInode,
    /// Size and time of modification, because some file systems have several files with one inode
    /// on one device.
    size: u64,
    modified: (i64, u32),
}

/// What descriptions have matched, each held once.
#[derive(Default)]
pub(crate) struct Objects {
    processes: HashMap<u32, Arc<HeldProcess>>,
    files: HashMap<FileKey, Arc<HeldFile>>,
    /// Files of overlays, by what user space sees.
    seen: HashMap<FileKey, Weak<HeldFile>>,
    real: RealFiles,
    /// Why code of a file may unwind through frames, by the path to the held file.
    unwinds: HashMap<OsString, Option<String>>,
    /// The functions of files.
    pub(crate) lists: Lists,
}

impl Objects {
    /// A process.
    pub(crate) fn process(&mut self, pid: u32) -> io::Result<Arc<HeldProcess>> {
        if let Some(held) = self.processes.get(&pid).filter(|held| held.is_current()) {
            return Ok(held.clone());
        }
        let held = Arc::new(HeldProcess::open(pid)?);
        self.processes.insert(pid, held.clone());
        Ok(held)
    }

    /// Forgets the processes and the files that nobody else holds.
    pub(crate) fn release(&mut self) {
        self.processes.retain(|_, process| Arc::strong_count(process) > 1);
        let unwinds = &mut self.unwinds;
        self.files.retain(|_, file| {
            let is_used = Arc::strong_count(file) > 1;
            if !is_used {
                unwinds.remove(file.path());
            }
            is_used
        });
        self.seen.retain(|_, file| file.strong_count() > 0);
    }

    /// Why code of a file may unwind through frames, if that is known.
    pub(crate) fn unwinds(&self, file: &HeldFile) -> Option<Option<String>> {
        self.unwinds.get(file.path()).cloned()
    }

    /// See [`Objects::unwinds`]. Of a file that is not held it is not remembered: another may be at
    /// its path later.
    pub(crate) fn set_unwinds(&mut self, file: &HeldFile, why: Option<String>) {
        if file.is_held() {
            self.unwinds.insert(file.path().into(), why);
        }
    }

    /// The file of an object.
    pub(crate) fn file(&mut self, object: &Object, symbols: &Processes) -> Arc<HeldFile> {
        let file = symbols.mapped_file(object.text.file);
        let copied = file.and_then(|file| file.handle()?.try_clone().ok()).map(Handle::from_fd);
        let Some((stat, handle)) = copied.and_then(|handle| Some((handle.stat_cached().ok()?, handle)))
        else {
            return Arc::new(HeldFile::at(object.path.clone(), object.name.clone()));
        };
        let file = RealInode { dev: stat.dev, inode: stat.inode };
        let seen = FileKey { file, size: stat.size, modified: stat.modified };
        let is_in_memory = handle.is_in_memory();
        // The inode by which semaphores know it is what the file itself says, however it was found.
        let new = || Arc::new(HeldFile::with_inode(handle, object.name.clone(), Some(file)));
        // An overlay's device is an anonymous one. That of files in memory is too, and a process
        // may have thousands of them.
        if stat.dev.0 != 0 || is_in_memory {
            return self.files.entry(seen).or_insert_with(new).clone();
        }
        // A process that runs may have unmapped the file when the kernel is asked: it is still the
        // file that it was.
        if let Some(held) = self.seen.get(&seen).and_then(Weak::upgrade) {
            return held;
        }
        // Where the kernel does not tell the file below, the overlay's is one of its own.
        let all = self.real.of_process(object.pid).unwrap_or_default();
        let mapping = all.iter().find(|m| (m.start..m.end).contains(&object.text.start));
        let key = mapping.map_or(seen, |mapping| FileKey { file: mapping.file, ..seen });
        let held = self.files.entry(key).or_insert_with(new).clone();
        self.seen.insert(seen, Arc::downgrade(&held));
        held
    }
}

/// The files that a process runs, the program first. `path` gives the path of a file, and `exe` is
/// that of the program.
pub(crate) fn objects<'a>(
    pid: u32,
    mapped: &[MappedText],
    path: impl Fn(FileId) -> Option<&'a [u8]>,
    exe: &[u8],
) -> Vec<Object> {
    let exe = exe.strip_suffix(b" (deleted)").unwrap_or(exe);
    let thread = proc::thread_with_memory(pid);
    let mut all: Vec<Object> = Vec::new();
    let mut seen = HashSet::new();
    for text in mapped.iter().filter(|text| text.is_code && seen.insert(text.file)) {
        all.push(Object {
            pid,
            // A colon would end the field: `memfd:dtrace:app` is `dtrace_app`.
            name: cut(text.name.strip_prefix(MEMFD).unwrap_or(&text.name), FIELD_LIMITS[1])
                .replace(':', "_")
                .into(),
            is_main: path(text.file) == Some(exe),
            text: text.clone(),
            path: format!("/proc/{thread}/map_files/{:x}-{:x}", text.start, text.end).into(),
        });
    }
    all.sort_by_key(|object| !object.is_main);
    all
}

/// A path as a process with this root has it, like those of mapped files.
pub(crate) fn in_root<'a>(path: &'a [u8], root: &[u8]) -> &'a [u8] {
    path.strip_prefix(root).filter(|rest| root != b"/" && rest.starts_with(b"/")).unwrap_or(path)
}

/// A text that is shorter than a limit of bytes.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_with_and_without_its_version() {
        let names = ["prog", "libc.so.6", "libodd-1.so.2.3"];
        let called =
            |module: &str| names.iter().filter(|name| is_called(name, module)).copied().collect::<Vec<_>>();
        for name in ["libc", "libc.so", "libc.so.6", "libc*", "lib?"] {
            assert_eq!(called(name), ["libc.so.6"], "{name}");
        }
        assert_eq!(called("prog"), ["prog"]);
        assert_eq!(called("").len(), 3);
        assert_eq!(called("lib*").len(), 2);
        assert_eq!(called("libodd-1"), ["libodd-1.so.2.3"]);
        for name in ["lib", "libc.", "a.out", "vdso", "libc.so.7", "prog.so"] {
            assert!(called(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn the_program_of_a_process_in_a_root_of_its_own_has_the_path_there() {
        let seen = |path: &'static str, root: &str| in_root(path.as_bytes(), root.as_bytes());
        assert_eq!(seen("/jail/bin/x", "/jail"), b"/bin/x");
        for (path, root) in [("/jailed/x", "/jail"), ("/bin/x", "/"), ("/bin/x", "/jail"), ("/bin/x", "")] {
            assert_eq!(seen(path, root), path.as_bytes(), "{root}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!((cut("abc", 4), cut("abc", 3), cut("aé", 3)), ("abc", "ab", "a"));
    }
}
