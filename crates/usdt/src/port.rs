//! The notes of `.note.usdt`, which headers of the C port of DTrace make.
//!
//! ```text
//!  note     as in .note.stapsdt, with the owner `usdt` and the kind 1 (2: a place that says whether the probe is traced)
//!  contents u64 address of the site │ u64 address of the function's name │ provider NUL │ name NUL
//!           u8 number of arguments │ operands as in .note.stapsdt, NUL
//! ```
//!
//! What `dtrace -G` of the port has made of a definition is in a note of the owner `prov` there:
//!
//! ```text
//!  name of the provider NUL │ padding to 4 bytes
//!  five words: the attributes of provider, module, function, name and args; from the top stability of name and of data, class, 0
//!  u32 number of probes, and for each from a multiple of 4 bytes on
//!      name NUL │ u8 number of arguments │ the type of each NUL │ u8 number of translated ones │ of each the type NUL, u8 which it is made of
//! ```
//!
//! It is read as the D text from which it could have been made.
//!
//! A place of the second kind is no site: the tracer would have to write into the process there. So
//! a probe that a program tests before it fires does not fire. The names of functions are those of
//! the symbols, which are there for every kind of notes.

use crate::note::{Contents, Note};

/// The owner of the notes.
const OWNER: &[u8] = b"usdt\0";
/// The kind of a site.
const KIND: u32 = 1;

/// The owner of the note that has a definition, and its kind.
const DEFINITION: (&[u8], u32) = (b"prov\0", 1);
/// The longest text that is made of one, in bytes.
const LONGEST: usize = 64 << 10;

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

/// The definitions in a section, those that can be read: the name of the provider, and D text.
pub fn port_definitions(bytes: &[u8]) -> impl Iterator<Item = (&str, String)> {
    let (owner, kind) = DEFINITION;
    Contents::new(bytes, owner, kind).filter_map(|contents| definition(&mut Words { all: contents, at: 0 }))
}

/// The contents of a note, up to what was read.
struct Words<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    fn text(&mut self) -> Option<&'a str> {
        let rest = self.all.get(self.at..)?;
        let text = rest.get(..rest.iter().position(|b| *b == 0)?)?;
        self.at += text.len() + 1;
        std::str::from_utf8(text).ok()
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.all.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn word(&mut self) -> Option<u32> {
        self.at = self.at.checked_next_multiple_of(4)?;
        let word = self.all.get(self.at..)?.first_chunk().copied().map(u32::from_ne_bytes)?;
        self.at += 4;
        Some(word)
    }
}

fn definition<'a>(words: &mut Words<'a>) -> Option<(&'a str, String)> {
    let provider = words.text()?;
    let mut text = String::new();
    if !is_identifier(provider) {
        return None;
    }
    for subject in ["provider", "module", "function", "name", "args"] {
        let attributes = attributes(words.word()?)?;
        text.push_str(&format!("#pragma D attributes {attributes} provider {provider} {subject}\n"));
    }
    text.push_str(&format!("provider {provider} {{\n"));
    for _ in 0..words.word()? {
        words.at = words.at.checked_next_multiple_of(4)?;
        let name = words.text()?.replace('-', "__");
        let own = (0..words.byte()?).map(|n| Some((kind(words.text()?), n))).collect::<Option<Vec<_>>>()?;
        let made = (0..words.byte()?).map(|_| Some((kind(words.text()?), words.byte()?)));
        let made = made.collect::<Option<Vec<_>>>()?;
        if !is_identifier(&name) || text.len() > LONGEST {
            return None;
        }
        let list = |all: &[(&str, u8)]| {
            all.iter().map(|(kind, n)| format!("{kind} a{n}")).collect::<Vec<_>>().join(", ")
        };
        text.push_str(&format!("\tprobe {name}({})", list(&own)));
        if made != own {
            text.push_str(&format!(" : ({})", list(&made)));
        }
        text.push_str(";\n");
    }
    text.push_str("};\n");
    Some((provider, text))
}

fn is_identifier(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A type, if it is one that stands before the name of a parameter.
fn kind(text: &str) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ' ' | '*');
    if !text.is_empty() && text.chars().all(is_plain) { text } else { "uintptr_t" }
}

/// Attributes in the words of D.
fn attributes(word: u32) -> Option<String> {
    const STABILITIES: [&str; 8] =
        ["Internal", "Private", "Obsolete", "External", "Unstable", "Evolving", "Stable", "Standard"];
    const CLASSES: [&str; 6] = ["Unknown", "CPU", "Platform", "Group", "ISA", "Common"];
    let [name, data, class, _] = word.to_be_bytes().map(usize::from);
    Some(format!("{}/{}/{}", STABILITIES.get(name)?, STABILITIES.get(data)?, CLASSES.get(class)?))
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

    /// As the port's 2.0.7 has written it.
    fn made() -> Vec<u8> {
        let attributes = [0x0506_0500u32, 0x0100_0000, 0x0203_0100, 0x0705_0200, 0x0605_0400, 3];
        let words: Vec<u8> = attributes.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let start = b"start\0\x02int\0char *\0\x02int\0\0char *\0\x01";
        let done = b"query-done\0\x02int\0char *\0\x03char *\0\x01int\0\0int\0\0\0\0";
        let none = b"none\0\0\0\0";
        note(b"prov\0", 1, &[&b"app\0"[..], &words, start, done, none].concat())
    }

    #[test]
    fn definitions_are_text_of_d() {
        let bytes = [section(), made()].concat();
        let all: Vec<_> = port_definitions(&bytes).collect();
        let text = "#pragma D attributes Evolving/Stable/Common provider app provider\n\
                    #pragma D attributes Private/Internal/Unknown provider app module\n\
                    #pragma D attributes Obsolete/External/CPU provider app function\n\
                    #pragma D attributes Standard/Evolving/Platform provider app name\n\
                    #pragma D attributes Stable/Evolving/ISA provider app args\n\
                    provider app {\n\
                    \tprobe start(int a0, char * a1);\n\
                    \tprobe query__done(int a0, char * a1) : (char * a1, int a0, int a0);\n\
                    \tprobe none();\n};\n";
        assert_eq!(all, [("app", text.to_owned())]);
    }

    #[test]
    fn what_is_no_name_and_no_type_is_not_taken_into_the_text() {
        let bytes = made();
        let replaced = |from: &[u8], to: &[u8]| {
            let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
            [&bytes[..at], to, &bytes[at + from.len()..]].concat()
        };
        let other = replaced(b"int\0", b"i{}\0");
        let (_, text) = port_definitions(&other).next().unwrap();
        assert!(text.contains("probe start(uintptr_t a0, char * a1) : (int a0"), "{text}");
        for other in [replaced(b"start\0", b"s;}rt\0"), replaced(b"app\0", b"a p\0")] {
            assert_eq!(port_definitions(&other).count(), 0);
        }
    }

    #[test]
    fn no_bytes_are_read_beyond_the_end() {
        let defined = made();
        for at in 0..defined.len() {
            assert!(port_definitions(&defined[..at]).count() == 0);
            for value in [0, 1, 5, 0x7f, 0xff] {
                let mut changed = defined.clone();
                changed[at] = value;
                assert!(port_definitions(&changed).all(|(_, text)| text.len() <= LONGEST + (64 << 10)));
            }
        }
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
