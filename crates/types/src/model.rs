//! The arena: ids, kinds, and how types are made.
//!
//! Types without identity of their own (pointers, arrays, qualified types, functions) are interned, so that equal types
//! have equal ids and the arena does not grow with the number of expressions. Structs, unions, enums and typedefs have
//! identity: each declaration is one id, complete or not.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::HashMap;
use std::sync::Arc;

use crate::btf::{Btf, KernelBtf};
use crate::layout::Member;

/// A type of one [`Types`] arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u32);

impl std::fmt::Debug for TypeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// The types that every arena begins with, in the order of their ids.
macro_rules! fixed_types {
    ($($name:ident = $text:literal => $kind:expr;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Fixed { $($name),* }
        #[allow(missing_docs)]
        impl TypeId {
            $(pub const $name: TypeId = TypeId(Fixed::$name as u32);)*
        }
        /// Name (empty for derived ones) and kind of each.
        pub(crate) fn fixed() -> Vec<(&'static str, Kind)> {
            vec![$(($text, $kind)),*]
        }
    };
}

const fn int(size: u8, signed: bool) -> Kind {
    Kind::Int(Int { size, signed, class: IntClass::Plain })
}

const fn ch(signed: bool) -> Kind {
    Kind::Int(Int { size: 1, signed, class: IntClass::Char })
}

const fn ptr(target: TypeId) -> Kind {
    Kind::Pointer { target, userland: false }
}

fixed_types! {
    VOID = "void" => Kind::Void;
    CHAR = "char" => ch(true);
    SCHAR = "signed char" => ch(true);
    UCHAR = "unsigned char" => ch(false);
    SHORT = "short" => int(2, true);
    USHORT = "unsigned short" => int(2, false);
    INT = "int" => int(4, true);
    UINT = "unsigned int" => int(4, false);
    LONG = "long" => int(8, true);
    ULONG = "unsigned long" => int(8, false);
    LLONG = "long long" => int(8, true);
    ULLONG = "unsigned long long" => int(8, false);
    BOOL = "_Bool" => Kind::Int(Int { size: 1, signed: false, class: IntClass::Bool });
    FLOAT = "float" => Kind::Float { size: 4 };
    DOUBLE = "double" => Kind::Float { size: 8 };
    LDOUBLE = "long double" => Kind::Float { size: 16 };
    STRING = "string" => Kind::String;
    STACK = "stack" => Kind::Stack;
    SYMADDR = "_symaddr" => Kind::Symaddr;
    USYMADDR = "_usymaddr" => Kind::Usymaddr;
    DYN = "<DYN>" => Kind::Dyn;
    VOID_PTR = "" => ptr(TypeId::VOID);
    CHAR_PTR = "" => ptr(TypeId::CHAR);
}

/// What an integer type is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntClass {
    /// A number.
    Plain,
    /// A character: arrays of it and pointers to it can become strings.
    Char,
    /// `_Bool`.
    Bool,
}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int {
    /// Bytes.
    pub size: u8,
    /// Sign.
    pub signed: bool,
    /// Use.
    pub class: IntClass,
}

/// `const`, `volatile`, `restrict`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quals(u8);

impl Quals {
    /// None.
    pub const NONE: Quals = Quals(0);
    /// `const`.
    pub const CONST: Quals = Quals(1);
    /// `volatile`.
    pub const VOLATILE: Quals = Quals(2);
    /// `restrict`.
    pub const RESTRICT: Quals = Quals(4);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Quals) -> Quals {
        Quals(self.0 | other.0)
    }

    /// True when all of `other` are in `self`.
    pub const fn contains(self, other: Quals) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Which tagged type.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagKind {
    Struct,
    Union,
    Enum,
}

impl TagKind {
    /// The C keyword.
    pub const fn keyword(self) -> &'static str {
        match self {
            TagKind::Struct => "struct",
            TagKind::Union => "union",
            TagKind::Enum => "enum",
        }
    }
}

/// What a type is. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `void`.
    Void,
    /// An integer.
    Int(Int),
    /// A floating-point number; only printable.
    Float {
        /// Bytes.
        size: u8,
    },
    /// A pointer.
    Pointer {
        /// What it points to.
        target: TypeId,
        /// The object lives in user memory (the `userland` qualifier).
        userland: bool,
    },
    /// An array; `len` 0 where no length is given.
    Array {
        /// Element type.
        elem: TypeId,
        /// Number of elements.
        len: u64,
    },
    /// A struct or union; see [`Types::members`].
    Sou {
        /// A union.
        union: bool,
        /// Its tag; `None` for an anonymous one.
        tag: Option<Arc<str>>,
        /// False for a forward declaration.
        complete: bool,
    },
    /// An enumeration; see [`Types::enumerators`].
    Enum {
        /// Its tag; `None` for an anonymous one.
        tag: Option<Arc<str>>,
        /// The integer it is stored as.
        int: Int,
        /// False for a forward declaration.
        complete: bool,
    },
    /// Another name.
    Typedef {
        /// The name.
        name: Arc<str>,
        /// What it stands for.
        target: TypeId,
    },
    /// A qualified type; never directly of another qualified one.
    Qualified {
        /// The qualifiers.
        quals: Quals,
        /// The type.
        target: TypeId,
    },
    /// A function type.
    Function {
        /// Return type.
        ret: TypeId,
        /// Parameters.
        params: Arc<[TypeId]>,
        /// Ends in `...` (or has no prototype).
        variadic: bool,
    },
    /// D's `string`.
    String,
    /// The value of `stack()` and `ustack()`.
    Stack,
    /// The value of `sym()`, `func()`, `mod()`.
    Symaddr,
    /// The value of `usym()`, `ufunc()`, `umod()`.
    Usymaddr,
    /// A dynamic object: an associative array without key, a translated pointer.
    Dyn,
}

/// What stands behind a struct, union or enum.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Not declared further.
    None,
    /// Members and their size, declared in D or already imported.
    Members(Arc<[Member]>, u64),
    /// Enumerators, likewise.
    Enumerators(Arc<[(Arc<str>, i64)]>),
    /// Not yet imported: source, BTF id.
    Btf { source: u32, id: u32, size: u64 },
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) body: Body,
    /// Text of a base type; empty for all others.
    pub(crate) name: Arc<str>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) entries: Vec<Entry>,
    interned: HashMap<Kind, TypeId>,
    pub(crate) typedefs: HashMap<Arc<str>, TypeId>,
    pub(crate) tags: HashMap<(TagKind, Arc<str>), TypeId>,
    pub(crate) constants: HashMap<Arc<str>, (TypeId, i64)>,
    /// BTF blobs that something was imported from.
    pub(crate) sources: Vec<Arc<Btf>>,
    pub(crate) imported: HashMap<(u32, u32), TypeId>,
    pub(crate) kernel: Option<Arc<KernelBtf>>,
    /// What the kernel answered, by "struct tag" or "typedef name".
    pub(crate) asked: HashMap<String, Option<TypeId>>,
    /// Structs and unions whose members are being declared: they are the program's.
    pub(crate) defining: Vec<TypeId>,
    pub(crate) strsize: u64,
}

/// All types of a session.
#[derive(Debug)]
pub struct Types {
    inner: RefCell<Inner>,
}

impl Default for Types {
    fn default() -> Self {
        Self::new()
    }
}

impl Types {
    /// D's own types, no kernel.
    pub fn new() -> Self {
        let mut inner = Inner {
            entries: Vec::with_capacity(64),
            interned: HashMap::new(),
            typedefs: HashMap::new(),
            tags: HashMap::new(),
            constants: HashMap::new(),
            sources: Vec::new(),
            imported: HashMap::new(),
            kernel: None,
            asked: HashMap::new(),
            defining: Vec::new(),
            strsize: 256,
        };
        for (i, (name, kind)) in fixed().into_iter().enumerate() {
            if name.is_empty() {
                inner.interned.insert(kind.clone(), TypeId(i as u32));
            }
            inner.entries.push(Entry { kind, body: Body::None, name: name.into() });
        }
        for (name, target) in crate::lookup::BUILTIN_TYPEDEFS {
            inner.add_typedef(name, *target);
        }
        Self { inner: RefCell::new(inner) }
    }

    /// D's own types, and behind them those of a kernel.
    pub fn with_kernel(kernel: Arc<KernelBtf>) -> Self {
        let types = Self::new();
        types.write().kernel = Some(kernel);
        types
    }

    /// The kernel whose types are looked up.
    pub fn kernel(&self) -> Option<Arc<KernelBtf>> {
        self.read().kernel.clone()
    }

    /// Bytes of a `string` (option `strsize`).
    pub fn strsize(&self) -> u64 {
        self.read().strsize
    }

    /// Sets the bytes of a `string`.
    pub fn set_strsize(&self, strsize: u64) {
        self.write().strsize = strsize;
    }

    pub(crate) fn read(&self) -> Ref<'_, Inner> {
        self.inner.borrow()
    }

    pub(crate) fn write(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }

    /// What a type is, as written: typedefs and qualifiers still there.
    pub fn kind(&self, id: TypeId) -> Kind {
        self.read().kind(id)
    }

    /// The type behind typedefs and qualifiers.
    pub fn resolve(&self, id: TypeId) -> TypeId {
        self.read().resolve(id)
    }

    /// What a type is behind typedefs and qualifiers.
    pub fn base_kind(&self, id: TypeId) -> Kind {
        let inner = self.read();
        inner.kind(inner.resolve(id))
    }

    /// `target *`.
    pub fn pointer(&self, target: TypeId) -> TypeId {
        self.write().intern(Kind::Pointer { target, userland: false })
    }

    /// `userland target *`.
    pub fn user_pointer(&self, target: TypeId) -> TypeId {
        self.write().intern(Kind::Pointer { target, userland: true })
    }

    /// `elem [len]`.
    pub fn array(&self, elem: TypeId, len: u64) -> TypeId {
        self.write().intern(Kind::Array { elem, len })
    }

    /// `target` with qualifiers added to those it has.
    pub fn qualified(&self, target: TypeId, quals: Quals) -> TypeId {
        self.write().qualify(target, quals)
    }

    /// A function type.
    pub fn function(&self, ret: TypeId, params: &[TypeId], variadic: bool) -> TypeId {
        self.write().intern(Kind::Function { ret, params: params.into(), variadic })
    }

    /// An integer of that size and sign without a name of its own: the first built-in that fits.
    pub fn int_of(&self, size: u64, signed: bool) -> TypeId {
        match (size, signed) {
            (1, true) => TypeId::CHAR,
            (1, false) => TypeId::UCHAR,
            (2, true) => TypeId::SHORT,
            (2, false) => TypeId::USHORT,
            (4, true) => TypeId::INT,
            (4, false) => TypeId::UINT,
            (_, true) => TypeId::LONG,
            (_, false) => TypeId::ULONG,
        }
    }

    /// Declares a typedef; a later one of the same name hides the earlier.
    pub fn add_typedef(&self, name: &str, target: TypeId) -> TypeId {
        self.write().add_typedef(name, target)
    }

    /// A struct, union or enum with this tag declared in this program: the one already there, or a new forward
    /// declaration. `None` makes an anonymous one. The kernel is not asked; see [`Types::find_tag`].
    pub fn declare_tag(&self, kind: TagKind, tag: Option<&str>) -> TypeId {
        let mut inner = self.write();
        let tag: Option<Arc<str>> = tag.map(Into::into);
        if let Some(tag) = &tag
            && let Some(&id) = inner.tags.get(&(kind, tag.clone()))
        {
            return id;
        }
        let id = inner.push(tag_kind(kind, tag.clone(), false), Body::None);
        if let Some(tag) = tag {
            inner.tags.insert((kind, tag), id);
        }
        id
    }

    /// As [`Types::declare_tag`], for a definition that follows: inside it the tag means the program's own type.
    pub fn begin_definition(&self, kind: TagKind, tag: Option<&str>) -> TypeId {
        let id = self.declare_tag(kind, tag);
        self.write().defining.push(id);
        id
    }

    /// Defines an enumeration and its enumerators, which become constants. Values that do not fit 32 bits make it
    /// eight bytes wide.
    pub fn define_enum(&self, id: TypeId, enumerators: &[(&str, i64)]) {
        let mut inner = self.write();
        let signed = enumerators.iter().any(|(_, v)| *v < 0);
        let wide = enumerators
            .iter()
            .any(|(_, v)| i32::try_from(*v).is_err() && (signed || u32::try_from(*v).is_err()));
        let list: Vec<(Arc<str>, i64)> = enumerators.iter().map(|(n, v)| ((*n).into(), *v)).collect();
        for (name, value) in &list {
            inner.constants.insert(name.clone(), (id, *value));
        }
        let Some(entry) = inner.entries.get_mut(id.0 as usize) else { return };
        if let Kind::Enum { int, complete, .. } = &mut entry.kind {
            *complete = true;
            *int = Int { size: if wide { 8 } else { 4 }, signed, class: IntClass::Plain };
            entry.body = Body::Enumerators(list.into());
        }
    }
}

pub(crate) fn tag_kind(kind: TagKind, tag: Option<Arc<str>>, complete: bool) -> Kind {
    match kind {
        TagKind::Struct => Kind::Sou { union: false, tag, complete },
        TagKind::Union => Kind::Sou { union: true, tag, complete },
        TagKind::Enum => {
            let int = Int { size: 4, signed: true, class: IntClass::Plain };
            Kind::Enum { tag, int, complete }
        }
    }
}

impl Inner {
    pub(crate) fn kind(&self, id: TypeId) -> Kind {
        self.entries.get(id.0 as usize).map_or(Kind::Void, |e| e.kind.clone())
    }

    /// Bounded, because a malformed BTF can make a typedef of itself; such a type is `void`.
    pub(crate) fn resolve(&self, mut id: TypeId) -> TypeId {
        for _ in 0..crate::import::MAX_DEPTH {
            match self.entries.get(id.0 as usize).map(|e| &e.kind) {
                Some(Kind::Typedef { target, .. } | Kind::Qualified { target, .. }) => id = *target,
                _ => return id,
            }
        }
        TypeId::VOID
    }

    pub(crate) fn push(&mut self, kind: Kind, body: Body) -> TypeId {
        let id = TypeId(self.entries.len() as u32);
        self.entries.push(Entry { kind, body, name: "".into() });
        id
    }

    pub(crate) fn intern(&mut self, kind: Kind) -> TypeId {
        if let Some(&id) = self.interned.get(&kind) {
            return id;
        }
        let id = self.push(kind.clone(), Body::None);
        self.interned.insert(kind, id);
        id
    }

    pub(crate) fn qualify(&mut self, target: TypeId, quals: Quals) -> TypeId {
        if quals.is_empty() {
            return target;
        }
        match self.kind(target) {
            Kind::Qualified { quals: old, target } => {
                self.intern(Kind::Qualified { quals: old.with(quals), target })
            }
            _ => self.intern(Kind::Qualified { quals, target }),
        }
    }

    fn add_typedef(&mut self, name: &str, target: TypeId) -> TypeId {
        let name: Arc<str> = name.into();
        let id = self.push(Kind::Typedef { name: name.clone(), target }, Body::None);
        self.typedefs.insert(name, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // row type.qualifier
    #[test]
    fn derived_types_are_interned() {
        let t = Types::new();
        assert_eq!(t.pointer(TypeId::VOID), TypeId::VOID_PTR);
        assert_eq!(t.pointer(TypeId::CHAR), TypeId::CHAR_PTR);
        assert_eq!(t.array(TypeId::CHAR, 16), t.array(TypeId::CHAR, 16));
        assert_ne!(t.user_pointer(TypeId::CHAR), TypeId::CHAR_PTR);
        let c = t.qualified(TypeId::INT, Quals::CONST);
        let cv = t.qualified(c, Quals::VOLATILE);
        assert_eq!(cv, t.qualified(TypeId::INT, Quals::VOLATILE.with(Quals::CONST)));
        assert_eq!(t.resolve(cv), TypeId::INT);
    }

    // row type.enum
    #[test]
    fn a_forward_declaration_and_its_definition_are_one_type() {
        let t = Types::new();
        let a = t.declare_tag(TagKind::Enum, Some("color"));
        assert!(matches!(t.kind(a), Kind::Enum { complete: false, .. }));
        let b = t.declare_tag(TagKind::Enum, Some("color"));
        t.define_enum(b, &[("RED", 0), ("GREEN", 7)]);
        assert_eq!(a, b);
        assert!(matches!(t.kind(a), Kind::Enum { complete: true, .. }));
        assert_eq!(t.find_enumerator("GREEN"), Some((a, 7)));
    }
}
