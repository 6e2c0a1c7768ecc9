//! The manual page, `docs/dtrace.1`, in roff.
//!
//! Everything that has a table is printed from it: options, providers and their arguments, words of
//! D, formats, drops, exit statuses. The files under `manual/` have the text between. The page is
//! the same on every machine.

use dtrace::options::{Row, Shape};
use dtrace::reference::{
    DropKind, FUNCTIONS, FaultKind, FunctionKind, FunctionRow, LIBRARY_WORDS, MACROS, MANUALS, MEANINGS,
    Manual, VARIABLES, VariableKind, is_destructive,
};

use crate::{flags, status};

/// The whole page.
pub(crate) fn page() -> String {
    let mut page = include_str!("manual/head.roff").to_string();
    flag_list(&mut page);
    files(&mut page);
    providers(&mut page);
    page.push_str(include_str!("manual/language.roff"));
    variables(&mut page);
    macros(&mut page);
    functions(&mut page);
    formats(&mut page);
    settings(&mut page);
    page.push_str(include_str!("manual/signals.roff"));
    diagnostics(&mut page);
    statuses(&mut page);
    page.push_str(include_str!("manual/tail.roff"));
    folded(&page)
}

/// Lines of text within 80 columns, as roff sources are written; examples, requests and tags as
/// they are.
fn folded(page: &str) -> String {
    let mut out = String::new();
    let (mut as_is, mut is_tag) = (false, false);
    for line in page.lines() {
        match line {
            ".nf" | ".EX" => as_is = true,
            ".fi" | ".EE" => as_is = false,
            _ => {}
        }
        let whole = as_is || is_tag || line.starts_with('.');
        is_tag = line == ".TP";
        let mut column = 0;
        for word in line.split(' ') {
            if column > 0 && (whole || column + 1 + word.len() <= 80) {
                out.push(' ');
                column += 1;
            } else if column > 0 {
                // A line that begins with a dot would be a request.
                out.push_str(if word.starts_with('.') { "\n\\&" } else { "\n" });
                column = 0;
            }
            out.push_str(word);
            column += word.len();
        }
        out.push('\n');
    }
    out
}

fn section(page: &mut String, title: &str, text: &str) {
    page.push_str(&format!(".SH {title}\n"));
    if !text.is_empty() {
        page.push_str(&format!("{}\n", roff(text)));
    }
}

/// An entry of a list: `tag` in roff, `text` not.
fn entry(page: &mut String, tag: &str, text: &str) {
    page.push_str(&format!(".TP\n{tag}\n{}\n", sentence(text)));
}

/// A sentence: special characters escaped, a capital where it begins with a word, a full stop.
fn sentence(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_word = first.bytes().all(|b| b.is_ascii_lowercase() || b",-:;".contains(&b));
    let mut letters = text.chars();
    let capital = letters.next().filter(|_| is_word && !NAMES.contains(&first));
    let text = match capital {
        Some(c) => format!("{}{}", c.to_ascii_uppercase(), letters.as_str()),
        None => text.to_string(),
    };
    format!("{}.", roff(&text))
}

/// Names that keep their small letter at the beginning of a sentence.
const NAMES: [&str; 2] = ["s", "dtrace"];

/// Text whose characters groff would change or take for commands.
fn roff(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '"' => out.push_str("\\(dq"),
            '~' => out.push_str("\\(ti"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            _ => out.push(c),
        }
    }
    // A line that begins so would be a request.
    if out.starts_with('.') { format!("\\&{out}") } else { out }
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", roff(text))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", roff(text))
}

fn flag_list(page: &mut String) {
    section(page, "OPTIONS", "");
    page.push_str("Options and operands may be mixed; what follows \\fB\\-\\-\\fR is an operand.\n");
    for f in flags::TABLE {
        let (name, arg) = match f.letter {
            '3' | '6' => (format!("-{}{}", f.letter, f.arg), String::new()),
            _ if f.arg.is_empty() => (format!("-{}", f.letter), String::new()),
            _ => (format!("-{}", f.letter), format!(" {}", italic(f.arg))),
        };
        let short_for = match f.option {
            "" => String::new(),
            option => format!(" (-x {option})"),
        };
        entry(page, &format!("{}{arg}", bold(&name)), &format!("{}{short_for}", f.help));
    }
    for long in flags::LONG {
        let arg = if long.arg.is_empty() { String::new() } else { format!(" {}", italic(long.arg)) };
        entry(page, &format!("{}{arg}", bold(&format!("--{}", long.name))), long.help);
    }
    entry(page, &bold("--help"), "print a summary of the options");
}

fn files(page: &mut String) {
    let text = "With --to FILE the ending of the name says the format, with --format NAME=FILE the name of the format. A file \
                is replaced as a whole: a picture from time to time, a stream at the end. A pipe or a device gets a stream as \
                it comes. What is printed does not change, except that stacks that are drawn are not printed.";
    section(page, "FILES OF RESULTS", text);
    for format in dtrace::formats::TABLE {
        let endings: Vec<String> = format.endings.iter().map(|e| roff(&format!("*{e}"))).collect();
        entry(page, &format!("{} ({})", bold(format.name), endings.join(", ")), format.about);
    }
}

fn providers(page: &mut String) {
    let text = "dtrace -l lists the probes of this system, dtrace -lv their arguments. A RATE is a number with hz, ns, \
                us, ms, s, m, h or d; without a unit it is hertz.";
    section(page, "PROVIDERS", text);
    for Manual { name, help, probes, args } in MANUALS {
        page.push_str(&format!(".SS {name}\n{}\n", sentence(help)));
        for (form, help) in probes.iter() {
            entry(page, &bold(form), help);
        }
        for (arg, help) in args.iter() {
            entry(page, &italic(arg), help);
        }
    }
}

fn variables(page: &mut String) {
    section(page, "BUILT-IN VARIABLES", "");
    let mut rows: Vec<(&str, &str, &str)> = VARIABLES
        .iter()
        .filter(|r| !matches!(r.kind, VariableKind::NotOnLinux(_)) && !r.name.starts_with('_'))
        // One entry stands for the ten.
        .filter(|r| !(r.name.starts_with("arg") && r.name[3..].parse::<u8>().is_ok()))
        .map(|r| match r.name {
            "args" => ("args[n]", "", r.help),
            "uregs" => ("uregs[n]", r.ty, r.help),
            name => (name, r.ty, r.help),
        })
        .chain(LIBRARY_WORDS.iter().map(|w| (w.name, w.ty, w.help)))
        .chain([(
            "arg0 ... arg9",
            "int64_t",
            "the arguments of the probe as 64-bit integers; 0 where it has none",
        )])
        .collect();
    rows.sort_by_key(|(name, ..)| name.to_ascii_lowercase());
    for (name, ty, help) in rows {
        let ty = if ty.is_empty() { String::new() } else { format!("{} ", italic(ty)) };
        entry(page, &format!("{ty}{}", bold(name)), help);
    }
    let foreign = VARIABLES.iter().filter_map(|r| match r.kind {
        VariableKind::NotOnLinux(why) => Some((r.name, why)),
        _ => None,
    });
    refused(page, foreign);
}

/// What D has elsewhere and Linux cannot give.
fn refused<'a>(page: &mut String, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    let all: Vec<String> = rows.map(|(name, why)| format!("{} ({})", bold(name), roff(why))).collect();
    page.push_str(&format!(".PP\nOther systems have these, which are refused:\n{}.\n", all.join(",\n")));
}

fn macros(page: &mut String) {
    let text = "A macro variable is replaced by its value when the program is compiled.";
    section(page, "MACRO VARIABLES", text);
    entry(page, &bold("$1, $2, ..."), "the operands of the command line");
    entry(page, &bold("$$1, $$2, ..."), "the operands as strings");
    entry(page, &bold("$0"), "dtrace");
    for (name, help) in MACROS {
        entry(page, &bold(&format!("${name}")), help);
    }
}

fn functions(page: &mut String) {
    let is_action = |k| matches!(k, FunctionKind::Action(_));
    let is_subroutine = |k| matches!(k, FunctionKind::Subroutine(_));
    let text = "Those marked with -w change what they look at, and need that option.";
    section(page, "ACTIONS", text);
    list(page, is_action);
    let never = FUNCTIONS.iter().filter_map(|r| match r.kind {
        FunctionKind::ActionNotOnLinux(why) => Some((r.name, why)),
        _ => None,
    });
    refused(page, never);
    section(page, "SUBROUTINES", "An address that cannot be read is a fault.");
    list(page, is_subroutine);
    let never = FUNCTIONS.iter().filter_map(|r| match r.kind {
        FunctionKind::SubroutineNotOnLinux(why) => Some((r.name, why)),
        _ => None,
    });
    refused(page, never);
    let text = "Values are signed 64-bit integers. A weight is added instead of 1.";
    section(page, "AGGREGATING FUNCTIONS", text);
    list(page, |k| matches!(k, FunctionKind::Aggregating(_)));
}

/// The functions of some kinds, by name.
fn list(page: &mut String, wanted: impl Fn(FunctionKind) -> bool) {
    let mut rows: Vec<&FunctionRow> =
        FUNCTIONS.iter().filter(|r| wanted(r.kind) && !r.name.starts_with('_')).collect();
    rows.sort_by_key(|r| r.name);
    for row in rows {
        // The libraries declare the types of theirs.
        let gives =
            matches!(row.kind, FunctionKind::Subroutine(_)) && row.ret != "void" && row.params != "...";
        let ret = if gives { format!("{} ", italic(row.ret)) } else { String::new() };
        let mut help = row.help.to_string();
        if is_destructive(row.name) {
            help.push_str(" (-w)");
        }
        let usage = if row.usage.is_empty() { String::new() } else { italic(row.usage) };
        entry(page, &format!("{ret}{}({usage})", bold(row.name)), &help);
    }
}

fn formats(page: &mut String) {
    let text = "Conversions of printf() and printa(). The flags are those of C: -, +, blank, # and 0; ? sets the width \
                of a pointer. A width or a precision may be *. In printa() %@ with a conversion is the value of the \
                next aggregation.";
    section(page, "FORMATS", text);
    for (names, takes, shows) in MEANINGS {
        let names: Vec<String> = names.iter().map(|n| format!("%{n}")).collect();
        entry(page, &format!("{} (\\fI{}\\fR)", bold(&names.join(" ")), roff(takes)), shows);
    }
}

/// What stands after an option's name: `=size`, `=switch|fill|ring`, nothing for a flag.
fn shape(row: &Row) -> String {
    let word = match row.shape {
        Shape::Flag => return String::new(),
        Shape::Word(words) => return format!("={}", words.join("|")),
        Shape::Size => "size",
        Shape::Rate => "rate",
        Shape::Int => "number",
        Shape::Text | Shape::List => "text",
    };
    format!("={}", italic(word))
}

fn settings(page: &mut String) {
    page.push_str(include_str!("manual/settings.roff"));
    for row in dtrace::options::TABLE {
        entry(page, &format!("{}{}", bold(row.name), shape(row)), row.help);
        if !row.default.is_empty() {
            page.push_str(&format!("Default: {}.\n", roff(row.default)));
        }
    }
    let absent: Vec<String> = dtrace::options::ABSENT.iter().map(|a| bold(a.name)).collect();
    let text =
        "These options of other systems do not exist. The message of the error says why, and what to use:";
    page.push_str(&format!(".PP\n{text}\n{}.\n", absent.join(",\n")));
}

fn diagnostics(page: &mut String) {
    let text = "What is lost is counted and reported on standard error.";
    section(page, "DIAGNOSTICS", text);
    page.push_str(".SS Drops\n");
    for kind in DropKind::ALL {
        let Some(words) = kind.words() else { continue };
        let cpu = if words.per_cpu { " on CPU C" } else { "" };
        entry(page, &bold(&format!("N {}{cpu}", words.many)), kind.help());
    }
    let text = "the kernel did not run the program of a probe, as another program was running on the CPU; N is an \
                upper bound";
    entry(page, &bold("up to N firings of P suppressed by the kernel"), text);
    let text = "a clock was due and the kernel ran it late or not at all, as on an idle CPU";
    entry(page, &bold("N firings of P on CPU C suppressed by the kernel"), text);
    let text = "results are those of a slowed system; reported within seconds, at most once a minute";
    entry(page, &bold("the probes of this session take N% of the CPUs' time or more"), text);
    let text = "the system does not answer, and tracing was stopped: see deadmaninterval and the settings after it; with \
                -w it continues";
    entry(page, &bold("processing aborted: Abort due to systemic unresponsiveness"), text);
    let text = "ulimit -v allows no more: tracing has ended, and the aggregations were printed";
    entry(page, &bold("processing aborted: no more memory"), text);
    let text = "A fault ends the clause and discards what the clause has recorded. The probe ERROR fires, with the \
                number of the fault as arg4.";
    page.push_str(&format!(".SS Faults\n{}\n", roff(text)));
    for kind in FaultKind::ALL {
        page.push_str(&format!(".TP\n\\fB{}\\fR\n{}.\n", kind as u16, capital(kind.text(0))));
    }
}

/// A fault's text without the address or value of one fault.
fn capital(text: String) -> String {
    let text = text.split(" (").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    roff(&first.into_iter().chain(letters).collect::<String>())
}

fn statuses(page: &mut String) {
    section(page, "EXIT STATUS", "");
    for row in status::TABLE {
        entry(page, &bold(&row.code.to_string()), row.help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_manual_page_is_what_the_program_prints() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dtrace.1");
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        let how = "regenerate it: cargo dtrace --manual-page >docs/dtrace.1";
        assert!(checked_in == page(), "docs/dtrace.1 is not what the tables say; {how}");
    }

    #[test]
    fn every_word_of_the_tables_is_in_the_manual_page() {
        let page = page();
        let names = VARIABLES.iter().map(|r| r.name).chain(FUNCTIONS.iter().map(|r| r.name));
        let names = names.filter(|n| !n.starts_with('_')).filter(|n| !n.starts_with("arg") || *n == "args");
        for name in names.chain(dtrace::options::TABLE.iter().map(|r| r.name)) {
            assert!(page.contains(&format!("\\fB{name}")), "{name}");
        }
        for manual in MANUALS {
            assert!(page.contains(&format!(".SS {}\n", manual.name)), "{}", manual.name);
        }
    }

    #[test]
    fn special_characters_of_roff_are_escaped() {
        assert_eq!(roff(".x-\\'`^~\""), "\\&.x\\-\\e\\(aq\\(ga\\(ha\\(ti\\(dq");
        assert_eq!(sentence("run a command"), "Run a command.");
        assert_eq!(sentence("dtrace may wait"), "dtrace may wait.");
        assert!(page().lines().all(|l| !l.starts_with('\'')));
    }
}
