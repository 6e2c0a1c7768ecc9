//! Where exceptions come back to functions: landing pads, from the tables of the unwinder of C++
//! and Rust (`.gcc_except_table`).
//!
//! ```text
//!  .eh_frame: a function ──► its table (LSDA) ──► base, call sites ──► a landing pad for each call that an exception may leave
//! ```
//!
//! A compiler may put what catches away from its function, and nothing in the code leads there: the
//! unwinder does. So the pads outside of the code that names them tell whose that is. Pads inside
//! are what one finds by decoding, and are left out.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, Pointer, Reader, UnwindSection};

use crate::read::Sections;

/// The most landing pads of a file that are kept.
const MAX_PADS: usize = 1 << 18;

/// An encoding of a pointer that says that there is none.
const OMITTED: u8 = 0xff;
/// The address is relative to its own place.
const RELATIVE: u8 = 0x10;

/// A landing pad outside of the code whose exceptions it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LandingPad {
    /// The first address of that code, and its size: a function or a part of one.
    pub start: u64,
    /// See `start`.
    pub size: u64,
    /// The address of the pad.
    pub pad: u64,
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The landing pads of a file that are outside of the code that names them, in the order of that
/// code. `tables` is the section with the tables, and its address. What is malformed is left out.
pub fn landing_pads(sections: &Sections<'_>, tables: (u64, &[u8])) -> Vec<LandingPad> {
    let mut all = Vec::new();
    let Some((addr, bytes)) = sections.eh_frame.filter(|_| !sections.is_narrow) else { return all };
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(addr).set_text(sections.text).set_got(sections.got);
    let mut entries = section.entries(&bases);
    // Tables do not overlap, so each byte is read once.
    let mut left = 2 * tables.1.len();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(function) = partial.parse(|section, bases, offset| section.cie_from_offset(bases, offset))
        else {
            continue;
        };
        let Some(Pointer::Direct(table)) = function.lsda() else { continue };
        let (start, size) = (function.initial_address(), function.len());
        let own = |pad: u64| pad.wrapping_sub(start) < size;
        let _ = read(tables, table, start, &mut left, |pad| {
            if !own(pad) && all.len() < MAX_PADS {
                all.push(LandingPad { start, size, pad });
            }
        });
        if left == 0 || all.len() >= MAX_PADS {
            break;
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Calls `found` with the landing pads of one table. `None`: it is malformed from there on.
fn read(
    (address, bytes): (u64, &[u8]),
    table: u64,
    function: u64,
    left: &mut usize,
    mut found: impl FnMut(u64),
) -> Option<()> {
    let at = usize::try_from(table.checked_sub(address)?).ok()?;
    let whole: Bytes<'_> = EndianSlice::new(bytes.get(at..)?, LittleEndian);
    let mut input = whole;
    let base = match input.read_u8().ok()? {
        OMITTED => function,
        encoding => {
            let here = table.wrapping_add((whole.len() - input.len()) as u64);
            let value = value(&mut input, encoding)?;
            match encoding & 0x70 {
                0 => value,
                RELATIVE => value.wrapping_add(here),
                _ => return None,
            }
        }
    };
    if input.read_u8().ok()? != OMITTED {
        input.read_uleb128().ok()?;
    }
    let encoding = input.read_u8().ok()?;
    let length = usize::try_from(input.read_uleb128().ok()?).ok()?;
    let mut sites = input.split(length).ok()?;
    while !sites.is_empty() {
        let before = sites.len();
        let (_start, _length) = (value(&mut sites, encoding)?, value(&mut sites, encoding)?);
        let pad = value(&mut sites, encoding)?;
        sites.read_uleb128().ok()?;
        *left = left.checked_sub(before - sites.len()).or_else(|| {
            *left = 0;
            None
        })?;
        if pad != 0 {
            found(base.wrapping_add(pad));
        }
    }
    Some(())
}

/// A number in an encoding of pointers.
fn value(input: &mut Bytes<'_>, encoding: u8) -> Option<u64> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => input.read_u64().ok(),
        0x01 => input.read_uleb128().ok(),
        0x02 => input.read_u16().ok().map(u64::from),
        0x03 => input.read_u32().ok().map(u64::from),
        0x09 => input.read_sleb128().ok().map(|value| value as u64),
        0x0a => input.read_i16().ok().map(|value| value as u64),
        0x0b => input.read_i32().ok().map(|value| value as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pads of a table at 0x5000 of a function at 0x1000.
    fn pads(table: &[u8]) -> (Option<()>, Vec<u64>) {
        let (mut all, mut left) = (Vec::new(), 1 << 10);
        let done = read((0x5000, table), 0x5000, 0x1000, &mut left, |pad| all.push(pad));
        (done, all)
    }

    #[test]
    fn pads_are_relative_to_the_function_or_to_a_base_of_their_own() {
        // No base, no types; call sites as ULEB128: one with a pad at 0x80, one without.
        let table = [0xff, 0xff, 0x01, 9, 0, 5, 0x80, 1, 1, 5, 2, 0, 0, 0xee];
        assert_eq!(pads(&table), (Some(()), vec![0x1080]));
        // A base that is relative to its place, 0x5001; types; call sites of four bytes.
        let mut table = vec![0x1b, 0xff, 0xef, 0xff, 0xff, 0x9b, 0x20, 0x03, 13];
        table.extend([0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(pads(&table), (Some(()), vec![0x4001]));
        // A base as it is.
        let mut table = vec![0x00, 0, 0x20, 0, 0, 0, 0, 0, 0, 0xff, 0x01, 4, 0, 5, 3, 0];
        assert_eq!(pads(&table), (Some(()), vec![0x2003]));
        for end in 0..table.len() {
            assert_eq!(pads(&table[..end]), (None, vec![]), "{end}");
        }
        // An encoding that does not exist.
        table[0] = 0x2f;
        assert_eq!(pads(&table), (None, vec![]));
    }

    #[test]
    fn any_bytes_are_read_in_bounded_time() {
        let mut seed = testing::rng::Rng::new(3);
        for _ in 0..20_000 {
            let size = seed.below(64);
            let bytes: Vec<u8> = (0..size).map(|_| seed.below(256) as u8).collect();
            let (mut count, mut left) = (0, 2 * size);
            let _ = read((0x5000, &bytes), 0x5000 + seed.below(8) as u64, 0x1000, &mut left, |_| count += 1);
            assert!(count <= size);
        }
    }
}
