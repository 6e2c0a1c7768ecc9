//! Where all the code of a function is: a compiler may have put parts of it elsewhere, which its
//! entry lists (`DW_AT_ranges`).
//!
//! ```text
//!  first entries of all units ──► ranges of units
//!  an address ──► its unit ──► one walk over it ──► the functions of the unit with their ranges ──► the one that has the address
//! ```
//!
//! A unit is read when an address in it is asked for, and in it nothing but functions. The bytes
//! that are walked are bounded ([`MOST`]).

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use gimli::{AttributeValue, Dwarf, EndianRcSlice, LittleEndian, Unit, constants as dw};

use crate::query::{Error, Load};
use crate::split::{Bytes, SplitFiles, Splits, open_unit};

type Slice = EndianRcSlice<LittleEndian>;

/// The names of the sections that are read.
pub const EXTENT_SECTIONS: [&str; 8] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_str",
    ".debug_line_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_ranges",
    ".debug_rnglists",
];

/// Those of them that matter only where there are files of units: the names of these.
const NAMES: [&str; 3] = [".debug_str", ".debug_line_str", ".debug_str_offsets"];

/// Bytes of units that are walked.
const MOST: u64 = 256 << 20;

/// The most ranges of a function. Compilers make two, and as many as there are blocks where each
/// has a section.
const MAX_RANGES: usize = 64;

/// The most ranges of all units, and of all functions of the units that were read.
const MAX_ALL: usize = 1 << 21;

/// The code of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it is entered.
    pub entry: u64,
    /// All its code, in the order of addresses.
    pub ranges: Vec<Range<u64>>,
}

/// The functions of a unit.
#[derive(Default)]
struct Functions {
    all: Vec<Rc<Extent>>,
    /// The first address of each range, the one behind it, and the number of its function; in the
    /// order of addresses.
    ranges: Vec<(u64, u64, u32)>,
}

/// The functions of a file, by the addresses of their code.
pub struct Extents {
    dwarf: Dwarf<Slice>,
    splits: Splits,
    /// The ranges of units, each with where its unit begins; sorted.
    units: Vec<(u64, u64, usize)>,
    known: HashMap<usize, Functions>,
    /// Bytes that may still be walked.
    left: u64,
    /// Ranges that may still be kept.
    ranges_left: usize,
}

impl Extents {
    /// Reads the sections of a file. `is_split`: it has units in files of their own.
    pub fn read<E: From<Error>>(
        own: Load<'_, E>,
        is_split: bool,
        files: &mut dyn SplitFiles<E>,
    ) -> Result<Extents, E> {
        let dwarf = Dwarf::load(|id| {
            let is_read = EXTENT_SECTIONS.contains(&id.name()) && (is_split || !NAMES.contains(&id.name()));
            let bytes = if is_read { own(id.name())? } else { Vec::new() };
            Ok::<_, E>(EndianRcSlice::new(Rc::from(bytes), LittleEndian))
        })?;
        let splits = if is_split { Splits::read(&dwarf, files)? } else { Splits::default() };
        let mut all = Extents {
            dwarf,
            splits,
            units: Vec::new(),
            known: HashMap::new(),
            left: MOST,
            ranges_left: MAX_ALL,
        };
        all.find_units()?;
        Ok(all)
    }

    fn find_units(&mut self) -> Result<(), Error> {
        let mut headers = self.dwarf.units();
        // A damaged header hides the units behind it.
        while let Ok(Some(header)) = headers.next() {
            let Some(start) = header.debug_info_offset().map(|at| at.0) else { continue };
            let Ok((unit, root)) = open_unit(&self.dwarf, header) else { continue };
            let Ok(mut ranges) = self.dwarf.die_ranges(&unit, &root) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                if range.begin < range.end {
                    self.units.push((range.begin, range.end, start));
                }
                if self.units.len() > MAX_ALL {
                    return Err(Error::Large);
                }
            }
        }
        self.units.sort_unstable();
        Ok(())
    }

    /// The function that has the code at an address.
    pub fn of(&mut self, address: u64) -> Option<Rc<Extent>> {
        // Units do not overlap, but for code that the linker has left out.
        let after = self.units.partition_point(|(begin, ..)| *begin <= address);
        let (_, _, unit) = *self.units.get(after.checked_sub(1)?)?;
        let (_, end, _) = *self.units.get(after - 1)?;
        if address >= end {
            return None;
        }
        if !self.known.contains_key(&unit) {
            // A damaged unit has the functions before the damage.
            let mut functions = Functions::default();
            let _ = self.walk(unit, &mut functions);
            functions.ranges.sort_unstable();
            self.known.insert(unit, functions);
        }
        let functions = self.known.get(&unit)?;
        let after = functions.ranges.partition_point(|(begin, ..)| *begin <= address);
        let (_, end, number) = *functions.ranges.get(after.checked_sub(1)?)?;
        (address < end).then(|| functions.all.get(number as usize).cloned())?
    }

    /// Adds the functions of a unit.
    fn walk(&mut self, start: usize, into: &mut Functions) -> Result<(), Error> {
        let (skeleton, _) = open_unit(&self.dwarf, self.dwarf.unit_header(gimli::DebugInfoOffset(start))?)?;
        let mut left = (self.left, self.ranges_left);
        let file = self.splits.of_skeleton(start as u64);
        let split = file.and_then(|file| {
            let empty = EndianRcSlice::new(Bytes::from([]), LittleEndian);
            let slice = |bytes: &Bytes| EndianRcSlice::new(bytes.clone(), LittleEndian);
            Some((file, self.splits.dwarf(file, &self.dwarf, slice, empty)?))
        });
        let done = match split {
            None => walk(&self.dwarf, &skeleton, &mut left, into),
            Some((file, dwarf)) => {
                let mut headers = dwarf.units();
                loop {
                    let Some(header) = headers.next()? else { break Ok(()) };
                    if !self.splits.is_unit(file, &dwarf, &header) {
                        continue;
                    }
                    let (mut unit, _) = open_unit(&dwarf, header)?;
                    unit.copy_relocated_attributes(&skeleton);
                    if let Err(error) = walk(&dwarf, &unit, &mut left, into) {
                        break Err(error);
                    }
                }
            }
        };
        (self.left, self.ranges_left) = left;
        done
    }
}

/// Adds the functions of a unit, also those that are inside of others: GCC describes a lambda
/// there.
fn walk(
    dwarf: &Dwarf<Slice>,
    unit: &Unit<Slice>,
    (left, ranges_left): &mut (u64, usize),
    into: &mut Functions,
) -> Result<(), Error> {
    *left = left.checked_sub(unit.header.length_including_self() as u64).ok_or(Error::Large)?;
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if abbreviation.tag() != dw::DW_TAG_subprogram {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let (mut low, mut high, mut entry, mut ranges) = (None, None, None, None);
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            let value = attribute.value();
            match attribute.name() {
                dw::DW_AT_low_pc => low = dwarf.attr_address(unit, value)?,
                dw::DW_AT_entry_pc => entry = Some(value),
                dw::DW_AT_high_pc => high = Some(value),
                dw::DW_AT_ranges => ranges = dwarf.attr_ranges(unit, value)?,
                _ => {}
            }
        }
        let mut all = Vec::new();
        let mut first = low;
        if let Some(mut ranges) = ranges {
            first = None;
            while let Some(range) = ranges.next()? {
                // 0 is what the linker writes for code that it has left out.
                if range.begin == 0 || range.begin >= range.end {
                    continue;
                }
                first = first.or(Some(range.begin));
                all.push(range.begin..range.end);
                if all.len() > MAX_RANGES {
                    break;
                }
            }
        } else if let (Some(low), Some(high)) = (low.filter(|low| *low != 0), high) {
            let end = match high {
                AttributeValue::Addr(end) => Some(end),
                AttributeValue::DebugAddrIndex(_) => dwarf.attr_address(unit, high)?,
                other => other.udata_value().and_then(|size| low.checked_add(size)),
            };
            all.extend(end.filter(|end| low < *end).map(|end| low..end));
        }
        let Some(first) = first.filter(|_| !all.is_empty() && all.len() <= MAX_RANGES) else { continue };
        let entry = entry.and_then(|value| dwarf.attr_address(unit, value).ok()?).unwrap_or(first);
        let entry = if all.iter().any(|range| range.contains(&entry)) { entry } else { first };
        all.sort_unstable_by_key(|range| (range.start, range.end));
        let number = u32::try_from(into.all.len()).map_err(|_| Error::Large)?;
        *ranges_left = ranges_left.checked_sub(all.len()).ok_or(Error::Large)?;
        into.ranges.extend(all.iter().map(|range| (range.start, range.end, number)));
        into.all.push(Rc::new(Extent { entry, ranges: all }));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
