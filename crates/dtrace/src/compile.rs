//! From texts to a module: the front half of a session. Needs no privilege and no kernel facility.

use std::sync::Arc;

use check::Checked;
use diagnostics::{Diagnostic, Sink, SourceKind, SourceMap, Tag};
use dif::ir::Module;
use providers::{Provider, Registry};
use syntax::ast::{Item, PragmaKind};
use syntax::{MacroEnv, ParseMode, SpecField};
use types::Types;
use types::btf::KernelBtf;

use crate::error::Error;
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
    /// `-n`, and `-i`, whose number stands where a description would
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
    /// What stands before "matched N probes": `script 'F'`, `description 'TEXT'`.
    pub fn title(&self) -> String {
        match self {
            Source::Script(name, _) => format!("script '{name}'"),
            Source::Specifier(_, text) => {
                let end = description_end(text);
                format!("description '{}'", &text[..end])
            }
        }
    }
}

/// Where the predicate or the body begins.
fn description_end(text: &str) -> usize {
    text.find(['/', '{', ';']).unwrap_or(text.len())
}

/// Operands and identities that macro variables stand for.
#[derive(Clone, Debug, Default)]
pub struct Macros {
    /// `$0`, where the program is no script.
    pub name: String,
    /// `$1` and so on.
    pub args: Vec<String>,
    /// `$target`.
    pub target: u64,
}

/// What the programs of a session mean.
pub struct Program {
    /// The texts.
    pub map: SourceMap,
    /// Checked.
    pub(crate) checked: Checked,
    /// Compiled.
    pub(crate) module: Module,
    /// One title a source.
    pub titles: Vec<String>,
    pub(crate) registry: Registry,
    pub(crate) kernel: Arc<KernelBtf>,
}

fn identities() -> proc::Identities {
    proc::identities()
}

fn macro_env(macros: &Macros, options: &Options, name: &str, is_script: bool) -> MacroEnv {
    let id = identities();
    MacroEnv {
        name: if is_script { name.to_string() } else { macros.name.clone() },
        args: macros.args.clone(),
        pid: id.pid,
        ppid: id.ppid,
        uid: id.uid,
        euid: id.euid,
        gid: id.gid,
        egid: id.egid,
        pgid: id.pgid,
        sid: id.sid,
        target: macros.target,
        default_args: options.flag("defaultargs"),
        arg_ref: options.flag("argref"),
        probe_spec_first: options.flag("pspec"),
    }
}

/// Compiles all programs of a session. `#pragma D option` lines change `options`. On failure the texts come with the
/// complaints.
pub fn compile(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
) -> Result<Program, (SourceMap, Error)> {
    compile_with(sources, macros, options, Vec::new())
}

/// As [`compile`], with providers of one's own beside those of the system.
pub fn compile_with(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
    providers: Vec<Box<dyn Provider>>,
) -> Result<Program, (SourceMap, Error)> {
    let mut map = SourceMap::default();
    let mut sink = Sink::default();
    let mut trees = Vec::new();
    for source in sources {
        let (kind, name, text, mode) = match source {
            Source::Script(name, text) => {
                let text = match options.flag("cpp") {
                    true => match crate::cpp::preprocess(name, text, options) {
                        Ok(text) => text,
                        Err(e) => return Err((map, Error::Setting(e))),
                    },
                    false => text.clone(),
                };
                (SourceKind::Script, name.as_str(), text, ParseMode::Script)
            }
            Source::Specifier(field, text) => {
                let field = match field {
                    Field::Provider => SpecField::Provider,
                    Field::Module => SpecField::Module,
                    Field::Function => SpecField::Function,
                    Field::Name => SpecField::Name,
                };
                (SourceKind::Specifier, "", text.clone(), ParseMode::Specifier(field))
            }
        };
        let env = macro_env(macros, options, name, kind == SourceKind::Script);
        let file = map.add(kind, name, text);
        let tree = syntax::parse(&mut map, file, mode, &env, &(), &mut sink);
        for item in &tree.items {
            set_pragma(item, options, &mut sink);
        }
        trees.push(tree);
    }
    let kernel = KernelBtf::running();
    let registry = Registry::with(kernel.clone(), providers);
    let types = Types::new();
    let context = check::Context {
        types: &types,
        catalog: &registry,
        map: &map,
        options: check::Options {
            strsize: options.number("strsize") as u32,
            zdefs: options.flag("zdefs"),
            empty: options.flag("empty"),
            stackframes: options.number("stackframes") as u32,
            ustackframes: options.number("ustackframes") as u32,
            operands: macros.args.clone(),
            argref: options.flag("argref"),
            cpu: options.maybe_number("cpu"),
        },
    };
    let checked = check::check(&trees, &context, &mut sink);
    if let Some(least) = probes::Attributes::parse(&options.text("amin")) {
        crate::list::check_least(&checked.clauses, &registry, least, &mut sink);
    }
    if !sink.is_empty() {
        return Err((map, Error::Program(sink.into_sorted())));
    }
    let module = match lower::lower(&checked) {
        Ok(module) => module,
        Err(e) => return Err((map, Error::Internal(e.to_string()))),
    };
    let mut module = module;
    dif::opt::optimize(&mut module);
    let titles = sources.iter().map(Source::title).collect();
    Ok(Program { map, checked, module, titles, registry, kernel })
}

fn set_pragma(item: &Item, options: &mut Options, sink: &mut Sink) {
    let Item::Pragma(pragma) = item else { return };
    let PragmaKind::Option { name, value } = &pragma.kind else { return };
    let name = name.text.as_str();
    if let Err(e) = options.set(name, value.as_ref().map(|v| v.text.as_str())) {
        let mut d =
            Diagnostic::new(Tag::D_PRAGMA_OPTSET, pragma.span, format!("failed to set option '{name}': {e}"));
        if let Some(advice) = crate::options::advice(name, e) {
            d = d.with_help(advice);
        }
        sink.push(d);
    }
}

impl Program {
    /// Probes that source `n` matched.
    pub fn matched(&self, n: usize) -> usize {
        self.checked.clauses.iter().filter(|c| c.program == n).map(|c| c.probes.len()).sum()
    }

    /// The intermediate form, as `-S` shows it.
    pub fn listing(&self) -> String {
        dif::text::print(&self.module, Some(&self.map))
    }

    /// True when a clause has an action that needs `-w`.
    pub fn is_destructive(&self) -> bool {
        self.checked.clauses.iter().any(|c| c.destructive)
    }
}
