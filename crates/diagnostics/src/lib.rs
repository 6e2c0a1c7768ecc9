//! Source locations, error tags, and the rendering of compile errors. This crate depends on no
//! other crate.
//!
//! Every error in a D program is a [`Diagnostic`]: a tag of DTrace's list ([`Tag`]), a message, and
//! a source location. The stages of the compiler collect errors in a [`Sink`] and continue, so that
//! one run reports all errors. The command determines how they are printed ([`report`]).
//!
//! The output and the time spent on errors are bounded, whatever the program is: messages and
//! source lines are truncated, only the first errors are shown, and the number of searches for a
//! similar name is limited.
//!
//! Invariant: a span is a byte range of one file of the [`SourceMap`]. Line and column are computed
//! and never stored.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! few glob raw tag
//! control source
//! reported
//! ```

pub mod control;
mod few;
pub mod glob;
pub mod raw;
mod reported;
mod source;
mod tag;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

pub use few::Few;
pub use reported::ReportedAt;
pub use source::{FileId, SourceKind, SourceMap, Span};
pub use tag::Tag;

/// The maximum number of errors that are shown. The number of the others is reported.
const SHOWN: usize = 20;
/// The maximum length of a message in characters. Names and types in it may be as long as the
/// program.
const MESSAGE_CHARS: usize = 1000;
/// The maximum number of characters of a command-line program that are repeated before each of its
/// errors.
const SPECIFIER_CHARS: usize = 240;
/// The maximum number of searches for a similar name in a compilation. Each search compares the
/// wrong name with every known name. The kernel alone has more than 100,000.
const SUGGESTIONS: u32 = 40;
/// The maximum length of a wrong name, in bytes, for which a similar one is searched.
const NEAREST_BYTES: usize = 128;

/// One error in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The DTrace error tag, shown under `-xerrtags`.
    pub tag: Tag,
    /// The source location; `None` for an error without a location.
    pub span: Option<Span>,
    /// The message, lower case, without a final full stop. Further lines are tab-indented, as in
    /// DTrace.
    pub message: String,
    /// Hints, one line each ("did you mean `pid`?").
    pub help: Vec<String>,
    /// The part of a clause that contains the error. Messages about command-line programs name it.
    pub region: Option<&'static str>,
    /// The clause or declaration that was checked; `None` for errors of the parser. Set by
    /// [`Sink::push`].
    pub item: Option<Span>,
    /// The number of the error in the compilation. Set by [`Sink::push`].
    pub sequence: u32,
    /// Where the original's lexer is when it finds the error, if that is not the tag's place.
    pub reported_at: Option<ReportedAt>,
}

/// The format of printed errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For people: the first 20 errors, each with its source line and a caret.
    Excerpts,
    /// For programs (`-xerrtags`): the original's format. Only the first error, with its tag and
    /// without its source line.
    Tagged,
}

/// The text, truncated to `limit` characters.
fn truncated(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// Formats errors as they are printed, one string each, without `dtrace: `. `errors` must be in
/// source order ([`Sink::into_sorted`]).
pub fn report(errors: &[Diagnostic], map: &SourceMap, style: Style) -> Vec<String> {
    match style {
        // The original parses and checks item by item, and stops at the first error.
        Style::Tagged => {
            let first = errors.iter().min_by_key(|d| {
                let location = d.item.or(d.span).map(|s| (s.file, s.start));
                (location, d.sequence)
            });
            first.map(|d| d.tagged(map)).into_iter().collect()
        }
        Style::Excerpts => {
            let before = std::iter::once(None).chain(errors.iter().map(Some));
            let shown = errors.iter().zip(before).take(SHOWN);
            let mut all: Vec<String> = shown.map(|(d, before)| d.rendered(map, false, before)).collect();
            match errors.len().saturating_sub(SHOWN) {
                0 => {}
                1 => all.push("1 more error is not shown".into()),
                more => all.push(format!("{more} more errors are not shown")),
            }
            all
        }
    }
}

impl Diagnostic {
    /// An error at a source location.
    pub fn new(tag: Tag, span: Span, message: impl Into<String>) -> Self {
        Self { span: Some(span), ..Self::bare(tag, message) }
    }

    /// An error without a source location.
    pub fn bare(tag: Tag, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            tag,
            span: None,
            message,
            help: Vec::new(),
            region: None,
            item: None,
            sequence: 0,
            reported_at: None,
        }
    }

    /// Sets the place whose line [`Style::Tagged`] shows, where it is not that of the tag.
    #[must_use]
    pub fn at(mut self, place: ReportedAt) -> Self {
        self.reported_at = Some(place);
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Formats the error as the original does, with its tag: `failed to compile script F: [D_TAG]
    /// line N: text`. The line is the original's ([`ReportedAt`]).
    pub fn tagged(&self, map: &SourceMap) -> String {
        let (tag, message) = (self.tag.name(), &self.message);
        let Some(span) = self.span else { return format!("[{tag}] {message}") };
        let line = self.reported_at.unwrap_or(ReportedAt::of(self.tag)).line(map, span, self.item);
        let name = map.name(span.file);
        match map.kind(span.file) {
            SourceKind::Script => {
                let (origin, shown) = map.line_origin(span.file, line);
                let (origin, name) = (control::name_text(&origin), control::name_text(name));
                let place = if origin == name {
                    format!("line {shown}")
                } else {
                    format!("\"{origin}\", line {shown}")
                };
                format!("failed to compile script {name}: [{tag}] {place}: {message}")
            }
            SourceKind::Library => {
                format!("[{tag}] \"{}\", line {line}: {message}", control::name_text(name))
            }
            SourceKind::Specifier => {
                let region = self.region.map_or(String::new(), |r| format!("in {r}: "));
                let text = map.text(span.file).trim_end();
                format!("invalid probe specifier {text}: [{tag}] {region}{message}")
            }
        }
    }

    /// Formats the error with the source line and a caret below it:
    ///
    /// ```text
    /// failed to compile script x.d: line 3: syntax error near "}"
    ///   --> x.d:3:23
    ///    |
    ///  3 | syscall:::entry { x = }
    ///    |                       ^
    ///    = help: ...
    /// ```
    ///
    /// With `tags` (for tests), the tag precedes the message. The caller prints `dtrace: ` before
    /// the result.
    pub fn render(&self, map: &SourceMap, tags: bool) -> String {
        self.rendered(map, tags, None)
    }

    /// The same behind another error. A program of the command line is shown once, and a clause
    /// once however many of its descriptions match nothing.
    fn rendered(&self, map: &SourceMap, tags: bool, before: Option<&Diagnostic>) -> String {
        let of_one_text = before.is_some_and(|b| b.span.map(|s| s.file) == self.span.map(|s| s.file));
        let of_one_clause = before.is_some_and(|b| {
            (b.tag, self.tag) == (Tag::D_PDESC_ZERO, Tag::D_PDESC_ZERO)
                && b.item.is_some()
                && b.item == self.item
        });
        let excerpt = |span: Span, name: &str, shown: u64, column: u32| match of_one_clause {
            true => String::new(),
            false => map.excerpt(span, name, shown, column),
        };
        let tag = if tags { format!("[{}] ", self.tag.name()) } else { String::new() };
        let mut out = String::new();
        match self.span {
            None => out.push_str(&format!("{tag}{}", self.message)),
            Some(span) => {
                let (line, column) = map.line_column(span.file, span.start);
                match map.kind(span.file) {
                    SourceKind::Script => {
                        let (name, shown) = map.line_origin(span.file, line);
                        let name = control::name_text(&name);
                        out.push_str(&format!(
                            "failed to compile script {name}: line {shown}: {tag}{}",
                            self.message
                        ));
                        out.push_str(&excerpt(span, &name, shown, column));
                    }
                    SourceKind::Library => {
                        let name = control::name_text(map.name(span.file));
                        out.push_str(&format!("\"{name}\", line {line}: {tag}{}", self.message));
                        out.push_str(&map.excerpt(span, &name, line.into(), column));
                    }
                    SourceKind::Specifier => {
                        let region = self.region.map_or(String::new(), |r| format!("in {r}: "));
                        let text = match of_one_text {
                            true => String::new(),
                            false => {
                                format!(" {}", truncated(map.text(span.file).trim_end(), SPECIFIER_CHARS))
                            }
                        };
                        out.push_str(&format!(
                            "invalid probe specifier{text}: {tag}{region}{}",
                            self.message
                        ));
                        out.push_str(&excerpt(span, "command line", line.into(), column));
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

/// Collects the errors of a compilation.
#[derive(Debug, Default)]
pub struct Sink {
    diagnostics: Vec<Diagnostic>,
    /// Hashes of tag, location and message of these errors.
    known: HashSet<u64>,
    region: Option<&'static str>,
    item: Option<Span>,
    suggestions: Cell<u32>,
}

/// A hash by which repeated errors are recognized.
fn identity(d: &Diagnostic) -> u64 {
    let mut hasher = DefaultHasher::new();
    (d.tag, d.span, &d.message).hash(&mut hasher);
    hasher.finish()
}

impl Sink {
    /// Sets the part of a clause that following errors are in: `predicate`, `action list`. Returns
    /// the previous one.
    pub fn set_region(&mut self, region: Option<&'static str>) -> Option<&'static str> {
        std::mem::replace(&mut self.region, region)
    }

    /// Sets the clause or declaration that is checked from now on.
    pub fn set_item(&mut self, item: Option<Span>) {
        self.item = item;
    }

    /// Adds an error. A second error with the same tag, location and message is ignored.
    pub fn push(&mut self, mut diagnostic: Diagnostic) {
        for text in std::iter::once(&mut diagnostic.message).chain(&mut diagnostic.help) {
            if let Cow::Owned(short) = truncated(text, MESSAGE_CHARS) {
                *text = short;
            }
        }
        if self.known.insert(identity(&diagnostic)) {
            diagnostic.region = diagnostic.region.or(self.region);
            diagnostic.item = diagnostic.item.or(self.item);
            diagnostic.sequence = self.diagnostics.len() as u32;
            self.diagnostics.push(diagnostic);
        }
    }

    /// Adds [`Diagnostic::new`].
    pub fn error(&mut self, tag: Tag, span: Span, message: impl Into<String>) {
        self.push(Diagnostic::new(tag, span, message));
    }

    /// Removes and returns all errors after the first `kept`. The caller discards a failed attempt
    /// in order to try another.
    pub fn split_off(&mut self, kept: usize) -> Vec<Diagnostic> {
        let removed = self.diagnostics.split_off(kept.min(self.diagnostics.len()));
        for diagnostic in &removed {
            self.known.remove(&identity(diagnostic));
        }
        removed
    }

    /// Whether to search for a similar name. The search is expensive, so this is true a limited
    /// number of times.
    pub fn may_suggest(&self) -> bool {
        let count = self.suggestions.get();
        self.suggestions.set(count.saturating_add(1));
        count < SUGGESTIONS
    }

    /// Replaces this sink with an empty one and returns the old one. The caller examines the new
    /// errors before it keeps them.
    pub fn divert(&mut self) -> Sink {
        let inner = Sink {
            region: self.region,
            item: self.item,
            suggestions: self.suggestions.clone(),
            ..Sink::default()
        };
        std::mem::replace(self, inner)
    }

    /// Ends [`Sink::divert`]: restores the old sink and returns the one with the new errors.
    pub fn restore(&mut self, outer: Sink) -> Sink {
        outer.suggestions.set(self.suggestions.get());
        std::mem::replace(self, outer)
    }

    /// True if there are no errors.
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// All errors, in source order.
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by_key(|d| d.span.map(|s| (s.file, s.start)));
        self.diagnostics
    }

    /// All errors, in the order they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.diagnostics.iter()
    }
}

/// The entry of `known` that is most similar to `wrong`, for "did you mean"; `None` if no entry is
/// similar.
///
/// The measure is the edit distance, where a transposition of two adjacent letters is one edit
/// (`prinft`). The distance must be at most a third of the length of the longer word. Of two
/// entries at the same distance, the one that shares more letters with `wrong` is chosen (`prinf`:
/// `printf`, not `print`).
pub fn nearest<S: AsRef<str> + Ord>(wrong: &str, known: impl IntoIterator<Item = S>) -> Option<S> {
    if wrong.len() > NEAREST_BYTES {
        return None;
    }
    let letters = Letters::of(wrong);
    let mut best: Option<(usize, std::cmp::Reverse<usize>, usize, S)> = None;
    for k in known {
        let text = k.as_ref();
        let apart = text.len().abs_diff(wrong.len());
        let most = wrong.len().max(text.len()) / 3;
        if apart > most {
            continue;
        }
        // An edit changes one letter at most, or moves it. A hundred thousand names may be known:
        // most end here.
        let (shared, longer) = letters.shared(text);
        let least = longer - shared;
        if least > best.as_ref().map_or(most, |(distance, ..)| most.min(*distance)) {
            continue;
        }
        let found = distance(wrong, text);
        let rank = (found, std::cmp::Reverse(shared), apart, k);
        if found <= most && best.as_ref().is_none_or(|other| rank < *other) {
            best = Some(rank);
        }
    }
    best.map(|(.., k)| k)
}

/// How often a word has each letter.
struct Letters {
    /// Of ASCII.
    counts: [u32; 128],
    /// The others, one by one.
    others: Vec<char>,
    all: usize,
}

impl Letters {
    fn of(word: &str) -> Letters {
        let mut letters = Letters { counts: [0; 128], others: Vec::new(), all: 0 };
        for c in word.chars() {
            letters.all += 1;
            match letters.counts.get_mut(c as usize) {
                Some(count) => *count += 1,
                None => letters.others.push(c),
            }
        }
        letters
    }

    /// The number of letters that another word shares, at any position, and that of the longer
    /// word.
    fn shared(&self, other: &str) -> (usize, usize) {
        let (mut left, mut others) = (self.counts, self.others.clone());
        let (mut shared, mut all) = (0, 0);
        for c in other.chars() {
            all += 1;
            let takes = match left.get_mut(c as usize) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    true
                }
                Some(_) => false,
                None => others.iter().position(|o| *o == c).map(|at| others.swap_remove(at)).is_some(),
            };
            shared += usize::from(takes);
        }
        (shared, all.max(self.all))
    }
}

/// The edit distance of two words, with transpositions.
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

/// The system's text of an error, without the "(os error N)" that Rust adds.
pub fn system_text(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
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
    fn names_of_files_are_printed_without_control_characters() {
        let mut map = SourceMap::default();
        let f = map.add(SourceKind::Script, "a\x1b[31m\nb.d", "x\n# 7 \"c\nd.h\"\ny\n");
        map.set_origin(f, 4, "c\nd.h", 7);
        let lib = map.add(SourceKind::Library, "l\x07.d", "z");
        for (span, rendered, tagged) in [
            (
                Span::new(f, 0, 1),
                "script a\\033[31m\\nb.d: line 1: t\n  --> a\\033[31m\\nb.d:1:1\n",
                "\\nb.d: [D_SYNTAX]",
            ),
            (Span::new(f, 14, 15), "script c\\nd.h: line 7: t\n  --> c\\nd.h:7:1\n", " \"c\\nd.h\", line 7"),
            (Span::new(lib, 0, 1), "\"l\\a.d\", line 1: t\n  --> l\\a.d:1:1\n", " \"l\\a.d\", line 1"),
        ] {
            let d = Diagnostic::new(Tag::D_SYNTAX, span, "t");
            assert!(d.render(&map, false).contains(rendered), "{}", d.render(&map, false));
            assert!(d.tagged(&map).contains(tagged), "{}", d.tagged(&map));
        }
    }

    #[test]
    fn the_text_of_a_system_error_has_no_number() {
        assert_eq!(system_text(&io::Error::from_raw_os_error(24)), "Too many open files");
        assert_eq!(system_text(&io::Error::other("other")), "other");
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
    fn a_text_is_shown_once_and_a_clause_once_however_many_descriptions_match_nothing() {
        let mut map = SourceMap::default();
        let text = "a:::,\nb:::,\nc::: { x }";
        let files = [(SourceKind::Specifier, ""), (SourceKind::Script, "x.d")];
        let reports = files.map(|(kind, name)| {
            let f = map.add(kind, name, text);
            let mut sink = Sink::default();
            sink.set_item(Some(Span::new(f, 0, 21)));
            for start in [0, 6, 12] {
                sink.error(Tag::D_PDESC_ZERO, Span::new(f, start, start + 4), format!("no {start}"));
            }
            sink.error(Tag::D_IDENT_UNDEF, Span::new(f, 19, 20), "no x");
            report(&sink.into_sorted(), &map, Style::Excerpts).join("\n")
        });
        assert_eq!(
            reports[0],
            "invalid probe specifier a:::,\nb:::,\nc::: { x }: no 0\n  --> command line:1:1\n   |\n 1 | a:::,\n   | ^^^^\n\
             invalid probe specifier: no 6\ninvalid probe specifier: no 12\n\
             invalid probe specifier: no x\n  --> command line:3:8\n   |\n 3 | c::: { x }\n   |        ^"
        );
        assert_eq!(
            reports[1],
            "failed to compile script x.d: line 1: no 0\n  --> x.d:1:1\n   |\n 1 | a:::,\n   | ^^^^\n\
             failed to compile script x.d: line 2: no 6\nfailed to compile script x.d: line 3: no 12\n\
             failed to compile script x.d: line 3: no x\n  --> x.d:3:8\n   |\n 3 | c::: { x }\n   |        ^"
        );
    }

    #[test]
    fn errtags_prints_only_the_first_error_and_no_source_line() {
        let mut map = SourceMap::default();
        let f = map.add(SourceKind::Script, "x.d", "BEGIN /y/ { trace(x); }\n# 7 \"inc.h\"\nEND { z; }\n");
        map.set_origin(f, 3, "inc.h", 7);
        let mut sink = Sink::default();
        sink.set_item(Some(Span::new(f, 0, 23)));
        sink.push(
            Diagnostic::new(Tag::D_IDENT_UNDEF, Span::new(f, 18, 19), "x\n\tprototype: p").with_help("h"),
        );
        sink.error(Tag::D_IDENT_UNDEF, Span::new(f, 7, 8), "y");
        let errors = sink.into_sorted();
        // Actions are checked before the predicate.
        let tagged = report(&errors, &map, Style::Tagged);
        assert_eq!(tagged, ["failed to compile script x.d: [D_IDENT_UNDEF] line 1: x\n\tprototype: p"]);
        let included = Diagnostic::new(Tag::D_SYNTAX, Span::new(f, 44, 45), "z");
        let text = included.tagged(&map);
        assert_eq!(text, "failed to compile script x.d: [D_SYNTAX] \"inc.h\", line 7: z");
        let f = map.add(SourceKind::Specifier, "", "BEGIN { x }");
        let mut inside = Diagnostic::new(Tag::D_SYNTAX, Span::new(f, 8, 9), "x");
        inside.region = Some("action list");
        assert_eq!(inside.tagged(&map), "invalid probe specifier BEGIN { x }: [D_SYNTAX] in action list: x");
    }

    #[test]
    fn output_is_bounded_when_errors_are_many_and_names_and_lines_are_long() {
        let mut map = SourceMap::default();
        let text = "x".repeat(100_000);
        let f = map.add(SourceKind::Script, "x.d", text.clone());
        let mut sink = Sink::default();
        for at in 0..50_000 {
            sink.error(Tag::D_SYNTAX, Span::new(f, at, 100_000), text.clone());
        }
        let shown = report(&sink.into_sorted(), &map, Style::Excerpts);
        assert_eq!(shown.len(), 21);
        assert_eq!(shown[20], "49980 more errors are not shown");
        assert!(shown.iter().all(|m| m.len() < 1500), "{}", shown[0]);
    }

    #[test]
    fn a_long_line_is_truncated_to_the_text_around_the_caret() {
        let mut map = SourceMap::default();
        let text = format!("{}here{}", "a".repeat(500), "b".repeat(500));
        let f = map.add(SourceKind::Script, "x.d", text);
        let d = Diagnostic::new(Tag::D_SYNTAX, Span::new(f, 500, 504), "m");
        let rendered = d.render(&map, false);
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!(lines[1], "  --> x.d:1:501");
        let at = lines[3].find("here").unwrap();
        assert_eq!(lines[4].find("^^^^"), Some(at));
        assert!(
            lines[3].len() <= 110 && lines[3].ends_with("bbb...") && lines[3].contains(" ...aaa"),
            "{rendered}"
        );
    }

    #[test]
    fn the_caret_stands_below_its_text_behind_controls_and_bytes_that_are_no_text() {
        let mut map = SourceMap::default();
        let f = map.add(SourceKind::Script, "x.d", raw::text(b"\xff\x1b\tx".to_vec()));
        let d = Diagnostic::new(Tag::D_SYNTAX, Span::new(f, 6, 7), "m");
        let rendered = d.render(&map, false);
        assert!(rendered.ends_with("\n 1 | \u{fffd}\u{fffd}\tx\n   |   \t^"), "{rendered:?}");
    }

    #[test]
    fn an_error_is_kept_once_and_may_be_added_again_after_removal() {
        let mut map = SourceMap::default();
        let f = map.add(SourceKind::Script, "x.d", "BEGIN");
        let mut sink = Sink::default();
        let push = |sink: &mut Sink| sink.error(Tag::D_SYNTAX, Span::new(f, 0, 5), "m");
        push(&mut sink);
        push(&mut sink);
        assert_eq!(sink.iter().len(), 1);
        assert_eq!(sink.split_off(0).len(), 1);
        push(&mut sink);
        assert_eq!(sink.iter().len(), 1);
    }

    #[test]
    fn nearest_finds_similar_words_only() {
        assert_eq!(nearest("execnam", ["pid", "execname"]), Some("execname"));
        assert_eq!(nearest("zzz", ["pid", "execname"]), None);
        let prints = ["print", "printa", "printf", "printm"];
        assert_eq!(nearest("prinf", prints), Some("printf"));
        assert_eq!(nearest("prinft", prints), Some("printf"));
    }

    #[test]
    fn nearest_finds_what_the_distances_of_all_words_say() {
        let mut state = 7_u32;
        let mut word = |letters: &[char]| {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) as usize
            };
            (0..next() % 9).map(|_| letters[next() % letters.len()]).collect::<String>()
        };
        for round in 0..300 {
            let letters: &[char] =
                if round % 2 == 0 { &['a', 'b', 'c', '_'] } else { &['a', 'é', '漢', 'b'] };
            let wrong = word(letters);
            let known: Vec<String> = (0..20).map(|_| word(letters)).collect();
            let rank = |k: &&str| {
                let mut left: Vec<char> = wrong.chars().collect();
                let mut take = |c: char| left.iter().position(|l| *l == c).map(|at| left.swap_remove(at));
                let shared = k.chars().filter_map(&mut take).count();
                (distance(&wrong, k), std::cmp::Reverse(shared), k.len().abs_diff(wrong.len()), k.to_string())
            };
            let near = |k: &&str| {
                let most = wrong.len().max(k.len());
                k.len().abs_diff(wrong.len()) * 3 <= most && distance(&wrong, k) * 3 <= most
            };
            let expected = known.iter().map(String::as_str).filter(near).min_by_key(rank);
            assert_eq!(nearest(&wrong, known.iter().map(String::as_str)), expected, "{wrong} of {known:?}");
        }
    }
}
