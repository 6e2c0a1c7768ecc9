//! Debian packages, downloaded and unpacked without a change to this machine.
//!
//! apt runs with a configuration of our own (every suite that carries one of the guests' kernels,
//! an empty status file) in a directory that lives as long as the value, so that processes side by
//! side do not wait for each other's locks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The suites: each carries one of the kernels, and one of them the QEMU.
const SUITES: [&str; 3] = ["bookworm", "trixie", "sid"];

pub(crate) struct Apt {
    dir: PathBuf,
    options: Vec<String>,
}

impl Drop for Apt {
    fn drop(&mut self) {
        // The lists of three suites are 80 MB, and stale tomorrow.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let err = String::from_utf8_lossy(&out.stderr);
    Err(format!("{command:?}: {}", err.lines().next_back().unwrap_or("failed")))
}

pub(crate) fn io<T>(what: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", what.display()))
}

/// A new empty directory beside `target`, to be renamed to it when it is complete.
pub(crate) fn staging(target: &Path) -> Result<PathBuf, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = target.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let dir = target.with_file_name(format!(".{name}-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    io(&dir, fs::create_dir_all(&dir))?;
    Ok(dir)
}

/// Removes the staging directories in `dir` whose process is gone.
pub(crate) fn remove_left(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix('.').and_then(|n| n.rsplit('-').nth(1)?.parse().ok());
        if process.is_some_and(|p| !crate::vm::is_alive(p)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Puts a complete directory in its place. What was there is removed.
pub(crate) fn replace(staged: &Path, target: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(target);
    io(target, fs::rename(staged, target))
}

impl Apt {
    /// Reads the lists of packages.
    pub(crate) fn new() -> Result<Apt, String> {
        remove_left(&crate::vm_dir());
        let dir = staging(&crate::vm_dir().join("apt"))?;
        let mut apt = Apt { dir, options: Vec::new() };
        let dir = &apt.dir;
        for sub in ["lists/partial", "cache/archives/partial"] {
            io(dir, fs::create_dir_all(dir.join(sub)))?;
        }
        let mirror = mirror()?;
        let source = |suite| {
            format!("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} main\n")
        };
        io(dir, fs::write(dir.join("sources.list"), SUITES.map(source).concat()))?;
        io(dir, fs::write(dir.join("status"), ""))?;
        let d = dir.display();
        let options = [
            format!("Dir::State::status={d}/status"),
            format!("Dir::Etc::sourcelist={d}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".into(),
            format!("Dir::State::Lists={d}/lists"),
            format!("Dir::Cache={d}/cache"),
            // Images of containers switch these off, and without them each call reads all lists
            // again (3 s).
            "Dir::Cache::pkgcache=pkgcache.bin".into(),
            "Dir::Cache::srcpkgcache=srcpkgcache.bin".into(),
            "APT::Sandbox::User=root".into(),
            "Acquire::Check-Valid-Until=false".into(),
            "Acquire::Languages=none".into(),
        ];
        apt.options = options.iter().flat_map(|o| ["-o".to_string(), o.clone()]).collect();
        apt.call("apt-get", &["update", "-qq"])?;
        Ok(apt)
    }

    pub(crate) fn call(&self, program: &str, words: &[&str]) -> Result<String, String> {
        run(Command::new(program).args(&self.options).args(words))
    }

    /// All names of packages that begin so.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>, String> {
        Ok(self.call("apt-cache", &["pkgnames", prefix])?.lines().map(String::from).collect())
    }

    /// Downloads packages (`NAME` or `NAME/SUITE`) and unpacks them into `target`, each file whose
    /// path `tar` does not exclude.
    pub(crate) fn unpack(&self, packages: &[&str], target: &Path, exclude: &[&str]) -> Result<(), String> {
        let debs = target.join("debs");
        io(&debs, fs::create_dir_all(&debs))?;
        run(Command::new("apt-get")
            .args(&self.options)
            .args(["download", "-qq"])
            .args(packages)
            .current_dir(&debs))?;
        for deb in io(&debs, fs::read_dir(&debs))? {
            let deb = io(&debs, deb)?.path();
            let mut archive = io(
                &deb,
                Command::new("dpkg-deb").arg("--fsys-tarfile").arg(&deb).stdout(Stdio::piped()).spawn(),
            )?;
            let input = archive.stdout.take().map_or_else(Stdio::null, Stdio::from);
            run(Command::new("tar")
                .args(["-x", "--wildcards", "--anchored", "-C"])
                .arg(target)
                .args(exclude.iter().map(|e| format!("--exclude={e}")))
                .stdin(input))?;
            if !io(&deb, archive.wait())?.success() {
                return Err(format!("{}: not unpacked", deb.display()));
            }
        }
        let _ = fs::remove_dir_all(&debs);
        Ok(())
    }
}

/// The mirror this machine already uses.
pub(crate) fn mirror() -> Result<String, String> {
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
