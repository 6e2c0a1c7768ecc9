//! From source texts to a module: the front half of a session. It needs no privilege and no kernel
//! facility.

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

/// The compiled programs of a session. Cheap to clone.
#[derive(Clone)]
pub struct Program {
    /// The source texts.
    pub map: Rc<SourceMap>,
    /// The syntax trees, which are checked again when more programs are enabled.
    trees: Rc<[Tree]>,
    libraries: Rc<Libraries>,
    /// The checked program.
    pub(crate) checked: Rc<Checked>,
    /// The intermediate form.
    pub(crate) module: Rc<Module>,
    /// A title for each source.
    pub titles: Vec<String>,
    /// The dump that the option `tree` requests.
    pub tree: String,
    pub(crate) registry: Rc<Registry>,
    pub(crate) kernel: Arc<KernelBtf>,
    /// The number of clauses, from the first on, that run already.
    pub(crate) running: usize,
    /// The probes that each tree can match.
    visibility: Rc<[Visibility]>,
    /// The modules that were loaded before the probes were listed; `None` if modules that are
    /// loaded later do not matter.
    pub(crate) modules: Option<Rc<BTreeSet<String>>>,
    macros: Macros,
}

/// The probes that a tree can match.
#[derive(Clone, Debug)]
struct Visibility {
    /// The probes that were listed at the start are visible.
    listed: bool,
    /// Ids of the visible probes of modules that were loaded later.
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

/// Compiles all programs of a session. `#pragma D option` lines change `options`. An error is
/// returned with the source texts.
pub fn compile(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
) -> Result<Program, (SourceMap, Error)> {
    compile_with(sources, macros, options, Vec::new())
}

/// As [`compile`], for a program that does not run: option values that only a session rejects are
/// no error.
pub fn compile_only(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
) -> Result<Program, (SourceMap, Error)> {
    compile_for(Purpose::Show, sources, macros, options, Vec::new())
}

/// As [`compile`], with additional providers.
pub fn compile_with(
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
    providers: Vec<Box<dyn Provider>>,
) -> Result<Program, (SourceMap, Error)> {
    compile_for(Purpose::Trace, sources, macros, options, providers)
}

/// The purpose of compiling a program.
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
    let mut frontend = Frontend { libraries, ..Frontend::default() };
    let kernel = KernelBtf::running();
    if let Err(e) = frontend.parse(sources, macros, options, &kernel, false) {
        return Err((frontend.map, e));
    }
    // Before the probes are listed, which may take long.
    if purpose == Purpose::Trace
        && let Err(e) = crate::session::settings::check_options(options, &bpf::sys::online_cpus())
    {
        return Err((frontend.map, e));
    }
    let modules = modules_now(options);
    let registry = Rc::new(Registry::with(kernel.clone(), providers));
    let base = Base { kernel, registry, running: None, strings: Vec::new(), modules, reenables: false };
    frontend.compile(sources.iter().map(Source::title).collect(), macros, options, base)
}

/// The loaded modules, if descriptions can match probes of later ones.
fn modules_now(options: &Options) -> Option<Rc<BTreeSet<String>>> {
    let zdefs = options.flag("zdefs");
    zdefs.then(|| Rc::new(bpf::sys::modules().unwrap_or_default().live))
}

impl Program {
    /// Compiles more sources for the session that runs this program and has interned `strings`. The
    /// result includes the running programs with the same numbers. Sources that would change a
    /// running program are rejected.
    pub(crate) fn extend(
        &self,
        sources: &[Source],
        macros: &Macros,
        options: &mut Options,
        strings: Vec<Vec<u8>>,
    ) -> Result<Program, (SourceMap, Error)> {
        let mut frontend = self.frontend();
        if let Err(e) = frontend.parse(sources, macros, options, &self.kernel, true) {
            return Err((frontend.map, e));
        }
        let modules = self.modules.clone().or_else(|| modules_now(options));
        let base = Base { strings, modules, reenables: false, ..Base::of(self) };
        frontend.compile(sources.iter().map(Source::title).collect(), macros, options, base)
    }

    fn frontend(&self) -> Frontend {
        let (map, libraries) = ((*self.map).clone(), (*self.libraries).clone());
        let (trees, visibility) = (self.trees.to_vec(), self.visibility.to_vec());
        Frontend { map, trees, visibility, libraries, sink: Sink::default() }
    }

    /// The descriptions that can match probes of modules that are loaded later.
    pub(crate) fn module_patterns(&self) -> Vec<Pattern> {
        let mut all: Vec<Pattern> = Vec::new();
        for (tree, _) in self.trees.iter().zip(self.visibility.iter()).filter(|(_, s)| s.listed) {
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

    /// As [`Program::extend`], for probes of modules that were loaded later (by id): the clauses
    /// that match them are compiled once more, for these probes only. `None` if no description
    /// matches.
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
        let mut frontend = self.frontend();
        let mut titles = Vec::new();
        for ((tree, title), _) in
            self.trees.iter().zip(&self.titles).zip(self.visibility.iter()).filter(|(_, s)| s.listed)
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
                frontend.trees.push(Tree { items, ..tree.clone() });
                frontend.visibility.push(Visibility { listed: false, later: later.clone() });
                titles.push(title.clone());
            }
        }
        if titles.is_empty() {
            return Ok(None);
        }
        let base = Base { strings, reenables: true, ..Base::of(self) };
        frontend.compile(titles, &self.macros, options, base).map(Some)
    }
}

/// The description as a pattern; `None` for an id.
fn pattern(desc: &ProbeDesc) -> Option<Pattern> {
    let ProbeDescKind::Fields { provider, module, function, name } = &desc.kind else { return None };
    Pattern::from_fields([provider, module, function, name].map(|f| f.text.as_str())).ok()
}

/// The input of checking besides the source texts.
struct Base<'a> {
    kernel: Arc<KernelBtf>,
    registry: Rc<Registry>,
    running: Option<&'a Program>,
    strings: Vec<Vec<u8>>,
    modules: Option<Rc<BTreeSet<String>>>,
    /// The new trees are clauses of the running programs, for new probes.
    reenables: bool,
}

impl Base<'_> {
    fn of(program: &Program) -> Base<'_> {
        Base {
            kernel: program.kernel.clone(),
            registry: program.registry.clone(),
            running: Some(program),
            strings: Vec::new(),
            modules: program.modules.clone(),
            reenables: false,
        }
    }
}

/// Typedefs that a text may use without declaring them, for the parser: the libraries', then the
/// kernel's (a module's only where the text names the module). D's own words are no types.
struct TypedefNames<'a> {
    libraries: &'a Libraries,
    kernel: &'a KernelBtf,
}

impl TypeNames for TypedefNames<'_> {
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

/// The kernel's symbols, which are read when a program names the first one.
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

/// Parses and compiles source texts.
#[derive(Default)]
struct Frontend {
    map: SourceMap,
    trees: Vec<Tree>,
    visibility: Vec<Visibility>,
    libraries: Libraries,
    sink: Sink,
}

impl Frontend {
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
            let names = TypedefNames { libraries: &self.libraries, kernel };
            let tree = syntax::parse(&mut self.map, file, mode, &env, &names, &mut self.sink);
            for item in &tree.items {
                set_pragma(item, options, running, &mut self.sink);
            }
            self.trees.push(tree);
        }
        Ok(())
    }

    /// Checks and compiles.
    fn compile(
        mut self,
        titles: Vec<String>,
        macros: &Macros,
        options: &Options,
        base: Base<'_>,
    ) -> Result<Program, (SourceMap, Error)> {
        libraries::dependencies(&mut self.libraries, &self.trees, &self.map, &*base.registry, &mut self.sink);
        let types = Types::with_kernel(base.kernel.clone());
        let context = check::Context {
            types: &types,
            catalog: &*base.registry,
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
                argref: options.flag("argref") || base.reenables,
                facts: check::FactsReader(crate::facts::machine_facts),
                cpu: options.maybe_number("cpu"),
                amin: probes::Attributes::parse(&options.text("amin")),
                version: probes::Version::parse(&options.text("version")),
            },
        };
        let first = base.running.map_or(0, |p| p.trees.len());
        let visibility = Visibility { listed: true, later: base.registry.later_ids() };
        self.visibility.resize(self.trees.len(), visibility);
        let is_visible = |program: usize, id: ProbeId| {
            self.visibility
                .get(program)
                .is_none_or(|s| if base.registry.is_later(id) { s.later.contains(&id.0) } else { s.listed })
        };
        let checked = check::check_more(&self.trees, first, &is_visible, &context, &mut self.sink);
        if let Some(least) = probes::Attributes::parse(&options.text("amin")) {
            crate::list::check_least(&checked.clauses, &base.registry, least, &mut self.sink);
        }
        if !self.sink.is_empty() {
            return Err((self.map, Error::Program(self.sink.into_sorted())));
        }
        if let Some(Err(why)) = base.running.map(|p| check_unchanged(&p.checked, &checked)) {
            return Err((self.map, Error::Setting(why)));
        }
        let mut module = match lower::lower_more(&checked, base.strings) {
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
        let mut all_titles = base.running.map_or_else(Vec::new, |p| p.titles.clone());
        all_titles.extend(titles);
        Ok(Program {
            map: Rc::new(self.map),
            trees: self.trees.into(),
            libraries: Rc::new(self.libraries),
            running: base.running.map_or(0, |p| p.checked.clauses.len()),
            checked: Rc::new(checked),
            module: Rc::new(module),
            titles: all_titles,
            tree,
            registry: base.registry,
            kernel: base.kernel,
            visibility: self.visibility.into(),
            modules: base.modules,
            macros: macros.clone(),
        })
    }
}

/// Whether what runs may stay as it is: the columns of a key are fixed once programs write them.
fn check_unchanged(running: &Checked, all: &Checked) -> Result<(), String> {
    let reject = |what: &str| {
        Err(format!(
            "could not enable tracing: {what} is already enabled with a narrower key; use another name, or enable both at once"
        ))
    };
    for (before, now) in running.aggs.iter().zip(&all.aggs) {
        if before != now {
            return reject(&format!("@{}", now.name));
        }
    }
    for (before, now) in running.vars.iter().zip(&all.vars) {
        if (&before.key, before.repr) != (&now.key, now.repr) {
            return reject(&format!("{}{}", now.scope.prefix(), now.name));
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
    /// The number of probes that source `n` matched.
    pub fn matched(&self, n: usize) -> usize {
        self.checked.clauses.iter().filter(|c| c.program == n && !c.part).map(|c| c.probes.len()).sum()
    }

    /// The intermediate form, as `-S` shows it.
    pub fn listing(&self) -> String {
        dif::text::print(&self.module, Some(&self.map))
    }

    /// True if a clause has an action that needs `-w`.
    pub fn is_destructive(&self) -> bool {
        self.checked.clauses.iter().any(|c| c.destructive)
    }
}
