//! What a row of the tables has.

use probes::Attributes;

use crate::program::{Builtin, MemoryCall};

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
    /// `_enumerator[value]`: the name of the enumerator with that value, for D libraries.
    EnumeratorName,
}

/// A number or string that is known when the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Nanoseconds from 1970 to the boot.
    Boottime,
    /// Bytes of a page.
    Pagesize,
    /// Nanoseconds between two ticks of the kernel.
    Tick,
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
    Guestsym,
    System,
    Freopen,
    Pcap,
    Ftruncate,
    Setopt,
    Snap,
    Raise,
    Return,
    Stop,
    Chill,
    Speculate,
    Commit,
    Discard,
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
    /// A subroutine that cannot exist on Linux, with the reason.
    SubroutineNotOnLinux(&'static str),
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
            FunctionKind::Subroutine(_) | FunctionKind::SubroutineNotOnLinux(_) => "function",
            FunctionKind::Action(_) | FunctionKind::ActionNotOnLinux(_) => "tracing function",
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
