//! The names of recorded values: their expressions as the program writes them.

use diagnostics::raw;

/// An expression in one line: white space and comments become single spaces, and the spaces at both
/// ends are removed. Strings and characters are unchanged.
pub(crate) fn collapsed(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut space = false;
    let mut rest = source.char_indices();
    while let Some((at, c)) = rest.next() {
        let comment = source.get(at..).filter(|_| c == '/').and_then(comment_length);
        if let Some(length) = comment {
            space = true;
            rest.by_ref().take_while(|(i, _)| *i + 1 < at + length).for_each(drop);
            continue;
        }
        if c.is_whitespace() {
            space = true;
            continue;
        }
        if std::mem::take(&mut space) && !out.is_empty() {
            out.push(' ');
        }
        out.push(c);
        if matches!(c, '"' | '\'') {
            let mut escaped = false;
            for (_, inner) in rest.by_ref() {
                out.push(inner);
                if inner == c && !escaped {
                    break;
                }
                escaped = inner == '\\' && !escaped;
            }
        }
    }
    match raw::is_raw(&out) {
        true => String::from_utf8_lossy(&raw::bytes(&out)).into_owned(),
        false => out,
    }
}

/// The length of the comment that begins here.
fn comment_length(text: &str) -> Option<usize> {
    if text.starts_with("/*") {
        let end = text.get(2..).and_then(|inner| inner.find("*/"));
        return Some(end.map_or(text.len(), |end| end + 4));
    }
    text.starts_with("//").then(|| text.find('\n').unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::collapsed;

    #[test]
    fn names_of_expressions_are_one_line_without_comments() {
        for (source, name) in [
            ("pid", "pid"),
            (" a  +\n\tb ", "a + b"),
            ("a /* one\n two */ + b", "a + b"),
            ("a/**/+b", "a +b"),
            ("a // rest\n + b", "a + b"),
            ("a / b", "a / b"),
            ("strjoin(\"a  /* b\", '\\'')", "strjoin(\"a  /* b\", '\\'')"),
            ("\"\\\"  x\"  \"y\"", "\"\\\"  x\" \"y\""),
            ("a /* open", "a"),
            ("\"open  ", "\"open  "),
            ("\u{e9}  /*\u{e9}*/ \u{e9}", "\u{e9} \u{e9}"),
        ] {
            assert_eq!(collapsed(source), name, "{source}");
        }
    }
}
