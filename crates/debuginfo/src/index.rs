//! The names of a file, by their hashes, and the functions, by their addresses.
//!
//! One walk over all units, which skips what is inside functions. An entry is 16 bytes. Names are
//! not kept: a lookup reads those of the entries with its hash.
//!
//! GCC describes a lambda, and a function of a class in a function, inside of that function. A
//! second walk, over everything, finds them when the first one is asked for: most programs are
//! never asked, and GCC's units let the first walk jump over most of their bytes.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::OnceLock;

use gimli::{DwTag, constants as dw};

use crate::query::{Error, NameKind};
use crate::units::{Entry, InFile, Units};

/// The most entries. A browser has some ten millions.
const MAX_ENTRIES: usize = 1 << 24;

/// The most scopes in scopes.
const MAX_SCOPES: usize = 32;

/// The names and functions of a file.
#[derive(Default)]
pub(crate) struct Index {
    /// Hash of kind and qualified name, key of the entry; sorted.
    names: Vec<(u64, u64)>,
    /// Address, key of the entry; sorted.
    functions: Vec<(u64, u64)>,
    /// Hash of the name of a function without a known address, key; sorted.
    without_address: Vec<(u64, u64)>,
    /// The same as `functions`, of those in functions; read when one is asked for.
    local: OnceLock<Vec<(u64, u64)>>,
}

/// FNV-1a of a kind and a name in a scope.
pub(crate) fn hash(kind: u8, scope: &str, name: &str) -> u64 {
    let bytes = [kind].into_iter().chain(scope.bytes()).chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

const FUNCTION: u8 = b'f';

/// How the symbol of a function in a function begins (Itanium C++ ABI, "local-name").
const LOCAL: &str = "_ZZ";

impl NameKind {
    pub(crate) fn code(self) -> u8 {
        match self {
            NameKind::Struct => b's',
            NameKind::Union => b'u',
            NameKind::Enum => b'e',
            NameKind::Typedef => b't',
            NameKind::Variable => b'v',
        }
    }

    fn of(tag: DwTag) -> Option<NameKind> {
        Some(match tag {
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type => NameKind::Struct,
            dw::DW_TAG_union_type => NameKind::Union,
            dw::DW_TAG_enumeration_type => NameKind::Enum,
            dw::DW_TAG_typedef => NameKind::Typedef,
            dw::DW_TAG_variable => NameKind::Variable,
            _ => return None,
        })
    }
}

/// True for scopes of names.
fn is_scope(tag: DwTag) -> bool {
    let types = [dw::DW_TAG_structure_type, dw::DW_TAG_class_type, dw::DW_TAG_union_type];
    tag == dw::DW_TAG_namespace || types.contains(&tag)
}

impl Index {
    pub(crate) fn of(units: &Units<'_>) -> Result<Index, Error> {
        let mut index = Index::default();
        for unit in units.each() {
            // A damaged unit ends its own walk.
            if let Err(Error::Large) = index.add(units, &unit) {
                return Err(Error::Large);
            }
        }
        for list in [&mut index.names, &mut index.functions, &mut index.without_address] {
            list.sort_unstable();
            list.shrink_to_fit();
        }
        Ok(index)
    }

    pub(crate) fn memory(&self) -> u64 {
        let local = self.local.get().map_or(0, Vec::len);
        16 * (self.names.len() + self.functions.len() + self.without_address.len() + local) as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.functions.is_empty()
    }

    fn add<'a>(&mut self, units: &Units<'a>, unit: &InFile<'a>) -> Result<(), Error> {
        walk(units, unit, &mut |entry, prefix| {
            self.entry(units, unit, entry, prefix);
            let entries = self.names.len() + self.functions.len() + self.without_address.len();
            if entries > MAX_ENTRIES { Err(Error::Large) } else { Ok(()) }
        })
    }

    fn entry<'a>(&mut self, units: &Units<'a>, unit: &InFile<'a>, entry: &Entry<'a>, prefix: &str) {
        let key = || unit.key(entry.offset());
        let is_declaration =
            || matches!(entry.attr_value(dw::DW_AT_declaration), Some(gimli::AttributeValue::Flag(true)));
        if entry.tag() == dw::DW_TAG_subprogram {
            if is_declaration() || entry.attr_value(dw::DW_AT_inline).is_some() {
                return;
            }
            match units.low_pc(unit, entry) {
                // 0 is what the linker writes for code that it has left out.
                Some(0) => {}
                Some(address) => self.functions.push((address, key())),
                None => {
                    let linked = units.text_of(unit, entry, dw::DW_AT_linkage_name);
                    if let Some(name) = linked.or_else(|| units.text_of(unit, entry, dw::DW_AT_name)) {
                        self.without_address.push((hash(FUNCTION, "", name), key()));
                    }
                }
            }
            return;
        }
        let Some(kind) = NameKind::of(entry.tag()) else { return };
        if is_declaration() {
            return;
        }
        if kind == NameKind::Variable && entry.attr_value(dw::DW_AT_location).is_none() {
            return;
        }
        let name = match units.text_of(unit, entry, dw::DW_AT_name) {
            Some(name) => name,
            // The definition of a variable that is declared in a class or namespace: its name is
            // there.
            None if kind == NameKind::Variable => {
                let Some(name) = specified_name(units, unit, entry) else { return };
                self.names.push((hash(kind.code(), "", &name), key()));
                return;
            }
            None => return,
        };
        self.names.push((hash(kind.code(), prefix, name), key()));
    }

    /// The keys of the entries that may have this name.
    pub(crate) fn named(&self, kind: NameKind, name: &str) -> impl Iterator<Item = u64> + '_ {
        keys(&self.names, hash(kind.code(), "", name))
    }

    /// The key of the function at an address; if there is none, of one that may have this name.
    pub(crate) fn function(&self, units: &Units<'_>, address: u64, name: &str) -> Option<u64> {
        let local = || match name.starts_with(LOCAL) {
            true => keys(self.local.get_or_init(|| local(units)), address).next(),
            false => None,
        };
        let named = || keys(&self.without_address, hash(FUNCTION, "", name)).next();
        keys(&self.functions, address).next().or_else(local).or_else(named)
    }

    /// The keys of all names.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.names.iter().map(|(_, key)| *key)
    }
}

/// The functions that are in functions: address, key; sorted.
fn local(units: &Units<'_>) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for unit in units.each() {
        // A damaged unit has those before the damage.
        let _ = add_local(units, &unit, &mut all);
    }
    all.sort_unstable();
    all.shrink_to_fit();
    all
}

fn add_local<'a>(units: &Units<'a>, unit: &InFile<'a>, all: &mut Vec<(u64, u64)>) -> Result<(), Error> {
    let mut cursor = unit.unit.entries();
    let mut around: Option<isize> = None;
    while let Some(entry) = cursor.next_dfs()? {
        around = around.filter(|depth| entry.depth > *depth);
        if entry.tag() != dw::DW_TAG_subprogram {
            continue;
        }
        if around.is_none() {
            around = Some(entry.depth);
            continue;
        }
        if let Some(address) = units.low_pc(unit, entry).filter(|address| *address != 0) {
            all.push((address, unit.key(entry.offset())));
            if all.len() > MAX_ENTRIES {
                return Err(Error::Large);
            }
        }
    }
    Ok(())
}

/// The entries of a sorted list with one first word.
pub(crate) fn keys(list: &[(u64, u64)], first: u64) -> impl Iterator<Item = u64> + '_ {
    let from = list.partition_point(|(word, _)| *word < first);
    list.get(from..)
        .unwrap_or_default()
        .iter()
        .take_while(move |(word, _)| *word == first)
        .map(|(_, key)| *key)
}

/// The qualified name of what an entry specifies further.
fn specified_name<'a>(units: &Units<'a>, unit: &InFile<'a>, entry: &Entry<'a>) -> Option<String> {
    let declared = units.target(unit, &entry.attr_value(dw::DW_AT_specification)?)?;
    units.qualified_name(declared)
}

/// Visits the entries of a unit that are in no function: each with what its scopes put before its
/// name.
pub(crate) fn walk<'a>(
    units: &Units<'a>,
    unit: &InFile<'a>,
    visit: &mut dyn FnMut(&Entry<'a>, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut cursor = unit.unit.entries();
    if cursor.next_dfs()?.is_none() {
        return Ok(());
    }
    // The scopes around the current entry: their depth, and the prefix outside of them.
    let (mut scopes, mut prefix): (Vec<(isize, usize)>, String) = Default::default();
    let mut next = cursor.next_dfs()?;
    while let Some(entry) = next {
        while let Some((_, length)) = scopes.pop_if(|(depth, _)| entry.depth <= *depth) {
            prefix.truncate(length);
        }
        visit(entry, &prefix)?;
        if entry.has_children() && is_scope(entry.tag()) && scopes.len() < MAX_SCOPES {
            scopes.push((entry.depth, prefix.len()));
            let word = units.text_of(unit, entry, dw::DW_AT_name).unwrap_or("");
            if !word.is_empty() {
                prefix.push_str(word);
                prefix.push_str("::");
            }
            next = cursor.next_dfs()?;
            continue;
        }
        if cursor.next_sibling()?.is_none() {
            cursor.next_dfs()?;
        }
        next = cursor.current();
    }
    Ok(())
}

/// The prefixes of the names in a unit that are in scopes, by the offsets of their entries.
pub(crate) fn prefixes<'a>(units: &Units<'a>, unit: &InFile<'a>) -> HashMap<usize, Rc<str>> {
    let (mut all, mut last): (HashMap<usize, Rc<str>>, Rc<str>) = (HashMap::new(), "".into());
    // A damaged unit has those before the damage.
    let _ = walk(units, unit, &mut |entry, prefix| {
        if !prefix.is_empty() && NameKind::of(entry.tag()).is_some() {
            if *last != *prefix {
                last = prefix.into();
            }
            all.insert(entry.offset().0, last.clone());
        }
        Ok(())
    });
    all
}
