//! The types of `args[]`.
//!
//! A provider says of each argument where its type stands, not what it is: as an id in the kernel's types, which costs
//! nothing until somebody looks, or as text where the kernel has none. What `args[n]` computes follows from that type:
//!
//! ```text
//!  integer            argN cut to its width and sign
//!  pointer            argN; it leads into the kernel, or, where the argument is userland, into the process
//!  string             the text at the address argN, in the kernel
//!  struct, array      the object at the address argN, in the kernel
//! ```

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use types::btf::Btf;
use types::{Kind, TypeId, Types};

/// Where the type of an argument stands.
#[derive(Clone, Debug)]
pub enum TypeRef {
    /// C type text: `struct file *`.
    Text(Cow<'static, str>),
    /// A type of the kernel or of a module. 0 is `void`.
    Btf(Arc<Btf>, u32),
}

impl PartialEq for TypeRef {
    /// The same place; equal types in two places are found equal when they are resolved.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (TypeRef::Text(a), TypeRef::Text(b)) => a == b,
            (TypeRef::Btf(a, x), TypeRef::Btf(b, y)) => Arc::ptr_eq(a, b) && x == y,
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
        }
    }
}

/// One argument of a probe: the type the probe gives, and the one that scripts see when a translator stands between.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgType {
    /// What the kernel passes.
    pub native: TypeRef,
    /// It is made from this one of `arg0`, `arg1`, ...: several translated arguments can be made from one.
    pub from: u8,
    /// The type after translation; `None` where there is none.
    pub translated: Option<TypeRef>,
    /// Points into the memory of the process.
    pub userland: bool,
}

/// The arguments of a probe, in order; or why nobody can know them here (in lower case, without a stop).
pub type Args = Result<Arc<[ArgType]>, String>;

impl ArgType {
    /// Argument `n`, which no translator touches, by the text of its type.
    pub fn text(n: u8, native: impl Into<Cow<'static, str>>) -> Self {
        Self { native: TypeRef::Text(native.into()), from: n, translated: None, userland: false }
    }

    /// Argument `n`, which no translator touches, by its id in the kernel's types.
    pub fn btf(n: u8, btf: &Arc<Btf>, id: u32) -> Self {
        Self { native: TypeRef::Btf(btf.clone(), id), from: n, translated: None, userland: false }
    }

    /// The same, pointing into the memory of the process.
    #[must_use]
    pub fn in_process(self) -> Self {
        Self { userland: true, ..self }
    }

    /// The same, as scripts see it through a translator.
    #[must_use]
    pub fn translated(self, to: impl Into<Cow<'static, str>>) -> Self {
        Self { translated: Some(TypeRef::Text(to.into())), ..self }
    }

    /// The type that the kernel passes, if it is known. A pointer to something that no kernel type tells is one to `void`.
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

    /// The type that scripts see, as a list shows it.
    pub fn name(&self, types: &Types) -> String {
        let shown = self.translated.as_ref().unwrap_or(&self.native);
        match (resolve(types, shown).and_then(|_| self.shown_type(types)), shown) {
            (Some(ty), _) => types.name(ty),
            (None, TypeRef::Text(text)) if self.userland && text.ends_with('*') => format!("userland {text}"),
            (None, TypeRef::Text(text)) => text.to_string(),
            (None, TypeRef::Btf(..)) => "(unknown)".into(),
        }
    }
}

fn resolve(types: &Types, ty: &TypeRef) -> Option<TypeId> {
    match ty {
        TypeRef::Text(text) => types.find(text),
        TypeRef::Btf(btf, id) => Some(types.import(btf, *id)),
    }
}

/// A pointer into the process. (A pointer that is found there leads there, too.)
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
