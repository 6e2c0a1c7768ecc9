//! Descriptions of several processes' providers, of families that libraries define: `plockstat*`,
//! `locks12?`.
//!
//! What a clause of such a library assigns is kept for each process by itself, so each process has
//! clauses of its own. So the description becomes one for each process that is meant, as if the
//! program named them all: those that `pid*` means, if they are named. (All that run would be
//! hundreds of copies of the library.) A process in which no probe is matched is left out.

use check::pattern_of;
use probes::{Catalog, Family, glob_matches};
use proc::Selection;
use providers::Registry;
use syntax::Libraries;
use syntax::ast::{Item, ProbeDesc, ProbeDescKind, Program as Tree};

/// A description stands for so many processes at most.
const MOST: usize = 64;

/// Replaces such descriptions in a program. False if there is none. The error says why one cannot
/// be replaced.
pub(crate) fn name_each_process(
    tree: &mut Tree,
    libraries: &Libraries,
    selection: &Selection,
    registry: &Registry,
) -> Result<bool, String> {
    let of_processes = libraries.probes().filter(|d| d.of_processes);
    let families: Vec<Family> = of_processes.map(|d| Family::of_processes(d.provider)).collect();
    let mut replaced = false;
    for item in &mut tree.items {
        let Item::Clause(clause) = item else { continue };
        let mut all = Vec::new();
        for desc in std::mem::take(&mut clause.probes) {
            let family = provider(&desc).and_then(|name| families.iter().find(|f| f.is_of_several(name)));
            let each = match family {
                Some(family) if !selection.is_empty() => of_each(&desc, family, selection, registry)?,
                _ => Vec::new(),
            };
            replaced |= !each.is_empty();
            // A description that means nothing is reported as it is written.
            if each.is_empty() { all.push(desc) } else { all.extend(each) }
        }
        clause.probes = all;
    }
    Ok(replaced)
}

fn provider(desc: &ProbeDesc) -> Option<&str> {
    match &desc.kind {
        ProbeDescKind::Fields { provider, .. } => Some(&provider.text),
        ProbeDescKind::Id(_) => None,
    }
}

/// The description for each process in which it matches a probe.
fn of_each(
    desc: &ProbeDesc,
    family: &Family,
    selection: &Selection,
    registry: &Registry,
) -> Result<Vec<ProbeDesc>, String> {
    let glob = provider(desc).unwrap_or_default();
    let pids = selection.processes().map_err(|e| format!("the processes cannot be listed: {e}"))?;
    let named = pids.into_iter().filter_map(|pid| family.name_of(pid));
    let names: Vec<String> = named.filter(|name| glob_matches(glob, name)).collect();
    let described = names.into_iter().map(|name| {
        let mut one = desc.clone();
        one.text = one.text.replacen(glob, &name, 1);
        if let ProbeDescKind::Fields { provider, .. } = &mut one.kind {
            provider.text = name;
        }
        one
    });
    let matches = |one: &ProbeDesc| {
        let pattern = pattern_of(one);
        pattern.is_some_and(|pattern| registry.matches(&pattern).is_ok_and(|found| !found.is_empty()))
    };
    let all: Vec<ProbeDesc> = described.filter(matches).take(MOST + 1).collect();
    if all.len() > MOST {
        return Err(format!("{glob} means the probes of more than {MOST} processes, which is too many"));
    }
    Ok(all)
}
