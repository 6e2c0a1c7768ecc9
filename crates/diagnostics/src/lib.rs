//! Spans, error tags and messages with carets. Knows nothing else.
//!
//! Every complaint about a D program is a [`Diagnostic`]: a tag of the DTrace list ([`Tag`]), a text, and the place it
//! speaks of. Stages collect them in a [`Sink`] and go on, so that one run reports all that is wrong; only the command
//! decides how they look ([`Diagnostic::render`]).
//!
//! Invariant: a span is a byte range of one file of the [`SourceMap`]; line and column are computed, never stored.

pub mod control;
pub mod raw;
mod source;
mod tag;

pub use source::{FileId, SourceKind, SourceMap, Span};
pub use tag::Tag;

/// One complaint about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The DTrace error tag, shown under `-xerrtags`.
    pub tag: Tag,
    /// What it speaks of; `None` where there is no text to point at.
    pub span: Option<Span>,
    /// The message, lower case, without a final full stop. Further lines are tab-indented, as in DTrace.
    pub message: String,
    /// What would be right, one line each ("did you mean `pid`?").
    pub help: Vec<String>,
    /// The part of a clause it was found in, named where there is no line to name.
    pub region: Option<&'static str>,
}

impl Diagnostic {
    /// A complaint about `span`.
    pub fn new(tag: Tag, span: Span, message: impl Into<String>) -> Self {
        Self { tag, span: Some(span), message: message.into(), help: Vec::new(), region: None }
    }

    /// A complaint that no text can be shown for.
    pub fn bare(tag: Tag, message: impl Into<String>) -> Self {
        Self { tag, span: None, message: message.into(), help: Vec::new(), region: None }
    }

    /// Adds a line that says what would be right.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// The complaint in DTrace's form, with the source line and a caret below it:
    ///
    /// ```text
    /// failed to compile script x.d: line 3: [D_SYNTAX] syntax error near "}"
    ///   --> x.d:3:23
    ///    |
    ///  3 | syscall:::entry { x = }
    ///    |                       ^
    ///    = help: ...
    /// ```
    ///
    /// The tag stands there only when `tags` is set. The caller adds `dtrace: ` before it.
    pub fn render(&self, map: &SourceMap, tags: bool) -> String {
        let tag = if tags { format!("[{}] ", self.tag.name()) } else { String::new() };
        let mut out = String::new();
        match self.span {
            None => out.push_str(&format!("{tag}{}", self.message)),
            Some(span) => {
                let (line, column) = map.line_column(span.file, span.start);
                match map.kind(span.file) {
                    SourceKind::Script => {
                        let name = map.line_origin(span.file, line).0;
                        let shown = map.line_origin(span.file, line).1;
                        out.push_str(&format!(
                            "failed to compile script {name}: line {shown}: {tag}{}",
                            self.message
                        ));
                        out.push_str(&map.excerpt(span, &name, shown, column));
                    }
                    SourceKind::Library => {
                        let name = map.name(span.file);
                        out.push_str(&format!("\"{name}\", line {line}: {tag}{}", self.message));
                        out.push_str(&map.excerpt(span, name, line.into(), column));
                    }
                    SourceKind::Specifier => {
                        let region = self.region.map_or(String::new(), |r| format!("in {r}: "));
                        out.push_str(&format!(
                            "invalid probe specifier {}: {tag}{region}{}",
                            map.text(span.file).trim_end(),
                            self.message
                        ));
                        out.push_str(&map.excerpt(span, "command line", line.into(), column));
                    }
                }
            }
        }
        for help in &self.help {
            out.push_str("\n   = help: ");
            out.push_str(help);
        }
        out
    }
}

/// Where the stages leave their complaints.
#[derive(Debug, Default)]
pub struct Sink {
    diagnostics: Vec<Diagnostic>,
    region: Option<&'static str>,
}

impl Sink {
    /// From now on complaints are about this part of a clause: `predicate`, `action list`. Gives what it was before.
    pub fn enter(&mut self, region: Option<&'static str>) -> Option<&'static str> {
        std::mem::replace(&mut self.region, region)
    }

    /// Adds a complaint; the same complaint about the same place is kept once.
    pub fn push(&mut self, mut diagnostic: Diagnostic) {
        diagnostic.region = diagnostic.region.or(self.region);
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Shorthand for [`Sink::push`] of [`Diagnostic::new`].
    pub fn error(&mut self, tag: Tag, span: Span, message: impl Into<String>) {
        self.push(Diagnostic::new(tag, span, message));
    }

    /// Takes back what was added behind the first `kept` complaints: an attempt that is made again in another way.
    pub fn take_back(&mut self, kept: usize) -> Vec<Diagnostic> {
        self.diagnostics.split_off(kept.min(self.diagnostics.len()))
    }

    /// True when nothing was wrong.
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// All complaints, in source order.
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by_key(|d| d.span.map(|s| (s.file, s.start)));
        self.diagnostics
    }

    /// All complaints, in the order they were made.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.diagnostics.iter()
    }
}

/// The entry of `known` nearest to `wrong`, for "did you mean"; `None` when nothing is near.
///
/// Nearness is the edit distance, where two neighbours exchanged are one edit (`prinft`), at most a third of the longer
/// word's length; of two as near, the one that has more of its letters (`prinf`: `printf`, not `print`).
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (distance(wrong, k), std::cmp::Reverse(shared(wrong, k)), k.len().abs_diff(wrong.len()), k))
        .filter(|(d, _, _, k)| *d * 3 <= wrong.len().max(k.len()))
        .min()
        .map(|(_, _, _, k)| k)
}

/// Letters that two words share, wherever they stand.
fn shared(a: &str, b: &str) -> usize {
    let mut left: Vec<char> = b.chars().collect();
    let mut takes = |c: char| left.iter().position(|l| *l == c).map(|at| left.swap_remove(at)).is_some();
    a.chars().map(&mut takes).filter(|taken| *taken).count()
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut before = None;
    for (i, ca) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let mut best = (row[j] + usize::from(ca != *cb)).min(next[j] + 1).min(row[j + 1] + 1);
            if j > 0 && before == Some(*cb) && ca == b[j - 1] {
                best = best.min(above[j - 1] + 1);
            }
            next.push(best);
        }
        before = Some(ca);
        above = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_error_shows_line_column_text_and_caret() {
        let mut map = SourceMap::default();
        let f = map.add(SourceKind::Script, "x.d", "BEGIN\n{\n\ttrace(;\n}\n");
        let d = Diagnostic::new(Tag::D_SYNTAX, Span::new(f, 15, 16), "syntax error near \";\"");
        assert_eq!(
            d.render(&map, true),
            "failed to compile script x.d: line 3: [D_SYNTAX] syntax error near \";\"\n  --> x.d:3:8\n   |\n 3 | \ttrace(;\n   | \t      ^"
        );
    }

    #[test]
    fn a_specifier_error_names_the_specifier() {
        let mut map = SourceMap::default();
        let f = map.add(SourceKind::Specifier, "", "BEGIN { x }");
        let d = Diagnostic::new(
            Tag::D_IDENT_UNDEF,
            Span::new(f, 8, 9),
            "failed to resolve x: Unknown variable name",
        )
        .with_help("did you mean `y`?");
        let text = d.render(&map, false);
        assert!(text.starts_with("invalid probe specifier BEGIN { x }: failed to resolve x"), "{text}");
        assert!(text.ends_with("= help: did you mean `y`?"), "{text}");
    }

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("execnam", ["pid", "execname"]), Some("execname"));
        assert_eq!(nearest("zzz", ["pid", "execname"]), None);
        let prints = ["print", "printa", "printf", "printm"];
        assert_eq!(nearest("prinf", prints), Some("printf"));
        assert_eq!(nearest("prinft", prints), Some("printf"));
    }
}
