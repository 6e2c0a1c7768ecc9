//! Types in CTF (`gcc -gctf`, linked by GNU ld), version 3.
//!
//! ```text
//!  .ctf ──► archive ──► dict, one for each unit with types of its own, and their parent
//!                         │
//!                         ├── names of types          hash of a name ──► key
//!                         └── names of symbols        function ──► key     variable ──► key, address (of the table of symbols)
//!
//!  key of a type    bits 32–63: the dictionary    bits 0–31: its number there
//! ```
//!
//! A name without a unit means the type in the parent. If only units have it, and more than one, it
//! means none: their types are different, or the linker would have put one into the parent.

mod archive;
mod convert;
mod dict;
mod one;
mod symbols;

use std::collections::HashMap;

use crate::bytes::malformed;
use crate::index::{hash, keys};
use crate::query::{Answer, Error, Load, MAX_CANDIDATES, NameKind, Query};
use crate::shapes::MAX_DEPTH;

use dict::{Dict, MAX_SIZE, OF_CHILD, Type, kind};
use one::One;
use symbols::Table;

/// The names of the sections that are read: the types, and the tables of symbols that they refer
/// to.
pub(crate) const SECTIONS: [&str; 5] = [".ctf", ".dynsym", ".dynstr", ".symtab", ".strtab"];

/// The types of a file.
pub(crate) struct Ctf {
    dicts: Vec<Dict>,
    /// The number of the parent of each dictionary.
    parents: Vec<Option<u32>>,
    /// The dictionary whose types are those of names without a unit: the first without a parent.
    common: Option<u32>,
    /// Hash of kind and name, key; sorted.
    names: Vec<(u64, u64)>,
    /// Bytes of the strings of the symbols.
    strings: usize,
    /// The types of functions.
    functions: HashMap<String, One<u64>>,
    /// The types and addresses of variables.
    variables: HashMap<String, One<(u64, u64)>>,
}

fn named(kind: u32) -> Option<NameKind> {
    Some(match kind {
        kind::STRUCT => NameKind::Struct,
        kind::UNION => NameKind::Union,
        kind::ENUM => NameKind::Enum,
        kind::TYPEDEF => NameKind::Typedef,
        _ => return None,
    })
}

/// Bytes of memory of a symbol with this name.
fn bytes_of(name: &str) -> usize {
    96 + name.len()
}

fn dict_of(key: u64) -> u32 {
    (key >> 32) as u32
}

fn key_of(dict: usize, number: u32) -> u64 {
    (dict as u64) << 32 | u64::from(number)
}

impl Ctf {
    /// Reads the sections of a file.
    pub(crate) fn read<E: From<Error>>(load: Load<'_, E>) -> Result<Ctf, E> {
        let [section, dynamic_symbols, dynamic_strings, symbols, strings] = SECTIONS;
        let section = load(section)?;
        let dynamic = Table { symbols: load(dynamic_symbols)?, strings: load(dynamic_strings)?.into() };
        let own = Table { symbols: load(symbols)?, strings: load(strings)?.into() };
        Ok(Ctf::of(&section, &dynamic, &own)?)
    }

    fn of(section: &[u8], dynamic: &Table, own: &Table) -> Result<Ctf, Error> {
        let (mut dicts, mut left, mut numbers) = (Vec::new(), MAX_SIZE, HashMap::new());
        for (name, bytes) in archive::dicts(section)? {
            let dict = Dict::read(bytes, left, [&dynamic.strings, &own.strings])?;
            left = left.saturating_sub(dict.size());
            numbers.entry(name).or_insert(dicts.len() as u32);
            dicts.push(dict);
        }
        let parent = |dict: &Dict| match dict.is_child() {
            false => Ok(None),
            true => {
                let found = dict.parent().and_then(|parent| numbers.get(parent)).copied();
                let number = found.ok_or_else(|| malformed("the parent of a dictionary is not there"))?;
                Ok(Some(number))
            }
        };
        let parents: Vec<Option<u32>> = dicts.iter().map(parent).collect::<Result<_, Error>>()?;
        let (names, functions, variables) = (Vec::new(), HashMap::new(), HashMap::new());
        let strings = dynamic.strings.len().saturating_add(own.strings.len());
        let common = parents.iter().position(Option::is_none).map(|dict| dict as u32);
        let mut ctf = Ctf { dicts, parents, common, names, strings, functions, variables };
        ctf.add_types();
        ctf.add_symbols(dynamic, own)?;
        Ok(ctf)
    }

    fn add_types(&mut self) {
        for (number, dict) in self.dicts.iter().enumerate() {
            for id in 1..=dict.len() {
                let Some(ty) = dict.at(id).filter(|ty| ty.is_visible) else { continue };
                if let (Some(kind), Some(name)) = (named(ty.kind), dict.text(ty.name)) {
                    self.names.push((hash(kind.code(), "", name), key_of(number, id)));
                }
            }
        }
        self.names.sort_unstable();
        self.names.shrink_to_fit();
    }

    fn add_symbols(&mut self, dynamic: &Table, own: &Table) -> Result<(), Error> {
        // Names may overlap in a file.
        let mut left = MAX_SIZE;
        let mut addresses = HashMap::new();
        dynamic.addresses(&mut addresses);
        own.addresses(&mut addresses);
        let tables = [dynamic.names(), own.names()];
        let (mut functions, mut variables) = (HashMap::new(), HashMap::new());
        for (number, dict) in self.dicts.iter().enumerate() {
            let [of_dynamic, of_own] = &tables;
            let [objects, of_functions] = if dict.is_dynamic() { of_dynamic } else { of_own };
            let symbols = dict.symbols([objects, of_functions]).into_iter().flatten();
            for (name, reference) in symbols.chain(dict.variables()) {
                let Ok(Some(ty)) = self.target(number as u32, reference) else { continue };
                left = left.checked_sub(bytes_of(name)).ok_or(Error::Large)?;
                if self.at(ty).is_ok_and(|ty| ty.kind == kind::FUNCTION) {
                    One::add(&mut functions, name.to_owned(), ty);
                    continue;
                }
                match addresses.get(name) {
                    Some(One::Is(address)) => One::add(&mut variables, name.to_owned(), (ty, *address)),
                    Some(One::Several) => drop(variables.insert(name.to_owned(), One::Several)),
                    None => {}
                }
            }
        }
        (self.functions, self.variables) = (functions, variables);
        Ok(())
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        let names = self.functions.keys().chain(self.variables.keys()).map(|name| bytes_of(name));
        let dicts = self.dicts.iter().map(Dict::size);
        (dicts.chain(names).sum::<usize>() + 16 * self.names.len() + self.strings) as u64
    }

    /// True if nothing has a name.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.functions.is_empty() && self.variables.is_empty()
    }

    /// Answers a question.
    pub(crate) fn answer(&self, query: &Query) -> Result<Answer, Error> {
        convert::answer(self, query)
    }

    fn dict(&self, key: u64) -> Result<&Dict, Error> {
        self.dicts.get(dict_of(key) as usize).ok_or_else(nowhere)
    }

    fn at(&self, key: u64) -> Result<Type<'_>, Error> {
        self.dict(key)?.at(key as u32).ok_or_else(nowhere)
    }

    fn text(&self, key: u64, name: u32) -> &str {
        self.dict(key).ok().and_then(|dict| dict.text(name)).unwrap_or("")
    }

    /// The type that a reference means in a dictionary, as it is written there.
    fn written(&self, dict: u32, reference: u32) -> Option<u64> {
        let parent = self.parents.get(dict as usize).copied().flatten();
        let dict = if reference & OF_CHILD == 0 { parent.unwrap_or(dict) } else { dict };
        (reference != 0).then_some(key_of(dict as usize, reference & !OF_CHILD))
    }

    /// The type that a reference means in a dictionary: `None` is `void`, and a part of an integer
    /// is that integer.
    fn target(&self, mut dict: u32, mut reference: u32) -> Result<Option<u64>, Error> {
        for _ in 0..MAX_DEPTH {
            let Some(key) = self.written(dict, reference) else { return Ok(None) };
            let ty = self.at(key)?;
            match ty.kind {
                kind::INTEGER if ty.size == 0 => return Ok(None),
                kind::SLICE => (dict, reference) = (dict_of(key), ty.word(0)),
                _ => return Ok(Some(key)),
            }
        }
        Err(malformed("a type of itself"))
    }

    fn is_named(&self, key: u64, kind: NameKind, name: &str) -> bool {
        let ty = self.at(key);
        ty.is_ok_and(|ty| named(ty.kind) == Some(kind) && self.text(key, ty.name) == name)
    }

    /// The type with a name in a dictionary.
    fn find_in(&self, dict: u32, kind: NameKind, name: &str) -> Option<u64> {
        let first = (hash(kind.code(), "", name), key_of(dict as usize, 0));
        let from = self.names.partition_point(|entry| *entry < first);
        let entries = self.names.get(from..)?.iter().take(MAX_CANDIDATES);
        let mut keys = entries.take_while(|(hash, key)| *hash == first.0 && dict_of(*key) == dict);
        keys.find(|(_, key)| self.is_named(*key, kind, name)).map(|(_, key)| *key)
    }

    /// What a name means outside of units.
    fn find(&self, kind: NameKind, name: &str) -> Result<Option<u64>, Error> {
        if let Some(key) = self.common.and_then(|dict| self.find_in(dict, kind, name)) {
            return Ok(Some(key));
        }
        let keys = keys(&self.names, hash(kind.code(), "", name)).take(MAX_CANDIDATES);
        let mut all = keys.filter(|key| self.is_named(*key, kind, name));
        match (all.next(), all.next()) {
            (_, Some(_)) => Err(Error::Ambiguous(name.into())),
            (found, None) => Ok(found),
        }
    }

    /// The type that a forward declaration declares: that of its own unit, else what the name means
    /// outside of units.
    fn declared(&self, declaration: u64, kind: NameKind, name: &str) -> Option<u64> {
        self.find_in(dict_of(declaration), kind, name).or_else(|| self.find(kind, name).ok().flatten())
    }
}

fn nowhere() -> Error {
    malformed("a reference leads nowhere")
}

#[cfg(test)]
mod tests;
