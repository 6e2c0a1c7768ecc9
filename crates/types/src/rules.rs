//! D's rules for types: classes, conversion, compatibility.
//!
//! D's rules are C's with three differences that scripts can observe:
//! - Nothing is promoted to `int`: `char + char` is a `char`.
//! - Of two integers, the one of higher rank determines the type. The rank is the number of bits,
//!   plus one if unsigned.
//! - `string` is a value type of its own, to which `char *` and `char []` are converted.
//!
//! Compatibility is defined by structure and names, not by identity, because the same struct may
//! come from the program and from the kernel.

use crate::model::{Int, IntClass, Kind, TypeId, Types};

impl Types {
    /// The underlying integer of an integer or enumeration type. The kernel has 128-bit integers;
    /// to D they are objects.
    pub fn as_int(&self, id: TypeId) -> Option<Int> {
        match self.base_kind(id) {
            Kind::Int(int) | Kind::Enum { int, .. } => Some(int).filter(|i| i.size <= 8),
            _ => None,
        }
    }

    /// True for integers and enumerations.
    pub fn is_integer(&self, id: TypeId) -> bool {
        self.as_int(id).is_some()
    }

    /// True for floating-point types.
    pub fn is_float(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Float { .. })
    }

    /// True for pointers, arrays and functions (which decay to pointers).
    pub fn is_pointer(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Pointer { .. } | Kind::Array { .. } | Kind::Function { .. })
    }

    /// True for integers, enumerations and pointers: the types allowed in a predicate or test.
    pub fn is_scalar(&self, id: TypeId) -> bool {
        self.is_integer(id) || self.is_pointer(id)
    }

    /// True for D's `string`.
    pub fn is_string(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::String)
    }

    /// True for `string`, `char *` and `char []`: the types that convert to a string.
    pub fn is_string_like(&self, id: TypeId) -> bool {
        match self.base_kind(id) {
            Kind::String => true,
            Kind::Pointer { target: e, .. } | Kind::Array { elem: e, .. } => {
                matches!(self.base_kind(e), Kind::Int(Int { class: IntClass::Char, .. }))
            }
            _ => false,
        }
    }

    /// True for `void`.
    pub fn is_void(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Void)
    }

    /// True for structs and unions.
    pub fn is_sou(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Sou { .. })
    }

    /// True for arrays.
    pub fn is_array(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Array { .. })
    }

    /// True for functions.
    pub fn is_function(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Function { .. })
    }

    /// True for enumerations.
    pub fn is_enum(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Enum { .. })
    }

    /// True for values that can only be recorded or used as an aggregation key: stacks and symbols.
    pub fn is_internal(&self, id: TypeId) -> bool {
        matches!(self.base_kind(id), Kind::Stack | Kind::Symaddr | Kind::Usymaddr)
    }

    /// True for signed integer types.
    pub fn is_signed(&self, id: TypeId) -> bool {
        self.as_int(id).is_some_and(|i| i.signed)
    }

    /// The target type of a pointer or the element type of an array, and whether it is in user
    /// memory.
    pub fn pointee(&self, id: TypeId) -> Option<(TypeId, bool)> {
        match self.base_kind(id) {
            Kind::Pointer { target, userland } => Some((target, userland)),
            Kind::Array { elem, .. } => Some((elem, false)),
            _ => None,
        }
    }

    /// The type of an expression's value: arrays and functions become pointers, qualifiers are
    /// removed.
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

    /// The result type of arithmetic on two integers: the type of higher rank (bits, plus one if
    /// unsigned), or the left one if equal. An enumeration counts as `int`. `None` unless both are
    /// integers.
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

    /// True when two types are the same, whatever their typedefs and origin.
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
            ) => u == v && x == y && self.same_file(a, b) && (!c || !d || self.size(a) == self.size(b)),
            (Kind::Enum { tag: Some(x), .. }, Kind::Enum { tag: Some(y), .. }) => {
                x == y && self.same_file(a, b)
            }
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

    /// False for types of two files that processes run: types of one name may be laid out otherwise
    /// in another build. A type of a definition is only that.
    fn same_file(&self, a: TypeId, b: TypeId) -> bool {
        let is_defined = |id| self.read().of_definition.contains_key(&id);
        if is_defined(a) != is_defined(b) {
            return false;
        }
        match (self.file_of_process(a), self.file_of_process(b)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }

    /// True when two pointers (or arrays) can be compared, assigned, or be the two results of `?:`:
    /// their targets are compatible, or one is `void *`. The constant 0 is compatible with every
    /// pointer; the caller checks that case, because it knows the expressions.
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

    /// True when a value of type `from` can be assigned to, passed as, or used as a key of type
    /// `to`: any integer to any integer, string-like to string, compatible pointers, the same
    /// struct. The caller checks the constant 0 for a pointer.
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

    /// True when a cast is allowed: between scalars; of scalars and `char []` to `string`; to a
    /// compatible type; of any type to `void`.
    pub fn castable(&self, to: TypeId, from: TypeId) -> bool {
        if self.is_void(to) || self.compatible(to, from) {
            return true;
        }
        if self.is_string(to) {
            return self.is_string_like(from) || self.is_scalar(from) && !self.is_array(from);
        }
        let target = self.is_integer(to) || matches!(self.base_kind(to), Kind::Pointer { .. });
        // An array converts to its address, so only a cast to a pointer is allowed.
        target && self.is_scalar(from) && (!self.is_array(from) || !self.is_integer(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemberDecl, TagKind};

    // row expression.no-promotion
    #[test]
    fn integers_are_not_promoted_and_the_higher_rank_wins() {
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
    fn char_pointers_and_arrays_convert_to_string() {
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
    fn pointers_are_compatible_with_equal_targets_and_void() {
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
    fn arrays_decay_to_pointers() {
        let t = Types::new();
        assert_eq!(t.decay(t.array(TypeId::CHAR, 4)), TypeId::CHAR_PTR);
        assert_eq!(t.decay(t.qualified(TypeId::INT, crate::Quals::CONST)), TypeId::INT);
    }
}
