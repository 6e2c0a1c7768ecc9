//! The lexer and the parser of D. This crate has no knowledge of types or of the kernel.
//!
//! [`parse`] builds an [`ast::Program`] from any text and reports all syntax errors to a
//! [`diagnostics::Sink`] in one run, each with its location. The tree of a program with errors has
//! error nodes and must not be compiled.
//!
//! The main design decision: D cannot be split into tokens without the syntactic context (a probe
//! description has its lexical grammar, a slash may end a predicate), and it cannot be parsed
//! without the names of types. So the parser drives the lexer token by token, and queries its
//! caller for type names ([`TypeNames`]) only where the grammar is ambiguous. It does not use the
//! types themselves. A generated parser over a stateful lexer, as in the original, stops at the
//! first error and guesses the state from braces.
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
//! Code map: [`ast`] is the syntax tree; `token` has the tables of keywords and operators; `lexer`
//! scans tokens, with `lexer::pdesc` for probe descriptions and `lexer::control` for `#` lines;
//! [`macros`] expands macro variables; [`uses`] has the words of a clause; [`library`] the D
//! libraries; `parser` has one module each for clauses, expressions, declarations and definitions.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! ast library/scan mode names
//! ast/decl ast/dump library/parts macros token
//! derive lexer
//! lexer/literal lexer/pdesc parser
//! lib uses lexer/control parser/clause parser/decl parser/expr
//! library parser/definition
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod ast;

pub mod derive;

pub mod macros;

pub mod uses;

mod lexer;
pub mod library;
mod mode;
mod names;
mod parser;
mod token;

pub use library::Libraries;
pub use macros::MacroEnv;
pub use mode::{ParseMode, SpecField, TypeNames, script_start};
pub use names::is_builtin_type;

use diagnostics::{FileId, Sink, SourceKind, SourceMap};

/// Parses a source text. Errors are added to `sink`, and the tree has error nodes for them.
///
/// Line markers in the text (`# 12 "file"`) are added to `map`, so that messages have the right
/// line number.
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

/// For fuzzers: parses arbitrary bytes in every mode, and prints the trees and errors.
///
/// The only expectation is that it returns.
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
