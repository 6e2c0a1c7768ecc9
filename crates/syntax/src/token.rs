//! Tokens, and the tables of keywords and operators.

use diagnostics::Span;

use crate::ast::{BinaryOp, IntLit};

macro_rules! keywords {
    ($($variant:ident $text:literal,)*) => {
        /// A keyword. Some are reserved and have no meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kw { $($variant,)* }

        impl Kw {
            /// The keyword with this spelling.
            pub(crate) fn from_text(text: &str) -> Option<Kw> {
                match text {
                    $($text => Some(Kw::$variant),)*
                    _ => None,
                }
            }

            /// The spelling.
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
    /// True if the keyword can begin a type name.
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

    /// True if the keyword can begin an item other than a clause.
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

        /// Sorted by length, longest first, so that the first match is the longest.
        pub(crate) const PUNCTS: &[(&str, Punct)] = &[$(($text, Punct::$variant),)*];

        impl Punct {
            /// The spelling.
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
    /// The infix operator and its precedence.
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

    /// The operator combined with `=`; `Some(None)` for `=`.
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

/// The kinds of [`Token`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    /// The end of input.
    Eof,
    /// Not a token of D; an error has been reported.
    Bad,
    /// A name, which may contain backquotes.
    Ident(String),
    /// A keyword.
    Kw(Kw),
    /// An integer constant.
    Int(IntLit),
    /// A character constant.
    Char(u64),
    /// A string constant with escapes resolved.
    Str(Vec<u8>),
    /// `@name`, without the `@`.
    Agg(String),
    /// An operator or separator.
    P(Punct),
}

/// A token and its source location.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// The kind.
    pub(crate) tok: Tok,
    /// The source location.
    pub(crate) span: Span,
    /// Only whitespace precedes it on its line.
    pub(crate) starts_line: bool,
    /// A string without its closing quote. Following quotes probably have the opposite meaning.
    pub(crate) unclosed: bool,
}

impl Token {
    /// True for this operator or separator.
    pub(crate) fn is(&self, p: Punct) -> bool {
        self.tok == Tok::P(p)
    }
}
