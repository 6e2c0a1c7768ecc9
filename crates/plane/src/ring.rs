//! Records: one ring per CPU index, written by programs and drained by the consumer.
//!
//! A ring has `size` bytes (a power of two). Positions are byte counts that only increase; a
//! position is at offset `position & (size - 1)` of the ring. To record, a program *reserves* space
//! by compare-exchange on the CPU's reserve position, writes, and *commits* by an exchange of the
//! first word of the header. Reserving never waits and never overwrites. A program that is
//! interrupted between the two steps leaves an uncommitted record, and the consumer stops before
//! it. The key decision: the consumer trusts only the commit word, and that word is a stamp computed
//! from the position of the record. So no word of a previous lap can be mistaken for it. Besides,
//! the consumer zeroes records before it returns their space. So no *data* of a previous lap can be
//! seen either, and padding is always zero.
//!
//! ```text
//!  header, 24 bytes                                   commit word
//!   +0  commit  u64  0 until committed                 63            24 23  22        0
//!   +8  time    u64  the firing's clock, monotonic ns [ position / 8   |PAD| length / 8 ]
//!   +16 epid    u32
//!   +20 cpu     u16  the real CPU, not the index       length includes the header
//!   +22 flags   u16
//!   +24 data         a multiple of 8 bytes
//!
//!        consumed            end of the drained part         reserve
//!           v                        v                          v
//!  ─────────┬────────┬───────────────┬─────────┬────────────────┬──────────
//!   (zero)  │ record │ record        │ record  │ record         │ (zero)
//!           │ stamp  │ stamp         │ 0: not  │ stamp          │
//!           │        │               │ yet     │                │
//!  ─────────┴────────┴───────────────┴─────────┴────────────────┴──────────
//! ```
//!
//! A record never straddles the end of the ring. If it does not fit before the end, the writer also
//! reserves the rest and fills it with a pad. A pad is only a commit word, because the rest may be
//! as short as 8 bytes. So a ring is at least twice as long as its longest record; in a shorter
//! ring a record may not fit although the ring is empty.
//!
//! A full ring is a principal drop, counted on that CPU. Other buffer policies and speculation have
//! reserved space: record flags, and an (id, generation) word that [`flags::SPECULATIVE`] puts
//! first in the data.

/// Bytes of a record's header.
pub const HEADER_SIZE: u32 = 24;
/// Offset of the commit word in a record.
pub const COMMIT: u32 = 0;
/// Offset of the time in a record.
pub const TIME: u32 = 8;
/// Offset of the word that holds epid, CPU and flags.
pub const ORIGIN: u32 = 16;
/// Offset of the flags (u16) in a record.
pub const FLAGS: u32 = 22;
/// The smallest ring.
pub const RING_MIN: u32 = 4096;
/// The longest record, including the header: the limit of the length field of the commit word.
pub const RECORD_MAX: u32 = ((1 << 23) - 1) * 8;

/// Bits of a record's flags.
pub mod flags {
    /// The clause faulted after its reservation; the record is ignored.
    pub const DISCARD: u16 = 1;
    /// The data is a [`super::Fault`]; the epid is that of the clause that faulted.
    pub const FAULT: u16 = 2;
    /// Reserved: the data begins with a word id | generation << 32.
    pub const SPECULATIVE: u16 = 4;
    /// The bits from this one on are the low bits of the thread id, in sessions that need it
    /// ([`thread`]).
    pub const THREAD: u32 = 3;

    /// The low bits of the thread id, from the flags; 0 if there are none.
    pub const fn thread(flags: u16) -> u16 {
        flags >> THREAD
    }
}

/// The bit of a commit word that marks a pad.
pub const PAD: u64 = 1 << 23;

/// Bytes of a fault record's data.
pub const FAULT_SIZE: u32 = 16;

/// The commit word of a record of `length` bytes (header included) at `position`; both multiples of
/// 8.
pub const fn stamp(position: u64, length: u32) -> u64 {
    position << 21 | (length as u64) >> 3
}

/// Decodes a commit word if it belongs to `position`: the length in bytes, and whether it is a pad.
pub const fn read_stamp(word: u64, position: u64) -> Option<(u32, bool)> {
    let length = ((word & (PAD - 1)) << 3) as u32;
    if length != 0 && word >> 24 == (position << 21) >> 24 { Some((length, word & PAD != 0)) } else { None }
}

/// The origin word of a header.
pub const fn origin(epid: u32, cpu: u16, flags: u16) -> u64 {
    epid as u64 | (cpu as u64) << 32 | (flags as u64) << 48
}

/// The largest ring: the kernel refuses variable offsets of 2^29 and more (`BPF_MAX_VAR_OFF`).
pub const RING_MAX: u32 = 1 << 28;

/// The size of a ring for `bytes` asked for: the power of two not below it, from [`RING_MIN`] to
/// [`RING_MAX`].
pub fn ring_size(bytes: u64) -> u32 {
    bytes.clamp(u64::from(RING_MIN), u64::from(RING_MAX)).next_power_of_two() as u32
}

/// Data of a fault record.
///
/// ```text
///  +0 kind u16   +2 action u16   +4 offset u32   +8 value u64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// [`crate::desc::FaultKind`]'s number.
    pub kind: u16,
    /// The action, 0 for the predicate.
    pub action: u16,
    /// DIF offset.
    pub offset: u32,
    /// Address or offending value.
    pub value: u64,
}

impl Fault {
    /// Reads the data of a fault record; `None` if it is too short.
    pub fn read(data: &[u8]) -> Option<Fault> {
        let word = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?));
        let (head, value) = (word(0)?, word(8)?);
        Some(Fault { kind: head as u16, action: (head >> 16) as u16, offset: (head >> 32) as u32, value })
    }

    /// The first word of its data.
    pub const fn head(kind: u16, action: u16, offset: u32) -> u64 {
        kind as u64 | (action as u64) << 16 | (offset as u64) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_valid_only_at_its_position() {
        let word = stamp(0x1234_5678, 48);
        assert_eq!(read_stamp(word, 0x1234_5678), Some((48, false)));
        assert_eq!(read_stamp(word, 0x1234_5678 + 4096), None);
        assert_eq!(read_stamp(0, 0), None);
        assert_eq!(read_stamp(stamp(8, 16) | PAD, 8), Some((16, true)));
        // The longest length does not touch the pad bit.
        assert_eq!(read_stamp(stamp(64, RECORD_MAX), 64), Some((RECORD_MAX, false)));
    }

    #[test]
    fn ring_sizes_are_rounded_up_to_powers_of_two() {
        assert_eq!(ring_size(4 << 20), 4 << 20);
        assert_eq!(ring_size((4 << 20) - 1), 4 << 20);
        assert_eq!(ring_size(0), RING_MIN);
        assert_eq!(ring_size(u64::MAX), RING_MAX);
    }
}
