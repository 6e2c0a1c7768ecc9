//! Rows of the probe table: see [`plane::probe_table`]; and names: see [`plane::names`].

use plane::names::chunk_strings;
use plane::probe_table::{CHUNK_ROWS, CLAUSES, EPID, GENERATION, ID, NAMES, PID};

use crate::mir::{Builder, Helper, Jmp, Label, MapRef, Size, V};

/// The address of a row. Jumps to `none` where the table has no such row.
pub fn probe_row(b: &mut Builder, row: V, none: Label) -> V {
    in_chunk(b, MapRef::Probes, CHUNK_ROWS, row, none)
}

/// The address of the text of an interned string. Jumps to `none` where the table has no such
/// string.
pub(crate) fn name_text(b: &mut Builder, storage: u32, number: V, none: Label) -> V {
    in_chunk(b, MapRef::Names, chunk_strings(storage), number, none)
}

/// The address of an element in a map of chunks of `each` elements, a power of two. Jumps to `none`
/// where there is no such chunk.
fn in_chunk(b: &mut Builder, map: MapRef, each: u32, number: V, none: Label) -> V {
    let key = b.stack(8);
    let chunk = b.shr(number, each.trailing_zeros());
    b.slot_store(Size::B4, key, 0, chunk);
    let (table, address) = (b.map(map), b.slot_addr(key, 0));
    let chunk = b.call(Helper::MAP_LOOKUP_ELEM, &[table, address]);
    b.br(Jmp::Eq, chunk, 0, none);
    let within = b.and(number, each - 1);
    b.slot_store(Size::B4, key, 0, within);
    let address = b.slot_addr(key, 0);
    let at = b.call(Helper::MAP_LOOKUP_ELEM, &[chunk, address]);
    b.br(Jmp::Eq, at, 0, none);
    at
}

/// The number and the address of the row that a cookie names. Jumps to `gone` where the row has
/// another generation: then the site was removed, or is not complete yet.
pub fn probe_of_cookie(b: &mut Builder, cookie: V, gone: Label) -> (V, V) {
    let row = b.low32(cookie);
    let at = probe_row(b, row, gone);
    // Everything else in the row is loaded after the generation, which was stored last. (arm64:
    // this must be a load with acquire order.)
    let generation = b.load(Size::B4, at, GENERATION as i16);
    let wanted = b.shr(cookie, 32);
    b.br(Jmp::Ne, generation, wanted, gone);
    (row, at)
}

/// Jumps to `out` unless one of these clauses of the program is enabled at the site. The clauses
/// are given by their positions in the program.
pub fn row_has_clause(b: &mut Builder, at: V, clauses: impl Iterator<Item = u32>, out: Label) {
    let mut masks = [0u64; 3];
    for n in clauses {
        if let Some(mask) = masks.get_mut(n as usize / 64) {
            *mask |= 1 << (n % 64);
        }
    }
    let mut found = None;
    for (word, mask) in (0..).zip(masks).filter(|(_, mask)| *mask != 0) {
        let bits = b.load(Size::B8, at, CLAUSES as i16 + 8 * word);
        let bits = b.and(bits, mask as i64);
        found = Some(match found {
            Some(others) => b.or(others, bits),
            None => bits,
        });
    }
    if let Some(found) = found {
        b.br(Jmp::Eq, found, 0, out);
    }
}

/// The enabled-probe id of the first clause at the site of a row.
pub(crate) fn row_epid(b: &mut Builder, at: V) -> V {
    b.load(Size::B4, at, EPID as i16)
}

/// A fact about the probe of a row: column 0 is the id, columns 1 to 4 are the interned parts of
/// the name, column 5 is the process of the provider.
pub(crate) fn row_fact(b: &mut Builder, at: V, column: usize) -> V {
    let offset = match column {
        0 => ID,
        5 => PID,
        n => NAMES + 4 * (n as u32 - 1),
    };
    b.load(Size::B4, at, offset as i16)
}
