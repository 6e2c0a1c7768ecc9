//! Macro variables: `$1`, `$$1`, `$target`.
//!
//! The lexer expands each of them once, to one token. So their text cannot change how the rest of
//! the program is parsed (an operand `1; } BEGIN {` is a string and not three tokens). A textual
//! preprocessor would be shorter, but would allow code injection.

use crate::ast::{IntBase, IntLit};

/// The values of the macro variables, and the options that affect them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MacroEnv {
    /// `$0`: the script's name, or `dtrace`.
    pub name: String,
    /// `$1`, `$2`, …
    pub args: Vec<String>,
    /// `$pid`: the consumer's process id.
    pub pid: u64,
    /// `$ppid`
    pub ppid: u64,
    /// `$uid`
    pub uid: u64,
    /// `$euid`
    pub euid: u64,
    /// `$gid`
    pub gid: u64,
    /// `$egid`
    pub egid: u64,
    /// `$pgid`
    pub pgid: u64,
    /// `$sid`
    pub sid: u64,
    /// `$target`: the process id of the first `-c` or `-p` process; 0 without one.
    pub target: u64,
    /// Option `defaultargs`: a missing operand is 0, or the empty string.
    pub default_args: bool,
    /// Option `pspec`: at file scope `a*b` starts a probe description even if `a` is a type.
    pub probe_spec_first: bool,
}

/// The result of looking up a macro variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expansion {
    /// It is defined.
    Text(String),
    /// A missing operand, with the option `defaultargs`.
    Default,
    /// It is not defined.
    Undefined,
    /// The number exceeds that of any operand.
    Overflow,
}

/// The token of an expanded macro variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MacroToken {
    Int(IntLit),
    /// An integer that no type can represent.
    Overflow,
    Ident(String),
    Str(String),
}

impl MacroEnv {
    /// The names and descriptions of the variables that are not operands, for "did you mean" and
    /// the manual page.
    pub const NAMES: [(&str, &str); 9] = [
        ("pid", "process id of dtrace"),
        ("ppid", "process id of its parent"),
        ("uid", "its real user id"),
        ("euid", "its effective user id"),
        ("gid", "its real group id"),
        ("egid", "its effective group id"),
        ("pgid", "its process group"),
        ("sid", "its session"),
        ("target", "process id of the first -c or -p process; 0 without one"),
    ];

    /// The text of `$name`, where `name` is a number or a word.
    pub(crate) fn expand(&self, name: &str) -> Expansion {
        if name.bytes().all(|b| b.is_ascii_digit()) {
            let text = match name.parse::<usize>() {
                Ok(0) => Some(&self.name),
                Ok(n) => self.args.get(n - 1),
                Err(_) => return Expansion::Overflow,
            };
            return match text {
                Some(text) => Expansion::Text(text.clone()),
                None if self.default_args => Expansion::Default,
                None => Expansion::Undefined,
            };
        }
        let values =
            [self.pid, self.ppid, self.uid, self.euid, self.gid, self.egid, self.pgid, self.sid, self.target];
        match Self::NAMES.iter().zip(values).find(|((n, _), _)| *n == name) {
            Some((_, value)) => Expansion::Text(value.to_string()),
            None => Expansion::Undefined,
        }
    }
}

/// An integer if the text is one, with an optional sign; a name if it is one; otherwise a string.
pub(crate) fn token_of(text: &str) -> MacroToken {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (IntBase::Hex, 16, &digits[2..]),
        [b'0', _, ..] => (IntBase::Octal, 8, &digits[1..]),
        _ => (IntBase::Decimal, 10, digits),
    };
    if !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix)) {
        let value = u64::from_str_radix(digits, radix).ok();
        let value = match (negative, value) {
            (false, v) => v,
            (true, v) => v.filter(|v| *v <= 1 << 63).map(u64::wrapping_neg),
        };
        return match value {
            // `-0` is 0.
            Some(value) => MacroToken::Int(IntLit {
                value,
                base,
                unsigned: false,
                longs: 0,
                negative: negative && value != 0,
            }),
            None => MacroToken::Overflow,
        };
    }
    let mut bytes = text.bytes();
    let is_name = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_name { MacroToken::Ident(text.to_owned()) } else { MacroToken::Str(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(text: &str) -> Option<(u64, bool)> {
        match token_of(text) {
            MacroToken::Int(i) => Some((i.value, i.negative)),
            _ => None,
        }
    }

    #[test]
    fn an_operand_becomes_integer_name_or_string() {
        assert_eq!(int("12"), Some((12, false)));
        assert_eq!(int("0x1F"), Some((31, false)));
        assert_eq!(int("017"), Some((15, false)));
        assert_eq!(int("0"), Some((0, false)));
        assert_eq!(int("-5"), Some((5u64.wrapping_neg(), true)));
        assert_eq!(int("-0"), Some((0, false)));
        assert_eq!(token_of("bash"), MacroToken::Ident("bash".into()));
        for text in ["", "-", "+", "089", "0x", "a b", "/bin/ls", "1; } BEGIN {", "5x"] {
            assert_eq!(token_of(text), MacroToken::Str(text.into()));
        }
        assert_eq!(token_of("18446744073709551616"), MacroToken::Overflow);
        assert_eq!(token_of("-9223372036854775809"), MacroToken::Overflow);
    }

    // row macro.ids
    #[test]
    fn operands_are_found_by_number_and_ids_by_name() {
        let env = MacroEnv { name: "x.d".into(), args: vec!["a".into()], target: 7, ..MacroEnv::default() };
        assert_eq!(env.expand("0"), Expansion::Text("x.d".into()));
        assert_eq!(env.expand("1"), Expansion::Text("a".into()));
        assert_eq!(env.expand("2"), Expansion::Undefined);
        assert_eq!(env.expand("99999999999999999999"), Expansion::Overflow);
        assert_eq!(env.expand("target"), Expansion::Text("7".into()));
        assert_eq!(env.expand("projid"), Expansion::Undefined);
        let env = MacroEnv { default_args: true, ..env };
        assert_eq!(env.expand("2"), Expansion::Default);
    }
}
