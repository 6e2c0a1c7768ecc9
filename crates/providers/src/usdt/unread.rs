//! Files whose probes could not be read: the reader had no time or no memory, or the file is not
//! what it seems.
//!
//! That is said once for each file. It is read again when it is looked at after a pause, which is
//! longer each time: what fails may take the reader's whole time each time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The first pause, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(600)];

/// The most files that are known.
const MOST: usize = 1 << 12;

struct File {
    why: String,
    /// When it is read again, and the pause before that.
    next: Instant,
    pause: Duration,
}

#[derive(Default)]
pub(super) struct Unread {
    /// By the number of the file.
    files: HashMap<u64, File>,
    said: Vec<String>,
}

impl Unread {
    /// Whether a file could not be read, and is not to be read yet.
    pub(super) fn waits(&self, number: u64, now: Instant) -> bool {
        self.files.get(&number).is_some_and(|file| now < file.next)
    }

    /// Why the last try to read a file has failed, if it has.
    pub(super) fn why(&self, number: u64) -> Option<&str> {
        self.files.get(&number).map(|file| file.why.as_str())
    }

    /// It could not be read, and why.
    pub(super) fn failed(&mut self, number: u64, why: String, now: Instant) {
        let before = self.files.get(&number).map(|file| file.pause);
        if before.is_none() {
            self.said.push(format!("{why}: none of them is enabled until it can be"));
            if self.files.len() >= MOST {
                self.files.clear();
            }
        }
        let pause = before.map_or(PAUSES[0], |before| (before * 2).min(PAUSES[1]));
        self.files.insert(number, File { why, next: now + pause, pause });
    }

    /// It was read.
    pub(super) fn read(&mut self, number: u64) {
        self.files.remove(&number);
    }

    /// What is to be said, since the last call.
    pub(super) fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_said_once_and_read_again_after_pauses_that_grow() {
        let (mut unread, begun) = (Unread::default(), Instant::now());
        assert!(!unread.waits(1, begun) && unread.why(1).is_none());
        unread.failed(1, "the probes of a cannot be read: x".into(), begun);
        assert_eq!(
            unread.take_said(),
            ["the probes of a cannot be read: x: none of them is enabled until it can be"]
        );
        let mut now = begun;
        for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
            let pause = Duration::from_secs(pause);
            assert!(unread.waits(1, now + pause - Duration::from_nanos(1)));
            now += pause;
            assert!(!unread.waits(1, now) && !unread.waits(2, now));
            unread.failed(1, "y".into(), now);
        }
        assert!(unread.take_said().is_empty() && unread.why(1) == Some("y"));
        unread.read(1);
        assert!(!unread.waits(1, now) && unread.why(1).is_none());
        (0..3 * MOST as u64).for_each(|number| unread.failed(number, "y".into(), now));
        assert!(unread.files.len() <= MOST);
    }
}
