//! Policy ring: rings that keep the newest records.
//!
//! A ring by policy switch is never moved over what was not read, so a writer that is delayed for
//! long keeps its space. Here records are overwritten, and the delayed writer is the danger: it
//! would write into records of the next lap. So a ring is divided into [`SEGMENTS`], and each
//! segment has a count of the writers that are in the middle of a record there. A segment whose
//! count is not zero is not entered for another lap; a record that would have to is dropped and
//! counted. The key decision: *the counts and the reserve position are one word*. One
//! compare-exchange reserves, counts the writer, and has checked the count of a segment that it
//! enters. So there is no moment at which a writer has space and is not counted, nor one at which
//! it is counted without space.
//!
//! ```text
//!  the word at RESERVE    63                              32 31   28        7    4 3    0
//!                        [ reserve position / 8, mod 2^32   | count 7 | … | count 1 | count 0 ]
//!
//!  a ring of 8 segments        entered last                the oldest
//!                                   v                           v
//!   ┌───────────┬───────────┬───────────────────┬───────────┬───────────┬──  ──┐
//!   │ rec │ rec │ rec │pad  │ rec │ rec │ older…│ rec │ pad │ rec │ rec │  …   │
//!   └───────────┴───────────┴─────────────────^─┴───────────┴───────────┴──  ──┘
//!                                     reserve position
//!
//!  reserve   load the word
//!            the record fits into the rest of the segment:  its start is the position
//!            else, or at the start of a segment:            its start is the next segment, whose
//!                                                           count must be 0 (else: a drop)
//!            compare-exchange: position = end of the record, count of its segment + 1,
//!                              and count of the segment before + 1 if its rest gets a pad
//!            write the pad; subtract 1 from the count of the segment before
//!            zero the data, write the record, commit by an exchange of its stamp
//!  release   subtract 1 from the count of the record's segment
//! ```
//!
//! Headers, stamps and pads are those of [`crate::ring`]. A record is in one segment, and a ring
//! has at least [`SEGMENTS`] times the bytes of its longest record. A whole segment becomes free at
//! once, so a full ring has between seven and eight of its segments.
//!
//! The word comes back to an earlier value after 32 GiB of records. A compare-exchange that
//! succeeds only then is as good as one that succeeds at once, because everything it depends on is
//! in the word. A count has four bits: a sixteenth writer in one segment is a drop.
//!
//! **No reader while programs run.** The consumer reads the ring when tracing has ended, after the
//! grace period ([`crate::read::RingReader::take_newest`]). No count is above zero then, every
//! record is committed, and nothing moves. END writes behind that: what it records is read next,
//! and it overwrites only what was read. Memory is not zeroed between laps, so a writer zeroes the
//! data of its record.

/// Segments of a ring.
pub const SEGMENTS: u32 = 8;
/// Position of the reserve position in the word at RESERVE.
pub const POSITION: u32 = 32;
/// Bits of the count of a segment.
pub const COUNT_BITS: u32 = POSITION / SEGMENTS;
/// The most writers in a segment.
pub const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

/// The least bytes of a ring whose longest record has so many, its header included: a segment for
/// it.
pub fn least_ring(longest: u64) -> u64 {
    u64::from(SEGMENTS) * longest.next_power_of_two()
}

/// The reserve position in the word at RESERVE, in bytes. It repeats after 2^35.
pub const fn position(word: u64) -> u64 {
    (word >> POSITION) << 3
}

/// `from - to` for positions.
pub const fn distance(from: u64, to: u64) -> u64 {
    from.wrapping_sub(to) & ((1 << (POSITION + 3)) - 1)
}

/// The position of the oldest record that a ring of `size` bytes and so many segments still has.
pub const fn oldest(end: u64, size: u64, segments: u32) -> u64 {
    // A segment is entered when its first record is reserved.
    distance(end.next_multiple_of(size / segments as u64), size)
}

/// The lowest bit of the count of a segment.
pub const fn unit(segment: u32) -> u64 {
    1 << (COUNT_BITS * segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_record_is_seven_segments_before_the_one_that_was_entered_last() {
        assert_eq!(oldest(4096, 4096, SEGMENTS), 0);
        assert_eq!(oldest(4096 + 8, 4096, SEGMENTS), 512);
        assert_eq!(oldest(4096 + 512, 4096, SEGMENTS), 512);
        // The first lap of all has nothing before its start.
        assert_eq!(distance(8, oldest(8, 4096, SEGMENTS)), 4096 - 512 + 8);
        assert_eq!(position(u64::MAX), (1 << 35) - 8);
        assert_eq!((0..SEGMENTS).map(|s| unit(s) * u64::from(COUNT_MAX)).sum::<u64>(), u64::from(u32::MAX));
    }
}
