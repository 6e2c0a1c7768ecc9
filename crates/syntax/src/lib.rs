//! D text to tokens to tree; never fails. Knows no types and no kernels.
//!
//! [`parse`] makes an [`ast::Program`] of any text whatever, and leaves what is wrong with it in a
//! [`diagnostics::Sink`]: every error of the text in one run, each at its place. A tree made from a wrong text has holes
//! and must not be compiled.
//!
//! The one decision that shapes the crate: D cannot be cut into tokens without knowing where one is in the grammar (a
//! probe description has its own letters, a slash may end a predicate), nor parsed without knowing which names are
//! types. So the parser drives the lexer, token by token, and asks its caller for type names ([`TypeNames`]) only where
//! the grammar is ambiguous; it never looks a type up to understand it. The usual generated parser over a stateful
//! lexer, as the original has, stops at the first error and guesses its state from braces.
//!
//! ```
//! use diagnostics::{Sink, SourceKind, SourceMap};
//! use syntax::{MacroEnv, ParseMode, SpecField, parse};
//!
//! let mut map = SourceMap::default();
//! let file = map.add(SourceKind::Specifier, "", "read:entry /pid == $target/ { @[execname] = count(); }");
//! let macros = MacroEnv { target: 42, ..MacroEnv::default() };
//! let mut sink = Sink::default();
//! let program = parse(&mut map, file, ParseMode::Specifier(SpecField::Name), &macros, &(), &mut sink);
//! assert!(sink.is_empty());
//! assert!(program.dump().contains("description ::read:entry"));
//! ```
//!
//! Code map: [`ast`] the tree; `token` the tables of words; `lexer` text to tokens, with `lexer::pdesc` for probe
//! descriptions and `lexer::control` for `#` lines; [`macros`] macro variables; [`library`] the D libraries; `parser` the grammar, one module for
//! clauses, expressions, declarations and definitions each.

pub mod ast;

pub mod macros;

mod lexer;
pub mod library;
mod names;
mod parser;
mod token;

pub use library::Libraries;
pub use macros::MacroEnv;
pub use names::is_builtin_type;

use diagnostics::{FileId, Sink, SourceKind, SourceMap};

/// Which field of a probe description the last component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecField {
    /// `-P`
    Provider,
    /// `-m`
    Module,
    /// `-f`
    Function,
    /// `-n`, `-i`, scripts and libraries
    Name,
}

/// What kind of text is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseMode {
    /// A script or a library: a description needs a predicate or a body.
    Script,
    /// A command-line argument: a bare description enables the default action, and descriptions are aligned on the
    /// given field.
    Specifier(SpecField),
}

/// The type names that the text may use without declaring them.
///
/// The parser knows D's own typedefs and those the text makes; it asks for the rest only where the grammar is
/// ambiguous without the answer (casts, `sizeof`, the start of a declaration).
pub trait TypeNames {
    /// True if `name` (`size_t`, `` mod`type `` with its backquote) names a type.
    fn is_type(&self, name: &str) -> bool;
}

/// Knows no type.
impl TypeNames for () {
    fn is_type(&self, _: &str) -> bool {
        false
    }
}

/// Reads a text. Never fails: what is wrong is in `sink`, and the tree has holes there.
///
/// Line markers in the text (`# 12 "file"`) are entered in `map`, so that complaints name the right line.
pub fn parse(
    map: &mut SourceMap,
    file: FileId,
    mode: ParseMode,
    macros: &MacroEnv,
    types: &dyn TypeNames,
    sink: &mut Sink,
) -> ast::Program {
    let lexer = lexer::Lexer::new(map, file, macros, sink);
    parser::Parser::new(lexer, mode, types).program()
}

/// For fuzzers: reads arbitrary bytes in every mode, and renders what it made.
///
/// It returns nothing because there is nothing to expect of arbitrary bytes but that this returns.
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let macros = MacroEnv { args: vec!["1".into(), "a b".into()], ..MacroEnv::default() };
    let fields = [SpecField::Provider, SpecField::Module, SpecField::Function, SpecField::Name];
    for mode in fields.map(ParseMode::Specifier).into_iter().chain([ParseMode::Script]) {
        let mut map = SourceMap::default();
        let kind = if mode == ParseMode::Script { SourceKind::Script } else { SourceKind::Specifier };
        let file = map.add(kind, "fuzz.d", text.as_ref());
        let mut sink = Sink::default();
        let program = parse(&mut map, file, mode, &macros, &(), &mut sink);
        let _ = program.dump();
        for diagnostic in sink.into_sorted() {
            let _ = diagnostic.render(&map, true);
        }
    }
}
