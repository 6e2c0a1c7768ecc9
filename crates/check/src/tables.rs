//! The words of D: built-in variables, functions, aggregating functions.
//!
//! One row a word; nothing else in the compiler knows a name of the language. A word that is D but is not compiled yet
//! has its row too, so that a script gets "not supported yet" with a place instead of "undefined". Adding a built-in is
//! a row here and an arm in `lower`.

mod functions;
mod variables;

use probes::Attributes;

use crate::program::{Builtin, MemoryCall};
pub use functions::FUNCTIONS;
pub use variables::VARIABLES;

/// What a built-in variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// Compiled.
    Builtin(Builtin),
    /// The constant zero, of the row's type.
    Null,
    /// `uregs[]`: the saved registers of the process.
    Registers,
    /// `args[]`: arguments of the probe, as what they are.
    TypedArgs,
    /// D elsewhere, and without a meaning on Linux: why.
    NotOnLinux(&'static str),
    /// What is known when the session begins; for D libraries.
    Fact(Fact),
    /// The same of each CPU: a table that is indexed by CPU.
    CpuFact(CpuFact),
}

/// A number or string that is known when the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Nanoseconds from boot to 1970's.
    Boottime,
    /// Bytes of a page.
    Pagesize,
    /// Inode of the tracer's pid namespace; 0 for the initial one.
    PidNamespace,
    /// The machine, a string.
    ProcessorType,
    /// What it computes floating point with, a string.
    FpuTypes,
}

/// A number that is known of each CPU when the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuFact {
    /// The package it is in.
    Chip,
    /// The NUMA node it is in.
    Node,
    /// Its clock in MHz.
    Clock,
}

/// A built-in variable.
#[derive(Clone, Copy, Debug)]
pub struct VariableRow {
    /// The word.
    pub name: &'static str,
    /// Its type; where it is none of D's own, a script that names the word makes us look at the kernel's.
    pub ty: &'static str,
    /// What it is.
    pub kind: VariableKind,
    /// What it promises.
    pub attributes: Attributes,
    /// What its value is, one line for the manual page.
    pub help: &'static str,
}

/// Registers that `uregs[]` has.
pub const UREGS: u8 = 26;

/// Functions that give a value.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subroutine {
    Copyinstr,
    Strlen,
    Strtok,
    /// An inline of the libraries, of the same name, which takes the arguments.
    Library,
    /// Takes, copies or writes memory.
    Memory(MemoryCall),
    /// One that is nothing but a call, by its name in the intermediate form.
    Call(&'static str),
    /// An address and a length in scratch memory, for `printm()`.
    Memref,
}

/// Actions.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    Print,
    Printm,
    Tracemem,
    Trace,
    Printf,
    Printa,
    Exit,
    Clear,
    Trunc,
    Normalize,
    Denormalize,
    Stack,
    Ustack,
    Jstack,
    Sym,
    Func,
    Mod,
    Usym,
    Ufunc,
    Umod,
    Uaddr,
    System,
    Freopen,
    Ftruncate,
    Setopt,
    Raise,
    Return,
    Stop,
    Chill,
}

/// Aggregating functions.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregating {
    Count,
    Sum,
    Min,
    Max,
    Avg,
    Stddev,
    Quantize,
    Lquantize,
    Llquantize,
}

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Gives a value.
    Subroutine(Subroutine),
    /// Is a statement.
    Action(ActionKind),
    /// Stands right of `@a =`.
    Aggregating(Aggregating),
    /// Gives a value; not compiled yet.
    UnsupportedSubroutine,
    /// Gives a value that Linux has nothing for: why.
    SubroutineNotOnLinux(&'static str),
    /// Is a statement; not compiled yet.
    UnsupportedAction,
    /// Is a statement that Linux gives no means for: why.
    ActionNotOnLinux(&'static str),
}

impl FunctionKind {
    /// DTrace's name for the kind.
    pub fn word(self) -> &'static str {
        match self {
            FunctionKind::Subroutine(_)
            | FunctionKind::UnsupportedSubroutine
            | FunctionKind::SubroutineNotOnLinux(_) => "function",
            FunctionKind::Action(_) | FunctionKind::UnsupportedAction | FunctionKind::ActionNotOnLinux(_) => {
                "tracing function"
            }
            FunctionKind::Aggregating(_) => "aggregating function",
        }
    }
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRow {
    /// The word.
    pub name: &'static str,
    /// Return type.
    pub ret: &'static str,
    /// Parameter types: `@` any, `[t]` optional, `...` any number.
    pub params: &'static str,
    /// What it is.
    pub kind: FunctionKind,
    /// What it promises.
    pub attributes: Attributes,
    /// Its arguments as the manual page writes them: `[x]` is optional, `...` any number.
    pub usage: &'static str,
    /// What it does or gives, one line for the manual page.
    pub help: &'static str,
}

impl FunctionRow {
    /// An inline of the libraries.
    pub(crate) fn is_library(&self) -> bool {
        self.kind == FunctionKind::Subroutine(Subroutine::Library)
    }
}

/// Providers that scripts for other systems name and that are not here yet; a description of one is told so. `pid` goes
/// with a number.
const UNSUPPORTED_PROVIDERS: &[&str] = &[
    "cpc",
    "fpuinfo",
    "fsinfo",
    "io",
    "ip",
    "kinst",
    "lockstat",
    "mib",
    "nfsv3",
    "nfsv4",
    "pid",
    "plockstat",
    "proc",
    "rawtp",
    "sched",
    "sctp",
    "sdt",
    "sysinfo",
    "tcp",
    "udp",
    "udplite",
    "vminfo",
];

/// True for the name of a provider that DTrace has elsewhere and not here yet.
pub fn is_unsupported_provider(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit());
    UNSUPPORTED_PROVIDERS.contains(&name) || plain == "pid"
}

/// Functions that change what they look at: only where the user allows it (`-w`).
const DESTRUCTIVE: &[&str] = &[
    "breakpoint",
    "chill",
    "copyout",
    "copyoutstr",
    "freopen",
    "panic",
    "raise",
    "return",
    "stop",
    "system",
];

/// True for a function that needs `-w`.
pub fn is_destructive(name: &str) -> bool {
    DESTRUCTIVE.contains(&name)
}

/// The variable of a name.
pub fn variable(name: &str) -> Option<&'static VariableRow> {
    VARIABLES.iter().find(|r| r.name == name)
}

/// The function of a name.
pub fn function(name: &str) -> Option<&'static FunctionRow> {
    FUNCTIONS.iter().find(|r| r.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_once() {
        let mut words: Vec<&str> =
            VARIABLES.iter().map(|r| r.name).chain(FUNCTIONS.iter().map(|r| r.name)).collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
    }

    #[test]
    fn every_row_has_a_description_of_one_line() {
        let all =
            VARIABLES.iter().map(|r| (r.name, r.help)).chain(FUNCTIONS.iter().map(|r| (r.name, r.help)));
        for (name, help) in all {
            assert!(!help.is_empty() && help.len() <= 100 && !help.ends_with('.'), "{name}: {help}");
        }
        for row in FUNCTIONS.iter().filter(|r| !r.usage.is_empty()) {
            assert!(!row.params.is_empty(), "{} takes nothing", row.name);
        }
    }

    #[test]
    fn destructive_words_are_functions() {
        assert!(DESTRUCTIVE.is_sorted());
        assert!(DESTRUCTIVE.iter().all(|name| function(name).is_some()));
        assert!(!is_destructive("ftruncate") && !is_destructive("exit"));
    }

    #[test]
    fn providers_of_other_systems_are_known() {
        assert!(UNSUPPORTED_PROVIDERS.is_sorted());
        for name in ["io", "pid", "pid123", "nfsv3"] {
            assert!(is_unsupported_provider(name), "{name}");
        }
        for name in ["syscall", "fbt1", "", "sycall"] {
            assert!(!is_unsupported_provider(name), "{name}");
        }
    }
}
