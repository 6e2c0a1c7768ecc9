//! Descriptions of records, keys and aggregation values.
//!
//! The checker defines these layouts, the back end writes them, and the consumer reads and prints
//! them. Offsets are in bytes.

use std::sync::Arc;

use crate::shape::Shape;

/// The type of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Datum {
    /// An integer of `size` bytes (1, 2, 4 or 8), stored little-endian.
    Int {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Two's complement when set.
        signed: bool,
    },
    /// The value of a variable of an integer type of fewer than 8 bytes: 8 bytes, because a
    /// variable holds 64 bits. It is shown as a value of its type if it fits, as a signed or as an
    /// unsigned one, and whole if not.
    Whole {
        /// Of the type: 1, 2 or 4.
        size: u8,
        /// Of the type.
        signed: bool,
    },
    /// A NUL-terminated, NUL-padded string of `size` bytes (a multiple of 8).
    Str {
        /// Bytes, NUL included.
        size: u32,
    },
    /// As `Str`: the name that a process has given itself (`execname`). Printed with its control
    /// characters escaped.
    Name {
        /// Bytes, NUL included.
        size: u32,
    },
    /// A string known before the firing (probe names, constants): a 4-byte index into the session's
    /// interned strings.
    Interned,
    /// The name of a provider that may be of a family of processes: 8 bytes, a 4-byte index into
    /// the session's interned strings, then the process id whose digits follow that string; 0 if
    /// none do.
    Provider,
    /// Raw bytes.
    Bytes {
        /// Length.
        size: u32,
    },
    /// The text of a network address: 16 bytes, see [`crate::address`].
    Address {
        /// Bytes of a string in its place, with its NUL.
        strsize: u32,
    },
    /// A kernel stack: 8 bytes, the id of an entry of the stack store.
    KernelStack {
        /// Frames at most.
        frames: u32,
    },
    /// A user stack: 8 bytes, the id of an entry of the stack store (the entry holds pid and exec
    /// generation).
    UserStack {
        /// Frames at most.
        frames: u32,
        /// `ustack()`'s second argument.
        strsize: u32,
    },
    /// An address to be printed as a kernel symbol: 8 bytes.
    KernelAddr(AddrForm),
    /// An address in a process: 16 bytes, the address and the process id (tgid in the tracer's pid
    /// namespace).
    UserAddr(AddrForm),
}

/// How an address is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddrForm {
    /// `sym()`, `usym()`: module`symbol. Aggregated by symbol.
    Symbol,
    /// `func()`, `ufunc()`: as `sym()`.
    Function,
    /// `mod()`, `umod()`: the module alone. Aggregated by module.
    Module,
    /// `uaddr()`, `%a`, `%A`: with offset.
    Address,
    /// `guestsym()`: as `sym()`, of the kernel of the guest whose machine is the process.
    Guest,
}

/// Bytes that a string of `strsize` bytes takes: the next multiple of 8. All behind its NUL is
/// zero.
pub const fn string_storage(strsize: u32) -> u32 {
    strsize.div_ceil(8).saturating_mul(8)
}

impl Datum {
    /// Bytes taken in a record or key.
    pub fn size(self) -> u32 {
        match self {
            Datum::Int { size, .. } => u32::from(size),
            Datum::Str { size } | Datum::Name { size } | Datum::Bytes { size } => size,
            Datum::Interned => 4,
            Datum::Whole { .. }
            | Datum::Provider
            | Datum::KernelStack { .. }
            | Datum::UserStack { .. }
            | Datum::KernelAddr(_) => 8,
            Datum::UserAddr(_) | Datum::Address { .. } => 16,
        }
    }

    /// How many values a program gives for it: of a user address the address and the process, of a
    /// provider the string and the process, of a network address its words.
    pub fn values(self) -> usize {
        if matches!(self, Datum::UserAddr(_) | Datum::Provider | Datum::Address { .. }) { 2 } else { 1 }
    }

    /// Whether it holds addresses of a process.
    pub fn is_user(self) -> bool {
        match self {
            Datum::UserAddr(form) => form != AddrForm::Guest,
            _ => matches!(self, Datum::UserStack { .. }),
        }
    }

    /// Alignment in a record or key: 1, 2, 4 or 8.
    pub fn align(self) -> u32 {
        match self {
            Datum::Int { size, .. } => u32::from(size),
            Datum::Interned => 4,
            Datum::Bytes { .. } => 1,
            _ => 8,
        }
    }
}

/// A datum at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Bytes from the start of the record's data (after the header) or of the key.
    pub offset: u32,
    /// Its type.
    pub datum: Datum,
}

/// Bytes of a record's data at most.
pub const RECORD_MAX: u32 = 256 << 10;

/// Lays out columns in order, at their natural alignment.
///
/// Sizes come from types that others have described, so they are added in 64 bits, which no number
/// of columns overflows. An offset that 32 bits do not hold is in a layout whose
/// [`size`](Self::size) is beyond every limit.
#[derive(Clone, Debug, Default)]
pub struct LayoutBuilder {
    at: u64,
}

impl LayoutBuilder {
    /// Places the next column.
    pub fn push(&mut self, datum: Datum) -> Field {
        let offset = self.at.next_multiple_of(u64::from(datum.align()));
        self.at = offset + u64::from(datum.size());
        Field { offset: u32::try_from(offset).unwrap_or(u32::MAX), datum }
    }

    /// Places the next column of a *key*. Keys are whole 64-bit words, so that programs compare and
    /// hash them by words. A shorter column is zero-padded to a word (an int is stored
    /// zero-extended in its `size` bytes).
    pub fn push_key(&mut self, datum: Datum) -> Field {
        self.at = self.at.next_multiple_of(8);
        let field = self.push(datum);
        self.at = self.at.next_multiple_of(8);
        field
    }

    /// Total bytes, rounded up to 8; at most the greatest such number of 32 bits, which is beyond
    /// every limit.
    pub fn size(&self) -> u32 {
        u32::try_from(self.at.next_multiple_of(8)).unwrap_or(u32::MAX - 7)
    }
}

/// Index of an aggregation of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AggId(pub u32);

/// An aggregating function, with the words of its value (64 bits each, in this order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggFunc {
    /// `count()`: one word.
    Count,
    /// `sum(e)`: one word, wraps.
    Sum,
    /// `min(e)`: one word, starts at `i64::MAX`.
    Min,
    /// `max(e)`: one word, starts at `i64::MIN`.
    Max,
    /// `avg(e)`: count, sum.
    Avg,
    /// `stddev(e)`: count, sum, low and high word of the sum of squares.
    Stddev,
    /// `quantize(e[, incr])`: 127 buckets, bucket 63 is zero.
    Quantize,
    /// `lquantize(e, base, limit, step[, incr])`: underflow, levels, overflow.
    Lquantize {
        /// Lower bound of the first level.
        base: i32,
        /// Upper bound.
        limit: i32,
        /// Width of a level.
        step: u16,
    },
    /// `llquantize(e, factor, low, high, nsteps[, incr])`.
    Llquantize {
        /// Base of the logarithm.
        factor: u16,
        /// Least magnitude.
        low: u16,
        /// Greatest magnitude.
        high: u16,
        /// Linear steps a magnitude.
        nsteps: u16,
    },
}

/// Buckets of a quantize value.
pub const QUANTIZE_BUCKETS: u32 = 127;
/// The bucket of zero.
pub const QUANTIZE_ZERO: u32 = 63;

/// The quantize bucket of a value: zero in bucket 63, `2^k ..= 2^(k+1)-1` in 64 + k, and negative
/// values mirrored in 62 - k. Values below `-2^62` share bucket 0.
pub fn quantize_bucket(value: i64) -> usize {
    let zero = QUANTIZE_ZERO as usize;
    let magnitude = value.unsigned_abs();
    match (magnitude.checked_ilog2(), value < 0) {
        (None, _) => zero,
        (Some(k), false) => zero + 1 + k as usize,
        (Some(k), true) => (zero - 1).saturating_sub(k as usize),
    }
}

impl AggFunc {
    /// Bytes of one value.
    pub fn value_size(self) -> u32 {
        8 * match self {
            AggFunc::Count | AggFunc::Sum | AggFunc::Min | AggFunc::Max => 1,
            AggFunc::Avg => 2,
            AggFunc::Stddev => 4,
            AggFunc::Quantize => QUANTIZE_BUCKETS,
            AggFunc::Lquantize { base, limit, step } => {
                (limit.wrapping_sub(base) as u32) / u32::from(step.max(1)) + 2
            }
            AggFunc::Llquantize { low, high, nsteps, .. } => {
                u32::from(high.saturating_sub(low) + 1) * u32::from(nsteps) + 2
            }
        }
    }

    /// The value of each word before the first sample.
    pub fn initial_word(self) -> u64 {
        match self {
            AggFunc::Min => i64::MAX as u64,
            AggFunc::Max => i64::MIN as u64,
            _ => 0,
        }
    }

    /// The name in D.
    pub fn name(self) -> &'static str {
        match self {
            AggFunc::Count => "count",
            AggFunc::Sum => "sum",
            AggFunc::Min => "min",
            AggFunc::Max => "max",
            AggFunc::Avg => "avg",
            AggFunc::Stddev => "stddev",
            AggFunc::Quantize => "quantize",
            AggFunc::Lquantize { .. } => "lquantize",
            AggFunc::Llquantize { .. } => "llquantize",
        }
    }
}

/// An aggregation of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggDesc {
    /// Its name without `@`; `_` for the bare `@`.
    pub name: String,
    /// Its function.
    pub func: AggFunc,
    /// Columns of the key in order; empty for a single value.
    pub key: Vec<Field>,
    /// Bytes of the key, a multiple of 8; 0 when there is none.
    pub key_size: u32,
}

/// One action of the consumer for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `trace(e)`; `sym()` and the like as statements; `stack()`, `ustack()`: print the field in
    /// its default form.
    Trace(Field),
    /// `print(e)`: the field by its type.
    Print(Field, Arc<Shape>),
    /// `tracemem`: always a hexdump of the first `len` (a field, or all) bytes.
    Tracemem {
        /// The bytes.
        bytes: Field,
        /// Run-time length, where given.
        len: Option<Field>,
    },
    /// `pcap(skb, protocol)`: a packet goes to the file of `freopen()`, or is printed as a hexdump.
    Pcap {
        /// The packet: see [`crate::packet`].
        packet: Field,
        /// Its link type, a 4-byte int.
        protocol: Field,
        /// When it was recorded: 8 bytes, nanoseconds since 1970.
        time: Field,
    },
    /// `printf(format, ...)`.
    Printf {
        /// The literal format, escapes resolved.
        format: String,
        /// One field an argument.
        args: Vec<Field>,
    },
    /// `printa([format,] @a, ...)`.
    Printa {
        /// The literal format; `None` prints the default form.
        format: Option<String>,
        /// The aggregations.
        aggs: Vec<AggId>,
    },
    /// `clear(@a)`.
    Clear(AggId),
    /// `trunc(@a[, n])`; the field is a signed count.
    Trunc(AggId, Option<Field>),
    /// `normalize(@a, v)`.
    Normalize(AggId, Field),
    /// `denormalize(@a)`.
    Denormalize(AggId),
    /// `exit(status)`: a 4-byte int.
    Exit(Field),
    /// `snap(reason)`: a string. A session that captures writes what its rings have.
    Snap(Field),
    /// `system(format, ...)`: the consumer runs a command.
    System {
        /// The literal format, escapes resolved.
        format: String,
        /// One field an argument.
        args: Vec<Field>,
    },
    /// `freopen(format, ...)`: output goes to the end of a file.
    Freopen {
        /// The literal format, escapes resolved; `None` gives the first output back
        /// (`freopen("")`).
        format: Option<String>,
        /// One field an argument.
        args: Vec<Field>,
    },
    /// `ftruncate()`: the output, if it is a file, becomes empty.
    Ftruncate,
    /// `setopt(name[, value])`: changes an option of the running session.
    Setopt {
        /// A string.
        name: Field,
        /// A string.
        value: Option<Field>,
    },
    /// The default action of an empty clause: only the header line.
    None,
}

/// The record of one clause: its size and the actions of the consumer.
///
/// A clause that records nothing (only assignments, only aggregations) has no record and no
/// [`RecordDesc`]. An empty clause has one with the single action [`Action::None`] and no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordDesc {
    /// Bytes of data after the header, a multiple of 8.
    pub size: u32,
    /// In program order.
    pub actions: Vec<Action>,
    /// The ids of process and thread, in sessions that record them.
    pub process: Option<ProcessFields>,
}

impl RecordDesc {
    /// True if `exit()` is one of the actions.
    pub fn exits(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Exit(_)))
    }

    /// True if `snap()` is one of the actions.
    pub fn snaps(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Snap(_)))
    }
}

/// The fields of a record with the ids of the process and the thread that fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessFields {
    /// The process: `pid`.
    pub pid: Field,
    /// The thread: `tid`.
    pub tid: Field,
}

impl ProcessFields {
    /// The type of both.
    pub const ID: Datum = Datum::Int { size: 4, signed: true };
}

/// Faults of D programs (`DTRACEFLT_*`), with their numbers.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FaultKind {
    Unknown = 0,
    BadAddr = 1,
    BadAlign = 2,
    IllegalOp = 3,
    DivZero = 4,
    NoScratch = 5,
    KernelPrivilege = 6,
    UserPrivilege = 7,
    TupleOverflow = 8,
    BadStack = 9,
    BadSize = 10,
    BadIndex = 11,
    Library = 1000,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [FaultKind; 13] = [
        FaultKind::Unknown,
        FaultKind::BadAddr,
        FaultKind::BadAlign,
        FaultKind::IllegalOp,
        FaultKind::DivZero,
        FaultKind::NoScratch,
        FaultKind::KernelPrivilege,
        FaultKind::UserPrivilege,
        FaultKind::TupleOverflow,
        FaultKind::BadStack,
        FaultKind::BadSize,
        FaultKind::BadIndex,
        FaultKind::Library,
    ];

    /// The kind of a number; unknown numbers are [`FaultKind::Unknown`].
    pub fn from_code(code: u64) -> FaultKind {
        FaultKind::ALL.into_iter().find(|k| *k as u64 == code).unwrap_or(FaultKind::Unknown)
    }

    /// DTrace's text for it; `value` is the address or the offending value.
    pub fn text(self, value: u64) -> String {
        match self {
            FaultKind::Unknown => "unknown fault".into(),
            FaultKind::BadAddr => format!("invalid address (0x{value:x})"),
            FaultKind::BadAlign => format!("invalid alignment (0x{value:x})"),
            FaultKind::IllegalOp => "illegal operation".into(),
            FaultKind::DivZero => "divide-by-zero".into(),
            FaultKind::NoScratch => "out of scratch space".into(),
            FaultKind::KernelPrivilege => "invalid kernel access".into(),
            FaultKind::UserPrivilege => "invalid user access".into(),
            FaultKind::TupleOverflow => "tuple stack overflow".into(),
            FaultKind::BadStack => format!("bad stack (0x{value:x})"),
            FaultKind::BadSize => format!("invalid size ({value})"),
            FaultKind::BadIndex => format!("index out of bounds ({})", value as i64),
            FaultKind::Library => "library-level fault".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_any_size_are_laid_out_and_a_layout_beyond_32_bits_is_as_long_as_possible() {
        let mut layout = LayoutBuilder::default();
        let bytes = |size| Datum::Bytes { size };
        assert_eq!(layout.push(bytes(3)).offset, 0);
        assert_eq!(layout.push(Datum::Int { size: 8, signed: true }).offset, 8);
        assert_eq!(layout.push(bytes(u32::MAX)).offset, 16);
        assert_eq!(layout.push_key(Datum::Interned).offset, u32::MAX);
        for _ in 0..1000 {
            layout.push_key(bytes(u32::MAX));
        }
        assert_eq!(layout.size(), u32::MAX - 7);
    }

    #[test]
    fn quantize_buckets_are_powers_of_two_mirrored_at_zero() {
        for (value, bucket) in [
            (0, 63),
            (1, 64),
            (2, 65),
            (3, 65),
            (4, 66),
            (i64::MAX, 126),
            (-1, 62),
            (-2, 61),
            (-3, 61),
            (-4, 60),
            (-(1 << 62), 0),
            (i64::MIN, 0),
        ] {
            assert_eq!(quantize_bucket(value), bucket, "{value}");
        }
    }
}
