//! Operands of arm64.
//!
//! ```text
//!  N #N         a constant            [R] [R, N] [R, #N]   memory at a register
//!  x0 w0 sp     a register            [R, R2]              at the sum of two
//! ```

use crate::argument::{Address, Register, Source};
use crate::sum::sum;

/// `EM_AARCH64`.
pub(super) const EM: u64 = 183;

/// The registers in which a call has its arguments, and what is around the offset of those on the
/// stack.
pub(super) const CALL: ([&str; 8], (&str, &str)) =
    (["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"], ("[sp, ", "]"));

/// The number of the stack pointer.
const SP: u8 = 31;

/// The name of a register.
pub(crate) fn name(number: u8) -> Option<String> {
    match number {
        SP => Some("sp".into()),
        0..SP => Some(format!("x{number}")),
        _ => None,
    }
}

fn register(name: &str) -> Option<Register> {
    let whole = |number| Register { number, first: 0, bytes: 8 };
    match name {
        "sp" => return Some(whole(SP)),
        "wsp" => return Some(Register { bytes: 4, ..whole(SP) }),
        "fp" => return Some(whole(29)),
        "lr" => return Some(whole(30)),
        _ => {}
    }
    let bytes = match name.chars().next()? {
        'x' => 8,
        'w' => 4,
        _ => return None,
    };
    let digits = name.get(1..)?;
    let canonical = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    let number = digits.parse().ok().filter(|n| canonical && *n < SP)?;
    Some(Register { bytes, ..whole(number) })
}

/// Reads an operand. The error says why it is not understood.
pub(crate) fn operand(text: &str) -> Result<Source, String> {
    let wrong = || format!("{text} is no operand");
    if let Some(inside) = text.strip_prefix('[') {
        let inside = inside.strip_suffix(']').ok_or_else(wrong)?;
        let (base, more) = inside.split_once(',').map_or((inside, None), |(a, b)| (a, Some(b.trim())));
        let whole = |text: &str| register(text.trim()).filter(|r| r.bytes == 8).map(|r| r.number);
        let mut address = Address { base: Some(whole(base).ok_or_else(wrong)?), ..Address::default() };
        match more {
            None => {}
            Some(more) if more.starts_with("#:") || more.starts_with(':') => {
                return Err(format!("{text} is filled in by a linker"));
            }
            Some(more) => match whole(more) {
                Some(index) => address.index = Some((index, 1)),
                None => address.offset = constant(more).ok_or_else(wrong)?,
            },
        }
        return Ok(Source::Memory(address));
    }
    match text {
        "xzr" | "wzr" => return Ok(Source::Constant(0)),
        _ => {}
    }
    if let Some(register) = register(text) {
        return Ok(Source::Register(register));
    }
    if let Some(number) = constant(text) {
        return Ok(Source::Constant(number));
    }
    let is_vector = text.starts_with(['d', 's', 'q', 'v', 'h', 'b']) && text.len() <= 3;
    Err(if is_vector { format!("{text} holds no integer") } else { wrong() })
}

fn constant(text: &str) -> Option<i64> {
    let sum = sum(text.strip_prefix('#').unwrap_or(text))?;
    sum.symbol.is_none().then_some(sum.number)
}
