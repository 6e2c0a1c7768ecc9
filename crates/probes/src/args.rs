//! The types of `args[]`.
//!
//! A provider gives a reference to the type of each argument: an id in the kernel's BTF, which is
//! resolved only when it is used, or C type text if BTF has none. The value of `args[n]` follows
//! from that type:
//!
//! ```text
//!  integer            argN, converted to the type's width and sign
//!  pointer            argN; it points to kernel memory, or to user memory for a userland argument
//!  string             the string at the kernel address argN
//!  struct, array      the object at the kernel address argN
//! ```

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use types::btf::Btf;
use types::{Kind, TypeId, Types};

/// A reference to the type of an argument.
#[derive(Clone, Debug)]
pub enum TypeRef {
    /// C type text: `struct file *`.
    Text(Cow<'static, str>),
    /// A type of the kernel or of a module. 0 is `void`.
    Btf(Arc<Btf>, u32),
    /// A type that the checker has made of the definition of a program's provider.
    Known(TypeId),
}

impl PartialEq for TypeRef {
    /// Compares the references. References that differ may resolve to equal types.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (TypeRef::Text(a), TypeRef::Text(b)) => a == b,
            (TypeRef::Btf(a, x), TypeRef::Btf(b, y)) => Arc::ptr_eq(a, b) && x == y,
            (TypeRef::Known(a), TypeRef::Known(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for TypeRef {}

impl Hash for TypeRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            TypeRef::Text(text) => text.hash(state),
            TypeRef::Btf(btf, id) => (Arc::as_ptr(btf) as usize, id).hash(state),
            TypeRef::Known(ty) => ty.hash(state),
        }
    }
}

/// An argument of a probe: its native type, and its type after translation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgType {
    /// The type that the kernel passes.
    pub native: TypeRef,
    /// The index of the native argument (`arg0`, `arg1`, ...). Several translated arguments can
    /// come from one.
    pub from: u8,
    /// The type after translation; `None` without a translator.
    pub translated: Option<TypeRef>,
    /// True for a pointer to user memory, and for an object there.
    pub userland: bool,
    /// The object is not in memory: its numbers and pointers are arguments.
    pub parts: Option<Arc<[ArgPart]>>,
    /// Why the argument has no value that a program in the kernel can read.
    pub unreadable: Option<Arc<str>>,
    /// The number of the [`crate::Definition`] whose translators make it.
    pub definition: Option<u32>,
}

/// A number or pointer of an object that is passed in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgPart {
    /// From the beginning of the object.
    pub offset: u32,
    /// 1, 2, 4 or 8 bytes.
    pub size: u8,
    /// It is `argN`.
    pub from: u8,
}

/// The arguments of a probe, in order. `Err`: why they are unknown (in lower case, without a full
/// stop).
pub type Args = Result<Arc<[ArgType]>, String>;

impl ArgType {
    /// Argument `n`, untranslated, by the text of its type.
    pub fn text(n: u8, native: impl Into<Cow<'static, str>>) -> Self {
        Self {
            native: TypeRef::Text(native.into()),
            from: n,
            translated: None,
            userland: false,
            parts: None,
            unreadable: None,
            definition: None,
        }
    }

    /// Argument `n`, untranslated, by its BTF id.
    pub fn btf(n: u8, btf: &Arc<Btf>, id: u32) -> Self {
        let native = TypeRef::Btf(btf.clone(), id);
        Self {
            native,
            from: n,
            translated: None,
            userland: false,
            parts: None,
            unreadable: None,
            definition: None,
        }
    }

    /// An argument of a known type without a value that can be read.
    #[must_use]
    pub fn unreadable(self, why: impl Into<Arc<str>>) -> Self {
        Self { unreadable: Some(why.into()), ..self }
    }

    /// The same argument as a pointer to user memory, or as an object there.
    #[must_use]
    pub fn in_process(self) -> Self {
        Self { userland: true, ..self }
    }

    /// An object of a process whose numbers and pointers are arguments.
    #[must_use]
    pub fn in_parts(self, parts: impl Into<Arc<[ArgPart]>>) -> Self {
        Self { userland: true, parts: Some(parts.into()), ..self }
    }

    /// The same argument, translated to a type.
    #[must_use]
    pub fn translated(self, to: impl Into<Cow<'static, str>>) -> Self {
        Self { translated: Some(TypeRef::Text(to.into())), ..self }
    }

    /// The type that the kernel passes, if it is known. A pointer to an unknown type becomes `void
    /// *`.
    pub fn native_type(&self, types: &Types) -> Option<TypeId> {
        let ty = resolve(types, &self.native).or_else(|| match &self.native {
            TypeRef::Text(text) if text.ends_with('*') => Some(TypeId::VOID_PTR),
            _ => None,
        })?;
        Some(if self.userland { in_process(types, ty) } else { ty })
    }

    /// The type that scripts see, if it is known.
    pub fn shown_type(&self, types: &Types) -> Option<TypeId> {
        match &self.translated {
            Some(to) => resolve(types, to),
            None => self.native_type(types),
        }
    }

    /// The name of the type that scripts see, for `dtrace -lv`.
    pub fn name(&self, types: &Types) -> String {
        let shown = self.translated.as_ref().unwrap_or(&self.native);
        match (resolve(types, shown).and_then(|_| self.shown_type(types)), shown) {
            (Some(ty), _) => types.name(ty),
            (None, TypeRef::Text(text)) if self.userland && text.ends_with('*') => format!("userland {text}"),
            (None, TypeRef::Text(text)) => text.to_string(),
            (None, TypeRef::Btf(..) | TypeRef::Known(_)) => "(unknown)".into(),
        }
    }
}

fn resolve(types: &Types, ty: &TypeRef) -> Option<TypeId> {
    match ty {
        TypeRef::Text(text) => types.find(text),
        TypeRef::Btf(btf, id) => Some(types.import(btf, *id)),
        TypeRef::Known(ty) => Some(*ty),
    }
}

/// Converts a pointer type to one to user memory. (Pointers loaded through it also point to user
/// memory.)
fn in_process(types: &Types, ty: TypeId) -> TypeId {
    match types.base_kind(ty) {
        Kind::Pointer { target, .. } => types.user_pointer(target),
        _ => ty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_scripts_see_them() {
        let types = Types::new();
        let name = |arg: ArgType| arg.name(&types);
        assert_eq!(name(ArgType::text(0, "const char *")), "const char *");
        assert_eq!(name(ArgType::text(0, "const char *").in_process()), "userland const char *");
        assert_eq!(name(ArgType::text(0, "char **").in_process()), "userland char **");
        assert_eq!(name(ArgType::text(0, "long").in_process()), "long");
        assert_eq!(name(ArgType::text(0, "long").translated("uint32_t")), "uint32_t");
        assert_eq!(name(ArgType::text(0, "struct nothing *")), "struct nothing *");
    }
}
