//! Deferred clauses (`-Z`): clauses that match no probe yet and use `args[]`, whose types only a
//! probe determines.
//!
//! Such a clause is left out entirely, with the variables and aggregations that it would define. It
//! is checked when its probes appear. A clause without probes that uses such a variable is deferred
//! too. For a clause with probes this is an error.

use diagnostics::{Span, Tag};
use syntax::ast;

use crate::program::Scope;
use crate::session::Checker;
use crate::state::clause::DescriptionMatch;
use crate::state::recovery::{CheckResult, ErrorReported};

impl Checker<'_> {
    /// Checks a clause without probes.
    pub(crate) fn clause_without_probes(
        &mut self,
        clause: &ast::Clause,
        program: usize,
        described: Vec<DescriptionMatch>,
    ) {
        let before = self.mark();
        (self.deferral.may, self.deferral.does) = (true, false);
        self.clause_with(clause, program, described);
        self.deferral.may = false;
        if !self.deferral.does {
            return;
        }
        let begun = self.forget(&before);
        self.deferral.names.extend(begun);
    }

    /// Called when the current clause cannot be checked without probes. Returns true if it can be
    /// deferred.
    pub(crate) fn defer_clause(&mut self) -> bool {
        self.deferral.does |= self.deferral.may;
        self.deferral.may
    }

    /// Fails for a name that a deferred clause would define.
    pub(crate) fn require_not_deferred(
        &mut self,
        tag: Tag,
        scope: Option<Scope>,
        name: &str,
        span: Span,
    ) -> CheckResult<()> {
        if !self.deferral.names.contains(&(scope, name.to_string())) {
            return Ok(());
        }
        if self.defer_clause() {
            return Err(ErrorReported);
        }
        let prefix = scope.map_or("@", Scope::prefix);
        let message =
            format!("{prefix}{name} begins in a clause that waits for its probes: its type is not known");
        let help = scope.map(|_| "declare it".to_string());
        self.fail_with(tag, span, message, help)
    }
}
