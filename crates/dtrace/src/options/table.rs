//! The table of options: the fields of [`Options`], and one row for each.

use std::time::Duration;

use consumer::Encoding;
use plane::ring::Policy;
use probes::{Attributes, Version};
use proc::Moment;
use providers::{Follow, Returns};
use symbols::Guests;
use timeline::{NoPair, Pair};

use super::kinds::{
    BufResize, Bytes, Captures, Conformance, FaultLines, FbtMeans, KernelWalk, OutputFormat, Shape,
    UserAddresses,
};
use super::value::{Setting, initial};

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

/// What obeys an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obeyed {
    /// Every session.
    Session,
    /// Whoever makes a session, a sink or a program with these [`Options`] in Rust: the session
    /// itself does nothing with it. Other languages, and `#pragma D option` in a program of a
    /// [`Builder`](crate::Builder), refuse it with these words: what obeys it.
    Maker(&'static str),
    /// The command alone, with the same words. A [`Builder`](crate::Builder) refuses it too.
    Command(&'static str),
}

impl Obeyed {
    /// The last of some: a row without one of its own has the first.
    const fn last(of: &[Obeyed]) -> Obeyed {
        match of.last() {
            Some(last) => *last,
            None => Obeyed::Session,
        }
    }

    /// What obeys it, for an option that a session does nothing with.
    pub const fn elsewhere(self) -> Option<&'static str> {
        match self {
            Obeyed::Session => None,
            Obeyed::Maker(what) | Obeyed::Command(what) => Some(what),
        }
    }
}

/// One option.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// When it can be set.
    pub when: When,
    /// What obeys it.
    pub obeyed: Obeyed,
    /// The type of its value.
    pub shape: Shape,
    /// Its default, as a user would write it; empty for "unset".
    pub default: &'static str,
    /// What it does, one line.
    pub help: &'static str,
    /// Sets it to the value of a text, if it may have that.
    pub(super) set: fn(&mut Options, &Row, Option<&str>) -> bool,
    /// True if its value is one that it may have.
    pub(super) is_allowed: fn(&Options, &Row) -> bool,
    /// Its value as texts.
    pub(super) texts: fn(&Options) -> Vec<String>,
}

/// The least and greatest value of options, where the type alone allows more. A frame count beyond
/// what the kernel walks is no error, because scripts use a thousand for all.
const LIMITS: &[(&str, u64, u64)] = &[
    ("anonsize", 4 << 10, 64 << 30),
    ("every", 1, u64::MAX),
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
    fn allows(&self, value: &impl Setting) -> bool {
        value.has_text() && self.allows_text(value.number(), &|| value.texts())
    }

    /// The same for all types: once in the program.
    fn allows_text(&self, number: Option<u64>, texts: &dyn Fn() -> Vec<String>) -> bool {
        let all = |wanted: fn(&str) -> bool| texts().iter().all(|text| wanted(text));
        match (self.name, number) {
            // The other value would have no effect.
            ("temporal", n) => n == Some(1),
            (name, Some(n)) => limits(name).is_none_or(|(least, most)| (least..=most).contains(&n)),
            ("listen", _) => all(is_address),
            ("events", _) => all(is_socket),
            ("graphite", _) => all(is_server),
            ("otlp" | "otlpprofiles", _) => all(is_url),
            ("setenv", _) => all(|t| t.split_once('=').is_some_and(|(name, _)| !name.is_empty())),
            ("slices", _) => all(|t| Pair::parse(t).is_ok()),
            ("unsetenv", _) => all(|t| !t.is_empty() && !t.contains('=')),
            ("version", _) => all(|t| Version::parse(t).is_some_and(Version::is_known)),
            _ => true,
        }
    }

    /// A description of the values of this option, for an error message.
    pub fn expects(&self) -> String {
        match (self.shape, limits(self.name)) {
            (Shape::Size, Some((least, most))) => {
                format!("a size from {} to {}", Bytes(least), Bytes(most))
            }
            (Shape::Rate, Some((least, _))) => {
                format!("a time with its unit, as in 100ms, 1s or 10hz, of at least {least}ns")
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
            (Shape::Text, _) if self.name == "capture" => "stack, ustack, psinfo, with commas between".into(),
            (Shape::Text, _) if self.name == "guest" => "all, or the id of a process".into(),
            (Shape::Text, _) if self.name == "version" => "a version of D, as in 1.6.3".into(),
            (Shape::Text, _) if self.name == "listen" => {
                "an address with a port, as in 127.0.0.1:9464, or a socket, as in unix:/run/dtrace.socket"
                    .into()
            }
            (Shape::Text, _) if self.name == "events" => "a socket, as in unix:/run/dtrace.events".into(),
            (Shape::Text, _) if self.name.starts_with("otlp") => {
                "a server with its port, as in http://localhost:4318".into()
            }
            (Shape::Text, _) if self.name == "graphite" => "a server with its port, as in carbon:2003".into(),
            (Shape::List, _) if self.name == "setenv" => "a variable with its value, as in NAME=value".into(),
            (Shape::List, _) if self.name == "slices" => NoPair.to_string(),
            (Shape::List, _) if self.name == "unsetenv" => "the name of a variable".into(),
            (Shape::Text | Shape::List, _) => "a text".into(),
            (Shape::Word(words), _) => words.join(" or "),
        }
    }
}

/// An address of this machine: `127.0.0.1:9464` or `unix:PATH`.
fn is_address(text: &str) -> bool {
    is_socket(text) || text.parse::<std::net::SocketAddr>().is_ok()
}

/// `unix:PATH`
fn is_socket(text: &str) -> bool {
    text.strip_prefix("unix:").is_some_and(|path| !path.is_empty())
}

/// A host and a port.
fn is_server(text: &str) -> bool {
    let split = text.rsplit_once(':');
    split.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// A host and a port that speak HTTP, perhaps with a path. It becomes the head of a request.
fn is_url(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split('/').next());
    is_plain && host.is_some_and(is_server)
}

/// Sets an option to the value of a text, if it may have that.
fn store<T: Setting>(value: &mut T, row: &Row, text: Option<&str>) -> bool {
    let new = T::parse(text).filter(|new| row.allows(new));
    new.map(|new| value.add(new)).is_some()
}

/// Makes the struct, its defaults and the rows of its fields. A field says when it can be set, its
/// default as a user would write it (empty for "unset"), and what it does, in one line, which is
/// its documentation, too; and what obeys it, if that is not every session.
macro_rules! options {
    (
        $(#[$about:meta])*
        pub struct Options {
            $(#[option($when:ident, $default:literal, $help:literal $(, $obeyed:ident($what:literal))?)]
            pub $name:ident: $kind:ty,)*
        }
    ) => {
        $(#[$about])*
        pub struct Options {
            $(#[doc = $help] pub $name: $kind,)*
        }

        fn defaults() -> Options {
            Options { $($name: initial($default),)* }
        }

        const ROWS: &[Row] = &[
            $(Row {
                name: stringify!($name),
                when: When::$when,
                obeyed: Obeyed::last(&[Obeyed::Session $(, Obeyed::$obeyed($what))?]),
                shape: <$kind as Setting>::SHAPE,
                default: $default,
                help: $help,
                set: |options, row, text| store(&mut options.$name, row, text),
                is_allowed: |options, row| row.allows(&options.$name),
                texts: |options| options.$name.texts(),
            },)*
        ];
    };
}

options! {
    /// The option values of a session. Those that are not named have their defaults:
    ///
    /// ```
    /// use dtrace::options::{Bytes, Options};
    ///
    /// let options = Options { quiet: true, bufsize: Bytes::mib(16), ..Options::default() };
    /// assert_eq!(options.aggsize, Bytes::mib(4));
    /// ```
    ///
    /// The fields are those of the option `-x`, and [`Options::set`] takes its texts. A value that
    /// a text could not have (a `strsize` of a gigabyte) is an error when a program is compiled.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(rustdoc::bare_urls)]
    pub struct Options {
        #[option(Dynamic, "", "draw count() and sum() as bars")]
        pub agghist: bool,
        #[option(Dynamic, "", "print no rows whose values are all 0")]
        pub aggnozero: bool,
        #[option(Dynamic, "", "print a distribution in one line")]
        pub aggpack: bool,
        #[option(Compile, "", "keep and print the values of each CPU")]
        pub aggpercpu: bool,
        #[option(Dynamic, "1hz", "how often aggregations leave the kernel")]
        pub aggrate: Duration,
        #[option(Run, "4m", "memory for aggregations, each CPU")]
        pub aggsize: Bytes,
        #[option(Dynamic, "", "sort by key first, then by value")]
        pub aggsortkey: bool,
        #[option(Dynamic, "0", "first key column to sort by")]
        pub aggsortkeypos: u64,
        #[option(Dynamic, "0", "which of several aggregations to sort by")]
        pub aggsortpos: u64,
        #[option(Dynamic, "", "reverse the order")]
        pub aggsortrev: bool,
        #[option(Dynamic, "0", "print only so many rows, those of the greatest values; 0 prints all")]
        pub aggtop: u64,
        #[option(Dynamic, "", "scale bars to the tallest")]
        pub aggzoom: bool,
        #[option(Compile, "", "least stability a program may have, as in Evolving/Evolving/Common")]
        pub amin: Option<Attributes>,
        #[option(
            Run,
            "",
            "directory below which -A, -a and --anonymous have their files: the root of another system",
            Command("dtrace -A stores what the boot traces")
        )]
        pub anonroot: Option<String>,
        #[option(
            Run,
            "64m",
            "most space for what was traced since the boot and is not claimed (-A)",
            Command("dtrace -A stores what the boot traces")
        )]
        pub anonsize: Bytes,
        #[option(Compile, "", "operands need not be referenced")]
        pub argref: bool,
        #[option(
            Run,
            "",
            "on a verifier refusal, write a report with the D source and the whole log",
            Maker("dtrace -x bpflog writes the report")
        )]
        pub bpflog: bool,
        #[option(Run, "switch", "what a full buffer does")]
        pub bufpolicy: Policy,
        #[option(Run, "auto", "halve buffers until they fit, or fail")]
        pub bufresize: BufResize,
        #[option(Run, "4m", "principal buffer, each CPU")]
        pub bufsize: Bytes,
        #[option(
            Compile,
            "",
            "what --capture records of each firing besides its arguments: stack, ustack, psinfo",
            Command("dtrace --capture FILE records it")
        )]
        pub capture: Captures,
        #[option(Run, "101hz", "how often speculations that ended are freed")]
        pub cleanrate: Duration,
        #[option(
            Compile,
            "",
            "only what runs in a container is traced: its id, the beginning of that, the name that Docker \
             has for it, the name or the uid of a pod, or the path of its control group"
        )]
        pub container: Vec<String>,
        #[option(Compile, "", "run scripts through the C preprocessor (-C)")]
        pub cpp: bool,
        #[option(Compile, "", "one more word for the preprocessor")]
        pub cppargs: Vec<String>,
        #[option(Compile, "", "print the headers that cpp reads (-H)")]
        pub cpphdrs: bool,
        #[option(Compile, "cpp", "the preprocessor")]
        pub cpppath: String,
        #[option(Run, "", "trace this CPU only")]
        pub cpu: Option<u64>,
        #[option(Run, "1s", "interval between two heartbeats of a CPU; 0: no heartbeats")]
        pub deadmaninterval: Duration,
        #[option(Run, "80", "percentage of the CPUs that tracing may take when heartbeats lag")]
        pub deadmanshare: u64,
        #[option(Run, "10s", "greatest lateness of a heartbeat")]
        pub deadmantimeout: Duration,
        #[option(Run, "30s", "longest time that dtrace may get no CPU")]
        pub deadmanuser: Duration,
        #[option(
            Compile,
            "",
            "a server of debug files, as in https://debuginfod.debian.net, or env for those of \
             DEBUGINFOD_URLS"
        )]
        pub debuginfod: Vec<String>,
        #[option(Compile, "", "missing operands are 0 or \"\"")]
        pub defaultargs: bool,
        #[option(Compile, "", "define a preprocessor name (-D)")]
        pub define: Vec<String>,
        #[option(Run, "", "allow destructive actions (-w)")]
        pub destructive: bool,
        #[option(Compile, "", "put a tag before each drop message")]
        pub droptags: bool,
        #[option(Run, "1m", "memory for associative arrays and thread-local arrays")]
        pub dynvarsize: Bytes,
        #[option(Compile, "", "a program may be empty")]
        pub empty: bool,
        #[option(Compile, "ascii", "characters of distributions")]
        pub encoding: Encoding,
        #[option(
            Compile,
            "",
            "print the first error in one line, with its tag, for programs",
            Maker("each error has its tag, and the command prints it")
        )]
        pub errtags: bool,
        #[option(
            Compile,
            "preinit",
            "where a -c process waits until tracing is on: at its exec, before or after constructors, \
             at main"
        )]
        pub evaltime: Moment,
        #[option(
            Run,
            "",
            "serve the events to whoever of this user connects to a socket, as in unix:PATH (--events)",
            Command("a program has the events itself, and dtrace -x events serves them")
        )]
        pub events: Option<String>,
        #[option(Run, "", "what aggregations have gained since the interval before, for sinks of events: the length of an interval")]
        pub every: Option<Duration>,
        #[option(
            Run,
            "yes",
            "hold a -c or -p process at its exit until its address map is read, where user symbols \
             are shown"
        )]
        pub exithold: bool,
        #[option(
            Dynamic,
            "few",
            "of each clause five errors are shown, then one line a second with their number, or all"
        )]
        pub faultlines: FaultLines,
        #[option(Run, "1000", "kernel functions attached to one by one at most")]
        pub fbtmax: u64,
        #[option(Run, "auto", "how kernel functions are attached to")]
        pub fbtmeans: FbtMeans,
        #[option(Dynamic, "", "indent by function entry and return (-F)")]
        pub flowindent: bool,
        #[option(
            Run,
            "none",
            "what is traced with the processes of pid probes: fork, those that they fork, with the \
             probes that there are; exec, the programs that these execute; all, both"
        )]
        pub follow: Follow,
        #[option(Run, "16384", "processes that are followed at a time")]
        pub followmax: u64,
        #[option(
            Run,
            "",
            "what a replay (--replay) begins with: the time since the capture began",
            Command("dtrace --replay FILE begins there")
        )]
        pub from: Option<Duration>,
        #[option(
            Run,
            "",
            "send the metrics of aggregations to a server of Graphite, as in carbon:2003, interval by interval (every)",
            Command("every gives a program what is sent, and dtrace -x graphite sends it")
        )]
        pub graphite: Option<String>,
        #[option(
            Run,
            "",
            "the guests in whose memory guestsym() looks for symbols: all that run under KVM, or that of a process"
        )]
        pub guest: Guests,
        #[option(Compile, "", "a directory of preprocessor headers (-I)")]
        pub incdir: Vec<String>,
        #[option(
            Run,
            "",
            "trace in the initramfs already (-A)",
            Command("dtrace -A installs what traces there")
        )]
        pub initramfs: bool,
        #[option(Run, "", "frames of ustack() for functions that the compiler has put inline")]
        pub inlines: bool,
        #[option(Run, "50", "frames of jstack(), at most 127")]
        pub jstackframes: u64,
        #[option(Run, "512", "functions of Python in jstack(), unless 0")]
        pub jstackstrsize: Bytes,
        #[option(
            Run,
            "auto",
            "how stacks of the kernel are walked: by its tables (orc), by its helper what cannot be; \
             check: by both, and what differs is marked"
        )]
        pub kstackwalk: KernelWalk,
        #[option(Compile, "", "a directory of D libraries (-L)")]
        pub libdir: Vec<String>,
        #[option(
            Run,
            "",
            "serve the metrics of aggregations to Prometheus at this address, as in 127.0.0.1:9464 or unix:PATH",
            Command("every gives a program what is served, and dtrace -x listen serves it")
        )]
        pub listen: Option<String>,
        #[option(Run, "", "frames of stack() and ustack() unless stackframes and ustackframes are set")]
        pub maxframes: Option<u64>,
        #[option(Compile, "", "no D libraries")]
        pub nolibs: bool,
        #[option(Run, "", "print addresses of processes as numbers, not as symbols")]
        pub noresolve: bool,
        #[option(Run, "1", "speculations at a time")]
        pub nspec: u64,
        #[option(
            Compile,
            "text",
            "format of the output (--format)",
            Command("a program has results as events, and dtrace -x oformat prints them so")
        )]
        pub oformat: OutputFormat,
        #[option(
            Dynamic,
            "1s",
            "how long a record may wait for an earlier one of a probe that is still firing"
        )]
        pub ordertimeout: Duration,
        #[option(
            Run,
            "",
            "send the metrics of aggregations to a server of OpenTelemetry, as in http://localhost:4318, interval by interval (every)",
            Command("every gives a program what is sent, and dtrace -x otlp sends it")
        )]
        pub otlp: Option<String>,
        #[option(
            Run,
            "",
            "send aggregations of stacks to a server of OpenTelemetry as profiles (v1development), as in \
             http://localhost:4318, interval by interval (every)",
            Command("every gives a program what is sent, and dtrace -x otlpprofiles sends it")
        )]
        pub otlpprofiles: Option<String>,
        #[option(Run, "1514", "bytes that pcap() records of a packet, 1 to 65535")]
        pub pcapsize: Bytes,
        #[option(Run, "auto", "how returns of functions of processes are probed")]
        pub pidreturn: Returns,
        #[option(
            Run,
            "",
            "memory in each -c process for the last records, which its core file then has \
             (--postmortem)"
        )]
        pub postmortem: Option<Bytes>,
        #[option(
            Compile,
            "",
            "which processes pid* means: process ids, name=, user=, cgroup=, with commas between"
        )]
        pub processes: Vec<String>,
        #[option(Compile, "", "record the process and thread ids, for sinks of events")]
        pub processids: bool,
        #[option(Compile, "", "text that could be a declaration is a probe")]
        pub pspec: bool,
        #[option(Dynamic, "", "print only what is traced (-q)")]
        pub quiet: bool,
        #[option(Dynamic, "", "do not say when a buffer was made smaller")]
        pub quietresize: bool,
        #[option(Dynamic, "", "print bytes as a dump, never as text")]
        pub rawbytes: bool,
        #[option(Run, "4k", "scratch memory of a clause: alloca() and copyin(), 8 to 256k")]
        pub scratchsize: Bytes,
        #[option(CommandLine, "", "set an environment variable of -c processes, as in NAME=value")]
        pub setenv: Vec<String>,
        #[option(
            Run,
            "",
            "slices of a timeline from one probe to another, by a value that both record: \
             io:::start(arg0)..io:::done(arg0)",
            Maker("dtrace --to FILE.pftrace writes timelines")
        )]
        pub slices: Vec<String>,
        #[option(
            Run,
            "10",
            "files that snap() writes at most",
            Command("dtrace --capture FILE -x bufpolicy=ring writes them")
        )]
        pub snapmax: u64,
        #[option(
            Run,
            "60s",
            "time between two files that snap() writes, at least",
            Command("dtrace --capture FILE -x bufpolicy=ring writes them")
        )]
        pub snaprate: Duration,
        #[option(Run, "32k", "memory for a speculation, each CPU")]
        pub specsize: Bytes,
        #[option(Run, "", "source file and line of addresses of processes: ustack(), uaddr(), %A")]
        pub srclines: bool,
        #[option(Run, "20", "frames of stack(), at most 127")]
        pub stackframes: Option<u64>,
        #[option(Dynamic, "14", "columns before a frame")]
        pub stackindent: u64,
        #[option(Run, "16m", "most memory of the kernel for stacks that are not yet read, from 32k")]
        pub stacksize: Bytes,
        #[option(Run, "yes", "name the functions of stacks; without it they are addresses")]
        pub stacksymbols: bool,
        #[option(Run, "1hz", "how often drops and the end are looked for")]
        pub statusrate: Duration,
        #[option(Compile, "a", "conformance of the preprocessor: s is traditional, the others are one (-X)")]
        pub stdc: Conformance,
        #[option(Run, "256", "longest string with its NUL, 1 to 32k")]
        pub strsize: Bytes,
        #[option(Dynamic, "1hz", "how often records leave the kernel")]
        pub switchrate: Duration,
        #[option(Run, "256m", "memory of the process that reads symbols of processes")]
        pub symmem: Bytes,
        #[option(
            Run,
            "2s",
            "CPU time for reading the symbols of a file or the map of a process; it may wait ten \
             times as long"
        )]
        pub symtimeout: Duration,
        #[option(Compile, "", "the directory of the system's D libraries")]
        pub syslibdir: Option<String>,
        #[option(Run, "yes", "merge the records of all CPUs by time (always on)")]
        pub temporal: bool,
        #[option(
            Run,
            "",
            "what a replay (--replay) ends with: the time since the capture began",
            Command("dtrace --replay FILE ends there")
        )]
        pub to: Option<Duration>,
        #[option(
            Compile,
            "0",
            "dump the tree of a program: 1 as it is read, 8 as it is checked and divided by if",
            Maker("dtrace -x tree prints it")
        )]
        pub tree: u64,
        #[option(
            Run,
            "file",
            "an address of a process without a symbol: where it is in the file (libc.so.6+0x1f40), or \
             the address itself"
        )]
        pub uaddrs: UserAddresses,
        #[option(Compile, "", "undefine a preprocessor name (-U)")]
        pub undef: Vec<String>,
        #[option(CommandLine, "", "unset an environment variable of -c processes, before setenv")]
        pub unsetenv: Vec<String>,
        #[option(
            Run,
            "64m",
            "most memory of the kernel for tables by which stacks of processes are walked; 0: by \
             frame pointers alone"
        )]
        pub unwindsize: Bytes,
        #[option(Run, "20", "frames of ustack(), at most 127")]
        pub ustackframes: Option<u64>,
        #[option(
            Compile,
            "",
            "print the intermediate form (-S)",
            Maker("dtrace -S prints it")
        )]
        pub verbose: bool,
        #[option(Compile, "", "version of D that a program is written for; newer names are not defined")]
        pub version: Option<Version>,
        #[option(Compile, "", "descriptions may match no probe (-Z)")]
        pub zdefs: bool,
    }
}

impl Default for Options {
    fn default() -> Options {
        defaults()
    }
}

/// Every option, by name.
pub const TABLE: &[Row] = ROWS;

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
    absent("grabanon", "dtrace -a claims what was traced at the boot"),
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
