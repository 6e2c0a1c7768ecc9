//! Parses the source texts of programs with the libraries that they need, and compiles them.

use std::collections::BTreeSet;
use std::sync::Arc;

use check::pattern_of;
use diagnostics::{Diagnostic, Sink, SourceKind, SourceMap, Tag};
use probes::{Catalog, Family, Pattern, ProbeInfo, glob_matches};
use providers::Registry;
use syntax::ast::{Item, Program as Tree};
use syntax::library::{Declared, probe_name};
use syntax::{Libraries, MacroEnv};
use system::System;
use types::Types;

use super::container::Containers;
use super::lookup::{KernelSymbols, TypedefNames};
use super::pragma::{Of, set_pragma};
use super::unchanged::check_unchanged;
use super::visibility::{Candidates, Later, Visibility, Visible};
use super::{
    Macros, Program, Source, cpp, described, families, libraries, macro_env, mode_of, selection, stability,
};
use crate::error::Error;
use crate::options::Options;

/// The input of checking besides the source texts.
pub(super) struct Base<'a> {
    pub(super) system: System,
    pub(super) registry: Arc<Registry>,
    pub(super) running: Option<&'a Program>,
    pub(super) strings: Vec<Vec<u8>>,
    pub(super) modules: Option<Arc<BTreeSet<String>>>,
    /// The new trees are clauses of the running programs, for new probes.
    pub(super) reenables: bool,
    /// They are compiled for these probes alone.
    pub(super) later: Option<Vec<ProbeInfo>>,
    /// Records have the ids of the process and the thread.
    pub(super) process_ids: bool,
    pub(super) snaps: bool,
    /// Checking ends when it answers true.
    pub(super) stop: &'a dyn Fn() -> bool,
}

impl<'a> Base<'a> {
    pub(super) fn of(program: &'a Program, stop: &'a dyn Fn() -> bool) -> Base<'a> {
        Base {
            system: program.system.clone(),
            registry: program.registry.clone(),
            running: Some(program),
            strings: Vec::new(),
            modules: program.modules.clone(),
            reenables: false,
            later: None,
            process_ids: program.process_ids,
            snaps: program.snaps,
            stop,
        }
    }
}

/// Parses and compiles source texts.
#[derive(Default)]
pub(super) struct Frontend {
    pub(super) map: SourceMap,
    pub(super) trees: Vec<Tree>,
    pub(super) visibility: Vec<Visibility>,
    pub(super) libraries: Libraries,
    pub(super) definitions: Vec<check::Definition>,
    /// Those that the option names.
    pub(super) containers: Containers,
    pub(super) sink: Sink,
}

impl Frontend {
    /// Parses sources; what is wrong in them goes to the sink. Their pragmas set options: in a
    /// running session only those that may change then.
    pub(super) fn parse(
        &mut self,
        sources: &[Source],
        macros: &Macros,
        options: &mut Options,
        system: &System,
        of: Of,
    ) -> Result<(), Error> {
        let first = self.trees.len();
        for source in sources {
            let (kind, name, text) = match source {
                Source::Script(name, text) => {
                    let text = match options.cpp {
                        true => cpp::preprocess(name, text, options).map_err(Error::Setting)?,
                        false => text.clone(),
                    };
                    (SourceKind::Script, name.as_str(), text)
                }
                Source::Specifier(_, text) => (SourceKind::Specifier, "", text.clone()),
            };
            let mode = mode_of(source);
            let env = macro_env(macros, options, name, kind == SourceKind::Script);
            let known = self.libraries.parsed().len();
            self.libraries.load(&[&text], &mut self.map, &env, &mut self.sink);
            for library in self.libraries.parsed().get(known..).unwrap_or_default() {
                library.program.items.iter().for_each(|i| set_pragma(i, options, of, &mut self.sink));
            }
            let file = self.map.add(kind, name, text);
            let names = TypedefNames { libraries: &self.libraries, kernel: system.types() };
            let tree = syntax::parse(&mut self.map, file, mode, &env, &names, &mut self.sink);
            for item in &tree.items {
                set_pragma(item, options, of, &mut self.sink);
            }
            self.load_providers(&tree, &env);
            self.trees.push(tree);
        }
        self.containers = Containers::find(&options.container, system).map_err(Error::Setting)?;
        let new = self.trees.get_mut(first..).unwrap_or_default();
        self.containers.restrict(new, (&mut self.libraries, &mut self.map), system, &mut self.sink);
        Ok(())
    }

    /// The error that a file of the user declares a provider of the system, if one does.
    pub(super) fn provider_of_the_system(&mut self, system: &Registry) -> Option<Error> {
        for library in self.libraries.parsed() {
            let declared = syntax::derive::declared(&library.program).map(|(provider, _)| &provider.name);
            if let Some(name) = declared.into_iter().find(|name| system.family(&name.text).is_some()) {
                let message =
                    format!("provider {} is one of the system, which no library declares", name.text);
                self.sink.push(Diagnostic::new(Tag::D_PROV_INCOMPAT, name.span, message));
            }
        }
        let sink = std::mem::take(&mut self.sink);
        (!sink.is_empty()).then(|| Error::Program(sink.into_sorted()))
    }

    /// Parses the libraries that declare probes which a program may describe.
    fn load_providers(&mut self, tree: &Tree, macros: &MacroEnv) {
        let clauses = tree.items.iter().filter_map(|item| match item {
            Item::Clause(clause) => Some(&clause.probes),
            _ => None,
        });
        // An id may be that of any probe.
        let patterns: Vec<Pattern> = clauses.flatten().map(|d| pattern_of(d).unwrap_or_default()).collect();
        let family = |d: Declared<'_>| match d.of_processes {
            true => Family::of_processes(d.provider),
            false => Family::one(d.provider),
        };
        let selects = |d: Declared<'_>| {
            let may = |p: &&Pattern| {
                let is_glob = p.provider.is_empty() || p.provider.contains(['*', '?', '[', '\\']);
                is_glob || p.provider.starts_with(d.provider)
            };
            patterns
                .iter()
                .filter(may)
                .any(|p| family(d).matches(&p.provider) && glob_matches(&p.name, &probe_name(d.probe)))
        };
        self.libraries.load_probes(&selects, &mut self.map, macros, &mut self.sink);
        let selected = self.libraries.probes().filter(|d| d.of_processes && selects(*d)).map(family);
        let families: BTreeSet<Family> = selected.collect();
        let pid = |family: &Family| {
            let pids = patterns.iter().filter_map(|p| family.pid(&p.provider));
            pids.collect::<Vec<u32>>()
        };
        let pids: BTreeSet<u32> = families.iter().flat_map(pid).collect();
        for pid in pids {
            let selects = |d: Declared<'_>| {
                let name = family(d).name_of(pid);
                patterns.iter().any(|p| {
                    Some(&p.provider) == name.as_ref() && glob_matches(&p.name, &probe_name(d.probe))
                })
            };
            self.libraries.load_instances(pid, &selects, &mut self.map, macros, &mut self.sink);
        }
    }

    /// Describes the probes of each process where a new program means those of several: see
    /// [`families`].
    fn name_each_process(
        &mut self,
        first: usize,
        (macros, options): (&Macros, &Options),
        registry: &Registry,
    ) -> Result<(), String> {
        let selection = selection(options, &self.containers)?;
        for at in first..self.trees.len() {
            let Some(tree) = self.trees.get_mut(at) else { break };
            if families::name_each_process(tree, &self.libraries, &selection, registry)? {
                let tree = tree.clone();
                self.load_providers(&tree, &macro_env(macros, options, "", false));
            }
        }
        Ok(())
    }

    /// Checks and compiles.
    pub(super) fn compile(
        mut self,
        titles: Vec<String>,
        macros: &Macros,
        options: &Options,
        base: Base<'_>,
    ) -> Result<Program, (SourceMap, Error)> {
        let first = base.running.map_or(0, |p| p.trees.len());
        if let Err(why) = self.name_each_process(first, (macros, options), &base.registry) {
            return Err((self.map, Error::Setting(why)));
        }
        let types = Types::with_kernel(base.system.types().clone());
        let candidates = Candidates { came: base.later.as_deref(), registry: &base.registry };
        let not_used = described::add(
            &mut self.definitions,
            (&self.trees, first),
            candidates,
            (&mut self.map, &mut self.libraries),
            base.stop,
        );
        let machine: (&dyn Catalog, &System) = (&*base.registry, &base.system);
        let known = base.running.map_or(0, |p| p.libraries.parsed().len());
        let new = self.trees.get(first..).unwrap_or_default();
        libraries::dependencies((&mut self.libraries, known), new, &self.map, machine, &mut self.sink);
        let context = check::Context {
            types: &types,
            catalog: &*base.registry,
            symbols: &KernelSymbols::of(&base.system),
            map: &self.map,
            libraries: &self.libraries,
            definitions: &self.definitions,
            options: check::Options {
                strsize: options.strsize.0 as u32,
                zdefs: options.zdefs,
                empty: options.empty,
                stackframes: options.kernel_frames() as u32,
                ustackframes: options.user_frames() as u32,
                jstackframes: options.jstackframes as u32,
                jstackstrsize: options.jstackstrsize.0 as u32,
                pcapsize: options.pcapsize.0 as u32,
                operands: macros.args.clone(),
                target: macros.target != 0,
                target_pid: macros.target as u32,
                argref: options.argref || base.reenables,
                facts: crate::load::facts::reader(&base.system),
                cpu: options.cpu,
                process_ids: base.process_ids,
                snaps: base.snaps,
                amin: options.amin,
                version: options.version,
            },
            stop: base.stop,
        };
        let later = Later::Range(base.registry.later_ids());
        self.visibility.resize(self.trees.len(), Visibility { listed: true, later, bases: None });
        let visible = Visible {
            trees: &self.visibility,
            candidates,
            running: first,
            record: base.running.map(|p| &p.checked.record),
            matched: Default::default(),
        };
        let mut checked = check::check_more(&self.trees, first, &visible, &context, &mut self.sink);
        if checked.is_stopped || (base.stop)() {
            return Err((self.map, Error::Interrupted));
        }
        if let Some(least) = options.amin {
            stability::check_least(&checked.clauses, &base.registry, least, &mut self.sink);
        }
        if !self.sink.is_empty() {
            return Err((self.map, described::errors(self.sink, &checked.left_out)));
        }
        checked.left_out.extend(not_used);
        if let Some(Err(why)) = base.running.map(|p| check_unchanged(&p.checked, &checked, first)) {
            return Err((self.map, why));
        }
        let mut module = match lower::lower_more(&checked, base.strings) {
            Ok(module) => module,
            Err(e) => return Err((self.map, Error::Internal(e.to_string()))),
        };
        module.scratchsize = (options.scratchsize.0 as u32).next_multiple_of(8);
        dif::opt::optimize(&mut module);
        if let Err(e) = bpf_runtime::limits::check(&module) {
            return Err((self.map, Error::Codegen(e)));
        }
        let mask = options.tree;
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
            map: Arc::new(self.map),
            trees: self.trees.into(),
            libraries: Arc::new(self.libraries),
            definitions: self.definitions.into(),
            running: base.running.map_or(0, |p| p.checked.clauses.len()),
            checked: Arc::new(checked),
            module: Arc::new(module),
            titles: all_titles,
            tree,
            registry: base.registry,
            system: base.system,
            visibility: self.visibility.into(),
            modules: base.modules,
            process_ids: base.process_ids,
            snaps: base.snaps,
            captures: false,
            macros: macros.clone(),
        })
    }
}
