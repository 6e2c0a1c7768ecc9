//! The libraries that are in the program, by what `cargo metadata` says: their list as CycloneDX
//! 1.5 JSON, and their licences.
//!
//! What only builds the program (build scripts, procedural macros and what they need) is not in it,
//! and not in the list. `cargo metadata` has the features that the whole workspace needs, its tests
//! too; `cargo tree` knows those of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// A package of cargo's that is in the program.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(super) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// As an SPDX expression.
    pub(crate) licence: String,
    /// The SHA-256 of its source, of a package of a registry.
    pub(super) checksum: Option<String>,
    /// Whether it is of this workspace.
    pub(crate) is_own: bool,
    /// The texts of its licences, of a package of others.
    pub(crate) licences: Vec<String>,
    /// The identifiers of those that it uses.
    pub(super) uses: Vec<String>,
}

impl Part {
    /// Its package URL (https://github.com/package-url/purl-spec, `cargo`).
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// The parts of the program, by name.
pub(crate) fn parts(tree: &Path) -> Result<Vec<Part>, String> {
    let cargo = |words: &[&str]| {
        let failed = |why: &str| format!("cargo {}: {}", words.concat(), why.trim());
        let out = Command::new("cargo").args(words).arg("--locked").current_dir(tree).output();
        let out = out.map_err(|e| failed(&e.to_string()))?;
        match out.status.success() {
            true => Ok(out.stdout),
            false => Err(failed(&String::from_utf8_lossy(&out.stderr))),
        }
    };
    let metadata = cargo(&["metadata", "--format-version=1", "--filter-platform", super::TARGET])?;
    let metadata = serde_json::from_slice(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let linked = ["tree", "-pcli", "-enormal,no-proc-macro", "--prefix=none", "--target", super::TARGET];
    let linked = linked_in(&String::from_utf8_lossy(&cargo(&linked)?));
    let lock = std::fs::read_to_string(tree.join("Cargo.lock")).map_err(|e| format!("Cargo.lock: {e}"))?;
    let mut parts = of_metadata(&metadata, &checksums(&lock))?;
    parts.retain(|part| linked.contains(&format!("{} v{}", part.name, part.version)));
    for part in parts.iter_mut().filter(|part| !part.is_own) {
        part.licences = licences(&metadata, &part.id)?;
    }
    Ok(parts)
}

/// The names and versions in the output of `cargo tree`: `NAME vVERSION …`.
fn linked_in(tree: &str) -> BTreeSet<String> {
    let of = |line: &str| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    tree.lines().filter_map(of).collect()
}

/// The checksums in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|rest| rest.trim_end_matches('"').to_owned())
    };
    let of =
        |block: &str| Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?));
    lock.split("[[package]]").filter_map(of).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn of_metadata(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Vec<Part>, String> {
    let packages: BTreeMap<String, &Value> =
        list(metadata, "packages").iter().map(|p| (text(p, "id"), p)).collect();
    let nodes: BTreeMap<String, &Value> =
        list(&metadata["resolve"], "nodes").iter().map(|n| (text(n, "id"), n)).collect();
    let is_macro = |id: &str| {
        let targets = packages.get(id).map_or(&[][..], |package| list(package, "targets"));
        targets.iter().any(|target| target["kind"][0] == "proc-macro")
    };
    let root = packages.iter().find(|(_, package)| package["name"] == "cli" && package["source"].is_null());
    let (root, _) = root.ok_or("cargo metadata: no package cli")?;
    let (mut seen, mut todo) = (BTreeSet::from([root.clone()]), vec![root.clone()]);
    let mut parts = Vec::new();
    while let Some(id) = todo.pop() {
        let (Some(package), Some(node)) = (packages.get(&id), nodes.get(&id)) else {
            return Err(format!("cargo metadata: nothing of {id}"));
        };
        let mut part = Part {
            id: id.clone(),
            name: text(package, "name"),
            version: text(package, "version"),
            licence: text(package, "license"),
            is_own: package["source"].is_null(),
            ..Part::default()
        };
        part.checksum = checksums.get(&(part.name.clone(), part.version.clone())).cloned();
        for dependency in list(node, "deps") {
            let is_linked = list(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null());
            let used = text(dependency, "pkg");
            if is_linked && !is_macro(&used) {
                if seen.insert(used.clone()) {
                    todo.push(used.clone());
                }
                part.uses.push(used);
            }
        }
        parts.push(part);
    }
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(parts)
}

/// The texts of the licences in a package's source.
fn licences(metadata: &Value, id: &str) -> Result<Vec<String>, String> {
    let package = list(metadata, "packages").iter().find(|package| package["id"] == id);
    let manifest = package.map(|package| text(package, "manifest_path")).unwrap_or_default();
    let directory = Path::new(&manifest).parent().ok_or(format!("cargo metadata: no source of {id}"))?;
    let is_licence = |name: &str| {
        let name = name.to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"].iter().any(|start| name.starts_with(start))
    };
    let read = |name: String| std::fs::read(directory.join(name)).ok();
    // A few have a directory of that name: their files are not read.
    let texts = crate::install::names(directory, is_licence)?.into_iter().filter_map(read);
    Ok(texts.map(|bytes| String::from_utf8_lossy(&bytes).replace('\r', "")).collect())
}

/// The list (https://cyclonedx.org/docs/1.5/json). It has no serial number, which would differ each
/// time.
pub(crate) fn cyclonedx(parts: &[Part], version: &str, time: u64) -> Result<String, String> {
    let urls: BTreeMap<&str, String> = parts.iter().map(|part| (part.id.as_str(), part.purl())).collect();
    let component = |part: &Part| {
        let mut all = json!({
            "type": "library",
            "bom-ref": part.purl(),
            "name": part.name,
            "version": part.version,
            "purl": part.purl(),
        });
        if !part.licence.is_empty() {
            // Of old: a list of names instead of an expression.
            all["licenses"] = json!([{ "expression": part.licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ") }]);
        }
        if let Some(sum) = &part.checksum {
            all["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        all
    };
    let uses = |part: &Part| {
        let used: BTreeSet<&String> = part.uses.iter().filter_map(|id| urls.get(id.as_str())).collect();
        json!({ "ref": part.purl(), "dependsOn": used })
    };
    let root = parts.iter().find(|part| part.name == "cli").map(|part| part.purl()).unwrap_or_default();
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": super::date::iso(time),
            "component": {
                "type": "application", "bom-ref": root, "name": "dtrace", "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": parts.iter().filter(|part| part.name != "cli").map(component).collect::<Vec<_>>(),
        "dependencies": parts.iter().map(uses).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&bom).map(|text| text + "\n").map_err(|e| format!("sbom: {e}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package = |name: &str, kind: &str, source: Value| {
            json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "source": source, "targets": [{ "kind": [kind] }],
            })
        };
        let registry = || json!("registry");
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                package("cli", "lib", Value::Null),
                package("used", "lib", registry()),
                package("below", "lib", registry()),
                package("macro", "proc-macro", registry()),
                package("built-by", "lib", registry()),
                package("tested-by", "lib", registry()),
            ],
            "resolve": { "nodes": [
                { "id": "cli", "deps": [
                    dependency("used", Value::Null), dependency("macro", Value::Null),
                    dependency("built-by", json!("build")), dependency("tested-by", json!("dev")),
                ] },
                { "id": "used", "deps": [dependency("below", Value::Null)] },
                { "id": "below", "deps": [] },
            ] },
        })
    }

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_or_tests_is_not() {
        let lock = "[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n";
        let parts = of_metadata(&metadata(), &checksums(lock)).unwrap();
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["below", "cli", "used"]);
        let bom: Value = serde_json::from_str(&cyclonedx(&parts, "1.0.0", 86_400).unwrap()).unwrap();
        assert_eq!(bom["metadata"]["timestamp"], "1970-01-02T00:00:00Z");
        assert_eq!(bom["components"][1]["purl"], "pkg:cargo/used@1.0.0");
        assert_eq!(bom["components"][1]["hashes"][0]["content"], "abc");
        assert_eq!(bom["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bom["dependencies"][1]["dependsOn"], json!(["pkg:cargo/used@1.0.0"]));
        assert_eq!(bom["dependencies"][2]["dependsOn"], json!(["pkg:cargo/below@1.0.0"]));
    }

    #[test]
    fn the_libraries_of_this_tree_have_licences_and_their_texts() {
        let parts = parts(&crate::root()).unwrap();
        let others: Vec<&Part> = parts.iter().filter(|part| !part.is_own).collect();
        assert!(others.len() >= 20 && others.iter().any(|part| part.name == "gimli"));
        for part in &others {
            assert!(!part.licence.is_empty() && part.checksum.is_some(), "{}", part.name);
        }
        let without: Vec<&str> =
            others.iter().filter(|p| p.licences.is_empty()).map(|p| p.name.as_str()).collect();
        assert!(without.len() <= 3, "no text of a licence in the sources of {without:?}");
        assert!(parts.iter().all(|part| part.name != "proptest" && part.name != "libtest-mimic"));
    }
}
