//! The table of command-line options, and the parser that reads it.
//!
//! One row an option; `--help`, the manual page (`docs/dtrace.1`) and the parser use the table. Options and operands may be interleaved,
//! as with getopt restarted after each operand. The parser only sorts words into [`Word`]s; what they mean together is
//! for the command to say.

/// One option.
#[derive(Debug)]
pub(crate) struct Flag {
    /// Its letter (`3` and `6` stand for `-32` and `-64`).
    pub(crate) letter: char,
    /// Name of its argument; empty when it takes none.
    pub(crate) arg: &'static str,
    /// The `-x` option it is short for; empty when it is none.
    pub(crate) option: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

const fn flag(letter: char, arg: &'static str, option: &'static str, help: &'static str) -> Flag {
    Flag { letter, arg, option, help }
}

/// Every option, in the order of the usage text.
pub(crate) const TABLE: &[Flag] = &[
    flag('a', "", "", "claim anonymous tracing (not supported yet)"),
    flag('A', "", "", "write an anonymous enabling (not supported yet)"),
    flag('b', "bufsize", "bufsize", "set the size of the principal buffer of each CPU"),
    flag('c', "cmd", "", "run cmd, trace until it exits; $target is its process id"),
    flag('C', "", "cpp", "run the C preprocessor on script files"),
    flag('d', "", "", "print the programs as they are after if and else have divided them"),
    flag('D', "name[=value]", "define", "define a preprocessor name"),
    flag('e', "", "", "exit after compiling, before enabling"),
    flag('f', "[[prov:]mod:]func", "", "enable or list probes by function name"),
    flag('F', "", "flowindent", "indent the output by function entry and return"),
    flag('G', "", "", "link USDT probes into objects (not supported yet)"),
    flag('h', "", "", "generate a header from provider definitions (not supported yet)"),
    flag('H', "", "cpphdrs", "print the headers that cpp reads"),
    flag('i', "probe-id", "", "enable or list the probe with this id"),
    flag('I', "path", "incdir", "add a directory for preprocessor headers"),
    flag('l', "", "", "list probes instead of enabling them"),
    flag('L', "path", "libdir", "add a directory of D libraries"),
    flag('m', "[prov:]mod", "", "enable or list probes by module name"),
    flag('n', "[[[prov:]mod:]func:]name", "", "enable or list probes by name"),
    flag('o', "file", "", "append the output to file"),
    flag('p', "pid", "", "trace until the process pid exits; $target is pid"),
    flag('P', "provider", "", "enable or list probes by provider"),
    flag('q', "", "quiet", "print only what is traced"),
    flag('s', "file", "", "enable or list probes by the D script file"),
    flag('S', "", "verbose", "print the intermediate code of the programs"),
    flag('U', "name", "undef", "undefine a preprocessor name"),
    flag('v', "", "", "be verbose: stability with programs, arguments with -l"),
    flag('V', "", "", "print the version"),
    flag('w', "", "destructive", "permit destructive actions"),
    flag('x', "opt[=val]", "", "set an option"),
    flag('X', "a|c|s|t", "stdc", "conformance of the preprocessor"),
    flag('Z', "", "zdefs", "permit descriptions that match no probe"),
    flag('3', "2", "", "32-bit data model (not supported yet)"),
    flag('6', "4", "", "64-bit data model (the default)"),
];

/// Options that are known and not supported yet.
pub(crate) const NOT_YET: &str = "aAGh3";

/// One word of the command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// An option, with its argument where it takes one.
    Flag(char, String),
    /// An operand.
    Operand(String),
    /// `--help`.
    Help,
}

/// Sorts the words; the message of the first that is wrong.
pub(crate) fn parse(words: &[String]) -> Result<Vec<Word>, String> {
    let mut out = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            out.extend(rest.by_ref().cloned().map(Word::Operand));
            break;
        }
        if word == "--help" {
            out.push(Word::Help);
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

/// The usage text, as after a wrong word or with no words at all.
pub(crate) fn usage() -> String {
    let mut letters = String::new();
    let mut args = String::new();
    for f in TABLE.iter().filter(|f| !f.letter.is_ascii_digit()) {
        if f.arg.is_empty() {
            letters.push(f.letter);
        } else {
            args.push_str(&format!(" [-{} {}]", f.letter, f.arg));
        }
    }
    let mut text = format!("Usage: dtrace [-32|-64] [-{letters}]{args}");
    text = wrap(&text, 100);
    text.push_str("\n\n\tpredicate -> '/' D-expression '/'\n\t   action -> '{' D-statements '}'\n");
    for f in TABLE {
        let name = match f.letter {
            '3' | '6' => format!("-{}{}", f.letter, f.arg),
            _ => format!("-{}", f.letter),
        };
        text.push_str(&format!("\n\t{name:<4} {}", f.help));
    }
    text.push('\n');
    text
}

/// A sentence for the manual page: roff's special characters escaped, a capital, a full stop.
fn sentence(help: &str) -> String {
    let mut letters = help.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase()).into_iter();
    format!("{}.", roff(&first.chain(letters).collect::<String>()))
}

fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq").replace('~', "\\(ti");
    // A line that begins so would be a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// What stands after an option's name: `=size`, `=switch|fill|ring`, nothing for a flag.
fn shape(row: &dtrace::options::Row) -> String {
    use dtrace::options::Shape;
    let word = match row.shape {
        Shape::Flag => return String::new(),
        Shape::Word(words) => return format!("=\\fR{}", words.join("|")),
        Shape::Size => "size",
        Shape::Rate => "rate",
        Shape::Int => "number",
        Shape::Text | Shape::List => "text",
    };
    format!("=\\fR\\fI{word}\\fR")
}

/// The manual page, in roff, from the tables.
pub(crate) fn manual_page() -> String {
    let mut page = include_str!("manual.head").to_string();
    page.push_str(
        ".SH OPTIONS\nOptions and operands may be mixed; what follows \\fB\\-\\-\\fR is an operand.\n",
    );
    for f in TABLE {
        let (name, arg) = match f.letter {
            '3' | '6' => (format!("{}{}", f.letter, f.arg), String::new()),
            _ if f.arg.is_empty() => (f.letter.to_string(), String::new()),
            _ => (f.letter.to_string(), format!(" \\fI{}\\fR", roff(f.arg))),
        };
        page.push_str(&format!(".TP\n\\fB\\-{name}\\fR{arg}\n{}\n", sentence(f.help)));
    }
    page.push_str(include_str!("manual.settings"));
    for row in dtrace::options::TABLE {
        page.push_str(&format!(".TP\n\\fB{}\\fR{}\n{}\n", row.name, shape(row), sentence(row.help)));
        if !row.default.is_empty() {
            page.push_str(&format!("Default: {}.\n", roff(row.default)));
        }
        if !row.works {
            page.push_str("Accepted, without effect yet.\n");
        }
    }
    page.push_str(include_str!("manual.tail"));
    page
}

fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for piece in text.split_inclusive("] ") {
        if column + piece.len() > width {
            out.push_str("\n\t");
            column = 8;
        }
        out.push_str(piece);
        column += piece.len();
    }
    out
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
    fn wrong_words_are_named() {
        assert_eq!(parse(&words("-y")).unwrap_err(), "invalid option -- 'y'");
        assert_eq!(parse(&words("-n")).unwrap_err(), "option requires an argument -- 'n'");
    }

    #[test]
    fn every_short_for_names_an_option() {
        for f in TABLE.iter().filter(|f| !f.option.is_empty()) {
            assert!(dtrace::options::find(f.option).is_some(), "{}", f.option);
        }
        assert!(usage().lines().all(|l| l.len() < 120), "{}", usage());
    }

    /// How the guide's table of options shows one.
    fn guide_row(row: &dtrace::options::Row) -> String {
        use dtrace::options::Shape;
        let value = match row.shape {
            Shape::Flag => "".into(),
            Shape::Size => "size".into(),
            Shape::Rate => "rate".into(),
            Shape::Int => "number".into(),
            Shape::Text => "text".into(),
            Shape::List => "text, more than once".into(),
            Shape::Word(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" "),
        };
        let default = if row.default.is_empty() { String::new() } else { format!("`{}`", row.default) };
        format!("| `{}` | {value} | {default} | {} |\n", row.name, row.help)
    }

    #[test]
    fn the_guide_has_the_options_that_work() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md");
        let guide = std::fs::read_to_string(path).unwrap_or_default();
        let rows: String = dtrace::options::TABLE.iter().filter(|r| r.works).map(guide_row).collect();
        assert!(guide.contains(&rows), "the table of options in docs/guide.md should be:\n{rows}");
    }

    #[test]
    fn the_manual_page_is_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dtrace.1");
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            checked_in == manual_page(),
            "docs/dtrace.1 is not what the tables say; make it anew: cargo dtrace --manual-page >docs/dtrace.1"
        );
    }
}
