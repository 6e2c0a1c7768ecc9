//! C's rules for a field: width, precision, sign, padding.
//!
//! Rows are the hot path of the consumer (a million per second). Rust's formatting has neither C's
//! `%+.3d` nor byte strings, so this module formats fields into a byte buffer. Default formats,
//! `printf` and histograms use these functions.

/// The largest width or precision: that of formats.
pub(crate) const WIDEST: usize = plane::format::WIDEST as usize;
/// The largest one that `*` takes from a traced value. A process may choose it, and must not fill
/// the tracer's memory or disk.
pub(crate) const WIDEST_TRACED: usize = 1 << 20;

/// Flags, width and precision of one field, with `*` resolved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Field {
    pub(crate) left: bool,
    pub(crate) plus: bool,
    pub(crate) space: bool,
    pub(crate) alternate: bool,
    pub(crate) zero: bool,
    pub(crate) width: usize,
    pub(crate) precision: Option<usize>,
}

impl Field {
    /// `%<width>…`: right-justified.
    pub(crate) const fn right(width: usize) -> Self {
        Field {
            width,
            left: false,
            plus: false,
            space: false,
            alternate: false,
            zero: false,
            precision: None,
        }
    }

    /// `%-<width>…`.
    pub(crate) const fn left(width: usize) -> Self {
        Field { width, left: true, plus: false, space: false, alternate: false, zero: false, precision: None }
    }
}

/// The digits of an unsigned conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Octal,
    Decimal,
    LowerHex,
    UpperHex,
}

/// Digits of a 64-bit number, at most 22 (octal), without an allocation.
struct Digits {
    buf: [u8; 22],
    at: usize,
}

impl Digits {
    fn new(value: u64, base: Base) -> Self {
        const LOWER: &[u8; 16] = b"0123456789abcdef";
        match base {
            Base::Octal => Self::of::<8>(value, LOWER),
            Base::Decimal => Self::of::<10>(value, LOWER),
            Base::LowerHex => Self::of::<16>(value, LOWER),
            Base::UpperHex => Self::of::<16>(value, b"0123456789ABCDEF"),
        }
    }

    /// A radix that the compiler knows divides faster.
    fn of<const RADIX: u64>(mut value: u64, letters: &[u8; 16]) -> Self {
        let mut digits = Digits { buf: [0; 22], at: 22 };
        for place in digits.buf.iter_mut().rev() {
            *place = letters.get((value % RADIX) as usize).copied().unwrap_or(b'?');
            digits.at -= 1;
            value /= RADIX;
            if value == 0 {
                break;
            }
        }
        digits
    }

    fn as_slice(&self) -> &[u8] {
        self.buf.get(self.at..).unwrap_or_default()
    }
}

/// The first `length` elements; all if there are fewer.
pub(crate) fn up_to<T>(all: &[T], length: usize) -> &[T] {
    all.get(..length).unwrap_or(all)
}

pub(crate) fn fill(out: &mut Vec<u8>, byte: u8, count: usize) {
    out.resize(out.len() + count.min(WIDEST), byte);
}

/// `%s` of bytes: truncated to the precision, padded to the width with blanks. Both count bytes, as
/// in C.
pub(crate) fn string(out: &mut Vec<u8>, text: &[u8], field: Field) {
    let text = up_to(text, field.precision.unwrap_or(usize::MAX));
    let blanks = field.width.saturating_sub(text.len());
    if !field.left {
        fill(out, b' ', blanks);
    }
    out.extend_from_slice(text);
    if field.left {
        fill(out, b' ', blanks);
    }
}

/// `%d`.
pub(crate) fn signed(out: &mut Vec<u8>, value: i64, field: Field) {
    let sign: &[u8] = match (value < 0, field.plus, field.space) {
        (true, ..) => b"-",
        (_, true, _) => b"+",
        (.., true) => b" ",
        _ => b"",
    };
    number(out, sign, Digits::new(value.unsigned_abs(), Base::Decimal).as_slice(), value == 0, field);
}

/// `%u %o %x %X`.
pub(crate) fn unsigned(out: &mut Vec<u8>, value: u64, base: Base, mut field: Field) {
    let digits = Digits::new(value, base);
    let prefix: &[u8] = match base {
        Base::LowerHex if field.alternate && value != 0 => b"0x",
        Base::UpperHex if field.alternate && value != 0 => b"0X",
        _ => b"",
    };
    if base == Base::Octal && field.alternate {
        // As in C, the precision is increased until the first digit is a zero.
        let least = digits.as_slice().len() + usize::from(value != 0);
        if field.zero && !field.left && field.precision.is_none() && field.width >= least {
            // The padding has the zero.
        } else {
            field.precision = Some(field.precision.unwrap_or(1).max(least));
        }
    }
    number(out, prefix, digits.as_slice(), value == 0, field);
}

fn number(out: &mut Vec<u8>, prefix: &[u8], digits: &[u8], is_zero: bool, field: Field) {
    // With a precision of 0, zero has no digits. With any precision, the `0` flag is ignored.
    let digits = if is_zero && field.precision == Some(0) { &[] } else { digits };
    let mut zeros = field.precision.unwrap_or(1).saturating_sub(digits.len()).min(WIDEST);
    let mut blanks = field.width.saturating_sub(prefix.len() + zeros + digits.len());
    if field.zero && !field.left && field.precision.is_none() {
        zeros += std::mem::take(&mut blanks);
    }
    if !field.left {
        fill(out, b' ', blanks);
    }
    out.extend_from_slice(prefix);
    fill(out, b'0', zeros);
    out.extend_from_slice(digits);
    if field.left {
        fill(out, b' ', blanks);
    }
}

/// `%e %E %f %g %G`, formatted by the C library. D has no floating-point arithmetic, so this is
/// rare, and a second implementation of `%g` could differ.
pub(crate) fn float(out: &mut Vec<u8>, value: f64, letter: char, field: Field) {
    let mut format = vec![b'%'];
    for (set, flag) in [
        (field.left, b'-'),
        (field.plus, b'+'),
        (field.space, b' '),
        (field.alternate, b'#'),
        (field.zero, b'0'),
    ] {
        if set {
            format.push(flag);
        }
    }
    format.extend_from_slice(b"*.*");
    format.push(if letter.is_ascii_alphabetic() { letter as u8 } else { b'g' });
    format.push(0);
    let width = field.width.min(WIDEST) as libc::c_int;
    let precision = field.precision.map_or(-1, |p| p.min(WIDEST) as libc::c_int);
    // The longest double has 309 digits before the point.
    let mut text = vec![0u8; 512 + width.unsigned_abs() as usize + precision.max(0) as usize];
    // SAFETY: `format` is a NUL-terminated literal of flags, `*.*` and one floating conversion, and
    // the three arguments have the types it requires; snprintf writes at most `text.len()` bytes.
    let length = unsafe {
        libc::snprintf(text.as_mut_ptr().cast(), text.len(), format.as_ptr().cast(), width, precision, value)
    };
    let length = usize::try_from(length).unwrap_or(0).min(text.len() - 1);
    out.extend_from_slice(up_to(&text, length));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Every flag, width and precision against the C library itself.
    #[test]
    fn integers_are_printed_as_the_c_library_prints_them() {
        let values = [0i64, 1, -1, 8, 255, -12345, i64::MAX, i64::MIN];
        for value in values {
            for bits in 0..32u32 {
                for width in [0usize, 1, 5, 25] {
                    for precision in [None, Some(0), Some(1), Some(3), Some(24)] {
                        for (letter, base) in [
                            ('d', None),
                            ('u', Some(Base::Decimal)),
                            ('o', Some(Base::Octal)),
                            ('x', Some(Base::LowerHex)),
                            ('X', Some(Base::UpperHex)),
                        ] {
                            let field = Field {
                                left: bits & 1 != 0,
                                plus: bits & 2 != 0,
                                space: bits & 4 != 0,
                                alternate: bits & 8 != 0 && matches!(letter, 'o' | 'x' | 'X'),
                                zero: bits & 16 != 0,
                                width,
                                precision,
                            };
                            let ours = show(|out| match base {
                                None => signed(out, value, field),
                                Some(base) => unsigned(out, value as u64, base, field),
                            });
                            assert_eq!(ours, libc_int(value, letter, field), "{value} %{letter} {field:?}");
                        }
                    }
                }
            }
        }
    }

    fn libc_int(value: i64, letter: char, field: Field) -> String {
        let mut format = String::from("%");
        for (set, flag) in [
            (field.left, '-'),
            (field.plus, '+'),
            (field.space, ' '),
            (field.alternate, '#'),
            (field.zero, '0'),
        ] {
            if set {
                format.push(flag);
            }
        }
        if field.width > 0 {
            format += &field.width.to_string();
        }
        if let Some(precision) = field.precision {
            format += &format!(".{precision}");
        }
        format += &format!("ll{letter}\0");
        let mut text = [0u8; 128];
        // SAFETY: the format is NUL-terminated and takes one long long; the buffer's length is
        // given.
        let n = unsafe {
            libc::snprintf(
                text.as_mut_ptr().cast(),
                text.len(),
                format.as_ptr().cast(),
                value as libc::c_longlong,
            )
        };
        String::from_utf8_lossy(&text[..n as usize]).into_owned()
    }

    #[test]
    fn strings_are_cut_and_padded_by_bytes() {
        assert_eq!(show(|o| string(o, b"abc", Field::right(5))), "  abc");
        assert_eq!(show(|o| string(o, b"abc", Field::left(5))), "abc  ");
        assert_eq!(show(|o| string(o, b"abc", Field { precision: Some(2), ..Field::right(3) })), " ab");
    }

    #[test]
    fn floats_are_printed_as_the_c_library_prints_them() {
        assert_eq!(show(|o| float(o, 1.5, 'f', Field::right(10))), "  1.500000");
        assert_eq!(show(|o| float(o, 0.0001, 'g', Field::default())), "0.0001");
        assert_eq!(
            show(|o| float(o, 1e10, 'E', Field { precision: Some(1), ..Field::default() })),
            "1.0E+10"
        );
    }
}
