//! `dtrace` in a container of its own, which has the capabilities and mounts of the book and no
//! others: it traces the host.
//!
//! Debian's `crun` runs it, from a root with no file but the program. Everything else is as Docker
//! gives it: a read-only `/sys`, what it hides of `/proc`, and a filter of system calls.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;
use testing::dir::Dir;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{has, is_guest, no_clock};
use crate::pid::Programs;
use crate::tool::{Output, binary, finish, printed};

tests! {
    a_container_as_the_book_has_it_counts_its_hosts_calls
    a_container_without_a_capability_of_the_book_says_what_it_lacks
}

/// The chapter whose recipe is tested.
const BOOK: &str = include_str!("../../../../docs/book/src/containers.md");

/// A program of the host.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long shown(long n) { __asm__ volatile(""); return n + getppid(); }
int main(void)
{
    long sum = 0;
    puts("ready");
    fflush(stdout);
    getchar();
    for (int i = 0; i < 1000; i++)
        sum += shown(i);
    return sum < 0;
}
"#;

/// What the command line of the book gives to a container.
#[derive(Clone, Debug, PartialEq)]
struct Recipe {
    capabilities: Vec<String>,
    /// On the host, in the container, and whether it may be written.
    mounts: Vec<(String, String, bool)>,
    host_pids: bool,
}

impl Recipe {
    /// The `docker run` of the book.
    fn of_book() -> Recipe {
        let command = BOOK.split("```text\n").find(|block| block.starts_with("docker run")).unwrap();
        let command = command.split("```").next().unwrap();
        let mut recipe = Recipe { capabilities: Vec::new(), mounts: Vec::new(), host_pids: false };
        let mut words = command.split_whitespace().filter(|word| *word != "\\");
        while let Some(word) = words.next() {
            match word {
                "--cap-add" => recipe.capabilities.push(format!("CAP_{}", words.next().unwrap())),
                "-v" => recipe.mounts.push(mount(words.next().unwrap())),
                "--pid=host" => recipe.host_pids = true,
                // The filter of system calls is Docker's; AppArmor is on no machine of the matrix.
                "--security-opt" => assert_eq!(words.next(), Some("apparmor=unconfined")),
                "--cap-drop" => assert_eq!(words.next(), Some("ALL")),
                "docker" | "run" | "--rm" | "-it" => {}
                "dtrace" => break,
                other => panic!("{other} of the book's command is not tested"),
            }
        }
        recipe
    }
}

/// `HOST:CONTAINER[:ro]`
fn mount(text: &str) -> (String, String, bool) {
    let parts: Vec<&str> = text.split(':').collect();
    (parts[0].into(), parts[1].into(), parts.get(2) != Some(&"ro"))
}

/// The file that interprets a program and the libraries that it is linked with; nothing for a
/// static one.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let Ok(o) = Command::new("ldd").arg(program).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// A bundle of the Open Container Initiative: a directory with a root and `config.json`.
struct Bundle {
    dir: Dir,
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = self.crun().args(["delete", "--force", &self.name()]).output();
    }
}

impl Bundle {
    fn new(name: &str, recipe: &Recipe, words: &[&str]) -> Result<Bundle, Verdict> {
        if Command::new("crun").arg("--version").output().is_err() {
            return Err(Skip("no package crun".into()));
        }
        let dir = Dir::new(&format!("image-{name}"));
        for part in ["root", "root/usr", "root/usr/bin", "state"] {
            std::fs::create_dir_all(dir.join(part)).unwrap();
        }
        std::fs::set_permissions(dir.join("root"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(dir.join("config.json"), configuration(recipe, words)).unwrap();
        Ok(Bundle { dir })
    }

    fn name(&self) -> String {
        self.dir.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// Control groups of the developer's machine are its own affair, and `crun` refuses those of
    /// the first version, which such a machine may have: it gets mounts of its own, and leaves the
    /// groups alone.
    fn crun(&self) -> Command {
        const OWN: &str = "mount -t cgroup2 none /sys/fs/cgroup && \
                           { [ -e /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing; } && \
                           exec crun --cgroup-manager disabled \"$@\"";
        let mut crun = Command::new(if is_guest() { "crun" } else { "unshare" });
        if !is_guest() {
            crun.args(["--mount", "--propagation", "private", "sh", "-c", OWN, "sh"]);
        } else {
            crun.args(["--cgroup-manager", "cgroupfs"]);
        }
        crun.arg("--root").arg(self.dir.join("state"));
        crun
    }

    fn start(&self) -> Child {
        let mut crun = self.crun();
        crun.arg("run").arg("--bundle").arg(&*self.dir).arg(self.name());
        crun.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self) -> Output {
        finish(self.start())
    }
}

fn configuration(recipe: &Recipe, words: &[&str]) -> String {
    let text =
        |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let list = |all: &[String]| all.iter().map(|one| text(one)).collect::<Vec<_>>().join(",");
    let program = binary();
    let words: Vec<String> = ["/usr/bin/dtrace"].iter().chain(words).map(|word| word.to_string()).collect();
    let mut mounts = vec![
        mounted("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mounted("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755", "size=65536k"]),
        mounted("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        bound(&program.display().to_string(), "/usr/bin/dtrace", false),
    ];
    // A build for tests is linked with the machine's own libraries; the published program is not.
    for file in libraries(&program) {
        let file = file.display().to_string();
        mounts.push(bound(&file, &file, false));
    }
    mounts.extend(recipe.mounts.iter().map(|(from, to, writable)| bound(from, to, *writable)));
    let mut spaces = vec!["mount", "uts", "ipc", "network"];
    if !recipe.host_pids {
        spaces.push("pid");
    }
    let spaces: Vec<String> = spaces.iter().map(|space| format!("{{\"type\":\"{space}\"}}")).collect();
    let capabilities = list(&recipe.capabilities);
    let strings = |all: &[&str]| list(&all.iter().map(|one| one.to_string()).collect::<Vec<_>>());
    format!(
        r#"{{"ociVersion":"1.0.2",
"process":{{"terminal":false,"user":{{"uid":0,"gid":0}},"args":[{}],"env":["PATH=/usr/bin"],"cwd":"/","noNewPrivileges":false,
"capabilities":{{"bounding":[{capabilities}],"effective":[{capabilities}],"permitted":[{capabilities}]}}}},
"root":{{"path":"root","readonly":false}},"mounts":[{}],
"linux":{{"namespaces":[{}],"maskedPaths":[{}],"readonlyPaths":[{}],
"seccomp":{{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64"],
"syscalls":[{{"names":[{}],"action":"SCMP_ACT_ERRNO"}}]}}}}}}"#,
        list(&words),
        mounts.join(","),
        spaces.join(","),
        strings(&MASKED),
        strings(&READ_ONLY),
        strings(&REFUSED),
    )
}

/// What Docker hides from a container.
const MASKED: [&str; 7] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/scsi",
    "/sys/firmware",
];

/// What it lets be read only.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Calls that its filter refuses to a container with the book's capabilities, as far as this
/// machine's library knows them.
const REFUSED: [&str; 22] = [
    "acct",
    "add_key",
    "delete_module",
    "finit_module",
    "fsopen",
    "init_module",
    "kexec_load",
    "keyctl",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "open_tree",
    "pivot_root",
    "quotactl",
    "reboot",
    "request_key",
    "setns",
    "swapon",
    "umount2",
    "unshare",
    "userfaultfd",
];

fn mounted(place: &str, kind: &str, source: &str, options: &[&str]) -> String {
    let options: Vec<String> = options.iter().map(|option| format!("\"{option}\"")).collect();
    format!(
        r#"{{"destination":"{place}","type":"{kind}","source":"{source}","options":[{}]}}"#,
        options.join(",")
    )
}

fn bound(from: &str, to: &str, writable: bool) -> String {
    mounted(to, "bind", from, &["rbind", "rprivate", if writable { "rw" } else { "ro" }])
}

/// The host's program, which waits to be told to run; killed at the end.
struct Host(Child);

impl Host {
    fn start(program: &str) -> Host {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let host = Host(child);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        host
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn run(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_container_as_the_book_has_it_counts_its_hosts_calls() -> Verdict {
    let (_dir, program) = match Programs::new("image", ("cc", PROGRAM), &["-O1"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let host = Host::start(&program);
    let pid = host.pid();
    let recipe = Recipe::of_book();
    assert!(recipe.host_pids && recipe.capabilities.len() == 5, "{recipe:?}");
    // Debian's own kernels refuse clocks to all but root: the book says so.
    let clock = if no_clock().is_some() || is_strict() { "" } else { "profile-97 { @clock = count(); }" };
    // So they do with single places in processes.
    let places = has(Facility::UprobeMulti) || !is_strict();
    let (functions, printed_functions) = match places {
        true => (
            "pid$target:program:shown:entry { @entered[probemod] = count(); }
             pid$target:libc:getppid:entry { @user[ustack(2)] = count(); }",
            "printa(\"entered %s %@d\\n\", @entered); printa(@user);",
        ),
        false => ("", ""),
    };
    let script = format!(
        "BEGIN {{ printf(\"on\\n\"); }}
         syscall::getppid:entry /pid == $target/ {{ @calls[execname, zonename] = count(); }}
         syscall::getppid:entry /pid == $target/ {{ @kernel[stack(1)] = count(); }}
         sdt:sched::sched_process_exit /pid == $target/ {{ @ends = count(); }}
         {clock} {functions}
         END {{ printa(\"calls %s %s %@d\\n\", @calls); printa(\"ends %@d\\n\", @ends); printa(@kernel);
             {printed_functions} }}"
    );
    let bundle = match Bundle::new("recipe", &recipe, &["-q", "-p", &pid, "-n", &script]) {
        Ok(bundle) => bundle,
        Err(verdict) => return verdict,
    };
    let mut tracing = bundle.start();
    printed(&mut tracing);
    host.run();
    let o = finish(tracing).code(0);
    let lines = ["calls program global 1000", "ends 1", "entered program 1000"];
    for line in &lines[..if places { 3 } else { 2 }] {
        assert!(o.out.lines().any(|l| l == *line), "{line}: {o:?}");
    }
    assert!(o.out.contains("vmlinux`"), "{o:?}");
    assert_eq!(o.out.contains("program`shown"), places, "{o:?}");
    if !places {
        let script = format!("pid{}:libc:getppid:entry {{ exit(0); }}", std::process::id());
        match Bundle::new("places", &recipe, &["-q", "-n", &script]) {
            Ok(bundle) => {
                let o = bundle.run().code(1);
                assert!(o.err.contains("perf_event_paranoid is"), "{o:?}");
            }
            Err(verdict) => return verdict,
        }
    }
    Pass
}

/// True if the kernel refuses clocks to all but root.
fn is_strict() -> bool {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    level.trim().parse::<i32>().is_ok_and(|level| level > 2)
}

/// What each capability of the book gives: a script, and what is printed without the capability.
const WITHOUT: [(&str, &str, &str); 5] = [
    ("CAP_BPF", "BEGIN { exit(0); }", "needs CAP_BPF"),
    ("CAP_PERFMON", "BEGIN { exit(0); }", "needs CAP_PERFMON"),
    ("CAP_SYSLOG", "syscall::read:entry { stack(1); exit(0); }", "0xffffffff"),
    ("CAP_SYS_PTRACE", "pid$1:program:shown:entry { } BEGIN { exit(0); }", "CAP_SYS_PTRACE is missing"),
    ("CAP_DAC_READ_SEARCH", "pid$1:program:shown:entry { } BEGIN { exit(0); }", "Permission denied"),
];

fn a_container_without_a_capability_of_the_book_says_what_it_lacks() -> Verdict {
    let (_dir, program) = match Programs::new("image-less", ("cc", PROGRAM), &["-O1"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    // Only its owner may read it, and that is not the user of the container.
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o500)).unwrap();
    let host = Host::start(&program);
    let pid = host.pid();
    let recipe = Recipe::of_book();
    let named: Vec<&str> = WITHOUT.iter().map(|(capability, ..)| *capability).collect();
    assert_eq!(recipe.capabilities, named, "capabilities of the book");
    for (capability, script, expected) in WITHOUT {
        let mut recipe = recipe.clone();
        recipe.capabilities.retain(|one| one != capability);
        let script = script.replace("$1", &pid);
        let bundle = match Bundle::new(capability, &recipe, &["-q", "-n", &script]) {
            Ok(bundle) => bundle,
            Err(verdict) => return verdict,
        };
        let o = bundle.run();
        assert!(o.out.contains(expected) || o.err.contains(expected), "{capability}: {o:?}");
    }
    Pass
}
