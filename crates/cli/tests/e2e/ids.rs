//! Ids of probes, and the providers that a description matches.

use std::collections::{BTreeMap, BTreeSet};

use crate::Verdict::{self, Pass};
use crate::machine::{is_guest, no_argument_types, no_events};
use crate::tool::dtrace;

tests! {
    an_id_of_a_list_is_the_same_probe_in_the_next_session ids_fit_their_columns
    ids_that_do_not_exist_are_refused ids_made_on_demand_fit_their_columns
    raw_providers_match_only_where_they_are_named a_call_is_counted_once_where_no_provider_is_named
}

/// Rows of a listing: the id with its padding, and the four names.
fn rows(list: &str) -> Vec<(String, [&str; 4])> {
    list.lines()
        .skip(1)
        .filter_map(|line| {
            // `%5d %10s %17s %33s %s`: an id that does not fit shifts the rest of the row.
            let digits = line.bytes().take_while(|b| *b == b' ' || b.is_ascii_digit()).count();
            let id = line[..digits].trim_end();
            let mut names: Vec<&str> = line[digits..].split_whitespace().collect();
            let (provider, name) = (names.remove(0), names.pop()?);
            let (module, function) = match names[..] {
                [] => ("", ""),
                [module] => (module, ""),
                [module, function, ..] => (module, function),
            };
            Some((id.to_string(), [provider, module, function, name]))
        })
        .collect()
}

/// The probes of a list that are the same in the next session. Those that processes describe come
/// and go.
fn lasting(list: &str) -> Vec<(String, [&str; 4])> {
    let mut rows = rows(list);
    rows.retain(|(_, names)| !names[0].ends_with(|c: char| c.is_ascii_digit()));
    rows
}

fn an_id_of_a_list_is_the_same_probe_in_the_next_session() -> Verdict {
    let list = dtrace(&["-l"]).code(0);
    let mut of_provider: BTreeMap<&str, Vec<(String, [&str; 4])>> = BTreeMap::new();
    for (id, names) in lasting(&list.out) {
        of_provider.entry(names[0]).or_default().push((id, names));
    }
    assert!(["dtrace", "profile", "syscall"].iter().all(|p| of_provider.contains_key(p)), "{list:?}");
    let mut chosen = Vec::new();
    for all in of_provider.values() {
        // Each is a session, and an emulated CPU is slow.
        let places = [0, all.len() - 1, all.len() / 3, all.len() / 2];
        for at in places.into_iter().take(if is_guest() { 2 } else { 4 }) {
            chosen.push(&all[at]);
        }
    }
    // Each in a session of its own, because a session's counts depend on its description.
    for (id, names) in &chosen {
        let found = dtrace(&["-l", "-i", id.trim()]).code(0);
        assert_eq!(rows(&found.out), [(id.clone(), *names)], "{found:?}");
    }
    // All in one session, with any predicate and action.
    let mut words = vec!["-l"];
    words.extend(chosen.iter().flat_map(|(id, _)| ["-i", id.trim()]));
    let found = dtrace(&words).code(0);
    let ids =
        |rows: Vec<(String, [&str; 4])>| rows.into_iter().map(|(id, _)| id).collect::<BTreeSet<String>>();
    assert_eq!(ids(rows(&found.out)), chosen.iter().map(|(id, _)| id.clone()).collect());
    Pass
}

fn ids_fit_their_columns() -> Verdict {
    let list = dtrace(&["-l"]).code(0);
    let rows = lasting(&list.out);
    let greatest: u32 = rows.iter().filter_map(|(id, _)| id.trim().parse().ok()).max().unwrap();
    // Gaps are few: the ids of clones and of functions that do not return, and a small number for
    // probes made on demand.
    assert!((greatest as usize) < rows.len() * 5 / 4 + 2000, "{greatest} of {}", rows.len());
    assert!(greatest < 1_000_000, "{greatest}");
    if rows.len() < 98_000 && greatest < 100_000 {
        assert!(rows.iter().all(|(id, _)| id.len() == 5));
    }
    Pass
}

fn ids_made_on_demand_fit_their_columns() -> Verdict {
    let list = dtrace(&["-ln", "profile-123, tick-1s, tick-3s, cpc:::context_switches-all-7"]).code(0);
    let rows = rows(&list.out);
    assert_eq!(rows.len(), 4, "{list:?}");
    assert!(rows.iter().all(|(id, _)| id.len() == 5), "{list:?}");
    let o = dtrace(&["-n", "BEGIN { trace(1); } tick-15ms { exit(0); }"]).code(0);
    // `FUNCTION:NAME` ends where its heading ends, whatever the id.
    let end = |text: &str| o.out.lines().find_map(|l| l.find(text).map(|at| at + text.len()));
    let ends = [end("FUNCTION:NAME"), end(":BEGIN"), end(":tick-15ms")];
    assert!(ends.iter().all(|e| e.is_some() && *e == ends[0]), "{o:?}");
    Pass
}

fn ids_that_do_not_exist_are_refused() -> Verdict {
    let list = dtrace(&["-ln", "tick-7s"]).code(0);
    let made = rows(&list.out)[0].0.trim().to_string();
    for id in ["0", "999999", "2000000000", &made] {
        let o = dtrace(&["-l", "-i", id]).code(1);
        assert!(o.err.contains(&format!("invalid probe identifier {id}")), "{o:?}");
    }
    Pass
}

fn raw_providers_match_only_where_they_are_named() -> Verdict {
    // The list has 100,000 rows, and a guest is slow: only the second column is read.
    let has_raw = |words: &[&str]| {
        let column = |row: &str| row.split_ascii_whitespace().nth(1).is_some_and(|p| p.starts_with("raw"));
        dtrace(words).out.lines().any(column)
    };
    if let Some(skip) = no_events() {
        return skip;
    }
    assert!(has_raw(&["-l"]));
    for words in [
        ["-l", "-n", ":::"],
        ["-l", "-n", "*:::"],
        ["-l", "-m", "sched"],
        ["-l", "-m", "*:sched"],
        ["-l", "-f", "vfs_write"],
        ["-l", "-n", "sched_switch"],
        ["-l", "-P", "*"],
    ] {
        assert!(!has_raw(&words), "{words:?}");
    }
    for words in [
        ["-l", "-P", "raw*"],
        ["-l", "-P", "rawtp"],
        ["-l", "-m", "rawtp:sched"],
        ["-l", "-n", "*tp:sched::sched_switch"],
    ] {
        assert!(has_raw(&words), "{words:?}");
    }
    Pass
}

fn a_call_is_counted_once_where_no_provider_is_named() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let named =
        dtrace(&["-qc", "true", "-n", "sdt:sched::sched_process_exit /pid == $target/ { @ = count(); }"])
            .code(0);
    let o = dtrace(&["-qc", "true", "-n", "sched_process_exit /pid == $target/ { @ = count(); }"]).code(0);
    assert_eq!((named.last_number(), o.last_number()), (1, 1), "{o:?}");
    Pass
}
