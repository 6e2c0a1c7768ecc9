//! The QEMU that runs the guests.
//!
//! It is that of Debian trixie, unpacked under `vm/qemu` and run by its own loader and libraries:
//! the machine's own programs are untouched. Where that one cannot be had, the distribution's runs
//! the guests, and `DTRACE_QEMU` names any other program.
//!
//! Of three releases it is the quickest (CPU time of the same tests on 6.1, two runs each): 10.0.13
//! took 56 s where sid's 11.1.3 took 68. In that one each look-up of the next block of code waits
//! for a store that is still on its way (`helper_lookup_tb_ptr`). Bookworm's 7.2 is slower than
//! both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::apt::{Apt, io, replace, staging};

/// The distribution's package, and the program in it.
pub(crate) const DISTRIBUTION: (&str, &str) = ("qemu-system-x86", "/usr/bin/qemu-system-x86_64");

/// Where it is taken from.
const SUITE: &str = "trixie";

/// Packages that QEMU depends on, and that a guest without a screen, sound, and network of QEMU
/// does not need.
const NEEDLESS: [&str; 16] = [
    "adduser",
    "base-passwd",
    "debconf",
    "gcc-14-base",
    "ipxe-qemu",
    "libaudit-common",
    "libdebconfclient0",
    "libexecs1",
    "libpam-modules",
    "libpam-modules-bin",
    "libsasl2-modules-db",
    "libsemanage-common",
    "libsemanage2",
    "login.defs",
    "openssl-provider-legacy",
    "passwd",
];

/// What is not unpacked of the others.
const NO_FILES: [&str; 5] = [
    "./usr/bin/qemu-system-i386",
    "./usr/libexec",
    "./usr/share/doc",
    "./usr/share/locale",
    "./usr/share/man",
];

fn dir() -> PathBuf {
    crate::vm_dir().join("qemu")
}

/// Whether nothing has to be fetched.
pub(crate) fn is_here() -> bool {
    std::env::var_os("DTRACE_QEMU").is_some() || dir().join(".ok").exists()
}

/// Unpacks the suite's QEMU, unless that version is there.
pub(crate) fn fetch_newest(apt: &Apt) -> Result<(), String> {
    let package = DISTRIBUTION.0;
    let words = ["install", "--no-install-recommends", "--print-uris", "-qq", "-y", "-t", SUITE, package];
    // Each line: 'ADDRESS' FILE SIZE CHECKSUM
    let uris = apt.call("apt-get", &words)?;
    let files: Vec<&str> = uris.lines().filter_map(|l| l.split_whitespace().nth(1)).collect();
    let version = files.iter().find(|f| name_of(f) == package).ok_or("apt names no package of QEMU")?;
    if fs::read_to_string(dir().join(".ok")).is_ok_and(|here| here == *version) {
        return Ok(());
    }
    let needed = files.iter().map(|f| name_of(f)).filter(|n| !NEEDLESS.contains(n));
    let packages: Vec<String> = needed.map(|name| format!("{name}/{SUITE}")).collect();
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let target = staging(&dir())?;
    let unpacked = apt.unpack(&packages, &target, &NO_FILES).and_then(|()| {
        // A library that is missing shows here.
        version_of(&own(&target))?;
        io(&target, fs::write(target.join(".ok"), version))?;
        replace(&target, &dir())
    });
    let _ = fs::remove_dir_all(&target);
    unpacked
}

/// `libc6_2.41-1_amd64.deb`: `libc6`.
fn name_of(file: &str) -> &str {
    file.split('_').next().unwrap_or(file)
}

/// The beginning of the command line for the QEMU unpacked there.
fn own(root: &Path) -> Vec<String> {
    let at = |path: &str| root.join(path).display().to_string();
    vec![
        at("usr/lib64/ld-linux-x86-64.so.2"),
        "--library-path".into(),
        at("usr/lib/x86_64-linux-gnu"),
        at("usr/bin/qemu-system-x86_64"),
        "-L".into(),
        at("usr/share/qemu"),
        "-L".into(),
        at("usr/share/seabios"),
    ]
}

/// The QEMU that runs guests.
pub(crate) struct Qemu {
    /// The beginning of its command line.
    pub(crate) command: Vec<String>,
    /// `11.1.3`
    version: String,
}

impl Qemu {
    /// Looks for it, once.
    pub(crate) fn find() -> Result<&'static Qemu, String> {
        static FOUND: OnceLock<Result<Qemu, String>> = OnceLock::new();
        let find = || {
            let command = match std::env::var("DTRACE_QEMU") {
                Ok(named) => vec![named],
                Err(_) if dir().join(".ok").exists() => own(&dir()),
                Err(_) => vec![DISTRIBUTION.1.into()],
            };
            Ok(Qemu { version: version_of(&command)?, command })
        };
        FOUND.get_or_init(find).as_ref().map_err(String::clone)
    }

    /// How it emulates the CPUs.
    pub(crate) fn accelerator(&self) -> String {
        std::env::var("DTRACE_VM_ACCEL").unwrap_or_else(|_| ACCELERATOR.into())
    }
}

/// The CPUs of a guest take turns in one thread. With `thread=multi` each has its own, which costs
/// a fourth more CPU time than it saves where two guests run at once; and QEMU 7.2 can let a CPU
/// run kernel text then that another has just patched, or go on with wrong registers after a patch:
/// the kernel dies (`Oops: int3`, a panic anywhere) after minutes of attaching and detaching.
const ACCELERATOR: &str = "tcg,thread=single";

/// Says which QEMU runs the guests.
pub(crate) fn tell() {
    if let Ok(qemu) = Qemu::find() {
        let program = qemu.command.iter().find(|w| w.contains("qemu-system")).map_or("", String::as_str);
        eprintln!("xtask: guests run in QEMU {} ({}), {program}", qemu.version, qemu.accelerator());
    }
}

fn version_of(command: &[String]) -> Result<String, String> {
    let (program, words) = command.split_first().ok_or("no QEMU")?;
    let text = crate::apt::run(Command::new(program).args(words).arg("--version"))?;
    let version = text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
    version.map(String::from).ok_or_else(|| format!("{program}: it does not tell its version"))
}
