//! The types of a file: from its own debug information, or from that of its debug file.

use std::cell::Cell;
use std::rc::Rc;

use debuginfo::{BTF, CTF_SECTIONS, DebugTypes, LOCATIONS, SECTIONS, SplitFiles};

use super::elf::{Elf, ElfError};

/// Why a file has no types.
pub(crate) enum NoTypes {
    /// The file or its debug information cannot be read.
    Elf(ElfError),
    Debug(debuginfo::Error),
    /// It has no debug information.
    Absent,
    /// The servers that the user has named have none either, and why.
    NotServed(String),
    /// Its debug information refers to a file that is not there.
    Supplement(String),
    /// It is in files of its own, and the first of them is not there.
    Split(String),
}

impl From<ElfError> for NoTypes {
    fn from(error: ElfError) -> NoTypes {
        NoTypes::Elf(error)
    }
}

impl From<debuginfo::Error> for NoTypes {
    fn from(error: debuginfo::Error) -> NoTypes {
        NoTypes::Debug(error)
    }
}

impl std::fmt::Display for NoTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoTypes::Elf(ElfError::Large(bytes)) => write!(f, "its debug information needs {bytes} bytes of memory"),
            NoTypes::Elf(error) => write!(f, "its debug information cannot be read: {error}"),
            NoTypes::Debug(error) => error.fmt(f),
            NoTypes::Absent => f.write_str(
                "it has no debug information (DWARF, BTF, CTF): it was compiled without -g, and its debug file is not installed",
            ),
            NoTypes::NotServed(why) => write!(f, "it has no debug information (DWARF, BTF, CTF), and none was fetched: {why}"),
            NoTypes::Supplement(name) => {
                write!(f, "its debug information shares types with {name}, which is not installed")
            }
            NoTypes::Split(name) => write!(f, "its debug information is in {name}, which is not found"),
        }
    }
}

/// The section with the types as CTF.
const CTF: &str = CTF_SECTIONS[0];

/// The section with the types as DWARF.
pub(crate) const INFO: &[u8] = b".debug_info";

/// True if a file has types without DWARF.
pub(crate) fn has_compact(elf: &Elf) -> bool {
    [BTF, CTF].iter().any(|name| elf.section_size(name.as_bytes()) > 0)
}

/// Bytes that a file's sections need, compressed or not.
pub(crate) fn size(elf: &Elf) -> u64 {
    let sum = |names: &[&str]| {
        let names = names.iter().filter(|name| is_read(elf, name));
        names.map(|name| elf.section_size(name.as_bytes())).fold(0, u64::saturating_add)
    };
    match elf.section_size(INFO) {
        0 if elf.section_size(BTF.as_bytes()) > 0 => sum(&[BTF]),
        0 if elf.section_size(CTF.as_bytes()) > 0 => sum(&CTF_SECTIONS),
        0 => 0,
        _ => sum(&SECTIONS),
    }
}

/// False for sections that matter in files of Go alone.
fn is_read(elf: &Elf, name: &str) -> bool {
    !LOCATIONS.contains(&name) || elf.is_of_go()
}

/// Reads the types of a file that has them, in at most `most` bytes of memory, of which `left` are
/// left.
pub(crate) fn read(
    elf: &Elf,
    supplement: Option<&Elf>,
    files: &mut dyn SplitFiles<NoTypes>,
    (left, most): (&Cell<u64>, u64),
) -> Result<Rc<DebugTypes>, NoTypes> {
    let take = |elf: &Elf, name: &str| -> Result<Vec<u8>, NoTypes> {
        if !is_read(elf, name) {
            return Ok(Vec::new());
        }
        let bytes = elf.contents(name.as_bytes(), left.get())?;
        left.set(left.get().saturating_sub(bytes.len() as u64));
        Ok(bytes)
    };
    let mut own = |name: &str| take(elf, name);
    let has = |section: &str| elf.section_size(section.as_bytes()) > 0;
    if elf.section_size(INFO) == 0 {
        // Of the tables of symbols, those of 64-bit files are read.
        let mut of_ctf = |name: &str| if name == CTF || elf.is_64 { own(name) } else { Ok(Vec::new()) };
        return match (has(BTF), has(CTF)) {
            (true, _) => Ok(Rc::new(DebugTypes::of_btf(take(elf, BTF)?)?)),
            (false, true) => within(DebugTypes::of_ctf(&mut of_ctf)?, most),
            (false, false) => Err(NoTypes::Absent),
        };
    }
    if supplement.is_none()
        && let Some((name, _)) = elf.supplement_link()
    {
        let name = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
        return Err(NoTypes::Supplement(diagnostics::control::name(name).into_owned()));
    }
    let types = match supplement {
        Some(other) => DebugTypes::read_split(&mut own, Some(&mut |name: &str| take(other, name)), files)?,
        None => DebugTypes::read_split(&mut own, None, files)?,
    };
    if let Some(missing) = types.missing().filter(|_| types.is_empty()) {
        return Err(NoTypes::Split(diagnostics::control::name(missing.as_bytes()).into_owned()));
    }
    within(types, most)
}

/// Types that need at most this memory.
fn within(types: DebugTypes, most: u64) -> Result<Rc<DebugTypes>, NoTypes> {
    match types.memory() {
        memory if memory > most => Err(ElfError::Large(memory).into()),
        _ => Ok(Rc::new(types)),
    }
}
