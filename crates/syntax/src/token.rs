//! The words of D: keywords and operators, as tables, and the token.

use diagnostics::Span;

use crate::ast::{BinaryOp, IntLit};

macro_rules! keywords {
    ($($variant:ident $text:literal,)*) => {
        /// A keyword. Some are reserved without use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kw { $($variant,)* }

        impl Kw {
            /// The keyword spelled `text`.
            pub(crate) fn from_text(text: &str) -> Option<Kw> {
                match text {
                    $($text => Some(Kw::$variant),)*
                    _ => None,
                }
            }

            /// As written.
            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(Kw::$variant => $text,)*
                }
            }
        }
    };
}

keywords! {
    Auto "auto",
    Break "break",
    Case "case",
    Char "char",
    Const "const",
    Continue "continue",
    Counter "counter",
    Default "default",
    Do "do",
    Double "double",
    Else "else",
    Enum "enum",
    Extern "extern",
    Float "float",
    For "for",
    Goto "goto",
    If "if",
    Import "import",
    Inline "inline",
    Int "int",
    Long "long",
    Offsetof "offsetof",
    Probe "probe",
    Provider "provider",
    Register "register",
    Restrict "restrict",
    Return "return",
    SelfScope "self",
    Short "short",
    Signed "signed",
    Sizeof "sizeof",
    Static "static",
    String "string",
    Stringof "stringof",
    Struct "struct",
    Switch "switch",
    This "this",
    Translator "translator",
    Typedef "typedef",
    Union "union",
    Unsigned "unsigned",
    Userland "userland",
    Void "void",
    Volatile "volatile",
    While "while",
    Xlate "xlate",
}

impl Kw {
    /// Can begin a type name.
    pub(crate) fn starts_type(self) -> bool {
        use Kw::*;
        matches!(
            self,
            Char | Const
                | Double
                | Enum
                | Float
                | Int
                | Long
                | Restrict
                | Short
                | Signed
                | String
                | Struct
                | Union
                | Unsigned
                | Userland
                | Void
                | Volatile
        )
    }

    /// Can begin an element of a program other than a clause.
    pub(crate) fn starts_item(self) -> bool {
        use Kw::*;
        self.starts_type()
            || matches!(
                self,
                Auto | Extern
                    | Inline
                    | Provider
                    | Register
                    | SelfScope
                    | Static
                    | This
                    | Translator
                    | Typedef
            )
    }
}

macro_rules! puncts {
    ($($variant:ident $text:literal,)*) => {
        /// An operator or a separator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Punct { $($variant,)* }

        /// Longest first, so that the first that fits is the right one.
        pub(crate) const PUNCTS: &[(&str, Punct)] = &[$(($text, Punct::$variant),)*];

        impl Punct {
            /// As written.
            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(Punct::$variant => $text,)*
                }
            }
        }
    };
}

puncts! {
    Ellipsis "...",
    ShlAssign "<<=",
    ShrAssign ">>=",
    Arrow "->",
    Inc "++",
    Dec "--",
    Shl "<<",
    Shr ">>",
    Le "<=",
    Ge ">=",
    EqEq "==",
    Ne "!=",
    AndAnd "&&",
    OrOr "||",
    XorXor "^^",
    AddAssign "+=",
    SubAssign "-=",
    MulAssign "*=",
    DivAssign "/=",
    ModAssign "%=",
    AndAssign "&=",
    OrAssign "|=",
    XorAssign "^=",
    Plus "+",
    Minus "-",
    Star "*",
    Slash "/",
    Percent "%",
    Lt "<",
    Gt ">",
    Assign "=",
    And "&",
    Or "|",
    Xor "^",
    Tilde "~",
    Not "!",
    Question "?",
    Colon ":",
    Semi ";",
    Comma ",",
    Dot ".",
    LParen "(",
    RParen ")",
    LBracket "[",
    RBracket "]",
    LBrace "{",
    RBrace "}",
}

impl Punct {
    /// The infix operator and how strongly it binds.
    pub(crate) fn binary(self) -> Option<(BinaryOp, u8)> {
        Some(match self {
            Punct::Star => (BinaryOp::Mul, 11),
            Punct::Slash => (BinaryOp::Div, 11),
            Punct::Percent => (BinaryOp::Mod, 11),
            Punct::Plus => (BinaryOp::Add, 10),
            Punct::Minus => (BinaryOp::Sub, 10),
            Punct::Shl => (BinaryOp::Shl, 9),
            Punct::Shr => (BinaryOp::Shr, 9),
            Punct::Lt => (BinaryOp::Lt, 8),
            Punct::Le => (BinaryOp::Le, 8),
            Punct::Gt => (BinaryOp::Gt, 8),
            Punct::Ge => (BinaryOp::Ge, 8),
            Punct::EqEq => (BinaryOp::Eq, 7),
            Punct::Ne => (BinaryOp::Ne, 7),
            Punct::And => (BinaryOp::BitAnd, 6),
            Punct::Xor => (BinaryOp::BitXor, 5),
            Punct::Or => (BinaryOp::BitOr, 4),
            Punct::AndAnd => (BinaryOp::LogAnd, 3),
            Punct::XorXor => (BinaryOp::LogXor, 2),
            Punct::OrOr => (BinaryOp::LogOr, 1),
            _ => return None,
        })
    }

    /// The operator joined to `=`; `Some(None)` for `=` itself.
    pub(crate) fn assignment(self) -> Option<Option<BinaryOp>> {
        Some(match self {
            Punct::Assign => None,
            Punct::AddAssign => Some(BinaryOp::Add),
            Punct::SubAssign => Some(BinaryOp::Sub),
            Punct::MulAssign => Some(BinaryOp::Mul),
            Punct::DivAssign => Some(BinaryOp::Div),
            Punct::ModAssign => Some(BinaryOp::Mod),
            Punct::ShlAssign => Some(BinaryOp::Shl),
            Punct::ShrAssign => Some(BinaryOp::Shr),
            Punct::AndAssign => Some(BinaryOp::BitAnd),
            Punct::OrAssign => Some(BinaryOp::BitOr),
            Punct::XorAssign => Some(BinaryOp::BitXor),
            _ => return None,
        })
    }
}

/// What a [`Token`] is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    /// Nothing follows.
    Eof,
    /// No token of D; the complaint was made.
    Bad,
    /// A name; may have backquotes in it.
    Ident(String),
    /// A keyword.
    Kw(Kw),
    /// An integer constant.
    Int(IntLit),
    /// A character constant.
    Char(u64),
    /// A string constant, escapes resolved.
    Str(Vec<u8>),
    /// `@name`, without the `@`.
    Agg(String),
    /// An operator or separator.
    P(Punct),
}

/// A word of the text.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// What.
    pub(crate) tok: Tok,
    /// Where.
    pub(crate) span: Span,
    /// Nothing but blanks precedes it on its line.
    pub(crate) starts_line: bool,
    /// A string without its closing quote: what follows it is probably inside out.
    pub(crate) unclosed: bool,
}

impl Token {
    /// Is this operator or separator.
    pub(crate) fn is(&self, p: Punct) -> bool {
        self.tok == Tok::P(p)
    }
}
