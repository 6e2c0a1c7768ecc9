//! Control lines, which begin with `#`: pragmas, line markers of the preprocessor, `#!`.
//!
//! They may occur wherever whitespace may, also inside a clause. So the lexer processes them while
//! it skips whitespace, and stores D pragmas in [`Lexer::pragmas`] for the parser.

use diagnostics::{Diagnostic, Span, Tag, nearest};

use super::Lexer;
use super::literal::unescape;
use crate::ast::{AttributeSubject, DependencyClass, Name, Pragma, PragmaKind};

/// The D pragmas.
const D_PRAGMAS: [&str; 7] = ["attributes", "binding", "depends_on", "error", "ident", "line", "option"];

/// The control directives.
const DIRECTIVES: [&str; 4] = ["pragma", "ident", "line", "error"];

/// The directives of the C preprocessor, which need `-C`.
const CPP_DIRECTIVES: [&str; 11] = [
    "define",
    "elif",
    "else",
    "endif",
    "if",
    "ifdef",
    "ifndef",
    "include",
    "include_next",
    "undef",
    "warning",
];

/// A word of a control line; `quoted` for a string.
struct Word {
    name: Name,
    quoted: bool,
}

impl Word {
    fn text(&self) -> &str {
        &self.name.text
    }

    fn number(&self) -> Option<u64> {
        if self.quoted { None } else { self.name.text.parse().ok() }
    }
}

impl Lexer<'_> {
    /// At a `#` that starts a line: processes the line and skips it.
    pub(super) fn control_line(&mut self) {
        let start = self.pos;
        if start == 0 && self.text.starts_with("#!") {
            self.pos = crate::mode::script_start(&self.text);
            return;
        }
        let mut end = self.line_end(start);
        while end < self.text.len() && self.text[start..end].trim_end_matches('\r').ends_with('\\') {
            end = self.line_end(end + 1);
        }
        self.pos = end;
        if start < self.processed_to {
            return;
        }
        let words = self.words(start + 1, end);
        let trimmed = start + self.text[start..end].trim_end().len();
        let line = self.span(start, trimmed);
        let Some((first, rest)) = words.split_first() else { return };
        match first.text() {
            _ if first.number().is_some() => self.line_marker(first, rest, end),
            "line" => match rest.split_first() {
                Some((number, rest)) if number.number().is_some() => self.line_marker(number, rest, end),
                _ => {
                    self.malformed("line", line, "<number> <file>", "expected a line number and a file name")
                }
            },
            "ident" => {}
            "error" => self.user_error(line, rest),
            "pragma" => self.pragma(line, rest),
            other => {
                let d = Diagnostic::new(
                    Tag::D_PRAGCTL_INVAL,
                    line,
                    format!("invalid control directive: #{}", other.escape_debug()),
                );
                let d = if CPP_DIRECTIVES.contains(&other) {
                    d.with_help("the option -C runs the C preprocessor over a script")
                } else if let Some(near) = nearest(other, DIRECTIVES) {
                    d.with_help(format!("did you mean `#{near}`?"))
                } else {
                    d
                };
                self.push(d);
            }
        }
    }

    fn words(&self, start: usize, end: usize) -> Vec<Word> {
        let bytes = self.text.as_bytes();
        let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
        let blank = |at: usize| {
            byte(at).is_ascii_whitespace()
                || byte(at) == b'\\' && at + 1 < end && { matches!(byte(at + 1), b'\n' | b'\r') }
        };
        let mut words = Vec::new();
        let mut at = start;
        while at < end {
            if blank(at) {
                at += 1;
                continue;
            }
            let rest = &self.text[at..end];
            if rest.starts_with("//") {
                break;
            }
            if let Some(body) = rest.strip_prefix("/*") {
                at = body.find("*/").map_or(end, |i| at + i + 4);
                continue;
            }
            let from = at;
            let mut in_quotes = false;
            while at < end && (in_quotes || !blank(at)) {
                match byte(at) {
                    b'"' => in_quotes = !in_quotes,
                    b'\\' if in_quotes && at + 1 < end => at += 1,
                    b'/' if !in_quotes && bytes.get(at + 1) == Some(&b'*') => break,
                    _ => {}
                }
                at += 1;
            }
            at = at.min(end);
            let raw = self.text.get(from..at).unwrap_or("");
            let inner = raw.strip_prefix('"').and_then(|r| r.strip_suffix('"'));
            let text = inner.map_or_else(|| raw.to_owned(), |inner| diagnostics::raw::text(unescape(inner)));
            words.push(Word { name: Name { text, span: self.span(from, at) }, quoted: inner.is_some() });
        }
        words
    }

    /// `# 12 "file" flags`: the line after this one is line 12 of `file`.
    fn line_marker(&mut self, number: &Word, rest: &[Word], end: usize) {
        let Some(line) = number.number() else { return };
        let physical = self.map.line_number(self.file, end as u32);
        let name = match rest.first() {
            Some(file) if file.quoted => file.text().to_owned(),
            _ => self.map.line_origin(self.file, physical).0,
        };
        self.map.set_origin(self.file, physical + 1, name, line);
    }

    fn user_error(&mut self, line: Span, rest: &[Word]) {
        let text: Vec<&str> = rest.iter().map(Word::text).collect();
        self.push(Diagnostic::new(Tag::D_PRAGERR, line, format!("#error: {}", text.join(" "))));
    }

    /// `form` is what follows the name, in the words of the original.
    fn malformed(&mut self, what: &str, span: Span, form: &str, expected: &str) {
        let message = format!("malformed #pragma {what} {form}");
        self.push(Diagnostic::new(Tag::D_PRAGMA_MALFORM, span, message).with_help(expected));
    }

    fn pragma(&mut self, line: Span, words: &[Word]) {
        let Some((first, rest)) = words.split_first() else {
            let at_end = (line.end as usize) >= self.text.len();
            let message = match at_end {
                true => "end-of-file encountered before end of control line",
                false => "malformed #pragma",
            };
            self.push(Diagnostic::new(Tag::D_PRAGMA_MALFORM, line, message));
            return;
        };
        match first.text() {
            "D" => self.d_pragma(line, rest),
            "error" => self.user_error(line, rest),
            "line" => match rest.split_first() {
                Some((number, more)) if number.number().is_some() => {
                    self.line_marker(number, more, line.end as usize);
                }
                _ => {
                    self.malformed("line", line, "<number> <file>", "expected a line number and a file name")
                }
            },
            name @ ("attributes" | "binding" | "depends_on" | "option") => {
                let message = format!("unused #pragma {name}");
                self.push(
                    Diagnostic::new(Tag::D_PRAGMA_UNUSED, line, message)
                        .with_help(format!("did you mean `#pragma D {name}`?")),
                );
            }
            // `ident` and pragmas of C compilers are ignored, as in C.
            _ => {}
        }
    }

    fn d_pragma(&mut self, line: Span, words: &[Word]) {
        let Some((first, rest)) = words.split_first() else {
            self.push(Diagnostic::new(Tag::D_PRAGMA_MALFORM, line, "malformed #pragma D: nothing follows"));
            return;
        };
        let name = first.text().to_owned();
        let (form, (made, used)) = match name.as_str() {
            "option" => ("<option>=<val>", self.option_pragma(rest)),
            "attributes" => ("<attributes> <ident>", attributes_pragma(rest)),
            "binding" => ("<version> <ident>", binding_pragma(rest)),
            "depends_on" => ("<class> <name>", depends_pragma(rest)),
            "ident" => return,
            "error" => return self.user_error(line, rest),
            "line" => return self.pragma(line, words),
            _ => {
                let d = Diagnostic::new(
                    Tag::D_PRAGMA_INVAL,
                    first.name.span,
                    format!("invalid D pragma: {}", name.escape_debug()),
                );
                let d = match nearest(&name, D_PRAGMAS) {
                    Some(near) => d.with_help(format!("did you mean `{near}`?")),
                    None => d,
                };
                return self.push(d);
            }
        };
        match made {
            Err(expected) => self.malformed(&name, line, form, expected),
            Ok(kind) => {
                if let Some(extra) = rest.get(used) {
                    let span = rest.last().map_or(extra.name.span, |l| extra.name.span.to(l.name.span));
                    let message = format!("superfluous arguments specified for #pragma {name}");
                    self.push(Diagnostic::new(Tag::D_PRAGMA_MALFORM, span, message));
                }
                self.apply_option(&kind);
                self.pragmas.push(Pragma { span: line, kind });
            }
        }
    }

    /// Applies the options that affect the lexer or the parser. The session applies all others.
    fn apply_option(&mut self, kind: &PragmaKind) {
        let PragmaKind::Option { name, value } = kind else { return };
        let value = value.as_ref().map_or("yes", |v| v.text.as_str()).to_ascii_lowercase();
        let on = match value.as_str() {
            "yes" | "enable" | "enabled" | "true" | "on" | "set" | "1" => true,
            "" | "no" | "disable" | "disabled" | "false" | "off" | "unset" | "0" => false,
            _ => return,
        };
        match name.text.as_str() {
            "defaultargs" => self.macros.to_mut().default_args = on,
            "pspec" => self.macros.to_mut().probe_spec_first = on,
            _ => {}
        }
    }

    fn option_pragma(&self, words: &[Word]) -> (Result<PragmaKind, &'static str>, usize) {
        let expected = "expected `name` or `name=value`";
        let Some(word) = words.first().filter(|w| !w.quoted) else { return (Err(expected), 0) };
        let Name { text, span } = &word.name;
        let (name, value) = match text.split_once('=') {
            None => (text.as_str(), None),
            Some((name, value)) => {
                let start = span.end - value.len() as u32;
                let plain = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
                let span = Span::new(span.file, start, span.end);
                (name, Some(Name { text: plain.to_owned(), span }))
            }
        };
        if name.is_empty() {
            return (Err(expected), 1);
        }
        let span = Span::new(span.file, span.start, span.start + name.len() as u32);
        (Ok(PragmaKind::Option { name: Name { text: name.to_owned(), span }, value }), 1)
    }
}

type PragmaResult = (Result<PragmaKind, &'static str>, usize);

fn attributes_pragma(words: &[Word]) -> PragmaResult {
    match words {
        [triple, keyword, provider, field, ..] if keyword.text() == "provider" => {
            if !["provider", "module", "function", "name", "args"].contains(&field.text()) {
                return (Err("expected `provider`, `module`, `function`, `name` or `args` last"), 4);
            }
            let subject =
                AttributeSubject::Provider { provider: provider.name.clone(), field: field.name.clone() };
            (Ok(PragmaKind::Attributes { triple: triple.name.clone(), subject }), 4)
        }
        [triple, name, ..] if name.text() != "provider" => {
            let subject = AttributeSubject::Ident(name.name.clone());
            (Ok(PragmaKind::Attributes { triple: triple.name.clone(), subject }), 2)
        }
        _ => (Err("expected `Name/Data/Class identifier` or `Name/Data/Class provider name field`"), 0),
    }
}

fn binding_pragma(words: &[Word]) -> PragmaResult {
    match words {
        [version, name, ..] if version.quoted => {
            (Ok(PragmaKind::Binding { version: version.name.clone(), name: name.name.clone() }), 2)
        }
        _ => (Err("expected `\"version\" identifier`"), 0),
    }
}

fn depends_pragma(words: &[Word]) -> PragmaResult {
    let [class, name, ..] = words else { return (Err("expected `module|provider|library name`"), 0) };
    let class = match class.text() {
        "module" => DependencyClass::Module,
        "provider" => DependencyClass::Provider,
        "library" => DependencyClass::Library,
        _ => return (Err("expected `module`, `provider` or `library`"), 2),
    };
    (Ok(PragmaKind::DependsOn { class, name: name.name.clone() }), 2)
}
