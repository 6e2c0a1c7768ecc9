//! Types that a program or library has as BTF already (`.BTF`, of `gcc -gbtf` or `pahole`).
//!
//! The section is the answer to every question: it is small, and what reads it treats it as hostile
//! anyway. Only the names and the parameters of functions are looked at here. It does not know
//! where variables are.

use std::collections::HashMap;

use crate::arch::{Convention, Rules};
use crate::bytes::{malformed, number, text};
use crate::query::{Answer, Error, NameKind, Place, Query};
use crate::shapes::{MAX_DEPTH, MAX_MEMBERS, Part, Shape, Shapes};

/// The largest section. That of a kernel has some five megabytes.
const MAX_SIZE: usize = 8 << 20;
/// The most names in an answer.
const MAX_NAMES: usize = 1000;
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// The types of a program.
pub(crate) struct ProgramTypes {
    bytes: Vec<u8>,
    /// Where each type is, from the number 1 on.
    types: Vec<usize>,
    strings: std::ops::Range<usize>,
    /// The number of the first type with a name, by kind.
    names: HashMap<(u32, String), u32>,
}

impl ProgramTypes {
    pub(crate) fn read(bytes: Vec<u8>) -> Result<ProgramTypes, Error> {
        if bytes.len() > MAX_SIZE {
            return Err(Error::Large);
        }
        let header = |at| number(&bytes, at).map(|n| n as usize).ok_or_else(|| malformed("a short header"));
        if bytes.get(..3) != Some(&[0x9f, 0xeb, 1]) {
            return Err(malformed("no header of BTF"));
        }
        let (start, types_at, types_size) = (header(4)?, header(8)?, header(12)?);
        let (strings_at, strings_size) = (header(16)?, header(20)?);
        // Each is at most four gigabytes, so sums do not overflow.
        let first = start + types_at;
        let end = first + types_size;
        let strings = start + strings_at..start + strings_at + strings_size;
        if end > bytes.len() || strings.end > bytes.len() {
            return Err(malformed("a section ends outside of the file"));
        }
        let mut all = ProgramTypes { bytes, types: Vec::new(), strings, names: HashMap::new() };
        let mut at = first;
        while at < end {
            let info = number(&all.bytes, at + 4).ok_or_else(|| malformed("a short type"))?;
            let (kind, parts) = (info >> 24 & 31, (info & 0xffff) as usize);
            let more = match kind {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * parts,
                kind::ENUM | kind::FUNC_PROTO => 8 * parts,
                kind::PTR | 7..=12 | kind::FLOAT | kind::TYPE_TAG => 0,
                _ => return Err(malformed("an unknown kind of types")),
            };
            all.types.push(at);
            let id = all.types.len() as u32;
            if let Some(name) = number(&all.bytes, at).and_then(|name| all.text(name)).map(str::to_owned) {
                all.names.entry((kind, name)).or_insert(id);
            }
            at += 12 + more;
        }
        if at != end {
            return Err(malformed("a type ends outside of its section"));
        }
        Ok(all)
    }

    pub(crate) fn memory(&self) -> u64 {
        let names: usize = self.names.keys().map(|(_, name)| 96 + name.len()).sum();
        (self.bytes.len() + 8 * self.types.len() + names) as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn text(&self, at: u32) -> Option<&str> {
        text(self.bytes.get(self.strings.clone())?, at)
    }

    /// Kind, number of parts, size or type, and where it is.
    fn of(&self, id: u32) -> Option<(u32, usize, u32, usize)> {
        let at = *self.types.get(usize::try_from(id).ok()?.checked_sub(1)?)?;
        let (info, size) = (number(&self.bytes, at + 4)?, number(&self.bytes, at + 8)?);
        Some((info >> 24 & 31, (info & 0xffff) as usize, size, at))
    }

    /// The type without names and qualifiers, unless it is `void`.
    fn bare(&self, mut ty: u64) -> Result<Option<(u32, usize, u32, usize)>, Error> {
        for _ in 0..MAX_DEPTH {
            let found = u32::try_from(ty).ok().and_then(|ty| self.of(ty));
            let found = found.ok_or_else(|| malformed("a reference leads nowhere"))?;
            match found {
                (
                    kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG,
                    _,
                    target,
                    _,
                ) => match some(target) {
                    Some(target) => ty = target,
                    None => return Ok(None),
                },
                found => return Ok(Some(found)),
            }
        }
        Err(malformed("a type of itself"))
    }

    pub(crate) fn answer(&self, query: &Query) -> Result<Answer, Error> {
        let kinds = |kind: NameKind| match kind {
            NameKind::Struct => &[kind::STRUCT][..],
            NameKind::Union => &[kind::UNION],
            NameKind::Enum => &[kind::ENUM, kind::ENUM64],
            NameKind::Typedef => &[kind::TYPEDEF],
            // Where they are is not known.
            NameKind::Variable => &[],
        };
        let named = |kind: u32, name: &str| self.names.get(&(kind, name.to_owned())).copied();
        let mut answer = Answer::default();
        match query {
            Query::Name(of, name) => answer.found = kinds(*of).iter().find_map(|kind| named(*kind, name)),
            Query::Entry(_) => {}
            Query::Like(of, beginning) => {
                let is_like = |(kind, name): &&(u32, String)| {
                    kinds(*of).contains(kind) && name.starts_with(&**beginning)
                };
                answer.names = self.names.keys().filter(is_like).map(|(_, name)| name.clone()).collect();
                answer.names.sort_unstable();
                answer.names.truncate(MAX_NAMES);
            }
            Query::Function { name, .. } => {
                let function = named(kind::FUNC, name).and_then(|id| self.of(id));
                if let Some((_, _, prototype, _)) = function
                    && let Some(places) = self.places(prototype)?
                {
                    (answer.found, answer.places) = (Some(prototype), places);
                }
            }
        }
        if answer.found.is_some() {
            answer.btf = self.bytes.clone();
        }
        Ok(answer)
    }

    /// Where the parameters of a function are.
    fn places(&self, prototype: u32) -> Result<Option<Vec<Place>>, Error> {
        let Some((kind::FUNC_PROTO, count, result, at)) = self.of(prototype) else { return Ok(None) };
        let mut convention = Convention::new(self, Rules::C, some(result))?;
        let mut places = Vec::new();
        for n in 0..count {
            // The end of a function with any number of arguments.
            let Some(ty) = number(&self.bytes, at + 12 + 8 * n + 4).and_then(some) else { break };
            places.push(convention.next(Some(ty))?);
        }
        Ok(Some(places))
    }
}

/// A type, unless it is `void`.
fn some(ty: u32) -> Option<u64> {
    (ty != 0).then_some(ty.into())
}

impl Shapes for ProgramTypes {
    fn shape(&self, ty: u64) -> Result<Shape, Error> {
        let Some((kind, _, size, at)) = self.bare(ty)? else { return Ok(Shape::Integer(0)) };
        let size = u64::from(size);
        Ok(match kind {
            kind::INT | kind::ENUM | kind::ENUM64 => Shape::Integer(size),
            kind::FLOAT => Shape::Float(size),
            kind::ARRAY => Shape::Array {
                elem: number(&self.bytes, at + 12).and_then(some),
                count: number(&self.bytes, at + 20).unwrap_or(0).into(),
            },
            kind::STRUCT | kind::UNION => Shape::Object { size: Some(size), is_by_address: false },
            _ => Shape::Integer(8),
        })
    }

    fn members(&self, ty: u64) -> Result<Vec<Part>, Error> {
        let Some((_, count, _, at)) = self.bare(ty)? else { return Ok(Vec::new()) };
        let member = |n: usize| {
            let field = |word: usize| number(&self.bytes, at + 12 + 12 * n + 4 * word);
            // The bits above are the width of a bit-field.
            let at = field(2)?;
            let offset = u64::from(at & 0xff_ffff) / 8;
            Some(Part { offset, ty: some(field(1)?), is_bit_field: at >> 24 != 0 })
        };
        Ok((0..count.min(MAX_MEMBERS)).filter_map(member).collect())
    }
}
