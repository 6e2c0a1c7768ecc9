//! Stock Debian kernels, downloaded once as packages and unpacked under `target/vm/kernels/NAME`.
//!
//! An apt configuration of our own (sources of every suite that carries one of the kernels, an empty status file) keeps
//! the machine's package state untouched; only what runs the guest (QEMU, busybox, cpio) is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernels of the matrix.
pub(crate) const NAMES: [&str; 3] = ["6.1", "6.12", "7.2"];

/// Package and the program that shows it is there.
const TOOLS: [(&str, &str); 5] = [
    ("qemu-system-x86", "/usr/bin/qemu-system-x86_64"),
    ("busybox-static", "/bin/busybox"),
    ("cpio", "/usr/bin/cpio"),
    ("xz-utils", "/usr/bin/xz"),
    ("kmod", "/sbin/depmod"),
];

/// Where a kernel is unpacked.
pub(crate) fn dir(name: &str) -> PathBuf {
    crate::vm_dir().join("kernels").join(name)
}

fn run(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let err = String::from_utf8_lossy(&out.stderr);
    Err(format!("{command:?}: {}", err.lines().next_back().unwrap_or("failed")))
}

fn io<T>(what: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", what.display()))
}

/// Installs the programs that guests need and unpacks the missing kernels.
pub(crate) fn fetch(names: &[&str]) -> Result<(), String> {
    let missing: Vec<&str> = TOOLS.iter().filter(|(_, p)| !Path::new(p).exists()).map(|(n, _)| *n).collect();
    if !missing.is_empty() {
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        run(Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing))?;
    }
    let wanted: Vec<&str> = names.iter().copied().filter(|n| !dir(n).join(".ok").exists()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let apt = Apt::new()?;
    for name in wanted {
        apt.unpack(name)?;
    }
    Ok(())
}

struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new() -> Result<Apt, String> {
        let dir = crate::vm_dir().join("apt");
        for sub in ["lists/partial", "cache/archives/partial"] {
            io(&dir, fs::create_dir_all(dir.join(sub)))?;
        }
        let mirror = mirror()?;
        let sources: String = ["bookworm", "trixie", "sid"]
            .iter()
            .map(|suite| {
                format!(
                    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} main\n"
                )
            })
            .collect();
        io(&dir, fs::write(dir.join("sources.list"), sources))?;
        io(&dir, fs::write(dir.join("status"), ""))?;
        let d = dir.display();
        let options = [
            format!("Dir::State::status={d}/status"),
            format!("Dir::Etc::sourcelist={d}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".into(),
            format!("Dir::State::Lists={d}/lists"),
            format!("Dir::Cache={d}/cache"),
            "APT::Sandbox::User=root".into(),
            "Acquire::Check-Valid-Until=false".into(),
        ];
        let options = options.iter().flat_map(|o| ["-o".to_string(), o.clone()]).collect();
        let apt = Apt { options };
        apt.call("apt-get", &["update", "-qq"])?;
        Ok(apt)
    }

    fn call(&self, program: &str, words: &[&str]) -> Result<String, String> {
        run(Command::new(program).args(&self.options).args(words))
    }

    fn unpack(&self, name: &str) -> Result<(), String> {
        let escaped = name.replace('.', "\\.");
        // Debian 12 names its kernels by ABI number, later ones by full version.
        let pattern = if name == "6.1" {
            "^linux-image-6\\.1\\.[0-9.-]+-amd64$".to_string()
        } else {
            format!("^linux-image-{escaped}\\.[0-9]+\\+deb[0-9]+-amd64$")
        };
        let found = self.call("apt-cache", &["search", "--names-only", &pattern])?;
        let package = found
            .lines()
            .filter_map(|l| l.split_whitespace().next())
            .max_by_key(|p| version_key(p))
            .ok_or_else(|| format!("no Debian kernel {name} in the package registry"))?;
        let release = package.trim_start_matches("linux-image-");
        // Newer suites split the image: boot file and modules are packages of their own.
        let mut packages = vec![package.to_string()];
        for extra in [format!("linux-binary-{release}"), format!("linux-modules-{release}")] {
            if self.call("apt-cache", &["show", &extra]).is_ok_and(|t| !t.is_empty()) {
                packages.push(extra);
            }
        }
        let target = dir(name);
        let debs = target.with_extension("debs");
        let _ = fs::remove_dir_all(&target);
        let _ = fs::remove_dir_all(&debs);
        io(&target, fs::create_dir_all(&target))?;
        io(&debs, fs::create_dir_all(&debs))?;
        run(Command::new("apt-get")
            .args(&self.options)
            .args(["download", "-qq"])
            .args(&packages)
            .current_dir(&debs))?;
        for deb in io(&debs, fs::read_dir(&debs))? {
            run(Command::new("dpkg").arg("-x").arg(io(&debs, deb)?.path()).arg(&target))?;
        }
        let modules = target.join("lib/modules");
        if !modules.exists() {
            io(&modules, fs::create_dir_all(target.join("lib")))?;
            io(&modules, fs::rename(target.join("usr/lib/modules"), &modules))?;
        }
        run(Command::new("/sbin/depmod").arg("-b").arg(&target).arg(release))?;
        let _ = fs::remove_dir_all(&debs);
        let _ = fs::remove_dir_all(target.join("usr"));
        io(&target, fs::write(target.join(".ok"), release))?;
        eprintln!("xtask: kernel {name} is {release}");
        Ok(())
    }
}

fn version_key(package: &str) -> Vec<u64> {
    package.split(|c: char| !c.is_ascii_digit()).filter_map(|d| d.parse().ok()).collect()
}

/// The mirror this machine already uses.
fn mirror() -> Result<String, String> {
    let deb822 = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    if let Some(m) = deb822.lines().find_map(|l| l.strip_prefix("URIs:")) {
        return Ok(m.trim().to_string());
    }
    let list = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    list.lines()
        .find(|l| l.starts_with("deb "))
        .and_then(|l| l.split_whitespace().find(|w| w.contains("://")))
        .map(String::from)
        .ok_or_else(|| "no Debian mirror is configured on this machine".into())
}
