//! Listing probes (`-l`).

use std::io::{self, Write};

use probes::ProbeInfo;

use crate::compile::Program;

impl Program {
    /// The probes that the programs describe, each once, by id.
    pub fn probes(&self) -> Vec<&ProbeInfo> {
        let mut all: Vec<&ProbeInfo> = self.checked.clauses.iter().flat_map(|c| &c.probes).collect();
        all.sort_by_key(|p| p.id);
        all.dedup_by_key(|p| p.id);
        all
    }

    /// Descriptions that match no probe.
    pub fn unmatched(&self) -> Vec<String> {
        let matched =
            |c: &check::program::Clause, p: &probes::Pattern| c.probes.iter().any(|i| p.matches(&i.desc));
        let clauses = self.checked.clauses.iter();
        clauses
            .flat_map(|c| c.patterns.iter().filter(|p| !matched(c, &p.pattern)))
            .map(|p| p.pattern.to_string())
            .collect()
    }

    /// The stability report of `-v`.
    pub fn stability(&self) -> String {
        let mut out = String::new();
        for (n, title) in self.titles.iter().enumerate() {
            let mine = || self.checked.clauses.iter().filter(|c| c.program == n);
            let Some(least) = mine().map(|c| c.attributes).reduce(probes::Attributes::min) else { continue };
            out.push_str(&format!("\nStability attributes for {title}:\n\n\tMinimum Statement Attributes\n"));
            out.push_str(&format!("\t\tIdentifier Names: {}\n", least.name.name()));
            out.push_str(&format!("\t\tData Semantics:   {}\n", least.data.name()));
            out.push_str(&format!("\t\tDependency Class: {}\n", least.class.name()));
        }
        out
    }
}

/// The heading of a list.
pub fn heading(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:>5} {:>10} {:>17} {:>33} NAME", "ID", "PROVIDER", "MODULE", "FUNCTION")
}

/// One probe; with `types`, what is known of its arguments.
pub fn row(out: &mut dyn Write, p: &ProbeInfo, types: bool) -> io::Result<()> {
    let d = &p.desc;
    writeln!(out, "{:>5} {:>10} {:>17} {:>33} {}", p.id.0, d.provider, d.module, d.function, d.name)?;
    if !types {
        return Ok(());
    }
    writeln!(out, "\n\tArgument Types")?;
    if p.args.is_empty() {
        writeln!(out, "\t\tNone")?;
    }
    for (n, arg) in p.args.iter().enumerate() {
        writeln!(out, "\t\targs[{n}]: {}", arg.translated)?;
    }
    writeln!(out)
}
