//! Syntax tree nodes of declarations, types and definitions.

use diagnostics::Span;

use super::{Expr, Name};

/// `specifiers declarator, declarator;`
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// The location without the semicolon.
    pub span: Span,
    /// The storage class, qualifiers and base type.
    pub specs: DeclSpecs,
    /// The declarators; empty for `struct s { … };`.
    pub declarators: Vec<Declarator>,
}

/// The declaration specifiers, which precede the declarators.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclSpecs {
    /// The source location.
    pub span: Span,
    /// The storage class.
    pub storage: Option<Storage>,
    /// The qualifiers of the base type.
    pub quals: Quals,
    /// The base type.
    pub ty: TypeSpec,
}

/// A storage class and its source location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The source location.
    pub span: Span,
    /// The kind.
    pub class: StorageClass,
}

/// Storage classes. `auto` and `register` are syntax errors and do not occur in the tree.
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
    /// The spelling.
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
    /// `userland`: the object is in user memory.
    pub is_userland: bool,
}

/// A base type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeSpec {
    /// The source location.
    pub span: Span,
    /// The kind.
    pub kind: TypeSpecKind,
}

/// The kinds of base type. Specifiers are combined (`long unsigned` is `Arith`).
#[derive(Clone, Debug, PartialEq)]
pub enum TypeSpecKind {
    /// A syntax error, which has been reported.
    Error,
    /// `void`
    Void,
    /// `char`, `unsigned long`, `double`, …
    Arith {
        /// The size class.
        kind: ArithKind,
        /// `Some(true)` for `signed`, `Some(false)` for `unsigned`, `None` if neither is given.
        signed: Option<bool>,
    },
    /// `string`
    String,
    /// A typedef name, with an optional scope: `size_t`, `` vmlinux`pid_t ``.
    Named {
        /// The module before the backquote.
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
    /// The spelling.
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
    /// The module before the backquote of the tag.
    pub module: Option<Name>,
    /// The tag.
    pub tag: Option<Name>,
    /// The members; `None` for a reference or a forward declaration.
    pub members: Option<Vec<Member>>,
}

/// `specifiers declarator, declarator;` inside a struct or union.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The location without the semicolon.
    pub span: Span,
    /// The qualifiers and the base type, without storage class.
    pub specs: DeclSpecs,
    /// The declarators; empty for an anonymous struct or union member.
    pub declarators: Vec<Declarator>,
}

/// `enum tag { A, B = 2 }`.
#[derive(Clone, Debug, PartialEq)]
pub struct EnumSpec {
    /// The module before the backquote of the tag.
    pub module: Option<Name>,
    /// The tag.
    pub tag: Option<Name>,
    /// The enumerators; `None` for a reference.
    pub enumerators: Option<Vec<Enumerator>>,
}

/// `NAME` or `NAME = value` in an `enum`.
#[derive(Clone, Debug, PartialEq)]
pub struct Enumerator {
    /// The source location.
    pub span: Span,
    /// The constant's name.
    pub name: Name,
    /// The value.
    pub value: Option<Expr>,
}

/// A declarator: a name, and the steps from the base type to its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Declarator {
    /// The source location.
    pub span: Span,
    /// The name; `None` in a type name, an unnamed parameter or an unnamed bit-field.
    pub name: Option<Name>,
    /// The steps outward from the name: `int *a[5]` has `[Array, Pointer]`. The type is built from
    /// the last to the first.
    pub parts: Vec<DeclPart>,
    /// The width of a bit-field.
    pub bits: Option<Box<Expr>>,
}

/// One step of a [`Declarator`].
#[derive(Clone, Debug, PartialEq)]
pub struct DeclPart {
    /// The location of the star, the brackets or the parentheses.
    pub span: Span,
    /// The kind.
    pub kind: DeclPartKind,
}

/// The steps of a [`Declarator`].
#[derive(Clone, Debug, PartialEq)]
pub enum DeclPartKind {
    /// `*`, with the qualifiers of the pointer.
    Pointer(Quals),
    /// `[size]`; `None` for `[]`.
    Array(Option<Box<Expr>>),
    /// `[type, type]`: an associative array and its key types.
    Tuple(Params),
    /// `(parameters)`.
    Function(Params),
}

/// Parameters of a function, of a parameterized inline or of a probe, or key types.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The location from bracket to bracket.
    pub span: Span,
    /// The parameters in order. `(void)` is one parameter of type void.
    pub list: Vec<Param>,
    /// The list ends with `...`.
    pub varargs: Option<Span>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// The source location.
    pub span: Span,
    /// The qualifiers and the base type, without storage class.
    pub specs: DeclSpecs,
    /// The declarator; its name is optional.
    pub declarator: Declarator,
}

/// A type without a name, as in a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    /// The source location.
    pub span: Span,
    /// The qualifiers and the base type, without storage class.
    pub specs: DeclSpecs,
    /// The declarator, without a name.
    pub declarator: Declarator,
}

/// `inline type name = value;`, `inline type name[type arg] = value;`
#[derive(Clone, Debug, PartialEq)]
pub struct Inline {
    /// The location without the semicolon.
    pub span: Span,
    /// The base type of the value.
    pub specs: DeclSpecs,
    /// The name and the rest of the type, without parameters.
    pub declarator: Declarator,
    /// The parameters of a parameterized inline.
    pub params: Option<Params>,
    /// The value, evaluated at each use.
    pub value: Expr,
}

/// `translator output < input name > { members };`
#[derive(Clone, Debug, PartialEq)]
pub struct Translator {
    /// The location without the semicolon.
    pub span: Span,
    /// The output type.
    pub output: TypeName,
    /// The input type, and the name of the input value in the expressions of the members.
    pub input: Param,
    /// The elements in order.
    pub members: Vec<TranslatorMember>,
}

/// `member = value;` in a translator.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatorMember {
    /// The location without the semicolon.
    pub span: Span,
    /// A member of the output type.
    pub name: Name,
    /// The value.
    pub value: Expr,
}

/// `provider name { probe …; };`
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderDef {
    /// The location without the semicolon.
    pub span: Span,
    /// The provider's name.
    pub name: Name,
    /// True for `provider name[pid]`: a family, with a provider for each process.
    pub of_processes: bool,
    /// The elements in order.
    pub probes: Vec<ProviderProbe>,
}

/// `probe name(native) : (translated);` in a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderProbe {
    /// The location without the semicolon.
    pub span: Span,
    /// The name in the source, with `__` for `-`.
    pub name: Name,
    /// The parameters that the program passes.
    pub native: Params,
    /// The types of `args[]`, if they differ.
    pub translated: Option<Params>,
}

/// `#pragma D …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pragma {
    /// The location of the line.
    pub span: Span,
    /// The kind.
    pub kind: PragmaKind,
}

/// The D pragmas.
#[derive(Clone, Debug, PartialEq)]
pub enum PragmaKind {
    /// `option name[=value]`
    Option {
        /// The option.
        name: Name,
        /// The value after the `=`.
        value: Option<Name>,
    },
    /// `attributes N/D/C name`, `attributes N/D/C provider P field`
    Attributes {
        /// The attributes as written.
        triple: Name,
        /// The identifier or probe field that has the attributes.
        subject: AttributeSubject,
    },
    /// `binding "1.x" name`, `binding "1.x" translator`
    Binding {
        /// The version without the quotes.
        version: Name,
        /// The identifier, or `translator`.
        name: Name,
    },
    /// `depends_on {module|provider|library} name`
    DependsOn {
        /// The kind of dependency.
        class: DependencyClass,
        /// The name.
        name: Name,
    },
}

/// The subject of `#pragma D attributes`.
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

/// The kinds of dependency of `#pragma D depends_on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyClass {
    /// A kernel module.
    Module,
    /// A provider.
    Provider,
    /// A D library file.
    Library,
}
