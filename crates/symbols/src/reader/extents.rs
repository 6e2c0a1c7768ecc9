//! Where all the code of a function is, by the debug information of its file or of its debug file.

use std::cell::Cell;

use debuginfo::{EXTENT_SECTIONS, Extents, SplitFiles};

use super::elf::Elf;
use super::types::{INFO, NoTypes};

/// Reads what there is, in `left` bytes of memory. `None`: there is nothing, or it needs more.
pub(crate) fn read(
    elf: &Elf,
    files: &mut dyn SplitFiles<NoTypes>,
    is_split: bool,
    left: &Cell<u64>,
) -> Option<Extents> {
    let size = EXTENT_SECTIONS.iter().map(|name| elf.section_size(name.as_bytes()));
    if elf.section_size(INFO) == 0 || size.fold(0, u64::saturating_add) > left.get() / 2 {
        return None;
    }
    let mut own = |name: &str| -> Result<Vec<u8>, NoTypes> {
        let bytes = elf.contents(name.as_bytes(), left.get())?;
        left.set(left.get().saturating_sub(bytes.len() as u64));
        Ok(bytes)
    };
    Extents::read(&mut own, is_split, files).ok()
}
