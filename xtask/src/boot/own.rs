//! An initramfs of our own, which switches to a tmpfs.

use std::path::Path;
use std::process::Command;

use super::{KNOWN, PROGRAM, check_claim, machine, put, report, told, wrong};
use crate::apt::{io, run};

/// Makes the state in the tree, whose only programs are ours and busybox: ROOT WORDS...
const STATE: &str = r#"
set -e
mkdir -p "$1/proc" "$1/sys" "$1/dev" "$1/etc" "$1/run" "$1/tmp"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
root=$1
shift
exec chroot "$root" /usr/sbin/dtrace -A "$@"
"#;

pub(super) fn test(kernel: &str, program: &Path, work: &Path) -> Result<(), String> {
    let (image, _) = machine::kernel(kernel)?;
    let tree = work.join("own");
    let known = include_str!("known.sh").replace("/bin/sh", "/bin/busybox sh");
    put(io(program, std::fs::read(program))?, &tree.join("usr/sbin/dtrace"), 0o755)?;
    put(io(program, std::fs::read("/bin/busybox"))?, &tree.join("bin/busybox"), 0o755)?;
    for (name, text) in [
        ("init", include_str!("own-init.sh")),
        ("own-root.sh", include_str!("own-root.sh")),
        ("known-before", &known),
        ("known-after", &known),
    ] {
        put(text, &tree.join(name), 0o755)?;
    }
    let mut state = Command::new("unshare");
    state.args(["--mount", "--propagation", "private", "sh", "-c", STATE, "sh"]).arg(&tree);
    print!("{}", run(state.args(["-q", "-n", PROGRAM]))?);
    let initrd = work.join("own.cpio");
    machine::pack(&tree, &initrd)?;
    let console = machine::boot(&image, &initrd, None, "", &work.join("console"))?;
    check_claim(&console)?;
    // It is no longer one that outlives systemd, and has counted the boot.
    if !told(&console, "process").iter().all(|name| name.starts_with("dtrace ")) {
        return Err(wrong("the process has another name", &console));
    }
    if told(&console, "boots") != ["1"] {
        return Err(wrong("the boot is not counted", &console));
    }
    report("own", &console);
    println!("own: {KNOWN} executions before switch_root and {KNOWN} after it are claimed, in order");
    Ok(())
}
