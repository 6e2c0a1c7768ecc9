//! The layers of the files of a crate, and the check that no file imports from a layer above its
//! own.
//!
//! A crate declares its layers at the head of `lib.rs` (or `main.rs`), lowest first:
//!
//! ```text
//!  //! ```layers
//!  //! error mir
//!  //! liveness
//!  //! regalloc frame
//!  //! select select/*
//!  //! ```
//! ```
//!
//! A file may import from the lines before its own. Files of one line do not know each other,
//! except those joined by `+`, which are one unit. `select/*` stands for all files of that folder
//! that are not named. `lib` is above all others, unless it is named. What a file only exports
//! again (`pub use`) is not its import: whoever uses that name imports from the file that defines
//! it.
//!
//! A block of words behind it says which folders know nothing of each other, wherever their files
//! are:
//!
//! ```text
//!  //! ```apart
//!  //! pid usdt fbt
//!  //! ```
//! ```
//!
//! A unit has at most [`UNIT`] files: more know each other than a reader can keep in mind.
//!
//! `cargo xtask layers CRATE` prints the layers that the imports of a crate have, and its loops.

mod scan;
mod tree;

use std::collections::BTreeSet;
use std::path::Path;

use tree::{Edge, Tree};

/// The most files of a unit.
const UNIT: usize = 3;

/// The declaration at the head of a crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Declared {
    /// The line in the file at which it starts.
    line: usize,
    /// Its lines: units of joined entries.
    layers: Vec<Vec<Vec<String>>>,
    /// Folders and files that know nothing of each other.
    apart: Vec<String>,
}

impl Declared {
    fn parse(root: &str) -> Option<Declared> {
        let mut lines = root.lines().enumerate().take_while(|(_, l)| l.starts_with("//!") || l.is_empty());
        let (start, _) = lines.find(|(_, l)| l.trim() == "//! ```layers")?;
        let rows = lines.map_while(|(_, l)| l.strip_prefix("//!").filter(|l| l.trim() != "```"));
        let unit = |word: &str| word.split('+').map(String::from).collect();
        let layers = rows.map(|row| row.split_whitespace().map(unit).collect()).collect();
        let mut lines = root.lines().take_while(|l| l.starts_with("//!") || l.is_empty());
        let apart = lines.find(|l| l.trim() == "//! ```apart").map(|_| lines);
        let rows =
            apart.into_iter().flatten().map_while(|l| l.strip_prefix("//!").filter(|l| l.trim() != "```"));
        let apart = rows.flat_map(str::split_whitespace).map(String::from).collect();
        Some(Declared { line: start + 1, layers, apart })
    }

    /// The one of the folders apart in which a file is.
    fn folder(&self, name: &str) -> Option<&str> {
        let first = name.split('/').next().unwrap_or_default();
        self.apart.iter().map(String::as_str).find(|folder| *folder == first)
    }

    /// The layer of a file, and the unit in it. A name counts before a pattern.
    fn place(&self, name: &str) -> Option<(usize, usize)> {
        let pattern = |entry: &str| {
            let folder = entry.strip_suffix('*')?;
            name.strip_prefix(folder).filter(|rest| !rest.is_empty() && !rest.contains('/'))
        };
        for exact in [true, false] {
            for (layer, units) in self.layers.iter().enumerate() {
                for (n, unit) in units.iter().enumerate() {
                    if unit.iter().any(|e| if exact { e == name } else { pattern(e).is_some() }) {
                        // Files that a pattern stands for do not know each other.
                        return Some((layer, if exact || unit.len() > 1 { n } else { usize::MAX }));
                    }
                }
            }
        }
        None
    }
}

/// The breaches of a crate's layers. `sources` are its files below `src` with their texts, and
/// `dir` is the crate's folder, for messages.
fn breaches(dir: &str, sources: &[(String, String)]) -> Vec<String> {
    let tree = Tree::new(sources);
    let Some(root) = tree.root() else { return vec![format!("{dir}/src: no lib.rs and no main.rs")] };
    let text = sources.iter().find(|(path, _)| format!("src/{path}") == root.path).map_or("", |(_, t)| t);
    if tree.files.len() == 1 {
        return Vec::new();
    }
    let head = format!("{dir}/{}", root.path);
    let Some(declared) = Declared::parse(text) else {
        return vec![format!(
            "{head}:1: no layers: declare them in a ```layers block, as `cargo xtask layers {}` prints them",
            dir.rsplit('/').next().unwrap_or(dir)
        )];
    };
    let mut out = Vec::new();
    let at = format!("{head}:{}", declared.line);
    let mut seen = BTreeSet::new();
    for entry in declared.layers.iter().flatten().flatten() {
        let exists = match entry.strip_suffix('*') {
            Some(folder) => tree.names().any(|n| n.starts_with(folder)),
            None => tree.names().any(|n| n == entry),
        };
        if !exists {
            out.push(format!("{at}: the layers name {entry}, and there is no such file: remove it"));
        }
        if !seen.insert(entry) {
            out.push(format!("{at}: the layers name {entry} twice"));
        }
    }
    for unit in declared.layers.iter().flatten().filter(|unit| unit.len() > UNIT) {
        out.push(format!(
            "{at}: {} files are one unit, and {UNIT} are the most: {}",
            unit.len(),
            unit.join("+")
        ));
    }
    for folder in declared.apart.iter().filter(|f| !tree.names().any(|n| n.split('/').next() == Some(f))) {
        out.push(format!("{at}: {folder} is to be apart, and there is no such file or folder: remove it"));
    }
    let top = (declared.layers.len(), 0);
    let place = |name: &str| declared.place(name).or_else(|| (name == root.name).then_some(top));
    for file in tree.files.values().filter(|f| place(&f.name).is_none()) {
        out.push(format!(
            "{dir}/{}:1: {} is in no layer: add it to the layers at {at}, behind all that it imports",
            file.path, file.name
        ));
    }
    for edge in tree.edges() {
        if let (Some(from), Some(to)) = (declared.folder(&edge.from), declared.folder(&edge.to))
            && from != to
        {
            let path = tree.files.values().find(|f| f.name == edge.from).map_or("", |f| f.path.as_str());
            out.push(format!(
                "{dir}/{path}:{}: {} imports from {}, and {from} knows nothing of {to}: move what both need to a file below them",
                edge.line, edge.from, edge.to
            ));
        }
        let (Some(from), Some(to)) = (place(&edge.from), place(&edge.to)) else { continue };
        let why = match from.0.cmp(&to.0) {
            std::cmp::Ordering::Greater => continue,
            std::cmp::Ordering::Equal if from.1 == to.1 && from.1 != usize::MAX => continue,
            std::cmp::Ordering::Equal => "the same layer",
            std::cmp::Ordering::Less => "a higher layer",
        };
        let path = tree.files.values().find(|f| f.name == edge.from).map_or("", |f| f.path.as_str());
        out.push(format!(
            "{dir}/{path}:{}: {} imports from {}, which is in {why}: move what it needs to a lower file, or move one of them \
             in the layers at {at}",
            edge.line, edge.from, edge.to
        ));
    }
    out
}

/// The layers that the imports have, lowest first, each a list of units; a unit of several files is
/// a loop.
fn computed(tree: &Tree, edges: &[Edge]) -> Vec<Vec<Vec<String>>> {
    let names: Vec<&str> = tree.names().collect();
    let number = |name: &str| names.iter().position(|n| *n == name).unwrap_or(0);
    let n = names.len();
    let mut reach = vec![vec![false; n]; n];
    for e in edges {
        reach[number(&e.from)][number(&e.to)] = true;
    }
    for k in 0..n {
        let onward = reach[k].clone();
        for from in reach.iter_mut().filter(|from| from[k]) {
            from.iter_mut().zip(&onward).for_each(|(to, more)| *to |= more);
        }
    }
    let mut placed = vec![false; n];
    let mut layers = Vec::new();
    while placed.contains(&false) {
        let ready: Vec<usize> = (0..n)
            .filter(|i| !placed[*i] && (0..n).all(|j| placed[j] || !reach[*i][j] || reach[j][*i] || *i == j))
            .collect();
        let mut layer: Vec<Vec<String>> = Vec::new();
        let mut done = vec![false; n];
        for i in &ready {
            if !done[*i] {
                let unit: Vec<usize> =
                    ready.iter().copied().filter(|j| j == i || reach[*i][*j] && reach[*j][*i]).collect();
                unit.iter().for_each(|j| done[*j] = true);
                layer.push(unit.iter().map(|j| names[*j].to_owned()).collect());
            }
        }
        ready.iter().for_each(|i| placed[*i] = true);
        layers.push(layer);
    }
    layers
}

/// The sources of a crate below `src`.
fn sources(dir: &Path) -> Result<Vec<(String, String)>, String> {
    let src = dir.join("src");
    let mut files = Vec::new();
    crate::tidy::walk(&src, &mut files)?;
    let read = |file: &std::path::PathBuf| {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let name = file.strip_prefix(&src).unwrap_or(file).display().to_string();
        Ok((name, text))
    };
    files.iter().map(read).collect()
}

/// Checks a crate, for `cargo xtask tidy`.
pub(crate) fn check(dir: &Path) -> Result<Vec<String>, String> {
    let shown = dir.strip_prefix(crate::root()).unwrap_or(dir).display().to_string();
    Ok(breaches(&shown, &sources(dir)?))
}

/// `cargo xtask layers CRATE`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let [krate] = args else { return Err("layers: name one crate".into()) };
    let tree = Tree::new(&sources(&crate::root().join("crates").join(krate))?);
    let edges = tree.edges();
    let layers = computed(&tree, &edges);
    let root = tree.root().map_or("lib", |f| f.name.as_str());
    println!("//! ```layers");
    for layer in &layers {
        // The root is above all others where no file imports from it.
        let top = |unit: &String| unit == root && edges.iter().all(|e| e.to != *unit);
        let units = layer.iter().map(|unit| unit.join("+")).filter(|unit| !top(unit));
        let row: Vec<String> = units.collect();
        if !row.is_empty() {
            println!("//! {}", row.join(" "));
        }
    }
    println!("//! ```");
    for unit in layers.iter().flatten().filter(|unit| unit.len() > 1) {
        println!("\nA loop:");
        for e in edges.iter().filter(|e| unit.contains(&e.from) && unit.contains(&e.to)) {
            println!("  {}:{} imports from {}", e.from, e.line, e.to);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let found = Tree::new(&crate_of(files)).edges();
        found.iter().map(|e| format!("{}:{} {}", e.from, e.line, e.to)).collect()
    }

    const HEAD: &str = "//! A crate.\n//!\n//! ```layers\n//! low\n//! mid\n//! high/*\n//! high\n//! ```\n\nmod low;\nmod mid;\nmod high;\n";

    #[test]
    fn imports_of_lower_layers_are_accepted() {
        let files = [
            ("lib.rs", HEAD),
            ("low.rs", "pub struct Low;"),
            ("mid.rs", "use crate::low::Low;"),
            ("high.rs", "mod a;\n"),
            ("high/a.rs", "use crate::mid;\nfn f() { mid::g() }"),
        ];
        assert_eq!(breaches("crates/x", &crate_of(&files)), Vec::<String>::new());
    }

    #[test]
    fn an_import_from_a_higher_layer_fails() {
        let files = [
            ("lib.rs", HEAD),
            ("low.rs", "\nfn f() -> crate::mid::Mid {}"),
            ("mid.rs", "pub struct Mid;"),
            ("high.rs", "mod a;\n"),
            ("high/a.rs", ""),
        ];
        let found = breaches("crates/x", &crate_of(&files));
        let want = "crates/x/src/low.rs:2: low imports from mid, which is in a higher layer: move what it needs to a lower \
                    file, or move one of them in the layers at crates/x/src/lib.rs:3";
        assert_eq!(found, [want]);
    }

    #[test]
    fn files_of_one_folder_do_not_know_each_other() {
        let files = [
            ("lib.rs", HEAD),
            ("low.rs", ""),
            ("mid.rs", ""),
            ("high.rs", "mod a;\nmod b;\n"),
            ("high/a.rs", "use super::b::B;"),
            ("high/b.rs", "pub struct B;"),
        ];
        let found = breaches("crates/x", &crate_of(&files));
        assert!(
            found.len() == 1 && found[0].contains("high/a imports from high/b, which is in the same layer")
        );
    }

    #[test]
    fn a_file_that_is_not_declared_fails() {
        let files = [
            ("lib.rs", HEAD),
            ("low.rs", ""),
            ("mid.rs", ""),
            ("high.rs", ""),
            ("high/a.rs", ""),
            ("new.rs", ""),
        ];
        let found = breaches("crates/x", &crate_of(&files));
        assert!(
            found.len() == 1 && found[0].starts_with("crates/x/src/new.rs:1: new is in no layer"),
            "{found:?}"
        );
    }

    #[test]
    fn a_declared_file_that_does_not_exist_fails() {
        let files = [("lib.rs", HEAD), ("low.rs", ""), ("high.rs", ""), ("high/a.rs", "")];
        let found = breaches("crates/x", &crate_of(&files));
        assert!(found.len() == 1 && found[0].contains("the layers name mid, and there is no such file"));
    }

    #[test]
    fn a_crate_of_several_files_needs_layers() {
        let found = breaches("crates/x", &crate_of(&[("lib.rs", "//! A crate.\n"), ("a.rs", "")]));
        assert!(found.len() == 1 && found[0].contains("no layers"));
        assert!(breaches("crates/x", &crate_of(&[("lib.rs", "//! A crate.\n")])).is_empty());
    }

    #[test]
    fn joined_files_may_import_each_other() {
        let head = "//! ```layers\n//! a+b\n//! ```\n";
        let files = [
            ("lib.rs", head),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert!(breaches("crates/x", &crate_of(&files)).is_empty());
    }

    #[test]
    fn a_unit_has_few_files() {
        let unit = |names: &str| {
            let mut files = vec![("lib.rs".to_owned(), format!("//! ```layers\n//! {names}\n//! ```\n"))];
            files.extend(names.split('+').map(|name| (format!("{name}.rs"), String::new())));
            breaches("crates/x", &files)
        };
        assert_eq!(unit("a+b+c"), [""; 0]);
        assert_eq!(
            unit("a+b+c+d"),
            ["crates/x/src/lib.rs:1: 4 files are one unit, and 3 are the most: a+b+c+d"]
        );
    }

    #[test]
    fn folders_apart_know_nothing_of_each_other() {
        let head =
            "//! ```layers\n//! shared a/low b/low\n//! a b\n//! ```\n//!\n//! ```apart\n//! a b\n//! ```\n";
        let files = |imported: &'static str| {
            let files = [
                ("lib.rs", head),
                ("shared.rs", "pub struct Shared;"),
                ("a.rs", "mod low;\nuse crate::shared::Shared;\nuse low::Low;"),
                ("a/low.rs", "pub struct Low;"),
                ("b.rs", imported),
                ("b/low.rs", ""),
            ];
            breaches("crates/x", &crate_of(&files))
        };
        assert_eq!(files("mod low;\nuse crate::shared::Shared;"), [""; 0]);
        assert_eq!(
            files("mod low;\nuse crate::a::low::Low;"),
            [
                "crates/x/src/b.rs:2: b imports from a/low, and b knows nothing of a: move what both need to a file below them"
            ]
        );
    }

    #[test]
    fn a_name_that_is_exported_again_is_imported_from_its_file() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "mod c;\npub use c::{C, made};\nuse std::fmt;\nfn made_here() {}\n"),
            ("a/c.rs", "use super::fmt;\npub struct C; pub fn made() {}"),
            ("b.rs", "use crate::a::C;\nuse crate::a;\nfn f() { a::made_here() }"),
        ];
        assert_eq!(edges(&files), ["b:3 a", "b:1 a/c"]);
    }

    #[test]
    fn a_file_that_uses_what_it_exports_imports_it() {
        let files = [
            ("lib.rs", "mod a;\n"),
            ("a/mod.rs", "mod c;\npub use c::{C, made};\nfn f(c: C) {}\n"),
            ("a/c.rs", "pub struct C; pub fn made() {}"),
        ];
        assert_eq!(edges(&files), ["a:2 a/c"]);
    }

    #[test]
    fn files_for_tests_do_not_count() {
        let files = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod model;\n"),
            ("a.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n"),
            ("a_tests.rs", "use crate::model;"),
            ("model/mod.rs", "use crate::a::A;"),
            ("model/part.rs", "use crate::a::A;"),
        ];
        let tree = Tree::new(&crate_of(&files));
        assert_eq!(tree.names().collect::<Vec<_>>(), ["lib", "a"]);
    }

    #[test]
    fn loops_are_one_unit_of_the_computed_layers() {
        let files = [
            ("lib.rs", ""),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::a::A; use crate::c::C; pub struct B;"),
            ("c.rs", "pub struct C;"),
            ("d.rs", "use crate::a::A;"),
        ];
        let tree = Tree::new(&crate_of(&files));
        let rows: Vec<String> = computed(&tree, &tree.edges())
            .iter()
            .map(|l| l.iter().map(|u| u.join("+")).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows, ["lib c", "a+b", "d"]);
    }
}
