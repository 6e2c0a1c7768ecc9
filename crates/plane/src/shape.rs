//! The type tree by which `print()` shows bytes.
//!
//! The checker makes a shape from a type, and the consumer prints by it. A shape gives the meaning
//! of each byte and its name in C. It has no relations between types, so it is a tree that ends at
//! pointers. Its text form is for DIF listings.

use std::fmt;
use std::sync::Arc;

/// The type of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Their type as C writes it; `struct` alone for one without a tag.
    pub name: Arc<str>,
    /// Number of bytes.
    pub size: u32,
    /// Their meaning.
    pub form: Form,
}

/// The meaning of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// An integer; also bytes of unknown meaning.
    Int {
        /// Two's complement when set.
        signed: bool,
    },
    /// A character.
    Char {
        /// Two's complement when set.
        signed: bool,
    },
    /// A floating-point number.
    Float,
    /// An address.
    Pointer,
    /// The address of a function of the kernel.
    FunctionPointer,
    /// An enumeration.
    Enum {
        /// Sign-extended.
        signed: bool,
        /// The names.
        names: Arc<[(Arc<str>, i64)]>,
    },
    /// Text up to its NUL.
    String,
    /// An array.
    Array(Arc<Shape>),
    /// A struct or union.
    Sou(Arc<[Member]>),
}

/// A member of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name; empty for an anonymous struct or union.
    pub name: Arc<str>,
    /// Bytes from the start.
    pub offset: u32,
    /// Of a bit-field: the bits below it in the bytes at `offset`, and its width.
    pub bits: Option<(u8, u8)>,
    /// Its type.
    pub shape: Shape,
}

/// Maximum nesting; anything deeper is shown as bytes.
pub const DEPTH: u32 = 32;

impl Shape {
    /// The members of a struct or union; none of another type.
    pub fn members(&self) -> &[Member] {
        match &self.form {
            Form::Sou(members) => members,
            _ => &[],
        }
    }
}

impl Member {
    /// The bytes of the member, of those of its struct; `None` if they are too few. A bit-field is
    /// in them, above [the bits below it](Member::bits).
    pub fn bytes<'a>(&self, of: &'a [u8]) -> Option<&'a [u8]> {
        of.get(self.offset as usize..)?.get(..self.shape.size as usize)
    }
}

impl Form {
    fn letter(&self) -> char {
        match self {
            Form::Int { signed: true } => 'i',
            Form::Int { signed: false } => 'u',
            Form::Char { signed: true } => 'c',
            Form::Char { signed: false } => 'C',
            Form::Float => 'f',
            Form::Pointer => 'p',
            Form::FunctionPointer => 'P',
            Form::Enum { signed: true, .. } => 'e',
            Form::Enum { signed: false, .. } => 'E',
            Form::String => 's',
            Form::Array(_) => 'a',
            Form::Sou(_) => 'm',
        }
    }
}

/// `(letter size "name" parts…)`; a part of an enumeration is `"name" value`, of a struct `"name"
/// offset shape` or `"name" offset shift/width shape`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {:?}", self.form.letter(), self.size, self.name)?;
        match &self.form {
            Form::Enum { names, .. } => names.iter().try_for_each(|(n, v)| write!(f, " {n:?} {v}"))?,
            Form::Array(elem) => write!(f, " {elem}")?,
            Form::Sou(members) => {
                for m in members.iter() {
                    write!(f, " {:?} {}", m.name, m.offset)?;
                    if let Some((shift, width)) = m.bits {
                        write!(f, " {shift}/{width}")?;
                    }
                    write!(f, " {}", m.shape)?;
                }
            }
            _ => {}
        }
        f.write_str(")")
    }
}

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let mut reader = Reader { rest: text };
        let shape = reader.shape(DEPTH)?;
        if reader.rest.is_empty() { Ok(shape) } else { Err(format!("{:?} after a shape", reader.rest)) }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn accept(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip(&mut self, c: char) -> Result<(), String> {
        if self.accept(c) { Ok(()) } else { Err(format!("no {c} in a shape")) }
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        number.parse().map_err(|_| "no number in a shape".to_string())
    }

    /// A name between quotes. Names are identifiers and C's declarators: nothing in them is
    /// escaped.
    fn name(&mut self) -> Result<Arc<str>, String> {
        self.skip('"')?;
        let end = self.rest.find('"').ok_or("no end of a name")?;
        let name = self.rest[..end].into();
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    fn is_name(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.starts_with('"')
    }

    fn shape(&mut self, depth: u32) -> Result<Shape, String> {
        let below = depth.checked_sub(1).ok_or("a shape too deep")?;
        self.skip('(')?;
        let letter = self.rest.chars().next().ok_or("no letter in a shape")?;
        self.rest = &self.rest[letter.len_utf8()..];
        let (size, name) = (self.number()?, self.name()?);
        let form = match letter {
            'i' | 'u' => Form::Int { signed: letter == 'i' },
            'c' | 'C' => Form::Char { signed: letter == 'c' },
            'f' => Form::Float,
            'p' => Form::Pointer,
            'P' => Form::FunctionPointer,
            's' => Form::String,
            'a' => Form::Array(Arc::new(self.shape(below)?)),
            'e' | 'E' => {
                let mut names = Vec::new();
                while self.is_name() {
                    names.push((self.name()?, self.number()?));
                }
                Form::Enum { signed: letter == 'e', names: names.into() }
            }
            'm' => {
                let mut members = Vec::new();
                while self.is_name() {
                    members.push(self.member(below)?);
                }
                Form::Sou(members.into())
            }
            other => return Err(format!("no shape is {other:?}")),
        };
        self.skip(')')?;
        Ok(Shape { name, size, form })
    }

    fn member(&mut self, depth: u32) -> Result<Member, String> {
        let (name, offset) = (self.name()?, self.number()?);
        self.rest = self.rest.trim_start();
        let bits = match self.rest.starts_with('(') {
            true => None,
            false => {
                let shift = self.number()?;
                self.skip('/')?;
                Some((shift, self.number()?))
            }
        };
        Ok(Member { name, offset, bits, shape: self.shape(depth)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(name: &str, size: u32) -> Shape {
        Shape { name: name.into(), size, form: Form::Int { signed: !name.starts_with("unsigned") } }
    }

    #[test]
    fn a_shape_survives_writing_and_reading() {
        let names: Arc<[(Arc<str>, i64)]> = [("a".into(), -1), ("b".into(), 7)].into();
        let member = |name: &str, offset, bits, shape| Member { name: name.into(), offset, bits, shape };
        let array = Shape { name: "int [3]".into(), size: 12, form: Form::Array(Arc::new(int("int", 4))) };
        let color = Shape { name: "enum color".into(), size: 4, form: Form::Enum { signed: true, names } };
        let members = vec![
            member("x", 0, None, array),
            member("", 12, Some((3, 7)), int("unsigned int", 4)),
            member("c", 16, None, color),
        ];
        let shape = Shape { name: "struct s".into(), size: 20, form: Form::Sou(members.into()) };
        let text = shape.to_string();
        assert_eq!(
            text,
            "(m 20 \"struct s\" \"x\" 0 (a 12 \"int [3]\" (i 4 \"int\")) \"\" 12 3/7 (u 4 \"unsigned int\") \
             \"c\" 16 (e 4 \"enum color\" \"a\" -1 \"b\" 7))"
        );
        assert_eq!(text.parse(), Ok(shape));
    }

    #[test]
    fn malformed_shapes_are_rejected() {
        let deep = "(a 1 \"\" ".repeat(100);
        for text in [
            "",
            "(",
            "(i",
            "(i 4",
            "(i 4 \"a",
            "(i 4 \"a\")x",
            "(q 4 \"a\")",
            "(m 4 \"a\" \"b\" 1 2 (",
            &deep,
        ] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }

    #[test]
    fn members_of_a_struct_give_their_bytes() {
        let int = |size| Shape { name: "int".into(), size, form: Form::Int { signed: true } };
        let member = |name: &str, offset, shape| Member { name: name.into(), offset, bits: None, shape };
        let members: Arc<[Member]> = [member("a", 0, int(2)), member("b", 4, int(4))].into();
        let shape = Shape { name: "struct s".into(), size: 8, form: Form::Sou(members) };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        let found: Vec<_> = shape.members().iter().map(|m| (&*m.name, m.bytes(&bytes))).collect();
        assert_eq!(found, [("a", Some(&bytes[..2])), ("b", Some(&bytes[4..]))]);
        assert_eq!(shape.members()[1].bytes(&bytes[..7]), None);
        assert!(int(4).members().is_empty());
    }
}
