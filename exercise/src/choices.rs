//! Where randomness comes from.
//!
//! The decision that shapes it: choices are numbers below a bound, taken from bytes while there are any, so that a fuzzer
//! that changes a byte changes one choice, and small inputs make small programs (a spent source always says 0).

/// A source of choices.
#[derive(Clone, Debug)]
pub enum Choices<'a> {
    /// From a seed; without end.
    Seed(u64),
    /// From bytes; then 0 for ever.
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// From a seed; any will do.
    pub fn seed(seed: u64) -> Choices<'static> {
        Choices::Seed(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 64 bits, of which a fuzzer's bytes give one at a time.
    pub fn bits(&mut self) -> u64 {
        match self {
            Choices::Seed(state) => {
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d)
            }
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

    /// True once in `n` times; never from a spent source.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n.saturating_sub(1)
    }

    /// One of several; `items` must not be empty, else the default.
    pub fn pick<T: Copy + Default>(&mut self, items: &[T]) -> T {
        items.get(self.below(items.len())).copied().unwrap_or_default()
    }
}
