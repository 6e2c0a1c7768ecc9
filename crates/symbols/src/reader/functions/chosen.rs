//! The implementations of indirect functions in a running process.

use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use files::open::ProcessDir;
use proc::maps;
use text::resolver::{Steps, Unresolved};

use crate::functions::Function;
use crate::reader::elf::Elf;
use crate::reader::elf::code::Region;
use crate::wire::functions::Running;

/// The slots of a file in the memory of a process.
pub(super) struct Chosen {
    process: ProcessDir,
    memory: File,
    /// The memory that the process cannot write, by which resolvers have chosen.
    constant: OnceCell<Vec<Range<u64>>>,
    steps: RefCell<Steps>,
    /// What is added to an address of the file.
    bias: u64,
    slots: Vec<(u64, u64)>,
}

impl Chosen {
    pub(super) fn open(elf: &Elf, running: &Running) -> Option<Chosen> {
        let process = ProcessDir::open(running.pid).ok()?;
        let memory = process.memory().ok()?;
        let bias = running.start.wrapping_sub(elf.address(running.offset)?);
        let (constant, steps) = (OnceCell::new(), RefCell::default());
        Some(Chosen { process, memory, constant, steps, bias, slots: elf.slots() })
    }

    /// The address of the implementation that was chosen for a resolver: an address of the file,
    /// which may be outside.
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

impl Chosen {
    /// The same, found by executing the resolver on a model.
    fn executed(&self, resolver: u64) -> Result<u64, Unresolved> {
        let constant = self.constant.get_or_init(|| {
            let text = self.process.maps();
            text.and_then(|text| maps::constant(text, maps::MAX_READ_ALL)).unwrap_or_default()
        });
        let mut read = |address: u64, into: &mut [u8]| {
            let after = constant.partition_point(|range| range.start <= address);
            let range = after.checked_sub(1).and_then(|n| constant.get(n));
            let end = address.checked_add(into.len() as u64);
            let inside = range.zip(end).is_some_and(|(range, end)| end <= range.end);
            inside && self.memory.read_exact_at(into, address).is_ok()
        };
        let entry = self.bias.wrapping_add(resolver);
        let addr = text::resolver::resolve(entry, &mut self.steps.borrow_mut(), &mut read)?;
        Ok(addr.wrapping_sub(self.bias))
    }
}

/// Moves an indirect function to the implementation that a process uses. The error says why that is
/// not known.
pub(super) fn resolve(
    function: &mut Function,
    chosen: Option<&Chosen>,
    elf: &Elf,
    region: impl Fn(u64) -> Option<Region>,
    size_of: impl Fn(u64) -> Option<u64>,
) -> Result<(), String> {
    let chosen = chosen.ok_or("no process is known that has chosen an implementation")?;
    let addr = match chosen.of(function.address) {
        Some(addr) => addr,
        // The file has no record, because it does not call the function itself.
        None => chosen.executed(function.address).map_err(|e| e.to_string())?,
    };
    if addr == 0u64.wrapping_sub(chosen.bias) {
        return Err("its resolver has chosen none".into());
    }
    let elsewhere = match elf.has_interpreter() {
        true => "the implementation is in another file",
        // The libc of a static program chooses after its entry.
        false => "none is chosen yet, or one of another file: -x evaltime=main waits until main",
    };
    let region = region(addr).ok_or(elsewhere)?;
    let size = size_of(addr).or_else(|| elf.unwound_size(addr));
    let size = size.ok_or("no function is known to begin where the implementation does")?;
    function.address = addr;
    function.offset = region.offset + (addr - region.start);
    function.size = size.min(region.end - addr);
    Ok(())
}
