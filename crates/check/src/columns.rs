//! Columns of keys, joined over all uses in the session.
//!
//! A key must have the same layout in every use, but each use knows only its own expression. So a
//! column collects the properties of its uses, and after all programs are checked it becomes a
//! [`Datum`]: the cheapest that can hold them all. For strings the order is interned number,
//! provider (an interned prefix and a process id), 16 bytes of `execname` or of a network address,
//! whole string. For integers it is the widest.
//!
//! A text must have one representation in a column. So a column of providers holds a constant only
//! if it has no digit, and no other names of probes: `tst7` is the provider `tst` and 7, but could
//! also be a constant or a function. What a column is depends on what descriptions *can* match, not
//! on the probes that exist. So it remains when more probes come.

use plane::address;
use plane::desc::{AddrForm, Datum, Field, LayoutBuilder, string_storage};

use crate::program::StrSource;

/// Number of bytes that hold every `execname`, including the NUL.
const COMM: usize = 16;

/// What the uses of a column have in common so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Int {
        size: u8,
        signed: bool,
        /// It holds the values of variables, which may be more than `size` bytes hold.
        whole: bool,
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
    digits: bool,
    probe_name: bool,
    provider: bool,
    family: bool,
    comm: bool,
    address: bool,
    /// A constant that may not be in a column of addresses.
    no_address: bool,
    dynamic: bool,
}

impl StrUses {
    pub(crate) fn of(source: StrSource) -> StrUses {
        let mut uses = StrUses::default();
        match source {
            StrSource::Const { length, digits, address } => {
                (uses.longest, uses.digits, uses.no_address) = (length, digits, !address);
            }
            StrSource::ProbeName => uses.probe_name = true,
            StrSource::Provider { family: false } => uses.provider = true,
            StrSource::Provider { family: true } => uses.family = true,
            StrSource::Comm => uses.comm = true,
            StrSource::Address => uses.address = true,
            StrSource::Dynamic => uses.dynamic = true,
        }
        uses
    }

    fn datum(self, strsize: u32) -> Datum {
        let size = string_storage(strsize);
        let probe = self.probe_name || self.provider || self.family;
        let other_than_provider = self.probe_name || self.digits;
        if self.address {
            let alone = !(self.dynamic || self.comm || probe || self.no_address);
            let fits = strsize >= address::LONGEST;
            return if alone && fits { Datum::Address { strsize } } else { Datum::Str { size } };
        }
        if self.dynamic || self.comm && (probe || self.longest >= COMM) || self.family && other_than_provider
        {
            Datum::Str { size }
        } else if self.family {
            Datum::Provider
        } else if self.comm {
            Datum::Name { size: size.min(COMM as u32) }
        } else {
            Datum::Interned
        }
    }
}

impl Column {
    /// The column that can hold values of both.
    pub(crate) fn join(self, other: Column) -> Column {
        match (self, other) {
            (
                Column::Int { size: a, signed: first, whole: v },
                Column::Int { size: b, signed: second, whole: w },
            ) => {
                let (size, signed) = if b > a { (b, second) } else { (a, first) };
                Column::Int { size, signed, whole: v || w }
            }
            (Column::Str(a), Column::Str(b)) => Column::Str(StrUses {
                longest: a.longest.max(b.longest),
                digits: a.digits || b.digits,
                probe_name: a.probe_name || b.probe_name,
                provider: a.provider || b.provider,
                family: a.family || b.family,
                comm: a.comm || b.comm,
                address: a.address || b.address,
                no_address: a.no_address || b.no_address,
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
            Column::Int { size: size @ ..8, signed, whole: true } => Datum::Whole { size, signed },
            Column::Int { size, signed, .. } => Datum::Int { size, signed },
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
        use StrSource::{Comm, Dynamic, ProbeName};
        assert_eq!(joined(&[constant(300), ProbeName]), Datum::Interned);
        assert_eq!(joined(&[Comm, constant(15)]), Datum::Name { size: 16 });
        assert_eq!(joined(&[Comm, constant(16)]), Datum::Str { size: 256 });
        assert_eq!(joined(&[ProbeName, Comm]), Datum::Str { size: 256 });
        assert_eq!(joined(&[constant(1), Dynamic]), Datum::Str { size: 256 });
    }

    #[test]
    fn a_column_of_addresses_holds_addresses_and_the_texts_in_their_place() {
        use StrSource::{Address, Comm, Const, Dynamic, ProbeName, Provider};
        let text = Const { length: 9, digits: false, address: true };
        assert_eq!(joined(&[Address, text]), Datum::Address { strsize: 256 });
        assert_eq!(joined(&[text, Address, Address]), Datum::Address { strsize: 256 });
        for other in [constant(9), Comm, Dynamic, ProbeName, Provider { family: true }] {
            assert_eq!(joined(&[Address, text, other]), Datum::Str { size: 256 }, "{other:?}");
        }
        // A shorter string would cut the text.
        let address = StrUses::of(Address);
        assert_eq!(address.datum(40), Datum::Address { strsize: 40 });
        assert_eq!(address.datum(39), Datum::Str { size: 40 });
    }

    fn constant(length: usize) -> StrSource {
        StrSource::Const { length, digits: false, address: false }
    }

    #[test]
    fn a_column_of_providers_holds_nothing_that_reads_like_a_provider() {
        use StrSource::{Comm, Const, Dynamic, ProbeName, Provider};
        let (one, family) = (Provider { family: false }, Provider { family: true });
        assert_eq!(joined(&[family]), Datum::Provider);
        assert_eq!(joined(&[one, constant(300), family]), Datum::Provider);
        assert_eq!(joined(&[one, ProbeName]), Datum::Interned);
        for other in [ProbeName, Comm, Dynamic, Const { length: 4, digits: true, address: false }] {
            assert_eq!(joined(&[family, other]), Datum::Str { size: 256 }, "{other:?}");
        }
        assert_eq!(joined(&[one, Comm]), Datum::Str { size: 256 });
    }

    #[test]
    fn an_integer_column_is_the_widest_and_keys_are_words() {
        let int = |size| Column::Int { size, signed: true, whole: false };
        assert_eq!(int(4).join(int(8)), int(8));
        let unsigned = Column::Int { size: 4, signed: false, whole: false };
        assert_eq!(int(4).join(unsigned), int(4));
        let variable = Column::Int { size: 4, signed: true, whole: true };
        assert_eq!(int(4).join(variable), variable);
        assert_eq!(variable.datum(256), Datum::Whole { size: 4, signed: true });
        assert_eq!(variable.join(int(8)).datum(256), int(8).datum(256));
        let (fields, size) = key_layout(&[int(1), Column::UserAddr(AddrForm::Symbol), int(4)], 256);
        assert_eq!((fields[1].offset, fields[2].offset, size), (8, 24, 32));
    }
}
