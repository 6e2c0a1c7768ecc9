//! What packages contain: the files of `cargo xtask install`, and what a machine that installs
//! packages expects beside them.

use std::path::Path;

use super::archive::{Entry, gzip};
use super::sbom::Part;
use crate::install;

/// A build and what is said of it.
pub(crate) struct Release {
    pub(crate) version: String,
    /// Seconds since 1970 of the commit: the time of everything.
    pub(crate) time: u64,
    /// The stripped program.
    pub(crate) binary: Vec<u8>,
    /// Below a prefix: libraries, tools with their links, manual pages.
    pub(crate) installed: Vec<Entry>,
    /// The licences of this project: the name of the file, and the text.
    pub(crate) licences: Vec<(String, String)>,
    /// The licences of the libraries in the program.
    pub(crate) notices: String,
    /// The list of the libraries in the program (CycloneDX).
    pub(crate) sbom: String,
}

/// Where zsh looks for completions below a prefix.
const ZSH: &str = "share/zsh/site-functions";

/// The tools whose names other programs have too, which Debian and Fedora package: in packages they
/// have another name: `iotop` is that of the packages `iotop` and `iotop-c`, `trace` that of perf,
/// the others those of packages of their own names.
const TAKEN: [&str; 6] = ["crash", "hotspot", "iotop", "sslsniff", "tcpstat", "trace"];

/// The name of a tool on PATH.
fn command(tool: &str) -> String {
    if TAKEN.contains(&tool) { format!("{tool}-dtrace") } else { tool.into() }
}

impl Release {
    /// Of this tree, with the program in `file`.
    pub(crate) fn of(tree: &Path, file: &Path, time: u64) -> Result<Release, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let parts = super::sbom::parts(tree)?;
        let version = parts.iter().find(|part| part.name == "cli").map(|part| part.version.clone());
        let version = version.ok_or("dist: cargo names no package cli")?;
        let mut licences = Vec::new();
        for name in install::names(tree, |name| name.starts_with("LICENSE-"))? {
            let text = String::from_utf8_lossy(&read(&tree.join(&name))?).into_owned();
            licences.push((name, text));
        }
        let mut installed = Vec::new();
        let plan = install::plan(tree, file, &|shell| install::completions(file, shell))?;
        for entry in plan.into_iter().filter(|entry| entry.to != Path::new(install::BINARY)) {
            let to = entry.to.display().to_string();
            installed.push(match entry.from {
                install::Source::File(from) => Entry::file(to, entry.mode, read(&from)?),
                install::Source::Link(text) => Entry::link(to, text.display().to_string()),
                install::Source::Text(text) => Entry::file(to, entry.mode, text),
            });
        }
        Ok(Release {
            binary: read(file)?,
            notices: notices(&parts),
            sbom: super::sbom::cyclonedx(&parts, &version, time)?,
            version,
            time,
            installed,
            licences,
        })
    }

    /// The tools.
    fn tools(&self) -> impl Iterator<Item = &str> {
        self.installed.iter().filter_map(|entry| entry.path.strip_prefix("share/dtrace/toolkit/"))
    }

    /// The tarball: a prefix, to be unpacked anywhere, for instance in /usr/local.
    pub(crate) fn tarball(&self) -> Vec<Entry> {
        let mut all = self.installed.clone();
        all.push(Entry::file("bin/dtrace", 0o755, self.binary.clone()));
        let text = |name: &str, text: &str| Entry::file(format!("share/doc/dtrace/{name}"), 0o644, text);
        all.extend(self.licences.iter().map(|(name, licence)| text(name, licence)));
        all.push(text("third-party.txt", &self.notices));
        all.push(text("sbom.cdx.json", &self.sbom));
        all
    }

    /// The files of a package of a distribution, below `/`, without those that only its kind of
    /// package has. `zsh` is where its zsh looks for completions.
    pub(crate) fn packaged(&self, zsh: &str) -> Vec<Entry> {
        let mut all = vec![Entry::file("usr/bin/dtrace", 0o755, self.binary.clone())];
        for entry in &self.installed {
            let mut entry = entry.clone();
            if let Some(tool) = entry.path.strip_prefix("bin/") {
                entry.path = format!("bin/{}", command(tool));
            }
            entry.path = match entry.path.strip_prefix(ZSH) {
                Some(name) => format!("{zsh}{name}"),
                None => format!("usr/{}", entry.path),
            };
            if entry.path.starts_with("usr/share/man/") {
                entry = Entry::file(format!("{}.gz", entry.path), entry.mode, gzip(entry.content()));
            }
            all.push(entry);
        }
        // One page is about all tools, and is found by the name of each.
        let page = |tool| format!("usr/share/man/man1/{}.1.gz", command(tool));
        let tools = self.tools().filter(|tool| *tool != "dtrace-toolkit");
        all.extend(tools.map(|tool| Entry::link(page(tool), "dtrace-toolkit.1.gz")));
        all
    }
}

/// The licences of the libraries: each text once, with the libraries that come with it.
fn notices(parts: &[Part]) -> String {
    let mut out = "The program dtrace contains these libraries.\n\n".to_owned();
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    for part in parts.iter().filter(|part| !part.is_own) {
        out.push_str(&format!("{} {}: {}\n", part.name, part.version, part.licence));
        for text in &part.licences {
            match texts.iter_mut().find(|(known, _)| known == text) {
                Some((_, names)) if names.last() == Some(&part.name.as_str()) => {}
                Some((_, names)) => names.push(&part.name),
                None => texts.push((text, vec![&part.name])),
            }
        }
    }
    out.push_str("The standard library of Rust: MIT OR Apache-2.0 (https://github.com/rust-lang/rust)\n");
    out.push_str("The C library musl: MIT (https://musl.libc.org)\n");
    for (text, names) in texts {
        out.push_str(&format!("\n---- {}\n\n{}\n", names.join(", "), text.trim()));
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A release of two tools.
    pub(in crate::dist) fn release() -> Release {
        let tool = |name: &str| {
            [
                Entry::file(format!("share/dtrace/toolkit/{name}"), 0o755, "#!/bin/sh\n"),
                Entry::link(format!("bin/{name}"), format!("../share/dtrace/toolkit/{name}")),
            ]
        };
        let mut installed = [tool("iosnoop"), tool("iotop")].concat();
        installed.push(Entry::file("share/man/man1/dtrace.1", 0o644, ".TH DTRACE 1\n"));
        installed.push(Entry::file("share/man/man1/dtrace-toolkit.1", 0o644, ".TH DTRACE-TOOLKIT 1\n"));
        let bash = "share/bash-completion/completions/dtrace";
        installed.push(Entry::file(bash, 0o644, "complete\n"));
        installed.push(Entry::file(format!("{ZSH}/_dtrace"), 0o644, "#compdef\n"));
        installed.push(Entry::file("lib/dtrace/io.d", 0o644, "inline int A = 1;\n"));
        Release {
            version: "0.1.0".into(),
            time: 86_400,
            binary: b"\x7fELF".to_vec(),
            installed,
            licences: vec![("LICENSE-MIT".into(), "MIT\n".into())],
            notices: "none\n".into(),
            sbom: "{}\n".into(),
        }
    }

    /// The paths with their permissions, or with what they point to.
    pub(in crate::dist) fn listed(entries: &[Entry]) -> Vec<String> {
        use crate::dist::archive::Kind;
        let line = |entry: &Entry| match &entry.kind {
            Kind::Link(text) => format!("{} -> {text}", entry.path),
            _ => format!("{} {:o}", entry.path, entry.mode),
        };
        let mut lines: Vec<String> = entries.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_tarball_is_a_prefix_with_the_program_the_tools_and_what_is_said_of_them() {
        assert_eq!(
            listed(&release().tarball()),
            [
                "bin/dtrace 755",
                "bin/iosnoop -> ../share/dtrace/toolkit/iosnoop",
                "bin/iotop -> ../share/dtrace/toolkit/iotop",
                "lib/dtrace/io.d 644",
                "share/bash-completion/completions/dtrace 644",
                "share/doc/dtrace/LICENSE-MIT 644",
                "share/doc/dtrace/sbom.cdx.json 644",
                "share/doc/dtrace/third-party.txt 644",
                "share/dtrace/toolkit/iosnoop 755",
                "share/dtrace/toolkit/iotop 755",
                "share/man/man1/dtrace-toolkit.1 644",
                "share/man/man1/dtrace.1 644",
                "share/zsh/site-functions/_dtrace 644",
            ]
        );
    }

    #[test]
    fn a_package_has_a_page_for_each_tool_and_other_names_for_tools_whose_names_are_taken() {
        assert_eq!(
            listed(&release().packaged("usr/share/zsh/vendor-completions")),
            [
                "usr/bin/dtrace 755",
                "usr/bin/iosnoop -> ../share/dtrace/toolkit/iosnoop",
                "usr/bin/iotop-dtrace -> ../share/dtrace/toolkit/iotop",
                "usr/lib/dtrace/io.d 644",
                "usr/share/bash-completion/completions/dtrace 644",
                "usr/share/dtrace/toolkit/iosnoop 755",
                "usr/share/dtrace/toolkit/iotop 755",
                "usr/share/man/man1/dtrace-toolkit.1.gz 644",
                "usr/share/man/man1/dtrace.1.gz 644",
                "usr/share/man/man1/iosnoop.1.gz -> dtrace-toolkit.1.gz",
                "usr/share/man/man1/iotop-dtrace.1.gz -> dtrace-toolkit.1.gz",
                "usr/share/zsh/vendor-completions/_dtrace 644",
            ]
        );
    }

    #[test]
    fn the_page_of_the_toolkit_is_a_file_and_tools_with_names_of_other_programs_have_another() {
        let mut release = release();
        for name in ["dtrace-toolkit", "trace", "crash", "sslsniff"] {
            release.installed.push(Entry::file(format!("share/dtrace/toolkit/{name}"), 0o755, "#!/bin/sh\n"));
        }
        let all = listed(&release.packaged("usr/share/zsh/vendor-completions"));
        let page = all.iter().filter(|l| l.starts_with("usr/share/man/man1/dtrace-toolkit.1.gz"));
        assert_eq!(page.collect::<Vec<_>>(), ["usr/share/man/man1/dtrace-toolkit.1.gz 644"]);
        for name in ["trace", "crash", "sslsniff"] {
            let page = format!("usr/share/man/man1/{name}-dtrace.1.gz -> dtrace-toolkit.1.gz");
            assert!(all.contains(&page), "{page}: {all:?}");
        }
    }

    #[test]
    fn a_text_that_many_libraries_come_with_is_there_once_with_all_their_names() {
        let part = |name: &str, text: &str| Part {
            name: name.into(),
            version: "1.0.0".into(),
            licence: "MIT".into(),
            licences: vec![text.into()],
            ..Part::default()
        };
        let text = notices(&[part("a", "The text."), part("b", "Another."), part("c", "The text.")]);
        assert!(text.contains("a 1.0.0: MIT\nb 1.0.0: MIT\nc 1.0.0: MIT\n"));
        assert!(text.contains("\n---- a, c\n\nThe text.\n") && text.contains("\n---- b\n\nAnother.\n"));
        assert_eq!(text.matches("The text.").count(), 1);
    }
}
