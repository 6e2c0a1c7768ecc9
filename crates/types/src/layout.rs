//! Sizes, alignments, members.
//!
//! A struct declared by a D program is laid out as in C (System V rules; bit-fields are packed into
//! units of their declared type), with one difference that DTrace has and scripts can observe:
//! there is no tail padding. `struct { int a; int b:3; char c[4]; }` has 9 bytes. Imported structs
//! have the size and offsets of their source.

use std::collections::HashSet;
use std::sync::Arc;

use crate::model::{Body, Inner, Kind, MAX_DEPTH, Member, TypeId, Types};

/// Maximum number of types visited by one query. Malformed BTF can have structs that contain
/// themselves several times; C cannot.
const MAX_STEPS: u32 = 10_000;

/// A member as a D program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDecl {
    /// Empty for an anonymous struct or union, or an unnamed bit-field.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// Width of a bit-field.
    pub bits: Option<u64>,
}

/// A member found by name, possibly inside anonymous members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedMember {
    /// Its type.
    pub ty: TypeId,
    /// Bits from the start of the *outer* struct.
    pub bit_offset: u64,
    /// Width of a bit-field.
    pub bits: Option<u8>,
}

impl ResolvedMember {
    /// Byte offset from the start of the outer struct. For a bit-field, the byte that contains its
    /// first bit.
    pub fn offset(&self) -> u64 {
        self.bit_offset / 8
    }

    /// How to load a bit-field.
    pub fn bit_access(&self) -> Option<BitAccess> {
        self.bits.and_then(|bits| BitAccess::of(self.bit_offset, bits))
    }
}

/// A single load that contains a bit-field. Shift right by `shift`, then keep `bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitAccess {
    /// Bytes from the start of the struct.
    pub offset: u64,
    /// Bytes to load: 1, 2, 4 or 8.
    pub size: u8,
    /// Bits below the field (little-endian).
    pub shift: u8,
    /// Width.
    pub bits: u8,
}

impl BitAccess {
    /// The smallest naturally aligned load, otherwise eight bytes from the field's first byte.
    /// `None` when no single load contains the field (wider than 57 bits and unaligned, which only
    /// packed structs have).
    pub fn of(bit_offset: u64, bits: u8) -> Option<BitAccess> {
        if bits == 0 {
            return None;
        }
        let last = bit_offset.checked_add(u64::from(bits) - 1)?;
        for size in [1u8, 2, 4, 8] {
            let unit = u64::from(size) * 8;
            if bit_offset / unit == last / unit {
                let offset = bit_offset / unit * u64::from(size);
                return Some(BitAccess { offset, size, shift: (bit_offset % unit) as u8, bits });
            }
        }
        let shift = (bit_offset % 8) as u8;
        (u32::from(shift) + u32::from(bits) <= 64).then_some(BitAccess {
            offset: bit_offset / 8,
            size: 8,
            shift,
            bits,
        })
    }
}

/// Why a struct cannot be laid out. The index is that of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// A bit-field wider than its type (D_DECL_BFSIZE).
    BitFieldSize(usize),
    /// A bit-field whose type is not an integer (D_DECL_BFTYPE).
    BitFieldType(usize),
    /// A member without size: void, function, forward declaration (D_DECL_INCOMPLETE,
    /// D_DECL_VOIDOBJ).
    Incomplete(usize),
    /// A duplicate member name.
    Duplicate(usize),
    /// The size overflows.
    TooBig(usize),
    /// The type is not a struct or union.
    NotSou,
}

impl Inner {
    pub(crate) fn size(&self, id: TypeId, depth: u32) -> Option<u64> {
        if depth == 0 {
            return None;
        }
        let id = self.resolve(id);
        let entry = self.entries.get(id.0 as usize)?;
        match &entry.kind {
            Kind::Int(int) | Kind::Enum { int, complete: true, .. } => Some(u64::from(int.size)),
            Kind::Float { size } => Some(u64::from(*size)),
            Kind::Pointer { .. } | Kind::Stack | Kind::Symaddr => Some(8),
            Kind::Usymaddr => Some(16),
            Kind::Array { elem, len } => self.size(*elem, depth - 1)?.checked_mul(*len),
            Kind::String => Some(self.strsize),
            Kind::Sou { complete: true, .. } => match entry.body {
                Body::Members(_, size) | Body::Btf { size, .. } => Some(size),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Types {
    /// Size in bytes; `None` for void, functions, dynamic objects, and forward declarations without
    /// a definition.
    pub fn size(&self, id: TypeId) -> Option<u64> {
        let known = self.read().size(id, MAX_DEPTH);
        known.or_else(|| {
            self.complete(id);
            self.read().size(id, MAX_DEPTH)
        })
    }

    /// Alignment in bytes, at least 1.
    pub fn align(&self, id: TypeId) -> u64 {
        self.align_at(id, MAX_DEPTH, &mut { MAX_STEPS })
    }

    fn align_at(&self, id: TypeId, depth: u32, steps: &mut u32) -> u64 {
        if depth == 0 || *steps == 0 {
            return 1;
        }
        *steps -= 1;
        match self.base_kind(id) {
            Kind::Array { elem, .. } => self.align_at(elem, depth - 1, steps),
            Kind::Sou { .. } => {
                self.members(id).iter().map(|m| self.align_at(m.ty, depth - 1, steps)).max().unwrap_or(1)
            }
            Kind::String => 1,
            Kind::Usymaddr => 8,
            _ => self.size(id).unwrap_or(1).clamp(1, 16),
        }
    }

    /// Members of a struct or union in order. Empty for a forward declaration and for other types.
    pub fn members(&self, id: TypeId) -> Arc<[Member]> {
        let id = self.resolve(id);
        self.complete(id);
        self.import_body(id);
        match self.read().entries.get(id.0 as usize).map(|e| &e.body) {
            Some(Body::Members(members, _)) => members.clone(),
            _ => Arc::new([]),
        }
    }

    /// Enumerators in order. Empty unless the type is a complete enumeration.
    pub fn enumerators(&self, id: TypeId) -> Arc<[(Arc<str>, i64)]> {
        let id = self.resolve(id);
        self.import_body(id);
        match self.read().entries.get(id.0 as usize).map(|e| &e.body) {
            Some(Body::Enumerators(list)) => list.clone(),
            _ => Arc::new([]),
        }
    }

    /// A member by name, also inside anonymous structs and unions.
    pub fn member(&self, id: TypeId, name: &str) -> Option<ResolvedMember> {
        self.member_at(id, name, MAX_DEPTH, &mut { MAX_STEPS })
    }

    fn member_at(&self, id: TypeId, name: &str, depth: u32, steps: &mut u32) -> Option<ResolvedMember> {
        if depth == 0 || *steps == 0 || name.is_empty() {
            return None;
        }
        *steps -= 1;
        let members = self.members(id);
        if let Some(m) = members.iter().find(|m| &*m.name == name) {
            return Some(ResolvedMember { ty: m.ty, bit_offset: m.bit_offset, bits: m.bits });
        }
        members.iter().filter(|m| m.name.is_empty() && m.bits.is_none()).find_map(|m| {
            let inner = self.member_at(m.ty, name, depth - 1, steps)?;
            Some(ResolvedMember { bit_offset: m.bit_offset.checked_add(inner.bit_offset)?, ..inner })
        })
    }

    /// Names that [`Types::member`] can find, for "did you mean".
    pub fn member_names(&self, id: TypeId) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        self.collect_names(id, &mut names, 16, &mut { MAX_STEPS });
        names
    }

    fn collect_names(&self, id: TypeId, names: &mut Vec<Arc<str>>, depth: u32, steps: &mut u32) {
        if depth == 0 || *steps == 0 {
            return;
        }
        *steps -= 1;
        for m in self.members(id).iter() {
            if m.name.is_empty() {
                self.collect_names(m.ty, names, depth - 1, steps);
            } else {
                names.push(m.name.clone());
            }
        }
    }

    /// `offsetof(type, member)` in bytes; `None` for a bit-field or when there is no such member.
    pub fn offset_of(&self, id: TypeId, name: &str) -> Option<u64> {
        self.member(id, name).filter(|f| f.bits.is_none()).map(|f| f.offset())
    }

    /// Lays out and completes a struct or union that the program declares.
    pub fn define_sou(&self, id: TypeId, decls: &[MemberDecl]) -> Result<(), LayoutError> {
        let Kind::Sou { union, .. } = self.kind(id) else { return Err(LayoutError::NotSou) };
        let laid_out = self.lay_out(union, decls);
        let mut inner = self.write();
        inner.defining.retain(|d| *d != id);
        let (members, size) = laid_out?;
        if let Some(entry) = inner.entries.get_mut(id.0 as usize) {
            if let Kind::Sou { complete, .. } = &mut entry.kind {
                *complete = true;
            }
            entry.body = Body::Members(members.into(), size);
        }
        Ok(())
    }

    fn lay_out(&self, union: bool, decls: &[MemberDecl]) -> Result<(Vec<Member>, u64), LayoutError> {
        let mut members: Vec<Member> = Vec::with_capacity(decls.len());
        let mut names = HashSet::with_capacity(decls.len());
        let mut next = 0u64; // first free bit
        let mut end = 0u64; // last used bit + 1
        for (i, decl) in decls.iter().enumerate() {
            let size = self.size(decl.ty).ok_or(LayoutError::Incomplete(i))?;
            let size_bits = size.checked_mul(8).ok_or(LayoutError::TooBig(i))?;
            if !decl.name.is_empty() && !names.insert(decl.name.as_str()) {
                return Err(LayoutError::Duplicate(i));
            }
            let start = if union { 0 } else { next };
            let round = |unit: u64| start.checked_next_multiple_of(unit).ok_or(LayoutError::TooBig(i));
            let (at, width, bits) = match decl.bits {
                Some(width) => {
                    if !matches!(self.base_kind(decl.ty), Kind::Int(_) | Kind::Enum { .. }) {
                        return Err(LayoutError::BitFieldType(i));
                    }
                    if width > size_bits || (width == 0 && !decl.name.is_empty()) {
                        return Err(LayoutError::BitFieldSize(i));
                    }
                    let last = start.checked_add(width).ok_or(LayoutError::TooBig(i))?.checked_sub(1);
                    let fits = width != 0 && last.is_some_and(|last| start / size_bits == last / size_bits);
                    (if fits { start } else { round(size_bits)? }, width, Some(width as u8))
                }
                None => (round(self.align(decl.ty) * 8)?, size_bits, None),
            };
            next = at.checked_add(width).ok_or(LayoutError::TooBig(i))?;
            end = end.max(next);
            // An unnamed bit-field only takes space.
            if bits.is_none() || !decl.name.is_empty() {
                members.push(Member { name: decl.name.as_str().into(), ty: decl.ty, bit_offset: at, bits });
            }
        }
        Ok((members, end.div_ceil(8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TagKind;

    fn decl(name: &str, ty: TypeId, bits: Option<u64>) -> MemberDecl {
        MemberDecl { name: name.into(), ty, bits }
    }

    fn sou(t: &Types, kind: TagKind, decls: &[MemberDecl]) -> TypeId {
        let id = t.declare_tag(kind, None);
        t.define_sou(id, decls).unwrap();
        id
    }

    // row type.struct
    #[test]
    fn a_struct_declared_in_d_has_no_tail_padding() {
        let t = Types::new();
        let s = sou(
            &t,
            TagKind::Struct,
            &[
                decl("a", TypeId::INT, None),
                decl("b", TypeId::INT, Some(3)),
                decl("c", t.array(TypeId::CHAR, 4), None),
            ],
        );
        assert_eq!(t.size(s), Some(9));
        assert_eq!(t.align(s), 4);
        assert_eq!(t.offset_of(s, "c"), Some(5));
        assert_eq!(t.offset_of(s, "b"), None);
        let b = t.member(s, "b").unwrap();
        assert_eq!(b.bit_access(), Some(BitAccess { offset: 4, size: 1, shift: 0, bits: 3 }));
    }

    // row type.bit-field, type.union
    #[test]
    fn members_are_aligned_and_bit_fields_packed_as_in_c() {
        let t = Types::new();
        let s = sou(
            &t,
            TagKind::Struct,
            &[
                decl("c", TypeId::CHAR, None),
                decl("l", TypeId::LONG, None),
                decl("x", TypeId::UINT, Some(20)),
                decl("y", TypeId::UINT, Some(20)),
                decl("", TypeId::UINT, Some(0)),
                decl("z", TypeId::UINT, Some(1)),
            ],
        );
        assert_eq!(t.offset_of(s, "l"), Some(8));
        assert_eq!(t.member(s, "x").unwrap().bit_offset, 128);
        assert_eq!(t.member(s, "y").unwrap().bit_offset, 160);
        assert_eq!(t.member(s, "z").unwrap().bit_offset, 192);
    }

    // row type.anonymous-member
    #[test]
    fn members_of_anonymous_members_are_found_by_name() {
        let t = Types::new();
        let u = sou(&t, TagKind::Union, &[decl("i", TypeId::INT, None), decl("s", TypeId::SHORT, None)]);
        let s = sou(&t, TagKind::Struct, &[decl("a", TypeId::LONG, None), decl("", u, None)]);
        assert_eq!(t.offset_of(s, "s"), Some(8));
        assert_eq!(t.size(s), Some(12));
        assert_eq!(t.member_names(s).len(), 3);
        assert_eq!(t.member(s, ""), None);
    }

    #[test]
    fn a_member_of_incomplete_type_is_rejected() {
        let t = Types::new();
        let f = t.declare_tag(TagKind::Struct, Some("later"));
        let s = t.declare_tag(TagKind::Struct, None);
        for (ty, bits, error) in [
            (f, None, LayoutError::Incomplete(0)),
            (TypeId::VOID, None, LayoutError::Incomplete(0)),
            (TypeId::INT, Some(33), LayoutError::BitFieldSize(0)),
            (TypeId::VOID_PTR, Some(3), LayoutError::BitFieldType(0)),
            (t.array(TypeId::LONG, u64::MAX / 8), None, LayoutError::TooBig(0)),
        ] {
            assert_eq!(t.define_sou(s, &[decl("m", ty, bits)]), Err(error));
        }
        assert_eq!(t.size(s), None);
    }

    #[test]
    fn a_bit_field_across_units_is_loaded_unaligned() {
        assert_eq!(BitAccess::of(60, 8), Some(BitAccess { offset: 7, size: 8, shift: 4, bits: 8 }));
        assert_eq!(BitAccess::of(63, 64), None);
        assert_eq!(BitAccess::of(12, 3), Some(BitAccess { offset: 1, size: 1, shift: 4, bits: 3 }));
        assert_eq!(BitAccess::of(u64::MAX, 8), None);
    }
}
