//! The files of a crate, and which imports from which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::scan::{Scan, scan};

/// A module of a crate that is a file of its own.
pub(super) struct File {
    /// The name in the declaration: `select/layout`, `select`, `lib`.
    pub(super) name: String,
    /// Its path from the crate's folder.
    pub(super) path: String,
    scan: Scan,
}

/// The files of a crate by their module path: `select::layout`, "" for the root.
pub(super) struct Tree {
    pub(super) files: BTreeMap<String, File>,
}

/// What a path leads to.
pub(super) enum Found<'a> {
    /// An item of this module.
    Item(&'a str),
    /// A module.
    Module(&'a str),
}

/// An import of one file by another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) line: usize,
}

fn below(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

impl Tree {
    /// Builds the tree from paths below `src` with their texts. Files that are compiled for tests
    /// only are left out.
    pub(super) fn new(sources: &[(String, String)]) -> Tree {
        let mut files = BTreeMap::new();
        for (path, text) in sources {
            let stem = path.trim_end_matches(".rs");
            let stem = stem.strip_suffix("/mod").unwrap_or(stem);
            let root = matches!(stem, "lib" | "main");
            let module = if root { String::new() } else { stem.replace('/', "::") };
            files.insert(
                module,
                File { name: stem.to_owned(), path: format!("src/{path}"), scan: scan(text) },
            );
        }
        let mut tests: Vec<String> = Vec::new();
        for (module, file) in &files {
            for (name, path) in &file.scan.tests {
                let dir = Path::new(&file.path).parent().map(|d| d.display().to_string()).unwrap_or_default();
                match path {
                    Some(path) => {
                        let of = |f: &&File| f.path == format!("{dir}/{path}");
                        let found = files.iter().find(|(_, f)| of(f)).map(|(module, _)| module.clone());
                        tests.extend(found);
                    }
                    None => tests.push(below(module, name)),
                }
            }
        }
        files.retain(|module, _| {
            !tests.iter().any(|t| {
                module.strip_prefix(t.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            })
        });
        Tree { files }
    }

    /// What `segments` lead to from the module `at`, whose names are those that it defines or
    /// imports. `None` for something outside of the crate.
    fn resolve(&self, at: &str, segments: &[String], depth: usize) -> Option<Found<'_>> {
        let (module, file) = self.files.get_key_value(at)?;
        let Some((name, rest)) = segments.split_first() else { return Some(Found::Module(module)) };
        match name.as_str() {
            "crate" => return self.resolve("", rest, depth),
            "self" => return self.resolve(at, rest, depth),
            "super" => return self.resolve(parent(at), rest, depth),
            _ => {}
        }
        let child = below(at, name);
        if self.files.contains_key(&child) {
            return self.resolve(&child, rest, depth);
        }
        let scan = &file.scan;
        if depth > 0 && !scan.items.contains(name) {
            if let Some(import) = scan.imports.iter().find(|i| i.name == *name) {
                let path: Vec<String> = import.path.iter().chain(rest).cloned().collect();
                return self.absolute(at, &path, depth - 1);
            }
            for import in scan.imports.iter().filter(|i| i.name == "*") {
                if let Some(Found::Module(from)) = self.absolute(at, &import.path, depth - 1)
                    && from != at
                    && self.files.get(from).is_some_and(|f| f.scan.items.contains(name))
                {
                    return Some(Found::Item(from));
                }
            }
        }
        Some(Found::Item(module))
    }

    /// What the path of an import leads to.
    fn absolute(&self, at: &str, path: &[String], depth: usize) -> Option<Found<'_>> {
        let first = path.first()?;
        let local = matches!(first.as_str(), "crate" | "self" | "super")
            || self.files.contains_key(&below(at, first))
            || self.knows(at, first, path.len() > 1);
        if local { self.resolve(at, path, depth) } else { None }
    }

    /// True when the file itself defines `name`, or imports it from the crate.
    fn knows(&self, at: &str, name: &str, is_prefix: bool) -> bool {
        let Some(file) = self.files.get(at) else { return false };
        file.scan.items.iter().any(|i| i == name)
            || is_prefix && file.scan.imports.iter().any(|i| i.name == name && i.path.len() > 1)
    }

    /// All imports of files by files.
    pub(super) fn edges(&self) -> Vec<Edge> {
        let mut out = BTreeSet::new();
        for (module, file) in &self.files {
            let mut add = |to: &str, line: usize| {
                if to != module
                    && let Some(to) = self.files.get(to)
                {
                    out.insert(Edge { from: file.name.clone(), to: to.name.clone(), line });
                }
            };
            let scan = &file.scan;
            let used = |name: &str| {
                let is_type = name.starts_with(char::is_uppercase);
                scan.paths.iter().any(|p| {
                    p.segments.first().is_some_and(|s| s == name)
                        && (is_type || p.called || p.segments.len() > 1)
                })
            };
            for import in &scan.imports {
                match self.absolute(module, &import.path, 16) {
                    // A module that is imported counts where something in it is named.
                    Some(Found::Module(to)) if import.name == "*" && !import.exported => add(to, import.line),
                    Some(Found::Item(to)) if !import.exported || used(&import.name) => add(to, import.line),
                    _ => {}
                }
            }
            for path in &scan.paths {
                let Some(first) = path.segments.first() else { continue };
                let anchored = matches!(first.as_str(), "crate" | "self" | "super");
                let child = self.files.contains_key(&below(module, first));
                let alias = scan.imports.iter().find(|i| i.name == *first);
                let found = if anchored || child && path.segments.len() > 1 {
                    self.resolve(module, &path.segments, 16)
                } else if let (Some(import), true) = (alias, path.segments.len() > 1) {
                    let whole: Vec<String> = import.path.iter().chain(&path.segments[1..]).cloned().collect();
                    match self.absolute(module, &import.path, 16) {
                        Some(Found::Module(_)) => self.absolute(module, &whole, 16),
                        _ => None,
                    }
                } else {
                    None
                };
                if let Some(Found::Item(to) | Found::Module(to)) = found {
                    add(to, path.line);
                }
            }
        }
        // One for each pair of files: the first line.
        let mut first: BTreeMap<(String, String), usize> = BTreeMap::new();
        for e in out {
            let line = first.entry((e.from, e.to)).or_insert(e.line);
            *line = e.line.min(*line);
        }
        first.into_iter().map(|((from, to), line)| Edge { from, to, line }).collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.values().map(|f| f.name.as_str())
    }

    pub(super) fn root(&self) -> Option<&File> {
        self.files.get("")
    }
}
