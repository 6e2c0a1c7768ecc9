//! Formats of `printf()` and `printa()`: text to conversions.
//!
//! Two crates read formats: the checker, which decides whether an argument fits, and the consumer, which prints. They
//! must agree on where a conversion ends, what its flags are and which argument it takes, so there is one parser, here,
//! in the contract between them; and one table ([`CONVERSIONS`]) that says what each conversion takes. Neither side
//! hands the format to the C library: the set of conversions and the meaning of `%d` (signed as its argument is) are
//! D's own.

/// What a conversion wants of its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takes {
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

impl Takes {
    /// What it takes, in the words of DTrace's messages.
    pub fn describe(self) -> &'static str {
        match self {
            Takes::KernelAddr | Takes::Pointer => "pointer or integer",
            Takes::UserAddr => "pointer or integer (with -p/-c) or _usymaddr (without -p/-c)",
            Takes::Char => "char, short, or int",
            Takes::AnyInt | Takes::Signed(0) | Takes::Unsigned(0) => "char, short, int, long, or long long",
            Takes::Signed(2) => "short",
            Takes::Unsigned(2) => "unsigned short",
            Takes::Signed(_) => "long or long long",
            Takes::Unsigned(_) => "unsigned long or unsigned long long",
            Takes::Float(4) => "float",
            Takes::Float(8) => "double",
            Takes::Float(_) => "long double",
            Takes::String => "char [] or string (or use stringof)",
            Takes::Stack => "stack",
            Takes::Time => "int64_t",
            Takes::Address => "char [] or string (or use stringof)",
            Takes::Port => "uint16_t",
            Takes::Nothing => "nothing",
        }
    }
}

/// Every conversion by its name (size letters included), and what it takes.
pub const CONVERSIONS: &[(&str, Takes)] = &[
    ("%", Takes::Nothing),
    ("a", Takes::KernelAddr),
    ("A", Takes::UserAddr),
    ("c", Takes::Char),
    ("lc", Takes::Char),
    ("wc", Takes::Char),
    ("C", Takes::Char),
    ("d", Takes::AnyInt),
    ("hd", Takes::Signed(2)),
    ("ld", Takes::Signed(8)),
    ("lld", Takes::Signed(8)),
    ("e", Takes::Float(8)),
    ("E", Takes::Float(8)),
    ("f", Takes::Float(8)),
    ("g", Takes::Float(8)),
    ("G", Takes::Float(8)),
    ("Le", Takes::Float(16)),
    ("LE", Takes::Float(16)),
    ("Lf", Takes::Float(16)),
    ("Lg", Takes::Float(16)),
    ("LG", Takes::Float(16)),
    ("i", Takes::Signed(0)),
    ("hi", Takes::Signed(2)),
    ("li", Takes::Signed(8)),
    ("lli", Takes::Signed(8)),
    ("I", Takes::Address),
    ("k", Takes::Stack),
    ("o", Takes::Unsigned(0)),
    ("ho", Takes::Unsigned(2)),
    ("lo", Takes::Unsigned(8)),
    ("llo", Takes::Unsigned(8)),
    ("p", Takes::Pointer),
    ("P", Takes::Port),
    ("s", Takes::String),
    ("ls", Takes::String),
    ("ws", Takes::String),
    ("S", Takes::String),
    ("T", Takes::Time),
    ("u", Takes::Unsigned(0)),
    ("hu", Takes::Unsigned(2)),
    ("lu", Takes::Unsigned(8)),
    ("llu", Takes::Unsigned(8)),
    ("x", Takes::Unsigned(0)),
    ("hx", Takes::Unsigned(2)),
    ("lx", Takes::Unsigned(8)),
    ("llx", Takes::Unsigned(8)),
    ("X", Takes::Unsigned(0)),
    ("hX", Takes::Unsigned(2)),
    ("lX", Takes::Unsigned(8)),
    ("llX", Takes::Unsigned(8)),
    ("Y", Takes::Time),
];

/// Conversions of one meaning, for the manual page: their names, the argument, what is shown. Every name of
/// [`CONVERSIONS`] is in one row.
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
    /// Its place among the conversions of the format, `%%` counted too, from 1; messages name it.
    pub number: u32,
    /// Size letters and conversion letter: `d`, `llx`, `s`.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
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
    /// `@`: takes the value of the next aggregation.
    pub aggregation: bool,
    /// Least width; `?` gives 16, the digits of a pointer.
    pub width: Amount,
    /// Digits or longest length.
    pub precision: Amount,
    /// As it stands in the format, `%` included.
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

/// What is wrong with a format; `number` counts conversions from 1.
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
        /// Its text, `%` included.
        text: String,
    },
    /// A width or precision too large for an `int`.
    TooWide {
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
            FormatError::TooWide { number } => {
                write!(f, "format conversion #{number} has a width or precision that is too large")
            }
        }
    }
}

/// Takes a format apart. Neighbouring text, `%%` included, is one piece.
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
        if conversion.takes == Takes::Nothing {
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

/// The conversion whose `%` is at `start`; flags, width, precision and size in any order, as the original takes them.
fn conversion(
    format: &str,
    start: usize,
    number: u32,
    rest: &mut Rest<'_>,
) -> Result<Conversion, FormatError> {
    let mut out = Conversion {
        number,
        name: "%",
        takes: Takes::Nothing,
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
            '.' => {
                in_precision = true;
                out.precision = Amount::Fixed(0);
            }
            '*' if in_precision => out.precision = Amount::Argument,
            '*' => out.width = Amount::Argument,
            '0'..='9' => {
                let mut value = c.to_digit(10).unwrap_or(0);
                while let Some(digit) = rest.peek().and_then(|(_, c)| c.to_digit(10)) {
                    rest.next();
                    value = value
                        .checked_mul(10)
                        .and_then(|v| v.checked_add(digit))
                        .filter(|v| *v <= i32::MAX as u32)
                        .ok_or(FormatError::TooWide { number })?;
                }
                *(if in_precision { &mut out.precision } else { &mut out.width }) = Amount::Fixed(value);
            }
            'h' | 'l' | 'L' | 'w' => size.push(c),
            _ => {
                size.push(c);
                let text = &format[start..at + c.len_utf8()];
                let Some((name, takes)) = CONVERSIONS.iter().find(|(name, _)| *name == size) else {
                    return Err(FormatError::Unknown { number, text: text.into() });
                };
                (out.name, out.takes, out.text) = (name, *takes, text.into());
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
    fn bad_formats_say_which_conversion() {
        assert_eq!(parse("%d %"), Err(FormatError::Truncated { number: 2 }));
        assert_eq!(parse("%lq"), Err(FormatError::Unknown { number: 1, text: "%lq".into() }));
        assert_eq!(parse("%n"), Err(FormatError::Unknown { number: 1, text: "%n".into() }));
        assert!(matches!(parse("%99999999999d"), Err(FormatError::TooWide { .. })));
    }
}
