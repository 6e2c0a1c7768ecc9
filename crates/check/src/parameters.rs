//! The parameters of probes that a user's library declares: their types, and the translators that
//! make what scripts see of them.
//!
//! They are checked when a program describes the probe. A library may be for several kernels, and
//! what it declares of types that this one does not have concerns only who uses it.

use diagnostics::{Diagnostic, Span, Tag};
use syntax::ast;
use types::{Kind, TypeId};

use crate::derivations::key_of;
use crate::session::Checker;

impl Checker<'_> {
    /// Checks the parameters of a probe. False if some are wrong, which is reported.
    pub(crate) fn check_parameters(&mut self, key: &(String, String)) -> bool {
        let Some(number) = self.derivations.declared.get(key).copied() else { return true };
        let Some(library) = self.derivations.libraries.get(number).filter(|l| l.always) else { return true };
        let Some(declared) = library.firings.iter().find(|f| key_of(f) == *key).map(|f| f.probe) else {
            return true;
        };
        let before = self.sink.iter().len();
        let region = self.sink.set_region(None);
        self.parameters(declared);
        self.sink.set_region(region);
        self.sink.iter().len() == before
    }

    fn parameters(&mut self, declared: &ast::ProviderProbe) {
        let name = &declared.name.text;
        let list = &declared.native.list;
        let mut natives: Vec<Option<TypeId>> = Vec::with_capacity(list.len());
        for (n, param) in list.iter().enumerate() {
            let ty = self.param(param).ok();
            let is_known =
                ty.is_none_or(|ty| self.has_type(ty, &format!("parameter {n} of probe {name}"), param.span));
            natives.push(ty.filter(|_| is_known));
        }
        for (n, param) in declared.translated.iter().flat_map(|t| &t.list).enumerate() {
            let named = param.declarator.name.as_ref().and_then(|name| {
                let is = |p: &ast::Param| p.declarator.name.as_ref().is_some_and(|n| n.text == name.text);
                list.iter().position(is)
            });
            let native =
                natives.get(named.unwrap_or(n.min(natives.len().saturating_sub(1)))).copied().flatten();
            let Ok(shown) = self.param(param) else { continue };
            if !self.has_type(shown, &format!("args[{n}] of probe {name}"), param.span) {
                continue;
            }
            let output = self.pointed_to(shown);
            let Some(native) = native.filter(|_| self.types.is_sou(output)) else { continue };
            if self.find_translator(output, native).is_none() && !self.types.compatible(native, shown) {
                let (from, to) = (self.name(native), self.name(output));
                let message = format!(
                    "translator for args[{n}] of probe {name} from {from} to {} is not defined",
                    self.name(shown)
                );
                let help = format!("define `translator {to} < {from} NAME > {{ ... }};` in the library");
                self.sink.push(Diagnostic::new(Tag::D_PROV_PRXLATOR, param.span, message).with_help(help));
            }
        }
    }

    fn pointed_to(&self, ty: TypeId) -> TypeId {
        match self.types.base_kind(ty) {
            Kind::Pointer { target, .. } => target,
            _ => ty,
        }
    }

    /// Reports a struct or union of which only the tag is known.
    fn has_type(&mut self, ty: TypeId, what: &str, span: Span) -> bool {
        let target = self.pointed_to(ty);
        self.types.complete(target);
        if !matches!(self.types.base_kind(target), Kind::Sou { complete: false, .. }) {
            return true;
        }
        let message = format!("{what} has an unknown type: no {} definition is available", self.name(target));
        let help = "declare the struct in the library, name one that this kernel has, or pass a `void *`";
        self.sink.push(Diagnostic::new(Tag::D_DECL_INCOMPLETE, span, message).with_help(help));
        false
    }
}
