//! The machine is passed, never asked for: what compiles a program asks a `System`. Only the crate
//! `system`, and what runs programs on the running machine, reach for its state.

/// How state of the running machine is reached.
const WORDS: [&str; 12] = [
    "KernelBtf::running",
    "Features::running",
    "bpf_sys::tracefs",
    "bpf_sys::online_cpus",
    "bpf_sys::possible_cpus",
    "bpf_sys::cpu_numbers_end",
    "bpf_sys::modules(",
    "TracepointTrial::new",
    "symbols::Kernel::new",
    "KernelSymbols::default",
    "/proc/kallsyms",
    "/sys/kernel/btf",
];

/// The crates that compile, list and trace.
const CRATES: [&str; 9] =
    ["check", "lower", "dif", "bpf-codegen", "probes", "providers", "consumer", "dtrace", "cli"];

/// Files that use such a word, with the reason.
const EXCEPT: [(&str, &str, &str); 4] = [
    (
        "crates/providers/src/process/kernel.rs",
        "Features::running",
        "probes at nops of processes, which only the live machine has",
    ),
    (
        "crates/dtrace/src/load/process_ids.rs",
        "KernelBtf::running",
        "it asks the running kernel for processes",
    ),
    ("crates/dtrace/src/load.rs", "bpf_sys::cpu_numbers_end", "a map of a session, which runs here"),
    ("crates/dtrace/src/options/table.rs", "/sys/kernel/btf", "the text of a message"),
];

/// The breaches of one file.
pub(super) fn breaches(name: &str, text: &str) -> Vec<String> {
    if !CRATES.iter().any(|krate| name.starts_with(&format!("crates/{krate}/src/")))
        || name.ends_with("tests.rs")
    {
        return Vec::new();
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut breaches = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default();
        for word in WORDS.into_iter().filter(|word| line.contains(word)) {
            if !EXCEPT.iter().any(|(file, of, _)| *file == name && *of == word) {
                breaches.push(format!("{name}:{}: {word}: ask the `System` that is passed", number + 1));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_the_running_machine_is_only_of_the_crate_that_says_so() {
        let text = "let f = Features::running();\n// Features::running()\n#[cfg(test)] mod tests { Features::running() }";
        let found = breaches("crates/dtrace/src/load.rs", text);
        assert_eq!(
            found,
            ["crates/dtrace/src/load.rs:1: Features::running: ask the `System` that is passed"]
        );
        assert!(breaches("crates/system/src/lib.rs", text).is_empty());
        assert!(breaches("crates/providers/src/process/kernel.rs", text).is_empty());
        assert!(breaches("crates/providers/src/registry/tests.rs", text).is_empty());
    }

    /// An exception that nothing needs hides the next breach.
    #[test]
    fn every_exception_is_needed() {
        for (file, word, _) in EXCEPT {
            let text = std::fs::read_to_string(crate::root().join(file)).unwrap();
            assert!(text.contains(word), "{file}: {word}");
        }
    }
}
