//! A recursive descent parser with error recovery.
//!
//! A rule that finds a syntax error reports it and returns [`ErrorReported`]. The rules for list
//! elements, statements, members and items are recovery points: they catch it, skip to the end of
//! the construct, and put an error node into the tree. So one run reports every error, and each of
//! them once: [`Parser::unexpected`] reports nothing at a location that has an error already, and
//! nothing after an unterminated string.
//!
//! Nesting is limited ([`MAX_DEPTH`], [`MAX_HEIGHT`]), so that no program overflows the stack of
//! this or a later stage. Beyond the limit, the rest of the program is not parsed.

use std::collections::{HashSet, VecDeque};

use diagnostics::{Diagnostic, ReportedAt, Span, Tag};

use crate::ast::{Item, Name, Program};
use crate::lexer::Lexer;
use crate::names::is_builtin_type;
use crate::token::{Kw, Punct, Tok, Token};
use crate::{ParseMode, TypeNames};

mod clause;
mod decl;
mod definition;
mod expr;

/// The maximum nesting depth of constructs.
const MAX_DEPTH: usize = 256;
/// The maximum height of an expression tree. It exceeds `MAX_DEPTH`, because the trees of long sums
/// are left-deep.
const MAX_HEIGHT: usize = 512;

/// A syntax error was reported; the caller must skip to a recovery point.
pub(crate) struct ErrorReported;

pub(crate) type Parsed<T> = Result<T, ErrorReported>;

/// The kind of an item, as determined from its first tokens.
enum ItemStart {
    Description,
    Declaration,
    Inline,
    Translator,
    Provider,
    Invalid,
}

pub(crate) struct Parser<'a> {
    lex: Lexer<'a>,
    ahead: VecDeque<Token>,
    types: &'a dyn TypeNames,
    typedefs: HashSet<String>,
    /// The global variables that the program declares.
    variables: HashSet<String>,
    /// The structs and unions whose members the program gave: `struct tag`.
    records: HashSet<String>,
    mode: ParseMode,
    /// The last token that was consumed.
    last: Span,
    /// Open parentheses and brackets, for the message about a missing closing one.
    open: Vec<(Punct, Span)>,
    /// The parser is in a predicate: a slash may end it.
    in_predicate: bool,
    depth: usize,
    /// The height of the last expression.
    height: usize,
    /// The location of the last syntax error.
    reported_at: Option<u32>,
    /// A string was not closed. Errors are not reported until the next statement.
    quiet: bool,
    /// The nesting limit was exceeded; parsing has ended.
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
            records: HashSet::new(),
            mode,
            last: Span::new(all.file, 0, 0),
            open: Vec::new(),
            in_predicate: false,
            depth: 0,
            height: 0,
            reported_at: None,
            quiet: false,
            stopped: false,
        }
    }

    pub(crate) fn program(mut self) -> Program {
        let all = self.lex.all();
        let mut items = Vec::new();
        loop {
            self.discard_lookahead();
            let word = self.lex.description_word();
            items.extend(self.lex.pragmas.drain(..).map(Item::Pragma));
            let first = self.peek(0).span.start;
            if self.peek(0).tok == Tok::Eof {
                break;
            }
            match self.item_start(word.clone()) {
                ItemStart::Description => {
                    self.discard_lookahead();
                    let clause = self.clause(word);
                    items.push(Item::Clause(clause));
                }
                start => {
                    let item = match start {
                        ItemStart::Declaration => self.declaration().map(Item::Declaration),
                        ItemStart::Inline => self.inline().map(Item::Inline),
                        ItemStart::Translator => self.translator().map(Item::Translator),
                        ItemStart::Provider => self.provider().map(Item::Provider),
                        ItemStart::Description | ItemStart::Invalid => Err(self.unexpected_item()),
                    };
                    match item {
                        Ok(item) => items.push(item),
                        Err(ErrorReported) => self.skip_item(first),
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

    /// Determines the kind of an item from its first word, which is scanned as a probe description.
    fn item_start(&mut self, word: std::ops::Range<usize>) -> ItemStart {
        let text = self.lex.slice(word.clone()).to_owned();
        if text.is_empty() {
            return ItemStart::Invalid;
        }
        match Kw::from_text(&text) {
            Some(Kw::Inline) => return ItemStart::Inline,
            Some(Kw::Translator) => return ItemStart::Translator,
            Some(Kw::Provider) => return ItemStart::Provider,
            Some(kw) if kw.starts_item() => return ItemStart::Declaration,
            Some(_) => return ItemStart::Invalid,
            None => {}
        }
        let (next, next_at) = self.lex.byte_after_blanks(word.end);
        if next == b'>' && (text == "self-" || text == "this-") {
            return ItemStart::Invalid;
        }
        // `int*x;` is a declaration and `int*{}` a description. Otherwise it depends on the types.
        if matches!(next, b'{' | b'/') {
            return ItemStart::Description;
        }
        if let Some((before, after)) = text.split_once('*')
            && !self.lex.macros().probe_spec_first
            && !text.contains([':', '-', '.', '?', '!', '`'])
            && !(after.is_empty() && next == b',')
            && (Kw::from_text(before).is_some_and(Kw::starts_type) || self.is_type(before))
        {
            return ItemStart::Declaration;
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '`';
        if text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(plain) {
            return ItemStart::Description;
        }
        if next != b',' && next != 0 && self.is_type(&text) {
            return ItemStart::Declaration;
        }
        // `unknown_t x;` is a declaration, so that the checker reports the unknown type.
        if !matches!(text.as_str(), "BEGIN" | "END" | "ERROR") {
            let mut at = next_at;
            while self.lex.slice(at..at + 1) == "*" {
                at = self.lex.byte_after_blanks(at + 1).1;
            }
            let name = self.lex.word_at(at);
            let name = self.lex.slice(name).split(|c| !plain(c)).next().unwrap_or("").len();
            let named = self.lex.slice(at..at + 1).starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if named && matches!(self.lex.byte_after_blanks(at + name).0, b';' | b',' | b'[') {
                return ItemStart::Declaration;
            }
        }
        ItemStart::Description
    }

    fn unexpected_item(&mut self) -> ErrorReported {
        // The original counts brackets from the beginning of an item only.
        if let Tok::P(closer @ (Punct::RParen | Punct::RBracket)) = self.peek(0).tok {
            let message = format!("syntax error near \"{}\"", closer.text());
            let span = self.peek(0).span;
            return self.report(Diagnostic::new(Tag::D_SYNTAX, span, message));
        }
        self.unexpected()
    }

    /// Skips to the possible start of the next item. `first` is the start of the invalid item.
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

    /// Discards the lookahead tokens, so that the lexer can scan the same text as a probe
    /// description.
    fn discard_lookahead(&mut self) {
        if let Some(token) = self.ahead.front()
            && !self.stopped
        {
            self.lex.rewind(token);
        }
        self.ahead.clear();
    }

    /// The `n`th token ahead.
    #[expect(clippy::indexing_slicing, reason = "the loop adds the tokens up to it")]
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

    /// Consumes the next token.
    fn bump(&mut self) -> Token {
        self.peek(0);
        let Some(token) = self.ahead.pop_front() else { return self.lex.next() };
        self.last = token.span;
        self.quiet |= token.unclosed;
        token
    }

    /// Consumes the next token if it is `p`.
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

    /// Consumes a name.
    fn require_name(&mut self) -> Parsed<Name> {
        match &self.peek(0).tok {
            Tok::Ident(text) if !text.contains('`') => {
                let text = text.clone();
                Ok(Name { text, span: self.bump().span })
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Consumes the name of a member, which may be a keyword.
    fn require_member_name(&mut self) -> Parsed<Name> {
        if let Tok::Kw(kw) = self.peek(0).tok {
            return Ok(Name { text: kw.text().to_owned(), span: self.bump().span });
        }
        self.require_name()
    }

    /// Reports that the next token is unexpected.
    fn unexpected(&mut self) -> ErrorReported {
        self.unexpected_with(None)
    }

    /// Reports that the next token is unexpected, with a hint.
    fn unexpected_with(&mut self, help: Option<&str>) -> ErrorReported {
        let Token { tok, span, .. } = self.peek(0).clone();
        if tok == Tok::Bad {
            self.reported_at = Some(span.start);
            return ErrorReported;
        }
        let closer = |open: Punct| if open == Punct::LParen { ")" } else { "]" };
        if tok == Tok::P(Punct::Slash)
            && self.in_predicate
            && let Some((open, at)) = self.open.last().copied()
        {
            let message = format!("closing {} expected in predicate before /", closer(open));
            let help = format!("`{}` on line {} is not closed", open.text(), self.lex.line(at));
            let d = Diagnostic::new(Tag::D_SYNTAX, span, message).at(ReportedAt::Next);
            return self.report(d.with_help(help));
        }
        let opened = |punct: Punct| self.open.iter().any(|(open, _)| *open == punct);
        let extra = match tok {
            Tok::P(Punct::RParen) => !opened(Punct::LParen),
            Tok::P(Punct::RBracket) => !opened(Punct::LBracket),
            Tok::P(Punct::RBrace) => self.in_predicate,
            _ => false,
        };
        let d = match tok {
            Tok::P(punct) if extra => {
                Diagnostic::new(Tag::D_SYNTAX, span, format!("extra {} in input stream", punct.text()))
            }
            Tok::Eof => {
                Diagnostic::new(Tag::D_SYNTAX, span, "syntax error near end of input").at(ReportedAt::TextEnd)
            }
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
        self.report(d)
    }

    /// Reports an error, unless one was reported at the same location.
    fn report(&mut self, d: Diagnostic) -> ErrorReported {
        let at = d.span.map(|s| s.start);
        if !self.quiet && !self.stopped && (at.is_none() || at != self.reported_at) {
            self.lex.push(d);
        }
        self.reported_at = at;
        ErrorReported
    }

    /// Reports an error without ending the current rule.
    fn error(&mut self, tag: Tag, span: Span, message: impl Into<String>) {
        self.lex.push(Diagnostic::new(tag, span, message));
    }

    /// Resets the state at a recovery point: open brackets are forgotten.
    fn new_statement(&mut self) {
        self.open.clear();
        self.quiet = false;
        self.in_predicate = false;
    }

    /// Runs a recursive rule and checks the nesting depth.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Reports that the nesting is too deep, and ends parsing.
    fn too_deep(&mut self) -> ErrorReported {
        let span = self.peek(0).span;
        self.quiet = false;
        let message = "syntax error: nested too deeply";
        self.report(Diagnostic::new(Tag::D_SYNTAX, span, message));
        self.stopped = true;
        self.lex.stop();
        self.ahead.clear();
        ErrorReported
    }

    /// True if `name` names a type. A name that the program declares or assigns is a variable. For
    /// such a name the caller is not queried, because the query may be expensive.
    fn is_type(&self, name: &str) -> bool {
        // These scopes contain only types.
        name.starts_with("D`")
            || name.starts_with("C`")
            || is_builtin_type(name)
            || self.typedefs.contains(name)
            || !self.variables.contains(name) && !self.lex.assigns(name) && self.types.is_type(name)
    }
}

/// Splits `` module`name `` at its last backquote, with the location of each part.
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
