//! Queries of a blob: types by name, members by path, functions, variables.

use std::sync::atomic::Ordering;

use super::blob::{Btf, BtfKind, BtfMember, Def, Param, Raw};
use super::names::NameIndex;

/// After this number of searches, a blob builds its index of names (see [`super`]).
const SEARCHES: u32 = 8;

/// Maximum length of a chain of typedefs, qualifiers and nested anonymous members.
const MAX_CHAIN: u32 = 32;

/// Maximum number of structs searched for one member; see `layout::MAX_STEPS`.
const MAX_STEPS: u32 = 10_000;

/// A member found by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bits from the start of the outermost struct.
    pub bit_offset: u64,
    /// Bytes of the member's type.
    pub size: u32,
    /// Width of a bit-field.
    pub bits: Option<u8>,
    /// Its type.
    pub ty: u32,
}

impl Field {
    /// Bytes from the start of the outermost struct.
    pub fn offset(&self) -> u32 {
        (self.bit_offset / 8) as u32
    }
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Func<'a> {
    /// Id of the function, for attaching by BTF.
    pub id: u32,
    /// Id of its prototype.
    pub proto: u32,
    /// Return type; 0 is `void`.
    pub ret: u32,
    /// Parameters.
    pub params: Vec<Param<'a>>,
}

/// A variable of a section. In the kernel these are the per-CPU variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Var<'a> {
    /// Id of the variable, for a program's `ksym`.
    pub id: u32,
    /// Its type.
    pub ty: u32,
    /// Name of the section: `.data..percpu`.
    pub section: &'a str,
    /// Bytes from the start of the section.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// True for kinds that can be found by name. Parameters and members are not types, and pointers
/// have no names.
fn has_name_lookup(kind: BtfKind) -> bool {
    !matches!(kind, BtfKind::Ptr | BtfKind::Array | BtfKind::FuncProto | BtfKind::DeclTag | BtfKind::TypeTag)
}

fn is_name(tail: &[u8], name: &[u8]) -> bool {
    tail.get(name.len()) == Some(&0) && tail.starts_with(name)
}

impl Btf {
    fn index_names(&self) -> NameIndex {
        let mut index = NameIndex::new(self.offsets.len());
        for (id, raw) in self.local_types() {
            if raw.name == 0 || !raw.kind().is_some_and(has_name_lookup) {
                continue;
            }
            if let Some(tail) = self.string_tail(raw.name) {
                index.insert(id, tail);
            }
        }
        index
    }

    /// The types defined in this blob.
    pub(super) fn local_types(&self) -> impl Iterator<Item = (u32, Raw<'_>)> {
        let ids = self.first_id..;
        ids.zip(&self.offsets).filter_map(|(id, at)| Some((id, self.raw_at(self.types + *at as usize)?)))
    }

    fn fits(&self, raw: &Raw<'_>, kinds: &[BtfKind], name: &[u8]) -> bool {
        raw.kind().is_some_and(|k| kinds.contains(&k))
            && self.string_tail(raw.name).is_some_and(|tail| is_name(tail, name))
    }

    /// The first type of one of these kinds with this name that is defined in this blob.
    pub(super) fn find_local(&self, kinds: &[BtfKind], name: &str) -> Option<u32> {
        if name.is_empty() {
            return None;
        }
        if self.names.get().is_none() && self.lookups.fetch_add(1, Ordering::Relaxed) < SEARCHES {
            return self
                .local_types()
                .find(|(_, raw)| self.fits(raw, kinds, name.as_bytes()))
                .map(|(id, _)| id);
        }
        let index = self.names.get_or_init(|| self.index_names());
        index
            .candidates(name)
            .find(|id| self.raw(*id).is_some_and(|raw| self.fits(&raw, kinds, name.as_bytes())))
    }

    /// The first type of one of these kinds with this name, in this blob, otherwise in its base.
    pub fn find(&self, kinds: &[BtfKind], name: &str) -> Option<u32> {
        self.find_local(kinds, name).or_else(|| self.base.as_ref()?.find(kinds, name))
    }

    /// A complete struct or union by tag.
    pub fn find_sou(&self, union: bool, tag: &str) -> Option<u32> {
        self.find(&[if union { BtfKind::Union } else { BtfKind::Struct }], tag)
    }

    /// Names of the types of these kinds that are defined in this blob.
    pub fn names<'a>(&'a self, kinds: &'a [BtfKind]) -> impl Iterator<Item = &'a str> {
        let of_kinds = self.local_types().filter(|(_, raw)| raw.kind().is_some_and(|k| kinds.contains(&k)));
        of_kinds.map(|(id, raw)| {
            if let Some(asked) = &self.asked {
                asked.note((id - self.first_id) as usize);
            }
            raw.name()
        })
    }

    /// A type's own name. Empty when it has none.
    pub fn name_of(&self, id: u32) -> &str {
        self.raw(id).map_or("", |raw| raw.name())
    }

    /// The underlying type, without typedefs, qualifiers and tags.
    pub fn resolve(&self, mut id: u32) -> u32 {
        for _ in 0..MAX_CHAIN {
            match self.def(id) {
                Some(
                    Def::Typedef { target, .. }
                    | Def::Const(target)
                    | Def::Volatile(target)
                    | Def::Restrict(target)
                    | Def::TypeTag { target, .. },
                ) => id = target,
                _ => return id,
            }
        }
        0
    }

    /// Size in bytes; `None` for void, functions and forward declarations.
    pub fn size(&self, id: u32) -> Option<u32> {
        let mut factor = 1u32;
        let mut id = id;
        for _ in 0..MAX_CHAIN {
            id = self.resolve(id);
            match self.def(id)? {
                Def::Int { size, .. }
                | Def::Sou { size, .. }
                | Def::Enum { size, .. }
                | Def::Float { size, .. } => return size.checked_mul(factor),
                Def::Pointer(_) => return factor.checked_mul(8),
                Def::Array { elem, len } => {
                    factor = factor.checked_mul(len)?;
                    id = elem;
                }
                Def::Var { ty, .. } => id = ty,
                _ => return None,
            }
        }
        None
    }

    /// A member by dotted path inside a struct, union, or typedef of one. Members of anonymous
    /// members are found too.
    pub fn member(&self, sou: u32, path: &str) -> Option<Field> {
        let mut found = Field { bit_offset: 0, size: 0, bits: None, ty: sou };
        for name in path.split('.') {
            let m = self.member_named(found.ty, name, MAX_CHAIN, &mut { MAX_STEPS })?;
            found = Field {
                bit_offset: found.bit_offset.checked_add(m.bit_offset)?,
                size: self.size(m.ty).unwrap_or(0),
                bits: m.bits,
                ty: m.ty,
            };
        }
        Some(found)
    }

    fn member_named(&self, id: u32, name: &str, depth: u32, steps: &mut u32) -> Option<BtfMember<'_>> {
        if depth == 0 || *steps == 0 || name.is_empty() {
            return None;
        }
        *steps -= 1;
        let Some(Def::Sou { members, .. }) = self.def(self.resolve(id)) else { return None };
        if let Some(m) = members.clone().find(|m| m.name == name) {
            return Some(m);
        }
        members.filter(|m| m.name.is_empty() && m.bits.is_none()).find_map(|m| {
            let inner = self.member_named(m.ty, name, depth - 1, steps)?;
            Some(BtfMember { bit_offset: m.bit_offset.checked_add(inner.bit_offset)?, ..inner })
        })
    }

    /// A member by struct tag and dotted path: `task_struct.comm`,
    /// `task_struct.thread_info.status`.
    pub fn field(&self, path: &str) -> Option<Field> {
        let (tag, path) = path.split_once('.')?;
        self.member(self.find_sou(false, tag)?, path)
    }

    /// A function by name.
    pub fn func(&self, name: &str) -> Option<Func<'_>> {
        self.func_at(self.find(&[BtfKind::Func], name)?)
    }

    /// A function by id.
    pub fn func_at(&self, id: u32) -> Option<Func<'_>> {
        let Some(Def::Func { proto, .. }) = self.def(id) else { return None };
        let Some(Def::FuncProto { ret, params }) = self.def(proto) else { return None };
        Some(Func { id, proto, ret, params: params.collect() })
    }

    /// Names and ids of the types of a kind, defined in this blob, whose names have this prefix:
    /// functions such as `__x64_sys_read`.
    pub fn with_prefix<'a>(&'a self, kind: BtfKind, prefix: &'a str) -> impl Iterator<Item = (&'a str, u32)> {
        let of_kind = self.names_of_kind(kind);
        of_kind
            .filter(move |(_, name)| {
                self.string_tail(*name).is_some_and(|tail| tail.starts_with(prefix.as_bytes()))
            })
            .filter_map(|(id, _)| Some((self.raw(id)?.name(), id)))
    }

    /// A variable by name, with its offset in its section.
    pub fn var(&self, name: &str) -> Option<Var<'_>> {
        let id = self.find(&[BtfKind::Var], name)?;
        let Some(Def::Var { ty, .. }) = self.def(id) else { return None };
        self.local_types().filter(|(_, raw)| raw.kind() == Some(BtfKind::Datasec)).find_map(|(sec, _)| {
            let Some(Def::Datasec { name: section, mut vars }) = self.def(sec) else { return None };
            let (_, offset, size) = vars.find(|(var, ..)| *var == id)?;
            Some(Var { id, ty, section, offset, size })
        })
    }

    /// An enumeration constant defined in this blob: its enumeration and value.
    pub fn enumerator(&self, name: &str) -> Option<(u32, i64)> {
        if name.is_empty() {
            return None;
        }
        let enums =
            self.local_types().filter(|(_, raw)| matches!(raw.kind(), Some(BtfKind::Enum | BtfKind::Enum64)));
        for (id, raw) in enums {
            let words = if raw.kind() == Some(BtfKind::Enum64) { 3 } else { 2 };
            for i in 0..raw.vlen() {
                let is = self.string_tail(raw.word(i * words)).is_some_and(|t| is_name(t, name.as_bytes()));
                if is && let Some(Def::Enum { mut values, .. }) = self.def(id) {
                    return values.nth(i).map(|(_, value)| (id, value));
                }
            }
        }
        None
    }
}
