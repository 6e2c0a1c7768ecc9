//! The lexer: scans tokens on demand.
//!
//! D has two lexical grammars: that of probe descriptions (`profile-97`, `syscall::*read*:entry`),
//! where `-`, `*` and `[` are part of words, and that of everything else. The syntactic context
//! determines which one applies. So the parser requests either the next token or the next
//! description, and may rewind ([`Lexer::rewind`]) if the text turns out to be something else.
//! Scanning all tokens in advance would need the lexer states of the original, which guess the
//! context from braces.
//!
//! After a rewind, text is scanned twice. The side effects of scanning (errors, pragmas, line
//! markers, referenced operands) are therefore idempotent, or they only occur beyond
//! [`Lexer::processed_to`].

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;

use diagnostics::{Diagnostic, FileId, Sink, SourceMap, Span, Tag, nearest, raw};

use crate::ast::{IntBase, IntLit, Pragma};
use crate::macros::{Expansion, MacroEnv, MacroToken, token_of};
use crate::token::{Kw, PUNCTS, Tok, Token};

mod control;
mod literal;
mod pdesc;

pub(crate) struct Lexer<'a> {
    text: Rc<str>,
    file: FileId,
    map: &'a mut SourceMap,
    sink: &'a mut Sink,
    macros: Cow<'a, MacroEnv>,
    pos: usize,
    /// Only whitespace precedes the position on its line.
    fresh_line: bool,
    /// Control lines before this offset have been processed.
    processed_to: usize,
    /// The end of the last token, which is the location of errors at the end of input.
    last_end: usize,
    /// The names that the program assigns to, collected on the first query.
    assigned: OnceCell<HashSet<Box<str>>>,
    /// Pragmas that were scanned and that the parser has not consumed.
    pub(crate) pragmas: Vec<Pragma>,
    /// See `Program::operands_used`.
    pub(crate) operands_used: Vec<bool>,
}

fn is_name_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b == b'`'
}

fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'`'
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(
        map: &'a mut SourceMap,
        file: FileId,
        macros: &'a MacroEnv,
        sink: &'a mut Sink,
    ) -> Lexer<'a> {
        let text = Rc::from(map.text(file));
        Lexer {
            text,
            file,
            map,
            sink,
            macros: Cow::Borrowed(macros),
            pos: 0,
            fresh_line: true,
            processed_to: 0,
            last_end: 0,
            assigned: OnceCell::new(),
            pragmas: Vec::new(),
            operands_used: vec![false; macros.args.len() + 1],
        }
    }

    pub(crate) fn macros(&self) -> &MacroEnv {
        &self.macros
    }

    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start as u32, end as u32)
    }

    /// The whole text.
    pub(crate) fn all(&self) -> Span {
        self.span(0, self.text.len())
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
    }

    fn error(&mut self, tag: Tag, start: usize, end: usize, message: impl Into<String>) {
        let span = self.span(start, end);
        self.sink.error(tag, span, message);
    }

    /// The text of a span.
    pub(crate) fn snippet(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Rewinds to `token`, to scan it again.
    pub(crate) fn rewind(&mut self, token: &Token) {
        self.pos = token.span.start as usize;
        self.fresh_line = token.starts_line;
    }

    /// Ends the input at the current position.
    pub(crate) fn stop(&mut self) {
        self.pos = self.text.len();
        self.processed_to = self.pos;
    }

    /// The line number of `span` in messages.
    pub(crate) fn line(&self, span: Span) -> u64 {
        let line = self.map.line_number(self.file, span.start);
        self.map.line_origin(self.file, line).1
    }

    /// True if the text is from an included header.
    pub(crate) fn is_included(&self, span: Span) -> bool {
        self.map.is_included(span)
    }

    /// True if the byte is in the first column.
    pub(crate) fn in_first_column(&self, offset: u32) -> bool {
        offset == 0 || self.peek_at(offset as usize - 1) == b'\n'
    }

    /// The byte at `at`; 0 beyond the end.
    fn peek_at(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn at_end(&self) -> bool {
        self.pos >= self.text.len()
    }

    /// Skips whitespace, comments and line continuations, and processes control lines.
    pub(crate) fn skip_trivia(&mut self) {
        while !self.at_end() {
            match self.peek_at(self.pos) {
                b'\n' => {
                    self.fresh_line = true;
                    self.pos += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.pos += 1,
                b'\\' if self.peek_at(self.pos + 1) == b'\n' => self.pos += 2,
                b'\\' if self.peek_at(self.pos + 1) == b'\r' && self.peek_at(self.pos + 2) == b'\n' => {
                    self.pos += 3;
                }
                b'/' if self.peek_at(self.pos + 1) == b'/' => self.pos = self.line_end(self.pos),
                b'/' if self.peek_at(self.pos + 1) == b'*' => self.comment(),
                b'#' if self.fresh_line => self.control_line(),
                _ => break,
            }
        }
        self.processed_to = self.processed_to.max(self.pos);
    }

    fn line_end(&self, from: usize) -> usize {
        self.text[from..].find('\n').map_or(self.text.len(), |i| from + i)
    }

    fn comment(&mut self) {
        let start = self.pos;
        let text = self.text.clone();
        let body = &text[start + 2..];
        let close = body.find("*/");
        let end = close.map_or(text.len(), |i| start + 2 + i + 2);
        // The last two characters of "/*/" inside a comment end it.
        let inner = &body[..close.unwrap_or(body.len())];
        if let Some(at) = inner.find("/*") {
            let at = start + 2 + at;
            self.error(Tag::D_SYNTAX, at, at + 2, "/* encountered inside a comment");
        }
        if close.is_none() {
            self.error(Tag::D_SYNTAX, start, start + 2, "end-of-file encountered before matching */");
        }
        self.pos = end;
    }

    /// The next token.
    pub(crate) fn next(&mut self) -> Token {
        self.skip_trivia();
        let start = self.pos;
        let starts_line = self.fresh_line;
        self.fresh_line = false;
        if self.at_end() {
            // The location is the end of the last token, where something is missing, and not an
            // empty last line.
            let span = self.span(self.last_end.min(start), self.last_end.min(start));
            return Token { tok: Tok::Eof, span, starts_line, unclosed: false };
        }
        let mut unclosed = false;
        let b = self.peek_at(start);
        let tok = match b {
            _ if is_name_start(b) => self.name(),
            b'0'..=b'9' if self.is_digit_module() => self.name(),
            b'0'..=b'9' => self.number(),
            b'.' if self.peek_at(start + 1).is_ascii_digit() => self.number(),
            b'"' => {
                let (bytes, closed) = self.string();
                unclosed = !closed;
                Tok::Str(bytes)
            }
            b'\'' => {
                let (value, closed) = self.character();
                unclosed = !closed;
                Tok::Char(value)
            }
            b'@' => {
                self.pos += 1;
                if self.peek_at(self.pos).is_ascii_alphabetic() || self.peek_at(self.pos) == b'_' {
                    let from = self.pos;
                    while self.peek_at(self.pos).is_ascii_alphanumeric() || self.peek_at(self.pos) == b'_' {
                        self.pos += 1;
                    }
                    Tok::Agg(self.text[from..self.pos].to_owned())
                } else {
                    Tok::Agg("_".to_owned())
                }
            }
            b'$' => self.macro_token(),
            _ => self.punct(),
        };
        self.last_end = self.pos;
        Token { tok, span: self.span(start, self.pos), starts_line, unclosed }
    }

    /// True at a module name that starts with a digit: `` 9p`sym ``.
    fn is_digit_module(&self) -> bool {
        let mut at = self.pos;
        while self.peek_at(at).is_ascii_alphanumeric() || self.peek_at(at) == b'_' {
            at += 1;
        }
        self.peek_at(at) == b'`'
    }

    fn name(&mut self) -> Tok {
        let start = self.pos;
        while is_name_byte(self.peek_at(self.pos)) {
            self.pos += 1;
        }
        self.scoped_name(start);
        let text = &self.text[start..self.pos];
        Kw::from_text(text).map_or_else(|| Tok::Ident(text.to_owned()), Tok::Kw)
    }

    /// Extends a name that is scoped to a file of a process, which may have characters that no
    /// other name has: `` a.out`conn ``, `` pid123`libstdc++.so.6`std::string ``.
    fn scoped_name(&mut self, start: usize) {
        let is_file = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'+' | b'-');
        loop {
            let word = self.text[start..self.pos].rfind('`').map_or(start, |tick| start + tick + 1);
            let mut end = self.pos;
            while is_file(self.peek_at(end)) {
                end += 1;
            }
            let file = &self.text[word..end];
            // Where it is no library, `a-b` is a difference.
            let is_name = !file.contains(['+', '-']) || file.contains(".so");
            if end == self.pos || self.peek_at(end) != b'`' || !is_name {
                break;
            }
            self.pos = end + 1;
            while is_name_byte(self.peek_at(self.pos)) {
                self.pos += 1;
            }
        }
        let is_scoped = self.text[start..self.pos].contains('`');
        while is_scoped
            && self.text[self.pos..].starts_with("::")
            && is_name_start(self.peek_at(self.pos + 2))
            && !self.text[..self.pos].ends_with('`')
        {
            self.pos += 2;
            while is_name_byte(self.peek_at(self.pos)) {
                self.pos += 1;
            }
        }
    }

    fn punct(&mut self) -> Tok {
        let text = self.text.clone();
        let rest = &text[self.pos..];
        if let Some((spelling, p)) = PUNCTS.iter().find(|(s, _)| rest.starts_with(s)) {
            self.pos += spelling.len();
            return Tok::P(*p);
        }
        // A sequence of invalid bytes is one error.
        let len = rest.find(|c: char| {
            c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "\"'@$;{}()[]_`".contains(c)
        });
        let len = match len {
            None => rest.len(),
            Some(0) => rest.chars().next().map_or(1, char::len_utf8),
            Some(len) => len,
        };
        let start = self.pos;
        let (shown, raw) = (raw::bytes(&rest[..len]), raw::is_raw(&rest[..len]));
        let shown =
            if raw { shown.escape_ascii().to_string() } else { rest[..len].escape_debug().to_string() };
        let d = Diagnostic::new(
            Tag::D_SYNTAX,
            self.span(start, start + len),
            format!("syntax error near \"{shown}\""),
        );
        let help = "bytes that are not UTF-8 may only stand in strings and comments";
        self.push(if raw { d.with_help(help) } else { d });
        self.pos += len;
        Tok::Bad
    }

    /// The start and the end of the name of the macro variable whose `$` is at `at`; `None` if it
    /// has no name.
    fn macro_name(&self, at: usize) -> Option<(usize, usize)> {
        let from = if self.peek_at(at + 1) == b'$' { at + 2 } else { at + 1 };
        let first = self.peek_at(from);
        let part: fn(&u8) -> bool = if first.is_ascii_digit() {
            u8::is_ascii_digit
        } else if first.is_ascii_alphabetic() || first == b'_' {
            |b| b.is_ascii_alphanumeric() || *b == b'_'
        } else {
            return None;
        };
        let len = self.text.as_bytes().iter().skip(from).take_while(|b| part(b)).count();
        Some((from, from + len))
    }

    /// Expands `$name` and marks it as referenced.
    fn expand(&mut self, name: &str) -> Expansion {
        if let Ok(n) = name.parse::<usize>()
            && let Some(used) = self.operands_used.get_mut(n)
        {
            *used = true;
        }
        self.macros.expand(name)
    }

    fn macro_token(&mut self) -> Tok {
        let start = self.pos;
        let Some((from, end)) = self.macro_name(start) else {
            self.error(Tag::D_SYNTAX, start, start + 1, "syntax error near \"$\"");
            self.pos += 1;
            return Tok::Bad;
        };
        self.pos = end;
        let as_string = from == start + 2;
        let name = self.text[from..end].to_owned();
        let zero =
            Tok::Int(IntLit { value: 0, base: IntBase::Decimal, unsigned: false, longs: 0, negative: false });
        let text = match self.expand(&name) {
            Expansion::Text(text) => text,
            Expansion::Default if as_string => return Tok::Str(Vec::new()),
            Expansion::Default => return zero,
            Expansion::Overflow => {
                let message = format!("macro argument ${name} constant {name} results in integer overflow");
                self.error(Tag::D_MACRO_OFLOW, start, end, message);
                return if as_string { Tok::Str(Vec::new()) } else { zero };
            }
            Expansion::Undefined => {
                let numbered = name.starts_with(|c: char| c.is_ascii_digit());
                let word = if numbered { "argument" } else { "variable" };
                let d = Diagnostic::new(
                    Tag::D_MACRO_UNDEF,
                    self.span(start, end),
                    format!("macro {word} ${name} is not defined"),
                );
                let d = match nearest(&name, MacroEnv::NAMES.map(|(name, _)| name)) {
                    Some(near) => d.with_help(format!("did you mean `${near}`?")),
                    None if numbered => d.with_help(
                        "pass the operand after the program, or set the option `defaultargs` to make it 0",
                    ),
                    None => d,
                };
                self.push(d);
                return if as_string { Tok::Str(Vec::new()) } else { zero };
            }
        };
        if as_string {
            return Tok::Str(raw::bytes(&text));
        }
        match token_of(&text) {
            MacroToken::Int(lit) => Tok::Int(lit),
            MacroToken::Ident(name) => Tok::Ident(name),
            MacroToken::Str(text) => Tok::Str(raw::bytes(&text)),
            MacroToken::Overflow => {
                self.error(
                    Tag::D_MACRO_OFLOW,
                    start,
                    end,
                    format!("macro argument ${name} constant {text} results in integer overflow"),
                );
                zero
            }
        }
    }

    /// True if `token`, a slash, can end a predicate: the end of input, `;`, `{` or another slash
    /// follows it.
    pub(crate) fn slash_ends_predicate(&self, token: &Token) -> bool {
        let mut at = token.span.end as usize;
        loop {
            let rest = self.text.as_bytes().get(at..).unwrap_or_default();
            at += rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)).count();
            // A line marker of the preprocessor counts as whitespace.
            if self.peek_at(at) != b'#' {
                break;
            }
            at = self.line_end(at);
        }
        at >= self.text.len() || matches!(self.peek_at(at), b';' | b'{' | b'/')
    }
}

#[cfg(test)]
mod tests {
    use diagnostics::{Sink, SourceKind, SourceMap};

    use crate::{MacroEnv, ParseMode, TypeNames, parse};

    struct NoTypes;

    impl TypeNames for NoTypes {
        fn is_type(&self, _: &str) -> bool {
            false
        }
    }

    #[test]
    fn invalid_bytes_up_to_the_end_of_the_text_are_one_error() {
        for text in ["\u{e9}\u{1}\u{e9}", "BEGIN { } \u{e9}\u{10ffff}\u{e9}"] {
            let (mut map, mut sink) = (SourceMap::default(), Sink::default());
            let file = map.add(SourceKind::Script, "x.d", text);
            parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &NoTypes, &mut sink);
            assert_eq!(sink.iter().len(), 1, "{text}");
        }
    }
}
