//! One dictionary of CTF, version 3: types, and the names of what has them.
//!
//! ```text
//!  header      u16 0xdff2, u8 4 (that is version 3), u8 flags, then 12 times u32: the label and the name of the parent, the name of
//!              the unit, and where the sections begin, counted from the end of the header; the last one is the length of the strings
//!  sections    labels │ objects │ functions │ names of objects │ names of functions │ variables │ types │ strings    (may be zlib)
//!
//!  objects, functions    u32 type of each symbol; without a section of names in the order of the table of symbols
//!  variables             u32 name, u32 type
//!  types                 u32 name, u32 info, u32 size or type, where that is ffffffff u64 size (upper half first), then the parts
//!                        info: bits 26–31 kind, bit 25 visible by its name, bits 0–23 number of parts
//!  name                  bit 31: in the strings of the symbols, else in those of the dictionary; bits 0–30: where
//! ```
//!
//! A type's number is its place among the types, from 1 on. Those of a dictionary with a parent
//! have bit 31 besides; a number without it is one of the parent.

use std::ops::Range;
use std::rc::Rc;

use crate::blob::MAX_PARTS;
use crate::bytes::{malformed, number, text};
use crate::query::Error;

/// Bytes of the header.
const HEADER: usize = 52;
const MAGIC: [u8; 2] = [0xf2, 0xdf];
/// Version 3, as it is numbered in the header.
const VERSION: u8 = 4;
/// The most bytes of all dictionaries of a file. Those of a kernel have some twenty megabytes.
pub(super) const MAX_SIZE: usize = 64 << 20;
/// From this size on, the members of a struct have offsets of 64 bits.
const LARGE_STRUCT: u64 = 1 << 29;
/// The bit of a number of a type that is in a dictionary with a parent.
pub(super) const OF_CHILD: u32 = 1 << 31;

/// The sections are zlib.
const COMPRESSED: u8 = 1;
/// The section of functions has types, as it is described here.
const HAS_FUNCTIONS: u8 = 2;
/// Symbols and their strings are those of the dynamic linker.
const DYNAMIC: u8 = 8;

/// Kinds of types.
pub(super) mod kind {
    pub(in super::super) const UNKNOWN: u32 = 0;
    pub(in super::super) const INTEGER: u32 = 1;
    pub(in super::super) const FLOAT: u32 = 2;
    pub(in super::super) const POINTER: u32 = 3;
    pub(in super::super) const ARRAY: u32 = 4;
    pub(in super::super) const FUNCTION: u32 = 5;
    pub(in super::super) const STRUCT: u32 = 6;
    pub(in super::super) const UNION: u32 = 7;
    pub(in super::super) const ENUM: u32 = 8;
    pub(in super::super) const FORWARD: u32 = 9;
    pub(in super::super) const TYPEDEF: u32 = 10;
    pub(in super::super) const VOLATILE: u32 = 11;
    pub(in super::super) const CONST: u32 = 12;
    pub(in super::super) const RESTRICT: u32 = 13;
    pub(in super::super) const SLICE: u32 = 14;
}

/// Sections, by their place in the header.
#[derive(Clone, Copy)]
enum Section {
    Objects = 1,
    Functions = 2,
    ObjectNames = 3,
    FunctionNames = 4,
    Variables = 5,
    Types = 6,
    Strings = 7,
}

/// Where a section is.
fn range(starts: &[usize; 9], section: Section) -> Range<usize> {
    let place = |n: usize| starts.get(n).copied().unwrap_or(0);
    place(section as usize)..place(section as usize + 1)
}

/// A dictionary.
pub(super) struct Dict {
    /// What follows the header.
    bytes: Vec<u8>,
    /// Where the sections begin, and where the last one ends.
    starts: [usize; 9],
    flags: u8,
    parent: u32,
    /// Where each type is, from the number 1 on.
    types: Vec<u32>,
    /// The strings of the symbols.
    external: Rc<[u8]>,
}

/// A type.
pub(super) struct Type<'a> {
    pub(super) kind: u32,
    /// True if its name means it.
    pub(super) is_visible: bool,
    /// Reference to its name.
    pub(super) name: u32,
    /// The number of its parts.
    pub(super) count: usize,
    pub(super) size: u64,
    /// Reference to the type that it is made from.
    pub(super) target: u32,
    parts: &'a [u8],
}

/// A member of a struct or union.
pub(super) struct Field {
    pub(super) name: u32,
    /// Bits from the beginning.
    pub(super) at: u64,
    pub(super) ty: u32,
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).filter_map(|word| number(word, 0))
}

impl Dict {
    /// Reads a dictionary that needs at most `left` bytes. The strings of the symbols are those of
    /// the dynamic linker, or the others.
    pub(super) fn read(bytes: &[u8], left: usize, external: [&Rc<[u8]>; 2]) -> Result<Dict, Error> {
        let (Some(header), Some(packed)) = (bytes.get(..HEADER), bytes.get(HEADER..)) else {
            return Err(malformed("a short header of CTF"));
        };
        if header.get(..2) != Some(&MAGIC) {
            return Err(malformed("no header of CTF"));
        }
        let (version, flags) = (header.get(2).copied().unwrap_or(0), header.get(3).copied().unwrap_or(0));
        if version != VERSION {
            let why = format!("a version of CTF that is not read ({version} in the header, not {VERSION})");
            return Err(Error::Malformed(why));
        }
        let field = |n: usize| number(header, 4 + 4 * n).unwrap_or(0);
        let mut starts: [usize; 9] = std::array::from_fn(|n| field(3 + n) as usize);
        // The last field is a length. Both are below four gigabytes.
        starts[8] += starts[7];
        if !starts.is_sorted() {
            return Err(malformed("sections that overlap"));
        }
        if starts[8] > left {
            return Err(Error::Large);
        }
        let unpacked = match flags & COMPRESSED {
            0 => packed.get(..starts[8]).map(<[u8]>::to_vec),
            // The output grows as it comes.
            _ => miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, starts[8])
                .ok()
                .filter(|unpacked| unpacked.len() == starts[8]),
        };
        let bytes = unpacked.ok_or_else(|| malformed("a section that ends outside of its dictionary"))?;
        let [dynamic, own] = external;
        let external = if flags & DYNAMIC == 0 { own } else { dynamic }.clone();
        let mut dict = Dict { bytes, starts, flags, parent: field(1), types: Vec::new(), external };
        let Range { start: mut at, end } = range(&starts, Section::Types);
        while at < end {
            let (_, next) = decode(&dict.bytes, at)?;
            dict.types.push(at as u32);
            at = next;
        }
        if at != end {
            return Err(malformed("a type that ends outside of its section"));
        }
        Ok(dict)
    }

    /// Bytes of memory.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + 4 * self.types.len()
    }

    /// The name of the dictionary with the types of several.
    pub(super) fn parent(&self) -> Option<&str> {
        self.text(self.parent)
    }

    /// True if the types of its parent are numbered before its own.
    pub(super) fn is_child(&self) -> bool {
        self.parent != 0
    }

    /// True if its symbols are those of the dynamic linker.
    pub(super) fn is_dynamic(&self) -> bool {
        self.flags & DYNAMIC != 0
    }

    /// The number of types.
    pub(super) fn len(&self) -> u32 {
        self.types.len() as u32
    }

    /// A type by its number, from 1 on.
    pub(super) fn at(&self, number: u32) -> Option<Type<'_>> {
        let at = *self.types.get((number as usize).checked_sub(1)?)?;
        Some(decode(&self.bytes, at as usize).ok()?.0)
    }

    fn section(&self, section: Section) -> &[u8] {
        self.bytes.get(range(&self.starts, section)).unwrap_or_default()
    }

    pub(super) fn text(&self, name: u32) -> Option<&str> {
        const EXTERNAL: u32 = 1 << 31;
        match name & EXTERNAL {
            0 => text(self.section(Section::Strings), name),
            _ => text(&self.external, name & !EXTERNAL),
        }
    }

    /// Names and types of objects, then of functions. The symbols without an own section of names
    /// are those of the table, in its order.
    pub(super) fn symbols<'a>(
        &'a self,
        table: [&'a [&'a str]; 2],
    ) -> [Box<dyn Iterator<Item = (&'a str, u32)> + 'a>; 2] {
        let [objects, functions] = table;
        [
            self.of_section((Section::Objects, Section::ObjectNames), objects),
            self.of_section((Section::Functions, Section::FunctionNames), functions),
        ]
    }

    fn of_section<'a>(
        &'a self,
        (types, names): (Section, Section),
        table: &'a [&'a str],
    ) -> Box<dyn Iterator<Item = (&'a str, u32)> + 'a> {
        if matches!(types, Section::Functions) && self.flags & HAS_FUNCTIONS == 0 {
            return Box::new(std::iter::empty());
        }
        let (types, names) = (numbers(self.section(types)), self.section(names));
        let is_typed = |(name, ty): &(&str, u32)| *ty != 0 && !name.is_empty();
        match names.is_empty() {
            true => Box::new(table.iter().copied().zip(types).filter(is_typed)),
            false => {
                let names = numbers(names).map(|name| self.text(name).unwrap_or(""));
                Box::new(names.zip(types).filter(is_typed))
            }
        }
    }

    /// Names and types of variables and functions that a linker has written for those without a
    /// dynamic symbol (`--ctf-variables`).
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, u32)> {
        let entries = self.section(Section::Variables).chunks_exact(8);
        entries.filter_map(|entry| Some((self.text(number(entry, 0)?)?, number(entry, 4)?)))
    }
}

/// The type at a place, and where the next one is.
fn decode(bytes: &[u8], at: usize) -> Result<(Type<'_>, usize), Error> {
    let short = || malformed("a short type");
    let word = |n: usize| number(bytes, at + 4 * n).ok_or_else(short);
    let (name, info, last) = (word(0)?, word(1)?, word(2)?);
    let (size, start) = match last {
        u32::MAX => (u64::from(word(3)?) << 32 | u64::from(word(4)?), at + 20),
        last => (u64::from(last), at + 12),
    };
    let (kind, count) = (info >> 26, (info & 0xff_ffff) as usize);
    let length = match kind {
        kind::INTEGER | kind::FLOAT => 4,
        kind::SLICE => 8,
        kind::ARRAY => 12,
        // An even number of arguments.
        kind::FUNCTION => 4 * (count + count % 2),
        kind::ENUM => 8 * count,
        kind::STRUCT | kind::UNION if size < LARGE_STRUCT => 12 * count,
        kind::STRUCT | kind::UNION => 16 * count,
        kind::UNKNOWN | kind::POINTER | kind::FORWARD..=kind::RESTRICT => 0,
        _ => return Err(malformed("an unknown kind of types")),
    };
    let parts = bytes.get(start..start + length).ok_or_else(short)?;
    let is_visible = info >> 25 & 1 != 0;
    Ok((Type { kind, is_visible, name, count, size, target: last, parts }, start + length))
}

impl Type<'_> {
    /// A word of its parts.
    pub(super) fn word(&self, n: usize) -> u32 {
        number(self.parts, 4 * n).unwrap_or(0)
    }

    /// The members of a struct or union.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> + '_ {
        let is_large = self.size >= LARGE_STRUCT;
        self.parts.chunks_exact(if is_large { 16 } else { 12 }).filter_map(move |part| {
            let [name, offset, ty] = [number(part, 0)?, number(part, 4)?, number(part, 8)?];
            let at = match is_large {
                true => u64::from(offset) << 32 | u64::from(number(part, 12)?),
                false => u64::from(offset),
            };
            Some(Field { name, at, ty })
        })
    }

    /// The enumerators: references to names, and values.
    pub(super) fn enumerators(&self) -> impl Iterator<Item = (u32, i64)> + '_ {
        let parts = self.parts.chunks_exact(8);
        parts.filter_map(|part| Some((number(part, 0)?, i64::from(number(part, 4)? as i32))))
    }

    /// The parameters of a function, and whether others may follow. A file may have any number of
    /// them: they are so many as an answer can have.
    pub(super) fn parameters(&self) -> (Vec<u32>, bool) {
        let is_variadic = self.count.checked_sub(1).is_some_and(|last| self.word(last) == 0);
        let own = self.count - usize::from(is_variadic);
        (numbers(self.parts).take(own.min(MAX_PARTS)).collect(), is_variadic)
    }

    /// Of a part of an integer: bits before it, and its own.
    pub(super) fn bits(&self) -> (u32, u32) {
        let word = self.word(1);
        (word & 0xffff, word >> 16)
    }
}
