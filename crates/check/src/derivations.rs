//! The libraries that declare probes, as they are: which clauses fire which probes, and which
//! variables they use.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use diagnostics::{Diagnostic, Sink, Span, Tag};
use probes::{Pattern, ProbeInfo, glob_matches};
use syntax::ast;
use syntax::derive::{self, Firing};
use syntax::library::{Library, probe_name};

/// A clause of a library: the numbers of both.
pub(crate) type ClauseNumber = (usize, usize);

/// The native arguments of a probe are limited as in the original.
const ARGS_MAX: usize = 32;

/// Each probe that is derived from one which fires twice has twice as many bases: so a short
/// library could have more than fit in memory.
pub(crate) const BASES_MAX: usize = 256;

/// The probes that the libraries of a session declare.
#[derive(Default)]
pub(crate) struct Derivations<'a> {
    pub(crate) libraries: Vec<LibraryClauses<'a>>,
    /// Declared probes by provider and name, with the number of the library.
    pub(crate) declared: HashMap<(String, String), usize>,
    /// The clauses that fire each of them, in order.
    firing: HashMap<(String, String), Vec<ClauseNumber>>,
    /// Their providers.
    providers: HashSet<&'a str>,
}

/// The clauses of one library.
pub(crate) struct LibraryClauses<'a> {
    pub(crate) clauses: Vec<&'a ast::Clause>,
    pub(crate) firings: Vec<Firing<'a>>,
    /// The variables that it declares.
    pub(crate) locals: Vec<&'a ast::Declaration>,
    /// It is a file of the user: all of it is checked.
    pub(crate) always: bool,
}

impl LibraryClauses<'_> {
    /// The declarations whose variables these clauses use, by number.
    pub(crate) fn locals_of(&self, clauses: impl Iterator<Item = usize>) -> Vec<usize> {
        let uses = clauses.filter_map(|n| self.clauses.get(n)).map(|clause| Uses::of(clause));
        let names: HashSet<(u8, String)> = uses.flat_map(|u| u.read.into_iter().chain(u.assigned)).collect();
        let is_used = |d: &ast::Declaration| {
            let scope = match d.specs.storage.map(|s| s.class) {
                Some(ast::StorageClass::SelfLocal) => 1,
                Some(ast::StorageClass::ThisLocal) => 2,
                _ => 0,
            };
            let mut declared = d.declarators.iter().filter_map(|d| d.name.as_ref());
            declared.any(|name| names.contains(&(scope, name.text.clone())))
        };
        (0..).zip(&self.locals).filter(|(_, d)| is_used(d)).map(|(n, _)| n).collect()
    }
}

/// Reports each argument that says by no name and by no place from which parameter it comes.
fn unknown_arguments(probe: &ast::ProviderProbe, sink: &mut Sink) {
    let parameters = &probe.native.list;
    let arguments = probe.translated.iter().flat_map(|t| &t.list).enumerate();
    for (n, argument) in arguments {
        let known = match &argument.declarator.name {
            Some(name) => {
                let is = |p: &ast::Param| p.declarator.name.as_ref().is_some_and(|n| n.text == name.text);
                parameters.iter().any(is) || parameters.iter().all(|p| p.declarator.name.is_none())
            }
            None => n < parameters.len(),
        };
        if !known {
            let message = format!("argument {n} of probe {} is none of its parameters", probe.name.text);
            let help = "give it the name of the parameter from which it is translated";
            sink.push(Diagnostic::new(Tag::D_PROV_PRXLATOR, argument.span, message).with_help(help));
        }
    }
}

impl<'a> Derivations<'a> {
    pub(crate) fn new(libraries: &'a [Library], sink: &mut Sink) -> Self {
        let mut out = Self::default();
        let mut providers: HashMap<&'a str, (usize, &ast::Name, bool)> = HashMap::new();
        for library in libraries {
            let number = out.libraries.len();
            for (provider, probe) in derive::declared(&library.program) {
                let name = &provider.name;
                let mine = (number, name, library.always);
                let (first, other, of_user) = *providers.entry(&name.text).or_insert(mine);
                if first != number {
                    // The error is that of the user's file, where one of the two is not the user's.
                    let span = if of_user && !library.always { other.span } else { name.span };
                    let message = format!("provider {} is declared by two libraries", name.text);
                    sink.push(Diagnostic::new(Tag::D_PROV_INCOMPAT, span, message));
                    continue;
                }
                // Such a name is one of a family: `pid` and the id of a process. Ours that end with
                // a digit are the original's (`nfsv3`), and mean no process.
                let ends_with_digit = name.text.ends_with(|c: char| c.is_ascii_digit());
                if library.always && !provider.of_processes && ends_with_digit {
                    let message = format!("provider name {} may not end with a digit", name.text);
                    sink.push(Diagnostic::new(Tag::D_PROV_BADNAME, name.span, message));
                }
                let name = probe_name(&probe.name.text);
                let key = (provider.name.text.clone(), name);
                if out.declared.insert(key, number).is_some() {
                    let message = format!("probe {} has been declared already", probe.name.text);
                    sink.push(Diagnostic::new(Tag::D_PROV_PRDUP, probe.name.span, message));
                }
                if probe.native.list.len() > ARGS_MAX {
                    let message = format!("probe {} has more than {ARGS_MAX} arguments", probe.name.text);
                    sink.push(Diagnostic::new(Tag::D_PROV_PRARGLEN, probe.native.span, message));
                }
                unknown_arguments(probe, sink);
            }
            if providers.values().any(|(n, ..)| *n == number) {
                let clauses: Vec<&ast::Clause> = derive::clauses(&library.program).collect();
                let mut times: HashMap<&str, usize> = HashMap::new();
                for (_, probe) in derive::declared(&library.program) {
                    *times.entry(&probe.name.text).or_default() += 1;
                }
                let named = |f: &&Firing<'_>| times.get(&*f.probe.name.text).is_some_and(|n| *n > 1);
                let firings = derive::firings(&library.program);
                if let Some(f) = firings.iter().find(named) {
                    let name = &f.probe.name.text;
                    let message = format!("{name}( ) is ambiguous: two providers of this file declare it");
                    sink.push(Diagnostic::new(Tag::D_PROV_PRDUP, f.call.span, message));
                }
                let at: HashMap<Span, usize> = (0..).zip(&clauses).map(|(n, c)| (c.span, n)).collect();
                for firing in &firings {
                    let Some(clause) = at.get(&firing.clause.span) else { continue };
                    let mine = out.firing.entry(key_of(firing)).or_default();
                    if mine.last() != Some(&(number, *clause)) {
                        mine.push((number, *clause));
                    }
                }
                let (locals, always) =
                    (library.program.items.iter().filter_map(derive::local).collect(), library.always);
                out.libraries.push(LibraryClauses { clauses, firings, locals, always });
            }
        }
        out.providers = providers.into_keys().collect();
        out
    }

    /// True if a library declares a probe with the provider and the name of a description.
    pub(crate) fn may_mean(&self, pattern: &Pattern) -> bool {
        let is_meant = |(provider, name): &(String, String)| {
            glob_matches(&pattern.provider, provider) && glob_matches(&pattern.name, name)
        };
        pattern.names_provider() && self.declared.keys().any(is_meant)
    }

    /// True for a probe that a library declares.
    pub(crate) fn declares(&self, probe: &ProbeInfo) -> bool {
        self.providers.contains(&*probe.desc.provider) && self.declared.contains_key(&names(probe))
    }

    /// The probes that libraries declare, and the others. A list without the former, which may be
    /// that of all functions of the kernel, stays the same.
    pub(crate) fn split(&self, probes: &Arc<[ProbeInfo]>) -> (Vec<ProbeInfo>, Arc<[ProbeInfo]>) {
        let derived: Vec<ProbeInfo> = probes.iter().filter(|p| self.declares(p)).cloned().collect();
        let plain = match derived.is_empty() {
            true => probes.clone(),
            false => probes.iter().filter(|p| !self.declares(p)).cloned().collect(),
        };
        (derived, plain)
    }

    pub(crate) fn clause(&self, (library, clause): ClauseNumber) -> Option<&'a ast::Clause> {
        self.libraries.get(library)?.clauses.get(clause).copied()
    }

    /// Clauses that fire a probe from which their own is derived.
    pub(crate) fn loops(&self) -> Vec<Span> {
        type Key = (String, String);
        let is_declared = |provider: &str| self.providers.iter().any(|p| glob_matches(provider, p));
        // From which declared probes each clause fires which.
        let mut edges: Vec<(&Key, Key, Span)> = Vec::new();
        for firing in self.libraries.iter().flat_map(|l| &l.firings) {
            for desc in &firing.clause.probes {
                let ast::ProbeDescKind::Fields { provider, name, .. } = &desc.kind else { continue };
                if provider.text.is_empty() || !is_declared(&provider.text) {
                    continue;
                }
                let is_base =
                    |key: &&Key| glob_matches(&provider.text, &key.0) && glob_matches(&name.text, &key.1);
                let bases = self.declared.keys().filter(is_base);
                edges.extend(bases.map(|base| (base, key_of(firing), desc.span)));
            }
        }
        let reaches = |from: &Key, to: &Key| {
            let (mut seen, mut rest) = (HashSet::new(), vec![from]);
            while let Some(key) = rest.pop() {
                if key == to {
                    return true;
                }
                if seen.insert(key) {
                    rest.extend(edges.iter().filter(|(base, ..)| *base == key).map(|(_, fired, _)| fired));
                }
            }
            false
        };
        edges.iter().filter(|(base, fired, _)| reaches(fired, base)).map(|(.., span)| *span).collect()
    }

    /// The firings of a clause.
    pub(crate) fn fired_by(&self, at: ClauseNumber) -> impl Iterator<Item = &Firing<'a>> {
        let span = self.clause(at).map(|c| c.span);
        let library = self.libraries.get(at.0);
        library.into_iter().flat_map(|l| &l.firings).filter(move |f| Some(f.clause.span) == span)
    }

    /// The clauses that fire a probe.
    pub(crate) fn firing(&self, key: &(String, String)) -> Vec<ClauseNumber> {
        self.firing.get(key).cloned().unwrap_or_default()
    }
}

pub(crate) fn key_of(firing: &Firing<'_>) -> (String, String) {
    (firing.provider.name.text.clone(), probe_name(&firing.probe.name.text))
}

pub(crate) fn too_many_bases(desc: &ast::ProbeDesc) -> Diagnostic {
    let message = format!("probe description {} has more than {BASES_MAX} bases", desc.text);
    Diagnostic::new(Tag::D_PROV_INCOMPAT, desc.span, message)
}

/// The pattern of a description; `None` for an id and where a field is invalid.
pub fn pattern_of(desc: &ast::ProbeDesc) -> Option<Pattern> {
    let ast::ProbeDescKind::Fields { provider, module, function, name } = &desc.kind else { return None };
    Pattern::from_fields([provider, module, function, name].map(|f| f.text.as_str())).ok()
}

/// The names under which a probe is declared.
pub(crate) fn names(probe: &ProbeInfo) -> (String, String) {
    (probe.desc.provider.to_string(), probe.desc.name.to_string())
}

/// What a clause reads and assigns of the variables of its library: names with their scope.
#[derive(Default)]
pub(crate) struct Uses {
    pub(crate) read: BTreeSet<(u8, String)>,
    pub(crate) assigned: BTreeSet<(u8, String)>,
}

/// The variable that an expression is, or of which it is an element or a member.
fn variable(e: &ast::Expr) -> Option<(u8, String)> {
    match &e.kind {
        ast::ExprKind::SelfVar(name) => Some((1, name.text.clone())),
        ast::ExprKind::ThisVar(name) => Some((2, name.text.clone())),
        ast::ExprKind::Ident(name) => Some((0, name.text.clone())),
        ast::ExprKind::Index { base, .. } | ast::ExprKind::Member { base, arrow: false, .. } => {
            variable(base)
        }
        _ => None,
    }
}

impl Uses {
    pub(crate) fn of(clause: &ast::Clause) -> Uses {
        let mut uses = Uses::default();
        let mut rest: Vec<&ast::Expr> = clause.predicate.iter().collect();
        for stmt in clause.body.iter().flat_map(|b| &b.stmts) {
            if let ast::StmtKind::Expr(e) = &stmt.kind {
                rest.push(e);
            }
        }
        while let Some(e) = rest.pop() {
            if let Some(target) = derive::assigned(e).and_then(variable) {
                uses.assigned.insert(target);
            }
            uses.read.extend(variable(e));
            match &e.kind {
                // What is only assigned is not read, except the keys of an element.
                ast::ExprKind::Assign { op: None, target, value } if variable(target).is_some() => {
                    rest.extend(derive::operands(target).into_iter().filter(|e| variable(e).is_none()));
                    rest.push(value);
                }
                _ => rest.extend(derive::operands(e)),
            }
        }
        uses
    }

    /// True if the clause has variables, or statements other than firings.
    pub(crate) fn has_state(&self, clause: &ast::Clause, firings: usize) -> bool {
        let stmts = clause.body.as_ref().map_or(0, |b| b.stmts.len());
        stmts > firings || !self.assigned.is_empty() || self.read.iter().any(|(scope, _)| *scope > 0)
    }
}
