//! What a library says of the probes of its providers: which it declares, and which of its clauses
//! fire them.
//!
//! ```d
//! provider sched { probe off__cpu(struct task_struct *T : lwpsinfo_t *T, psinfo_t *T); };
//! rawtp:sched::sched_switch /defined(rawtp:sched::sched_switch)/ { off__cpu(args[2]); }
//! ```

use std::collections::HashMap;

use crate::ast::{
    BinaryOp, Clause, Declaration, Expr, ExprKind, Item, Name, ProbeDesc, Program, ProviderDef,
    ProviderProbe, Stmt, StmtKind, StorageClass, UnaryOp,
};

/// A call of a declared probe in a clause of its library.
#[derive(Clone, Copy, Debug)]
pub struct Firing<'a> {
    /// The provider.
    pub provider: &'a ProviderDef,
    /// The probe.
    pub probe: &'a ProviderProbe,
    /// The clause.
    pub clause: &'a Clause,
    /// The number of its statement.
    pub stmt: usize,
    /// The values of the native arguments.
    pub args: &'a [Expr],
    /// The call.
    pub call: &'a Expr,
}

/// The probes that a library declares.
pub fn declared(library: &Program) -> impl Iterator<Item = (&ProviderDef, &ProviderProbe)> {
    let providers = library.items.iter().filter_map(|item| match item {
        Item::Provider(provider) => Some(provider),
        _ => None,
    });
    providers.flat_map(|provider| provider.probes.iter().map(move |probe| (provider, probe)))
}

/// The declaration of variables: in a file with a provider, they are those of its clauses.
pub fn local(item: &Item) -> Option<&Declaration> {
    match item {
        Item::Declaration(d)
            if !d.declarators.is_empty()
                && d.specs
                    .storage
                    .is_none_or(|s| !matches!(s.class, StorageClass::Typedef | StorageClass::Extern)) =>
        {
            Some(d)
        }
        _ => None,
    }
}

/// The clauses of a library.
pub fn clauses(library: &Program) -> impl Iterator<Item = &Clause> {
    library.items.iter().filter_map(|item| match item {
        Item::Clause(clause) => Some(clause),
        _ => None,
    })
}

/// The name and the arguments of a call that is a statement.
pub fn call(stmt: &Stmt) -> Option<(&Name, &[Expr], &Expr)> {
    let StmtKind::Expr(call) = &stmt.kind else { return None };
    let ExprKind::Call { callee, args } = &call.kind else { return None };
    let ExprKind::Ident(name) = &callee.kind else { return None };
    Some((name, args, call))
}

/// The firings of declared probes in the clauses of a library, in its order.
pub fn firings(library: &Program) -> Vec<Firing<'_>> {
    let mut probes = HashMap::new();
    for (provider, probe) in declared(library) {
        probes.entry(&*probe.name.text).or_insert((provider, probe));
    }
    let mut all = Vec::new();
    for clause in clauses(library) {
        let stmts = clause.body.as_ref().map_or(&[][..], |body| &body.stmts);
        for (number, stmt) in stmts.iter().enumerate() {
            let Some((name, args, call)) = call(stmt) else { continue };
            if let Some(&(provider, probe)) = probes.get(&*name.text) {
                all.push(Firing { provider, probe, clause, stmt: number, args, call });
            }
        }
    }
    all
}

/// A condition of a clause that the running system decides.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    /// The description that must match.
    pub probe: &'a ProbeDesc,
    /// The argument that the probe must have.
    pub arg: Option<u64>,
    /// False: it must not.
    pub holds: bool,
}

/// The conditions `defined(description)` and `!defined(description)` that a predicate requires: the
/// operands of its `&&`.
pub fn conditions(predicate: Option<&Expr>) -> Vec<Condition<'_>> {
    let mut found = Vec::new();
    let mut rest: Vec<&Expr> = predicate.into_iter().collect();
    while let Some(e) = rest.pop() {
        match &e.kind {
            ExprKind::DefinedProbe { probe, arg } => found.push(Condition { probe, arg: *arg, holds: true }),
            ExprKind::Unary { op: UnaryOp::Not, operand } => {
                if let ExprKind::DefinedProbe { probe, arg } = &operand.kind {
                    found.push(Condition { probe, arg: *arg, holds: false });
                }
            }
            ExprKind::Binary { op: BinaryOp::LogAnd, left, right, .. } => rest.extend([&**right, &**left]),
            _ => {}
        }
    }
    found
}

/// What an expression assigns to.
pub fn assigned(e: &Expr) -> Option<&Expr> {
    match &e.kind {
        ExprKind::Assign { target, .. } => Some(target),
        ExprKind::Postfix { operand, .. } => Some(operand),
        ExprKind::Unary { op: UnaryOp::PreInc | UnaryOp::PreDec, operand } => Some(operand),
        _ => None,
    }
}

/// The operands of an expression.
pub fn operands(e: &Expr) -> Vec<&Expr> {
    match &e.kind {
        ExprKind::Index { base, keys } => std::iter::once(&**base).chain(keys).collect(),
        ExprKind::Call { args, .. } => args.iter().collect(),
        ExprKind::Member { base: operand, .. }
        | ExprKind::Unary { operand, .. }
        | ExprKind::Postfix { operand, .. }
        | ExprKind::SizeofExpr(operand)
        | ExprKind::Stringof(operand)
        | ExprKind::Xlate { operand, .. }
        | ExprKind::Cast { operand, .. } => vec![operand],
        ExprKind::Binary { left, right, .. } => vec![left, right],
        ExprKind::Cond { cond, then, otherwise } => vec![cond, then, otherwise],
        ExprKind::Assign { target, value, .. } => vec![target, value],
        ExprKind::Comma { left, right } => vec![left, right],
        ExprKind::Agg(agg) => agg.keys.iter().flatten().collect(),
        _ => Vec::new(),
    }
}
