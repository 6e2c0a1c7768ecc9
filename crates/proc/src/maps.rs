//! The address map of a process, parsed from `/proc/PID/maps`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::{ControlFlow, Range};

/// A file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedFile {
    /// Device (major, minor) and inode of the map's line; inode 0 for none.
    pub dev: (u32, u32),
    /// See `dev`.
    pub inode: u64,
    /// The path in the process's root, without a trailing ` (deleted)`.
    pub path: Vec<u8>,
}

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file, by its index in [`Map::files`].
    File(u32),
    /// The vdso.
    Vdso,
    /// Executable memory without a file: JIT code.
    Anonymous,
    /// Memory without a file behind the writable part of one, by its index: where the file's
    /// variables are that begin as zeros (`.bss`). The kernel joins such memory with what the
    /// process maps behind it, so it may be another's too.
    Zeros(u32),
}

impl Backing {
    /// The file of the mapping, or of what is before it.
    pub fn file(self) -> Option<u32> {
        match self {
            Backing::File(file) | Backing::Zeros(file) => Some(file),
            Backing::Vdso | Backing::Anonymous => None,
        }
    }
}

/// A mapping that can hold code or static data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// What is mapped.
    pub backing: Backing,
    /// The process may execute it.
    pub is_code: bool,
}

impl Mapping {
    /// The file offset of an address of this mapping.
    pub fn file_offset(&self, addr: u64) -> u64 {
        addr.wrapping_sub(self.start).saturating_add(self.offset)
    }
}

/// The mappings of a process that can contain symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Sorted by address.
    pub mappings: Vec<Mapping>,
    /// The files, in the order of their first mapping.
    pub files: Vec<MappedFile>,
}

/// Maximum number of mappings of a process. The kernel's default limit (`vm.max_map_count`) is
/// 65,530.
pub const MAX_MAPPINGS: usize = 1 << 17;

/// Maximum size of the paths of a map's different files, in bytes: 4000 of the longest.
const MAX_PATHS: usize = 16 << 20;

/// What a process that traces others reads of a map at most, in bytes: 65,530 mappings with paths
/// of 200 bytes. The lines of a process can have 4 KiB each, 250 MB in all, and the kernel holds
/// the lock of its address space while it writes them.
pub const MAX_READ: u64 = 16 << 20;

/// What a reader of symbols reads of a map at most, in bytes: 130,000 of the longest lines. It has
/// a deadline, and nobody waits longer.
pub const MAX_READ_ALL: u64 = 512 << 20;

/// Calls with each line of a `maps` file, of which at most so many bytes are read. A line is all
/// that is in memory.
pub fn each_line(
    from: impl Read,
    limit: u64,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(64 << 10, from.take(limit));
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        // A line that the limit has cut could name another file.
        let Some(whole) = line.strip_suffix(b"\n") else { break };
        if each(whole).is_break() {
            break;
        }
        line.clear();
    }
    Ok(())
}

/// Parses a `maps` file as it is read, of at most so many bytes. Malformed lines are skipped.
pub fn read(from: impl Read, limit: u64) -> io::Result<Map> {
    let mut parser = Parser::default();
    each_line(from, limit, |line| parser.add(line))?;
    Ok(parser.end())
}

/// Calls with each file that a process may execute, once and as it is read from a `maps` file, of
/// which at most so many bytes are. So whoever finds a file among the first reads no more of the
/// map.
pub fn each_code_file(
    from: impl Read,
    limit: u64,
    mut each: impl FnMut(&Mapping, &MappedFile) -> ControlFlow<()>,
) -> io::Result<()> {
    let (mut seen, mut bytes) = (HashSet::new(), 0);
    each_line(from, limit, |line| {
        let Some(Line { mapping, file: Some(file), .. }) = parse_line(line) else {
            return ControlFlow::Continue(());
        };
        if !mapping.is_code || seen.contains(&file) {
            return ControlFlow::Continue(());
        }
        each(&mapping, &file)?;
        bytes += file.path.len();
        seen.insert(file);
        if bytes > MAX_PATHS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Parses the text of a `maps` file. Malformed lines are skipped.
pub fn parse(text: &[u8]) -> Map {
    let mut parser = Parser::default();
    // `try_for_each` ends with the line at which there are too many.
    let _ = text.split(|b| *b == b'\n').try_for_each(|line| parser.add(line));
    parser.end()
}

/// The mapping of a process that contains an address, and its file.
pub fn file_at(pid: u32, address: u64) -> Option<(Mapping, MappedFile)> {
    let mut found = None;
    let maps = File::open(format!("/proc/{pid}/maps")).ok()?;
    let each = |line: &[u8]| match parse_line(line) {
        Some(Line { mapping, file, .. }) if (mapping.start..mapping.end).contains(&address) => {
            found = file.map(|file| (mapping, file));
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    each_line(maps, MAX_READ, each).ok()?;
    found
}

/// Reads a map line by line.
#[derive(Default)]
struct Parser {
    map: Map,
    numbers: HashMap<MappedFile, u32>,
    /// Bytes of the paths of the files.
    paths: usize,
    /// The last line, if it is a writable part of a file.
    writable: Option<(Mapping, u32)>,
}

impl Parser {
    /// Adds a line. Breaks when the map is as large as it may be.
    fn add(&mut self, line: &[u8]) -> ControlFlow<()> {
        let before = self.writable.take();
        let Some(Line { mut mapping, file, is_writable }) = parse_line(line) else {
            return ControlFlow::Continue(());
        };
        let is_plain = mapping.backing == Backing::Anonymous && !mapping.is_code;
        match before {
            Some((part, number)) if is_plain && is_writable && part.end == mapping.start => {
                mapping.backing = Backing::Zeros(number);
                mapping.offset = part.file_offset(part.end);
            }
            _ if is_plain && file.is_none() => return ControlFlow::Continue(()),
            _ => {}
        }
        if let Some(file) = file {
            let next = self.map.files.len() as u32;
            let (files, paths) = (&mut self.map.files, &mut self.paths);
            let number = *self.numbers.entry(file).or_insert_with_key(|file| {
                *paths += file.path.len();
                files.push(file.clone());
                next
            });
            mapping.backing = Backing::File(number);
            self.writable = is_writable.then_some((mapping, number));
        }
        self.map.mappings.push(mapping);
        match self.map.mappings.len() == MAX_MAPPINGS || self.paths > MAX_PATHS {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn end(mut self) -> Map {
        self.map.mappings.sort_by_key(|m| m.start);
        self.map
    }
}

/// The memory that a process can read and not write, in the order of addresses, by its `maps` file,
/// of which at most so many bytes are read. Memory that it shares is left out: others may write it.
pub fn constant(from: impl Read, limit: u64) -> io::Result<Vec<Range<u64>>> {
    let range = |line: &[u8]| {
        let line = std::str::from_utf8(line.get(..line.len().min(64))?).ok()?;
        let (range, rights) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let hex = |s: &str| u64::from_str_radix(s, 16).ok();
        (rights.starts_with("r-") && rights.get(3..4) == Some("p")).then_some(hex(start)?..hex(end)?)
    };
    let mut ranges: Vec<Range<u64>> = Vec::new();
    each_line(from, limit, |line| {
        ranges.extend(range(line));
        if ranges.len() == MAX_MAPPINGS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    ranges.sort_unstable_by_key(|range| range.start);
    Ok(ranges)
}

/// A line of a map.
struct Line {
    mapping: Mapping,
    file: Option<MappedFile>,
    is_writable: bool,
}

/// `5560c6938000-5560c694c000 r-xp 00003000 fe:00 247749      /usr/bin/sed`. `None`: nothing that
/// has symbols.
fn parse_line(line: &[u8]) -> Option<Line> {
    let mut rest = line;
    let mut word = || {
        let begin = rest.iter().position(|b| *b != b' ').unwrap_or(rest.len());
        let all = rest.get(begin..).unwrap_or_default();
        let end = all.iter().position(|b| *b == b' ').unwrap_or(all.len());
        let (word, after) = all.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        std::str::from_utf8(word).ok()
    };
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let (start, end) = word()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let rights = word()?.as_bytes();
    let (is_writable, executable) = (rights.get(1) == Some(&b'w'), rights.get(2) == Some(&b'x'));
    let offset = hex(word()?)?;
    let (major, minor) = word()?.split_once(':')?;
    let dev = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = word()?.parse().ok()?;
    let begin = rest.iter().position(|b| *b != b' ').unwrap_or(rest.len());
    let path = rest.get(begin..).unwrap_or_default();
    let anonymous = Mapping { start, end, offset, backing: Backing::Anonymous, is_code: executable };
    match kind(path)? {
        Kind::Vdso => {
            let mapping = Mapping { backing: Backing::Vdso, ..anonymous };
            Some(Line { mapping, file: None, is_writable })
        }
        Kind::File(path) => {
            let file = Some(MappedFile { dev, inode, path: unescaped(path) });
            Some(Line { mapping: anonymous, file, is_writable })
        }
        Kind::Memory if executable || path.is_empty() => {
            Some(Line { mapping: anonymous, file: None, is_writable })
        }
        Kind::Memory => None,
    }
}

/// What the path of a mapping says about it.
pub(crate) enum Kind<'a> {
    /// The vdso.
    Vdso,
    /// A file, by its path without a trailing ` (deleted)`.
    File(&'a [u8]),
    /// Memory that is no ELF file.
    Memory,
}

/// The kind of a mapping. `None`: its addresses belong to the kernel.
pub(crate) fn kind(path: &[u8]) -> Option<Kind<'_>> {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    match path {
        b"[vdso]" => Some(Kind::Vdso),
        b"[vsyscall]" | b"[vvar]" | b"[vvar_vclock]" => None,
        // JIT compilers use memfd and /dev/zero mappings. They have a path, but no ELF file.
        // `//anon` is perf's name of memory without a file.
        p if p.starts_with(b"/")
            && !p.starts_with(b"//")
            && (!p.starts_with(b"/memfd:") || is_of_probes(p))
            && !p.starts_with(b"/dev/zero") =>
        {
            Some(Kind::File(p))
        }
        _ => Some(Kind::Memory),
    }
}

/// True of a file in memory that describes probes: one of dynamic USDT, or of libstapsdt. Its name
/// only says that it is worth a look.
fn is_of_probes(path: &[u8]) -> bool {
    path.starts_with(b"/memfd:dtrace:") || path.starts_with(b"/memfd:libstapsdt:")
}

/// Replaces `\012` by a newline. The kernel escapes no other character of a path.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let newline = rest.strip_prefix(b"\\012");
        out.push(if newline.is_some() { b'\n' } else { *first });
        rest = newline.unwrap_or(after);
    }
    out
}

/// The mapping that contains an address.
pub fn find(mappings: &[Mapping], addr: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|m| m.start <= addr);
    mappings.get(after.checked_sub(1)?).filter(|m| addr < m.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_behind_very_many_long_lines_are_found_and_those_before_them_end_the_reading() {
        let long = format!("1000-2000 rw-s 00000000 00:01 7 /{}\n", "x".repeat(4000));
        let code = |inode: u32| format!("{inode}000-{inode}800 r-xp 00000000 fe:00 {inode} /lib/{inode}\n");
        let many = 2 * MAX_READ as usize / long.len();
        let text = [code(3), code(3), long.repeat(many), code(5)].concat();
        let found = |until: u64, limit: u64| {
            let mut inodes = Vec::new();
            let mut from = text.as_bytes();
            let each = |_: &Mapping, file: &MappedFile| {
                inodes.push(file.inode);
                if file.inode == until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            each_code_file(&mut from, limit, each).unwrap();
            (inodes, text.len() - from.len())
        };
        assert_eq!(found(0, MAX_READ_ALL), (vec![3, 5], text.len()));
        let (inodes, read) = found(3, MAX_READ_ALL);
        assert!(inodes == [3] && read <= 64 << 10, "{read}");
        assert_eq!(found(0, MAX_READ).0, [3]);
    }

    #[test]
    fn maps_are_read() {
        let text = b"\
5560c6935000-5560c6938000 r--p 00000000 fe:00 247749                     /usr/bin/sed
5560c6938000-5560c694c000 r-xp 00003000 fe:00 247749                     /usr/bin/sed
7f0000000000-7f0000001000 r-xp 00000000 00:1f 12   /tmp/with blank\\012 and newline (deleted)
7f0000002000-7f0000003000 rwxp 00000000 00:00 0
7f0000004000-7f0000005000 rw-p 00000000 00:00 0 
7f0000006000-7f0000007000 r-xp 00000000 00:01 9 /memfd:jit (deleted)
7f0000008000-7f0000009000 r-xp 00000000 00:01 11 /memfd:dtrace:app (deleted)
7ffc27d98000-7ffc27d9a000 r-xp 00000000 00:00 0                          [vdso]
garbage
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        let map = parse(text);
        assert_eq!(map.mappings.len(), 7);
        let at = |addr| find(&map.mappings, addr).copied();
        let sed = at(0x5560c6938010).unwrap();
        assert_eq!((sed.start, sed.offset), (0x5560c6938000, 0x3000));
        assert_eq!(sed.file_offset(0x5560c6938010), 0x3010);
        let files: Vec<_> = map.files.iter().map(|f| (f.dev, f.inode, &f.path[..])).collect();
        assert_eq!(
            files,
            [
                ((0xfe, 0), 247749, &b"/usr/bin/sed"[..]),
                ((0, 0x1f), 12, b"/tmp/with blank\n and newline"),
                ((0, 1), 11, b"/memfd:dtrace:app"),
            ]
        );
        assert_eq!(at(0x7f0000000fff).unwrap().backing, Backing::File(1));
        assert_eq!(at(0x7f0000002000).unwrap().backing, Backing::Anonymous);
        assert_eq!(at(0x7f0000006000).unwrap().backing, Backing::Anonymous);
        assert_eq!(at(0x7ffc27d98001).unwrap().backing, Backing::Vdso);
        assert_eq!(at(0x7f0000004000), None);
        assert_eq!(at(0), None);
        assert_eq!(at(u64::MAX), None);
    }

    /// A map without an end, whose lines have the longest path.
    struct Endless {
        line: Vec<u8>,
        /// Bytes that were read.
        read: u64,
    }

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let rest = &self.line[self.read as usize % self.line.len()..];
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            self.read += length as u64;
            Ok(length)
        }
    }

    #[test]
    fn a_map_of_any_length_is_read_to_a_limit_and_its_files_are_known_once() {
        let path = "d".repeat(3900);
        let text = format!("1000-2000 r-xp 00000000 fe:00 7 /{path}\n");
        let mut endless = Endless { line: text.clone().into(), read: 0 };
        let map = read(&mut endless, 10 * text.len() as u64 + 100).unwrap();
        // The eleventh line is cut.
        assert_eq!((map.mappings.len(), map.files.len()), (10, 1));
        assert_eq!(endless.read, 10 * text.len() as u64 + 100);
        let whole = 2 * MAX_READ as usize / text.len();
        let map = read(Endless { line: text.into(), read: 0 }, 2 * MAX_READ).unwrap();
        assert_eq!((map.mappings.len(), map.files.len()), (whole, 1));
    }

    #[test]
    fn the_paths_of_a_map_are_bounded() {
        let path = "d".repeat(4000);
        let text: String =
            (1..10_000).map(|n| format!("1000-2000 r-xp 00000000 fe:00 {n} /{path}\n")).collect();
        assert_eq!(parse(text.as_bytes()).files.len(), MAX_PATHS / 4001 + 1);
    }

    #[test]
    fn the_file_at_an_address_is_found() {
        let here = file_at as *const () as u64;
        let (mapping, file) = file_at(std::process::id(), here).unwrap();
        assert!((mapping.start..mapping.end).contains(&here) && mapping.is_code);
        assert!(file.path.starts_with(b"/") && file.inode > 0);
        assert_eq!(file_at(std::process::id(), 1), None);
    }

    #[test]
    fn constant_memory_is_what_the_process_only_reads() {
        let text = b"\
7f0000004000-7f0000005000 r-xp 00003000 fe:00 2                     /usr/bin/sed
7f0000005000-7f0000006000 rw-p 00003000 fe:00 2                     /usr/bin/sed
7f0000006000-7f0000007000 r--s 00003000 fe:00 2                     /usr/bin/shared
7f0000007000-7f0000008000 --xp 00003000 fe:00 2                     /usr/bin/sed
7f0000009000-r--p
garbage
7f0000001000-7f0000002000 r--p 00000000 00:00 0
";
        let ranges = constant(&text[..], MAX_READ).unwrap();
        assert_eq!(ranges, [0x7f0000001000..0x7f0000002000, 0x7f0000004000..0x7f0000005000]);
    }

    #[test]
    fn memory_behind_the_writable_part_of_a_file_is_of_its_zeros() {
        let text = b"\
1000-2000 r-xp 00000000 fe:00 7 /bin/x
2000-4000 rw-p 00001000 fe:00 7 /bin/x
4000-6000 rw-p 00000000 00:00 0 
6000-7000 rw-p 00000000 00:00 0 
7000-8000 rw-p 00000000 00:00 0 [heap]
8000-9000 r--p 00000000 fe:00 8 /lib/y
9000-a000 rw-p 00000000 00:00 0 
a000-b000 rw-p 00001000 fe:00 8 /lib/y
c000-d000 rw-p 00000000 00:00 0 
d000-e000 rw-p 00001000 fe:00 8 /lib/y
e000-f000 rwxp 00000000 00:00 0 
";
        let map = parse(text);
        let starts: Vec<_> = map.mappings.iter().map(|m| (m.start, m.backing)).collect();
        assert_eq!(
            starts,
            [
                (0x1000, Backing::File(0)),
                (0x2000, Backing::File(0)),
                (0x4000, Backing::Zeros(0)),
                (0x8000, Backing::File(1)),
                (0xa000, Backing::File(1)),
                (0xd000, Backing::File(1)),
                (0xe000, Backing::Anonymous),
            ]
        );
        let zeros = find(&map.mappings, 0x4010).unwrap();
        assert_eq!((zeros.file_offset(0x4010), zeros.backing.file()), (0x3010, Some(0)));
        assert_eq!((Backing::Vdso.file(), Backing::File(3).file()), (None, Some(3)));
    }
}
