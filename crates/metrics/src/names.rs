//! Names of metrics and labels, and values of labels.
//!
//! A program chooses the names, a process the values: both are hostile. What is too long ends with
//! a number of all of it, so that two values that differ at their end stay two.

use diagnostics::control;
use events::Value;

/// The most characters of a name.
const LONGEST_NAME: usize = 100;
/// The most characters of a value. With what is not ASCII escaped or replaced, it is a name of a
/// file, which a server of Graphite makes of it.
const LONGEST_VALUE: usize = 200;

/// A name of letters, digits and `_`, which begins with a letter: a metric or a label in every
/// format. Empty if it has none of them.
pub(crate) fn identifier(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => out.push(c),
            _ if out.ends_with('_') || out.is_empty() => {}
            _ => out.push('_'),
        }
    }
    out.truncate(out.trim_end_matches('_').len());
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert_str(0, "n_");
    }
    bounded(out, LONGEST_NAME)
}

/// Names of labels for the columns of a key: its expressions. They differ from one another and
/// from those that formats have of their own.
pub(crate) fn labels(expressions: &[impl AsRef<str>]) -> Vec<String> {
    const TAKEN: [&str; 4] = ["le", "bucket", "host", "time"];
    let mut out: Vec<String> = Vec::new();
    for (n, expression) in expressions.iter().enumerate() {
        let mut name = identifier(expression.as_ref());
        if name.is_empty() {
            name = format!("key{}", n + 1);
        }
        let base = name.clone();
        let mut more = 2;
        while out.contains(&name) || TAKEN.contains(&&*name) {
            name = format!("{base}_{more}");
            more += 1;
        }
        out.push(name);
    }
    out
}

/// The value of a label: what text prints for the column, without control characters.
pub(crate) fn value(value: &Value<'_>) -> String {
    let text = match value {
        Value::Int(int) => return int.value().to_string(),
        Value::Str { text, .. } | Value::Name { text, .. } => control::name(text).into_owned(),
        Value::Symbol(symbol) => control::name(symbol.text().as_bytes()).into_owned(),
        Value::Bytes(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        _ => "?".into(),
    };
    bounded(text, LONGEST_VALUE)
}

/// The text, or its beginning and a number of all of it.
fn bounded(mut text: String, most: usize) -> String {
    const NUMBER: usize = 17;
    if text.char_indices().nth(most).is_none() {
        return text;
    }
    // FNV-1a
    let number = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    if let Some((end, _)) = text.char_indices().nth(most - NUMBER) {
        text.truncate(end);
    }
    format!("{text}_{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_named_as_the_expressions_of_the_key() {
        let names = ["execname", "args[1]->dev_statname", "arg0 % 10", "", "0", "le", "execname", "__name__"];
        let expected =
            ["execname", "args_1_dev_statname", "arg0_10", "key4", "n_0", "le_2", "execname_2", "name"];
        assert_eq!(labels(&names), expected);
        assert_eq!(labels(&["host", "bucket"]), ["host_2", "bucket_2"]);
    }

    #[test]
    fn long_values_that_differ_at_their_end_stay_two() {
        let of = |end: &str| {
            let text = format!("{}{end}", "é".repeat(4096)).into_bytes();
            value(&Value::Str { text: text.into(), size: 0 })
        };
        assert_eq!(of("a").chars().count(), LONGEST_VALUE);
        assert_ne!(of("a"), of("b"));
        assert!(identifier(&"x".repeat(4096)).len() <= LONGEST_NAME);
    }
}
