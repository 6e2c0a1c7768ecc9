//! Listing probes (`-l`), and what `-v` says of probes and programs: their stability and their arguments.
//!
//! A list keeps the order of the descriptions, each probe once, where it is first described.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;

use check::program::{Clause, ClausePattern};
use diagnostics::{Diagnostic, Sink, Tag};
use probes::{Args, Attributes, Catalog, Pattern, ProbeInfo, ProviderStability, is_glob};
use providers::Registry;
use types::Types;
use types::btf::KernelBtf;

use crate::compile::Program;

impl Program {
    /// The probes that the programs describe, each once, in the order of the descriptions.
    pub fn probes(&self) -> Vec<&ProbeInfo> {
        let mut seen = HashSet::new();
        let described = self.patterns().flat_map(|(c, p)| matched(c, p));
        described.filter(|p| seen.insert(p.id)).collect()
    }

    /// Descriptions that match no probe.
    pub fn unmatched(&self) -> Vec<String> {
        let none = self.patterns().filter(|(c, p)| matched(c, p).next().is_none());
        none.map(|(_, p)| p.pattern.to_string()).collect()
    }

    fn patterns(&self) -> impl Iterator<Item = (&Clause, &ClausePattern)> {
        self.checked.clauses.iter().filter(|c| !c.part).flat_map(|c| c.patterns.iter().map(move |p| (c, p)))
    }

    /// The stability report of `-v` on source `n`.
    pub fn stability(&self, n: usize) -> String {
        let mine = || self.checked.clauses.iter().filter(|c| c.program == n);
        let descriptions = mine().flat_map(|c| &c.patterns).map(|p| promise(&self.registry, &p.pattern));
        // A program without clauses uses nothing that could change.
        let described = descriptions.reduce(Attributes::min).unwrap_or(Attributes::STABLE);
        let stated = mine().map(|c| c.attributes).reduce(Attributes::min).unwrap_or(Attributes::STABLE);
        let mut out = format!("\nStability attributes for {}:\n", self.titles[n].replace('\'', ""));
        attributes(&mut out, "Minimum Probe Description Attributes", described);
        attributes(&mut out, "Minimum Statement Attributes", stated);
        out
    }

    /// What `-e -v` adds: each description of source `n`, with what is known of its probes.
    pub fn descriptions(&self, n: usize) -> String {
        let mut out = String::new();
        let types = Types::with_kernel(self.kernel.clone());
        for (clause, described) in self.patterns().filter(|(c, _)| c.program == n) {
            let pattern = &described.pattern;
            let facts = self.registry.provider(&pattern.provider);
            let args = facts.as_ref().map_or(Attributes::UNSTABLE, |f| f.stability.args);
            out.push_str(&format!("\n{pattern}\n"));
            let promise = promise(&self.registry, pattern);
            about(&mut out, promise, args, &common_args(&self.registry, clause, described), &types);
        }
        out
    }
}

/// The probes of a clause that one of its descriptions matches.
fn matched<'a>(clause: &'a Clause, p: &'a ClausePattern) -> impl Iterator<Item = &'a ProbeInfo> {
    clause.probes.iter().filter(|probe| p.pattern.matches(&probe.desc))
}

/// The arguments that all probes of a description have; none where they differ.
fn common_args(registry: &Registry, clause: &Clause, described: &ClausePattern) -> Args {
    let mut all = matched(clause, described).map(|p| registry.args(&p.desc));
    let first = all.next().unwrap_or_else(|| Ok(Arc::new([])));
    if all.all(|args| args == first) { first } else { Ok(Arc::new([])) }
}

/// What a description promises.
fn promise(registry: &Registry, pattern: &Pattern) -> Attributes {
    let open = pattern.provider.is_empty() || is_glob(&pattern.provider);
    let facts = if open { None } else { registry.provider(&pattern.provider) };
    ProviderStability::of_description(facts.map(|f| f.stability).as_ref(), pattern)
}

/// `-xamin`: descriptions and clauses that promise less are errors.
pub(crate) fn check_least(clauses: &[Clause], registry: &Registry, least: Attributes, sink: &mut Sink) {
    for clause in clauses {
        for described in &clause.patterns {
            let has = promise(registry, &described.pattern);
            if !has.at_least(least) {
                let text = format!(
                    "attributes for description {} ({has}) are less than predefined minimum",
                    described.pattern
                );
                sink.push(Diagnostic::new(Tag::D_ATTR_MIN, described.span, text));
            }
        }
        if !clause.attributes.at_least(least) {
            let text =
                format!("attributes for clause ({}) are less than predefined minimum", clause.attributes);
            sink.push(Diagnostic::new(Tag::D_ATTR_MIN, clause.span, text));
        }
    }
}

fn attributes(out: &mut String, title: &str, a: Attributes) {
    out.push_str(&format!(
        "\n\t{title}\n\t\tIdentifier Names: {}\n\t\tData Semantics:   {}\n\t\tDependency Class: {}\n",
        a.name, a.data, a.class
    ));
}

/// The blocks that stand under a probe or a description.
fn about(out: &mut String, probe: Attributes, promise: Attributes, args: &Args, types: &Types) {
    attributes(out, "Probe Description Attributes", probe);
    attributes(out, "Argument Attributes", promise);
    out.push_str("\n\tArgument Types\n");
    let args = args.as_deref().unwrap_or_default();
    for (n, arg) in args.iter().enumerate() {
        out.push_str(&format!("\t\targs[{n}]: {}\n", arg.name(types)));
    }
    if args.is_empty() {
        out.push_str("\t\tNone\n");
    }
    out.push('\n');
}

/// Every probe there is: `dtrace -l` alone.
pub fn all(out: &mut dyn Write, verbose: bool) -> io::Result<()> {
    let registry = Registry::new(KernelBtf::running());
    let probes = registry.matches(&Pattern::default()).unwrap_or_default();
    list(out, &probes.iter().collect::<Vec<_>>(), verbose.then_some(&registry))
}

/// The probes that the programs describe.
pub fn described(out: &mut dyn Write, program: &Program, verbose: bool) -> io::Result<()> {
    list(out, &program.probes(), verbose.then_some(&program.registry))
}

fn list(out: &mut dyn Write, probes: &[&ProbeInfo], verbose: Option<&Registry>) -> io::Result<()> {
    let types = Types::with_kernel(KernelBtf::running());
    writeln!(out, "{:>5} {:>10} {:>17} {:>33} NAME", "ID", "PROVIDER", "MODULE", "FUNCTION")?;
    for p in probes {
        let d = &p.desc;
        writeln!(out, "{:>5} {:>10} {:>17} {:>33} {}", p.id.0, d.provider, d.module, d.function, d.name)?;
        if let Some(registry) = verbose {
            let facts = registry.provider(&d.provider).map(|f| f.stability);
            let promises = ProviderStability::of_description(facts.as_ref(), &Pattern::exact(d));
            let mut text = String::new();
            let args = facts.map_or(Attributes::UNSTABLE, |s| s.args);
            about(&mut text, promises, args, &registry.args(&p.desc), &types);
            out.write_all(text.as_bytes())?;
        }
    }
    out.flush()
}
