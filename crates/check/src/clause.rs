//! Clauses: descriptions, predicate, statements.

use std::sync::Arc;

use diagnostics::{Diagnostic, Few, Span, Tag, nearest};
use plane::desc::{Action, ProcessFields, RecordDesc};
use probes::{FIELD_LIMITS, Family, FieldKind, MatchError, Pattern, ProbeDesc, ProbeInfo, is_glob};
use syntax::ast;

use types::TypeId;

use crate::program::{
    Builtin, Clause, ClausePattern, Expr, ExprKind, IntBuiltin, Logic, Relation, Scope, Stmt, StmtKind,
};
use crate::session::{Checker, did_you_mean};
use crate::state::clause::{ArgsContext, ClauseContext, ClauseState, DescriptionMatch};
use crate::state::recovery::CheckResult;
use crate::state::scopes::Sizes;
use crate::tables::{FunctionKind, unsupported_provider};
use crate::{foreign, hints, program};

/// Which part of a clause is checked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The actions.
    ActionsFirst,
    /// The predicate.
    PredicateFirst,
}

/// Sizes of the tables, for a rollback.
pub(crate) struct Mark {
    scopes: Sizes,
    clauses: usize,
    faults: usize,
}

/// The probes of several descriptions, without duplicates, by id.
fn distinct_probes(described: &[DescriptionMatch]) -> Arc<[ProbeInfo]> {
    if let [only] = described {
        return only.probes.clone();
    }
    let mut all: Vec<ProbeInfo> = described.iter().flat_map(|d| d.probes.iter().cloned()).collect();
    all.sort_by_key(|p| p.id);
    all.dedup_by_key(|p| p.id);
    all.into()
}

/// The descriptions of a clause, each once.
fn patterns_of(described: &[DescriptionMatch]) -> Vec<ClausePattern> {
    let mut all: Vec<ClausePattern> = described.iter().map(|d| d.pattern.clone()).collect();
    all.dedup_by_key(|p| p.span);
    all
}

impl Checker<'_> {
    /// Checks a clause. If its descriptions give `args[]` different meanings, the clause is checked
    /// once for each meaning. Each probe is in one of the resulting clauses.
    pub(crate) fn clause(&mut self, clause: &ast::Clause, program: usize) {
        let described = self.descriptions(&clause.probes, program);
        self.recovery.wrong_description = described.len() < clause.probes.len();
        let any = !described.is_empty();
        let described = self.clause_of_derived(clause, program, described);
        if any && described.is_empty() || self.matching.later_bases().is_some() {
            self.recovery.wrong_description = false;
            return;
        }
        let deferral = self.cx.options.zdefs && described.iter().all(|d| d.probes.is_empty());
        match deferral {
            true => self.clause_without_probes(clause, program, described),
            false => self.clause_with(clause, program, described),
        }
        self.recovery.wrong_description = false;
    }

    pub(crate) fn clause_with(&mut self, clause: &ast::Clause, program: usize, rest: Vec<DescriptionMatch>) {
        // Programs of one name may describe their arguments otherwise: each description is one for
        // each definition.
        let parts = |d: DescriptionMatch| {
            let probes = self.by_definition(&d.probes);
            probes.into_iter().map(move |probes| DescriptionMatch { pattern: d.pattern.clone(), probes })
        };
        let whole = rest.len();
        let mut rest: Vec<DescriptionMatch> = rest.into_iter().flat_map(parts).collect();
        let mut several = rest.len() > whole;
        let (mut wrong, mut any, mut ordered) = (Vec::new(), false, false);
        loop {
            if self.stops() {
                return self.args = ArgsContext::default();
            }
            let patterns = patterns_of(&rest);
            let (span, probes) = (clause.span, distinct_probes(&rest));
            let whole =
                ClauseContext { span, program, patterns, probes, derived: None, guard: None, again: false };
            let first = rest.iter().find(|d| !d.probes.is_empty()).or(rest.first()).cloned();
            let (from, faults, before) = (self.clauses.len(), self.sink.iter().len(), self.mark());
            let family = self.can_match_family(&whole.patterns);
            let probes = whole.probes.clone();
            // Also where no probe of the rest is: `argN` of the others differs.
            let reordered = ordered.then_some(true);
            self.args = ArgsContext { described: first, probes, family, reordered, ..ArgsContext::default() };
            self.clause_for(clause, whole);
            let described = self.args.described.take();
            let scoped =
                !self.args.used.is_empty() || !self.args.raw.is_empty() || !self.args.objects.is_empty();
            let Some(first) = described.filter(|_| scoped) else { return self.args = ArgsContext::default() };
            if !self.args.raw.is_empty() && !ordered {
                ordered = true;
                let mut parts = Vec::new();
                for d in &rest {
                    let part = |probes| DescriptionMatch { pattern: d.pattern.clone(), probes };
                    parts.extend(self.by_order(&d.probes).into_iter().map(part));
                }
                if parts.len() > rest.len() {
                    // Nor do all probes of a definition have the same `argN`.
                    self.args = ArgsContext::default();
                    self.roll_back(&before);
                    rest = parts;
                    continue;
                }
            }
            let failed = self.sink.iter().len() > faults;
            if failed
                && let parts = self.by_file(&first.probes)
                && parts.len() > 1
            {
                // Nor do all files of a glob have the same arguments.
                self.args = ArgsContext::default();
                self.roll_back(&before);
                let part = |probes| DescriptionMatch { pattern: first.pattern.clone(), probes };
                rest.retain(|d| !d.is(&first));
                rest.splice(0..0, parts.into_iter().map(part));
                several = true;
                continue;
            }
            let used = self.args.used.clone();
            let (mine, mut others): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|d| self.same_args(&first, d, &used));
            self.args = ArgsContext::default();
            if failed && several {
                // What one program says of itself is no error of a clause that others can serve.
                let probe = first.probes.first().map(|p| p.desc.clone());
                wrong.push((probe, self.roll_back(&before)));
            }
            any |= !failed;
            if others.is_empty() || failed && !several {
                return self.definitions_left_out(wrong, any);
            }
            let probes = distinct_probes(&mine);
            for clause in self.clauses.get_mut(from..).unwrap_or_default() {
                clause.patterns = patterns_of(&mine);
                clause.probes = probes.clone();
            }
            for other in &mut others {
                let is_mine = |p: &ProbeInfo| probes.binary_search_by_key(&p.id, |q| q.id).is_ok();
                other.probes = other.probes.iter().filter(|p| !is_mine(p)).cloned().collect();
            }
            rest = others;
        }
    }

    /// Reports the probes for which a clause is wrong, if it is right for others; else what is
    /// wrong for the first ones.
    fn definitions_left_out(&mut self, wrong: Vec<(Option<Arc<ProbeDesc>>, Vec<Diagnostic>)>, any: bool) {
        if any {
            // A program may have any number of them.
            let mut said = Few::default();
            wrong
                .iter()
                .filter_map(|(probe, faults)| self.left_out(probe.as_deref()?, faults))
                .for_each(|t| said.add(t));
            self.defined.messages.extend(
                said.take(|more| {
                    format!("probes of {more} more kinds of files are left out, as those before")
                }),
            );
        } else if let Some((_, faults)) = wrong.into_iter().next() {
            faults.into_iter().for_each(|fault| self.sink.push(fault));
        }
    }

    /// Checks a clause for these probes. As in the original, the actions are checked first, so that
    /// the predicate may use a variable that only the actions define. If the actions lack a
    /// definition, the predicate may contain it, and is checked first instead.
    pub(crate) fn clause_for(&mut self, clause: &ast::Clause, whole: ClauseContext) {
        if clause.predicate.is_none() {
            return self.clause_in_order(clause, &whole, Order::ActionsFirst);
        }
        let before = self.mark();
        self.clause_in_order(clause, &whole, Order::ActionsFirst);
        let undefined = |d: &Diagnostic| matches!(d.tag, Tag::D_IDENT_UNDEF | Tag::D_VAR_UNDEF);
        if !self.sink.iter().skip(before.faults).any(undefined) {
            return;
        }
        let faults = self.roll_back(&before);
        self.clause_in_order(clause, &whole, Order::PredicateFirst);
        // If both orders fail, the errors that they have in common are reported.
        if self.sink.iter().len() - before.faults > faults.len() {
            self.sink.split_off(before.faults);
            faults.into_iter().for_each(|f| self.sink.push(f));
        }
    }

    fn clause_in_order(&mut self, clause: &ast::Clause, whole: &ClauseContext, order: Order) {
        let stmts = clause.body.as_ref().map_or(&[][..], |b| &b.stmts);
        self.start_clause();
        if stmts.iter().any(|s| matches!(s.kind, ast::StmtKind::If { .. })) {
            self.branches(clause, whole, stmts, order);
        } else if order == Order::ActionsFirst {
            let (body, empty) = self.action_list(|c| c.statements(stmts));
            let predicate = self.full_predicate(clause, whole);
            self.end_clause(whole, whole.span, predicate, body, empty);
        } else {
            let predicate = self.full_predicate(clause, whole);
            let (body, empty) = self.action_list(|c| c.statements(stmts));
            self.end_clause(whole, whole.span, predicate, body, empty);
        }
    }

    /// Errors refer to the action list.
    pub(crate) fn action_list<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.sink.set_region(Some("action list"));
        let checked = check(self);
        self.sink.set_region(outer);
        checked
    }

    /// The predicate, extended by options.
    pub(crate) fn full_predicate(&mut self, clause: &ast::Clause, whole: &ClauseContext) -> Option<Expr> {
        let outer = self.sink.set_region(Some("predicate"));
        let predicate = clause.predicate.as_ref().and_then(|p| self.predicate(p).ok());
        self.sink.set_region(outer);
        let predicate = program::and(whole.guard.clone(), predicate, clause.span);
        self.restrict_to_cpu(clause.span, predicate, &whole.probes)
    }

    /// The current sizes of the tables.
    pub(crate) fn mark(&self) -> Mark {
        Mark { scopes: self.scopes.sizes(), clauses: self.clauses.len(), faults: self.sink.iter().len() }
    }

    /// Removes what was added after a mark, and returns the errors.
    pub(crate) fn roll_back(&mut self, to: &Mark) -> Vec<Diagnostic> {
        self.forget(to);
        self.sink.split_off(to.faults)
    }

    /// Removes what was added after a mark, except for the errors: see `Scopes::forget`.
    pub(crate) fn forget(&mut self, to: &Mark) -> Vec<(Option<Scope>, String)> {
        self.clauses.truncate(to.clauses);
        self.scopes.forget(&to.scopes)
    }

    /// Starts a clause: later recorded values belong to it.
    pub(crate) fn start_clause(&mut self) {
        self.clause = ClauseState::default();
    }

    /// Checks statements. The flag is true if there was none.
    pub(crate) fn statements(&mut self, stmts: &[ast::Stmt]) -> (Vec<Stmt>, bool) {
        let mut body = Vec::new();
        let mut empty = true;
        for stmt in stmts {
            let ast::StmtKind::Expr(e) = &stmt.kind else { continue };
            let action = u16::try_from(body.len() + 1).unwrap_or(u16::MAX);
            let before = std::mem::take(&mut self.clause.destructive);
            if let Ok(Some(kind)) = self.statement(e)
                && self.may_follow(&kind, self.clause.destructive, e.span).is_ok()
            {
                body.push(Stmt { span: stmt.span, action, kind });
            }
            self.clause.destructive |= before;
            empty = false;
        }
        if let [Stmt { kind: StmtKind::Speculate(_), .. }] = body[..] {
            // speculate() alone makes the default action speculative.
            self.clause.actions.push(Action::None);
        }
        (body, empty)
    }

    /// Makes a clause, or a part of one, from what was collected since [`Checker::start_clause`].
    pub(crate) fn end_clause(
        &mut self,
        whole: &ClauseContext,
        span: Span,
        predicate: Option<Expr>,
        body: Vec<Stmt>,
        empty: bool,
    ) {
        let state = &mut self.clause;
        if empty {
            state.actions.push(Action::None);
            state.names.push(Vec::new());
        }
        let actions = std::mem::take(&mut state.actions);
        let names = std::mem::take(&mut state.names);
        let record = (!actions.is_empty()).then(|| {
            let process = self.cx.options.process_ids.then(|| ProcessFields {
                pid: state.layout.push(ProcessFields::ID),
                tid: state.layout.push(ProcessFields::ID),
            });
            RecordDesc { size: state.layout.size(), actions, process }
        });
        let (attributes, destructive) = (state.attributes, state.destructive);
        self.clauses.push(Clause {
            span,
            program: whole.program,
            part: whole.again || whole.span != span,
            patterns: whole.patterns.clone(),
            probes: whole.probes.clone(),
            predicate,
            body,
            record,
            names,
            attributes,
            destructive,
            derived: whole.derived.clone(),
        });
    }

    pub(crate) fn predicate(&mut self, e: &ast::Expr) -> CheckResult<Expr> {
        let value = match e.kind {
            // It has a dynamic type.
            ast::ExprKind::Agg(_) => Expr { kind: ExprKind::Bound(u32::MAX), ty: TypeId::DYN, span: e.span },
            _ => self.typed(e)?,
        };
        self.scalar(value, Tag::D_PRED_SCALAR, e.span, "predicate result must be of scalar type")
    }

    /// `-xcpu`: restricts a clause to that CPU. The probes of the session itself fire on the CPU on
    /// which `dtrace` runs.
    fn restrict_to_cpu(&self, span: Span, predicate: Option<Expr>, probes: &[ProbeInfo]) -> Option<Expr> {
        let ours = |p: &ProbeInfo| &*p.desc.provider == "dtrace";
        let Some(cpu) = self.cx.options.cpu.filter(|_| !probes.iter().all(ours)) else { return predicate };
        let both = |l: Expr, logic, r: Expr| Expr {
            kind: ExprKind::Logic(logic, Box::new(l), Box::new(r)),
            ty: TypeId::INT,
            span,
        };
        let compare = |what, value: u64| {
            let left = Expr { kind: ExprKind::Builtin(Builtin::Int(what)), ty: TypeId::INT, span };
            let right = self.int(value as i64, TypeId::INT, span);
            let (relation, signed) = (Relation::Eq, false);
            let kind = ExprKind::Compare { relation, signed, left: Box::new(left), right: Box::new(right) };
            Expr { kind, ty: TypeId::INT, span }
        };
        let here = compare(IntBuiltin::Cpu, cpu);
        let here = probes
            .iter()
            .filter(|p| ours(p))
            .fold(here, |here, p| both(compare(IntBuiltin::ProbeId, u64::from(p.id.0)), Logic::Or, here));
        Some(match predicate {
            Some(predicate) => both(here, Logic::And, predicate),
            None => here,
        })
    }

    /// The remaining expression after constant conditions have selected their branches.
    fn selected<'e>(&mut self, mut e: &'e ast::Expr) -> CheckResult<&'e ast::Expr> {
        while let ast::ExprKind::Cond { cond, then, otherwise } = &e.kind {
            match self.value(cond)?.as_const() {
                Some(0) => e = otherwise,
                Some(_) => e = then,
                None => break,
            }
        }
        Ok(e)
    }

    /// Checks a statement; `None` if nothing remains to be executed.
    pub(crate) fn statement(&mut self, e: &ast::Expr) -> CheckResult<Option<StmtKind>> {
        let e = self.selected(e)?;
        match &e.kind {
            ast::ExprKind::Call { callee, args } => {
                let row = self.callee(callee)?;
                match row.kind {
                    FunctionKind::Action(kind) => {
                        return self.action(row, kind, args, e.span).map(Some);
                    }
                    FunctionKind::ActionNotOnLinux(why) => {
                        let message = format!("{}() is not available on Linux", row.name);
                        return self.fail_with(Tag::D_UNSUPPORTED, e.span, message, Some(why.into()));
                    }
                    _ => {}
                }
            }
            ast::ExprKind::Assign { op, target, value } => {
                if let ast::ExprKind::Agg(agg) = &target.kind {
                    if op.is_some() {
                        let message = format!(
                            "@{} must be assigned the result of an aggregating function",
                            agg.name.text
                        );
                        return self.fail(Tag::D_AGG_FUNC, e.span, message);
                    }
                    return self.aggregate(agg, value, e.span).map(Some);
                }
            }
            ast::ExprKind::Agg(agg) => {
                let message = format!("expression has null effect: @{}", agg.name.text);
                return self.fail(Tag::D_AGG_NULL, e.span, message);
            }
            _ => {}
        }
        let value = self.assigned(e)?;
        let value = self.assigned_translated(value, e.span)?;
        // A constant alone has no effect. It may remain of a dropped branch of `?:`.
        if value.as_const().is_some() {
            return Ok(None);
        }
        Ok(Some(StmtKind::Expr(value)))
    }

    fn descriptions(&mut self, descs: &[ast::ProbeDesc], program: usize) -> Vec<DescriptionMatch> {
        let mut all = Vec::with_capacity(descs.len());
        for desc in descs {
            if let Ok((pattern, mut probes)) = self.description(desc, program) {
                if !probes.iter().all(|p| self.may_describe(program, p)) {
                    probes = probes.iter().filter(|p| self.may_describe(program, p)).cloned().collect();
                }
                let pattern = ClausePattern { span: desc.span, pattern };
                all.push(DescriptionMatch { pattern, probes });
            }
        }
        all
    }

    fn description(
        &mut self,
        desc: &ast::ProbeDesc,
        program: usize,
    ) -> CheckResult<(Pattern, Arc<[ProbeInfo]>)> {
        let fields = match &desc.kind {
            ast::ProbeDescKind::Id(id) => {
                return match self.probe_of_id(*id) {
                    Some(probe) => Ok((Pattern::exact(&probe.desc), Arc::new([probe]))),
                    None => {
                        let message = format!("invalid probe identifier {id}: Unknown probe identifier");
                        self.fail(Tag::D_PDESC_INVAL, desc.span, message)
                    }
                };
            }
            ast::ProbeDescKind::Fields { provider, module, function, name } => {
                [provider, module, function, name].map(|f| f.text.as_str())
            }
        };
        let pattern = match Pattern::from_fields(fields) {
            Ok(pattern) => pattern,
            Err(error) => return self.fail(Tag::D_PDESC_INVAL, desc.span, error.to_string()),
        };
        let known = self.matching.known(program, &pattern);
        if let Some(known) = known.or_else(|| self.matching.matched.get(&pattern).cloned()) {
            self.matching.record_described(program, &pattern, &known);
            return Ok((pattern, known));
        }
        if let Some(error) = probes::misnamed(&pattern, self.cx.catalog) {
            return self.no_match(&pattern, Some(error), desc);
        }
        let found = match self.cx.catalog.matches(&pattern) {
            // The probe of a library is absent here: a program for several kernels may describe it.
            Err(_) if self.cx.options.zdefs && self.derivations.may_mean(&pattern) => Ok(Vec::new()),
            Err(e) if self.cx.options.zdefs && e.may_come => Ok(Vec::new()),
            found => found,
        };
        match found {
            Ok(found) if found.is_empty() && !self.cx.options.zdefs => self.no_match(&pattern, None, desc),
            Ok(found) => {
                let found: Arc<[ProbeInfo]> = found.into();
                self.matching.matched.insert(pattern.clone(), found.clone());
                self.matching.record_described(program, &pattern, &found);
                Ok((pattern, found))
            }
            Err(error) => self.no_match(&pattern, Some(error), desc),
        }
    }

    /// Says that a description matches nothing: why, if the catalog knows, and what may have been
    /// meant.
    fn no_match<T>(
        &mut self,
        pattern: &Pattern,
        error: Option<MatchError>,
        desc: &ast::ProbeDesc,
    ) -> CheckResult<T> {
        let catalog = self.cx.catalog;
        let is_missing = || catalog.provider(&pattern.provider).is_none();
        let unsupported = unsupported_provider(&pattern.provider).filter(|_| is_missing());
        let error = error.filter(|_| unsupported.is_none());
        let is_explained = error.is_some();
        let of_processes = || {
            let families = catalog.families();
            let is_family = |f: &&Family| {
                let name = pattern.provider.as_str();
                f.is_of_processes() && !f.is_of_any() && (f.prefix() == name || f.is_of_several(name))
            };
            let name = families.iter().find(is_family)?.prefix();
            Some(format!("it has a process: {name}1234, or {name}$target for the one of -c or -p"))
        };
        let (why, tag, help) = match error {
            Some(e) => (format!(": {}", e.message), e.tag, e.help),
            None => (String::new(), None, None),
        };
        let tag = tag.unwrap_or(Tag::D_PDESC_ZERO);
        let unsupported = unsupported.map(|name| format!("the provider `{name}` is not supported yet"));
        let mut help = help.or(unsupported).or_else(|| of_processes().filter(|_| !is_explained));
        help = help.or_else(|| foreign::description(pattern));
        if help.is_none() && self.sink.may_suggest() {
            help = hints::description(&desc.text, catalog).or_else(|| self.near_probe(pattern));
        }
        let message = format!("probe description {pattern} does not match any probes{why}");
        self.fail_with(tag, desc.span, message, help)
    }

    /// True if `probeprov` is a prefix and a process id in a clause of these descriptions. Strings
    /// that are shorter than a name truncate it, and are interned whole.
    fn can_match_family(&self, patterns: &[ClausePattern]) -> bool {
        self.cx.options.string_size() as usize >= FIELD_LIMITS[0]
            && patterns.iter().any(|p| self.cx.catalog.can_match_family(&p.pattern))
    }

    /// Finds the first field from the left that matches no probe, and suggests a similar name with
    /// which the description matches.
    fn near_probe(&self, pattern: &Pattern) -> Option<String> {
        let catalog = self.cx.catalog;
        let matches = |pattern: &Pattern| catalog.matches(pattern).is_ok_and(|found| !found.is_empty());
        let near = |known: &[String], field: fn(&mut Pattern) -> &mut String| {
            let mut with = pattern.clone();
            let wrong = std::mem::take(field(&mut with));
            if wrong.is_empty() || is_glob(&wrong) || known.contains(&wrong) {
                return None;
            }
            let upper = wrong.to_ascii_uppercase();
            let upper = known.iter().find(|k| **k == upper).map(String::as_str);
            let word = upper.or_else(|| nearest(&wrong, known.iter().map(String::as_str)))?;
            *field(&mut with) = word.to_string();
            matches(&with).then(|| did_you_mean(word))
        };
        let families = catalog.families();
        let names: Vec<String> = families.iter().filter_map(|f| f.name_like(&pattern.provider)).collect();
        if let Some(help) = near(&names, |p| &mut p.provider) {
            return Some(help);
        }
        let providers: Vec<&Family> = families.iter().filter(|f| catalog.can_mean(pattern, f)).collect();
        let known =
            |field| -> Vec<String> { providers.iter().flat_map(|p| catalog.known(p, field)).collect() };
        let names = || known(FieldKind::Name);
        near(&known(FieldKind::Module), |p| &mut p.module)
            .or_else(|| near(&known(FieldKind::Function), |p| &mut p.function))
            .or_else(|| near(&names(), |p| &mut p.name))
            .or_else(|| {
                // For probes without functions, users often write the name in place of the
                // function.
                let function = &pattern.function;
                let misplaced = !function.is_empty() && pattern.name.is_empty() && names().contains(function);
                let found = misplaced && {
                    let (function, name) = (String::new(), function.clone());
                    matches(&Pattern { function, name, ..pattern.clone() })
                };
                found.then(|| format!("`{function}` is a name: {}:::{function}", pattern.provider))
            })
    }
}
