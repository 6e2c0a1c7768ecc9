//! Parses expressions by precedence climbing, with the table of [`Punct::binary`].

use diagnostics::Span;

use super::{ErrorReported, MAX_HEIGHT, Parsed, Parser, split_scope};
use crate::SpecField;
use crate::ast::{AggRef, Expr, ExprKind, Name, StrLit, UnaryOp};
use crate::token::{Kw, Punct, Tok, Token};

impl Token {
    /// True if an operand can begin with this token.
    fn starts_operand(&self) -> bool {
        use Punct::{And, Inc, LParen, Minus, Not, Plus, Star, Tilde};
        match self.tok {
            Tok::P(p) => matches!(p, And | Punct::Dec | Inc | LParen | Minus | Not | Plus | Star | Tilde),
            _ => self.is_operand_word(),
        }
    }

    /// True if the token begins an operand and is not an operator. Such a token cannot follow an
    /// operand.
    fn is_operand_word(&self) -> bool {
        match self.tok {
            Tok::Ident(_) | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Agg(_) => true,
            Tok::Kw(kw) => {
                matches!(kw, Kw::SelfScope | Kw::This | Kw::Sizeof | Kw::Stringof | Kw::Offsetof | Kw::Xlate)
            }
            _ => false,
        }
    }
}

impl Parser<'_> {
    /// An expression, commas included.
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        let mut left = self.assignment()?;
        let mut height = self.height;
        while self.eat(Punct::Comma) {
            let right = self.assignment()?;
            height = self.node_height(height)?;
            let span = left.span.to(right.span);
            left = Expr { span, kind: ExprKind::Comma { left: Box::new(left), right: Box::new(right) } };
        }
        self.height = height;
        Ok(left)
    }

    /// The height of a node whose children are the last expression and one of height `other`.
    fn node_height(&mut self, other: usize) -> Parsed<usize> {
        let height = 1 + self.height.max(other);
        if height > MAX_HEIGHT { Err(self.too_deep()) } else { Ok(height) }
    }

    /// An expression without commas outside parentheses.
    pub(super) fn assignment(&mut self) -> Parsed<Expr> {
        self.nested(|p| {
            let target = p.unary()?;
            let Tok::P(punct) = p.peek(0).tok else { return p.conditional(target) };
            let Some(op) = punct.assignment() else { return p.conditional(target) };
            let height = p.height;
            p.bump();
            let value = p.assignment()?;
            p.height = p.node_height(height)?;
            let span = target.span.to(value.span);
            let (target, value) = (Box::new(target), Box::new(value));
            Ok(Expr { span, kind: ExprKind::Assign { op, target, value } })
        })
    }

    /// An expression without assignments and commas outside parentheses: a size, a width, an
    /// enumerator's value.
    pub(super) fn constant(&mut self) -> Parsed<Expr> {
        self.nested(|p| {
            let first = p.unary()?;
            p.conditional(first)
        })
    }

    /// Parses infix operators and `?:` after `first`.
    fn conditional(&mut self, first: Expr) -> Parsed<Expr> {
        let cond = self.binary(first, 0)?;
        if !self.at(Punct::Question) {
            return Ok(cond);
        }
        let height = self.height;
        self.bump();
        let then = self.expr()?;
        let height = self.node_height(height)?;
        self.require(Punct::Colon)?;
        let otherwise = self.constant()?;
        self.height = self.node_height(height)?;
        let span = cond.span.to(otherwise.span);
        let (cond, then, otherwise) = (Box::new(cond), Box::new(then), Box::new(otherwise));
        Ok(Expr { span, kind: ExprKind::Cond { cond, then, otherwise } })
    }

    /// Parses infix operators with a precedence above `min` after `left`.
    fn binary(&mut self, mut left: Expr, min: u8) -> Parsed<Expr> {
        loop {
            let token = self.peek(0).clone();
            let Tok::P(punct) = token.tok else { return Ok(left) };
            let Some((op, strength)) = punct.binary().filter(|(_, s)| *s > min) else { return Ok(left) };
            if punct == Punct::Slash && self.in_predicate && self.lex.slash_ends_predicate(&token) {
                return Ok(left);
            }
            let height = self.height;
            self.bump();
            let right = self.unary()?;
            let right = self.binary(right, strength)?;
            self.height = self.node_height(height)?;
            let span = left.span.to(right.span);
            let (l, right) = (Box::new(left), Box::new(right));
            left = Expr { span, kind: ExprKind::Binary { op, op_span: token.span, left: l, right } };
        }
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.peek(0).span;
        if self.at(Punct::LParen) && self.is_type_in_parens(true) {
            let ty = self.nested(|p| p.type_in_parens())?;
            let (operand, span) = self.operand(start)?;
            return Ok(Expr { span, kind: ExprKind::Cast { ty, operand } });
        }
        let op = match self.peek(0).tok {
            Tok::P(Punct::Plus) => UnaryOp::Plus,
            Tok::P(Punct::Minus) => UnaryOp::Neg,
            Tok::P(Punct::Not) => UnaryOp::Not,
            Tok::P(Punct::Tilde) => UnaryOp::BitNot,
            Tok::P(Punct::Star) => UnaryOp::Deref,
            Tok::P(Punct::And) => UnaryOp::AddrOf,
            Tok::P(Punct::Inc) => UnaryOp::PreInc,
            Tok::P(Punct::Dec) => UnaryOp::PreDec,
            Tok::Kw(Kw::Sizeof) => return self.nested(|p| p.sizeof(start)),
            Tok::Kw(Kw::Stringof) => {
                self.bump();
                let (operand, span) = self.operand(start)?;
                return Ok(Expr { span, kind: ExprKind::Stringof(operand) });
            }
            _ => return self.postfix(start),
        };
        self.bump();
        let (operand, span) = self.operand(start)?;
        Ok(Expr { span, kind: ExprKind::Unary { op, operand } })
    }

    /// The operand of the prefix operator at `start`, and the location of both.
    fn operand(&mut self, start: Span) -> Parsed<(Box<Expr>, Span)> {
        let operand = self.nested(|p| p.unary())?;
        self.height = self.node_height(0)?;
        let span = start.to(operand.span);
        Ok((Box::new(operand), span))
    }

    fn sizeof(&mut self, start: Span) -> Parsed<Expr> {
        self.bump();
        if self.at(Punct::LParen) && self.is_type_in_parens(false) {
            let ty = self.type_in_parens()?;
            self.height = 1;
            return Ok(Expr { span: start.to(self.last), kind: ExprKind::SizeofType(ty) });
        }
        let (operand, span) = self.operand(start)?;
        Ok(Expr { span, kind: ExprKind::SizeofExpr(operand) })
    }

    /// At `(`: true if the parentheses contain a type and not an expression. An operand follows a
    /// cast (`cast`), but not `sizeof (type)`.
    ///
    /// An unknown name is parsed as a type if it cannot be an expression. Then the checker reports
    /// the unknown type.
    fn is_type_in_parens(&mut self, cast: bool) -> bool {
        let name = match &self.peek(1).tok {
            Tok::Kw(kw) => return kw.starts_type(),
            Tok::Ident(name) => name.clone(),
            _ => return false,
        };
        match self.peek(2).tok {
            Tok::P(Punct::RParen) => {
                let next = self.peek(3);
                let (operand, word) = (next.starts_operand(), next.is_operand_word());
                if cast { word || operand && self.is_type(&name) } else { self.is_type(&name) }
            }
            Tok::P(Punct::Star) => {
                let mut n = 3;
                while self.peek(n).is(Punct::Star) {
                    n += 1;
                }
                match self.peek(n).tok {
                    Tok::P(Punct::RParen) => true,
                    Tok::P(Punct::LBracket) => self.is_type(&name),
                    Tok::P(Punct::LParen) => self.peek(n + 1).is(Punct::Star) && self.is_type(&name),
                    Tok::Kw(kw) => kw.starts_type(),
                    _ => false,
                }
            }
            Tok::P(Punct::LBracket) => self.peek(3).is(Punct::RBracket) && self.is_type(&name),
            Tok::P(Punct::LParen) => self.peek(3).is(Punct::Star) && self.is_type(&name),
            Tok::Kw(kw) => kw.starts_type(),
            _ => false,
        }
    }

    /// A primary expression with its postfix operators.
    fn postfix(&mut self, start: Span) -> Parsed<Expr> {
        let mut base = self.primary()?;
        loop {
            let height = self.height;
            let kind = match self.peek(0).tok {
                Tok::P(Punct::LBracket) => {
                    let keys = self.list(Punct::RBracket, false)?;
                    ExprKind::Index { base: Box::new(base), keys }
                }
                Tok::P(Punct::LParen) => {
                    let args = self.list(Punct::RParen, true)?;
                    ExprKind::Call { callee: Box::new(base), args }
                }
                Tok::P(p @ (Punct::Dot | Punct::Arrow)) => {
                    self.bump();
                    self.height = 0;
                    let name = self.require_member_name()?;
                    ExprKind::Member { base: Box::new(base), arrow: p == Punct::Arrow, name }
                }
                Tok::P(p @ (Punct::Inc | Punct::Dec)) => {
                    self.bump();
                    self.height = 0;
                    ExprKind::Postfix { decrement: p == Punct::Dec, operand: Box::new(base) }
                }
                _ => return Ok(base),
            };
            self.height = self.node_height(height)?;
            base = Expr { span: start.to(self.last), kind };
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let token = self.peek(0).clone();
        let span = token.span;
        let kind = match token.tok {
            Tok::Int(lit) => ExprKind::Int(lit),
            Tok::Char(value) => ExprKind::Char(value),
            Tok::Str(bytes) => ExprKind::Str(StrLit { bytes }),
            Tok::Ident(text) if text == "defined" && self.peek(1).is(Punct::LParen) => return self.defined(),
            Tok::Ident(text) => match split_scope(&text, span) {
                (None, name) if !text.contains('`') => ExprKind::Ident(name),
                (module, name) => ExprKind::Symbol { module, name },
            },
            Tok::Agg(text) => return self.aggregation(text),
            Tok::P(Punct::LParen) => {
                self.bump();
                self.open.push((Punct::LParen, span));
                let inner = self.expr()?;
                self.require(Punct::RParen)?;
                self.open.pop();
                return Ok(Expr { span: span.to(self.last), kind: inner.kind });
            }
            Tok::Kw(kw @ (Kw::SelfScope | Kw::This)) => {
                self.bump();
                self.height = 1;
                if !self.eat(Punct::Arrow) {
                    let name = Name { text: kw.text().to_owned(), span };
                    return Ok(Expr { span, kind: ExprKind::Ident(name) });
                }
                let name = self.require_member_name()?;
                let span = span.to(name.span);
                let kind =
                    if kw == Kw::SelfScope { ExprKind::SelfVar(name) } else { ExprKind::ThisVar(name) };
                return Ok(Expr { span, kind });
            }
            // Some DTraces have this action; the checker decides whether it is supported.
            Tok::Kw(Kw::Return) if self.peek(1).is(Punct::LParen) => {
                ExprKind::Ident(Name { text: "return".to_owned(), span })
            }
            Tok::Kw(Kw::Offsetof) => return self.offsetof(),
            Tok::Kw(Kw::Xlate) => return self.xlate(),
            _ => return Err(self.unexpected()),
        };
        self.bump();
        self.height = 1;
        Ok(Expr { span, kind })
    }

    fn aggregation(&mut self, text: String) -> Parsed<Expr> {
        let span = self.bump().span;
        // The name of a bare `@` does not occur in the source.
        let start = if span.end - span.start > 1 { span.start + 1 } else { span.start };
        let name = Name { text, span: Span::new(span.file, start, span.end) };
        self.height = 1;
        let keys = if self.at(Punct::LBracket) { Some(self.list(Punct::RBracket, false)?) } else { None };
        self.height = self.node_height(0)?;
        Ok(Expr { span: span.to(self.last), kind: ExprKind::Agg(AggRef { name, keys }) })
    }

    /// `offsetof(type, member)`.
    fn offsetof(&mut self) -> Parsed<Expr> {
        let start = self.bump().span;
        let open = self.require(Punct::LParen)?;
        self.open.push((Punct::LParen, open));
        let ty = self.nested(|p| p.type_name())?;
        self.require(Punct::Comma)?;
        let member = self.require_member_name()?;
        self.require(Punct::RParen)?;
        self.open.pop();
        self.height = 1;
        Ok(Expr { span: start.to(self.last), kind: ExprKind::Offsetof { ty, member } })
    }

    /// `defined(type)`, `defined(type, member.member)`, `` defined(`symbol) ``,
    /// `defined(description)`, `defined(description, args[n])`.
    fn defined(&mut self) -> Parsed<Expr> {
        let start = self.bump().span;
        let open = self.require(Punct::LParen)?;
        self.open.push((Punct::LParen, open));
        self.discard_lookahead();
        let word = self.lex.description_word();
        if self.lex.slice(word.clone()).contains(':') {
            let probe = self.lex.description(word, SpecField::Name);
            self.last = probe.span;
            let arg = if self.eat(Punct::Comma) { Some(self.argument_number()?) } else { None };
            self.require(Punct::RParen)?;
            self.open.pop();
            self.height = 1;
            return Ok(Expr { span: start.to(self.last), kind: ExprKind::DefinedProbe { probe, arg } });
        }
        let next = self.peek(0);
        if let Tok::Ident(text) = &next.tok
            && text.contains('`')
        {
            let (module, name) = split_scope(text, next.span);
            if name.text.is_empty() {
                return Err(self.unexpected());
            }
            self.bump();
            self.require(Punct::RParen)?;
            self.open.pop();
            self.height = 1;
            return Ok(Expr { span: start.to(self.last), kind: ExprKind::DefinedSymbol { module, name } });
        }
        let ty = self.nested(|p| p.type_name())?;
        let mut path = Vec::new();
        if self.eat(Punct::Comma) {
            path.push(self.require_member_name()?);
            while self.eat(Punct::Dot) {
                path.push(self.require_member_name()?);
            }
        }
        self.require(Punct::RParen)?;
        self.open.pop();
        self.height = 1;
        Ok(Expr { span: start.to(self.last), kind: ExprKind::Defined { ty, path } })
    }

    /// The number in `args[n]`.
    fn argument_number(&mut self) -> Parsed<u64> {
        let is_args = matches!(&self.peek(0).tok, Tok::Ident(text) if text == "args");
        if !is_args {
            return Err(self.unexpected());
        }
        self.bump();
        self.require(Punct::LBracket)?;
        let Tok::Int(number) = self.peek(0).tok else { return Err(self.unexpected()) };
        self.bump();
        self.require(Punct::RBracket)?;
        Ok(number.value)
    }

    /// `xlate <type> (expr)`.
    fn xlate(&mut self) -> Parsed<Expr> {
        let start = self.bump().span;
        self.require(Punct::Lt)?;
        let ty = self.nested(|p| p.type_name())?;
        self.require(Punct::Gt)?;
        let open = self.require(Punct::LParen)?;
        self.open.push((Punct::LParen, open));
        let operand = Box::new(self.expr()?);
        self.require(Punct::RParen)?;
        self.open.pop();
        self.height = self.node_height(0)?;
        Ok(Expr { span: start.to(self.last), kind: ExprKind::Xlate { ty, operand } })
    }

    /// At an opening bracket: expressions separated by commas, up to `close`. An invalid element
    /// becomes an error node, and parsing continues with the next one. Sets `height` to the maximum
    /// of the elements.
    fn list(&mut self, close: Punct, may_be_empty: bool) -> Parsed<Vec<Expr>> {
        let open = self.bump();
        let open_before = self.open.len();
        if let Tok::P(p) = open.tok {
            self.open.push((p, open.span));
        }
        let mut list = Vec::new();
        let mut height = 0;
        if may_be_empty && self.eat(close) {
            self.open.truncate(open_before);
            self.height = 0;
            return Ok(list);
        }
        loop {
            let start = self.peek(0).span;
            match self.assignment() {
                Ok(element) => list.push(element),
                Err(ErrorReported) => {
                    if !self.skip_in_list(close) {
                        return Err(ErrorReported);
                    }
                    self.open.truncate(open_before + 1);
                    list.push(Expr { span: start, kind: ExprKind::Error });
                    self.height = 1;
                }
            }
            height = self.height.max(height);
            if self.eat(Punct::Comma) {
                continue;
            }
            if !self.eat(close) {
                self.unexpected();
                if !self.skip_in_list(close) {
                    return Err(ErrorReported);
                }
                if self.eat(Punct::Comma) {
                    continue;
                }
                self.bump();
            }
            self.open.truncate(open_before);
            self.height = height;
            return Ok(list);
        }
    }

    /// Skips to a comma or to `close` of the current list; false if the list does not continue.
    pub(super) fn skip_in_list(&mut self, close: Punct) -> bool {
        let mut depth = 0usize;
        loop {
            let token = self.peek(0).clone();
            match token.tok {
                Tok::P(Punct::Comma) if depth == 0 => return true,
                Tok::P(p) if p == close && depth == 0 => return true,
                Tok::P(Punct::LParen | Punct::LBracket) => depth += 1,
                Tok::P(Punct::RParen | Punct::RBracket) => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => return false,
                },
                Tok::Eof | Tok::P(Punct::Semi | Punct::LBrace | Punct::RBrace) => return false,
                Tok::P(Punct::Slash) if self.in_predicate && self.lex.slash_ends_predicate(&token) => {
                    return false;
                }
                _ => {}
            }
            self.bump();
        }
    }
}
