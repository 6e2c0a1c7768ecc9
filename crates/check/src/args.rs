//! `args[n]`: typed arguments of a probe.
//!
//! The catalog is queried for a probe's argument types at the first `args` in a clause. A clause
//! for several probes needs one meaning: the probes of one description must agree on the arguments
//! that the clause uses. If the descriptions of a clause (`read:entry, write:entry`) do not agree
//! with each other, the clause is checked once for each group of descriptions, as if it had been
//! written several times; see [`Checker::clause`]. (The original does this for every description,
//! and rejects descriptions with globs.)

use diagnostics::{Span, Tag};
use probes::{ArgType, Args, TypeRef};
use syntax::ast;
use types::{IntClass, Kind, TypeId};

use crate::program::{Builtin, Expr, ExprKind, IntBuiltin};
use crate::session::Checker;
use crate::state::clause::DescriptionMatch;
use crate::state::recovery::{CheckResult, ErrorReported};

impl Checker<'_> {
    /// `args[keys]`
    pub(crate) fn typed_arg(&mut self, keys: &[ast::Expr], span: Span) -> CheckResult<Expr> {
        self.uses_word("associative array", "args", span);
        let [key] = keys else {
            let n = keys.len();
            let message = format!("args[ ] prototype mismatch: {n} args passed, 1 expected");
            return self.fail(Tag::D_PROTO_LEN, span, message);
        };
        let index = self.value(key)?;
        let Some(n) = index.as_const().filter(|_| self.types.is_integer(index.ty)) else {
            let message = format!(
                "args[ ] argument #1 is incompatible with prototype:\n\tprototype: integer constant\n\t \
                 argument: {}",
                self.name(index.ty)
            );
            return self.fail(Tag::D_PROTO_ARG, key.span, message);
        };
        if self.recovery.wrong_description {
            return Err(ErrorReported);
        }
        let Some(described) = self.args.described.clone() else {
            let message = "args[ ] may not be referenced outside of a probe clause";
            return self.fail(Tag::D_ARGS_NONE, span, message);
        };
        // Also where it is wrong: it may be right for other probes.
        if let Ok(n) = usize::try_from(n)
            && !self.args.used.contains(&n)
        {
            self.args.used.push(n);
        }
        let arg = self.common_arg(&described, n, key.span, span)?;
        self.arg_value(n, &arg, span)
    }

    /// Argument `n` of the probes of a description.
    fn common_arg(
        &mut self,
        described: &DescriptionMatch,
        n: i64,
        at: Span,
        span: Span,
    ) -> CheckResult<ArgType> {
        let text = described.pattern.pattern.to_string();
        let Some(first) = described.probes.first() else {
            if self.defer_clause() {
                return Err(ErrorReported);
            }
            let message = format!(
                "args[ ] may not be referenced because probe description {text} matches no probe: \
                 their types are not known"
            );
            return self.fail(Tag::D_ARGS_MULTI, span, message);
        };
        let nth = |args: &Args| match (args, usize::try_from(n)) {
            (Ok(args), Ok(n)) => args.get(n).cloned(),
            _ => None,
        };
        let args = self.args_of(&first.desc);
        let arg = nth(&args);
        // The first differing probe is enough; there may be thousands.
        let mut others = described.probes.iter().skip(1);
        let other = others.find_map(|p| {
            let other = nth(&self.args_of(&p.desc));
            (!self.same_arg(arg.as_ref(), other.as_ref())).then_some((p, other))
        });
        if let Some((probe, other)) = other {
            let show = |arg: Option<&ArgType>| arg.map_or("nothing".into(), |a| a.name(self.types));
            let help = format!(
                "args[{n}] is {} in {}, and {} in {}",
                quoted(&show(arg.as_ref())),
                first.desc,
                quoted(&show(other.as_ref())),
                probe.desc
            );
            let message = format!(
                "args[ ] may not be referenced because probe description {text} matches an unstable set of probes"
            );
            return self.fail_with(Tag::D_ARGS_MULTI, span, message, Some(help));
        }
        if let Some(arg) = arg {
            return Ok(arg);
        }
        match args {
            Err(why) => {
                let message = format!("failed to resolve type of args[{n}] of {text}: {why}");
                self.fail(Tag::D_ARGS_TYPE, span, message)
            }
            Ok(args) => {
                let message = format!("index {n} is out of range for {text} args[ ]");
                let help = match args.len() {
                    0 => "the probe has no typed arguments".to_string(),
                    1 => "the probe has one argument, args[0]".to_string(),
                    count => format!("the probe has {count} arguments, args[0] to args[{}]", count - 1),
                };
                self.fail_with(Tag::D_ARGS_IDX, at, message, Some(help))
            }
        }
    }

    fn same_arg(&self, a: Option<&ArgType>, b: Option<&ArgType>) -> bool {
        let (Some(a), Some(b)) = (a, b) else { return a.is_none() && b.is_none() };
        let same = |a, b| match (a, b) {
            (Some(a), Some(b)) => self.types.compatible(a, b) && self.types.compatible(b, a),
            _ => false,
        };
        a == b
            || (a.from, a.userland, a.translated.is_some(), a.definition)
                == (b.from, b.userland, b.translated.is_some(), b.definition)
                && a.parts == b.parts
                && same(a.native_type(self.types), b.native_type(self.types))
                && same(a.shown_type(self.types), b.shown_type(self.types))
    }

    /// True if the used arguments have the same meaning in two descriptions.
    pub(crate) fn same_args(&mut self, a: &DescriptionMatch, b: &DescriptionMatch, used: &[usize]) -> bool {
        let (Some(a), Some(b)) = (a.probes.first(), b.probes.first()) else { return true };
        let objects = self.args.objects.clone();
        if !objects.iter().all(|object| self.same_object(&a.desc.provider, &b.desc.provider, object)) {
            return false;
        }
        let raw = self.args.raw.clone();
        if !raw.iter().all(|n| self.site_arg(&a.desc, *n) == self.site_arg(&b.desc, *n)) {
            return false;
        }
        if used.is_empty() {
            return true;
        }
        let (a, b) = (self.args_of(&a.desc), self.args_of(&b.desc));
        let (Ok(a), Ok(b)) = (a, b) else { return false };
        used.iter().all(|n| self.same_arg(a.get(*n), b.get(*n)))
    }

    /// The value of an argument.
    fn arg_value(&mut self, n: i64, arg: &ArgType, span: Span) -> CheckResult<Expr> {
        self.define_types_of(arg);
        let unknown = |what: &str| format!("failed to resolve {what} type for args[{n}]: Unknown type name");
        let Some(native) = arg.native_type(self.types) else {
            let message = unknown("native");
            return self.fail(Tag::D_ARGS_TYPE, span, message);
        };
        if let Some(why) = &arg.unreadable {
            let message = format!("args[{n}], of type \"{}\", cannot be read: {why}", self.name(native));
            return self.fail(Tag::D_ARGS_TYPE, span, message);
        }
        let value = self.native_arg(n, arg, native, span)?;
        if arg.translated.is_none() {
            return Ok(value);
        }
        let Some(shown) = arg.shown_type(self.types) else {
            let message = unknown("translated");
            return self.fail(Tag::D_ARGS_TYPE, span, message);
        };
        let (output, pointer) = match self.types.base_kind(shown) {
            Kind::Pointer { target, .. } => (target, true),
            _ => (shown, false),
        };
        if !self.types.is_sou(output) {
            return Ok(self.convert(value, shown));
        }
        let found = self.with_translators_of(arg.definition, |c| c.find_translator(output, native));
        match found {
            Some(translator) => Ok(self.translated(translator, pointer, value, span)),
            None if self.types.compatible(native, shown) => Ok(Expr { ty: shown, ..value }),
            None => {
                self.require_type_not_doubtful(output)?;
                let message = format!(
                    "translator for args[{n}] from {} to {} is not defined",
                    self.name(native),
                    self.name(shown)
                );
                self.fail(Tag::D_ARGS_XLATOR, span, message)
            }
        }
    }

    /// Defines the types of libraries that the text of an argument's types names.
    fn define_types_of(&mut self, arg: &ArgType) {
        for ty in [Some(&arg.native), arg.translated.as_ref()].into_iter().flatten() {
            let TypeRef::Text(text) = ty else { continue };
            for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                self.define_type_from_libraries(word);
            }
        }
    }

    /// An argument as the kernel passes it.
    fn native_arg(&mut self, n: i64, arg: &ArgType, ty: TypeId, span: Span) -> CheckResult<Expr> {
        if let Some(value) = self.derived_arg(arg.from, ty, span) {
            return Ok(value);
        }
        if let Some(parts) = &arg.parts {
            let object = self.object_of_parts(parts, ty, span);
            return Ok(object);
        }
        let raw =
            Expr { kind: ExprKind::Builtin(Builtin::Int(IntBuiltin::Arg(arg.from))), ty: TypeId::LONG, span };
        let in_kernel = |ty| Expr { kind: ExprKind::KernelArg(arg.from), ty, span };
        match self.types.base_kind(ty) {
            Kind::Pointer { userland: true, .. } => Ok(Expr { ty, ..raw }),
            Kind::Pointer { .. } => Ok(in_kernel(ty)),
            Kind::Int(int) | Kind::Enum { int, .. } if int.size <= 8 => {
                // Of a truth value the register has one byte.
                let raw = if int.class == IntClass::Bool { self.convert(raw, TypeId::UCHAR) } else { raw };
                Ok(Expr { ty, ..self.convert(raw, ty) })
            }
            Kind::Sou { .. } | Kind::String | Kind::Array { .. } if arg.userland => {
                let addr = Box::new(Expr { ty: self.types.user_pointer(ty), ..raw });
                Ok(Expr { kind: ExprKind::Deref { addr, user: true }, ty, span })
            }
            Kind::String | Kind::Sou { .. } | Kind::Array { .. } => {
                let addr = Box::new(in_kernel(self.types.pointer(ty)));
                Ok(Expr { kind: ExprKind::Deref { addr, user: false }, ty, span })
            }
            _ => {
                let message = format!(
                    "failed to resolve type of args[{n}]: it is \"{}\", which has no value",
                    self.name(ty)
                );
                self.fail(Tag::D_ARGS_TYPE, span, message)
            }
        }
    }
}

fn quoted(text: &str) -> String {
    if text == "nothing" { text.into() } else { format!("`{text}`") }
}
