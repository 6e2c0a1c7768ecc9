//! The implementations of indirect functions in a running process.

use std::fs::File;
use std::os::unix::fs::FileExt;

use files::open::ProcessDir;

use crate::functions::Function;
use crate::reader::elf::Elf;
use crate::reader::elf::code::Region;
use crate::wire::functions::Running;

/// The slots of a file in the memory of a process.
pub(super) struct Chosen {
    memory: File,
    /// What is added to an address of the file.
    bias: u64,
    slots: Vec<(u64, u64)>,
}

impl Chosen {
    pub(super) fn open(elf: &Elf, running: &Running) -> Option<Chosen> {
        let memory = ProcessDir::open(running.pid).and_then(|process| process.memory()).ok()?;
        let bias = running.start.wrapping_sub(elf.address(running.offset)?);
        Some(Chosen { memory, bias, slots: elf.slots() })
    }

    /// The address of the implementation that was chosen for a resolver: an address of the file, which may be outside.
    fn of(&self, resolver: u64) -> Option<u64> {
        let from = self.slots.partition_point(|(r, _)| *r < resolver);
        let own = self.slots.get(from..)?.iter().take_while(|(r, _)| *r == resolver);
        let mut all = own.map(|(_, slot)| {
            let mut word = [0; 8];
            self.memory.read_exact_at(&mut word, self.bias.wrapping_add(*slot)).ok()?;
            Some(u64::from_ne_bytes(word).wrapping_sub(self.bias))
        });
        let first = all.next()??;
        // One that is not bound yet has another value.
        all.all(|other| other == Some(first)).then_some(first)
    }
}

/// Moves an indirect function to the implementation that a process uses. The error says why that is not known.
pub(super) fn resolve(
    function: &mut Function,
    chosen: Option<&Chosen>,
    elf: &Elf,
    region: impl Fn(u64) -> Option<Region>,
    size_of: impl Fn(u64) -> Option<u64>,
) -> Result<(), String> {
    let chosen = chosen.ok_or("no process is known that has chosen an implementation")?;
    let addr =
        chosen.of(function.address).ok_or("the file has no record of the implementation that was chosen")?;
    let region = region(addr).ok_or("the implementation is in another file")?;
    let size = size_of(addr).or_else(|| elf.unwound_size(addr));
    let size = size.ok_or("no function is known to begin where the implementation does")?;
    function.address = addr;
    function.offset = region.offset + (addr - region.start);
    function.size = size.min(region.end - addr);
    Ok(())
}
