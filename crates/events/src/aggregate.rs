//! The value of an aggregation: the printed number, and the buckets of a distribution.
//!
//! The words of a value are those of [`AggFunc`]. All arithmetic on them that determines what is
//! printed is here, so that every reader of events computes the same numbers.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use plane::desc::{AggFunc, QUANTIZE_BUCKETS, QUANTIZE_ZERO};

/// An aggregation whose values are in a column of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Its name without `@`; `_` for the bare `@`.
    pub name: Cow<'a, str>,
    /// Its function, with the parameters.
    pub function: AggFunc,
}

impl Column<'_> {
    /// Its name as a program has it: with `@`, and `@` alone for the bare one.
    pub fn title(&self) -> String {
        if self.name == "_" { "@".into() } else { format!("@{}", self.name) }
    }
}

/// The value of one aggregation for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggValue<'a> {
    /// The function, with its parameters.
    pub function: AggFunc,
    /// Its words, in the layout of [`AggFunc`].
    pub words: Cow<'a, [u64]>,
    /// The normalization factor of printed numbers; at least 1.
    pub normal: u64,
    /// With `aggpercpu`: the words of each CPU that added to it.
    pub cpus: Vec<(u32, Cow<'a, [u64]>)>,
    /// The aggregation does not have the key, which another aggregation of the row has. The words
    /// are 0, as text shows them.
    pub absent: bool,
}

impl AggValue<'_> {
    /// The printed number, normalized; `None` for a histogram.
    pub fn number(&self) -> Option<i64> {
        (!self.is_histogram()).then(|| scalar(self.function, &self.words, self.normal))
    }

    /// Whether it is printed as a histogram.
    pub fn is_histogram(&self) -> bool {
        is_histogram(self.function)
    }

    /// The printed number, normalized; of a histogram, how many values it has.
    pub fn quantity(&self) -> i64 {
        let values = || self.buckets().fold(0i64, |sum, (_, count)| sum.saturating_add(count));
        self.number().unwrap_or_else(|| normalized(values(), self.normal))
    }

    /// The buckets of a histogram with their counts, which are not normalized; empty for a number.
    pub fn buckets(&self) -> impl Iterator<Item = (Bucket, i64)> + '_ {
        buckets(self.function).into_iter().zip(self.words.iter().map(|w| *w as i64))
    }

    /// The least and the greatest value of each bucket of [`AggValue::buckets`]; `None` where the
    /// bucket has no end.
    pub fn ranges(&self) -> Vec<(Option<i64>, Option<i64>)> {
        ranges(&buckets(self.function))
    }

    /// The value of each CPU.
    pub fn each_cpu(&self) -> impl Iterator<Item = (u32, AggValue<'_>)> {
        self.cpus.iter().map(|(cpu, words)| {
            let words = Cow::Borrowed(&**words);
            let (function, normal) = (self.function, self.normal);
            (*cpu, AggValue { function, words, normal, cpus: Vec::new(), absent: false })
        })
    }

    /// Without a borrow.
    pub fn into_owned(self) -> AggValue<'static> {
        let words = |words: Cow<'_, [u64]>| Cow::Owned(words.into_owned());
        AggValue {
            function: self.function,
            words: words(self.words),
            normal: self.normal,
            cpus: self.cpus.into_iter().map(|(cpu, w)| (cpu, words(w))).collect(),
            absent: self.absent,
        }
    }
}

fn squares(words: &[u64]) -> u128 {
    match words {
        [_, _, low, high, ..] => u128::from(*high) << 64 | u128::from(*low),
        _ => 0,
    }
}

/// A printed number divided by the normalization factor, as in C.
pub fn normalized(value: i64, normal: u64) -> i64 {
    (i128::from(value) / i128::from(normal.max(1))) as i64
}

/// The printed number of a value that is not a histogram.
pub fn scalar(func: AggFunc, words: &[u64], normal: u64) -> i64 {
    let word = |i: usize| words.get(i).map_or(0, |w| *w as i64);
    match func {
        AggFunc::Avg if word(0) == 0 => 0,
        AggFunc::Avg => (i128::from(normalized(word(1), normal)) / i128::from(word(0))) as i64,
        AggFunc::Stddev => stddev(words, normal) as i64,
        _ => normalized(word(0), normal),
    }
}

/// Whether the function's value is printed as a histogram.
pub fn is_histogram(func: AggFunc) -> bool {
    matches!(func, AggFunc::Quantize | AggFunc::Lquantize { .. } | AggFunc::Llquantize { .. })
}

/// Population standard deviation in integers: the root of (mean of squares − square of mean). The
/// sum of squares is divided by the normalization factor twice.
fn stddev(words: &[u64], normal: u64) -> u64 {
    let &[count, sum, ..] = words else {
        return 0;
    };
    if count == 0 {
        return 0;
    }
    let normal = u128::from(normal.max(1));
    let mean_of_squares = squares(words) / normal / normal / u128::from(count);
    let mean = (i128::from(sum as i64) / normal as i128 / i128::from(count)).unsigned_abs();
    mean_of_squares.saturating_sub(mean * mean).isqrt() as u64
}

/// The range of a histogram bucket, which determines its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bucket {
    /// All values below.
    Below(i64),
    /// The values from here to the next bucket. For a negative bound of `quantize()`: the values
    /// from here *down* to the previous bucket (-2 is the bucket of -2 and -3).
    /// [`AggValue::ranges`] has both ends.
    From(i64),
    /// All values from here.
    AtLeast(i64),
}

/// The label that text has.
impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bucket::Below(value) => write!(f, "< {value}"),
            Bucket::From(value) => write!(f, "{value}"),
            Bucket::AtLeast(value) => write!(f, ">= {value}"),
        }
    }
}

/// The lower bound of a `quantize()` bucket (the upper one, for negative values).
fn quantize_bound(bucket: u32) -> i64 {
    match bucket.cmp(&QUANTIZE_ZERO) {
        Ordering::Less => -(1i64 << (QUANTIZE_ZERO - 1 - bucket)),
        Ordering::Equal => 0,
        Ordering::Greater => 1 << (bucket - QUANTIZE_ZERO - 1),
    }
}

/// The buckets of a histogram in the order of its words.
pub fn buckets(func: AggFunc) -> Vec<Bucket> {
    match func {
        AggFunc::Quantize => (0..QUANTIZE_BUCKETS).map(|b| Bucket::From(quantize_bound(b))).collect(),
        AggFunc::Lquantize { base, limit, step } => {
            let (base, step) = (i64::from(base), i64::from(step.max(1)));
            let levels = (i64::from(limit) - base).max(0) / step;
            std::iter::once(Bucket::Below(base))
                .chain((0..levels).map(|i| Bucket::From(base + i * step)))
                .chain([Bucket::AtLeast(base + levels * step)])
                .collect()
        }
        AggFunc::Llquantize { factor, low, high, nsteps } => llquantize(factor, low, high, nsteps),
        _ => Vec::new(),
    }
}

fn ranges(all: &[Bucket]) -> Vec<(Option<i64>, Option<i64>)> {
    let bound = |(Bucket::Below(v) | Bucket::From(v) | Bucket::AtLeast(v)): &Bucket| *v;
    // Buckets of `quantize()` have no neighbor without bounds, and the negative ones end at their
    // own.
    let mirrored = all.first().is_some_and(|first| matches!(first, Bucket::From(_)));
    let range = |(i, bucket): (usize, &Bucket)| match *bucket {
        Bucket::Below(v) => (None, v.checked_sub(1)),
        Bucket::AtLeast(v) => (Some(v), None),
        Bucket::From(v) if mirrored && v < 0 => {
            let previous = i.checked_sub(1).and_then(|i| all.get(i)).map(bound);
            (previous.and_then(|p| p.checked_add(1)), Some(v))
        }
        Bucket::From(v) => (Some(v), all.get(i + 1).map(bound).and_then(|next| next.checked_sub(1))),
    };
    all.iter().enumerate().map(range).collect()
}

/// One bucket below `factor^low`. Then each magnitude from `factor^m` to `factor^(m+1)`, in steps
/// of the upper bound divided by `nsteps`; the previous magnitude covers the first step. Then one
/// bucket for larger values.
fn llquantize(factor: u16, low: u16, high: u16, nsteps: u16) -> Vec<Bucket> {
    let (factor, nsteps) = (i128::from(factor.max(2)), i128::from(nsteps.max(1)));
    let narrow = |v: i128| v.min(i128::from(i64::MAX)) as i64;
    let mut value = (0..low).try_fold(1i128, |v, _| v.checked_mul(factor)).unwrap_or(i128::from(i64::MAX));
    let mut out = vec![Bucket::Below(narrow(value))];
    for _ in low..=high {
        let Some(next) = value.checked_mul(factor).filter(|n| *n <= i128::from(i64::MAX)) else {
            break;
        };
        let step = if next > nsteps { next / nsteps } else { 1 };
        while value < next {
            out.push(Bucket::From(narrow(value)));
            value += step;
        }
        value = next;
    }
    out.push(Bucket::AtLeast(narrow(value)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_truncate_and_an_empty_one_is_zero() {
        assert_eq!(scalar(AggFunc::Avg, &[3, 10], 1), 3);
        assert_eq!(scalar(AggFunc::Avg, &[3, -10i64 as u64], 1), -3);
        assert_eq!(scalar(AggFunc::Avg, &[0, 0], 1), 0);
        assert_eq!(scalar(AggFunc::Avg, &[2, 1000], 10), 50);
        // 2, 4, 4, 4, 5, 5, 7, 9: deviation 2.
        assert_eq!(scalar(AggFunc::Stddev, &[8, 40, 232, 0], 1), 2);
        assert_eq!(scalar(AggFunc::Sum, &[-7i64 as u64], 2), -3);
        assert_eq!(scalar(AggFunc::Sum, &[i64::MIN as u64], u64::MAX), 0);
    }

    #[test]
    fn quantize_buckets_begin_where_values_fall() {
        for (i, bucket) in buckets(AggFunc::Quantize).iter().enumerate() {
            let Bucket::From(bound) = *bucket else { panic!() };
            assert_eq!(plane::desc::quantize_bucket(bound), i);
        }
    }

    #[test]
    fn ranges_have_the_values_that_fall_in_their_bucket() {
        let found = ranges(&buckets(AggFunc::Quantize));
        for value in (-70..70).chain([i64::MIN, i64::MIN + 1, -(1 << 62), 1 << 62, i64::MAX]) {
            let holds = |(low, high): &(Option<i64>, Option<i64>)| {
                low.is_none_or(|l| l <= value) && high.is_none_or(|h| value <= h)
            };
            let all: Vec<usize> = (0..found.len()).filter(|i| holds(&found[*i])).collect();
            assert_eq!(all, [plane::desc::quantize_bucket(value)], "{value}");
        }
        assert_eq!(found[plane::desc::quantize_bucket(-2)], (Some(-3), Some(-2)));
        let found = ranges(&buckets(AggFunc::Lquantize { base: -10, limit: 10, step: 10 }));
        assert_eq!(found, [(None, Some(-11)), (Some(-10), Some(-1)), (Some(0), Some(9)), (Some(10), None)]);
    }

    #[test]
    fn llquantize_buckets_are_log_linear() {
        // llquantize(x, 10, 0, 1, 10): <1, 1..9 by 1, 10..90 by 10, >= 100.
        let found = buckets(AggFunc::Llquantize { factor: 10, low: 0, high: 1, nsteps: 10 });
        let mut expected = vec![Bucket::Below(1)];
        expected.extend((1..10).map(Bucket::From));
        expected.extend((1..10).map(|i| Bucket::From(i * 10)));
        expected.push(Bucket::AtLeast(100));
        assert_eq!(found, expected);
    }

    #[test]
    fn llquantize_terminates_for_all_arguments() {
        for low in [0, 1, 20, u16::MAX] {
            let all =
                buckets(AggFunc::Llquantize { factor: u16::MAX, low, high: u16::MAX, nsteps: u16::MAX });
            assert!(all.len() >= 2);
        }
    }
}
