//! A machine that boots from an initial file system, and perhaps a disk.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::apt::{io, run};

/// How long a boot may take.
const LIMIT: Duration = Duration::from_secs(400);

const WORDS: &str = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr random.trust_cpu=on tsc=reliable \
                     no_timer_check watchdog_thresh=60";

/// The files of a kernel: the image, and the directory of its modules.
pub(super) fn kernel(name: &str) -> Result<(PathBuf, PathBuf), String> {
    let dir = crate::kernels::dir(name);
    let modules = crate::vm::first(&dir.join("lib/modules"), "")?;
    // Older suites put the image into /boot, newer ones beside the modules.
    let image =
        crate::vm::first(&dir.join("boot"), "vmlinuz").or_else(|_| crate::vm::first(&modules, "vmlinuz"))?;
    Ok((image, modules))
}

/// Packs a directory as an initial file system.
pub(super) fn pack(tree: &Path, file: &Path) -> Result<(), String> {
    let out = io(file, std::fs::File::create(file))?;
    let mut cpio = Command::new("sh");
    cpio.args(["-c", "find . | cpio -o -H newc --quiet"]).current_dir(tree).stdout(out);
    let status = cpio.status().map_err(|e| format!("cpio: {e}"))?;
    if status.success() { Ok(()) } else { Err("boot: cpio has failed".into()) }
}

/// Makes a disk with what is in a directory.
pub(super) fn disk(tree: &Path, file: &Path) -> Result<(), String> {
    io(file, std::fs::File::create(file).and_then(|disk| disk.set_len(1 << 30)))?;
    run(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).args([tree, file])).map(drop)
}

/// Boots and waits until the machine is off: what it has printed.
pub(super) fn boot(
    image: &Path,
    initrd: &Path,
    disk: Option<&Path>,
    words: &str,
    console: &Path,
) -> Result<String, String> {
    let qemu = crate::qemu::Qemu::find()?;
    // The machine ends with this process.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(&qemu.command);
    command.args(["-accel", &qemu.accelerator(), "-cpu", crate::vm::CPU, "-m", "1024", "-smp", "1"]);
    command.args(["-display", "none", "-no-reboot", "-nodefaults"]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.arg("-kernel").arg(image).arg("-initrd").arg(initrd);
    command.arg("-append").arg(format!("{WORDS} {words}"));
    if let Some(disk) = disk {
        command.arg("-drive").arg(format!("file={},if=virtio,format=raw", disk.display()));
    }
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|e| format!("setpriv: {e}"))?;
    let begun = Instant::now();
    let ended = crate::long::ended(&mut child, begun + LIMIT, crate::sys::interrupted)?.is_some();
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
    }
    let text = String::from_utf8_lossy(&io(console, std::fs::read(console))?).into_owned();
    println!("boot: a machine ran for {:.0} s ({words})", begun.elapsed().as_secs_f64());
    if ended { Ok(text) } else { Err(super::wrong("the machine did not end", &text)) }
}
