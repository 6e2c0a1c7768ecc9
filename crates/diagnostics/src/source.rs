//! Source texts of a compilation, and source locations.

use std::fmt;

use crate::raw;

/// Identifies a source text of a [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

/// A byte range of one source text; `end` is exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The source text.
    pub file: FileId,
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range `start..end` of `file`.
    pub fn new(file: FileId, start: u32, end: u32) -> Self {
        Self { file, start, end: end.max(start) }
    }

    /// The smallest range that covers both; spans of two files give `self`.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        if self.file != other.file {
            return self;
        }
        Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// The kind of a source text. It determines the prefix of messages about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// `-s file`: "failed to compile script F: line N: ".
    Script,
    /// `-n`, `-P`, `-m`, `-f`, `-i`: "invalid probe specifier TEXT: ".
    Specifier,
    /// A D library: `"lib.d", line N: `.
    Library,
}

/// The maximum number of characters of a source line in an excerpt.
const EXCERPT_CHARS: usize = 96;
/// In a longer line, the number of characters before the caret.
const EXCERPT_BEFORE: usize = 40;

/// The character that an excerpt shows for a character of a source line. Escape sequences would
/// move the text away from the caret.
fn one_column(c: char) -> char {
    if c != '\t' && c.is_control() || raw::is_raw_char(c) { '\u{fffd}' } else { c }
}

#[derive(Clone, Debug)]
struct Source {
    kind: SourceKind,
    name: String,
    text: String,
    /// The byte offset of each line start.
    lines: Vec<u32>,
    /// Line markers of the preprocessor: `(physical line, name, line)`. The text from the physical
    /// line on is from `line` of `name`.
    origins: Vec<(u32, String, u64)>,
}

/// All source texts of a compilation.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    sources: Vec<Source>,
}

impl SourceMap {
    /// Adds a source text.
    pub fn add(&mut self, kind: SourceKind, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let text = text.into();
        let mut lines = vec![0];
        lines.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1));
        self.sources.push(Source { kind, name: name.into(), text, lines, origins: Vec::new() });
        FileId(self.sources.len() as u32 - 1)
    }

    fn source(&self, file: FileId) -> &Source {
        &self.sources[file.0 as usize]
    }

    /// The text.
    pub fn text(&self, file: FileId) -> &str {
        &self.source(file).text
    }

    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| &*source.text)
    }

    /// The name given to [`SourceMap::add`].
    pub fn name(&self, file: FileId) -> &str {
        &self.source(file).name
    }

    /// The kind of the text.
    pub fn kind(&self, file: FileId) -> SourceKind {
        self.source(file).kind
    }

    /// The text of a span.
    pub fn snippet(&self, span: Span) -> &str {
        self.text(span.file).get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// The physical line of a byte, from 1.
    pub fn line_number(&self, file: FileId, offset: u32) -> u32 {
        self.source(file).lines.partition_point(|start| *start <= offset) as u32
    }

    /// The physical line and column of a byte, both from 1. Columns count characters, so the cost
    /// is linear in the length of the line.
    pub fn line_column(&self, file: FileId, offset: u32) -> (u32, u32) {
        let s = self.source(file);
        let line = self.line_number(file, offset);
        let start = s.lines[line.saturating_sub(1) as usize] as usize;
        let upto = s.text.get(start..(offset as usize).min(s.text.len())).unwrap_or("");
        (line, upto.chars().count() as u32 + 1)
    }

    /// The text of a physical line, from 1, without the newline.
    pub fn line(&self, file: FileId, line: u32) -> &str {
        let s = self.source(file);
        let start = s.lines.get((line as usize).saturating_sub(1)).map(|at| *at as usize);
        start.and_then(|at| s.text.get(at..)).and_then(|rest| rest.lines().next()).unwrap_or("")
    }

    /// Adds a line marker (cpp's `# line "file"`, `#line`): physical line `at` is line `line` of
    /// `name`.
    pub fn set_origin(&mut self, file: FileId, at: u32, name: impl Into<String>, line: u64) {
        let origins = &mut self.sources[file.0 as usize].origins;
        let index = origins.partition_point(|(known, _, _)| *known <= at);
        origins.insert(index, (at, name.into(), line));
    }

    /// The last line marker before a physical line.
    fn origin(&self, file: FileId, physical: u32) -> Option<&(u32, String, u64)> {
        let origins = &self.source(file).origins;
        origins.get(..origins.partition_point(|(at, _, _)| *at <= physical)).and_then(<[_]>::last)
    }

    /// The file name and line number of a physical line, with line markers applied.
    pub fn line_origin(&self, file: FileId, physical: u32) -> (String, u64) {
        match self.origin(file, physical) {
            Some((at, name, line)) => (name.clone(), line.saturating_add(u64::from(physical - at))),
            None => (self.name(file).to_string(), physical.into()),
        }
    }

    /// True if the preprocessor included this text from another file (a header).
    pub fn is_included(&self, span: Span) -> bool {
        let physical = self.line_number(span.file, span.start);
        self.origin(span.file, physical).is_some_and(|(_, name, _)| name != self.name(span.file))
    }

    /// Renders `--> name:line:column`, the source line near the column, and a line with carets,
    /// each after a newline.
    pub(crate) fn excerpt(&self, span: Span, name: &str, shown: u64, column: u32) -> String {
        let line = self.line_number(span.file, span.start);
        let text = self.line(span.file, line);
        let before = column as usize - 1;
        let skipped =
            if text.chars().nth(EXCERPT_CHARS).is_some() { before.saturating_sub(EXCERPT_BEFORE) } else { 0 };
        let mut rest = text.chars().skip(skipped);
        let part: String = rest.by_ref().take(EXCERPT_CHARS).map(one_column).collect();
        let (head, tail) =
            (if skipped > 0 { "..." } else { "" }, if rest.next().is_some() { "..." } else { "" });
        let number = shown.to_string();
        let pad = " ".repeat(number.len());
        let lead: String =
            part.chars().take(before - skipped).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let lead = format!("{}{lead}", " ".repeat(head.len()));
        let free = part.chars().count().saturating_sub(before - skipped).max(1);
        let wide = self.snippet(span).lines().next().map_or(1, |l| l.chars().take(free).count());
        let carets = "^".repeat(wide.clamp(1, free));
        format!(
            "\n {pad}--> {name}:{shown}:{column}\n {pad} |\n {number} | {head}{part}{tail}\n {pad} | {lead}{carets}"
        )
    }
}
