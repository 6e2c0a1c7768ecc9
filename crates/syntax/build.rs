//! Generates the list of the D libraries in `lib/` and the index of the names they define.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

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
    let mut probes: Vec<(String, String, bool, usize)> = Vec::new();
    let mut out = String::from("const EMBEDDED: &[(&str, &str)] = &[\n");
    for (file, path) in paths.iter().enumerate() {
        let text = fs::read_to_string(path)?;
        scan::definitions(&text, |word, is_type| {
            index.insert(word.to_string(), (file, is_type));
        });
        scan::probes(&text, |provider, probe, family| {
            probes.push((provider.into(), probe.into(), family, file));
        });
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        writeln!(out, "    ({name:?}, include_str!({:?})),", path.display().to_string())?;
    }
    out.push_str("];\n\nconst INDEX: &[(&str, usize, bool)] = &[\n");
    for (word, (file, is_type)) in index {
        writeln!(out, "    ({word:?}, {file}, {is_type}),")?;
    }
    out.push_str("];\n\nconst PROBES: &[(&str, &str, bool, usize)] = &[\n");
    for (provider, probe, family, file) in probes {
        writeln!(out, "    ({provider:?}, {probe:?}, {family}, {file}),")?;
    }
    out.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("libraries.rs"), out)?;
    Ok(())
}
