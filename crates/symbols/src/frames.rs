//! What the reader knows of the frames of a file's functions.

use runtimes::Instance;
use unwind::Table;

/// A page of the address space.
const PAGE: u64 = 4096;

/// A part of a file that is loaded as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLoad {
    /// Its offset in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub size: u64,
    /// The address of its first byte.
    pub addr: u64,
}

/// The table by which stacks are walked through a file's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameTable {
    /// The rows, by the addresses of the file.
    pub table: Table,
    /// Where the file's code is.
    pub loads: Vec<CodeLoad>,
    /// The language runtime that is in the file.
    pub runtime: Option<Instance>,
}

impl FrameTable {
    /// The address in the file of the first byte of a mapping of its code, which is at this offset.
    /// A mapping begins with the page of its part.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let has =
            |l: &&CodeLoad| l.offset & !(PAGE - 1) <= offset && offset < l.offset.saturating_add(l.size);
        let load = self.loads.iter().find(has)?;
        Some(offset.wrapping_sub(load.offset).wrapping_add(load.addr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_begins_with_the_page_of_its_part() {
        let load = |offset, size, addr| CodeLoad { offset, size, addr };
        let loads = vec![load(0x1234, 0x2000, 0x40_2234), load(0x8000, 0x1000, 0x40_a000)];
        let file = FrameTable { loads, ..FrameTable::default() };
        assert_eq!(file.address(0x1000), Some(0x40_2000));
        assert_eq!(file.address(0x2000), Some(0x40_3000));
        assert_eq!(file.address(0x8000), Some(0x40_a000));
        assert_eq!((file.address(0), file.address(0x4000)), (None, None));
    }
}
