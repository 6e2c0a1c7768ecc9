//! The notes of `.note.usdt`, which headers of the C port of DTrace make.
//!
//! ```text
//!  note     as in .note.stapsdt, with the owner `usdt` and the kind 1 (2: a place that says whether the probe is traced)
//!  contents u64 address of the site │ u64 address of the function's name │ provider NUL │ name NUL
//!           u8 number of arguments │ operands as in .note.stapsdt, NUL
//! ```
//!
//! A place of the second kind is no site: the tracer would have to write into the process there. So a probe that a program tests before it
//! fires does not fire. The names of functions are those of the symbols, which are there for every kind of notes.

use crate::note::{Contents, Note};

/// The owner of the notes.
const OWNER: &[u8] = b"usdt\0";
/// The kind of a site.
const KIND: u32 = 1;

/// The sites in a section, those that can be read.
pub fn port_notes(bytes: &[u8]) -> impl Iterator<Item = Note<'_>> {
    Contents::new(bytes, OWNER, KIND).filter_map(read)
}

fn read(contents: &[u8]) -> Option<Note<'_>> {
    let address = contents.get(..8)?.try_into().ok().map(u64::from_ne_bytes)?;
    let mut rest = contents.get(16..)?;
    let mut text = || {
        let (text, behind) = rest.split_at_checked(rest.iter().position(|b| *b == 0)?)?;
        rest = behind.get(1..)?;
        std::str::from_utf8(text).ok()
    };
    let (provider, name) = (text()?, text()?);
    let arguments = match rest.split_first()? {
        (0, _) => "",
        (_, operands) => {
            std::str::from_utf8(operands.split(|b| *b == 0).next().unwrap_or_default()).unwrap_or_default()
        }
    };
    Some(Note { provider, name, arguments, address, semaphore: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::tests::wrapped as note;

    fn contents(address: u64, texts: &[u8]) -> Vec<u8> {
        [&address.to_ne_bytes()[..], &7u64.to_ne_bytes(), texts].concat()
    }

    fn section() -> Vec<u8> {
        [
            note(b"prov\0", 1, b"app\0"),
            note(OWNER, 1, &contents(0x1234, b"app\0a__b\0\x02-4@%eax 8@(%rdx)\0")),
            note(OWNER, 2, &contents(0x1235, b"app\0a__b\0\0\0")),
            note(OWNER, 1, &contents(9, b"app\0none\0\0\0")),
            note(OWNER, 1, &contents(9, b"app\0cut")),
        ]
        .concat()
    }

    #[test]
    fn sites_are_read_and_other_notes_are_skipped() {
        let bytes = section();
        let all: Vec<_> = port_notes(&bytes).map(|n| (n.provider, n.name, n.arguments, n.address)).collect();
        assert_eq!(all, [("app", "a__b", "-4@%eax 8@(%rdx)", 0x1234), ("app", "none", "", 9)]);
    }

    #[test]
    fn no_bytes_are_read_beyond_the_end() {
        let whole = section();
        for end in 0..whole.len() {
            assert!(port_notes(&whole[..end]).count() <= 2);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 5, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let texts = port_notes(&changed).map(|n| n.provider.len() + n.name.len() + n.arguments.len());
                assert!(texts.sum::<usize>() <= changed.len());
            }
        }
    }
}
