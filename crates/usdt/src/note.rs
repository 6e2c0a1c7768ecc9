//! The notes of `.note.stapsdt`.
//!
//! ```text
//!  note     u32 bytes of the owner │ u32 bytes of the contents │ u32 kind │ owner │ contents        both padded to four bytes
//!  contents u64 address of the site │ u64 address of .stapsdt.base │ u64 address of the semaphore, or 0
//!           provider NUL │ name NUL │ arguments NUL
//! ```
//!
//! The addresses are those of the time when the file was linked. A tool that moves the sections of
//! a finished file (prelink, a packer) does not know of them. So where `.stapsdt.base` is now tells
//! how far they moved.

/// The owner of the notes.
const OWNER: &[u8] = b"stapsdt\0";
/// Their kind.
const KIND: u32 = 3;

/// A site of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// The provider.
    pub provider: &'a str,
    /// The name of the probe.
    pub name: &'a str,
    /// The arguments ([`crate::Machine::arguments`]).
    pub arguments: &'a str,
    /// The address of the site in the file.
    pub address: u64,
    /// The address of the semaphore: a counter of 16 bits, which is not 0 while somebody traces the
    /// probe. 0 if there is none.
    pub semaphore: u64,
}

/// The notes in a section, those that can be read. The machine has 64 bits, and the byte order is
/// this machine's.
#[derive(Clone, Debug)]
pub struct Notes<'a> {
    contents: Contents<'a>,
    base: Option<u64>,
}

impl<'a> Notes<'a> {
    /// The notes of these bytes. `base` is the address of `.stapsdt.base` in the file, if it has
    /// that section.
    pub fn new(bytes: &'a [u8], base: Option<u64>) -> Notes<'a> {
        Notes { contents: Contents::new(bytes, OWNER, KIND), base }
    }
}

impl<'a> Iterator for Notes<'a> {
    type Item = Note<'a>;

    fn next(&mut self) -> Option<Note<'a>> {
        self.contents.find_map(|contents| read(contents, self.base))
    }
}

/// The contents of the notes of a section that have one owner and kind.
#[derive(Clone, Debug)]
pub(crate) struct Contents<'a> {
    rest: &'a [u8],
    owner: &'static [u8],
    kind: u32,
}

impl<'a> Contents<'a> {
    pub(crate) fn new(bytes: &'a [u8], owner: &'static [u8], kind: u32) -> Contents<'a> {
        Contents { rest: bytes, owner, kind }
    }
}

impl<'a> Iterator for Contents<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let (contents, rest) = split(self.rest, self.owner, self.kind)?;
            self.rest = rest;
            if contents.is_some() {
                return contents;
            }
        }
    }
}

/// The contents of the first note, if it has this owner and kind, and the bytes behind it.
fn split<'a>(bytes: &'a [u8], of: &[u8], wanted: u32) -> Option<(Option<&'a [u8]>, &'a [u8])> {
    let (head, rest) = bytes.split_at_checked(12)?;
    let word = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let (owner, contents, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    let (name, rest) = rest.split_at_checked(owner.checked_next_multiple_of(4)?)?;
    let text = rest.get(..contents)?;
    // The last note may lack its padding.
    let behind = rest.get(contents.checked_next_multiple_of(4)?..).unwrap_or_default();
    let is_ours = kind == wanted && owner == of.len() && name.get(..owner) == Some(of);
    Some((is_ours.then_some(text), behind))
}

fn read(contents: &[u8], base: Option<u64>) -> Option<Note<'_>> {
    let word = |at: usize| contents.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let (address, linked, semaphore) = (word(0)?, word(8)?, word(16)?);
    let mut texts = contents.get(24..)?.split(|b| *b == 0);
    let mut text = || std::str::from_utf8(texts.next()?).ok();
    let (provider, name, arguments) = (text()?, text()?, text().unwrap_or_default());
    let moved = base.filter(|_| linked != 0).map_or(0, |base| base.wrapping_sub(linked));
    let semaphore = if semaphore == 0 { 0 } else { semaphore.wrapping_add(moved) };
    Some(Note { provider, name, arguments, address: address.wrapping_add(moved), semaphore })
}

#[cfg(test)]
pub(crate) mod tests;
