//! The address map of a process, parsed from `/proc/PID/maps`.

/// A file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MappedFile {
    /// Device (major, minor) and inode of the map's line; inode 0 for none.
    pub(crate) dev: (u32, u32),
    pub(crate) inode: u64,
    /// The path in the process's root, without a trailing ` (deleted)`.
    pub(crate) path: Vec<u8>,
}

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// A file, by its index in [`Map::files`].
    File(u32),
    /// The vdso.
    Vdso,
    /// Executable memory without a file: JIT code.
    Anonymous,
}

/// A mapping that can hold code or static data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// File offset of `start`.
    pub(crate) offset: u64,
    pub(crate) backing: Backing,
}

impl Mapping {
    /// The file offset of an address of this mapping.
    pub(crate) fn file_offset(&self, addr: u64) -> u64 {
        addr.wrapping_sub(self.start).saturating_add(self.offset)
    }
}

/// The mappings of a process that can contain symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    /// Sorted by address.
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) files: Vec<MappedFile>,
}

/// Maximum number of mappings of a process. The kernel's default limit (`vm.max_map_count`) is
/// 65,530.
pub(crate) const MAX_MAPPINGS: usize = 1 << 17;

/// Parses a `maps` file. Malformed lines are skipped.
pub(crate) fn parse(text: &[u8]) -> Map {
    let mut map = Map::default();
    let mut numbers = std::collections::HashMap::new();
    for line in text.split(|b| *b == b'\n') {
        let Some((mut mapping, file)) = parse_line(line) else { continue };
        if let Some(file) = file {
            let next = map.files.len() as u32;
            let number = *numbers.entry(file).or_insert_with_key(|file| {
                map.files.push(file.clone());
                next
            });
            mapping.backing = Backing::File(number);
        }
        map.mappings.push(mapping);
        if map.mappings.len() == MAX_MAPPINGS {
            break;
        }
    }
    map.mappings.sort_by_key(|m| m.start);
    map
}

/// `5560c6938000-5560c694c000 r-xp 00003000 fe:00 247749      /usr/bin/sed`
fn parse_line(line: &[u8]) -> Option<(Mapping, Option<MappedFile>)> {
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
    let executable = word()?.as_bytes().get(2) == Some(&b'x');
    let offset = hex(word()?)?;
    let (major, minor) = word()?.split_once(':')?;
    let dev = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = word()?.parse().ok()?;
    let begin = rest.iter().position(|b| *b != b' ').unwrap_or(rest.len());
    let path = rest.get(begin..).unwrap_or_default();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let anonymous = Mapping { start, end, offset, backing: Backing::Anonymous };
    match path {
        b"[vdso]" => Some((Mapping { backing: Backing::Vdso, ..anonymous }, None)),
        // JIT compilers use memfd and /dev/zero mappings. They have a path, but no ELF file.
        p if p.starts_with(b"/") && !p.starts_with(b"/memfd:") && !p.starts_with(b"/dev/zero") => {
            Some((anonymous, Some(MappedFile { dev, inode, path: unescaped(p) })))
        }
        b"[vsyscall]" | b"[vvar]" | b"[vvar_vclock]" => None,
        _ if executable => Some((anonymous, None)),
        _ => None,
    }
}

/// Replaces `\012` by a newline. The kernel escapes no other character of a path.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let newline = rest.starts_with(b"\\012");
        out.push(if newline { b'\n' } else { *first });
        rest = if newline { &rest[4..] } else { after };
    }
    out
}

/// The mapping that contains an address.
pub(crate) fn find(mappings: &[Mapping], addr: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|m| m.start <= addr);
    mappings.get(after.checked_sub(1)?).filter(|m| addr < m.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read() {
        let text = b"\
5560c6935000-5560c6938000 r--p 00000000 fe:00 247749                     /usr/bin/sed
5560c6938000-5560c694c000 r-xp 00003000 fe:00 247749                     /usr/bin/sed
7f0000000000-7f0000001000 r-xp 00000000 00:1f 12   /tmp/with blank\\012 and newline (deleted)
7f0000002000-7f0000003000 rwxp 00000000 00:00 0
7f0000004000-7f0000005000 rw-p 00000000 00:00 0 
7f0000006000-7f0000007000 r-xp 00000000 00:01 9 /memfd:jit (deleted)
7ffc27d98000-7ffc27d9a000 r-xp 00000000 00:00 0                          [vdso]
garbage
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        let map = parse(text);
        assert_eq!(map.mappings.len(), 6);
        let at = |addr| find(&map.mappings, addr).copied();
        let sed = at(0x5560c6938010).unwrap();
        assert_eq!((sed.start, sed.offset), (0x5560c6938000, 0x3000));
        assert_eq!(sed.file_offset(0x5560c6938010), 0x3010);
        let files: Vec<_> = map.files.iter().map(|f| (f.dev, f.inode, &f.path[..])).collect();
        assert_eq!(
            files,
            [((0xfe, 0), 247749, &b"/usr/bin/sed"[..]), ((0, 0x1f), 12, b"/tmp/with blank\n and newline")]
        );
        assert_eq!(at(0x7f0000000fff).unwrap().backing, Backing::File(1));
        assert_eq!(at(0x7f0000002000).unwrap().backing, Backing::Anonymous);
        assert_eq!(at(0x7f0000006000).unwrap().backing, Backing::Anonymous);
        assert_eq!(at(0x7ffc27d98001).unwrap().backing, Backing::Vdso);
        assert_eq!(at(0x7f0000004000), None);
        assert_eq!(at(0), None);
        assert_eq!(at(u64::MAX), None);
    }
}
