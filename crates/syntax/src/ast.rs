//! The tree of a D text.
//!
//! The tree keeps what was written: `if`/`else` stay statements, inlines and translators stay definitions, sizes stay
//! expressions. It resolves nothing but what the grammar itself needs (which names are types). Every node carries the
//! [`Span`] it came from, because every later stage, down to the verifier's refusal, must be able to point at the text.
//!
//! The one decision that shapes it: a declarator is a *list* of steps read outward from the name (`int *a[5]` is "array
//! of 5", "pointer", then `int`), not a nest of C declarator nodes. Whoever builds a type walks the list backwards, and
//! nobody has to turn the C spiral inside out a second time.
//!
//! A tree made from a text with errors is still a tree: what could not be read is [`ExprKind::Error`],
//! [`TypeSpecKind::Error`] or is missing. Such a tree must not be compiled, but may be checked for further errors.

use diagnostics::{FileId, Span};

mod dump;

/// A word of the text: an identifier, or a keyword where a member may be spelled like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The word.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// A whole text: a script, a library file or one `-n` argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The text.
    pub file: FileId,
    /// All of it.
    pub span: Span,
    /// Clauses, declarations and control lines, in the order they were written.
    pub items: Vec<Item>,
    /// Whether `$n` (or `$$n`) was referenced, by `n`; as long as `MacroEnv::args` plus one, for `$0`.
    ///
    /// When several programs share the operands, an operand is extraneous if none of them references it.
    pub operands_used: Vec<bool>,
}

/// One element of a [`Program`].
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `pdescs /predicate/ { statements }`.
    Clause(Clause),
    /// Variables, types and forward declarations.
    Declaration(Declaration),
    /// `inline type name = expr;`
    Inline(Inline),
    /// `translator out < in > { … };`
    Translator(Translator),
    /// `provider name { probe …; };`
    Provider(ProviderDef),
    /// `#pragma D …`.
    Pragma(Pragma),
}

impl Item {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            Item::Clause(x) => x.span,
            Item::Declaration(x) => x.span,
            Item::Inline(x) => x.span,
            Item::Translator(x) => x.span,
            Item::Provider(x) => x.span,
            Item::Pragma(x) => x.span,
        }
    }
}

/// A probe clause.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// All of it.
    pub span: Span,
    /// One or more descriptions.
    pub probes: Vec<ProbeDesc>,
    /// The condition between slashes.
    pub predicate: Option<Expr>,
    /// `None` only on the command line, where the braces may be left out; it means the default action, as `{}` does.
    pub body: Option<Block>,
}

/// A probe description.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeDesc {
    /// All of it.
    pub span: Span,
    /// The description as text, macro variables expanded.
    pub text: String,
    /// What it selects.
    pub kind: ProbeDescKind,
}

/// What a [`ProbeDesc`] selects.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeDescKind {
    /// Probes whose four fields match, after right alignment. An empty field matches anything.
    Fields {
        /// First field.
        provider: Glob,
        /// Second field.
        module: Glob,
        /// Third field.
        function: Glob,
        /// Fourth field.
        name: Glob,
    },
    /// The probe with this id.
    Id(u32),
}

/// One field of a probe description: a shell glob, possibly empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The pattern.
    pub text: String,
    /// Where it stands; for a field that was left out, the empty place where it would stand.
    pub span: Span,
}

/// Statements of a clause or of a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// From brace to brace, or the single statement.
    pub span: Span,
    /// In order.
    pub stmts: Vec<Stmt>,
    /// False for the single statement of an `if` or `else` without braces.
    pub braced: bool,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Without the semicolon.
    pub span: Span,
    /// What it does.
    pub kind: StmtKind,
}

/// What a [`Stmt`] does.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `;`
    Empty,
    /// `expr;`
    Expr(Expr),
    /// `if (cond) then else otherwise`; `else if` is an unbraced `otherwise` with one `If` in it.
    If {
        /// The condition.
        cond: Expr,
        /// Run when it is not zero.
        then: Block,
        /// Run when it is zero.
        otherwise: Option<Block>,
    },
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// All of it, parentheses included.
    pub span: Span,
    /// What it computes.
    pub kind: ExprKind,
}

/// What an [`Expr`] computes.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// Could not be read; the complaint was made.
    Error,
    /// Integer constant.
    Int(IntLit),
    /// Character constant of one to eight characters, the first in the most significant byte; its type is `int`.
    Char(u64),
    /// String constant, escapes resolved, without the final NUL.
    Str(StrLit),
    /// A name: variable, inline, enumerator, function, `args`, …
    Ident(Name),
    /// `` `sym `` or `` mod`sym ``: a kernel (or user) object.
    Symbol {
        /// Before the backquote; `None` when nothing is.
        module: Option<Name>,
        /// After it.
        name: Name,
    },
    /// `self->x`.
    SelfVar(Name),
    /// `this->x`.
    ThisVar(Name),
    /// `@`, `@a`, `@a[k1, k2]`.
    Agg(AggRef),
    /// `base[k1, k2]`; more than one key only for associative arrays.
    Index {
        /// What is indexed.
        base: Box<Expr>,
        /// At least one.
        keys: Vec<Expr>,
    },
    /// `base.name`, `base->name`.
    Member {
        /// The struct, union or the pointer to it.
        base: Box<Expr>,
        /// `->` rather than `.`.
        arrow: bool,
        /// The member.
        name: Name,
    },
    /// `callee(args)`; D calls only names, the checker complains about others.
    Call {
        /// What is called.
        callee: Box<Expr>,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// Prefix operator.
    Unary {
        /// The operator.
        op: UnaryOp,
        /// Its operand.
        operand: Box<Expr>,
    },
    /// `operand++`, `operand--`.
    Postfix {
        /// `--` rather than `++`.
        decrement: bool,
        /// Its operand.
        operand: Box<Expr>,
    },
    /// `sizeof expr`.
    SizeofExpr(Box<Expr>),
    /// `sizeof (type)`.
    SizeofType(TypeName),
    /// `stringof expr`.
    Stringof(Box<Expr>),
    /// `offsetof(type, member)`.
    Offsetof {
        /// A struct or union.
        ty: TypeName,
        /// A member of it.
        member: Name,
    },
    /// `defined(type)`, `defined(type, member.member)`: whether the kernel that runs has it.
    Defined {
        /// What may be there.
        ty: TypeName,
        /// Members, each of the one before it; empty when only the type is asked for.
        path: Vec<Name>,
    },
    /// `xlate <type> (expr)`.
    Xlate {
        /// Output type, or a pointer to it.
        ty: TypeName,
        /// What is translated.
        operand: Box<Expr>,
    },
    /// `(type) expr`.
    Cast {
        /// The new type.
        ty: TypeName,
        /// What is converted.
        operand: Box<Expr>,
    },
    /// Infix operator other than assignment and comma.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Where the operator stands.
        op_span: Span,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// `cond ? then : otherwise`.
    Cond {
        /// The condition.
        cond: Box<Expr>,
        /// Value when it is not zero.
        then: Box<Expr>,
        /// Value when it is zero.
        otherwise: Box<Expr>,
    },
    /// `target = value` (`op` is `None`), `target += value` (`op` is `Add`), …
    Assign {
        /// The operator joined to `=`.
        op: Option<BinaryOp>,
        /// What is assigned to.
        target: Box<Expr>,
        /// The value.
        value: Box<Expr>,
    },
    /// `left, right`.
    Comma {
        /// Evaluated first, its value dropped.
        left: Box<Expr>,
        /// The value.
        right: Box<Expr>,
    },
}

/// A reference to an aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct AggRef {
    /// Without the `@`; a bare `@` has the name `_`.
    pub name: Name,
    /// `None` without brackets.
    pub keys: Option<Vec<Expr>>,
}

/// How an integer constant was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntBase {
    /// `42`
    Decimal,
    /// `052`
    Octal,
    /// `0x2a`
    Hex,
}

/// An integer constant and what decides its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntLit {
    /// The value; two's complement if `negative`.
    pub value: u64,
    /// How it was written.
    pub base: IntBase,
    /// Suffix `u`.
    pub unsigned: bool,
    /// Number of `l` in the suffix, 0 to 2.
    pub longs: u8,
    /// An operand such as `-5` that a macro variable put in; its type is signed.
    pub negative: bool,
}

/// The type of an integer constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntLitType {
    /// `int`
    Int,
    /// `unsigned int`
    UInt,
    /// `long`
    Long,
    /// `unsigned long`
    ULong,
    /// `long long`
    LongLong,
    /// `unsigned long long`
    ULongLong,
}

impl IntLit {
    /// The smallest type that fits, starting at the suffix's rank; decimal without `u` skips unsigned types. `long` has
    /// 64 bits. A decimal too big for `long long` is `unsigned long long`, as the value needs it.
    pub fn ty(&self) -> IntLitType {
        use IntLitType::*;
        if self.negative {
            return if (self.value as i64) >= i64::from(i32::MIN) { Int } else { Long };
        }
        let unsigned_ok = self.unsigned || self.base != IntBase::Decimal;
        let ladder = [
            (Int, 0, false, i32::MAX as u64),
            (UInt, 0, true, u64::from(u32::MAX)),
            (Long, 1, false, i64::MAX as u64),
            (ULong, 1, true, u64::MAX),
            (LongLong, 2, false, i64::MAX as u64),
            (ULongLong, 2, true, u64::MAX),
        ];
        ladder
            .into_iter()
            .filter(|(_, rank, is_unsigned, max)| {
                *rank >= self.longs
                    && self.value <= *max
                    && if *is_unsigned { unsigned_ok } else { !self.unsigned }
            })
            .map(|(ty, ..)| ty)
            .next()
            .unwrap_or(ULongLong)
    }
}

/// A string constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrLit {
    /// Escapes resolved, without the final NUL.
    pub bytes: Vec<u8>,
}

impl StrLit {
    /// The string as text; of bytes that are none, see [`diagnostics::raw`].
    pub fn text(&self) -> String {
        diagnostics::raw::text(self.bytes.clone())
    }
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `+`
    Plus,
    /// `-`
    Neg,
    /// `!`
    Not,
    /// `~`
    BitNot,
    /// `*`
    Deref,
    /// `&`
    AddrOf,
    /// `++`
    PreInc,
    /// `--`
    PreDec,
}

impl UnaryOp {
    /// As written.
    pub fn text(self) -> &'static str {
        match self {
            UnaryOp::Plus => "+",
            UnaryOp::Neg => "-",
            UnaryOp::Not => "!",
            UnaryOp::BitNot => "~",
            UnaryOp::Deref => "*",
            UnaryOp::AddrOf => "&",
            UnaryOp::PreInc => "++",
            UnaryOp::PreDec => "--",
        }
    }
}

/// Infix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Mod,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `&`
    BitAnd,
    /// `^`
    BitXor,
    /// `|`
    BitOr,
    /// `&&`
    LogAnd,
    /// `^^`
    LogXor,
    /// `||`
    LogOr,
}

impl BinaryOp {
    /// As written.
    pub fn text(self) -> &'static str {
        match self {
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::BitAnd => "&",
            BinaryOp::BitXor => "^",
            BinaryOp::BitOr => "|",
            BinaryOp::LogAnd => "&&",
            BinaryOp::LogXor => "^^",
            BinaryOp::LogOr => "||",
        }
    }
}

mod decl;
pub use decl::*;

#[cfg(test)]
mod tests {
    use super::*;

    fn lit(value: u64, base: IntBase, unsigned: bool, longs: u8) -> IntLitType {
        IntLit { value, base, unsigned, longs, negative: false }.ty()
    }

    // row token.integer-type
    #[test]
    fn a_constant_has_the_smallest_type_that_fits() {
        use IntBase::*;
        assert_eq!(lit(1, Decimal, false, 0), IntLitType::Int);
        assert_eq!(lit(0x8000_0000, Decimal, false, 0), IntLitType::Long);
        assert_eq!(lit(0x8000_0000, Hex, false, 0), IntLitType::UInt);
        assert_eq!(lit(1, Decimal, true, 0), IntLitType::UInt);
        assert_eq!(lit(1, Octal, false, 1), IntLitType::Long);
        assert_eq!(lit(1, Hex, true, 2), IntLitType::ULongLong);
        assert_eq!(lit(u64::MAX, Hex, false, 0), IntLitType::ULong);
        assert_eq!(lit(u64::MAX, Decimal, false, 0), IntLitType::ULongLong);
    }

    #[test]
    fn a_negative_operand_is_signed() {
        let n = |v: i64| IntLit {
            value: v as u64,
            base: IntBase::Decimal,
            unsigned: false,
            longs: 0,
            negative: true,
        };
        assert_eq!(n(-5).ty(), IntLitType::Int);
        assert_eq!(n(i64::MIN).ty(), IntLitType::Long);
    }
}
