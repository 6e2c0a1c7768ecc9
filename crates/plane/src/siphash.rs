//! SipHash-1-3, the keyed hash that is the id of a stack.
//!
//! A process chooses the return addresses on its own stack. So the hash of a stack has a key that
//! the process does not know. Without the key nobody can make two stacks with one hash, as one can
//! for a hash that multiplies: there a change of the highest bit of one word is undone by a change
//! of two known bits of the next word, whatever the start value is.

/// The key: random for each session.
pub type Key = [u64; 2];

/// The state: four words.
pub type State = [u64; 4];

/// A quarter of a round, in the order of [`ROUND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The word to which `other` is added.
    pub sum: usize,
    /// The word that is rotated to the left, and changed by an exclusive or with the sum.
    pub other: usize,
    /// By how many bits.
    pub rotation: u32,
    /// The two halves of the sum are swapped at last.
    pub swap: bool,
}

/// A round.
pub const ROUND: [Step; 4] = [
    Step { sum: 0, other: 1, rotation: 13, swap: true },
    Step { sum: 2, other: 3, rotation: 16, swap: false },
    Step { sum: 0, other: 3, rotation: 21, swap: false },
    Step { sum: 2, other: 1, rotation: 17, swap: true },
];

/// Rounds for a word of the message.
pub const ROUNDS: u32 = 1;
/// Rounds after the message.
pub const LAST_ROUNDS: u32 = 3;
/// Changes the third word of the state before the last rounds.
pub const LAST: u64 = 0xff;

/// The state before the message.
pub const fn initial([k0, k1]: Key) -> State {
    // "somepseudorandomlygeneratedbytes"
    [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]
}

/// The word after a message of `words` words: the lowest byte of its length, as the highest byte.
pub const fn end(words: u64) -> u64 {
    words << (3 + 56)
}

fn rounds(v: &mut State, count: u32) {
    for _ in 0..count {
        for Step { sum, other, rotation, swap } in ROUND {
            let (Some(a), Some(b)) = (v.get(sum).copied(), v.get(other).copied()) else { return };
            let a = a.wrapping_add(b);
            let b = b.rotate_left(rotation) ^ a;
            for (at, word) in [(sum, if swap { a.rotate_left(32) } else { a }), (other, b)] {
                v.get_mut(at).into_iter().for_each(|v| *v = word);
            }
        }
    }
}

/// The hash of a message.
pub fn hash(key: Key, message: impl IntoIterator<Item = u64>) -> u64 {
    let mut v = initial(key);
    let mut count = 0;
    let absorb = |v: &mut State, word: u64| {
        v[3] ^= word;
        rounds(v, ROUNDS);
        v[0] ^= word;
    };
    for word in message {
        absorb(&mut v, word);
        count += 1;
    }
    absorb(&mut v, end(count));
    v[2] ^= LAST;
    rounds(&mut v, LAST_ROUNDS);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard_library_for_its_key() {
        for count in [0, 1, 2, 20, 129] {
            let message: Vec<u64> =
                (0..count).map(|i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            let mut reference = DefaultHasher::new();
            message.iter().for_each(|word| reference.write(&word.to_le_bytes()));
            assert_eq!(hash([0, 0], message), reference.finish(), "{count}");
        }
    }

    #[test]
    fn stacks_that_collide_in_a_multiplicative_hash_differ() {
        let (a, b) = ([5, 6, 7], [5 ^ 1 << 63, 6 ^ 1 << 63 ^ 1 << 31, 7]);
        assert_eq!(crate::table::hash(&a), crate::table::hash(&b));
        for key in [[0, 0], [1, 2], [u64::MAX, 3]] {
            assert_ne!(hash(key, a), hash(key, b));
        }
    }

    #[test]
    fn another_key_gives_another_hash() {
        assert_ne!(hash([0, 0], [1, 2]), hash([0, 1], [1, 2]));
        assert_ne!(hash([0, 0], [1, 2]), hash([1, 0], [1, 2]));
    }
}
