//! Finds the peers: bpftrace and the C port of DTrace.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How to run a peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    words: Vec<String>,
    /// Options before the script.
    options: &'static [&'static str],
    /// The version it reports.
    pub(crate) version: String,
}

impl Peer {
    fn new(words: Vec<String>, version: &str, options: &'static [&'static str]) -> Option<Peer> {
        let out = Command::new(&words[0]).args(&words[1..]).arg(version).output().ok()?;
        let version = String::from_utf8_lossy(&out.stdout).trim().to_string();
        out.status.success().then_some(Peer { words, options, version })
    }

    /// `bpftrace -q -e SCRIPT`, `dtrace -qn SCRIPT`
    pub(crate) fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(self.options).arg(script).env("BPFTRACE_MAX_PROBES", "10000");
        command
    }
}

impl Peer {
    /// The number of probes to which bpftrace says that it attaches a script, without its BEGIN.
    pub(crate) fn attached(&self, script: &str) -> Option<f64> {
        let out = Command::new(&self.words[0])
            .args(&self.words[1..])
            .args(["-e", script])
            .env("BPFTRACE_MAX_PROBES", "10000")
            .output()
            .ok()?;
        let text = [out.stdout, out.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let (_, rest) = text.split_once("Attached ")?;
        rest.split_whitespace().next()?.parse::<f64>().ok().map(|n| n - 1.0)
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|s| s.success())
}

/// Mounts the file systems that bpftrace needs inside its root. It does not start without a
/// tracefs, so one is mounted if the system has none.
fn mount_in(root: &Path) {
    for dir in ["proc", "sys", "dev"] {
        let place = root.join(dir);
        if !succeeds(Command::new("mountpoint").arg("-q").arg(&place)) {
            let _ = succeeds(Command::new("mount").arg("--rbind").arg(format!("/{dir}")).arg(&place));
            let _ = succeeds(Command::new("mount").arg("--make-rslave").arg(&place));
        }
    }
    let tracing = root.join("sys/kernel/tracing");
    if !tracing.join("available_events").exists() {
        let _ = succeeds(Command::new("mount").args(["-t", "tracefs", "none"]).arg(&tracing));
    }
}

/// The root file system with the peers, if there is one.
fn root() -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default();
    let root = std::env::var_os("DTRACE_PEERS").map_or_else(|| top.join("target/vm/peers"), PathBuf::from);
    root.join("usr/bin/bpftrace").exists().then_some(root)
}

/// bpftrace of that root, or of this machine.
pub(crate) fn bpftrace() -> Option<Peer> {
    let mut candidates = vec![vec!["bpftrace".to_string()]];
    if let Some(root) = root() {
        mount_in(&root);
        candidates.insert(0, vec!["chroot".into(), root.display().to_string(), "bpftrace".into()]);
    }
    candidates.into_iter().find_map(|words| Peer::new(words, "--version", &["-q", "-e"]))
}

/// The C port of DTrace in that root.
pub(crate) fn c_port() -> Option<Peer> {
    let root = root().filter(|r| r.join("usr/sbin/dtrace").exists())?;
    let words = vec!["chroot".into(), root.display().to_string(), "/usr/sbin/dtrace".into()];
    Peer::new(words, "-V", &["-qn"])
}
