//! `printf()` and `printa()` with a format.
//!
//! The format was parsed and checked against the types of its arguments at compile time. A
//! conversion that the checker accepts but that does not fit the value (a `%d` on a symbol key)
//! prints the default form of the argument.

use std::borrow::Cow;

use diagnostics::{control, raw};
use events::{AggValue, Amount, Argument, Conversion, ConversionArg, Format, Int, Piece, Row, Value};

use super::view::{View, symbol};
use super::{datum, histogram, net, time};
use crate::arch::extended;
use crate::pad::{Base, Field, WIDEST_TRACED, float, signed, string, unsigned, up_to};
use crate::raw::text as until_nul;

/// Prints a record's `printf()`. Returns true if a traced width or precision was too large.
pub(super) fn printf(out: &mut Vec<u8>, format: &Format, args: &[Argument<'_>], view: View<'_>) -> bool {
    run(out, format, args.iter().map(|arg| &arg.value), &[], view)
}

/// Prints one row of a `printa()`: plain conversions print the columns of the key in order, `@`
/// conversions the values of the aggregations. If there are more of these than aggregations, the
/// last value is repeated. Returns as [`printf`] does.
pub(super) fn printa(out: &mut Vec<u8>, format: &Format, row: &Row<'_>, view: View<'_>) -> bool {
    run(out, format, row.key.iter(), &row.values, view)
}

fn run<'a, 'v: 'a>(
    out: &mut Vec<u8>,
    format: &Format,
    mut args: impl Iterator<Item = &'a Value<'v>>,
    cells: &[AggValue<'_>],
    view: View<'_>,
) -> bool {
    let (mut next_cell, mut limited) = (0, false);
    for piece in format.pieces() {
        let conversion = match piece {
            Piece::Text(text) => {
                match raw::is_raw(text) {
                    true => out.extend(raw::bytes(text)),
                    false => out.extend_from_slice(text.as_bytes()),
                }
                continue;
            }
            Piece::Conversion(conversion) => conversion,
        };
        let Some(field) = field(conversion, &mut args, &mut limited) else {
            return limited;
        };
        if conversion.aggregation {
            if let Some(cell) = cells.get(next_cell) {
                value_of(out, conversion, field, cell, view);
                next_cell = (next_cell + 1).min(cells.len() - 1);
            }
            continue;
        }
        let Some(value) = args.next() else {
            return limited;
        };
        convert(out, conversion, field, value, view);
    }
    limited
}

/// Flags and amounts, `*` taken from the arguments and limited.
fn field<'a, 'v: 'a>(
    conversion: &Conversion,
    args: &mut impl Iterator<Item = &'a Value<'v>>,
    limited: &mut bool,
) -> Option<Field> {
    const LIMIT: i64 = WIDEST_TRACED as i64;
    let mut amount = |amount: Amount| -> Option<Option<i64>> {
        Some(match amount {
            Amount::None => None,
            Amount::Fixed(n) => Some(i64::from(n)),
            Amount::Argument => match args.next()? {
                Value::Int(int) => {
                    let amount = int.as_signed();
                    *limited |= amount.unsigned_abs() > LIMIT as u64;
                    Some(amount.clamp(-LIMIT, LIMIT))
                }
                _ => Some(0),
            },
        })
    };
    let width = amount(conversion.width)?.unwrap_or(0);
    let precision = amount(conversion.precision)?;
    Some(Field {
        // A negative width from an argument is a width and `-`, as in C.
        left: conversion.left || width < 0,
        plus: conversion.plus,
        space: conversion.space,
        alternate: conversion.alternate,
        zero: conversion.zero,
        width: width.unsigned_abs() as usize,
        // A precision of 0 is no precision, in the format and as an argument. This is as in the
        // original, and not as in C.
        precision: precision.and_then(|p| usize::try_from(p).ok()).filter(|p| *p > 0),
    })
}

/// `%@…`.
fn value_of(out: &mut Vec<u8>, conversion: &Conversion, field: Field, cell: &AggValue<'_>, view: View<'_>) {
    match cell.number() {
        None => histogram::distribution(out, cell, view.options),
        Some(number) => {
            let value = Value::Int(Int::new(number as u64, 8, true));
            convert(out, conversion, field, &value, view);
        }
    }
}

fn convert(out: &mut Vec<u8>, conversion: &Conversion, field: Field, value: &Value<'_>, view: View<'_>) {
    match (conversion.arg, value) {
        (ConversionArg::AnyInt, Value::Int(int)) if !int.signed => {
            unsigned(out, int.bits, Base::Decimal, field)
        }
        (ConversionArg::AnyInt | ConversionArg::Signed(_), Value::Int(int)) => {
            signed(out, int.as_signed(), field)
        }
        (ConversionArg::Unsigned(_) | ConversionArg::Pointer, Value::Int(int)) => {
            let base = match conversion.letter() {
                'o' => Base::Octal,
                'x' | 'p' => Base::LowerHex,
                'X' => Base::UpperHex,
                _ => Base::Decimal,
            };
            unsigned(out, int.as_unsigned(), base, field);
        }
        (ConversionArg::Float(_), Value::Int(int)) => {
            let number = if int.size == 4 {
                f64::from(f32::from_bits(int.bits as u32))
            } else {
                f64::from_bits(int.bits)
            };
            float(out, number, conversion.letter(), field);
        }
        (ConversionArg::Float(_), Value::Bytes(bytes)) => {
            float(out, extended(bytes), conversion.letter(), field)
        }
        (ConversionArg::Address, Value::Str { text, .. } | Value::Name { text, .. }) => {
            string(out, &host(text, view), field);
        }
        (ConversionArg::Address, Value::Bytes(bytes)) => {
            string(out, &host(until_nul(bytes), view), field);
        }
        (ConversionArg::Char, Value::Int(int)) => character(out, conversion, field, *int, view),
        (ConversionArg::Time, Value::Int(int)) => {
            let text = time::local(int.bits).map_or_else(
                || int.bits.to_string(),
                |t| if conversion.letter() == 'T' { t.rfc822() } else { t.plain() },
            );
            string(out, text.as_bytes(), field);
        }
        (ConversionArg::Port, Value::Int(int)) => {
            let number = int.bits as u16;
            let name = if view.resolves { net::port(number) } else { number.to_string() };
            string(out, name.as_bytes(), field);
        }
        // The consumer gives these a symbol.
        (ConversionArg::KernelAddr | ConversionArg::UserAddr, Value::Int(int)) => {
            string(out, format!("{:#x}", int.as_unsigned()).as_bytes(), field);
        }
        (_, Value::Symbol(address)) => string(out, &symbol(address), field),
        (_, Value::Str { text, .. } | Value::Name { text, .. }) => words(out, conversion, field, text, view),
        (ConversionArg::String, Value::Bytes(bytes)) => {
            words(out, conversion, field, until_nul(bytes), view);
        }
        (_, Value::Stack(stack)) => {
            // A left-justified width is the indentation; any other pads the frames and indents by
            // nothing.
            // There may be a thousand frames, so a width is bounded as a traced one is.
            let width = field.width.min(WIDEST_TRACED);
            let (indent, width) = if field.left { (width, 0) } else { (0, width) };
            let field = Field { width, ..field };
            datum::frames(out, stack, indent, field);
        }
        (_, value) => datum::traced(out, value, view),
    }
}

fn words(out: &mut Vec<u8>, conversion: &Conversion, field: Field, text: &[u8], view: View<'_>) {
    if conversion.letter() == 'S' {
        string(out, &escaped(text), field);
    } else {
        data(out, text, field, view);
    }
}

/// A string that the program prints. The precision limits its bytes, the width counts the printed
/// bytes.
fn data(out: &mut Vec<u8>, text: &[u8], field: Field, view: View<'_>) {
    let text = up_to(text, field.precision.unwrap_or(usize::MAX));
    string(out, &view.data(text), Field { precision: None, ..field });
}

/// The name of a host, escaped; the string from the program if there is no name.
fn host<'t>(text: &'t [u8], view: View<'_>) -> Cow<'t, [u8]> {
    match view.resolves.then(|| net::host(text)).flatten() {
        Some(name) => Cow::Owned(control::name(name.as_bytes()).into_owned().into_bytes()),
        None => view.data(text),
    }
}

fn character(out: &mut Vec<u8>, conversion: &Conversion, field: Field, int: Int, view: View<'_>) {
    let field = Field { precision: None, ..field };
    let byte = int.bits as u8;
    match conversion.name {
        "C" => string(out, &escaped(&[byte]), field),
        "wc" | "lc" => match char::from_u32(int.as_unsigned() as u32) {
            Some(c) => data(out, c.encode_utf8(&mut [0; 4]).as_bytes(), field, view),
            None => string(out, b"?", field),
        },
        _ => data(out, &[byte], field, view),
    }
}

/// C escapes for characters that are not printable.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        let letter = match byte {
            0 => b'0',
            7 => b'a',
            8 => b'b',
            9 => b't',
            10 => b'n',
            11 => b'v',
            12 => b'f',
            13 => b'r',
            b'"' => b'"',
            b'\\' => b'\\',
            b' '..=b'~' => {
                out.push(*byte);
                continue;
            }
            _ => {
                out.push(b'\\');
                unsigned(&mut out, u64::from(*byte), Base::Octal, Field { zero: true, ..Field::right(3) });
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn show(format: &str, args: &[Value<'_>]) -> String {
        let format = Format::parse(format).unwrap();
        let args: Vec<Argument<'_>> =
            args.iter().map(|value| Argument { name: "".into(), value: value.clone() }).collect();
        let mut out = Vec::new();
        printf(
            &mut out,
            &format,
            &args,
            View { options: &Options::default(), terminal: false, resolves: true },
        );
        String::from_utf8(out).unwrap()
    }

    fn int(bits: i64, size: u8, signed: bool) -> Value<'static> {
        Value::Int(Int::new(bits as u64, size, signed))
    }

    fn str(text: &str) -> Value<'_> {
        Value::Str { text: text.as_bytes().into(), size: 256 }
    }

    // row conversion.i, conversion.u, conversion.o, conversion.X, conversion.flags
    #[test]
    fn percent_d_has_the_sign_of_its_argument() {
        assert_eq!(show("%d", &[int(-1, 4, true)]), "-1");
        assert_eq!(show("%d", &[int(-1, 4, false)]), "4294967295");
        assert_eq!(show("%d", &[int(-1, 8, false)]), "18446744073709551615");
        assert_eq!(show("%i", &[int(-1, 4, false)]), "-1");
        assert_eq!(show("%u %x %X %o", &vec![int(-1, 2, true); 4]), "65535 ffff FFFF 177777");
    }

    // row conversion.p, conversion.pointer-width
    #[test]
    fn pointers_are_bare_hexadecimal() {
        assert_eq!(show("%p %#p 0x%p", &vec![int(0x1234, 8, false); 3]), "1234 0x1234 0x1234");
        assert_eq!(show("%?p", &[int(0x1234, 8, false)]), format!("{:>16}", "1234"));
        assert_eq!(show("%0?p", &[int(0x1234, 8, false)]), "0000000000001234");
    }

    // row conversion.width, conversion.precision, conversion.star
    #[test]
    fn widths_and_precisions_may_be_arguments() {
        assert_eq!(show("[%*d]", &[int(5, 4, true), int(42, 4, true)]), "[   42]");
        assert_eq!(show("[%*d]", &[int(-5, 4, true), int(42, 4, true)]), "[42   ]");
        assert_eq!(show("[%.*s]", &[int(2, 4, true), str("abc")]), "[ab]");
        assert_eq!(show("[%.*s]", &[int(-2, 4, true), str("abc")]), "[abc]");
        assert_eq!(show("[%-8s|%8s|%.1s]", &[str("ab"), str("cd"), str("ef")]), "[ab      |      cd|e]");
    }

    // row conversion.c, conversion.C, conversion.S
    #[test]
    fn characters_and_strings_can_be_escaped() {
        assert_eq!(
            show("%c%C%C%C", &[int(65, 1, true), int(10, 4, true), int(0, 4, true), int(200, 4, true)]),
            "A\\n\\0\\310"
        );
        assert_eq!(show("%S", &[str("a\tb\"\\\u{1}")]), "a\\tb\\\"\\\\\\001");
        assert_eq!(show("%3c|%-3c|", &[int(65, 4, true), int(66, 4, true)]), "  A|B  |");
        assert_eq!(show("%wc", &[int(0xe9, 4, true)]), "é");
    }

    // row conversion.a, conversion.A
    #[test]
    fn address_conversions_print_symbols() {
        assert_eq!(show("%a %A", &[int(16, 8, false), int(32, 8, false)]), "0x10 0x20");
    }

    // row conversion.percent
    #[test]
    fn a_missing_argument_ends_the_format() {
        assert_eq!(show("100%%\n", &[]), "100%\n");
        assert_eq!(show("a %d b", &[]), "a ");
    }

    // row conversion.k
    #[test]
    fn stacks_are_indented_by_a_left_width_only() {
        let frame = |address| {
            let name = events::SymbolName::default();
            events::Symbol::new(address, None, events::AddrForm::Address, name)
        };
        let stack = Value::Stack(events::Stack { process: None, frames: vec![frame(1), frame(2)] });
        assert_eq!(show("%k", std::slice::from_ref(&stack)), "\n0x1\n0x2\n");
        assert_eq!(show("%-4k", std::slice::from_ref(&stack)), "\n    0x1\n    0x2\n");
        assert_eq!(show("%5k", &[stack]), "\n  0x1\n  0x2\n");
    }

    #[test]
    fn an_empty_precision_is_no_precision() {
        assert_eq!(show("%.0s|%0.0s|%.s", &vec![str("hello"); 3]), "hello|hello|hello");
        let args = [int(0, 4, true), str("hello"), int(1, 4, true), str("hello")];
        assert_eq!(show("%.*s|%.*s", &args), "hello|h");
        assert_eq!(show("[%*.*s]", &[int(7, 4, true), int(2, 4, true), str("hello")]), "[     he]");
        assert_eq!(show("%.0d", &[int(0, 4, true)]), "0");
    }

    #[test]
    fn flags_have_the_meaning_of_c() {
        let n = |v: i64| int(v, 4, true);
        assert_eq!(
            show("%#8x|%08x|%-8x|%+8d|% 8d", &[n(0x123), n(0x123), n(0x123), n(123), n(123)]),
            "   0x123|00000123|123     |    +123|     123"
        );
        assert_eq!(
            show("%#o %#X %'d %.5d %+i", &[n(8), n(255), n(1234), n(42), n(7)]),
            "010 0XFF 1234 00042 +7"
        );
    }

    // row conversion.sized
    #[test]
    fn sizes_name_the_type_and_change_nothing() {
        assert_eq!(
            show("%hd %hi %hu %ho %hx %hX", &vec![int(-2, 2, true); 6]),
            "-2 -2 65534 177776 fffe FFFE"
        );
        assert_eq!(
            show("%ld %li %lu %lo %lx %lX", &vec![int(-2, 8, true); 6]),
            "-2 -2 18446744073709551614 1777777777777777777776 fffffffffffffffe FFFFFFFFFFFFFFFE"
        );
        assert_eq!(
            show("%lld %lli %llu %llo %llx %llX", &vec![int(-2, 8, true); 6]),
            "-2 -2 18446744073709551614 1777777777777777777776 fffffffffffffffe FFFFFFFFFFFFFFFE"
        );
        assert_eq!(show("%d %i %u", &vec![int(0xffff, 2, false); 3]), "65535 -1 65535");
    }

    // row conversion.E, conversion.G
    #[test]
    fn floating_point_is_shown_as_c_does() {
        let double = |v: f64| int(v.to_bits() as i64, 8, true);
        let float = |v: f32| int(i64::from(v.to_bits()), 4, true);
        assert_eq!(
            show("%f %e %g %E %G", &vec![double(0.00001234); 5]),
            "0.000012 1.234000e-05 1.234e-05 1.234000E-05 1.234E-05"
        );
        assert_eq!(
            show("%.2f|%8.1f|%-8.1f|%+f", &[float(1.5), double(2.25), double(2.25), double(0.5)]),
            "1.50|     2.2|2.2     |+0.500000"
        );
        // 1.0, -2.5 and infinity in the x86 format of long double.
        let long = |m: u64, e: u16| -> Vec<u8> {
            m.to_le_bytes().into_iter().chain(e.to_le_bytes()).chain([0; 6]).collect()
        };
        let (one, half, much) = (long(1 << 63, 0x3fff), long(5 << 61, 0xc000), long(1 << 63, 0x7fff));
        assert_eq!(
            show(
                "%Lf %Lg %Le",
                &[
                    Value::Bytes((&one[..]).into()),
                    Value::Bytes((&half[..]).into()),
                    Value::Bytes((&much[..]).into())
                ]
            ),
            "1.000000 -2.5 inf"
        );
    }

    // row conversion.wide
    #[test]
    fn memory_is_printed_as_text_up_to_its_nul() {
        assert_eq!(
            show("[%s] [%6s] [%S] [%ls] [%ws]", &vec![Value::Bytes(b"a\tb\0c".into()); 5]),
            "[a\tb] [   a\tb] [a\\tb] [a\tb] [a\tb]"
        );
    }

    // row conversion.I, conversion.P
    #[test]
    fn ports_and_addresses_without_a_name_are_numbers() {
        assert_eq!(show("%P|%8P", &vec![int(65_533, 2, false); 2]), "65533|   65533");
        assert_eq!(show("%I", &[str("not an address")]), "not an address");
    }

    #[test]
    fn a_very_large_width_of_a_traced_value_is_limited() {
        for width in [int(i64::from(i32::MIN), 4, true), int(1 << 32 | 2, 8, true), int(i64::MIN, 8, true)] {
            assert_eq!(show("%*d", &[width, int(1, 4, true)]).len(), WIDEST_TRACED);
        }
    }

    #[test]
    fn a_very_large_width_of_a_format_is_as_in_c() {
        assert_eq!(show("%10000000d", &[int(1, 4, true)]).len(), 10_000_000);
        assert_eq!(show("%.10000000d", &[int(1, 4, true)]), format!("{}1", "0".repeat(9_999_999)));
        assert_eq!(show("%9000.5000f|", &[int(0, 8, false)]), format!("{:>9000}|", format!("{:.5000}", 0.0)));
    }
}
