//! The names of D and of the command with their descriptions, from which the manual page is
//! generated.
//!
//! Each table stands where the code that obeys it stands; this module only gathers them, so that
//! the command, which knows nothing under this library, can print them. The words that the D
//! libraries define have their table here.

pub use check::program::MemoryCall;
pub use check::tables::is_destructive;
pub use check::tables::{ActionKind, Aggregating, CpuFact, Fact, Subroutine};
pub use check::tables::{FUNCTIONS, FunctionKind, FunctionRow, VARIABLES, VariableKind, VariableRow};
pub use plane::builtin::{Builtin, IntBuiltin, StrBuiltin};
pub use plane::control::{DropKind, DropWords};
pub use plane::desc::FaultKind;
pub use plane::format::MEANINGS;
pub use providers::{MANUALS, Manual};

/// Macro variables that are not operands: name without `$`, what it is.
pub const MACROS: &[(&str, &str)] = &syntax::MacroEnv::NAMES;

/// A variable that the D libraries define as an inline.
#[derive(Clone, Copy, Debug)]
pub struct LibraryWord {
    /// Its name, with the index where it has one.
    pub name: &'static str,
    /// Its type.
    pub ty: &'static str,
    /// Its description, one line.
    pub help: &'static str,
}

const fn word(name: &'static str, ty: &'static str, help: &'static str) -> LibraryWord {
    LibraryWord { name, ty, help }
}

/// Every variable of the D libraries that scripts may use; numbers with a name are not among them.
pub const LIBRARY_WORDS: &[LibraryWord] = &[
    word("cgroupname", "string", "name of the process's control group"),
    word("chip", "chipid_t", "package of the CPU"),
    word("containerid", "string", "id of the container; empty outside of containers"),
    word("curcpu", "cpuinfo_t *", "the CPU"),
    word("curlwpsinfo", "lwpsinfo_t *", "the thread"),
    word("curpsinfo", "psinfo_t *", "the process"),
    word("cwd", "string", "working directory of the process"),
    word("execargs", "string", "command line of the process"),
    word("fds[fd]", "fileinfo_t", "the open file of a descriptor of the process"),
    word("guestname", "string", "name of the virtual machine, from the command line of its QEMU"),
    word("hp_avenrun[n]", "uint64_t", "load average of 1, 5 or 15 minutes, times 65536"),
    word("kvm_exit_name[isa, reason]", "string", "name of the reason of an exit of kvm:::exit"),
    word("lgrp", "lgrp_id_t", "NUMA node of the CPU"),
    word(
        "podname",
        "string",
        "the Kubernetes pod, NAMESPACE/NAME, with ? for what is not known; empty outside",
    ),
    word("poduid", "string", "uid of the Kubernetes pod; empty outside of pods"),
    word("pset", "psetid_t", "processor set of the CPU"),
    word("root", "string", "root directory of the process"),
    word("tcp_state_string[state]", "string", "name of a state of a TCP connection"),
    word("vmregs[register]", "uint64_t", "a register of the virtual machine whose processor the thread runs"),
    word("zonename", "string", "name of the container; global outside of containers"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// `inline TYPE NAME` of a line of a library, with `[` where it takes an index.
    fn inline(line: &str) -> Option<(String, String)> {
        let (left, _) = line.strip_prefix("inline ")?.split_once(" =")?;
        let left = left.split('[').next()?;
        let at = left.rfind([' ', '*'])? + 1;
        Some((left[at..].into(), left[..at].trim().into()))
    }

    #[test]
    fn the_words_of_the_libraries_are_in_the_reference() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lib");
        let mut found = Vec::new();
        for file in std::fs::read_dir(dir).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            found.extend(text.lines().filter_map(inline));
        }
        found.sort();
        found.dedup();
        for word in LIBRARY_WORDS {
            let name = word.name.split('[').next().unwrap_or_default();
            assert!(found.contains(&(name.into(), word.ty.into())), "{name}");
        }
        let is_constant = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase());
        let known = |name: &str| {
            LIBRARY_WORDS.iter().any(|w| w.name.split('[').next() == Some(name))
                || check::tables::function(name).is_some()
        };
        for (name, ty) in &found {
            let private = name.starts_with('_') || is_constant(name);
            assert!(private || known(name), "inline {ty} {name} is not in the reference");
        }
    }
}
