//! Entries of DWARF as types of BTF.
//!
//! ```text
//!  C++     class           struct; what it inherits is a member without a name, so its members are found by theirs
//!          reference       pointer
//!  Rust    enum            struct with the tag as `discriminant` and one member for each variant, with its name, at the same place
//!  all     scopes          part of the name: std::string
//! ```

use gimli::{AttributeValue, DwTag, constants as dw};

use crate::arch::{Convention, GoConvention, Rules};
use crate::blob::{self, Kind, MAX_PARTS, Member};
use crate::graph::Graph;
use crate::index::Index;
use crate::query::{Answer, Error, MAX_CANDIDATES, NameKind, Place, Query, in_order};
use crate::units::{At, Entry, Units};

/// What the compiler of Go calls the parameter that a generic function has for its types.
const DICTIONARY: &str = ".dict";

/// Answers a question.
pub(crate) fn answer(units: &Units<'_>, index: &Index, query: &Query) -> Result<Answer, Error> {
    let mut converter = Converter { units, index, graph: Graph::new() };
    let mut answer = Answer::default();
    match query {
        Query::Function { address, name } => {
            let Some(key) = index.function(units, *address, name) else { return Ok(answer) };
            let at = units.at(key)?;
            let (found, places) = match at.unit.language {
                Some(dw::DW_LANG_Go) => {
                    let (found, places, results) = converter.go_function(&at)?;
                    answer.results = results;
                    (found, places)
                }
                _ => converter.function(&at)?,
            };
            (answer.found, answer.places) = (Some(found), places);
        }
        Query::Name(NameKind::Variable, name) => {
            let Some((at, entry, address)) = converter.variable(name)? else { return Ok(answer) };
            let ty = converter.type_of(&at, &entry)?;
            (answer.found, answer.address) = (Some(ty), Some(address));
        }
        Query::Name(kind, name) => {
            let mut candidates = index.named(*kind, name).take(MAX_CANDIDATES);
            // A hash is not a name.
            let found = candidates.find(|key| units.qualified_name(*key).as_deref() == Some(name));
            let Some(key) = found else { return Ok(answer) };
            answer.found = Some(converter.graph.id(key));
        }
        Query::Entry(key) => answer.found = Some(converter.graph.id(*key)),
        Query::Like(kind, beginning) => {
            let names = index
                .all()
                .filter(|key| units.at(*key).and_then(|at| at.entry()).is_ok_and(|e| is_of(*kind, e.tag())))
                .filter_map(|key| units.qualified_name(key))
                .filter(|name| name.starts_with(beginning.as_str()));
            answer.names = in_order(names);
            return Ok(answer);
        }
    }
    converter.convert_waiting()?;
    converter.graph.finish(&mut answer);
    Ok(answer)
}

fn is_of(kind: NameKind, tag: DwTag) -> bool {
    match kind {
        NameKind::Struct => matches!(tag, dw::DW_TAG_structure_type | dw::DW_TAG_class_type),
        NameKind::Union => tag == dw::DW_TAG_union_type,
        NameKind::Enum => tag == dw::DW_TAG_enumeration_type,
        NameKind::Typedef => tag == dw::DW_TAG_typedef,
        NameKind::Variable => tag == dw::DW_TAG_variable,
    }
}

struct Converter<'u, 'a> {
    units: &'u Units<'a>,
    index: &'u Index,
    graph: Graph,
}

impl<'a> Converter<'_, 'a> {
    fn convert_waiting(&mut self) -> Result<(), Error> {
        while let Some((key, id)) = self.graph.next()? {
            let at = self.units.at(key)?;
            let entry = at.entry()?;
            self.convert(&at, &entry, id)?;
        }
        Ok(())
    }

    /// The type that an entry has; 0 is `void`.
    fn type_of(&mut self, at: &At<'a>, entry: &Entry<'a>) -> Result<u32, Error> {
        Ok(self.units.type_of(at, entry).map_or(0, |key| self.graph.id(key)))
    }

    fn name(&self, at: &At<'a>, entry: &Entry<'a>) -> String {
        match entry.attr_value(dw::DW_AT_name) {
            Some(_) => self.units.qualified_name(at.key()).unwrap_or_default(),
            None => String::new(),
        }
    }

    fn size(entry: &Entry<'a>) -> u32 {
        number(entry, dw::DW_AT_byte_size).and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
    }

    fn convert(&mut self, at: &At<'a>, entry: &Entry<'a>, id: u32) -> Result<(), Error> {
        let name = || self.name(at, entry);
        match entry.tag() {
            dw::DW_TAG_base_type => {
                let (name, size) = (name(), Self::size(entry));
                let encoding = match entry.attr_value(dw::DW_AT_encoding) {
                    Some(AttributeValue::Encoding(encoding)) => encoding,
                    _ => dw::DW_ATE_unsigned,
                };
                match encoding {
                    dw::DW_ATE_float | dw::DW_ATE_imaginary_float => {
                        self.graph.blob.simple(id, Kind::Float, &name, size)
                    }
                    dw::DW_ATE_complex_float => self.graph.blob.sou(id, &name, false, size, &[]),
                    dw::DW_ATE_signed => self.graph.blob.int(id, &name, size, blob::SIGNED),
                    dw::DW_ATE_signed_char => self.graph.blob.int(id, &name, size, blob::SIGNED | blob::CHAR),
                    dw::DW_ATE_unsigned_char => self.graph.blob.int(id, &name, size, blob::CHAR),
                    dw::DW_ATE_boolean => self.graph.blob.int(id, &name, size, blob::BOOL),
                    _ => self.graph.blob.int(id, &name, size, 0),
                }
            }
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                let target = self.type_of(at, entry)?;
                self.graph.blob.simple(id, Kind::Ptr, "", target);
            }
            dw::DW_TAG_typedef | dw::DW_TAG_template_alias => {
                let (name, target) = (name(), self.type_of(at, entry)?);
                self.graph.blob.simple(id, Kind::Typedef, &name, target);
            }
            tag @ (dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type) => {
                let target = self.type_of(at, entry)?;
                let kind = match tag {
                    dw::DW_TAG_const_type => Kind::Const,
                    dw::DW_TAG_restrict_type => Kind::Restrict,
                    _ => Kind::Volatile,
                };
                self.graph.blob.simple(id, kind, "", target);
            }
            dw::DW_TAG_array_type => self.array(at, entry, id)?,
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                self.sou(at, entry, id)?
            }
            dw::DW_TAG_enumeration_type => self.enumeration(at, entry, id)?,
            // The address of a closure.
            dw::DW_TAG_subroutine_type if at.unit.language == Some(dw::DW_LANG_Go) => {
                self.graph.blob.simple(id, Kind::Ptr, "", 0);
            }
            dw::DW_TAG_subroutine_type => {
                let ret = self.type_of(at, entry)?;
                let mut params = Vec::new();
                for child in at.children(MAX_PARTS)? {
                    match child.tag() {
                        dw::DW_TAG_formal_parameter => {
                            params.push((String::new(), self.type_of(at, &child)?))
                        }
                        dw::DW_TAG_unspecified_parameters => params.push((String::new(), 0)),
                        _ => {}
                    }
                }
                self.graph.blob.prototype(id, ret, &params);
            }
            // What is pointed to is a member of an object: a number to D.
            dw::DW_TAG_ptr_to_member_type => self.graph.blob.int(id, "long", 8, blob::SIGNED),
            dw::DW_TAG_unspecified_type => {
                // `decltype(nullptr)`, and the empty type of Rust.
                let name = name();
                self.graph.blob.simple(id, Kind::Typedef, &name, 0);
            }
            _ => self.graph.blob.forward(id, "", false),
        }
        Ok(())
    }

    fn array(&mut self, at: &At<'a>, entry: &Entry<'a>, id: u32) -> Result<(), Error> {
        let mut elem = self.type_of(at, entry)?;
        let index = self.graph.index_type();
        let mut lengths: Vec<u32> = Vec::new();
        for child in at.children(64)? {
            if matches!(child.tag(), dw::DW_TAG_subrange_type | dw::DW_TAG_enumeration_type) {
                let count = number(&child, dw::DW_AT_count);
                let last = number(&child, dw::DW_AT_upper_bound);
                // An array without bounds has none of them, and an empty one the bound -1.
                let count = count.or_else(|| last.map(|last| last.wrapping_add(1))).unwrap_or(0);
                lengths.push(u32::try_from(count).unwrap_or(0));
            }
        }
        // The first one is the outermost.
        let first = lengths.first().copied().unwrap_or(0);
        for length in lengths.get(1..).unwrap_or_default().iter().rev() {
            let inner = self.graph.blob.reserve();
            self.graph.blob.array(inner, elem, index, *length);
            elem = inner;
        }
        self.graph.blob.array(id, elem, index, first);
        Ok(())
    }

    fn sou(&mut self, at: &At<'a>, entry: &Entry<'a>, id: u32) -> Result<(), Error> {
        let (name, union) = (self.name(at, entry), entry.tag() == dw::DW_TAG_union_type);
        if flag(entry, dw::DW_AT_declaration) {
            // The definition may be in another unit.
            let kind = if union { NameKind::Union } else { NameKind::Struct };
            let mut named = self.index.named(kind, &name).take(MAX_CANDIDATES);
            let defined = named.find(|key| self.units.qualified_name(*key).as_deref() == Some(&name));
            return match defined.map(|key| self.units.at(key)).transpose()? {
                Some(full) => {
                    let entry = full.entry()?;
                    if flag(&entry, dw::DW_AT_declaration) {
                        return Err(Error::Malformed("a definition that declares".into()));
                    }
                    self.sou(&full, &entry, id)
                }
                None => {
                    self.graph.blob.forward(id, &name, union);
                    Ok(())
                }
            };
        }
        if !self.graph.has_space(at.key(), id) {
            self.graph.blob.forward(id, &name, union);
            return Ok(());
        }
        let mut members = Vec::new();
        for child in at.children(MAX_PARTS)? {
            match child.tag() {
                dw::DW_TAG_member | dw::DW_TAG_inheritance => {
                    let ty = self.type_of(at, &child)?;
                    members.extend(self.member(at, &child, ty));
                }
                dw::DW_TAG_variant_part => self.variants(at, &child, &mut members)?,
                _ => {}
            }
        }
        self.graph.blob.sou(id, &name, union, Self::size(entry), &members);
        Ok(())
    }

    /// A member, unless it has no place in the object.
    fn member(&self, at: &At<'a>, entry: &Entry<'a>, ty: u32) -> Option<Member> {
        if flag(entry, dw::DW_AT_external) || flag(entry, dw::DW_AT_declaration) {
            return None;
        }
        let name = self.units.text_of(&at.unit, entry, dw::DW_AT_name).unwrap_or("").to_owned();
        let bytes = Units::member_offset(&at.unit, entry)?;
        let bits = number(entry, dw::DW_AT_bit_size).unwrap_or(0);
        let start = bytes.checked_mul(8)?;
        let start = match (number(entry, dw::DW_AT_data_bit_offset), number(entry, dw::DW_AT_bit_offset)) {
            (Some(offset), _) => start.checked_add(offset)?,
            // DWARF 3 counts from the most significant bit of the member's storage.
            (None, Some(from_top)) if bits != 0 => {
                let storage = number(entry, dw::DW_AT_byte_size).or_else(|| self.size_of(at, entry))?;
                start.checked_add(storage.checked_mul(8)?.checked_sub(from_top)?.checked_sub(bits)?)?
            }
            _ => start,
        };
        let (at, bits) = (u32::try_from(start).ok()?, u32::try_from(bits).ok().filter(|bits| *bits <= 64)?);
        Some(Member { name, ty, at, bits })
    }

    fn size_of(&self, at: &At<'a>, entry: &Entry<'a>) -> Option<u64> {
        let mut key = self.units.type_of(at, entry)?;
        for _ in 0..16 {
            let at = self.units.at(key).ok()?;
            let entry = at.entry().ok()?;
            if let Some(size) = number(&entry, dw::DW_AT_byte_size) {
                return Some(size);
            }
            key = self.units.type_of(&at, &entry)?;
        }
        None
    }

    /// The variants of an enumeration of Rust.
    fn variants(&mut self, at: &At<'a>, part: &Entry<'a>, members: &mut Vec<Member>) -> Result<(), Error> {
        let part = At { unit: at.unit.clone(), offset: part.offset() };
        for child in part.children(MAX_PARTS)? {
            match child.tag() {
                dw::DW_TAG_member => {
                    let ty = self.type_of(&part, &child)?;
                    let tag = self.member(&part, &child, ty);
                    members.extend(tag.map(|tag| Member { name: "discriminant".into(), ..tag }));
                }
                dw::DW_TAG_variant => {
                    let variant = At { unit: at.unit.clone(), offset: child.offset() };
                    for inner in variant.children(MAX_PARTS)? {
                        if inner.tag() == dw::DW_TAG_member {
                            let ty = self.type_of(&variant, &inner)?;
                            members.extend(self.member(&variant, &inner, ty));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn enumeration(&mut self, at: &At<'a>, entry: &Entry<'a>, id: u32) -> Result<(), Error> {
        let name = self.name(at, entry);
        let size = match Self::size(entry) {
            0 => self.size_of(at, entry).and_then(|size| u32::try_from(size).ok()).unwrap_or(4),
            size => size,
        };
        let mut values = Vec::new();
        if !flag(entry, dw::DW_AT_declaration) {
            for child in at.children(MAX_PARTS)? {
                let name = self.units.text_of(&at.unit, &child, dw::DW_AT_name);
                let value = child.attr_value(dw::DW_AT_const_value);
                let value = value.and_then(|v| v.sdata_value().or_else(|| v.udata_value().map(|v| v as i64)));
                if let (dw::DW_TAG_enumerator, Some(name), Some(value)) = (child.tag(), name, value) {
                    values.push((name.to_owned(), value));
                }
            }
        }
        // Constants of one byte have no sign in DWARF: whether they have one is in the values.
        let signed = values.iter().any(|(_, value)| *value < 0);
        self.graph.blob.enumeration(id, &name, size, signed, &values);
        Ok(())
    }

    /// A variable with a fixed address, by its qualified name.
    fn variable(&self, name: &str) -> Result<Option<(At<'a>, Entry<'a>, u64)>, Error> {
        for key in self.index.named(NameKind::Variable, name).take(MAX_CANDIDATES) {
            let at = self.units.at(key)?;
            let entry = at.entry()?;
            let Some(address) = self.units.address(&at.unit, &entry) else { continue };
            // What it is called and its type may be where it is declared.
            let declared =
                entry.attr_value(dw::DW_AT_specification).and_then(|v| self.units.target(&at.unit, &v));
            if self.units.qualified_name(declared.unwrap_or(key)).as_deref() != Some(name) {
                continue;
            }
            let (at, entry) = match declared.filter(|_| entry.attr_value(dw::DW_AT_type).is_none()) {
                Some(declared) => {
                    let at = self.units.at(declared)?;
                    let entry = at.entry()?;
                    (at, entry)
                }
                None => (at, entry),
            };
            return Ok(Some((at, entry, address)));
        }
        Ok(None)
    }

    /// The prototype of a function, and the places of its parameters.
    fn function(&mut self, concrete: &At<'a>) -> Result<(u32, Vec<Place>), Error> {
        let id = self.graph.blob.reserve();
        // The entry with the code refers to the one with the names, perhaps over another one.
        let mut chain = vec![concrete.clone()];
        for _ in 0..4 {
            let Some(last) = chain.last() else { break };
            let entry = last.entry()?;
            let origin =
                entry.attr_value(dw::DW_AT_abstract_origin).or(entry.attr_value(dw::DW_AT_specification));
            let Some(next) = origin.and_then(|v| self.units.target(&last.unit, &v)) else { break };
            chain.push(self.units.at(next)?);
        }
        let (mut result, mut refused) = (None, None);
        for at in &chain {
            let entry = at.entry()?;
            result = result.or_else(|| self.units.type_of(at, &entry));
            refused = refused.or_else(|| self.refused(at, &entry));
        }
        let mut params: Vec<(String, Option<u64>)> = Vec::new();
        let mut variadic = false;
        // The compiler may have left out, at the code, parameters that it does not use.
        for at in chain.iter().rev() {
            let children = at.children(MAX_PARTS)?;
            let own: Vec<_> = children.iter().filter(|c| c.tag() == dw::DW_TAG_formal_parameter).collect();
            variadic |= children.iter().any(|c| c.tag() == dw::DW_TAG_unspecified_parameters);
            if own.len() < params.len() || own.is_empty() {
                continue;
            }
            params.clear();
            for child in own {
                params.push(self.parameter(at, child)?);
            }
        }
        let rules = match concrete.unit.language {
            Some(dw::DW_LANG_Rust) if self.is_mangled(&chain)? => Rules::Rust,
            Some(dw::DW_LANG_Rust) => Rules::RustOrC,
            _ => Rules::C,
        };
        let mut convention = Convention::new(self.units, rules, result)?;
        let (mut list, mut places) = (Vec::new(), Vec::new());
        for (name, ty) in params {
            places.push(match refused {
                Some(why) => Place::Unreadable(why.into()),
                None => convention.next(ty)?,
            });
            list.push((name, ty.map_or(0, |key| self.graph.id(key))));
        }
        if variadic {
            list.push((String::new(), 0));
        }
        let ret = result.map_or(0, |key| self.graph.id(key));
        self.graph.blob.prototype(id, ret, &list);
        Ok((id, places))
    }

    /// The same of a function of Go, and how many of the places are those of results, which are the
    /// last ones.
    fn go_function(&mut self, at: &At<'a>) -> Result<(u32, Vec<Place>, u32), Error> {
        let id = self.graph.blob.reserve();
        let entry = at.entry()?;
        let address = self.units.low_pc(&at.unit, &entry);
        let origin = |entry: &Entry<'a>| {
            let value = entry.attr_value(dw::DW_AT_abstract_origin)?;
            self.units.target(&at.unit, &value)
        };
        // That of a function which is put inline elsewhere has the names.
        let declared = origin(&entry).map(|declared| self.units.at(declared)).transpose()?;
        let is_value = |child: &Entry<'a>| child.tag() == dw::DW_TAG_formal_parameter;
        let own: Vec<Entry<'a>> = at.children(MAX_PARTS)?.into_iter().filter(is_value).collect();
        let mut values = Vec::new();
        match &declared {
            None => values.extend(own.iter().map(|child| (at, child.clone(), Some(child)))),
            Some(declared) => {
                for child in declared.children(MAX_PARTS)?.into_iter().filter(is_value) {
                    let key = At { unit: declared.unit.clone(), offset: child.offset() }.key();
                    let located = own.iter().find(|own| origin(own) == Some(key));
                    values.push((declared, child, located));
                }
            }
        }
        let mut convention = GoConvention::new(self.units);
        let (mut params, mut results) = (Vec::new(), Vec::new());
        for (at_value, child, located) in values {
            let (name, ty) = self.parameter(at_value, &child)?;
            let spots = |address| located.map_or(Vec::new(), |own| self.units.spots(&at.unit, own, address));
            if flag(&child, dw::DW_AT_variable_parameter) {
                results.push((name, ty, convention.result(ty, &spots(None))?));
            } else if name != DICTIONARY {
                params.push((name, ty, convention.parameter(ty, &spots(address))?));
            }
        }
        let count = results.len() as u32;
        let (mut list, mut places) = (Vec::new(), Vec::new());
        for (name, ty, place) in params.into_iter().chain(results) {
            list.push((name, ty.map_or(0, |key| self.graph.id(key))));
            places.push(place);
        }
        self.graph.blob.prototype(id, 0, &list);
        Ok((id, places, count))
    }

    /// Why the places of the parameters of a function cannot be told from their types.
    fn refused(&self, at: &At<'a>, entry: &Entry<'a>) -> Option<&'static str> {
        if let Some(AttributeValue::CallingConvention(dw::DW_CC_nocall)) =
            entry.attr_value(dw::DW_AT_calling_convention)
        {
            return Some(
                "the compiler has given this function a calling convention of its own, which the debug information does not describe",
            );
        }
        if at.unit.language != Some(dw::DW_LANG_Rust) {
            return None;
        }
        let name = self.units.text_of(&at.unit, entry, dw::DW_AT_name).unwrap_or_default();
        // `{closure#0}`, `{async_fn#0}` and so on. A name with one of them inside, such as
        // `run<{closure_env#0}>`, is that of a function like any other.
        if name.starts_with('{') {
            return Some(
                "it is behind what the closure has captured, and the debug information does not list that among the parameters",
            );
        }
        // The parameters of a closure that is called through `Fn`, `FnMut` or `FnOnce` are declared
        // as one tuple, and passed singly.
        let linked = self.units.text_of(&at.unit, entry, dw::DW_AT_linkage_name).unwrap_or_default();
        let is_call = ["call<", "call_mut<", "call_once<"].iter().any(|call| name.starts_with(call));
        (is_call && linked.contains("4core3ops8function")).then_some(
            "the arguments of a closure are declared as one tuple, and the debug information does not say how they are passed",
        )
    }

    /// True for a function that has a name of the compiler, as those that are called from Rust do.
    fn is_mangled(&self, chain: &[At<'a>]) -> Result<bool, Error> {
        for at in chain {
            let entry = at.entry()?;
            let linked = self.units.text_of(&at.unit, &entry, dw::DW_AT_linkage_name).unwrap_or_default();
            if linked.starts_with("_ZN") || linked.starts_with("_R") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Name and type of a parameter, which may be where it is declared.
    fn parameter(&self, at: &At<'a>, entry: &Entry<'a>) -> Result<(String, Option<u64>), Error> {
        let (mut at, mut entry) = (at.clone(), entry.clone());
        for _ in 0..4 {
            let name = self.units.text_of(&at.unit, &entry, dw::DW_AT_name);
            let ty = self.units.type_of(&at, &entry);
            let origin = entry.attr_value(dw::DW_AT_abstract_origin);
            match origin.and_then(|v| self.units.target(&at.unit, &v)).filter(|_| ty.is_none()) {
                Some(next) => {
                    at = self.units.at(next)?;
                    entry = at.entry()?;
                }
                None => return Ok((name.unwrap_or("").to_owned(), ty)),
            }
        }
        Ok((String::new(), None))
    }
}

fn flag(entry: &Entry<'_>, name: gimli::DwAt) -> bool {
    matches!(entry.attr_value(name), Some(AttributeValue::Flag(true)))
}

fn number(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    let value = entry.attr_value(name)?;
    value.udata_value().or_else(|| value.sdata_value().map(|v| v as u64))
}
