//! What D says about types: classes, conversion, compatibility.
//!
//! D's rules are C's with three differences that scripts can see: nothing is promoted to `int` (`char + char` is a
//! `char`); of two integers the one of higher rank wins, and the rank is the number of bits plus one if unsigned; and
//! `string` is a value of its own that `char *` and `char []` turn into. Compatibility goes by structure and names, not
//! by identity, because the same struct may come from the program and from the kernel.

use crate::model::{Int, IntClass, Kind, TypeId, Types};

impl Types {
    /// The integer behind a type: integers and enumerations. The kernel has some of 128 bits, which are objects to D.
    pub fn as_int(&self, id: TypeId) -> Option<Int> {
        match self.base_kind(id) {
            Kind::Int(int) | Kind::Enum { int, .. } => Some(int).filter(|i| i.size <= 8),
            _ => None,
        }
    }

    /// Integers and enumerations.
    pub fn is_integer(&self, id: TypeId) -> bool {
        self.as_int(id).is_some()
    }

    /// Floating point.
    pub fn is_float(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Float { .. })
    }

    /// Pointers and arrays (which decay to them), functions too.
    pub fn is_pointer(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Pointer { .. } | Kind::Array { .. } | Kind::Function { .. })
    }

    /// Integers, enumerations, pointers: what a predicate or a test can be.
    pub fn is_scalar(&self, id: TypeId) -> bool {
        self.is_integer(id) || self.is_pointer(id)
    }

    /// D's `string`.
    pub fn is_string(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::String)
    }

    /// `string`, `char *`, `char []`: what turns into a string where one is wanted.
    pub fn is_string_like(&self, id: TypeId) -> bool {
        match self.base_kind(id) {
            Kind::String => true,
            Kind::Pointer { target: e, .. } | Kind::Array { elem: e, .. } => {
                matches!(self.base_kind(e), Kind::Int(Int { class: IntClass::Char, .. }))
            }
            _ => false,
        }
    }

    /// `void`.
    pub fn is_void(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Void)
    }

    /// Structs and unions.
    pub fn is_sou(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Sou { .. })
    }

    /// Arrays.
    pub fn is_array(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Array { .. })
    }

    /// Functions.
    pub fn is_function(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Function { .. })
    }

    /// Enumerations.
    pub fn is_enum(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Enum { .. })
    }

    /// Values that can only be recorded or used as an aggregation key: stacks and symbols.
    pub fn is_internal(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Stack | Kind::Symaddr | Kind::Usymaddr)
    }

    /// True for an integer type with sign.
    pub fn is_signed(&self, id: TypeId) -> bool {
        self.as_int(id).is_some_and(|i| i.signed)
    }

    /// What a pointer points to, what an array holds; the flag says it is in user memory.
    pub fn pointee(&self, id: TypeId) -> Option<(TypeId, bool)> {
        match self.base_kind(id) {
            Kind::Pointer { target, userland } => Some((target, userland)),
            Kind::Array { elem, .. } => Some((elem, false)),
            _ => None,
        }
    }

    /// The type an expression of this type has as a value: arrays and functions become pointers, qualifiers go.
    pub fn decay(&self, id: TypeId) -> TypeId {
        match self.base_kind(id) {
            Kind::Array { elem, .. } => self.pointer(elem),
            Kind::Function { .. } => self.pointer(id),
            _ => match self.kind(id) {
                Kind::Qualified { target, .. } => target,
                _ => id,
            },
        }
    }

    /// Result of arithmetic on two integers: the one of higher rank (bits, plus one if unsigned), the left one of
    /// equals; an enumeration counts as `int`. `None` unless both are integers.
    pub fn arithmetic(&self, left: TypeId, right: TypeId) -> Option<TypeId> {
        let (l, r) = (self.arithmetic_operand(left)?, self.arithmetic_operand(right)?);
        Some(if l.1 < r.1 { r.0 } else { l.0 })
    }

    fn arithmetic_operand(&self, id: TypeId) -> Option<(TypeId, u32)> {
        let id = self.resolve(id);
        let id = if self.is_enum(id) { TypeId::INT } else { id };
        let int = self.as_int(id)?;
        Some((id, u32::from(int.size) * 8 + u32::from(!int.signed)))
    }

    /// Whether two types are the same thing, whatever they are called by typedefs and wherever they come from.
    pub fn compatible(&self, a: TypeId, b: TypeId) -> bool {
        self.compatible_at(a, b, 32)
    }

    fn compatible_at(&self, a: TypeId, b: TypeId, depth: u32) -> bool {
        let (a, b) = (self.resolve(a), self.resolve(b));
        if a == b {
            return true;
        }
        if depth == 0 {
            return false;
        }
        match (self.kind(a), self.kind(b)) {
            (Kind::Int(x), Kind::Int(y)) => x == y,
            (Kind::Float { size: x }, Kind::Float { size: y }) => x == y,
            (Kind::Pointer { target: x, .. }, Kind::Pointer { target: y, .. }) => {
                self.compatible_at(x, y, depth - 1)
            }
            (Kind::Array { elem: x, len: n }, Kind::Array { elem: y, len: m }) => {
                n == m && self.compatible_at(x, y, depth - 1)
            }
            (
                Kind::Sou { union: u, tag: Some(x), complete: c },
                Kind::Sou { union: v, tag: Some(y), complete: d },
            ) => u == v && x == y && (!c || !d || self.size(a) == self.size(b)),
            (Kind::Enum { tag: Some(x), .. }, Kind::Enum { tag: Some(y), .. }) => x == y,
            (
                Kind::Function { ret: r, params: p, variadic: v },
                Kind::Function { ret: s, params: q, variadic: w },
            ) => {
                v == w
                    && p.len() == q.len()
                    && self.compatible_at(r, s, depth - 1)
                    && p.iter().zip(q.iter()).all(|(x, y)| self.compatible_at(*x, *y, depth - 1))
            }
            _ => false,
        }
    }

    /// Whether two pointers (or arrays) can be compared, assigned, or be the arms of `?:`: compatible targets, or one
    /// is `void *`. The constant 0 goes with every pointer; that is for the caller to see, as it knows expressions.
    pub fn pointers_compatible(&self, a: TypeId, b: TypeId) -> bool {
        let target = |id| match self.base_kind(id) {
            Kind::Pointer { target, .. } => Some(target),
            Kind::Array { elem, .. } => Some(elem),
            Kind::Function { .. } => Some(id),
            _ => None,
        };
        match (target(a), target(b)) {
            (Some(x), Some(y)) => self.is_void(x) || self.is_void(y) || self.compatible(x, y),
            _ => false,
        }
    }

    /// Whether a value of type `from` can be assigned to, passed as, or used as key of type `to` (constant 0 for a
    /// pointer aside): any integer to any integer, string-like to string, compatible pointers, the same struct.
    pub fn assignable(&self, to: TypeId, from: TypeId) -> bool {
        if self.is_integer(to) && self.is_integer(from) {
            return true;
        }
        if self.is_string(to) {
            return self.is_string_like(from);
        }
        if self.is_pointer(to) && self.is_pointer(from) {
            return self.pointers_compatible(to, from);
        }
        (self.is_sou(to) || self.is_internal(to) || self.is_float(to)) && self.compatible(to, from)
    }

    /// Whether a cast is allowed: between scalars; of scalars and `char []` to `string`; to a compatible type; of
    /// anything to `void`.
    pub fn castable(&self, to: TypeId, from: TypeId) -> bool {
        if self.is_void(to) || self.compatible(to, from) {
            return true;
        }
        if self.is_string(to) {
            return self.is_string_like(from) || self.is_scalar(from) && !self.is_array(from);
        }
        let target = self.is_integer(to) || matches!(self.base_kind(to), Kind::Pointer { .. });
        // An array gives its address: to a pointer only.
        target && self.is_scalar(from) && (!self.is_array(from) || !self.is_integer(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemberDecl, TagKind};

    // row expression.no-promotion
    #[test]
    fn nothing_is_promoted_and_the_higher_rank_wins() {
        let t = Types::new();
        for (l, r, result) in [
            (TypeId::CHAR, TypeId::CHAR, TypeId::CHAR),
            (TypeId::CHAR, TypeId::INT, TypeId::INT),
            (TypeId::UINT, TypeId::INT, TypeId::UINT),
            (TypeId::LONG, TypeId::UINT, TypeId::LONG),
            (TypeId::ULONG, TypeId::LONG, TypeId::ULONG),
            (TypeId::LONG, TypeId::LLONG, TypeId::LONG),
        ] {
            assert_eq!(t.arithmetic(l, r), Some(result), "{l:?} {r:?}");
        }
        let e = t.declare_tag(TagKind::Enum, Some("e"));
        t.define_enum(e, &[("A", 1)]);
        assert_eq!(t.arithmetic(e, TypeId::CHAR), Some(TypeId::INT));
        assert_eq!(t.arithmetic(TypeId::VOID_PTR, TypeId::INT), None);
        assert_eq!(t.arithmetic(TypeId::STRING, TypeId::INT), None);
        let pid = t.find("pid_t").unwrap();
        assert_eq!(t.arithmetic(pid, TypeId::SHORT), Some(TypeId::INT));
    }

    // row type.string-promotion
    #[test]
    fn strings_come_from_characters() {
        let t = Types::new();
        let consts = t.qualified(TypeId::CHAR, crate::Quals::CONST);
        for ty in [TypeId::STRING, TypeId::CHAR_PTR, t.array(TypeId::UCHAR, 8), t.pointer(consts)] {
            assert!(t.is_string_like(ty));
            assert!(t.assignable(TypeId::STRING, ty));
            assert!(t.castable(TypeId::STRING, ty));
        }
        assert!(!t.is_string_like(TypeId::VOID_PTR));
        assert!(!t.assignable(TypeId::STRING, TypeId::INT));
        assert!(t.castable(TypeId::STRING, TypeId::INT));
        assert!(!t.castable(TypeId::CHAR_PTR, TypeId::STRING));
        assert!(!t.assignable(TypeId::CHAR_PTR, TypeId::STRING));
    }

    #[test]
    fn pointers_go_with_their_like_and_with_void() {
        let t = Types::new();
        let ip = t.pointer(TypeId::INT);
        assert!(t.pointers_compatible(ip, TypeId::VOID_PTR));
        assert!(!t.pointers_compatible(ip, TypeId::CHAR_PTR));
        assert!(t.pointers_compatible(ip, t.array(TypeId::INT, 3)));
        assert!(t.pointers_compatible(t.pointer(t.find("pid_t").unwrap()), ip));
        assert!(!t.assignable(ip, TypeId::INT));
        assert!(t.castable(ip, TypeId::LONG));
        assert!(t.castable(TypeId::LONG, ip));
        assert!(!t.castable(TypeId::LONG, t.array(TypeId::INT, 3)));
        assert!(t.castable(ip, t.array(TypeId::CHAR, 3)));
    }

    #[test]
    fn structs_are_compatible_by_tag_and_size() {
        let (t, m) = (Types::new(), |ty| MemberDecl { name: "m".into(), ty, bits: None });
        let a = t.declare_tag(TagKind::Struct, Some("a"));
        let b = t.declare_tag(TagKind::Struct, Some("b"));
        t.define_sou(a, &[m(TypeId::INT)]).unwrap();
        t.define_sou(b, &[m(TypeId::INT)]).unwrap();
        assert!(!t.compatible(a, b));
        assert!(t.assignable(a, t.add_typedef("a_t", a)));
        assert!(!t.castable(TypeId::INT, a));
        assert!(t.castable(TypeId::VOID, a));
    }

    #[test]
    fn arrays_decay() {
        let t = Types::new();
        assert_eq!(t.decay(t.array(TypeId::CHAR, 4)), TypeId::CHAR_PTR);
        assert_eq!(t.decay(t.qualified(TypeId::INT, crate::Quals::CONST)), TypeId::INT);
    }
}
