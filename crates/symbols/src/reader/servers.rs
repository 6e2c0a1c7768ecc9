//! Debug files from servers (debuginfod), by build id over HTTP and HTTPS.
//!
//! Nobody is asked unless the user has named servers. A file that has come is kept in the cache of
//! the debuginfod client, so that debuggers find it too:
//!
//! ```text
//!  $DEBUGINFOD_CACHE_PATH, $XDG_CACHE_HOME/debuginfod_client or ~/.cache/debuginfod_client
//!    └─ BUILDID/debuginfo        complete, with this build id
//!       BUILDID/.debuginfo.PID   on its way, where the file system has no files without a name
//! ```
//!
//! The session kills a reader that still fetches. A file on its way has no name, so that nothing
//! remains of it then. Where that cannot be, the next reader that fetches the same file removes it,
//! once it is older than a transfer may be. (A process id says nothing: the cache may be shared by
//! containers.)
//!
//! A thread fetches it, and the request that needs it waits for a part of its own time. What takes
//! longer comes for a later request, if the reader lives so long. Size and time of a transfer are
//! bounded, and what came has the build id or is removed.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::debug::RULES;
use super::elf::{ByteSource, Elf};
use crate::sys;
use files::open::Root;

#[cfg(feature = "debuginfod")]
mod http;
/// What a build without HTTP says instead. A session refuses the option before.
#[cfg(not(feature = "debuginfod"))]
mod http {
    use std::time::Duration;

    pub(super) fn get(_server: &str, _: &str, _: Duration, _: u64) -> Result<std::io::Empty, String> {
        Err("built without debuginfod".into())
    }
}

/// How long a transfer may take.
const TRANSFER: Duration = Duration::from_secs(300);
/// How the name begins of a file on its way.
const COMING: &str = ".debuginfo.";
/// The most bytes of a file.
const MAX_SIZE: u64 = 1 << 30;
/// The most files that are asked for, each of which is remembered.
const MAX_ASKED: usize = 4096;
/// Bytes of the stack of a thread that fetches.
const STACK: usize = 512 << 10;
/// Bytes of a build id.
const ID: std::ops::RangeInclusive<usize> = 4..=64;

/// What is known of a file that was asked for.
enum FetchState {
    /// A thread fetches it.
    Coming(Receiver<Result<(), String>>),
    /// There is none, and why.
    Failed(String),
}

/// The most lists of servers that are remembered: each is that of a session.
const MAX_LISTS: usize = 16;

/// The servers of all clients of a reader.
#[derive(Default)]
pub(super) struct AllServers {
    lists: HashMap<String, Servers>,
    current: String,
}

impl AllServers {
    /// Asks these from now on, with blanks between. `time`: how long a request may take.
    pub(super) fn choose(&mut self, urls: &str, time: Duration) {
        if self.current != urls {
            self.current = urls.into();
        }
        if urls.is_empty() {
            return;
        }
        if self.lists.len() >= MAX_LISTS && !self.lists.contains_key(urls) {
            self.lists.clear();
        }
        if !self.lists.contains_key(urls)
            && let Some(servers) = Servers::of(urls)
        {
            self.lists.insert(urls.into(), servers);
        }
        if let Some(servers) = self.lists.get_mut(urls) {
            servers.wait = time / 4 * 3;
        }
    }

    /// Those that are asked now. `None`: there are none.
    pub(super) fn current(&mut self) -> Option<&mut Servers> {
        self.lists.get_mut(&self.current)
    }
}

/// The servers that the user has named.
pub(super) struct Servers {
    urls: Vec<String>,
    cache: PathBuf,
    /// How long a request waits.
    wait: Duration,
    asked: HashMap<Vec<u8>, FetchState>,
}

impl Servers {
    /// Those of a text with blanks between.
    fn of(urls: &str) -> Option<Servers> {
        let urls: Vec<String> = urls.split_ascii_whitespace().map(String::from).collect();
        let cache = cache(|name| std::env::var_os(name).map(PathBuf::from))?;
        (!urls.is_empty()).then(|| Servers { urls, cache, wait: Duration::ZERO, asked: HashMap::new() })
    }

    /// The debug file with a build id. The error says why there is none, or none yet.
    pub(super) fn find(&mut self, id: &[u8]) -> Result<Elf, String> {
        if !ID.contains(&id.len()) {
            return Err("it has no build id".into());
        }
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let place = self.cache.join(&hex).join("debuginfo");
        if let Some(elf) = open(&place, id) {
            return Ok(elf);
        }
        if !self.asked.contains_key(id) {
            if self.asked.len() >= MAX_ASKED {
                return Err("too many debug files were asked for".into());
            }
            let fetching = fetch(self.urls.clone(), hex, id.to_vec(), place.clone());
            self.asked.insert(id.to_vec(), fetching);
        }
        let why = match self.asked.get(id) {
            Some(FetchState::Coming(coming)) => match coming.recv_timeout(self.wait) {
                Ok(Ok(())) => "the cache does not keep it".into(),
                Ok(Err(why)) => why,
                Err(RecvTimeoutError::Timeout) => return Err("its debug file is still being fetched".into()),
                Err(RecvTimeoutError::Disconnected) => "the transfer has ended".into(),
            },
            Some(FetchState::Failed(why)) => return Err(why.clone()),
            None => return Err("it was not asked for".into()),
        };
        self.asked.insert(id.to_vec(), FetchState::Failed(why.clone()));
        open(&place, id).ok_or(why)
    }
}

/// The directory of the cache.
fn cache(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    const NAME: &str = "debuginfod_client";
    let set = |name| variable(name).filter(|path| path.is_absolute());
    set("DEBUGINFOD_CACHE_PATH")
        .or_else(|| set("XDG_CACHE_HOME").map(|path| path.join(NAME)))
        .or_else(|| set("HOME").map(|path| path.join(".cache").join(NAME)))
}

/// A file of the cache, if it has this build id.
fn open(path: &Path, id: &[u8]) -> Option<Elf> {
    let handle = Root::own().ok()?.find(path.as_os_str().as_bytes()).ok()?;
    let elf = Elf::open(Rc::new(handle.open(&RULES).ok()?)).ok()?;
    (elf.build_id().as_deref() == Some(id)).then_some(elf)
}

/// Starts a thread that fetches a file.
fn fetch(urls: Vec<String>, hex: String, id: Vec<u8>, place: PathBuf) -> FetchState {
    let (done, coming) = mpsc::channel();
    let work = move || {
        let mut result = Err("no server was named".to_string());
        for url in urls {
            result = transfer(&url, &hex, &id, &place);
            if result.is_ok() {
                break;
            }
        }
        // Nobody may wait any more.
        let _ = done.send(result);
    };
    match threads::spawn("debuginfod", STACK, work) {
        Ok(_) => FetchState::Coming(coming),
        Err(error) => FetchState::Failed(error.to_string()),
    }
}

/// Fetches a file from one server into the cache.
pub(super) fn transfer(url: &str, hex: &str, id: &[u8], place: &Path) -> Result<(), String> {
    let of_server = |why: String| format!("{url}: {why}");
    let address = format!("{}/buildid/{hex}/debuginfo", url.trim_end_matches('/'));
    let mut body = http::get(url, &address, TRANSFER, MAX_SIZE).map_err(of_server)?;
    let dir = place.parent().unwrap_or(place);
    let of_cache = |error: io::Error| format!("{}: {error}", dir.display());
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(of_cache)?;
    remove_abandoned(dir);
    let mut coming = Coming::begin(dir, libc::O_TMPFILE).map_err(of_cache)?;
    io::copy(&mut body, &mut coming.file).map_err(|error| of_server(error.to_string()))?;
    if !coming.has_id(id) {
        return Err(format!("{url}: what it sent has another build id"));
    }
    coming.keep(place).map_err(of_cache)
}

/// Removes the files that a reader was fetching when it was killed, in the directory of a build id.
fn remove_abandoned(dir: &Path) {
    let is_old = |entry: &fs::DirEntry| {
        let modified = entry.metadata().and_then(|data| data.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > 2 * TRANSFER))
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(COMING.as_bytes()) && is_old(&entry) {
            // Another reader may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A file on its way.
struct Coming {
    file: File,
    /// Its name, while it has one.
    path: PathBuf,
    is_named: bool,
}

impl Coming {
    /// Begins a file in a directory: without a name if `flags` are `O_TMPFILE`, and the file system
    /// can.
    fn begin(dir: &Path, flags: i32) -> io::Result<Coming> {
        let path = dir.join(format!("{COMING}{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        if flags == libc::O_TMPFILE
            && let Ok(file) = options.custom_flags(flags).open(dir)
        {
            return Ok(Coming { file, path, is_named: false });
        }
        let file = options.create(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(&path)?;
        Ok(Coming { file, path, is_named: true })
    }

    fn has_id(&self, id: &[u8]) -> bool {
        let source = self.file.try_clone().and_then(|file| Ok(Sent { size: file.metadata()?.len(), file }));
        let elf = source.ok().and_then(|source| Elf::open(Rc::new(source)).ok());
        elf.is_some_and(|elf| elf.build_id().as_deref() == Some(id))
    }

    /// The file is complete. It replaces the one at `place`.
    fn keep(mut self, place: &Path) -> io::Result<()> {
        if !self.is_named {
            // A link replaces nothing, so the file gets the name that it would have had on its way.
            let _ = fs::remove_file(&self.path);
            sys::link(self.file.as_fd(), &self.path)?;
            self.is_named = true;
        }
        fs::rename(&self.path, place)?;
        self.is_named = false;
        Ok(())
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if self.is_named {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a server has sent.
struct Sent {
    file: File,
    size: u64,
}

impl ByteSource for Sent {
    fn size(&self) -> u64 {
        self.size
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }
}

#[cfg(feature = "debuginfod")]
#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const BUILD_ID: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];

    fn debug_file() -> Vec<u8> {
        testing::elf::Elf { build_id: Some(BUILD_ID.into()), ..Default::default() }.bytes()
    }

    #[test]
    fn clients_with_different_servers_do_not_see_each_others() {
        let mut all = AllServers::default();
        let second = Duration::from_secs(1);
        let of = |all: &mut AllServers| all.current().map(|s| (s.urls.clone(), s.wait));
        for _ in 0..2 {
            all.choose("http://one https://two", second);
            let urls = vec!["http://one".to_owned(), "https://two".into()];
            assert_eq!(of(&mut all), Some((urls, second * 3 / 4)));
            all.choose("", second);
            assert_eq!(of(&mut all), None);
            all.choose("http://three", 2 * second);
            assert_eq!(of(&mut all), Some((vec!["http://three".into()], second * 3 / 2)));
        }
        for n in 0..2 * MAX_LISTS {
            all.choose(&format!("http://{n}"), second);
            assert!(all.current().is_some() && all.lists.len() <= MAX_LISTS);
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut all: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
        all.sort();
        all
    }

    /// Fetches from a server that sends half of `file`, calls `halfway`, and sends the rest.
    fn fetched(dir: &Path, file: Vec<u8>, halfway: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let (half, rest) = file.split_at(file.len() / 2);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
            stream.write_all(&[head.as_bytes(), half].concat()).unwrap();
            halfway();
            // The client may have gone away.
            let _ = stream.write_all(rest);
        });
        let result = transfer(&url, "0102030405060708", BUILD_ID, &dir.join("debuginfo"));
        server.join().unwrap();
        result
    }

    #[test]
    fn a_file_on_its_way_has_no_name_and_replaces_an_unusable_one() {
        let dir = testing::dir::Dir::new("servers-nameless");
        if OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&dir).is_err() {
            testing::skipped!("the file system has no files without a name");
            return;
        }
        fs::write(dir.join("debuginfo"), "").unwrap();
        // As one that was killed with the same process id leaves it.
        let left = format!("{COMING}{}", std::process::id());
        fs::write(dir.join(&left), "").unwrap();
        let place = dir.to_path_buf();
        let there = move || {
            // The half that was sent is in a file that is open and has no name.
            let has = |fd: &Path, place: &Path| {
                let file = fs::read_link(fd).unwrap_or_default();
                file.starts_with(place) && fs::metadata(fd).is_ok_and(|file| file.len() > 0)
            };
            testing::eventually("the half of the file", testing::HANG_LIMIT, || {
                fs::read_dir("/proc/self/fd").unwrap().flatten().any(|fd| has(&fd.path(), &place))
            });
            assert_eq!(names(&place), [left, "debuginfo".into()]);
            assert!(fs::read(place.join("debuginfo")).unwrap().is_empty());
        };
        fetched(&dir, debug_file(), there).unwrap();
        assert_eq!(names(&dir), ["debuginfo"]);
        assert_eq!(fs::read(dir.join("debuginfo")).unwrap(), debug_file());
    }

    #[test]
    fn a_file_with_another_build_id_is_removed() {
        let dir = testing::dir::Dir::new("servers-wrong");
        let wrong = testing::elf::Elf { build_id: Some(vec![9; 8]), ..Default::default() }.bytes();
        let why = fetched(&dir, wrong, || {}).unwrap_err();
        assert!(why.ends_with("what it sent has another build id"), "{why}");
        assert!(names(&dir).is_empty());
    }

    #[test]
    fn a_file_with_a_name_is_kept_when_it_is_complete_and_removed_otherwise() {
        let dir = testing::dir::Dir::new("servers-named");
        let begun = || {
            let mut coming = Coming::begin(&dir, 0).unwrap();
            coming.file.write_all(&debug_file()).unwrap();
            coming
        };
        let coming = begun();
        assert_eq!(names(&dir), [format!("{COMING}{}", std::process::id())]);
        assert!(coming.has_id(BUILD_ID) && !coming.has_id(b"other"));
        drop(coming);
        assert!(names(&dir).is_empty());
        begun().keep(&dir.join("debuginfo")).unwrap();
        assert_eq!(names(&dir), ["debuginfo"]);
    }

    #[test]
    fn files_of_killed_readers_are_removed_once_no_transfer_can_be_so_old() {
        let dir = testing::dir::Dir::new("servers-abandoned");
        for (name, minutes) in [(".debuginfo.1", 11), (".debuginfo.2", 1), ("debuginfo", 1000)] {
            let file = File::create(dir.join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60 * minutes)).unwrap();
        }
        remove_abandoned(&dir);
        assert_eq!(names(&dir), [".debuginfo.2", "debuginfo"]);
    }

    #[test]
    fn the_cache_is_that_of_the_debuginfod_client() {
        let of = |set: &[(&str, &str)]| {
            cache(|name| set.iter().find(|(known, _)| *known == name).map(|(_, path)| PathBuf::from(path)))
        };
        let all = [("DEBUGINFOD_CACHE_PATH", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(of(&all), Some("/a".into()));
        assert_eq!(of(&all[1..]), Some("/b/debuginfod_client".into()));
        assert_eq!(of(&all[2..]), Some("/c/.cache/debuginfod_client".into()));
        assert_eq!(of(&[("HOME", "c")]), None);
    }
}
