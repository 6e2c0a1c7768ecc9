//! Boots a stock kernel in QEMU (software emulation) on this machine's own root and runs one
//! command in it.
//!
//! The guest's root is the host's `/`, read-only through 9p under an overlay in the guest's memory:
//! programs that were built here run there, and all that the guest writes is lost. Output and exit
//! status return through a second 9p directory.
//!
//! QEMU 7.2 has a fault: an emulated CPU can run kernel text that another has just patched, or go
//! on with wrong registers after a patch, and the guest's kernel dies (`Oops: int3`, a panic
//! anywhere). So the emulated CPUs run in turn on one thread. A guest that dies is an outcome
//! ([`Ended::Died`]); whether another one is booted decides who asked for it.
//!
//! After the command, the guest's kernel log is searched for faults of the kernel ([`ending`]). A
//! finding fails the run.

mod ending;
mod initrd;
mod work;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use self::ending::ending;
use self::work::Work;

pub(crate) use self::ending::Ended;
pub(crate) use self::work::is_alive;

/// A guest to boot.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) kernel: String,
    pub(crate) root: PathBuf,
    pub(crate) mem: u32,
    pub(crate) cpus: u32,
    pub(crate) timeout: u64,
    pub(crate) append: String,
    /// Seconds without output after which it is lost.
    pub(crate) silence: Option<u64>,
    /// Files that it finds in `/mnt/vmout`, by name: not `cmd`, `log`, `rc`, `dmesg`.
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

    /// The limit that a guest has exceeded, by its age and the time since it last printed.
    fn exceeded(&self, age: Duration, silent: Duration) -> Option<String> {
        if age > Duration::from_secs(self.timeout) {
            return Some(format!("no end after {} s", self.timeout));
        }
        let limit = self.silence.filter(|s| silent > Duration::from_secs(*s))?;
        Some(format!("no output for {limit} s"))
    }
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
    match boot(&guest, &command, &mut std::io::stdout())? {
        Ended::Status(code) => Ok(code),
        Ended::Kernel(findings) => Err(format!("vm: the guest's kernel log has faults:\n{findings}")),
        Ended::Died(console) => Err(format!("vm: the guest died; its console:\n{console}")),
        Ended::Lost(console) => {
            Err(format!("vm: the guest stopped without an exit status; its console:\n{console}"))
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("vm: {text} is no number"))
}

fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Boots a guest, runs a command in it, and passes on what that prints.
pub(crate) fn boot(guest: &Guest, command: &[String], out: &mut dyn Write) -> Result<Ended, String> {
    let work = Work::new(&guest.kernel).map_err(|e| format!("vm: the guest's directory: {e}"))?;
    let words: Vec<String> = command.iter().map(|w| shell_quote(w)).collect();
    let cwd = shell_quote(&guest.cwd.to_string_lossy());
    // `dtrace` is the release binary.
    let path = shell_quote(&crate::test::target_dir().join("release").to_string_lossy());
    let script = format!("export PATH={path}:$PATH\ncd {cwd} 2>/dev/null || cd /\n{}\n", words.join(" "));
    let own = [("cmd", script.as_bytes()), ("log", &[][..])];
    let given = guest.files.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
    for (name, content) in given.chain(own) {
        let file = work.share().join(name);
        fs::write(&file, content).map_err(|e| format!("vm: {}: {e}", file.display()))?;
    }
    let mut child = start(guest, &work)?;
    let limit = wait(&mut child, guest, &work, out);
    // Whatever happened: nobody waits for it any more.
    let _ = child.kill();
    let _ = child.wait();
    let limit = limit?;
    let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let status = read(&work.share().join("rc")).trim().parse::<u8>().ok();
    let log = read(&work.share().join("dmesg"));
    Ok(match ending(status, limit.as_deref(), &read(&work.dir.join("console")), &log) {
        Ended::Kernel(faults) if status != Some(0) => {
            Ended::Kernel(format!("{faults}\nthe command's status is {status:?}"))
        }
        ended => ended,
    })
}

/// The kernel's command line.
const WORDS: [&str; 11] = [
    "console=ttyS0",
    "panic=-1",
    "quiet",
    "mitigations=off",
    "nokaslr",
    "random.trust_cpu=on",
    // All emulated CPUs read one clock. A kernel that does not know takes the HPET, which costs a
    // way out of the guest each time.
    "tsc=reliable",
    // Debian's later kernels take 32-bit system calls only when asked to.
    "ia32_emulation=on",
    // Where this machine has no time for the guest, interrupts of the timer come late: a kernel
    // that checks whether they come at all panics ("IO-APIC + timer doesn't work!"),
    "no_timer_check",
    // and takes a CPU that did not run for one that hangs, after 20 s in one case and 21 s in the
    // other. A real hang lasts.
    "watchdog_thresh=60",
    "rcupdate.rcu_cpu_stall_timeout=120",
];

fn start(guest: &Guest, work: &Work) -> Result<Child, String> {
    let kernel = crate::kernels::dir(&guest.kernel);
    let modules = first(&kernel.join("lib/modules"), "")?;
    let initrd = initrd::path(&kernel, &modules)?;
    // Older suites put the image into /boot, newer ones beside the modules.
    let image = first(&kernel.join("boot"), "vmlinuz").or_else(|_| first(&modules, "vmlinuz"))?;
    let console = work.dir.join("console");
    let qemu = crate::qemu::Qemu::find()?;
    // The guest ends with the thread that waits for it, however that ends.
    let mut args: Vec<String> = ["--pdeathsig", "KILL", "--"].map(String::from).into();
    args.extend(qemu.command.iter().cloned());
    args.extend([
        "-accel".into(),
        qemu.accelerator(),
        "-cpu".into(),
        CPU.into(),
        "-m".into(),
        guest.mem.to_string(),
        "-smp".into(),
        guest.cpus.to_string(),
    ]);
    args.extend("-display none -no-reboot -nodefaults".split(' ').map(String::from));
    args.extend(["-serial".into(), format!("file:{}", console.display())]);
    args.extend([
        "-kernel".into(),
        image.display().to_string(),
        "-initrd".into(),
        initrd.display().to_string(),
    ]);
    args.extend(["-append".into(), format!("{} {}", WORDS.join(" "), guest.append)]);
    let shares = [
        ("root", guest.root.clone(), ",readonly=on,multidevs=remap"),
        ("out", work.share(), ""),
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
    Command::new("setpriv")
        .args(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("vm: setpriv: {e}"))
}

/// An emulated `rep movsb` copies byte by byte: a kernel that believes it to be quick takes a tenth
/// more time for everything.
pub(crate) const CPU: &str = "max,erms=off,fsrm=off";

/// Passes on what the guest prints until it has ended, or has exceeded a limit: that one.
fn wait(
    child: &mut Child,
    guest: &Guest,
    work: &Work,
    out: &mut dyn Write,
) -> Result<Option<String>, String> {
    let mut log = fs::File::open(work.share().join("log")).map_err(|e| e.to_string())?;
    let (start, mut printed, mut seen) = (Instant::now(), Instant::now(), 0);
    loop {
        let done = child.try_wait().map_err(|e| e.to_string())?.is_some();
        let now = copy_new(&mut log, seen, out)?;
        if now > seen {
            (seen, printed) = (now, Instant::now());
        }
        if done {
            return Ok(None);
        }
        if crate::sys::interrupted() {
            return Ok(Some("interrupted".into()));
        }
        if let Some(limit) = guest.exceeded(start.elapsed(), printed.elapsed()) {
            return Ok(Some(limit));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn copy_new(log: &mut fs::File, from: u64, out: &mut dyn Write) -> Result<u64, String> {
    let mut bytes = Vec::new();
    log.seek(SeekFrom::Start(from)).and_then(|_| log.read_to_end(&mut bytes)).map_err(|e| e.to_string())?;
    out.write_all(&bytes).and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    Ok(from + bytes.len() as u64)
}

/// The first entry of `dir` whose name begins with `prefix`.
pub(crate) fn first(dir: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    entries
        .flatten()
        .map(|e| e.path())
        .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)))
        .ok_or_else(|| format!("{}: nothing named {prefix}*", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_is_silent_or_does_not_end_exceeds_a_limit() {
        let seconds = Duration::from_secs;
        let mut guest = Guest { timeout: 300, ..Guest::new("6.12") };
        assert_eq!(guest.exceeded(seconds(300), seconds(299)), None);
        assert_eq!(guest.exceeded(seconds(301), seconds(0)).as_deref(), Some("no end after 300 s"));
        guest.silence = Some(60);
        assert_eq!(guest.exceeded(seconds(100), seconds(60)), None);
        assert_eq!(guest.exceeded(seconds(100), seconds(61)).as_deref(), Some("no output for 60 s"));
    }
}
