//! Listing probes (`-l`), and what `-v` says of probes and programs: their stability and their
//! arguments.
//!
//! A list keeps the order of the descriptions, each probe once, where it is first described.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use check::program::{Clause, ClausePattern};
use diagnostics::{Few, control};
use probes::{
    ArgType, Args, Attributes, Catalog, Pattern, ProbeDesc, ProbeId, ProbeInfo, ProviderStability, is_glob,
};
use providers::{Cursor, Provider, Registry};
use system::System;
use types::Types;

use crate::compile::Program;
use crate::compile::described::Listed;
use crate::compile::stability::description_attributes;
use crate::session::more_left_out;

impl Program {
    /// The probes that the programs describe, each once, in the order of the descriptions.
    pub fn probes(&self) -> Vec<&ProbeInfo> {
        let mut patterns: Vec<_> = self.patterns().collect();
        patterns.sort_by_key(|(c, p)| (c.program, p.span.start));
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        // Clauses of derived probes, which have the place of a description in common, are in the
        // order in which they run.
        for same in patterns.chunk_by(|(c, p), (d, q)| (c.program, p.span.start) == (d.program, q.span.start))
        {
            let begun = all.len();
            all.extend(same.iter().flat_map(|(c, p)| matched(&self.registry, c, p)));
            if let Some(mine) = all.get_mut(begun..) {
                mine.sort_by_key(|probe| probe.id);
            }
        }
        all.retain(|probe| seen.insert(probe.id));
        all
    }

    /// What was found and is left out, since the last call: probes of processes that describe more
    /// than their share.
    pub fn take_left_out(&self) -> Vec<String> {
        few_left_out(&self.registry)
    }

    /// What `-l` reports of each description that matches no probe, with the reason where one is
    /// known.
    pub fn unmatched(&self) -> Vec<String> {
        let none = self.patterns().filter(|(c, p)| matched(&self.registry, c, p).next().is_none());
        none.map(|(_, p)| {
            let text = p.pattern.to_string();
            let text = control::name_text(&text);
            match self.registry.matches(&p.pattern) {
                Ok(_) => format!("failed to match {text}: No probe matches description"),
                Err(why) => format!("probe description {text} does not match any probes: {}", why.message),
            }
        })
        .collect()
    }

    fn patterns(&self) -> impl Iterator<Item = (&Clause, &ClausePattern)> {
        self.checked.clauses.iter().filter(|c| !c.part).flat_map(|c| c.patterns.iter().map(move |p| (c, p)))
    }

    /// The stability report of `-v` on source `n`.
    pub fn stability(&self, n: usize) -> String {
        let mine = || self.checked.clauses.iter().filter(|c| c.program == n);
        let descriptions =
            mine().flat_map(|c| &c.patterns).map(|p| description_attributes(&self.registry, &p.pattern));
        // A program without clauses uses nothing that could change.
        let described = descriptions.reduce(Attributes::min).unwrap_or(Attributes::STABLE);
        let stated = mine().map(|c| c.attributes).reduce(Attributes::min).unwrap_or(Attributes::STABLE);
        let title = self.titles[n].replace('\'', "");
        let mut out = format!("\nStability attributes for {}:\n", control::lines(&title));
        attributes(&mut out, "Minimum Probe Description Attributes", described);
        attributes(&mut out, "Minimum Statement Attributes", stated);
        out
    }

    /// What `-e -v` adds: each description of source `n`, with what is known of its probes.
    pub fn descriptions(&self, n: usize) -> String {
        let mut out = String::new();
        let types = Types::with_kernel(self.system.types().clone());
        let (mut seen, mut listed) = (HashSet::new(), Listed::new());
        for (clause, described) in self.patterns().filter(|(c, _)| c.program == n) {
            if clause.derived.is_some() && !seen.insert(described.span) {
                continue;
            }
            let pattern = &described.pattern;
            let facts = self.registry.provider(&pattern.provider);
            let args = facts.as_ref().map_or(Attributes::UNSTABLE, |f| f.stability.args);
            out.push_str(&format!("\n{}\n", control::name_text(&pattern.to_string())));
            let stability = description_attributes(&self.registry, pattern);
            if let Some((desc, number)) = common_definition(&self.registry, clause, described) {
                let found = listed.stability(desc, &self.registry).filter(|(n, _)| *n == number);
                let is_open = is_glob(&pattern.provider);
                let facts = found.map(|(_, facts)| facts).filter(|_| !is_open);
                let stability =
                    facts.map_or(stability, |f| ProviderStability::of_description(Some(&f), pattern));
                out.push_str(&attribute_report(stability, facts.map_or(args, |f| f.args)));
                let lines = listed.types(desc, &self.registry, &types).unwrap_or_default();
                out.push_str("\n\tArgument Types\n");
                lines.iter().for_each(|line| out.push_str(&format!("\t\t{line}\n")));
                out.push_str(if lines.is_empty() { "\t\tNone\n\n" } else { "\n" });
                continue;
            }
            out.push_str(&attribute_report(stability, args));
            out.push_str(&argument_types(&common_args(&self.registry, clause, described), &types));
        }
        out
    }
}

/// The probes of a clause that one of its descriptions matches.
fn matched<'a>(
    registry: &Registry,
    clause: &'a Clause,
    p: &'a ClausePattern,
) -> impl Iterator<Item = &'a ProbeInfo> + use<'a> {
    let selects = registry.selects(&p.pattern);
    clause.described().iter().filter(move |probe| selects(&probe.desc))
}

/// The arguments that all probes of a description have; none where they differ.
fn common_args(registry: &Registry, clause: &Clause, described: &ClausePattern) -> Args {
    let mut all = matched(registry, clause, described).map(|p| registry.args(&p.desc));
    let first = all.next().unwrap_or_else(|| Ok(Arc::new([])));
    if all.all(|args| args == first) { first } else { Ok(Arc::new([])) }
}

/// A probe of a description, and the number of the definition that all its probes have.
fn common_definition<'a>(
    registry: &Registry,
    clause: &'a Clause,
    described: &'a ClausePattern,
) -> Option<(&'a ProbeDesc, u32)> {
    let mut all = matched(registry, clause, described);
    let first = all.next()?;
    let number = registry.definition(&first.desc)?.number;
    let is_same = |p: &ProbeInfo| {
        p.desc.name == first.desc.name && registry.definition(&p.desc).is_some_and(|d| d.number == number)
    };
    all.all(is_same).then_some((&*first.desc, number))
}

fn attributes(out: &mut String, title: &str, a: Attributes) {
    out.push_str(&format!(
        "\n\t{title}\n\t\tIdentifier Names: {}\n\t\tData Semantics:   {}\n\t\tDependency Class: {}\n",
        a.name, a.data, a.class
    ));
}

/// The report of the attributes of a probe or a description.
fn attribute_report(probe: Attributes, args: Attributes) -> String {
    let mut out = String::new();
    attributes(&mut out, "Probe Description Attributes", probe);
    attributes(&mut out, "Argument Attributes", args);
    out
}

/// The report of argument types.
fn argument_types(args: &Args, types: &Types) -> String {
    let mut out = String::from("\n\tArgument Types\n");
    let args = args.as_deref().unwrap_or_default();
    for (n, arg) in args.iter().enumerate() {
        out.push_str(&format!("\t\targs[{n}]: {}\n", arg.name(types)));
    }
    if args.is_empty() {
        out.push_str("\t\tNone\n");
    }
    out.push('\n');
    out
}

/// The providers of a machine, with those of our libraries.
pub(crate) fn providers_of(system: &System) -> Arc<Registry> {
    let all = crate::compile::stable::registry(system, &syntax::Libraries::embedded(), Vec::new(), false);
    all.unwrap_or_else(|_| Arc::new(Registry::new(system)))
}

/// All probes of a machine, in the order of their ids, as `dtrace -l` lists them; then those that
/// running processes describe. A provider is read when its turn comes.
pub fn probes(system: &System) -> impl Iterator<Item = ProbeInfo> + use<> {
    let (registry, mut cursor) = (providers_of(system), Cursor::default());
    let all = registry.clone();
    let of_processes = std::iter::once_with(move || all.running_probes()).flatten();
    std::iter::from_fn(move || registry.next_probe(&mut cursor)).chain(of_processes)
}

/// Lists all probes: `dtrace -l` alone.
pub fn all(system: &System, out: &mut dyn Write, verbose: bool) -> io::Result<Vec<String>> {
    let registry = providers_of(system);
    let mut list = List::new(system, out, verbose.then_some(&registry));
    let mut done = Ok(());
    registry.each(|id, desc| {
        if done.is_ok() {
            done = list.add(id, desc);
        }
    });
    done?;
    // Reading the processes may take a while.
    list.write()?;
    registry.running_probes().iter().try_for_each(|p| list.add(p.id, &p.desc))?;
    list.end()?;
    Ok(few_left_out(&registry))
}

/// What was left out, the first of it: each once, however many descriptions match it.
fn few_left_out(registry: &Registry) -> Vec<String> {
    let mut few = Few::default();
    registry.take_left_out().into_iter().for_each(|text| few.add(text));
    few.take_all(more_left_out)
}

/// Lists the probes that the programs describe.
pub fn described(out: &mut dyn Write, program: &Program, verbose: bool) -> io::Result<()> {
    let mut list = List::new(&program.system, out, verbose.then_some(&program.registry));
    program.probes().iter().try_for_each(|p| list.add(p.id, &p.desc))?;
    list.end()
}

/// There may be a hundred thousand probes: a row is put together from bytes, and what all probes of
/// a provider have in common is made once.
struct List<'a> {
    out: &'a mut dyn Write,
    text: Vec<u8>,
    verbose: Option<&'a Registry>,
    types: Types,
    /// The names of the argument types that were printed.
    names: HashMap<ArgType, String>,
    /// What files say of their providers.
    described: Option<Listed>,
    /// The attribute reports of a provider's probes, by the fields that are specified, and the
    /// definition that its file has.
    reports: HashMap<(u8, Option<u32>), String>,
    /// The provider of the last probe.
    provider: Option<(Arc<str>, Option<&'a dyn Provider>)>,
}

impl<'a> List<'a> {
    fn new(system: &System, out: &'a mut dyn Write, verbose: Option<&'a Registry>) -> List<'a> {
        let mut text = Vec::with_capacity(2 * CHUNK);
        let heading = format!("{:>5} {:>10} {:>17} {:>33} NAME\n", "ID", "PROVIDER", "MODULE", "FUNCTION");
        text.extend_from_slice(heading.as_bytes());
        let types = Types::with_kernel(system.types().clone());
        let (names, described, reports, provider) = Default::default();
        List { out, text, verbose, types, names, described, reports, provider }
    }

    fn add(&mut self, id: ProbeId, desc: &ProbeDesc) -> io::Result<()> {
        row(&mut self.text, id.0, desc);
        if let Some(registry) = self.verbose {
            if self.provider.as_ref().is_none_or(|(name, _)| *name != desc.provider) {
                self.provider = Some((desc.provider.clone(), registry.get(&desc.provider)));
                self.reports.clear();
            }
            let is_defined = registry.definition(desc).is_some();
            let described = self.described.get_or_insert_with(Listed::new);
            let stability = if is_defined { described.stability(desc, registry) } else { None };
            let blocks = self
                .reports
                .entry((specified_fields(desc), stability.map(|(number, _)| number)))
                .or_insert_with(|| probe_attribute_report(registry, desc, stability.map(|(_, s)| s)));
            self.text.extend_from_slice(blocks.as_bytes());
            let defined = if is_defined { described.types(desc, registry, &self.types) } else { None };
            let provider = self.provider.as_ref().and_then(|(_, provider)| *provider);
            let none = || Ok(Arc::new([]) as Arc<[_]>);
            let is_open = defined.is_none();
            let args = provider.filter(|_| is_open).map_or_else(none, |p| p.args(desc));
            self.text.extend_from_slice(b"\n\tArgument Types\n");
            for (n, arg) in args.as_deref().unwrap_or_default().iter().enumerate() {
                self.text.extend_from_slice(b"\t\targs[");
                number(&mut self.text, n as u32, 1);
                self.text.extend_from_slice(b"]: ");
                // Thousands of functions have the same arguments.
                match self.names.get(arg) {
                    Some(name) => self.text.extend_from_slice(name.as_bytes()),
                    None => {
                        let name = arg.name(&self.types);
                        self.text.extend_from_slice(name.as_bytes());
                        self.names.insert(arg.clone(), name);
                    }
                }
                self.text.push(b'\n');
            }
            for line in defined.iter().flatten() {
                self.text.extend_from_slice(format!("\t\t{line}\n").as_bytes());
            }
            let any = args.is_ok_and(|args| !args.is_empty()) || defined.is_some_and(|d| !d.is_empty());
            let none: &[u8] = if any { b"\n" } else { b"\t\tNone\n\n" };
            self.text.extend_from_slice(none);
        }
        if self.text.len() > CHUNK { self.write() } else { Ok(()) }
    }

    /// Writes what is waiting.
    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.text)?;
        self.text.clear();
        self.out.flush()
    }

    fn end(mut self) -> io::Result<()> {
        self.write()
    }
}

/// The number of bytes that are written at once.
const CHUNK: usize = 64 << 10;

/// Appends a number, padded to a number of columns.
fn number(out: &mut Vec<u8>, number: u32, columns: usize) {
    let mut digits = [b' '; 10];
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at.min(digits.len() - columns)..]);
}

/// Appends the line of a probe.
fn row(out: &mut Vec<u8>, id: u32, probe: &ProbeDesc) {
    let [provider, module, function, name] = probe.fields();
    number(out, id, 5);
    for (text, columns) in [(provider, 10), (module, 17), (function, 33)] {
        out.push(b' ');
        let text = control::name(text.as_bytes());
        let long = if text.is_ascii() { text.len() } else { text.chars().count() };
        out.resize(out.len() + usize::saturating_sub(columns, long), b' ');
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b' ');
    out.extend_from_slice(control::name(name.as_bytes()).as_bytes());
    out.push(b'\n');
}

/// The fields of a description that are specified, as bits. Its attributes depend on nothing else.
fn specified_fields(probe: &ProbeDesc) -> u8 {
    let bit = |text: &str| u8::from(!text.is_empty() && !is_glob(text));
    bit(&probe.module) | bit(&probe.function) << 1 | bit(&probe.name) << 2
}

fn probe_attribute_report(
    registry: &Registry,
    probe: &ProbeDesc,
    defined: Option<ProviderStability>,
) -> String {
    let facts = defined.or_else(|| registry.provider(&probe.provider).map(|f| f.stability));
    let stability = ProviderStability::of_description(facts.as_ref(), &Pattern::exact(probe));
    attribute_report(stability, facts.map_or(Attributes::UNSTABLE, |s| s.args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_columns_of_the_original() {
        let line = |id, desc: ProbeDesc| {
            let mut out = Vec::new();
            row(&mut out, id, &desc);
            String::from_utf8(out).unwrap()
        };
        let names = ["dtrace", "", "", "BEGIN"];
        assert_eq!(
            line(1, ProbeDesc::new(names[0], names[1], names[2], names[3])),
            format!("{:5} {:>10} {:>17} {:>33} {}\n", 1, names[0], names[1], names[2], names[3])
        );
        let names = ["a_long_provider", "\u{e9}", "f".repeat(40).leak(), "entry"];
        assert_eq!(
            line(1_234_567, ProbeDesc::new(names[0], names[1], names[2], names[3])),
            format!("{:5} {:>10} {:>17} {:>33} {}\n", 1_234_567, names[0], names[1], names[2], names[3])
        );
        let hostile = line(7, ProbeDesc::new("p", "m\u{1b}", "f\n", "n\u{9b}"));
        assert_eq!(
            hostile,
            format!("{:5} {:>10} {:>17} {:>33} {}\n", 7, "p", "m\\033", "f\\n", "n\\302\\233")
        );
        assert!(line(54_321, ProbeDesc::new("p", "m", "f", "n")).starts_with("54321          p "));
    }
}
