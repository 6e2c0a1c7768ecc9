//! Shell globs: fields of probe descriptions, names of functions.
//!
//! The syntax is `*`, `?`, `[abc]`, `[a-z]`, `[!abc]` and `\`, anchored at both ends. Matching is
//! greedy and backtracks only to the last `*`. It is linear in practice and quadratic at worst. A
//! recursive matcher is exponential, and a pattern of the user could then hang the compiler.

use std::ops::RangeInclusive;

/// True when the text has a glob character and can therefore match more than one name.
pub fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', '\\'])
}

/// The pattern that matches this text only: its glob characters are escaped.
pub fn glob_escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| is_glob(c.encode_utf8(&mut [0; 4])).then_some('\\').into_iter().chain([c]))
        .collect()
}

/// The literal prefix of a pattern, with which every match begins. It is the whole pattern if that
/// is no glob.
pub fn glob_prefix(pattern: &str) -> &str {
    pattern.split(['*', '?', '[', '\\']).next().unwrap_or_default()
}

/// Matches a whole field; an empty pattern matches anything.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    if pattern.is_empty() {
        return true;
    }
    let (p, t) = (pattern.as_bytes(), text.as_bytes());
    let (mut pi, mut ti) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pi < p.len() && p[pi] == b'*' {
            star = Some((pi + 1, ti));
            pi += 1;
            continue;
        }
        if ti == t.len() {
            if pi == p.len() {
                return true;
            }
        } else if let Some(next) = step(p, pi, t[ti]) {
            pi = next;
            ti += 1;
            continue;
        }
        match star {
            Some((after, from)) if from < t.len() => {
                star = Some((after, from + 1));
                pi = after;
                ti = from + 1;
            }
            _ => return false,
        }
    }
}

/// True when the pattern matches a prefix that is followed by some number of at most this many
/// decimal digits, without leading zeros. An empty pattern matches anything.
///
/// All positions in the pattern that a text leads to are kept at once. So this is exact for every
/// pattern, and linear in its length.
pub fn glob_matches_number(pattern: &str, prefix: &str, digits: usize) -> bool {
    if pattern.is_empty() {
        return true;
    }
    let p = pattern.as_bytes();
    let mut at = Positions::start(p);
    for byte in prefix.bytes() {
        at = at.after(p, byte..=byte);
    }
    if at.after(p, b'0'..=b'0').end() {
        return true;
    }
    at = at.after(p, b'1'..=b'9');
    for _ in 1..digits {
        if at.end() {
            return true;
        }
        at = at.after(p, b'0'..=b'9');
    }
    at.end()
}

/// The positions in a pattern that a text leads to. The last is its end.
struct Positions(Vec<bool>);

impl Positions {
    fn start(p: &[u8]) -> Positions {
        let mut all = Positions(vec![false; p.len() + 1]);
        all.add(p, 0);
        all
    }

    /// Adds a position, and those behind the stars that follow: a star matches nothing, too.
    fn add(&mut self, p: &[u8], mut pi: usize) {
        loop {
            let Some(known) = self.0.get_mut(pi) else { return };
            *known = true;
            if p.get(pi) != Some(&b'*') {
                return;
            }
            pi += 1;
        }
    }

    /// The positions after one more byte, which is any of these.
    fn after(&self, p: &[u8], bytes: RangeInclusive<u8>) -> Positions {
        let mut next = Positions(vec![false; p.len() + 1]);
        for (pi, _) in self.0.iter().enumerate().filter(|(_, reached)| **reached) {
            if p.get(pi) == Some(&b'*') {
                next.add(p, pi);
                continue;
            }
            for to in bytes.clone().filter_map(|byte| step(p, pi, byte)) {
                next.add(p, to);
            }
        }
        next
    }

    fn end(&self) -> bool {
        self.0.last().copied().unwrap_or(false)
    }
}

/// Matches one byte against the element at `pi`. Returns the position of the next element.
fn step(p: &[u8], pi: usize, byte: u8) -> Option<usize> {
    match *p.get(pi)? {
        b'?' => Some(pi + 1),
        b'[' => match set(p, pi, byte) {
            Some((true, next)) => Some(next),
            Some((false, _)) => None,
            // An unclosed bracket matches itself.
            None => (byte == b'[').then_some(pi + 1),
        },
        b'\\' => match p.get(pi + 1) {
            Some(escaped) => (*escaped == byte).then_some(pi + 2),
            None => (byte == b'\\').then_some(pi + 1),
        },
        literal => (literal == byte).then_some(pi + 1),
    }
}

/// Whether the set at `pi` contains the byte, and the position after the set. `None` if the set is
/// not closed.
fn set(p: &[u8], pi: usize, byte: u8) -> Option<(bool, usize)> {
    let mut at = pi + 1;
    let negated = matches!(p.get(at), Some(b'!' | b'^'));
    if negated {
        at += 1;
    }
    let first = at;
    let mut found = false;
    loop {
        let mut low = *p.get(at)?;
        if low == b']' && at > first {
            return Some((found != negated, at + 1));
        }
        if low == b'\\' && at + 1 < p.len() {
            at += 1;
            low = p[at];
        }
        at += 1;
        let mut high = low;
        if p.get(at) == Some(&b'-') && p.get(at + 1).is_some_and(|b| *b != b']') {
            high = p[at + 1];
            at += 2;
        }
        found |= (low..=high).contains(&byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_text() {
        for (pattern, text, expected) in [
            ("read", "read", true),
            ("read", "pread", false),
            ("read", "readv", false),
            ("*read*", "pread64", true),
            ("read*", "read", true),
            ("*", "", true),
            ("", "anything", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?ead", "read", true),
            ("?", "", false),
            ("**", "x", true),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn sets_ranges_and_escapes_match_one_character() {
        for (pattern, text, expected) in [
            ("[abc]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[!abc]x", "dx", true),
            ("[!abc]x", "ax", false),
            ("[]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a[", "a[", true),
            ("[a-]", "-", true),
            ("tick-[0-9]*s", "tick-10s", true),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn matching_ends_when_a_pattern_has_many_stars() {
        assert!(!glob_matches(&"*a".repeat(60), &"a".repeat(59)));
    }
}
