//! Conversions of numbers to and from text, byte order, device numbers, random numbers.

use super::call::{Call, Fault};
use crate::interp::Val;
use crate::ir::FaultKind;

pub(super) fn htons(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(i64::from((call.int(0) as u16).to_be())))
}

pub(super) fn htonl(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(i64::from((call.int(0) as u32).to_be())))
}

pub(super) fn htonll(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int((call.int(0) as u64).to_be() as i64))
}

/// A random number of 31 bits, so that D's `int` is never negative.
pub(super) fn rand(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(i64::from(call.world.random() & 0x7fff_ffff)))
}

/// 1 when the current process is the given one or a descendant of it.
pub(super) fn progenyof(call: &mut Call<'_>) -> Result<Val, Fault> {
    let is_descendant = i32::try_from(call.int(0)).is_ok_and(|pid| call.world.is_descendant(pid));
    Ok(Val::Int(is_descendant.into()))
}

/// Bits of the minor number in the kernel's own `dev_t`.
const MINOR_BITS: u32 = 20;

pub(super) fn getmajor(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(i64::from(call.int(0) as u32 >> MINOR_BITS)))
}

pub(super) fn getminor(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(call.int(0) & ((1 << MINOR_BITS) - 1)))
}

fn base(n: i64) -> Result<u64, Fault> {
    if (2..=36).contains(&n) { Ok(n as u64) } else { Err((FaultKind::IllegalOp, 0)) }
}

/// Decimal numbers have a sign. In other bases numbers are unsigned, with the prefix `0` or `0x` in
/// octal and hexadecimal.
pub(super) fn lltostr(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (value, base) = (call.int(0), base(call.int(1))?);
    let mut left = if base == 10 { value.unsigned_abs() } else { value as u64 };
    let mut digits = Vec::new();
    while left != 0 {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(left % base) as usize]);
        left /= base;
    }
    if value == 0 && base == 16 {
        digits.push(b'0');
    }
    if base == 16 {
        digits.push(b'x');
    }
    if value == 0 || base == 8 || base == 16 {
        digits.push(b'0');
    }
    if value < 0 && base == 10 {
        digits.push(b'-');
    }
    digits.reverse();
    digits.truncate(call.strsize.saturating_sub(1));
    Ok(Val::Str(digits))
}

/// Parses blanks, a sign, `0x` before hexadecimal digits, and digits, and stops at any other
/// character. Wraps on overflow.
pub(super) fn strtoll(call: &mut Call<'_>) -> Result<Val, Fault> {
    let base = base(call.int(1))?;
    Ok(Val::Int(parse(call.text(0), base)))
}

pub(super) fn parse(text: &[u8], base: u64) -> i64 {
    let blanks = text.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let text = &text[blanks..];
    let (negative, text) = match text.first() {
        Some(sign @ (b'-' | b'+')) => (*sign == b'-', &text[1..]),
        _ => (false, text),
    };
    let text = match text {
        [b'0', b'x' | b'X', rest @ ..] if base == 16 => rest,
        _ => text,
    };
    let mut value = 0i64;
    for byte in text {
        let Some(digit) = char::from(*byte).to_digit(36).filter(|d| u64::from(*d) < base) else { break };
        value = value.wrapping_mul(base as i64).wrapping_add(i64::from(digit));
    }
    if negative { value.wrapping_neg() } else { value }
}
