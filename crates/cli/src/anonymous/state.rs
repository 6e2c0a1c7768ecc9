//! The stored enabling: the words of a command, and the texts of the files that they name.
//!
//! ```text
//!  dtrace anonymous enabling 1
//!  word 2
//!  -s
//!  word 6
//!  boot.d
//!  file 29
//!  proc:::exec-success { … }
//!  end
//! ```
//!
//! Lengths are those of the bytes between the newline before and the one behind. Files are in the
//! order in which words name them. What is read may be anything: it is one file, which is whole or
//! is refused.

use std::io::{self, Read, Write};

use dtrace::diagnostics::{control, raw};

use super::place::{self, Places};

/// The first line.
const HEAD: &str = "dtrace anonymous enabling 1";
/// The most bytes of the file.
const LARGEST: u64 = 32 << 20;
/// The most words, and files.
const MOST: usize = 4096;

/// What was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The words, without `-A`.
    pub(crate) words: Vec<String>,
    /// The texts of the programs that are files.
    pub(crate) files: Vec<String>,
}

impl State {
    /// The bytes of the file.
    fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{HEAD}\n").into_bytes();
        let words = self.words.iter().map(|text| ("word", text));
        for (kind, text) in words.chain(self.files.iter().map(|text| ("file", text))) {
            let bytes = raw::bytes(text);
            out.extend(format!("{kind} {}\n", bytes.len()).into_bytes());
            out.extend(bytes);
            out.push(b'\n');
        }
        out.extend(b"end\n");
        out
    }

    /// Reads what [`State::bytes`] wrote. An error is what is wrong, and where.
    fn of(bytes: &[u8]) -> Result<State, String> {
        let mut state = State::default();
        let mut at = 0;
        let line = |at: &mut usize| -> Result<String, String> {
            let rest = bytes.get(*at..).unwrap_or_default();
            let end = rest.iter().take(64).position(|b| *b == b'\n');
            let end = end.ok_or_else(|| format!("byte {at}: a line is missing"))?;
            *at += end + 1;
            let text = rest.get(..end).unwrap_or_default();
            String::from_utf8(text.to_vec()).map_err(|_| format!("byte {at}: no text"))
        };
        if line(&mut at)? != HEAD {
            return Err("it is no enabling of this version of dtrace".into());
        }
        loop {
            let begin = at;
            let head = line(&mut at)?;
            if head == "end" {
                break;
            }
            let wrong = || format!("byte {begin}: neither a word nor a file");
            let (kind, length) = head.split_once(' ').ok_or_else(wrong)?;
            let length: usize = length.parse().map_err(|_| wrong())?;
            let end = at.checked_add(length).filter(|end| bytes.get(*end) == Some(&b'\n'));
            let end = end.ok_or_else(|| format!("byte {begin}: the length is wrong"))?;
            let text = raw::text(bytes.get(at..end).unwrap_or_default().to_vec());
            at = end + 1;
            match kind {
                "word" if state.files.is_empty() => state.words.push(text),
                "file" => state.files.push(text),
                _ => return Err(wrong()),
            }
            if state.words.len() > MOST || state.files.len() > MOST {
                return Err(format!("byte {begin}: more than {MOST} words or files"));
            }
        }
        if at != bytes.len() {
            return Err(format!("byte {at}: there is more behind its end"));
        }
        Ok(state)
    }

    /// Stores it instead of what was stored.
    pub(crate) fn write(&self, places: &Places) -> io::Result<()> {
        let bytes = self.bytes();
        if bytes.len() as u64 > LARGEST {
            let text = format!("the programs are longer than {} MiB", LARGEST >> 20);
            return Err(io::Error::other(text));
        }
        place::private_dir(&places.stored())?;
        place::replace(&places.enabling(), 0o600, |file| file.write_all(&bytes))
    }

    /// Reads what is stored. `None`: nothing. An error is a message.
    pub(crate) fn read(places: &Places) -> Result<Option<State>, String> {
        let path = places.enabling();
        let shown = control::name_text(&path.to_string_lossy()).into_owned();
        let Some(file) = place::open(&path).map_err(|e| e.to_string())? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|e| format!("{shown}: {}", dtrace::diagnostics::system_text(&e)))?;
        if bytes.len() as u64 > LARGEST {
            return Err(format!("{shown}: longer than {} MiB", LARGEST >> 20));
        }
        State::of(&bytes)
            .map(Some)
            .map_err(|why| format!("{shown} is damaged: {why}: store it again with -A"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let odd = raw::text(b"a\xff\n\"".to_vec());
        State {
            words: ["-q", "-s", "x.d", "", "end", &odd].map(String::from).into(),
            files: vec!["BEGIN\n{\n}\nend\n".into(), String::new(), odd],
        }
    }

    #[test]
    fn words_and_files_are_read_as_they_were_written() {
        for state in [state(), State::default()] {
            assert_eq!(State::of(&state.bytes()).unwrap(), state);
        }
    }

    #[test]
    fn what_is_damaged_is_an_error_wherever_it_is() {
        let bytes = state().bytes();
        for n in 0..bytes.len() {
            State::of(&bytes[..n]).unwrap_err();
        }
        for (n, other) in (0..bytes.len()).flat_map(|n| [0, b'9', 0xff].map(|other| (n, other))) {
            let mut damaged = bytes.clone();
            damaged[n] = other;
            // It is another text, or an error.
            let _ = State::of(&damaged);
        }
        let of = |text: &str| State::of(text.as_bytes()).unwrap_err();
        assert!(of("dtrace anonymous enabling 2\nend\n").contains("no enabling of this version"));
        let head = format!("{HEAD}\n");
        assert!(of(&format!("{head}word 18446744073709551615\n")).contains("byte 28: the length is wrong"));
        assert!(of(&format!("{head}file 0\n\nword 0\n\nend\n")).contains("neither a word nor a file"));
        assert!(of(&format!("{head}end\nend\n")).contains("there is more behind its end"));
        assert!(of(&format!("{head}{}end\n", "word 0\n\n".repeat(MOST + 1))).contains("more than 4096"));
    }

    #[test]
    fn it_is_stored_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = testing::dir::Dir::new("anonymous-state");
        let places = Places::under(&dir);
        assert_eq!(State::read(&places).unwrap(), None);
        State::default().write(&places).unwrap();
        state().write(&places).unwrap();
        assert_eq!(State::read(&places).unwrap(), Some(state()));
        let mode = places.enabling().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(places.stored()).unwrap().count(), 1);
        std::fs::write(places.enabling(), "text").unwrap();
        assert!(State::read(&places).unwrap_err().contains("is damaged: "));
    }
}
