//! The address map of a process, as `/proc/PID/maps` tells it.

/// What backs a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// A file: device and inode as the kernel prints them, and its path (a ` (deleted)` at its end taken off).
    File {
        /// `fe:00`
        dev: String,
        /// 0 for none.
        inode: u64,
        /// As the process sees it.
        path: String,
    },
    /// The kernel's page of code.
    Vdso,
    /// Executable memory without a file: code made at run time.
    Anonymous,
}

/// A mapping that can hold code or static data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Of `start` in the file.
    pub(crate) offset: u64,
    pub(crate) backing: Backing,
}

/// Mappings of a `maps` file that matter, in the order of their addresses; lines not understood are passed over.
pub(crate) fn parse(text: &[u8]) -> Vec<Mapping> {
    // Paths can hold any bytes; what is not UTF-8 can still be told apart by inode.
    let mut out: Vec<Mapping> = String::from_utf8_lossy(text).lines().filter_map(line).collect();
    out.sort_by_key(|m| m.start);
    out
}

/// `5560c6938000-5560c694c000 r-xp 00003000 fe:00 247749      /usr/bin/sed`
fn line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_start_matches(' ');
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (start, end) = word().split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let executable = word().as_bytes().get(2) == Some(&b'x');
    let offset = u64::from_str_radix(word(), 16).ok()?;
    let dev = word().to_string();
    let inode: u64 = word().parse().ok()?;
    let path = rest.trim_start_matches(' ');
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let backing = match path {
        "[vdso]" => Backing::Vdso,
        // A JIT may give its memory a name, or map a memfd twice: no ELF, but a file by form.
        p if p.starts_with('/') && !p.starts_with("/memfd:") && !p.starts_with("/dev/zero") => {
            Backing::File { dev, inode, path: p.into() }
        }
        "[vsyscall]" | "[vvar]" | "[vvar_vclock]" => return None,
        _ if executable => Backing::Anonymous,
        _ => return None,
    };
    Some(Mapping { start, end, offset, backing })
}

/// The mapping that holds an address.
pub(crate) fn find(maps: &[Mapping], addr: u64) -> Option<&Mapping> {
    let after = maps.partition_point(|m| m.start <= addr);
    maps.get(after.checked_sub(1)?).filter(|m| addr < m.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read() {
        let text = b"\
5560c6935000-5560c6938000 r--p 00000000 fe:00 247749                     /usr/bin/sed
5560c6938000-5560c694c000 r-xp 00003000 fe:00 247749                     /usr/bin/sed
7f0000000000-7f0000001000 r-xp 00000000 00:1f 12   /tmp/with blank (deleted)
7f0000002000-7f0000003000 rwxp 00000000 00:00 0
7f0000004000-7f0000005000 rw-p 00000000 00:00 0 
7f0000006000-7f0000007000 r-xp 00000000 00:01 9 /memfd:jit (deleted)
7ffc27d98000-7ffc27d9a000 r-xp 00000000 00:00 0                          [vdso]
garbage
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        let maps = parse(text);
        assert_eq!(maps.len(), 6);
        let sed = find(&maps, 0x5560c6938010).unwrap();
        assert_eq!((sed.start, sed.offset), (0x5560c6938000, 0x3000));
        let Backing::File { inode, path, .. } = &find(&maps, 0x7f0000000fff).unwrap().backing else {
            panic!()
        };
        assert_eq!((*inode, path.as_str()), (12, "/tmp/with blank"));
        assert_eq!(find(&maps, 0x7f0000002000).unwrap().backing, Backing::Anonymous);
        assert_eq!(find(&maps, 0x7f0000006000).unwrap().backing, Backing::Anonymous);
        assert_eq!(find(&maps, 0x7ffc27d98001).unwrap().backing, Backing::Vdso);
        assert_eq!(find(&maps, 0x7f0000004000), None);
        assert_eq!(find(&maps, 0), None);
        assert_eq!(find(&maps, u64::MAX), None);
    }
}
