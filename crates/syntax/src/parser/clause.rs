//! Parses clauses and statements.

use std::ops::Range;

use diagnostics::{Diagnostic, Span, Tag};

use super::{ErrorReported, Parsed, Parser};
use crate::ast::{Block, Clause, Expr, ExprKind, Stmt, StmtKind};
use crate::token::{Kw, Punct, Tok, Token};
use crate::{ParseMode, SpecField};

impl Parser<'_> {
    /// A clause whose first description is `word`.
    pub(super) fn clause(&mut self, word: Range<usize>) -> Clause {
        let last_field = match self.mode {
            ParseMode::Script => SpecField::Name,
            ParseMode::Specifier(field) => field,
        };
        let first = self.lex.description(word, last_field);
        let mut span = first.span;
        self.last = span;
        let mut probes = vec![first];
        while self.eat(Punct::Comma) {
            self.discard_lookahead();
            let word = self.lex.description_word();
            if word.is_empty() {
                self.unexpected();
                break;
            }
            let next = self.lex.description(word, last_field);
            self.last = next.span;
            span = span.to(next.span);
            probes.push(next);
        }
        let described = span;
        let of_bpftrace = match &probes[..] {
            [only] => match only.text.split(':').next() {
                Some("uprobe" | "uretprobe") => {
                    Some("probes in processes are those of the provider `pid`: pid$target:a.out:main:entry")
                }
                Some("usdt") => {
                    Some("in D the name of their provider has the process: PROVIDER$target:::NAME")
                }
                _ => None,
            },
            _ => None,
        };
        if let Some(help) = of_bpftrace.filter(|_| self.at(Punct::Slash)) {
            // This is the path of a bpftrace probe and not a predicate.
            let here = self.peek(0).span.start;
            self.unexpected_with(Some(help));
            self.skip_item(here);
            return Clause { span, probes, predicate: None, body: None };
        }
        let predicate = self.at(Punct::Slash).then(|| self.predicate());
        if let Some(p) = &predicate {
            span = span.to(p.span);
        }
        let body = if self.at(Punct::LBrace) { self.block().ok() } else { None };
        match (&body, &predicate) {
            (Some(body), _) => span = span.to(body.span),
            _ if self.stopped => {}
            (None, Some(predicate)) => {
                let message = "expected actions { } following probe description and predicate";
                let at = predicate.span;
                self.report_missing_body(Diagnostic::new(Tag::D_SYNTAX, at, message));
            }
            (None, None) if self.mode == ParseMode::Script => {
                let message = "expected predicate and/or actions following probe description";
                self.report_missing_body(Diagnostic::new(Tag::D_SYNTAX, described, message));
            }
            (None, None) => {
                let here = self.peek(0).span.start;
                let bare = self.peek(0).tok == Tok::Eof || {
                    self.discard_lookahead();
                    !self.lex.description_word().is_empty()
                };
                if !bare {
                    self.unexpected();
                    self.skip_item(here);
                }
            }
        }
        Clause { span, probes, predicate, body }
    }

    /// Reports that the actions are missing, and skips to the next clause.
    fn report_missing_body(&mut self, d: Diagnostic) {
        let next = self.peek(0);
        let at_item = next.tok == Tok::Eof || next.starts_line && !matches!(next.tok, Tok::P(_));
        let here = next.span.start;
        self.report(d);
        if !at_item {
            self.skip_item(here);
        }
    }

    /// `/ expression /`.
    fn predicate(&mut self) -> Expr {
        let start = self.bump().span;
        self.in_predicate = true;
        let condition = self.expr();
        let result = condition.and_then(|e| self.require(Punct::Slash).map(|_| e));
        let expr = match result {
            Ok(mut expr) => {
                expr.span = start.to(self.last);
                expr
            }
            Err(ErrorReported) => {
                self.skip_predicate();
                Expr { span: start.to(self.last), kind: ExprKind::Error }
            }
        };
        self.new_statement();
        expr
    }

    fn skip_predicate(&mut self) {
        loop {
            let token = self.peek(0).clone();
            match token.tok {
                Tok::Eof | Tok::P(Punct::LBrace | Punct::RBrace) => return,
                Tok::P(Punct::Slash) if self.lex.slash_ends_predicate(&token) => {
                    self.bump();
                    return;
                }
                _ if self.is_clause_start(&token) => return,
                _ => {
                    self.bump();
                }
            }
        }
    }

    /// `{ statements }`.
    pub(super) fn block(&mut self) -> Parsed<Block> {
        self.nested(|p| {
            let open = p.require(Punct::LBrace)?;
            let mut stmts = Vec::new();
            loop {
                p.new_statement();
                let token = p.peek(0).clone();
                if token.tok == Tok::P(Punct::RBrace) {
                    p.bump();
                    break;
                }
                if token.tok == Tok::Eof || p.is_clause_start(&token) {
                    let line = p.lex.line(open);
                    p.unexpected_with(Some(&format!("`{{` on line {line} is not closed")));
                    break;
                }
                stmts.push(p.stmt());
            }
            Ok(Block { span: open.to(p.last), stmts, braced: true })
        })
    }

    /// True if the token begins a line as a clause does and as no statement does. Then a `}` is
    /// missing before it.
    fn is_clause_start(&self, token: &Token) -> bool {
        if !token.starts_line || !self.lex.in_first_column(token.span.start) {
            return false;
        }
        if matches!(token.tok, Tok::Kw(_) | Tok::P(_) | Tok::Eof) {
            return false;
        }
        let word = self.lex.word_at(token.span.start as usize);
        let text = self.lex.slice(word.clone());
        !text.is_empty() && (text.contains("::") || self.lex.byte_after_blanks(word.end).0 == b'{')
    }

    /// A statement with its semicolon, or an error node.
    fn stmt(&mut self) -> Stmt {
        let start = self.peek(0).span;
        let result = match self.peek(0).tok {
            Tok::P(Punct::Semi) => {
                self.bump();
                return Stmt { span: start, kind: StmtKind::Empty };
            }
            Tok::Kw(Kw::If) => return self.if_stmt(start),
            Tok::Kw(Kw::For | Kw::While | Kw::Do | Kw::Switch) => {
                return self
                    .unsupported_stmt(start, "D has no loops and no switch; use predicates, `if` and `?:`");
            }
            Tok::Kw(Kw::Else) => return self.unsupported_stmt(start, "no `if` precedes this `else`"),
            Tok::P(Punct::LBrace) => Err(self.unexpected()),
            _ => self.expr(),
        };
        match result {
            Ok(expr) => {
                let span = start.to(self.last);
                let next = self.peek(0);
                match next.tok {
                    Tok::P(Punct::Semi) => {
                        self.bump();
                    }
                    Tok::P(Punct::RBrace) => {}
                    _ => {
                        // A word on a new line is probably the start of the next statement.
                        let resumes = next.starts_line && !matches!(next.tok, Tok::P(_) | Tok::Bad);
                        self.unexpected_with(resumes.then_some("is a `;` missing before it?"));
                        if !resumes {
                            self.skip_stmt();
                        }
                    }
                }
                Stmt { span, kind: StmtKind::Expr(expr) }
            }
            Err(ErrorReported) => {
                self.skip_stmt();
                self.error_stmt(start)
            }
        }
    }

    fn error_stmt(&self, start: Span) -> Stmt {
        let span = start.to(self.last);
        Stmt { span, kind: StmtKind::Expr(Expr { span, kind: ExprKind::Error }) }
    }

    /// Skips the rest of a statement with its semicolon. Braces in it are parsed as a block, to
    /// report errors in it.
    fn skip_stmt(&mut self) {
        loop {
            let token = self.peek(0).clone();
            match token.tok {
                Tok::Eof | Tok::P(Punct::RBrace) => return,
                Tok::P(Punct::Semi) => {
                    self.bump();
                    return;
                }
                Tok::P(Punct::LBrace) => {
                    let _ = self.block();
                    return;
                }
                _ if self.is_clause_start(&token) => return,
                _ => {
                    self.bump();
                }
            }
        }
    }

    /// Reports a C statement that D does not have, and parses its body for further errors.
    fn unsupported_stmt(&mut self, start: Span, help: &str) -> Stmt {
        self.unexpected_with(Some(help));
        let keyword = self.bump().tok;
        if self.at(Punct::LParen) {
            let mut depth = 0usize;
            loop {
                match self.peek(0).tok {
                    Tok::Eof | Tok::P(Punct::LBrace | Punct::RBrace) => break,
                    Tok::P(Punct::LParen) => depth += 1,
                    Tok::P(Punct::RParen) => depth -= 1,
                    _ => {}
                }
                self.bump();
                if depth == 0 {
                    break;
                }
            }
        }
        let _ = self.nested(|p| {
            p.branch();
            Ok(())
        });
        // The end of `do { } while (x);` belongs to the same error.
        if keyword == Tok::Kw(Kw::Do) && self.at_kw(Kw::While) {
            self.skip_stmt();
        }
        self.error_stmt(start)
    }

    /// `if (cond) branch else branch`.
    fn if_stmt(&mut self, start: Span) -> Stmt {
        self.bump();
        let result = self.nested(|p| {
            let cond = p.condition();
            p.new_statement();
            let then = p.branch();
            let otherwise = p.at_kw(Kw::Else).then(|| {
                p.bump();
                p.branch()
            });
            Ok(StmtKind::If { cond, then, otherwise })
        });
        match result {
            Ok(kind) => Stmt { span: start.to(self.last), kind },
            Err(ErrorReported) => self.error_stmt(start),
        }
    }

    /// `(expression)` after `if`.
    fn condition(&mut self) -> Expr {
        let start = self.peek(0).span;
        let result = self.require(Punct::LParen).and_then(|open| {
            self.open.push((Punct::LParen, open));
            let cond = self.expr();
            let recovered = match cond {
                Ok(cond) => self.require(Punct::RParen).map(|_| cond),
                Err(ErrorReported) => Err(ErrorReported),
            };
            match recovered {
                Ok(cond) => Ok(cond),
                Err(ErrorReported) if self.skip_in_list(Punct::RParen) && self.eat(Punct::RParen) => {
                    Ok(Expr { span: start.to(self.last), kind: ExprKind::Error })
                }
                Err(ErrorReported) => Err(ErrorReported),
            }
        });
        match result {
            Ok(mut cond) => {
                cond.span = start.to(self.last);
                cond
            }
            Err(ErrorReported) => {
                // `if x { … }`: the branch is parsed for further errors.
                while !matches!(
                    self.peek(0).tok,
                    Tok::Eof | Tok::P(Punct::Semi | Punct::LBrace | Punct::RBrace)
                ) {
                    self.bump();
                }
                Expr { span: start.to(self.last), kind: ExprKind::Error }
            }
        }
    }

    fn branch(&mut self) -> Block {
        let start = self.peek(0).span;
        let read = if self.at(Punct::LBrace) {
            self.block()
        } else if matches!(self.peek(0).tok, Tok::Eof | Tok::P(Punct::RBrace)) {
            Err(self.unexpected())
        } else {
            let stmt = self.stmt();
            Ok(Block { span: stmt.span, stmts: vec![stmt], braced: false })
        };
        read.unwrap_or(Block { span: start, stmts: Vec::new(), braced: false })
    }
}
