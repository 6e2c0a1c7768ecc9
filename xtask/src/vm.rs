//! Boots a stock kernel in QEMU (software emulation) on this machine's own root and runs one command in it.
//!
//! The guest's root is the host's `/`, read-only through 9p under an overlay in the guest's memory: programs that were
//! built here run there, and all that the guest writes is lost. Output and exit status return through a second 9p directory.
//!
//! QEMU 7.2 has a fault: an emulated CPU can run kernel text that another has just patched, or go on with wrong registers
//! after a patch, and the guest's kernel dies (`Oops: int3`, a panic anywhere). So the emulated CPUs run in turn on one
//! thread, and a guest that dies in a panic or an oops is booted once more: [`run`] prints its whole console and counts it.
//! If the second one dies too, the command is the cause.
//!
//! After the command, the guest's kernel log is searched for faults of the kernel ([`FAULTS`]). A finding fails the run.

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
    pub(crate) silence: Option<u64>,
    pub(crate) files: Vec<(String, Vec<u8>)>,
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
            silence: None,
            files: Vec::new(),
            cwd: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        }
    }
}

/// How a guest ended.
pub(crate) enum Ended {
    /// The command's exit status.
    Status(u8),
    /// The command ended, and the kernel's log has faults: these.
    Kernel(String),
    /// The kernel died, with the whole console.
    Died(String),
    /// No exit status for another reason, with the console's last lines.
    Lost(String),
}

/// A command's run in a guest.
pub(crate) struct Ran {
    pub(crate) ended: Ended,
    /// What a guest printed before it died, if one did.
    pub(crate) dead: Option<String>,
    /// What the guest printed, or the one that was booted in place of the dead one.
    pub(crate) output: String,
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
    match run(&guest, &mut std::io::stdout(), &|_| command.clone())?.ended {
        Ended::Status(code) => Ok(code),
        Ended::Kernel(findings) => Err(format!("vm: the guest's kernel log has faults:\n{findings}")),
        Ended::Died(_) => Err("vm: two guests died: their consoles are above".into()),
        Ended::Lost(console) => {
            Err(format!("vm: the guest stopped without an exit status; its console:\n{console}"))
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("vm: {text} is no number"))
}

/// Runs a command. When the guest dies, another one is booted: `command` gets what the dead one printed, and returns what is
/// left to run.
pub(crate) fn run(
    guest: &Guest,
    out: &mut dyn Write,
    command: &dyn Fn(Option<&str>) -> Vec<String>,
) -> Result<Ran, String> {
    retried(out, &|dead, out| boot(guest, &command(dead), out))
}

/// One boot: given what a dead guest printed, and where to print.
type BootOnce<'a> = dyn Fn(Option<&str>, &mut dyn Write) -> Result<Ended, String> + 'a;

fn retried(out: &mut dyn Write, boot: &BootOnce<'_>) -> Result<Ran, String> {
    let mut once = |dead: Option<&str>| {
        let mut copy = Copy { kept: Vec::new(), to: out };
        let ended = boot(dead, &mut copy)?;
        if let Ended::Died(console) = &ended {
            let again = if dead.is_none() { "; another one is booted" } else { ", the second one" };
            let text = format!("\nvm: the guest died{again}. Its console:\n{console}\n");
            copy.to.write_all(text.as_bytes()).map_err(|e| e.to_string())?;
        }
        Ok::<_, String>((ended, String::from_utf8_lossy(&copy.kept).into_owned()))
    };
    match once(None)? {
        (Ended::Died(_), dead) => {
            let (ended, output) = once(Some(&dead))?;
            Ok(Ran { ended, dead: Some(dead), output })
        }
        (ended, output) => Ok(Ran { ended, dead: None, output }),
    }
}

/// A writer that keeps what it passes on.
struct Copy<'a> {
    kept: Vec<u8>,
    to: &'a mut dyn Write,
}

impl Write for Copy<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.kept.extend_from_slice(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
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
    for (name, bytes) in &guest.files {
        fs::write(share.join(name), bytes).map_err(fail)?;
    }
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
    let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let status = read(&work.join("out/rc")).trim().parse::<u8>().ok();
    Ok(match ending(status, late.then_some(guest.timeout), &read(&console), &read(&work.join("out/dmesg"))) {
        Ended::Kernel(faults) if status != Some(0) => {
            Ended::Kernel(format!("{faults}\nthe command's status is {status:?}"))
        }
        ended => ended,
    })
}

/// The emulator's fault for certain: a CPU has run kernel text that another has just patched.
const EMULATOR: &str = "Oops: int3";

/// What a kernel writes to its console when it dies.
const DEATH: [&str; 2] = ["Kernel panic", "Oops"];

/// How a guest ended, from its status, the limit it exceeded, its console, and its kernel's log.
fn ending(status: Option<u8>, limit: Option<u64>, console: &str, log: &str) -> Ended {
    let dead = status.is_none() && DEATH.iter().any(|word| console.contains(word));
    if dead || console.contains(EMULATOR) || log.contains(EMULATOR) {
        return Ended::Died(console.to_owned());
    }
    let lines: Vec<&str> = console.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(60)..).unwrap_or_default().join("\n");
    let Some(status) = status else {
        let why = limit.map_or("no exit status".into(), |s| format!("no end after {s} s"));
        return Ended::Lost(format!("{tail}\n{why}"));
    };
    // The log is written after the command, so a guest with a status has one.
    let faults = if log.is_empty() { Some("no kernel log".into()) } else { kernel_faults(log) };
    faults.map_or(Ended::Status(status), Ended::Kernel)
}

/// What the kernel logs when it has found an error of its own, or when it made no progress.
const FAULTS: [&str; 14] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Kernel panic",
    "general protection fault",
    "unable to handle",
    "unhandled",
    " stall",
    "lockup",
    "blocked for more than",
    "scheduling while atomic",
    "possible recursive locking",
    "corruption",
    "refcount_t:",
];

/// Lines of the log that are printed after a fault.
const AFTER_FAULT: usize = 30;

/// The faults in a kernel log, each with the lines after it.
fn kernel_faults(log: &str) -> Option<String> {
    let mut shown = String::new();
    let mut left = 0;
    for line in log.lines() {
        if FAULTS.iter().any(|f| line.contains(f)) {
            left = AFTER_FAULT;
        }
        if left > 0 {
            shown.push_str(line);
            shown.push('\n');
            left -= 1;
        }
    }
    (!shown.is_empty()).then_some(shown)
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

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "[    1.635998] AMD-Vi: AMD IOMMUv2 functionality not available on this system - This is not a bug.\n";

    #[test]
    fn a_guest_with_a_clean_log_ends_with_the_status_of_its_command() {
        assert!(matches!(ending(Some(3), None, "", BOOT), Ended::Status(3)));
    }

    #[test]
    fn a_fault_in_the_kernel_log_is_the_end_even_if_the_command_succeeded() {
        for line in [
            "[   99.1] WARNING: CPU: 0 PID: 7 at kernel/trace/bpf_trace.c:1 x+0x1/0x2",
            "[   99.1] BUG: scheduling while atomic: dtrace/7/0x2",
            "[   99.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[   99.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
            "[   99.1] Oops: general protection fault, probably for non-canonical address",
        ] {
            let Ended::Kernel(faults) = ending(Some(0), None, "", &format!("{BOOT}{line}\nmore\n")) else {
                panic!("{line}")
            };
            assert_eq!(faults, format!("{line}\nmore\n"));
        }
        assert!(matches!(ending(Some(0), None, "", ""), Ended::Kernel(_)));
    }

    #[test]
    fn a_guest_without_a_status_whose_console_has_a_panic_or_an_oops_has_died() {
        let panic = "[  812.4] Oops: 0002 [#1] PREEMPT SMP NOPTI\n[  812.5] RIP: 0010:kmem_cache_alloc_lru_noprof+0x8a\n\
                     [  812.9] Kernel panic - not syncing: Fatal exception in interrupt\n";
        for console in [panic, "Oops: int3: 0000 [#1]\nKernel panic", "Kernel panic - not syncing"] {
            let Ended::Died(whole) = ending(None, None, console, "") else { panic!("{console}") };
            assert_eq!(whole, console);
        }
        assert!(matches!(ending(Some(0), None, "", "Oops: int3: 0000 [#1]"), Ended::Died(_)));
        // A command that ended, and a guest that made no progress: no death.
        assert!(matches!(ending(Some(0), None, "Oops: 0002 [#1]", "Oops: 0002 [#1]"), Ended::Kernel(_)));
        assert!(matches!(ending(None, Some(300), "", ""), Ended::Lost(_)));
        assert!(matches!(ending(None, None, "reboot: Restarting system", ""), Ended::Lost(_)));
    }

    /// Runs in guests that end so, each after it has printed its number.
    fn boots(ends: Vec<Ended>) -> (Ran, String, usize) {
        let (ends, booted) = (std::cell::RefCell::new(ends), std::cell::Cell::new(0));
        let mut out = Vec::new();
        let ran = retried(&mut out, &|dead, out| {
            booted.set(booted.get() + 1);
            assert_eq!(dead.is_some(), booted.get() > 1);
            out.write_all(format!("boot {}\n", booted.get()).as_bytes()).map_err(|e| e.to_string())?;
            Ok(ends.borrow_mut().remove(0))
        });
        (ran.unwrap_or_else(|e| panic!("{e}")), String::from_utf8_lossy(&out).into_owned(), booted.get())
    }

    #[test]
    fn a_guest_that_died_is_booted_once_more_and_its_console_is_printed() {
        let (ran, out, booted) = boots(vec![Ended::Died("a panic".into()), Ended::Status(0)]);
        assert!(matches!(ran.ended, Ended::Status(0)));
        assert_eq!((ran.dead.as_deref(), ran.output.as_str(), booted), (Some("boot 1\n"), "boot 2\n", 2));
        assert_eq!(
            out,
            "boot 1\n\nvm: the guest died; another one is booted. Its console:\na panic\nboot 2\n"
        );
        let (ran, _, booted) = boots(vec![Ended::Died("one".into()), Ended::Died("two".into())]);
        assert!(matches!(ran.ended, Ended::Died(console) if console == "two") && booted == 2);
    }

    #[test]
    fn a_guest_that_ended_otherwise_is_not_booted_again() {
        for end in [Ended::Status(1), Ended::Kernel("WARNING:".into()), Ended::Lost("no end".into())] {
            let (ran, _, booted) = boots(vec![end]);
            assert!(ran.dead.is_none() && booted == 1);
        }
    }
}
