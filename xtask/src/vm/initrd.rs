//! The initial file system of a guest: busybox, the modules that mount the root, and `init`. It is
//! made once for a kernel.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

const INIT: &str = include_str!("../init.sh");
const BUSYBOX: &str = "/bin/busybox";

/// The modules to load, each after those that it needs.
const MODULES: [&str; 6] = ["virtio", "virtio_ring", "virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Whoever has looked up an older file has opened it by then.
const OLD: Duration = Duration::from_secs(3600);

/// The file for the kernel unpacked at `kernel`, with its modules at `modules`.
pub(super) fn path(kernel: &Path, modules: &Path) -> Result<PathBuf, String> {
    let fail = |e: io::Error| format!("vm: initrd: {e}");
    let mut hasher = DefaultHasher::new();
    (INIT, MODULES, fs::read(BUSYBOX).map_err(fail)?, modules).hash(&mut hasher);
    let initrd = kernel.join(format!("initrd-{:016x}", hasher.finish()));
    if initrd.exists() {
        return Ok(initrd);
    }
    for entry in fs::read_dir(kernel).map_err(fail)?.flatten() {
        let made = entry.metadata().and_then(|m| m.modified()).unwrap_or_else(|_| SystemTime::now());
        let old = made.elapsed().is_ok_and(|age| age > OLD);
        if old && entry.file_name().to_string_lossy().starts_with("initrd-") {
            let _ = fs::remove_file(entry.path());
        }
    }
    let tree = crate::apt::staging(&initrd)?;
    let made = make(&tree, modules);
    let _ = fs::remove_dir_all(&tree);
    // In one step, for guests that start side by side.
    made.and_then(|packed| fs::rename(packed, &initrd).map_err(fail)).map(|()| initrd)
}

/// Makes the file beside the directory `tree`, in which it collects the contents.
fn make(tree: &Path, modules: &Path) -> Result<PathBuf, String> {
    let fail = |e: io::Error| format!("vm: initrd: {e}");
    for d in ["bin", "dev", "proc", "sys", "lower", "upper", "new", "mod"] {
        fs::create_dir_all(tree.join(d)).map_err(fail)?;
    }
    fs::copy(BUSYBOX, tree.join("bin/busybox")).map_err(fail)?;
    let deps = fs::read_to_string(modules.join("modules.dep")).map_err(fail)?;
    for (i, module) in load_order(&deps).iter().enumerate() {
        let from = modules.join(module);
        let base = from.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let to = tree.join(format!("mod/{i:02}-{}", base.trim_end_matches(".xz")));
        if base.ends_with(".xz") {
            let plain = Command::new("xz").arg("-dc").arg(&from).output().map_err(fail)?;
            fs::write(to, plain.stdout).map_err(fail)?;
        } else {
            fs::copy(from, to).map_err(fail)?;
        }
    }
    let init = tree.join("init");
    fs::write(&init, INIT).map_err(fail)?;
    fs::set_permissions(&init, std::os::unix::fs::PermissionsExt::from_mode(0o755)).map_err(fail)?;
    let packed = tree.with_extension("packed");
    let out = fs::File::create(&packed).map_err(fail)?;
    // Not compressed: the emulated CPU would unpack it at each boot.
    let script = "find . | cpio -o -H newc --quiet";
    let status =
        Command::new("sh").args(["-c", script]).current_dir(tree).stdout(out).status().map_err(fail)?;
    if status.success() { Ok(packed) } else { Err("vm: initrd: cpio failed".into()) }
}

/// The files of [`MODULES`] and of what they need, in the order of loading, from the text of
/// `modules.dep`.
fn load_order(deps: &str) -> Vec<&str> {
    let mut order: Vec<&str> = Vec::new();
    for name in MODULES {
        let wanted = format!("/{name}.ko");
        let Some((file, needs)) =
            deps.lines().filter_map(|l| l.split_once(':')).find(|(f, _)| f.contains(&wanted))
        else {
            continue; // built in
        };
        for module in needs.split_whitespace().rev().chain([file]) {
            if !order.contains(&module) {
                order.push(module);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_those_that_they_need() {
        let deps = "k/fs/9p/9p.ko.xz: k/fs/netfs/netfs.ko.xz k/net/9p/9pnet.ko.xz\n\
                    k/net/9p/9pnet_virtio.ko.xz: k/net/9p/9pnet.ko.xz\n\
                    k/fs/overlayfs/overlay.ko.xz:\nk/net/9p/9pnet.ko.xz:\n";
        assert_eq!(
            load_order(deps),
            [
                "k/net/9p/9pnet.ko.xz",
                "k/net/9p/9pnet_virtio.ko.xz",
                "k/fs/netfs/netfs.ko.xz",
                "k/fs/9p/9p.ko.xz",
                "k/fs/overlayfs/overlay.ko.xz"
            ]
        );
    }
}
