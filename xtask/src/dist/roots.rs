//! Packages in new roots of Debian: installed, used beside the packages that have a `dtrace` too,
//! removed, purged.
//!
//! A root is made once by debootstrap, in `roots/SUITE` beside the kernels, and never changed: each
//! test sees it below an overlay in memory, in a mount namespace of its own, so that nothing of a
//! test is left, whatever becomes of it. The programs of a root run on this machine's kernel, and
//! `dtrace` in it traces this machine.
//!
//! The steps are shell scripts ([`STEPS`], [`RPM`], [`LINTIAN`]): each line is what an
//! administrator would type, and the first that fails is the error.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::archive::{Entry, with_directories};
use super::deb;
use crate::apt::{self, io, run};

/// The releases of Debian that the package is tested in.
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// The suite whose rpm and lintian are used.
const TOOLS: &str = "bookworm";

const STEPS: &str = include_str!("roots/deb.sh");
const RPM: &str = include_str!("roots/rpm.sh");
const LINTIAN: &str = include_str!("roots/lintian.sh");

/// Prepares the overlay in memory, and runs /dist/steps in it: ROOT DIST STEPS. All mounts end with
/// the namespace.
const ENTER: &str = r#"
set -e
mount -t tmpfs -o size=2g tmpfs /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$1,upperdir=/mnt/up,workdir=/mnt/work" /mnt/root
mkdir /mnt/root/dist
mount --bind "$2" /mnt/root/dist
mount -t proc proc /mnt/root/proc
mount --rbind /sys /mnt/root/sys
mount --rbind /dev /mnt/root/dev
cp -L /etc/resolv.conf /mnt/root/etc/resolv.conf 2>/dev/null || :
printf '#!/bin/sh\nexit 101\n' >/mnt/root/usr/sbin/policy-rc.d
chmod 755 /mnt/root/usr/sbin/policy-rc.d
shift 2
exec chroot /mnt/root /usr/bin/env -i "http_proxy=$http_proxy" "https_proxy=$https_proxy" \
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
	DEBIAN_FRONTEND=noninteractive /bin/sh -ec "$@"
"#;

/// Where the root of a suite is; it is made if it is not there.
fn root(suite: &str) -> Result<PathBuf, String> {
    let place = crate::vm_dir().join("roots").join(suite);
    if place.join(".ok").exists() {
        return Ok(place);
    }
    crate::kernels::install(&[("debootstrap", "/usr/sbin/debootstrap")])?;
    let staged = apt::staging(&place)?;
    eprintln!("xtask: a root of {suite} is made");
    run(Command::new("debootstrap").args(["--variant=minbase", suite]).arg(&staged).arg(apt::mirror()?))?;
    io(&staged, std::fs::write(staged.join(".ok"), ""))?;
    apt::replace(&staged, &place)?;
    Ok(place)
}

/// Runs steps in a root of a suite, which sees the directory `dist` as /dist. What they print is
/// printed.
fn steps(suite: &str, dist: &Path, steps: &str, words: &[&str]) -> Result<(), String> {
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"])
        .args([root(suite)?.as_path(), dist])
        .args([steps, "steps"])
        .args(words)
        .stdin(Stdio::null())
        .status();
    match status.map_err(|e| format!("unshare: {e}"))? {
        status if status.success() => Ok(()),
        status => {
            Err(format!("dist: a step in the root of {suite} has failed ({status}); its output is above"))
        }
    }
}

/// A package that stands for Oracle's: it has the name and the path, and a higher version.
fn oracles() -> Result<Vec<u8>, String> {
    let control = "Package: dtrace\nVersion: 2.0.1-1\nArchitecture: amd64\nMaintainer: Nobody <nobody@localhost>\nDescription: a test\n";
    let files = [Entry::file("usr/sbin/dtrace", 0o755, "#!/bin/sh\necho oracle\n")];
    deb::of_parts(&[Entry::file("control", 0o644, control)], &with_directories(&files), 0)
}

/// Needs root, for namespaces and for what is traced.
fn needs_root() -> Result<(), String> {
    if crate::test::is_root() { Ok(()) } else { Err("dist: packages are tested as root".into()) }
}

fn split(package: &Path) -> Result<(&Path, &str), String> {
    let name = package.file_name().and_then(|name| name.to_str());
    package.parent().zip(name).ok_or_else(|| format!("{}: no package", package.display()))
}

/// Installs, uses and removes the Debian package in a root of each suite.
pub(crate) fn test(package: &Path) -> Result<(), String> {
    needs_root()?;
    let (directory, name) = split(package)?;
    let other = directory.join("oracle.deb");
    io(&other, std::fs::write(&other, oracles()?))?;
    let tested = SUITES.iter().try_for_each(|suite| {
        steps(suite, directory, STEPS, &[name])?;
        println!("{suite}: the package installs, works beside others, and is gone when it is purged");
        Ok(())
    });
    let _ = std::fs::remove_file(&other);
    tested
}

/// Verifies, installs, uses and removes the RPM.
pub(crate) fn test_rpm(package: &Path) -> Result<(), String> {
    needs_root()?;
    let (directory, name) = split(package)?;
    steps(TOOLS, directory, RPM, &[name])?;
    println!("rpm: the package is verified, installs, works, and is gone when it is erased");
    Ok(())
}

/// Fails if lintian finds an error or something to warn of.
pub(crate) fn lintian(package: &Path) -> Result<(), String> {
    needs_root()?;
    let (directory, name) = split(package)?;
    steps(TOOLS, directory, LINTIAN, &[name])?;
    println!("lintian: nothing is found");
    Ok(())
}
