//! What is compiled, and with what.

use diagnostics::control;
use events::Needs;
use providers::Provider;

use crate::options::Options;

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

/// The operands and ids that macro variables are replaced with.
#[derive(Clone, Debug, Default)]
pub struct Macros {
    /// `$0`, if the program is not a script.
    pub name: String,
    /// `$1` and so on.
    pub args: Vec<String>,
    /// `$target`.
    pub target: u64,
}

/// What a program is compiled with, besides its sources.
pub struct Setup {
    /// Providers that the caller brings along.
    pub providers: Vec<Box<dyn Provider>>,
    /// What the output needs of records, by the options as the sources have set them. A caller that
    /// knows its sink before sets the option `processids` instead.
    pub needs: fn(&Options) -> Needs,
    /// The program does not run: option values that only a session rejects are no error.
    pub shown_only: bool,
    /// The session is that of a program and not of the command: an option that no session obeys
    /// is an error where a source sets it.
    pub library: bool,
    /// `snap()` is no error: there are rings of which it makes a snapshot, or the program only asks
    /// a capture.
    pub snaps: fn(&Options) -> bool,
    /// Asked while the program is checked, which may take long where processes have many
    /// definitions of their probes. When it answers true, compiling ends with
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub stop: Box<dyn Fn() -> bool>,
}

impl Default for Setup {
    fn default() -> Setup {
        let needs = |_: &Options| Needs::default();
        Setup {
            providers: Vec::new(),
            needs,
            shown_only: false,
            library: false,
            snaps: |_| false,
            stop: Box::new(|| false),
        }
    }
}
