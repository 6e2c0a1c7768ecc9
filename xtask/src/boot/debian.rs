//! A root of Debian on a disk, with initramfs-tools and systemd.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{KNOWN, PROGRAM, check_claim, machine, printed, put, report, told, wrong};
use crate::apt::{self, io, run};

const SUITE: &str = "bookworm";

/// What a machine needs beside the smallest root.
const PACKAGES: &str = "systemd,systemd-sysv,initramfs-tools,udev,kmod,busybox-static,zstd";

/// The modules by which an initramfs finds the root, where they are not built in.
const MODULES: &str = "virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n";

/// Files of the machine, and their modes.
const FILES: [(&str, &str, u32); 9] = [
    ("etc/fstab", "/dev/vda / ext4 rw 0 1\n", 0o644),
    ("etc/hostname", "boot\n", 0o644),
    ("etc/initramfs-tools/hooks/known", include_str!("known-hook.sh"), 0o755),
    ("etc/initramfs-tools/scripts/init-bottom/known", include_str!("known-script.sh"), 0o755),
    ("usr/local/bin/known-before", include_str!("known.sh"), 0o755),
    ("usr/local/bin/known-after", include_str!("known.sh"), 0o755),
    ("usr/local/bin/claim", include_str!("claim.sh"), 0o755),
    ("etc/systemd/system/known.service", include_str!("known.service"), 0o644),
    ("etc/systemd/system/claim.service", include_str!("claim.service"), 0o644),
];

/// The root, which is made once and never changed.
fn root() -> Result<PathBuf, String> {
    let place = crate::vm_dir().join("roots").join(format!("{SUITE}-boot"));
    if place.join(".ok").exists() {
        return Ok(place);
    }
    crate::kernels::install(&[("debootstrap", "/usr/sbin/debootstrap")])?;
    let staged = apt::staging(&place)?;
    eprintln!("xtask: a root of {SUITE} that boots is made");
    let include = format!("--include={PACKAGES}");
    run(Command::new("debootstrap")
        .args(["--variant=minbase", &include, SUITE])
        .arg(&staged)
        .arg(apt::mirror()?))?;
    io(&staged, std::fs::write(staged.join(".ok"), ""))?;
    apt::replace(&staged, &place)?;
    Ok(place)
}

/// The machine: a copy of the root with a kernel, the program, and what is known to be executed.
fn machine(tree: &Path, modules: &Path, program: &Path) -> Result<PathBuf, String> {
    run(Command::new("cp").arg("-a").arg(root()?).arg(tree))?;
    let version = modules.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let lib = tree.join("usr/lib/modules");
    io(&lib, std::fs::create_dir_all(&lib))?;
    run(Command::new("cp").arg("-a").arg(modules).arg(&lib))?;
    // update-initramfs asks which kernels there are.
    let boot = tree.join("boot");
    put("", &boot.join(format!("vmlinuz-{version}")), 0o644)?;
    put("CONFIG_RD_ZSTD=y\n", &boot.join(format!("config-{version}")), 0o644)?;
    put(io(program, std::fs::read(program))?, &tree.join("usr/sbin/dtrace"), 0o755)?;
    for (name, text, mode) in FILES {
        put(text, &tree.join(name), mode)?;
    }
    let tools = tree.join("etc/initramfs-tools");
    let settings = tools.join("initramfs.conf");
    let text = io(&settings, std::fs::read_to_string(&settings))?;
    put(text.replace("MODULES=most", "MODULES=list"), &settings, 0o644)?;
    put(MODULES, &tools.join("modules"), 0o644)?;
    let wants = tree.join("etc/systemd/system/multi-user.target.wants");
    io(&wants, std::fs::create_dir_all(&wants))?;
    for unit in ["known.service", "claim.service"] {
        io(&wants, std::os::unix::fs::symlink(format!("../{unit}"), wants.join(unit)))?;
    }
    // A terminal there would hang up whoever prints.
    let getty = tree.join("etc/systemd/system/serial-getty@ttyS0.service");
    io(&getty, std::os::unix::fs::symlink("/dev/null", &getty))?;
    let mut make = Command::new("unshare");
    make.args(["--mount", "--propagation", "private", "sh", "-c", include_str!("debian.sh"), "sh"]).arg(tree);
    print!("{}", run(make.args([&version, "-q", "-n", PROGRAM]))?);
    Ok(boot.join(format!("initrd.img-{version}")))
}

pub(super) fn test(kernel: &str, program: &Path, work: &Path) -> Result<(), String> {
    let (image, modules) = machine::kernel(kernel)?;
    let tree = work.join("debian");
    let initrd = machine(&tree, &modules, program)?;
    let disk = work.join("disk");
    machine::disk(&tree, &disk)?;
    let boot = |words: &str| {
        let words = format!("root=/dev/vda rw {words}");
        machine::boot(&image, &initrd, Some(&disk), &words, &work.join("console"))
    };
    let counted = |console: &str, count: &str, what: &str| match told(console, "boots") == [count] {
        true => Ok(()),
        false => Err(wrong(&format!("the count of boots is not {count} {what}"), console)),
    };

    let console = boot("test=claim")?;
    check_claim(&console)?;
    counted(&console, "", "in a boot that came up")?;
    report("debian", &console);
    println!("debian: {KNOWN} executions in the initramfs and {KNOWN} after it are claimed, in order");

    let console = boot("test=claim dtrace.anonymous=0")?;
    match printed(&console, "claim") {
        Some((lines, "1")) if lines == ["dtrace: could not enable tracing: No anonymous tracing state"] => {}
        other => return Err(wrong(&format!("a boot that is disabled is claimed: {other:?}"), &console)),
    }
    println!("debian: dtrace.anonymous=0 disables a boot");

    boot("test=leave")?;
    let console = boot("test=claim dtrace.anonymous=0")?;
    check_claim(&console)?;
    println!("debian: what nobody claims is there after the next boot");

    // Two that are killed before they are up, and a third.
    boot("test=kill")?;
    boot("test=kill")?;
    let console = boot("test=claim")?;
    if !told(&console, "log").iter().any(|line| line.contains("the last 2 boots did not reach")) {
        return Err(wrong("a third boot after two that failed does not say so", &console));
    }
    match printed(&console, "claim") {
        Some((lines, "1")) if is_cut(&lines) => {}
        other => return Err(wrong(&format!("what a killed machine has left: {other:?}"), &console)),
    }
    println!("debian: two boots that fail disable the third, and what they recorded is claimed");
    Ok(())
}

/// Whether these lines are what a machine has left that was killed: all that it recorded long
/// before, the beginning of what it recorded in its last seconds, and that the end is missing.
fn is_cut(lines: &[&str]) -> bool {
    let Some((last, lines)) = lines.split_last() else { return false };
    let known = [vec!["begin"], vec!["known-before"; KNOWN], vec!["known-after"; KNOWN]].concat();
    last.contains("the machine was killed") && lines.len() > KNOWN && known.starts_with(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_machine_left_is_a_beginning_that_says_so() {
        let killed =
            "dtrace: what was recorded ends before its session does: dtrace or the machine was killed";
        let first = [vec!["begin"], vec!["known-before"; KNOWN]].concat();
        assert!(is_cut(&[&first[..], &["known-after"; 3], &[killed]].concat()));
        assert!(is_cut(&[&first[..], &[killed]].concat()));
        assert!(!is_cut(&first) && !is_cut(&[&first[..KNOWN], &[killed]].concat()) && !is_cut(&[]));
        assert!(!is_cut(&[&first[..], &["known-after", "known-before", killed]].concat()));
    }
}
