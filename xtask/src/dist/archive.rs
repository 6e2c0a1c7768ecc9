//! Files in memory, and the archive formats that packages are made of: tar, ar, cpio; gzip and xz
//! around them.
//!
//! What comes out depends on nothing but what goes in: owners are root, every time is the given
//! one, and the order is that of the entries. The programs `tar`, `ar` and `cpio` differ between
//! systems; these few lines do not.

use std::io::Write;

/// What a path of a package is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Directory,
    File(Vec<u8>),
    /// A symbolic link with this text.
    Link(String),
}

/// A path of a package.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Without a `/` at either end.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// The permissions.
    pub(crate) mode: u32,
}

impl Entry {
    pub(crate) fn file(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Entry {
        Entry { path: path.into(), kind: Kind::File(content.into()), mode }
    }

    pub(crate) fn link(path: impl Into<String>, text: impl Into<String>) -> Entry {
        Entry { path: path.into(), kind: Kind::Link(text.into()), mode: 0o777 }
    }

    /// The bytes of a file; of anything else none.
    pub(crate) fn content(&self) -> &[u8] {
        match &self.kind {
            Kind::File(content) => content,
            _ => &[],
        }
    }
}

/// The entries by path, with every directory above them, each before what it contains.
pub(crate) fn with_directories(entries: &[Entry]) -> Vec<Entry> {
    let mut all: std::collections::BTreeMap<String, Entry> = Default::default();
    for entry in entries {
        let above = entry.path.match_indices('/').map(|(at, _)| entry.path.get(..at).unwrap_or_default());
        for path in above {
            let directory = || Entry { path: path.into(), kind: Kind::Directory, mode: 0o755 };
            all.entry(path.into()).or_insert_with(directory);
        }
        all.insert(entry.path.clone(), entry.clone());
    }
    all.into_values().collect()
}

/// The file type and permissions of an entry as `st_mode` has them (inode(7)).
pub(crate) fn st_mode(entry: &Entry) -> u32 {
    let kind = match entry.kind {
        Kind::Directory => 0o040000,
        Kind::File(_) => 0o100000,
        Kind::Link(_) => 0o120000,
    };
    kind | entry.mode
}

/// A POSIX ustar archive (pax(1), "ustar Interchange Format"). `top` precedes each path.
pub(crate) fn tar(top: &str, entries: &[Entry], time: u64) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for entry in entries {
        let slash = if entry.kind == Kind::Directory { "/" } else { "" };
        out.extend(tar_header(entry, &format!("{top}{}{slash}", entry.path), time)?);
        out.extend(entry.content());
        out.resize(out.len().next_multiple_of(512), 0);
    }
    // The end is two blocks of zeroes, and a record has 20 blocks.
    out.extend([0; 1024]);
    out.resize(out.len().next_multiple_of(20 * 512), 0);
    Ok(out)
}

fn tar_header(entry: &Entry, name: &str, time: u64) -> Result<[u8; 512], String> {
    let mut header = [0; 512];
    let mut put = |at: usize, size: usize, bytes: &[u8]| match header.get_mut(at..at + bytes.len()) {
        Some(place) if bytes.len() <= size => {
            place.copy_from_slice(bytes);
            Ok(())
        }
        _ => Err(format!("tar: {name}: {} bytes where {size} fit", bytes.len())),
    };
    let (kind, link) = match &entry.kind {
        Kind::Directory => (b"5", ""),
        Kind::File(_) => (b"0", ""),
        Kind::Link(text) => (b"2", text.as_str()),
    };
    put(0, 100, name.as_bytes())?;
    put(100, 8, format!("{:07o}\0", entry.mode).as_bytes())?;
    put(108, 8, b"0000000\0")?;
    put(116, 8, b"0000000\0")?;
    put(124, 12, format!("{:011o}\0", entry.content().len()).as_bytes())?;
    put(136, 12, format!("{time:011o}\0").as_bytes())?;
    // The checksum counts itself as spaces.
    put(148, 8, b"        ")?;
    put(156, 1, kind)?;
    put(157, 100, link.as_bytes())?;
    put(257, 8, b"ustar\x0000")?;
    put(265, 32, b"root")?;
    put(297, 32, b"root")?;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

/// An `ar` archive of files with short names (deb(5)).
pub(crate) fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        out.extend(format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 100644).bytes());
        out.extend(content);
        if size % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

/// A cpio archive in the "new ASCII" format (cpio(5)), as the payload of an RPM. `top` precedes
/// each path.
pub(crate) fn cpio(top: &str, entries: &[Entry], time: u64) -> Vec<u8> {
    fn put(out: &mut Vec<u8>, inode: usize, mode: u32, time: u64, name: &str, content: &[u8]) {
        let (links, size, named) = (1, content.len(), name.len() + 1);
        out.extend(
            format!("070701{inode:08x}{mode:08x}{:08x}{:08x}{links:08x}{time:08x}{size:08x}", 0, 0).bytes(),
        );
        out.extend(format!("{:08x}{:08x}{:08x}{:08x}{named:08x}{:08x}{name}\0", 0, 0, 0, 0, 0).bytes());
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(content);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let mut out = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let content = match &entry.kind {
            Kind::Link(text) => text.as_bytes(),
            _ => entry.content(),
        };
        put(&mut out, number + 1, st_mode(entry), time, &format!("{top}{}", entry.path), content);
    }
    put(&mut out, 0, 0, 0, "TRAILER!!!", &[]);
    out
}

/// A gzip member without a name or a time, as small as it gets (RFC 1952).
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Compressed with deflate; no flags; no time; slowest; Unix.
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3];
    out.extend(miniz_oxide::deflate::compress_to_vec(bytes, 9));
    out.extend(crc32fast::hash(bytes).to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out
}

/// An xz stream, which a reader needs 9 MB for.
pub(crate) fn xz(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let packed = || {
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(6))?;
        writer.write_all(bytes)?;
        writer.finish()
    };
    packed().map_err(|e| format!("xz: {e}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn some() -> Vec<Entry> {
        with_directories(&[
            Entry::file("usr/share/b", 0o644, "two\nlines\n"),
            Entry::file("usr/bin/a", 0o755, "x"),
            Entry::link("usr/bin/c", "a"),
        ])
    }

    /// What a program prints when it reads these bytes.
    fn read_by(program: &str, words: &[&str], bytes: &[u8]) -> String {
        let mut child = Command::new(program)
            .args(words)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writing = std::thread::spawn(move || input.write_all(&bytes));
        let out = child.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        assert!(out.status.success(), "{program}");
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn every_directory_is_there_once_and_before_what_it_contains() {
        let paths: Vec<String> = some().into_iter().map(|e| e.path).collect();
        assert_eq!(paths, ["usr", "usr/bin", "usr/bin/a", "usr/bin/c", "usr/share", "usr/share/b"]);
    }

    #[test]
    fn tar_lists_the_modes_owners_sizes_and_times_of_an_archive_and_gzip_unpacks_it() {
        let packed = gzip(&tar("./", &some(), 86_400).unwrap());
        let listed = read_by("tar", &["-tvzf", "-", "--numeric-owner"], &packed);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = listed.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "drwxr-xr-x 0/0 0 1970-01-02 00:00 ./usr/",
                "drwxr-xr-x 0/0 0 1970-01-02 00:00 ./usr/bin/",
                "-rwxr-xr-x 0/0 1 1970-01-02 00:00 ./usr/bin/a",
                "lrwxrwxrwx 0/0 0 1970-01-02 00:00 ./usr/bin/c -> a",
                "drwxr-xr-x 0/0 0 1970-01-02 00:00 ./usr/share/",
                "-rw-r--r-- 0/0 10 1970-01-02 00:00 ./usr/share/b",
            ]
        );
        let content = read_by("tar", &["-xzOf", "-", "./usr/share/b"], &packed);
        assert_eq!(content, "two\nlines\n");
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        let long = Entry::file("d/".repeat(60), 0o644, "");
        assert!(tar("./", &[long], 0).unwrap_err().contains("122 bytes where 100 fit"));
    }

    #[test]
    fn xz_unpacks_what_is_packed() {
        let text: String = (0..50_000).map(|n| format!("{n},")).collect();
        let packed = xz(text.as_bytes()).unwrap();
        assert!(packed.len() < text.len() / 2);
        assert!(read_by("xz", &["-dc"], &packed) == text);
    }

    #[test]
    fn members_of_an_ar_archive_begin_at_even_places() {
        let packed = ar(&[("odd", b"x".to_vec()), ("even", b"yz".to_vec())], 7);
        let text = String::from_utf8(packed).unwrap();
        let odd = "odd             7           0     0     100644  1         `\nx\n";
        let even = "even            7           0     0     100644  2         `\nyz";
        assert_eq!(text, format!("!<arch>\n{odd}{even}"));
    }

    #[test]
    fn a_cpio_archive_has_each_entry_and_a_trailer() {
        let packed = cpio("./", &some(), 86_400);
        assert_eq!(packed.len() % 4, 0);
        let text = String::from_utf8_lossy(&packed).into_owned();
        assert_eq!(text.matches("070701").count(), 7);
        // Inode, mode, owner, group, links, time, size; device and its; length of the name.
        let a = "00000003000081ed000000000000000000000001000151800000000100000000000000000000000000000000\
                 0000000c00000000./usr/bin/a\0";
        assert!(text.contains(a), "{text}");
        assert!(text.trim_end_matches('\0').ends_with("TRAILER!!!"));
    }
}
