//! Demangles names of Rust and C++. A mangled name of a few bytes can expand to gigabytes. The
//! result is therefore bounded, and a name whose expansion would be longer stays mangled.

use std::fmt::{self, Write};

use crate::functions::FunctionName;
use crate::wire::MAX_NAME;

/// Text of at most [`MAX_NAME`] bytes.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

/// All forms of a name.
pub(crate) fn names(raw: String) -> FunctionName {
    let is_mangled = ["_Z", "_R", "__Z", "ZN"].iter().any(|prefix| raw.starts_with(prefix));
    if !is_mangled {
        return FunctionName { raw, ..FunctionName::default() };
    }
    let demangled = Some(demangled(raw.clone())).filter(|name| *name != raw);
    let plain = demangled.as_ref().and_then(|demangled| {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        let plain = cpp(&raw, &options).filter(|_| rustc_demangle::try_demangle(&raw).is_err())?;
        (plain != *demangled).then_some(plain)
    });
    FunctionName { raw, demangled, plain }
}

fn cpp(name: &str, options: &cpp_demangle::DemangleOptions) -> Option<String> {
    let mut out = Bounded::default();
    let symbol = cpp_demangle::BorrowedSymbol::new(name.as_bytes()).ok()?;
    symbol.structured_demangle(&mut out, options).ok()?;
    Some(out.0)
}

/// The demangled name. A name that is not mangled is returned unchanged.
pub(crate) fn demangled(name: String) -> String {
    let mut out = Bounded::default();
    if let Ok(symbol) = rustc_demangle::try_demangle(&name) {
        // The alternate form omits the hash at the end.
        if write!(out, "{symbol:#}").is_ok() {
            return out.0;
        }
    } else if name.starts_with("_Z")
        && let Some(demangled) = cpp(&name, &cpp_demangle::DemangleOptions::default())
    {
        return demangled;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled_to_the_source_form() {
        for (name, source) in [
            ("main", "main"),
            ("_ZN3foo3barEv", "foo::bar()"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN", "_ZN"),
        ] {
            assert_eq!(demangled(name.into()), source);
        }
    }

    #[test]
    fn a_name_that_expands_without_bound_stays_mangled() {
        // Each substitution doubles the length of the expansion.
        let mut name = String::from("_Z1fI1aE");
        for _ in 0..12 {
            name = format!("_Z1fI1bIS0_S0_S0_S0_EES_IS_S_S_S_E{}", &name[2..]);
        }
        assert!(demangled(name).len() <= MAX_NAME);
        let mut types = String::from("1a");
        for n in 0..40 {
            let s = if n == 0 { "S_".to_string() } else { format!("S{}_", radix36(n - 1)) };
            types = format!("{types}1pI{s}{s}{s}{s}E");
        }
        let name = format!("_Z1f{types}");
        assert!(demangled(name).len() <= MAX_NAME);
    }

    fn radix36(n: usize) -> String {
        let digit = |d| char::from_digit(d as u32, 36).unwrap().to_ascii_uppercase();
        if n < 36 { digit(n).into() } else { format!("{}{}", digit(n / 36), digit(n % 36)) }
    }
}
