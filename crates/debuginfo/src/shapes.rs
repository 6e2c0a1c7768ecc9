//! What a calling convention looks at of types, whatever format they are in.

use crate::query::Error;

/// The most types in types.
pub(crate) const MAX_DEPTH: u32 = 32;
/// The most members that are looked at, in one object and for one parameter.
pub(crate) const MAX_MEMBERS: usize = 64;

/// What the convention looks at of a type without names and qualifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A number, a pointer, an enumeration: its bytes.
    Integer(u64),
    /// A floating-point number.
    Float(u64),
    /// A complex number.
    Complex(u64),
    /// An array of so many elements of a type.
    Array { elem: Option<u64>, count: u64 },
    /// A struct or union. The caller may have a copy, and pass its address.
    Object { size: Option<u64>, is_by_address: bool },
}

/// A member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes from the beginning of the object. A bit-field begins at the byte of its first bit.
    pub(crate) offset: u64,
    pub(crate) ty: Option<u64>,
    pub(crate) is_bit_field: bool,
}

/// An object of Rust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RustObject {
    /// Bytes, if the debug information says it.
    pub(crate) alignment: Option<u64>,
    /// A tuple, or of a library of the compiler: it is not `repr(C)`.
    pub(crate) has_own_layout: bool,
    pub(crate) is_union: bool,
    /// Fields outside of variants.
    pub(crate) fields: Vec<Part>,
    /// Of an enumeration, what says which variant it is.
    pub(crate) tag: Option<Part>,
    /// The fields of each variant.
    pub(crate) variants: Vec<Vec<Part>>,
}

/// Types by the keys of their entries.
pub(crate) trait Shapes {
    fn shape(&self, ty: u64) -> Result<Shape, Error>;

    fn members(&self, ty: u64) -> Result<Vec<Part>, Error>;

    /// An object of Rust. `None` if what it is cannot be said; only DWARF describes them.
    fn rust_object(&self, _ty: u64) -> Result<Option<RustObject>, Error> {
        Ok(None)
    }
}
