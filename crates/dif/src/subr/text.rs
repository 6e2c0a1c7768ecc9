//! String subroutines: substrings, searches, letter case, tokens. The rules are DTrace's, which
//! follow Perl for `substr`, `index`, `rindex`.

use super::call::{Call, Fault};
use crate::interp::Val;
use crate::ir::{FaultKind, Space};

fn string(bytes: &[u8]) -> Result<Val, Fault> {
    Ok(Val::Str(bytes.to_vec()))
}

fn starts(s: &[u8], at: usize, sub: &[u8]) -> bool {
    s.get(at..).is_some_and(|rest| rest.starts_with(sub))
}

/// `substr()`. Positions and lengths have 64 bits, like arguments. A position outside the string
/// selects nothing.
///
/// A negative offset counts from the end. If it is still before the start, the excess reduces the
/// length. A negative length stops that number of bytes before the end.
pub(super) fn substr(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (s, mut from, mut count) = (call.text(0), call.int(1), call.int(2));
    let len = s.len() as i64;
    if from < 0 {
        from += len;
        if from < 0 && count > 0 && from + count > 0 {
            count += from;
            from = 0;
        }
    }
    if from < 0 || from >= len {
        return string(b"");
    }
    if count < 0 {
        count += len - from;
    }
    string(&s[from as usize..(from + count.clamp(0, len - from)) as usize])
}

/// `*s`: the first character. 0 for an empty string.
pub(super) fn first(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(call.text(0).first().map_or(0, |c| i64::from(*c as i8))))
}

/// `s + n`: the rest of a string from a position, also used for `s[n]`. After the end the rest is
/// empty. A position outside of the maximum string size is a fault.
pub(super) fn tail(call: &mut Call<'_>) -> Result<Val, Fault> {
    let n = call.int(1);
    match usize::try_from(n) {
        Ok(from) if from < call.strsize => string(call.text(0).get(from..).unwrap_or_default()),
        _ => Err((FaultKind::BadIndex, n as u64)),
    }
}

/// `s[n] = c`: replaces one character of a string. A NUL ends the string at that position. A
/// character at the end extends the string if there is space. A position after the end changes
/// nothing. A position outside of the maximum string size is a fault.
pub(super) fn set_char(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (n, c) = (call.int(1), call.int(2) as u8);
    let at = match usize::try_from(n) {
        Ok(at) if at < call.strsize => at,
        _ => return Err((FaultKind::BadIndex, n as u64)),
    };
    let mut text = call.text(0).to_vec();
    if c == 0 {
        text.truncate(at);
    } else if at == text.len() && at + 1 < call.strsize {
        text.push(c);
    } else if let Some(old) = text.get_mut(at) {
        *old = c;
    }
    Ok(Val::Str(text))
}

/// The first match at or after `pos`. An empty string matches after the end too: at the end.
pub(super) fn index(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (s, sub, pos) = (call.text(0), call.text(1), call.int(2).max(0));
    let len = s.len() as i64;
    let found = match () {
        () if sub.is_empty() => pos.min(len),
        () => (pos..len).find(|i| starts(s, *i as usize, sub)).unwrap_or(-1),
    };
    Ok(Val::Int(found))
}

/// The last match at or before `pos`. An empty string matches before the start too: at the start.
pub(super) fn rindex(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (s, sub, pos) = (call.text(0), call.text(1), call.int(2));
    let pos = pos.min(s.len() as i64);
    let found = match () {
        () if sub.is_empty() => pos.max(0),
        () => (0..=pos).rev().find(|i| starts(s, *i as usize, sub)).unwrap_or(-1),
    };
    Ok(Val::Int(found))
}

/// A string's NUL, which a search for a character can match.
const END: &[u8] = &[0];

/// The suffix at a position; NULL when there is no position.
fn suffix(s: &[u8], at: Option<usize>) -> Val {
    at.map_or(Val::Null, |at| Val::Str(s[at..].to_vec()))
}

pub(super) fn strchr(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (s, c) = (call.text(0), call.int(1) as u8);
    Ok(suffix(s, s.iter().chain(END).position(|b| *b == c)))
}

pub(super) fn strrchr(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (s, c) = (call.text(0), call.int(1) as u8);
    let at = if c == 0 { Some(s.len()) } else { s.iter().rposition(|b| *b == c) };
    Ok(suffix(s, at))
}

pub(super) fn strstr(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (s, sub) = (call.text(0), call.text(1));
    Ok(suffix(s, (0..=s.len()).find(|i| starts(s, *i, sub))))
}

/// Concatenates two strings. Faults when the result exceeds the maximum string size.
pub(super) fn strjoin(call: &mut Call<'_>) -> Result<Val, Fault> {
    let joined = [call.text(0), call.text(1)].concat();
    if joined.len() >= call.strsize { Err((FaultKind::NoScratch, 0)) } else { Ok(Val::Str(joined)) }
}

pub(super) fn toupper(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Str(call.text(0).to_ascii_uppercase()))
}

pub(super) fn tolower(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Str(call.text(0).to_ascii_lowercase()))
}

/// `memstr()`: this number of bytes less one as a string, with the separator in place of each NUL.
pub(super) fn memstr(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (at, separator, size) = (call.int(0) as u64, call.int(1) as u8, call.int(2) as u64);
    let longest = call.strsize.saturating_sub(1) as u64;
    let mut bytes = vec![0; size.saturating_sub(1).min(longest) as usize];
    let space = call.spaces.first().copied().unwrap_or(Space::Unknown);
    // A length of 0 reads nothing.
    if !bytes.is_empty() && !call.world.read(space, at, &mut bytes) {
        return Err((FaultKind::BadAddr, at));
    }
    bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = separator);
    // With NUL as the separator, the first NUL ends the string.
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(Val::Str(bytes))
}

/// The first token of a string. For NULL, the next token of the previous string.
pub(super) fn strtok(call: &mut Call<'_>) -> Result<Val, Fault> {
    if call.args.first() != Some(&Val::Null) {
        *call.rest = Some(call.text(0).to_vec());
    }
    let delimiters = call.text(1).to_vec();
    Ok(token(call.rest, &delimiters))
}

/// The next token of the previous string.
pub(super) fn strtok_next(call: &mut Call<'_>) -> Result<Val, Fault> {
    let delimiters = call.text(0).to_vec();
    Ok(token(call.rest, &delimiters))
}

fn token(rest: &mut Option<Vec<u8>>, delimiters: &[u8]) -> Val {
    let Some(text) = rest.take() else { return Val::Null };
    let Some(start) = text.iter().position(|b| !delimiters.contains(b)) else { return Val::Null };
    let end = text[start..].iter().position(|b| delimiters.contains(b)).map_or(text.len(), |n| start + n);
    *rest = Some(text[end..].to_vec());
    Val::Str(text[start..end].to_vec())
}
