//! Sums of numbers and at most one symbol, as assemblers write them: `8`, `-0x10`, `16+table`,
//! `table-4+8`.

/// A sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum<'a> {
    pub(crate) number: i64,
    pub(crate) symbol: Option<&'a str>,
}

/// Reads a sum. `None` if the text is none, or has two symbols or a negative one.
pub(crate) fn sum(text: &str) -> Option<Sum<'_>> {
    let mut sum = Sum::default();
    let mut rest = text;
    let mut negative = false;
    if let Some(after) = rest.strip_prefix(['-', '+']) {
        negative = rest.starts_with('-');
        rest = after;
    }
    loop {
        // A minus is part of no symbol and no number.
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        let (term, more) = rest.split_at_checked(end)?;
        if term.starts_with(|c: char| c.is_ascii_digit()) {
            let value = number(term)?;
            sum.number = sum.number.wrapping_add(if negative { value.wrapping_neg() } else { value });
        } else {
            let is_symbol = !negative && sum.symbol.is_none() && is_symbol(term);
            sum.symbol = Some(is_symbol.then_some(term)?);
        }
        let Some(sign) = more.chars().next() else { return Some(sum) };
        negative = sign == '-';
        rest = more.get(1..)?;
    }
}

fn is_symbol(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | '$');
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit() || c == '@')
}

/// A number: decimal, hexadecimal or octal. One that needs 64 bits is taken as such.
pub(crate) fn number(text: &str) -> Option<i64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_alphanumeric());
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten().map(|value| value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_numbers_and_at_most_one_symbol() {
        let is = |text: &str, number: i64, symbol: Option<&str>| {
            let found = sum(text).map(|s| (s.number, s.symbol));
            assert_eq!(found, Some((number, symbol)), "{text}");
        };
        is("8", 8, None);
        is("-8", -8, None);
        is("+8-16", -8, None);
        is("0x10", 16, None);
        is("010", 8, None);
        is("18446744073709551615", -1, None);
        is("-9223372036854775808", i64::MIN, None);
        is("x", 0, Some("x"));
        is("16+x", 16, Some("x"));
        is("x+16", 16, Some("x"));
        is("x-4+8", 4, Some("x"));
        is("-4+_x.0", -4, Some("_x.0"));
        is(".LC1", 0, Some(".LC1"));
        for text in
            ["", "-", "x+y", "4-x", "--4", "4+", "0x", "18446744073709551616", "08", "4x", "x*2", "a b"]
        {
            assert_eq!(sum(text), None, "{text}");
        }
    }
}
