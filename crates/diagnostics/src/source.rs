//! The texts of a compilation and places in them.

use std::fmt;

/// A text of the [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

/// A byte range of one text; `end` is exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The text.
    pub file: FileId,
    /// First byte.
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

/// Where a text came from; it decides how a message about it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// `-s file`: "failed to compile script F: line N: ".
    Script,
    /// `-n`, `-P`, `-m`, `-f`, `-i`: "invalid probe specifier TEXT: ".
    Specifier,
    /// A D library: `"lib.d", line N: `.
    Library,
}

#[derive(Clone, Debug)]
struct Source {
    kind: SourceKind,
    name: String,
    text: String,
    /// Byte offset of each line's start.
    lines: Vec<u32>,
    /// `(physical line, name, line)`: from that physical line on the text comes from `line` of `name` (cpp markers).
    origins: Vec<(u32, String, u64)>,
}

/// All texts of a compilation.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    sources: Vec<Source>,
}

impl SourceMap {
    /// Adds a text.
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

    /// The name given to [`SourceMap::add`].
    pub fn name(&self, file: FileId) -> &str {
        &self.source(file).name
    }

    /// Where the text came from.
    pub fn kind(&self, file: FileId) -> SourceKind {
        self.source(file).kind
    }

    /// The bytes a span covers.
    pub fn snippet(&self, span: Span) -> &str {
        self.text(span.file).get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Physical line and column of a byte, both from 1; columns count characters.
    pub fn line_column(&self, file: FileId, offset: u32) -> (u32, u32) {
        let s = self.source(file);
        let line = s.lines.partition_point(|start| *start <= offset);
        let start = s.lines[line.saturating_sub(1)] as usize;
        let upto = s.text.get(start..(offset as usize).min(s.text.len())).unwrap_or("");
        (line as u32, upto.chars().count() as u32 + 1)
    }

    /// A physical line, from 1, without its end.
    pub fn line(&self, file: FileId, line: u32) -> &str {
        let s = self.source(file);
        let start = s.lines.get((line as usize).saturating_sub(1)).map(|at| *at as usize);
        start.and_then(|at| s.text.get(at..)).and_then(|rest| rest.lines().next()).unwrap_or("")
    }

    /// Says that from physical line `at` on the text is line `line` of `name` (cpp's `# line "file"`, `#line`).
    pub fn set_origin(&mut self, file: FileId, at: u32, name: impl Into<String>, line: u64) {
        self.sources[file.0 as usize].origins.push((at, name.into(), line));
    }

    /// File name and line to show for a physical line, after line markers.
    pub fn line_origin(&self, file: FileId, physical: u32) -> (String, u64) {
        let s = self.source(file);
        match s.origins.iter().rev().find(|(at, _, _)| *at <= physical) {
            Some((at, name, line)) => (name.clone(), line.saturating_add(u64::from(physical - at))),
            None => (s.name.clone(), physical.into()),
        }
    }

    /// A preprocessor brought this text from another file: a header.
    pub fn is_included(&self, span: Span) -> bool {
        let s = self.source(span.file);
        let (physical, _) = self.line_column(span.file, span.start);
        let origin = s.origins.iter().rev().find(|(at, _, _)| *at <= physical);
        origin.is_some_and(|(_, name, _)| *name != s.name)
    }

    /// `--> name:line:column`, the line's text and a caret line, each after a newline.
    pub(crate) fn excerpt(&self, span: Span, name: &str, shown: u64, column: u32) -> String {
        let s = self.source(span.file);
        let (line, _) = self.line_column(span.file, span.start);
        let start = s.lines[line as usize - 1] as usize;
        let text = s.text[start..].lines().next().unwrap_or("");
        let number = shown.to_string();
        let pad = " ".repeat(number.len());
        let lead: String =
            text.chars().take(column as usize - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let room = text.chars().count().saturating_sub(column as usize - 1).max(1);
        let carets =
            "^".repeat(self.snippet(span).lines().next().map_or(1, |l| l.chars().count()).clamp(1, room));
        format!("\n {pad}--> {name}:{shown}:{column}\n {pad} |\n {number} | {text}\n {pad} | {lead}{carets}")
    }
}
