//! The set of processes: which processes a program at places in files serves.
//!
//! A probe of the pid provider is a place in a file. Where many processes have the file, or
//! children of a process are followed, one link serves all of them, and the kernel runs the program
//! in every process that comes there. So the program first looks its process up in a hash map.
//!
//! The key decision: *membership is decided in the kernel*. A child is put in by a program at the
//! fork, before its first instruction, and a process is taken out by a program at its end. The
//! consumer only puts in those that are selected when tracing begins. So it need not be as fast as
//! processes come and go.
//!
//! ```text
//!  key     u32  the process (thread group), in the initial namespace
//!  value   +0   start   ns since boot when its first thread began, as exact as the writer knows it
//!          +8   sets    bit n: it is in set n
//!          +16  heirs   bit n: so are the processes that it forks
//!
//!  fork    a parent with heirs: the child has heirs = those of the parent, and its own start.
//!          sets = heirs; none where only programs are followed that processes execute
//!  exec    only there: sets also has the heirs
//!  exit    of the last thread: the element is deleted
//! ```
//!
//! A kernel that lets other tasks run in the middle of a program does not run it for them on this
//! CPU, and counts that. A fork would be lost by it. So the programs at forks and at execs are
//! there twice, one behind the other: what one of them missed, the other does. What both may have
//! missed, the smaller of the two counts, is reported
//! ([`DropKind::Fork`](crate::control::DropKind::Fork)).
//!
//! `start` tells a process from a later one with its number, where the program at the exit was not
//! run. User space knows starts in ticks only ([`TICK`]), so a process is the one that was meant if
//! it began within a tick from `start` on. No number is used twice in that time.

/// Bytes of a key.
pub const KEY: u32 = 4;
/// Offset of the start.
pub const START: u32 = 0;
/// Offset of the sets.
pub const SETS: u32 = 8;
/// Offset of the sets that children inherit.
pub const HEIRS: u32 = 16;
/// Bytes of a value.
pub const SIZE: u32 = 24;

/// Nanoseconds of a tick, the unit of starts in `/proc/PID/stat` (`USER_HZ` is 100).
pub const TICK: u64 = 10_000_000;

/// The most sets of a session.
pub const SETS_MAX: u32 = 64;

/// A member, as user space writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Ticks since boot.
    pub start: u64,
    /// Its sets.
    pub sets: u64,
    /// Those that its children inherit.
    pub heirs: u64,
}

impl Member {
    /// The bytes of the value. With `other`, what the map has for the process, it is in the sets of
    /// both.
    pub fn bytes(self, other: Option<&[u8]>) -> [u8; SIZE as usize] {
        let word = |at: u32| -> u64 {
            let bytes = other.and_then(|other| other.get(at as usize..at as usize + 8)?.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        // Of another process with the same number nothing is left.
        let mine = word(START).wrapping_sub(self.start * TICK) < TICK;
        let keep = |at| if mine { word(at) } else { 0 };
        let words = [self.start * TICK, self.sets | keep(SETS), self.heirs | keep(HEIRS)];
        let mut bytes = [0; SIZE as usize];
        for (to, from) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_in_the_sets_of_both_unless_the_number_was_anothers() {
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap())).collect()
        };
        let first = Member { start: 7, sets: 1, heirs: 0 }.bytes(None);
        assert_eq!(words(&first), [7 * TICK, 1, 0]);
        let both = Member { start: 7, sets: 4, heirs: 4 }.bytes(Some(&first));
        assert_eq!(words(&both), [7 * TICK, 5, 4]);
        // The kernel knows the start more exactly.
        let exact = [(7 * TICK + 3).to_ne_bytes(), 2u64.to_ne_bytes(), 2u64.to_ne_bytes()].concat();
        assert_eq!(words(&Member { start: 7, sets: 1, heirs: 0 }.bytes(Some(&exact))), [7 * TICK, 3, 2]);
        assert_eq!(words(&Member { start: 8, sets: 1, heirs: 0 }.bytes(Some(&exact))), [8 * TICK, 1, 0]);
    }
}
