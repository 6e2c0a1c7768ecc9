//! A narrower question: the text of a program with one more condition.

use diagnostics::{Sink, SourceKind, SourceMap, Span};
use syntax::Libraries;
use syntax::ast::{AggRef, Block, Clause, Expr, ExprKind, Item, StmtKind, UnaryOp};
use system::System;

use crate::compile::lookup::TypedefNames;
use crate::compile::{Macros, Source, macro_env, mode_of};
use crate::options::Options;

/// The sources, where each clause that aggregates into `aggregation` (with its `@`) has `condition`
/// in its predicate. An error is a message: the texts cannot be changed.
pub fn narrowed(
    system: &System,
    (sources, macros, options): (&[Source], &Macros, &Options),
    aggregation: &str,
    condition: &str,
) -> Result<Vec<Source>, String> {
    if options.cpp {
        return Err(
            "the preprocessor makes the text of the program (-C): it has no place for a predicate".into()
        );
    }
    let name = match aggregation.trim_start_matches('@') {
        "" => "_",
        name => name,
    };
    let mut libraries = Libraries::embedded();
    let mut found = false;
    let mut all = Vec::new();
    for source in sources {
        let (mut map, mut sink) = (SourceMap::default(), Sink::default());
        let (title, text) = match source {
            Source::Script(title, text) => (title.as_str(), text),
            Source::Specifier(_, text) => ("", text),
        };
        let env = macro_env(macros, options, title, matches!(source, Source::Script(..)));
        libraries.load(&[text], &mut map, &env, &mut sink);
        let file = map.add(SourceKind::Script, title, text.clone());
        let names = TypedefNames { libraries: &libraries, kernel: system.types() };
        let tree = syntax::parse(&mut map, file, mode_of(source), &env, &names, &mut sink);
        let clauses =
            tree.items.iter().filter_map(|item| if let Item::Clause(c) = item { Some(c) } else { None });
        let mut edits: Vec<(Span, String)> = Vec::new();
        for clause in clauses.filter(|clause| aggregates(clause, name)) {
            found = true;
            if let Some(why) = obstacle(clause, name) {
                return Err(why);
            }
            let edit = edit(clause, text, condition);
            edits.push(edit.ok_or("a predicate of the program cannot be changed: it is a macro's")?);
        }
        let text = edited(text, edits);
        all.push(match source {
            Source::Script(title, _) => Source::Script(title.clone(), text),
            Source::Specifier(field, _) => Source::Specifier(*field, text),
        });
    }
    if found { Ok(all) } else { Err(format!("no clause of the program aggregates into {aggregation}")) }
}

/// What makes a condition part of a clause's predicate: a range of the text, and its new text.
fn edit(clause: &Clause, text: &str, condition: &str) -> Option<(Span, String)> {
    if let Some(predicate) = &clause.predicate {
        // With its slashes.
        let old = text.get(predicate.span.start as usize..predicate.span.end as usize)?;
        let old = old.strip_prefix('/').and_then(|old| old.strip_suffix('/'))?.trim();
        // What it ends with may be a comment.
        let end = if old.contains("//") { "\n" } else { "" };
        return Some((predicate.span, format!("/({old}{end}) && {condition}/")));
    }
    let body = clause.body.as_ref()?.span;
    Some((Span::new(body.file, body.start, body.start), format!("/{condition}/ ")))
}

/// The text with its edits, of which none overlap.
fn edited(text: &str, mut edits: Vec<(Span, String)>) -> String {
    edits.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = text.to_owned();
    for (span, new) in edits {
        let range = span.start as usize..span.end as usize;
        if text.get(range.clone()).is_some() {
            text.replace_range(range, &new);
        }
    }
    text
}

/// Why the key of a clause cannot be known before its actions.
fn obstacle(clause: &Clause, name: &str) -> Option<String> {
    let all = expressions(clause);
    let assigned: Vec<&Expr> = all.iter().filter_map(|e| changed(e)).collect();
    let keys = all.iter().filter_map(|e| aggregated(e, name)).flat_map(|agg| agg.keys.iter().flatten());
    let mut parts: Vec<&Expr> = keys.collect();
    while let Some(part) = parts.pop() {
        if changed(part).is_some() {
            return Some("the key changes a variable, which a predicate would change once more".into());
        }
        if let ExprKind::ThisVar(name) = &part.kind {
            let name = &name.text;
            return Some(format!("this->{name} is known only within the clause, behind its predicate"));
        }
        if assigned.iter().any(|other| is_same(other, part)) {
            return Some(
                "the clause assigns what its key has, so a predicate would have what was there before".into(),
            );
        }
        parts.extend(syntax::derive::operands(part));
    }
    None
}

/// The variable, or what is in it, that an expression itself changes.
fn changed(e: &Expr) -> Option<&Expr> {
    let target = match &e.kind {
        ExprKind::Assign { target, .. } if !matches!(target.kind, ExprKind::Agg(_)) => target,
        ExprKind::Postfix { operand, .. } => operand,
        ExprKind::Unary { op: UnaryOp::PreInc | UnaryOp::PreDec, operand } => operand,
        _ => return None,
    };
    let mut base = &**target;
    while let ExprKind::Index { base: inner, .. } | ExprKind::Member { base: inner, .. } = &base.kind {
        base = inner;
    }
    Some(base)
}

/// Whether two expressions are one variable.
fn is_same(a: &Expr, b: &Expr) -> bool {
    match (&a.kind, &b.kind) {
        (ExprKind::Ident(a), ExprKind::Ident(b)) | (ExprKind::SelfVar(a), ExprKind::SelfVar(b)) => {
            a.text == b.text
        }
        _ => false,
    }
}

/// The aggregation of this name that an expression itself adds to.
fn aggregated<'a>(e: &'a Expr, name: &str) -> Option<&'a AggRef> {
    match &e.kind {
        ExprKind::Assign { target, .. } => match &target.kind {
            ExprKind::Agg(agg) if *agg.name.text == *name => Some(agg),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a clause has `@name[…] = …`.
fn aggregates(clause: &Clause, name: &str) -> bool {
    expressions(clause).iter().any(|e| aggregated(e, name).is_some())
}

/// All expressions of a clause's actions, and their parts.
fn expressions(clause: &Clause) -> Vec<&Expr> {
    let mut blocks: Vec<&Block> = clause.body.iter().collect();
    let mut expressions: Vec<&Expr> = Vec::new();
    while let Some(block) = blocks.pop() {
        for stmt in &block.stmts {
            match &stmt.kind {
                StmtKind::Empty => {}
                StmtKind::Expr(e) => expressions.push(e),
                StmtKind::If { cond, then, otherwise } => {
                    expressions.push(cond);
                    blocks.push(then);
                    blocks.extend(otherwise);
                }
            }
        }
    }
    let mut all = Vec::new();
    while let Some(e) = expressions.pop() {
        all.push(e);
        expressions.extend(syntax::derive::operands(e));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Field;

    fn narrowed_text(text: &str, aggregation: &str) -> Result<String, String> {
        let system = System::synthetic(system::Record::default());
        let sources = [Source::Script("x.d".into(), text.into())];
        let all =
            narrowed(&system, (&sources, &Macros::default(), &Options::default()), aggregation, "c == 1")?;
        match &all[..] {
            [Source::Script(_, text)] => Ok(text.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_clauses_that_aggregate_get_the_condition() {
        let text = "BEGIN { @b = count(); }\n\
                    a:::x /b || pid == $target/ { if (1) { @a[execname] = sum(arg0 / 2); } }\n\
                    a:::y,\na:::z\n{ this->x = 1; @a[\"@b = \"] = sum(1); }\n\
                    END { printa(@a); clear(@a); }\n";
        assert_eq!(
            narrowed_text(text, "@a").unwrap(),
            "BEGIN { @b = count(); }\n\
             a:::x /(b || pid == $target) && c == 1/ { if (1) { @a[execname] = sum(arg0 / 2); } }\n\
             a:::y,\na:::z\n/c == 1/ { this->x = 1; @a[\"@b = \"] = sum(1); }\n\
             END { printa(@a); clear(@a); }\n"
        );
        assert_eq!(
            narrowed_text("a:::/x // y\n/{ @ = count(); }", "@").unwrap(),
            "a:::/(x // y\n) && c == 1/{ @ = count(); }"
        );
        for (text, words) in [
            ("a:::{ g = g + 1; @[g % 3] = count(); }", "assigns what its key has"),
            ("a:::{ self->a[1] = 1; @[self->a[2]] = count(); }", "assigns what its key has"),
            ("a:::{ @[n++ % 3] = count(); }", "changes a variable"),
            ("a:::{ @[this -> y] = count(); }", "this->y is known only within the clause"),
        ] {
            let why = narrowed_text(text, "@").unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
        assert!(narrowed_text(text, "@").unwrap_err().contains("no clause"));
        assert_eq!(narrowed_text("a:::{ @ = count(); }", "@").unwrap(), "a:::/c == 1/ { @ = count(); }");
    }

    #[test]
    fn a_specifier_stays_one() {
        let system = System::synthetic(system::Record::default());
        let sources = [Source::Specifier(Field::Function, "read /1/ { @ = count(); }".into())];
        let all = narrowed(&system, (&sources, &Macros::default(), &Options::default()), "@", "x").unwrap();
        assert!(
            matches!(&all[..], [Source::Specifier(Field::Function, text)] if text == "read /(1) && x/ { @ = count(); }")
        );
    }
}
