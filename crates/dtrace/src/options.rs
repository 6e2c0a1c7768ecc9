//! The table of `-x` options, and the values a session has for them.
//!
//! A row has an option's name, when it can be set, the type of its value, its default, and whether
//! it has an effect yet. The command line, `#pragma D option`, the manual page and the completions
//! read this table. Code reads a value from [`Options`] by the name.

use std::collections::BTreeMap;
use std::fmt;

/// When an option can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before compilation.
    Compile,
    /// Before tracing starts.
    Run,
    /// At any time.
    Dynamic,
}

/// The type of a value.
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
    /// When it can be set.
    pub when: When,
    /// The type of its value.
    pub shape: Shape,
    /// Its default, as a user would write it; empty for "unset".
    pub default: &'static str,
    /// False if it is accepted without effect. The command then prints a warning.
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
    row("agghist", Dynamic, Flag, "", true, "draw count() and sum() as bars"),
    row("aggpack", Dynamic, Flag, "", true, "print a distribution in one line"),
    row("aggpercpu", Compile, Flag, "", true, "keep and print the values of each CPU"),
    row("aggrate", Dynamic, Rate, "1hz", true, "how often aggregations leave the kernel"),
    row("aggsize", Run, Size, "4m", true, "memory for aggregations, each CPU"),
    row("aggsortkey", Dynamic, Flag, "", true, "sort by key first, then by value"),
    row("aggsortkeypos", Dynamic, Int, "0", true, "first key column to sort by"),
    row("aggsortpos", Dynamic, Int, "0", true, "which of several aggregations to sort by"),
    row("aggsortrev", Dynamic, Flag, "", true, "reverse the order"),
    row("aggzoom", Dynamic, Flag, "", true, "scale bars to the tallest"),
    row(
        "amin",
        Compile,
        Text,
        "",
        true,
        "least stability a program may have, as in Evolving/Evolving/Common",
    ),
    row("arch", Compile, Text, "", false, "the processor that a program is compiled for"),
    row("argref", Compile, Flag, "", true, "operands need not be referenced"),
    row(
        "bpflog",
        Run,
        Flag,
        "",
        true,
        "on a verifier refusal, write a report with the D source and the whole log",
    ),
    row("bpflogsize", Run, Size, "", false, "memory for the verifier's log"),
    row("btfpath", Compile, Text, "", false, "a file with the kernel's types"),
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
    row("cppargs", Compile, List, "", true, "one more word for the preprocessor"),
    row("cpphdrs", Compile, Flag, "", true, "print the headers that cpp reads (-H)"),
    row("cpppath", Compile, Text, "cpp", true, "the preprocessor"),
    row("cpu", Run, Int, "", true, "trace this CPU only"),
    row("ctfpath", Compile, Text, "", false, "a file with the kernel's types in CTF"),
    row("ctypes", Compile, Text, "", false, "write the C types of the programs to a file"),
    row(
        "deadmaninterval",
        Run,
        Rate,
        "1s",
        true,
        "interval between two heartbeats of a CPU; 0: no heartbeats",
    ),
    row(
        "deadmanshare",
        Run,
        Int,
        "80",
        true,
        "percentage of the CPUs that tracing may take when heartbeats lag",
    ),
    row("deadmantimeout", Run, Rate, "10s", true, "greatest lateness of a heartbeat"),
    row("deadmanuser", Run, Rate, "30s", true, "longest time that dtrace may get no CPU"),
    row("debug", Compile, Flag, "", false, "messages of the library"),
    row("debugassert", Compile, Int, "0", false, "assertions of the library, a mask"),
    row("defaultargs", Compile, Flag, "", true, "missing operands are 0 or \"\""),
    row("define", Compile, List, "", true, "define a preprocessor name (-D)"),
    row("destructive", Run, Flag, "", true, "allow destructive actions (-w)"),
    row("disallow_dsym", Compile, Flag, "", false, "take no symbols from separate files"),
    row("disasm", Compile, Int, "", false, "which stages -S shows, a mask"),
    row("dofstashpath", Compile, Text, "", false, "where USDT definitions of running processes are kept"),
    row("droptags", Compile, Flag, "", true, "put a tag before each drop message"),
    row("dtypes", Compile, Text, "", false, "write the D types of the programs to a file"),
    row("dynvarsize", Run, Size, "1m", true, "memory for associative arrays and thread-local arrays"),
    row("empty", Compile, Flag, "", true, "a program may be empty"),
    row("encoding", Compile, Word(&["ascii", "utf8"]), "ascii", true, "characters of distributions"),
    row("errtags", Compile, Flag, "", true, "print the first error in one line, with its tag, for programs"),
    row(
        "evaltime",
        Compile,
        Word(&["exec", "preinit", "postinit", "main"]),
        "exec",
        true,
        "where a -c process waits (exec only)",
    ),
    row(
        "exithold",
        Run,
        Flag,
        "yes",
        true,
        "hold a -c or -p process at its exit until its address map is read, where user symbols are shown",
    ),
    row("fbtmax", Run, Int, "1000", true, "kernel functions attached to one by one at most"),
    row(
        "fbtmeans",
        Run,
        Word(&["auto", "multi", "fentry", "kprobe"]),
        "auto",
        true,
        "how kernel functions are attached to",
    ),
    row("flowindent", Dynamic, Flag, "", true, "indent by function entry and return (-F)"),
    row("grabanon", Run, Flag, "", false, "claim anonymous tracing"),
    row("incdir", Compile, List, "", true, "a directory of preprocessor headers (-I)"),
    row("iregs", Compile, Int, "8", false, "registers of the D machine"),
    row("jstackframes", Run, Int, "50", true, "frames of jstack(), at most 127"),
    row(
        "jstackstrsize",
        Run,
        Size,
        "512",
        true,
        "bytes of strings of jstack() (names are read without limit)",
    ),
    row("kdefs", Compile, Flag, "", false, "unknown kernel symbols are errors"),
    row("knodefs", Compile, Flag, "", false, "unknown kernel symbols are no errors"),
    row(
        "late",
        Compile,
        Word(&["dynamic", "static"]),
        "dynamic",
        true,
        "when translators are resolved; both values mean when enabled",
    ),
    row("lazyload", Compile, Flag, "", false, "load USDT definitions lazily"),
    row("ldpath", Compile, Text, "ld", false, "the linker of -G"),
    row("libdir", Compile, List, "", true, "a directory of D libraries (-L)"),
    row(
        "linkmode",
        Compile,
        Word(&["kernel", "primary", "dynamic", "static"]),
        "kernel",
        false,
        "how kernel symbols are linked",
    ),
    row("linknommap", Compile, Flag, "", false, "link objects without mapping them"),
    row("linktype", Compile, Word(&["elf", "dof"]), "elf", false, "what -G writes"),
    row("lockmem", Run, Text, "", false, "limit of locked memory"),
    row("maxframes", Run, Int, "", false, "most frames a stack may have"),
    row("modpath", Compile, Text, "", false, "the directory of kernel modules"),
    row("nolibs", Compile, Flag, "", true, "no D libraries"),
    row("noresolve", Run, Flag, "", true, "print addresses of processes as numbers, not as symbols"),
    row("nspec", Run, Int, "1", false, "speculations at a time"),
    row("objcopypath", Compile, Text, "objcopy", false, "the objcopy of -G"),
    row("oformat", Dynamic, Text, "", false, "structured output: its format"),
    row(
        "ordertimeout",
        Dynamic,
        Rate,
        "1s",
        true,
        "how long a record may wait for an earlier one of a probe that is still firing",
    ),
    row("pcapsize", Run, Size, "", false, "longest packet that pcap() keeps"),
    row("pgmax", Compile, Int, "8", false, "processes kept open"),
    row("preallocate", Compile, Size, "", false, "memory to take at the start"),
    row("printsize", Dynamic, Size, "", false, "bytes of a value that print() shows"),
    row("procfspath", Compile, Text, "/proc", false, "where the processes of the system are seen"),
    row("pspec", Compile, Flag, "", true, "text that could be a declaration is a probe"),
    row("quiet", Dynamic, Flag, "", true, "print only what is traced (-q)"),
    row("quietresize", Dynamic, Flag, "", true, "do not say when a buffer was made smaller"),
    row("rawbytes", Dynamic, Flag, "", true, "print bytes as a dump, never as text"),
    row("scratchsize", Run, Size, "4k", true, "scratch memory of a clause: alloca() and copyin(), 8 to 256k"),
    row("setenv", Compile, List, "", false, "set an environment variable of the -c process"),
    row("specsize", Run, Size, "32k", false, "memory for a speculation, each CPU"),
    row("stackframes", Run, Int, "20", true, "frames of stack(), at most 127"),
    row("stackindent", Dynamic, Int, "14", true, "columns before a frame"),
    row("stacksymbols", Run, Flag, "yes", false, "name the functions of stacks"),
    row("statusrate", Run, Rate, "1hz", true, "how often drops and the end are looked for"),
    row(
        "stdc",
        Compile,
        Word(&["a", "c", "s", "t"]),
        "a",
        true,
        "conformance of the preprocessor: s is traditional, the others are one (-X)",
    ),
    row("strip", Compile, Flag, "", false, "strip what -G writes"),
    row(
        "strsize",
        Run,
        Size,
        "256",
        true,
        "longest string with its NUL, 1 to 32k; rounded up to a multiple of 8",
    ),
    row("switchrate", Dynamic, Rate, "1hz", true, "how often records leave the kernel"),
    row("symmem", Run, Size, "256m", true, "memory of the process that reads symbols of processes"),
    row(
        "symtimeout",
        Run,
        Rate,
        "2s",
        true,
        "how long reading the symbols of a file or the map of a process may take",
    ),
    row("syslibdir", Compile, Text, "", true, "the directory of the system's D libraries"),
    row("sysslice", Compile, Flag, "", false, "grab processes of the system slice, too"),
    row("temporal", Run, Flag, "yes", true, "merge the records of all CPUs by time (always on)"),
    row(
        "tree",
        Compile,
        Int,
        "0",
        true,
        "dump the tree of a program: 1 as it is read, 8 as it is checked and divided by if",
    ),
    row("tregs", Compile, Int, "8", false, "tuple registers of the D machine"),
    row("udefs", Compile, Flag, "", false, "unknown user symbols are errors"),
    row("undef", Compile, List, "", true, "undefine a preprocessor name (-U)"),
    row("unodefs", Compile, Flag, "", false, "unknown user symbols are no errors"),
    row("unsetenv", Compile, List, "", false, "unset an environment variable of the -c process"),
    row("useruid", Compile, Int, "", false, "least user id of a process that may be grabbed"),
    row("ustackframes", Run, Int, "20", true, "frames of ustack(), at most 127"),
    row("verbose", Compile, Flag, "", true, "print the intermediate form (-S)"),
    row(
        "version",
        Compile,
        Text,
        "",
        true,
        "version of D that a program is written for; newer names are not defined",
    ),
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

/// The least and greatest value of options, where the type alone allows more. A frame count beyond
/// what the kernel walks is no error, because scripts use a thousand for all.
const LIMITS: &[(&str, u64, u64)] = &[
    ("scratchsize", 8, 256 << 10),
    ("strsize", 1, 32 << 10),
    ("symmem", 16 << 20, 64 << 30),
    ("stackframes", 1, u64::MAX),
    ("ustackframes", 1, u64::MAX),
    ("jstackframes", 1, u64::MAX),
];

fn limits(name: &str) -> Option<(u64, u64)> {
    LIMITS.iter().find(|(n, ..)| *n == name).map(|(_, least, most)| (*least, *most))
}

impl Row {
    /// True for a value that is in the option's range.
    fn allows(&self, value: &Value) -> bool {
        match value {
            Value::Number(n) => limits(self.name).is_none_or(|(least, most)| (least..=most).contains(n)),
            Value::Texts(t) if self.name == "amin" => {
                t.iter().all(|t| probes::Attributes::parse(t).is_some())
            }
            Value::Texts(t) if self.name == "version" => {
                t.iter().all(|t| probes::Version::parse(t).is_some_and(probes::Version::is_known))
            }
            _ => true,
        }
    }

    /// A description of the values of this option, for an error message.
    pub fn expects(&self) -> String {
        match (self.shape, limits(self.name)) {
            (Shape::Size, Some((least, most))) => {
                format!("a size from {} to {}", size_text(least), size_text(most))
            }
            (_, Some((least, _))) => format!("a number of at least {least}"),
            (Shape::Flag, _) => "yes or no".into(),
            (Shape::Size, _) => "a size, as in 16k or 4m".into(),
            (Shape::Rate, _) => "a rate, as in 10hz or 100ms".into(),
            (Shape::Int, _) => "a number".into(),
            (Shape::Text, _) if self.name == "amin" => "a triple, as in Evolving/Evolving/Common".into(),
            (Shape::Text, _) if self.name == "version" => "a version of D, as in 1.6.3".into(),
            (Shape::Text | Shape::List, _) => "a text".into(),
            (Shape::Word(words), _) => words.join(" or "),
        }
    }
}

/// A size as users write it: `64k`.
pub(crate) fn size_text(bytes: u64) -> String {
    match bytes {
        b if b != 0 && b % (1 << 30) == 0 => format!("{}g", b >> 30),
        b if b != 0 && b % (1 << 20) == 0 => format!("{}m", b >> 20),
        b if b != 0 && b % (1 << 10) == 0 => format!("{}k", b >> 10),
        b => b.to_string(),
    }
}

/// A hint for an option that could not be set.
pub fn advice(name: &str, error: OptionError) -> Option<String> {
    match error {
        OptionError::Name => diagnostics::nearest(name, TABLE.iter().map(|r| r.name))
            .map(|near| format!("did you mean {near}?")),
        OptionError::Value => find(name).map(|row| format!("it takes {}", row.expects())),
        OptionError::Active => None,
    }
}

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
    /// Sets an option to a value in the user's notation, and returns its row. The caller reports
    /// the options without effect: [`Options::idle`].
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<&'static Row, OptionError> {
        let row = find(name).ok_or(OptionError::Name)?;
        let parsed = parse(row.shape, value).filter(|v| row.allows(v)).ok_or(OptionError::Value)?;
        match (row.shape, self.set.get_mut(row.name), parsed) {
            (List, Some(Value::Texts(old)), Value::Texts(new)) => old.extend(new),
            (_, _, parsed) => {
                self.set.insert(row.name, parsed);
            }
        }
        Ok(row)
    }

    /// Names of the options that were set, on the command line or by a pragma, and have no effect
    /// yet.
    pub fn idle(&self) -> impl Iterator<Item = &'static str> {
        self.set.keys().copied().filter(|name| find(name).is_some_and(|row| !row.works))
    }

    /// True if the user has set it.
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

    /// A size in bytes, an interval in nanoseconds, or an integer; 0 when it is unset and has no
    /// default.
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
        (Flag, Some(v)) => match v.to_ascii_lowercase().as_str() {
            "yes" | "enable" | "enabled" | "true" | "on" | "set" | "1" => Some(Value::Number(1)),
            "" | "no" | "disable" | "disabled" | "false" | "off" | "unset" | "0" => Some(Value::Number(0)),
            _ => None,
        },
        (_, None) => None,
        (Size, Some(v)) => size(v).map(Value::Number),
        (Rate, Some(v)) => rate(v).map(Value::Number),
        (Int, Some(v)) => integer(v).map(Value::Number),
        (Text | List, Some(v)) => Some(Value::Texts(vec![v.to_string()])),
        (Word(words), Some(v)) => words.contains(&v).then(|| Value::Texts(vec![v.to_string()])),
    }
}

/// An integer as C writes it: decimal, `0x` hexadecimal, `0` octal.
fn integer(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // from_str_radix alone would accept a sign.
    let plain = digits.chars().all(|c| c.is_ascii_alphanumeric());
    if plain { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// A size: an integer with `k m g t` of either case.
pub fn size(text: &str) -> Option<u64> {
    let shift = match text.chars().next_back()?.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => return integer(text),
    };
    integer(&text[..text.len() - 1])?.checked_mul(1 << shift)
}

/// An interval in nanoseconds: an integer with a unit (none: nanoseconds) or `hz`.
pub fn rate(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let n = integer(digits)?;
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
        for pair in TABLE.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} and {}", pair[0].name, pair[1].name);
        }
    }

    #[test]
    fn sizes_and_rates_are_parsed_with_their_units() {
        assert_eq!(size("4m"), Some(4 << 20));
        assert_eq!(size("10"), Some(10));
        assert_eq!(size("1K"), Some(1024));
        assert_eq!(size("m"), None);
        assert_eq!(size("99999999999g"), None);
        assert_eq!(size("0x10k"), Some(16 << 10));
        assert_eq!(size("010"), Some(8));
        for wrong in ["-1", "+1", "", "k", "4mk", "\u{e9}", "4 m", "0x", "08"] {
            assert_eq!(size(wrong), None, "{wrong:?}");
        }
        assert_eq!(rate("10hz"), Some(100_000_000));
        assert_eq!(rate("0hz"), None);
        assert_eq!(rate("5ms"), Some(5_000_000));
        assert_eq!(rate("5parsec"), None);
    }

    #[test]
    fn each_type_of_option_accepts_its_values_only() {
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
        assert_eq!(o.idle().count(), 0);
        assert!(o.set("nspec", Some("4")).is_ok_and(|r| !r.works));
        assert_eq!(o.idle().collect::<Vec<_>>(), ["nspec"]);
    }

    #[test]
    fn values_out_of_range_are_rejected_with_a_hint() {
        let mut o = Options::default();
        for (name, value) in [
            ("strsize", "0"),
            ("scratchsize", "1m"),
            ("strsize", "1g"),
            ("stackframes", "0"),
            ("amin", "Best/Stable/ISA"),
        ] {
            assert_eq!(o.set(name, Some(value)).err(), Some(OptionError::Value), "{name}={value}");
        }
        assert!(o.set("strsize", Some("1")).is_ok() && o.set("strsize", Some("4k")).is_ok());
        assert!(o.set("ustackframes", Some("0x200")).is_ok());
        assert!(o.set("amin", Some("evolving/stable/isa")).is_ok());
        assert!(o.set("quiet", Some("OFF")).is_ok() && !o.flag("quiet"));
        let say = |name, e| advice(name, e).unwrap();
        assert_eq!(say("bufsiz", OptionError::Name), "did you mean bufsize?");
        assert_eq!(say("bufpolicy", OptionError::Value), "it takes switch or fill or ring");
        assert_eq!(say("strsize", OptionError::Value), "it takes a size from 1 to 32k");
        assert_eq!(say("symmem", OptionError::Value), "it takes a size from 16m to 64g");
        assert_eq!(say("stackframes", OptionError::Value), "it takes a number of at least 1");
    }
}
