//! A hash for small numbers that this crate itself gives out, which the tree needs millions of
//! times. Processes choose names and not these numbers, so they cannot choose collisions.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table of such numbers.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Mix(u64);

/// An odd number with bits set all over (2^64 divided by the golden ratio).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(32) ^ n).wrapping_mul(FACTOR);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
