//! The dictionaries in a section: one, or an archive of several.
//!
//! A linker makes one dictionary of the types of all units. Where two units have different types of
//! one name, the types of each are in a dictionary of its own, whose parent has the others, and the
//! section is an archive.
//!
//! ```text
//!  u64 0x8b47f2a4d7623eeb, u64 model, u64 number of dictionaries, u64 names, u64 bodies
//!  for each dictionary: u64 name, counted from names; u64 length and dictionary, counted from bodies
//! ```

use crate::bytes::{malformed, text};
use crate::query::Error;

const MAGIC: u64 = 0x8b47_f2a4_d762_3eeb;
/// Bytes before the entries of the dictionaries.
const HEADER: usize = 40;
/// The most dictionaries.
const MAX_DICTS: u64 = 1 << 16;

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn from(bytes: &[u8], at: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(at).ok()?..)
}

/// Names and bytes of the dictionaries. That of a section with one has no name.
pub(super) fn dicts(section: &[u8]) -> Result<Vec<(&str, &[u8])>, Error> {
    if number(section, 0) != Some(MAGIC) {
        return Ok(vec![("", section)]);
    }
    let header = |n: usize| number(section, 8 * n).ok_or_else(|| malformed("a short header of an archive"));
    let (count, names, bodies) = (header(2)?, header(3)?, header(4)?);
    if count > MAX_DICTS {
        return Err(Error::Large);
    }
    let entry = |n: usize| {
        let at = HEADER + 16 * n;
        let name = text(from(section, names)?, u32::try_from(number(section, at)?).ok()?)?;
        let body = from(from(section, bodies)?, number(section, at + 8)?)?;
        let length = usize::try_from(number(body, 0)?).ok()?;
        Some((name, body.get(8..)?.get(..length)?))
    };
    let entries = (0..count as usize).map(|n| entry(n).ok_or_else(|| malformed("an entry of an archive")));
    let entries: Vec<(&str, &[u8])> = entries.collect::<Result<_, _>>()?;
    // Each is read: many that are the same bytes would be work without end.
    let sum: usize = entries.iter().map(|(_, body)| body.len()).fold(0, usize::saturating_add);
    if sum > section.len() {
        return Err(malformed("dictionaries that overlap"));
    }
    Ok(entries)
}
