//! The head of a recording: which dtrace has made it, and by how much the wall clock is ahead.
//!
//! ```text
//!  dtrace anonymous recording 1 0.9.0 4 1764537600000000000                    \n
//!                             │ │     │ nanoseconds from the clock of `timestamp` to that since 1970, as they were last
//!                             │ │     the version of the events that follow
//!                             │ the version of dtrace
//!                             the version of this line: the two words before and behind it stay
//! ```
//!
//! It is the beginning of the file, and what a session says to who connects. So a claim knows
//! whether it can read what follows before it takes anything.

use std::fmt;

use dtrace::events::VERSION;

/// Bytes of the head.
pub(crate) const LENGTH: usize = 128;

const WORDS: &str = "dtrace anonymous recording ";
/// The version of the line.
const FORMAT: &str = "1";
/// The most bytes of the name of a version that is shown.
const LONGEST: usize = 32;

/// The clock was set if it differs by so many nanoseconds: its two readings are not one moment.
const SET: u64 = 1_000_000;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Nanoseconds to add to the clock of `timestamp`.
    pub(crate) wall_offset: i64,
}

/// Why what follows cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is no recording.
    Foreign,
    /// Another version has made it: its name.
    Version(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Foreign => f.write_str("it is no recording of dtrace"),
            Unreadable::Version(version) => {
                let own = env!("CARGO_PKG_VERSION");
                write!(f, "dtrace {version} has recorded it, in a format that this one ({own}) does not read")
            }
        }
    }
}

/// A clock in nanoseconds.
fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Their types are other ones on machines of 32 bits.
    #[allow(clippy::unnecessary_cast)]
    let (seconds, nanoseconds) = (time.tv_sec as i64, time.tv_nsec as i64);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

impl Head {
    /// By the clocks as they are.
    pub(crate) fn now() -> Head {
        let wall_offset = read(libc::CLOCK_REALTIME).saturating_sub(read(libc::CLOCK_MONOTONIC));
        Head { wall_offset }
    }

    /// Whether the wall clock was set between two of them.
    pub(crate) fn is_set_after(self, before: Head) -> bool {
        self.wall_offset.abs_diff(before.wall_offset) >= SET
    }

    pub(crate) fn bytes(self) -> [u8; LENGTH] {
        let own = env!("CARGO_PKG_VERSION");
        let text = format!("{WORDS}{FORMAT} {own} {VERSION} {}", self.wall_offset);
        let mut bytes = [b' '; LENGTH];
        // It is shorter: the words are, and the numbers have 10 and 20 digits at most.
        bytes.iter_mut().zip(text.bytes().take(LENGTH - 1)).for_each(|(to, from)| *to = from);
        if let Some(last) = bytes.last_mut() {
            *last = b'\n';
        }
        bytes
    }

    /// Reads what [`Head::bytes`] wrote.
    pub(crate) fn of(bytes: &[u8; LENGTH]) -> Result<Head, Unreadable> {
        let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::Foreign)?;
        let rest = text.strip_prefix(WORDS).ok_or(Unreadable::Foreign)?;
        let mut words = rest.split_ascii_whitespace();
        let (Some(format), Some(version)) = (words.next(), words.next()) else {
            return Err(Unreadable::Foreign);
        };
        let shown = |c: &char| c.is_ascii_graphic();
        let other = || Unreadable::Version(version.chars().filter(shown).take(LONGEST).collect());
        if format != FORMAT || words.next().and_then(|n| n.parse().ok()) != Some(VERSION) {
            return Err(other());
        }
        let wall_offset = words.next().and_then(|n| n.parse().ok()).ok_or(Unreadable::Foreign)?;
        Ok(Head { wall_offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for wall_offset in [0, -5, i64::MIN, i64::MAX, Head::now().wall_offset] {
            let head = Head { wall_offset };
            assert_eq!(Head::of(&head.bytes()), Ok(head));
            assert!(head.bytes().ends_with(b" \n"));
        }
        assert!(!Head::now().is_set_after(Head::now()));
        assert!(Head { wall_offset: 2_000_000 }.is_set_after(Head { wall_offset: 0 }));
    }

    #[test]
    fn that_of_another_version_names_it() {
        let of = |text: &str| {
            let mut bytes = [b' '; LENGTH];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            Head::of(&bytes)
        };
        let later = VERSION + 1;
        for text in [format!("{WORDS}1 9.8 {later} 0"), format!("{WORDS}2 9.8 or something else")] {
            assert_eq!(of(&text), Err(Unreadable::Version("9.8".into())), "{text}");
        }
        for text in ["", "dtrace", WORDS, "dtrace anonymous recording 1", "DTRACE", "\u{7f}ELF"] {
            assert_eq!(of(text), Err(Unreadable::Foreign), "{text}");
        }
        assert_eq!(of(&format!("{WORDS}1 9.8 {VERSION} no")), Err(Unreadable::Foreign));
    }
}
