//! The head of a recording: which dtrace has made it, and by how much the wall clock was set since.
//!
//! ```text
//!  dtrace anonymous recording 1 0.9.0 4 630720000000000000                     \n
//!                             │ │     │ nanoseconds by which the wall clock was set since the recording began
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

/// The clock was set if it differs by so many nanoseconds: two readings are not one moment.
pub(crate) const SET: u64 = 1_000_000;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Nanoseconds to add to times since 1970 that were read when the recording began.
    pub(crate) set: i64,
}

/// How the wall clock is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wall {
    /// Nanoseconds from the clock that goes on while the machine sleeps: only setting changes them.
    offset: i64,
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

impl Wall {
    pub(crate) fn now() -> Wall {
        Wall { offset: read(libc::CLOCK_REALTIME).saturating_sub(read(libc::CLOCK_BOOTTIME)) }
    }
}

impl Head {
    /// That of a recording which began so, by the clocks as they are.
    pub(crate) fn since(began: Wall) -> Head {
        let set = Wall::now().offset.saturating_sub(began.offset);
        Head { set: if set.unsigned_abs() < SET { 0 } else { set } }
    }

    pub(crate) fn bytes(self) -> [u8; LENGTH] {
        let own = env!("CARGO_PKG_VERSION");
        let text = format!("{WORDS}{FORMAT} {own} {VERSION} {}", self.set);
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
        let set = words.next().and_then(|n| n.parse().ok()).ok_or(Unreadable::Foreign)?;
        Ok(Head { set })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for set in [0, -5, i64::MIN, i64::MAX] {
            let head = Head { set };
            assert_eq!(Head::of(&head.bytes()), Ok(head));
            assert!(head.bytes().ends_with(b" \n"));
        }
        assert_eq!(Head::since(Wall::now()), Head::default(), "nobody has set it");
        let behind = Wall { offset: Wall::now().offset - 3 * SET as i64 };
        assert!(Head::since(behind).set.unsigned_abs() >= 2 * SET);
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
