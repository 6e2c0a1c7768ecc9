//! The arena: ids, kinds, and constructors of types.
//!
//! Types without an identity of their own (pointers, arrays, qualified types, functions) are
//! interned. So equal types have equal ids, and the arena does not grow with the number of
//! expressions. Structs, unions, enums and typedefs have an identity: each declaration has one id,
//! complete or not.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::btf::{Btf, KernelBtf};

/// Maximum length of a chain of derived types. C code has fewer than ten.
pub(crate) const MAX_DEPTH: u32 = 64;

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
        /// Name (empty for derived types) and kind of each.
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

/// The use of an integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntClass {
    /// A number.
    Plain,
    /// A character. Arrays of characters and pointers to them can be converted to strings.
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
    /// The use.
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

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Quals) -> Quals {
        Quals(self.0 | other.0)
    }

    /// True when all of `other` are in `self`.
    pub const fn contains(self, other: Quals) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The kind of a tagged type.
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

/// The structure of a type. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `void`.
    Void,
    /// An integer.
    Int(Int),
    /// A floating-point number. It can only be printed.
    Float {
        /// Bytes.
        size: u8,
    },
    /// A pointer.
    Pointer {
        /// The target type.
        target: TypeId,
        /// The target is in user memory (the `userland` qualifier).
        userland: bool,
    },
    /// An array. `len` is 0 when no length is given.
    Array {
        /// Element type.
        elem: TypeId,
        /// Number of elements.
        len: u64,
    },
    /// A struct or union; see [`Types::members`].
    Sou {
        /// True for a union.
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
        /// The underlying integer type.
        int: Int,
        /// False for a forward declaration.
        complete: bool,
    },
    /// A typedef.
    Typedef {
        /// The name.
        name: Arc<str>,
        /// The type that it names.
        target: TypeId,
    },
    /// A qualified type. Its target is never another qualified type.
    Qualified {
        /// The qualifiers.
        quals: Quals,
        /// The unqualified type.
        target: TypeId,
    },
    /// A function type.
    Function {
        /// Return type.
        ret: TypeId,
        /// Parameters.
        params: Arc<[TypeId]>,
        /// True when it ends in `...` (or has no prototype).
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
    /// A dynamic object: an associative array without key, or a translated pointer.
    Dyn,
}

/// The contents of a struct, union or enum.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Not defined.
    None,
    /// Members and the size; declared in D or already imported.
    Members(Arc<[Member]>, u64),
    /// Enumerators, likewise.
    Enumerators(Arc<[(Arc<str>, i64)]>),
    /// Not yet imported: source, BTF id.
    Btf { source: u32, id: u32, size: u64 },
    /// Only named in a blob of a process's file, which knows where the definition is.
    Named { source: u32, id: u32 },
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) body: Body,
    /// The name of a base type. Empty for all others.
    pub(crate) name: Arc<str>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) entries: Vec<Entry>,
    interned: HashMap<Kind, TypeId>,
    pub(crate) typedefs: HashMap<Arc<str>, TypeId>,
    pub(crate) tags: HashMap<(TagKind, Arc<str>), TypeId>,
    pub(crate) constants: HashMap<Arc<str>, (TypeId, i64)>,
    /// BTF blobs from which types were imported.
    pub(crate) sources: Vec<Arc<Btf>>,
    pub(crate) imported: HashMap<(u32, u32), TypeId>,
    /// The values of `imported`.
    pub(crate) of_kernel: HashSet<TypeId>,
    /// Types with a name of files that processes run: the source.
    pub(crate) of_process: HashMap<TypeId, u32>,
    pub(crate) kernel: Option<Arc<KernelBtf>>,
    /// Cached results of lookups in the kernel, by "struct tag" or "typedef name".
    pub(crate) kernel_lookups: HashMap<String, Option<TypeId>>,
    /// Types with a name that a definition declares, and the number of the definition.
    pub(crate) of_definition: HashMap<TypeId, u32>,
    /// The definition whose names are in use.
    definition: Option<u32>,
    /// Structs and unions whose members are being declared. They are the program's.
    pub(crate) defining: Vec<TypeId>,
    pub(crate) strsize: u64,
}

/// The names of types, while others are in use: those of the session, or of one definition that a
/// program's file has. A definition sees no names of the kernel.
#[derive(Debug, Default)]
pub struct Names {
    typedefs: HashMap<Arc<str>, TypeId>,
    tags: HashMap<(TagKind, Arc<str>), TypeId>,
    constants: HashMap<Arc<str>, (TypeId, i64)>,
    kernel: Option<Arc<KernelBtf>>,
    kernel_lookups: HashMap<String, Option<TypeId>>,
    definition: Option<u32>,
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
    /// Creates an arena with D's own types and no kernel.
    pub fn new() -> Self {
        let mut inner = Inner {
            entries: Vec::with_capacity(64),
            interned: HashMap::new(),
            typedefs: HashMap::new(),
            tags: HashMap::new(),
            constants: HashMap::new(),
            sources: Vec::new(),
            imported: HashMap::new(),
            of_kernel: HashSet::new(),
            of_process: HashMap::new(),
            kernel: None,
            kernel_lookups: HashMap::new(),
            of_definition: HashMap::new(),
            definition: None,
            defining: Vec::new(),
            strsize: 256,
        };
        for (i, (name, kind)) in fixed().into_iter().enumerate() {
            if name.is_empty() {
                inner.interned.insert(kind.clone(), TypeId(i as u32));
            }
            inner.entries.push(Entry { kind, body: Body::None, name: name.into() });
        }
        for (name, target) in BUILTIN_TYPEDEFS {
            inner.add_typedef(name, *target);
        }
        Self { inner: RefCell::new(inner) }
    }

    /// Creates an arena with D's own types, and looks up other types in a kernel.
    pub fn with_kernel(kernel: Arc<KernelBtf>) -> Self {
        let types = Self::new();
        types.write().kernel = Some(kernel);
        types
    }

    /// The names of a definition that declares none yet: D's own.
    pub fn names_of_definition(&self, number: u32) -> Names {
        let mut inner = self.write();
        let typedefs = BUILTIN_TYPEDEFS.iter().map(|(name, target)| {
            let name: Arc<str> = (*name).into();
            let id = inner.push(Kind::Typedef { name: name.clone(), target: *target }, Body::None);
            (name, id)
        });
        Names { typedefs: typedefs.collect(), definition: Some(number), ..Names::default() }
    }

    /// Uses other names, and gives those that were used.
    pub fn swap_names(&self, names: &mut Names) {
        let inner = &mut *self.write();
        std::mem::swap(&mut inner.typedefs, &mut names.typedefs);
        std::mem::swap(&mut inner.tags, &mut names.tags);
        std::mem::swap(&mut inner.constants, &mut names.constants);
        std::mem::swap(&mut inner.kernel, &mut names.kernel);
        std::mem::swap(&mut inner.kernel_lookups, &mut names.kernel_lookups);
        std::mem::swap(&mut inner.definition, &mut names.definition);
    }

    /// Looks other types up in this kernel from now on. Types that were found remain.
    pub fn use_kernel(&self, kernel: &Arc<KernelBtf>) {
        let mut inner = self.write();
        if !inner.kernel.as_ref().is_some_and(|known| Arc::ptr_eq(known, kernel)) {
            inner.kernel = Some(kernel.clone());
            inner.kernel_lookups.clear();
        }
    }

    /// The kernel in which types are looked up.
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

    /// The kind of a type as written, with typedefs and qualifiers.
    pub fn kind(&self, id: TypeId) -> Kind {
        self.read().kind(id)
    }

    /// The underlying type, without typedefs and qualifiers.
    pub fn resolve(&self, id: TypeId) -> TypeId {
        self.read().resolve(id)
    }

    /// The kind of the underlying type, without typedefs and qualifiers.
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

    /// `target` with additional qualifiers.
    pub fn qualified(&self, target: TypeId, quals: Quals) -> TypeId {
        self.write().qualify(target, quals)
    }

    /// A function type.
    pub fn function(&self, ret: TypeId, params: &[TypeId], variadic: bool) -> TypeId {
        self.write().intern(Kind::Function { ret, params: params.into(), variadic })
    }

    /// An integer type of this size and sign: the first built-in that fits.
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

    /// Declares a typedef. It hides an earlier typedef of the same name.
    pub fn add_typedef(&self, name: &str, target: TypeId) -> TypeId {
        self.write().add_typedef(name, target)
    }

    /// Declares a struct, union or enum with this tag in the program. Returns the existing type, or
    /// a new forward declaration. `None` makes an anonymous type. Does not look in the kernel; see
    /// [`Types::find_tag`].
    pub fn declare_tag(&self, kind: TagKind, tag: Option<&str>) -> TypeId {
        let mut inner = self.write();
        let tag: Option<Arc<str>> = tag.map(Into::into);
        if let Some(tag) = &tag
            && let Some(&id) = inner.tags.get(&(kind, tag.clone()))
        {
            return id;
        }
        let id = inner.push(tag_kind(kind, tag.clone(), false), Body::None);
        inner.belongs(id);
        if let Some(tag) = tag {
            inner.tags.insert((kind, tag), id);
        }
        id
    }

    /// Like [`Types::declare_tag`], for a definition that follows. Inside the definition the tag
    /// means the program's own type.
    pub fn begin_definition(&self, kind: TagKind, tag: Option<&str>) -> TypeId {
        let id = self.declare_tag(kind, tag);
        self.write().defining.push(id);
        id
    }

    /// Defines an enumeration and its enumerators, which become constants. Values that do not fit
    /// 32 bits make the enumeration eight bytes wide.
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

    /// The number of steps is bounded, because malformed BTF can define a typedef as itself. Such a
    /// type is `void`.
    pub(crate) fn resolve(&self, mut id: TypeId) -> TypeId {
        for _ in 0..MAX_DEPTH {
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
        self.belongs(id);
        self.typedefs.insert(name, id);
        id
    }

    /// A type is declared by the definition whose names are in use, if there is one.
    fn belongs(&mut self, id: TypeId) {
        if let Some(number) = self.definition {
            self.of_definition.insert(id, number);
        }
    }
}

/// A member of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Empty for an anonymous struct or union.
    pub name: Arc<str>,
    /// Its type.
    pub ty: TypeId,
    /// Bits from the start of the struct.
    pub bit_offset: u64,
    /// Width of a bit-field.
    pub bits: Option<u8>,
}

/// D's own typedefs.
pub const BUILTIN_TYPEDEFS: &[(&str, TypeId)] = &[
    ("int8_t", TypeId::CHAR),
    ("int16_t", TypeId::SHORT),
    ("int32_t", TypeId::INT),
    ("int64_t", TypeId::LONG),
    ("uint8_t", TypeId::UCHAR),
    ("uint16_t", TypeId::USHORT),
    ("uint32_t", TypeId::UINT),
    ("uint64_t", TypeId::ULONG),
    ("intptr_t", TypeId::LONG),
    ("uintptr_t", TypeId::ULONG),
    ("size_t", TypeId::ULONG),
    ("ssize_t", TypeId::LONG),
    ("ptrdiff_t", TypeId::LONG),
    ("uchar_t", TypeId::UCHAR),
    ("ushort_t", TypeId::USHORT),
    ("uint_t", TypeId::UINT),
    ("ulong_t", TypeId::ULONG),
    ("u_longlong_t", TypeId::ULLONG),
    ("id_t", TypeId::INT),
    ("pid_t", TypeId::INT),
    ("ipaddr_t", TypeId::UINT),
];

#[cfg(test)]
mod tests {
    use super::*;

    // row type.qualifier
    #[test]
    fn equal_derived_types_have_one_id() {
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
    fn a_definition_keeps_the_id_of_its_forward_declaration() {
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
