//! Keys from what a terminal sends.
//!
//! Read here and not by `crossterm`, whose reader waits for the rest of what may be a key.

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character, without control characters.
    Char(char),
    /// `^A` is `Control('a')`.
    Control(char),
    /// `Enter`
    Enter,
    /// `Backspace`
    Backspace,
    /// `Tab`
    Tab,
    /// `Shift-Tab`
    BackTab,
    /// `Esc`
    Esc,
    /// The arrow.
    Up,
    /// The arrow.
    Down,
    /// The arrow.
    Left,
    /// The arrow.
    Right,
    /// `PageUp`
    PageUp,
    /// `PageDown`
    PageDown,
    /// `Home`
    Home,
    /// `End`
    End,
}

/// The longest sequence that is waited for, in bytes.
const LONGEST: usize = 32;

/// Makes keys of bytes. What is not complete waits for the rest.
#[derive(Clone, Debug, Default)]
pub struct Keyboard {
    rest: Vec<u8>,
}

impl Keyboard {
    /// True if what came is not complete.
    pub fn is_waiting(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The keys that these bytes complete. `is_last`: no more came at once, so an escape character
    /// at the end is a key.
    pub fn keys(&mut self, bytes: &[u8], is_last: bool) -> Vec<Key> {
        self.rest.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut at = 0;
        while let Some(rest) = self.rest.get(at..).filter(|rest| !rest.is_empty()) {
            match key(rest, is_last) {
                Some((found, length)) => {
                    keys.extend(found);
                    at += length;
                }
                None if rest.len() < LONGEST => break,
                None => at += 1,
            }
        }
        self.rest.drain(..at);
        keys
    }
}

/// The first key of bytes that are not empty, and how many it takes. The inner `None`: it means
/// nothing here. `None`: it is not complete.
fn key(bytes: &[u8], is_last: bool) -> Option<(Option<Key>, usize)> {
    let one = |key: Key| Some((Some(key), 1));
    match bytes {
        [] => None,
        [b'\r' | b'\n', ..] => one(Key::Enter),
        [b'\t', ..] => one(Key::Tab),
        [0x7f | 0x08, ..] => one(Key::Backspace),
        [0x1b] if is_last => one(Key::Esc),
        [0x1b] => None,
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            let (end, parameters) = match end {
                Some(at) => (at, rest.get(..at)?),
                // Alt and that character: nothing follows.
                None if is_last => return Some((None, bytes.len())),
                None => return None,
            };
            let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
            let key = match (rest.get(end)?, number) {
                (b'A', _) => Some(Key::Up),
                (b'B', _) => Some(Key::Down),
                (b'C', _) => Some(Key::Right),
                (b'D', _) => Some(Key::Left),
                (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
                (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
                (b'Z', _) => Some(Key::BackTab),
                (b'~', b"5") => Some(Key::PageUp),
                (b'~', b"6") => Some(Key::PageDown),
                _ => None,
            };
            Some((key, 2 + end + 1))
        }
        // Alt and a key, which means nothing; or two keys.
        [0x1b, ..] => one(Key::Esc),
        [byte @ 1..=26, ..] => one(Key::Control(char::from(byte + b'a' - 1))),
        [0..=0x1f, ..] => Some((None, 1)),
        [first, ..] => {
            let length = match first {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            let Some(bytes) = bytes.get(..length) else {
                // No character that goes on comes in parts.
                return is_last.then_some((None, bytes.len()));
            };
            let found = std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next());
            let length = if found.is_some() { length } else { 1 };
            Some((found.filter(|c| !c.is_control()).map(Key::Char), length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_however_the_bytes_come() {
        let bytes = "q\r\t\u{7f}\u{3}\u{e9}\x1b[A\x1bOB\x1b[1;5C\x1b[5~\x1b[Z\x1b[15~x\x1b".as_bytes();
        let right = [
            Key::Char('q'),
            Key::Enter,
            Key::Tab,
            Key::Backspace,
            Key::Control('c'),
            Key::Char('\u{e9}'),
            Key::Up,
            Key::Down,
            Key::Right,
            Key::PageUp,
            Key::BackTab,
            Key::Char('x'),
            Key::Esc,
        ];
        for part in 1..bytes.len() {
            let mut keyboard = Keyboard::default();
            let count = bytes.len().div_ceil(part);
            let found: Vec<Key> =
                bytes.chunks(part).enumerate().flat_map(|(n, b)| keyboard.keys(b, n + 1 == count)).collect();
            assert_eq!(found, right, "{part}");
        }
    }

    #[test]
    fn what_is_no_key_waits_for_nothing() {
        for bytes in [
            &b"\xc3"[..],
            b"\x1b[",
            b"\x1bO",
            b"\xff\xff",
            b"\x1b[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1",
            b"\0",
        ] {
            let mut keyboard = Keyboard::default();
            let first = keyboard.keys(bytes, true);
            let mut all = keyboard.keys(b"q", true);
            all.retain(|key| *key == Key::Char('q'));
            assert!(!first.contains(&Key::Char('q')) && all.len() == 1, "{bytes:?} {first:?}");
        }
    }
}
