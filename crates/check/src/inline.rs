//! Inlines: names that stand for expressions.
//!
//! An inline is stored as a tree and checked again at each use, because D evaluates it at each use:
//! the variables in it may have other values, and built-ins in the predicate of another probe
//! another meaning. An inline that is constant at its definition stays constant. A parameter is a
//! name bound to the argument, which is converted once ([`Checker::bind`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use diagnostics::{SourceKind, Span, Tag};
use syntax::ast;
use types::TypeId;

use crate::program::{Expr, ExprKind, Scope};
use crate::session::Checker;
use crate::state::expansion::{MAX_NESTED, MAX_USES};
use crate::state::recovery::CheckResult;
use crate::state::scopes::InlineInfo;
use crate::tables;

/// What the parameters of a prototype may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrototypeRules {
    /// Name of the prototype in messages.
    pub(crate) what: &'static str,
    pub(crate) varargs: bool,
    /// True if `(void)` is allowed.
    pub(crate) void: bool,
    /// True if parameters without names are allowed.
    pub(crate) anonymous: bool,
}

impl PrototypeRules {
    pub(crate) const FUNCTION: PrototypeRules =
        PrototypeRules { what: "function", varargs: true, void: true, anonymous: true };
    pub(crate) const ARRAY: PrototypeRules =
        PrototypeRules { what: "array", varargs: false, void: false, anonymous: true };
    pub(crate) const INLINE: PrototypeRules =
        PrototypeRules { what: "inline", varargs: false, void: false, anonymous: false };
}

impl Checker<'_> {
    /// The parameters of a prototype: name (may be empty), type and position of each.
    pub(crate) fn prototype(
        &mut self,
        params: &ast::Params,
        rules: PrototypeRules,
    ) -> CheckResult<Vec<(String, TypeId, Span)>> {
        let what = rules.what;
        if let Some(span) = params.varargs.filter(|_| !rules.varargs) {
            let message = format!("{what} prototype may not use a variable-length argument list");
            return self.fail(Tag::D_DECL_PROTO_VARARGS, span, message);
        }
        let mut out = Vec::with_capacity(params.list.len());
        for (i, p) in params.list.iter().enumerate() {
            let name = p.declarator.name.as_ref().map_or("", |n| n.text.as_str());
            let named = if name.is_empty() { "(anonymous), ".to_owned() } else { format!("{name}, ") };
            let ty = self.param_unless_dynamic(p)?.filter(|ty| self.types.base_kind(*ty) != types::Kind::Dyn);
            let Some(ty) = ty else {
                let message = format!(
                    "{what} prototype may not use parameter of type dynamic variable: {named}parameter #{}",
                    i + 1
                );
                return self.fail(Tag::D_DECL_PROTO_TYPE, p.span, message);
            };
            if self.types.is_void(ty) {
                if !rules.void {
                    let message = format!(
                        "{what} prototype may not use parameter of type void: {named}parameter #{}",
                        i + 1
                    );
                    return self.fail(Tag::D_DECL_PROTO_TYPE, p.span, message);
                }
                if params.list.len() > 1 {
                    let message = "void must be sole parameter";
                    return self.fail(Tag::D_DECL_PROTO_VOID, p.span, message);
                }
                if !name.is_empty() {
                    let message = format!("void parameter may not have a name: {name}");
                    return self.fail(Tag::D_DECL_PROTO_NAME, p.span, message);
                }
                continue;
            }
            if name.is_empty() && !rules.anonymous {
                let message = format!("{what} prototype requires a name for parameter #{}", i + 1);
                return self.fail(Tag::D_DECL_PROTO_NAME, p.span, message);
            }
            out.push((name.to_string(), ty, p.span));
        }
        Ok(out)
    }

    pub(crate) fn inline(&mut self, inline: &ast::Inline) {
        if self.inline_inner(inline).is_err()
            && let Some(name) = &inline.declarator.name
        {
            self.poison_name(Scope::Global, &name.text);
        }
    }

    fn inline_inner(&mut self, inline: &ast::Inline) -> CheckResult<()> {
        let base = self.specs(&inline.specs)?;
        let ty = self.object(base, &inline.declarator, inline.specs.quals.is_userland)?;
        let Some(name) = &inline.declarator.name else {
            return self.fail(Tag::D_DECL_USELESS, inline.span, "inline declaration needs a name");
        };
        let word = name.text.clone();
        if self.types.is_void(ty) {
            let message = format!("cannot declare void inline: {word}");
            return self.fail(Tag::D_DECL_VOIDOBJ, name.span, message);
        }
        if self.types.is_array(ty) {
            let message = format!("cannot use inline with scalar arrays: {word}");
            return self.fail(Tag::D_DECL_ARRNULL, name.span, message);
        }
        let library = self.cx.map.kind(inline.span.file) == SourceKind::Library;
        let variable = |is_array: bool| if is_array { "associative array" } else { "scalar" };
        let previous = if let Some(row) = tables::function(&word).filter(|r| !library || !r.is_library()) {
            Some(row.kind.word())
        } else if tables::variable(&word).is_some() {
            Some(variable(matches!(&*word, "args" | "uregs")))
        } else if let Some(id) = self.scopes.var(Scope::Global, &word) {
            Some(variable(self.scopes.var_info(id).key.is_some()))
        } else {
            self.scopes.names.inlines.contains_key(&word).then_some("scalar inline")
        };
        if let Some(previous) = previous {
            let message = format!(
                "identifier redefined: {word}\n\t current: inline definition\n\tprevious: {previous}"
            );
            return self.fail(Tag::D_DECL_IDRED, name.span, message);
        }
        let params = match &inline.params {
            None => None,
            Some(params) => {
                let list = self.prototype(params, PrototypeRules::INLINE)?;
                let mut names = HashSet::with_capacity(list.len());
                for (name, _, span) in &list {
                    if !names.insert(name.as_str()) {
                        let message = format!("identifier redeclared: {name}");
                        return self.fail(Tag::D_DECL_IDRED, *span, message);
                    }
                }
                Some(list.into_iter().map(|(name, ty, _)| (name, ty)).collect::<Arc<[_]>>())
            }
        };
        // The parameters may have any value.
        let any = params
            .iter()
            .flat_map(|p| p.iter())
            .map(|(name, ty)| (name.clone(), self.unknown(*ty, name_span(inline))));
        let any = any.collect();
        let (value, attributes) = self.collect_attributes(|c| c.with_bound(any, |c| c.value(&inline.value)));
        let value = value?;
        if !self.fits(ty, &value) && !self.is_translated_to(&value, ty) {
            let message = format!(
                "inline {word} definition uses incompatible types: \"{}\" = \"{}\"",
                self.name(ty),
                self.name(self.translated_type(&value))
            );
            return self.fail(Tag::D_OP_INCOMPAT, inline.value.span, message);
        }
        let constant = matches!(value.kind, ExprKind::Int(_)).then(|| (self.coerce(value, ty), attributes));
        let info = InlineInfo { ty, params, value: Arc::new(inline.value.clone()), constant, library };
        self.scopes.names.inlines.insert(word, info);
        Ok(())
    }

    /// An unknown value of this type.
    pub(crate) fn unknown(&self, ty: TypeId, span: Span) -> Expr {
        let kind = ExprKind::Bound(u32::MAX);
        if self.types.is_sou(ty) {
            let addr = Box::new(Expr { kind, ty: self.types.pointer(ty), span });
            return Expr { kind: ExprKind::Deref { addr, user: false }, ty, span };
        }
        Expr { kind, ty, span }
    }

    /// The value of an inline without parameters.
    pub(crate) fn use_inline(&mut self, word: &str, info: &InlineInfo, span: Span) -> CheckResult<Expr> {
        if info.params.is_some() {
            let message = format!("inline '{word}' may not be referenced as scalar");
            let help = format!("it takes parameters: {word}[…]");
            return self.fail_with(Tag::D_IDENT_BADREF, span, message, Some(help));
        }
        if let Some((constant, attributes)) = &info.constant {
            let attributes = self.pragma_attributes(word).unwrap_or(*attributes);
            self.uses("scalar", word, attributes, span);
            return Ok(Expr { span, ..constant.clone() });
        }
        self.expand(word, info, HashMap::new(), span)
    }

    /// `name[arguments]`. Messages print it as `shown`.
    pub(crate) fn call_inline(
        &mut self,
        (word, shown): (&str, &str),
        info: &InlineInfo,
        args: &[ast::Expr],
        span: Span,
    ) -> CheckResult<Expr> {
        let params = info.params.clone().unwrap_or_default();
        let values = self.values(args)?;
        if params.len() != values.len() {
            let s = if values.len() == 1 { "" } else { "s" };
            let message = format!(
                "{shown} prototype mismatch: {} arg{s} passed, {} expected",
                values.len(),
                params.len()
            );
            return self.fail(Tag::D_PROTO_LEN, span, message);
        }
        let mut bound = HashMap::with_capacity(values.len());
        let mut outer = Vec::new();
        for (i, ((name, ty), value)) in params.iter().zip(values).enumerate() {
            let translated = self.is_translated_to(&value, *ty);
            if !translated && !self.fits(*ty, &value) {
                let message = format!(
                    "{shown} argument #{} is incompatible with prototype:\n\tprototype: {}\n\t argument: {}",
                    i + 1,
                    self.name(*ty),
                    self.name(self.translated_type(&value))
                );
                return self.fail(Tag::D_PROTO_ARG, value.span, message);
            }
            let value = if translated { value } else { self.taken(value, *ty) };
            let (value, before) = self.bind(value);
            bound.insert(name.clone(), value);
            outer.push(before);
        }
        let out = self.expand(word, info, bound, span)?;
        Ok(outer.into_iter().rev().fold(out, |out, before| self.within(before, out)))
    }

    /// Checks with `f` the definition of a name where the name is used.
    fn expansion<T>(&mut self, word: &str, span: Span, f: impl FnOnce(&mut Self) -> T) -> CheckResult<T> {
        let counts = &mut self.expansion.uses;
        counts.nested = if counts.depth == 0 { 1 } else { counts.nested + 1 };
        counts.all += 1;
        if counts.nested > MAX_NESTED || counts.all > MAX_USES {
            let message = format!("too many uses of inlines and translators: {word}");
            return self.fail(Tag::D_SYNTAX, span, message);
        }
        counts.depth += 1;
        let out = f(self);
        self.expansion.uses.depth -= 1;
        Ok(out)
    }

    /// The same for a member of a translator. One that is used for itself has no value.
    pub(crate) fn member_expansion<T>(
        &mut self,
        (translator, word): (usize, &str),
        span: Span,
        f: impl FnOnce(&mut Self) -> T,
    ) -> CheckResult<T> {
        if self.expansion.uses.members.iter().any(|(t, name)| *t == translator && name == word) {
            let message = format!("member {word} of the translator is defined by itself");
            return self.fail(Tag::D_XLATE_NOCONV, span, message);
        }
        self.expansion.uses.members.push((translator, word.to_string()));
        let out = self.expansion(word, span, f);
        self.expansion.uses.members.pop();
        out
    }

    fn expand(
        &mut self,
        word: &str,
        info: &InlineInfo,
        bound: HashMap<String, Expr>,
        span: Span,
    ) -> CheckResult<Expr> {
        let (value, attributes) = self.expansion(word, span, |c| {
            c.collect_attributes(|c| c.with_bound(bound, |c| c.value(&info.value)))
        })?;
        let attributes = self.pragma_attributes(word).unwrap_or(attributes);
        let kind = if info.params.is_some() { "associative array" } else { "scalar" };
        self.uses(kind, word, attributes, span);
        let value = value?;
        if self.is_translated_to(&value, info.ty) {
            return Ok(Expr { span, ..value });
        }
        Ok(Expr { span, ..self.taken(value, info.ty) })
    }
}

fn name_span(inline: &ast::Inline) -> Span {
    inline.declarator.name.as_ref().map_or(inline.span, |n| n.span)
}
