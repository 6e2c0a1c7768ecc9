//! Symbols of code made at run time, as runtimes write them to `/tmp/perf-PID.map`: a line each of start, size (hex) and
//! name. A later line about the same place is the newer one.
//!
//! The file is the process's own: it is looked for in the process's root, under the pid that the process has in its innermost
//! pid namespace; it belongs to root or to the process's user; it is no link; and it was written since the process began, for
//! pids are used again. Where the same name would also be that of another process (of an outer pid namespace, with the same
//! root and the file's owner), it says nothing.
//!
//! It is read once a change. The text is kept as it was read, with twelve bytes for each of its lines, and a line has at least
//! six: so an index takes at most three times the size of the file.

use diagnostics::control;

use super::elf::shortened;
use crate::open::{Contents, Handle, ProcessDir, Refusal, Rules};
use crate::sys;
use crate::wire::{Found, MAX_NAME};

/// Larger files are not read.
pub(crate) const MAX_SIZE: u64 = 64 << 20;

/// Memory that reading a file takes, for each of its bytes.
const MEMORY: u64 = 3;

/// A process's clock ticks and the file's clock are this far apart at most, in seconds.
const SLACK: f64 = 2.0;

/// What tells one state of a file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    dev: (u32, u32),
    inode: u64,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl From<&sys::Stat> for State {
    fn from(s: &sys::Stat) -> State {
        State { dev: s.dev, inode: s.inode, size: s.size, modified: s.modified, changed: s.changed }
    }
}

/// A line: its start, which is what is searched for, and where it stands in the text.
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

/// The names that a process has given to code, as of the last reading.
#[derive(Default)]
pub(crate) struct PerfMap {
    state: Option<State>,
    text: Vec<u8>,
    /// Sorted by start.
    lines: Vec<Line>,
}

/// What a process says of itself in `status`.
struct Status {
    /// Its pid in each namespace, ours first.
    pids: Vec<u32>,
    /// Its effective user.
    uid: u32,
}

fn status(process: &ProcessDir) -> Option<Status> {
    let text = process.read("status", 64 << 10).ok()?;
    let text = String::from_utf8_lossy(&text);
    let words = |key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key))?;
        Some(line.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<u32>>())
    };
    Some(Status { pids: words("NSpid:")?, uid: *words("Uid:")?.get(1)? })
}

/// The perf map of a process that began at this tick, if it has one that can be believed, and the pid in its name.
pub(crate) fn locate(process: &ProcessDir, start: u64) -> Option<(u32, Handle)> {
    let Status { pids, uid } = status(process)?;
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
        && status(&other).is_none_or(|s| s.uid == stat.uid)
    {
        return None;
    }
    Some((pid, handle))
}

impl PerfMap {
    /// Bytes of memory it takes.
    pub(crate) fn memory(&self) -> u64 {
        (self.text.capacity() + self.lines.capacity() * size_of::<Line>()) as u64
    }

    /// Bytes of memory that reading the file takes; `None`: it is as it was when it was read.
    pub(crate) fn needs(&self, handle: &Handle) -> Option<u64> {
        let stat = handle.stat().ok()?;
        (self.state != Some(State::from(&stat))).then_some(stat.size.saturating_mul(MEMORY))
    }

    /// Reads the file. When it may not be read, what is known stays.
    pub(crate) fn read(&mut self, handle: &Handle) -> Result<(), Refusal> {
        let contents = handle.open(&Rules { size: (0, MAX_SIZE) })?;
        // First, so that two are not in memory at once.
        *self = PerfMap::default();
        self.fill(&contents)?;
        self.state = Some(State::from(contents.stat()));
        Ok(())
    }

    fn fill(&mut self, contents: &Contents) -> Result<(), Refusal> {
        let memory = || Refusal::Io(std::io::ErrorKind::OutOfMemory.into());
        self.text.try_reserve_exact(contents.size() as usize).map_err(|_| memory())?;
        self.text.resize(contents.size() as usize, 0);
        // What was appended since is read at the next change; what was cut off is not there.
        let length = contents.read_up_to(&mut self.text)?;
        // A line that is being written has no end yet.
        let length = self.text[..length].iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
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
        // Of one start the last line stays.
        self.lines.sort_unstable_by_key(|l| (l.start, std::cmp::Reverse(l.at)));
        self.lines.dedup_by_key(|l| l.start);
        Ok(())
    }

    /// The name of what an address is in.
    pub(crate) fn find(&self, addr: u64) -> Found {
        let after = self.lines.partition_point(|l| l.start() <= addr);
        let found = self.lines.get(after.checked_sub(1)?)?;
        let (start, size, name) = line(&self.text, found.at as usize)?;
        let delta = addr - start;
        let name = &name[..name.len().min(MAX_NAME)];
        (delta < size).then(|| (delta, shortened(&control::name(name))))
    }
}

/// Where the lines of a text begin.
fn starts(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        next = at + rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |end| end + 1);
        Some(at)
    })
}

/// Start, size and name.
fn line(text: &[u8], at: usize) -> Option<(u64, u64, &[u8])> {
    let rest = text.get(at..)?;
    let line = &rest[..rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())];
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
    /// One that takes so many bytes.
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
        let mut map = PerfMap { text: text.to_vec(), ..PerfMap::default() };
        map.index().unwrap();
        map
    }

    #[test]
    fn the_newest_line_about_a_place_wins() {
        let map = of(b"7f00 10 old\n7f20 0x8 b with blanks\njunk\n1 2\n7f00 10 new\n");
        assert_eq!(map.find(0x7f0f), Some((0xf, "new".into())));
        assert_eq!(map.find(0x7f10), None);
        assert_eq!(map.find(0x7f21), Some((1, "b with blanks".into())));
        assert_eq!(map.find(0), None);
    }

    /// A file that nobody else can open.
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
    fn a_map_is_read_once_a_change_and_without_the_line_that_is_being_written() {
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
        // A runtime that starts anew.
        file.set_len(0).unwrap();
        map.read(&handle).unwrap();
        assert_eq!(map.find(0x11), None);
    }

    #[test]
    fn an_index_takes_at_most_three_times_the_size_of_the_file() {
        // The shortest lines there can be.
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
    fn a_map_of_more_than_64_megabytes_is_not_read_and_what_was_known_stays() {
        let (file, handle) = file(b"10 10 first\n");
        let mut map = PerfMap::default();
        map.read(&handle).unwrap();
        file.set_len(MAX_SIZE + 1).unwrap();
        assert!(matches!(map.read(&handle), Err(Refusal::Size(_))));
        assert_eq!(map.find(0x10), Some((0, "first".into())));
        // At the limit, and sparse.
        file.set_len(MAX_SIZE).unwrap();
        map.read(&handle).unwrap();
        assert!(map.memory() <= 3 * MAX_SIZE);
        assert_eq!(map.find(0x10), Some((0, "first".into())));
    }

    #[test]
    fn names_are_text_of_bounded_length() {
        let long = "x".repeat(3 * MAX_NAME);
        let map = of(&[b"10 10 \xff\xfe\n20 10 ", long.as_bytes(), b"\n"].concat());
        assert_eq!(map.find(0x10), Some((0, "\\377\\376".into())));
        assert_eq!(map.find(0x20).unwrap().1.len(), MAX_NAME);
    }
}
