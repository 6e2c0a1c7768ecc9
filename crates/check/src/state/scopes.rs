//! What names mean: variables, aggregations, inlines, translators, and what libraries define.
//!
//! All programs of a session share one table of variables and aggregations, filled in text order. A
//! variable has the type of its first assignment, and a use before that is an error, as in the
//! original. If the first assignment of a variable is itself an error, the variable is *poisoned*:
//! later uses fail silently, so that one error causes one message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use diagnostics::Span;
use plane::desc::{AggFunc, AggId};
use probes::{Attributes, Version};
use syntax::ast;
use types::TypeId;

use super::libraries::UnusedItems;
use crate::columns::Column;
use crate::program::{Expr, Repr, Scope, VarId};

/// What is known about a variable's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarType {
    /// Its first assignment is being checked.
    Pending,
    /// Its first assignment was an error.
    Poisoned,
    /// Known.
    Known(TypeId, Repr),
}

/// A variable.
#[derive(Clone, Debug)]
pub(crate) struct VarInfo {
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) ty: VarType,
    /// Type (for messages and conversions) and column of each key.
    pub(crate) key: Option<Vec<(TypeId, Column)>>,
    /// Set if it holds a translated pointer; then `ty` is `<DYN>`.
    pub(crate) translated: Option<StoredTranslation>,
}

impl VarInfo {
    pub(crate) fn full_name(&self) -> String {
        let name = self.name.rsplit_once('%').map_or(self.name.as_str(), |(_, name)| name);
        format!("{}{name}", self.scope.prefix())
    }

    pub(crate) fn kind_word(&self) -> &'static str {
        if self.key.is_some() { "associative array" } else { "scalar" }
    }
}

/// What is known of a variable that holds a translated pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredTranslation {
    /// The translator of the pointer, then that of the translated value if that is itself
    /// translated, and so on. The flag is true if the translator yields a pointer.
    pub(crate) chain: Vec<(usize, bool)>,
    /// Type of the stored value.
    pub(crate) ty: TypeId,
    /// True if the stored value is the address of an object of that type.
    pub(crate) object: bool,
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct AggInfo {
    pub(crate) name: String,
    pub(crate) func: AggFunc,
    pub(crate) key: Vec<(TypeId, Column)>,
    /// The expressions of the key; empty where the statements of the aggregation differ.
    pub(crate) key_names: Vec<Arc<str>>,
    /// No statement adds a value that can be negative.
    pub(crate) unsigned: bool,
    pub(crate) span: Span,
}

/// Where names of variables are not those of the program. The prefix distinguishes them.
#[derive(Clone, Debug)]
pub(crate) enum NameSpace {
    /// In a clause of a library: all variables are the library's.
    Library(String),
    /// In a clause of a derived probe: it has its own clause-local variables.
    Locals(String),
}

/// An inline.
#[derive(Clone, Debug)]
pub(crate) struct InlineInfo {
    pub(crate) ty: TypeId,
    /// Names and types of its parameters; `None` for an inline without a parameter list.
    pub(crate) params: Option<Arc<[(String, TypeId)]>>,
    pub(crate) value: Arc<ast::Expr>,
    /// Its value, if constant, and the attributes of that value.
    pub(crate) constant: Option<(Expr, Attributes)>,
    /// True if a library defines it.
    pub(crate) library: bool,
}

/// A translator.
#[derive(Clone, Debug)]
pub(crate) struct Translator {
    /// The struct or union that it produces.
    pub(crate) output: TypeId,
    /// The type that it translates.
    pub(crate) input: TypeId,
    /// Name of its parameter in the members' expressions.
    pub(crate) name: String,
    pub(crate) members: Vec<(String, Arc<ast::Expr>)>,
    pub(crate) span: Span,
    /// The definition of a program that has it.
    pub(crate) definition: Option<u32>,
}

/// All translators.
#[derive(Debug, Default)]
pub(crate) struct Translators {
    pub(crate) all: Vec<Translator>,
    /// Their indexes, by the tag of the type that they produce.
    pub(crate) by_tag: HashMap<Option<Arc<str>>, Vec<usize>>,
}

impl Translators {
    pub(crate) fn add(&mut self, tag: Option<Arc<str>>, translator: Translator) {
        self.by_tag.entry(tag).or_default().push(self.all.len());
        self.all.push(translator);
    }
}

/// Attributes and versions that pragmas set.
#[derive(Debug, Default)]
pub(crate) struct PragmaAttributes {
    pub(crate) attributes: HashMap<String, Attributes>,
    pub(crate) versions: HashMap<String, Version>,
    /// Identifiers that a pragma of the current program names before their declaration.
    pub(crate) open: Vec<(String, &'static str, Span)>,
}

/// The names that are exchanged for those of a definition while it is checked.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) vars: HashMap<(Scope, String), VarId>,
    pub(crate) inlines: HashMap<String, InlineInfo>,
    /// Enumerators that the programs declare.
    pub(crate) enumerators: HashSet<String>,
}

/// Sizes of the tables, for a rollback.
pub(crate) struct Sizes {
    vars: usize,
    aggs: usize,
    bad_aggs: usize,
}

/// What names mean.
#[derive(Debug, Default)]
pub(crate) struct Scopes<'a> {
    pub(crate) names: Names,
    /// Variables by number.
    pub(crate) vars: Vec<VarInfo>,
    /// Aggregations by number.
    pub(crate) aggs: Vec<AggInfo>,
    /// Aggregations by name; `None` if the first use was an error.
    pub(crate) agg_names: HashMap<String, Option<AggId>>,
    /// Aggregations whose first use was an error, in order.
    pub(crate) bad_aggs: Vec<String>,
    /// Items of libraries that have not been used yet.
    pub(crate) library_items: UnusedItems<'a>,
    /// Attributes and versions that pragmas set.
    pub(crate) pragmas: PragmaAttributes,
    pub(crate) space: Option<NameSpace>,
}

impl Scopes<'_> {
    pub(crate) fn var(&self, scope: Scope, name: &str) -> Option<VarId> {
        self.names.vars.get(&(scope, self.full_name(scope, name))).copied()
    }

    /// The name of a variable in the table: where names are not those of the program, it has a
    /// prefix.
    fn full_name(&self, scope: Scope, name: &str) -> String {
        match &self.space {
            Some(NameSpace::Library(prefix)) if !name.starts_with('%') => format!("{prefix}%{name}"),
            Some(NameSpace::Locals(prefix)) if scope == Scope::Clause && !name.starts_with('%') => {
                format!("{prefix}%{name}")
            }
            _ => name.to_string(),
        }
    }

    pub(crate) fn add_var(
        &mut self,
        scope: Scope,
        name: &str,
        ty: VarType,
        key: Option<Vec<(TypeId, Column)>>,
    ) -> VarId {
        let id = VarId(self.vars.len() as u32);
        let name = self.full_name(scope, name);
        self.vars.push(VarInfo { name: name.clone(), scope, ty, key, translated: None });
        self.names.vars.insert((scope, name), id);
        id
    }

    pub(crate) fn var_info(&self, id: VarId) -> &VarInfo {
        &self.vars[id.0 as usize]
    }

    pub(crate) fn agg(&self, name: &str) -> Option<AggId> {
        self.agg_names.get(name).copied().flatten()
    }

    /// Marks an aggregation whose first use is an error.
    pub(crate) fn is_bad_agg(&self, name: &str) -> bool {
        matches!(self.agg_names.get(name), Some(None))
    }

    pub(crate) fn add_bad_agg(&mut self, name: String) {
        if !self.agg_names.contains_key(&name) {
            self.agg_names.insert(name.clone(), None);
            self.bad_aggs.push(name);
        }
    }

    pub(crate) fn add_agg(&mut self, info: AggInfo) -> AggId {
        let id = AggId(self.aggs.len() as u32);
        self.agg_names.insert(info.name.clone(), Some(id));
        self.aggs.push(info);
        id
    }

    /// The current sizes of the tables.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { vars: self.vars.len(), aggs: self.aggs.len(), bad_aggs: self.bad_aggs.len() }
    }

    /// Removes what was added since. Returns the names of the removed variables (with a scope) and
    /// aggregations. Arrays and aggregations of earlier clauses keep the key columns of the removed
    /// uses, because the next attempt will use them in the same way.
    pub(crate) fn forget(&mut self, to: &Sizes) -> Vec<(Option<Scope>, String)> {
        let mut names = Vec::new();
        for var in self.vars.drain(to.vars..) {
            self.names.vars.remove(&(var.scope, var.name.clone()));
            names.push((Some(var.scope), var.name));
        }
        let aggs = self.aggs.drain(to.aggs..).map(|agg| agg.name);
        for name in aggs.chain(self.bad_aggs.drain(to.bad_aggs..)) {
            self.agg_names.remove(&name);
            names.push((None, name));
        }
        names
    }
}
