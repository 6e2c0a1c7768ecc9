//! Functions and source lines of a file, as the session knows them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// A function at an address, and the place in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// The name of the function, if it is known.
    pub function: Option<Arc<str>>,
    /// The path of the source file, as the compiler was given it.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
}

/// Those of a file.
#[derive(Default)]
pub(crate) struct Sources {
    /// By offset, the innermost function first.
    pub(crate) known: HashMap<u64, Arc<[SourceFrame]>>,
    /// When a request for them last failed.
    pub(crate) failed_at: Option<Instant>,
    /// The texts of all, each once.
    texts: HashSet<Arc<str>>,
}

impl Sources {
    /// Stores what is at an offset. `bytes` grows by the memory.
    pub(crate) fn add(&mut self, offset: u64, frames: Vec<debuginfo::SourceFrame>, bytes: &mut usize) {
        *bytes += 64 + frames.len() * size_of::<SourceFrame>();
        let frame = |frame: debuginfo::SourceFrame| SourceFrame {
            function: self.text(frame.function, bytes),
            file: self.text(frame.file, bytes),
            line: frame.line,
        };
        let frames: Arc<[SourceFrame]> = frames.into_iter().map(frame).collect();
        self.known.insert(offset, frames);
    }

    fn text(&mut self, text: Option<String>, bytes: &mut usize) -> Option<Arc<str>> {
        let text = text?;
        if let Some(known) = self.texts.get(&*text) {
            return Some(known.clone());
        }
        *bytes += 64 + text.len();
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        Some(text)
    }
}
