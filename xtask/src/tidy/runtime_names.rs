//! Language runtimes are known only where their rows are. What follows their frames, stores their
//! names and shows them knows "frames of a runtime".

/// What a runtime or its language is called, in lower case.
const WORDS: [&str; 1] = ["python"];

/// Where they are known.
const ROWS: [&str; 2] = ["crates/runtimes/src/", "crates/bpf-codegen/src/routines/runtimes"];

/// Files that use such a word for something else, with the reason.
const EXCEPT: [(&str, &str); 3] = [
    ("crates/dtrace/src/options/table.rs", "what users read of jstackstrsize"),
    ("crates/plane/src/control.rs", "what users read of a drop"),
    ("crates/providers/src/usdt/mod.rs", "a program with probes of its own"),
];

/// The breaches of one file.
pub(super) fn breaches(name: &str, text: &str) -> Vec<String> {
    if ROWS.iter().any(|row| name.starts_with(row)) || EXCEPT.iter().any(|(file, _)| *file == name) {
        return Vec::new();
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut breaches = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default().to_lowercase();
        for word in WORDS.into_iter().filter(|word| line.contains(word)) {
            breaches.push(format!("{name}:{}: the name of a language runtime: {word}", number + 1));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_found_outside_of_its_row_and_of_tests() {
        let text = "a\npub python: bool,\n// python\n#[cfg(test)]\nmod tests { python }\n";
        assert_eq!(
            breaches("crates/consumer/src/a.rs", text),
            ["crates/consumer/src/a.rs:2: the name of a language runtime: python"]
        );
        assert!(breaches("crates/runtimes/src/cpython_3_11.rs", text).is_empty());
        assert!(breaches("crates/bpf-codegen/src/routines/runtimes.rs", text).is_empty());
        assert!(breaches("crates/dtrace/src/options/table.rs", text).is_empty());
    }
}
