//! Symbols of a guest's kernel, read from outside: stock kernels that an emulator runs, which do
//! not know of it. What they say of themselves on their console is what must be found.
//!
//! The emulator and the kernels are those that `cargo xtask vm` has fetched for its guests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testing::dir::Dir;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::is_guest;
use crate::tool::dtrace;

tests! {
    addresses_in_a_guest_have_the_names_that_its_kernel_gives_them
    without_a_guest_an_address_is_a_number_and_the_reason_is_told_once
}

/// Symbols of the kernel at the beginnings of pages, and an end.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc
/bin/busybox mount -t proc proc /proc
/bin/busybox grep '000 . ' /proc/kallsyms
echo "@end"
while :; do /bin/busybox sleep 1000; done
"#;

const BUSYBOX: &str = "/bin/busybox";

/// Where `cargo xtask vm` has its kernels and its emulator.
fn vm_dir() -> PathBuf {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    let cached = || named("DTRACE_CACHE").filter(|dir| dir.is_dir()).map(|dir| dir.join("vm"));
    named("DTRACE_VM_DIR")
        .or_else(cached)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm"))
}

/// The beginning of the command line of the emulator.
fn emulator() -> Option<Vec<String>> {
    if let Ok(named) = std::env::var("DTRACE_QEMU") {
        return Some(vec![named]);
    }
    let root = vm_dir().join("qemu");
    let at = |path: &str| root.join(path).display().to_string();
    let own = || {
        let words = [
            at("usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path".into(),
            at("usr/lib/x86_64-linux-gnu"),
            at("usr/bin/qemu-system-x86_64"),
            "-L".into(),
            at("usr/share/qemu"),
            "-L".into(),
            at("usr/share/seabios"),
        ];
        words.to_vec()
    };
    let system = "/usr/bin/qemu-system-x86_64";
    match root.join(".ok").exists() {
        true => Some(own()),
        false => Path::new(system).exists().then(|| vec![system.into()]),
    }
}

/// The images of kernels.
fn images() -> Vec<PathBuf> {
    let below = |dir: PathBuf| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_image =
        |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz"));
    let mut all = Vec::new();
    for kernel in below(vm_dir().join("kernels")) {
        let mut places = vec![kernel.join("boot")];
        places.extend(below(kernel.join("lib/modules")));
        all.extend(places.into_iter().flat_map(below).find(is_image));
    }
    all.sort();
    all
}

/// A guest that runs.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The file system that a guest begins with.
fn initrd(dir: &Dir) -> PathBuf {
    let tree = dir.join("tree");
    for name in ["bin", "dev"] {
        fs::create_dir_all(tree.join(name)).unwrap();
    }
    fs::copy(BUSYBOX, tree.join("bin/busybox")).unwrap();
    fs::write(tree.join("init"), INIT).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(tree.join("init"), mode).unwrap();
    let packed = dir.join("initrd");
    let pack = Command::new("sh")
        .args(["-c", "find . | cpio -o -H newc --quiet"])
        .current_dir(&tree)
        .stdout(fs::File::create(&packed).unwrap())
        .status();
    assert!(pack.unwrap().success());
    packed
}

/// Starts a guest, and returns the symbols that it tells: addresses and names.
fn start(emulator: &[String], image: &Path, initrd: &Path, console: &Path) -> (Guest, Vec<(u64, String)>) {
    // That of the guest before.
    let _ = fs::remove_file(console);
    let words = "console=ttyS0 quiet panic=-1 no_timer_check random.trust_cpu=on mitigations=off";
    // More than the machine has below 4 GB.
    let machine = "-accel tcg,thread=single -cpu max -m 4608 -display none -no-reboot -nodefaults";
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .args(emulator)
        .args(machine.split(' '))
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", words, "-serial"])
        .arg(format!("file:{}", console.display()))
        .stdin(Stdio::null())
        .spawn();
    let mut guest = Guest(child.unwrap());
    let text = testing::eventually("the symbols of the guest", testing::HANG_LIMIT, || {
        let text = fs::read_to_string(console).unwrap_or_default();
        assert!(guest.0.try_wait().unwrap().is_none(), "the guest has ended: {text}");
        text.contains("@end").then_some(text)
    });
    (guest, functions(&text))
}

/// Of all symbols at some addresses, those of functions that share their address with none.
fn functions(text: &str) -> Vec<(u64, String)> {
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, kind, name] = words[..] else { return None };
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((address, kind.eq_ignore_ascii_case("t"), name.to_owned()))
    };
    let all: Vec<_> = text.lines().filter_map(symbol).collect();
    let alone = all.chunk_by(|a, b| a.0 == b.0).filter(|some| some.len() == 1);
    let of_code = alone.flatten().filter(|(_, is_function, _)| *is_function);
    of_code.map(|(address, _, name)| (*address, name.clone())).collect()
}

fn addresses_in_a_guest_have_the_names_that_its_kernel_gives_them() -> Verdict {
    if is_guest() {
        return Skip("no guest: an emulated machine runs no other".into());
    }
    let (Some(emulator), images) = (emulator(), images()) else {
        return Skip("no guest: cargo xtask vm has fetched no emulator and no kernel".into());
    };
    if images.is_empty() || !Path::new(BUSYBOX).exists() {
        return Skip("no guest: cargo xtask vm has fetched no emulator and no kernel".into());
    }
    let dir = Dir::new("guests");
    let initrd = initrd(&dir);
    for image in images {
        let (guest, symbols) = start(&emulator, &image, &initrd, &dir.join("console"));
        let some: Vec<_> = symbols.iter().step_by((symbols.len() / 50).max(1)).take(50).collect();
        assert_eq!(some.len(), 50, "{}", image.display());
        assert!(some.iter().all(|(address, _)| *address > 0xffff_ffff_8000_0000), "{some:?}");
        let prints: String = some
            .iter()
            .map(|(address, _)| format!("printf(\"is %A\\n\", guestsym({address:#x}));\n"))
            .collect();
        let ((first, name), (second, _)) = (some[0], some[1]);
        let program = format!(
            "BEGIN {{ {prints} }}
            BEGIN {{ @[guestsym({first:#x})] = count(); @[guestsym({first:#x} + 1)] = count();
            @[guestsym({second:#x})] = count(); @[guestsym(0x1234)] = count(); exit(0); }}"
        );
        let option = format!("guest={}", guest.0.id());
        // A reader that is not optimized takes a few times as long.
        let o = dtrace(&["-x", &option, "-x", "symtimeout=60s", "-qn", &program]).code(0);
        assert_eq!(o.err, "", "{}", image.display());
        let names: Vec<_> = some.iter().map(|(_, name)| format!("vmlinux`{name}")).collect();
        let found: Vec<_> = o.out.lines().filter_map(|line| line.strip_prefix("is ")).collect();
        assert_eq!(found, names, "{}", image.display());
        assert_eq!(o.value_of(&format!("vmlinux`{name}")), 2);
        assert_eq!(o.value_of("0x1234"), 1);
    }
    Pass
}

fn without_a_guest_an_address_is_a_number_and_the_reason_is_told_once() -> Verdict {
    const PROGRAM: &str =
        "BEGIN { printf(\"%A %A\\n\", guestsym(0xffffffff81000000), guestsym(0x10)); exit(0); }";
    let none = dtrace(&["-qn", PROGRAM]).code(0);
    assert_eq!(none.out.trim(), "0xffffffff81000000 0x10");
    assert_eq!(none.err.matches("-x guest=PID").count(), 1, "{}", none.err);
    // This process is no machine, and has no memory of one.
    let own = format!("guest={}", std::process::id());
    let wrong = dtrace(&["-x", &own, "-qn", PROGRAM]).code(0);
    assert_eq!(wrong.out, none.out);
    assert_eq!(wrong.err.matches("has no VMCOREINFO").count(), 1, "{}", wrong.err);
    let all = dtrace(&["-x", "guest=all", "-qn", PROGRAM]).code(0);
    assert_eq!((all.out, all.err), (none.out, String::new()));
    let bad = dtrace(&["-x", "guest=none", "-qn", PROGRAM]).code(1);
    assert!(bad.err.contains("all, or the id of a process"), "{}", bad.err);
    Pass
}
