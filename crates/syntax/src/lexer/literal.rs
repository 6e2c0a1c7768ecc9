//! Scans constants: integers, characters, strings.

use diagnostics::Tag;

use super::Lexer;
use crate::ast::{IntBase, IntLit};
use crate::token::Tok;

/// Resolves escape sequences (`\n`, `\033`, `\x1b`). An escape that is unknown in C is the
/// character itself.
pub(crate) fn unescape(raw: &str) -> Vec<u8> {
    let raw = &diagnostics::raw::bytes(raw)[..];
    let mut out = Vec::with_capacity(raw.len());
    let mut i = 0;
    while let Some(first) = raw.get(i) {
        let Some(c) = raw.get(i + 1).filter(|_| *first == b'\\') else {
            out.push(*first);
            i += 1;
            continue;
        };
        i += 2;
        let digits = |from: usize, most: usize, radix: u32| {
            raw.iter().skip(from).take(most).take_while(|b| (**b as char).is_digit(radix)).count()
        };
        let value = |from: usize, len: usize, radix: u32| {
            raw.iter()
                .skip(from)
                .take(len)
                .fold(0u32, |v, b| v * radix + (*b as char).to_digit(radix).unwrap_or(0)) as u8
        };
        match c {
            b'a' => out.push(0x07),
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(0x0b),
            b'0'..=b'7' => {
                let len = digits(i - 1, 3, 8);
                out.push(value(i - 1, len, 8));
                i += len - 1;
            }
            b'x' if digits(i, 2, 16) > 0 => {
                let len = digits(i, 2, 16);
                out.push(value(i, len, 16));
                i += len;
            }
            other => out.push(*other),
        }
    }
    out
}

impl Lexer<'_> {
    pub(super) fn number(&mut self) -> Tok {
        let start = self.pos;
        let text = self.text.clone();
        let rest = text.as_bytes().get(start..).unwrap_or_default();
        let run = |from: usize, ok: fn(&u8) -> bool| rest.iter().skip(from).take_while(|b| ok(b)).count();
        let at = |i: usize| rest.get(i).copied().unwrap_or(0);

        let hex = at(0) == b'0' && matches!(at(1), b'x' | b'X') && at(2).is_ascii_hexdigit();
        let mut end = if hex { 2 + run(2, u8::is_ascii_hexdigit) } else { run(0, u8::is_ascii_digit) };
        if !hex {
            let exponent = |i: usize| {
                let sign = usize::from(matches!(at(i + 1), b'+' | b'-'));
                matches!(at(i), b'e' | b'E') && at(i + 1 + sign).is_ascii_digit()
            };
            // `...` does not begin a fraction.
            let fraction = at(end) == b'.' && at(end + 1) != b'.';
            if fraction || exponent(end) {
                if fraction {
                    end += 1 + run(end + 1, u8::is_ascii_digit);
                }
                if exponent(end) {
                    end += 1 + usize::from(matches!(at(end + 1), b'+' | b'-'));
                    end += run(end, u8::is_ascii_digit);
                }
                end += usize::from(matches!(at(end), b'f' | b'F' | b'l' | b'L'));
                self.pos = start + end;
                self.error(Tag::D_SYNTAX, start, start + end, "floating-point constants are not permitted");
                return Tok::Int(IntLit {
                    value: 0,
                    base: IntBase::Decimal,
                    unsigned: false,
                    longs: 0,
                    negative: false,
                });
            }
        }
        let digits = &text[start..start + end];
        let (mut unsigned, mut longs) = (false, 0u8);
        loop {
            match at(end) {
                b'u' | b'U' if !unsigned => unsigned = true,
                b'l' | b'L' if longs < 2 => longs += 1,
                _ => break,
            }
            end += 1;
        }
        self.pos = start + end;
        let spelled = &text[start..start + end];
        let (base, radix, digits) = if hex {
            (IntBase::Hex, 16, &digits[2..])
        } else if digits.len() > 1 && digits.starts_with('0') {
            (IntBase::Octal, 8, &digits[1..])
        } else {
            (IntBase::Decimal, 10, digits)
        };
        let value = if let Some(wrong) = digits.chars().find(|c| !c.is_digit(radix)) {
            let message = format!("constant {spelled} contains invalid digit {wrong}");
            self.error(Tag::D_INT_DIGIT, start, start + end, message);
            0
        } else if let Some(value) = u64::from_str_radix(digits, radix)
            .ok()
            // A decimal constant without `u` has a signed type.
            .filter(|v| base != IntBase::Decimal || unsigned || i64::try_from(*v).is_ok())
        {
            value
        } else {
            let message = format!("constant {spelled} results in integer overflow");
            self.error(Tag::D_INT_OFLOW, start, start + end, message);
            0
        };
        Tok::Int(IntLit { value, base, unsigned, longs, negative: false })
    }

    /// The text between this quote and the closing one, and whether there is a closing one on this
    /// line. The position is then after the closing quote, or at the end of the line.
    fn quoted(&mut self) -> (String, bool) {
        let quote = self.peek_at(self.pos);
        let start = self.pos + 1;
        let mut at = start;
        while at < self.text.len() {
            match self.peek_at(at) {
                b'\n' => break,
                b if b == quote => {
                    self.pos = at + 1;
                    return (self.text[start..at].to_owned(), true);
                }
                b'\\' if self.peek_at(at + 1) != b'\n' => at += 2,
                _ => at += 1,
            }
        }
        // An escape may have moved the position beyond the end or into a character.
        at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at += 1;
        }
        self.pos = at;
        (self.text[start..at].to_owned(), false)
    }

    pub(super) fn string(&mut self) -> (Vec<u8>, bool) {
        let start = self.pos;
        let (raw, closed) = self.quoted();
        if !closed {
            let end = self.pos;
            if self.at_end() {
                self.error(Tag::D_SYNTAX, start, end, "end-of-file encountered in string literal");
            } else {
                self.error(Tag::D_STR_NL, start, end, "newline encountered in string literal");
            }
        }
        (unescape(&raw), closed)
    }

    pub(super) fn character(&mut self) -> (u64, bool) {
        let start = self.pos;
        let (raw, closed) = self.quoted();
        let end = self.pos;
        let bytes = unescape(&raw);
        if !closed {
            if self.at_end() {
                self.error(Tag::D_SYNTAX, start, end, "end-of-file encountered in character constant");
            } else {
                self.error(Tag::D_CHR_NL, start, end, "newline encountered in character constant");
            }
        } else if bytes.is_empty() {
            self.error(Tag::D_CHR_NULL, start, end, "empty character constant");
        } else if bytes.len() > 8 {
            self.error(Tag::D_CHR_OFLOW, start, end, "character constant is too long");
        }
        (bytes.iter().take(8).fold(0, |v, b| (v << 8) | u64::from(*b)), closed)
    }
}

#[cfg(test)]
mod tests {
    use super::unescape;

    // row token.string-escapes
    #[test]
    fn escapes_have_the_meaning_of_c() {
        assert_eq!(unescape(r#"\a\b\f\n\r\t\v\0\\\"\'\?"#), b"\x07\x08\x0c\n\r\t\x0b\0\\\"'?");
        assert_eq!(unescape(r"\1234\x1bz\xfg\777"), b"S4\x1bz\x0fg\xff");
        assert_eq!(unescape(r"\q\xz"), b"qxz");
        assert_eq!(unescape("a\\"), b"a\\");
        assert_eq!(unescape("\u{e9}"), "\u{e9}".as_bytes());
    }
}
