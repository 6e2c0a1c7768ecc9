//! The files of split debug information: found, opened and read as debug files are.
//!
//! Their paths are those of the compiler, in the root of the process. Whoever has built the program
//! has chosen them, so what is there is opened only if it is a regular file, and is taken only if
//! it has the number that the program names (`debuginfo` tests that).
//!
//! ```text
//!  package   PROGRAM.dwp     /usr/lib/debug/PROGRAM.dwp
//!  unit      DIR/NAME.dwo    as the compiler has named it
//!            NAME.dwo        beside the program
//! ```

use std::cell::Cell;
use std::rc::Rc;

use debuginfo::{Read, SplitFiles, SplitUnit, Take};
use files::open::Root;

use super::debug::{RULES, SYSTEM};
use super::elf::{Elf, ElfError};
use super::types::NoTypes;

/// The index of a package.
const PACKAGE: &[u8] = b".debug_cu_index";
/// The entries of a unit.
const UNIT: &[u8] = b".debug_info.dwo";
/// The longest path.
const LONGEST: usize = 4096;

/// Finds the files of a program.
pub(crate) struct Finder<'a> {
    /// The root of the process.
    pub(crate) root: Option<&'a Root>,
    /// The path of the program.
    pub(crate) path: &'a [u8],
    /// Bytes of memory that are left.
    pub(crate) left: &'a Cell<u64>,
}

impl Finder<'_> {
    /// A file with a section.
    fn open(&self, path: &[u8], section: &[u8]) -> Option<Elf> {
        let handle = self.root?.find(path).ok()?;
        let elf = Elf::open(Rc::new(handle.open(&RULES).ok()?)).ok()?;
        (elf.section_size(section) > 0).then_some(elf)
    }

    /// A section of a file. What cannot be read is empty, but for want of memory.
    fn read(&self, elf: &Elf, name: &str, read: &mut u64) -> Result<Vec<u8>, NoTypes> {
        match elf.contents(name.as_bytes(), self.left.get()) {
            Ok(bytes) => {
                self.left.set(self.left.get().saturating_sub(bytes.len() as u64));
                *read += bytes.len() as u64;
                Ok(bytes)
            }
            Err(ElfError::Large(bytes)) => Err(ElfError::Large(bytes).into()),
            Err(_) => Ok(Vec::new()),
        }
    }
}

impl SplitFiles<NoTypes> for Finder<'_> {
    fn package(&mut self, read: Read<'_, NoTypes>) -> Result<(), NoTypes> {
        let beside = [self.path, b".dwp"].concat();
        let of_system = [SYSTEM, &beside].concat();
        let Some(elf) = [beside, of_system].iter().find_map(|path| self.open(path, PACKAGE)) else {
            return Ok(());
        };
        read(&mut |name: &str| self.read(&elf, name, &mut 0))
    }

    fn object(&mut self, unit: &SplitUnit, take: Take<'_, NoTypes>) -> Result<(), NoTypes> {
        for path in places(self.path, unit) {
            let Some(elf) = self.open(&path, UNIT) else { continue };
            let mut bytes = 0;
            if take(&mut |name: &str| self.read(&elf, name, &mut bytes))? {
                break;
            }
            // That of another build.
            self.left.set(self.left.get().saturating_add(bytes));
        }
        Ok(())
    }
}

/// Where the file of a unit may be.
fn places(program: &[u8], unit: &SplitUnit) -> Vec<Vec<u8>> {
    let is_whole = unit.path.first() == Some(&b'/');
    let named = if is_whole { unit.path.clone() } else { [&unit.directory, &b"/"[..], &unit.path].concat() };
    let end = program.iter().rposition(|b| *b == b'/').unwrap_or(0);
    let name = unit.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let beside = [program.get(..end).unwrap_or_default(), b"/", name].concat();
    let mut all = vec![named];
    all.extend((!matches!(name, b"" | b"." | b"..")).then_some(beside));
    all.retain(|path| path.first() == Some(&b'/') && path.len() <= LONGEST && !path.contains(&0));
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_unit_is_where_the_compiler_has_put_it_or_beside_the_program() {
        let text = |directory: &str, path: &str| {
            let unit = SplitUnit { directory: directory.into(), path: path.into() };
            let all = places(b"/opt/bin/x", &unit).into_iter();
            all.map(|path| String::from_utf8(path).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(text("/src", "obj/a.dwo"), ["/src/obj/a.dwo", "/opt/bin/a.dwo"]);
        assert_eq!(text("/src", "/obj/a.dwo"), ["/obj/a.dwo", "/opt/bin/a.dwo"]);
        assert_eq!(text("/opt/bin", "a.dwo"), ["/opt/bin/a.dwo"]);
        // What is no path of a file is not looked for.
        assert_eq!(text("", ".."), ["/.."]);
        assert_eq!(text("src", "a/"), [""; 0]);
        assert_eq!(text("src", "a\0b"), [""; 0]);
        assert_eq!(text("/src", &"a".repeat(5000)), [""; 0]);
    }
}
