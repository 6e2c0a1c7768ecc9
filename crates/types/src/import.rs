//! Imports types from BTF into the model, on demand.
//!
//! An import stops at structs, unions and enums: the model stores their name and size, and imports
//! the members on first use. Everything else is shallow. Every BTF type is imported once. Only
//! malformed BTF has a cycle without a struct (a pointer to itself). Such a cycle reaches the
//! placeholder of its first visit, which is `void`.

use std::sync::Arc;

use crate::btf::{Btf, Def};
use crate::lookup::base_type;
use crate::model::{Body, Entry, Inner, Int, IntClass, Kind, MAX_DEPTH, Member, Quals, TypeId, Types};

impl Types {
    /// Imports a BTF type.
    pub fn import(&self, btf: &Arc<Btf>, id: u32) -> TypeId {
        let mut inner = self.write();
        let source = inner.source(btf);
        inner.import(source, id, MAX_DEPTH)
    }

    /// Imports the members or enumerators of an imported type.
    pub(crate) fn import_body(&self, id: TypeId) {
        let pending = match self.read().entries.get(id.0 as usize).map(|e| &e.body) {
            Some(Body::Btf { source, id, size }) => (*source, *id, *size),
            _ => return,
        };
        let mut inner = self.write();
        let body = inner.body(pending.0, pending.1, pending.2);
        if let Some(entry) = inner.entries.get_mut(id.0 as usize) {
            entry.body = body;
        }
    }
}

impl Inner {
    fn source(&mut self, btf: &Arc<Btf>) -> u32 {
        let known = self.sources.iter().position(|s| Arc::ptr_eq(s, btf));
        let index = known.unwrap_or_else(|| {
            self.sources.push(btf.clone());
            self.sources.len() - 1
        });
        index as u32
    }

    fn body(&mut self, source: u32, id: u32, size: u64) -> Body {
        let Some(btf) = self.sources.get(source as usize).cloned() else { return Body::None };
        match btf.def(id) {
            Some(Def::Sou { members, .. }) => {
                let mut list = Vec::new();
                for m in members {
                    let ty = self.import(source, m.ty, MAX_DEPTH);
                    let name = m.name.into();
                    list.push(Member { name, ty, bit_offset: m.bit_offset, bits: m.bits });
                }
                Body::Members(list.into(), size)
            }
            Some(Def::Enum { values, .. }) => {
                Body::Enumerators(values.map(|(name, value)| (name.into(), value)).collect())
            }
            _ => Body::None,
        }
    }

    fn import(&mut self, source: u32, id: u32, depth: u32) -> TypeId {
        if id == 0 || depth == 0 {
            return TypeId::VOID;
        }
        let Some(btf) = self.sources.get(source as usize).cloned() else { return TypeId::VOID };
        if id < btf.first_id()
            && let Some(base) = btf.base()
        {
            let source = self.source(base);
            return self.import(source, id, depth - 1);
        }
        if let Some(&known) = self.imported.get(&(source, id)) {
            return known;
        }
        let Some(def) = btf.def(id) else { return TypeId::VOID };
        self.imported.insert((source, id), TypeId::VOID);
        let ty = match def {
            Def::Typedef { name, target } => {
                let ty = self.push(Kind::Typedef { name: name.into(), target: TypeId::VOID }, Body::None);
                self.imported.insert((source, id), ty);
                self.note_origin(ty, source);
                let to = self.import(source, target, depth - 1);
                if let Some(Entry { kind: Kind::Typedef { target, .. }, .. }) =
                    self.entries.get_mut(ty.0 as usize)
                {
                    *target = to;
                }
                ty
            }
            Def::Pointer(mut target) => {
                let mut userland = btf.origin().is_some();
                while let Some(Def::TypeTag { name, target: tagged }) = btf.def(target) {
                    userland |= name == "user";
                    // In valid BTF, tags only refer to earlier types. A cycle would not end.
                    if tagged >= target {
                        break;
                    }
                    target = tagged;
                }
                let target = self.import(source, target, depth - 1);
                self.intern(Kind::Pointer { target, userland })
            }
            Def::Array { elem, len } => {
                let elem = self.import(source, elem, depth - 1);
                self.intern(Kind::Array { elem, len: u64::from(len) })
            }
            Def::Const(t) => self.import_qualified(source, t, Quals::CONST, depth),
            Def::Volatile(t) => self.import_qualified(source, t, Quals::VOLATILE, depth),
            Def::Restrict(t) => self.import_qualified(source, t, Quals::RESTRICT, depth),
            Def::TypeTag { target, .. } | Def::Func { proto: target, .. } | Def::Var { ty: target, .. } => {
                self.import(source, target, depth - 1)
            }
            Def::FuncProto { ret, params } => {
                let ret = self.import(source, ret, depth - 1);
                let mut list: Vec<TypeId> = Vec::new();
                let mut variadic = false;
                for p in params {
                    // A last parameter of type 0 is `...`. Elsewhere type 0 would be `void`, which
                    // C does not allow.
                    variadic = p.ty == 0;
                    if p.ty != 0 {
                        list.push(self.import(source, p.ty, depth - 1));
                    }
                }
                self.intern(Kind::Function { ret, params: list.into(), variadic })
            }
            Def::Int { name, size, signed, bool, .. } => self.import_int(name, size, signed, bool),
            Def::Float { name, size } => match base_type(name) {
                Some(ty) if self.size(ty, 1) == Some(u64::from(size)) => ty,
                _ => self.named(name, Kind::Float { size: size.min(16) as u8 }),
            },
            Def::Sou { union, name, size, .. } => {
                let kind = Kind::Sou { union, tag: tag(name), complete: true };
                self.push(kind, Body::Btf { source, id, size: u64::from(size) })
            }
            Def::Enum { name, size, signed, .. } => {
                let int = Int { size: int_size(size), signed, class: IntClass::Plain };
                let kind = Kind::Enum { tag: tag(name), int, complete: true };
                self.push(kind, Body::Btf { source, id, size: u64::from(size) })
            }
            Def::Fwd { union, name } if btf.origin().is_some() => {
                let kind = Kind::Sou { union, tag: tag(name), complete: false };
                self.push(kind, Body::Named { source, id })
            }
            Def::Fwd { union, name } => match btf.find_sou(union, name) {
                Some(full) => self.import(source, full, depth - 1),
                None => self.push(Kind::Sou { union, tag: tag(name), complete: false }, Body::None),
            },
            Def::Datasec { .. } | Def::DeclTag => TypeId::VOID,
        };
        self.imported.insert((source, id), ty);
        self.note_origin(ty, source);
        ty
    }

    /// Notes where a type with an identity comes from.
    fn note_origin(&mut self, ty: TypeId, source: u32) {
        let is_of_process = self.sources.get(source as usize).is_some_and(|btf| btf.origin().is_some());
        if !is_of_process {
            self.of_kernel.insert(ty);
        } else if matches!(self.kind(ty), Kind::Sou { .. } | Kind::Enum { .. } | Kind::Typedef { .. }) {
            self.of_process.insert(ty, source);
        }
    }

    fn import_qualified(&mut self, source: u32, target: u32, quals: Quals, depth: u32) -> TypeId {
        let target = self.import(source, target, depth - 1);
        self.qualify(target, quals)
    }

    /// Uses the C type of this name, if there is one. The kernel is built with unsigned plain
    /// `char`, but D's `char` is signed. A program with one `char` type has fewer problems than one
    /// with two incompatible ones.
    fn import_int(&mut self, name: &str, size: u32, signed: bool, bool: bool) -> TypeId {
        if let Some(ty) = base_type(name)
            && self.size(ty, 1) == Some(u64::from(size))
        {
            return ty;
        }
        let class = if bool { IntClass::Bool } else { IntClass::Plain };
        self.named(name, Kind::Int(Int { size: int_size(size), signed, class }))
    }

    fn named(&mut self, name: &str, kind: Kind) -> TypeId {
        let ty = self.push(kind, Body::None);
        if let Some(entry) = self.entries.get_mut(ty.0 as usize) {
            entry.name = name.into();
        }
        ty
    }
}

fn int_size(size: u32) -> u8 {
    size.min(16) as u8
}

fn tag(name: &str) -> Option<Arc<str>> {
    (!name.is_empty()).then(|| name.into())
}
