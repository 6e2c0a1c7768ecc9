//! x86-64.

/// A `long double` of x86 as the nearest `double`.
pub(crate) fn extended(bytes: &[u8]) -> f64 {
    let word = |at: usize, len: usize| -> u64 {
        bytes.iter().skip(at).take(len).rev().fold(0, |word, b| word << 8 | u64::from(*b))
    };
    let (mantissa, top) = (word(0, 8), word(8, 2));
    let (exponent, sign) = ((top & 0x7fff) as i32, if top & 0x8000 == 0 { 1.0 } else { -1.0 });
    let value = match exponent {
        0x7fff if mantissa << 1 == 0 => f64::INFINITY,
        0x7fff => f64::NAN,
        // In two steps: 2 to the whole exponent may exceed the range of a double although the
        // product does not.
        _ => mantissa as f64 * f64::powi(2.0, -63) * f64::powi(2.0, (exponent - 16383).clamp(-1073, 1023)),
    };
    sign * value
}
