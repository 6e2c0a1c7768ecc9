//! The table of `-x` options, and the values a session has for them.
//!
//! A row has an option's name, when it can be set, the type of its value and its default. Every
//! option of the table has its effect. What other systems have and this one has not is in a table of
//! its own, with the reason: setting it is an error that says so. The command line, `#pragma D option`, the manual page and the completions
//! read this table. Code reads a value from [`Options`] by the name.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::collections::BTreeMap;
use std::fmt;

use plane::ring::Policy;

/// When an option can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// On the command line only, because it takes effect before programs are read.
    CommandLine,
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
    /// What it does, one line.
    pub help: &'static str,
}

const fn row(name: &'static str, when: When, shape: Shape, default: &'static str, help: &'static str) -> Row {
    Row { name, when, shape, default, help }
}

use Shape::{Flag, Int, List, Rate, Size, Text, Word};
use When::{CommandLine, Compile, Dynamic, Run};

/// Every option, by name.
pub const TABLE: &[Row] = &[
    row("agghist", Dynamic, Flag, "", "draw count() and sum() as bars"),
    row("aggpack", Dynamic, Flag, "", "print a distribution in one line"),
    row("aggpercpu", Compile, Flag, "", "keep and print the values of each CPU"),
    row("aggrate", Dynamic, Rate, "1hz", "how often aggregations leave the kernel"),
    row("aggsize", Run, Size, "4m", "memory for aggregations, each CPU"),
    row("aggsortkey", Dynamic, Flag, "", "sort by key first, then by value"),
    row("aggsortkeypos", Dynamic, Int, "0", "first key column to sort by"),
    row("aggsortpos", Dynamic, Int, "0", "which of several aggregations to sort by"),
    row("aggsortrev", Dynamic, Flag, "", "reverse the order"),
    row("aggzoom", Dynamic, Flag, "", "scale bars to the tallest"),
    row("amin", Compile, Text, "", "least stability a program may have, as in Evolving/Evolving/Common"),
    row("argref", Compile, Flag, "", "operands need not be referenced"),
    row("bpflog", Run, Flag, "", "on a verifier refusal, write a report with the D source and the whole log"),
    row("bufpolicy", Run, Word(&["switch", "fill", "ring"]), "switch", "what a full buffer does"),
    row("bufresize", Run, Word(&["auto", "manual"]), "auto", "halve buffers until they fit, or fail"),
    row("bufsize", Run, Size, "4m", "principal buffer, each CPU"),
    row("cleanrate", Run, Rate, "101hz", "how often speculations that ended are freed"),
    row("cpp", Compile, Flag, "", "run scripts through the C preprocessor (-C)"),
    row("cppargs", Compile, List, "", "one more word for the preprocessor"),
    row("cpphdrs", Compile, Flag, "", "print the headers that cpp reads (-H)"),
    row("cpppath", Compile, Text, "cpp", "the preprocessor"),
    row("cpu", Run, Int, "", "trace this CPU only"),
    row("deadmaninterval", Run, Rate, "1s", "interval between two heartbeats of a CPU; 0: no heartbeats"),
    row("deadmanshare", Run, Int, "80", "percentage of the CPUs that tracing may take when heartbeats lag"),
    row("deadmantimeout", Run, Rate, "10s", "greatest lateness of a heartbeat"),
    row("deadmanuser", Run, Rate, "30s", "longest time that dtrace may get no CPU"),
    row(
        "debuginfod",
        Compile,
        List,
        "",
        "a server of debug files, as in https://debuginfod.debian.net, or env for those of DEBUGINFOD_URLS",
    ),
    row("defaultargs", Compile, Flag, "", "missing operands are 0 or \"\""),
    row("define", Compile, List, "", "define a preprocessor name (-D)"),
    row("destructive", Run, Flag, "", "allow destructive actions (-w)"),
    row("droptags", Compile, Flag, "", "put a tag before each drop message"),
    row("dynvarsize", Run, Size, "1m", "memory for associative arrays and thread-local arrays"),
    row("empty", Compile, Flag, "", "a program may be empty"),
    row("encoding", Compile, Word(&["ascii", "utf8"]), "ascii", "characters of distributions"),
    row("errtags", Compile, Flag, "", "print the first error in one line, with its tag, for programs"),
    row(
        "evaltime",
        CommandLine,
        Word(&["exec", "preinit", "postinit", "main"]),
        "preinit",
        "where a -c process waits until tracing is on: at its exec, before or after constructors, at main",
    ),
    row(
        "exithold",
        Run,
        Flag,
        "yes",
        "hold a -c or -p process at its exit until its address map is read, where user symbols are shown",
    ),
    row(
        "faultlines",
        Dynamic,
        Word(&["few", "all"]),
        "few",
        "of each clause five errors are shown, then one line a second with their number, or all",
    ),
    row("fbtmax", Run, Int, "1000", "kernel functions attached to one by one at most"),
    row(
        "fbtmeans",
        Run,
        Word(&["auto", "multi", "fentry", "kprobe"]),
        "auto",
        "how kernel functions are attached to",
    ),
    row("flowindent", Dynamic, Flag, "", "indent by function entry and return (-F)"),
    row(
        "follow",
        Run,
        Word(&["none", "fork", "exec", "all"]),
        "none",
        "what is traced with the processes of pid probes: fork, those that they fork, with the probes that there are; exec, the \
         programs that these execute; all, both",
    ),
    row("followmax", Run, Int, "16384", "processes that are followed at a time"),
    row("incdir", Compile, List, "", "a directory of preprocessor headers (-I)"),
    row("inlines", Run, Flag, "", "frames of ustack() for functions that the compiler has put inline"),
    row("jstackframes", Run, Int, "50", "frames of jstack(), at most 127"),
    row("jstackstrsize", Run, Size, "512", "functions of Python in jstack(), unless 0"),
    row(
        "kstackwalk",
        Run,
        Word(&["auto", "helper", "orc", "check"]),
        "auto",
        "how stacks of the kernel are walked: by its tables (orc), by its helper what cannot be; check: by both, and what differs is marked",
    ),
    row("libdir", Compile, List, "", "a directory of D libraries (-L)"),
    row(
        "maxframes",
        Run,
        Int,
        "",
        "frames of stack() and ustack() unless stackframes and ustackframes are set",
    ),
    row("nolibs", Compile, Flag, "", "no D libraries"),
    row("noresolve", Run, Flag, "", "print addresses of processes as numbers, not as symbols"),
    row("nspec", Run, Int, "1", "speculations at a time"),
    row("oformat", Compile, Word(&["text", "json", "csv"]), "text", "format of the output (--format)"),
    row(
        "ordertimeout",
        Dynamic,
        Rate,
        "1s",
        "how long a record may wait for an earlier one of a probe that is still firing",
    ),
    row("pcapsize", Run, Size, "1514", "bytes that pcap() records of a packet, 1 to 65535"),
    row(
        "pidreturn",
        Run,
        Word(&["auto", "uretprobe", "ret"]),
        "auto",
        "how returns of functions of processes are probed",
    ),
    row(
        "postmortem",
        Run,
        Size,
        "",
        "memory in each -c process for the last records, which its core file then has (--postmortem)",
    ),
    row(
        "processes",
        Compile,
        List,
        "",
        "which processes pid* means: process ids, name=, user=, cgroup=, with commas between",
    ),
    row("processids", Compile, Flag, "", "record the process and thread ids, for sinks of events"),
    row("pspec", Compile, Flag, "", "text that could be a declaration is a probe"),
    row("quiet", Dynamic, Flag, "", "print only what is traced (-q)"),
    row("quietresize", Dynamic, Flag, "", "do not say when a buffer was made smaller"),
    row("rawbytes", Dynamic, Flag, "", "print bytes as a dump, never as text"),
    row("scratchsize", Run, Size, "4k", "scratch memory of a clause: alloca() and copyin(), 8 to 256k"),
    row("setenv", CommandLine, List, "", "set an environment variable of -c processes, as in NAME=value"),
    row("specsize", Run, Size, "32k", "memory for a speculation, each CPU"),
    row("srclines", Run, Flag, "", "source file and line of addresses of processes: ustack(), uaddr(), %A"),
    row("stackframes", Run, Int, "20", "frames of stack(), at most 127"),
    row("stackindent", Dynamic, Int, "14", "columns before a frame"),
    row(
        "stacksize",
        Run,
        Size,
        "16m",
        "most memory of the kernel for stacks that are not yet read, from 32k",
    ),
    row("stacksymbols", Run, Flag, "yes", "name the functions of stacks; without it they are addresses"),
    row("statusrate", Run, Rate, "1hz", "how often drops and the end are looked for"),
    row(
        "stdc",
        Compile,
        Word(&["a", "c", "s", "t"]),
        "a",
        "conformance of the preprocessor: s is traditional, the others are one (-X)",
    ),
    row("strsize", Run, Size, "256", "longest string with its NUL, 1 to 32k"),
    row("switchrate", Dynamic, Rate, "1hz", "how often records leave the kernel"),
    row("symmem", Run, Size, "256m", "memory of the process that reads symbols of processes"),
    row(
        "symtimeout",
        Run,
        Rate,
        "2s",
        "CPU time for reading the symbols of a file or the map of a process; it may wait ten times as long",
    ),
    row("syslibdir", Compile, Text, "", "the directory of the system's D libraries"),
    row("temporal", Run, Flag, "yes", "merge the records of all CPUs by time (always on)"),
    row(
        "tree",
        Compile,
        Int,
        "0",
        "dump the tree of a program: 1 as it is read, 8 as it is checked and divided by if",
    ),
    row(
        "uaddrs",
        Run,
        Word(&["file", "address"]),
        "file",
        "an address of a process without a symbol: where it is in the file (libc.so.6+0x1f40), or the address itself",
    ),
    row("undef", Compile, List, "", "undefine a preprocessor name (-U)"),
    row("unsetenv", CommandLine, List, "", "unset an environment variable of -c processes, before setenv"),
    row(
        "unwindsize",
        Run,
        Size,
        "64m",
        "most memory of the kernel for tables by which stacks of processes are walked; 0: by frame pointers alone",
    ),
    row("ustackframes", Run, Int, "20", "frames of ustack(), at most 127"),
    row("verbose", Compile, Flag, "", "print the intermediate form (-S)"),
    row(
        "version",
        Compile,
        Text,
        "",
        "version of D that a program is written for; newer names are not defined",
    ),
    row("zdefs", Compile, Flag, "", "descriptions may match no probe (-Z)"),
];

/// An option of other DTraces that does not exist here.
#[derive(Debug)]
pub struct Absent {
    /// Its name.
    pub name: &'static str,
    /// Why it does not exist, and what to use.
    pub reason: &'static str,
}

const fn absent(name: &'static str, reason: &'static str) -> Absent {
    Absent { name, reason }
}

/// Options of other DTraces that do not exist here, by name.
#[rustfmt::skip]
pub const ABSENT: &[Absent] = &[
    absent("arch", "programs are compiled for this machine"),
    absent("bpflogsize", "the verifier's log has no limit: see bpflog"),
    absent("btfpath", "types are those of the running kernel, from /sys/kernel/btf"),
    absent("core", "use ulimit -c"),
    absent("ctfpath", "types are those of the running kernel, from /sys/kernel/btf"),
    absent("ctypes", "bpftool btf dump prints the types of the kernel"),
    absent("debug", "-v prints what a session does, -S the intermediate form"),
    absent("debugassert", "there are no assertions to select"),
    absent("disallow_dsym", "use noresolve to read no symbols of processes"),
    absent("disasm", "-S prints the intermediate form, bpftool prog dump the programs in the kernel"),
    absent("dofstashpath", "DOF is not supported yet"),
    absent("dtypes", "-lv prints the types of arguments"),
    absent("grabanon", "anonymous tracing is not supported yet"),
    absent("iregs", "a clause has as many registers as it needs"),
    absent("kdefs", "symbols of the kernel must always be known"),
    absent("knodefs", "symbols of the kernel must be known when a program is compiled"),
    absent("late", "translators are always resolved when a program is enabled"),
    absent("lazyload", "DOF is not supported yet"),
    absent("ldpath", "-G writes its object without another program"),
    absent("linkmode", "symbols are always resolved when a program is compiled"),
    absent("linknommap", "-G writes its object without another program"),
    absent("linktype", "-G writes its object without another program"),
    absent("lockmem", "since Linux 5.11, ulimit -l does not limit the memory of BPF"),
    absent("modpath", "types are those of the running kernel, from /sys/kernel/btf"),
    absent("objcopypath", "-G writes its object without another program"),
    absent("pgmax", "the number of processes whose symbols are known has no limit"),
    absent("preallocate", "memory is taken when it is needed"),
    absent("printsize", "print() shows whole values; use tracemem() for some bytes of one"),
    absent("procfspath", "processes are those of /proc"),
    absent("strip", "-G writes its object without another program"),
    absent("sysslice", "-p takes every process that you may trace"),
    absent("tregs", "a key has as many columns as it needs"),
    absent("udefs", "programs name no symbols of processes"),
    absent("unodefs", "programs name no symbols of processes"),
    absent("useruid", "-p takes every process that you may trace"),
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
    /// Not in a program.
    InProgram,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OptionError::Name => "Invalid option name",
            OptionError::Value => "Invalid value for specified option",
            OptionError::Active => "Operation illegal when tracing is active",
            OptionError::InProgram => "Operation illegal in a program",
        })
    }
}

impl std::error::Error for OptionError {}

/// The least and greatest value of options, where the type alone allows more. A frame count beyond
/// what the kernel walks is no error, because scripts use a thousand for all.
const LIMITS: &[(&str, u64, u64)] = &[
    ("maxframes", 1, u64::MAX),
    ("nspec", 0, plane::speculation::COUNT_MAX as u64),
    ("pcapsize", 1, plane::packet::LONGEST as u64),
    ("postmortem", 4 << 10, 256 << 20),
    ("scratchsize", 8, 256 << 10),
    ("specsize", 0, plane::ring::RING_MAX as u64),
    ("strsize", 1, 32 << 10),
    ("symmem", 16 << 20, 64 << 30),
    ("stackframes", 1, u64::MAX),
    ("stacksize", 32 << 10, 16 << 30),
    ("unwindsize", 0, 8 * plane::unwind::CHUNK_WORDS as u64 * plane::unwind::CHUNKS as u64),
    ("ustackframes", 1, u64::MAX),
    ("jstackframes", 1, u64::MAX),
];

fn limits(name: &str) -> Option<(u64, u64)> {
    LIMITS.iter().find(|(n, ..)| *n == name).map(|(_, least, most)| (*least, *most))
}

impl Row {
    /// True for a value that is in the option's range.
    fn allows(&self, value: &Value) -> bool {
        let all = |wanted: &dyn Fn(&str) -> bool| match value {
            Value::Texts(texts) => texts.iter().all(|text| wanted(text)),
            _ => true,
        };
        match (self.name, value) {
            // The other value would have no effect.
            ("temporal", Value::Number(n)) => *n == 1,
            (_, Value::Number(n)) => limits(self.name).is_none_or(|(least, most)| (least..=most).contains(n)),
            ("amin", _) => all(&|t| probes::Attributes::parse(t).is_some()),
            ("setenv", _) => all(&|t| t.split_once('=').is_some_and(|(name, _)| !name.is_empty())),
            ("unsetenv", _) => all(&|t| !t.is_empty() && !t.contains('=')),
            ("version", _) => all(&|t| probes::Version::parse(t).is_some_and(probes::Version::is_known)),
            _ => true,
        }
    }

    /// A description of the values of this option, for an error message.
    pub fn expects(&self) -> String {
        match (self.shape, limits(self.name)) {
            (Shape::Size, Some((least, most))) => {
                format!("a size from {} to {}", size_text(least), size_text(most))
            }
            (_, Some((least, u64::MAX))) => format!("a number of at least {least}"),
            (_, Some((least, most))) => format!("a number from {least} to {most}"),
            (Shape::Flag, _) if self.name == "temporal" => {
                "yes: records are always in the order of time".into()
            }
            (Shape::Flag, _) => "yes or no".into(),
            (Shape::Size, _) => "a size, as in 16k or 4m".into(),
            (Shape::Rate, _) => "a rate, as in 10hz or 100ms".into(),
            (Shape::Int, _) => "a number".into(),
            (Shape::Text, _) if self.name == "amin" => "a triple, as in Evolving/Evolving/Common".into(),
            (Shape::Text, _) if self.name == "version" => "a version of D, as in 1.6.3".into(),
            (Shape::List, _) if self.name == "setenv" => "a variable with its value, as in NAME=value".into(),
            (Shape::List, _) if self.name == "unsetenv" => "the name of a variable".into(),
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
        OptionError::Name if let Some(absent) = ABSENT.iter().find(|a| a.name == name) => {
            Some(absent.reason.to_string())
        }
        OptionError::Name => diagnostics::nearest(name, TABLE.iter().map(|r| r.name))
            .map(|near| format!("did you mean {near}?")),
        OptionError::Value => find(name).map(|row| format!("it takes {}", row.expects())),
        OptionError::InProgram => Some(format!("use -x {name}")),
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

/// The policy of a session's rings.
pub(crate) fn policy(options: &Options) -> Policy {
    match options.text("bufpolicy").as_str() {
        "fill" => Policy::Fill,
        "ring" => Policy::Ring,
        _ => Policy::Switch,
    }
}

/// The row of an option.
pub fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|r| r.name == name)
}

impl Options {
    /// Sets an option to a value in the user's notation, and returns its row.
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

    /// True if the user has set it.
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    fn value(&self, name: &str) -> Value {
        let common = matches!(name, "stackframes" | "ustackframes").then_some("maxframes");
        if let Some(v) = self.set.get(name).or_else(|| self.set.get(common?)) {
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

    /// The environment of a `-c` process, by `setenv` and `unsetenv`.
    pub fn environment(&self) -> proc::Environment {
        let set = self.texts("setenv");
        let set = set.iter().filter_map(|text| text.split_once('=')).map(|(n, v)| (n.into(), v.into()));
        let unset = self.texts("unsetenv").into_iter().map(Into::into);
        proc::Environment { unset: unset.collect(), set: set.collect(), output_to_stderr: false }
    }

    /// The moment at which a `-c` process waits, by `evaltime`.
    pub fn evaltime(&self) -> proc::Moment {
        match self.text("evaltime").as_str() {
            "exec" => proc::Moment::Exec,
            "postinit" => proc::Moment::Postinit,
            "main" => proc::Moment::Main,
            _ => proc::Moment::Preinit,
        }
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
mod tests;
