//! Changes of strings of bytes: what makes of a real input one that nobody has thought of.
//!
//! The main design decision: besides single bytes, what parsers believe is changed. Numbers of all
//! sizes become those at which additions and multiplications overflow; numbers in texts become long
//! ones; parts are repeated many times, which shows what takes quadratic time; parts are exchanged
//! with those of other inputs.

use crate::choices::Choices;

/// The longest string that is made.
pub const LONGEST: usize = 64 << 10;

/// Changes a string; parts come from `other`.
pub fn change(bytes: &mut Vec<u8>, other: &[u8], choices: &mut Choices<'_>) {
    // One in four strings stays as it is.
    let times = match choices.below(4) {
        0 => 0,
        1 => 1,
        2 => 1 + choices.below(4),
        _ => 1 + choices.below(24),
    };
    for _ in 0..times {
        once(bytes, other, choices);
        bytes.truncate(LONGEST);
    }
}

/// A part of so many bytes: its beginning and its end.
fn part(length: usize, most: usize, choices: &mut Choices<'_>) -> (usize, usize) {
    let at = choices.below(length + 1);
    let size = (1 + choices.below(most)) >> choices.below(8);
    (at, (at + size.max(1)).min(length))
}

fn once(bytes: &mut Vec<u8>, other: &[u8], choices: &mut Choices<'_>) {
    let length = bytes.len();
    match choices.below(12) {
        0 => {
            if let Some(byte) = bytes.get_mut(choices.below(length)) {
                *byte ^= 1 << choices.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(choices.below(length)) {
                *byte = [0, 1, 0x7f, 0x80, 0xff, b' ', b'\n', choices.bits() as u8][choices.below(8)];
            }
        }
        2..5 => number(bytes, choices),
        5 => {
            let (start, end) = part(length, 256, choices);
            bytes.drain(start..end);
        }
        6 => {
            let (start, end) = part(length, 256, choices);
            let copy = bytes.get(start..end).unwrap_or_default().to_vec();
            let at = choices.below(bytes.len() + 1);
            bytes.splice(at..at, copy);
        }
        7 => {
            let (start, end) = part(other.len(), 512, choices);
            let at = choices.below(length + 1);
            let replaced = if choices.one_in(2) { end - start } else { 0 };
            let until = (at + replaced).min(length);
            bytes.splice(at..until, other.get(start..end).unwrap_or_default().iter().copied());
        }
        8 => digits(bytes, choices),
        9 => {
            let (start, end) = part(length, 64, choices);
            let copy = bytes.get(start..end).unwrap_or_default();
            let times = 1 << choices.below(14);
            let many = copy.repeat(times.min(LONGEST / copy.len().max(1)));
            bytes.splice(end..end, many);
        }
        10 if choices.one_in(4) => bytes.truncate(choices.below(length + 1)),
        _ => {
            let (start, end) = part(length, 64, choices);
            let (other_start, other_end) = part(length, 64, choices);
            let copy = bytes.get(start..end).unwrap_or_default().to_vec();
            let room = bytes.get_mut(other_start..other_end).unwrap_or_default();
            room.iter_mut().zip(copy).for_each(|(to, from)| *to = from);
        }
    }
}

/// Replaces a binary number.
fn number(bytes: &mut [u8], choices: &mut Choices<'_>) {
    let size = 1 << choices.below(4);
    let length = bytes.len();
    let at = choices.below(length);
    let at = if choices.one_in(2) { at / size * size } else { at };
    let Some(place) = bytes.get_mut(at..at + size) else { return };
    let mut word = [0; 8];
    word.iter_mut().zip(&*place).for_each(|(to, from)| *to = *from);
    let old = u64::from_le_bytes(word);
    let new = match choices.below(8) {
        0 => old.wrapping_add(1 + choices.below(16) as u64),
        1 => old.wrapping_sub(1 + choices.below(16) as u64),
        2 => (1 << choices.below(64)) - 1,
        3 => 1 << choices.below(64),
        4 => u64::MAX - choices.below(64) as u64,
        5 => length as u64 - choices.below(16).min(length) as u64,
        6 => choices.below(256) as u64,
        _ => choices.bits(),
    };
    place.iter_mut().zip(new.to_le_bytes()).for_each(|(to, from)| *to = from);
}

/// Replaces a number in a text.
fn digits(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    const NUMBERS: [&str; 12] = [
        "0",
        "-1",
        "255",
        "65536",
        "2147483648",
        "4294967295",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
        "ffffffffffffffff",
        "7fffffffffffffff",
        "340282366920938463463374607431768211456",
    ];
    let from = choices.below(bytes.len());
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
    let Some(start) = bytes.iter().skip(from).position(is_digit).map(|at| from + at) else { return };
    let end = bytes.iter().skip(start).position(|b| !is_digit(b)).map_or(bytes.len(), |at| start + at);
    bytes.splice(start..end, choices.pick(&NUMBERS).bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_the_same_for_a_seed_and_bounded() {
        let file: Vec<u8> = (0..4096).map(|n| n as u8).collect();
        let mut different = 0;
        for seed in 0..500 {
            let of = || {
                let mut bytes = file.clone();
                change(&mut bytes, b"other 123 text", &mut Choices::seed(seed));
                bytes
            };
            let bytes = of();
            assert_eq!(bytes, of());
            assert!(bytes.len() <= LONGEST);
            different += u32::from(bytes != file);
        }
        assert!(different > 300, "{different}");
        for seed in 0..100 {
            change(&mut Vec::new(), b"", &mut Choices::seed(seed));
        }
    }
}
