//! The table of `-x` options, and the values a session has for them.
//!
//! One row an option: its name, when it may be set, the shape of its value, its default, whether it has an effect yet.
//! The command line, `#pragma D option`, the manual page and the completions read this table and nothing else knows an
//! option's name; code asks [`Options`] by it.

use std::collections::BTreeMap;
use std::fmt;

/// When an option may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before compilation.
    Compile,
    /// Before tracing starts.
    Run,
    /// At any time.
    Dynamic,
}

/// The shape of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Present is set; `yes no enable disable true false on off set unset`.
    Flag,
    /// Bytes, with `k m g t`.
    Size,
    /// An interval, with `ns us ms s m h d hz`; kept in nanoseconds.
    Rate,
    /// An integer.
    Int,
    /// Any text.
    Text,
    /// Any text, and each use adds to the ones before.
    List,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One option.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// When it may be set.
    pub when: When,
    /// Its value.
    pub shape: Shape,
    /// Its default, as a user would write it; empty for "unset".
    pub default: &'static str,
    /// False where it is accepted and does nothing yet; the command says so when it is set.
    pub works: bool,
    /// What it does, one line.
    pub help: &'static str,
}

const fn row(
    name: &'static str,
    when: When,
    shape: Shape,
    default: &'static str,
    works: bool,
    help: &'static str,
) -> Row {
    Row { name, when, shape, default, works, help }
}

use Shape::{Flag, Int, List, Rate, Size, Text, Word};
use When::{Compile, Dynamic, Run};

/// Every option, by name.
pub const TABLE: &[Row] = &[
    row("aggpercpu", Compile, Flag, "", false, "keep and print the values of each CPU"),
    row("agghist", Dynamic, Flag, "", true, "draw count() and sum() as bars"),
    row("aggpack", Dynamic, Flag, "", true, "print a distribution in one line"),
    row("aggrate", Dynamic, Rate, "1s", true, "how often aggregations leave the kernel"),
    row("aggsize", Run, Size, "4m", true, "room for aggregations, each CPU"),
    row("aggsortkey", Dynamic, Flag, "", true, "sort by key first, then by value"),
    row("aggsortkeypos", Dynamic, Int, "0", true, "first key column to sort by"),
    row("aggsortpos", Dynamic, Int, "0", true, "which of several aggregations to sort by"),
    row("aggsortrev", Dynamic, Flag, "", true, "reverse the order"),
    row("aggzoom", Dynamic, Flag, "", true, "scale bars to the tallest"),
    row("amin", Compile, Text, "", false, "least stability a program may have"),
    row("argref", Compile, Flag, "", true, "operands need not be referenced"),
    row(
        "bpflog",
        Run,
        Flag,
        "",
        true,
        "on a verifier refusal, write a report with the D source and the whole log",
    ),
    row(
        "bufpolicy",
        Run,
        Word(&["switch", "fill", "ring"]),
        "switch",
        true,
        "what a full buffer does (switch only)",
    ),
    row("bufresize", Run, Word(&["auto", "manual"]), "auto", true, "halve buffers until they fit, or fail"),
    row("bufsize", Run, Size, "4m", true, "principal buffer, each CPU"),
    row("cleanrate", Run, Rate, "101hz", false, "how often freed dynamic variables are cleaned"),
    row("core", Compile, Flag, "", false, "dtrace may dump core"),
    row("cpp", Compile, Flag, "", true, "run scripts through the C preprocessor (-C)"),
    row("cpphdrs", Compile, Flag, "", false, "print the headers that cpp reads (-H)"),
    row("cpppath", Compile, Text, "cpp", true, "the preprocessor"),
    row("cpu", Run, Int, "", true, "trace this CPU only"),
    row("ctypes", Compile, Text, "", false, "write the C types of the programs to a file"),
    row("debug", Compile, Flag, "", false, "messages of the library"),
    row("defaultargs", Compile, Flag, "", true, "missing operands are 0 or \"\""),
    row("define", Compile, List, "", true, "define a preprocessor name (-D)"),
    row("destructive", Run, Flag, "", true, "allow destructive actions (-w)"),
    row("droptags", Compile, Flag, "", true, "put a tag before each drop message"),
    row("dtypes", Compile, Text, "", false, "write the D types of the programs to a file"),
    row("dynvarsize", Run, Size, "1m", true, "room for associative arrays and thread-local arrays"),
    row("empty", Compile, Flag, "", true, "a program may be empty"),
    row("encoding", Compile, Word(&["ascii", "utf8"]), "ascii", true, "characters of distributions"),
    row("errtags", Compile, Flag, "", true, "put its tag before each error message"),
    row(
        "evaltime",
        Compile,
        Word(&["exec", "preinit", "postinit", "main"]),
        "exec",
        true,
        "where a -c process waits (exec only)",
    ),
    row("flowindent", Dynamic, Flag, "", true, "indent by function entry and return (-F)"),
    row("grabanon", Run, Flag, "", false, "claim anonymous tracing"),
    row("incdir", Compile, List, "", true, "a directory of preprocessor headers (-I)"),
    row("iregs", Compile, Int, "8", false, "registers of the D machine"),
    row("jstackframes", Run, Int, "50", false, "frames of jstack()"),
    row("jstackstrsize", Run, Size, "512", false, "string room of jstack()"),
    row("late", Compile, Word(&["dynamic", "static"]), "dynamic", false, "when translators are resolved"),
    row("lazyload", Compile, Flag, "", false, "load USDT definitions lazily"),
    row("ldpath", Compile, Text, "ld", false, "the linker of -G"),
    row("libdir", Compile, List, "", false, "a directory of D libraries (-L)"),
    row(
        "linkmode",
        Compile,
        Word(&["kernel", "primary", "dynamic", "static"]),
        "kernel",
        false,
        "how kernel symbols are linked",
    ),
    row("linktype", Compile, Word(&["elf", "dof"]), "elf", false, "what -G writes"),
    row("nolibs", Compile, Flag, "", true, "no D libraries"),
    row("nspec", Run, Int, "1", false, "speculations at a time"),
    row("pgmax", Compile, Int, "8", false, "processes kept open"),
    row("pspec", Compile, Flag, "", true, "text that could be a declaration is a probe"),
    row("quiet", Dynamic, Flag, "", true, "print only what is traced (-q)"),
    row("quietresize", Dynamic, Flag, "", true, "do not say when a buffer was made smaller"),
    row("rawbytes", Dynamic, Flag, "", true, "print bytes as a dump, never as text"),
    row("setenv", Compile, List, "", false, "set an environment variable of the -c process"),
    row("specsize", Run, Size, "32k", false, "room for a speculation, each CPU"),
    row("stackframes", Run, Int, "20", true, "frames of stack()"),
    row("stackindent", Dynamic, Int, "14", true, "columns before a frame"),
    row("statusrate", Run, Rate, "1s", true, "how often drops and the end are looked for"),
    row("stdc", Compile, Word(&["a", "c", "s", "t"]), "a", false, "conformance of the preprocessor (-X)"),
    row("strip", Compile, Flag, "", false, "strip what -G writes"),
    row("strsize", Run, Size, "256", true, "longest string with its NUL"),
    row("switchrate", Dynamic, Rate, "1s", true, "how often records leave the kernel"),
    row("syslibdir", Compile, Text, "", false, "the directory of the system's D libraries"),
    row("temporal", Run, Flag, "yes", true, "merge the records of all CPUs by time (always done)"),
    row("tree", Compile, Int, "0", false, "dump the tree of a program"),
    row("tregs", Compile, Int, "8", false, "tuple registers of the D machine"),
    row("undef", Compile, List, "", true, "undefine a preprocessor name (-U)"),
    row("unsetenv", Compile, List, "", false, "unset an environment variable of the -c process"),
    row("ustackframes", Run, Int, "20", true, "frames of ustack()"),
    row("verbose", Compile, Flag, "", true, "print the intermediate form (-S)"),
    row("version", Compile, Text, "", false, "D version a program is written for"),
    row("zdefs", Compile, Flag, "", true, "descriptions may match no probe (-Z)"),
];

/// Why an option could not be set; the text is DTrace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// No such option.
    Name,
    /// No such value.
    Value,
    /// Not while tracing.
    Active,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OptionError::Name => "Invalid option name",
            OptionError::Value => "Invalid value for specified option",
            OptionError::Active => "Operation illegal when tracing is active",
        })
    }
}

impl std::error::Error for OptionError {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Texts(Vec<String>),
    Unset,
}

/// The option values of a session.
#[derive(Clone, Debug, Default)]
pub struct Options {
    set: BTreeMap<&'static str, Value>,
}

/// The row of an option.
pub fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|r| r.name == name)
}

impl Options {
    /// Sets an option; `value` as the user wrote it. Gives its row, so that the caller can say that it has no effect yet.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<&'static Row, OptionError> {
        let row = find(name).ok_or(OptionError::Name)?;
        let parsed = parse(row.shape, value).ok_or(OptionError::Value)?;
        match (row.shape, self.set.get_mut(row.name), parsed) {
            (List, Some(Value::Texts(old)), Value::Texts(new)) => old.extend(new),
            (_, _, parsed) => {
                self.set.insert(row.name, parsed);
            }
        }
        Ok(row)
    }

    /// True where the user has set it.
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    fn value(&self, name: &str) -> Value {
        if let Some(v) = self.set.get(name) {
            return v.clone();
        }
        match find(name) {
            Some(row) if !row.default.is_empty() => {
                parse(row.shape, Some(row.default)).unwrap_or(Value::Unset)
            }
            _ => Value::Unset,
        }
    }

    /// A flag.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Number(n) if n != 0)
    }

    /// A size in bytes, an interval in nanoseconds, or an integer; 0 when it is unset and has no default.
    pub fn number(&self, name: &str) -> u64 {
        self.maybe_number(name).unwrap_or(0)
    }

    /// As [`Options::number`], `None` when it is unset and has no default.
    pub fn maybe_number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Value::Number(n) => Some(n),
            _ => None,
        }
    }

    /// A text or word; empty when unset.
    pub fn text(&self, name: &str) -> String {
        self.texts(name).pop().unwrap_or_default()
    }

    /// All texts of a list.
    pub fn texts(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Value::Texts(t) => t,
            _ => Vec::new(),
        }
    }
}

fn parse(shape: Shape, value: Option<&str>) -> Option<Value> {
    match (shape, value) {
        (Flag, None) => Some(Value::Number(1)),
        (Flag, Some(v)) => match v {
            "yes" | "enable" | "enabled" | "true" | "on" | "set" => Some(Value::Number(1)),
            "" | "no" | "disable" | "disabled" | "false" | "off" | "unset" => Some(Value::Number(0)),
            _ => None,
        },
        (_, None) => None,
        (Size, Some(v)) => size(v).map(Value::Number),
        (Rate, Some(v)) => rate(v).map(Value::Number),
        (Int, Some(v)) => v.parse().ok().map(Value::Number),
        (Text | List, Some(v)) => Some(Value::Texts(vec![v.to_string()])),
        (Word(words), Some(v)) => words.contains(&v).then(|| Value::Texts(vec![v.to_string()])),
    }
}

/// A size: an integer with `k m g t` of either case.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let n: u64 = digits.parse().ok()?;
    n.checked_mul(1 << shift)
}

/// An interval in nanoseconds: an integer with a unit (none: nanoseconds) or `hz`.
pub fn rate(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let n: u64 = digits.parse().ok()?;
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "ns" | "nsec" => 1,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" | "hour" => 3_600_000_000_000,
        "d" | "day" => 86_400_000_000_000,
        "hz" => return 1_000_000_000u64.checked_div(n),
        _ => return None,
    };
    n.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_defaults_parse() {
        for row in TABLE {
            assert!(row.default.is_empty() || parse(row.shape, Some(row.default)).is_some(), "{}", row.name);
            assert!(!row.help.is_empty());
        }
        let mut names: Vec<_> = TABLE.iter().map(|r| r.name).collect();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn sizes_and_rates() {
        assert_eq!(size("4m"), Some(4 << 20));
        assert_eq!(size("10"), Some(10));
        assert_eq!(size("1K"), Some(1024));
        assert_eq!(size("m"), None);
        assert_eq!(size("99999999999g"), None);
        assert_eq!(rate("10hz"), Some(100_000_000));
        assert_eq!(rate("0hz"), None);
        assert_eq!(rate("5ms"), Some(5_000_000));
        assert_eq!(rate("5parsec"), None);
    }

    #[test]
    fn flags_words_lists_and_errors() {
        let mut o = Options::default();
        assert!(o.set("quiet", None).is_ok_and(|r| r.works));
        assert!(o.flag("quiet"));
        assert!(o.set("quiet", Some("no")).is_ok());
        assert!(!o.flag("quiet"));
        assert_eq!(o.set("nosuch", None).err(), Some(OptionError::Name));
        assert_eq!(o.set("bufpolicy", Some("funny")).err(), Some(OptionError::Value));
        assert_eq!(o.set("bufsize", None).err(), Some(OptionError::Value));
        assert!(o.set("define", Some("A=1")).is_ok());
        assert!(o.set("define", Some("B")).is_ok());
        assert_eq!(o.texts("define"), ["A=1", "B"]);
        assert_eq!(o.number("bufsize"), 4 << 20);
        assert_eq!(o.text("bufpolicy"), "switch");
        assert_eq!(o.maybe_number("cpu"), None);
    }
}
