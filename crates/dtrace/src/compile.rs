//! From texts to a module: the front half of a session. Needs no privilege and no kernel facility.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use check::{Checked, NoSymbol};
use diagnostics::{Diagnostic, Sink, SourceKind, SourceMap, Tag, control};
use dif::ir::Module;
use probes::{Catalog, Pattern, ProbeId};
use providers::{Provider, Registry};
use symbols::KernelStatus;
use syntax::ast::{Item, PragmaKind, ProbeDesc, ProbeDescKind, Program as Tree};
use syntax::{Libraries, MacroEnv, ParseMode, SpecField, TypeNames};
use types::Types;
use types::btf::{BtfKind, KernelBtf};

use crate::error::Error;
use crate::libraries;
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
            Source::Script(name, _) => format!("script '{}'", control::name_text(name)),
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

/// What the programs of a session mean. Cheap to clone.
#[derive(Clone)]
pub struct Program {
    /// The texts.
    pub map: Rc<SourceMap>,
    /// Parsed; looked at again when more is enabled.
    trees: Rc<[Tree]>,
    libraries: Rc<Libraries>,
    /// Checked.
    pub(crate) checked: Rc<Checked>,
    /// Compiled.
    pub(crate) module: Rc<Module>,
    /// One title a source.
    pub titles: Vec<String>,
    /// What the option `tree` asks for.
    pub tree: String,
    pub(crate) registry: Rc<Registry>,
    pub(crate) kernel: Arc<KernelBtf>,
    /// So many clauses, the first ones, run already.
    pub(crate) running: usize,
    /// Which probes are for each of the trees.
    sights: Rc<[Sight]>,
    /// Modules that there were before any probe was looked for; `None` where none that comes later
    /// matters.
    pub(crate) modules: Option<Rc<BTreeSet<String>>>,
    macros: Macros,
}

/// Which probes are for a tree.
#[derive(Clone, Debug)]
struct Sight {
    /// Those that were listed at the start, too.
    listed: bool,
    /// Ids of the probes of modules that were loaded since.
    later: Range<u32>,
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
        probe_spec_first: options.flag("pspec"),
    }
}

/// Compiles all programs of a session. `#pragma D option` lines change `options`. On failure the
/// texts come with the complaints.
pub fn compile(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
) -> Result<Program, (SourceMap, Error)> {
    compile_with(sources, macros, options, Vec::new())
}

/// As [`compile`], for a program that does not run: option values that only a session refuses are
/// no error.
pub fn compile_only(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
) -> Result<Program, (SourceMap, Error)> {
    compile_for(Purpose::Show, sources, macros, options, Vec::new())
}

/// As [`compile`], with providers of one's own beside those of the system.
pub fn compile_with(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
    providers: Vec<Box<dyn Provider>>,
) -> Result<Program, (SourceMap, Error)> {
    compile_for(Purpose::Trace, sources, macros, options, providers)
}

/// What a program is compiled for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Trace,
    Show,
}

fn compile_for(
    purpose: Purpose,
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
    providers: Vec<Box<dyn Provider>>,
) -> Result<Program, (SourceMap, Error)> {
    let libraries = match libraries::find(options) {
        Ok(libraries) => libraries,
        Err(e) => return Err((SourceMap::default(), Error::Setting(e))),
    };
    let mut texts = Texts { libraries, ..Texts::default() };
    let kernel = KernelBtf::running();
    if let Err(e) = texts.parse(sources, macros, options, &kernel, false) {
        return Err((texts.map, e));
    }
    // Before any probe is looked for, which may take long.
    if purpose == Purpose::Trace
        && let Err(e) = crate::session::settings::check_options(options, &bpf::sys::online_cpus())
    {
        return Err((texts.map, e));
    }
    let modules = modules_now(options);
    let registry = Rc::new(Registry::with(kernel.clone(), providers));
    let before = Before { kernel, registry, running: None, strings: Vec::new(), modules, again: false };
    texts.finish(sources.iter().map(Source::title).collect(), macros, options, before)
}

/// The modules that there are, where descriptions wait for others.
fn modules_now(options: &Options) -> Option<Rc<BTreeSet<String>>> {
    let zdefs = options.flag("zdefs");
    zdefs.then(|| Rc::new(bpf::sys::modules().unwrap_or_default().live))
}

impl Program {
    /// Compiles more for the session that runs this program, and has so far interned `strings`. The
    /// result has everything, with the same numbers; what would change what runs is refused.
    pub(crate) fn extend(
        &self,
        sources: &[Source],
        macros: &Macros,
        options: &mut Options,
        strings: Vec<Vec<u8>>,
    ) -> Result<Program, (SourceMap, Error)> {
        let mut texts = self.texts();
        if let Err(e) = texts.parse(sources, macros, options, &self.kernel, true) {
            return Err((texts.map, e));
        }
        let modules = self.modules.clone().or_else(|| modules_now(options));
        let before = Before { strings, modules, again: false, ..Before::of(self) };
        texts.finish(sources.iter().map(Source::title).collect(), macros, options, before)
    }

    fn texts(&self) -> Texts {
        let (map, libraries) = ((*self.map).clone(), (*self.libraries).clone());
        let (trees, sights) = (self.trees.to_vec(), self.sights.to_vec());
        Texts { map, trees, sights, libraries, sink: Sink::default() }
    }

    /// Descriptions that modules which are loaded later can bring probes for.
    pub(crate) fn module_patterns(&self) -> Vec<Pattern> {
        let mut all: Vec<Pattern> = Vec::new();
        for (tree, _) in self.trees.iter().zip(self.sights.iter()).filter(|(_, s)| s.listed) {
            let clauses =
                tree.items.iter().filter_map(|i| if let Item::Clause(c) = i { Some(c) } else { None });
            for pattern in clauses.flat_map(|c| &c.probes).filter_map(pattern) {
                if !all.contains(&pattern) && self.registry.may_match_later(&pattern) {
                    all.push(pattern);
                }
            }
        }
        all
    }

    /// As [`Program::extend`], with the clauses that match probes of modules that were loaded later
    /// (by id) and so many of them as do: each as if it had been written once more, for these
    /// alone. `None` where no description matches.
    pub(crate) fn extend_for_modules(
        &self,
        later: Range<u32>,
        options: &Options,
        strings: Vec<Vec<u8>>,
    ) -> Result<Option<Program>, (SourceMap, Error)> {
        let probes: Vec<_> = later.clone().filter_map(|id| self.registry.by_id(ProbeId(id))).collect();
        let matches = |p: &Pattern| {
            let selects = self.registry.selects(p);
            probes.iter().any(|probe| selects(&probe.desc))
        };
        let mut texts = self.texts();
        let mut titles = Vec::new();
        for ((tree, title), _) in
            self.trees.iter().zip(&self.titles).zip(self.sights.iter()).filter(|(_, s)| s.listed)
        {
            let mut items = Vec::new();
            for item in &tree.items {
                let Item::Clause(clause) = item else { continue };
                let mut clause = clause.clone();
                clause.probes.retain(|p| pattern(p).is_some_and(|p| matches(&p)));
                if !clause.probes.is_empty() {
                    items.push(Item::Clause(clause));
                }
            }
            if !items.is_empty() {
                texts.trees.push(Tree { items, ..tree.clone() });
                texts.sights.push(Sight { listed: false, later: later.clone() });
                titles.push(title.clone());
            }
        }
        if titles.is_empty() {
            return Ok(None);
        }
        let before = Before { strings, again: true, ..Before::of(self) };
        texts.finish(titles, &self.macros, options, before).map(Some)
    }
}

/// The description as a pattern; ids are of probes that there are.
fn pattern(desc: &ProbeDesc) -> Option<Pattern> {
    let ProbeDescKind::Fields { provider, module, function, name } = &desc.kind else { return None };
    Pattern::from_fields([provider, module, function, name].map(|f| f.text.as_str())).ok()
}

/// What there is before checking.
struct Before<'a> {
    kernel: Arc<KernelBtf>,
    registry: Rc<Registry>,
    running: Option<&'a Program>,
    strings: Vec<Vec<u8>>,
    modules: Option<Rc<BTreeSet<String>>>,
    /// What runs is enabled once more: whatever the new trees say was said before.
    again: bool,
}

impl Before<'_> {
    fn of(program: &Program) -> Before<'_> {
        Before {
            kernel: program.kernel.clone(),
            registry: program.registry.clone(),
            running: Some(program),
            strings: Vec::new(),
            modules: program.modules.clone(),
            again: false,
        }
    }
}

/// Typedefs that a text may use without declaring them, for the parser: the libraries', then the
/// kernel's (a module's only where the text names the module). D's own words are no types.
struct TypeWords<'a> {
    libraries: &'a Libraries,
    kernel: &'a KernelBtf,
}

impl TypeNames for TypeWords<'_> {
    fn is_type(&self, name: &str) -> bool {
        let typedef = &[BtfKind::Typedef];
        let is_word = || check::tables::variable(name).is_some() || check::tables::function(name).is_some();
        match name.rsplit_once('`') {
            Some((module, name)) => {
                self.kernel.module(module).is_some_and(|btf| btf.find(typedef, name).is_some())
            }
            None if self.libraries.is_type(name) => true,
            None if is_word() => false,
            None => self.kernel.vmlinux().is_ok_and(|btf| btf.find(typedef, name).is_some()),
        }
    }
}

/// The kernel's symbols, read when a program names the first.
#[derive(Default)]
struct KernelSymbols(RefCell<symbols::Kernel>);

impl check::Symbols for KernelSymbols {
    fn address(&self, module: Option<&str>, name: &str) -> Result<(u64, String), NoSymbol> {
        let mut kernel = self.0.borrow_mut();
        match kernel.load() {
            KernelStatus::Hidden => {
                let why = "the kernel hides the addresses of its symbols; see kernel.kptr_restrict";
                return Err(NoSymbol::Hidden(why.into()));
            }
            KernelStatus::Unavailable(why) => return Err(NoSymbol::Hidden(why.clone())),
            KernelStatus::Unread | KernelStatus::Ready(_) => {}
        }
        if let Some(found) = kernel.find(module, name) {
            return Ok((found.addr, found.module.into()));
        }
        Err(match module.is_none_or(|m| kernel.has_module(m)) {
            false => NoSymbol::Module,
            true if kernel.has_data() => NoSymbol::Name,
            true => NoSymbol::FunctionsOnly,
        })
    }

    fn like(&self, wrong: &str) -> Vec<String> {
        self.0.borrow_mut().names_like(wrong)
    }
}

/// Texts on their way to a program.
#[derive(Default)]
struct Texts {
    map: SourceMap,
    trees: Vec<Tree>,
    sights: Vec<Sight>,
    libraries: Libraries,
    sink: Sink,
}

impl Texts {
    /// Parses sources; what is wrong in them goes to the sink. Their pragmas set options: in a
    /// running session only those that may change then.
    fn parse(
        &mut self,
        sources: &[Source],
        macros: &Macros,
        options: &mut Options,
        kernel: &KernelBtf,
        running: bool,
    ) -> Result<(), Error> {
        for source in sources {
            let (kind, name, text, mode) = match source {
                Source::Script(name, text) => {
                    let text = match options.flag("cpp") {
                        true => crate::cpp::preprocess(name, text, options).map_err(Error::Setting)?,
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
            let known = self.libraries.parsed().len();
            self.libraries.load(&[&text], &mut self.map, &env, &mut self.sink);
            for library in self.libraries.parsed().get(known..).unwrap_or_default() {
                library.program.items.iter().for_each(|i| set_pragma(i, options, running, &mut self.sink));
            }
            let file = self.map.add(kind, name, text);
            let names = TypeWords { libraries: &self.libraries, kernel };
            let tree = syntax::parse(&mut self.map, file, mode, &env, &names, &mut self.sink);
            for item in &tree.items {
                set_pragma(item, options, running, &mut self.sink);
            }
            self.trees.push(tree);
        }
        Ok(())
    }

    /// Checks and compiles.
    fn finish(
        mut self,
        titles: Vec<String>,
        macros: &Macros,
        options: &Options,
        before: Before<'_>,
    ) -> Result<Program, (SourceMap, Error)> {
        libraries::dependencies(
            &mut self.libraries,
            &self.trees,
            &self.map,
            &*before.registry,
            &mut self.sink,
        );
        let types = Types::with_kernel(before.kernel.clone());
        let context = check::Context {
            types: &types,
            catalog: &*before.registry,
            symbols: &KernelSymbols::default(),
            map: &self.map,
            libraries: &self.libraries,
            options: check::Options {
                strsize: options.number("strsize") as u32,
                zdefs: options.flag("zdefs"),
                empty: options.flag("empty"),
                stackframes: options.number("stackframes") as u32,
                ustackframes: options.number("ustackframes") as u32,
                jstackframes: options.number("jstackframes") as u32,
                jstackstrsize: options.number("jstackstrsize") as u32,
                operands: macros.args.clone(),
                target: macros.target != 0,
                argref: options.flag("argref") || before.again,
                facts: check::FactsReader(crate::facts::of_machine),
                cpu: options.maybe_number("cpu"),
                amin: probes::Attributes::parse(&options.text("amin")),
                version: probes::Version::parse(&options.text("version")),
            },
        };
        let first = before.running.map_or(0, |p| p.trees.len());
        let seen = Sight { listed: true, later: before.registry.later_ids() };
        self.sights.resize(self.trees.len(), seen);
        let sees = |program: usize, id: ProbeId| {
            self.sights
                .get(program)
                .is_none_or(|s| if before.registry.is_later(id) { s.later.contains(&id.0) } else { s.listed })
        };
        let checked = check::check_more(&self.trees, first, &sees, &context, &mut self.sink);
        if let Some(least) = probes::Attributes::parse(&options.text("amin")) {
            crate::list::check_least(&checked.clauses, &before.registry, least, &mut self.sink);
        }
        if !self.sink.is_empty() {
            return Err((self.map, Error::Program(self.sink.into_sorted())));
        }
        if let Some(Err(why)) = before.running.map(|p| keeps(&p.checked, &checked)) {
            return Err((self.map, Error::Setting(why)));
        }
        let mut module = match lower::lower_more(&checked, before.strings) {
            Ok(module) => module,
            Err(e) => return Err((self.map, Error::Internal(e.to_string()))),
        };
        module.scratchsize = (options.number("scratchsize") as u32).next_multiple_of(8);
        dif::opt::optimize(&mut module);
        if let Err(e) = bpf::limits::check(&module) {
            return Err((self.map, Error::Codegen(e)));
        }
        let mask = options.number("tree");
        let mut tree = String::new();
        if mask & 7 != 0 {
            self.trees.iter().for_each(|t| tree.push_str(&t.dump()));
        }
        if mask & 8 != 0 {
            tree.push_str(&check::dump::dump(&checked, &types));
        }
        let mut all_titles = before.running.map_or_else(Vec::new, |p| p.titles.clone());
        all_titles.extend(titles);
        Ok(Program {
            map: Rc::new(self.map),
            trees: self.trees.into(),
            libraries: Rc::new(self.libraries),
            running: before.running.map_or(0, |p| p.checked.clauses.len()),
            checked: Rc::new(checked),
            module: Rc::new(module),
            titles: all_titles,
            tree,
            registry: before.registry,
            kernel: before.kernel,
            sights: self.sights.into(),
            modules: before.modules,
            macros: macros.clone(),
        })
    }
}

/// Whether what runs may stay as it is: the columns of a key are fixed once programs write them.
fn keeps(running: &Checked, all: &Checked) -> Result<(), String> {
    let refuse = |what: &str| {
        Err(format!(
            "could not enable tracing: {what} is enabled with a narrower key already; use another name, or enable both at once"
        ))
    };
    for (before, now) in running.aggs.iter().zip(&all.aggs) {
        if before != now {
            return refuse(&format!("@{}", now.name));
        }
    }
    for (before, now) in running.vars.iter().zip(&all.vars) {
        if (&before.key, before.repr) != (&now.key, now.repr) {
            return refuse(&format!("{}{}", now.scope.prefix(), now.name));
        }
    }
    Ok(())
}

fn set_pragma(item: &Item, options: &mut Options, running: bool, sink: &mut Sink) {
    let Item::Pragma(pragma) = item else { return };
    let PragmaKind::Option { name, value } = &pragma.kind else { return };
    let name = name.text.as_str();
    let fixed =
        running && crate::options::find(name).is_some_and(|r| r.when != crate::options::When::Dynamic);
    let set = match fixed {
        true => Err(crate::options::OptionError::Active),
        false => options.set(name, value.as_ref().map(|v| v.text.as_str())).map(|_| ()),
    };
    if let Err(e) = set {
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
        self.checked.clauses.iter().filter(|c| c.program == n && !c.part).map(|c| c.probes.len()).sum()
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
