//! The notes of `.note.dtrace`, in which a program has the definitions of its providers as D text.
//!
//! ```text
//!  note     as in .note.stapsdt, with the owner `dtrace` and the kind 1
//!  contents u32 version: 1 │ name of the provider NUL │ D text NUL
//! ```
//!
//! The text is D of a traced process. Nothing here says that it is valid.

use crate::note::Contents;

/// The owner of the notes.
const OWNER: &[u8] = b"dtrace\0";
/// Their kind.
const KIND: u32 = 1;
/// The version that is known.
const VERSION: u32 = 1;
/// The longest contents, in bytes.
const LONGEST: usize = 64 << 10;

/// What a file says of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition<'a> {
    /// The name of the provider, as the notes of its sites have it.
    pub provider: &'a str,
    /// D: pragmas, types, inlines, translators and the provider block.
    pub text: &'a str,
}

/// The definitions in a section, those that can be read.
pub fn definitions(bytes: &[u8]) -> impl Iterator<Item = Definition<'_>> {
    Contents::new(bytes, OWNER, KIND).filter_map(read)
}

fn read(contents: &[u8]) -> Option<Definition<'_>> {
    let (version, texts) = contents.split_at_checked(4)?;
    let version = version.try_into().ok().map(u32::from_ne_bytes)?;
    if version != VERSION || contents.len() > LONGEST {
        return None;
    }
    let mut texts = texts.split(|b| *b == 0);
    let mut text = || std::str::from_utf8(texts.next()?).ok();
    let (provider, text) = (text()?, text()?);
    (!provider.is_empty()).then_some(Definition { provider, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::tests::wrapped as note;

    fn contents(version: u32, text: &[u8]) -> Vec<u8> {
        [&version.to_ne_bytes()[..], text].concat()
    }

    #[test]
    fn definitions_are_read_and_other_notes_are_skipped() {
        let bytes = [
            note(b"GNU\0", 1, b"1234"),
            note(OWNER, 1, &contents(1, b"app\0provider app {};\0")),
            note(OWNER, 2, &contents(1, b"app\0x\0")),
            note(OWNER, 1, &contents(2, b"app\0x\0")),
            note(OWNER, 1, &contents(1, b"\0x\0")),
            note(OWNER, 1, &contents(1, b"\xff\0x\0")),
            note(OWNER, 1, &contents(1, &[b"big\0", &vec![b'x'; LONGEST][..]].concat())),
            note(OWNER, 1, &contents(1, b"b\0text")),
        ]
        .concat();
        let all: Vec<_> = definitions(&bytes).map(|d| (d.provider, d.text)).collect();
        assert_eq!(all, [("app", "provider app {};"), ("b", "text")]);
    }

    #[test]
    fn no_bytes_are_read_beyond_the_end() {
        let whole =
            [note(OWNER, 1, &contents(1, b"app\0text\0")), note(OWNER, 1, &contents(1, b"b\0\0"))].concat();
        for end in 0..whole.len() {
            assert!(definitions(&whole[..end]).count() <= 2);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let texts = definitions(&changed).map(|d| d.provider.len() + d.text.len());
                assert!(texts.sum::<usize>() <= changed.len());
            }
        }
    }
}
