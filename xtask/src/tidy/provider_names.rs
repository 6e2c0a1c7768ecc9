//! Names of providers stand only in the crate `providers`. What differs between providers elsewhere
//! is a fact that a provider states about itself.

/// The names, as string literals.
const NAMES: [&str; 8] =
    ["\"syscall\"", "\"fbt\"", "\"rawfbt\"", "\"profile\"", "\"cpc\"", "\"rawtp\"", "\"sdt\"", "\"bio\""];

/// Files that use such a word for something else, with the reason.
const EXCEPT: [(&str, &str, &str); 5] = [
    ("crates/bpf-sys/src/arch/x86_64.rs", "\"syscall\"", "the instruction"),
    ("crates/check/src/hints.rs", "\"profile\"", "a word of bpftrace"),
    ("crates/probes/src/catalog.rs", "\"fbt\"", "the catalog of tests"),
    ("crates/probes/src/catalog.rs", "\"rawfbt\"", "the catalog of tests"),
    ("crates/probes/src/catalog.rs", "\"syscall\"", "the catalog of tests"),
];

/// The breaches of one file.
pub(super) fn breaches(name: &str, text: &str) -> Vec<String> {
    if name.starts_with("crates/providers/") {
        return Vec::new();
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut breaches = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default();
        for word in NAMES.into_iter().filter(|word| line.contains(word)) {
            if !EXCEPT.iter().any(|(file, of, _)| *file == name && *of == word) {
                breaches.push(format!("{name}:{}: the name of a provider: {word}", number + 1));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_provider_is_found_outside_of_providers_and_tests() {
        let text = "a\nif provider == \"fbt\" {}\n// \"sdt\"\n#[cfg(test)]\nmod tests { \"sdt\" }\n";
        assert_eq!(
            breaches("crates/check/src/a.rs", text),
            ["crates/check/src/a.rs:2: the name of a provider: \"fbt\""]
        );
        assert!(breaches("crates/providers/src/fbt/mod.rs", text).is_empty());
        assert!(breaches("crates/bpf-sys/src/arch/x86_64.rs", "\"syscall\",\n").is_empty());
    }
}
