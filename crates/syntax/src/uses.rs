//! The words that a clause uses, or an expression: what is known of them before they are checked.

use std::collections::HashSet;

use crate::ast::{Block, Clause, Expr, ExprKind, StmtKind};
use crate::derive::operands;

/// The words of a clause, without those of its probe descriptions.
#[derive(Default)]
pub struct Uses<'a> {
    names: HashSet<&'a str>,
    strings: Vec<&'a [u8]>,
}

impl<'a> Uses<'a> {
    /// Those of `clause`.
    pub fn of(clause: &'a Clause) -> Self {
        let mut all: Vec<&Expr> = clause.predicate.iter().collect();
        let mut blocks: Vec<&Block> = clause.body.iter().collect();
        while let Some(block) = blocks.pop() {
            for stmt in &block.stmts {
                match &stmt.kind {
                    StmtKind::Empty => {}
                    StmtKind::Expr(e) => all.push(e),
                    StmtKind::If { cond, then, otherwise } => {
                        all.push(cond);
                        blocks.push(then);
                        blocks.extend(otherwise);
                    }
                }
            }
        }
        Uses::of_expressions(all)
    }

    /// Those of expressions.
    pub fn of_expressions(mut rest: Vec<&'a Expr>) -> Self {
        let mut uses = Uses::default();
        while let Some(e) = rest.pop() {
            match &e.kind {
                ExprKind::Str(text) => uses.strings.push(&text.bytes),
                ExprKind::Ident(name) => {
                    uses.names.insert(&name.text);
                }
                ExprKind::DefinedProbe { arg: Some(_), .. } => {
                    uses.names.insert("args");
                }
                ExprKind::Call { callee, .. } => rest.push(callee),
                _ => {}
            }
            rest.extend(operands(e));
        }
        uses
    }

    /// True if it uses one of these names: of variables, functions, actions, inlines.
    pub fn any_name(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.names.contains(name))
    }

    /// True if one of its strings contains `part`.
    pub fn string_with(&self, part: &[u8]) -> bool {
        self.strings.iter().any(|text| text.windows(part.len().max(1)).any(|w| w == part))
    }
}

#[cfg(test)]
mod tests {
    use diagnostics::{Sink, SourceKind, SourceMap};

    use super::*;
    use crate::{MacroEnv, ParseMode};

    fn program(text: &str) -> crate::ast::Program {
        let (mut map, mut sink) = (SourceMap::default(), Sink::default());
        let file = map.add(SourceKind::Script, "x.d", text);
        let program = crate::parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &(), &mut sink);
        assert!(sink.is_empty());
        program
    }

    #[test]
    fn the_words_of_a_clause_are_those_of_its_expressions() {
        let text = "pid1::ustack:entry /args[0]/ \
                    { if (x) { @[usym(arg0)] = count(); } else { printf(\"%A\", y); } }";
        let program = program(text);
        let uses = Uses::of(crate::derive::clauses(&program).last().unwrap());
        for name in ["args", "x", "usym", "arg0", "count", "printf", "y"] {
            assert!(uses.any_name(&[name]), "{name}");
        }
        assert!(!uses.any_name(&["ustack", "entry", "return", "arg"]));
        assert!(uses.string_with(b"%A") && !uses.string_with(b"%B"));
    }
}
