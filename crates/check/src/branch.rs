//! `if` and `else`: divides a clause into several clauses.
//!
//! As in the original, each basic block becomes a clause of its own for the same probes, with its
//! own record, enabled-probe id and line of output. Each condition becomes a clause that only
//! computes:
//!
//! ```text
//!  P /p/ { a; if (c) { b; } else { d; } e; }
//!
//!  P          { this->%error = 1; }
//!  P /p/      { this->%error = 0; }
//!  P /!e/     { this->%error = 1; a; this->%error = 0; }
//!  P /!e/     { this->%error = 1; this->%condition_1 = c; this->%error = 0; }
//!  P /!e && this->%condition_1/   { this->%error = 1; b; this->%error = 0; }
//!  P /!e && !this->%condition_1/  { this->%error = 1; d; this->%error = 0; }
//!  P /!e/     { e; }
//! ```
//!
//! where `!e` is `!this->%error`. A fault ends its clause, so `%error` stays set and no later block
//! of this firing runs. The original keeps the flag in `self->`. Here each firing has its own
//! storage, which costs less and cannot be confused with that of another firing. Clauses of ERROR
//! have their own flags, because they run in the middle of the firing that failed.

use diagnostics::{Span, Tag};
use syntax::ast;
use types::TypeId;

use crate::clause::Order;
use crate::program::{Expr, ExprKind, Logic, Place, Repr, Scope, Stmt, StmtKind, VarId};
use crate::session::Checker;
use crate::state::clause::ClauseContext;
use crate::state::recovery::CheckResult;
use crate::state::scopes::VarType;

/// A condition and its required value for a block to run.
#[derive(Clone, Copy, Debug)]
struct Guard {
    condition: VarId,
    holds: bool,
}

/// The state of dividing one clause.
struct Division<'w> {
    whole: &'w ClauseContext,
    /// A hidden variable: 1 while a block runs and after it failed. `prefix` is the prefix of the
    /// hidden names.
    error: VarId,
    prefix: &'static str,
    conditions: u32,
}

impl Checker<'_> {
    /// Divides a clause.
    pub(crate) fn branches(
        &mut self,
        clause: &ast::Clause,
        whole: &ClauseContext,
        stmts: &[ast::Stmt],
        order: Order,
    ) {
        let is_error = |p: &probes::ProbeInfo| &*p.desc.provider == "dtrace" && &*p.desc.name == "ERROR";
        let prefix = if whole.probes.iter().any(is_error) { "%ERROR_" } else { "%" };
        let error = self.hidden(&format!("{prefix}error"));
        let mut division = Division { whole, error, prefix, conditions: 0 };
        let from = self.clauses.len();
        let divide =
            |c: &mut Self, division: &mut Division<'_>| c.action_list(|c| c.divide(division, &[], stmts));
        if order == Order::ActionsFirst {
            divide(self, &mut division);
        }
        let blocks = self.clauses.len() - from;
        self.start_clause();
        let predicate = self.full_predicate(clause, whole);
        self.predicate_clauses(&division, predicate);
        // These clauses run first.
        if let Some(all) = self.clauses.get_mut(from..) {
            all.rotate_left(blocks);
        }
        if order == Order::PredicateFirst {
            divide(self, &mut division);
        }
    }

    /// Generates the clauses that evaluate the predicate.
    fn predicate_clauses(&mut self, division: &Division<'_>, predicate: Option<Expr>) {
        let (whole, span) = (division.whole, division.whole.span);
        let start = |c: &Self, value| c.set(division.error, c.int(value, TypeId::INT, span), span);
        match predicate {
            None => {
                let body = vec![start(self, 0)];
                self.end_clause(whole, span, None, body, false);
            }
            Some(predicate) => {
                // The attributes of the predicate count for the clause that contains it.
                let used = std::mem::replace(&mut self.clause.attributes, probes::Attributes::STABLE);
                let body = vec![start(self, 1)];
                self.end_clause(whole, span, None, body, false);
                self.clause.attributes = used;
                let (at, body) = (predicate.span, vec![start(self, 0)]);
                self.end_clause(whole, at, Some(predicate), body, false);
            }
        }
    }

    /// Divides the statements of a block. They run when the guards hold.
    fn divide(&mut self, division: &mut Division<'_>, guards: &[Guard], stmts: &[ast::Stmt]) {
        let empty = |s: &ast::Stmt| matches!(s.kind, ast::StmtKind::Empty);
        if stmts.iter().all(empty) {
            return;
        }
        let mut rest = stmts;
        while let Some(first) = rest.first() {
            let is_if = |s: &ast::Stmt| matches!(s.kind, ast::StmtKind::If { .. });
            let ast::StmtKind::If { cond, then, otherwise } = &first.kind else {
                let (block, after) = rest.split_at(rest.iter().position(is_if).unwrap_or(rest.len()));
                if !block.iter().all(empty) {
                    let span = block.last().map_or(first.span, |last| first.span.to(last.span));
                    self.block(division, guards, block, span);
                }
                rest = after;
                continue;
            };
            rest = &rest[1..];
            division.conditions += 1;
            let condition = self.hidden(&format!("{}condition_{}", division.prefix, division.conditions));
            self.start_clause();
            if let Ok(value) = self.condition(cond) {
                let stmt =
                    Stmt { span: cond.span, action: 1, kind: self.set(condition, value, cond.span).kind };
                self.clause_of_division(division, guards, cond.span, vec![stmt], false);
            }
            for (branch, holds) in [(Some(then), true), (otherwise.as_ref(), false)] {
                let Some(branch) = branch else { continue };
                let mut inner = guards.to_vec();
                inner.push(Guard { condition, holds });
                match branch.stmts.iter().all(empty) {
                    true => self.block(division, &inner, &[], branch.span),
                    false => self.divide(division, &inner, &branch.stmts),
                }
            }
        }
    }

    /// Generates the clause of a basic block.
    fn block(&mut self, division: &Division<'_>, guards: &[Guard], stmts: &[ast::Stmt], span: Span) {
        self.start_clause();
        let (body, empty) = self.statements(stmts);
        self.clause_of_division(division, guards, span, body, empty);
    }

    /// Generates one clause of the division. It runs when nothing has failed and the guards hold,
    /// and sets `%error` while it runs.
    fn clause_of_division(
        &mut self,
        division: &Division<'_>,
        guards: &[Guard],
        span: Span,
        mut body: Vec<Stmt>,
        empty: bool,
    ) {
        let not = |e: Expr| Expr { kind: ExprKind::Not(Box::new(e)), ty: TypeId::INT, span };
        let read = |id| Expr { kind: ExprKind::Read(Place::Var(id)), ty: TypeId::INT, span };
        let predicate = guards.iter().fold(not(read(division.error)), |all, guard| {
            let holds = read(guard.condition);
            let holds = if guard.holds { holds } else { not(holds) };
            let kind = ExprKind::Logic(Logic::And, Box::new(all), Box::new(holds));
            Expr { kind, ty: TypeId::INT, span }
        });
        let flag = |c: &Self, value| c.set(division.error, c.int(value, TypeId::INT, span), span);
        body.insert(0, flag(self, 1));
        body.push(flag(self, 0));
        self.end_clause(division.whole, span, Some(predicate), body, empty);
    }

    /// The condition of an `if`, as 1 or 0.
    fn condition(&mut self, e: &ast::Expr) -> CheckResult<Expr> {
        let value = self.value(e)?;
        let message = "condition of if must be of scalar type";
        let value = self.scalar(value, Tag::D_OP_SCALAR, e.span, message)?;
        let kind = match value.as_const() {
            Some(v) => ExprKind::Int(i64::from(v != 0)),
            None => ExprKind::Truth(Box::new(value)),
        };
        Ok(Expr { kind, ty: TypeId::INT, span: e.span })
    }

    /// `variable = value`. Its action number 0 cannot occur in a fault.
    pub(crate) fn set(&self, id: VarId, value: Expr, span: Span) -> Stmt {
        let kind = ExprKind::Assign(Place::Var(id), Box::new(value));
        Stmt { span, action: 0, kind: StmtKind::Expr(Expr { kind, ty: TypeId::INT, span }) }
    }

    /// Creates a clause-local variable with a name that no program can use.
    fn hidden(&mut self, name: &str) -> VarId {
        let repr = Repr::Int { size: 4, signed: true };
        self.scopes.var(Scope::Clause, name).unwrap_or_else(|| {
            self.scopes.add_var(Scope::Clause, name, VarType::Known(TypeId::INT, repr), None)
        })
    }
}
