//! The line that the original reports for an error.
//!
//! People are shown where an error is: its first byte, with the source line. Programs (`-xerrtags`)
//! compare the line with that of other implementations, and there the original reports where its
//! lexer is. A parser of its kind (LALR) makes the node of an operator when it has read the token
//! behind the operands, and that of a call or an element at the closing bracket; it checks a
//! translator when it has read all of it. So the line follows from the kind of the error.

use crate::{SourceMap, Span, Tag};

/// Where the original's lexer is when it finds an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedAt {
    /// At the end of what is wrong.
    End,
    /// Behind the token that follows what is wrong. The end of the text is such a token.
    Next,
    /// At the beginning of the line after what is wrong.
    NextLine,
    /// At the end of the clause or declaration.
    ItemEnd,
    /// At the end of the text.
    TextEnd,
}

impl ReportedAt {
    /// The place of the errors with this tag.
    pub(crate) fn of(tag: Tag) -> ReportedAt {
        use Tag::*;
        match tag {
            D_OP_INT | D_OP_ARITH | D_OP_SCALAR | D_OP_INCOMPAT | D_OP_VFPTR | D_OP_ARRFUN | D_DIV_ZERO
            | D_CAST_INVAL | D_DECL_CHARATTR | D_DECL_VOIDATTR | D_DECL_SIGNINT | D_DECL_LONGINT
            | D_DECL_COMBO | D_DECL_ENCONST | D_DECL_ENOFLOW => ReportedAt::Next,
            D_STR_NL | D_CHR_NL => ReportedAt::NextLine,
            D_PRED_SCALAR | D_XLATE_MEMB | D_XLATE_REDECL | D_XLATE_INCOMPAT => ReportedAt::ItemEnd,
            D_EMPTY => ReportedAt::TextEnd,
            _ => ReportedAt::End,
        }
    }

    /// The line of this place for an error at `span` in `item`, from 1.
    pub(crate) fn line(self, map: &SourceMap, span: Span, item: Option<Span>) -> u32 {
        let text = map.text(span.file);
        let last = |span: Span| span.end.saturating_sub(1).max(span.start);
        let line_of = |offset| map.line_number(span.file, offset);
        match self {
            ReportedAt::End => line_of(last(span)),
            ReportedAt::Next => line_of(next_token(text, span.end as usize) as u32),
            ReportedAt::NextLine => line_of(last(span)) + 1,
            ReportedAt::ItemEnd => line_of(last(item.filter(|item| item.file == span.file).unwrap_or(span))),
            ReportedAt::TextEnd => line_of(text.len() as u32),
        }
    }
}

/// Where the lexer is when it has looked at the token at or after `from`. To know whether a slash
/// ends a predicate, it looks at what follows the slash.
fn next_token(text: &str, from: usize) -> usize {
    let next = skip_blanks(text, from);
    match text.as_bytes().get(next) {
        Some(b'/') => skip_blanks(text, next + 1),
        _ => next,
    }
}

/// The first offset at or after `from` that is neither blank nor in a comment.
fn skip_blanks(text: &str, from: usize) -> usize {
    let mut rest = text.get(from..).unwrap_or("");
    loop {
        rest = rest.trim_start();
        let end_of_comment = match rest.get(..2) {
            Some("/*") => rest.find("*/").map(|at| at + 2),
            Some("//") => rest.find('\n'),
            _ => break text.len() - rest.len(),
        };
        rest = end_of_comment.and_then(|at| rest.get(at..)).unwrap_or("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceKind;

    #[track_caller]
    fn line(text: &str, wrong: &str, place: ReportedAt) -> u32 {
        let mut map = SourceMap::default();
        let file = map.add(SourceKind::Script, "x.d", text);
        let start = text.find(wrong).unwrap() as u32;
        let span = Span::new(file, start, start + wrong.len() as u32);
        place.line(&map, span, Some(Span::new(file, 0, text.trim_end().len() as u32)))
    }

    #[test]
    fn the_line_is_that_of_the_originals_lexer() {
        let clause = "BEGIN\n/a\n/\n{\n\tx = f(1,\n2) // ;\n/* * / */\n\n}\n";
        assert_eq!(line(clause, "a", ReportedAt::End), 2);
        assert_eq!(line(clause, "f(1,\n2)", ReportedAt::End), 6);
        // The slash is followed by a brace, which the lexer looks at.
        assert_eq!(line(clause, "a", ReportedAt::Next), 4);
        assert_eq!(line(clause, "x = f(1,\n2)", ReportedAt::Next), 9);
        assert_eq!(line(clause, "a", ReportedAt::NextLine), 3);
        assert_eq!(line(clause, "a", ReportedAt::ItemEnd), 9);
        assert_eq!(line(clause, "a", ReportedAt::TextEnd), 10);
    }

    #[test]
    fn the_end_of_the_text_is_a_token() {
        for text in ["x", "x\n", "x /* ", "x // ", "x /", "x /\n"] {
            assert_eq!(line(text, "x", ReportedAt::Next), 1 + text.matches('\n').count() as u32, "{text:?}");
        }
    }
}
