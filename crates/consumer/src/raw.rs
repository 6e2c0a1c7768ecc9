//! Values as records and keys have them, before they get their symbols.

use std::sync::Arc;

use events::{AddrForm, Int};
use plane::address::Text;
use plane::stacks::Stack;

/// One value of a record or key, as it was recorded. Keys are compared in this form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw<'a> {
    /// A number.
    Int(Int),
    /// A string and its size in the record, including NULs.
    Str(&'a [u8], u32),
    /// A name that the process has chosen (`execname`), and its size.
    Name(&'a [u8], u32),
    /// A string that was made here from what was recorded.
    Made(Box<[u8]>),
    /// The text of a network address, and the size of a string in its place.
    Address(Text, u32),
    /// Memory.
    Bytes(&'a [u8]),
    /// A stack; of a process if its `tgid` is not 0.
    Stack(Arc<Stack>),
    /// A kernel address that is printed as a symbol.
    KernelAddr(u64, AddrForm),
    /// An address of a process that is printed as a symbol.
    UserAddr {
        /// The process.
        pid: u32,
        /// The address.
        addr: u64,
        /// The form.
        form: AddrForm,
    },
}

impl Raw<'_> {
    /// The bytes of a string.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Raw::Str(text, _) | Raw::Name(text, _) => Some(text),
            Raw::Made(text) => Some(text),
            Raw::Address(text, _) => Some(text.as_bytes()),
            _ => None,
        }
    }
}

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// The kernel (`%a`).
    Kernel,
    /// The target (`%A`).
    Target,
}

/// The execution context that calls nest in: a thread or a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallContext {
    /// A thread, identified by the lowest bits of its id.
    Thread(u16),
    /// A CPU.
    Cpu(u32),
}

/// The bytes up to the first NUL.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|b| *b == 0).and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

/// A number of at most eight bytes; what is missing is 0.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// The text in the bytes, if they are text: printable characters and then only NULs. Bytes that
/// begin with a NUL are not text.
pub(crate) fn printable(bytes: &[u8]) -> Option<&[u8]> {
    let begin = text(bytes);
    let rest = bytes.get(begin.len()..).unwrap_or_default();
    (!begin.is_empty() && begin.iter().all(looks_like_text) && rest.iter().all(|b| *b == 0)).then_some(begin)
}

/// Printable characters, blanks, and the controls that have a letter escape in C.
pub(crate) fn looks_like_text(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~' | 7..=13)
}
