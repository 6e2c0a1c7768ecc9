//! The functions and source lines of a file: from its own debug information, or from that of its
//! debug file.

use std::cell::Cell;

use debuginfo::{LINE_SECTIONS, Lines, SourceFrame, SplitFiles};

use super::demangle::demangled;
use super::elf::{Elf, ElfError};
use super::types::NoTypes;

/// Bytes that a file's sections need, compressed or not.
pub(crate) fn size(elf: &Elf) -> u64 {
    LINE_SECTIONS.iter().map(|name| elf.section_size(name.as_bytes())).fold(0, u64::saturating_add)
}

/// Reads the functions and lines of a file, in at most `most` bytes of memory, of which `left` are
/// left.
pub(crate) fn read(
    elf: &Elf,
    supplement: Option<&Elf>,
    files: &mut dyn SplitFiles<NoTypes>,
    (left, most): (&Cell<u64>, u64),
) -> Result<Lines, NoTypes> {
    let take = |elf: &Elf, name: &str| -> Result<Vec<u8>, NoTypes> {
        let bytes = elf.contents(name.as_bytes(), left.get())?;
        left.set(left.get().saturating_sub(bytes.len() as u64));
        // Its bytes are copied once.
        match left.get().checked_sub(bytes.len() as u64) {
            Some(_) => Ok(bytes),
            None => Err(ElfError::Large(2 * bytes.len() as u64).into()),
        }
    };
    let mut own = |name: &str| take(elf, name);
    match supplement {
        Some(other) => Lines::read_split(&mut own, Some(&mut |name: &str| take(other, name)), files, most),
        None => Lines::read_split(&mut own, None, files, most),
    }
}

/// The functions and lines at an address. What is damaged has none.
pub(crate) fn frames(lines: &mut Lines, address: u64, raw: bool) -> Vec<SourceFrame> {
    let mut frames = lines.frames(address).unwrap_or_default();
    if !raw {
        for frame in &mut frames {
            frame.function = frame.function.take().map(demangled);
        }
    }
    frames
}
