//! The size of the static program, and what it is made of: by section, by crate.
//!
//! A crate's share is the sum of the symbols whose name begins with it. Generic code of the
//! standard library counts as the library's, whoever uses it; `impl` is what a `<… as …>` of a type
//! without a crate begins with.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::program::Built;

/// The largest size of the stripped program, in bytes.
const LIMIT: u64 = 10_000_000;

/// How many crates are printed.
const CRATES: usize = 40;

fn bytes(path: &Path) -> Result<u64, String> {
    std::fs::metadata(path).map(|m| m.len()).map_err(|e| format!("{}: {e}", path.display()))
}

/// Fails with the table where the program is above the limit.
pub(crate) fn check(built: &Built) -> Result<(), String> {
    let size = bytes(&built.stripped)?;
    if size > LIMIT {
        return Err(format!(
            "the stripped program has {size} bytes; at most {LIMIT} are allowed\n{}",
            table(built)?
        ));
    }
    Ok(())
}

/// The size, the sections, and the crates.
pub(crate) fn table(built: &Built) -> Result<String, String> {
    let run = |program: &str, words: &[&str], path: &Path| {
        crate::apt::run(Command::new(program).args(words).arg(path))
    };
    let mut out = format!("{:>10}  {}\n\nsections\n", bytes(&built.stripped)?, built.stripped.display());
    for (size, name) in sections(&run("size", &["-A"], &built.stripped)?) {
        out.push_str(&format!("{size:>10}  {name}\n"));
    }
    out.push_str("\ncrates\n");
    let crates = crates(&run("nm", &["--print-size", "--defined-only"], &built.with_symbols)?);
    for (size, name) in crates.iter().take(CRATES) {
        out.push_str(&format!("{size:>10}  {name}\n"));
    }
    let rest: u64 = crates.iter().skip(CRATES).map(|(size, _)| size).sum();
    out.push_str(&format!("{rest:>10}  ({} others)\n", crates.len().saturating_sub(CRATES)));
    Ok(out)
}

/// Of the output of `size -A`: those above 1 KiB, the largest first.
fn sections(text: &str) -> Vec<(u64, String)> {
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| name.starts_with('.'))?;
        Some((words.next()?.parse().ok()?, name.to_owned()))
    };
    let mut all: Vec<(u64, String)> = text.lines().filter_map(of).filter(|(size, _)| *size >= 1024).collect();
    all.sort_by(|a, b| b.cmp(a));
    all
}

/// Of the output of `nm --print-size`: the sums by crate, the largest first.
fn crates(text: &str) -> Vec<(u64, String)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, size, kind, name] = words[..] else { continue };
        let Ok(size) = u64::from_str_radix(size, 16) else { continue };
        // What is not in the file: zeroes.
        if !kind.eq_ignore_ascii_case("b") {
            *sums.entry(crate_of(name)).or_default() += size;
        }
    }
    let mut all: Vec<(u64, String)> = sums.into_iter().map(|(name, size)| (size, name)).collect();
    all.sort_by(|a, b| b.cmp(a));
    all
}

/// The crate of a symbol.
fn crate_of(symbol: &str) -> String {
    let name = rustc_demangle::demangle(symbol);
    let plain = format!("{name:#}");
    if plain == symbol {
        return if symbol.starts_with("anon.") { "(constants)".into() } else { "(C and assembly)".into() };
    }
    let start = plain.trim_start_matches(|c: char| "<&*([ ".contains(c));
    let start = start.strip_prefix("mut ").or(start.strip_prefix("dyn ")).unwrap_or(start);
    let end = start.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(start.len());
    match start.get(end..) {
        Some(rest) if rest.starts_with("::") && end > 0 => start.get(..end).unwrap_or_default().to_owned(),
        _ => "impl".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_belongs_to_the_crate_that_its_name_begins_with() {
        for (symbol, expected) in [
            ("_ZN8consumer4text3row17h8e734965985e8fd5E", "consumer"),
            (
                "_ZN58_$LT$alloc..string..String$u20$as$u20$core..fmt..Debug$GT$3fmt17h8e734965985e8fd5E",
                "alloc",
            ),
            ("_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmt17h8e734965985e8fd5E", "impl"),
            ("_RNvNtNtCsaz6eC2DG7lh_3std2io5stdio6__print", "std"),
            ("anon.b1b09ac501e0ffe44402342d6328cce3.2050", "(constants)"),
            ("CRYPTO_load_u32_le", "(C and assembly)"),
        ] {
            assert_eq!(crate_of(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn sizes_are_summed_by_crate_and_zeroes_are_not_in_the_file() {
        let text = "0000000000001000 0000000000000010 t _ZN8consumer4text3row17h8e734965985e8fd5E\n\
                    0000000000001010 0000000000000020 T _ZN8consumer4text4rows17h8e734965985e8fd5E\n\
                    0000000000001030 0000000000000f00 b _ZN5plane4text3row17h8e734965985e8fd5E\n\
                    0000000000001040 0000000000000008 r CRYPTO\n\
                    0000000000001050 A without_a_size\n";
        assert_eq!(crates(text), [(0x30, "consumer".to_owned()), (8, "(C and assembly)".to_owned())]);
        let text = "dtrace  :\nsection size addr\n.text 7475203 8256\n.fini 3 1\n.rodata 1012108 9\nTotal 10262150\n";
        assert_eq!(sections(text), [(7_475_203, ".text".to_owned()), (1_012_108, ".rodata".to_owned())]);
    }
}
