//! The order of aggregation values: the number by which rows are compared.

use events::{Bucket, is_histogram, scalar};
use plane::desc::AggFunc;

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
    use std::cmp::Ordering;

    use events::buckets;

    use super::*;

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
