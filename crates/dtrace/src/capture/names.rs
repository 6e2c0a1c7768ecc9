//! Names of addresses, as sessions have them and as files do.

use std::sync::Arc;

use capture::{Firing, Symbol as Stored};
use events::{Stack, Symbol, SymbolName};

/// An address with its name, for a file.
pub(super) fn stored(symbol: &Symbol) -> Stored {
    let bytes = |text: &Option<Arc<str>>| text.as_ref().map(|text| text.as_bytes().to_vec());
    let name = &symbol.name;
    Stored {
        address: symbol.address,
        module: bytes(&name.module),
        symbol: bytes(&name.symbol),
        path: bytes(&name.path),
        offset: name.offset,
        in_file: name.in_file,
    }
}

/// The frames of a stack that have an address of their own.
pub(super) fn frames(stack: &Stack) -> Vec<Stored> {
    let own = |symbol: &&Symbol| !symbol.name.inlined && !symbol.name.interpreted;
    stack.frames.iter().filter(own).map(stored).collect()
}

/// The names that a firing has, each of a process or of the kernel.
pub(super) fn of_firing(firing: &Firing) -> Vec<(Option<u32>, u64, SymbolName)> {
    let pid = firing.words.iter().find(|(word, _)| *word == capture::Word::Pid).map(|(_, pid)| *pid as u32);
    let kernel = firing.stack.iter().flatten().map(|frame| (None, frame));
    let user = firing.ustack.iter().flatten().map(|frame| (pid, frame));
    let others = firing.symbols.iter().map(|(process, symbol)| (*process, symbol));
    kernel
        .chain(user)
        .chain(others)
        .map(|(process, symbol)| (process, symbol.address, name(symbol)))
        .collect()
}

fn name(symbol: &Stored) -> SymbolName {
    let text =
        |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| Arc::from(String::from_utf8_lossy(bytes)));
    let mut name = SymbolName::new(text(&symbol.module), text(&symbol.symbol), symbol.offset);
    (name.path, name.in_file) = (text(&symbol.path), symbol.in_file);
    name
}
