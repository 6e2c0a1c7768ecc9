//! `cargo xtask install`: the binary, the D libraries, the toolkit and the manual pages, below a
//! prefix.
//!
//! ```text
//! PREFIX/bin/dtrace                      the release build
//! PREFIX/bin/TOOL                        a link to PREFIX/share/dtrace/toolkit/TOOL
//! PREFIX/lib/dtrace/*.d                  the libraries, which are built in too
//! PREFIX/share/dtrace/toolkit/*          the tools
//! PREFIX/share/dtrace/exporter/*         a script and a dashboard for the service of metrics
//! PREFIX/lib/systemd/system/*.service    that service
//! PREFIX/share/man/man1/*.1              the manual pages
//! PREFIX/share/bash-completion/completions/dtrace
//! PREFIX/share/zsh/site-functions/_dtrace
//! PREFIX/share/fish/vendor_completions.d/dtrace.fish
//!                                        what completes words at a prompt: the binary prints it
//! ```
//!
//! `--library` adds the library for C, which is built with the profile `library`:
//!
//! ```text
//! PREFIX/lib/libdtrace_rs.so.0           the library
//! PREFIX/lib/libdtrace_rs.so             a link to it
//! PREFIX/lib/pkgconfig/dtrace-rs.pc
//! PREFIX/include/dtrace-rs/dtrace.h
//! PREFIX/share/man/man3/libdtrace-rs.3
//! ```
//!
//! Everything is checked before anything is written: a file of another program is not replaced. The
//! binary is written last, because a library that is newer than the binary replaces the built-in
//! one.

use std::fs;
use std::path::{Path, PathBuf};

const DEFAULT_PREFIX: &str = "/usr/local";

/// The binary. Other programs of this name are scripts.
pub(crate) const BINARY: &str = "bin/dtrace";

/// What an installed file is made of.
pub(crate) enum Source {
    File(PathBuf),
    /// A symbolic link with this text.
    Link(PathBuf),
    /// This text.
    Text(String),
}

/// The files that complete words, by shell: `dtrace --completions SHELL` prints them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/dtrace"),
    ("zsh", "share/zsh/site-functions/_dtrace"),
    ("fish", "share/fish/vendor_completions.d/dtrace.fish"),
];

/// What the binary prints as the completions of a shell.
pub(crate) fn completions(binary: &Path, shell: &str) -> Result<String, String> {
    let printed = std::process::Command::new(binary).args(["--completions", shell]).output();
    let printed = printed.map_err(|e| format!("{}: {e}", binary.display()))?;
    let text =
        String::from_utf8(printed.stdout).ok().filter(|text| printed.status.success() && !text.is_empty());
    text.ok_or_else(|| format!("install: {} --completions {shell} failed", binary.display()))
}

pub(crate) struct Entry {
    /// Below the prefix.
    pub(crate) to: PathBuf,
    pub(crate) from: Source,
    pub(crate) mode: u32,
}

/// `cargo xtask install [--prefix DIR] [--destdir DIR] [--library]`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let (mut prefix, mut destdir) = (PathBuf::from(DEFAULT_PREFIX), PathBuf::new());
    let mut has_library = false;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "--library" {
            has_library = true;
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (word.as_str(), words.next().cloned()),
        };
        let place = match name {
            "--prefix" => &mut prefix,
            "--destdir" => &mut destdir,
            _ => {
                return Err(format!(
                    "install: no option {word}; there are --prefix DIR, --destdir DIR and --library"
                ));
            }
        };
        *place = PathBuf::from(value.ok_or_else(|| format!("install: {name} needs a directory"))?);
    }
    if !prefix.is_absolute() {
        return Err(format!("install: the prefix must be an absolute path: {}", prefix.display()));
    }
    build(&["--release", "-p", "cli"])?;
    let (tree, target) = (crate::root(), crate::test::target_dir());
    let binary = target.join("release/dtrace");
    let top = below(&destdir, &prefix);
    let mut files = Vec::new();
    if has_library {
        build(&["--profile", "library", "-p", "dtrace-c"])?;
        files = library(&tree, &target.join("library/libdtrace_rs.so"), &prefix)?;
    }
    files.extend(plan(&tree, &binary, &|shell| completions(&binary, shell))?);
    install(&files, &top)?;
    println!("installed below {}", top.display());
    Ok(0)
}

fn build(what: &[&str]) -> Result<(), String> {
    let mut cargo = std::process::Command::new("cargo");
    let status = cargo.args(["build", "-q"]).args(what).current_dir(crate::root()).status();
    if !status.map_err(|e| format!("cargo: {e}"))?.success() {
        return Err("install: the build failed".into());
    }
    Ok(())
}

/// The library for C, and what compilers and people need of it.
fn library(tree: &Path, built: &Path, prefix: &Path) -> Result<Vec<Entry>, String> {
    const NAME: &str = "libdtrace_rs.so.0";
    let source = tree.join("bindings/c");
    let config = fs::read_to_string(source.join("dtrace-rs.pc.in")).map_err(|e| format!("install: {e}"))?;
    let config = config.replace("@PREFIX@", &prefix.display().to_string());
    let config = config.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    let file = |to: &str, from: PathBuf| Entry { to: to.into(), from: Source::File(from), mode: 0o644 };
    Ok(vec![
        file("include/dtrace-rs/dtrace.h", source.join("dtrace.h")),
        Entry { to: "lib/pkgconfig/dtrace-rs.pc".into(), from: Source::Text(config), mode: 0o644 },
        file("share/man/man3/libdtrace-rs.3", tree.join("docs/libdtrace-rs.3")),
        Entry { to: "lib/libdtrace_rs.so".into(), from: Source::Link(NAME.into()), mode: 0 },
        Entry { to: Path::new("lib").join(NAME), from: Source::File(built.into()), mode: 0o755 },
    ])
}

/// The prefix inside the staging directory.
fn below(destdir: &Path, prefix: &Path) -> PathBuf {
    if destdir.as_os_str().is_empty() {
        prefix.into()
    } else {
        destdir.join(prefix.strip_prefix("/").unwrap_or(prefix))
    }
}

/// The files of a directory of the tree that have a name such as `keep` wants, by name.
pub(crate) fn names(dir: &Path, keep: impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.retain(|name| keep(name));
    names.sort();
    Ok(names)
}

/// Gives the completions of a shell.
type Completions<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// What is installed. The binary is last.
pub(crate) fn plan(tree: &Path, binary: &Path, completions: Completions<'_>) -> Result<Vec<Entry>, String> {
    let mut all = Vec::new();
    let mut file = |to: PathBuf, from: PathBuf, mode| all.push(Entry { to, from: Source::File(from), mode });
    for name in names(&tree.join("lib"), |n| n.ends_with(".d"))? {
        file(Path::new("lib/dtrace").join(&name), tree.join("lib").join(name), 0o644);
    }
    for name in names(&tree.join("docs"), |n| n.ends_with(".1"))? {
        file(Path::new("share/man/man1").join(&name), tree.join("docs").join(name), 0o644);
    }
    let exporter = tree.join("docs/exporter");
    for name in names(&exporter, |_| true)? {
        let to = if name.ends_with(".service") { "lib/systemd/system" } else { "share/dtrace/exporter" };
        file(Path::new(to).join(&name), exporter.join(name), 0o644);
    }
    let flight = tree.join("docs/flight");
    for name in names(&flight, |n| n.ends_with(".service"))? {
        file(Path::new("lib/systemd/system").join(&name), flight.join(name), 0o644);
    }
    let tools = names(&tree.join("scripts"), |n| !n.contains('.'))?;
    for name in &tools {
        file(Path::new("share/dtrace/toolkit").join(name), tree.join("scripts").join(name), 0o755);
    }
    for name in tools {
        let text = Path::new("../share/dtrace/toolkit").join(&name);
        all.push(Entry { to: Path::new("bin").join(name), from: Source::Link(text), mode: 0 });
    }
    for (shell, to) in COMPLETIONS {
        all.push(Entry { to: to.into(), from: Source::Text(completions(shell)?), mode: 0o644 });
    }
    all.push(Entry { to: BINARY.into(), from: Source::File(binary.into()), mode: 0o755 });
    Ok(all)
}

/// Installs files below a directory.
fn install(plan: &[Entry], top: &Path) -> Result<(), String> {
    for entry in plan {
        let to = top.join(&entry.to);
        let Ok(there) = fs::symlink_metadata(&to) else { continue };
        let is_ours = match &entry.from {
            Source::File(_) => there.is_file() && (entry.to != Path::new(BINARY) || is_program(&to)),
            Source::Text(text) => there.is_file() && is_text_of_ours(&to, text),
            Source::Link(text) => fs::read_link(&to).is_ok_and(|t| t == *text),
        };
        if !is_ours {
            return Err(format!(
                "install: {} exists and was not installed by this; nothing is written",
                to.display()
            ));
        }
    }
    for entry in plan {
        let to = top.join(&entry.to);
        write(entry, &to).map_err(|e| format!("install: {}: {e}", to.display()))?;
    }
    Ok(())
}

/// A text of ours, of this version or another: the first lines are alike.
fn is_text_of_ours(file: &Path, ours: &str) -> bool {
    const BEGINS: [&str; 2] = ["# Completions of dtrace for ", "# For pkg-config, of libdtrace-rs."];
    let begins = |line: &str| BEGINS.iter().any(|begin| line.starts_with(begin));
    let named = |text: &str| text.lines().take(2).any(begins);
    fs::read_to_string(file).is_ok_and(|there| there == ours || named(&there) && named(ours))
}

/// An ELF file.
fn is_program(file: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    fs::File::open(file).and_then(|mut f| f.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// A file that is in use (the binary) keeps its content, because the new one is another file that
/// takes its name.
fn write(entry: &Entry, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    match &entry.from {
        Source::Link(_) if fs::symlink_metadata(to).is_ok() => Ok(()),
        Source::Link(text) => std::os::unix::fs::symlink(text, to),
        Source::File(_) | Source::Text(_) => {
            let new = to.with_extension("new-dtrace");
            match &entry.from {
                Source::Text(text) => fs::write(&new, text)?,
                Source::File(from) | Source::Link(from) => drop(fs::copy(from, &new)?),
            }
            fs::set_permissions(&new, fs::Permissions::from_mode(entry.mode))?;
            fs::rename(&new, to)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A directory that is removed at the end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let dir = std::env::temp_dir().join(format!("dt-install-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            Directory(dir)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The files and links below a directory, with their permissions or what they point to.
    fn list(top: &Path) -> Vec<String> {
        use std::os::unix::fs::PermissionsExt;
        let (mut out, mut todo) = (Vec::new(), vec![top.to_path_buf()]);
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(top).unwrap().display().to_string();
                let what = fs::symlink_metadata(&path).unwrap();
                if what.is_dir() {
                    todo.push(path);
                } else if what.is_symlink() {
                    out.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
                } else {
                    out.push(format!("{name} {:o}", what.permissions().mode() & 0o777));
                }
            }
        }
        out.sort();
        out
    }

    /// A tree with a library, a tool and a page, and a binary.
    fn tree(dir: &Path) -> PathBuf {
        for (name, text) in [
            ("lib/a.d", "inline int A = 1;"),
            ("scripts/tool", "#!/bin/sh"),
            ("scripts/README.md", ""),
            ("docs/x.1", ".TH X 1"),
            ("docs/guide.md", ""),
            ("docs/exporter/a.d", "BEGIN { }"),
            ("docs/exporter/a@.service", "[Unit]"),
            ("docs/flight/b@.service", "[Unit]"),
            ("built", "\x7fELF, a binary"),
        ] {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir.join("built")
    }

    /// Completions as a binary prints them.
    fn printed(shell: &str) -> Result<String, String> {
        Ok(format!("# Completions of dtrace for {shell}\n"))
    }

    #[test]
    fn exactly_the_files_of_the_plan_are_installed() {
        let (from, to) = (Directory::new("from"), Directory::new("to"));
        let binary = tree(&from.0);
        let top = below(&to.0, Path::new("/usr/local"));
        let expected = [
            "usr/local/bin/dtrace 755",
            "usr/local/bin/tool -> ../share/dtrace/toolkit/tool",
            "usr/local/lib/dtrace/a.d 644",
            "usr/local/lib/systemd/system/a@.service 644",
            "usr/local/lib/systemd/system/b@.service 644",
            "usr/local/share/bash-completion/completions/dtrace 644",
            "usr/local/share/dtrace/exporter/a.d 644",
            "usr/local/share/dtrace/toolkit/tool 755",
            "usr/local/share/fish/vendor_completions.d/dtrace.fish 644",
            "usr/local/share/man/man1/x.1 644",
            "usr/local/share/zsh/site-functions/_dtrace 644",
        ];
        // A second installation replaces the first.
        for _ in 0..2 {
            install(&plan(&from.0, &binary, &printed).unwrap(), &top).unwrap();
            assert_eq!(list(&to.0), expected);
        }
        assert_eq!(fs::read(top.join("bin/tool")).unwrap(), b"#!/bin/sh");
        let time = |name: &str| fs::metadata(top.join(name)).unwrap().modified().unwrap();
        assert!(time("lib/dtrace/a.d") <= time("bin/dtrace"));
    }

    #[test]
    fn nothing_is_installed_where_a_file_of_another_program_has_a_name_of_ours() {
        let (from, to) = (Directory::new("other-from"), Directory::new("other-to"));
        let binary = tree(&from.0);
        fs::create_dir_all(to.0.join("bin")).unwrap();
        fs::create_dir_all(to.0.join("share/zsh/site-functions")).unwrap();
        for name in ["bin/tool", "bin/dtrace", "share/zsh/site-functions/_dtrace"] {
            fs::write(to.0.join(name), "another").unwrap();
            let plan = plan(&from.0, &binary, &printed).unwrap();
            let error = install(&plan, &to.0).unwrap_err();
            assert!(error.contains(&format!("{name} exists")), "{error}");
            assert_eq!(list(&to.0), [format!("{name} 644")]);
            fs::remove_file(to.0.join(name)).unwrap();
        }
    }

    /// Over one of another prefix, too.
    #[test]
    fn the_library_for_c_is_installed_with_what_compilers_need() {
        let (from, to) = (Directory::new("library-from"), Directory::new("library-to"));
        let built = from.0.join("libdtrace_rs.so");
        fs::write(&built, "ELF").unwrap();
        for prefix in ["/opt/x", "/usr/local"] {
            install(&library(&crate::root(), &built, Path::new(prefix)).unwrap(), &to.0).unwrap();
        }
        let expected = [
            "include/dtrace-rs/dtrace.h 644",
            "lib/libdtrace_rs.so -> libdtrace_rs.so.0",
            "lib/libdtrace_rs.so.0 755",
            "lib/pkgconfig/dtrace-rs.pc 644",
            "share/man/man3/libdtrace-rs.3 644",
        ];
        assert_eq!(list(&to.0), expected);
        let config = fs::read_to_string(to.0.join("lib/pkgconfig/dtrace-rs.pc")).unwrap();
        assert!(config.contains("prefix=/usr/local\n") && !config.contains('@'), "{config}");
    }

    #[test]
    fn what_is_installed_of_this_tree_is_every_library_tool_and_page() {
        let plan = plan(&crate::root(), Path::new("dtrace"), &printed).unwrap();
        let count = |start: &str| plan.iter().filter(|e| e.to.starts_with(start)).count();
        let tools = count("share/dtrace/toolkit");
        assert_eq!(count("bin"), tools + 1);
        assert!(tools >= 10 && count("lib/dtrace") >= 16 && count("share/man/man1") >= 2);
    }
}
