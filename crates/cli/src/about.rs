//! What the command says of itself and of the system: `--version`, one screen to paste into a
//! report, and `--check`.

use std::fmt::Write;

use dtrace::System;
use dtrace::abilities::{self, Ability, Report, State};

/// The version of D that scripts may ask for, as the original prints it.
pub(crate) const LANGUAGE: &str = "Sun D 1.13";

/// The width of a screen.
const COLUMNS: usize = 80;

/// The version, with the commit that it was built from.
fn version() -> String {
    format!("dtrace {} (commit {})", env!("CARGO_PKG_VERSION"), env!("DTRACE_COMMIT"))
}

/// The text of `--version`.
pub(crate) fn text(machine: &System) -> String {
    let [has, lacks] = abilities::facilities(machine);
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let rows = [
        ("language", format!("{}, for Linux", LANGUAGE)),
        ("kernel", format!("Linux {} {}, {cpus} CPUs", machine.release(), machine.arch())),
        ("privileges", abilities::privileges()),
        ("restrictions", abilities::restrictions()),
        ("kernel has", has.join(" ")),
        ("kernel lacks", if lacks.is_empty() { "nothing".into() } else { lacks.join(" ") }),
    ];
    let mut out = format!("{}\n", version());
    for (name, value) in rows {
        out.push_str(&folded(&format!("  {name:<14}"), &value));
    }
    out
}

/// The text of `--check`.
pub(crate) fn abilities(machine: &System, report: &Report) -> String {
    let mut out = format!("{} on Linux {} {}\n", version(), machine.release(), machine.arch());
    for (title, all) in [
        ("System", &report.system),
        ("Providers", &report.providers),
        ("Facilities of the kernel", &report.facilities),
    ] {
        let _ = writeln!(out, "\n{title}");
        if all.is_empty() {
            out.push_str("  not tried: see privileges\n");
        }
        // What a facility is matters where it is missing; those that are there are many.
        let is_there = |ability: &&Ability| ability.state == State::Works(String::new());
        let names: Vec<&str> = all.iter().filter(is_there).map(|ability| ability.name.as_str()).collect();
        if !names.is_empty() {
            out.push_str(&folded("  yes   ", &names.join(" ")));
        }
        all.iter().filter(|a| !is_there(a)).for_each(|ability| out.push_str(&entry(ability)));
    }
    out
}

/// A thing that works or not: `  yes   name  text`, and below it why not and what it needs.
fn entry(ability: &Ability) -> String {
    let Ability { name, help, state } = ability;
    let row = |word: &str, text: &str| {
        let joined: Vec<&str> = [help.as_str(), text].into_iter().filter(|part| !part.is_empty()).collect();
        folded(&format!("  {word:<5} {name:<19} "), &joined.join(": "))
    };
    let more = |word: &str, text: &str| match text {
        "" => String::new(),
        text => folded(&format!("{:27}{word:<7}", ""), text),
    };
    match state {
        State::Works(text) => row("yes", text),
        State::Partly { works, why, needs } => {
            row("part", works) + &more("not:", why) + &more("needs:", needs)
        }
        State::Missing { why, needs } => row("no", "") + &more("why:", why) + &more("needs:", needs),
    }
}

/// A text after a label, in lines of a screen; what does not fit stands below its beginning.
fn folded(label: &str, text: &str) -> String {
    let mut out = label.to_string();
    let mut column = label.len();
    let mut first = true;
    for word in text.split_whitespace() {
        if !first && column + 1 + word.len() > COLUMNS {
            let _ = write!(out, "\n{:1$}", "", label.len());
            column = label.len();
            first = true;
        }
        if !first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.chars().count();
        first = false;
    }
    format!("{}\n", out.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_folded_below_their_beginning() {
        assert_eq!(folded("a: ", ""), "a:\n");
        let text = folded("label ", &"word ".repeat(30));
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 31);
        // A word that fits no line is not cut.
        assert_eq!(folded("l ", &"x".repeat(90)), format!("l {}\n", "x".repeat(90)));
    }

    #[test]
    fn what_does_not_work_says_why_and_what_it_needs() {
        let of = |state| entry(&Ability { name: "fbt".into(), help: String::new(), state });
        assert_eq!(of(State::Works("3 probes".into())), "  yes   fbt                 3 probes\n");
        let missing = State::Missing { why: "no list".into(), needs: "CONFIG_X=y".into() };
        let below = format!("{:27}", "");
        assert_eq!(of(missing), format!("  no    fbt\n{below}why:   no list\n{below}needs: CONFIG_X=y\n"));
        let part = State::Partly { works: "1 probe".into(), why: "x: gone".into(), needs: String::new() };
        assert_eq!(of(part), format!("  part  fbt                 1 probe\n{below}not:   x: gone\n"));
    }

    #[test]
    fn facilities_that_are_there_are_named_in_one_paragraph() {
        let of = |name: &str, state| Ability { name: name.into(), help: "What it is".into(), state };
        let missing = State::Missing { why: "x".into(), needs: "y".into() };
        let facilities = vec![
            of("btf", State::Works(String::new())),
            of("b", missing),
            of("c", State::Works(String::new())),
        ];
        let mut report = Report::default();
        report.facilities = facilities;
        let text = abilities(&System::live(), &report);
        let (_, text) = text.split_once("Facilities of the kernel\n").unwrap();
        let expected = format!("  yes   btf c\n  no    {:<19} What it is\n", "b");
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn a_version_is_one_screen() {
        let text = text(&System::live());
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(text.starts_with(&format!("dtrace {} (commit ", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(env!("DTRACE_COMMIT") == "unknown" || env!("DTRACE_COMMIT").len() == 12);
    }
}
