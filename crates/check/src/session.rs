//! A checking run: the values that its rules work on ([`state`](crate::state)), and common error
//! messages.
//!
//! A rule is a method of [`Checker`] in the file of its subject; one of a single value is a method
//! of that value.

use std::sync::Arc;

use diagnostics::{Diagnostic, Sink, Span, Tag, nearest};
use types::btf::KernelBtf;
use types::{Kind, TagKind, TypeId, Types};

use crate::context::Context;
use crate::derivations::Derivations;
use crate::program::{Clause, Expr, Repr, Scope};
use crate::record::Visibility;
use crate::state::clause::{ArgsContext, ClauseState};
use crate::state::defined::Defined;
use crate::state::derived::ProgramDerivations;
use crate::state::expansion::Expansion;
use crate::state::libraries::UnusedItems;
use crate::state::matching::Matching;
use crate::state::recovery::{CheckResult, DeferralState, ErrorReported, Recovery};
use crate::state::scopes::{Scopes, Translators, VarInfo, VarType};
use crate::tables;

/// A checking run.
pub(crate) struct Checker<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) types: &'a Types,
    /// The kernel as the programs see it that are checked for the first time.
    pub(crate) kernel: Option<Arc<KernelBtf>>,
    pub(crate) sink: &'a mut Sink,
    /// What names mean.
    pub(crate) scopes: Scopes<'a>,
    pub(crate) translators: Translators,
    /// The tree that is checked.
    pub(crate) expansion: Expansion,
    /// What the statements of the current clause have done so far.
    pub(crate) clause: ClauseState,
    /// For which probes the current clause is checked.
    pub(crate) args: ArgsContext,
    /// What descriptions match.
    pub(crate) matching: Matching<'a>,
    /// The probes that the libraries declare.
    pub(crate) derivations: Derivations<'a>,
    /// What the current program uses of them.
    pub(crate) derived: ProgramDerivations,
    /// The definitions of programs.
    pub(crate) defined: Defined,
    /// Clauses that wait for their probes.
    pub(crate) deferral: DeferralState,
    /// Errors that affect later checks.
    pub(crate) recovery: Recovery,
    /// The check has been told to stop.
    pub(crate) is_stopped: bool,
    /// The result.
    pub(crate) clauses: Vec<Clause>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(cx: &'a Context<'a>, visibility: &'a dyn Visibility, sink: &'a mut Sink) -> Self {
        cx.types.set_strsize(u64::from(cx.options.string_size()));
        let recovery = Recovery::new(sink);
        let derivations = Derivations::new(cx.libraries.parsed(), sink);
        let library_items = UnusedItems::new(cx.libraries.parsed());
        Self {
            cx,
            types: cx.types,
            kernel: cx.types.kernel().map(|kernel| kernel.as_seen_now()),
            sink,
            scopes: Scopes { library_items, ..Scopes::default() },
            translators: Translators::default(),
            expansion: Expansion::default(),
            clause: ClauseState::default(),
            args: ArgsContext::default(),
            matching: Matching::new(visibility),
            derivations,
            derived: ProgramDerivations::default(),
            defined: Defined::default(),
            deferral: DeferralState::default(),
            recovery,
            is_stopped: false,
            clauses: Vec::new(),
        }
    }

    /// True if the check is to end. Asked between items.
    pub(crate) fn stops(&mut self) -> bool {
        self.is_stopped = self.is_stopped || (self.cx.stop)();
        self.is_stopped
    }

    /// Reports an error.
    pub(crate) fn fail<T>(&mut self, tag: Tag, span: Span, message: impl Into<String>) -> CheckResult<T> {
        self.sink.error(tag, span, message);
        Err(ErrorReported)
    }

    /// Reports an error, with a hint if there is one.
    pub(crate) fn fail_with<T>(
        &mut self,
        tag: Tag,
        span: Span,
        message: impl Into<String>,
        help: Option<String>,
    ) -> CheckResult<T> {
        self.fail_by(Diagnostic::new(tag, span, message), help)
    }

    /// Reports this error, with a hint if there is one.
    pub(crate) fn fail_by<T>(&mut self, error: Diagnostic, help: Option<String>) -> CheckResult<T> {
        self.sink.push(match help {
            Some(help) => error.with_help(help),
            None => error,
        });
        Err(ErrorReported)
    }

    /// Reports valid D that this version does not support.
    pub(crate) fn unsupported<T>(&mut self, span: Span, what: impl std::fmt::Display) -> CheckResult<T> {
        self.fail(Tag::D_UNSUPPORTED, span, format!("{what} is not supported yet"))
    }

    pub(crate) fn name(&self, ty: TypeId) -> String {
        self.types.name(ty)
    }

    /// The representation of a value of this type in a variable, a record or a key; `None` if it
    /// has none.
    pub(crate) fn repr(&self, ty: TypeId) -> Option<Repr> {
        if self.types.is_string(ty) {
            return Some(Repr::Str);
        }
        if let Some(int) = self.types.as_int(ty) {
            return Some(Repr::Int { size: int.size, signed: int.signed });
        }
        matches!(self.types.base_kind(ty), Kind::Pointer { .. })
            .then_some(Repr::Int { size: 8, signed: false })
    }

    /// A hint for an undefined global name.
    pub(crate) fn near_name(&self, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let known = |v: &&VarInfo| matches!(v.ty, VarType::Known(..));
        let own = self
            .scopes
            .vars
            .iter()
            .filter(known)
            .filter(|v| v.scope == Scope::Global)
            .map(|v| v.name.as_str());
        let words = tables::VARIABLES
            .iter()
            .filter(|r| !matches!(r.kind, tables::VariableKind::NotOnLinux(_)) && !self.is_too_new(r.name))
            .map(|r| r.name)
            .chain(own)
            .chain(self.scopes.names.inlines.keys().map(String::as_str))
            // One of a library that is not used, because what it depends on is not there, has this
            // name.
            .chain(self.cx.libraries.words().filter(|word| *word != wrong));
        nearest(wrong, words).map(did_you_mean)
    }

    /// A hint for an undefined `self->` or `this->` name.
    pub(crate) fn near_var(&self, scope: Scope, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let known = |v: &&VarInfo| v.scope == scope && v.name != wrong && matches!(v.ty, VarType::Known(..));
        let known = |v: &&VarInfo| known(v) && !v.name.contains('%');
        let own = self.scopes.vars.iter().filter(known).map(|v| v.name.as_str());
        nearest(wrong, own).map(|n| did_you_mean(&format!("{}{n}", scope.prefix())))
    }

    /// A hint for an undefined struct, union, enum or (`None`) typedef.
    pub(crate) fn near_type(&self, kind: Option<TagKind>, wrong: &str) -> Option<String> {
        if let Some(error) = self.types.kernel_error() {
            return Some(format!("cannot read the kernel's types: {error}"));
        }
        if !self.sink.may_suggest() {
            return None;
        }
        let names = self.types.kernel_names_like(kind, wrong);
        let keyword = kind.map_or(String::new(), |k| format!("{} ", k.keyword()));
        nearest(wrong, names.iter().map(String::as_str)).map(|n| did_you_mean(&format!("{keyword}{n}")))
    }

    /// A hint for an unknown member of a struct or union.
    pub(crate) fn near_member(&self, ty: TypeId, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let names = self.types.member_names(ty);
        nearest(wrong, names.iter().map(|n| &**n)).map(did_you_mean)
    }

    /// A hint for a type that the program does not define.
    pub(crate) fn near_own_type(&self, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let names = self.types.declared_names();
        nearest(wrong, names.iter().map(|n| &**n)).map(did_you_mean)
    }

    /// A hint for a type that is declared but not defined.
    pub(crate) fn near_tag(&self, ty: TypeId) -> Option<String> {
        match self.types.base_kind(ty) {
            Kind::Sou { union, tag: Some(tag), .. } => {
                let foreign = crate::foreign::word(crate::foreign::Kind::Type, &tag);
                foreign.or_else(|| {
                    self.near_type(Some(if union { TagKind::Union } else { TagKind::Struct }), &tag)
                })
            }
            Kind::Enum { tag: Some(tag), .. } => self.near_type(Some(TagKind::Enum), &tag),
            _ => None,
        }
    }

    /// A hint for a module without types.
    pub(crate) fn near_module(&self, module: &str) -> Option<String> {
        let kernel = self.types.kernel()?;
        if kernel.vmlinux().is_err() || kernel.module(module).is_some() {
            return None;
        }
        if !self.sink.may_suggest() {
            return None;
        }
        let names = kernel.modules();
        let near = nearest(module, names.iter().map(String::as_str).chain(["vmlinux"])).map(did_you_mean);
        near.or_else(|| Some(format!("module {module} is not loaded, or has no types of its own")))
    }

    /// Marks a global name whose declaration was an error. Its uses report no further errors.
    pub(crate) fn poison_name(&mut self, scope: Scope, name: &str) {
        let taken = scope == Scope::Global
            && (tables::variable(name).is_some()
                || tables::function(name).is_some()
                || self.scopes.names.inlines.contains_key(name));
        if !taken && self.scopes.var(scope, name).is_none() {
            self.scopes.add_var(scope, name, VarType::Poisoned, None);
        }
    }

    /// A constant of this type.
    pub(crate) fn int(&self, value: i64, ty: TypeId, span: Span) -> Expr {
        Expr { kind: crate::program::ExprKind::Int(value), ty, span }
    }

    /// The type in a table row. `int` if the row names none that exists.
    pub(crate) fn row_type(&self, text: &str) -> TypeId {
        self.types.find(text).unwrap_or(TypeId::INT)
    }
}

pub(crate) fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}
