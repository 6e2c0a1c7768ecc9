//! Built-in variables: what a program can ask of a firing and of the thread in which it happens.
//!
//! The checker gives them names and types in D, the executors of the intermediate form give them
//! values; all take them from here.

use std::fmt;

/// Maximum number of arguments of a probe.
pub const ARGS: u8 = 32;

/// Number of `uregs[]`: the saved registers in the kernel's order, then DS ES FS GS and the trap
/// number.
pub const UREGS: u8 = 26;

/// A built-in variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Builtin {
    /// An integer or an address.
    Int(IntBuiltin),
    /// A string.
    Str(StrBuiltin),
}

/// Integer built-in variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntBuiltin {
    /// `arg0` … `arg9`, raw. Further arguments, up to [`ARGS`], are reachable only by `args[]`.
    Arg(u8),
    /// Process id in the tracer's pid namespace.
    Pid,
    /// Parent's process id, likewise.
    Ppid,
    /// Thread id, likewise.
    Tid,
    /// Real user id.
    Uid,
    /// Real group id.
    Gid,
    /// CPU on which the probe fired.
    Cpu,
    /// Monotonic nanoseconds. Constant within a clause.
    Timestamp,
    /// Nanoseconds since 1970. Constant within a clause.
    Walltimestamp,
    /// Error of the returning system call, otherwise 0.
    Errno,
    /// Id of the enabled probe.
    Epid,
    /// Id of the probe, as `dtrace -l` shows it.
    ProbeId,
    /// Number of kernel frames.
    StackDepth,
    /// Number of user frames.
    UstackDepth,
    /// Return address of the probe's function in the kernel. 0 when there is no such frame.
    Caller,
    /// Likewise in the current process.
    Ucaller,
    /// Context level: 0 thread, 1 soft interrupt, 2 hard interrupt, 3 NMI.
    Ipl,
    /// Nanoseconds of CPU time of the thread, less those in the session's programs. Constant within
    /// a firing.
    Vtimestamp,
    /// 1 when the current thread is a user thread, 0 for a kernel thread.
    UserThread,
    /// Saved user register `uregs[n]`, below [`UREGS`].
    Ureg(u8),
    /// Address of the kernel's `task_struct` of the current thread.
    CurThread,
    /// The process id that follows `ProbeProv` in the name of the provider; 0 if none does.
    ProviderPid,
}

/// String built-in variables.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StrBuiltin {
    /// At most 15 characters.
    Execname,
    /// The name of the provider without the process id of a family of processes.
    ProbeProv,
    ProbeMod,
    ProbeFunc,
    ProbeName,
}

impl IntBuiltin {
    /// Those without a number.
    const PLAIN: [IntBuiltin; 20] = [
        IntBuiltin::Pid,
        IntBuiltin::Ppid,
        IntBuiltin::Tid,
        IntBuiltin::Uid,
        IntBuiltin::Gid,
        IntBuiltin::Cpu,
        IntBuiltin::Timestamp,
        IntBuiltin::Walltimestamp,
        IntBuiltin::Errno,
        IntBuiltin::Epid,
        IntBuiltin::ProbeId,
        IntBuiltin::StackDepth,
        IntBuiltin::UstackDepth,
        IntBuiltin::Caller,
        IntBuiltin::Ucaller,
        IntBuiltin::Ipl,
        IntBuiltin::Vtimestamp,
        IntBuiltin::UserThread,
        IntBuiltin::CurThread,
        IntBuiltin::ProviderPid,
    ];

    fn word(self) -> &'static str {
        match self {
            IntBuiltin::Arg(_) => "arg",
            IntBuiltin::Ureg(_) => "ureg",
            IntBuiltin::Pid => "pid",
            IntBuiltin::Ppid => "ppid",
            IntBuiltin::Tid => "tid",
            IntBuiltin::Uid => "uid",
            IntBuiltin::Gid => "gid",
            IntBuiltin::Cpu => "cpu",
            IntBuiltin::Timestamp => "timestamp",
            IntBuiltin::Walltimestamp => "walltimestamp",
            IntBuiltin::Errno => "errno",
            IntBuiltin::Epid => "epid",
            IntBuiltin::ProbeId => "id",
            IntBuiltin::StackDepth => "stackdepth",
            IntBuiltin::UstackDepth => "ustackdepth",
            IntBuiltin::Caller => "caller",
            IntBuiltin::Ucaller => "ucaller",
            IntBuiltin::Ipl => "ipl",
            IntBuiltin::Vtimestamp => "vtimestamp",
            IntBuiltin::UserThread => "userthread",
            IntBuiltin::CurThread => "curthread",
            IntBuiltin::ProviderPid => "providerpid",
        }
    }
}

impl StrBuiltin {
    const ALL: [StrBuiltin; 5] = [
        StrBuiltin::Execname,
        StrBuiltin::ProbeProv,
        StrBuiltin::ProbeMod,
        StrBuiltin::ProbeFunc,
        StrBuiltin::ProbeName,
    ];

    fn word(self) -> &'static str {
        match self {
            StrBuiltin::Execname => "execname",
            StrBuiltin::ProbeProv => "probeprov",
            StrBuiltin::ProbeMod => "probemod",
            StrBuiltin::ProbeFunc => "probefunc",
            StrBuiltin::ProbeName => "probename",
        }
    }
}

impl Builtin {
    /// The built-in variable that is displayed as `word`.
    pub fn named(word: &str) -> Option<Builtin> {
        let numbers = (0..ARGS).map(IntBuiltin::Arg).chain((0..UREGS).map(IntBuiltin::Ureg));
        let ints = IntBuiltin::PLAIN.into_iter().chain(numbers).map(Builtin::Int);
        ints.chain(StrBuiltin::ALL.map(Builtin::Str)).find(|builtin| builtin.to_string() == word)
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Builtin::Int(builtin) => builtin.fmt(f),
            Builtin::Str(builtin) => builtin.fmt(f),
        }
    }
}

impl fmt::Display for IntBuiltin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            IntBuiltin::Arg(n) | IntBuiltin::Ureg(n) => n.fmt(f),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for StrBuiltin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_built_in_variables_are_read_as_they_are_displayed() {
        let numbered = [IntBuiltin::Arg(0), IntBuiltin::Arg(31), IntBuiltin::Ureg(25)];
        let ints = IntBuiltin::PLAIN.into_iter().chain(numbered).map(Builtin::Int);
        for builtin in ints.chain(StrBuiltin::ALL.map(Builtin::Str)) {
            assert_eq!(Builtin::named(&builtin.to_string()), Some(builtin));
        }
        for word in ["arg", "arg32", "arg01", "ureg26", "threadname", ""] {
            assert_eq!(Builtin::named(word), None, "{word}");
        }
    }
}
