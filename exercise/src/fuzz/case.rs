//! An input of a target as it is stored: what a target was given when it failed.
//!
//! ```text
//!  choices 0a1b2c      the bytes that decide, in hexadecimal digits
//!  bytes 7f454c46      a string of bytes; one line each
//!  text x = 1;\n       the same, where it is text: \n and \\ are escaped
//! ```
//!
//! The lines are read by people too: a case that was made small says what was wrong.

use crate::choices::Choices;
use crate::fuzz::{Source, Target};

/// An input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// The bytes that decide.
    pub choices: Vec<u8>,
    /// Strings of bytes.
    pub pool: Vec<Vec<u8>>,
}

impl Case {
    /// Gives the input to a target.
    pub fn run(&self, target: Target) {
        target(&mut Source::new(Choices::Bytes(&self.choices), &self.pool));
    }

    /// Bytes in all.
    pub fn size(&self) -> usize {
        self.choices.len() + self.pool.iter().map(Vec::len).sum::<usize>()
    }

    /// The lines that are stored.
    pub fn text(&self) -> String {
        let mut out = format!("choices {}\n", hex(&self.choices));
        for bytes in &self.pool {
            let plain = std::str::from_utf8(bytes).ok().filter(|text| {
                !text.is_empty() && text.chars().all(|c| c == '\n' || (!c.is_control() && c != '\u{2028}'))
            });
            out += &match plain {
                Some(text) => format!("text {}\n", text.replace('\\', "\\\\").replace('\n', "\\n")),
                None => format!("bytes {}\n", hex(bytes)),
            };
        }
        out
    }

    /// Reads the lines.
    pub fn parse(text: &str) -> Option<Case> {
        let mut case = Case::default();
        for line in text.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("choices", digits) => case.choices = unhex(digits)?,
                ("bytes", digits) => case.pool.push(unhex(digits)?),
                ("text", text) => case.pool.push(unescaped(text).into_bytes()),
                _ => return None,
            }
        }
        Some(case)
    }

    /// The bytes in which a case is kept while it runs.
    pub fn encode(&self) -> Vec<u8> {
        let parts = std::iter::once(&self.choices).chain(&self.pool);
        parts.flat_map(|part| [&(part.len() as u32).to_le_bytes()[..], part].concat()).collect()
    }

    /// Reads them.
    pub fn decode(mut bytes: &[u8]) -> Option<Case> {
        let mut parts = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            parts.push(part.to_vec());
            bytes = rest;
        }
        let mut parts = parts.into_iter();
        Some(Case { choices: parts.next()?, pool: parts.collect() })
    }

    /// Cases that are smaller, most of them by much first: parts of the strings are left out, and
    /// decisions are 0.
    pub fn smaller(&self) -> impl Iterator<Item = Case> + '_ {
        let strings = (0..self.pool.len()).flat_map(move |n| {
            let length = self.pool.get(n).map_or(0, Vec::len);
            let parts =
                std::iter::successors(Some(length), |part| Some(part / 2)).take_while(|part| *part > 0);
            parts.take(12).flat_map(move |part| {
                (0..length.div_ceil(part)).rev().take(64).map(move |at| {
                    let mut case = self.clone();
                    if let Some(bytes) = case.pool.get_mut(n) {
                        bytes.drain(at * part..((at + 1) * part).min(length));
                    }
                    case
                })
            })
        });
        let fewer = (0..self.choices.len().min(64)).map(move |at| {
            let mut case = self.clone();
            case.choices.truncate(at);
            case
        });
        fewer.chain(strings)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        out.push(match c {
            '\\' => {
                if rest.next() == Some('n') {
                    '\n'
                } else {
                    '\\'
                }
            }
            c => c,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_case_is_the_same_when_it_is_read() {
        let pool =
            vec![b"one\\n\ntwo \\ three".to_vec(), vec![0, 255], Vec::new(), "\u{e9}".into(), b"\r".to_vec()];
        let case = Case { choices: vec![1, 0x80], pool };
        assert_eq!(Case::parse(&case.text()), Some(case.clone()));
        assert_eq!(Case::decode(&case.encode()), Some(case.clone()));
        assert_eq!(Case::parse("other 1\n"), None);
        assert!(case.smaller().all(|other| other.size() < case.size()));
    }
}
