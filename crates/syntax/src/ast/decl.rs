//! Declarations, types and definitions in the tree.

use diagnostics::Span;

use super::{Expr, Name};

/// `specifiers declarator, declarator;`
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// Without the semicolon.
    pub span: Span,
    /// Storage class, qualifiers and base type.
    pub specs: DeclSpecs,
    /// Empty for `struct s { … };` and the like.
    pub declarators: Vec<Declarator>,
}

/// What stands before the declarators.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclSpecs {
    /// All of it.
    pub span: Span,
    /// The storage class.
    pub storage: Option<Storage>,
    /// The qualifiers of the base type.
    pub quals: Quals,
    /// The base type.
    pub ty: TypeSpec,
}

/// A storage class and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Where it stands.
    pub span: Span,
    /// Which.
    pub class: StorageClass,
}

/// Storage classes. `auto` and `register` are complained about and do not reach the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageClass {
    /// `extern`: a plain global variable.
    Extern,
    /// `static`: a plain global variable.
    Static,
    /// `self`: thread-local.
    SelfLocal,
    /// `this`: clause-local.
    ThisLocal,
    /// `typedef`.
    Typedef,
}

impl StorageClass {
    /// As written.
    pub fn text(self) -> &'static str {
        match self {
            StorageClass::Extern => "extern",
            StorageClass::Static => "static",
            StorageClass::SelfLocal => "self",
            StorageClass::ThisLocal => "this",
            StorageClass::Typedef => "typedef",
        }
    }
}

/// Type qualifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quals {
    /// `const`
    pub is_const: bool,
    /// `volatile`
    pub is_volatile: bool,
    /// `restrict`
    pub is_restrict: bool,
    /// `userland`: what is pointed to lives in user memory.
    pub is_userland: bool,
}

/// A base type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeSpec {
    /// Where it stands.
    pub span: Span,
    /// Which.
    pub kind: TypeSpecKind,
}

/// The kinds of base type. Specifier words are already combined (`long unsigned` is `Arith`).
#[derive(Clone, Debug, PartialEq)]
pub enum TypeSpecKind {
    /// Could not be read; the complaint was made.
    Error,
    /// `void`
    Void,
    /// `char`, `unsigned long`, `double`, …
    Arith {
        /// Size class.
        kind: ArithKind,
        /// `Some(true)` for `signed`, `Some(false)` for `unsigned`, `None` when neither was written.
        signed: Option<bool>,
    },
    /// `string`
    String,
    /// A typedef name, possibly scoped: `size_t`, `` vmlinux`pid_t ``.
    Named {
        /// Before the backquote.
        module: Option<Name>,
        /// The type's name.
        name: Name,
    },
    /// `struct` or `union`.
    Record(RecordSpec),
    /// `enum`.
    Enum(EnumSpec),
}

/// Size classes of arithmetic types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithKind {
    /// `char`
    Char,
    /// `short`
    Short,
    /// `int`
    Int,
    /// `long`
    Long,
    /// `long long`
    LongLong,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `long double`
    LongDouble,
}

impl ArithKind {
    /// As written.
    pub fn text(self) -> &'static str {
        match self {
            ArithKind::Char => "char",
            ArithKind::Short => "short",
            ArithKind::Int => "int",
            ArithKind::Long => "long",
            ArithKind::LongLong => "long long",
            ArithKind::Float => "float",
            ArithKind::Double => "double",
            ArithKind::LongDouble => "long double",
        }
    }
}

/// `struct tag`, `union { … }`, `` struct mod`tag ``.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordSpec {
    /// `union` rather than `struct`.
    pub is_union: bool,
    /// Before the backquote of the tag.
    pub module: Option<Name>,
    /// The tag.
    pub tag: Option<Name>,
    /// `None` for a mere reference or forward declaration.
    pub members: Option<Vec<Member>>,
}

/// `specifiers declarator, declarator;` inside a struct or union.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Without the semicolon.
    pub span: Span,
    /// Qualifiers and base type; no storage class.
    pub specs: DeclSpecs,
    /// Empty for an anonymous struct or union member.
    pub declarators: Vec<Declarator>,
}

/// `enum tag { A, B = 2 }`.
#[derive(Clone, Debug, PartialEq)]
pub struct EnumSpec {
    /// Before the backquote of the tag.
    pub module: Option<Name>,
    /// The tag.
    pub tag: Option<Name>,
    /// `None` for a mere reference.
    pub enumerators: Option<Vec<Enumerator>>,
}

/// `NAME` or `NAME = value` in an `enum`.
#[derive(Clone, Debug, PartialEq)]
pub struct Enumerator {
    /// All of it.
    pub span: Span,
    /// The constant's name.
    pub name: Name,
    /// Its value.
    pub value: Option<Expr>,
}

/// A name and how its type is made from the base type.
#[derive(Clone, Debug, PartialEq)]
pub struct Declarator {
    /// All of it.
    pub span: Span,
    /// `None` in a type name, an unnamed parameter or an unnamed bit-field.
    pub name: Option<Name>,
    /// Read outward from the name: `int *a[5]` has `[Array, Pointer]`. Build the type from the last to the first.
    pub parts: Vec<DeclPart>,
    /// Width of a bit-field.
    pub bits: Option<Box<Expr>>,
}

/// One step of a [`Declarator`].
#[derive(Clone, Debug, PartialEq)]
pub struct DeclPart {
    /// The star, the brackets or the parentheses.
    pub span: Span,
    /// Which.
    pub kind: DeclPartKind,
}

/// The steps of a [`Declarator`].
#[derive(Clone, Debug, PartialEq)]
pub enum DeclPartKind {
    /// `*`; the qualifiers are the pointer's own.
    Pointer(Quals),
    /// `[size]`; `None` for `[]`.
    Array(Option<Box<Expr>>),
    /// `[type, type]`: an associative array and its key types.
    Tuple(Params),
    /// `(parameters)`.
    Function(Params),
}

/// Parameters of a function, of a parameterised inline or of a probe, or key types.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// From bracket to bracket.
    pub span: Span,
    /// In order. `(void)` is one parameter of type void.
    pub list: Vec<Param>,
    /// Ends with `...`.
    pub varargs: Option<Span>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// All of it.
    pub span: Span,
    /// Qualifiers and base type; no storage class.
    pub specs: DeclSpecs,
    /// Possibly without a name.
    pub declarator: Declarator,
}

/// A type without a name, as in a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    /// All of it.
    pub span: Span,
    /// Qualifiers and base type; no storage class.
    pub specs: DeclSpecs,
    /// Without a name.
    pub declarator: Declarator,
}

/// `inline type name = value;`, `inline type name[type arg] = value;`
#[derive(Clone, Debug, PartialEq)]
pub struct Inline {
    /// Without the semicolon.
    pub span: Span,
    /// The base type of the value.
    pub specs: DeclSpecs,
    /// The name and the rest of the type; parameters are not in it.
    pub declarator: Declarator,
    /// `Some` for a parameterised inline.
    pub params: Option<Params>,
    /// The value, evaluated at each use.
    pub value: Expr,
}

/// `translator output < input name > { members };`
#[derive(Clone, Debug, PartialEq)]
pub struct Translator {
    /// Without the semicolon.
    pub span: Span,
    /// The type made.
    pub output: TypeName,
    /// The type translated, and the name its value has in the members' expressions.
    pub input: Param,
    /// In order.
    pub members: Vec<TranslatorMember>,
}

/// `member = value;` in a translator.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatorMember {
    /// Without the semicolon.
    pub span: Span,
    /// A member of the output type.
    pub name: Name,
    /// Its value.
    pub value: Expr,
}

/// `provider name { probe …; };`
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderDef {
    /// Without the semicolon.
    pub span: Span,
    /// The provider's name.
    pub name: Name,
    /// In order.
    pub probes: Vec<ProviderProbe>,
}

/// `probe name(native) : (translated);` in a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderProbe {
    /// Without the semicolon.
    pub span: Span,
    /// As written, with `__` for `-`.
    pub name: Name,
    /// What the program passes.
    pub native: Params,
    /// What `args[]` shows, when that differs.
    pub translated: Option<Params>,
}

/// `#pragma D …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pragma {
    /// The line.
    pub span: Span,
    /// Which.
    pub kind: PragmaKind,
}

/// The D pragmas.
#[derive(Clone, Debug, PartialEq)]
pub enum PragmaKind {
    /// `option name[=value]`
    Option {
        /// The option.
        name: Name,
        /// After the `=`.
        value: Option<Name>,
    },
    /// `attributes N/D/C name`, `attributes N/D/C provider P field`
    Attributes {
        /// The triple, as written.
        triple: Name,
        /// What it is about.
        subject: AttributeSubject,
    },
    /// `binding "1.x" name`, `binding "1.x" translator`
    Binding {
        /// Without the quotes.
        version: Name,
        /// The identifier, or `translator`.
        name: Name,
    },
    /// `depends_on {module|provider|library} name`
    DependsOn {
        /// What kind of thing is needed.
        class: DependencyClass,
        /// Its name.
        name: Name,
    },
}

/// What `#pragma D attributes` is about.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeSubject {
    /// An identifier.
    Ident(Name),
    /// A field of a provider's probes.
    Provider {
        /// The provider.
        provider: Name,
        /// `provider`, `module`, `function`, `name` or `args`.
        field: Name,
    },
}

/// What `#pragma D depends_on` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyClass {
    /// A kernel module.
    Module,
    /// A provider.
    Provider,
    /// A D library file.
    Library,
}
