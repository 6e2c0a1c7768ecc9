//! How the compiler of Rust sees a value when it is passed between functions of Rust.
//!
//! Rust's own convention is not specified. What is here is what the compiler has done for years
//! (`rustc_abi::layout` and `fn_abi_adjust_for_rust_abi`), and what debug information does not tell
//! is [`Layout::Unsure`]:
//!
//! ```text
//!  one number or pointer, and structs with nothing else       one register
//!  two of them and nothing else: &str, (u8, u32), Option<u32>  two registers, each by itself
//!  anything else of at most 8 bytes                            one register of integers
//!  anything else                                               its address
//! ```
//!
//! A struct with one field that is `repr(C)` is no number to the compiler, and debug information
//! has no trace of `repr(C)`. So a number in a struct of a program is not sure: as a parameter it
//! is in one register anyway, but with a second number it may be a pair or not.

use crate::query::Error;
use crate::shapes::{Part, RustObject, Shape, Shapes};

/// The most types that are looked at for one value.
const MAX_TYPES: usize = 512;
/// The most types in types.
const MAX_NESTED: u32 = 16;
/// Bytes of a register.
const WORD: u64 = 8;

/// A number or pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) size: u64,
    pub(crate) is_float: bool,
    /// False if it is in a struct that may be `repr(C)`.
    pub(crate) is_sure: bool,
    ty: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// It has no size.
    Nothing,
    Scalar(Scalar),
    Pair(Scalar, Scalar),
    /// Bytes in memory.
    Memory,
    /// It may be any of these.
    Unsure,
}

/// A value: how it is seen, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) layout: Layout,
    pub(crate) size: u64,
    /// It has a number of 16 bytes, so that a pair may be larger than 16.
    pub(crate) has_wide: bool,
}

/// Looks at a type.
pub(crate) fn see<T: Shapes>(types: &T, ty: u64) -> Result<Seen, Error> {
    let mut look = Look { types, left: MAX_TYPES, has_wide: false };
    let (layout, size) = look.at(ty, MAX_NESTED)?;
    Ok(Seen { layout, size, has_wide: look.has_wide })
}

struct Look<'t, T> {
    types: &'t T,
    left: usize,
    has_wide: bool,
}

/// A field that has a size.
#[derive(Clone, Copy)]
struct Field {
    offset: u64,
    size: u64,
    layout: Layout,
}

impl Field {
    fn overlaps(&self, other: &Field) -> bool {
        self.offset < other.offset.saturating_add(other.size)
            && other.offset < self.offset.saturating_add(self.size)
    }
}

impl<T: Shapes> Look<'_, T> {
    fn at(&mut self, ty: u64, depth: u32) -> Result<(Layout, u64), Error> {
        // More than this is more than two numbers, but its size is wanted all the same.
        let is_enough = self.left == 0 || depth == 0;
        self.left = self.left.saturating_sub(1);
        let scalar = |size, is_float| (Layout::Scalar(Scalar { size, is_float, is_sure: true, ty }), size);
        Ok(match self.types.shape(ty)? {
            Shape::Integer(0) => (Layout::Nothing, 0),
            Shape::Integer(size) => {
                self.has_wide |= size > WORD;
                scalar(size, false)
            }
            Shape::Float(size @ (4 | 8)) => scalar(size, true),
            Shape::Float(size) | Shape::Complex(size) => {
                self.has_wide = true;
                (Layout::Unsure, size)
            }
            Shape::Array { elem: Some(elem), count } if !is_enough => {
                let (_, size) = self.at(elem, depth - 1)?;
                match size.saturating_mul(count) {
                    0 => (Layout::Nothing, 0),
                    size => (Layout::Memory, size),
                }
            }
            Shape::Object { size: Some(0), .. } => (Layout::Nothing, 0),
            Shape::Object { size: Some(size), .. } if !is_enough => match self.types.rust_object(ty)? {
                Some(object) => (self.object(&object, size, depth)?, size),
                None => {
                    self.has_wide = true;
                    (Layout::Unsure, size)
                }
            },
            Shape::Object { size: Some(size), .. } => {
                self.has_wide = true;
                (Layout::Unsure, size)
            }
            Shape::Array { .. } | Shape::Object { size: None, .. } => {
                self.has_wide = true;
                (Layout::Unsure, u64::MAX)
            }
        })
    }

    fn field(&mut self, part: &Part, depth: u32) -> Result<Field, Error> {
        let (layout, size) = match part.ty {
            Some(ty) => self.at(ty, depth - 1)?,
            None => (Layout::Unsure, u64::MAX),
        };
        Ok(Field { offset: part.offset, size, layout })
    }

    /// Those that have a size.
    fn fields(&mut self, parts: &[Part], depth: u32) -> Result<Vec<Field>, Error> {
        let mut fields = Vec::new();
        for part in parts {
            fields.push(self.field(part, depth)?);
        }
        fields.retain(|field| field.layout != Layout::Nothing);
        Ok(fields)
    }

    fn object(&mut self, object: &RustObject, size: u64, depth: u32) -> Result<Layout, Error> {
        let whole = Whole { size, alignment: object.alignment };
        let outside = self.fields(&object.fields, depth)?;
        if object.variants.is_empty() {
            return Ok(match (object.is_union, outside.as_slice()) {
                (false, fields) => whole.of(fields, object.has_own_layout),
                (true, [only]) => match whole.of(&[*only], object.has_own_layout) {
                    // A union that is `repr(C)` is no pair.
                    Layout::Pair(..) if !object.has_own_layout => Layout::Unsure,
                    layout => layout,
                },
                (true, _) => Layout::Unsure,
            });
        }
        let mut variants = Vec::new();
        for variant in &object.variants {
            variants.push(self.fields(variant, depth)?);
        }
        if !outside.is_empty() || variants.iter().flatten().any(|field| field.size > size) {
            return Ok(Layout::Unsure);
        }
        let Some(tag) = object.tag else {
            return Ok(match variants.as_slice() {
                [only] => whole.of(only, object.has_own_layout),
                _ => Layout::Unsure,
            });
        };
        let tag = self.field(&tag, depth)?;
        variants.retain(|fields| !fields.is_empty());
        // A tag in a field is a value that the field cannot have otherwise.
        let is_inside = variants.iter().flatten().any(|field| field.overlaps(&tag));
        Ok(match variants.as_slice() {
            [] => whole.of(&[tag], true),
            [fields] if is_inside => whole.of(fields, true),
            [fields] => match fields.as_slice() {
                [only] => whole.of(&[tag, *only], true),
                _ => Layout::Memory,
            },
            several => {
                let is_memory = |field: &Field| matches!(field.layout, Layout::Memory | Layout::Pair(..));
                let firsts: Option<Vec<Field>> = several
                    .iter()
                    .map(|fields| match fields.as_slice() {
                        [only] => Some(*only),
                        _ => None,
                    })
                    .collect();
                match firsts.as_deref() {
                    _ if is_inside => Layout::Memory,
                    Some([first, rest @ ..]) => {
                        if is_memory(first)
                            || rest.iter().any(|field| is_memory(field) || field.offset != first.offset)
                        {
                            Layout::Memory
                        } else if rest.iter().all(|field| field.layout == first.layout) {
                            whole.of(&[tag, *first], true)
                        } else {
                            Layout::Unsure
                        }
                    }
                    _ => Layout::Memory,
                }
            }
        })
    }
}

/// What an object has around its fields.
struct Whole {
    size: u64,
    alignment: Option<u64>,
}

impl Whole {
    /// The layout of an object with these fields. `keeps` if it is certain that one with a single
    /// field is what the field is.
    fn of(&self, fields: &[Field], keeps: bool) -> Layout {
        let is_memory = |field: &Field| matches!(field.layout, Layout::Memory | Layout::Pair(..));
        match *fields {
            [] => Layout::Unsure,
            [Field { layout: layout @ (Layout::Unsure | Layout::Memory), .. }] => layout,
            [only] => {
                let alignment = match only.layout {
                    Layout::Scalar(scalar) => scalar.size,
                    Layout::Pair(first, second) => first.size.max(second.size),
                    _ => return Layout::Unsure,
                };
                match only.layout {
                    _ if only.offset != 0 || only.size != self.size || !self.has_alignment(alignment) => {
                        Layout::Memory
                    }
                    Layout::Scalar(scalar) => {
                        Layout::Scalar(Scalar { is_sure: scalar.is_sure && keeps, ..scalar })
                    }
                    layout => layout,
                }
            }
            [one, other] if is_memory(&one) || is_memory(&other) => Layout::Memory,
            [one, other] => {
                let (first, second) = if one.offset <= other.offset { (one, other) } else { (other, one) };
                let (Layout::Scalar(a), Layout::Scalar(b)) = (first.layout, second.layout) else {
                    return Layout::Unsure;
                };
                // The alignment of a number of 16 bytes has changed from version to version.
                if a.size > WORD || b.size > WORD {
                    return Layout::Unsure;
                }
                let alignment = a.size.max(b.size);
                let at = a.size.next_multiple_of(b.size.max(1));
                let size = (at + b.size).next_multiple_of(alignment.max(1));
                let is_pair = first.offset == 0
                    && second.offset == at
                    && size == self.size
                    && self.has_alignment(alignment);
                match is_pair {
                    false => Layout::Memory,
                    true if a.is_sure && b.is_sure => Layout::Pair(a, b),
                    true => Layout::Unsure,
                }
            }
            _ => Layout::Memory,
        }
    }

    fn has_alignment(&self, alignment: u64) -> bool {
        self.alignment.is_none_or(|own| own == alignment)
    }
}
