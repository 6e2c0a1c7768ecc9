//! The functions of a file that is in memory, in this process: what the reader does with a file, for fuzzing and for files that are trusted.

use std::convert::Infallible;
use std::rc::Rc;

use super::compressed;
use super::elf::Elf;
use super::functions::{Listing, Output, Sources};
use crate::functions::{FileFunctions, Function, FunctionQuery, SymbolSource};
use crate::wire::functions::{Assembly, Instructions};

/// Puts an answer together as the session does.
#[derive(Default)]
struct Kept {
    list: Assembly,
    is_malformed: bool,
}

impl Output for Kept {
    type Error = Infallible;

    fn function(&mut self, function: Function, instructions: Option<Instructions>) -> Result<(), Infallible> {
        self.list.functions(vec![function]);
        self.is_malformed |= instructions.is_some_and(|part| self.list.instructions(&part).is_none());
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Lists the functions of an ELF file, which needs at most `most` bytes of memory besides the file.
pub fn functions_of_bytes(bytes: Vec<u8>, query: &FunctionQuery, most: u64) -> Result<FileFunctions, String> {
    let elf = Elf::open(Rc::new(bytes)).map_err(|e| e.to_string())?;
    let unpacked = if elf.has_full_table() { None } else { compressed::find(&elf, most) };
    let other = unpacked.as_ref().map(|unpacked| (unpacked, SymbolSource::Compressed));
    let listing = Listing::read(&Sources { own: &elf, name: b"", other }, most).map_err(|e| e.to_string())?;
    let mut kept = Kept::default();
    let Ok(answer) = listing.answer(query, None, &mut kept);
    answer?;
    kept.list.file(listing.file().clone());
    match kept.is_malformed {
        true => Err("the instructions do not belong to a function".into()),
        false => Ok(kept.list.finish()),
    }
}
