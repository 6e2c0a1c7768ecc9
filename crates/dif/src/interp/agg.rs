//! The effect of one sample on the words of an aggregation.

use plane::desc::{AggFunc, quantize_bucket};
use plane::table::llquantize_bucket;

/// Applies one sample. `args` are those of [`crate::ir::Op::Aggregate`].
pub(super) fn apply(func: AggFunc, words: &mut [u64], args: &[i64]) {
    let value = args.first().copied().unwrap_or(0);
    let increment = args.get(1).copied().unwrap_or(1) as u64;
    let mut add = |i: usize, n: u64| {
        if let Some(w) = words.get_mut(i) {
            *w = w.wrapping_add(n);
        }
    };
    match func {
        AggFunc::Count => add(0, 1),
        AggFunc::Sum => add(0, value as u64),
        AggFunc::Min => keep(words, value, |new, old| new < old),
        AggFunc::Max => keep(words, value, |new, old| new > old),
        AggFunc::Avg => {
            add(0, 1);
            add(1, value as u64);
        }
        AggFunc::Stddev => {
            add(0, 1);
            add(1, value as u64);
            let square = u128::from(value.unsigned_abs()).pow(2);
            if let [_, _, low, high] = words {
                let sum = (u128::from(*high) << 64 | u128::from(*low)).wrapping_add(square);
                (*low, *high) = (sum as u64, (sum >> 64) as u64);
            }
        }
        AggFunc::Quantize => add(quantize_bucket(value), increment),
        AggFunc::Lquantize { base, limit: _, step } => {
            let levels = words.len().saturating_sub(2);
            let bucket = match value.checked_sub(i64::from(base)) {
                Some(above) if above < 0 => 0,
                Some(above) => {
                    usize::try_from(above / i64::from(step.max(1))).unwrap_or(levels).min(levels) + 1
                }
                // The difference overflows only when the value is far above the base.
                None => levels + 1,
            };
            if let Some(w) = words.get_mut(bucket) {
                *w = w.wrapping_add(increment);
            }
        }
        AggFunc::Llquantize { .. } => add(llquantize_bucket(func, value) as usize, increment),
    }
}

fn keep(words: &mut [u64], value: i64, better: impl Fn(i64, i64) -> bool) {
    if let Some(w) = words.first_mut()
        && better(value, *w as i64)
    {
        *w = value as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(func: AggFunc, samples: &[&[i64]]) -> Vec<u64> {
        let mut words = vec![func.initial_word(); func.value_size() as usize / 8];
        samples.iter().for_each(|s| apply(func, &mut words, s));
        words
    }

    #[test]
    fn each_function_folds_samples_into_its_words() {
        assert_eq!(run(AggFunc::Count, &[&[], &[]]), [2]);
        assert_eq!(run(AggFunc::Sum, &[&[5], &[-7]]), [-2i64 as u64]);
        assert_eq!(run(AggFunc::Min, &[&[5], &[-7]]), [-7i64 as u64]);
        assert_eq!(run(AggFunc::Max, &[&[5], &[-7]]), [5]);
        assert_eq!(run(AggFunc::Avg, &[&[5], &[7]]), [2, 12]);
        assert_eq!(run(AggFunc::Stddev, &[&[i64::MIN], &[i64::MIN]]), [2, 0, 0, 1 << 63]);
    }

    #[test]
    fn quantize_counts_or_adds_the_increment() {
        let words = run(AggFunc::Quantize, &[&[0], &[8], &[9, 10], &[-1, -1]]);
        assert_eq!((words[63], words[67], words[62]), (1, 11, u64::MAX));
    }

    #[test]
    fn lquantize_counts_values_outside_its_range_in_the_end_buckets() {
        let func = AggFunc::Lquantize { base: -10, limit: 10, step: 5 };
        assert_eq!(run(func, &[&[-11], &[-10], &[9], &[10], &[i64::MAX], &[i64::MIN]]), [2, 1, 0, 0, 1, 2]);
    }
}
