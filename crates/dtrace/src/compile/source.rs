//! A program as the user gave it.

use diagnostics::control;

/// Which field a command-line description is aligned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `-P`
    Provider,
    /// `-m`
    Module,
    /// `-f`
    Function,
    /// `-n`, and `-i` with a number instead of a description
    Name,
}

/// A program as the user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `-s`: file name and text.
    Script(String, String),
    /// `-n` and its like.
    Specifier(Field, String),
}

impl Source {
    /// The text before "matched N probes": `script 'F'`, `description 'TEXT'`.
    pub fn title(&self) -> String {
        match self {
            Source::Script(name, _) => format!("script '{}'", control::name_text(name)),
            Source::Specifier(_, text) => {
                let end = description_end(text);
                format!("description '{}'", &text[..end])
            }
        }
    }
}

/// The position where the predicate or the body begins.
fn description_end(text: &str) -> usize {
    text.find(['/', '{', ';']).unwrap_or(text.len())
}
