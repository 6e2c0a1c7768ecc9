//! The RPM package, `dtrace-rs`, as rpm 4.14 and later read it
//! (https://rpm-software-management.github.io/rpm/manual/format_v4.html).
//!
//! ```text
//!  lead         96 bytes, of which rpm reads the magic number only
//!  signature    a header: digest and size of what follows; padded to 8 bytes
//!  header       a header: the package, its files, its scripts
//!  payload      a cpio archive of the files, compressed with xz
//! ```
//!
//! A header is an index of entries (tag, type, offset, count) and a store of their data. Its first
//! entry is its region: it spans the others, and its data, at the end of the store, points back to
//! the beginning of the index.
//!
//! RPM has no diversions: where another package has `/usr/bin/dtrace` (`systemtap-sdt-dtrace`,
//! before Fedora 41 `systemtap-sdt-devel`), the two conflict.

use super::archive::{Entry, Kind, cpio, st_mode, with_directories, xz};
use super::contents::Release;
use super::digest::sha256;

/// The name of the package.
pub(crate) const NAME: &str = "dtrace-rs";

/// Its release of a version: there is one.
const RELEASE: &str = "1";

const SUMMARY: &str = "Dynamic tracing of the kernel and of programs, in D";

const DESCRIPTION: &str = "\
A running system is asked a question by a short program in the language D,
which is compiled to eBPF, proved safe by the kernel, and gone when the answer
is there. The program needs no library and no compiler. It needs Linux 6.1 or
later.";

/// Those that have a `dtrace` too.
const CONFLICTS: [&str; 2] = ["dtrace", "systemtap-sdt-dtrace"];

/// The group whose members an administrator may let trace: nothing is given to it here.
const PREIN: &str = "getent group dtrace >/dev/null || groupadd -r dtrace || :\n";

/// What is needed, how, and of which version: what [`PREIN`] runs, and what rpm has to know to read
/// this file.
const REQUIRES: [(&str, u32, &str); 7] = [
    ("/bin/sh", SENSE_PREIN | SENSE_INTERPRETER, ""),
    ("/usr/bin/getent", SENSE_PREIN, ""),
    ("/usr/sbin/groupadd", SENSE_PREIN, ""),
    ("rpmlib(CompressedFileNames)", SENSE_RPMLIB, "3.0.4-1"),
    ("rpmlib(FileDigests)", SENSE_RPMLIB, "4.6.0-1"),
    ("rpmlib(PayloadFilesHavePrefix)", SENSE_RPMLIB, "4.0-1"),
    ("rpmlib(PayloadIsXz)", SENSE_RPMLIB, "5.2-1"),
];

/// `rpmlib(…) <= VERSION`: RPMSENSE_RPMLIB, _LESS, _EQUAL.
const SENSE_RPMLIB: u32 = 1 << 24 | 2 | 8;

/// It is there before the script is run: RPMSENSE_SCRIPT_PRE.
const SENSE_PREIN: u32 = 1 << 9;

/// It runs the script: RPMSENSE_INTERP.
const SENSE_INTERPRETER: u32 = 1 << 8;

/// `NAME = VERSION`: RPMSENSE_EQUAL.
const SENSE_EQUAL: u32 = 8;

/// A file of the documentation: RPMFILE_DOC.
const FILE_DOC: u32 = 2;

/// SHA-256, by its number in OpenPGP (RFC 4880, 9.4).
const ALGORITHM: u32 = 8;

/// The data of an entry, by its type in the format.
enum Data {
    /// 3
    Int16(Vec<u16>),
    /// 4
    Int32(Vec<u32>),
    /// 6
    Text(String),
    /// 8
    Texts(Vec<String>),
    /// 9: one language
    Translated(String),
}

impl Data {
    /// Type, alignment, count, and the bytes, big-endian.
    fn encode(&self) -> (u32, usize, usize, Vec<u8>) {
        let text = |text: &str| [text.as_bytes(), &[0]].concat();
        match self {
            Data::Int16(all) => (3, 2, all.len(), all.iter().flat_map(|n| n.to_be_bytes()).collect()),
            Data::Int32(all) => (4, 4, all.len(), all.iter().flat_map(|n| n.to_be_bytes()).collect()),
            Data::Text(one) => (6, 1, 1, text(one)),
            Data::Texts(all) => (8, 1, all.len(), all.iter().flat_map(|one| text(one)).collect()),
            Data::Translated(one) => (9, 1, 1, text(one)),
        }
    }
}

/// A header with these entries, which are in the order of their tags, and with the tag of its
/// region.
fn header(region: u32, entries: &[(u32, Data)]) -> Vec<u8> {
    let entry =
        |tag: u32, kind: u32, at: u32, count: u32| [tag, kind, at, count].map(u32::to_be_bytes).concat();
    let (mut index, mut store) = (Vec::new(), Vec::new());
    for (tag, data) in entries {
        let (kind, align, count, bytes) = data.encode();
        store.resize(store.len().next_multiple_of(align), 0);
        index.extend(entry(*tag, kind, store.len() as u32, count as u32));
        store.extend(bytes);
    }
    let all = entries.len() as u32 + 1;
    let first = entry(region, 7, store.len() as u32, 16);
    // The offset is the way back over the index, as a negative number.
    store.extend(entry(region, 7, (all * 16).wrapping_neg(), 16));
    let start =
        [[0x8e, 0xad, 0xe8, 1], [0; 4], all.to_be_bytes(), (store.len() as u32).to_be_bytes()].concat();
    [start, first, index, store].concat()
}

/// The name of the file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("{NAME}-{}-{RELEASE}.x86_64.rpm", version(&release.version))
}

/// The version as rpm compares it: 0.2.0~rc.1 comes before 0.2.0.
fn version(version: &str) -> String {
    version.replacen('-', "~", 1)
}

/// What is installed. Directories of others are not ours.
fn files(release: &Release) -> Vec<Entry> {
    let mut all = release.packaged("usr/share/zsh/site-functions");
    let text = |name: &str, text: &str| Entry::file(format!("usr/share/doc/dtrace-rs/{name}"), 0o644, text);
    all.extend(release.licences.iter().map(|(name, licence)| text(name, licence)));
    all.push(text("third-party.txt", &release.notices));
    all.push(text("sbom.cdx.json", &release.sbom));
    let own = [
        "usr/lib/dtrace",
        "usr/share/dtrace",
        "usr/share/dtrace/exporter",
        "usr/share/dtrace/toolkit",
        "usr/share/doc/dtrace-rs",
    ];
    let mut all = with_directories(&all);
    all.retain(|entry| entry.kind != Kind::Directory || own.contains(&entry.path.as_str()));
    all
}

/// What is told of the package and its files.
fn entries(release: &Release, files: &[Entry], packed: &[u8]) -> Vec<(u32, Data)> {
    let split = |path: &str| {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        (format!("/{directory}/"), name.to_owned())
    };
    let (mut directories, mut indexes, mut names) = (Vec::<String>::new(), Vec::new(), Vec::new());
    for entry in files {
        let (directory, name) = split(&entry.path);
        let known = directories.iter().position(|known| *known == directory);
        indexes.push(known.unwrap_or(directories.len()) as u32);
        if known.is_none() {
            directories.push(directory);
        }
        names.push(name);
    }
    let text = |value: &str| Data::Text(value.to_owned());
    let texts = |values: &[&str]| Data::Texts(values.iter().map(|v| (*v).to_owned()).collect());
    let ints = |of: &dyn Fn(&Entry) -> u32| Data::Int32(files.iter().map(of).collect());
    let shorts = |of: &dyn Fn(&Entry) -> u16| Data::Int16(files.iter().map(of).collect());
    let lines = |of: &dyn Fn(&Entry) -> String| Data::Texts(files.iter().map(of).collect());
    let size = |entry: &Entry| match &entry.kind {
        Kind::Link(text) => text.len() as u32,
        _ => entry.content().len() as u32,
    };
    let full = format!("{}-{RELEASE}", version(&release.version));
    let digest = |entry: &Entry| match &entry.kind {
        Kind::File(content) => sha256(content),
        _ => String::new(),
    };
    let link = |entry: &Entry| match &entry.kind {
        Kind::Link(text) => text.clone(),
        _ => String::new(),
    };
    let is_doc = |path: &str| path.starts_with("usr/share/doc/") || path.starts_with("usr/share/man/");
    let inodes = Data::Int32((1..=files.len() as u32).collect());
    vec![
        // The languages of translated texts.
        (100, texts(&["C"])),
        (1000, text(NAME)),
        (1001, text(&version(&release.version))),
        (1002, text(RELEASE)),
        (1004, Data::Translated(SUMMARY.into())),
        (1005, Data::Translated(DESCRIPTION.into())),
        // Built when and where.
        (1006, Data::Int32(vec![release.time as u32])),
        (1007, text("localhost")),
        (1009, Data::Int32(vec![files.iter().map(size).sum()])),
        (1014, text("MIT OR Apache-2.0")),
        (1016, Data::Translated("Development/Debuggers".into())),
        // System and machine.
        (1021, text("linux")),
        (1022, text("x86_64")),
        (1023, text(PREIN)),
        (1028, ints(&size)),
        (1030, shorts(&|entry| st_mode(entry) as u16)),
        // The device that a file is, the time, the digest, the text of a link, the kind.
        (1033, shorts(&|_| 0)),
        (1034, ints(&|_| release.time as u32)),
        (1035, lines(&digest)),
        (1036, lines(&link)),
        (1037, ints(&|entry| if is_doc(&entry.path) { FILE_DOC } else { 0 })),
        // User and group.
        (1039, lines(&|_| "root".into())),
        (1040, lines(&|_| "root".into())),
        // The package of the source: what has one is no source itself.
        (1044, text(&format!("{NAME}-{full}.src.rpm"))),
        // Everything is verified.
        (1045, ints(&|_| u32::MAX)),
        (1047, texts(&[NAME])),
        (1048, Data::Int32(REQUIRES.map(|(_, sense, _)| sense).to_vec())),
        (1049, texts(&REQUIRES.map(|(name, ..)| name))),
        (1050, texts(&REQUIRES.map(|(.., version)| version))),
        // Any version conflicts.
        (1053, Data::Int32(vec![0; CONFLICTS.len()])),
        (1054, texts(&CONFLICTS)),
        (1055, texts(&CONFLICTS.map(|_| ""))),
        (1085, text("/bin/sh")),
        // The device and the inode of a file, which tell hard links, and its language.
        (1095, ints(&|_| 1)),
        (1096, inodes),
        (1097, lines(&|_| String::new())),
        (1112, Data::Int32(vec![SENSE_EQUAL])),
        (1113, texts(&[&full])),
        (1116, Data::Int32(indexes)),
        (1117, Data::Texts(names)),
        (1118, Data::Texts(directories)),
        (1124, text("cpio")),
        (1125, text("xz")),
        (1126, text("6")),
        (5011, Data::Int32(vec![ALGORITHM])),
        (5062, text("utf-8")),
        (5092, texts(&[&sha256(packed)])),
        (5093, Data::Int32(vec![ALGORITHM])),
    ]
}

/// The package.
pub(crate) fn package(release: &Release) -> Result<Vec<u8>, String> {
    let files = files(release);
    let payload = cpio("./", &files, release.time);
    let packed = xz(&payload)?;
    let header_ = header(63, &entries(release, &files, &packed));
    let size = (header_.len() + packed.len()) as u32;
    let signature = [
        (273, Data::Text(sha256(&header_))),
        // The sizes of both, and of the payload unpacked.
        (1000, Data::Int32(vec![size])),
        (1007, Data::Int32(vec![payload.len() as u32])),
    ];
    let mut out = vec![0; 96];
    let full = format!("{NAME}-{}-{RELEASE}", version(&release.version));
    let mut put = |at: usize, bytes: &[u8]| match out.get_mut(at..at + bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            Ok(())
        }
        None => Err(format!("rpm: the name is too long: {full}")),
    };
    // Magic number and version of the format; a program; x86; the name; Linux; signatures are
    // headers.
    put(0, &[0xed, 0xab, 0xee, 0xdb, 3, 0, 0, 0, 0, 1])?;
    put(10, full.get(..full.len().min(65)).unwrap_or_default().as_bytes())?;
    put(76, &[0, 1, 0, 5])?;
    out.extend(header(62, &signature));
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend(header_);
    out.extend(packed);
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::dist::contents::tests::release;

    #[test]
    fn a_header_has_its_region_first_and_points_back_to_it_at_its_end() {
        let made = header(63, &[(1000, Data::Text("a".into())), (1006, Data::Int32(vec![7]))]);
        let word = |at: usize| u32::from_be_bytes(made[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(8), word(12)), (0x8eade801, 3, 24));
        // The region: its data are at 8 in the store, behind "a\0", two bytes of padding, and the
        // number.
        assert_eq!([word(16), word(20), word(24), word(28)], [63, 7, 8, 16]);
        assert_eq!([word(32), word(36), word(40), word(44)], [1000, 6, 0, 1]);
        assert_eq!([word(48), word(52), word(56), word(60)], [1006, 4, 4, 1]);
        assert_eq!((&made[64..68], word(68)), (&b"a\0\0\0"[..], 7));
        assert_eq!([word(72), word(76), word(80) as i32 as u32, word(84)], [63, 7, (-48i32) as u32, 16]);
        assert_eq!(made.len(), 88);
    }

    #[test]
    fn tags_ascend_and_each_file_has_one_value_of_each_kind() {
        let files = files(&release());
        let entries = entries(&release(), &files, b"");
        assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (tag, data) in entries.iter().filter(|(tag, _)| {
            [1028, 1030, 1033, 1034, 1035, 1036, 1037, 1039, 1040, 1045, 1095, 1096, 1097, 1116, 1117]
                .contains(tag)
        }) {
            assert_eq!(data.encode().2, files.len(), "tag {tag}");
        }
        let paths: Vec<&str> = files.iter().map(|entry| entry.path.as_str()).collect();
        assert!(paths.contains(&"usr/bin/dtrace") && paths.contains(&"usr/share/dtrace/toolkit"));
        assert!(!paths.contains(&"usr") && !paths.contains(&"usr/share/man"));
    }

    #[test]
    fn what_the_script_runs_is_required() {
        let run = PREIN.split(['|', '\n', '>']).filter_map(|part| part.split_whitespace().next());
        for command in run.filter(|word| !word.starts_with([':', '/'])) {
            assert!(REQUIRES.iter().any(|(path, ..)| path.rsplit('/').next() == Some(command)), "{command}");
        }
    }

    #[test]
    fn a_package_is_the_same_bytes_each_time() {
        let one = package(&release()).unwrap();
        assert!(one == package(&release()).unwrap());
        assert!(one.starts_with(b"\xed\xab\xee\xdb\x03\0\0\0\0\x01dtrace-rs-0.1.0-1\0"));
    }
}
