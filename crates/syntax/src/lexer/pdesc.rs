//! Scans probe descriptions.

use std::collections::HashSet;
use std::ops::Range;

use diagnostics::{Diagnostic, Span, Tag};

use super::Lexer;
use crate::SpecField;
use crate::ast::{Glob, ProbeDesc, ProbeDescKind};
use crate::macros::Expansion;

/// True for bytes that may be part of a probe description.
fn is_letter(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-$:_.?*\\[]!`".contains(&b)
}

/// Every name that the program assigns to, increments or decrements.
fn assigned(text: &str) -> HashSet<Box<str>> {
    const ASSIGNS: [&str; 12] = ["++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="];
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '`');
    let mut names = HashSet::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(is_word).map(|i| at + i) {
        let end = text[start..].find(|c| !is_word(c)).map_or(text.len(), |i| start + i);
        let (before, after) = (text[at..start].trim_end(), text[end..].trim_start());
        if after.starts_with('=') && !after.starts_with("==")
            || ASSIGNS.iter().any(|op| after.starts_with(op))
            || before.ends_with("++")
            || before.ends_with("--")
        {
            names.insert(text[start..end].into());
        }
        at = end;
    }
    names
}

impl Lexer<'_> {
    /// The longest word of a probe description from the current position, after whitespace.
    pub(crate) fn description_word(&mut self) -> Range<usize> {
        self.skip_trivia();
        self.word_at(self.pos)
    }

    /// The longest word of a probe description at `start`.
    pub(crate) fn word_at(&self, start: usize) -> Range<usize> {
        let len = self.text.bytes().skip(start).take_while(|b| is_letter(*b)).count();
        start..start + len
    }

    /// The text of a range.
    pub(crate) fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or("")
    }

    /// The first byte after whitespace and comments from `at`, and its offset. The position does
    /// not change.
    pub(crate) fn byte_after_blanks(&self, mut at: usize) -> (u8, usize) {
        let text = &*self.text;
        loop {
            let rest = &text[at.min(text.len())..];
            at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\x0b', '\x0c']).len();
            let rest = &text[at..];
            if rest.starts_with("//") {
                at = self.line_end(at);
            } else if let Some(body) = rest.strip_prefix("/*") {
                at = body.find("*/").map_or(text.len(), |i| at + i + 4);
            } else {
                return (self.peek_at(at), at);
            }
        }
    }

    /// True if the program assigns to this name, increments or decrements it: it is a variable. The
    /// first call scans the whole program; the others do not.
    pub(crate) fn assigns(&self, name: &str) -> bool {
        self.assigned.get_or_init(|| assigned(&self.text)).contains(name)
    }

    /// Parses a word as a probe description.
    pub(crate) fn description(&mut self, word: Range<usize>, last: SpecField) -> ProbeDesc {
        self.pos = word.end;
        self.fresh_line = false;
        self.last_end = word.end;
        let raw = self.text[word.clone()].to_owned();
        let span = self.span(word.start, word.end);
        if !raw.is_empty() && raw.bytes().all(|b| b.is_ascii_digit()) {
            return self.id(&raw, span, last);
        }
        let mut fields = Vec::new();
        let mut at = word.start;
        for part in raw.split(':') {
            let text = self.expand_field(part, at, span);
            fields.push(Glob { text, span: self.span(at, at + part.len()) });
            at += part.len() + 1;
        }
        let text = fields.iter().map(|f| f.text.as_str()).collect::<Vec<_>>().join(":");
        // Fields are assigned from the right. Fields to the right of the last one that is given
        // match everything.
        let most = match last {
            SpecField::Provider => 1,
            SpecField::Module => 2,
            SpecField::Function => 3,
            SpecField::Name => 4,
        };
        if fields.len() > most {
            let d = Diagnostic::new(
                Tag::D_PDESC_INVAL,
                span,
                format!("invalid probe description \"{text}\": Overspecified probe description"),
            );
            self.push(d.with_help(match last {
                SpecField::Provider => "-P takes a provider alone",
                SpecField::Module => "-m takes [provider:]module",
                SpecField::Function => "-f takes [[provider:]module:]function",
                SpecField::Name => "a description has four fields, provider:module:function:name",
            }));
            fields.drain(..fields.len() - most);
        }
        let empty = |at: u32| Glob { text: String::new(), span: Span::new(span.file, at, at) };
        while fields.len() < most {
            fields.insert(0, empty(span.start));
        }
        while fields.len() < 4 {
            fields.push(empty(span.end));
        }
        let mut fields = fields.into_iter();
        let mut field = || fields.next().unwrap_or_else(|| empty(span.end));
        let kind =
            ProbeDescKind::Fields { provider: field(), module: field(), function: field(), name: field() };
        ProbeDesc { span, text, kind }
    }

    fn id(&mut self, raw: &str, span: Span, last: SpecField) -> ProbeDesc {
        let mut id = raw.parse::<u32>().unwrap_or(0);
        let message = if last != SpecField::Name {
            let wrong = "a probe id can only be used with -i, with -n and in scripts";
            Some(format!("invalid probe description \"{raw}\": {wrong}"))
        } else if id == 0 {
            Some(format!("invalid probe identifier {raw}: Unknown probe identifier"))
        } else {
            None
        };
        if let Some(message) = message {
            self.push(Diagnostic::new(Tag::D_PDESC_INVAL, span, message));
            id = 0;
        }
        ProbeDesc { span, text: raw.to_owned(), kind: ProbeDescKind::Id(id) }
    }

    /// Expands the macro variables of a field.
    fn expand_field(&mut self, field: &str, start: usize, whole: Span) -> String {
        let mut out = String::new();
        let mut at = start;
        let end = start + field.len();
        while at < end {
            let Some(dollar) = self.text[at..end].find('$').map(|i| at + i) else {
                out.push_str(&self.text[at..end]);
                break;
            };
            out.push_str(&self.text[at..dollar]);
            let (text, next) = match self.macro_name(dollar).filter(|(_, to)| *to <= end) {
                None => (Expansion::Undefined, dollar + 1),
                Some((from, to)) => {
                    let name = self.text[from..to].to_owned();
                    (self.expand(&name), to)
                }
            };
            match text {
                Expansion::Text(text) => out.push_str(&text),
                Expansion::Default => {}
                Expansion::Undefined | Expansion::Overflow => {
                    let message = format!(
                        "invalid probe description \"{}\": Undefined macro variable in probe description",
                        self.snippet(whole)
                    );
                    self.error(Tag::D_PDESC_INVAL, dollar, next, message);
                }
            }
            at = next;
        }
        out
    }
}
