//! What the debug information of programs and libraries says: types (DWARF or CTF in, BTF out), and
//! the functions and source lines at an address.
//!
//! ```text
//!  sections of a file ──► DebugTypes::read      one walk over the names at the top of all units
//!                              │                (index: hash of a name, address of a function ──► entry)
//!  a question (Query) ──► DebugTypes::answer ──► convert: the entry, and the types that it reaches ──► a blob of BTF
//!                              │
//!                              └── convention, go: where the arguments of a function are
//!
//!  .BTF of a file ──► DebugTypes::of_btf ──► its bytes, and the places of parameters by their types
//!  .ctf of a file ──► DebugTypes::of_ctf ──► as from DWARF: a type and what it reaches, as BTF
//!
//!  files of units (.dwo, .dwp) ──► split: beside the sections of the file, for both
//!
//!  sections of a file ──► Lines::read ──► Lines::frames   the functions at an address that were put inline there, and the lines
//!
//!  sections of a file ──► Extents::read ──► Extents::of   the function at an address, and all its code, which may be in several places
//! ```
//!
//! The decision that shapes it: the result is a small blob of BTF, the format in which the kernel
//! has its types. The crate `types` reads that format lazily and treats it as hostile already, so
//! the types of programs need no second model, no second import and no second check of what a
//! reader process sends. What DWARF knows and BTF does not (locations, scopes) is answered beside
//! the blob.
//!
//! A type is read when it is asked for. A program has a hundred thousand types, and a script
//! reaches ten. So an answer has the types near the entry, and of the others only the name: a
//! *cut*, which has the number of its entry and is asked for in turn ([`Query::Entry`]) when a
//! script reaches it.
//!
//! What is read is bounded: the entries of an answer, their depth, the names. Corrupt input gives
//! an error. No input makes this crate panic or loop.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! blob query
//! bytes ctf/one graph shapes split
//! extents
//! ctf/dict rust_layout
//! arch/x86_64/convention arch/x86_64/go
//! arch/x86_64
//! arch
//! ctf/archive ctf/symbols lines programs units+index
//! ctf+ctf/convert parameters spots
//! convert
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arch;
mod blob;
mod bytes;
mod convert;
mod ctf;
mod extents;
mod graph;
mod index;
mod lines;
mod parameters;
mod programs;
mod query;
mod rust_layout;
mod shapes;
mod split;
mod spots;
mod units;

use gimli::DwarfSections;

pub use extents::{EXTENT_SECTIONS, Extent, Extents};
pub use lines::{LINE_SECTIONS, Lines, MAX_INLINED, SourceFrame};
pub use query::{Answer, Error, Load, MAX_NAME, NameKind, ObjectPart, Place, Query};
pub use split::{NoSplitFiles, Read, SplitFiles, SplitUnit, Take};

use ctf::Ctf;
use index::Index;
use programs::ProgramTypes;
use split::Splits;
use units::{Headers, Units};

/// The types of a file.
pub struct DebugTypes(Source);

/// Where they are from.
enum Source {
    Dwarf(Box<FromDwarf>),
    /// The file has them as BTF.
    Btf(ProgramTypes),
    /// The file has them as CTF.
    Ctf(Ctf),
}

/// The debug information of a file.
struct FromDwarf {
    sections: DwarfSections<Vec<u8>>,
    supplement: Option<DwarfSections<Vec<u8>>>,
    splits: Splits,
    headers: Headers,
    index: Index,
}

/// The name of the section in which a file may have its types as BTF.
pub const BTF: &str = ".BTF";

/// The names of the sections of a file with types as CTF: the types, and the tables of symbols that
/// they refer to.
pub const CTF_SECTIONS: [&str; 5] = ctf::SECTIONS;

/// The names of the sections that are read.
pub const SECTIONS: [&str; 11] = [
    ".debug_info",
    ".debug_types",
    ".debug_abbrev",
    ".debug_str",
    ".debug_line_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_ranges",
    ".debug_rnglists",
    LOCATIONS[0],
    LOCATIONS[1],
];

/// Those of them that are read of files of Go alone. In other languages the arguments are where the
/// calling convention has them.
pub const LOCATIONS: [&str; 2] = [".debug_loc", ".debug_loclists"];

fn load<E>(from: Load<'_, E>) -> Result<DwarfSections<Vec<u8>>, E> {
    DwarfSections::load(|id| match SECTIONS.contains(&id.name()) {
        true => from(id.name()),
        false => Ok(Vec::new()),
    })
}

impl DebugTypes {
    /// Reads the sections of a file, and of the file with what it shares with others
    /// (`.gnu_debugaltlink`), and indexes their names.
    pub fn read<E: From<Error>>(own: Load<'_, E>, supplement: Option<Load<'_, E>>) -> Result<DebugTypes, E> {
        Self::read_split(own, supplement, &mut NoSplitFiles)
    }

    /// The same, with the files of units that are in files of their own.
    pub fn read_split<E: From<Error>>(
        own: Load<'_, E>,
        supplement: Option<Load<'_, E>>,
        files: &mut dyn SplitFiles<E>,
    ) -> Result<DebugTypes, E> {
        let sections = load(own)?;
        let supplement = supplement.map(load).transpose()?;
        let program =
            sections.borrow(|section: &Vec<u8>| gimli::EndianSlice::new(section, gimli::LittleEndian));
        let splits = Splits::read(&program, files)?;
        let headers = Headers::read(&sections, supplement.as_ref(), &splits)?;
        let index = Index::of(&Units::new(&sections, supplement.as_ref(), &headers, &splits))?;
        let all = FromDwarf { sections, supplement, splits, headers, index };
        Ok(DebugTypes(Source::Dwarf(Box::new(all))))
    }

    /// The first file with types of the program that was not found.
    pub fn missing(&self) -> Option<&str> {
        match &self.0 {
            Source::Dwarf(dwarf) => dwarf.splits.missing(),
            Source::Btf(_) | Source::Ctf(_) => None,
        }
    }

    /// The types of a file in the section [`BTF`].
    pub fn of_btf(section: Vec<u8>) -> Result<DebugTypes, Error> {
        Ok(DebugTypes(Source::Btf(ProgramTypes::read(section)?)))
    }

    /// The types of a file in the sections [`CTF_SECTIONS`]. Tables of symbols are those of 64-bit
    /// files.
    pub fn of_ctf<E: From<Error>>(load: Load<'_, E>) -> Result<DebugTypes, E> {
        Ok(DebugTypes(Source::Ctf(Ctf::read(load)?)))
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        match &self.0 {
            Source::Dwarf(dwarf) => dwarf.memory(),
            Source::Btf(btf) => btf.memory(),
            Source::Ctf(ctf) => ctf.memory(),
        }
    }

    /// True if no unit names anything.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Source::Dwarf(dwarf) => dwarf.index.is_empty(),
            Source::Btf(btf) => btf.is_empty(),
            Source::Ctf(ctf) => ctf.is_empty(),
        }
    }

    /// Answers a question.
    pub fn answer(&self, query: &Query) -> Result<Answer, Error> {
        match &self.0 {
            Source::Dwarf(dwarf) => dwarf.answer(query),
            Source::Btf(btf) => btf.answer(query),
            Source::Ctf(ctf) => ctf.answer(query),
        }
    }
}

impl FromDwarf {
    fn memory(&self) -> u64 {
        let of = |s: &DwarfSections<Vec<u8>>| {
            let mut bytes = 0;
            let _ = s.borrow(|section: &Vec<u8>| {
                bytes += section.len() as u64;
                gimli::EndianSlice::new(&[], gimli::LittleEndian)
            });
            bytes
        };
        of(&self.sections)
            + self.supplement.as_ref().map_or(0, of)
            + self.splits.memory()
            + self.index.memory()
    }

    fn answer(&self, query: &Query) -> Result<Answer, Error> {
        let units = Units::new(&self.sections, self.supplement.as_ref(), &self.headers, &self.splits);
        convert::answer(&units, &self.index, query)
    }
}

#[cfg(test)]
mod tests;
