//! Formats of `printf()` and `printa()`: the parser from text to conversions.
//!
//! Two crates read formats: the checker, which decides whether an argument fits, and the consumer,
//! which prints. They must agree on where a conversion ends, on its flags and on its argument. So
//! there is one parser, in the crate that both share, and one table ([`CONVERSIONS`]) of the
//! arguments that conversions accept. Neither side passes the format to the C library: the set of
//! conversions and the meaning of `%d` (signed if its argument is) are D's own.

/// The argument that a conversion accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConversionArg {
    /// Integer or pointer, shown as a kernel symbol with offset.
    KernelAddr,
    /// Integer or pointer, shown as a symbol of the process.
    UserAddr,
    /// Integer of at most 4 bytes.
    Char,
    /// Any integer; shown with the sign its type has.
    AnyInt,
    /// Integer, shown signed; of exactly this size where one is given (in bytes; 0: any).
    Signed(u8),
    /// Integer, shown unsigned; of exactly this size where one is given (in bytes; 0: any).
    Unsigned(u8),
    /// Floating point of this size.
    Float(u8),
    /// Integer or pointer, in hexadecimal.
    Pointer,
    /// String or array of `char`.
    String,
    /// `stack()`, `ustack()` or `jstack()`.
    Stack,
    /// 64-bit integer: nanoseconds since 1970.
    Time,
    /// String that holds an internet address.
    Address,
    /// 16-bit unsigned port.
    Port,
    /// Nothing: `%%`.
    Nothing,
}

impl ConversionArg {
    /// The accepted argument, in the words of DTrace's messages.
    pub fn describe(self) -> &'static str {
        match self {
            ConversionArg::KernelAddr | ConversionArg::Pointer => "pointer or integer",
            ConversionArg::UserAddr => "pointer or integer (with -p/-c) or _usymaddr (without -p/-c)",
            ConversionArg::Char => "char, short, or int",
            ConversionArg::AnyInt | ConversionArg::Signed(0) | ConversionArg::Unsigned(0) => {
                "char, short, int, long, or long long"
            }
            ConversionArg::Signed(2) => "short",
            ConversionArg::Unsigned(2) => "unsigned short",
            ConversionArg::Signed(_) => "long or long long",
            ConversionArg::Unsigned(_) => "unsigned long or unsigned long long",
            ConversionArg::Float(4) => "float",
            ConversionArg::Float(8) => "double",
            ConversionArg::Float(_) => "long double",
            ConversionArg::String => "char [] or string (or use stringof)",
            ConversionArg::Stack => "stack",
            ConversionArg::Time => "int64_t",
            ConversionArg::Address => "char [] or string (or use stringof)",
            ConversionArg::Port => "uint16_t",
            ConversionArg::Nothing => "nothing",
        }
    }
}

/// Every conversion by its name (including size letters), with the argument that it accepts.
pub const CONVERSIONS: &[(&str, ConversionArg)] = &[
    ("%", ConversionArg::Nothing),
    ("a", ConversionArg::KernelAddr),
    ("A", ConversionArg::UserAddr),
    ("c", ConversionArg::Char),
    ("lc", ConversionArg::Char),
    ("wc", ConversionArg::Char),
    ("C", ConversionArg::Char),
    ("d", ConversionArg::AnyInt),
    ("hd", ConversionArg::Signed(2)),
    ("ld", ConversionArg::Signed(8)),
    ("lld", ConversionArg::Signed(8)),
    ("e", ConversionArg::Float(8)),
    ("E", ConversionArg::Float(8)),
    ("f", ConversionArg::Float(8)),
    ("g", ConversionArg::Float(8)),
    ("G", ConversionArg::Float(8)),
    ("Le", ConversionArg::Float(16)),
    ("LE", ConversionArg::Float(16)),
    ("Lf", ConversionArg::Float(16)),
    ("Lg", ConversionArg::Float(16)),
    ("LG", ConversionArg::Float(16)),
    ("i", ConversionArg::Signed(0)),
    ("hi", ConversionArg::Signed(2)),
    ("li", ConversionArg::Signed(8)),
    ("lli", ConversionArg::Signed(8)),
    ("I", ConversionArg::Address),
    ("k", ConversionArg::Stack),
    ("o", ConversionArg::Unsigned(0)),
    ("ho", ConversionArg::Unsigned(2)),
    ("lo", ConversionArg::Unsigned(8)),
    ("llo", ConversionArg::Unsigned(8)),
    ("p", ConversionArg::Pointer),
    ("P", ConversionArg::Port),
    ("s", ConversionArg::String),
    ("ls", ConversionArg::String),
    ("ws", ConversionArg::String),
    ("S", ConversionArg::String),
    ("T", ConversionArg::Time),
    ("u", ConversionArg::Unsigned(0)),
    ("hu", ConversionArg::Unsigned(2)),
    ("lu", ConversionArg::Unsigned(8)),
    ("llu", ConversionArg::Unsigned(8)),
    ("x", ConversionArg::Unsigned(0)),
    ("hx", ConversionArg::Unsigned(2)),
    ("lx", ConversionArg::Unsigned(8)),
    ("llx", ConversionArg::Unsigned(8)),
    ("X", ConversionArg::Unsigned(0)),
    ("hX", ConversionArg::Unsigned(2)),
    ("lX", ConversionArg::Unsigned(8)),
    ("llX", ConversionArg::Unsigned(8)),
    ("Y", ConversionArg::Time),
];

/// Conversions of one meaning, for the manual page: their names, the argument, what is shown. Every
/// name of [`CONVERSIONS`] is in one row.
pub const MEANINGS: &[(&[&str], &str, &str)] = &[
    (&["d"], "integer", "decimal, with the sign of its type"),
    (&["i"], "integer", "decimal, signed"),
    (&["u", "o", "x", "X"], "integer", "unsigned: decimal, octal, hexadecimal"),
    (&["hd", "hi", "hu", "ho", "hx", "hX"], "16-bit integer", "the same"),
    (&["ld", "li", "lu", "lo", "lx", "lX"], "64-bit integer", "the same"),
    (&["lld", "lli", "llu", "llo", "llx", "llX"], "64-bit integer", "the same"),
    (&["c", "lc", "wc"], "integer of at most 32 bits", "the character"),
    (&["C"], "integer of at most 32 bits", "the character; unprintable ones as escapes"),
    (&["s", "ls", "ws"], "string, char array", "the text up to its NUL"),
    (&["S"], "string, char array", "the same; unprintable characters as escapes"),
    (&["p"], "pointer, integer", "hexadecimal"),
    (&["a"], "pointer, integer", "kernel symbol and offset"),
    (&["A"], "usym() and its like; with -c or -p also pointer, integer", "symbol of the process"),
    (&["k"], "stack(), ustack(), jstack()", "one frame a line; the width is the indentation"),
    (&["e", "E", "f", "g", "G"], "float, double", "as in C"),
    (&["Le", "LE", "Lf", "Lg", "LG"], "long double", "as in C"),
    (&["Y"], "nanoseconds since 1970, 64 bits", "local date and time, as 2026 Nov 21 10:30:09"),
    (&["T"], "nanoseconds since 1970, 64 bits", "date and time of RFC 822, as Sat, 21 Nov 2026 10:30:09 UTC"),
    (&["I"], "string with an internet address", "name of the host; the address where it has none"),
    (&["P"], "16-bit port", "name of the service; the number where it has none"),
    (&["%"], "none", "a percent sign"),
];

/// A width or a precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Amount {
    /// Not given.
    #[default]
    None,
    /// Given in the format.
    Fixed(u32),
    /// `*`: taken from an `int` argument before the value.
    Argument,
}

/// One conversion of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Its number among the conversions of the format, including `%%`, from 1; used in messages.
    pub number: u32,
    /// Size letters and conversion letter: `d`, `llx`, `s`.
    pub name: &'static str,
    /// The argument that it accepts.
    pub arg: ConversionArg,
    /// `-`
    pub left: bool,
    /// `+`
    pub plus: bool,
    /// space
    pub space: bool,
    /// `#`
    pub alternate: bool,
    /// `0`
    pub zero: bool,
    /// `'`
    pub group: bool,
    /// `@`: prints the value of the next aggregation.
    pub aggregation: bool,
    /// Least width; `?` gives 16, the digits of a pointer.
    pub width: Amount,
    /// Digits or longest length.
    pub precision: Amount,
    /// Its text in the format, including `%`.
    pub text: String,
}

impl Conversion {
    /// The conversion letter without its size: `x` of `llx`.
    pub fn letter(&self) -> char {
        self.name.chars().next_back().unwrap_or('%')
    }
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Printed as it is.
    Text(String),
    /// Printed with a value. `%%` is text, never this.
    Conversion(Conversion),
}

/// An error in a format; `number` counts conversions from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The format ends within a conversion.
    Truncated {
        /// Which conversion.
        number: u32,
    },
    /// No such conversion.
    Unknown {
        /// Which conversion.
        number: u32,
        /// Its text, including `%`.
        text: String,
    },
    /// A width or precision too large for an `int`.
    TooWide {
        /// Which conversion.
        number: u32,
    },
    /// More than one `.`, or more than one `*` of a width or a precision.
    Twice {
        /// Which conversion.
        number: u32,
        /// What is there twice, as it is in the message.
        what: &'static str,
    },
    /// `%1$d`.
    Positional {
        /// Which conversion.
        number: u32,
    },
    /// `%-%`: the percent sign takes no flags.
    Percent {
        /// Which conversion.
        number: u32,
    },
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FormatError::Truncated { number } => {
                write!(f, "format conversion #{number} name expected before end of format string")
            }
            FormatError::Unknown { number, text } => {
                write!(f, "format conversion #{number} is undefined: {text}")
            }
            FormatError::Twice { number, what } => {
                write!(f, "format conversion #{number} has more than one {what}")
            }
            FormatError::Positional { number } => {
                write!(f, "format conversion #{number} uses unsupported positional format (%n$)")
            }
            FormatError::Percent { number } => {
                write!(f, "format conversion #{number} cannot be combined with other format flags: %%")
            }
            FormatError::TooWide { number } => {
                write!(f, "format conversion #{number} has a width or precision that is larger than {WIDEST}")
            }
        }
    }
}

/// The largest width or precision that a format may have. A field is made in memory, so C's
/// largest, two gigabytes, is not possible.
pub const WIDEST: u32 = 1 << 26;

/// Parses a format. Adjacent text, including `%%`, is one piece.
pub fn parse(format: &str) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut number = 0;
    let mut rest = format.char_indices().peekable();
    while let Some((start, c)) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        number += 1;
        let conversion = conversion(format, start, number, &mut rest)?;
        if conversion.arg == ConversionArg::Nothing {
            text.push('%');
            continue;
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Conversion(conversion));
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

type Rest<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Parses the conversion whose `%` is at `start`. Flags, width, precision and size may come in any
/// order, as in the original.
fn conversion(
    format: &str,
    start: usize,
    number: u32,
    rest: &mut Rest<'_>,
) -> Result<Conversion, FormatError> {
    let mut out = Conversion {
        number,
        name: "%",
        arg: ConversionArg::Nothing,
        left: false,
        plus: false,
        space: false,
        alternate: false,
        zero: false,
        group: false,
        aggregation: false,
        width: Amount::None,
        precision: Amount::None,
        text: String::new(),
    };
    let mut size = String::new();
    let mut in_precision = false;
    loop {
        let Some((at, c)) = rest.next() else {
            return Err(FormatError::Truncated { number });
        };
        match c {
            '-' => out.left = true,
            '+' => out.plus = true,
            ' ' => out.space = true,
            '#' => out.alternate = true,
            '\'' => out.group = true,
            '@' => out.aggregation = true,
            '?' => out.width = Amount::Fixed(16),
            '0' if !in_precision => out.zero = true,
            '.' if in_precision => return Err(FormatError::Twice { number, what: "'.' specified" }),
            '.' => {
                in_precision = true;
                out.precision = Amount::Fixed(0);
            }
            '*' => {
                let (amount, what) = if in_precision {
                    (&mut out.precision, "'*' specified for the output precision")
                } else {
                    (&mut out.width, "'*' specified for the output width")
                };
                if *amount == Amount::Argument {
                    return Err(FormatError::Twice { number, what });
                }
                *amount = Amount::Argument;
            }
            '$' => return Err(FormatError::Positional { number }),
            '0'..='9' => {
                let mut value = c.to_digit(10).unwrap_or(0);
                while let Some(digit) = rest.peek().and_then(|(_, c)| c.to_digit(10)) {
                    rest.next();
                    value = value
                        .checked_mul(10)
                        .and_then(|v| v.checked_add(digit))
                        .filter(|v| *v <= WIDEST)
                        .ok_or(FormatError::TooWide { number })?;
                }
                *(if in_precision { &mut out.precision } else { &mut out.width }) = Amount::Fixed(value);
            }
            'h' | 'l' | 'L' | 'w' => size.push(c),
            _ => {
                size.push(c);
                let text = &format[start..at + c.len_utf8()];
                let Some((name, arg)) = CONVERSIONS.iter().find(|(name, _)| *name == size) else {
                    return Err(FormatError::Unknown { number, text: text.into() });
                };
                if *arg == ConversionArg::Nothing && text != "%%" {
                    return Err(FormatError::Percent { number });
                }
                (out.name, out.arg, out.text) = (name, *arg, text.into());
                return Ok(out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_conversion_has_one_meaning() {
        let mut explained: Vec<&str> =
            MEANINGS.iter().flat_map(|(names, ..)| names.iter().copied()).collect();
        let mut all: Vec<&str> = CONVERSIONS.iter().map(|(name, _)| *name).collect();
        explained.sort_unstable();
        all.sort_unstable();
        assert_eq!(explained, all);
    }

    fn only(format: &str) -> Conversion {
        match parse(format).unwrap().as_slice() {
            [Piece::Conversion(c)] => c.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn text_and_conversions_alternate() {
        let pieces = parse("a%%b %d\n").unwrap();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[0], Piece::Text("a%b ".into()));
        assert_eq!(pieces[2], Piece::Text("\n".into()));
    }

    #[test]
    fn what_a_conversion_has_only_once_is_an_error_twice() {
        for (format, message) in [
            ("%.2.3d", "format conversion #1 has more than one '.' specified"),
            ("%**d", "format conversion #1 has more than one '*' specified for the output width"),
            ("%.**d", "format conversion #1 has more than one '*' specified for the output precision"),
            ("%d %1$d", "format conversion #2 uses unsupported positional format (%n$)"),
            ("%*1$d", "format conversion #1 uses unsupported positional format (%n$)"),
            ("%-%", "format conversion #1 cannot be combined with other format flags: %%"),
        ] {
            assert_eq!(parse(format).unwrap_err().to_string(), message);
        }
        assert!(parse("%*.*d%%").is_ok());
    }

    #[test]
    fn flags_width_precision_and_size_are_read() {
        let c = only("%-#010.3llx");
        assert!(c.left && c.alternate && c.zero && !c.plus);
        assert_eq!((c.width, c.precision), (Amount::Fixed(10), Amount::Fixed(3)));
        assert_eq!((c.name, c.letter(), c.text.as_str()), ("llx", 'x', "%-#010.3llx"));
        assert_eq!(only("%?p").width, Amount::Fixed(16));
        let c = only("%*.*d");
        assert_eq!((c.width, c.precision), (Amount::Argument, Amount::Argument));
        let c = only("%@-9u");
        assert!(c.aggregation && c.left);
    }

    #[test]
    fn errors_of_formats_name_the_conversion() {
        assert_eq!(parse("%d %"), Err(FormatError::Truncated { number: 2 }));
        assert_eq!(parse("%lq"), Err(FormatError::Unknown { number: 1, text: "%lq".into() }));
        assert_eq!(parse("%n"), Err(FormatError::Unknown { number: 1, text: "%n".into() }));
        assert!(matches!(parse("%99999999999d"), Err(FormatError::TooWide { .. })));
    }
}
