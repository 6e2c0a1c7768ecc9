//! A choice among runs of numbers, compiled into the program: a tree of comparisons.

use types::TypeId;

use crate::program::{Expr, ExprKind, Relation};

/// What `leaf` makes of the run that contains `value`. `runs` are sorted by their first number. A
/// value below the first is in the first run.
pub(crate) fn choice<T>(value: &Expr, runs: &[(i64, T)], leaf: &impl Fn(Option<&T>) -> Expr) -> Expr {
    let (low, high) = match runs {
        [] => return leaf(None),
        [(_, one)] => return leaf(Some(one)),
        _ => runs.split_at(runs.len() / 2),
    };
    let first = high.first().map_or(0, |(first, _)| *first);
    let span = value.span;
    let below = ExprKind::Compare {
        relation: Relation::Lt,
        signed: true,
        left: Box::new(value.clone()),
        right: Box::new(Expr { kind: ExprKind::Int(first), ty: value.ty, span }),
    };
    let below = Expr { kind: below, ty: TypeId::INT, span };
    let (low, high) = (choice(value, low, leaf), choice(value, high, leaf));
    let (ty, span) = (low.ty, low.span);
    Expr { kind: ExprKind::Cond(Box::new(below), Box::new(low), Box::new(high)), ty, span }
}
