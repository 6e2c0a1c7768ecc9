//! From source texts to a module: the front half of a session. It needs no privilege and no kernel
//! facility, and all that it asks of a machine it asks a [`System`].

mod container;
pub(crate) mod cpp;
pub(crate) mod described;
pub(crate) mod evaltime;
pub(crate) mod families;
mod frontend;
mod input;
pub(crate) mod libraries;
pub(crate) mod lookup;
mod pragma;
pub(crate) mod probe_set;
pub(crate) mod stability;
pub(crate) mod stable;
mod unchanged;
pub(crate) mod visibility;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use check::{Checked, ClauseUses, pattern_of};
use diagnostics::{SourceMap, Span};
use dif::ir::Module;
use probes::{Pattern, ProbeInfo};
use providers::{Provider, Registry};
use syntax::ast::{Item, Program as Tree};
use syntax::{Libraries, MacroEnv, ParseMode, SpecField};
use system::System;

use crate::compile::container::Containers;
use crate::compile::frontend::{Base, Frontend};
use crate::compile::visibility::{Later, NewBases, Visibility};
use crate::error::{CompileError, Error};
use crate::options::Options;
pub use input::{Field, Macros, Setup, Source};
use pragma::Of;

/// The compiled programs of a session. Cheap to clone.
#[derive(Clone)]
pub struct Program {
    /// The source texts.
    pub map: Arc<SourceMap>,
    /// The syntax trees, which are checked again when more programs are enabled.
    trees: Arc<[Tree]>,
    libraries: Arc<Libraries>,
    definitions: Arc<[check::Definition]>,
    /// The checked program.
    pub(crate) checked: Arc<Checked>,
    /// The intermediate form.
    pub(crate) module: Arc<Module>,
    /// A title for each source.
    pub titles: Vec<String>,
    /// The dump that the option `tree` requests.
    pub tree: String,
    pub(crate) registry: Arc<Registry>,
    /// The machine for which it is compiled.
    pub(crate) system: System,
    /// The number of clauses, from the first on, that run already.
    pub(crate) running: usize,
    /// The probes that each tree can match.
    visibility: Arc<[Visibility]>,
    /// The modules that were loaded before the probes were listed; `None` if modules that are
    /// loaded later do not matter.
    pub(crate) modules: Option<Arc<BTreeSet<String>>>,
    /// Its records have the ids of the process and the thread.
    pub(crate) process_ids: bool,
    /// Its clauses may call `snap()`.
    snaps: bool,
    /// Its clauses record what they read: see [`crate::capture`].
    pub(crate) captures: bool,
    macros: Macros,
}

pub(crate) fn macro_env(macros: &Macros, options: &Options, name: &str, is_script: bool) -> MacroEnv {
    let id = proc::identities();
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
        default_args: options.defaultargs,
        probe_spec_first: options.pspec,
    }
}

/// How a source is parsed.
pub(crate) fn mode_of(source: &Source) -> ParseMode {
    match source {
        Source::Script(..) => ParseMode::Script,
        Source::Specifier(field, _) => ParseMode::Specifier(match field {
            Field::Provider => SpecField::Provider,
            Field::Module => SpecField::Module,
            Field::Function => SpecField::Function,
            Field::Name => SpecField::Name,
        }),
    }
}

/// Compiles all programs of a session for a machine. `#pragma D option` lines change `options`.
pub fn compile(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
) -> Result<Program, CompileError> {
    compile_as(system, sources, macros, options, Setup::default())
}

/// As [`compile`], with additional providers.
pub fn compile_with(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
    providers: Vec<Box<dyn Provider>>,
) -> Result<Program, CompileError> {
    compile_as(system, sources, macros, options, Setup { providers, ..Setup::default() })
}

/// As [`compile`], with another [`Setup`].
pub fn compile_as(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
    setup: Setup,
) -> Result<Program, CompileError> {
    Ok(compile_new(setup, system, sources, macros, options)?)
}

fn compile_new(
    setup: Setup,
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
) -> Result<Program, (SourceMap, Error)> {
    let mut libraries = match libraries::find(options) {
        Ok(libraries) => libraries,
        Err(e) => return Err((SourceMap::default(), Error::Setting(e))),
    };
    if system.is_live() {
        container::add_pods(&mut libraries);
    }
    let mut frontend = Frontend { libraries, ..Frontend::default() };
    let of = Of { running: false, library: setup.library };
    if let Err(e) = frontend.parse(sources, macros, options, system, of) {
        return Err((frontend.map, e));
    }
    // Before the probes are listed, which may take long.
    let allowed = match setup.shown_only {
        true => options.check().map_err(Error::Setting),
        false => crate::session::settings::check_options(options, &system.online_cpus()),
    };
    if let Err(e) = allowed {
        return Err((frontend.map, e));
    }
    let modules = modules_now(options, system);
    let Setup { providers, needs, shown_only, snaps, stop, .. } = setup;
    let snaps = snaps(options);
    let registry = match crate::compile::stable::registry(system, &frontend.libraries, providers, !shown_only)
    {
        Ok(registry) => registry,
        Err(why) => {
            let error =
                frontend.provider_of_the_system(&Registry::new(system)).unwrap_or(Error::Setting(why));
            return Err((frontend.map, error));
        }
    };
    match selection(options, &frontend.containers) {
        Ok(selection) => registry.select_processes(&selection),
        Err(why) => return Err((frontend.map, Error::Setting(why))),
    }
    match crate::session::settings::debug_servers(options) {
        Ok(urls) => registry.use_readers(&system.readers().with_servers(&urls)),
        Err(why) => return Err((frontend.map, Error::Setting(format!("option debuginfod: {why}")))),
    }
    let base = Base {
        system: system.clone(),
        registry,
        running: None,
        strings: Vec::new(),
        modules,
        reenables: false,
        later: None,
        process_ids: options.processids || needs(options).process_ids,
        snaps,
        stop: &*stop,
    };
    frontend.compile(sources.iter().map(Source::title).collect(), macros, options, base)
}

/// The processes that `pid*` means.
fn selection(options: &Options, containers: &Containers) -> Result<proc::Selection, String> {
    let texts = &options.processes;
    let text = texts.join(",");
    // Of a list that a command has made, and that is empty, nobody expects every process of the
    // machine.
    if !texts.is_empty() && text.split(',').all(|term| term.trim().is_empty()) {
        return Err("option processes: it names no process; name=* selects all".into());
    }
    let selection = proc::Selection::parse(&text).map_err(|why| format!("option processes: {why}"))?;
    Ok(containers.narrow(selection))
}

/// The loaded modules, if descriptions can match probes of later ones.
fn modules_now(options: &Options, system: &System) -> Option<Arc<BTreeSet<String>>> {
    let zdefs = options.zdefs;
    zdefs.then(|| Arc::new(system.loaded_modules()))
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
        stop: &dyn Fn() -> bool,
    ) -> Result<Program, (SourceMap, Error)> {
        let mut frontend = self.frontend();
        // What can be set now the session obeys.
        let of = Of { running: true, library: false };
        if let Err(e) = frontend.parse(sources, macros, options, &self.system, of) {
            return Err((frontend.map, e));
        }
        let modules = self.modules.clone().or_else(|| modules_now(options, &self.system));
        let base = Base { strings, modules, reenables: false, ..Base::of(self, stop) };
        frontend.compile(sources.iter().map(Source::title).collect(), macros, options, base)
    }

    fn frontend(&self) -> Frontend {
        let (map, libraries) = ((*self.map).clone(), (*self.libraries).clone());
        let (trees, visibility) = (self.trees.to_vec(), self.visibility.to_vec());
        let definitions = self.definitions.to_vec();
        Frontend { map, trees, visibility, libraries, definitions, ..Frontend::default() }
    }

    /// The clauses of the programs that descriptions of later probes can enable, in their order:
    /// the numbers of tree and item, and the descriptions.
    fn listed(&self) -> impl Iterator<Item = (usize, usize, Vec<Pattern>)> {
        let trees = self.trees.iter().zip(self.visibility.iter()).enumerate();
        let clauses = trees.filter(|(_, (_, seen))| seen.listed).flat_map(|(tree, (t, _))| {
            t.items.iter().enumerate().filter_map(move |(item, clause)| match clause {
                Item::Clause(c) => Some((tree, item, c.probes.iter().filter_map(pattern_of).collect())),
                _ => None,
            })
        });
        clauses.filter(|(_, _, patterns): &(_, _, Vec<Pattern>)| !patterns.is_empty())
    }

    /// What a clause of [`Program::listed`] uses.
    fn uses(&self, tree: usize, item: usize) -> ClauseUses {
        self.checked.uses.get(tree).and_then(|t| t.get(item)).copied().unwrap_or_default()
    }

    /// The same clauses, with what their meaning depends on.
    pub(crate) fn listed_clauses(&self) -> Vec<ListedClause> {
        let all = self.listed().map(|(tree, item, patterns)| {
            let uses = self.uses(tree, item);
            ListedClause { tree, item, patterns, uses }
        });
        all.collect()
    }

    /// The descriptions that can match probes that come later.
    pub(crate) fn later_patterns(&self) -> Vec<Pattern> {
        let mut all: Vec<Pattern> = Vec::new();
        let bases = self.checked.record.bases.iter().map(|(_, pattern)| pattern.clone());
        for pattern in self.listed().flat_map(|(_, _, patterns)| patterns).chain(bases) {
            if !all.contains(&pattern) && self.registry.may_match_later(&pattern) {
                all.push(pattern);
            }
        }
        all
    }

    /// True if a clause that waits for probes may show addresses of processes by name, if stacks
    /// are shown so.
    pub(crate) fn may_name_addresses(&self, of_stacks: bool) -> bool {
        let shows = |uses: ClauseUses| uses.user_addresses || of_stacks && uses.user_stacks;
        let waits = |patterns: &[Pattern]| patterns.iter().any(|p| self.registry.may_match_later(p));
        self.listed().any(|(tree, item, patterns)| waits(&patterns) && shows(self.uses(tree, item)))
    }

    /// True if descriptions can match what processes map and execute later.
    pub(crate) fn follows_processes(&self) -> bool {
        let patterns = self.later_patterns();
        self.registry.follows_all(&patterns) || !self.registry.processes(&patterns).is_empty()
    }

    /// As [`Program::extend`], for probes that came later: the clauses of each group are compiled
    /// once more, for its probes only. The n-th clause of all groups is in the n-th of the new
    /// trees.
    pub(crate) fn extend_for(
        &self,
        groups: &[(Vec<ProbeInfo>, Vec<&ListedClause>)],
        options: &Options,
        strings: Vec<Vec<u8>>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Program, (SourceMap, Error)> {
        let mut frontend = self.frontend();
        let mut titles = Vec::new();
        for (later, clauses) in groups {
            let matches = |p: &Pattern| {
                let selects = self.registry.selects(p);
                later.iter().any(|probe| selects(&probe.desc))
            };
            let ids: Arc<BTreeSet<u32>> = Arc::new(later.iter().map(|p| p.id.0).collect());
            for clause in clauses {
                let Some(tree) = self.trees.get(clause.tree) else { continue };
                let item = tree.items.get(clause.item).cloned();
                let mut items: Vec<Item> = item.into_iter().collect();
                if let Some(Item::Clause(c)) = items.first_mut() {
                    c.probes.retain(|p| pattern_of(p).is_some_and(|p| matches(&p)));
                }
                frontend.trees.push(Tree { items, ..tree.clone() });
                frontend.visibility.push(Visibility {
                    listed: false,
                    later: Later::Only(ids.clone()),
                    bases: None,
                });
                titles.push(self.titles.get(clause.tree).cloned().unwrap_or_default());
            }
        }
        let mut later: Vec<ProbeInfo> = groups.iter().flat_map(|(later, _)| later.iter().cloned()).collect();
        later.sort_by_key(|probe| probe.id);
        let base = Base { strings, reenables: true, later: Some(later), ..Base::of(self, stop) };
        frontend.compile(titles, &self.macros, options, base)
    }

    /// As [`Program::extend_for`], for later bases of derived probes: the clauses of a tree that
    /// describe such probes are compiled once more, at those bases only, except those at these
    /// `wrong` places. `None` if no probe is a base.
    pub(crate) fn extend_for_bases(
        &self,
        later: &[ProbeInfo],
        wrong: &HashSet<Span>,
        options: &Options,
        strings: Vec<Vec<u8>>,
        stop: &dyn Fn() -> bool,
    ) -> Option<Result<Program, (SourceMap, Error)>> {
        let mut of_tree: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        for (tree, pattern) in &self.checked.record.bases {
            let selects = self.registry.selects(pattern);
            let mine = later.iter().filter(|probe| selects(&probe.desc)).map(|probe| probe.id.0);
            of_tree.entry(*tree).or_default().extend(mine);
        }
        of_tree.retain(|_, ids| !ids.is_empty());
        if of_tree.is_empty() {
            return None;
        }
        let mut frontend = self.frontend();
        let mut titles = Vec::new();
        for (origin, ids) in of_tree {
            let Some(tree) = self.trees.get(origin) else { continue };
            let is_right = |item: &&Item| matches!(item, Item::Clause(c) if !wrong.contains(&c.span));
            let clauses = tree.items.iter().filter(is_right);
            frontend.trees.push(Tree { items: clauses.cloned().collect(), ..tree.clone() });
            let ids = Arc::new(ids);
            let (later, bases) = (Later::Only(ids.clone()), Some(NewBases { origin, ids }));
            frontend.visibility.push(Visibility { listed: false, later, bases });
            titles.push(self.titles.get(origin).cloned().unwrap_or_default());
        }
        let base = Base { strings, reenables: true, ..Base::of(self, stop) };
        Some(frontend.compile(titles, &self.macros, options, base))
    }

    /// The source clause of a clause of the new trees of [`Program::extend_for`], by its number.
    pub(crate) fn source_of(&self, before: &Program, clause: usize) -> Option<usize> {
        self.checked.clauses.get(clause)?.program.checked_sub(before.trees.len())
    }
}

/// A clause whose descriptions can match probes that come later.
#[derive(Clone, Debug)]
pub(crate) struct ListedClause {
    tree: usize,
    item: usize,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) uses: ClauseUses,
}

impl Program {
    /// The number of probes that source `n` matched.
    pub fn matched(&self, n: usize) -> usize {
        self.checked.clauses.iter().filter(|c| c.program == n && !c.part).map(|c| c.described().len()).sum()
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
