//! Which probes of the providers that are written in D exist on which kernel.

use std::collections::BTreeSet;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::is_guest;
use crate::tool::dtrace;

tests! { the_stable_probes_of_this_kernel_are_those_of_the_list }

/// The list.
const LIST: &str = include_str!("stable.txt");

/// The column of the running kernel.
fn column() -> Option<usize> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let of_matrix = ["6.1.", "6.12.", "7.2."].iter().position(|version| release.starts_with(version));
    let restricted = release.starts_with("6.18.") && crate::machine::no_function_list().is_some();
    of_matrix.map(|n| n + 1).or(restricted.then_some(4))
}

/// A probe that no kernel has, of these providers, has a reason of its own.
fn has_reason(probe: &str) -> bool {
    let (provider, name) = probe.split_once(":::").unwrap();
    let mut rows = LIST.lines().filter_map(|row| row.split_once(' '));
    let is_nowhere = rows.any(|(n, there)| n == format!("{provider}:{name}") && !there.contains("yes"));
    is_nowhere && ["fpuinfo", "mib", "vminfo", "sysinfo"].contains(&provider)
}

fn the_stable_probes_of_this_kernel_are_those_of_the_list() -> Verdict {
    let Some(column) = column() else { return Skip("the list has no column for this kernel".into()) };
    let rows = LIST.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().collect::<Vec<_>>());
    let rows: Vec<(&str, &str, bool)> = rows
        .map(|row| {
            assert_eq!(row.len(), 5, "{row:?}");
            let (provider, name) = row[0].split_once(':').unwrap();
            (provider, name, row[column] == "yes")
        })
        .collect();
    let providers: BTreeSet<&str> = rows.iter().map(|(provider, ..)| *provider).collect();
    let (there, absent): (Vec<_>, Vec<_>) = rows.iter().partition(|(.., there)| *there);
    let all = providers.iter().flat_map(|provider| ["-P", provider]);
    let o = dtrace(&["-l"].into_iter().chain(all).collect::<Vec<_>>());
    let listed = o.out.lines().skip(1).map(|l| l.split_whitespace().collect::<Vec<_>>());
    let listed: BTreeSet<(&str, &str)> = listed.map(|words| (words[1], words[words.len() - 1])).collect();
    let expected: BTreeSet<(&str, &str)> =
        there.iter().map(|(provider, name, _)| (*provider, *name)).collect();
    assert_eq!(listed, expected, "{o:?}");
    // Each is reported with its reason.
    let absent: Vec<String> =
        absent.iter().map(|(provider, name, _)| format!("{provider}:::{name}")).collect();
    for some in absent.chunks(100) {
        let descriptions = some.iter().flat_map(|probe| ["-n", probe]);
        let o = dtrace(&["-l"].into_iter().chain(descriptions).collect::<Vec<_>>()).code(1);
        for probe in some {
            let message = format!("probe description {probe} does not match any probes: ");
            let why = o.err.lines().find_map(|l| l.split_once(&message)).map_or("", |(_, why)| why);
            let is_told = ["this kernel", "cannot be", "Linux"].iter().any(|word| why.contains(word));
            assert!(is_told, "{probe}: {o:?}");
            assert!(!why.contains("the library has no clause") || !has_reason(probe), "{probe}: {o:?}");
        }
    }
    // All can be enabled, many at once: a guest is slow at each start. An emulated CPU is also slow
    // at the end of each: it takes a quarter, the next one when this test has its turn again, which
    // is each twelve commits.
    let parts = if is_guest() { 4 } else { 1 };
    let seed = std::env::var("DTRACE_SEED").ok().and_then(|seed| seed.parse::<usize>().ok());
    let turn = seed.unwrap_or(0) / 12 % parts;
    let all: Vec<&(&str, &str)> = expected.iter().skip(turn).step_by(parts).collect();
    for some in all.chunks(64) {
        let clauses = some.iter().map(|(provider, name)| format!("{provider}:::{name} {{ @ = count(); }} "));
        let script = clauses.chain(["BEGIN { exit(0); }".into()]).collect::<String>();
        let o = dtrace(&["-q", "-n", &script]).code(0);
        assert!(!o.err.contains("cannot be attached"), "{o:?}");
    }
    Pass
}
