//! `print()`: a value in C syntax, with the names of its type and members.
//!
//! ```text
//!  int 0x17
//!  struct foo {
//!      int a = 0x1
//!      char [30] b = [ "ab" ]
//!  }
//! ```
//!
//! The value is preceded by its type, a member by type and name. Numbers are hexadecimal, 0 is `0`.
//! The output ends with a newline. Names are escaped: those of stored events may be anything.

use diagnostics::control;
use events::{Form, Int, Member, Shape, Symbol};

use super::view::symbol;
use crate::pad::{Field, fill, float, up_to};
use crate::raw::{number, text};

/// Columns of a level.
const LEVEL: usize = 4;

/// Prints a value; `functions` are those that its pointers point to.
pub(super) fn print(out: &mut Vec<u8>, shape: &Shape, bytes: &[u8], functions: &[Symbol]) {
    out.extend_from_slice(control::name_text(&shape.name).as_bytes());
    out.push(b' ');
    Pretty { out, functions }.value(shape, bytes, 0, false);
    out.push(b'\n');
}

struct Pretty<'a> {
    out: &'a mut Vec<u8>,
    functions: &'a [Symbol],
}

impl Pretty<'_> {
    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn name(&mut self, name: &str) {
        self.text(&control::name_text(name));
    }

    fn indent(&mut self, level: usize) {
        fill(self.out, b' ', level * LEVEL);
    }

    /// `nested` values are elements or members; their strings are printed in brackets, as arrays
    /// are.
    fn value(&mut self, shape: &Shape, bytes: &[u8], level: usize, nested: bool) {
        let bytes = up_to(bytes, shape.size as usize);
        match &shape.form {
            Form::Int { .. } | Form::Pointer => self.hex(bytes),
            Form::Char { .. } => self.character(bytes.first().copied().unwrap_or(0)),
            Form::Float => self.float(bytes),
            Form::FunctionPointer => self.function(number(bytes)),
            Form::Enum { signed, names } => self.enumerator(bytes, *signed, names),
            Form::String => self.string(text(bytes), nested),
            Form::Array(elem) => self.array(elem, bytes, level, nested),
            Form::Sou(members) => {
                self.text("{\n");
                for member in members.iter() {
                    self.member(member, bytes, level + 1);
                }
                self.indent(level);
                self.text("}");
            }
        }
    }

    fn hex(&mut self, bytes: &[u8]) {
        // Wider than a word: the highest byte that is not 0 comes first.
        let digits: String = bytes.iter().rev().map(|b| format!("{b:02x}")).collect();
        match digits.trim_start_matches('0') {
            "" => self.text("0"),
            digits => self.text(&format!("0x{digits}")),
        }
    }

    fn character(&mut self, c: u8) {
        match c {
            0 => self.text("'\\0'"),
            b' '..=b'~' => self.out.extend_from_slice(&[b'\'', c, b'\'']),
            _ => self.text(&format!("'\\{c:03o}'")),
        }
    }

    fn float(&mut self, bytes: &[u8]) {
        let (value, precision) = match *bytes {
            [a, b, c, d] => (f64::from(f32::from_le_bytes([a, b, c, d])), 7),
            [a, b, c, d, e, f, g, h] => (f64::from_le_bytes([a, b, c, d, e, f, g, h]), 15),
            _ => return self.hex(bytes),
        };
        float(self.out, value, 'e', Field { plus: true, precision: Some(precision), ..Field::default() });
    }

    fn function(&mut self, addr: u64) {
        match addr {
            0 => self.text("0"),
            addr => match self.functions.iter().find(|s| s.address == addr) {
                Some(function) => self.out.extend_from_slice(&symbol(function)),
                None => self.text(&format!("{addr:#x}")),
            },
        }
    }

    fn enumerator(&mut self, bytes: &[u8], signed: bool, names: &[(std::sync::Arc<str>, i64)]) {
        let value = Int::new(number(bytes), bytes.len().clamp(1, 8) as u8, signed).bits as i64;
        match names.iter().find(|(_, v)| *v == value) {
            Some((name, _)) => self.name(name),
            None => self.text(&value.to_string()),
        }
    }

    fn string(&mut self, text: &[u8], nested: bool) {
        self.text(if nested { "[ \"" } else { "\"" });
        self.text(&control::name(text));
        self.text(if nested { "\" ]" } else { "\"" });
    }

    fn array(&mut self, elem: &Shape, bytes: &[u8], level: usize, nested: bool) {
        if matches!(elem.form, Form::Char { .. }) {
            let text = text(bytes);
            if text.iter().all(|c| (b' '..=b'~').contains(c)) {
                return self.string(text, nested);
            }
        }
        let objects = matches!(elem.form, Form::Sou(_));
        self.text("[ ");
        for (i, part) in bytes.chunks(elem.size.max(1) as usize).enumerate() {
            if i > 0 {
                self.text(", ");
            }
            if objects {
                self.text("\n");
                self.indent(level + 1);
                self.name(&elem.name);
                self.text(" ");
            }
            self.value(elem, part, level + 1, true);
        }
        if objects {
            self.text("\n");
            self.indent(level);
            self.text("]");
        } else {
            self.text(if bytes.is_empty() { "]" } else { " ]" });
        }
    }

    fn member(&mut self, member: &Member, bytes: &[u8], level: usize) {
        let bytes = bytes.get(member.offset as usize..).unwrap_or_default();
        self.indent(level);
        self.name(&member.shape.name);
        if !member.name.is_empty() {
            self.text(if member.shape.name.ends_with('*') { "" } else { " " });
            self.name(&member.name);
        }
        match member.bits {
            None => {
                self.text(" = ");
                self.value(&member.shape, bytes, level, true);
            }
            Some((shift, width)) => {
                let mask = u64::MAX.checked_shr(64 - u32::from(width.min(64))).unwrap_or(0);
                let value = number(bytes).checked_shr(shift.into()).unwrap_or(0) & mask;
                self.text(&format!(" :{width} = "));
                self.hex(&value.to_le_bytes());
            }
        }
        self.text("\n");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn show(shape: &Shape, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        print(&mut out, shape, bytes, &[]);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn shape(name: &str, size: u32, form: Form) -> Shape {
        Shape { name: name.into(), size, form }
    }

    fn int(name: &str, size: u32) -> Shape {
        shape(name, size, Form::Int { signed: true })
    }

    fn array(name: &str, elem: Shape, len: u32) -> Shape {
        shape(name, elem.size * len, Form::Array(Arc::new(elem)))
    }

    fn member(name: &str, offset: u32, shape: Shape) -> Member {
        Member { name: name.into(), offset, bits: None, shape }
    }

    fn sou(name: &str, size: u32, members: Vec<Member>) -> Shape {
        shape(name, size, Form::Sou(members.into()))
    }

    #[test]
    fn a_scalar_is_printed_after_its_type() {
        assert_eq!(show(&shape("char", 1, Form::Char { signed: true }), b"a"), "char 'a'\n");
        assert_eq!(show(&shape("char", 1, Form::Char { signed: true }), &[4]), "char '\\004'\n");
        assert_eq!(show(&int("int", 4), &[0xff; 4]), "int 0xffffffff\n");
        assert_eq!(show(&int("int", 4), &[0; 4]), "int 0\n");
        assert_eq!(show(&int("short", 2), &456u16.to_le_bytes()), "short 0x1c8\n");
        assert_eq!(show(&int("ulong_t", 8), &56789u64.to_le_bytes()), "ulong_t 0xddd5\n");
        assert_eq!(show(&int("__int128", 16), &[1; 16]), format!("__int128 0x1{}\n", "01".repeat(15)));
        let pointer = shape("void *", 8, Form::Pointer);
        assert_eq!(show(&pointer, &0x1234u64.to_le_bytes()), "void * 0x1234\n");
        assert_eq!(show(&shape("string", 256, Form::String), b"hello\0\0"), "string \"hello\"\n");
        let function = shape("void (*)(void)", 8, Form::FunctionPointer);
        assert_eq!(show(&function, &8u64.to_le_bytes()), "void (*)(void) 0x8\n");
        assert_eq!(show(&function, &[0; 8]), "void (*)(void) 0\n");
        assert_eq!(
            show(&shape("double", 8, Form::Float), &1.5f64.to_le_bytes()),
            "double +1.500000000000000e+00\n"
        );
        assert_eq!(show(&shape("float", 4, Form::Float), &(-0.5f32).to_le_bytes()), "float -5.0000000e-01\n");
    }

    #[test]
    fn enumerators_are_printed_by_name_where_one_matches() {
        let names: Arc<[(Arc<str>, i64)]> = [("bart".into(), 2), ("none".into(), -1)].into();
        let s = shape("enum simpson", 4, Form::Enum { signed: true, names });
        assert_eq!(show(&s, &[2, 0, 0, 0]), "enum simpson bart\n");
        assert_eq!(show(&s, &[0xff; 4]), "enum simpson none\n");
        assert_eq!(show(&s, &[9, 0, 0, 0]), "enum simpson 9\n");
    }

    #[test]
    fn control_characters_in_names_are_escaped() {
        let names: Arc<[(Arc<str>, i64)]> = [("e\x1b[1m".into(), 2)].into();
        let member = member("m\n", 0, shape("t\x1b", 1, Form::Enum { signed: false, names }));
        let elem = sou("s\x07", 1, vec![member]);
        let found = show(&array("a\u{9b}", elem, 1), &[2]);
        assert!(found.chars().all(|c| c == '\n' || !c.is_control()), "{found:?}");
        assert_eq!(found.lines().count(), 5, "{found:?}");
    }

    #[test]
    fn members_are_printed_on_lines_of_their_own() {
        let inner = sou(
            "struct",
            16,
            vec![member("alpha", 0, int("uint64_t", 8)), member("beta", 8, int("uint64_t", 8))],
        );
        let s = sou(
            "foo_t",
            40,
            vec![
                member("a", 0, int("int", 4)),
                member("b", 8, shape("void *", 8, Form::Pointer)),
                member("c", 16, inner),
                member("d", 32, int("ushort_t", 2)),
            ],
        );
        let mut bytes = [0; 40];
        for (at, value) in [(0, 1), (8, 2), (16, 3), (24, 4), (32, 5)] {
            bytes[at] = value;
        }
        assert_eq!(
            show(&s, &bytes),
            "foo_t {
    int a = 0x1
    void *b = 0x2
    struct c = {
        uint64_t alpha = 0x3
        uint64_t beta = 0x4
    }
    ushort_t d = 0x5
}
"
        );
    }

    #[test]
    fn arrays_are_printed_in_brackets_and_text_in_quotes() {
        let ints = array("int [3]", int("int", 4), 3);
        let mut three = [0; 12];
        (three[0], three[4], three[8]) = (1, 2, 3);
        assert_eq!(show(&ints, &three), "int [3] [ 0x1, 0x2, 0x3 ]\n");
        let chars = |name: &str, len| array(name, shape("char", 1, Form::Char { signed: true }), len);
        assert_eq!(show(&chars("char [30]", 30), b"ab\0x"), "char [30] \"ab\"\n");
        let bar = sou("bar_t", 4, vec![member("alpha", 0, int("int", 4))]);
        let bars = array("bar_t [2]", bar, 2);
        assert_eq!(
            show(&bars, &[5, 0, 0, 0, 6, 0, 0, 0]),
            "bar_t [2] [ \n    bar_t {\n        int alpha = 0x5\n    }, \n    bar_t {\n        int alpha = 0x6\n    }\n]\n"
        );
        let all = sou(
            "foo_t",
            53,
            vec![
                member("a", 0, ints),
                member("b", 12, chars("char [30]", 30)),
                member("c", 42, bars),
                member("d", 50, chars("char [3]", 3)),
            ],
        );
        let mut bytes = three.to_vec();
        bytes.extend(b"ab");
        bytes.resize(42, 0);
        bytes.extend([5, 0, 0, 0, 6, 0, 0, 0, 4, 0, 0]);
        assert_eq!(
            show(&all, &bytes),
            "foo_t {
    int [3] a = [ 0x1, 0x2, 0x3 ]
    char [30] b = [ \"ab\" ]
    bar_t [2] c = [ \n        bar_t {
            int alpha = 0x5
        }, \n        bar_t {
            int alpha = 0x6
        }
    ]
    char [3] d = [ '\\004', '\\0', '\\0' ]
}
"
        );
    }

    #[test]
    fn bit_fields_are_printed_with_their_width() {
        let bits = |name: &str, shift, width| Member {
            name: name.into(),
            offset: 0,
            bits: Some((shift, width)),
            shape: int("int", 4),
        };
        let s = sou("foo_t", 4, vec![bits("a", 0, 4), bits("b", 4, 7), bits("c", 11, 1), bits("d", 12, 2)]);
        let word: u32 = 1 | 5 << 4 | 2 << 12;
        assert_eq!(
            show(&s, &word.to_le_bytes()),
            "foo_t {\n    int a :4 = 0x1\n    int b :7 = 0x5\n    int c :1 = 0\n    int d :2 = 0x2\n}\n"
        );
    }
}
