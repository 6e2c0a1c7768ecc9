//! Stability attributes and versions of identifiers, and the pragmas that set them.
//!
//! Every identifier has stability attributes (`Stable/Stable/Common`). The attributes of a clause
//! are the minimum over everything it uses, component by component. With `-xamin`, using an
//! identifier with lower attributes is an error. Identifiers that are not in these tables are
//! Stable/Stable/Common and exist since the first version of D. `#pragma D attributes` and `#pragma
//! D binding` set the attributes and versions of identifiers of a program or a library.

use diagnostics::{Diagnostic, Span, Tag};
use probes::{Attributes, Class, Stability, Version};
use syntax::ast::{AttributeSubject, Item, Name, Pragma, PragmaKind, Program};
use types::TypeId;

use crate::program::Scope;
use crate::session::Checker;
use crate::tables;

/// Identifiers whose attributes are not Stable/Stable/Common.
const ATTRIBUTES: &[(&str, Attributes)] = &[
    ("curthread", Attributes::new(Stability::Stable, Stability::Private, Class::Common)),
    ("d_path", Attributes::EVOLVING),
    ("ddi_pathname", Attributes::EVOLVING),
    ("getmajor", Attributes::EVOLVING),
    ("getminor", Attributes::EVOLVING),
    ("htonl", Attributes::EVOLVING),
    ("htonll", Attributes::EVOLVING),
    ("htons", Attributes::EVOLVING),
    ("mutex_owned", Attributes::EVOLVING),
    ("mutex_owner", Attributes::EVOLVING),
    ("mutex_type_adaptive", Attributes::EVOLVING),
    ("mutex_type_spin", Attributes::EVOLVING),
    ("ntohl", Attributes::EVOLVING),
    ("ntohll", Attributes::EVOLVING),
    ("ntohs", Attributes::EVOLVING),
    ("rw_iswriter", Attributes::EVOLVING),
    ("rw_read_held", Attributes::EVOLVING),
    ("rw_write_held", Attributes::EVOLVING),
];

/// Identifiers that are newer than the first version of D.
const VERSIONS: &[(&str, Version)] = &[
    ("freopen", Version::new(1, 1)),
    ("func", Version::new(1, 2)),
    ("getf", Version::new(1, 10)),
    ("htonl", Version::new(1, 3)),
    ("htonll", Version::new(1, 3)),
    ("htons", Version::new(1, 3)),
    ("index", Version::new(1, 1)),
    ("inet_ntoa", Version::new(1, 5)),
    ("inet_ntoa6", Version::new(1, 5)),
    ("inet_ntop", Version::new(1, 5)),
    ("json", Version::new(1, 11)),
    ("llquantize", Version::new(1, 7)),
    ("mod", Version::new(1, 2)),
    ("ntohl", Version::new(1, 3)),
    ("ntohll", Version::new(1, 3)),
    ("ntohs", Version::new(1, 3)),
    ("print", Version::new(1, 9)),
    ("rindex", Version::new(1, 1)),
    ("setopt", Version::new(1, 2)),
    ("stddev", Version::new(1, 6)),
    ("strchr", Version::new(1, 1)),
    ("strrchr", Version::new(1, 1)),
    ("strstr", Version::new(1, 1)),
    ("strtok", Version::new(1, 1)),
    ("strtoll", Version::new(1, 11)),
    ("substr", Version::new(1, 1)),
    ("sym", Version::new(1, 2)),
    ("threadname", Version::new(1, 13)),
    ("tolower", Version::new(1, 8)),
    ("toupper", Version::new(1, 8)),
    ("uaddr", Version::new(1, 2)),
    ("ucaller", Version::new(1, 2)),
    ("ufunc", Version::new(1, 2)),
    ("umod", Version::new(1, 2)),
    ("ustackdepth", Version::new(1, 2)),
    ("usym", Version::new(1, 2)),
];

fn row<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(w, _)| *w == word).map(|(_, x)| *x)
}

impl Checker<'_> {
    /// True for an identifier that is newer than the version of D that the user selected.
    pub(crate) fn is_too_new(&self, word: &str) -> bool {
        self.version_error(word).is_some()
    }

    /// The message for an identifier that is too new.
    pub(crate) fn version_error(&self, word: &str) -> Option<String> {
        let wanted = self.cx.options.version?;
        let version = self.scopes.pragmas.versions.get(word).copied().or_else(|| row(VERSIONS, word))?;
        (version > wanted)
            .then(|| format!("`{word}` came with D {version}; the option version asks for {wanted}"))
    }

    /// Records the use of an identifier of D. `kind` is its kind for messages.
    pub(crate) fn uses_word(&mut self, kind: &str, word: &str, span: Span) {
        let attributes = row(ATTRIBUTES, word).unwrap_or(Attributes::STABLE);
        self.uses(kind, word, attributes, span);
    }

    /// Records the use of a type. Types of the kernel are Private.
    pub(crate) fn uses_type(&mut self, ty: TypeId, span: Span) {
        if self.types.is_from_kernel(ty) {
            let name = self.name(ty);
            self.uses("type", &name, Attributes::PRIVATE, span);
        }
    }

    /// Records the use of something with these attributes.
    pub(crate) fn uses(&mut self, kind: &str, word: &str, attributes: Attributes, span: Span) {
        self.clause.attributes = self.clause.attributes.min(attributes);
        let Some(least) = self.cx.options.amin.filter(|_| self.expansion.suspended == 0) else { return };
        if !attributes.at_least(least) {
            let call = if kind.ends_with("function") { "( )" } else { "" };
            let message =
                format!("attributes for {kind} {word}{call} ({attributes}) are less than predefined minimum");
            self.sink.push(Diagnostic::new(Tag::D_ATTR_MIN, span, message));
        }
    }

    /// Runs `f`, and returns the attributes of what it used instead of adding them to the clause.
    pub(crate) fn collect_attributes<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> (T, Attributes) {
        let outside = std::mem::replace(&mut self.clause.attributes, Attributes::STABLE);
        self.expansion.suspended += 1;
        let out = f(self);
        self.expansion.suspended -= 1;
        (out, std::mem::replace(&mut self.clause.attributes, outside))
    }

    /// The attributes that a pragma gives to an identifier.
    pub(crate) fn pragma_attributes(&self, word: &str) -> Option<Attributes> {
        self.scopes.pragmas.attributes.get(word).copied()
    }

    /// Processes the pragmas of libraries, before anything is checked.
    pub(crate) fn library_pragmas(&mut self, program: &Program) {
        for item in &program.items {
            let Item::Pragma(pragma) = item else { continue };
            match &pragma.kind {
                PragmaKind::Attributes { triple, subject: AttributeSubject::Ident(name) } => {
                    if let Some(attributes) = self.triple(triple, pragma.span) {
                        self.scopes.pragmas.attributes.insert(name.text.clone(), attributes);
                    }
                }
                PragmaKind::Binding { version, name } => {
                    if let Some(version) = self.version(version, pragma.span) {
                        self.scopes.pragmas.versions.insert(name.text.clone(), version);
                    }
                }
                _ => {}
            }
        }
    }

    /// `#pragma D attributes` and `#pragma D binding` of a program.
    pub(crate) fn pragma(&mut self, pragma: &Pragma, program: &Program) {
        match &pragma.kind {
            // The session has already processed options and dependencies.
            PragmaKind::Option { .. } | PragmaKind::DependsOn { .. } => {}
            PragmaKind::Attributes { triple, subject } => {
                let Some(attributes) = self.triple(triple, pragma.span) else { return };
                match subject {
                    AttributeSubject::Provider { provider, .. } => {
                        let own = |i: &Item| matches!(i, Item::Provider(p) if p.name.text == provider.text);
                        if !program.items.iter().any(own) {
                            let what = format!("provider {}", provider.text);
                            self.out_of_scope("attributes", &what, provider.span);
                        }
                    }
                    AttributeSubject::Ident(name) => {
                        if self.may_set("attributes", name) {
                            self.scopes.pragmas.attributes.insert(name.text.clone(), attributes);
                        }
                    }
                }
            }
            PragmaKind::Binding { version, name } => {
                let Some(version) = self.version(version, pragma.span) else { return };
                if self.may_set("binding", name) {
                    self.scopes.pragmas.versions.insert(name.text.clone(), version);
                }
            }
        }
    }

    fn triple(&mut self, text: &Name, span: Span) -> Option<Attributes> {
        let attributes = Attributes::parse(&text.text);
        if attributes.is_none() {
            let message = format!("invalid attributes specified by #pragma attributes: {}", text.text);
            let help = "it takes a triple, as in Evolving/Evolving/Common".to_string();
            let d = Diagnostic::new(Tag::D_PRAGMA_MALFORM, span, message).with_help(help);
            self.sink.push(d);
        }
        attributes
    }

    fn version(&mut self, text: &Name, span: Span) -> Option<Version> {
        let version = Version::parse(&text.text).filter(|v| v.is_known());
        if version.is_none() {
            let message = format!("invalid version string specified by #pragma binding: {}", text.text);
            self.sink.error(Tag::D_PRAGMA_INVAL, span, message);
        }
        version
    }

    fn out_of_scope(&mut self, pragma: &str, what: &str, span: Span) {
        let message = format!("#pragma {pragma} cannot modify {what} defined outside program scope");
        self.sink.error(Tag::D_PRAGMA_SCOPE, span, message);
    }

    /// True if a pragma may set attributes of this identifier: the program declares it, before or
    /// after the pragma.
    fn may_set(&mut self, pragma: &'static str, name: &Name) -> bool {
        let word = name.text.as_str();
        // The pragma refers to the next translator.
        if word == "translator" {
            return false;
        }
        let foreign = tables::variable(word).is_some()
            || tables::function(word).is_some()
            || self.scopes.names.inlines.get(word).is_some_and(|i| i.library);
        if foreign {
            self.out_of_scope(pragma, word, name.span);
            return false;
        }
        self.scopes.pragmas.open.push((word.to_string(), pragma, name.span));
        true
    }

    /// Reports pragmas of the current program whose identifier is never declared.
    pub(crate) fn unused_pragmas(&mut self) {
        for (word, pragma, span) in std::mem::take(&mut self.scopes.pragmas.open) {
            let known = self.scopes.names.inlines.contains_key(&word)
                || self.scopes.var(Scope::Global, &word).is_some()
                || self.types.is_declared(&word);
            if !known && self.require_not_doubtful(&word).is_ok() {
                let message = format!("unused #pragma {pragma}");
                let help = format!("the program declares no `{word}`");
                let d = Diagnostic::new(Tag::D_PRAGMA_UNUSED, span, message).with_help(help);
                self.sink.push(d);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_and_version_tables_name_existing_identifiers() {
        let words = ATTRIBUTES.iter().map(|(w, _)| w).chain(VERSIONS.iter().map(|(w, _)| w));
        for word in words {
            assert!(tables::variable(word).is_some() || tables::function(word).is_some(), "{word}");
        }
        assert!(ATTRIBUTES.is_sorted_by_key(|(w, _)| w) && VERSIONS.is_sorted_by_key(|(w, _)| w));
        assert!(VERSIONS.iter().all(|(_, v)| v.is_known()));
    }
}
