//! Text to DIF, without a kernel.

use std::sync::Arc;

use check::{Context, Options};
use diagnostics::{Sink, SourceKind, SourceMap};
use dif::ir::Module;
use syntax::ParseMode;
use syntax::macros::MacroEnv;
use types::Types;
use types::btf::KernelBtf;

use crate::fixture::catalog;

/// What became of a program.
pub enum Compiled {
    /// Code; the texts belong to its spans.
    Module(Box<Module>, SourceMap),
    /// Complaints, as a user sees them.
    Refused(String),
}

/// Text to tree; whatever the text is, this ends and does not panic.
pub fn parse(text: &str) {
    let (mut map, mut sink) = (SourceMap::default(), Sink::default());
    let file = map.add(SourceKind::Script, "fuzz.d", text);
    syntax::parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &(), &mut sink);
    for complaint in sink.into_sorted() {
        complaint.render(&map, true);
    }
}

/// Text to optimized DIF. `Err` is a fault of ours: code that the verifier of the form refuses.
pub fn compile(text: &str, strsize: u32, kernel: Option<Arc<KernelBtf>>) -> Result<Compiled, String> {
    let (mut module, map) = match lowered(text, strsize, kernel)? {
        Compiled::Module(module, map) => (module, map),
        refused => return Ok(refused),
    };
    dif::opt::optimize(&mut module);
    dif::verify(&module).map_err(|e| fault("optimized", e.to_string(), text, &module))?;
    Ok(Compiled::Module(module, map))
}

/// Text to DIF as the front end makes it.
pub fn lowered(text: &str, strsize: u32, kernel: Option<Arc<KernelBtf>>) -> Result<Compiled, String> {
    let (mut map, mut sink) = (SourceMap::default(), Sink::default());
    let file = map.add(SourceKind::Script, "test.d", text);
    let macros = MacroEnv::default();
    let mut libraries = syntax::Libraries::embedded();
    libraries.load(&[text], &mut map, &macros, &mut sink);
    let program = syntax::parse(&mut map, file, ParseMode::Script, &macros, &libraries, &mut sink);
    let types = kernel.map_or_else(Types::new, Types::with_kernel);
    let catalog = catalog();
    let options = Options { strsize, ..Options::default() };
    let cx =
        Context { types: &types, catalog: &catalog, symbols: &(), map: &map, libraries: &libraries, options };
    let checked = check::check(&[program], &cx, &mut sink);
    if !sink.is_empty() {
        let complaints = sink.into_sorted();
        return Ok(Compiled::Refused(complaints.iter().map(|d| d.render(&map, true) + "\n").collect()));
    }
    let module = lower::lower(&checked).map_err(|e| format!("{e}\n{text}"))?;
    dif::verify(&module).map_err(|e| fault("lowered", e.to_string(), text, &module))?;
    Ok(Compiled::Module(Box::new(module), map))
}

fn fault(stage: &str, e: String, text: &str, module: &Module) -> String {
    format!("{stage}: {e}\n{text}\n{}", dif::text::print(module, None))
}
