//! The distributions of `quantize()`, `lquantize()` and `llquantize()`.
//!
//! One routine prints all three. They differ only in the names of their buckets and in the rows of
//! an empty distribution.

use events::{AggFunc, AggValue, Bucket, buckets, normalized};
use plane::desc::QUANTIZE_ZERO;

use crate::options::{Encoding, Options};
use crate::pad::{Field, fill, signed, string, up_to};

/// Columns of a bar.
const COLUMNS: usize = 40;
/// With `aggzoom` the tallest bar fills this part of its columns.
const ZOOM: f64 = 0.95;

/// The heading of the bars; the heading of the key or value precedes it.
pub(super) const HEADING: &str = "  ------------- Distribution ------------- count    \n";

/// The scale of all bars of one distribution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    total: f64,
    positives: bool,
    negatives: bool,
    utf8: bool,
}

impl Scale {
    /// The scale of the printed counts.
    pub(super) fn new(counts: impl Iterator<Item = i64> + Clone, options: &Options) -> Self {
        let heights = counts.clone().map(|c| c.unsigned_abs() as f64);
        Scale {
            total: if options.aggzoom {
                heights.fold(0.0, |tallest: f64, h| tallest.max(h / ZOOM))
            } else {
                heights.sum()
            },
            positives: counts.clone().any(|c| c > 0),
            negatives: counts.clone().any(|c| c < 0),
            utf8: options.encoding == Encoding::Utf8,
        }
    }

    /// The same with an integer total, as in the original for counts and sums.
    pub(super) fn whole(self) -> Self {
        Scale { total: self.total.trunc(), ..self }
    }

    /// The length of a count's bar in columns, with a fraction.
    pub(super) fn exact(&self, count: i64, columns: usize) -> f64 {
        if self.total > 0.0 { count.unsigned_abs() as f64 * columns as f64 / self.total } else { 0.0 }
    }

    fn filled(&self, count: i64, columns: usize) -> usize {
        ((self.exact(count, columns) + 0.5) as usize).min(columns)
    }

    /// Prints the bar, the axis and the count. If all counts have one sign, the axis is at the side
    /// where bars start; otherwise it is in the middle.
    pub(super) fn line(&self, out: &mut Vec<u8>, count: i64, normal: u64) {
        match (self.positives, self.negatives) {
            (true, false) if self.utf8 => self.blocks(out, count),
            (_, false) => {
                out.push(b'|');
                let filled = self.filled(count, COLUMNS);
                fill(out, b'@', filled);
                fill(out, b' ', COLUMNS - filled);
            }
            (false, true) => {
                let filled = self.filled(count, COLUMNS);
                fill(out, b' ', COLUMNS - filled);
                fill(out, b'@', filled);
                out.push(b'|');
            }
            (true, true) => {
                let half = COLUMNS / 2;
                let filled = self.filled(count, half);
                if count <= 0 {
                    fill(out, b' ', half - filled);
                    fill(out, b'@', filled);
                    out.push(b'|');
                    fill(out, b' ', half);
                } else {
                    fill(out, b' ', half);
                    out.push(b'|');
                    fill(out, b'@', filled);
                    fill(out, b' ', half - filled);
                }
            }
        }
        out.push(b' ');
        signed(out, normalized(count, normal), Field::left(9));
        out.push(b'\n');
    }

    /// Block elements in eighths of a column.
    fn blocks(&self, out: &mut Vec<u8>, count: i64) {
        let exact = self.exact(count, COLUMNS).min(COLUMNS as f64);
        let mut filled = exact as usize;
        let eighths = ((exact - filled as f64) * 8.0) as u32;
        out.push(b'|');
        for _ in 0..filled {
            out.extend_from_slice("\u{2588}".as_bytes());
        }
        // U+258F is one eighth, U+2589 seven.
        if let Some(part) = (eighths > 0).then(|| char::from_u32(0x2590 - eighths)).flatten() {
            out.extend_from_slice(part.encode_utf8(&mut [0; 4]).as_bytes());
            filled += 1;
        }
        fill(out, b' ', COLUMNS - filled);
    }
}

/// The printed buckets: from one before the first that is not empty to one after the last. If all
/// are empty, the buckets that the original prints.
fn shown(func: AggFunc, words: &[u64]) -> std::ops::RangeInclusive<usize> {
    let last = words.len().saturating_sub(1);
    let first_used = words.iter().position(|w| *w != 0);
    let last_used = words.iter().rposition(|w| *w != 0);
    match (first_used, last_used) {
        (Some(from), Some(to)) => from.saturating_sub(1)..=(to + 1).min(last),
        _ => match func {
            AggFunc::Quantize => QUANTIZE_ZERO as usize - 1..=QUANTIZE_ZERO as usize + 1,
            AggFunc::Lquantize { .. } => 0..=2.min(last),
            _ => 0..=1.min(last),
        },
    }
}

/// Prints a newline, a header and a line per bucket.
pub(super) fn distribution(out: &mut Vec<u8>, value: &AggValue<'_>, options: &Options) {
    out.push(b'\n');
    string(out, b"value", Field::right(16));
    out.extend_from_slice(HEADING.as_bytes());

    let buckets = buckets(value.function);
    // A layout may have more words than buckets; the others are not counted.
    let words = up_to(&value.words, buckets.len());
    let range = shown(value.function, words);
    let count = |i: usize| words.get(i).map_or(0, |w| *w as i64);
    let scale = Scale::new(range.clone().map(count), options);
    for i in range {
        match buckets.get(i) {
            Some(Bucket::From(bound)) => signed(out, *bound, Field::right(16)),
            Some(bucket) => string(out, bucket.to_string().as_bytes(), Field::right(16)),
            None => continue,
        }
        out.push(b' ');
        scale.line(out, count(i), value.normal);
    }
}
