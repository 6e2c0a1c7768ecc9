//! Completions of shells, from the table of options: the scripts (`--completions SHELL`), and what
//! they ask while a user types (`--complete`).
//!
//! ```text
//!  bash zsh fish                dtrace --complete n 'syscall::re' dtrace -p 12 -n 'syscall::re
//!      │                                        │      │           └─ the words before, for the process of -p
//!      │                                        │      └───────────── the word as it is without quotation marks
//!      │                                        └──────────────────── the option whose argument it is
//!      └─ asks ◄── lines: text ⇥ help           a text that goes on ends with `:` or `=`, or has the help `...`
//! ```
//!
//! A script knows the options, and no probes. The program answers, or prints nothing: a prompt is
//! no place for messages.

use dtrace::System;
use dtrace::completion::{self, Candidate, Target};

use crate::flags::{self, Flag, Long, NOT_YET, Takes};

/// What follows what is begun, where a text that goes on does not show it by its end.
const GOES_ON: &str = "...";

/// `--complete OPTION WORD [WORDS...]`: the candidates, one a line.
pub(crate) fn candidates(words: &[String]) -> String {
    let (Some(option), Some(word)) = (words.first(), words.get(1)) else { return String::new() };
    let flag = flags::TABLE.iter().find(|f| option.chars().eq([f.letter]));
    let long = flags::LONG.iter().find(|l| l.name == option);
    let Some(takes) = flag.map(|f| f.takes).or(long.map(|l| l.takes)) else { return String::new() };
    let target = target(words.get(2..).unwrap_or_default());
    let found = match takes {
        Takes::Probes(field) => completion::probes(&System::live(), field, word, target),
        Takes::Setting => completion::settings(word),
        Takes::Value => completion::values(flag.map_or("", |f| f.option), word),
        Takes::Process => completion::processes(word),
        Takes::Words(_) | Takes::Nothing | Takes::File | Takes::Directory | Takes::Command | Takes::Text => {
            Vec::new()
        }
    };
    found.iter().map(line).collect()
}

/// The line of a candidate.
fn line(candidate: &Candidate) -> String {
    let Candidate { text, help, continues } = candidate;
    let shows = text.ends_with([':', '=']);
    let help = if *continues && !shows { GOES_ON } else { help };
    // Neither has a tab: names are plain, and help is of our tables or without control characters.
    format!("{text}\t{help}\n")
}

/// The target of a command line that is not complete.
fn target(words: &[String]) -> Target {
    let mut found = Target::None;
    for (at, word) in words.iter().enumerate() {
        let value = |letter: char| {
            let joined = word.strip_prefix('-').and_then(|w| w.strip_prefix(letter))?;
            Some(if joined.is_empty() { words.get(at + 1).map_or("", String::as_str) } else { joined })
        };
        if let Some(pid) = value('p').and_then(|text| text.trim().parse().ok()) {
            return Target::Process(pid);
        }
        if value('c').is_some() {
            found = Target::Later;
        }
    }
    found
}

/// The script for a shell.
pub(crate) fn script(shell: &str) -> String {
    match shell {
        "bash" => bash(),
        "zsh" => zsh(),
        _ => fish(),
    }
}

/// The options that exist.
fn options() -> impl Iterator<Item = &'static Flag> {
    flags::TABLE.iter().filter(|f| !NOT_YET.contains(f.letter))
}

/// How a script completes arguments of a kind.
fn kind(takes: Takes) -> &'static str {
    match takes {
        Takes::Nothing => "nothing",
        Takes::Probes(_) | Takes::Setting | Takes::Value | Takes::Process => "asked",
        Takes::File => "file",
        Takes::Directory => "directory",
        Takes::Command => "command",
        Takes::Words(_) => "word",
        Takes::Text => "text",
    }
}

fn bash() -> String {
    let mut kinds = String::new();
    for wanted in ["asked", "file", "directory", "command", "text"] {
        let letters: String = options().filter(|f| kind(f.takes) == wanted).map(|f| f.letter).collect();
        let long = flags::LONG.iter().filter(|l| kind(l.takes) == wanted).map(|l| format!(" | --{}", l.name));
        let long: String = long.collect();
        kinds.push_str(&format!("        -[{letters}] | -[!-]*[{letters}]{long}) kind={wanted} ;;\n"));
    }
    let words = |name: String, takes: Takes| match takes {
        Takes::Words(all) => format!("        {name}) kind=word words='{}' ;;\n", all.join(" ")),
        _ => String::new(),
    };
    let long: String = flags::LONG.iter().map(|l| words(format!("--{}", l.name), l.takes)).collect();
    let short: String = options().map(|f| words(format!("-{}", f.letter), f.takes)).collect();
    let names: Vec<String> = options()
        .map(|f| match f.takes {
            Takes::Words([only]) => format!("-{}{only}", f.letter),
            _ => format!("-{}", f.letter),
        })
        .chain(flags::LONG.iter().map(|l| format!("--{}", l.name)))
        .chain(["--help".into()])
        .collect();
    include_str!("completions/bash.sh")
        .replace("@WORDS@\n", &(long + &short))
        .replace("@KINDS@\n", &kinds)
        .replace("@OPTIONS@", &names.join(" "))
}

/// The help of an option, in a few words.
fn brief(f: &Flag) -> &'static str {
    if f.brief.is_empty() { f.help } else { f.brief }
}

/// The beginning of a help, up to what explains it.
fn first_words(help: &str) -> &str {
    help.split([';', '(', ',']).next().unwrap_or_default().trim()
}

fn zsh() -> String {
    let text = |text: &str| {
        text.replace('\\', "\\\\")
            .replace('\'', "'\\''")
            .replace('[', "\\[")
            .replace(']', "\\]")
            .replace(':', "\\:")
    };
    // An action that begins with a blank is called as it is; into others zsh inserts arguments of
    // its own.
    let action = |option: &str, takes: Takes| match takes {
        Takes::Nothing => String::new(),
        Takes::File => "_files".into(),
        Takes::Directory => "_files -/".into(),
        Takes::Command => "_cmdstring".into(),
        Takes::Words(words) => format!("({})", words.join(" ")),
        Takes::Text => " ".into(),
        Takes::Probes(_) | Takes::Setting | Takes::Value | Takes::Process => {
            format!(" _dtrace_candidates {option}")
        }
    };
    let mut specs = String::new();
    for f in options() {
        let (letter, help) = (f.letter, text(brief(f)));
        match f.takes {
            Takes::Nothing => specs.push_str(&format!("        '*-{letter}[{help}]' \\\n")),
            Takes::Words([only]) => specs.push_str(&format!("        '-{letter}{only}[{help}]' \\\n")),
            takes => {
                let (arg, action) = (text(f.arg), action(&letter.to_string(), takes));
                specs.push_str(&format!("        '*-{letter}+[{help}]:{arg}:{action}' \\\n"));
            }
        }
    }
    for Long { name, arg, takes, help } in flags::LONG {
        let help = text(first_words(help));
        let more = match takes {
            Takes::Nothing => format!("'(- *)--{name}[{help}]' \\\n"),
            _ => format!("'*--{name}=[{help}]:{arg}:{}' \\\n", action(name, *takes)),
        };
        specs.push_str(&format!("        {more}"));
    }
    include_str!("completions/zsh.sh").replace("@SPECS@\n", &specs)
}

fn fish() -> String {
    let text = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let values = |option: &str, takes: Takes| match takes {
        Takes::Nothing => String::new(),
        Takes::File => " -r -F".into(),
        Takes::Directory => " -x -a '(__fish_complete_directories)'".into(),
        Takes::Command => " -x -a '(__fish_complete_command)'".into(),
        Takes::Words(words) => format!(" -x -a '{}'", words.join(" ")),
        Takes::Text => " -x".into(),
        Takes::Probes(_) | Takes::Setting | Takes::Value | Takes::Process => {
            format!(" -x -a '(__dtrace_candidates {option})'")
        }
    };
    let mut out = String::from(include_str!("completions/fish.fish"));
    for f in options() {
        let (letter, help) = (f.letter, text(brief(f)));
        out.push_str(&match f.takes {
            Takes::Words([only]) => format!("complete -c dtrace -o {letter}{only} -d '{help}'\n"),
            takes => {
                format!("complete -c dtrace -s {letter}{} -d '{help}'\n", values(&letter.to_string(), takes))
            }
        });
    }
    for Long { name, takes, help, .. } in flags::LONG {
        let help = text(first_words(help));
        out.push_str(&format!("complete -c dtrace -l {name}{} -d '{help}'\n", values(name, *takes)));
    }
    out.push_str("complete -c dtrace -l help -d 'print a summary of the options'\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn every_option_is_in_the_script_of_every_shell() {
        for shell in flags::SHELLS {
            let script = script(shell);
            for mark in ["@WORDS@", "@KINDS@", "@OPTIONS@", "@SPECS@"] {
                assert!(!script.contains(mark), "{shell}: {script}");
            }
            for f in options() {
                let (letter, only) = (f.letter, matches!(f.takes, Takes::Words([_])));
                let forms = match shell {
                    "fish" => [
                        format!("complete -c dtrace -s {letter} "),
                        format!("complete -c dtrace -o {letter}"),
                    ],
                    "zsh" => [format!("'*-{letter}[["), format!("-{letter}")].map(|f| f.replace("[[", "[")),
                    _ => [format!(" -{letter} "), format!("'-{letter} ")],
                };
                let is_there = forms.iter().any(|form| script.contains(form.as_str()));
                assert!(is_there || only && script.contains(&format!("-{letter}4")), "{shell}: -{letter}");
            }
            assert!(flags::LONG.iter().all(|l| script.contains(l.name)), "{shell}");
        }
    }

    #[test]
    fn the_target_of_a_line_is_that_of_its_first_process() {
        assert_eq!(target(&words("dtrace -n x")), Target::None);
        assert_eq!(target(&words("dtrace -p 12 -n x")), Target::Process(12));
        assert_eq!(target(&words("dtrace -p12 -n x")), Target::Process(12));
        assert_eq!(target(&words("dtrace -c ls -n x")), Target::Later);
        assert_eq!(target(&words("dtrace -n x -p")), Target::None);
        assert_eq!(target(&words("dtrace -p x")), Target::None);
    }

    #[test]
    fn candidates_are_lines_of_a_text_and_its_help() {
        assert_eq!(candidates(&words("x bufp")), "bufpolicy=\twhat a full buffer does\n");
        assert_eq!(candidates(&words("x bufpolicy=f")), "bufpolicy=fill\t\n");
        assert_eq!(candidates(&words("b 4")), "4m\tthe default\n");
        assert_eq!(candidates(&words("X a")), "a\tthe default\n");
        let goes_on = Candidate { text: "fbt::tcp_".into(), help: String::new(), continues: true };
        assert_eq!(line(&goes_on), "fbt::tcp_\t...\n");
        // What no option has, a file, or nothing at all: no candidates, and no message.
        for text in ["", "x", "y sys", "s x", "nothing x", "q x"] {
            assert_eq!(candidates(&words(text)), "", "{text}");
        }
    }
}
