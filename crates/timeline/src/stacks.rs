//! Call stacks: frames and stacks are in a trace once.

use std::collections::HashMap;

use events::{Stack, Symbol};
use flame::escape;
use protobuf::Message;

use crate::field::interned;
use crate::names::Names;

/// The most numbers that are kept of all stacks. Further ones are texts of their events.
const MOST: usize = 1 << 20;

/// The frames and stacks that are in a trace.
#[derive(Debug)]
pub(crate) struct Stacks {
    functions: Names,
    paths: Names,
    /// The numbers of the mappings that are described: that of the path.
    mappings: u64,
    frames: HashMap<(u64, u64), u64>,
    stacks: HashMap<Box<[u64]>, u64>,
    kept: usize,
}

impl Stacks {
    pub(crate) fn new() -> Stacks {
        Stacks {
            functions: Names::new(interned::FUNCTIONS),
            paths: Names::new(interned::PATHS),
            mappings: 0,
            frames: HashMap::new(),
            stacks: HashMap::new(),
            kept: 0,
        }
    }

    /// The number of a call stack: that of a process, then that of the kernel that it has called.
    /// `None`: there are no frames, or too many in the trace.
    pub(crate) fn number<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Stack>,
        fresh: &mut Message,
    ) -> Option<u64> {
        let frames = all.flat_map(|stack| stack.frames.iter().rev());
        let numbers: Option<Box<[u64]>> = frames.map(|frame| self.frame(frame, fresh)).collect();
        self.stack(numbers.filter(|numbers| !numbers.is_empty())?, fresh)
    }

    fn stack(&mut self, frames: Box<[u64]>, fresh: &mut Message) -> Option<u64> {
        if let Some(number) = self.stacks.get(&frames) {
            return Some(*number);
        }
        if self.kept + frames.len() > MOST {
            return None;
        }
        self.kept += frames.len() + 4;
        let number = self.stacks.len() as u64 + 1;
        let mut entry = Message::default();
        entry.number(interned::NUMBER, number);
        frames.iter().for_each(|frame| entry.number(interned::CALLSTACK_FRAME, *frame));
        fresh.message(interned::CALLSTACKS, &entry);
        self.stacks.insert(frames, number);
        Some(number)
    }

    fn frame(&mut self, symbol: &Symbol, fresh: &mut Message) -> Option<u64> {
        let (path, function) = parts(symbol);
        let function = self.functions.number(&function, fresh)?;
        let path = self.paths.number(&path, fresh)?;
        if path > self.mappings {
            self.mappings = path;
            let mut mapping = Message::default();
            mapping.number(interned::NUMBER, path);
            mapping.number(interned::MAPPING_PATH, path);
            fresh.message(interned::MAPPINGS, &mapping);
        }
        if let Some(number) = self.frames.get(&(function, path)) {
            return Some(*number);
        }
        if self.kept > MOST {
            return None;
        }
        self.kept += 4;
        let number = self.frames.len() as u64 + 1;
        let mut entry = Message::default();
        entry.number(interned::NUMBER, number);
        entry.number(interned::FRAME_FUNCTION, function);
        entry.number(interned::FRAME_MAPPING, path);
        fresh.message(interned::FRAMES, &entry);
        self.frames.insert((function, path), number);
        Some(number)
    }
}

/// What a frame's function is in, and the function.
fn parts(symbol: &Symbol) -> (String, String) {
    let name = &symbol.name;
    let escaped = |text: &str| escape::name(text.as_bytes());
    let path = match (&name.path, &name.module, &name.file) {
        (Some(path), ..) | (None, Some(path), _) | (None, None, Some(path)) => escaped(path),
        _ if symbol.process.is_none() => "[kernel]".into(),
        _ => "[unknown]".into(),
    };
    let function = match (&name.symbol, name.in_file) {
        (Some(function), _) => escaped(function),
        (None, Some(address)) => format!("{address:#x}"),
        (None, None) => format!("{:#x}", symbol.address),
    };
    (path, function)
}

/// A stack that is not the call stack of its event, as text.
pub(crate) fn text(stack: &Stack) -> String {
    let frames = stack.frames.iter().map(|frame| escape::name(frame.text().as_bytes()));
    frames.collect::<Vec<_>>().join("\n")
}
