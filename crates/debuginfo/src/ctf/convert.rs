//! Types of CTF as types of BTF.

use super::dict::{Field, Type, kind};
use super::one::One;
use super::{Ctf, dict_of, named};
use crate::arch::{Convention, Rules};
use crate::blob::{self, Kind, Member};
use crate::bytes::malformed;
use crate::graph::Graph;
use crate::query::{Answer, Error, NameKind, Place, Query, in_order};
use crate::shapes::{MAX_DEPTH, MAX_MEMBERS, Part, Shape, Shapes};

/// Encodings of integers.
const SIGNED: u32 = 1;
/// See [`SIGNED`].
const CHAR: u32 = 2;
/// See [`SIGNED`].
const BOOL: u32 = 4;
/// Encodings of floating-point numbers: the complex ones.
const COMPLEX: std::ops::RangeInclusive<u32> = 3..=5;

/// Answers a question.
pub(super) fn answer(ctf: &Ctf, query: &Query) -> Result<Answer, Error> {
    let (mut converter, mut answer) = (Converter { ctf, graph: Graph::new() }, Answer::default());
    match query {
        Query::Function { name, .. } => {
            let Some(key) = one(ctf.functions.get(name), name)? else { return Ok(answer) };
            answer.places = ctf.places(key)?;
            answer.found = Some(converter.graph.id(key));
        }
        Query::Name(NameKind::Variable, name) => {
            let Some((key, address)) = one(ctf.variables.get(name), name)? else { return Ok(answer) };
            (answer.found, answer.address) = (Some(converter.graph.id(key)), Some(address));
        }
        Query::Name(kind, name) => {
            let Some(key) = ctf.find(*kind, name)? else { return Ok(answer) };
            answer.found = Some(converter.graph.id(key));
        }
        Query::Entry(key) => answer.found = Some(converter.graph.id(*key)),
        Query::Like(kind, beginning) => {
            answer.names = ctf.like(*kind, beginning);
            return Ok(answer);
        }
    }
    while let Some((key, id)) = converter.graph.next()? {
        converter.convert(key, id)?;
    }
    converter.graph.finish(&mut answer);
    Ok(answer)
}

fn one<T: Copy>(found: Option<&One<T>>, name: &str) -> Result<Option<T>, Error> {
    match found {
        None => Ok(None),
        Some(One::Is(meaning)) => Ok(Some(*meaning)),
        Some(One::Several) => Err(Error::Ambiguous(name.into())),
    }
}

impl Ctf {
    fn like(&self, kind: NameKind, beginning: &str) -> Vec<String> {
        let of_type = |(_, key): &(u64, u64)| {
            let ty = self.at(*key).ok().filter(|ty| named(ty.kind) == Some(kind))?;
            Some(self.text(*key, ty.name))
        };
        let types = self.names.iter().filter_map(of_type);
        let variables = self.variables.keys().map(String::as_str).filter(|_| kind == NameKind::Variable);
        in_order(types.chain(variables).filter(|name| name.starts_with(beginning)).map(str::to_owned))
    }

    /// Where the parameters of a function are.
    fn places(&self, function: u64) -> Result<Vec<Place>, Error> {
        let (dict, ty) = (dict_of(function), self.at(function)?);
        let mut convention = Convention::new(self, Rules::C, self.target(dict, ty.target)?)?;
        // D has no argument behind these.
        let parameters = ty.parameters().0.into_iter().take(MAX_MEMBERS);
        parameters.map(|ty| convention.next(self.target(dict, ty)?)).collect()
    }

    /// The type without names and qualifiers, unless it is `void`.
    fn bare(&self, mut key: u64) -> Result<Option<(u64, Type<'_>)>, Error> {
        for _ in 0..MAX_DEPTH {
            let ty = self.at(key)?;
            match ty.kind {
                kind::TYPEDEF..=kind::RESTRICT => match self.target(dict_of(key), ty.target)? {
                    Some(target) => key = target,
                    None => return Ok(None),
                },
                kind::FORWARD => match self.definition(key, &ty) {
                    Some(definition) => return Ok(Some((definition, self.at(definition)?))),
                    None => return Ok(Some((key, ty))),
                },
                _ => return Ok(Some((key, ty))),
            }
        }
        Err(malformed("a type of itself"))
    }

    /// The type that a forward declaration declares.
    fn definition(&self, key: u64, declaration: &Type<'_>) -> Option<u64> {
        self.declared(key, named(declaration.target)?, self.text(key, declaration.name))
    }
}

impl Shapes for Ctf {
    fn shape(&self, ty: u64) -> Result<Shape, Error> {
        let Some((key, ty)) = self.bare(ty)? else { return Ok(Shape::Integer(0)) };
        Ok(match ty.kind {
            kind::INTEGER | kind::ENUM => Shape::Integer(ty.size),
            kind::FLOAT if COMPLEX.contains(&(ty.word(0) >> 24)) => Shape::Complex(ty.size),
            kind::FLOAT => Shape::Float(ty.size),
            kind::ARRAY => {
                let elem = self.target(dict_of(key), ty.word(0))?;
                Shape::Array { elem, count: u64::from(ty.word(2)) }
            }
            kind::STRUCT | kind::UNION => Shape::Object { size: Some(ty.size), is_by_address: false },
            // What CTF cannot describe, such as a vector, has the kind 0.
            kind::UNKNOWN => Shape::Object { size: None, is_by_address: false },
            kind::FORWARD if ty.target != kind::ENUM => Shape::Object { size: None, is_by_address: false },
            _ => Shape::Integer(8),
        })
    }

    fn members(&self, ty: u64) -> Result<Vec<Part>, Error> {
        let Some((key, ty)) = self.bare(ty)? else { return Ok(Vec::new()) };
        let fields = ty.fields().take(MAX_MEMBERS);
        let part = |field: Field| {
            let dict = dict_of(key);
            let written = self.written(dict, field.ty).map(|key| self.at(key)).transpose()?;
            // One of older versions is a number with fewer bits than its bytes have.
            let (before, is_bit_field) = match written {
                Some(slice) if slice.kind == kind::SLICE => (slice.bits().0, true),
                Some(ty) if ty.kind == kind::INTEGER => {
                    (0, u64::from(ty.word(0) & 0xffff) != ty.size.saturating_mul(8))
                }
                _ => (0, false),
            };
            let offset = field.at.saturating_add(before.into()) / 8;
            Ok(Part { offset, ty: self.target(dict, field.ty)?, is_bit_field })
        };
        fields.map(part).collect()
    }
}

struct Converter<'a> {
    ctf: &'a Ctf,
    graph: Graph,
}

impl Converter<'_> {
    /// The type that a reference in a dictionary means; 0 is `void`.
    fn id(&mut self, dict: u32, reference: u32) -> Result<u32, Error> {
        Ok(self.ctf.target(dict, reference)?.map_or(0, |key| self.graph.id(key)))
    }

    fn convert(&mut self, key: u64, id: u32) -> Result<(), Error> {
        let (ctf, dict) = (self.ctf, dict_of(key));
        let ty = ctf.at(key)?;
        let name = ctf.text(key, ty.name);
        match ty.kind {
            kind::INTEGER => {
                let encoding = ty.word(0) >> 24;
                let bits = [(SIGNED, blob::SIGNED), (CHAR, blob::CHAR), (BOOL, blob::BOOL)];
                let encoding = match encoding & BOOL {
                    0 => bits.iter().filter(|(bit, _)| encoding & bit != 0).map(|(_, bit)| bit).sum(),
                    _ => blob::BOOL,
                };
                self.graph.blob.int(id, name, size(&ty), encoding);
            }
            kind::FLOAT if COMPLEX.contains(&(ty.word(0) >> 24)) => {
                self.graph.blob.sou(id, name, false, size(&ty), &[])
            }
            kind::FLOAT => self.graph.blob.simple(id, Kind::Float, name, size(&ty)),
            kind::POINTER | kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT => {
                let target = self.id(dict, ty.target)?;
                let (kind, name) = match ty.kind {
                    kind::POINTER => (Kind::Ptr, ""),
                    kind::VOLATILE => (Kind::Volatile, ""),
                    kind::CONST => (Kind::Const, ""),
                    kind::RESTRICT => (Kind::Restrict, ""),
                    _ => (Kind::Typedef, name),
                };
                self.graph.blob.simple(id, kind, name, target);
            }
            kind::ARRAY => {
                let (elem, index) = (self.id(dict, ty.word(0))?, self.graph.index_type());
                self.graph.blob.array(id, elem, index, ty.word(2));
            }
            kind::FUNCTION => {
                let ret = self.id(dict, ty.target)?;
                let (parameters, is_variadic) = ty.parameters();
                let mut list = Vec::with_capacity(parameters.len());
                for parameter in parameters {
                    list.push((String::new(), self.id(dict, parameter)?));
                }
                list.extend(is_variadic.then(|| (String::new(), 0)));
                self.graph.blob.prototype(id, ret, &list);
            }
            kind::STRUCT | kind::UNION => self.sou(key, &ty, id)?,
            kind::ENUM => self.enumeration(key, &ty, id),
            kind::FORWARD => match ctf.definition(key, &ty) {
                Some(definition) => {
                    let ty = ctf.at(definition)?;
                    match ty.kind {
                        kind::ENUM => self.enumeration(definition, &ty, id),
                        _ => self.sou(definition, &ty, id)?,
                    }
                }
                None if ty.target == kind::ENUM => self.graph.blob.enumeration(id, name, 4, false, &[]),
                None => self.graph.blob.forward(id, name, ty.target == kind::UNION),
            },
            _ => self.graph.blob.forward(id, "", false),
        }
        Ok(())
    }

    fn sou(&mut self, key: u64, ty: &Type<'_>, id: u32) -> Result<(), Error> {
        let (ctf, dict) = (self.ctf, dict_of(key));
        let (name, is_union) = (ctf.text(key, ty.name), ty.kind == kind::UNION);
        if !self.graph.has_space(key, id) {
            self.graph.blob.forward(id, name, is_union);
            return Ok(());
        }
        let mut members = Vec::new();
        for field in ty.fields().take(blob::MAX_PARTS) {
            let slice = ctf.written(dict, field.ty).map(|key| ctf.at(key)).transpose()?;
            let (before, bits) =
                slice.filter(|slice| slice.kind == kind::SLICE).map_or((0, 0), |slice| slice.bits());
            let Ok(at) = u32::try_from(field.at.saturating_add(before.into())) else { continue };
            if bits <= 64 {
                let name = ctf.text(key, field.name).to_owned();
                members.push(Member { name, ty: self.id(dict, field.ty)?, at, bits });
            }
        }
        self.graph.blob.sou(id, name, is_union, size(ty), &members);
        Ok(())
    }

    fn enumeration(&mut self, key: u64, ty: &Type<'_>, id: u32) {
        let named = |(name, value)| (self.ctf.text(key, name).to_owned(), value);
        let values: Vec<(String, i64)> = ty.enumerators().take(blob::MAX_PARTS).map(named).collect();
        let is_signed = values.iter().any(|(_, value)| *value < 0);
        self.graph.blob.enumeration(id, self.ctf.text(key, ty.name), size(ty), is_signed, &values);
    }
}

fn size(ty: &Type<'_>) -> u32 {
    u32::try_from(ty.size).unwrap_or(0)
}
