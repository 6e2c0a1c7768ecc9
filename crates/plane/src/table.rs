//! Aggregations: hash tables with open addressing, one per CPU index and epoch.
//!
//! The map of an aggregation holds `2 * n` tables: those of even epochs for all CPU indices, then
//! those of odd epochs. A program updates the table of (epoch & 1, its CPU index). The consumer
//! advances the epoch, waits until no program can still use the old side, merges that side into its
//! own table and zeroes it. So keys leave the kernel, and a snapshot loses nothing. The key
//! decision: *every word of an empty table is zero*, including the values. `min` and `max` are
//! stored in a form in which 0 means "no data" and the greater unsigned word wins ([`to_stored`]).
//! So a slot needs no initial value, a keyless aggregation needs no claim, and emptying is zeroing.
//!
//! ```text
//!  table                                        slot (stride bytes)
//!    0  claimed   slots ever claimed              +0  state   0 EMPTY, 1 BUSY, else the key's tag
//!   64  slot 0                                                (hash | 2)
//!       slot 1 …  (a power of two)                +8  key     key_size bytes, whole words
//!                                                  …  value   value_size bytes
//!
//!  EMPTY ──compare-exchange──> BUSY ──key written, exchange──> tag      (only the consumer resets)
//! ```
//!
//! A program that finds a BUSY slot or another key tries the next slot. So a key may occur twice;
//! the consumer merges by key anyway. Probing is bounded by [`PROBES`]; finding no slot is a
//! counted aggregation drop. A keyless aggregation has one slot per table. Its state becomes 1 with
//! the first sample, unless the value itself shows that there is one.

use crate::desc::AggFunc;

/// Bytes before the first slot.
pub const TABLE_HEADER: u32 = 64;
/// Offset of the count of claimed slots.
pub const CLAIMED: u32 = 0;
/// Offset of a slot's state.
pub const STATE: u32 = 0;
/// Offset of a slot's key.
pub const KEY: u32 = 8;
/// Slot state: free.
pub const EMPTY: u64 = 0;
/// Slot state: the key is being written. Also "has data" of a keyless slot.
pub const BUSY: u64 = 1;
/// Slots that are tried before the aggregation is dropped. Step `i` advances by `i` slots.
pub const PROBES: u32 = 24;
/// The multiplier of the hash (2^64 / golden ratio, odd).
pub const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// The largest map value that kernels before 6.7 allow, in bytes (their largest contiguous
/// allocation).
pub const VALUE_MAX_OLD: u64 = 4 << 20;
/// The most bytes of a table. The verifier accepts offsets below 2^29.
pub const TABLE_MAX: u64 = 1 << 28;

/// The hash of a key's words. Its high bits select the slot; the tag is all of it.
pub fn hash(words: &[u64]) -> u64 {
    let mut h: u64 = 0;
    for (i, &w) in words.iter().enumerate() {
        if i > 0 {
            h ^= h >> 32;
        }
        h = (h ^ w).wrapping_mul(HASH_MULTIPLIER);
    }
    h
}

/// The tag of a hash: never EMPTY or BUSY.
pub const fn tag(hash: u64) -> u64 {
    hash | 2
}

/// The layout of an aggregation's tables, slots and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableShape {
    /// Bytes of the key; 0 when there is none.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Bytes per slot.
    pub stride: u32,
    /// log2 of the slots of a table.
    pub slots_log2: u32,
    /// Bytes per table.
    pub table_size: u32,
}

impl TableShape {
    /// The shape of a table of at most `bytes` bytes (at least one slot).
    pub fn new(func: AggFunc, key_size: u32, bytes: u64) -> TableShape {
        let value_size = func.value_size();
        let stride = KEY + key_size + value_size;
        let slots_log2 = if key_size == 0 {
            0
        } else {
            let fit = bytes.min(TABLE_MAX).saturating_sub(u64::from(TABLE_HEADER)) / u64::from(stride);
            fit.max(1).ilog2()
        };
        let table_size = (TABLE_HEADER + (stride << slots_log2)).div_ceil(64) * 64;
        TableShape { key_size, value_size, stride, slots_log2, table_size }
    }

    /// Slots of a table.
    pub fn slots(self) -> u32 {
        1 << self.slots_log2
    }

    /// Offset of a slot in its table.
    pub fn slot(self, index: u32) -> u32 {
        TABLE_HEADER + index * self.stride
    }

    /// Offset of the value in a slot.
    pub fn value(self) -> u32 {
        KEY + self.key_size
    }

    /// The table of a CPU index on a side (epoch & 1), when there are `n` CPU indices.
    pub fn table_index(side: u32, cpu: u32, n: u32) -> u32 {
        (side & 1) * n + cpu
    }

    /// Bytes of all tables.
    pub fn total(self, n: u32) -> u64 {
        2 * u64::from(n) * u64::from(self.table_size)
    }
}

/// True if the value of a keyless slot shows whether there is data: it has a count.
pub fn shows_itself(func: AggFunc) -> bool {
    matches!(func, AggFunc::Count | AggFunc::Avg | AggFunc::Stddev)
}

/// The stored form of a `min` or `max` sample: 0 is the worst value, and the greater unsigned word
/// wins. Other functions store their words unchanged.
pub fn to_stored(func: AggFunc, value: i64) -> u64 {
    match func {
        AggFunc::Min => (i64::MAX as u64).wrapping_sub(value as u64),
        AggFunc::Max => (value as u64) ^ (1 << 63),
        _ => value as u64,
    }
}

/// The inverse of [`to_stored`].
pub fn from_stored(func: AggFunc, word: u64) -> u64 {
    match func {
        AggFunc::Min => (i64::MAX as u64).wrapping_sub(word),
        AggFunc::Max => word ^ (1 << 63),
        _ => word,
    }
}

/// Adds value `from` to `into`; both in the words of [`crate::desc::AggFunc`].
pub fn merge(func: AggFunc, into: &mut [u64], from: &[u64]) {
    match func {
        AggFunc::Min | AggFunc::Max => {
            for (a, &b) in into.iter_mut().zip(from) {
                let b_wins = if func == AggFunc::Min { (b as i64) < *a as i64 } else { b as i64 > *a as i64 };
                if b_wins {
                    *a = b;
                }
            }
        }
        AggFunc::Stddev => {
            if let ([n, sum, low, high], &[n2, sum2, low2, high2]) = (into, from) {
                *n = n.wrapping_add(n2);
                *sum = sum.wrapping_add(sum2);
                let (l, carry) = low.overflowing_add(low2);
                *low = l;
                *high = high.wrapping_add(high2).wrapping_add(u64::from(carry));
            }
        }
        _ => {
            for (a, &b) in into.iter_mut().zip(from) {
                *a = a.wrapping_add(b);
            }
        }
    }
}

/// A magnitude of `llquantize`: values from `from` up to `below` fall into buckets of `width`, the
/// first of which is `first`; `after` is the first bucket beyond.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStep {
    pub from: i64,
    pub below: i64,
    pub width: i64,
    pub first: u32,
    pub after: u32,
}

/// The magnitudes of an `llquantize`, ascending; the first is everything below the lowest. Stops
/// where 64 bits end. Empty for other functions.
pub fn llquantize_steps(func: AggFunc) -> Vec<LogStep> {
    let AggFunc::Llquantize { factor, low, high, nsteps } = func else { return Vec::new() };
    let (factor, nsteps) = (i64::from(factor.max(2)), i64::from(nsteps.max(1)));
    let Some(mut last) = factor.checked_pow(u32::from(low)) else { return Vec::new() };
    let mut first = 1;
    let mut steps = vec![LogStep { from: i64::MIN, below: last, width: 1, first: 0, after: first }];
    for _ in low..=high {
        let Some(this) = last.checked_mul(factor) else { break };
        let buckets = this.min(nsteps);
        let after = first + (buckets - buckets / factor) as u32;
        // A magnitude begins where the last one ended, which is `buckets / factor` steps into it.
        steps.push(LogStep { from: last, below: this, width: this / buckets, first, after });
        first = after;
        last = this;
    }
    steps
}

/// The bucket of a value in `llquantize`; 0 for other functions.
pub fn llquantize_bucket(func: AggFunc, value: i64) -> u32 {
    let steps = llquantize_steps(func);
    match steps.iter().enumerate().find(|(_, s)| value < s.below) {
        Some((0, _)) => 0,
        Some((_, s)) => s.first + ((value - s.from) / s.width) as u32,
        None => steps.last().map_or(0, |s| s.after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_extremes_keep_their_order_and_start_at_zero() {
        let samples = [i64::MIN, -5, -1, 0, 1, 7, i64::MAX];
        for pair in samples.windows(2) {
            assert!(to_stored(AggFunc::Max, pair[0]) < to_stored(AggFunc::Max, pair[1]));
            assert!(to_stored(AggFunc::Min, pair[0]) > to_stored(AggFunc::Min, pair[1]));
        }
        for func in [AggFunc::Min, AggFunc::Max] {
            assert_eq!(from_stored(func, 0), func.initial_word());
            for v in samples {
                assert_eq!(from_stored(func, to_stored(func, v)), v as u64);
            }
        }
    }

    #[test]
    fn a_table_fits_its_size_limit() {
        for key_size in [0, 8, 16, 264] {
            for func in [AggFunc::Count, AggFunc::Stddev, AggFunc::Quantize] {
                let s = TableShape::new(func, key_size, 2 << 20);
                assert!(u64::from(s.table_size) <= (2 << 20) + 64 || s.slots() == 1);
                assert_eq!(s.table_size % 64, 0);
                assert!(s.slot(s.slots() - 1) + s.stride <= s.table_size);
            }
        }
        assert_eq!(TableShape::new(AggFunc::Count, 16, 2 << 20).slots(), 32768);
        assert_eq!(TableShape::new(AggFunc::Count, 8, 64 << 20).slots(), 1 << 21);
        assert!(u64::from(TableShape::new(AggFunc::Count, 8, u64::MAX).table_size) <= TABLE_MAX);
    }

    #[test]
    fn llquantize_buckets_are_linear_within_a_magnitude() {
        // llquantize(e, 10, 0, 2, 10): below 1, 1..9 by 1, 10..90 by 10, 100..900 by 100, 1000 and
        // above.
        let func = AggFunc::Llquantize { factor: 10, low: 0, high: 2, nsteps: 10 };
        for (value, bucket) in [
            (-5, 0),
            (0, 0),
            (1, 1),
            (9, 9),
            (10, 10),
            (19, 10),
            (20, 11),
            (99, 18),
            (100, 19),
            (999, 27),
            (1000, 28),
        ] {
            assert_eq!(llquantize_bucket(func, value), bucket, "{value}");
        }
        assert!(28 < func.value_size() / 8);
    }

    #[test]
    fn squares_carry_into_the_high_word() {
        let mut into = [1, 5, u64::MAX, 0];
        merge(AggFunc::Stddev, &mut into, &[1, 2, 1, 0]);
        assert_eq!(into, [2, 7, 0, 1]);
    }
}
