//! The Debian package (deb(5), deb-control(5)), `dtrace-rs`.
//!
//! Two other packages have a program of this name:
//!
//! | Package | Its file | What is done |
//! |---|---|---|
//! | `systemtap-sdt-dev` | `/usr/bin/dtrace`, which makes headers and objects of provider definitions | it is diverted to `dtrace.systemtap` while this package is installed (dpkg-divert(1)), and so is its page. Its header stays. Ours does what it does (`-h`, `-G`) |
//! | `dtrace` | `/usr/sbin/dtrace`, Oracle's tracer | they conflict: apt offers to remove one for the other. This package is called otherwise, so that Oracle's, whose version is higher, is no upgrade of it |

use super::archive::{Entry, ar, gzip, tar, with_directories, xz};
use super::contents::Release;

/// The name of the package.
pub(crate) const NAME: &str = "dtrace-rs";

/// What is diverted: the file of the other package, and where it is meanwhile.
const DIVERTED: [(&str, &str); 2] = [
    ("/usr/bin/dtrace", "/usr/bin/dtrace.systemtap"),
    ("/usr/share/man/man1/dtrace.1.gz", "/usr/share/man/man1/dtrace.systemtap.1.gz"),
];

/// Who makes the package, as Debian's fields have it. The project has no address yet: that of
/// whoever publishes belongs here.
const MAINTAINER: &str = "DTrace for Linux <maintainers@dtrace-for-linux.invalid>";

const SUMMARY: &str = "dynamic tracing of the kernel and of programs, in D";

const DESCRIPTION: &str = " A running system is asked a question by a short program in the language D,
 which is compiled to eBPF, proved safe by the kernel, and gone when the
 answer is there. It traces system calls, functions and tracepoints of the
 kernel, functions and instructions of processes, and the probes that programs
 bring along (USDT), with stacks, aggregations and flame graphs.
 .
 Most tools of the DTrace Toolkit are included: iosnoop, execsnoop, opensnoop,
 dtruss and others.
 .
 The program needs no library and no compiler. It needs Linux 6.1 or later.
";

/// The reasons for which lintian's findings are right and stay.
const OVERRIDES: &str = "\
# The program has to work on machines whose libraries are what is traced, or are broken: in containers without
# libraries, in an initramfs, in a rescue shell. So it is linked statically, as a static-pie.
dtrace-rs: statically-linked-binary [usr/bin/dtrace]
dtrace-rs: shared-library-lacks-prerequisites [usr/bin/dtrace]
# Tools in D begin with \"#!/usr/bin/env -S dtrace -s\".
dtrace-rs: unusual-interpreter -S [usr/share/dtrace/toolkit/*]
# Their shell ends with exec; what follows is D.
dtrace-rs: shell-script-fails-syntax-check [usr/share/dtrace/toolkit/*]
";

/// The packages that this one is no friend of.
const CONFLICTS: &str = "dtrace";

/// The version as Debian's tools compare it: 0.2.0-rc.1 comes before 0.2.0.
fn version(version: &str) -> String {
    version.replacen('-', "~", 1)
}

/// The name of the file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("{NAME}_{}_amd64.deb", version(&release.version))
}

/// What is installed.
fn files(release: &Release) -> Vec<Entry> {
    let mut all = release.packaged("usr/share/zsh/vendor-completions");
    let text = |path: &str, content: Vec<u8>| Entry::file(path, 0o644, content);
    let changelog = format!(
        "{NAME} ({}) unstable; urgency=medium\n\n  * Release {} of the project.\n\n -- {MAINTAINER}  {}\n",
        version(&release.version),
        release.version,
        super::date::mail(release.time)
    );
    all.push(text("usr/share/doc/dtrace-rs/changelog.gz", gzip(changelog.as_bytes())));
    all.push(text("usr/share/doc/dtrace-rs/copyright", copyright(release).into_bytes()));
    all.push(text("usr/share/doc/dtrace-rs/third-party.txt.gz", gzip(release.notices.as_bytes())));
    all.push(text("usr/share/doc/dtrace-rs/sbom.cdx.json.gz", gzip(release.sbom.as_bytes())));
    all.push(text("usr/share/lintian/overrides/dtrace-rs", OVERRIDES.into()));
    with_directories(&all)
}

fn copyright(release: &Release) -> String {
    let mut out = "DTrace for Linux\n\n\
        Copyright: its authors. Licence: MIT or Apache-2.0, at your choice.\n\
        The libraries in the program and their licences: third-party.txt.gz, beside this file.\n\n\
        The Apache License, version 2.0, is /usr/share/common-licenses/Apache-2.0.\n"
        .to_owned();
    for (_, text) in release.licences.iter().filter(|(name, _)| name == "LICENSE-MIT") {
        out.push_str(&format!("\nThe MIT licence:\n\n{text}"));
    }
    out
}

fn control(release: &Release, files: &[Entry]) -> String {
    // Of dpkg-gencontrol: each file rounded up to KiB, anything else 1 KiB.
    let size: usize = files.iter().map(|entry| entry.content().len().div_ceil(1024).max(1)).sum();
    let fields = [
        ("Package", NAME.to_owned()),
        ("Version", version(&release.version)),
        ("Architecture", "amd64".to_owned()),
        ("Maintainer", MAINTAINER.to_owned()),
        ("Installed-Size", size.to_string()),
        ("Depends", "adduser".to_owned()),
        ("Conflicts", CONFLICTS.to_owned()),
        ("Section", "utils".to_owned()),
        ("Priority", "optional".to_owned()),
        ("Description", SUMMARY.to_owned()),
    ];
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    lines + DESCRIPTION
}

/// Diverts what another package has or will have. Also when it comes later, its files get the other
/// names.
fn preinst() -> String {
    let mut out = "#!/bin/sh\nset -e\n\nif [ \"$1\" = install ] || [ \"$1\" = upgrade ]; then\n".to_owned();
    for (from, to) in DIVERTED {
        out.push_str(&format!(
            "\tdpkg-divert --quiet --package {NAME} --add --rename --divert {to} {from}\n"
        ));
    }
    out + "fi\n"
}

/// The group whose members an administrator may let trace: nothing is given to it here.
fn postinst() -> String {
    "#!/bin/sh\nset -e\n\nif [ \"$1\" = configure ]; then\n\tgetent group dtrace >/dev/null || addgroup --quiet --system dtrace\nfi\n"
        .to_owned()
}

/// Undoes the diversions. The group stays when the package is purged: files may belong to it, and
/// another group would get its number.
fn postrm() -> String {
    let mut out = "#!/bin/sh\nset -e\n\nif [ \"$1\" = remove ] || [ \"$1\" = abort-install ] || [ \"$1\" = disappear ]; then\n".to_owned();
    for (from, to) in DIVERTED {
        out.push_str(&format!(
            "\tdpkg-divert --quiet --package {NAME} --remove --rename --divert {to} {from}\n"
        ));
    }
    out + "fi\n"
}

/// The package.
pub(crate) fn package(release: &Release) -> Result<Vec<u8>, String> {
    let files = files(release);
    let sums = files.iter().filter(|entry| matches!(entry.kind, super::archive::Kind::File(_)));
    let sums: String = sums.map(|e| format!("{}  {}\n", super::digest::md5(e.content()), e.path)).collect();
    let script = |name: &str, text: String| Entry::file(name, 0o755, text);
    let control = [
        Entry::file("control", 0o644, control(release, &files)),
        Entry::file("md5sums", 0o644, sums),
        script("postinst", postinst()),
        script("postrm", postrm()),
        script("preinst", preinst()),
    ];
    of_parts(&control, &files, release.time)
}

/// A package of these control files and these files.
pub(crate) fn of_parts(control: &[Entry], files: &[Entry], time: u64) -> Result<Vec<u8>, String> {
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.xz", xz(&tar("./", control, time)?)?),
        ("data.tar.xz", xz(&tar("./", files, time)?)?),
    ];
    Ok(ar(&members, time))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::dist::contents::tests::{listed, release};

    #[test]
    fn the_package_has_its_files_and_each_tells_what_the_other_package_is_called_meanwhile() {
        let lines = listed(&files(&release()));
        for line in [
            "usr 755",
            "usr/bin/dtrace 755",
            "usr/bin/iosnoop -> ../share/dtrace/toolkit/iosnoop",
            "usr/share/doc/dtrace-rs/copyright 644",
            "usr/share/doc/dtrace-rs/sbom.cdx.json.gz 644",
            "usr/share/lintian/overrides/dtrace-rs 644",
            "usr/share/zsh/vendor-completions/_dtrace 644",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line} is not in {lines:#?}");
        }
        for (from, to) in DIVERTED {
            assert!(preinst().contains(&format!("--add --rename --divert {to} {from}\n")));
            assert!(postrm().contains(&format!("--remove --rename --divert {to} {from}\n")));
        }
    }

    #[test]
    fn the_control_fields_name_the_package_its_size_and_what_it_conflicts_with() {
        let files = [Entry::file("a", 0o644, vec![0; 1025]), Entry::link("b", "a")];
        let mut release = release();
        release.version = "0.2.0-rc.1".into();
        let text = control(&release, &files);
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(&format!("{name}: "))).unwrap();
        assert_eq!((field("Package"), field("Version")), ("dtrace-rs", "0.2.0~rc.1"));
        assert_eq!((field("Installed-Size"), field("Architecture")), ("3", "amd64"));
        assert_eq!((field("Conflicts"), field("Depends")), ("dtrace", "adduser"));
        let description = text.split_once("Description: ").unwrap().1;
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ')));
        assert_eq!(file_name(&release), "dtrace-rs_0.2.0~rc.1_amd64.deb");
    }

    #[test]
    fn a_package_is_the_same_bytes_each_time_and_an_archive_of_three_members() {
        let (one, two) = (package(&release()).unwrap(), package(&release()).unwrap());
        assert!(one == two && one.starts_with(b"!<arch>\ndebian-binary   86400 "));
        let text = String::from_utf8_lossy(&one);
        assert!(text.contains("control.tar.xz  86400 ") && text.contains("data.tar.xz     86400 "));
    }
}
