//! Generates the list of the D libraries in `lib/` and the index of the names they define.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use miniz_oxide::deflate::compress_to_vec;

/// From so many bytes on a library is compressed: the few long ones are most of all text, and take
/// a tenth of a millisecond to inflate where they are used.
const LONG: usize = 12_000;
/// The level of compression.
const BEST: u8 = 10;

#[path = "src/library/scan.rs"]
mod scan;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../lib").canonicalize()?;
    println!("cargo::rerun-if-changed={}", dir.display());
    println!("cargo::rerun-if-changed=src/library/scan.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let mut paths: Vec<_> = fs::read_dir(&dir)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.retain(|p| p.extension().is_some_and(|e| e == "d"));
    paths.sort();
    let mut index: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    // Those of a provider in one text: a row for each would be longer than its name.
    let mut probes: Vec<(String, Vec<String>, bool, usize)> = Vec::new();
    let out_dir = env::var("OUT_DIR")?;
    let mut out = String::from("const EMBEDDED: &[(&str, Stored)] = &[\n");
    for (file, path) in paths.iter().enumerate() {
        let text = fs::read_to_string(path)?;
        scan::definitions(&text, |word, is_type| {
            index.insert(word.to_string(), (file, is_type));
        });
        scan::probes(&text, |provider, probe, family| match probes.last_mut() {
            Some((last, names, _, of)) if *last == provider && *of == file => names.push(probe.into()),
            _ => probes.push((provider.into(), vec![probe.into()], family, file)),
        });
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let embedded = Path::new(&out_dir).join(&*name);
        let text = without_comments(&text);
        let is_long = text.len() >= LONG;
        let bytes = if is_long { compress_to_vec(text.as_bytes(), BEST) } else { text.into_bytes() };
        fs::write(&embedded, bytes)?;
        let from = embedded.display().to_string();
        match is_long {
            true => writeln!(out, "    ({name:?}, Stored::Deflated(include_bytes!({from:?}))),")?,
            false => writeln!(out, "    ({name:?}, Stored::Plain(include_str!({from:?}))),")?,
        }
    }
    out.push_str("];\n\nconst INDEX: &[(&str, usize, bool)] = &[\n");
    for (word, (file, is_type)) in index {
        writeln!(out, "    ({word:?}, {file}, {is_type}),")?;
    }
    out.push_str("];\n\nconst PROBES: &[(&str, &str, bool, usize)] = &[\n");
    for (provider, names, family, file) in probes {
        writeln!(out, "    ({provider:?}, {:?}, {family}, {file}),", names.join(" "))?;
    }
    out.push_str("];\n");
    fs::write(Path::new(&out_dir).join("libraries.rs"), out)?;
    Ok(())
}

/// The text without the comments behind which a line ends. All else stays at its line and column,
/// which messages name. (An eighth of the libraries is such comments.)
fn without_comments(text: &str) -> String {
    let (mut out, mut at) = (String::new(), 0);
    while let Some(rest) = text.get(at..)
        && let Some(first) = rest.chars().next()
    {
        let len = scan::ignored(rest.as_bytes()).unwrap_or(first.len_utf8());
        let (part, behind) = rest.split_at_checked(len).unwrap_or((rest, ""));
        if part.starts_with("/*") && behind.trim_start_matches([' ', '\t']).starts_with('\n') {
            out.truncate(out.trim_end_matches([' ', '\t']).len());
            out.extend(part.chars().filter(|c| *c == '\n'));
        } else {
            out.push_str(part);
        }
        at += part.len();
    }
    out
}
