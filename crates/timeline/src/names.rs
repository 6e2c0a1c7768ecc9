//! Texts that are in a trace once, with a number.

use std::borrow::Cow;
use std::collections::HashMap;

use diagnostics::control;
use flame::escape;
use protobuf::Message;

use crate::field::interned;

/// The most bytes of the texts of one kind: further ones are written wherever they occur.
const MOST: usize = 4 << 20;

/// The most characters of a name.
const LONGEST: usize = 1000;

/// A name that a process or a script has chosen: escaped, and not too long.
pub(crate) fn plain(name: &[u8]) -> Cow<'_, str> {
    let escaped = control::name(name);
    if escaped.len() <= LONGEST { escaped } else { escape::cut(&escaped, LONGEST).into() }
}

/// The texts of one kind.
#[derive(Debug)]
pub(crate) struct Names {
    /// The field of the kind in `InternedData`.
    field: u64,
    numbers: HashMap<Box<str>, u64>,
    bytes: usize,
}

impl Names {
    pub(crate) fn new(field: u64) -> Names {
        Names { field, numbers: HashMap::new(), bytes: 0 }
    }

    /// The number of a text; that of a new one is added to what the next packet says. `None`: there
    /// are too many.
    pub(crate) fn number(&mut self, text: &str, fresh: &mut Message) -> Option<u64> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        // An entry of the table is counted with its text.
        let size = text.len() + size_of::<(Box<str>, u64)>();
        if self.bytes + size > MOST {
            return None;
        }
        self.bytes += size;
        let number = self.numbers.len() as u64 + 1;
        let mut entry = Message::default();
        entry.number(interned::NUMBER, number);
        entry.bytes(interned::TEXT, text.as_bytes());
        fresh.message(self.field, &entry);
        self.numbers.insert(text.into(), number);
        Some(number)
    }
}
