//! The names that a note gives, as descriptions have them.
//!
//! What a note says is a traced process's, and may not become a name that means something else. The
//! process id follows the provider's name, so a note cannot name a provider of the system
//! (`syscall`), and the name may not end with a digit, or it could be that of another process: `v2`
//! in process 34 is `v2_34`.

/// The bytes of the longest name of a provider: ten digits and a final NUL fit into its field.
pub const MAX_PROVIDER: usize = 64 - 10 - 1;

/// The bytes of the longest name of a probe.
pub const MAX_NAME: usize = 63;

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// The name of a provider without the process id. `None` if descriptions cannot have it.
pub fn provider_name(text: &str) -> Option<String> {
    let mut name = text.to_owned();
    if name.ends_with(|c: char| c.is_ascii_digit()) {
        name.push('_');
    }
    let fits = !name.is_empty() && name.len() <= MAX_PROVIDER && name.chars().all(is_plain);
    fits.then_some(name)
}

/// The name of a probe: two underscores stand for a hyphen, which C does not have in names. `None`
/// if descriptions cannot have it.
pub fn probe_name(text: &str) -> Option<String> {
    let name = text.replace("__", "-");
    let fits = !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain);
    fits.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_description() {
        assert_eq!(probe_name("gc__start").as_deref(), Some("gc-start"));
        assert_eq!(probe_name("a_b___c").as_deref(), Some("a_b-_c"));
        assert_eq!(provider_name("postgresql").as_deref(), Some("postgresql"));
        assert_eq!(provider_name("hs_private").as_deref(), Some("hs_private"));
        for text in ["", "a:b", "a*", "a b", "a\n", "é", "a/b", "[a]", &"x".repeat(64)] {
            assert_eq!((probe_name(text), provider_name(text)), (None, None), "{text}");
        }
        assert_eq!(provider_name(&"x".repeat(53)).map(|n| n.len()), Some(53));
    }

    #[test]
    fn a_provider_cannot_be_that_of_another_process() {
        assert_eq!(provider_name("v2").as_deref(), Some("v2_"));
        assert_eq!(provider_name("1").as_deref(), Some("1_"));
        assert_eq!(provider_name(&format!("{}1", "x".repeat(52))), None);
    }
}
