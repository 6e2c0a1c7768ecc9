//! Tokens to tree, by recursive descent.
//!
//! A rule that cannot go on complains once and returns [`Bail`]; whoever owns a place where reading can resume (a list
//! element, a statement, a member, an item) catches it, skips to that place and leaves a hole in the tree. So one run
//! reports every error, and none of them twice: [`Parser::unexpected`] is silent where it has complained already, and
//! after a string that was never closed.
//!
//! Nesting is limited ([`MAX_DEPTH`], [`MAX_HEIGHT`]) because a text must not decide how much stack this or any later
//! stage needs. Beyond the limit the rest of the text is not read.

use std::collections::{HashSet, VecDeque};

use diagnostics::{Diagnostic, Span, Tag};

use crate::ast::{Item, Name, Program};
use crate::lexer::Lexer;
use crate::names::is_builtin_type;
use crate::token::{Kw, Punct, Tok, Token};
use crate::{ParseMode, TypeNames};

mod clause;
mod decl;
mod definition;
mod expr;

/// How deeply constructs may contain each other.
const MAX_DEPTH: usize = 256;
/// How high the tree of an expression may become; more than `MAX_DEPTH` because long sums lean to the left.
const MAX_HEIGHT: usize = 512;

/// The complaint was made; skip to where reading can resume.
pub(crate) struct Bail;

pub(crate) type Parsed<T> = Result<T, Bail>;

/// What the text of an item begins with.
enum Start {
    Description,
    Declaration,
    Inline,
    Translator,
    Provider,
    Wrong,
}

pub(crate) struct Parser<'a> {
    lex: Lexer<'a>,
    ahead: VecDeque<Token>,
    types: &'a dyn TypeNames,
    typedefs: HashSet<String>,
    /// Global variables that the text declares.
    variables: HashSet<String>,
    mode: ParseMode,
    /// The last token taken.
    last: Span,
    /// Open parentheses and brackets, for the message when one is not closed.
    open: Vec<(Punct, Span)>,
    /// Reading a predicate: a slash may end it.
    in_predicate: bool,
    depth: usize,
    /// Height of the expression made last.
    height: usize,
    /// Where the last complaint was made.
    complained_at: Option<u32>,
    /// A string was not closed; what follows makes no sense until the next statement.
    quiet: bool,
    /// Too deep; nothing more is read.
    stopped: bool,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(lex: Lexer<'a>, mode: ParseMode, types: &'a dyn TypeNames) -> Parser<'a> {
        let all = lex.all();
        Parser {
            lex,
            ahead: VecDeque::new(),
            types,
            typedefs: HashSet::new(),
            variables: HashSet::new(),
            mode,
            last: Span::new(all.file, 0, 0),
            open: Vec::new(),
            in_predicate: false,
            depth: 0,
            height: 0,
            complained_at: None,
            quiet: false,
            stopped: false,
        }
    }

    pub(crate) fn program(mut self) -> Program {
        let all = self.lex.all();
        let mut items = Vec::new();
        loop {
            self.forget_ahead();
            let word = self.lex.description_word();
            items.extend(self.lex.pragmas.drain(..).map(Item::Pragma));
            let first = self.peek(0).span.start;
            if self.peek(0).tok == Tok::Eof {
                break;
            }
            match self.start(word.clone()) {
                Start::Description => {
                    self.forget_ahead();
                    let clause = self.clause(word);
                    items.push(Item::Clause(clause));
                }
                start => {
                    let item = match start {
                        Start::Declaration => self.declaration().map(Item::Declaration),
                        Start::Inline => self.inline().map(Item::Inline),
                        Start::Translator => self.translator().map(Item::Translator),
                        Start::Provider => self.provider().map(Item::Provider),
                        Start::Description | Start::Wrong => Err(self.unexpected_item()),
                    };
                    match item {
                        Ok(item) => items.push(item),
                        Err(Bail) => self.skip_item(first),
                    }
                }
            }
            self.new_statement();
            if self.peek(0).span.start == first && self.peek(0).tok != Tok::Eof {
                self.bump();
            }
        }
        items.extend(self.lex.pragmas.drain(..).map(Item::Pragma));
        let operands_used = std::mem::take(&mut self.lex.operands_used);
        Program { file: all.file, span: all, items, operands_used }
    }

    /// What an item begins with, judged by its first word in the vocabulary of probe descriptions.
    fn start(&mut self, word: std::ops::Range<usize>) -> Start {
        let text = self.lex.slice(word.clone()).to_owned();
        if text.is_empty() {
            return Start::Wrong;
        }
        match Kw::from_text(&text) {
            Some(Kw::Inline) => return Start::Inline,
            Some(Kw::Translator) => return Start::Translator,
            Some(Kw::Provider) => return Start::Provider,
            Some(kw) if kw.starts_item() => return Start::Declaration,
            Some(_) => return Start::Wrong,
            None => {}
        }
        let (next, next_at) = self.lex.byte_after_blanks(word.end);
        if next == b'>' && (text == "self-" || text == "this-") {
            return Start::Wrong;
        }
        // `int*x;` is a declaration, `int*{}` a description; without one of these signs it depends on the types.
        if matches!(next, b'{' | b'/') {
            return Start::Description;
        }
        if let Some((before, after)) = text.split_once('*')
            && !self.lex.macros().probe_spec_first
            && !text.contains([':', '-', '.', '?', '!', '`'])
            && !(after.is_empty() && next == b',')
            && (Kw::from_text(before).is_some_and(Kw::starts_type) || self.is_type(before))
        {
            return Start::Declaration;
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '`';
        if text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(plain) {
            return Start::Description;
        }
        if next != b',' && next != 0 && self.is_type(&text) {
            return Start::Declaration;
        }
        // `unknown_t x;`: let the checker say that the type is unknown.
        if !matches!(text.as_str(), "BEGIN" | "END" | "ERROR") {
            let mut at = next_at;
            while self.lex.slice(at..at + 1) == "*" {
                at = self.lex.byte_after_blanks(at + 1).1;
            }
            let name = self.lex.word_at(at);
            let name = self.lex.slice(name).split(|c| !plain(c)).next().unwrap_or("").len();
            let named = self.lex.slice(at..at + 1).starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if named && matches!(self.lex.byte_after_blanks(at + name).0, b';' | b',' | b'[') {
                return Start::Declaration;
            }
        }
        Start::Description
    }

    fn unexpected_item(&mut self) -> Bail {
        if self.peek(0).is(Punct::RBrace) {
            let span = self.peek(0).span;
            return self.complain(Diagnostic::new(Tag::D_SYNTAX, span, "extra } in input stream"));
        }
        self.unexpected()
    }

    /// Skips to where the next item may start. `first` is where the wrong one began.
    fn skip_item(&mut self, first: u32) {
        loop {
            let token = self.peek(0).clone();
            let moved = token.span.start != first;
            match token.tok {
                Tok::Eof => return,
                Tok::P(Punct::Semi | Punct::RBrace) => {
                    self.bump();
                    return;
                }
                Tok::P(Punct::LBrace) => {
                    self.new_statement();
                    let _ = self.block();
                    return;
                }
                Tok::Ident(_) | Tok::Kw(_)
                    if moved && token.starts_line && self.lex.in_first_column(token.span.start) =>
                {
                    return;
                }
                _ => {
                    self.bump();
                }
            }
        }
    }

    /// Forgets tokens read ahead, so that the lexer can read them in another vocabulary.
    fn forget_ahead(&mut self) {
        if let Some(token) = self.ahead.front()
            && !self.stopped
        {
            self.lex.rewind(token);
        }
        self.ahead.clear();
    }

    /// The `n`th token from here.
    fn peek(&mut self, n: usize) -> &Token {
        while self.ahead.len() <= n {
            let token = self.lex.next();
            self.ahead.push_back(token);
        }
        &self.ahead[n]
    }

    fn at(&mut self, p: Punct) -> bool {
        self.peek(0).is(p)
    }

    fn at_kw(&mut self, kw: Kw) -> bool {
        self.peek(0).tok == Tok::Kw(kw)
    }

    /// Takes the next token.
    fn bump(&mut self) -> Token {
        self.peek(0);
        let Some(token) = self.ahead.pop_front() else { return self.lex.next() };
        self.last = token.span;
        self.quiet |= token.unclosed;
        token
    }

    /// Takes the next token if it is `p`.
    fn eat(&mut self, p: Punct) -> bool {
        let found = self.at(p);
        if found {
            self.bump();
        }
        found
    }

    fn require(&mut self, p: Punct) -> Parsed<Span> {
        if self.at(p) { Ok(self.bump().span) } else { Err(self.unexpected()) }
    }

    /// A name; `what` says of what, for the message.
    fn require_name(&mut self) -> Parsed<Name> {
        match &self.peek(0).tok {
            Tok::Ident(text) if !text.contains('`') => {
                let text = text.clone();
                Ok(Name { text, span: self.bump().span })
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A name or a keyword in a place where only a member can stand.
    fn require_member_name(&mut self) -> Parsed<Name> {
        if let Tok::Kw(kw) = self.peek(0).tok {
            return Ok(Name { text: kw.text().to_owned(), span: self.bump().span });
        }
        self.require_name()
    }

    /// Complains about the next token.
    fn unexpected(&mut self) -> Bail {
        self.unexpected_with(None)
    }

    /// Complains about the next token, and says what would be right.
    fn unexpected_with(&mut self, help: Option<&str>) -> Bail {
        let Token { tok, span, .. } = self.peek(0).clone();
        if tok == Tok::Bad {
            self.complained_at = Some(span.start);
            return Bail;
        }
        let closer = |open: Punct| if open == Punct::LParen { ")" } else { "]" };
        if tok == Tok::P(Punct::Slash)
            && self.in_predicate
            && let Some((open, at)) = self.open.last().copied()
        {
            let message = format!("closing {} expected in predicate before /", closer(open));
            let help = format!("`{}` on line {} is not closed", open.text(), self.lex.line(at));
            return self.complain(Diagnostic::new(Tag::D_SYNTAX, span, message).with_help(help));
        }
        let d = match tok {
            Tok::Eof => Diagnostic::new(Tag::D_SYNTAX, span, "syntax error near end of input"),
            _ => {
                let near = self.lex.snippet(span).escape_debug().to_string();
                Diagnostic::new(Tag::D_SYNTAX, span, format!("syntax error near \"{near}\""))
            }
        };
        let ends = matches!(tok, Tok::Eof | Tok::P(Punct::Semi | Punct::LBrace | Punct::RBrace));
        let d = match self.open.last().copied() {
            Some((open, at)) if ends => {
                d.with_help(format!("`{}` on line {} is not closed", open.text(), self.lex.line(at)))
            }
            _ => d,
        };
        let d = if let Some(help) = help { d.with_help(help) } else { d };
        self.complain(d)
    }

    /// Complains, unless a complaint about this place was made already.
    fn complain(&mut self, d: Diagnostic) -> Bail {
        let at = d.span.map(|s| s.start);
        if !self.quiet && !self.stopped && (at.is_none() || at != self.complained_at) {
            self.lex.push(d);
        }
        self.complained_at = at;
        Bail
    }

    /// A complaint that does not stop reading.
    fn error(&mut self, tag: Tag, span: Span, message: impl Into<String>) {
        self.lex.push(Diagnostic::new(tag, span, message));
    }

    /// A place where reading resumes: what was open is no more.
    fn new_statement(&mut self) {
        self.open.clear();
        self.quiet = false;
        self.in_predicate = false;
    }

    /// Runs a rule that may contain itself.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Stops reading for good.
    fn too_deep(&mut self) -> Bail {
        let span = self.peek(0).span;
        self.quiet = false;
        let message = "syntax error: nested too deeply";
        self.complain(Diagnostic::new(Tag::D_SYNTAX, span, message));
        self.stopped = true;
        self.lex.stop();
        self.ahead.clear();
        Bail
    }

    /// `name` is known as a type. What the text declares or assigns is a variable: the caller, for whom the answer may be
    /// dear, is not asked about it.
    fn is_type(&self, name: &str) -> bool {
        // These are scopes of types alone.
        name.starts_with("D`")
            || name.starts_with("C`")
            || is_builtin_type(name)
            || self.typedefs.contains(name)
            || !self.variables.contains(name) && !self.lex.assigns(name) && self.types.is_type(name)
    }
}

/// `` module`name `` at its last backquote, with the place of each part.
fn split_scope(text: &str, span: Span) -> (Option<Name>, Name) {
    match text.rsplit_once('`') {
        None => (None, Name { text: text.to_owned(), span }),
        Some((module, name)) => {
            let tick = span.start + module.len() as u32;
            let module = (!module.is_empty())
                .then(|| Name { text: module.to_owned(), span: Span::new(span.file, span.start, tick) });
            (module, Name { text: name.to_owned(), span: Span::new(span.file, tick + 1, span.end) })
        }
    }
}
