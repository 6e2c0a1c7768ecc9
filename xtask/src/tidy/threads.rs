//! Threads of the library start by the crate `threads`, which keeps signals of the program away
//! from them.

/// How else a thread can be started.
const WORDS: [&str; 3] = ["thread::spawn(", "thread::Builder", "thread::{Builder"];

/// The breaches of one file. The command is a program of its own, with threads as it likes.
pub(super) fn breaches(name: &str, text: &str) -> Vec<String> {
    let is_library = !name.starts_with("crates/cli/") && !name.starts_with("crates/threads/");
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut breaches = Vec::new();
    for (number, line) in code.lines().enumerate().filter(|_| is_library) {
        let line = line.split("//").next().unwrap_or_default();
        if WORDS.iter().any(|word| line.contains(word)) {
            breaches.push(format!("{name}:{}: a thread of a library starts by `threads::spawn`", number + 1));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_a_library_that_could_get_signals_is_found() {
        for line in [
            "std::thread::spawn(run);",
            "let t = std::thread::Builder::new();",
            "use std::thread::{Builder};",
        ] {
            assert_eq!(breaches("crates/proc/src/x.rs", line).len(), 1, "{line}");
            assert!(breaches("crates/cli/src/x.rs", line).is_empty());
            assert!(breaches("crates/proc/src/x.rs", &format!("// {line}")).is_empty());
            assert!(breaches("crates/proc/src/x.rs", &format!("#[cfg(test)]\n{line}")).is_empty());
        }
        assert!(breaches("crates/proc/src/x.rs", "threads::spawn(\"x\", 1, run)").is_empty());
    }
}
