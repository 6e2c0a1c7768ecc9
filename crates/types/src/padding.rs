//! Padding: the bits of a struct that no member has.
//!
//! Two structs of equal members are equal values, whatever is in between. Who compares them as bytes clears that first.
//! In a union, a bit is padding where no member has it; a member that is shorter than the union leaves the rest to the
//! others, and what they left there counts.

use crate::model::{Kind, TypeId, Types};

/// A byte that is not wholly of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Where it is.
    pub offset: u32,
    /// The bits that members have; 0 where it is all padding.
    pub kept: u8,
}

impl Types {
    /// The padding of an object of at most `limit` bytes, in ascending order; none of a longer one, or of one whose size
    /// nobody knows.
    pub fn padding(&self, id: TypeId, limit: u32) -> Vec<Padding> {
        let size = self.size(id).and_then(|s| u32::try_from(s).ok()).filter(|s| *s <= limit);
        let mut map = vec![0u8; size.unwrap_or(0) as usize];
        self.cover(id, 0, &mut map, crate::import::MAX_DEPTH);
        let bytes = (0u32..).zip(map).filter(|(_, kept)| *kept != 0xff);
        bytes.map(|(offset, kept)| Padding { offset, kept }).collect()
    }

    /// Marks the bits that an object at `at` (in bits) has.
    fn cover(&self, id: TypeId, at: u64, map: &mut [u8], depth: u32) {
        let bits = self.size(id).unwrap_or(0).saturating_mul(8);
        // What is outside of the whole is nobody's: so the work is bounded by its size.
        if depth == 0 || bits == 0 || at / 8 >= map.len() as u64 {
            return;
        }
        match self.base_kind(id) {
            Kind::Sou { .. } => {
                // A bit-field without a name is there to pad.
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

/// Sets bits, as far as there are so many.
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
        types.padding(id, 1000).into_iter().map(|p| (p.offset, p.kept)).collect()
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
    fn what_no_member_has_is_padding() {
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
        assert!(found.iter().all(|(at, kept)| *at == 1 || *kept == 0));
        // Of each element.
        let array = sou(&types, TagKind::Struct, &[("v", types.array(inner, 2), None)]);
        let at: Vec<u32> = padding(&types, array).iter().map(|p| p.0).collect();
        assert_eq!(at, [1, 2, 3, 9, 10, 11]);
        // A union is what its members together are.
        let all = sou(&types, TagKind::Union, &[("s", inner, None), ("l", TypeId::LONG, None)]);
        assert_eq!(padding(&types, all), []);
        assert_eq!(padding(&types, TypeId::INT), []);
    }
}
