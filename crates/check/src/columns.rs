//! Columns of keys, joined over all uses in the session.
//!
//! A key must have the same layout in every use, but each use knows only its own expression. So a
//! column collects the properties of its uses, and after all programs are checked it becomes a
//! [`Datum`]: the cheapest that can hold them all. For strings the order is interned number, 16
//! bytes of `execname`, whole string. For integers it is the widest.

use plane::desc::{AddrForm, Datum, Field, LayoutBuilder};

use crate::program::StrSource;

/// Number of bytes that hold every `execname`, including the NUL.
const COMM: usize = 16;

/// What the uses of a column have in common so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Int {
        size: u8,
        signed: bool,
    },
    Str(StrUses),
    /// An object.
    Bytes {
        size: u32,
    },
    KernelStack {
        frames: u32,
    },
    UserStack {
        frames: u32,
        strsize: u32,
    },
    KernelAddr(AddrForm),
    UserAddr(AddrForm),
}

/// The origins of the strings in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StrUses {
    longest: usize,
    probe_name: bool,
    comm: bool,
    dynamic: bool,
}

impl StrUses {
    pub(crate) fn of(source: StrSource) -> StrUses {
        let mut uses = StrUses::default();
        match source {
            StrSource::Const(length) => uses.longest = length,
            StrSource::ProbeName => uses.probe_name = true,
            StrSource::Comm => uses.comm = true,
            StrSource::Dynamic => uses.dynamic = true,
        }
        uses
    }

    fn datum(self, strsize: u32) -> Datum {
        if self.dynamic || self.comm && (self.probe_name || self.longest >= COMM) {
            Datum::Str { size: strsize }
        } else if self.comm {
            Datum::Name { size: strsize.min(COMM as u32) }
        } else {
            Datum::Interned
        }
    }
}

impl Column {
    /// The column that can hold values of both.
    pub(crate) fn join(self, other: Column) -> Column {
        match (self, other) {
            (Column::Int { size: a, .. }, Column::Int { size: b, .. }) if b > a => other,
            (Column::Str(a), Column::Str(b)) => Column::Str(StrUses {
                longest: a.longest.max(b.longest),
                probe_name: a.probe_name || b.probe_name,
                comm: a.comm || b.comm,
                dynamic: a.dynamic || b.dynamic,
            }),
            (Column::KernelStack { frames: a }, Column::KernelStack { frames: b }) => {
                Column::KernelStack { frames: a.max(b) }
            }
            (Column::UserStack { frames: a, strsize: s }, Column::UserStack { frames: b, strsize: t }) => {
                Column::UserStack { frames: a.max(b), strsize: s.max(t) }
            }
            _ => self,
        }
    }

    /// The datum of the column.
    pub(crate) fn datum(self, strsize: u32) -> Datum {
        match self {
            Column::Int { size, signed } => Datum::Int { size, signed },
            Column::Str(uses) => uses.datum(strsize),
            Column::Bytes { size } => Datum::Bytes { size },
            Column::KernelStack { frames } => Datum::KernelStack { frames },
            Column::UserStack { frames, strsize } => Datum::UserStack { frames, strsize },
            Column::KernelAddr(form) => Datum::KernelAddr(form),
            Column::UserAddr(form) => Datum::UserAddr(form),
        }
    }
}

/// Lays out a key. Returns its columns and its size.
pub(crate) fn key_layout(columns: &[Column], strsize: u32) -> (Vec<Field>, u32) {
    let mut layout = LayoutBuilder::default();
    let fields = columns.iter().map(|c| layout.push_key(c.datum(strsize))).collect();
    (fields, layout.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(sources: &[StrSource]) -> Datum {
        sources.iter().map(|s| Column::Str(StrUses::of(*s))).reduce(Column::join).unwrap().datum(256)
    }

    #[test]
    fn a_string_column_is_the_cheapest_that_holds_all_uses() {
        use StrSource::{Comm, Const, Dynamic, ProbeName};
        assert_eq!(joined(&[Const(300), ProbeName]), Datum::Interned);
        assert_eq!(joined(&[Comm, Const(15)]), Datum::Name { size: 16 });
        assert_eq!(joined(&[Comm, Const(16)]), Datum::Str { size: 256 });
        assert_eq!(joined(&[ProbeName, Comm]), Datum::Str { size: 256 });
        assert_eq!(joined(&[Const(1), Dynamic]), Datum::Str { size: 256 });
    }

    #[test]
    fn an_integer_column_is_the_widest_and_keys_are_words() {
        let int = |size| Column::Int { size, signed: true };
        assert_eq!(int(4).join(int(8)), int(8));
        assert_eq!(int(4).join(Column::Int { size: 4, signed: false }), int(4));
        let (fields, size) = key_layout(&[int(1), Column::UserAddr(AddrForm::Symbol), int(4)], 256);
        assert_eq!((fields[1].offset, fields[2].offset, size), (8, 24, 32));
    }
}
