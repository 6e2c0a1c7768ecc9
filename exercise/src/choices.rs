//! The source of random choices.
//!
//! The main design decision: a choice is a number below a bound, taken from bytes while there are
//! any. So a fuzzer that changes a byte changes one choice, and a small input makes a small program
//! (an exhausted source always returns 0).

use testing::rng::Rng;

/// A source of choices.
#[derive(Clone, Debug)]
pub enum Choices<'a> {
    /// Choices from a seed, without end.
    Seed(Rng),
    /// Choices from bytes, then always 0.
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// Creates a source from a seed. Any seed is valid.
    pub fn seed(seed: u64) -> Choices<'static> {
        Choices::Seed(Rng::new(seed))
    }

    /// 64 bits; from a fuzzer's input, the next eight bytes.
    pub fn bits(&mut self) -> u64 {
        match self {
            Choices::Seed(rng) => rng.bits(),
            Choices::Bytes(bytes) => {
                let take = bytes.len().min(8);
                let (now, rest) = bytes.split_at(take);
                *bytes = rest;
                now.iter().fold(0, |all, b| all << 8 | u64::from(*b))
            }
        }
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n < 2 {
            return 0;
        }
        let value = match self {
            Choices::Seed(_) => self.bits() >> 33,
            Choices::Bytes(bytes) => match bytes.split_first() {
                Some((first, rest)) => {
                    let first = *first;
                    *bytes = rest;
                    u64::from(first)
                }
                None => 0,
            },
        };
        value as usize % n
    }

    /// True with probability 1/`n`. Always false for an exhausted source.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n.saturating_sub(1)
    }

    /// A random item, or the default when `items` is empty.
    pub fn pick<T: Copy + Default>(&mut self, items: &[T]) -> T {
        items.get(self.below(items.len())).copied().unwrap_or_default()
    }
}
