//! A small seeded random number generator (xorshift64*), the only one of the tests. A failing test
//! names its seed; the same seed gives the same numbers on every machine.

/// The generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator. Any seed is valid.
    pub fn new(seed: u64) -> Self {
        // The multiplication spreads neighbouring seeds. The state must not be 0.
        Rng(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { ((self.bits() >> 32) as usize) % n }
    }

    /// True with probability 1/`n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A random item; `None` when there are none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.below(items.len())).copied()
    }

    /// An integer that is likely to find errors: a small one, a power of two or a neighbour of one,
    /// an extreme, or any.
    pub fn int(&mut self) -> i64 {
        match self.below(6) {
            0 => self.below(4) as i64 - 1,
            1 => self.below(256) as i64 - 128,
            2 => (1i64 << self.below(64)).wrapping_add(self.below(3) as i64 - 1),
            3 => (-1i64 << self.below(64)).wrapping_add(self.below(3) as i64 - 1),
            4 => [0, i64::MIN, i64::MAX, i64::from(i32::MAX), i64::from(i32::MIN)][self.below(5)],
            _ => self.bits() as i64,
        }
    }
}
