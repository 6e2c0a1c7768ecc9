//! `if` and `else`: a clause that is divided into clauses.
//!
//! As in the original, each basic block becomes a clause of its own for the same probes, with its own record, its own
//! enabled-probe id and its own line of output, and each condition becomes one that only computes:
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
//! where `!e` is `!this->%error`. A fault leaves its clause, so `%error` stays set and no later block of this firing runs. The
//! original keeps the flag in `self->`; here a firing has storage of its own, which costs less and cannot be mistaken for
//! another firing's. Clauses of ERROR have flags of their own: they run in the middle of the firing that failed.

use diagnostics::{Span, Tag};
use syntax::ast;
use types::TypeId;

use crate::clause::{Order, Whole};
use crate::program::{Expr, ExprKind, Logic, Place, Repr, Scope, Stmt, StmtKind, VarId};
use crate::session::{Checker, Checks, VarType};

/// A condition that holds, or does not, where a block runs.
#[derive(Clone, Copy, Debug)]
struct Guard {
    condition: VarId,
    holds: bool,
}

/// The clause that is being divided.
struct Division<'w> {
    whole: &'w Whole,
    /// Hidden variables: a block failed or is in hand; and what they are called.
    error: VarId,
    prefix: &'static str,
    conditions: u32,
}

impl Checker<'_> {
    /// Divides a clause.
    pub(crate) fn branches(
        &mut self,
        clause: &ast::Clause,
        whole: &Whole,
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
        let predicate = self.whole_predicate(clause, whole);
        self.heads(&division, predicate);
        // They run first.
        if let Some(all) = self.clauses.get_mut(from..) {
            all.rotate_left(blocks);
        }
        if order == Order::PredicateFirst {
            divide(self, &mut division);
        }
    }

    /// The clauses that say whether the blocks run.
    fn heads(&mut self, division: &Division<'_>, predicate: Option<Expr>) {
        let (whole, span) = (division.whole, division.whole.span);
        let start = |c: &Self, value| c.set(division.error, c.int(value, TypeId::INT, span), span);
        match predicate {
            None => {
                let body = vec![start(self, 0)];
                self.end_clause(whole, span, None, body, false);
            }
            Some(predicate) => {
                // What the predicate itself uses is in the state of the clause that has it.
                let used = std::mem::replace(&mut self.clause.attributes, probes::Attributes::STABLE);
                let body = vec![start(self, 1)];
                self.end_clause(whole, span, None, body, false);
                self.clause.attributes = used;
                let (at, body) = (predicate.span, vec![start(self, 0)]);
                self.end_clause(whole, at, Some(predicate), body, false);
            }
        }
    }

    /// The statements of a block, where the guards hold.
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
                self.part(division, guards, cond.span, vec![stmt], false);
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

    /// A basic block.
    fn block(&mut self, division: &Division<'_>, guards: &[Guard], stmts: &[ast::Stmt], span: Span) {
        self.start_clause();
        let (body, empty) = self.statements(stmts);
        self.part(division, guards, span, body, empty);
    }

    /// A clause of the division: runs where nothing failed and the guards hold, and says if it fails.
    fn part(
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

    /// The condition of an `if`: 1 or 0.
    fn condition(&mut self, e: &ast::Expr) -> Checks<Expr> {
        let value = self.value(e)?;
        let message = "condition of if must be of scalar type";
        let value = self.scalar(value, Tag::D_OP_SCALAR, e.span, message)?;
        let kind = match value.as_const() {
            Some(v) => ExprKind::Int(i64::from(v != 0)),
            None => ExprKind::Truth(Box::new(value)),
        };
        Ok(Expr { kind, ty: TypeId::INT, span: e.span })
    }

    /// `variable = value`, which no fault can name.
    fn set(&self, id: VarId, value: Expr, span: Span) -> Stmt {
        let kind = ExprKind::Assign(Place::Var(id), Box::new(value));
        Stmt { span, action: 0, kind: StmtKind::Expr(Expr { kind, ty: TypeId::INT, span }) }
    }

    /// A variable of the firing that no program can name.
    fn hidden(&mut self, name: &str) -> VarId {
        let repr = Repr::Int { size: 4, signed: true };
        self.var(Scope::Clause, name)
            .unwrap_or_else(|| self.add_var(Scope::Clause, name, VarType::Known(TypeId::INT, repr), None))
    }
}
