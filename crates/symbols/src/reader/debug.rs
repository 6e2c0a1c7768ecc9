//! Separate debug files with the symbols of stripped files.
//!
//! The search paths are those of debuggers, resolved in the root of the process that mapped the
//! file:
//!
//! ```text
//!  /usr/lib/debug/.build-id/ab/cdef….debug    by build id
//!  DIR/NAME   DIR/.debug/NAME   /usr/lib/debug/DIR/NAME    by the name in .gnu_debuglink, DIR being the file's
//! ```
//!
//! Only the last component of the name is used, because the file's author controls it. A candidate
//! is accepted only if its build id matches, or, if one of the files has no build id, its checksum.

use std::rc::Rc;

use super::elf::Elf;
use files::open::{Root, Rules};

/// Size limits of debug files. Only a few sections are read from a file with a build id.
pub(crate) const RULES: Rules = Rules { size: (64, 4 << 30) };

/// Maximum size of a file whose checksum is computed.
const MAX_SUMMED: u64 = 512 << 20;

/// The directory of the system's debug files.
pub(crate) const SYSTEM: &[u8] = b"/usr/lib/debug";

/// Finds the file with the types that a debug file shares with others. The author of the debug file
/// has chosen its name, so a file is accepted only if it is where such files are, and has the build
/// id.
pub(crate) fn find_supplement(root: &Root, path: &[u8], elf: &Elf) -> Option<Elf> {
    let (link, id) = elf.supplement_link()?;
    let mut places = search_paths(path, Some(&id), Some(&link));
    let climbs = |path: &[u8]| path.split(|b| *b == b'/').any(|part| part == b"..");
    if link.starts_with(SYSTEM) && !climbs(&link) {
        places.push(link);
    }
    places.iter().find_map(|place| {
        let handle = root.find(place).ok()?;
        let found = Elf::open(Rc::new(handle.open(&RULES).ok()?)).ok()?;
        (found.build_id().as_ref() == Some(&id)).then_some(found)
    })
}

/// Finds the debug file of `elf`. The path and inode are those of the mapping.
pub(crate) fn find(root: &Root, path: &[u8], inode: u64, elf: &Elf) -> Option<Elf> {
    let id = elf.build_id();
    let link = elf.debug_link();
    let places = search_paths(path, id.as_deref(), link.as_ref().map(|(name, _)| &name[..]));
    places.iter().find_map(|place| {
        let handle = root.find(place).ok()?;
        if handle.stat().ok()?.inode == inode {
            return None;
        }
        let debug = Elf::open(Rc::new(handle.open(&RULES).ok()?)).ok()?;
        belongs(elf, link.as_ref(), &debug).then_some(debug)
    })
}

/// True if a file is the debug file of `elf`, which has this debug link.
pub(super) fn belongs(elf: &Elf, link: Option<&(Vec<u8>, u32)>, debug: &Elf) -> bool {
    match (elf.build_id(), debug.build_id()) {
        (Some(id), Some(other)) => id == other,
        _ => link.is_some_and(|(_, sum)| {
            debug.size() <= MAX_SUMMED && debug.checksum().is_ok_and(|found| found == *sum)
        }),
    }
}

pub(super) fn search_paths(path: &[u8], id: Option<&[u8]>, link: Option<&[u8]>) -> Vec<Vec<u8>> {
    let mut places = Vec::new();
    if let Some((first, rest)) = id.and_then(<[u8]>::split_first) {
        let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
        places.push([SYSTEM, format!("/.build-id/{first:02x}/{rest}.debug").as_bytes()].concat());
    }
    let name = link.and_then(|link| link.rsplit(|b| *b == b'/').next()).unwrap_or_default();
    if !matches!(name, b"" | b"." | b"..") {
        let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let dir = path.get(..end).unwrap_or_default();
        places.push([dir, b"/", name].concat());
        places.push([dir, b"/.debug/", name].concat());
        places.push([SYSTEM, dir, b"/", name].concat());
    }
    places
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    use testing::elf::{Elf as TestElf, GLOBAL_FUNCTION, TEXT};

    use super::*;

    /// A root with a stripped program, `/opt/bin/x`.
    struct TestRoot {
        base: PathBuf,
        root: Root,
    }

    impl TestRoot {
        fn new(test: &str) -> TestRoot {
            let base = std::env::temp_dir().join(format!("symbols-debug-{test}-{}", std::process::id()));
            for dir in ["opt/bin/.debug", "usr/lib/debug/opt/bin", "usr/lib/debug/.build-id/ab"] {
                std::fs::create_dir_all(base.join("root").join(dir)).unwrap();
            }
            let root = Root::from_fd(File::open(base.join("root")).unwrap().into());
            TestRoot { base, root }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.base.join("root").join(name)
        }

        /// The name of the program's code in its debug file.
        fn name(&self, program: &TestElf) -> Option<String> {
            let path = self.path("opt/bin/x");
            std::fs::write(&path, program.bytes()).unwrap();
            let elf = Elf::open(Rc::new(program.bytes())).unwrap();
            let inode = path.metadata().unwrap().ino();
            let debug = find(&self.root, b"/opt/bin/x", inode, &elf)?;
            debug.table(1 << 20).unwrap().find(TEXT).map(|(_, name)| name)
        }
    }

    impl Drop for TestRoot {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.base);
        }
    }

    /// A debug file, and a program whose debug link has its checksum.
    fn pair(name: &str, link: &str) -> (Vec<u8>, TestElf) {
        let symbols = vec![(name.to_string(), 0, 16, GLOBAL_FUNCTION)];
        let debug = TestElf { code: vec![0x90; 16], symbols, ..TestElf::default() }.bytes();
        let debug_link = Some((link.into(), crc32fast::hash(&debug)));
        (debug, TestElf { code: vec![0x90; 16], debug_link, ..TestElf::default() })
    }

    #[test]
    fn a_debug_file_is_used_from_each_directory_if_its_checksum_or_build_id_matches() {
        let p = TestRoot::new("places");
        for place in ["opt/bin/x.debug", "opt/bin/.debug/x.debug", "usr/lib/debug/opt/bin/x.debug"] {
            let (debug, program) = pair(place, "x.debug");
            assert_eq!(p.name(&program), None);
            std::fs::write(p.path(place), &debug).unwrap();
            assert_eq!(p.name(&program).as_deref(), Some(place));
            // A program of another build.
            let (_, other) = pair("other", "x.debug");
            assert_eq!(p.name(&other), None);
            std::fs::remove_file(p.path(place)).unwrap();
        }
        let id = Some(vec![0xab, 1, 2]);
        let (_, program) = pair("", "none");
        let program = TestElf { build_id: id.clone(), ..program };
        let symbols = vec![("by_id".to_string(), 0, 16, GLOBAL_FUNCTION)];
        let debug = TestElf { code: vec![0x90; 16], symbols, build_id: id, debug_link: None };
        let place = p.path("usr/lib/debug/.build-id/ab/0102.debug");
        std::fs::write(&place, debug.bytes()).unwrap();
        assert_eq!(p.name(&program).as_deref(), Some("by_id"));
        std::fs::write(&place, TestElf { build_id: Some(vec![0xab, 1, 3]), ..debug }.bytes()).unwrap();
        assert_eq!(p.name(&program), None);
    }

    #[test]
    fn a_candidate_that_is_not_a_regular_file_is_skipped_without_waiting() {
        let p = TestRoot::new("hostile");
        let (debug, program) = pair("right", "x.debug");
        std::fs::write(p.path("usr/lib/debug/opt/bin/x.debug"), &debug).unwrap();
        std::fs::write(p.base.join("outside"), &debug).unwrap();
        let place = p.path("opt/bin/x.debug");
        let fifo = std::ffi::CString::new(place.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a string that outlives the call.
        let fifo = || assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
        let device = || symlink("/dev/zero", &place).unwrap();
        let sparse = || File::create(&place).unwrap().set_len(40 << 30).unwrap();
        let program_itself = || std::fs::hard_link(p.path("opt/bin/x"), &place).unwrap();
        for prepare in [&fifo as &dyn Fn(), &device, &sparse, &program_itself] {
            std::fs::write(p.path("opt/bin/x"), program.bytes()).unwrap();
            prepare();
            assert_eq!(p.name(&program).as_deref(), Some("right"));
            std::fs::remove_file(&place).unwrap();
        }
        // A matching file outside of the root is not used.
        std::fs::remove_file(p.path("usr/lib/debug/opt/bin/x.debug")).unwrap();
        let outside = p.base.join("outside").into_os_string().into_string().unwrap();
        for link in [&outside[..], "../../../outside", "../outside"] {
            assert_eq!(p.name(&pair("right", link).1), None);
            symlink(link, &place).unwrap();
            assert_eq!(p.name(&program), None, "{link}");
            std::fs::remove_file(&place).unwrap();
        }
    }

    #[test]
    fn search_paths_use_the_build_id_and_the_last_component_of_the_link() {
        let text = |id: Option<&[u8]>, link: Option<&str>| {
            let places = search_paths(b"/opt/bin/x", id, link.map(str::as_bytes));
            places.into_iter().map(|p| String::from_utf8(p).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(text(Some(&[0xab, 0xcd, 0x0e]), None), ["/usr/lib/debug/.build-id/ab/cd0e.debug"]);
        for link in ["x.debug", "/etc/x.debug", "../../x.debug"] {
            let places = ["/opt/bin/x.debug", "/opt/bin/.debug/x.debug", "/usr/lib/debug/opt/bin/x.debug"];
            assert_eq!(text(None, Some(link)), places);
        }
        for link in ["", "..", "/", "a/.."] {
            assert_eq!(text(None, Some(link)), [""; 0]);
        }
    }
}
