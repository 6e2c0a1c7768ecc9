//! The identifiers of D: built-in variables, functions, aggregating functions.
//!
//! There is one row per identifier, and nothing else in the compiler knows a name of the language.
//! An identifier of D that is not supported yet has a row too, so that a script gets "not supported
//! yet" with a position instead of "undefined". What a built-in variable is asks
//! [`plane::builtin`].

mod functions;
mod rows;
mod variables;

pub use functions::FUNCTIONS;
pub use rows::{
    ActionKind, Aggregating, CpuFact, Fact, FunctionKind, FunctionRow, Subroutine, VariableKind, VariableRow,
};
pub use variables::VARIABLES;

/// Providers of other systems that are not supported yet; a description that names one gets this
/// message.
const UNSUPPORTED_PROVIDERS: &[&str] = &["kinst", "sctp", "udplite"];

/// The name of a provider that DTrace has on other systems and that is not supported yet.
pub fn unsupported_provider(name: &str) -> Option<&str> {
    UNSUPPORTED_PROVIDERS.contains(&name).then_some(name)
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
        for name in ["kinst", "sctp"] {
            assert_eq!(unsupported_provider(name), Some(name));
        }
        for name in ["syscall", "fbt1", "pid123", "", "sycall"] {
            assert_eq!(unsupported_provider(name), None, "{name}");
        }
    }
}
