//! The D libraries of a session, and their dependencies.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diagnostics::{Diagnostic, Sink, SourceMap, Tag, control};
use probes::Catalog;
use syntax::Libraries;
use syntax::ast::{DependencyClass, Item, PragmaKind, Program};

use crate::options::Options;

/// The libraries of a session: ours, or those of `-xsyslibdir`; then those of `-L`, which are
/// always looked at whole.
pub(crate) fn find(options: &Options) -> Result<Libraries, String> {
    if options.flag("nolibs") {
        return Ok(Libraries::default());
    }
    let system = options.text("syslibdir");
    let mut out = if system.is_empty() { Libraries::embedded() } else { Libraries::default() };
    if !system.is_empty() {
        add(&mut out, &system, false)?;
    }
    for dir in options.texts("libdir") {
        add(&mut out, &dir, true)?;
    }
    Ok(out)
}

/// The `.d` files of a directory, by name.
fn add(libraries: &mut Libraries, dir: &str, always: bool) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| {
        let text = e.to_string();
        let reason = text.split(" (os error").next().unwrap_or_default();
        format!("failed to read D library '{}': {reason}", control::name(path.as_os_str().as_bytes()))
    };
    let entries = fs::read_dir(dir).map_err(|e| failed(Path::new(dir), e))?;
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "d"));
    paths.sort();
    for path in paths {
        let text = fs::read(&path).map_err(|e| failed(&path, e))?;
        libraries.add(path.display().to_string(), diagnostics::raw::text(text), always);
    }
    Ok(())
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

/// Checks `#pragma D depends_on`. A library with an unmet dependency is not used. A program with
/// one is in error.
pub(crate) fn dependencies(
    libraries: &mut Libraries,
    programs: &[Program],
    map: &SourceMap,
    catalog: &dyn Catalog,
    sink: &mut Sink,
) {
    let base = |name: &str| name.rsplit('/').next().unwrap_or(name).to_string();
    // Whether a library can be used. A library that is not parsed counts as usable.
    let mut usable: HashMap<String, bool> = HashMap::new();
    let met = |usable: &HashMap<String, bool>, libraries: &Libraries, class: DependencyClass, name: &str| {
        match class {
            DependencyClass::Provider => catalog.provider(name).is_some(),
            DependencyClass::Module => has_module(name),
            DependencyClass::Library => libraries.has(name) && usable.get(name).copied().unwrap_or(true),
        }
    };
    // Repeated until nothing changes, because libraries can depend on libraries.
    loop {
        let before = usable.values().filter(|u| !**u).count();
        for library in libraries.parsed() {
            let ok = needs(&library.program).all(|(_, class, name)| met(&usable, libraries, class, name));
            usable.insert(base(map.name(library.program.file)), ok);
        }
        if usable.values().filter(|u| !**u).count() == before {
            break;
        }
    }
    for (span, class, name) in programs.iter().flat_map(needs) {
        if !met(&usable, libraries, class, name) {
            let class = match class {
                DependencyClass::Module => "module",
                DependencyClass::Provider => "provider",
                DependencyClass::Library => "library",
            };
            let message = format!("program requires {class} {name}");
            sink.push(Diagnostic::new(Tag::D_PRAGMA_DEPEND, span, message));
        }
    }
    libraries.retain(|l| usable.get(&base(map.name(l.program.file))).copied().unwrap_or(true));
}

/// True for a kernel module that is loaded or built in, and for the kernel itself.
fn has_module(name: &str) -> bool {
    let plain = !name.contains('/') && !name.starts_with('.');
    name == "vmlinux" || plain && Path::new("/sys/module").join(name.replace('-', "_")).is_dir()
}
