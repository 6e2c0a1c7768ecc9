//! Symbols of JIT code. JIT compilers write them to `/tmp/perf-PID.map`, a line of start, size
//! (hexadecimal) and name each. A later line for the same start replaces an earlier one.
//!
//! The file must belong to the process. It is searched in the process's root, under the pid of the
//! process's innermost pid namespace. Its owner is root or the process's user. It is not a link. It
//! was modified after the process started, because pids are reused. A file whose name also fits
//! another process (of an outer pid namespace, with the same root and the file's owner) is
//! ambiguous and not used.
//!
//! The file is read once per change. The index holds the text and twelve bytes per line. A line has
//! at least six bytes, so the index takes at most three times the size of the file.

use diagnostics::control;

use super::elf::shortened;
use crate::sys;
use crate::wire::{Lookup, MAX_NAME};
use files::open::{Contents, Handle, OpenError, ProcessDir, Rules, Stat};

/// Maximum size of a perf map. Larger ones are not read.
pub(crate) const MAX_SIZE: u64 = 64 << 20;

/// Bytes of memory per byte of the file.
const MEMORY: u64 = 3;

/// Maximum difference, in seconds, between the clocks of process start times and of file times.
const SLACK: f64 = 2.0;

/// The attributes of a file that change when its contents do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    dev: (u32, u32),
    inode: u64,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl From<&Stat> for Version {
    fn from(s: &Stat) -> Version {
        Version { dev: s.dev, inode: s.inode, size: s.size, modified: s.modified, changed: s.changed }
    }
}

/// A line of the map: the start address, which is the search key, and the line's offset in the
/// text.
#[derive(Clone, Copy)]
struct Line {
    start: [u32; 2],
    at: u32,
}

impl Line {
    fn start(&self) -> u64 {
        u64::from(self.start[0]) << 32 | u64::from(self.start[1])
    }
}

/// The symbols of a process's JIT code at the last read.
#[derive(Default)]
pub(crate) struct PerfMap {
    version: Option<Version>,
    text: Vec<u8>,
    /// Sorted by start.
    lines: Vec<Line>,
}

/// Fields of `/proc/PID/status`.
struct Status {
    /// The pid in each pid namespace, beginning with the reader's.
    pids: Vec<u32>,
    /// The effective user id.
    uid: u32,
}

impl Status {
    fn of(process: &ProcessDir) -> Option<Status> {
        Status::parse(&process.read("status", 64 << 10).ok()?)
    }

    fn parse(text: &[u8]) -> Option<Status> {
        let text = String::from_utf8_lossy(text);
        let words = |key: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(key))?;
            Some(line.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<u32>>())
        };
        Some(Status { pids: words("NStgid:")?, uid: *words("Uid:")?.get(1)? })
    }
}

/// The pids and the user in a `status` file.
pub(super) fn status_of(text: &[u8]) -> Option<(Vec<u32>, u32)> {
    Status::parse(text).map(|status| (status.pids, status.uid))
}

/// Finds the perf map of a process that started at this tick, if it passes the checks; and the pid
/// in its name.
pub(crate) fn locate(process: &ProcessDir, start: u64) -> Option<(u32, Handle)> {
    let Status { pids, uid } = Status::of(process)?;
    let root = process.root().ok()?;
    let pid = *pids.last()?;
    let handle = root.find_no_link(format!("/tmp/perf-{pid}.map").as_bytes()).ok()?;
    let stat = handle.stat().ok()?;
    let began = sys::boot_time() + start as f64 / sys::ticks() as f64;
    let written = stat.modified.0 as f64 + f64::from(stat.modified.1) / 1e9;
    if !stat.regular || (stat.uid != 0 && stat.uid != uid) || written + SLACK < began {
        return None;
    }
    if pids.len() > 1
        && let Ok(other) = ProcessDir::open(pid)
        && let Ok(others_root) = other.root()
        && others_root.key().ok() == root.key().ok()
        && Status::of(&other).is_none_or(|s| s.uid == stat.uid)
    {
        return None;
    }
    Some((pid, handle))
}

impl PerfMap {
    /// The map of a text. `None`: there is no memory for it.
    pub(super) fn of(text: &[u8]) -> Option<PerfMap> {
        let mut map = PerfMap { text: text.to_vec(), ..PerfMap::default() };
        map.index().ok()?;
        Some(map)
    }

    /// The memory in use, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        (self.text.capacity() + self.lines.capacity() * size_of::<Line>()) as u64
    }

    /// The memory that reading the file needs, in bytes. `None`: the file did not change since the
    /// last read.
    pub(crate) fn needs(&self, handle: &Handle) -> Option<u64> {
        let stat = handle.stat().ok()?;
        (self.version != Some(Version::from(&stat))).then_some(stat.size.saturating_mul(MEMORY))
    }

    /// Reads the file. If the file is rejected, the current symbols stay.
    pub(crate) fn read(&mut self, handle: &Handle) -> Result<(), OpenError> {
        let contents = handle.open(&Rules { size: (0, MAX_SIZE) })?;
        // Frees the old index first, so that memory never holds two.
        *self = PerfMap::default();
        self.fill(&contents)?;
        self.version = Some(Version::from(contents.stat()));
        Ok(())
    }

    fn fill(&mut self, contents: &Contents) -> Result<(), OpenError> {
        let memory = || OpenError::Io(std::io::ErrorKind::OutOfMemory.into());
        self.text.try_reserve_exact(contents.size() as usize).map_err(|_| memory())?;
        self.text.resize(contents.size() as usize, 0);
        // Appended data is read at the next change. The file may also have been truncated.
        let length = contents.read_up_to(&mut self.text)?;
        // The last line may be incomplete.
        let length = self.text.iter().take(length).rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        self.text.truncate(length);
        self.index().map_err(|_| memory())
    }

    fn index(&mut self) -> Result<(), std::collections::TryReserveError> {
        let count = starts(&self.text).filter(|at| line(&self.text, *at).is_some()).count();
        self.lines.try_reserve_exact(count)?;
        for at in starts(&self.text) {
            if let Some((start, ..)) = line(&self.text, at) {
                let start = [(start >> 32) as u32, start as u32];
                self.lines.push(Line { start, at: at as u32 });
            }
        }
        // The last line of each start remains.
        self.lines.sort_unstable_by_key(|l| (l.start, std::cmp::Reverse(l.at)));
        self.lines.dedup_by_key(|l| l.start);
        Ok(())
    }

    /// The symbol that contains an address.
    pub(crate) fn find(&self, addr: u64) -> Lookup {
        let after = self.lines.partition_point(|l| l.start() <= addr);
        let found = self.lines.get(after.checked_sub(1)?)?;
        let (start, size, name) = line(&self.text, found.at as usize)?;
        let delta = addr - start;
        let name = name.get(..MAX_NAME).unwrap_or(name);
        (delta < size).then(|| (delta, shortened(&control::name(name))))
    }
}

/// The offsets of the lines of a text.
fn starts(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        next = at + rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |end| end + 1);
        Some(at)
    })
}

/// Parses the line at an offset: start, size and name.
fn line(text: &[u8], at: usize) -> Option<(u64, u64, &[u8])> {
    let rest = text.get(at..)?;
    let line = rest.split(|b| *b == b'\n').next()?;
    let mut parts = line.splitn(3, |b| *b == b' ');
    let mut hex = || {
        let digits = std::str::from_utf8(parts.next()?).ok()?;
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (hex()?, hex()?);
    let name = parts.next()?.trim_ascii();
    (!name.is_empty()).then_some((start, size, name))
}

#[cfg(test)]
impl PerfMap {
    /// A map that takes this much memory.
    pub(crate) fn of_size(bytes: usize) -> PerfMap {
        PerfMap { text: vec![0; bytes], ..PerfMap::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    fn of(text: &[u8]) -> PerfMap {
        PerfMap::of(text).unwrap()
    }

    #[test]
    fn the_last_line_is_used_when_lines_have_the_same_start() {
        let map = of(b"7f00 10 old\n7f20 0x8 b with blanks\njunk\n1 2\n7f00 10 new\n");
        assert_eq!(map.find(0x7f0f), Some((0xf, "new".into())));
        assert_eq!(map.find(0x7f10), None);
        assert_eq!(map.find(0x7f21), Some((1, "b with blanks".into())));
        assert_eq!(map.find(0), None);
    }

    /// An unlinked file.
    fn file(text: &[u8]) -> (std::fs::File, Handle) {
        let path =
            std::env::temp_dir().join(format!("symbols-perfmap-{}-{}", std::process::id(), text.len()));
        let mut file =
            std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all(text).unwrap();
        let handle = Handle::from_fd(OwnedFd::from(file.try_clone().unwrap()));
        (file, handle)
    }

    #[test]
    fn a_map_is_read_once_per_change_without_an_incomplete_last_line() {
        let (mut file, handle) = file(b"10 10 first\n20 10 sec");
        let mut map = PerfMap::default();
        assert_eq!(map.needs(&handle), Some(3 * 21));
        map.read(&handle).unwrap();
        assert_eq!((map.find(0x11), map.find(0x21)), (Some((1, "first".into())), None));
        assert_eq!(map.needs(&handle), None);
        file.write_all(b"ond\n").unwrap();
        assert!(map.needs(&handle).is_some());
        map.read(&handle).unwrap();
        assert_eq!(map.find(0x21), Some((1, "second".into())));
        // The JIT compiler truncates its map.
        file.set_len(0).unwrap();
        map.read(&handle).unwrap();
        assert_eq!(map.find(0x11), None);
    }

    #[test]
    fn an_index_takes_at_most_three_times_the_size_of_the_file() {
        // The shortest possible lines.
        let text: Vec<u8> = (0..100_000).flat_map(|n| format!("{:x} 1 a\n", n % 16).into_bytes()).collect();
        let (_file, handle) = file(&text);
        let mut map = PerfMap::default();
        map.read(&handle).unwrap();
        assert!(map.memory() <= 3 * text.len() as u64, "{} of {}", map.memory(), text.len());
        assert_eq!(map.find(5), Some((0, "a".into())));
        let text: Vec<u8> =
            (0..100_000).flat_map(|n| format!("{n:x} 1 a name of common length\n").into_bytes()).collect();
        let (_file, handle) = self::file(&text);
        map.read(&handle).unwrap();
        assert!(map.memory() <= 3 * text.len() as u64, "{} of {}", map.memory(), text.len());
        assert_eq!(map.find(99_999), Some((0, "a name of common length".into())));
    }

    #[test]
    fn known_symbols_stay_when_a_map_exceeds_64_megabytes() {
        let (file, handle) = file(b"10 10 first\n");
        let mut map = PerfMap::default();
        map.read(&handle).unwrap();
        file.set_len(MAX_SIZE + 1).unwrap();
        assert!(matches!(map.read(&handle), Err(OpenError::Size(_))));
        assert_eq!(map.find(0x10), Some((0, "first".into())));
        // A sparse file of the maximum size.
        file.set_len(MAX_SIZE).unwrap();
        map.read(&handle).unwrap();
        assert!(map.memory() <= 3 * MAX_SIZE);
        assert_eq!(map.find(0x10), Some((0, "first".into())));
    }

    #[test]
    fn names_are_escaped_and_of_bounded_length() {
        let long = "x".repeat(3 * MAX_NAME);
        let map = of(&[b"10 10 \xff\xfe\n20 10 ", long.as_bytes(), b"\n"].concat());
        assert_eq!(map.find(0x10), Some((0, "\\377\\376".into())));
        assert_eq!(map.find(0x20).unwrap().1.len(), MAX_NAME);
    }
}
