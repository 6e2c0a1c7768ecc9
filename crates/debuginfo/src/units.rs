//! The units of a file, of its supplement and of its split files, and entries by their places in
//! them.
//!
//! ```text
//!  key of an entry    bits 40–63: the file    bits 0–39: bytes from the beginning of .debug_info
//! ```
//!
//! DWARF 4 may have units of one type in `.debug_types` (`-fdebug-types-section`). They count as a
//! file of their own, the last one. Those of split files are not read.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebuggingInformationEntry, DwAt, DwarfSections, EndianSlice, LittleEndian, Section,
    UnitOffset,
};

use crate::query::{Error, MAX_NAME};
use crate::split::{Splits, open_unit};

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
pub(crate) type Unit<'a> = gimli::Unit<Slice<'a>>;
pub(crate) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;
pub(crate) type Value<'a> = AttributeValue<Slice<'a>>;

/// The bit of a key above the place in a file.
const FILE: u32 = 40;

/// The number of the file itself.
const OWN: usize = 0;
/// That of its supplement.
const SUPPLEMENT: usize = 1;
/// That of the first file of split debug information.
const SPLIT: usize = 2;

/// The most units. The largest programs have some ten thousands.
const MAX_UNITS: usize = 1 << 20;
/// The most units of one type.
const MAX_TYPE_UNITS: usize = 1 << 22;

/// A unit, and the file that it is in.
pub(crate) struct InFile<'a> {
    pub(crate) unit: Unit<'a>,
    file: usize,
    /// Where it is in its section.
    start: u64,
    /// The language of the source.
    pub(crate) language: Option<gimli::DwLang>,
}

/// An entry with its unit.
#[derive(Clone)]
pub(crate) struct At<'a> {
    pub(crate) unit: Rc<InFile<'a>>,
    pub(crate) offset: UnitOffset,
}

/// Where the units are.
#[derive(Default)]
pub(crate) struct Headers {
    /// The first byte of each, by the number of the file.
    starts: Vec<Vec<u64>>,
    /// The units with one type, by its signature: the key of the type.
    signatures: HashMap<u64, u64>,
}

impl Headers {
    pub(crate) fn read(
        sections: &DwarfSections<Vec<u8>>,
        supplement: Option<&DwarfSections<Vec<u8>>>,
        splits: &Splits,
    ) -> Result<Headers, Error> {
        let mut all = Headers::default();
        let own: Dwarf<'_> = sections.borrow(slice);
        all.add(&own, |_| true)?;
        let none = Dwarf::default();
        let shared = supplement.map(|supplement| supplement.borrow(slice));
        all.add(shared.as_ref().unwrap_or(&none), |_| true)?;
        for number in 0..splits.len() {
            let split = splits.dwarf(number, &own, slice, Slice::default());
            let split = split.as_ref().unwrap_or(&none);
            all.add(split, |header| splits.is_unit(number, split, header))?;
        }
        all.add_types(&own)?;
        Ok(all)
    }

    /// Adds the units in `.debug_types`.
    fn add_types(&mut self, dwarf: &Dwarf<'_>) -> Result<(), Error> {
        let mut headers = dwarf.type_units();
        let headers = std::iter::from_fn(|| headers.next().ok().flatten());
        let units = headers.filter_map(|h| Some((h.debug_types_offset()?.0, h.type_())));
        self.add_units(units, MAX_TYPE_UNITS)
    }

    /// The number of the file that stands for `.debug_types`.
    fn types(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Adds the units of the next file.
    fn add<'a>(
        &mut self,
        dwarf: &Dwarf<'a>,
        is_meant: impl Fn(&gimli::UnitHeader<Slice<'a>>) -> bool,
    ) -> Result<(), Error> {
        let mut headers = dwarf.units();
        let headers = std::iter::from_fn(|| headers.next().ok().flatten()).filter(is_meant);
        let units = headers.filter_map(|h| Some((h.debug_info_offset()?.0, h.type_())));
        self.add_units(units, MAX_UNITS)
    }

    /// Adds the units of the next section: where each begins, and its type. A damaged header hides
    /// the units behind it.
    fn add_units(
        &mut self,
        units: impl Iterator<Item = (usize, gimli::UnitType<usize>)>,
        most: usize,
    ) -> Result<(), Error> {
        let (file, mut starts) = (self.starts.len(), Vec::new());
        for (start, of) in units {
            let start = start as u64;
            if start >> FILE != 0 {
                continue;
            }
            if let gimli::UnitType::Type { type_signature, type_offset }
            | gimli::UnitType::SplitType { type_signature, type_offset } = of
            {
                self.signatures.insert(type_signature.0, key(file, start, type_offset));
            }
            starts.push(start);
            if starts.len() > most {
                return Err(Error::Large);
            }
        }
        self.starts.push(starts);
        Ok(())
    }

    fn of_file(&self, file: usize) -> &[u64] {
        self.starts.get(file).map_or(&[], Vec::as_slice)
    }
}

fn slice(section: &(impl std::ops::Deref<Target = [u8]> + ?Sized)) -> Slice<'_> {
    EndianSlice::new(section, LittleEndian)
}

/// All units.
pub(crate) struct Units<'a> {
    dwarf: Dwarf<'a>,
    headers: &'a Headers,
    splits: &'a Splits,
    /// The files of split debug information that were asked for.
    opened: Vec<OnceCell<Option<Box<Dwarf<'a>>>>>,
    read: RefCell<HashMap<(usize, u64), Rc<InFile<'a>>>>,
    /// The prefixes of names in units with scopes.
    prefixes: RefCell<HashMap<u64, Rc<Prefixes>>>,
}

/// By the offset of an entry.
type Prefixes = HashMap<usize, Rc<str>>;

impl<'a> Units<'a> {
    pub(crate) fn new(
        sections: &'a DwarfSections<Vec<u8>>,
        supplement: Option<&'a DwarfSections<Vec<u8>>>,
        headers: &'a Headers,
        splits: &'a Splits,
    ) -> Units<'a> {
        let dwarf = sections.borrow_with_sup(supplement, slice);
        let opened = std::iter::repeat_with(OnceCell::new).take(splits.len()).collect();
        Units { dwarf, headers, splits, opened, read: RefCell::default(), prefixes: RefCell::default() }
    }

    fn dwarf(&self, file: usize) -> Option<&Dwarf<'a>> {
        match file {
            OWN => Some(&self.dwarf),
            SUPPLEMENT => self.dwarf.sup(),
            file if file == self.headers.types() => Some(&self.dwarf),
            _ => {
                let split = file - SPLIT;
                let open = || self.splits.dwarf(split, &self.dwarf, slice, Slice::default()).map(Box::new);
                self.opened.get(split)?.get_or_init(open).as_deref()
            }
        }
    }

    /// The sections that a unit is in.
    pub(crate) fn dwarf_of(&self, of: &InFile<'a>) -> Option<&Dwarf<'a>> {
        self.dwarf(of.file)
    }

    /// Every unit, without keeping it.
    pub(crate) fn each(&self) -> impl Iterator<Item = InFile<'a>> + '_ {
        let of = move |(file, starts): (usize, &'a Vec<u64>)| {
            starts.iter().filter_map(move |start| self.open(file, *start).ok())
        };
        self.headers.starts.iter().enumerate().flat_map(of)
    }

    fn open(&self, file: usize, start: u64) -> Result<InFile<'a>, Error> {
        let dwarf = self.dwarf(file).ok_or_else(no_entry)?;
        let at = usize::try_from(start).map_err(|_| no_entry())?;
        let header = match file == self.headers.types() {
            true => {
                let section = dwarf.debug_types.reader().slice().get(at..).ok_or_else(no_entry)?;
                gimli::DebugTypes::new(section, LittleEndian).units().next()?.ok_or_else(no_entry)?
            }
            false => dwarf.unit_header(gimli::DebugInfoOffset(at))?,
        };
        let (mut unit, root) = open_unit(dwarf, header)?;
        let language = root.attr_value(gimli::DW_AT_language).and_then(|value| match value {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        });
        // The addresses are in the program, and the skeleton says where.
        if let Some(skeleton) = file.checked_sub(SPLIT).and_then(|split| self.splits.skeleton(split)) {
            unit.copy_relocated_attributes(&self.open(OWN, skeleton)?.unit);
        }
        Ok(InFile { unit, file, start, language })
    }

    /// The entry of a key.
    pub(crate) fn at(&self, key: u64) -> Result<At<'a>, Error> {
        let (file, place) = ((key >> FILE) as usize, key & ((1 << FILE) - 1));
        let starts = self.headers.of_file(file);
        let before = starts.partition_point(|start| *start <= place);
        let start = *before.checked_sub(1).and_then(|at| starts.get(at)).ok_or_else(no_entry)?;
        let known = self.read.borrow().get(&(file, start)).cloned();
        let unit = match known {
            Some(unit) => unit,
            None => {
                let unit = Rc::new(self.open(file, start)?);
                self.read.borrow_mut().insert((file, start), unit.clone());
                unit
            }
        };
        Ok(At { unit, offset: UnitOffset((place - start) as usize) })
    }

    /// The key of the entry that an attribute refers to.
    pub(crate) fn target(&self, of: &InFile<'a>, value: &Value<'a>) -> Option<u64> {
        match value {
            AttributeValue::UnitRef(offset) => Some(of.key(*offset)),
            AttributeValue::DebugInfoRef(offset) => {
                let file = if of.file == self.headers.types() { OWN } else { of.file };
                Some(key(file, offset.0 as u64, UnitOffset(0)))
            }
            AttributeValue::DebugInfoRefSup(offset) => Some(key(SUPPLEMENT, offset.0 as u64, UnitOffset(0))),
            AttributeValue::DebugTypesRef(signature) => self.headers.signatures.get(&signature.0).copied(),
            _ => None,
        }
    }

    /// The type that an entry has.
    pub(crate) fn type_of(&self, at: &At<'a>, entry: &Entry<'a>) -> Option<u64> {
        let target = self.target(&at.unit, &entry.attr_value(gimli::DW_AT_type)?)?;
        if self.headers.signatures.is_empty() {
            return Some(target);
        }
        // A unit may have a declaration of a type that is in a unit of its own.
        let signed = self.at(target).ok().and_then(|at| {
            let entry = at.entry().ok()?;
            self.target(&at.unit, &entry.attr_value(gimli::DW_AT_signature)?)
        });
        Some(signed.unwrap_or(target))
    }

    /// The text of an attribute.
    pub(crate) fn text(&self, of: &InFile<'a>, value: Value<'a>) -> Option<&'a str> {
        let dwarf = self.dwarf(of.file)?;
        let bytes = dwarf.attr_string(&of.unit, value).ok()?;
        let text = match std::str::from_utf8(bytes.slice()) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(bytes.slice().get(..error.valid_up_to())?).ok()?,
        };
        let mut end = text.len().min(MAX_NAME);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.get(..end)
    }

    /// The text of an attribute of an entry.
    pub(crate) fn text_of(&self, of: &InFile<'a>, entry: &Entry<'a>, at: DwAt) -> Option<&'a str> {
        self.text(of, entry.attr_value(at)?)
    }

    /// The name of an entry with the scopes that it is in.
    pub(crate) fn qualified_name(&self, key: u64) -> Option<String> {
        let at = self.at(key).ok()?;
        let entry = at.entry().ok()?;
        let name = self.text_of(&at.unit, &entry, gimli::DW_AT_name)?;
        if !at.unit.has_scopes() {
            return Some(name.into());
        }
        let start = at.unit.key(UnitOffset(0));
        let known = self.prefixes.borrow().get(&start).cloned();
        let prefixes = known.unwrap_or_else(|| {
            let read: Rc<Prefixes> = Rc::new(crate::index::prefixes(self, &at.unit));
            self.prefixes.borrow_mut().insert(start, read.clone());
            read
        });
        Some(format!("{}{name}", prefixes.get(&at.offset.0).map_or("", |prefix| prefix)))
    }

    /// The first address of a function.
    pub(crate) fn low_pc(&self, of: &InFile<'a>, entry: &Entry<'a>) -> Option<u64> {
        let dwarf = self.dwarf(of.file)?;
        let low = |at| dwarf.attr_address(&of.unit, entry.attr_value(at)?).ok()?;
        if let Some(low) = low(gimli::DW_AT_low_pc).or_else(|| low(gimli::DW_AT_entry_pc)) {
            return Some(low);
        }
        // A function in several parts: the first one has the entry.
        entry.attr_value(gimli::DW_AT_ranges)?;
        dwarf.die_ranges(&of.unit, entry).ok()?.next().ok()?.map(|range| range.begin)
    }

    /// The bytes before a member of an object. `None` if they depend on the object, as those before
    /// a virtual base do.
    pub(crate) fn member_offset(of: &InFile<'a>, entry: &Entry<'a>) -> Option<u64> {
        let Some(value) = entry.attr_value(gimli::DW_AT_data_member_location) else { return Some(0) };
        let AttributeValue::Exprloc(expression) = value else {
            return Some(value.udata_value().unwrap_or(0));
        };
        // DWARF 2 has no other way to write a number: what is added to the address of the object.
        let mut operations = expression.operations(of.unit.encoding());
        match (operations.next(), operations.next()) {
            (Ok(Some(gimli::Operation::PlusConstant { value })), Ok(None)) => Some(value),
            _ => None,
        }
    }

    /// The address of a variable, if it has a fixed one.
    pub(crate) fn address(&self, of: &InFile<'a>, entry: &Entry<'a>) -> Option<u64> {
        let AttributeValue::Exprloc(expression) = entry.attr_value(gimli::DW_AT_location)? else {
            return None;
        };
        let mut operations = expression.operations(of.unit.encoding());
        let first = operations.next().ok()??;
        let whole = matches!(operations.next(), Ok(None));
        match first {
            gimli::Operation::Address { address } if whole => Some(address),
            gimli::Operation::AddressIndex { index } if whole => {
                self.dwarf(of.file)?.address(&of.unit, index).ok()
            }
            _ => None,
        }
    }
}

fn no_entry() -> Error {
    Error::Malformed("a reference leads nowhere".into())
}

fn key(file: usize, start: u64, offset: UnitOffset) -> u64 {
    start.wrapping_add(offset.0 as u64) & ((1 << FILE) - 1) | (file as u64) << FILE
}

impl InFile<'_> {
    /// False if its names are in no scopes, as those of C.
    fn has_scopes(&self) -> bool {
        use gimli::constants as dw;
        const C: [gimli::DwLang; 5] =
            [dw::DW_LANG_C, dw::DW_LANG_C89, dw::DW_LANG_C99, dw::DW_LANG_C11, dw::DW_LANG_C17];
        self.language.is_none_or(|language| !C.contains(&language))
    }

    /// The key of an entry.
    pub(crate) fn key(&self, offset: UnitOffset) -> u64 {
        key(self.file, self.start, offset)
    }
}

impl<'a> At<'a> {
    /// The entry.
    pub(crate) fn entry(&self) -> Result<Entry<'a>, Error> {
        Ok(self.unit.unit.entry(self.offset)?)
    }

    /// The key of the entry.
    pub(crate) fn key(&self) -> u64 {
        self.unit.key(self.offset)
    }

    /// The children of the entry, at most `most`.
    pub(crate) fn children(&self, most: usize) -> Result<Vec<Entry<'a>>, Error> {
        let mut cursor = self.unit.unit.entries_at_offset(self.offset)?;
        let mut children = Vec::new();
        let Some(own) = cursor.next_dfs()?.map(|entry| entry.has_children()) else { return Ok(children) };
        if !own {
            return Ok(children);
        }
        // The first entry behind one with children is its first child, or the end of the list.
        let mut next = match cursor.next_entry()? {
            true => cursor.current().cloned(),
            false => None,
        };
        while let Some(child) = next {
            children.push(child);
            if children.len() > most {
                return Err(Error::Large);
            }
            next = cursor.next_sibling()?.cloned();
        }
        Ok(children)
    }
}
