//! The identifiers of D: built-in variables, functions, aggregating functions.
//!
//! There is one row per identifier, and nothing else in the compiler knows a name of the language.
//! An identifier of D that is not supported yet has a row too, so that a script gets "not supported
//! yet" with a position instead of "undefined". A new built-in needs a row here and an arm in
//! `lower`.

mod functions;
mod variables;

use probes::Attributes;

use crate::program::{Builtin, MemoryCall};
pub use functions::FUNCTIONS;
pub use variables::VARIABLES;

/// The kind of a built-in variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// A variable that the compiler supports.
    Builtin(Builtin),
    /// The constant zero, of the row's type.
    Null,
    /// `uregs[]`: the saved registers of the process.
    Registers,
    /// `args[]`: typed arguments of the probe.
    TypedArgs,
    /// A variable of other systems that has no meaning on Linux, with the reason.
    NotOnLinux(&'static str),
    /// A fact that is known when the session begins, for D libraries.
    Fact(Fact),
    /// A fact about each CPU, in a table indexed by CPU.
    CpuFact(CpuFact),
}

/// A number or string that is known when the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Nanoseconds from 1970 to the boot.
    Boottime,
    /// Bytes of a page.
    Pagesize,
    /// Inode of the tracer's pid namespace; 0 for the initial one.
    PidNamespace,
    /// The machine name, a string.
    ProcessorType,
    /// The type of the floating-point unit, a string.
    FpuTypes,
}

/// A number that is known of each CPU when the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuFact {
    /// The package of the CPU.
    Chip,
    /// The NUMA node of the CPU.
    Node,
    /// The clock of the CPU in MHz.
    Clock,
}

/// A built-in variable.
#[derive(Clone, Copy, Debug)]
pub struct VariableRow {
    /// The name.
    pub name: &'static str,
    /// Its type. If the type is not one of D's own, using the name opens the kernel's types.
    pub ty: &'static str,
    /// Its kind.
    pub kind: VariableKind,
    /// Its stability attributes.
    pub attributes: Attributes,
    /// Its value, as one line for the manual page.
    pub help: &'static str,
}

/// Number of registers in `uregs[]`.
pub const UREGS: u8 = 26;

/// Functions with a value.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subroutine {
    Copyinstr,
    Strlen,
    Strtok,
    /// An inline of the libraries with the same name, which takes the arguments.
    Library,
    /// Allocates, copies or writes memory.
    Memory(MemoryCall),
    /// A plain call of the subroutine with this name in DIF.
    Call(&'static str),
    /// Stores an address and a length in scratch memory, for `printm()`.
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

/// The kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// A subroutine: it has a value.
    Subroutine(Subroutine),
    /// An action: it is a statement.
    Action(ActionKind),
    /// An aggregating function: the right operand of `@a =`.
    Aggregating(Aggregating),
    /// A subroutine that is not supported yet.
    UnsupportedSubroutine,
    /// A subroutine that cannot exist on Linux, with the reason.
    SubroutineNotOnLinux(&'static str),
    /// An action that is not supported yet.
    UnsupportedAction,
    /// An action that cannot exist on Linux, with the reason.
    ActionNotOnLinux(&'static str),
}

impl FunctionKind {
    /// True for a function that can be called in this version on Linux.
    pub fn is_supported(self) -> bool {
        matches!(self, FunctionKind::Subroutine(_) | FunctionKind::Action(_) | FunctionKind::Aggregating(_))
    }

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
    /// The name.
    pub name: &'static str,
    /// Return type.
    pub ret: &'static str,
    /// Parameter types: `@` is any type, `[t]` is optional, `...` is any number.
    pub params: &'static str,
    /// Its kind.
    pub kind: FunctionKind,
    /// Its stability attributes.
    pub attributes: Attributes,
    /// Its arguments as the manual page writes them: `[x]` is optional, `...` any number.
    pub usage: &'static str,
    /// Its effect or result, as one line for the manual page.
    pub help: &'static str,
}

impl FunctionRow {
    /// True for an inline of the libraries.
    pub(crate) fn is_library(&self) -> bool {
        self.kind == FunctionKind::Subroutine(Subroutine::Library)
    }
}

/// Providers of other systems that are not supported yet; a description that names one gets this
/// message. The name `pid` is followed by a number.
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

/// True for the name of a provider that DTrace has on other systems and that is not supported yet.
pub fn is_unsupported_provider(name: &str) -> bool {
    unsupported_provider(name).is_some()
}

/// The name of a provider that DTrace has on other systems and that is not supported yet: `pid` for `pid123`.
pub fn unsupported_provider(name: &str) -> Option<&str> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match UNSUPPORTED_PROVIDERS.contains(&name) {
        true => Some(name),
        false => (plain == "pid").then_some(plain),
    }
}

/// Functions with an effect on the traced system. They require `-w`.
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
    fn each_identifier_has_one_row() {
        let mut words: Vec<&str> =
            VARIABLES.iter().map(|r| r.name).chain(FUNCTIONS.iter().map(|r| r.name)).collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
    }

    #[test]
    fn every_row_has_a_one_line_description() {
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
    fn the_destructive_table_names_existing_functions() {
        assert!(DESTRUCTIVE.is_sorted());
        assert!(DESTRUCTIVE.iter().all(|name| function(name).is_some()));
        assert!(!is_destructive("ftruncate") && !is_destructive("exit"));
    }

    #[test]
    fn unsupported_providers_of_other_systems_are_recognised() {
        assert!(UNSUPPORTED_PROVIDERS.is_sorted());
        for (name, shown) in [("io", "io"), ("pid", "pid"), ("pid123", "pid"), ("nfsv3", "nfsv3")] {
            assert_eq!(unsupported_provider(name), Some(shown));
        }
        for name in ["syscall", "fbt1", "", "sycall"] {
            assert_eq!(unsupported_provider(name), None, "{name}");
        }
    }
}
