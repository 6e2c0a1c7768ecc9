//! Split debug information (`-gsplit-dwarf`): the program has a skeleton of each unit, and the
//! entries are in a file beside the object (`.dwo`) or in a package of such files (`.dwp`).
//!
//! Which file that is, the skeleton says: its path, and a number that the compiler has made of its
//! contents. Whoever asks for the types finds the files ([`SplitFiles`]); a file with another
//! number is none. The addresses stay in the program, so an entry of such a unit is read with the
//! skeleton beside it. A unit without a file has no names.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, DwarfPackage, DwarfPackageSections, DwarfSections,
    DwoId, EndianSlice, LittleEndian, Reader, SectionId, Unit, UnitHeader, UnitType, constants as dw,
};

use crate::query::Error;

/// The most units with a file of their own.
const MAX_FILES: usize = 1 << 16;

/// The bytes of a section, which units of one file share.
pub(crate) type Bytes = Rc<[u8]>;

/// The sections of a file with the entries of a unit.
const SECTIONS: [SectionId; 6] = [
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugRngLists,
    SectionId::DebugLine,
];

/// Those of a package, besides. What is not used must be there too, or the parts of a unit are
/// outside of the sections.
const OF_PACKAGE: [SectionId; 6] = [
    SectionId::DebugCuIndex,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];

/// Reads the sections of a file by their names. One that does not exist is empty.
type LoadNamed<'a, E> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, E>;

/// Where the files with the entries of units are.
pub trait SplitFiles<E> {
    /// The package of the program, if there is one: calls with what reads its sections.
    fn package(&mut self, read: Read<'_, E>) -> Result<(), E>;

    /// The file of a unit. Calls with what reads the sections of each file that it may be, until
    /// one is taken: until it returns true.
    fn object(&mut self, unit: &SplitUnit, read: Take<'_, E>) -> Result<(), E>;
}

/// Is called with what reads the sections of a file.
pub type Read<'a, E> = &'a mut dyn FnMut(LoadNamed<'_, E>) -> Result<(), E>;

/// Is called with what reads the sections of a file, and returns true if it is the right one.
pub type Take<'a, E> = &'a mut dyn FnMut(LoadNamed<'_, E>) -> Result<bool, E>;

/// There are none.
pub struct NoSplitFiles;

impl<E> SplitFiles<E> for NoSplitFiles {
    fn package(&mut self, _: Read<'_, E>) -> Result<(), E> {
        Ok(())
    }

    fn object(&mut self, _: &SplitUnit, _: Take<'_, E>) -> Result<(), E> {
        Ok(())
    }
}

/// What a skeleton says of its file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SplitUnit {
    /// The directory of the compiler.
    pub directory: Vec<u8>,
    /// The path, from there.
    pub path: Vec<u8>,
}

/// Where the entries of a unit are.
enum Entries {
    /// In a file of its own.
    File(Rc<DwarfSections<Bytes>>),
    /// In the package.
    Package,
}

/// A unit with a file.
struct UnitFile {
    /// Where the skeleton is in `.debug_info`.
    skeleton: u64,
    id: DwoId,
    entries: Entries,
}

/// The files of all units.
#[derive(Default)]
pub(crate) struct Splits {
    all: Vec<UnitFile>,
    package: Option<DwarfPackageSections<Bytes>>,
    /// The first file that was not found.
    missing: Option<String>,
    bytes: u64,
}

impl Splits {
    /// Finds the files of the skeletons in `.debug_info`.
    pub(crate) fn read<R: Reader<Offset = usize>, E: From<Error>>(
        dwarf: &Dwarf<R>,
        files: &mut dyn SplitFiles<E>,
    ) -> Result<Splits, E> {
        let (mut splits, mut looked_for_package) = (Splits::default(), false);
        let mut known: HashMap<SplitUnit, Vec<Rc<DwarfSections<Bytes>>>> = HashMap::new();
        let mut headers = dwarf.units();
        // A damaged header hides the units behind it.
        while let Ok(Some(header)) = headers.next() {
            if header.version() >= 5 && !matches!(header.type_(), UnitType::Skeleton(_)) {
                continue;
            }
            let Some(skeleton) = header.debug_info_offset().map(|at| at.0 as u64) else { continue };
            let Some((id, unit)) = skeleton_of(dwarf, header) else { continue };
            if splits.all.len() >= MAX_FILES {
                return Err(Error::Large.into());
            }
            if !std::mem::replace(&mut looked_for_package, true) {
                files.package(&mut |load| splits.read_package(load))?;
            }
            if splits.package_has(id) {
                splits.all.push(UnitFile { skeleton, id, entries: Entries::Package });
                continue;
            }
            let mut found = known.get(&unit).into_iter().flatten().find(|file| has(file, id)).cloned();
            if found.is_none() {
                let mut bytes = 0;
                files.object(&unit, &mut |load| {
                    let sections = Rc::new(load_split(load, &mut bytes)?);
                    let is_it = has(&sections, id);
                    found = is_it.then_some(sections);
                    Ok(is_it)
                })?;
                splits.bytes += bytes;
                known.entry(unit.clone()).or_default().extend(found.clone());
            }
            match found {
                Some(file) => splits.all.push(UnitFile { skeleton, id, entries: Entries::File(file) }),
                None => {
                    let name = || String::from_utf8_lossy(&unit.path).into_owned();
                    splits.missing.get_or_insert_with(name);
                }
            }
        }
        Ok(splits)
    }

    fn read_package<E: From<Error>>(&mut self, load: LoadNamed<'_, E>) -> Result<(), E> {
        let mut bytes = 0;
        let mut all = Vec::new();
        for id in SECTIONS.into_iter().chain(OF_PACKAGE) {
            let name = id.dwo_name().unwrap_or_default();
            all.push((id, read_one(&mut *load, name, &mut bytes)?));
        }
        let of = |id| all.iter().find(|(known, _)| *known == id).map(|(_, bytes)| bytes.clone());
        let sections = DwarfPackageSections::load(|id| Ok::<_, gimli::Error>(of(id).unwrap_or_default()));
        let sections = sections.map_err(Error::from)?;
        self.bytes += bytes;
        self.package = Some(sections);
        Ok(())
    }

    fn package<'a, R: Reader<Offset = usize>>(
        &'a self,
        slice: impl FnMut(&'a Bytes) -> R,
        empty: R,
    ) -> Option<DwarfPackage<R>> {
        self.package.as_ref()?.borrow(slice, empty).ok()
    }

    fn package_has(&self, id: DwoId) -> bool {
        let package = self.package(|bytes| EndianSlice::new(bytes, LittleEndian), EndianSlice::default());
        package.is_some_and(|package| package.cu_index.find(id.0).is_some())
    }

    /// The number of files.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The first file that was not found.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes
    }

    /// The skeleton of a file.
    pub(crate) fn skeleton(&self, file: usize) -> Option<u64> {
        Some(self.all.get(file)?.skeleton)
    }

    /// The file of a skeleton. They are sorted.
    pub(crate) fn of_skeleton(&self, skeleton: u64) -> Option<usize> {
        self.all.binary_search_by_key(&skeleton, |found| found.skeleton).ok()
    }

    /// The file of a number.
    pub(crate) fn of_id(&self, id: DwoId) -> Option<usize> {
        self.all.iter().position(|found| found.id == id)
    }

    /// The units of a file, whose addresses are in the program's own sections.
    pub(crate) fn dwarf<'a, R: Reader<Offset = usize>>(
        &'a self,
        file: usize,
        program: &Dwarf<R>,
        slice: impl FnMut(&'a Bytes) -> R,
        empty: R,
    ) -> Option<Dwarf<R>> {
        let found = self.all.get(file)?;
        match &found.entries {
            Entries::File(sections) => {
                let mut dwarf = sections.borrow(slice);
                dwarf.make_dwo(program);
                Some(dwarf)
            }
            Entries::Package => self.package(slice, empty)?.find_cu(found.id, program).ok()?,
        }
    }

    /// True for the unit that belongs to the skeleton of a file, and for units of types.
    pub(crate) fn is_unit<R: Reader<Offset = usize>>(
        &self,
        file: usize,
        dwarf: &Dwarf<R>,
        header: &UnitHeader<R>,
    ) -> bool {
        let Some(found) = self.all.get(file) else { return false };
        match header.type_() {
            UnitType::Type { .. } | UnitType::SplitType { .. } => true,
            UnitType::SplitCompilation(id) => id == found.id,
            UnitType::Compilation => {
                open_unit(dwarf, header.clone()).is_ok_and(|(unit, _)| unit.dwo_id == Some(found.id))
            }
            _ => false,
        }
    }
}

fn read_one<E>(load: LoadNamed<'_, E>, name: &str, bytes: &mut u64) -> Result<Bytes, E> {
    let section = load(name)?;
    *bytes += section.len() as u64;
    Ok(section.into())
}

fn load_split<E>(load: LoadNamed<'_, E>, bytes: &mut u64) -> Result<DwarfSections<Bytes>, E> {
    DwarfSections::load(|id| match id.dwo_name() {
        Some(name) if SECTIONS.contains(&id) => read_one(&mut *load, name, bytes),
        _ => Ok(Bytes::from([])),
    })
}

/// The number and the file of a unit, if it is a skeleton.
fn skeleton_of<R: Reader<Offset = usize>>(
    dwarf: &Dwarf<R>,
    header: UnitHeader<R>,
) -> Option<(DwoId, SplitUnit)> {
    let (unit, root) = open_unit(dwarf, header).ok()?;
    let id = unit.dwo_id?;
    let text = |value| {
        let text = dwarf.attr_string(&unit, value).ok()?;
        text.to_slice().map(|text| text.into_owned()).ok()
    };
    let path = root.attr_value(dw::DW_AT_dwo_name).or_else(|| root.attr_value(dw::DW_AT_GNU_dwo_name))?;
    let directory = root.attr_value(dw::DW_AT_comp_dir).and_then(text).unwrap_or_default();
    Some((id, SplitUnit { directory, path: text(path)? }))
}

/// A unit and its first entry. `Dwarf::unit` would need the line numbers.
pub(crate) fn open_unit<R: Reader<Offset = usize>>(
    dwarf: &Dwarf<R>,
    header: UnitHeader<R>,
) -> gimli::Result<(Unit<R>, DebuggingInformationEntry<R>)> {
    let (encoding, kind) = (header.encoding(), dwarf.file_type);
    let mut unit = Unit {
        abbreviations: dwarf.abbreviations(&header)?,
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, kind),
        addr_base: gimli::DebugAddrBase(0),
        loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, kind),
        rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, kind),
        line_program: None,
        dwo_id: match header.type_() {
            UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id),
            _ => None,
        },
        header,
    };
    let mut entries = unit.header.entries(&unit.abbreviations);
    let root = entries.next_dfs()?.cloned().ok_or(gimli::Error::MissingUnitDie)?;
    for attribute in root.attrs() {
        match attribute.value() {
            AttributeValue::DebugStrOffsetsBase(base) => unit.str_offsets_base = base,
            AttributeValue::DebugAddrBase(base) => unit.addr_base = base,
            AttributeValue::DebugRngListsBase(base) => unit.rnglists_base = base,
            AttributeValue::DwoId(id) => unit.dwo_id = Some(id),
            _ => {}
        }
    }
    // Ranges of functions are from here.
    let low_pc = root.attr_value(dw::DW_AT_low_pc).and_then(|v| dwarf.attr_address(&unit, v).ok()?);
    unit.low_pc = low_pc.unwrap_or(0);
    Ok((unit, root))
}

/// True if a file has the unit of this number.
fn has(file: &DwarfSections<Bytes>, id: DwoId) -> bool {
    let mut dwarf = file.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    dwarf.file_type = gimli::DwarfFileType::Dwo;
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let found = match header.type_() {
            UnitType::SplitCompilation(found) => Some(found),
            UnitType::Compilation => open_unit(&dwarf, header).ok().and_then(|(unit, _)| unit.dwo_id),
            _ => None,
        };
        if found == Some(id) {
            return true;
        }
    }
    false
}
