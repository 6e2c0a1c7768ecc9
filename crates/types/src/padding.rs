//! Padding: the bits of a struct that belong to no member.
//!
//! Two structs with equal members are equal values, whatever their padding. So code that compares
//! structs as bytes clears the padding first. In a union, a bit is padding when it belongs to no
//! member. When a union member shorter than the union is written, the remaining bytes belong to
//! other members and count in a comparison.

use crate::model::{Kind, TypeId, Types};

/// A byte that contains padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Offset of the byte.
    pub offset: u32,
    /// Mask of the bits that belong to members. 0 when the whole byte is padding.
    pub member_bits: u8,
}

impl Types {
    /// The padding of an object of at most `limit` bytes, in ascending order. Empty for a longer
    /// object, or one of unknown size.
    pub fn padding(&self, id: TypeId, limit: u32) -> Vec<Padding> {
        let size = self.size(id).and_then(|s| u32::try_from(s).ok()).filter(|s| *s <= limit);
        let mut map = vec![0u8; size.unwrap_or(0) as usize];
        self.cover(id, 0, &mut map, crate::model::MAX_DEPTH);
        let bytes = (0u32..).zip(map).filter(|(_, member_bits)| *member_bits != 0xff);
        bytes.map(|(offset, member_bits)| Padding { offset, member_bits }).collect()
    }

    /// Marks the bits of the members of an object at bit offset `at`.
    fn cover(&self, id: TypeId, at: u64, map: &mut [u8], depth: u32) {
        let bits = self.size(id).unwrap_or(0).saturating_mul(8);
        // Bits outside of the object are ignored. So the size of the object bounds the work.
        if depth == 0 || bits == 0 || at / 8 >= map.len() as u64 {
            return;
        }
        match self.base_kind(id) {
            Kind::Sou { .. } => {
                // An unnamed bit-field is padding.
                for m in self.members(id).iter().filter(|m| m.bits.is_none() || !m.name.is_empty()) {
                    let at = at.saturating_add(m.bit_offset);
                    match m.bits {
                        Some(bits) => mark(map, at, bits.into()),
                        None => self.cover(m.ty, at, map, depth - 1),
                    }
                }
            }
            Kind::Array { elem, len } if self.is_sou(elem) || self.is_array(elem) => {
                let each = self.size(elem).unwrap_or(0).saturating_mul(8);
                let end = (map.len() as u64).saturating_mul(8);
                let places = (0..len).map(|i| at.saturating_add(i.saturating_mul(each)));
                places.take_while(|at| each > 0 && *at < end).for_each(|at| {
                    self.cover(elem, at, map, depth - 1);
                });
            }
            _ => mark(map, at, bits),
        }
    }
}

/// Sets bits, as far as the map reaches.
fn mark(map: &mut [u8], at: u64, bits: u64) {
    let (mut at, end) = (at, at.saturating_add(bits).min(map.len() as u64 * 8));
    while at < end {
        let Some(byte) = usize::try_from(at / 8).ok().and_then(|i| map.get_mut(i)) else { return };
        let (from, upto) = (at % 8, (end - at / 8 * 8).min(8));
        *byte |= (((1u16 << upto) - 1) as u8) & !(((1u16 << from) - 1) as u8);
        at = at / 8 * 8 + 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::MemberDecl;
    use crate::model::TagKind;

    fn padding(types: &Types, id: TypeId) -> Vec<(u32, u8)> {
        types.padding(id, 1000).into_iter().map(|p| (p.offset, p.member_bits)).collect()
    }

    fn sou(types: &Types, kind: TagKind, members: &[(&str, TypeId, Option<u64>)]) -> TypeId {
        let id = types.begin_definition(kind, None);
        let decls: Vec<MemberDecl> = members
            .iter()
            .map(|(name, ty, bits)| MemberDecl { name: (*name).into(), ty: *ty, bits: *bits })
            .collect();
        types.define_sou(id, &decls).unwrap();
        id
    }

    #[test]
    fn bits_that_belong_to_no_member_are_padding() {
        let types = Types::new();
        let inner = sou(&types, TagKind::Struct, &[("c", TypeId::CHAR, None), ("i", TypeId::INT, None)]);
        assert_eq!(padding(&types, inner), [(1, 0), (2, 0), (3, 0)]);
        let bits = [
            ("a", TypeId::UINT, Some(3)),
            ("b", TypeId::UINT, Some(7)),
            ("", TypeId::UINT, Some(2)),
            ("c", TypeId::CHAR, None),
        ];
        let fields = sou(&types, TagKind::Struct, &bits);
        let size = types.size(fields).unwrap() as u32;
        let found = padding(&types, fields);
        assert_eq!(found[0], (1, 0b11), "{found:?} of {size}");
        assert!(found.iter().all(|(at, member_bits)| *at == 1 || *member_bits == 0));
        // The padding repeats in each element.
        let array = sou(&types, TagKind::Struct, &[("v", types.array(inner, 2), None)]);
        let at: Vec<u32> = padding(&types, array).iter().map(|p| p.0).collect();
        assert_eq!(at, [1, 2, 3, 9, 10, 11]);
        // The members of a union together determine its padding.
        let all = sou(&types, TagKind::Union, &[("s", inner, None), ("l", TypeId::LONG, None)]);
        assert_eq!(padding(&types, all), []);
        assert_eq!(padding(&types, TypeId::INT), []);
    }
}
