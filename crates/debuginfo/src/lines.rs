//! The functions and source lines at an address: which functions the compiler has put inline there,
//! and where in the source each of them is.
//!
//! The work is that of `addr2line`, which reads a unit when an address is in it. Two things are
//! done here because the input is hostile. The library recurses over nested functions, so the depth
//! of a unit is tested before the library reads it. And what it has read stays in its memory, so
//! the context is made anew when the units that were read may need more than the limit.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult};
use gimli::{Dwarf, EndianRcSlice, LittleEndian, UnitType};

use crate::query::{Error, Load, MAX_NAME};
use crate::split::{Bytes, NoSplitFiles, SplitFiles, Splits};

type Slice = EndianRcSlice<LittleEndian>;

/// The names of the sections that are read.
pub const LINE_SECTIONS: [&str; 10] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_str",
    ".debug_line_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_line",
    ".debug_aranges",
];

/// The most functions at one address. Those outside of the innermost ones are left out.
pub const MAX_INLINED: usize = 64;

/// The most entries in entries. Compilers nest a few dozen.
const MAX_DEPTH: isize = 1024;

/// The most ranges of addresses of all units.
const MAX_RANGES: usize = 1 << 22;

/// Bytes of memory for a byte of a line program that was read: a row for an opcode.
const ROW: u64 = 24;

/// A function at an address, and the place in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// The name of the function: the mangled one, if there is one.
    pub function: Option<String>,
    /// The path of the source file, as the compiler was given it.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
}

/// The functions and lines of a file.
pub struct Lines {
    dwarf: Arc<Dwarf<Slice>>,
    context: Context<Slice>,
    splits: Splits,
    units: Places,
    /// Bytes of the sections.
    sections: u64,
    /// Bytes of memory, at most, of what the context has read.
    parsed: u64,
    /// Bytes of memory for all.
    most: u64,
    /// The units that the context has read.
    read: HashSet<usize>,
}

impl Lines {
    /// Reads the sections of a file, and of the file with what it shares with others. `most`: bytes
    /// of memory.
    pub fn read<E: From<Error>>(
        own: Load<'_, E>,
        shared: Option<Load<'_, E>>,
        most: u64,
    ) -> Result<Lines, E> {
        Self::read_split(own, shared, &mut NoSplitFiles, most)
    }

    /// The same, with the files of units that are in files of their own.
    pub fn read_split<E: From<Error>>(
        own: Load<'_, E>,
        shared: Option<Load<'_, E>>,
        files: &mut dyn SplitFiles<E>,
        most: u64,
    ) -> Result<Lines, E> {
        let mut sections = 0;
        let mut read = |from: Load<'_, E>| {
            Dwarf::load(|id| {
                let bytes = match LINE_SECTIONS.contains(&id.name()) {
                    true => from(id.name())?,
                    false => Vec::new(),
                };
                sections += bytes.len() as u64;
                Ok::<_, E>(EndianRcSlice::new(Rc::from(bytes), LittleEndian))
            })
        };
        let mut dwarf = read(own)?;
        if let Some(shared) = shared {
            dwarf.set_sup(read(shared)?);
        }
        let splits = Splits::read(&dwarf, files)?;
        sections += splits.memory();
        let units = Places::read(&dwarf)?;
        // The library wants an `Arc`; nothing is sent to another thread.
        #[allow(clippy::arc_with_non_send_sync)]
        let dwarf = Arc::new(dwarf);
        let context = Context::from_arc_dwarf(dwarf.clone()).map_err(Error::from)?;
        Ok(Lines { dwarf, context, splits, units, sections, parsed: 0, most, read: HashSet::new() })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        self.sections + self.parsed
    }

    /// The functions at an address of the file, the innermost first. The last one has the code; the
    /// others were put inline there. Empty if nothing is known of the address. A name is known
    /// without a line, and a line without a name.
    pub fn frames(&mut self, address: u64) -> Result<Vec<SourceFrame>, Error> {
        if address == u64::MAX {
            // No code has it, and there is no end behind it.
            return Ok(Vec::new());
        }
        self.prepare(address)?;
        let mut lookup = self.context.find_frames(address);
        let mut frames = loop {
            lookup = match lookup {
                LookupResult::Output(frames) => break frames?,
                LookupResult::Load { load, continuation } => {
                    let file = self.splits.of_id(load.dwo_id);
                    let split = file.and_then(|file| self.splits.dwarf(file, &load.parent, slice, empty()));
                    #[allow(clippy::arc_with_non_send_sync)]
                    let split = split.map(Arc::new);
                    continuation.resume(split)
                }
            };
        };
        let mut all = Vec::new();
        while let Some(frame) = frames.next()? {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let location = frame.location.as_ref();
            all.push(SourceFrame {
                function: name.map(|name| cut(&name)).filter(|name| !name.is_empty()),
                file: location.and_then(|l| l.file).map(cut).filter(|file| !file.is_empty()),
                line: location.and_then(|l| l.line).filter(|line| *line != 0),
            });
            // The outermost one has the place of the last call.
            if all.len() > MAX_INLINED {
                all.remove(MAX_INLINED - 1);
            }
        }
        Ok(all)
    }

    /// Makes sure that the units of an address can be read.
    fn prepare(&mut self, address: u64) -> Result<(), Error> {
        for start in self.units.at(address) {
            if self.read.contains(&start) {
                continue;
            }
            let mut needed = needs(&self.dwarf, start)?;
            if let Some(file) = self.splits.of_skeleton(start as u64)
                && let Some(split) = self.splits.dwarf(file, &self.dwarf, slice, empty())
            {
                let mut headers = split.units();
                while let Some(header) = headers.next()? {
                    let Some(start) = header.debug_info_offset() else { continue };
                    needed = needed.saturating_add(needs(&split, start.0)?);
                }
            }
            if self.sections.saturating_add(needed) > self.most {
                return Err(Error::Large);
            }
            if self.memory().saturating_add(needed) > self.most {
                self.context = Context::from_arc_dwarf(self.dwarf.clone())?;
                self.read.clear();
                self.parsed = 0;
            }
            self.read.insert(start);
            self.parsed += needed;
        }
        Ok(())
    }
}

/// A range of addresses, and the unit that has it.
struct Range {
    begin: u64,
    end: u64,
    /// The greatest end of this range and those before it.
    last: u64,
    unit: usize,
}

/// The units, by the addresses of their code.
struct Places {
    /// Sorted.
    ranges: Vec<Range>,
    /// Those that do not say where their code is.
    anywhere: Vec<usize>,
}

impl Places {
    fn read(dwarf: &Dwarf<Slice>) -> Result<Places, Error> {
        let mut places = Places { ranges: Vec::new(), anywhere: Vec::new() };
        let mut headers = dwarf.units();
        // A damaged header hides the units behind it.
        while let Ok(Some(header)) = headers.next() {
            let Some(start) = header.debug_info_offset().map(|at| at.0) else { continue };
            let Ok(unit) = dwarf.unit(header) else { continue };
            let before = places.ranges.len();
            if let Ok(mut ranges) = dwarf.unit_ranges(&unit) {
                while let Ok(Some(range)) = ranges.next() {
                    if range.begin < range.end {
                        places.ranges.push(Range {
                            begin: range.begin,
                            end: range.end,
                            last: 0,
                            unit: start,
                        });
                    }
                    if places.ranges.len() > MAX_RANGES {
                        return Err(Error::Large);
                    }
                }
            }
            // Units of types, and those that only others refer to, have no lines.
            let is_other = matches!(unit.header.type_(), UnitType::Type { .. } | UnitType::Partial);
            if places.ranges.len() == before && unit.line_program.is_some() && !is_other {
                places.anywhere.push(start);
            }
        }
        places.ranges.sort_unstable_by_key(|r| (r.begin, r.end));
        let mut last = 0;
        for range in &mut places.ranges {
            last = range.end.max(last);
            range.last = last;
        }
        Ok(places)
    }

    /// The units that may have code at an address.
    fn at(&self, address: u64) -> Vec<usize> {
        let after = self.ranges.partition_point(|r| r.begin <= address);
        let before = self.ranges.get(..after).unwrap_or_default().iter().rev();
        let near = before.take_while(|r| r.last > address).filter(|r| r.end > address);
        self.anywhere.iter().copied().chain(near.map(|r| r.unit)).collect()
    }
}

/// Bytes of memory that the functions and lines of a unit need. `Err` if its entries are nested too
/// deeply.
fn needs(dwarf: &Dwarf<Slice>, start: usize) -> Result<u64, Error> {
    let unit = dwarf.unit(dwarf.unit_header(gimli::DebugInfoOffset(start))?)?;
    let mut entries = unit.entries_raw(None)?;
    let mut count = 0u64;
    while !entries.is_empty() {
        if entries.next_depth() > MAX_DEPTH {
            return Err(Error::Large);
        }
        if let Some(abbreviation) = entries.read_abbreviation()? {
            count += 1;
            entries.skip_attributes(abbreviation.attributes())?;
        }
    }
    let program = unit.line_program.as_ref().map_or(0, |p| p.header().raw_program_buf().len() as u64);
    // The list grows by doubling.
    Ok(count * 64 + program.saturating_mul(2 * ROW))
}

fn slice(bytes: &Bytes) -> Slice {
    EndianRcSlice::new(bytes.clone(), LittleEndian)
}

fn empty() -> Slice {
    EndianRcSlice::new(Bytes::from([]), LittleEndian)
}

/// A text of at most [`MAX_NAME`] bytes.
fn cut(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    let end = (0..=text.len().min(MAX_NAME)).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
