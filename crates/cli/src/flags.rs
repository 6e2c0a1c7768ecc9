//! The table of command-line options, and the parser that reads it.
//!
//! One row an option; `--help`, the manual page (`manual`), the completions (`completions`) and the
//! parser use the table. Options and operands may be interleaved, as with getopt restarted after
//! each operand. The parser only classifies the arguments as [`Word`]s; `command` interprets them.

use dtrace::Field;

/// What the argument of an option is, for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// There is no argument.
    Nothing,
    /// A description of probes that ends with this field, perhaps with a clause.
    Probes(Field),
    /// An option of `-x`.
    Setting,
    /// A value of the `-x` option that it abbreviates.
    Value,
    /// The id of a process.
    Process,
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A command with its arguments, as one word.
    Command,
    /// One of these.
    Words(&'static [&'static str]),
    /// Any text.
    Text,
}

/// The shells with completions.
pub(crate) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// One option.
#[derive(Debug)]
pub(crate) struct Flag {
    /// Its letter (`3` and `6` stand for `-32` and `-64`).
    pub(crate) letter: char,
    /// Name of its argument; empty when it takes none.
    pub(crate) arg: &'static str,
    /// What the argument is.
    pub(crate) takes: Takes,
    /// The `-x` option that it abbreviates; empty when there is none.
    pub(crate) option: &'static str,
    /// What it does, in a few words; for `--help`.
    pub(crate) brief: &'static str,
    /// What it does; for the manual page.
    pub(crate) help: &'static str,
}

const fn flag(
    letter: char,
    arg: &'static str,
    takes: Takes,
    option: &'static str,
    brief: &'static str,
    help: &'static str,
) -> Flag {
    Flag { letter, arg, takes, option, brief, help }
}

use Takes::{Command, Directory, File, Nothing, Probes, Process, Setting, Text, Value, Words};

/// Every option, in the order of the usage text.
#[rustfmt::skip]
pub(crate) const TABLE: &[Flag] = &[
    flag('a', "", Nothing, "", "claim what boot traced", "print what was traced since the boot (-A) and trace on; with -e print it, end the session and exit"),
    flag('A', "", Nothing, "", "trace from next boot on", "store the programs and options, which trace from the next boot on until -a claims it; without programs remove what is stored"),
    flag('b', "bufsize", Value, "bufsize", "size of each CPU's buffer", "set the size of the principal buffer of each CPU"),
    flag('c', "cmd", Command, "", "trace until cmd ends", "run cmd and trace until it exits; $target is its process id"),
    flag('C', "", Nothing, "cpp", "preprocess script files", "run the C preprocessor on script files"),
    flag('d', "", Nothing, "", "print the divided clauses", "print the programs as if and else have divided them"),
    flag('D', "name[=value]", Text, "define", "define a name for -C", "define a preprocessor name"),
    flag('e', "", Nothing, "", "compile only", "exit after compiling, before enabling"),
    flag('f', "[[prov:]mod:]func", Probes(Field::Function), "", "probes by function", "enable or list probes by function name"),
    flag('F', "", Nothing, "flowindent", "indent by call and return", "indent the output by function entry and return"),
    flag('G', "", Nothing, "", "write a provider's object", "write the object file for the provider definitions of the script, without tracing: script.o, or the file of -o. The operands are the objects that have the probes"),
    flag('h', "", Nothing, "", "write a provider's header", "write the header for C and C++ of the provider definitions of the script, without tracing: script.h, or the file of -o"),
    flag('H', "", Nothing, "cpphdrs", "print included headers", "print the headers that cpp reads"),
    flag('i', "probe-id", Text, "", "probe by number", "enable or list the probe with this id"),
    flag('I', "path", Directory, "incdir", "directory of headers", "add a directory for preprocessor headers"),
    flag('l', "", Nothing, "", "list probes", "list probes instead of enabling them"),
    flag('L', "path", Directory, "libdir", "directory of D libraries", "add a directory of D libraries"),
    flag('m', "[prov:]mod", Probes(Field::Module), "", "probes by module", "enable or list probes by module name"),
    flag('n', "[[[prov:]mod:]func:]name", Probes(Field::Name), "", "probes by name", "enable or list probes by name"),
    flag('o', "file", File, "", "append output to file", "append the output to file"),
    flag('p', "pid", Process, "", "trace until pid ends", "trace until the process pid exits; $target is pid"),
    flag('P', "provider", Probes(Field::Provider), "", "probes by provider", "enable or list probes by provider"),
    flag('q', "", Nothing, "quiet", "print only what is traced", "print only what is traced"),
    flag('s', "file", File, "", "program from a file", "enable or list the probes of the D script file"),
    flag('S', "", Nothing, "verbose", "print intermediate code", "print the intermediate code of the programs"),
    flag('U', "name", Text, "undef", "undefine a name for -C", "undefine a preprocessor name"),
    flag('v', "", Nothing, "", "verbose; arguments with -l", "be verbose: stability with programs, arguments with -l"),
    flag('V', "", Nothing, "", "print the version", "print the version"),
    flag('w', "", Nothing, "destructive", "permit destructive actions", "permit destructive actions"),
    flag('x', "opt[=val]", Setting, "", "set an option", "set an option"),
    flag('X', "a|c|s|t", Value, "stdc", "mode of the preprocessor", "conformance of the preprocessor: s is traditional"),
    flag('Z', "", Nothing, "zdefs", "permit unmatched probes", "permit descriptions that match no probe"),
    flag('3', "2", Words(&["2"]), "", "", "32-bit data model (not supported yet)"),
    flag('6', "4", Words(&["4"]), "", "64-bit data (the default)", "64-bit data model (the default)"),
];

/// Options that are known and not supported yet.
pub(crate) const NOT_YET: &str = "3";

/// What build systems pass to `dtrace -h` and `-G` besides, and what means nothing there.
const FOR_BUILDS: [&str; 6] = ["-32", "-fPIC", "-fpic", "-k", "--no-pyparsing", "--types"];

/// A classified argument of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// An option, with its argument where it takes one.
    Flag(char, String),
    /// An operand.
    Operand(String),
    /// A long option, by its row in [`LONG`], with its argument.
    Long(&'static str, String),
    /// `--help`.
    Help,
}

/// An option with a long name.
#[derive(Debug)]
pub(crate) struct Long {
    /// Its name, without the hyphens.
    pub(crate) name: &'static str,
    /// Name of its argument; empty when it takes none.
    pub(crate) arg: &'static str,
    /// What the argument is.
    pub(crate) takes: Takes,
    /// What it does; for the manual page.
    pub(crate) help: &'static str,
}

/// The options with long names.
pub(crate) const LONG: &[Long] = &[
    Long {
        name: "format",
        arg: "format",
        takes: Words(&["text", "json", "csv"]),
        help: "print results as text, json (each an object on a line of its own) or csv (records and aggregations as tables) (-x oformat); \
               NAME=FILE writes them in that format to a file beside what is printed; may be given several times then",
    },
    Long {
        name: "to",
        arg: "file",
        takes: File,
        help: "also write the results to a file, in the format that the ending of its name means; the file is replaced as a whole; \
               may be given several times",
    },
    Long {
        name: "flame",
        arg: "file",
        takes: File,
        help: "write the aggregations with stacks in their keys to a file instead of printing them: a flame graph \
               (.svg, .html), folded stacks (.folded), a profile of pprof (.pb.gz) or of speedscope (.speedscope.json); \
               may be given several times",
    },
    Long {
        name: "flame-diff",
        arg: "before",
        takes: File,
        help: "draw the difference to the folded stacks of the file before, or to the aggregation of that name (@before)",
    },
    Long {
        name: "flame-from",
        arg: "file",
        takes: File,
        help: "trace nothing; write the files of --flame from a file of folded stacks",
    },
    Long {
        name: "heat",
        arg: "file",
        takes: File,
        help: "also write the distributions (quantize(), lquantize(), llquantize()) to a file as a heat map over time, by intervals of \
               a second or of -x every: .svg or .html; may be given several times",
    },
    Long {
        name: "live",
        arg: "",
        takes: Nothing,
        help: "show the aggregations in the terminal while they grow, as tables by intervals of a second or of -x every: sort, filter, \
               pause, choose a key (? lists the keys); they are printed at the end",
    },
    Long {
        name: "system",
        arg: "file",
        takes: File,
        help: "with -e or -l: compile or list for the machine of a record (--record-system), without privilege, and say what would \
               match there",
    },
    Long {
        name: "record-system",
        arg: "file",
        takes: File,
        help: "trace nothing; write a record of this machine to a new file: its kernel's types, symbols, functions, events and \
               facilities, without addresses; with programs only what these ask",
    },
    Long {
        name: "capture",
        arg: "file",
        takes: File,
        help: "capture all firings of the probes of the programs, whatever their clauses say, to a new file (- is the standard \
               output), and print nothing of them: --replay asks programs of them later",
    },
    Long {
        name: "capture-for",
        arg: "script",
        takes: File,
        help: "the script whose firings are captured instead, with all that it reads of them and nothing more; the operands are \
               its own",
    },
    Long {
        name: "replay",
        arg: "file",
        takes: File,
        help: "trace nothing; run the programs on the firings of a capture (- is the standard input), without privilege, on any \
               machine; with -l list its probes and their firings",
    },
    Long {
        name: "capture-info",
        arg: "file",
        takes: File,
        help: "trace nothing; print what a capture is of, how many firings it has, and what is missing in it",
    },
    Long {
        name: "postmortem",
        arg: "core",
        takes: File,
        help: "trace nothing; print the last records and the aggregations of a session with -x postmortem from the core file of \
               a process that was its target",
    },
    Long {
        name: "events",
        arg: "file",
        takes: File,
        help: "trace nothing; print the events of a session from a file (--format events=FILE), or from its socket while it runs \
               (unix:PATH, -x events=unix:PATH), in any format, also to files",
    },
    Long {
        name: "anonymous",
        arg: "",
        takes: Nothing,
        help: "trace what -A has stored, and keep it until -a claims it: what the boot executes",
    },
    Long {
        name: "version",
        arg: "",
        takes: Nothing,
        help: "print what a report of a fault needs: version, commit, kernel, privileges and the facilities of the kernel",
    },
    Long {
        name: "check",
        arg: "",
        takes: Nothing,
        help: "print what works on this system and, of what does not, why and what would make it work. The exit status is 1 if nothing \
               can be traced",
    },
    Long {
        name: "completions",
        arg: "shell",
        takes: Words(&SHELLS),
        help: "print the completions for bash, zsh or fish",
    },
];

/// Classifies the arguments. An error is the message about the first wrong one.
pub(crate) fn parse(words: &[String]) -> Result<Vec<Word>, String> {
    let mut out = Vec::new();
    let mut rest = words.iter();
    let builds = words.iter().any(|w| matches!(&**w, "-h" | "-G" | "-Ch" | "-hC" | "-CG" | "-GC"));
    while let Some(word) = rest.next() {
        if builds && FOR_BUILDS.contains(&&**word) {
            continue;
        }
        if word == "--" {
            out.extend(rest.by_ref().cloned().map(Word::Operand));
            break;
        }
        if word == "--help" {
            out.push(Word::Help);
            continue;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, inline) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (long, None),
            };
            let Some(row) = LONG.iter().find(|row| row.name == name) else {
                return Err(format!("invalid option {word}"));
            };
            let value = match (row.arg, inline) {
                ("", None) => Some(String::new()),
                ("", Some(_)) => return Err(format!("option takes no argument -- '{name}'")),
                (_, inline) => inline.or_else(|| rest.next().cloned()),
            };
            let value = value.ok_or_else(|| format!("option requires an argument -- '{name}'"))?;
            out.push(Word::Long(row.name, value));
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) else {
            out.push(Word::Operand(word.clone()));
            continue;
        };
        for (at, letter) in letters.char_indices() {
            let Some(flag) = TABLE.iter().find(|f| f.letter == letter) else {
                return Err(format!("invalid option -- '{letter}'"));
            };
            if flag.arg.is_empty() {
                out.push(Word::Flag(letter, String::new()));
                continue;
            }
            let inline = &letters[at + letter.len_utf8()..];
            let value = if inline.is_empty() { rest.next().cloned() } else { Some(inline.to_string()) };
            let value = value.ok_or_else(|| format!("option requires an argument -- '{letter}'"))?;
            out.push(Word::Flag(letter, value));
            break;
        }
    }
    Ok(out)
}

/// Words that say the same, without an option.
pub(crate) fn without(words: &[Word], letter: char) -> Vec<String> {
    let (mut out, mut operands) = (Vec::new(), Vec::new());
    for word in words {
        match word {
            Word::Flag(l, _) if *l == letter => {}
            Word::Flag(l, value) => {
                out.push(format!("-{l}"));
                let takes = TABLE.iter().any(|f| f.letter == *l && !f.arg.is_empty());
                out.extend(takes.then(|| value.clone()));
            }
            Word::Operand(text) => operands.push(text.clone()),
            Word::Long(name, value) => {
                let takes = LONG.iter().any(|l| l.name == *name && !l.arg.is_empty());
                out.push(if takes { format!("--{name}={value}") } else { format!("--{name}") });
            }
            Word::Help => out.push("--help".into()),
        }
    }
    out.push("--".into());
    out.extend(operands);
    out
}

/// The usage text: after a wrong word, with no words at all, and for `--help`. It fits a screen of
/// 24 lines; the manual page says the rest.
pub(crate) fn usage() -> String {
    let mut text = String::from(USAGE);
    let shown: Vec<String> = TABLE.iter().filter(|f| !NOT_YET.contains(f.letter)).map(cell).collect();
    let rows = shown.len().div_ceil(2);
    for (at, left) in shown.iter().take(rows).enumerate() {
        let right = shown.get(at + rows).map_or("", String::as_str);
        text.push_str(format!("{left:<39} {right}").trim_end());
        text.push('\n');
    }
    text.push_str("Not supported yet: -32. More: --check, --version, man dtrace\n");
    text
}

const USAGE: &str = "\
Usage: dtrace [OPTION]... -n 'PROBE [/PREDICATE/] [{ACTIONS}]' [OPERAND]...
       dtrace [OPTION]... -s FILE [OPERAND]...
       dtrace -l [-v] [-n PROBE]         (--format json: results as JSON)
       dtrace --flame FILE.svg ...       (a flame graph; .html .folded .pb.gz)
A PROBE is [[[provider:]module:]function:]name, each field a shell pattern.

";

/// An option in the usage text.
fn cell(f: &Flag) -> String {
    let last = |text: &str| text.rsplit([':', ']']).find(|t| !t.is_empty()).unwrap_or_default().to_string();
    let (name, arg) = match f.letter {
        '3' | '6' => (format!("{}{}", f.letter, f.arg), String::new()),
        // Of `[[prov:]mod:]func` the last, of `name[=value]` the first.
        letter if f.arg.starts_with('[') => (letter.into(), last(f.arg)),
        letter => (letter.into(), f.arg.split('[').next().unwrap_or_default().into()),
    };
    format!("-{:<11} {}", format!("{name} {arg}"), f.brief)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn options_operands_and_joined_letters() {
        let got = parse(&words("-qn BEGIN one -b4m -x strsize=8 -- -n")).unwrap();
        assert_eq!(
            got,
            [
                Word::Flag('q', String::new()),
                Word::Flag('n', "BEGIN".into()),
                Word::Operand("one".into()),
                Word::Flag('b', "4m".into()),
                Word::Flag('x', "strsize=8".into()),
                Word::Operand("-n".into()),
            ]
        );
    }

    #[test]
    fn words_without_an_option_say_the_same() {
        let all = parse(&words("-Aqn BEGIN one -b4m --format=json --live -x strsize=8 -- -n")).unwrap();
        let left = without(&all, 'A');
        assert_eq!(left, words("-q -n BEGIN -b 4m --format=json --live -x strsize=8 -- one -n"));
        let (again, is_left) = (parse(&left).unwrap(), |w: &Word| *w != Word::Flag('A', String::new()));
        let (operands, flags): (Vec<_>, Vec<_>) =
            all.into_iter().filter(is_left).partition(|w| matches!(w, Word::Operand(_)));
        assert_eq!(again, [flags, operands].concat());
    }

    #[test]
    fn wrong_words_are_named() {
        assert_eq!(parse(&words("-y")).unwrap_err(), "invalid option -- 'y'");
        assert_eq!(parse(&words("-n")).unwrap_err(), "option requires an argument -- 'n'");
        assert_eq!(parse(&words("--check=x")).unwrap_err(), "option takes no argument -- 'check'");
        assert_eq!(parse(&words("--flame")).unwrap_err(), "option requires an argument -- 'flame'");
        assert_eq!(parse(&words("--check x")).unwrap().len(), 2);
    }

    #[test]
    fn what_has_an_argument_says_what_it_is() {
        let flags = TABLE.iter().map(|f| (f.arg, f.takes));
        for (arg, takes) in flags.chain(LONG.iter().map(|l| (l.arg, l.takes))) {
            assert_eq!(arg.is_empty(), takes == Nothing, "{arg}");
        }
        for f in TABLE.iter().filter(|f| f.takes == Value) {
            assert!(dtrace::options::find(f.option).is_some(), "-{}", f.letter);
        }
        let formats = LONG.iter().find(|l| l.name == "format").map(|l| l.takes);
        let row = dtrace::options::find("oformat").unwrap();
        assert!(matches!((formats, row.shape), (Some(Words(a)), dtrace::options::Shape::Word(b)) if a == b));
    }

    #[test]
    fn every_short_for_names_an_option() {
        for f in TABLE.iter().filter(|f| !f.option.is_empty()) {
            assert!(dtrace::options::find(f.option).is_some(), "{}", f.option);
        }
    }

    #[test]
    fn help_fits_a_screen_and_names_every_option() {
        let text = usage();
        assert!(text.lines().count() <= 24, "{} lines:\n{text}", text.lines().count());
        assert!(text.lines().all(|l| l.len() <= 80), "{text}");
        for f in TABLE {
            assert!(text.contains(&format!("-{}", f.letter)), "-{}", f.letter);
            assert_eq!(f.brief.is_empty(), NOT_YET.contains(f.letter), "-{}", f.letter);
        }
    }
}
