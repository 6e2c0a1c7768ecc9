//! The D libraries of a session, and their dependencies.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diagnostics::{Diagnostic, Sink, SourceMap, Tag, control};
use probes::Catalog;
use syntax::Libraries;
use syntax::ast::{DependencyClass, Item, PragmaKind, Program};
use system::System;

use crate::options::Options;

/// The libraries of a session: ours with those that are installed beside the executable, or those
/// of `-xsyslibdir`; then those of `-L`, which are always looked at whole.
pub(crate) fn find(options: &Options) -> Result<Libraries, String> {
    if options.nolibs {
        return Ok(Libraries::default());
    }
    let system = options.syslibdir.as_deref().unwrap_or_default();
    let mut out = if system.is_empty() { Libraries::embedded() } else { Libraries::default() };
    match std::env::current_exe() {
        _ if !system.is_empty() => add(&mut out, system, false)?,
        Ok(executable) => add_installed(&mut out, &executable)?,
        Err(_) => {}
    }
    for dir in &options.libdir {
        add(&mut out, dir, true)?;
    }
    Ok(out)
}

fn failed(path: &Path, e: std::io::Error) -> String {
    let reason = diagnostics::system_text(&e);
    format!("failed to read D library '{}': {reason}", control::name(path.as_os_str().as_bytes()))
}

/// The `.d` files of a directory, by name.
fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths: Vec<_> = fs::read_dir(dir)?.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "d"));
    paths.sort();
    Ok(paths)
}

fn add(libraries: &mut Libraries, dir: &str, always: bool) -> Result<(), String> {
    let paths = files(Path::new(dir)).map_err(|e| failed(Path::new(dir), e))?;
    read(libraries, paths, always)
}

/// The libraries in `PREFIX/lib/dtrace`, for an executable in `PREFIX/bin`: those that are not
/// built in, and those that were changed after the executable. The others are not opened.
fn add_installed(libraries: &mut Libraries, executable: &Path) -> Result<(), String> {
    let Some(bin) = executable.parent().filter(|dir| dir.ends_with("bin")) else { return Ok(()) };
    let Ok(mut paths) = files(&bin.with_file_name("lib").join("dtrace")) else { return Ok(()) };
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified());
    let built = modified(executable).map_err(|e| failed(executable, e))?;
    let is_embedded =
        |path: &Path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| libraries.has(n));
    paths.retain(|path| !is_embedded(path) || modified(path).is_ok_and(|time| time > built));
    read(libraries, paths, false)
}

fn read(libraries: &mut Libraries, paths: Vec<PathBuf>, always: bool) -> Result<(), String> {
    for path in paths {
        let text = contents(&path).map_err(|e| failed(&path, e))?;
        libraries.add(path.display().to_string(), diagnostics::raw::text(text), always);
    }
    Ok(())
}

/// The contents of a regular file. (Opening a FIFO would wait for a writer.)
fn contents(path: &Path) -> std::io::Result<Vec<u8>> {
    match fs::metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(std::io::Error::other("not a regular file")),
    }
}

/// The dependencies that a program declares.
fn needs(program: &Program) -> impl Iterator<Item = (diagnostics::Span, DependencyClass, &str)> {
    program.items.iter().filter_map(|item| match item {
        Item::Pragma(p) => match &p.kind {
            PragmaKind::DependsOn { class, name } => Some((p.span, *class, name.text.as_str())),
            _ => None,
        },
        _ => None,
    })
}

fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Checks what libraries need of libraries, in the words of the original: one that is nowhere, and
/// those that need each other, are errors. (One that is there, but left out, is no error.)
fn check_order(libraries: &Libraries, map: &SourceMap, sink: &mut Sink) {
    let needed = |program: &Program| {
        let of_libraries = |(span, class, name): (_, _, &str)| {
            (class == DependencyClass::Library).then(|| (span, name.to_string()))
        };
        needs(program).filter_map(of_libraries).collect::<Vec<_>>()
    };
    let graph: HashMap<String, Vec<(diagnostics::Span, String)>> = libraries
        .parsed()
        .iter()
        .map(|l| (base(map.name(l.program.file)).to_string(), needed(&l.program)))
        .collect();
    for library in libraries.parsed() {
        let path = map.name(library.program.file);
        let beside = |name: &str| path.strip_suffix(base(path)).unwrap_or_default().to_string() + name;
        for (span, name) in needed(&library.program) {
            let message = if !libraries.has(&name) {
                format!("Invalid library dependency in {path}: {}", beside(&name))
            } else if reaches(&graph, &name, base(path)) {
                format!("Cyclic dependency detected: {} => {path}", beside(&name))
            } else {
                continue;
            };
            sink.push(Diagnostic::new(Tag::D_PRAGMA_DEPEND, span, message));
        }
    }
}

/// Whether a library needs another, or is it.
fn reaches(graph: &HashMap<String, Vec<(diagnostics::Span, String)>>, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (HashSet::new(), vec![from]);
    while let Some(name) = open.pop() {
        if name == to {
            return true;
        }
        if seen.insert(name) {
            open.extend(graph.get(name).into_iter().flatten().map(|(_, next)| next.as_str()));
        }
    }
    false
}

/// Checks `#pragma D depends_on`. A library with an unmet dependency is not used. A program with
/// one is in error, and one that names a library: what a program uses of libraries is found by its
/// names. Those that run, and the `known` libraries that they could use, have what they depend on,
/// also where it is gone since.
pub(crate) fn dependencies(
    (libraries, known): (&mut Libraries, usize),
    programs: &[Program],
    map: &SourceMap,
    (catalog, system): (&dyn Catalog, &System),
    sink: &mut Sink,
) {
    check_order(libraries, map, sink);
    // Whether a library can be used. A library that is not parsed counts as usable.
    let mut usable: HashMap<String, bool> = HashMap::new();
    let met = |usable: &HashMap<String, bool>, libraries: &Libraries, class: DependencyClass, name: &str| {
        match class {
            DependencyClass::Provider => catalog.provider(name).is_some(),
            DependencyClass::Module => system.has_module(name),
            DependencyClass::Library => libraries.has(name) && usable.get(name).copied().unwrap_or(true),
        }
    };
    // Repeated until nothing changes, because libraries can depend on libraries.
    loop {
        let before = usable.values().filter(|u| !**u).count();
        for library in libraries.parsed().get(known..).unwrap_or_default() {
            let ok = needs(&library.program).all(|(_, class, name)| met(&usable, libraries, class, name));
            usable.insert(base(map.name(library.program.file)).to_string(), ok);
        }
        if usable.values().filter(|u| !**u).count() == before {
            break;
        }
    }
    for (span, class, name) in programs.iter().flat_map(needs) {
        if class == DependencyClass::Library {
            let message = "main program may not explicitly depend on a library";
            sink.push(Diagnostic::new(Tag::D_PRAGMA_DEPEND, span, message));
        } else if !met(&usable, libraries, class, name) {
            let class = if class == DependencyClass::Module { "module" } else { "provider" };
            let message = format!("program requires {class} {name}");
            sink.push(Diagnostic::new(Tag::D_PRAGMA_DEPEND, span, message));
        }
    }
    libraries.retain(|l| usable.get(base(map.name(l.program.file))).copied().unwrap_or(true));
}
