//! The types of options: sizes, words.

use std::fmt;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Present is set; `yes no enable disable true false on off set unset`.
    Flag,
    /// Bytes, with `k m g t`.
    Size,
    /// An interval, with `ns us ms s m h d hz`.
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

/// A size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// So many KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 10))
    }

    /// So many MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 20))
    }
}

/// As users write it: `64k`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b != 0 && b % (1 << 30) == 0 => write!(f, "{}g", b >> 30),
            b if b != 0 && b % (1 << 20) == 0 => write!(f, "{}m", b >> 20),
            b if b != 0 && b % (1 << 10) == 0 => write!(f, "{}k", b >> 10),
            b => write!(f, "{b}"),
        }
    }
}

/// `bufresize`: what is done when the kernel has not the memory for buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufResize {
    /// They are halved until they fit.
    #[default]
    Auto,
    /// It is an error.
    Manual,
}

/// `capture`: what a capture of everything has beyond the arguments of each firing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    /// The stack of the kernel.
    pub stack: bool,
    /// That of the process.
    pub ustack: bool,
    /// The members of `curpsinfo` and `curlwpsinfo`.
    pub psinfo: bool,
}

/// `faultlines`: which errors of a clause are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultLines {
    /// The first five, then a line a second with their number.
    #[default]
    Few,
    /// All.
    All,
}

/// `fbtmeans`: how functions of the kernel are attached to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FbtMeans {
    /// As this kernel does it best.
    #[default]
    Auto,
    /// All by one link (`kprobe_multi`).
    Multi,
    /// Each by a trampoline.
    Fentry,
    /// Each by a kprobe.
    Kprobe,
}

/// `kstackwalk`: how stacks of the kernel are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelWalk {
    /// By the kernel's tables where it has them, else by its helper.
    #[default]
    Auto,
    /// By its helper.
    Helper,
    /// By its tables.
    Orc,
    /// By both; what differs is marked.
    Check,
}

/// `oformat`: the format in which the command prints results. A program that uses the library
/// chooses a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// DTrace's text.
    #[default]
    Text,
    /// Objects of JSON, one a line.
    Json,
    /// Aggregations as tables of comma-separated values.
    Csv,
}

/// `stdc`: conformance of the preprocessor, as `cc -X` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conformance {
    /// As `-Xa`.
    #[default]
    A,
    /// As `-Xc`; no difference.
    C,
    /// Traditional.
    S,
    /// As `-Xt`; no difference.
    T,
}

/// `uaddrs`: how an address of a process is shown that has no symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserAddresses {
    /// Where it is in its file.
    #[default]
    File,
    /// As a number.
    Address,
}
