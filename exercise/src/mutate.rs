//! Mutates programs by exchanging their tokens.
//!
//! The main design decision: a mutation changes words, not bytes. A changed byte is nearly always a
//! lexical error, which later stages never see. A program with a changed word often still parses.

use crate::choices::Choices;

/// Splits a text at the boundaries of words, blanks and punctuation. No character is lost.
fn words(text: &str) -> Vec<&str> {
    let class = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => 1,
        c if c.is_whitespace() => 2,
        _ => 3,
    };
    let mut out = Vec::new();
    let mut start = 0;
    let mut last = 0;
    for (at, c) in text.char_indices() {
        let now = class(c);
        if at > start && (now != last || now == 3) {
            out.push(&text[start..at]);
            start = at;
        }
        last = now;
    }
    out.push(&text[start..]);
    out
}

/// Mutates `text`. Inserted tokens come from `other`.
pub fn mutate(text: &str, other: &str, choices: &mut Choices<'_>) -> String {
    let mut own: Vec<&str> = words(text);
    let theirs = words(other);
    for _ in 0..=choices.below(6) {
        if own.is_empty() {
            break;
        }
        let at = choices.below(own.len());
        let theirs_at = choices.below(theirs.len());
        match choices.below(6) {
            0 => drop(own.remove(at)),
            1 => own.insert(at, theirs[theirs_at]),
            2 => own[at] = theirs[theirs_at],
            3 => {
                let to = choices.below(own.len());
                own.swap(at, to);
            }
            4 => {
                let end = (theirs_at + choices.below(12)).min(theirs.len());
                own.splice(at..at, theirs[theirs_at..end].iter().copied());
            }
            _ => own[at] = EXTREMES[choices.below(EXTREMES.len())],
        }
    }
    own.concat()
}

/// Words that are likely to find errors.
const EXTREMES: [&str; 22] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "0x8000000000000000",
    "18446744073709551615",
    "\"\"",
    "\"a long string, longer than most of those that stand in the tests, so that it meets the borders of strings\"",
    "(char)",
    "(unsigned short)",
    "(string)",
    "(char *)",
    "*",
    "&",
    "this->x",
    "self->x",
    "self->a[1, \"k\"]",
    "arg0",
    "execname",
    "copyinstr(arg0)",
    "sizeof (int)",
    "[0]",
];
