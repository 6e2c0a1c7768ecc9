//! The tables of symbols that CTF refers to: a section of types may be in their order, and where a
//! variable is only they say.

use std::collections::HashMap;
use std::rc::Rc;

use super::one::One;
use crate::bytes::text;

/// Bytes of a symbol.
const SYMBOL: usize = 24;
/// The most symbols of a table that are read.
const MAX_SYMBOLS: usize = 1 << 20;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const SHN_UNDEF: u16 = 0;
const SHN_ABS: u16 = 0xfff1;

/// A table of symbols and its strings.
pub(super) struct Table {
    pub(super) symbols: Vec<u8>,
    pub(super) strings: Rc<[u8]>,
}

/// A symbol of the file.
struct Symbol<'a> {
    name: &'a str,
    is_function: bool,
    address: u64,
}

impl Table {
    /// The objects and functions that the file defines: those that have a place in a section of
    /// types.
    fn each(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.symbols.chunks_exact(SYMBOL).take(MAX_SYMBOLS).filter_map(|symbol| {
            let name = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?);
            let section = u16::from_le_bytes(symbol.get(6..8)?.try_into().ok()?);
            let address = u64::from_le_bytes(symbol.get(8..16)?.try_into().ok()?);
            let is_function = match symbol.get(4)? & 15 {
                STT_OBJECT => false,
                STT_FUNC => true,
                _ => return None,
            };
            let is_nameless = self.strings.get(name as usize).is_none_or(|first| *first == 0);
            let is_absolute = !is_function && section == SHN_ABS && address == 0;
            // One whose name is no text has its place in the order, too.
            let name = text(&self.strings, name).unwrap_or("");
            let is_boundary = matches!(name, "_START_" | "_END_");
            let is_left_out = section == SHN_UNDEF || is_nameless || is_absolute || is_boundary;
            (!is_left_out).then_some(Symbol { name, is_function, address })
        })
    }

    /// The names of objects and of functions, in the order of the table.
    pub(super) fn names(&self) -> [Vec<&str>; 2] {
        let (functions, objects): (Vec<_>, Vec<_>) = self.each().partition(|symbol| symbol.is_function);
        [objects, functions].map(|symbols| symbols.iter().map(|symbol| symbol.name).collect())
    }

    /// Adds where the objects are.
    pub(super) fn addresses<'a>(&'a self, all: &mut HashMap<&'a str, One<u64>>) {
        for symbol in self.each().filter(|symbol| !symbol.is_function) {
            One::add(all, symbol.name, symbol.address);
        }
    }
}
