//! What the form of a value depends on, and how names are escaped.

use std::borrow::Cow;

use diagnostics::control;
use events::Symbol;

use crate::options::Options;

/// What the form of a value depends on.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The current options.
    pub(crate) options: &'a Options,
    /// The output is a terminal, which interprets control characters.
    pub(crate) terminal: bool,
    /// Addresses and ports are printed by name, for which the resolver is called.
    pub(crate) resolves: bool,
}

impl View<'_> {
    /// A string that a program prints, escaped if the output is a terminal.
    pub(crate) fn data<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        if self.terminal { control::terminal(text) } else { Cow::Borrowed(text) }
    }
}

/// The name of an address, escaped for printing.
pub(super) fn symbol(symbol: &Symbol) -> Vec<u8> {
    let mut name = Vec::with_capacity(64);
    symbol.write(&mut name);
    match control::name(&name) {
        Cow::Borrowed(_) => name,
        Cow::Owned(escaped) => escaped.into_bytes(),
    }
}
