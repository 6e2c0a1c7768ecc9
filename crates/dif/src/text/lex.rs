//! Splits one line of the text form into tokens.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Letters, digits, `_`, `.`, beginning with a letter.
    Word(String),
    /// A decimal number, perhaps negative; wide enough for every field.
    Number(i128),
    /// A quoted string.
    Bytes(Vec<u8>),
    /// One of `,:=[](){}`.
    Sign(char),
}

/// The tokens of a line, without its comment.
pub(super) fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            ';' => break,
            c if c.is_ascii_whitespace() => {
                chars.next();
            }
            '"' => {
                chars.next();
                out.push(Token::Bytes(quoted(&mut chars)?));
            }
            c if c.is_ascii_digit() || c == '-' => {
                let mut text = String::new();
                while let Some(c) = chars.next_if(|c| c.is_ascii_digit() || (*c == '-' && text.is_empty())) {
                    text.push(c);
                }
                out.push(Token::Number(text.parse().map_err(|_| format!("bad number {text}"))?));
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let mut text = String::new();
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')) {
                    text.push(c);
                }
                out.push(Token::Word(text));
            }
            ',' | ':' | '=' | '[' | ']' | '(' | ')' | '{' | '}' => {
                chars.next();
                out.push(Token::Sign(c));
            }
            c => return Err(format!("unexpected {c:?}")),
        }
    }
    Ok(out)
}

fn quoted(chars: &mut impl Iterator<Item = char>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let unfinished = || "unfinished string".to_string();
    loop {
        match chars.next().ok_or_else(unfinished)? {
            '"' => return Ok(bytes),
            '\\' => match chars.next().ok_or_else(unfinished)? {
                'n' => bytes.push(b'\n'),
                't' => bytes.push(b'\t'),
                'r' => bytes.push(b'\r'),
                'x' => {
                    let mut digit =
                        || chars.next().and_then(|c| c.to_digit(16)).ok_or("bad \\x escape".to_string());
                    bytes.push((digit()? * 16 + digit()?) as u8);
                }
                c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            },
            c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
}
