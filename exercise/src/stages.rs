//! The compiler stages from text to DIF, without a kernel.

use std::sync::Arc;

use check::{Checked, Context, Options};
use diagnostics::{Sink, SourceKind, SourceMap, Style, report};
use dif::ir::Module;
use syntax::ParseMode;
use syntax::macros::MacroEnv;
use types::Types;
use types::btf::KernelBtf;

use crate::fixture::catalog;

/// The result of compiling a program.
pub enum Compiled {
    /// The code, and the source texts of its spans.
    Module(Box<Module>, SourceMap),
    /// Error messages, as printed for a user.
    Rejected(String),
}

/// Parses a text. For any text this must end and must not panic.
pub fn parse(text: &str) {
    let (mut map, mut sink) = (SourceMap::default(), Sink::default());
    let file = map.add(SourceKind::Script, "fuzz.d", text);
    syntax::parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &(), &mut sink);
    report(&sink.into_sorted(), &map, Style::Excerpts);
}

/// The errors in a text as a user sees them; runs the front end alone.
pub fn errors(text: &str) -> Vec<String> {
    let (_, map, sink) = checked(text, 256, None);
    report(&sink.into_sorted(), &map, Style::Excerpts)
}

/// Compiles a text to optimized DIF. `Err` is a bug: the DIF verifier rejects the code.
pub fn compile(text: &str, strsize: u32, kernel: Option<Arc<KernelBtf>>) -> Result<Compiled, String> {
    optimized(lowered(text, strsize, kernel)?, text)
}

/// Optimizes a program that was compiled.
pub(crate) fn optimized(compiled: Compiled, text: &str) -> Result<Compiled, String> {
    let (mut module, map) = match compiled {
        Compiled::Module(module, map) => (module, map),
        rejected => return Ok(rejected),
    };
    dif::opt::optimize(&mut module);
    dif::verify(&module).map_err(|e| describe_bug("optimized", e.to_string(), text, &module))?;
    Ok(Compiled::Module(module, map))
}

/// Checks a text. The program may be lowered if there are no errors.
fn checked(text: &str, strsize: u32, kernel: Option<Arc<KernelBtf>>) -> (Checked, SourceMap, Sink) {
    let (mut map, mut sink) = (SourceMap::default(), Sink::default());
    let file = map.add(SourceKind::Script, "test.d", text);
    let macros = MacroEnv::default();
    let mut libraries = syntax::Libraries::embedded();
    libraries.load(&[text], &mut map, &macros, &mut sink);
    let program = syntax::parse(&mut map, file, ParseMode::Script, &macros, &libraries, &mut sink);
    let types = kernel.map_or_else(Types::new, Types::with_kernel);
    let catalog = catalog();
    let options = Options { strsize, ..Options::default() };
    let cx = Context {
        types: &types,
        catalog: &catalog,
        symbols: &(),
        map: &map,
        libraries: &libraries,
        definitions: &[],
        options,
        stop: &|| false,
    };
    let checked = check::check(&[program], &cx, &mut sink);
    (checked, map, sink)
}

/// Compiles a text to DIF as the front end emits it.
pub fn lowered(text: &str, strsize: u32, kernel: Option<Arc<KernelBtf>>) -> Result<Compiled, String> {
    let (checked, map, sink) = checked(text, strsize, kernel);
    finish(&checked, map, sink, text)
}

/// Lowers a program that was checked, if it has no errors.
pub(crate) fn finish(checked: &Checked, map: SourceMap, sink: Sink, text: &str) -> Result<Compiled, String> {
    if !sink.is_empty() {
        // As a user sees them: not all of those that a long line may have.
        return Ok(Compiled::Rejected(report(&sink.into_sorted(), &map, Style::Excerpts).join("\n")));
    }
    let module = lower::lower(checked).map_err(|e| format!("{e}\n{text}"))?;
    dif::verify(&module).map_err(|e| describe_bug("lowered", e.to_string(), text, &module))?;
    Ok(Compiled::Module(Box::new(module), map))
}

fn describe_bug(stage: &str, e: String, text: &str, module: &Module) -> String {
    format!("{stage}: {e}\n{text}\n{}", dif::text::print(module, None))
}
