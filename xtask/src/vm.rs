//! Boots a stock kernel in QEMU (software emulation) on this machine's own root and runs one command in it.
//!
//! The guest's root is the host's `/`, read-only through 9p under an overlay in the guest's memory: programs that were
//! built here run there, and all that the guest writes is lost. Output and exit status return through a second 9p directory.
//!
//! QEMU 7.2 has a fault: one emulated CPU can run kernel text that another has just patched, and the guest crashes with
//! `Oops: int3` or a panic. So the emulated CPUs run in turn on one thread, and a guest that crashes that way is booted
//! once more ([`run`] retries and counts). If it crashes again, the command is the cause.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A guest to boot.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) kernel: String,
    pub(crate) root: PathBuf,
    pub(crate) mem: u32,
    pub(crate) cpus: u32,
    pub(crate) timeout: u64,
    pub(crate) append: String,
    /// Directory the command starts in.
    pub(crate) cwd: PathBuf,
}

impl Guest {
    /// Two CPUs, 2 GiB, five minutes.
    pub(crate) fn new(kernel: &str) -> Guest {
        Guest {
            kernel: kernel.into(),
            root: "/".into(),
            mem: 2048,
            cpus: 2,
            timeout: 300,
            append: String::new(),
            cwd: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        }
    }
}

/// How a guest ended.
pub(crate) enum Ended {
    /// The command's exit status.
    Status(u8),
    /// The emulator's fault, with the console's last lines.
    Emulator(String),
    /// No exit status for another reason, with the console's last lines.
    Lost(String),
}

/// `cargo xtask vm …`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let mut guest = Guest::new("6.12");
    let mut words = args.iter();
    let mut next = |name: &str| words.next().cloned().ok_or_else(|| format!("vm: {name} needs a value"));
    loop {
        let word = next("vm").map_err(|_| "vm: no -- COMMAND".to_string())?;
        match word.as_str() {
            "--kernel" => guest.kernel = next("--kernel")?,
            "--root" => guest.root = next("--root")?.into(),
            "--append" => guest.append = next("--append")?,
            "--mem" => guest.mem = number(&next("--mem")?)?,
            "--cpus" => guest.cpus = number(&next("--cpus")?)?,
            "--timeout" => guest.timeout = u64::from(number(&next("--timeout")?)?),
            "--" => break,
            other => return Err(format!("vm: unknown option {other}")),
        }
    }
    let command: Vec<String> = words.cloned().collect();
    if command.is_empty() {
        return Err("vm: no command".into());
    }
    if !crate::kernels::NAMES.contains(&guest.kernel.as_str()) {
        return Err(format!(
            "vm: no kernel {}; there are {}",
            guest.kernel,
            crate::kernels::NAMES.join(", ")
        ));
    }
    crate::kernels::fetch(&[&guest.kernel])?;
    let (ended, deaths) = run(&guest, &command, &mut std::io::stdout())?;
    if deaths > 0 {
        eprintln!("vm: {deaths} guest(s) died of the emulator's fault and were booted again");
    }
    match ended {
        Ended::Status(code) => Ok(code),
        Ended::Emulator(console) | Ended::Lost(console) => {
            Err(format!("vm: the guest stopped without an exit status; its console:\n{console}"))
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("vm: {text} is no number"))
}

/// Runs `command`, and runs it once more if the emulator's fault crashed the guest. Also returns the number of crashes.
pub(crate) fn run(guest: &Guest, command: &[String], out: &mut dyn Write) -> Result<(Ended, u32), String> {
    match boot(guest, command, out)? {
        Ended::Emulator(console) => {
            eprintln!("vm: the guest died of the emulator's fault; booting again. Its console:\n{console}");
            Ok((boot(guest, command, out)?, 1))
        }
        ended => Ok((ended, 0)),
    }
}

fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn boot(guest: &Guest, command: &[String], out: &mut dyn Write) -> Result<Ended, String> {
    // Guests of one process run side by side.
    static BOOTS: AtomicU32 = AtomicU32::new(0);
    let number = BOOTS.fetch_add(1, Ordering::Relaxed);
    let name = format!("dtrace-vm-{}-{number}-{}", std::process::id(), guest.kernel);
    let work = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&work);
    let share = work.join("out");
    let fail = |e: std::io::Error| format!("vm: {}: {e}", work.display());
    fs::create_dir_all(&share).map_err(fail)?;
    let words: Vec<String> = command.iter().map(|w| shell_quote(w)).collect();
    let cwd = shell_quote(&guest.cwd.to_string_lossy());
    // `dtrace` is the release binary.
    let path = shell_quote(&crate::test::target_dir().join("release").to_string_lossy());
    let script = format!("export PATH={path}:$PATH\ncd {cwd} 2>/dev/null || cd /\n{}\n", words.join(" "));
    fs::write(share.join("cmd"), script).map_err(fail)?;
    fs::write(share.join("log"), "").map_err(fail)?;
    let initrd = initrd(&guest.kernel, &work)?;
    let result = qemu(guest, &work, &initrd, out);
    let _ = fs::remove_dir_all(&work);
    result
}

fn qemu(guest: &Guest, work: &Path, initrd: &Path, out: &mut dyn Write) -> Result<Ended, String> {
    let kernel = crate::kernels::dir(&guest.kernel);
    let modules = first(&kernel.join("lib/modules"), "")?;
    // Older suites put the image into /boot, newer ones beside the modules.
    let image = first(&kernel.join("boot"), "vmlinuz").or_else(|_| first(&modules, "vmlinuz"))?;
    let console = work.join("console");
    let mut args: Vec<String> = vec![
        "-accel".into(),
        std::env::var("DTRACE_VM_ACCEL").unwrap_or_else(|_| "tcg,thread=single".into()),
        "-cpu".into(),
        "max".into(),
        "-m".into(),
        guest.mem.to_string(),
        "-smp".into(),
        guest.cpus.to_string(),
    ];
    args.extend("-display none -no-reboot -nodefaults".split(' ').map(String::from));
    args.extend(["-serial".into(), format!("file:{}", console.display())]);
    args.extend([
        "-kernel".into(),
        image.display().to_string(),
        "-initrd".into(),
        initrd.display().to_string(),
    ]);
    // Debian's later kernels take 32-bit system calls only when asked to.
    let append = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr random.trust_cpu=on ia32_emulation=on";
    args.extend(["-append".into(), format!("{append} {}", guest.append)]);
    let shares = [
        ("root", guest.root.clone(), ",readonly=on,multidevs=remap"),
        ("out", work.join("out"), ""),
        ("mods", modules, ",readonly=on"),
    ];
    for (tag, path, extra) in shares {
        args.extend([
            "-fsdev".into(),
            format!("local,id={tag},path={},security_model=none{extra}", path.display()),
            "-device".into(),
            format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
        ]);
    }
    let mut child = Command::new("qemu-system-x86_64")
        .args(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("vm: qemu-system-x86_64: {e}"))?;
    let start = Instant::now();
    let mut log = fs::File::open(work.join("out/log")).map_err(|e| e.to_string())?;
    let mut seen = 0;
    let mut late = false;
    loop {
        let done = child.try_wait().map_err(|e| e.to_string())?.is_some();
        seen = copy_new(&mut log, seen, out)?;
        if done {
            break;
        }
        if start.elapsed() > Duration::from_secs(guest.timeout) {
            let _ = child.kill();
            late = true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    copy_new(&mut log, seen, out)?;
    if let Ok(code) = fs::read_to_string(work.join("out/rc"))
        && let Ok(code) = code.trim().parse::<u8>()
    {
        return Ok(Ended::Status(code));
    }
    let text = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(60)..].join("\n");
    if late {
        return Ok(Ended::Lost(format!("{tail}\nno end after {} s", guest.timeout)));
    }
    if text.contains("Oops: int3") || text.contains("Kernel panic") {
        return Ok(Ended::Emulator(tail));
    }
    Ok(Ended::Lost(tail))
}

fn copy_new(log: &mut fs::File, from: u64, out: &mut dyn Write) -> Result<u64, String> {
    let mut bytes = Vec::new();
    log.seek(SeekFrom::Start(from)).and_then(|_| log.read_to_end(&mut bytes)).map_err(|e| e.to_string())?;
    out.write_all(&bytes).and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    Ok(from + bytes.len() as u64)
}

/// The first entry of `dir` whose name begins with `prefix`.
fn first(dir: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    entries
        .flatten()
        .map(|e| e.path())
        .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)))
        .ok_or_else(|| format!("{}: nothing named {prefix}*", dir.display()))
}

/// Makes the initial file system: busybox, the modules that mount the root, and `init`.
fn initrd(kernel: &str, work: &Path) -> Result<PathBuf, String> {
    let fail = |e: std::io::Error| format!("vm: initrd: {e}");
    let tree = work.join("tree");
    for d in ["bin", "dev", "proc", "sys", "lower", "upper", "new", "mod"] {
        fs::create_dir_all(tree.join(d)).map_err(fail)?;
    }
    fs::copy("/bin/busybox", tree.join("bin/busybox")).map_err(fail)?;
    let modules = first(&crate::kernels::dir(kernel).join("lib/modules"), "")?;
    let deps = fs::read_to_string(modules.join("modules.dep")).map_err(fail)?;
    let mut order: Vec<String> = Vec::new();
    for name in ["virtio", "virtio_ring", "virtio_pci", "9pnet_virtio", "9p", "overlay"] {
        let wanted = format!("/{name}.ko");
        let Some((file, needs)) =
            deps.lines().filter_map(|l| l.split_once(':')).find(|(f, _)| f.contains(&wanted))
        else {
            continue; // built in
        };
        for module in needs.split_whitespace().rev().chain([file]) {
            if !order.iter().any(|m| m == module) {
                order.push(module.to_string());
            }
        }
    }
    for (i, module) in order.iter().enumerate() {
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
    fs::write(&init, include_str!("init.sh")).map_err(fail)?;
    fs::set_permissions(&init, std::os::unix::fs::PermissionsExt::from_mode(0o755)).map_err(fail)?;
    let initrd = work.join("initrd");
    let script =
        format!("find . | cpio -o -H newc --quiet | gzip -1 >{}", shell_quote(&initrd.to_string_lossy()));
    let status = Command::new("sh").args(["-c", &script]).current_dir(&tree).status().map_err(fail)?;
    if status.success() { Ok(initrd) } else { Err("vm: initrd: cpio failed".into()) }
}
