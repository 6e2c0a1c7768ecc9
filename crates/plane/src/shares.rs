//! Shares of a table that programs fill: counters of who has how much of it, in memory that
//! programs and the consumer change.
//!
//! It is the rule by which processes share what the consumer has (`proc::share`), as far as a
//! program can keep it: a user and a process have at most as much as they leave to others, root has
//! all that is left, and a quarter is root's alone. A program has no names of cgroups that are
//! cheap, so a user in many containers is one user here.
//!
//! ```text
//!  +0     others          what all but root have
//!  +8     users           COUNTERS words, by the hash of the user
//!         processes       as many, by the hash of the process
//!         subordinate     SUBORDINATE times: first id 32 | how many 32, the user to whom they were given 64; 0 ends them
//! ```
//!
//! The hash has the key of the session, so nobody can choose whose counter it fills. Some have a
//! counter in common all the same. What a program has taken is a *number*, by which it is given
//! back.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of users, and as many of processes: a power of two.
pub const COUNTERS: u32 = 1 << COUNTERS_SHIFT;
/// The same, as a power of two.
pub const COUNTERS_SHIFT: u32 = 10;
/// Offset of the counters of users.
pub const USERS: u32 = 8;
/// Offset of the counters of processes.
pub const PROCESSES: u32 = USERS + 8 * COUNTERS;
/// Offset of the ids that were given to users.
pub const SUBORDINATE_AT: u32 = PROCESSES + 8 * COUNTERS;
/// The most ranges of them.
pub const SUBORDINATE: u32 = 32;
/// Bytes of a range.
pub const SUBORDINATE_SIZE: u32 = 16;
/// Offset of the number of ids in a range, and of their user.
pub const SUBORDINATE_COUNT: u32 = 4;
/// Offset of the user.
pub const SUBORDINATE_TO: u32 = 8;
/// Bytes of all.
pub const BYTES: u32 = SUBORDINATE_AT + SUBORDINATE * SUBORDINATE_SIZE;

/// In a number: it is not root's, who has no counters.
pub const OTHERS: u64 = 1 << (2 * COUNTERS_SHIFT);
/// Position of the process's counter in a number. Below it is the user's.
pub const PROCESS_SHIFT: u32 = COUNTERS_SHIFT;

/// How much of `most` all but root may have.
pub const fn of_others(most: u32) -> u32 {
    most - most / 4
}

/// The counters that begin at a word of a map.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'m>(&'m [AtomicU64]);

impl<'m> Counters<'m> {
    /// Those at an offset of `memory`, in bytes.
    pub fn new(memory: &'m [AtomicU64], at: u32) -> Option<Counters<'m>> {
        let first = (at / 8) as usize;
        Some(Counters(memory.get(first..first.checked_add((BYTES / 8) as usize)?)?))
    }

    fn word(self, offset: u32) -> Option<&'m AtomicU64> {
        self.0.get((offset / 8) as usize)
    }

    /// Says which ids were given to users: the first, how many, to whom. Those that are more than
    /// [`SUBORDINATE`] count by themselves.
    pub fn set_subordinate(self, given: impl Iterator<Item = (u32, u32, u32)>) {
        let given = given.filter(|(_, count, _)| *count > 0);
        for ((first, count, to), number) in given.zip(0..SUBORDINATE) {
            let at = SUBORDINATE_AT + SUBORDINATE_SIZE * number;
            if let (Some(ids), Some(user)) = (self.word(at), self.word(at + SUBORDINATE_TO)) {
                user.store(to.into(), Ordering::SeqCst);
                ids.store(u64::from(first) | u64::from(count) << 32, Ordering::SeqCst);
            }
        }
    }

    /// Gives back what a program has taken by a number.
    pub fn give(self, number: u64, amount: u64) {
        if number & OTHERS == 0 {
            return;
        }
        let counter = |number: u64| 8 * (number as u32 & (COUNTERS - 1));
        for at in [0, USERS + counter(number), PROCESSES + counter(number >> PROCESS_SHIFT)] {
            if let Some(word) = self.word(at) {
                let less = |used: u64| Some(used.saturating_sub(amount));
                let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            }
        }
    }

    /// How much all but root have.
    pub fn others(self) -> u64 {
        self.word(0).map_or(0, |word| word.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_taken_from_all_counters_of_a_number() {
        let memory: Vec<AtomicU64> = (0..BYTES / 8 + 3).map(|_| AtomicU64::new(0)).collect();
        let counters = Counters::new(&memory, 16).unwrap();
        let (user, process) = (5u32, 1023u32);
        let words = [2, 2 + 1 + user, 2 + 1 + 1024 + process];
        words.iter().for_each(|word| memory[*word as usize].store(7, Ordering::Relaxed));
        counters.give(u64::from(process) << PROCESS_SHIFT | u64::from(user), 3);
        assert_eq!(counters.others(), 7);
        counters.give(OTHERS | u64::from(process) << PROCESS_SHIFT | u64::from(user), 3);
        assert_eq!(words.map(|word| memory[word as usize].load(Ordering::Relaxed)), [4; 3]);
        counters.give(OTHERS | u64::from(process) << PROCESS_SHIFT | u64::from(user), 30);
        assert_eq!(counters.others(), 0);
        assert!(Counters::new(&memory, 32).is_none());
    }

    #[test]
    fn as_many_ranges_of_ids_as_there_is_space_for_are_known() {
        let memory: Vec<AtomicU64> = (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let counters = Counters::new(&memory, 0).unwrap();
        counters.set_subordinate((0..100).map(|n| (100_000 * n, 65536 * u32::from(n != 0), n)));
        let word = |n: u32| memory[((SUBORDINATE_AT + n) / 8) as usize].load(Ordering::Relaxed);
        assert_eq!((word(0), word(8)), (65536 << 32 | 100_000, 1));
        assert_eq!((word(16 * 31), word(16 * 31 + 8)), (65536 << 32 | 3_200_000, 32));
    }
}
