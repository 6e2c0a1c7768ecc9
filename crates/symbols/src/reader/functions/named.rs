//! The symbols of parts of functions, by their names.
//!
//! | Name | Made by | It is |
//! |---|---|---|
//! | `f.cold`, `f.cold.0` | GCC, and LLVM where it splits machine functions | a part of `f` |
//! | `f.cold.1` | LLVM where it outlines cold code | a function, which `f` calls |
//! | `f.__part.1`, `f.eh` | LLVM, for sections of basic blocks; what catches is in a section of its own | a part of `f` |
//! | `f.part.0`, `f.constprop.0`, `f.isra.0` | GCC | functions |
//!
//! So a name is a hint: a symbol with the name of a part is none if its function calls it.

use std::cell::OnceCell;
use std::collections::HashMap;

/// Symbols with one name, and parts of functions of one name, that are looked at: each file of a
/// program may have a static function of this name.
const SAME: usize = 256;

/// A stretch of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) address: u64,
    pub(super) size: u64,
}

impl Span {
    pub(super) fn contains(self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.size
    }
}

/// A symbol with the name of a part.
pub(super) struct NamedPart {
    pub(super) span: Span,
    /// Functions that have its name without the ending, the nearest in the symbol table first: a
    /// static function is in the file of its part.
    pub(super) candidates: Vec<u64>,
    /// What it is, once that was looked for.
    pub(super) verdict: OnceCell<Verdict>,
}

/// What a symbol with the name of a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A function: it is called.
    Function,
    /// A part of the function at this address.
    Of(u64),
    /// No function has the name. Who jumps to it tells.
    Unknown,
}

/// The name of the function of which a symbol is a part, by its name.
pub(super) fn whole(name: &[u8]) -> Option<&[u8]> {
    const ENDINGS: [&[u8]; 3] = [b".cold", b".warm", b".eh"];
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, _) = name.split_at_checked(name.len() - digits)?;
    let numbered = before.strip_suffix(b".").filter(|_| digits > 0);
    let of = |name: Option<&'_ [u8]>, ending: &[u8]| Some(name?.strip_suffix(ending)?.len());
    let ends = ENDINGS.iter().find_map(|ending| of(Some(name), ending).or_else(|| of(numbered, ending)));
    let end = ends.or_else(|| of(numbered, b".__part"))?;
    name.get(..end).filter(|whole| !whole.is_empty())
}

/// The name of the function in the source in which a symbol with this name has its code.
pub(crate) fn in_source(name: String) -> String {
    match whole(name.as_bytes()).map(<[u8]>::len).and_then(|length| name.get(..length)) {
        Some(whole) => whole.to_owned(),
        None => name,
    }
}

/// A symbol of a function.
pub(super) struct Named<'a> {
    pub(super) name: &'a [u8],
    pub(super) span: Span,
}

/// What has a name, with or without the ending, and its position in the tables.
#[derive(Default)]
struct SameName {
    parts: Vec<(usize, Span)>,
    functions: Vec<(usize, u64)>,
}

/// The parts among the symbols of a file, which come in the order of its tables, in the order of
/// addresses.
pub(super) fn parts<'a>(symbols: impl Iterator<Item = Named<'a>> + Clone) -> Vec<NamedPart> {
    let mut by_name: HashMap<&[u8], SameName> = HashMap::new();
    for (at, symbol) in symbols.clone().enumerate() {
        let Some(name) = whole(symbol.name) else { continue };
        let same = by_name.entry(name).or_default();
        if same.parts.len() < SAME {
            same.parts.push((at, symbol.span));
        }
    }
    if by_name.is_empty() {
        return Vec::new();
    }
    for (at, symbol) in symbols.enumerate() {
        if let Some(same) = by_name.get_mut(symbol.name).filter(|same| same.functions.len() < SAME) {
            same.functions.push((at, symbol.span.address));
        }
    }
    let mut all = Vec::new();
    for SameName { parts, functions } in by_name.into_values() {
        for (at, span) in parts {
            let mut near = functions.clone();
            near.retain(|(_, address)| *address != span.address);
            near.sort_by_key(|(other, _)| other.abs_diff(at));
            let mut candidates: Vec<u64> = Vec::new();
            for (_, address) in near {
                if !candidates.contains(&address) {
                    candidates.push(address);
                }
            }
            all.push(NamedPart { span, candidates, verdict: OnceCell::new() });
        }
    }
    all.sort_by_key(|part| (part.span.address, std::cmp::Reverse(part.span.size)));
    all.dedup_by_key(|part| part.span.address);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_parts_are_told_from_those_of_functions() {
        for (name, of) in [
            ("f.cold", Some("f")),
            ("f.cold.12", Some("f")),
            ("f.constprop.0.cold", Some("f.constprop.0")),
            ("f.part.1.cold.0", Some("f.part.1")),
            ("_Z1fi.cold", Some("_Z1fi")),
            ("f.__part.3", Some("f")),
            ("f.warm", Some("f")),
            ("f.eh", Some("f")),
            ("f.part.1", None),
            ("f.constprop.0", None),
            ("f.isra.0", None),
            ("f.cold.", None),
            ("f.coldx", None),
            (".cold", None),
            ("cold", None),
            ("12", None),
            ("", None),
        ] {
            assert_eq!(whole(name.as_bytes()), of.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn the_nearest_function_of_its_name_is_the_first_candidate() {
        let table = [
            ("init", 0x1000),
            ("other", 0x1100),
            ("init.cold", 0x500),
            ("init.cold", 0x600),
            ("init", 0x2000),
            ("init", 0x2000),
        ];
        let symbols = table.iter().map(|(name, address)| Named {
            name: name.as_bytes(),
            span: Span { address: *address, size: 8 },
        });
        let found = parts(symbols);
        let shown: Vec<_> = found.iter().map(|part| (part.span.address, part.candidates.clone())).collect();
        assert_eq!(shown, [(0x500, vec![0x1000, 0x2000]), (0x600, vec![0x2000, 0x1000])]);
        let span = found[0].span;
        assert!(span.contains(0x507) && !span.contains(0x508) && !span.contains(0x4ff));
    }
}
