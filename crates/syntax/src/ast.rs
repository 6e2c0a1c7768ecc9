//! The abstract syntax tree of a D program.
//!
//! The tree represents the source as written: `if`/`else` are statements, inlines and translators
//! are definitions, sizes are expressions. Names are not resolved, except that the grammar must
//! know which names are types. Every node has a [`Span`], because messages of all later stages,
//! including rejections by the verifier, refer to the source.
//!
//! The main design decision: a declarator is a *list* of steps, outward from the name (`int *a[5]`
//! is "array of 5", "pointer", then `int`), and not nested C declarator nodes. The type is built
//! from the last step to the first.
//!
//! A program with syntax errors has a tree, too. Constructs that could not be parsed are
//! [`ExprKind::Error`] or [`TypeSpecKind::Error`], or they are missing. Such a tree must not be
//! compiled, but it may be checked for further errors.

use diagnostics::{FileId, Span};

mod dump;

/// An identifier, or a keyword that is used as a member name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The text of the name.
    pub text: String,
    /// The source location.
    pub span: Span,
}

/// A program: a script, a library file or one `-n` argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The source text.
    pub file: FileId,
    /// The location of the whole construct.
    pub span: Span,
    /// Clauses, declarations and control lines, in source order.
    pub items: Vec<Item>,
    /// For each `n`, whether the program references `$n` or `$$n`. The length is that of
    /// `MacroEnv::args` plus one, for `$0`.
    ///
    /// When several programs share the operands, an operand is extraneous if none of them
    /// references it.
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
    /// The source location.
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
    /// The location of the whole construct.
    pub span: Span,
    /// One or more descriptions.
    pub probes: Vec<ProbeDesc>,
    /// The condition between slashes.
    pub predicate: Option<Expr>,
    /// The actions. `None` occurs on the command line only, where braces are optional. It means the
    /// default action, as `{}` does.
    pub body: Option<Block>,
}

/// A probe description.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeDesc {
    /// The location of the whole construct.
    pub span: Span,
    /// The description as text, with macro variables expanded.
    pub text: String,
    /// The probes that it selects.
    pub kind: ProbeDescKind,
}

/// The probes that a [`ProbeDesc`] selects.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeDescKind {
    /// The probes whose four fields match. The parser assigns components from the right. An empty
    /// field matches everything.
    Fields {
        /// The provider.
        provider: Glob,
        /// The module.
        module: Glob,
        /// The function.
        function: Glob,
        /// The name.
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
    /// The source location; for a field that is not given, an empty span at its position.
    pub span: Span,
}

/// Statements of a clause or of a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The location from brace to brace, or of the single statement.
    pub span: Span,
    /// The statements in order.
    pub stmts: Vec<Stmt>,
    /// False for the single statement of an `if` or `else` without braces.
    pub braced: bool,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// The location without the semicolon.
    pub span: Span,
    /// The kind of statement.
    pub kind: StmtKind,
}

/// The kinds of [`Stmt`].
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
        /// Executed if the condition is not zero.
        then: Block,
        /// Executed if the condition is zero.
        otherwise: Option<Block>,
    },
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The source location, including parentheses.
    pub span: Span,
    /// The kind of expression.
    pub kind: ExprKind,
}

/// The kinds of [`Expr`].
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A syntax error, which has been reported.
    Error,
    /// An integer constant.
    Int(IntLit),
    /// A character constant of one to eight characters, the first in the most significant byte; its
    /// type is `int`.
    Char(u64),
    /// A string constant with escapes resolved, without the final NUL.
    Str(StrLit),
    /// A name: variable, inline, enumerator, function, `args`, …
    Ident(Name),
    /// `` `sym `` or `` mod`sym ``: a kernel (or user) object.
    Symbol {
        /// The module before the backquote; `None` if it is not given.
        module: Option<Name>,
        /// The name after the backquote.
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
        /// The array or pointer.
        base: Box<Expr>,
        /// The indexes; at least one.
        keys: Vec<Expr>,
    },
    /// `base.name`, `base->name`.
    Member {
        /// The struct or union, or a pointer to it.
        base: Box<Expr>,
        /// `->` rather than `.`.
        arrow: bool,
        /// The member.
        name: Name,
    },
    /// `callee(args)`. In D the callee must be a name; the checker rejects others.
    Call {
        /// The called expression.
        callee: Box<Expr>,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// A prefix operator.
    Unary {
        /// The operator.
        op: UnaryOp,
        /// The operand.
        operand: Box<Expr>,
    },
    /// `operand++`, `operand--`.
    Postfix {
        /// `--` rather than `++`.
        decrement: bool,
        /// The operand.
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
    /// `defined(type)`, `defined(type, member.member)`: whether the running kernel has the type or
    /// member.
    Defined {
        /// The type.
        ty: TypeName,
        /// The path of members; empty if only the type is given.
        path: Vec<Name>,
    },
    /// `` defined(`symbol) ``, `` defined(module`symbol) ``: whether the running kernel has the
    /// symbol.
    DefinedSymbol {
        /// The module, if it is given.
        module: Option<Name>,
        /// The symbol.
        name: Name,
    },
    /// `defined(description)`: whether the running system has a probe that matches.
    /// `defined(description, args[n])`: and the first one has such an argument.
    DefinedProbe {
        /// The description.
        probe: ProbeDesc,
        /// The number of the argument.
        arg: Option<u64>,
    },
    /// `xlate <type> (expr)`.
    Xlate {
        /// The output type, or a pointer to it.
        ty: TypeName,
        /// The value to translate.
        operand: Box<Expr>,
    },
    /// `(type) expr`.
    Cast {
        /// The new type.
        ty: TypeName,
        /// The value to convert.
        operand: Box<Expr>,
    },
    /// An infix operator other than assignment and comma.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// The location of the operator.
        op_span: Span,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// `cond ? then : otherwise`.
    Cond {
        /// The condition.
        cond: Box<Expr>,
        /// The value if the condition is not zero.
        then: Box<Expr>,
        /// The value if the condition is zero.
        otherwise: Box<Expr>,
    },
    /// `target = value` (`op` is `None`), `target += value` (`op` is `Add`), …
    Assign {
        /// The operator combined with `=`.
        op: Option<BinaryOp>,
        /// The assigned expression.
        target: Box<Expr>,
        /// The value.
        value: Box<Expr>,
    },
    /// `left, right`.
    Comma {
        /// Evaluated first; its value is discarded.
        left: Box<Expr>,
        /// The value.
        right: Box<Expr>,
    },
}

/// A reference to an aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct AggRef {
    /// The name without the `@`; a bare `@` has the name `_`.
    pub name: Name,
    /// The keys; `None` without brackets.
    pub keys: Option<Vec<Expr>>,
}

/// The base of an integer constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntBase {
    /// `42`
    Decimal,
    /// `052`
    Octal,
    /// `0x2a`
    Hex,
}

/// An integer constant with everything that determines its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntLit {
    /// The value; in two's complement if `negative`.
    pub value: u64,
    /// The base in the source.
    pub base: IntBase,
    /// It has the suffix `u`.
    pub unsigned: bool,
    /// The number of `l` in the suffix, 0 to 2.
    pub longs: u8,
    /// A negative operand such as `-5` from a macro variable. Its type is signed.
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
    /// The smallest type that can represent the value, starting at the rank of the suffix. A
    /// decimal constant without `u` skips unsigned types. `long` has 64 bits. A decimal constant
    /// that exceeds `long long` is `unsigned long long`.
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
    /// The bytes with escapes resolved, without the final NUL.
    pub bytes: Vec<u8>,
}

impl StrLit {
    /// The string as text. Bytes that are not UTF-8 are encoded as in [`diagnostics::raw`].
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
    /// The spelling.
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
    /// The spelling.
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
