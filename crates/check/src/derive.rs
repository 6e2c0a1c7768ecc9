//! Probes that libraries derive from others.
//!
//! A provider block of a library declares probes; clauses of the library fire them, by calling
//! them. A clause of the program for such a probe is checked once for each of the probe's *bases*:
//! the probes at which the library's clause runs. There it is a clause like any other, for the
//! probes of the base, with the library's condition before its predicate, and with the library's
//! values as its arguments. Its names, its id and what it records are those of the derived probe.
//!
//! ```text
//!  rawtp:::sched_switch /p/ { off__cpu(e); }      the library's clause: only fires
//!  sched:::off-cpu /q/ { trace(args[0]->pr_pid); }
//!
//!  rawtp:::sched_switch /p && q/ { trace(args[0]->pr_pid); }      with e as argument 0
//! ```
//!
//! A clause of a library that has variables, or other statements, is itself in the program, in
//! pieces around the clauses that it fires. The pieces keep on when one of these clauses faults:
//!
//! ```text
//!  B /p/ { s; fires(e); t; }
//!
//!  B          { this->f = 0; this->g = 0; this->g = p; }
//!  B /g/      { s; this->a = e; this->f = 1; }
//!  B /f && q/ { the program's clause, with this->a as argument }
//!  B /g/      { t; }
//! ```
//!
//! The variables of a library are its own, for each program of the session. Only the clauses are in
//! the program that fire a probe which the program describes, or assign a variable that these need.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use diagnostics::{Diagnostic, Span, Tag, nearest};
use probes::{Pattern, ProbeInfo};
use syntax::ast;
use syntax::derive::Firing;
use types::{Kind, TypeId};

use crate::derivations::{BASES_MAX, ClauseNumber, Uses, key_of, names, too_many_bases};
use crate::program::{
    Builtin, ClausePattern, Derived, Expr, ExprKind, IntBuiltin, Place, Scope, Stmt, StmtKind, StrBuiltin,
    VarId, and,
};
use crate::session::{Checker, did_you_mean};
use crate::state::clause::{ArgsContext, ClauseContext, DerivedProbe, DescriptionMatch};
use crate::state::derived::{Base, Fired, Instance, ProgramDerivations};
use crate::state::matching::NO_PROGRAM;
use crate::state::recovery::CheckResult;
use crate::state::scopes::{NameSpace, VarInfo, VarType};

impl<'a> Checker<'a> {
    /// Checks the clauses of the user's own libraries, so that their errors are reported.
    pub(crate) fn libraries_of_user(&mut self) {
        let mine = |c: &Self| (0..c.derivations.libraries.len()).filter(|n| c.is_of_user(*n)).collect();
        let numbers: Vec<usize> = mine(self);
        if numbers.is_empty() {
            return;
        }
        for span in self.derivations.loops() {
            self.derived_from_itself(span);
        }
        let before = self.mark();
        self.matching.number = NO_PROGRAM;
        for (key, number) in self.derivations.declared.clone() {
            let (provider, name) = key.clone();
            let pattern = Pattern { provider, name, ..Pattern::default() };
            let found = self.cx.catalog.matches(&pattern).unwrap_or_default();
            if let Some(probe) = found.into_iter().next().filter(|_| numbers.contains(&number)) {
                self.derived.wanted.insert(key, probe);
            }
        }
        let clauses = |n: usize| self.derivations.libraries.get(n).map_or(0, |l| l.clauses.len());
        let all: BTreeSet<_> =
            numbers.into_iter().flat_map(|n| (0..clauses(n)).map(move |c| (n, c))).collect();
        self.derived.needed.clone_from(&all);
        for at in all {
            for desc in self.derivations.clause(at).map_or(&[][..], |c| &c.probes) {
                self.base_provider(desc);
            }
            self.instances(at);
        }
        self.forget(&before);
        self.derived = ProgramDerivations::default();
    }

    fn derived_from_itself(&mut self, span: Span) {
        let message = "a probe may not be derived from itself";
        self.sink.push(Diagnostic::new(Tag::D_PROV_INCOMPAT, span, message));
    }

    fn is_of_user(&self, library: usize) -> bool {
        self.derivations.libraries.get(library).is_some_and(|l| l.always)
    }

    /// The description of a base names a provider that exists. (The probe need not exist on every
    /// system.)
    fn base_provider(&mut self, desc: &ast::ProbeDesc) {
        let ast::ProbeDescKind::Fields { provider, .. } = &desc.kind else {
            let message = "a clause of a library describes its probes by name";
            self.sink.push(Diagnostic::new(Tag::D_PDESC_INVAL, desc.span, message));
            return;
        };
        let families = self.cx.catalog.families();
        let pattern = Pattern { provider: provider.text.clone(), ..Pattern::default() };
        if !pattern.names_provider() {
            let message = format!("probe description {} must name the provider of the base", desc.text);
            self.sink.push(Diagnostic::new(Tag::D_PDESC_INVAL, desc.span, message));
        } else if !families.iter().any(|f| self.cx.catalog.can_mean(&pattern, f)) {
            let message = format!(
                "probe description {} matches no probe: there is no provider {}",
                desc.text, provider.text
            );
            let near: Vec<String> = families.iter().filter_map(|f| f.name_like(&provider.text)).collect();
            let mut error = Diagnostic::new(Tag::D_PDESC_ZERO, desc.span, message);
            if let Some(word) = nearest(&provider.text, near.iter().map(String::as_str)) {
                error = error.with_help(did_you_mean(word));
            }
            self.sink.push(error);
        }
    }

    /// Prepares what a program needs of the libraries.
    pub(crate) fn derive_for(&mut self, program: &ast::Program) {
        self.derived = ProgramDerivations::default();
        if self.derivations.declared.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for item in &program.items {
            let ast::Item::Clause(clause) = item else { continue };
            for desc in &clause.probes {
                found.extend(self.derived_probes(desc));
            }
        }
        let mut needed: BTreeSet<ClauseNumber> = BTreeSet::new();
        while let Some(probe) = found.pop() {
            let key = names(&probe);
            if self.derived.wanted.insert(key.clone(), probe).is_some() {
                continue;
            }
            if !self.check_parameters(&key) {
                self.derived.wrong.insert(key);
                continue;
            }
            for at in self.derivations.firing(&key) {
                let Some(clause) = self.derivations.clause(at) else { continue };
                self.may_have_bases(clause);
                if !self.is_possible(clause) {
                    continue;
                }
                needed.insert(at);
                for desc in &clause.probes {
                    found.extend(self.derived_bases(desc));
                }
            }
        }
        self.add_clauses_with_state(&mut needed);
        for at in &needed {
            self.derivations.clause(*at).into_iter().for_each(|clause| self.may_have_bases(clause));
        }
        self.derived.needed.clone_from(&needed);
        for at in needed {
            self.instances(at);
        }
    }

    /// Adds the clauses that assign variables which the others read.
    fn add_clauses_with_state(&self, needed: &mut BTreeSet<ClauseNumber>) {
        let numbers: BTreeSet<usize> = needed.iter().map(|(library, _)| *library).collect();
        for number in numbers {
            let Some(library) = self.derivations.libraries.get(number) else { continue };
            let uses: Vec<Uses> = library.clauses.iter().map(|c| Uses::of(c)).collect();
            loop {
                let is_needed = |clause: usize| needed.contains(&(number, clause));
                let mine = uses.iter().enumerate().filter(|(clause, _)| is_needed(*clause));
                let read: BTreeSet<&(u8, String)> = mine.flat_map(|(_, uses)| &uses.read).collect();
                let assigns = |uses: &Uses| uses.assigned.iter().any(|name| read.contains(name));
                let more = (0..uses.len()).find(|c| !is_needed(*c) && uses.get(*c).is_some_and(assigns));
                let Some(more) = more else { break };
                needed.insert((number, more));
            }
        }
    }

    /// The bases of a description: the probes of the kernel that it matches, and the bases of the
    /// derived ones.
    fn bases_of(&mut self, desc: &ast::ProbeDesc) -> Vec<Base> {
        let (pattern, found) = self.bases_matched(desc);
        let pattern = ClausePattern { span: desc.span, pattern };
        let (derived, probes) = self.derivations.split(&found);
        let mut all = Vec::new();
        if !probes.is_empty() {
            all.push(Base { pattern, probes, guard: None, derived: None, order: Vec::new() });
        }
        all.extend(derived.iter().flat_map(|probe| self.bases(probe)));
        all
    }

    /// The bases of a derived probe, in the order of the library.
    fn bases(&mut self, probe: &ProbeInfo) -> Vec<Base> {
        let key = names(probe);
        let mut all = Vec::new();
        for at in self.derivations.firing(&key) {
            if !self.instances(at) {
                continue;
            }
            for (n, instance) in self.derived.instances.get(&at).into_iter().flatten().flatten().enumerate() {
                let mine = instance.fired.iter().enumerate().filter(|(_, fired)| fired.key == key);
                all.extend(mine.map(|(k, fired)| instance.base_of(at, n, k, fired, probe)));
            }
        }
        all
    }

    /// False if a condition `defined(description)` rules a clause out. What it describes is not
    /// looked up then: the list of the kernel's functions takes some milliseconds.
    fn is_possible(&mut self, clause: &ast::Clause) -> bool {
        let conditions = syntax::derive::conditions(clause.predicate.as_ref());
        conditions.iter().all(|c| self.has_probe(c.probe, c.arg) == c.holds)
    }

    /// Checks the clause of a library at each of its bases. False if that is being done: the clause
    /// depends on itself.
    fn instances(&mut self, at: ClauseNumber) -> bool {
        let Some(clause) = self.derivations.clause(at) else { return true };
        // A variable has the type of its first assignment in the library's text. Where a clause is
        // checked, those before it are.
        let before = self.derived.needed.range((at.0, 0)..at).rev();
        let open: Vec<ClauseNumber> =
            before.copied().take_while(|c| !self.derived.instances.contains_key(c)).collect();
        for earlier in open.into_iter().rev() {
            self.instances(earlier);
        }
        match self.derived.instances.get(&at) {
            Some(Some(_)) => return true,
            Some(None) => {
                // Of the user's libraries, this has been reported.
                if !self.is_of_user(at.0) {
                    self.derived_from_itself(clause.span);
                }
                return false;
            }
            None => self.derived.instances.insert(at, None),
        };
        let outside = (
            self.sink.set_region(None),
            std::mem::take(&mut self.expansion.depth),
            std::mem::take(&mut self.args),
            self.scopes.space.replace(NameSpace::Library(format!("%{}.{}", self.matching.origin(), at.0))),
        );
        if self.derived.with_locals.insert(at.0) && self.matching.later_bases().is_none() {
            self.locals_needed(at.0).into_iter().for_each(|d| self.declaration(d));
        }
        let mut all = Vec::new();
        let probes: &[ast::ProbeDesc] = if self.is_possible(clause) { &clause.probes } else { &[] };
        'all: for desc in probes {
            for base in self.bases_of(desc) {
                let number = all.len();
                if number == BASES_MAX {
                    self.sink.push(too_many_bases(desc));
                    // What is derived from it would only repeat the message.
                    all.clear();
                    break 'all;
                }
                let (instance, _) = self.collect_attributes(|c| {
                    c.start_clause();
                    c.with_bound(HashMap::new(), |c| c.instance((at, number), clause, base))
                });
                all.extend(instance.ok().flatten());
            }
        }
        self.sink.set_region(outside.0);
        (self.expansion.depth, self.args, self.scopes.space) = (outside.1, outside.2, outside.3);
        self.derived.instances.insert(at, Some(all));
        true
    }

    /// The declarations of a library whose variables the clauses use that the program needs. All of
    /// them where bases can come later: other clauses are needed at these.
    fn locals_needed(&mut self, library: usize) -> Vec<&'a ast::Declaration> {
        let key = (self.matching.number, library);
        let Some(clauses) = self.derivations.libraries.get(library) else { return Vec::new() };
        let needed = self.derived.needed.range((library, 0)..(library + 1, 0)).map(|(_, clause)| *clause);
        let used = match self.matching.record.locals.get(&key) {
            Some(known) => known.clone(),
            None if self.cx.options.zdefs || self.matching.number == NO_PROGRAM => {
                (0..clauses.locals.len()).collect()
            }
            None => clauses.locals_of(needed),
        };
        let declarations = used.iter().filter_map(|n| clauses.locals.get(*n)).copied().collect();
        if self.matching.number != NO_PROGRAM {
            self.matching.record.locals.insert(key, used);
        }
        declarations
    }

    fn instance(
        &mut self,
        (at, number): (ClauseNumber, usize),
        clause: &ast::Clause,
        base: Base,
    ) -> CheckResult<Option<Instance>> {
        let probes: Arc<[ProbeInfo]> = match &base.derived {
            Some(derived) => Arc::new([derived.probe.clone()]),
            None => base.probes.clone(),
        };
        let described = Some(DescriptionMatch { pattern: base.pattern.clone(), probes: probes.clone() });
        let firing = base.derived.clone();
        self.args = ArgsContext { described, probes, firing, ..ArgsContext::default() };
        let mut predicate = match &clause.predicate {
            Some(predicate) => Some(self.predicate(predicate)?),
            None => None,
        };
        match predicate.as_ref().and_then(Expr::as_const) {
            Some(0) => return Ok(None),
            Some(_) => predicate = None,
            None => {}
        }
        let calls: Vec<(usize, (String, String))> =
            self.derivations.fired_by(at).map(|f| (f.stmt, key_of(f))).collect();
        let in_pieces = Uses::of(clause).has_state(clause, calls.len());
        let hidden = |what: &str| format!("%{what}{}_{}_{number}", at.0, at.1);
        let holds = in_pieces.then(|| self.new_hidden(&hidden("holds"), TypeId::INT)).flatten();
        let (mut fired, mut before): (Vec<Fired>, Vec<Stmt>) = Default::default();
        for (n, stmt) in clause.body.iter().flat_map(|b| &b.stmts).enumerate() {
            let Some((_, key)) = calls.iter().find(|(at, _)| *at == n) else {
                before.extend(self.library_statement(stmt, before.len())?);
                continue;
            };
            let Some(firing) = self.derivations.fired_by(at).find(|f| f.stmt == n).copied() else { continue };
            if !self.derived.wanted.contains_key(key) {
                continue;
            }
            let natives: Arc<[Expr]> = self.natives(&firing)?.into();
            let mut stored = None;
            if in_pieces {
                let name = format!("{}_{n}", hidden("fires"));
                let Some(fires) = self.new_hidden(&name, TypeId::INT) else { continue };
                let each = natives.iter().enumerate();
                let all = each.map(|(i, e)| self.new_hidden(&format!("{name}_{i}"), e.ty));
                let Some(all) = all.collect::<Option<Vec<_>>>() else {
                    let message = "the argument is no integer, pointer or string";
                    return self.fail(Tag::D_PROV_INCOMPAT, firing.call.span, message);
                };
                stored = Some((fires, all));
            }
            fired.push(Fired { key: key.clone(), before: std::mem::take(&mut before), natives, stored });
        }
        Ok(Some(Instance { base, predicate, fired, rest: before, holds }))
    }

    /// A clause-local variable with a name that no program can use. `None` if a value of this type
    /// cannot be stored.
    fn new_hidden(&mut self, name: &str, ty: TypeId) -> Option<VarId> {
        let repr = self.repr(ty)?;
        Some(self.scopes.add_var(Scope::Clause, name, VarType::Known(ty, repr), None))
    }

    /// A statement of a library's clause. It may only change variables of the library.
    fn library_statement(&mut self, stmt: &ast::Stmt, number: usize) -> CheckResult<Option<Stmt>> {
        const ONLY: &str = "a clause of a library may only assign its own variables, test and fire";
        let e = match &stmt.kind {
            ast::StmtKind::Empty => return Ok(None),
            ast::StmtKind::Expr(e) => e,
            ast::StmtKind::If { .. } => return self.fail(Tag::D_PROV_INCOMPAT, stmt.span, ONLY),
        };
        let kind = self.statement(e)?;
        if self.clause.destructive || !matches!(kind, None | Some(StmtKind::Expr(_))) {
            return self.fail(Tag::D_PROV_INCOMPAT, stmt.span, ONLY);
        }
        let action = u16::try_from(number + 1).unwrap_or(u16::MAX);
        Ok(kind.map(|kind| Stmt { span: stmt.span, action, kind }))
    }

    /// The values of the native arguments, as their declaration has them.
    fn natives(&mut self, firing: &Firing<'_>) -> CheckResult<Vec<Expr>> {
        let list = &firing.probe.native.list;
        let mut types = Vec::with_capacity(list.len());
        for param in list {
            let ty = self.param(param)?;
            if !(self.types.is_void(ty) && list.len() == 1) {
                types.push(ty);
            }
        }
        let name = &firing.probe.name.text;
        if types.len() != firing.args.len() {
            let message = format!(
                "{name}( ) prototype mismatch: {} args passed, {} expected",
                firing.args.len(),
                types.len()
            );
            return self.fail(Tag::D_PROTO_LEN, firing.call.span, message);
        }
        let mut values = Vec::with_capacity(types.len());
        for (i, (ty, arg)) in types.into_iter().zip(firing.args).enumerate() {
            let value = self.value(arg)?;
            let pointers = self.types.is_pointer(ty) && self.types.is_pointer(value.ty);
            if !self.fits(ty, &value) && !pointers {
                let message = format!(
                    "{name}( ) argument #{} is incompatible with prototype:\n\tprototype: {}\n\t argument: {}",
                    i + 1,
                    self.name(ty),
                    self.name(value.ty)
                );
                return self.fail(Tag::D_PROTO_ARG, arg.span, message);
            }
            values.push(if pointers { Expr { ty, ..value } } else { self.coerce(value, ty) });
        }
        Ok(values)
    }

    /// Argument `n` of the derived probe whose clause is checked; `None` in other clauses.
    pub(crate) fn derived_arg(&mut self, n: u8, ty: TypeId, span: Span) -> Option<Expr> {
        let derived = self.args.firing.clone()?;
        let Some(value) = derived.natives.get(usize::from(n)).cloned() else {
            return Some(self.int(0, ty, span));
        };
        if let ExprKind::Read(Place::Var(id)) = value.kind {
            self.derived.used.insert(id);
        }
        let value = Expr { span, ..value };
        if self.types.is_string(value.ty) && !self.types.is_string(ty) {
            let message = format!("arg{n} of {} is a string: use args[ ]", derived.probe.desc);
            self.sink.push(Diagnostic::new(Tag::D_ARGS_TYPE, span, message));
            return Some(self.int(0, ty, span));
        }
        Some(match self.types.base_kind(ty) {
            Kind::Int(_) | Kind::Enum { .. } if !self.types.is_string(value.ty) => self.convert(value, ty),
            _ => Expr { ty, ..value },
        })
    }

    /// A built-in variable in a clause of a derived probe, where it is another than in clauses of
    /// the base.
    pub(crate) fn derived_builtin(&mut self, builtin: Builtin, ty: TypeId, span: Span) -> Option<Expr> {
        if let Builtin::Int(IntBuiltin::Arg(n)) = builtin {
            return self.derived_arg(n, ty, span);
        }
        let ProbeInfo { id, desc } = &self.args.firing.as_ref()?.probe;
        let text = match builtin {
            Builtin::Int(IntBuiltin::ProbeId) => return Some(self.int(i64::from(id.0), ty, span)),
            Builtin::Str(StrBuiltin::ProbeProv) => &desc.provider,
            Builtin::Str(StrBuiltin::ProbeMod) => &desc.module,
            Builtin::Str(StrBuiltin::ProbeFunc) => &desc.function,
            Builtin::Str(StrBuiltin::ProbeName) => &desc.name,
            _ => return None,
        };
        Some(Expr { kind: ExprKind::Str(text.as_bytes().to_vec()), ty: TypeId::STRING, span })
    }

    /// Checks a clause at the bases of each derived probe that its descriptions match. What remains
    /// of the descriptions is returned.
    pub(crate) fn clause_of_derived(
        &mut self,
        clause: &ast::Clause,
        program: usize,
        described: Vec<DescriptionMatch>,
    ) -> Vec<DescriptionMatch> {
        if self.derivations.declared.is_empty() {
            return described;
        }
        let mut seen = HashSet::new();
        let mut rest = Vec::new();
        let faults = self.sink.iter().len();
        let mut all: Vec<ProbeInfo> = Vec::new();
        for mut d in described.clone() {
            let (derived, plain) = self.derivations.split(&d.probes);
            let only_derived = plain.is_empty() && !derived.is_empty();
            all.extend(derived.into_iter().filter(|p| seen.insert(p.id)));
            if !only_derived {
                d.probes = plain;
                rest.push(d);
            }
        }
        if all.iter().any(|probe| self.derived.wrong.contains(&names(probe))) {
            return Vec::new();
        }
        for probe in all {
            let mine = described.iter().filter(|d| d.probes.iter().any(|p| p.id == probe.id));
            let patterns: Vec<ClausePattern> = mine.map(|d| d.pattern.clone()).collect();
            let bases = self.bases(&probe);
            if bases.is_empty() && self.sink.is_empty() && !self.cx.options.zdefs {
                let at = patterns.first().map_or(clause.span, |p| p.span);
                let message = format!("probe {} cannot fire: its library is not used", probe.desc);
                self.sink.push(Diagnostic::new(Tag::D_PDESC_ZERO, at, message));
            }
            for (n, base) in bases.into_iter().enumerate() {
                self.at_base(clause, program, (&probe, &patterns), base, n > 0);
                if self.sink.iter().len() > faults {
                    return Vec::new();
                }
            }
        }
        rest
    }

    /// Checks a clause of the program at one base of a derived probe.
    fn at_base(
        &mut self,
        clause: &ast::Clause,
        program: usize,
        (probe, patterns): (&ProbeInfo, &[ClausePattern]),
        base: Base,
        again: bool,
    ) {
        let probes: Arc<[ProbeInfo]> = Arc::new([probe.clone()]);
        let described =
            patterns.first().map(|p| DescriptionMatch { pattern: p.clone(), probes: probes.clone() });
        self.args = ArgsContext { described, probes, firing: base.derived, ..ArgsContext::default() };
        self.scopes.space = Some(NameSpace::Locals(format!("%{}:{}", probe.desc.provider, probe.desc.name)));
        self.share_locals();
        let derived = Derived { probe: probe.clone(), order: base.order, of_library: false };
        let whole = ClauseContext {
            span: clause.span,
            program,
            patterns: patterns.to_vec(),
            probes: base.probes,
            derived: Some(derived),
            guard: base.guard,
            again,
        };
        self.clause_for(clause, whole);
        self.scopes.space = None;
        self.args = ArgsContext::default();
    }

    /// Each derived probe has its own values of the clause-local variables, with the types that are
    /// known.
    fn share_locals(&mut self) {
        let own = |v: &&VarInfo| v.scope == Scope::Clause && !v.name.starts_with('%');
        let known: Vec<_> = self.scopes.vars.iter().filter(own).map(|v| (v.name.clone(), v.ty)).collect();
        for (name, ty) in known {
            if self.scopes.var(Scope::Clause, &name).is_none() {
                self.scopes.add_var(Scope::Clause, &name, ty, None);
            }
        }
    }

    /// Adds the pieces of the libraries' clauses to those of a program, which begin at `from`, and
    /// puts all in the order in which they run.
    pub(crate) fn end_of_derived(&mut self, from: usize, program: usize) {
        let instances = std::mem::take(&mut self.derived.instances);
        for (at, all) in instances {
            for (n, instance) in all.into_iter().flatten().enumerate() {
                self.pieces((at, n), program, instance);
            }
        }
        if let Some(clauses) = self.clauses.get_mut(from..)
            && clauses.iter().any(|c| c.derived.is_some())
        {
            clauses.sort_by(|a, b| match (&a.derived, &b.derived) {
                (Some(a), Some(b)) => a.order.cmp(&b.order),
                (a, b) => b.is_some().cmp(&a.is_some()),
            });
        }
    }

    /// The pieces of a library's clause that has variables.
    fn pieces(&mut self, (at, n): (ClauseNumber, usize), program: usize, instance: Instance) {
        let (Some(holds), Some(clause)) = (instance.holds, self.derivations.clause(at)) else { return };
        let served = instance.fired.first().and_then(|f| self.derived.wanted.get(&f.key));
        let Some(probe) = served.or(self.derived.wanted.values().next()).cloned() else { return };
        let span = clause.span;
        let read = |id| Expr { kind: ExprKind::Read(Place::Var(id)), ty: TypeId::INT, span };
        let add = |c: &mut Self, k: u32, predicate: Option<Expr>, body: Vec<Stmt>| {
            let order = piece(&instance.base, at, n, k, 0);
            let whole = ClauseContext {
                span,
                program,
                patterns: vec![instance.base.pattern.clone()],
                probes: instance.base.probes.clone(),
                derived: Some(Derived { probe: probe.clone(), order, of_library: true }),
                guard: None,
                again: true,
            };
            c.start_clause();
            c.end_clause(&whole, span, predicate, body, false);
        };
        let mut first: Vec<Stmt> = Vec::new();
        let flags = instance.fired.iter().filter_map(|f| f.stored.as_ref()).map(|(fires, _)| *fires);
        for flag in flags.chain([holds]) {
            first.push(self.set(flag, self.int(0, TypeId::INT, span), span));
        }
        let all = and(instance.base.guard.clone(), instance.predicate.clone(), span);
        let value = all.map_or_else(
            || self.int(1, TypeId::INT, span),
            |e| Expr { kind: ExprKind::Truth(Box::new(e)), ty: TypeId::INT, span },
        );
        first.push(self.set(holds, value, span));
        add(self, 0, None, first);
        for (k, fired) in (1..).zip(instance.fired) {
            let mut body = fired.before;
            let Some((fires, stored)) = fired.stored else { continue };
            for (id, native) in stored.into_iter().zip(fired.natives.iter()) {
                if self.derived.used.contains(&id) {
                    body.push(self.set(id, native.clone(), span));
                }
            }
            body.push(self.set(fires, self.int(1, TypeId::INT, span), span));
            add(self, k, Some(read(holds)), body);
        }
        if !instance.rest.is_empty() {
            add(self, u32::MAX, Some(read(holds)), instance.rest);
        }
    }
}

impl Instance {
    /// The base of a probe that this clause fires.
    fn base_of(&self, at: ClauseNumber, n: usize, k: usize, fired: &Fired, probe: &ProbeInfo) -> Base {
        let Base { pattern, probes, guard, .. } = self.base.clone();
        let span = pattern.span;
        let read = |id: VarId, ty| Expr { kind: ExprKind::Read(Place::Var(id)), ty, span };
        let (guard, natives) = match &fired.stored {
            None => (and(guard, self.predicate.clone(), span), fired.natives.clone()),
            Some((fires, stored)) => {
                let each = stored.iter().zip(fired.natives.iter());
                (Some(read(*fires, TypeId::INT)), each.map(|(id, native)| read(*id, native.ty)).collect())
            }
        };
        let order = piece(&self.base, at, n, k as u32 + 1, 1);
        Base { pattern, probes, guard, derived: Some(DerivedProbe { probe: probe.clone(), natives }), order }
    }
}

/// The place of a piece of a library's clause: `k` counts the firings, and 1 in `clauses` is that
/// of the clauses that are fired.
fn piece(base: &Base, at: ClauseNumber, n: usize, k: u32, clauses: u32) -> Vec<u32> {
    let mut order = base.order.clone();
    order.extend([at.0 as u32, at.1 as u32, n as u32, k, clauses]);
    order
}
