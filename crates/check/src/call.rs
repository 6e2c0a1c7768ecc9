//! Calls: prototypes and subroutines.

use diagnostics::{Span, Tag, nearest};
use syntax::ast;
use types::TypeId;

use crate::hints;
use crate::program::{Expr, ExprKind, MemoryCall, Scope};
use crate::session::{Checker, did_you_mean};
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::state::scopes::NameSpace;
use crate::tables::{self, FunctionKind, FunctionRow, Subroutine};

/// One parameter of a prototype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Param {
    /// `None` accepts any type.
    ty: Option<TypeId>,
    optional: bool,
}

/// The family of IPv6 addresses of Linux.
const AF_INET6: i64 = 10;

impl Checker<'_> {
    /// The row of the called function.
    pub(crate) fn callee(&mut self, callee: &ast::Expr) -> CheckResult<&'static FunctionRow> {
        let ast::ExprKind::Ident(name) = &callee.kind else {
            if matches!(callee.kind, ast::ExprKind::Error) {
                return Err(ErrorReported);
            }
            return self.fail(Tag::D_FUNC_IDENT, callee.span, "function designator is not of function type");
        };
        let word = name.text.as_str();
        if let Some(row) = tables::function(word).filter(|_| !self.is_too_new(word)) {
            self.uses_word(row.kind.word(), word, callee.span);
            self.clause.destructive |= tables::is_destructive(word);
            return Ok(row);
        }
        let kind = match self.scopes.var(Scope::Global, word) {
            Some(id) => Some(self.scopes.var_info(id).kind_word()),
            None if self.scopes.names.inlines.contains_key(word) || tables::variable(word).is_some() => {
                Some("scalar")
            }
            None => None,
        };
        if let Some(kind) = kind {
            let message = format!("{kind} '{word}' may not be referenced as a function");
            return self.fail(Tag::D_FUNC_IDKIND, callee.span, message);
        }
        self.require_not_doubtful(word)?;
        let near = || {
            let words = tables::FUNCTIONS.iter().filter(|r| r.kind.is_supported()).map(|r| r.name);
            self.sink.may_suggest().then(|| nearest(word, words)).flatten().map(did_you_mean)
        };
        let fires = || {
            let in_library = matches!(self.scopes.space, Some(NameSpace::Library(_)));
            let name = syntax::library::probe_name(word);
            (in_library && self.derivations.declared.keys().any(|(_, probe)| *probe == name))
                .then(|| format!("{word}( ) fires a probe: it is a statement of its own"))
        };
        let help = self.version_error(word).or_else(fires).or_else(|| hints::function(word)).or_else(near);
        self.fail_with(Tag::D_FUNC_UNDEF, callee.span, format!("undefined function name: {word}"), help)
    }

    /// A call in an expression. Only subroutines have values.
    pub(crate) fn call(&mut self, callee: &ast::Expr, args: &[ast::Expr], span: Span) -> CheckResult<Expr> {
        let row = self.callee(callee)?;
        match row.kind {
            FunctionKind::Subroutine(Subroutine::Library) => {
                self.define_from_libraries(row.name);
                match self.scopes.names.inlines.get(row.name).cloned() {
                    Some(inline) => {
                        let shown = format!("{}( )", row.name);
                        self.call_inline((row.name, &shown), &inline, args, span)
                    }
                    // The library is not available: the error is already reported, or no library is
                    // loaded.
                    None => self.unsupported(span, format!("{}( ) without its library", row.name)),
                }
            }
            FunctionKind::Subroutine(sub) => {
                let mut values = self.values(args)?;
                // A string as the source of a copy is a pointer to its characters.
                if let (Subroutine::Memory(MemoryCall::Bcopy | MemoryCall::Copyout), Some(first)) =
                    (sub, values.first_mut())
                    && self.types.is_string(first.ty)
                {
                    *first = self.string_address(first.clone());
                }
                let user = values.iter().any(|v| self.types.pointee(v.ty).is_some_and(|(_, user)| user));
                let again = values.first().is_some_and(|v| v.as_const() == Some(0));
                let values = self.check_prototype(row, values, span)?;
                if sub == Subroutine::Strtok && again {
                    let args = values.into_iter().skip(1).collect();
                    let kind = ExprKind::Call { name: "strtok_next", args, user };
                    return Ok(Expr { kind, ty: TypeId::STRING, span });
                }
                if row.name == "inet_ntoa6" && values.len() > 1 {
                    return self.inet_ntoa6(values, user, span);
                }
                if sub == Subroutine::Memref {
                    return Ok(self.memref(values, span));
                }
                Ok(self.subroutine(sub, row, values, user, span))
            }
            FunctionKind::SubroutineNotOnLinux(why) => {
                let message = format!("{}() is not available on Linux", row.name);
                self.fail_with(Tag::D_UNSUPPORTED, span, message, Some(why.into()))
            }
            FunctionKind::Action(_) | FunctionKind::ActionNotOnLinux(_) | FunctionKind::Aggregating(_) => {
                let message = format!(
                    "{} {}( ) may not be called from a D expression (D program context required)",
                    row.kind.word(),
                    row.name
                );
                self.fail(Tag::D_CG_EXPR, span, message)
            }
        }
    }

    /// `inet_ntoa6(p, strict)`, where `strict` is a constant: with it the text is that of
    /// `inet_ntop()`.
    fn inet_ntoa6(&mut self, mut values: Vec<Expr>, user: bool, span: Span) -> CheckResult<Expr> {
        let strict = values.pop().filter(|e| self.types.is_integer(e.ty));
        let Some(strict) = strict.as_ref().and_then(Expr::as_const) else {
            let message = "inet_ntoa6( ) argument #2 is incompatible with prototype:\n\tprototype: integer \
                           constant\n\t argument: expression";
            return self.fail(Tag::D_PROTO_ARG, span, message);
        };
        if strict != 0 {
            values.insert(0, self.int(AF_INET6, TypeId::INT, span));
        }
        let name = if strict == 0 { "inet_ntoa6" } else { "inet_ntop" };
        let kind = ExprKind::Call { name, args: values, user };
        Ok(Expr { kind, ty: TypeId::STRING, span })
    }

    /// Checks all arguments, so that errors in each are reported.
    pub(crate) fn values(&mut self, args: &[ast::Expr]) -> CheckResult<Vec<Expr>> {
        let checked: Vec<CheckResult<Expr>> = args.iter().map(|a| self.typed(a)).collect();
        checked.into_iter().collect()
    }

    /// An operand whose type is checked first. There a call of an action is a void value. Only
    /// where no type is required is it reported as an action.
    pub(crate) fn typed(&mut self, e: &ast::Expr) -> CheckResult<Expr> {
        if self.is_void_call(e) {
            // No code reads this value, because no operator accepts a void operand.
            let kind = ExprKind::Bound(u32::MAX);
            return Ok(Expr { kind, ty: TypeId::VOID, span: e.span });
        }
        self.value(e)
    }

    /// True for a call of an action or an aggregating function, which have no value.
    pub(crate) fn is_void_call(&self, e: &ast::Expr) -> bool {
        let ast::ExprKind::Call { callee, .. } = &e.kind else { return false };
        let ast::ExprKind::Ident(name) = &callee.kind else { return false };
        tables::function(&name.text).is_some_and(|row| match row.kind {
            FunctionKind::Action(_) | FunctionKind::Aggregating(_) => row.ret == "void",
            _ => false,
        })
    }

    fn params(&self, row: &FunctionRow) -> (Vec<Param>, bool) {
        let mut params = Vec::new();
        let mut variadic = false;
        for word in row.params.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word {
                "..." => variadic = true,
                "@" => params.push(Param { ty: None, optional: false }),
                _ => {
                    let inner = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
                    let ty = Some(self.row_type(inner.unwrap_or(word)));
                    params.push(Param { ty, optional: inner.is_some() });
                }
            }
        }
        (params, variadic)
    }

    /// Compares the number of arguments with the row's prototype.
    pub(crate) fn check_length(&mut self, row: &FunctionRow, count: usize, span: Span) -> CheckResult<()> {
        let (params, variadic) = self.params(row);
        let required = params.iter().filter(|p| !p.optional).count();
        let optional = required < params.len();
        if count < required || (!variadic && count > params.len()) {
            let s = if count == 1 { "" } else { "s" };
            let (bound, expected) = match count < required {
                true if optional || variadic => ("at least ", required),
                false if optional => ("at most ", params.len()),
                _ => ("", required),
            };
            let message = format!(
                "{}( ) prototype mismatch: {count} arg{s} passed, {bound}{expected} expected",
                row.name
            );
            return self.fail(Tag::D_PROTO_LEN, span, message);
        }
        Ok(())
    }

    /// Compares number and types of arguments with the row's prototype, and converts them.
    pub(crate) fn check_prototype(
        &mut self,
        row: &FunctionRow,
        values: Vec<Expr>,
        span: Span,
    ) -> CheckResult<Vec<Expr>> {
        self.check_length(row, values.len(), span)?;
        let (params, _) = self.params(row);
        let mut out = Vec::with_capacity(values.len());
        for (i, value) in values.into_iter().enumerate() {
            let Some(ty) = params.get(i).and_then(|p| p.ty) else {
                out.push(value);
                continue;
            };
            if !self.fits(ty, &value) {
                let message = format!(
                    "{}( ) argument #{} is incompatible with prototype:\n\tprototype: {}\n\t argument: {}",
                    row.name,
                    i + 1,
                    self.name(ty),
                    self.name(value.ty)
                );
                let cast = self.types.is_pointer(value.ty) && self.types.is_integer(ty);
                let help = cast.then(|| format!("a cast makes a number of the address: ({})", self.name(ty)));
                return self.fail_with(Tag::D_PROTO_ARG, value.span, message, help);
            }
            out.push(self.argument_value(value, ty));
        }
        Ok(out)
    }

    /// An argument as it is passed. D's `int` parameter states the kind of number but not its
    /// width: an argument keeps its 64 bits, so that a position beyond 32 bits is after the end of
    /// a string and not elsewhere. Unsigned parameters are exact: the parameter of `htons()` has 16
    /// bits.
    fn argument_value(&self, value: Expr, ty: TypeId) -> Expr {
        match self.types.as_int(ty) {
            Some(int) if int.signed && int.size < 8 => self.convert(value, TypeId::LONG),
            _ => self.coerce(value, ty),
        }
    }

    fn subroutine(
        &mut self,
        sub: Subroutine,
        row: &FunctionRow,
        values: Vec<Expr>,
        user: bool,
        span: Span,
    ) -> Expr {
        let ty = self.row_type(row.ret);
        let name = match sub {
            Subroutine::Call(name) => Some(name),
            Subroutine::Strtok => Some("strtok"),
            Subroutine::Copyinstr
            | Subroutine::Strlen
            | Subroutine::Library
            | Subroutine::Memref
            | Subroutine::Memory(_) => None,
        };
        if let Some(name) = name {
            return Expr { kind: ExprKind::Call { name, args: values, user }, ty, span };
        }
        if let Subroutine::Memory(call) = sub {
            return Expr { kind: ExprKind::MemoryCall { call, args: values, user }, ty, span };
        }
        let mut values = values.into_iter();
        let zero = self.int(0, TypeId::INT, span);
        let first = Box::new(values.next().unwrap_or(zero));
        let kind = match sub {
            Subroutine::Copyinstr => {
                ExprKind::LoadStr { addr: first, user: true, max: values.next().map(Box::new) }
            }
            Subroutine::Strlen
            | Subroutine::Strtok
            | Subroutine::Library
            | Subroutine::Memref
            | Subroutine::Call(_)
            | Subroutine::Memory(_) => ExprKind::Strlen(first),
        };
        Expr { kind, ty, span }
    }
}
