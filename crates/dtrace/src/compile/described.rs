//! Definitions that the files of processes have of their providers: which of them programs need,
//! and what a list says of them.
//!
//! A definition is parsed where a program uses `args` or `argN` in a clause for its probes, or
//! where a list prints types. It is D text of a traced process: the parser reads it as any other,
//! and `check::defined` says what of it means something.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use check::{Context, Definition, pattern_of};
use diagnostics::{Sink, SourceKind, SourceMap, control};
use probes::{Catalog, Family, Pattern, ProbeDesc, ProviderStability};
use providers::Registry;
use syntax::ast::{AttributeSubject, Item, PragmaKind, Program as Tree};
use syntax::{Libraries, MacroEnv, ParseMode};
use types::Types;

use crate::compile::stable::with_attributes;
use crate::compile::visibility::Candidates;
use crate::error::Error;

/// The most definitions of a session. The probes of others have the types that their sites give.
const MOST: usize = 1024;

/// Parses the definitions of the probes that programs from number `first` on describe, if they use
/// `args` or `argN`. Says why definitions of other probes that they describe would not be used: a
/// program may use `args` the next time.
pub(crate) fn add(
    all: &mut Vec<Definition>,
    (trees, first): (&[Tree], usize),
    probes: Candidates<'_>,
    (map, libraries): (&mut SourceMap, &mut Libraries),
    stop: &dyn Fn() -> bool,
) -> Vec<String> {
    let registry = probes.registry;
    let families = registry.families();
    let is_usdt = |p: &Pattern| {
        p.names_provider() && families.iter().any(|f| Family::is_of_any(f) && registry.can_mean(p, f))
    };
    let (mut patterns, mut others) = (HashSet::new(), HashSet::new());
    for (tree, uses) in trees.iter().zip(check::uses(trees)).skip(first) {
        let clauses = tree.items.iter().zip(uses).filter_map(|(item, uses)| match item {
            Item::Clause(clause) => Some((clause, uses)),
            _ => None,
        });
        for (clause, uses) in clauses {
            let to = if uses.typed_args || uses.raw_args { &mut patterns } else { &mut others };
            to.extend(clause.probes.iter().filter_map(pattern_of).filter(is_usdt));
        }
    }
    for probe in patterns.iter().flat_map(|p| probes.matching(p)).take_while(|_| !stop()) {
        parse(all, &probe.desc, registry, (map, libraries));
    }
    faults(all, &others, probes, stop)
}

/// Why definitions of the probes of these descriptions would not be used, except those that are
/// known already.
fn faults(
    known: &[Definition],
    patterns: &HashSet<Pattern>,
    probes: Candidates<'_>,
    stop: &dyn Fn() -> bool,
) -> Vec<String> {
    let registry = probes.registry;
    if patterns.is_empty() {
        return Vec::new();
    }
    let (mut map, mut libraries) = (SourceMap::default(), Libraries::embedded());
    let (mut all, mut providers) = (Vec::new(), HashMap::new());
    for probe in patterns.iter().flat_map(|p| probes.matching(p)).take_while(|_| !stop()) {
        let Some(found) = registry.definition(&probe.desc) else { continue };
        if known.iter().all(|d| d.number != found.number) {
            parse(&mut all, &probe.desc, registry, (&mut map, &mut libraries));
            providers.insert(found.number, found.provider.clone());
        }
    }
    let cx = check::Context {
        types: &Types::new(),
        catalog: registry,
        symbols: &(),
        map: &map,
        libraries: &libraries,
        definitions: &[],
        options: check::Options::default(),
        stop,
    };
    let text = |d: Definition| {
        let provider = providers.get(&d.number)?;
        check::not_used(provider, &check::definition_faults(&cx, &d), &map)
    };
    all.into_iter().filter_map(text).collect()
}

/// The errors of programs. Why a definition is not used explains the first one.
pub(crate) fn errors(sink: Sink, left_out: &[String]) -> Error {
    let mut all = sink.into_sorted();
    if let (Some(first), Some(why)) = (all.first_mut(), left_out.first()) {
        first.help.push(why.clone());
    }
    Error::Program(all)
}

/// Parses the definition of a probe, if its file has one.
fn parse(
    all: &mut Vec<Definition>,
    probe: &ProbeDesc,
    registry: &Registry,
    (map, libraries): (&mut SourceMap, &mut Libraries),
) {
    let Some(found) = registry.definition(probe) else { return };
    if all.len() >= MOST || all.iter().any(|d| d.number == found.number) {
        return;
    }
    let name = format!("{} of {}", found.provider, found.file);
    let file = map.add(SourceKind::Library, name, &*found.text);
    let (env, mut sink) = (MacroEnv::default(), Sink::default());
    // It sees their typedefs.
    libraries.load(&[&*found.text], map, &env, &mut Sink::default());
    let program = syntax::parse(map, file, ParseMode::Script, &env, &*libraries, &mut sink);
    let faults = sink.into_sorted();
    all.push(Definition { number: found.number, program: Arc::new(program), faults });
}

/// What lists say of definitions.
#[derive(Default)]
pub(crate) struct Listed {
    map: SourceMap,
    libraries: Libraries,
    all: Vec<Definition>,
    /// What is printed of arguments: by definition, name of the probe, and how many its site has.
    types: HashMap<(u32, Arc<str>, usize), Vec<String>>,
}

impl Listed {
    pub(crate) fn new() -> Listed {
        Listed { libraries: Libraries::embedded(), ..Listed::default() }
    }

    /// The number and the text of a probe's definition.
    fn definition(&mut self, probe: &ProbeDesc, registry: &Registry) -> Option<&Definition> {
        let number = registry.definition(probe)?.number;
        parse(&mut self.all, probe, registry, (&mut self.map, &mut self.libraries));
        self.all.iter().find(|d| d.number == number)
    }

    /// The number of the definition of a probe, and the attributes that it gives to the provider.
    pub(crate) fn stability(
        &mut self,
        probe: &ProbeDesc,
        registry: &Registry,
    ) -> Option<(u32, ProviderStability)> {
        let facts = registry.provider(&probe.provider)?.stability;
        let definition = self.definition(probe, registry)?;
        Some((definition.number, attributes(&definition.program, facts)))
    }

    /// The types of a probe's arguments. Why a definition is not used follows them.
    pub(crate) fn types(
        &mut self,
        probe: &ProbeDesc,
        registry: &Registry,
        types: &Types,
    ) -> Option<Vec<String>> {
        let number = self.definition(probe, registry)?.number;
        let arguments = registry.args(probe).map_or(0, |args| args.len());
        let key = (number, probe.name.clone(), arguments);
        if let Some(known) = self.types.get(&key) {
            return Some(known.clone());
        }
        let cx = Context {
            types,
            catalog: registry,
            symbols: &(),
            map: &self.map,
            libraries: &self.libraries,
            definitions: &self.all,
            options: check::Options::default(),
            stop: &|| false,
        };
        let (found, faults) = check::defined_types(&cx, probe);
        let mut lines = found.as_deref().unwrap_or_default().to_vec();
        for (n, line) in lines.iter_mut().enumerate() {
            *line = format!("args[{n}]: {line}");
        }
        if found.is_none() {
            let args = registry.args(probe).unwrap_or_else(|_| Arc::new([]));
            lines.extend(args.iter().enumerate().map(|(n, arg)| format!("args[{n}]: {}", arg.name(types))));
        }
        lines.extend(faults.iter().map(|fault| format!("({})", control::lines(fault))));
        self.types.insert(key, lines.clone());
        Some(lines)
    }
}

/// The attributes that a definition gives to a provider.
fn attributes(tree: &Tree, facts: ProviderStability) -> ProviderStability {
    let mut all = facts;
    for item in &tree.items {
        let Item::Pragma(pragma) = item else { continue };
        if let PragmaKind::Attributes { triple, subject: AttributeSubject::Provider { field, .. } } =
            &pragma.kind
        {
            all = with_attributes(all, (&triple.text, &field.text));
        }
    }
    all
}
