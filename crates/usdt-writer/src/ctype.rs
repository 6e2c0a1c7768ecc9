//! How an argument is passed: the size and the sign that its note has, and the conversion to its
//! declared type.
//!
//! ARCH(x86-64): the types of the registers, beside those of arm64.

use std::collections::HashMap;

use syntax::ast::{
    ArithKind, DeclPartKind, DeclSpecs, Declarator, Item, Program, StorageClass, TypeSpecKind,
};

/// Typedefs of typedefs are followed this far.
const DEEPEST: usize = 32;

/// Types of C that D has without a declaration: name, size, sign.
const INTEGERS: [(&str, u8, bool); 34] = [
    ("clockid_t", 4, true),
    ("dev_t", 8, false),
    ("gid_t", 4, false),
    ("id_t", 4, false),
    ("ino_t", 8, false),
    ("int16_t", 2, true),
    ("int32_t", 4, true),
    ("int64_t", 8, true),
    ("int8_t", 1, true),
    ("intmax_t", 8, true),
    ("intptr_t", 8, true),
    ("longlong_t", 8, true),
    ("mode_t", 4, false),
    ("nlink_t", 8, false),
    ("off_t", 8, true),
    ("pid_t", 4, true),
    ("ptrdiff_t", 8, true),
    ("size_t", 8, false),
    ("socklen_t", 4, false),
    ("ssize_t", 8, true),
    ("time_t", 8, true),
    ("u_longlong_t", 8, false),
    ("uchar_t", 1, false),
    ("uid_t", 4, false),
    ("uint16_t", 2, false),
    ("uint32_t", 4, false),
    ("uint64_t", 8, false),
    ("uint8_t", 1, false),
    ("uint_t", 4, false),
    ("uintmax_t", 8, false),
    ("uintptr_t", 8, false),
    ("ulong_t", 8, false),
    ("useconds_t", 4, false),
    ("ushort_t", 2, false),
];

/// How an argument is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// An integer of this many bytes.
    Integer(u8, bool),
    /// `bool`
    Bool,
    /// An address: pointers, arrays, functions, strings.
    Address,
    /// `float` and `double`, by their bits.
    Float(u8),
    /// A type that the definition does not declare: converted to `long`.
    Unknown,
}

impl Passing {
    /// The size in the note, negative for a signed type.
    pub(crate) fn size(self) -> i8 {
        match self {
            Passing::Integer(size, true) => -(size as i8),
            Passing::Integer(size, false) | Passing::Float(size) => size as i8,
            Passing::Bool => 1,
            Passing::Address => 8,
            Passing::Unknown => -8,
        }
    }

    /// The C that converts the macro's parameter `name`.
    pub(crate) fn operand(self, name: &str) -> String {
        // The declared type; that of the register on x86-64, whose parts of 8 and 16 bits have
        // names that gdb does not know; that of the register on arm64.
        let types = match self {
            Passing::Float(4) => return format!("_DTRACE_V1_BITS(float, unsigned int, {name})"),
            Passing::Float(_) => return format!("_DTRACE_V1_BITS(double, unsigned long, {name})"),
            Passing::Bool => return format!("_DTRACE_V1_INTEGER(int, int, long, ({name}) != 0)"),
            Passing::Integer(1, true) => "signed char, int, long",
            Passing::Integer(1, false) => "unsigned char, unsigned int, unsigned long",
            Passing::Integer(2, true) => "short, int, long",
            Passing::Integer(2, false) => "unsigned short, unsigned int, unsigned long",
            Passing::Integer(4, true) => "int, int, long",
            Passing::Integer(4, false) => "unsigned int, unsigned int, unsigned long",
            Passing::Integer(_, true) | Passing::Unknown => "long, long, long",
            Passing::Integer(_, false) | Passing::Address => "unsigned long, unsigned long, unsigned long",
        };
        // A program may pass a pointer where the definition has a small integer, which SystemTap's
        // headers take: C warns of the conversion to anything but a `long`, and C++ refuses it.
        match self {
            Passing::Integer(1..=4, _) => format!("_DTRACE_V1_INTEGER({types}, (long)({name}))"),
            _ => format!("_DTRACE_V1_INTEGER({types}, {name})"),
        }
    }
}

/// The typedefs of a file, by name.
pub(crate) struct Typedefs<'a>(HashMap<&'a str, (&'a DeclSpecs, &'a Declarator)>);

impl<'a> Typedefs<'a> {
    pub(crate) fn of(program: &'a Program) -> Self {
        let mut all = HashMap::new();
        for item in &program.items {
            let Item::Declaration(d) = item else { continue };
            if d.specs.storage.is_some_and(|s| s.class == StorageClass::Typedef) {
                let named =
                    d.declarators.iter().filter_map(|x| Some((&*x.name.as_ref()?.text, (&d.specs, x))));
                all.extend(named);
            }
        }
        Self(all)
    }

    /// How a parameter is passed; an error is what is wrong with its type.
    pub(crate) fn passing(
        &self,
        specs: &DeclSpecs,
        declarator: &Declarator,
    ) -> Result<Passing, &'static str> {
        let (mut specs, mut declarator) = (specs, declarator);
        for _ in 0..DEEPEST {
            if let Some(part) = declarator.parts.first() {
                return match part.kind {
                    DeclPartKind::Pointer(_) | DeclPartKind::Array(_) | DeclPartKind::Function(_) => {
                        Ok(Passing::Address)
                    }
                    DeclPartKind::Tuple(_) => Err("an associative array"),
                };
            }
            let name = match &specs.ty.kind {
                TypeSpecKind::Named { name, .. } => name,
                kind => return of_base(kind),
            };
            match self.0.get(&*name.text) {
                Some(&(s, d)) => (specs, declarator) = (s, d),
                None => return Ok(builtin(&name.text)),
            }
        }
        Ok(Passing::Unknown)
    }

    /// True if the file defines this type.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

fn builtin(name: &str) -> Passing {
    if matches!(name, "_Bool" | "bool" | "boolean_t") {
        return Passing::Bool;
    }
    match INTEGERS.binary_search_by(|(n, ..)| (*n).cmp(name)) {
        Ok(at) => {
            INTEGERS.get(at).map_or(Passing::Unknown, |(_, size, signed)| Passing::Integer(*size, *signed))
        }
        Err(_) => Passing::Unknown,
    }
}

fn of_base(kind: &TypeSpecKind) -> Result<Passing, &'static str> {
    Ok(match kind {
        TypeSpecKind::Void => return Err("void"),
        TypeSpecKind::Record(r) if r.is_union => return Err("a union"),
        TypeSpecKind::Record(_) => return Err("a struct"),
        TypeSpecKind::Enum(_) => Passing::Integer(4, true),
        TypeSpecKind::String => Passing::Address,
        TypeSpecKind::Arith { kind, signed } => match kind {
            // As in D, a plain `char` is signed.
            ArithKind::Char => Passing::Integer(1, signed.unwrap_or(true)),
            ArithKind::Short => Passing::Integer(2, signed.unwrap_or(true)),
            ArithKind::Int => Passing::Integer(4, signed.unwrap_or(true)),
            ArithKind::Long | ArithKind::LongLong => Passing::Integer(8, signed.unwrap_or(true)),
            ArithKind::Float => Passing::Float(4),
            ArithKind::Double => Passing::Float(8),
            ArithKind::LongDouble => return Err("a long double"),
        },
        TypeSpecKind::Named { .. } | TypeSpecKind::Error => Passing::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(INTEGERS.is_sorted());
        assert_eq!(builtin("uint32_t"), Passing::Integer(4, false));
        assert_eq!(builtin("widget_t"), Passing::Unknown);
    }
}
