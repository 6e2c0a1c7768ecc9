//! Arithmetic on the words of one aggregation value: the printed number and the compared number.

use std::cmp::Ordering;

use plane::desc::{AggFunc, QUANTIZE_BUCKETS, QUANTIZE_ZERO};

fn squares(words: &[u64]) -> u128 {
    match words {
        [_, _, low, high, ..] => u128::from(*high) << 64 | u128::from(*low),
        _ => 0,
    }
}

/// A printed number divided by the normalization factor, as in C.
pub(crate) fn normalized(value: i64, normal: u64) -> i64 {
    (i128::from(value) / i128::from(normal.max(1))) as i64
}

/// The printed number of a value that is not a histogram.
pub(crate) fn scalar(func: AggFunc, words: &[u64], normal: u64) -> i64 {
    let word = |i: usize| words.get(i).map_or(0, |w| *w as i64);
    match func {
        AggFunc::Avg if word(0) == 0 => 0,
        AggFunc::Avg => (i128::from(normalized(word(1), normal)) / i128::from(word(0))) as i64,
        AggFunc::Stddev => stddev(words, normal) as i64,
        _ => normalized(word(0), normal),
    }
}

/// Whether the function's value is printed as a histogram.
pub(crate) fn is_histogram(func: AggFunc) -> bool {
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
pub(crate) enum Bucket {
    /// All values below.
    Below(i64),
    /// The values from here to the next bucket.
    From(i64),
    /// All values from here.
    AtLeast(i64),
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
pub(crate) fn buckets(func: AggFunc) -> Vec<Bucket> {
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

/// Σ bucket × count, and the count at zero. Values outside the levels of `lquantize()` are weighted
/// as one step beyond them.
///
/// Values of one function are compared by weight. `buckets` are those of the function, computed
/// once for all its values.
pub(crate) fn weight(func: AggFunc, buckets: &[Bucket], words: &[u64]) -> (i128, i64) {
    if !is_histogram(func) {
        return (i128::from(scalar(func, words, 1)), 0);
    }
    let linear = matches!(func, AggFunc::Lquantize { .. });
    let (mut sum, mut zero) = (0i128, 0);
    for (bucket, word) in buckets.iter().zip(words) {
        let at = match *bucket {
            Bucket::Below(v) => i128::from(v) - 1,
            Bucket::From(v) => i128::from(v),
            Bucket::AtLeast(v) => i128::from(v) + i128::from(linear),
        };
        sum = sum.saturating_add(at * i128::from(*word as i64));
        if at == 0 {
            zero = *word as i64;
        }
    }
    (sum, zero)
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

    fn compare(func: AggFunc, a: &[u64], b: &[u64]) -> Ordering {
        let buckets = buckets(func);
        weight(func, &buckets, a).cmp(&weight(func, &buckets, b))
    }

    #[test]
    fn histograms_compare_by_weight_then_by_zeros() {
        let func = AggFunc::Lquantize { base: 0, limit: 10, step: 5 };
        // Words: < 0, 0, 5, >= 10.
        assert_eq!(compare(func, &[0, 1, 0, 0], &[0, 0, 1, 0]), Ordering::Less);
        assert_eq!(compare(func, &[0, 2, 1, 0], &[0, 1, 1, 0]), Ordering::Greater);
        assert_eq!(compare(func, &[0, 1, 1, 0], &[0, 1, 1, 0]), Ordering::Equal);
    }
}
