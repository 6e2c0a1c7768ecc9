//! Translators: view a value of one type as another type, member by member.
//!
//! `xlate <out *> (value)` does not create an object. It creates a value that remembers its
//! translator ([`ExprKind::Xlated`], of type `<DYN>`). `->member` on such a value is the member's
//! expression with the value substituted for the translator's parameter. The main design decision:
//! a member's expression stays a tree until a script uses the member, and is typed only then,
//! against the types of the running kernel. So a translator may use types and members that this
//! kernel does not have: only a script that uses the affected member gets an error. And an unused
//! member costs nothing.
//!
//! A variable can hold a translated pointer. It stores the value to translate, and remembers the
//! translator.

use std::collections::HashMap;
use std::sync::Arc;

use diagnostics::{Diagnostic, ReportedAt, SourceKind, Span, Tag};
use syntax::ast;
use types::{Kind, TypeId};

use crate::program::{Expr, ExprKind, Place, Repr, VarId};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::state::scopes::{StoredTranslation, Translator, VarType};

/// True for the address of a copy, which lasts for a statement.
fn is_copy(addr: &Expr) -> bool {
    match &addr.kind {
        ExprKind::ElemAddr(..) | ExprKind::StrAddr(_) => true,
        ExprKind::Arith(_, base, _) | ExprKind::Let { body: base, .. } => is_copy(base),
        _ => false,
    }
}

impl Checker<'_> {
    /// Runs `f` while only these names are bound, besides the global ones.
    pub(crate) fn with_bound<T>(
        &mut self,
        names: HashMap<String, Expr>,
        f: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.expansion.bound.push(names);
        let out = f(self);
        self.expansion.bound.pop();
        out
    }

    /// The expression to which a name of a translator or inline is bound here.
    pub(crate) fn bound_name(&self, name: &str) -> Option<&Expr> {
        self.expansion.bound.last()?.get(name)
    }

    /// Binds a value that is used more than once. The second result is the value to compute first;
    /// [`Checker::within`] makes an [`ExprKind::Let`] of it. It is `None` if computing the value
    /// again costs nothing.
    pub(crate) fn bind(&mut self, e: Expr) -> (Expr, Option<(u32, Box<Expr>)>) {
        let (ty, span) = (e.ty, e.span);
        match e.kind {
            ExprKind::Int(_)
            | ExprKind::Str(_)
            | ExprKind::Null
            | ExprKind::Builtin(_)
            | ExprKind::KernelArg(_)
            | ExprKind::FamilyProbeprov
            | ExprKind::Bound(_)
            | ExprKind::Read(Place::Var(_)) => (e, None),
            ExprKind::Xlated { translator, pointer, input } => {
                let (input, outer) = self.bind(*input);
                (
                    Expr { kind: ExprKind::Xlated { translator, pointer, input: Box::new(input) }, ty, span },
                    outer,
                )
            }
            ExprKind::Deref { addr, user } => {
                let (addr, outer) = self.bind(*addr);
                (Expr { kind: ExprKind::Deref { addr: Box::new(addr), user }, ty, span }, outer)
            }
            ExprKind::Array { addr, bytes } => {
                let (addr, outer) = self.bind(*addr);
                (Expr { kind: ExprKind::Array { addr: Box::new(addr), bytes }, ty, span }, outer)
            }
            _ => {
                // An integer is truncated to its type once, here, unless it has the 64 bits of a
                // variable.
                let whole = self.is_whole(&e);
                let e = if self.types.is_integer(ty) && !whole { self.convert(e, ty) } else { e };
                let id = self.expansion.new_bound();
                if whole {
                    self.expansion.whole_bound.insert(id);
                }
                (Expr { kind: ExprKind::Bound(id), ty, span }, Some((id, Box::new(e))))
            }
        }
    }

    /// `body` inside the [`ExprKind::Let`] of a bound value, if there is one.
    pub(crate) fn within(&self, outer: Option<(u32, Box<Expr>)>, body: Expr) -> Expr {
        let Some((id, value)) = outer else { return body };
        let (ty, span) = (body.ty, body.span);
        let kind = match body.kind {
            ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Null => body.kind,
            // A translated value keeps its form, because a member access may follow.
            ExprKind::Xlated { translator, pointer, input } => {
                let input = Box::new(self.within(Some((id, value)), *input));
                ExprKind::Xlated { translator, pointer, input }
            }
            ExprKind::Deref { addr, user } => {
                ExprKind::Deref { addr: Box::new(self.within(Some((id, value)), *addr)), user }
            }
            ExprKind::Array { addr, bytes } => {
                ExprKind::Array { addr: Box::new(self.within(Some((id, value)), *addr)), bytes }
            }
            kind => ExprKind::Let { id, value, body: Box::new(Expr { kind, ty, span }) },
        };
        Expr { kind, ty, span }
    }

    /// Checks a translator definition.
    pub(crate) fn translator(&mut self, t: &ast::Translator) {
        // The types that a definition names do not count as used.
        let (_, _): (CheckResult<()>, _) = self.collect_attributes(|c| c.define_translator(t));
    }

    fn define_translator(&mut self, t: &ast::Translator) -> CheckResult<()> {
        let output = self.type_name(&t.output)?;
        let name = self.name(output);
        let error =
            |message: &str| Diagnostic::new(Tag::D_XLATE_SOU, t.output.span, message).at(ReportedAt::ItemEnd);
        if !self.types.is_sou(output) {
            let message = "translator output type must be a struct or union";
            return self.fail_by(error(message), None);
        }
        if self.types.size(output).is_none() {
            let message = format!("incomplete struct/union/enum {name}");
            self.require_type_not_doubtful(output)?;
            let help = self.near_tag(output);
            return self.fail_by(error(&message), help);
        }
        let input = self.param(&t.input)?;
        let known = |x: &Translator| self.types.compatible(x.input, input);
        if self.translators_to(output).any(|(_, x)| known(x)) {
            let message = format!("translator from {} to {name} has already been declared", self.name(input));
            return self.fail(Tag::D_XLATE_REDECL, t.span, message);
        }
        let mut members: Vec<(String, Arc<ast::Expr>)> = Vec::new();
        for m in &t.members {
            let word = m.name.text.as_str();
            if self.types.member(output, word).is_none() {
                let help = self.near_member(output, word);
                let message = format!("translator member {word} is not a member of {name}");
                let _: CheckResult<()> = self.fail_with(Tag::D_XLATE_MEMB, m.name.span, message, help);
            } else if members.iter().any(|(n, _)| n == word) {
                let message = format!("translator member {word} has already been defined");
                let _: CheckResult<()> = self.fail(Tag::D_XLATE_REDECL, m.name.span, message);
            } else {
                members.push((word.to_string(), Arc::new(m.value.clone())));
            }
        }
        let name = t.input.declarator.name.as_ref().map_or(String::new(), |n| n.text.clone());
        let (tag, definition) = (self.tag_of(output), self.defined.current);
        self.translators.add(tag, Translator { output, input, name, members, span: t.span, definition });
        self.check_member_types(t, input);
        Ok(())
    }

    /// Checks each member of a program's own translator, used or not. What is not found is reported
    /// where the member is used: it may name variables that are assigned later, or types and
    /// symbols that this kernel does not have.
    fn check_member_types(&mut self, t: &ast::Translator, input: TypeId) {
        let is_defined = self.defined.current.is_some();
        if self.cx.map.kind(t.span.file) == SourceKind::Library && !is_defined {
            return;
        }
        let translator = self.translators.all.len() - 1;
        for m in &t.members {
            // What is no member of the output is reported already.
            if !self.translators.all.last().is_some_and(|t| t.members.iter().any(|(n, _)| *n == m.name.text))
            {
                continue;
            }
            let before = self.mark();
            let input = self.unknown(input, t.input.span);
            let whole = self.translated(translator, false, input, m.name.span);
            let _: CheckResult<Expr> = self.translated_member(whole, &m.name, m.name.span);
            let wrong = self.roll_back(&before);
            // A definition has no variables, and nothing that other kernels have.
            let may_be_right = [Tag::D_IDENT_UNDEF, Tag::D_VAR_UNDEF, Tag::D_TYPE_ERR];
            let is_fault = |d: &Diagnostic| is_defined || !may_be_right.contains(&d.tag);
            let Some(fault) = wrong.into_iter().find(is_fault) else { continue };
            self.sink.push(fault);
            // Uses of a bad member report no further error.
            let members = self.translators.all.last_mut().map_or(&mut [][..], |t| &mut t.members);
            if let Some((_, value)) = members.iter_mut().find(|(name, _)| *name == m.name.text) {
                *value = Arc::new(ast::Expr { kind: ast::ExprKind::Error, span: value.span });
            }
        }
    }

    /// The translator for a type: one from exactly this type, otherwise one from a type that this
    /// type can be assigned to.
    pub(crate) fn find_translator(&self, output: TypeId, input: TypeId) -> Option<usize> {
        let all = || self.translators_to(output);
        all()
            .find(|(_, t)| self.types.compatible(t.input, input))
            .or_else(|| all().find(|(_, t)| self.types.assignable(t.input, input)))
            .map(|(i, _)| i)
    }

    /// The translators that produce a type, with their indexes.
    fn translators_to(&self, output: TypeId) -> impl Iterator<Item = (usize, &Translator)> {
        let numbers = self.translators.by_tag.get(&self.tag_of(output)).map_or(&[][..], Vec::as_slice);
        let all = numbers.iter().filter_map(|i| Some((*i, self.translators.all.get(*i)?)));
        all.filter(move |(_, t)| {
            self.defined.is_visible(t.definition) && self.types.compatible(t.output, output)
        })
    }

    /// The tag of a struct or union. Compatible types have equal tags.
    pub(crate) fn tag_of(&self, ty: TypeId) -> Option<Arc<str>> {
        match self.types.base_kind(ty) {
            Kind::Sou { tag, .. } => tag,
            _ => None,
        }
    }

    /// `xlate <type> (operand)`.
    pub(crate) fn xlate(&mut self, ty: &ast::TypeName, operand: &ast::Expr, span: Span) -> CheckResult<Expr> {
        let to = self.type_name(ty)?;
        let input = self.expr(operand)?;
        let (output, pointer) = match self.types.base_kind(to) {
            Kind::Pointer { target, .. } => (target, true),
            _ => (to, false),
        };
        if !self.types.is_sou(output) {
            let message = format!("cannot translate to \"{}\": not a struct or union", self.name(to));
            return self.fail(Tag::D_XLATE_SOU, ty.span, message);
        }
        let sou = self.types.is_sou(input.ty) || matches!(input.kind, ExprKind::Xlated { .. });
        let input = if sou { input } else { self.rvalue(input)? };
        let from = self.translated_type(&input);
        let Some(translator) = self.find_translator(output, from) else {
            self.require_type_not_doubtful(output)?;
            let message = format!("cannot translate from \"{}\" to \"{}\"", self.name(from), self.name(to));
            return self.fail(Tag::D_XLATE_NONE, span, message);
        };
        let wanted = self.translators.all[translator].input;
        let input = if sou { input } else { Expr { ty: wanted, ..self.taken(input, wanted) } };
        Ok(self.translated(translator, pointer, input, span))
    }

    pub(crate) fn translated(&self, translator: usize, pointer: bool, input: Expr, span: Span) -> Expr {
        let kind = ExprKind::Xlated { translator, pointer, input: Box::new(input) };
        Expr { kind, ty: TypeId::DYN, span }
    }

    /// The type of an expression. For a translated value, the type it is translated to.
    pub(crate) fn translated_type(&self, e: &Expr) -> TypeId {
        match e.kind {
            ExprKind::Xlated { translator, pointer, .. } => {
                let output = self.translators.all[translator].output;
                if pointer { self.types.pointer(output) } else { output }
            }
            _ => e.ty,
        }
    }

    /// True if a translated value has this type, for a member, an inline or a variable.
    pub(crate) fn is_translated_to(&self, e: &Expr, ty: TypeId) -> bool {
        matches!(e.kind, ExprKind::Xlated { .. }) && self.types.compatible(self.translated_type(e), ty)
    }

    /// Reports an error if an operand is a translated value.
    pub(crate) fn reject_dynamic(&mut self, operands: &[&Expr], text: &str, span: Span) -> CheckResult<()> {
        let Some(e) = operands.iter().find(|e| matches!(e.kind, ExprKind::Xlated { .. })) else {
            return Ok(());
        };
        let ty = self.name(self.translated_type(e));
        let message = format!("operator {text} operands cannot be of dynamic type");
        let help = format!("this is a translated {ty}: only its members are values");
        self.fail_with(Tag::D_OP_DYN, span, message, Some(help))
    }

    /// A member of a translated value: the translator's expression for it.
    pub(crate) fn translated_member(&mut self, e: Expr, name: &ast::Name, span: Span) -> CheckResult<Expr> {
        let ExprKind::Xlated { translator, input, .. } = e.kind else { return Ok(e) };
        let t = &self.translators.all[translator];
        let (output, argument, file, definition) = (t.output, t.name.clone(), t.span.file, t.definition);
        let value = t.members.iter().find(|(n, _)| *n == name.text).map(|(_, v)| v.clone());
        let word = name.text.as_str();
        let Some(member) = self.types.member(output, word) else {
            let help = self.near_member(output, word);
            let message = format!("{word} is not a member of {}", self.name(output));
            return self.fail_with(Tag::D_TYPE_MEMBER, name.span, message, help);
        };
        let Some(value) = value else {
            let message = format!("translator does not define conversion for member: {word}");
            return self.fail(Tag::D_XLATE_NOCONV, name.span, message);
        };
        let (input, outer) = self.bind(*input);
        let library = self.cx.map.kind(file) == SourceKind::Library && definition.is_none();
        let outside = self.sink.divert();
        // A member has the stability of the translator, whatever it reads.
        let out = self.member_expansion((translator, word), name.span, |c| {
            let (out, _) = c.collect_attributes(|c| {
                let bound = HashMap::from([(argument, input)]);
                c.in_definition(definition, |c| {
                    c.with_bound(bound, |c| {
                        let mut value = c.expr(&value)?;
                        if library {
                            // Later errors in using the value are reported at the use.
                            value.span = span;
                        }
                        c.member_value(value, member.ty, word)
                    })
                })
            });
            out
        });
        let inside = self.sink.restore(outside);
        for d in inside.into_sorted() {
            // The error is reported at the use of the member, or blames the kernel. A library that
            // the user did not write is not blamed.
            let d = match library {
                true => Diagnostic {
                    span: Some(span),
                    message: format!(
                        "member {word} of {} is not available on this kernel: {}",
                        self.name(output),
                        d.message
                    ),
                    ..d
                },
                false => d,
            };
            self.sink.push(d);
        }
        let out = self.within(outer, out??);
        Ok(Expr { span, ..out })
    }

    /// The declared type of a member of a translated value.
    pub(crate) fn translated_member_type(&mut self, base: &ast::Expr, name: &str) -> Option<TypeId> {
        let outside = self.sink.divert();
        let base = self.expr(base);
        *self.sink = outside;
        let Ok(Expr { kind: ExprKind::Xlated { translator, .. }, .. }) = base else { return None };
        self.types.member(self.translators.all[translator].output, name).map(|m| m.ty)
    }

    /// The value of a member's expression, converted to the member's type.
    fn member_value(&mut self, value: Expr, ty: TypeId, word: &str) -> CheckResult<Expr> {
        if self.is_translated_to(&value, ty) {
            return Ok(value);
        }
        if self.types.is_sou(ty) && self.types.compatible(value.ty, ty) {
            return Ok(value);
        }
        if self.types.is_array(ty) {
            // An array is not copied. A string can stand for an array of characters.
            let elem = |c: &Self, ty| c.types.pointee(ty).map(|(elem, _)| elem);
            let same = match (elem(self, ty), elem(self, value.ty)) {
                (Some(a), Some(b)) => self.types.compatible(a, b),
                _ => false,
            };
            if same && self.types.is_array(value.ty) {
                return Ok(value);
            }
            if self.types.is_string(value.ty) && self.types.is_string_like(ty) {
                let value = self.rvalue(value)?;
                let addr = Box::new(self.string_address(value));
                let span = addr.span;
                return Ok(Expr { kind: ExprKind::Deref { addr, user: false }, ty, span });
            }
            if same || self.types.is_string_like(value.ty) && self.types.is_string_like(ty) {
                let at = self.rvalue(value)?;
                let object = self.dereference(at.clone(), at.span)?;
                return Ok(Expr { ty, ..object });
            }
        }
        let (from, span) = (self.translated_type(&value), value.span);
        let value = self.rvalue(value)?;
        if self.types.is_array(ty) || !self.fits(ty, &value) {
            let message = format!(
                "translator member {word} definition uses incompatible types: \"{}\" = \"{}\"",
                self.name(ty),
                self.name(from)
            );
            return self.fail(Tag::D_XLATE_INCOMPAT, span, message);
        }
        Ok(self.coerce(value, ty))
    }

    /// `variable = xlate <type *> (value)`.
    pub(crate) fn store_translated(
        &mut self,
        place: Place,
        id: VarId,
        value: Expr,
        span: Span,
    ) -> CheckResult<Expr> {
        let ty = self.translated_type(&value);
        let ExprKind::Xlated { translator, pointer, input } = value.kind else { return Err(ErrorReported) };
        if !pointer {
            self.poison(id);
            let message = "operator = operands cannot be of dynamic type";
            let help = format!("a translated pointer can be stored: xlate <{} *>", self.name(ty));
            return self.fail_with(Tag::D_OP_DYN, span, message, Some(help));
        }
        let (mut chain, mut input) = (vec![(translator, pointer)], input);
        while let ExprKind::Xlated { translator, pointer, input: inner } = input.kind {
            chain.push((translator, pointer));
            input = inner;
        }
        let object = self.types.is_sou(input.ty);
        if let ExprKind::Deref { addr, .. } = &input.kind
            && is_copy(addr)
        {
            self.poison(id);
            let message = "operator = operands cannot be of dynamic type";
            let help = "an element of an associative array is a copy, which the pointer would outlive";
            return self.fail_with(Tag::D_OP_DYN, span, message, Some(help.into()));
        }
        let stored = StoredTranslation { chain, ty: input.ty, object };
        let input = match input.kind {
            ExprKind::Deref { addr, user } if object => {
                let ty = match user {
                    true => self.types.user_pointer(input.ty),
                    false => self.types.pointer(input.ty),
                };
                Expr { ty, ..*addr }
            }
            _ => *input,
        };
        match self.scopes.var_info(id).ty {
            VarType::Pending => {
                let Some(repr) = self.repr(input.ty) else {
                    self.poison(id);
                    let message = "operator = operands cannot be of dynamic type";
                    return self.fail(Tag::D_OP_DYN, span, message);
                };
                let var = &mut self.scopes.vars[id.0 as usize];
                var.ty = VarType::Known(TypeId::DYN, repr);
                var.translated = Some(stored.clone());
            }
            VarType::Poisoned => return Err(ErrorReported),
            VarType::Known(old, _) if self.scopes.var_info(id).translated.as_ref() != Some(&stored) => {
                let old = match &self.scopes.var_info(id).translated {
                    Some(stored) => self.stored_type(stored),
                    None => old,
                };
                let message = format!(
                    "operands have incompatible types: \"{}\" = translated \"{}\"",
                    self.name(old),
                    self.name(ty)
                );
                return self.fail(Tag::D_OP_INCOMPAT, span, message);
            }
            VarType::Known(..) => {}
        }
        let input_type = input.ty;
        let kind = ExprKind::Assign(place, Box::new(input));
        Ok(self.stored_pointer(&stored, Expr { kind, ty: input_type, span }))
    }

    /// The value of a statement. A translated value is only allowed if it was stored.
    pub(crate) fn assigned_translated(&mut self, value: Expr, span: Span) -> CheckResult<Expr> {
        let ExprKind::Xlated { input, .. } = value.kind else { return Ok(value) };
        let mut stored = *input;
        while let ExprKind::Xlated { input, .. } | ExprKind::Deref { addr: input, .. } = stored.kind {
            stored = *input;
        }
        if let ExprKind::Assign(..) = stored.kind {
            return Ok(stored);
        }
        let message = "expression cannot evaluate to result of dynamic type";
        self.fail(Tag::D_CG_DYN, span, message)
    }

    /// The translated pointer that a variable holds.
    fn stored_pointer(&self, stored: &StoredTranslation, value: Expr) -> Expr {
        let span = value.span;
        let input = match stored.object {
            false => Expr { ty: stored.ty, ..value },
            true => {
                let user = self.types.pointee(value.ty).is_some_and(|(_, user)| user);
                Expr { kind: ExprKind::Deref { addr: Box::new(value), user }, ty: stored.ty, span }
            }
        };
        let translate =
            |e, (translator, pointer): &(usize, bool)| self.translated(*translator, *pointer, e, span);
        stored.chain.iter().rev().fold(input, translate)
    }

    /// The value of a variable or element of known type.
    pub(crate) fn read_place(&self, place: Place, id: VarId, ty: TypeId, span: Span) -> Expr {
        if let VarType::Known(_, Repr::Bytes { .. }) = self.scopes.var_info(id).ty {
            let kind = match place {
                Place::Elem(id, keys) => ExprKind::ElemAddr(id, keys),
                _ => ExprKind::AddrVar(id),
            };
            let addr = Box::new(Expr { kind, ty: self.types.pointer(ty), span });
            return Expr { kind: ExprKind::Deref { addr, user: false }, ty, span };
        }
        let read = Expr { kind: ExprKind::Read(place), ty, span };
        match &self.scopes.var_info(id).translated {
            None => read,
            Some(stored) => {
                let ty = if stored.object { self.types.pointer(stored.ty) } else { stored.ty };
                self.stored_pointer(stored, Expr { ty, ..read })
            }
        }
    }

    /// The type of a stored translated pointer.
    pub(crate) fn stored_type(&self, stored: &StoredTranslation) -> TypeId {
        let output = stored.chain.first().and_then(|(t, _)| self.translators.all.get(*t)).map(|t| t.output);
        self.types.pointer(output.unwrap_or(TypeId::VOID))
    }

    /// Assignment of the constant 0 to a variable that holds a translated pointer.
    pub(crate) fn clear_translated(&self, place: Place, id: VarId, value: &Expr) -> Option<ExprKind> {
        let stored = self.scopes.var_info(id).translated.clone()?;
        (value.as_const() == Some(0)).then_some(())?;
        if matches!(place, Place::Elem(..)) {
            return Some(ExprKind::Delete(place));
        }
        let zero = match self.repr(stored.ty) {
            Some(Repr::Str) => ExprKind::Null,
            _ => ExprKind::Int(0),
        };
        let zero = Expr { kind: zero, ty: stored.ty, span: value.span };
        Some(ExprKind::Assign(place, Box::new(zero)))
    }

    /// `defined(type)`, `defined(type, member.member)`: 1 or 0 according to the types of the
    /// program and of the running kernel.
    pub(crate) fn defined(&mut self, ty: &ast::TypeName, path: &[ast::Name], span: Span) -> Expr {
        let outside = self.sink.divert();
        let found = self.type_name(ty);
        *self.sink = outside;
        let value = found.is_ok_and(|ty| self.has_members(ty, path));
        self.int(i64::from(value), TypeId::INT, span)
    }

    /// True if a type is complete and has these members. Each member is looked up in the one before
    /// it, or in its target.
    fn has_members(&self, ty: TypeId, path: &[ast::Name]) -> bool {
        let mut at = ty;
        for name in path {
            if let Kind::Pointer { target, .. } = self.types.base_kind(at) {
                at = target;
            }
            match self.types.member(at, &name.text) {
                Some(found) => at = found.ty,
                None => return false,
            }
        }
        !path.is_empty() || self.types.size(at).is_some()
    }
}
