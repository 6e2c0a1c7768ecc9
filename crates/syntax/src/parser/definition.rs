//! Parses `inline`, `translator` and `provider`.

use diagnostics::Tag;

use super::decl::{DeclContext, Naming, record_name};
use super::{ErrorReported, Parsed, Parser};
use crate::ast::{
    DeclPart, DeclPartKind, Inline, Params, ProviderDef, ProviderProbe, Translator, TranslatorMember,
};
use crate::token::{Kw, Punct, Tok};

impl Parser<'_> {
    /// `inline type name = value;`
    pub(super) fn inline(&mut self) -> Parsed<Inline> {
        let start = self.bump().span;
        let specs = self.specs(DeclContext::Member)?;
        let mut declarator = self.declarator(Naming::Required)?;
        // The brackets next to the name are the parameters. The other steps belong to the type of
        // the value.
        let params = match declarator.parts.first() {
            Some(DeclPart { kind: DeclPartKind::Tuple(_), .. }) => match declarator.parts.remove(0).kind {
                DeclPartKind::Tuple(params) => Some(params),
                _ => None,
            },
            _ => None,
        };
        self.require(Punct::Assign)?;
        let value = self.assignment()?;
        let span = start.to(self.last);
        self.require(Punct::Semi)?;
        Ok(Inline { span, specs, declarator, params, value })
    }

    /// `translator output < input name > { members };`
    pub(super) fn translator(&mut self) -> Parsed<Translator> {
        let start = self.bump().span;
        self.no_members_again()?;
        let output = self.type_name()?;
        self.require(Punct::Lt)?;
        let input = self.param()?;
        if input.declarator.name.is_none() {
            return Err(self.unexpected_with(Some("the translated value needs a name")));
        }
        self.require(Punct::Gt)?;
        let members = self.members(|p| {
            let name = p.require_member_name()?;
            p.require(Punct::Assign)?;
            let value = p.assignment()?;
            let span = name.span.to(p.last);
            p.require(Punct::Semi)?;
            Ok(TranslatorMember { span, name, value })
        })?;
        let span = start.to(self.last);
        self.require(Punct::Semi)?;
        Ok(Translator { span, output, input, members })
    }

    /// An error at `struct tag {` where the struct has its members. The original says so before it
    /// reads what is behind the brace, which may be a parameter in the wrong brackets and no
    /// member.
    fn no_members_again(&mut self) -> Parsed<()> {
        let is_union = self.at_kw(Kw::Union);
        let Tok::Ident(tag) = self.peek(1).tok.clone() else { return Ok(()) };
        let name = record_name(is_union, &tag);
        let is_record = is_union || self.at_kw(Kw::Struct);
        if is_record && self.peek(2).tok == Tok::P(Punct::LBrace) && self.records.contains(&name) {
            let span = self.peek(2).span;
            self.error(Tag::D_DECL_TYPERED, span, format!("type redeclared: {name}"));
            return Err(ErrorReported);
        }
        Ok(())
    }

    /// `provider name { probe …; };`, `provider name[pid] { probe …; };`
    pub(super) fn provider(&mut self) -> Parsed<ProviderDef> {
        let start = self.bump().span;
        let name = self.require_name()?;
        let of_processes = self.eat(Punct::LBracket);
        if of_processes {
            let index = self.require_name()?;
            if index.text != "pid" {
                let message =
                    format!("a family of providers has one for each pid, not for each {}", index.text);
                self.error(Tag::D_PROV_BADNAME, index.span, message);
            }
            self.require(Punct::RBracket)?;
        }
        let probes = self.members(Self::provider_probe)?;
        let span = start.to(self.last);
        self.require(Punct::Semi)?;
        Ok(ProviderDef { span, name, of_processes, probes })
    }

    /// `probe name(native);`, `probe name(native : translated);`,
    /// `probe name(native) : (translated);`
    fn provider_probe(&mut self) -> Parsed<ProviderProbe> {
        let start = self.peek(0).span;
        if !self.at_kw(Kw::Probe) {
            return Err(self.unexpected());
        }
        self.bump();
        let name = self.require_member_name()?;
        let (native, inside) = self.native_params()?;
        let translated = match inside {
            None if self.eat(Punct::Colon) => Some(self.probe_params()?),
            inside => inside,
        };
        let span = start.to(self.last);
        self.require(Punct::Semi)?;
        Ok(ProviderProbe { span, name, native, translated })
    }

    /// `(native)`, `(native : translated)`
    fn native_params(&mut self) -> Parsed<(Params, Option<Params>)> {
        if !self.at(Punct::LParen) {
            return Err(self.unexpected());
        }
        let open = self.bump();
        let open_before = self.open.len();
        self.open.push((Punct::LParen, open.span));
        let end = if self.at(Punct::Colon) { Punct::Colon } else { Punct::RParen };
        let (list, varargs) = self.param_list(end)?;
        let native = Params { span: open.span.to(self.last), list, varargs };
        let mut translated = None;
        if self.at(Punct::Colon) {
            let from = self.bump().span;
            let (list, varargs) = self.param_list(Punct::RParen)?;
            translated = Some(Params { span: from.to(self.last), list, varargs });
        }
        self.require(Punct::RParen)?;
        self.open.truncate(open_before);
        Ok((native, translated))
    }

    fn probe_params(&mut self) -> Parsed<Params> {
        if !self.at(Punct::LParen) {
            return Err(self.unexpected());
        }
        self.params(Punct::RParen)
    }

    /// `{ member member … }`; an invalid member is omitted.
    fn members<T>(&mut self, mut member: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let open = self.require(Punct::LBrace)?;
        let mut members = Vec::new();
        loop {
            self.new_statement();
            if self.eat(Punct::RBrace) {
                return Ok(members);
            }
            if self.peek(0).tok == Tok::Eof {
                let line = self.lex.line(open);
                return Err(self.unexpected_with(Some(&format!("`{{` on line {line} is not closed"))));
            }
            match member(self) {
                Ok(m) => members.push(m),
                Err(ErrorReported) => self.skip_member(),
            }
        }
    }
}
