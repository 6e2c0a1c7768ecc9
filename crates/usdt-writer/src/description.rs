//! A provider as D text, and the note in which a program has it.
//!
//! The note is in the section `.note.dtrace`, once for each provider of a file; it has the owner
//! `dtrace` and the type 1. Its descriptor, at most [`LONGEST`] bytes:
//!
//! ```text
//!  u32          version of the format: 1, in the byte order of the file
//!  text NUL     name of the provider
//!  text NUL     D: `#pragma D attributes` of the provider, the types, inlines and translators of the definition,
//!               the provider block. Comments are removed.
//! ```
//!
//! A file may have several notes of a provider, of objects that were made from different versions
//! of the definition. The text is read by the D parser and like a D library: nothing of it is
//! executed in the traced program.

/// Owner of the note, with its NUL.
pub(crate) const OWNER: &[u8] = b"dtrace\0";

/// Type of the note.
pub(crate) const TYPE: u32 = 1;

/// Version of the descriptor.
pub(crate) const VERSION: u32 = 1;

/// The longest descriptor, in bytes. A reader rejects longer ones.
pub(crate) const LONGEST: usize = 64 << 10;

/// The descriptor without its version.
pub(crate) fn texts(provider: &str, text: &str) -> Vec<u8> {
    [provider.as_bytes(), b"\0", text.as_bytes(), b"\0"].concat()
}

/// A number that differs for different texts (FNV-1a): two versions of a definition in one program
/// are two notes.
pub(crate) fn hash(text: &str) -> u64 {
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// D text without comments, line markers of the preprocessor and superfluous blanks.
pub(crate) fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut line_begins = true;
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'*') => {
                rest.next();
                let mut before = ' ';
                for c in rest.by_ref() {
                    if before == '*' && c == '/' {
                        break;
                    }
                    before = c;
                }
                blank(&mut out);
            }
            '/' if rest.peek() == Some(&'/') => while rest.next_if(|c| *c != '\n').is_some() {},
            '#' if line_begins => while rest.next_if(|c| *c != '\n').is_some() {},
            '"' | '\'' => {
                line_begins = false;
                out.push(c);
                while let Some(inner) = rest.next() {
                    out.push(inner);
                    if inner == '\\' {
                        out.extend(rest.next());
                    } else if inner == c || inner == '\n' {
                        break;
                    }
                }
            }
            c if c.is_whitespace() => {
                line_begins |= c == '\n';
                blank(&mut out);
            }
            c => {
                line_begins = false;
                out.push(c);
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn blank(out: &mut String) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_line_markers_are_left_out() {
        let text =
            "provider p { /* a * b */\n# 3 \"x.h\"\n  probe q(char *s); // c\n\tprobe \"/*\\\"x  y\" }";
        assert_eq!(compact(text), "provider p { probe q(char *s); probe \"/*\\\"x  y\" }");
    }

    #[test]
    fn what_is_not_closed_ends_with_the_text() {
        assert_eq!(compact("a /* b"), "a");
        assert_eq!(compact("a \"b\\"), "a \"b\\");
        assert_eq!(compact("#x"), "");
    }

    #[test]
    fn the_hash_is_fnv() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
