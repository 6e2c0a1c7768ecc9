//! What the calling convention looks at of the types in DWARF.

use gimli::{AttributeValue, constants as dw};

use crate::query::Error;
use crate::shapes::{MAX_DEPTH, MAX_MEMBERS, Part, RustObject, Shape, Shapes};
use crate::units::{At, Entry, Units};

/// The most children of a class that are looked at: a template has hundreds of functions.
const MAX_CHILDREN: usize = 4096;
/// The most fields of all variants of an enumeration of Rust.
const MAX_FIELDS: usize = 4096;
/// The most classes in a class.
const MAX_PARTS: usize = 256;

/// The type without names and qualifiers.
fn bare<'a>(units: &Units<'a>, mut ty: u64) -> Result<(At<'a>, Entry<'a>), Error> {
    for _ in 0..MAX_DEPTH {
        let at = units.at(ty)?;
        let entry = at.entry()?;
        let named = matches!(
            entry.tag(),
            dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type
        );
        match units.type_of(&at, &entry).filter(|_| named) {
            Some(target) => ty = target,
            None => return Ok((at, entry)),
        }
    }
    Err(Error::Malformed("a type of itself".into()))
}

fn number(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    entry.attr_value(name)?.udata_value()
}

impl Shapes for Units<'_> {
    fn shape(&self, ty: u64) -> Result<Shape, Error> {
        let (at, entry) = bare(self, ty)?;
        let size = number(&entry, dw::DW_AT_byte_size);
        Ok(match entry.tag() {
            dw::DW_TAG_base_type => match (entry.attr_value(dw::DW_AT_encoding), size.unwrap_or(0)) {
                (Some(AttributeValue::Encoding(dw::DW_ATE_float)), size) => Shape::Float(size),
                (Some(AttributeValue::Encoding(dw::DW_ATE_complex_float)), size) => Shape::Complex(size),
                (_, size) => Shape::Integer(size),
            },
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let is_trivial = match entry.attr_value(dw::DW_AT_calling_convention) {
                    Some(AttributeValue::CallingConvention(is)) => Some(is != dw::DW_CC_pass_by_reference),
                    // Rust and Go move every object as bytes.
                    _ if matches!(at.unit.language, Some(dw::DW_LANG_Rust | dw::DW_LANG_Go)) => Some(true),
                    // GCC does not say it.
                    _ => is_trivial(self, ty, &mut MAX_PARTS.clone())?,
                };
                match is_trivial {
                    Some(is_trivial) => Shape::Object { size, is_by_address: !is_trivial },
                    None => Shape::Object { size: None, is_by_address: false },
                }
            }
            dw::DW_TAG_array_type => {
                let ranges = at.children(MAX_MEMBERS)?;
                let lengths = ranges.iter().filter(|child| child.tag() == dw::DW_TAG_subrange_type);
                let count = |range: &Entry<'_>| {
                    let last = number(range, dw::DW_AT_upper_bound);
                    number(range, dw::DW_AT_count).or(last.map(|last| last.wrapping_add(1))).unwrap_or(0)
                };
                let count = lengths.map(count).fold(1, u64::saturating_mul);
                let elem = self.type_of(&at, &entry);
                if entry.attr_value(dw::DW_AT_GNU_vector).is_none() {
                    return Ok(Shape::Array { elem, count });
                }
                let of = elem.map(|elem| bare(self, elem)).transpose()?;
                let of = of.and_then(|(_, elem)| number(&elem, dw::DW_AT_byte_size)).unwrap_or(8);
                match of.saturating_mul(count) {
                    // One register of floating-point numbers. Where larger ones are depends on the
                    // processor that is compiled for.
                    ..=16 => Shape::Float(8),
                    _ => Shape::Object { size: None, is_by_address: false },
                }
            }
            // To a function: its address, and what is added to the address of the object.
            dw::DW_TAG_ptr_to_member_type => {
                let target = self.type_of(&at, &entry).map(|target| bare(self, target)).transpose()?;
                let is_function = target.is_some_and(|(_, of)| of.tag() == dw::DW_TAG_subroutine_type);
                Shape::Integer(if is_function { 16 } else { 8 })
            }
            _ => Shape::Integer(size.filter(|size| (1..=8).contains(size)).unwrap_or(8)),
        })
    }

    fn members(&self, ty: u64) -> Result<Vec<Part>, Error> {
        let (at, _) = bare(self, ty)?;
        let children = at.children(MAX_CHILDREN)?;
        let members = children.iter().filter(|child| match child.tag() {
            dw::DW_TAG_member => !is_static(child),
            tag => matches!(tag, dw::DW_TAG_inheritance | dw::DW_TAG_variant_part),
        });
        Ok(members.map(|child| part(self, &at, child, 0)).collect())
    }

    fn rust_object(&self, ty: u64) -> Result<Option<RustObject>, Error> {
        let (at, entry) = bare(self, ty)?;
        let name = self.qualified_name(at.key()).unwrap_or_default();
        let begins = |all: &[&str]| all.iter().any(|beginning| name.starts_with(beginning));
        // Vectors: which of them have registers depends on what is compiled for.
        if begins(&["core::core_arch::", "core::core_simd::", "core::simd::"]) {
            return Ok(None);
        }
        let mut object = RustObject {
            alignment: number(&entry, dw::DW_AT_alignment),
            has_own_layout: begins(&["core::", "alloc::", "std::", "("]),
            is_union: entry.tag() == dw::DW_TAG_union_type,
            ..RustObject::default()
        };
        for child in at.children(MAX_CHILDREN)? {
            match child.tag() {
                dw::DW_TAG_member if !is_static(&child) => object.fields.push(part(self, &at, &child, 0)),
                dw::DW_TAG_variant_part => variants(self, &at, &child, &mut object)?,
                _ => {}
            }
        }
        Ok(Some(object))
    }
}

/// A member of an object, which may begin somewhere in a larger one.
fn part<'a>(units: &Units<'a>, at: &At<'a>, member: &Entry<'a>, before: u64) -> Part {
    let offset = match member.attr_value(dw::DW_AT_data_member_location) {
        Some(_) => Units::member_offset(&at.unit, member),
        None => number(member, dw::DW_AT_data_bit_offset).map(|bits| bits / 8),
    };
    Part {
        offset: before.saturating_add(offset.unwrap_or(0)),
        ty: units.type_of(at, member),
        is_bit_field: member.attr_value(dw::DW_AT_bit_size).is_some(),
    }
}

/// The tag and the variants of an enumeration of Rust. A variant is a struct.
fn variants<'a>(
    units: &Units<'a>,
    at: &At<'a>,
    all: &Entry<'a>,
    object: &mut RustObject,
) -> Result<(), Error> {
    let all = At { unit: at.unit.clone(), offset: all.offset() };
    let mut left = MAX_FIELDS;
    for child in all.children(MAX_CHILDREN)? {
        if child.tag() == dw::DW_TAG_member {
            object.tag = Some(part(units, &all, &child, 0));
        }
        if child.tag() != dw::DW_TAG_variant {
            continue;
        }
        let variant = At { unit: at.unit.clone(), offset: child.offset() };
        let mut fields = Vec::new();
        for inner in variant.children(MAX_PARTS)? {
            let whole = part(units, &variant, &inner, 0);
            let Some(ty) = whole.ty.filter(|_| inner.tag() == dw::DW_TAG_member) else { continue };
            let (at, entry) = bare(units, ty)?;
            if entry.tag() != dw::DW_TAG_structure_type {
                fields.push(whole);
                continue;
            }
            let members = at.children(MAX_CHILDREN)?;
            let members = members.iter().filter(|child| child.tag() == dw::DW_TAG_member);
            fields.extend(members.map(|child| part(units, &at, child, whole.offset)));
        }
        left = left.checked_sub(fields.len()).ok_or(Error::Large)?;
        object.variants.push(fields);
    }
    Ok(())
}

/// A member of a class and not of its objects: DWARF before version 5 has them among the others.
fn is_static(member: &Entry<'_>) -> bool {
    let has = |name| member.attr_value(name).is_some();
    has(dw::DW_AT_external) || has(dw::DW_AT_declaration)
}

/// True if an object can be copied as bytes. One of a class with virtual functions or a destructor
/// of its own cannot, nor can one that has such an object: it is passed and returned by address
/// (Itanium C++ ABI, "Non-Trivial Parameters"). `None`: it has too many parts to say. A class that
/// has only a copy constructor of its own is not recognized.
fn is_trivial(units: &Units<'_>, ty: u64, left: &mut usize) -> Result<Option<bool>, Error> {
    let Some(rest) = left.checked_sub(1) else { return Ok(None) };
    *left = rest;
    let (at, entry) = bare(units, ty)?;
    match entry.tag() {
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {}
        dw::DW_TAG_array_type => {
            let elem = units.type_of(&at, &entry);
            return elem.map_or(Ok(Some(true)), |elem| is_trivial(units, elem, left));
        }
        _ => return Ok(Some(true)),
    }
    for child in at.children(MAX_CHILDREN)? {
        let is_virtual = child.attr_value(dw::DW_AT_virtuality).is_some();
        let part = match child.tag() {
            dw::DW_TAG_subprogram => {
                let name = units.text_of(&at.unit, &child, dw::DW_AT_name).unwrap_or_default();
                let is_own = name.starts_with('~') && child.attr_value(dw::DW_AT_defaulted).is_none();
                if is_virtual || is_own {
                    return Ok(Some(false));
                }
                None
            }
            dw::DW_TAG_inheritance if is_virtual => return Ok(Some(false)),
            dw::DW_TAG_inheritance => units.type_of(&at, &child),
            dw::DW_TAG_member if !is_static(&child) => units.type_of(&at, &child),
            _ => None,
        };
        if let Some(part) = part {
            match is_trivial(units, part, left)? {
                Some(true) => {}
                other => return Ok(other),
            }
        }
    }
    Ok(Some(true))
}
