//! Completions in real shells, what they ask, and what `--version` and `--check` say.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use testing::dir::Dir;
use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{no_events, no_function_list};
use crate::tool::{LIMIT, binary, dtrace, pseudo_terminal, under};
use crate::usdt::{Programs, compiled, wait};

tests! {
    bash_completes_probes_options_and_files zsh_completes_probes_and_options
    fish_completes_probes_and_options
    every_candidate_is_a_probe_of_the_list functions_of_the_kernel_are_completed_without_its_list
    functions_of_a_process_are_completed probes_of_a_file_are_completed_by_their_process
    completing_loads_nothing_into_the_kernel without_privilege_there_are_no_candidates_and_no_messages
    what_a_report_needs_is_one_screen what_does_not_work_says_why_and_what_it_needs
    without_privilege_the_check_says_so_and_fails
}

/// A shell on a pseudo-terminal, which is killed at the end.
struct Shell {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    _dir: Dir,
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Shell {
    /// Starts a shell with `dtrace` on its path, and our completions in its file.
    fn start(shell: &str, words: &[&str], prepare: &str) -> Result<Shell, Verdict> {
        let dir = Dir::new(&format!("completions-{shell}"));
        std::os::unix::fs::symlink(binary(), dir.join("dtrace")).unwrap();
        std::fs::write(dir.join("_dtrace"), dtrace(&["--completions", shell]).code(0).out).unwrap();
        let Some((keyboard, terminal)) = pseudo_terminal(50, 200) else {
            return Err(Skip("no pseudo-terminal".into()));
        };
        let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = Command::new(shell);
        command.args(words).stdin(end()).stdout(end()).stderr(end());
        command.env("PATH", path).env("TERM", "dumb").env("HOME", &*dir).env("INPUTRC", "/dev/null");
        command.current_dir(&*dir).env_remove("ENV").env("LC_ALL", "C.UTF-8");
        // SAFETY: both calls are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Skip(format!("no shell {shell} here")));
            }
            Err(e) => panic!("{shell}: {e}"),
        };
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut reader, shown) = (keyboard.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of a terminal without a process is an error.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut shell = Shell { child, keyboard, screen, _dir: dir };
        shell.types(&format!("{prepare}; {}\r", shell.says("ready")), "(ready)");
        Ok(shell)
    }

    /// A command that prints a word in parentheses, which are not in the command.
    fn says(&self, word: &str) -> String {
        format!("printf '\\050%s\\051\\n' {word}")
    }

    /// Types keys, and waits until a text is shown that was not before.
    #[track_caller]
    fn types(&mut self, keys: &str, expected: &str) {
        self.screen.lock().unwrap().clear();
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        eventually(format!("{expected:?} after {keys:?}"), LIMIT, || {
            let shown = plain(&self.screen.lock().unwrap());
            if shown.contains(expected) { Ok(()) } else { Err(format!("{shown:?}")) }
        });
    }

    /// Types a beginning and a tabulator, waits until it is completed to this, and leaves the line.
    #[track_caller]
    fn completes(&mut self, begun: &str, whole: &str) {
        self.types(&format!("{begun}\t"), whole);
        let left = self.says("left");
        self.types(&format!("\u{15}{left}\r"), "(left)");
    }
}

/// What a screen shows: without what moves and colours it.
fn plain(shown: &str) -> String {
    let mut out = String::new();
    let mut rest = shown.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // A shell writes a part of its line again.
            '\u{8}' => drop(out.pop()),
            '\u{1b}' => {
                if rest.next_if_eq(&'[').is_some() {
                    while rest.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
                } else {
                    rest.next();
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// What each shell completes in the same way: a beginning, and the line that it leads to. `@` is a
/// process of this test.
const COMPLETED: &[(&str, &str)] = &[
    ("dtrace -n syscall::getppi", "dtrace -n syscall::getppid:"),
    ("dtrace -n 'syscall::getppid:e", "dtrace -n 'syscall::getppid:entry' "),
    // Only the last description of a program is completed.
    ("dtrace -n 'BEGIN { }  syscall::getppid:r", "dtrace -n 'BEGIN { }  syscall::getppid:return' "),
    ("dtrace -qn BEG", "dtrace -qn BEGIN "),
    ("dtrace -P sysca", "dtrace -P syscall "),
    ("dtrace -f syscall::getppi", "dtrace -f syscall::getppid "),
    ("dtrace -x bufpol", "dtrace -x bufpolicy="),
    ("dtrace -x bufpolicy=sw", "dtrace -x bufpolicy=switch "),
    ("dtrace -s ./_dt", "dtrace -s ./_dtrace "),
    ("dtrace -p @ -n 'pid$targ", "dtrace -p @ -n 'pid$target:"),
    ("dtrace -p @ -n 'pid$target:libc:getppi", "dtrace -p @ -n 'pid$target:libc:getppid:"),
];

/// Completes what all shells complete.
fn completes_all(shell: &mut Shell) {
    let pid = std::process::id().to_string();
    for (begun, whole) in COMPLETED {
        shell.completes(&begun.replace('@', &pid), &whole.replace('@', &pid));
    }
}

fn bash_completes_probes_options_and_files() -> Verdict {
    let prepare = "PS1='> '; bind 'set bell-style none'; bind 'set page-completions off'; bind 'set enable-bracketed-paste off'; \
                   . ./_dtrace";
    let mut bash = match Shell::start("bash", &["--norc", "--noprofile"], prepare) {
        Ok(bash) => bash,
        Err(skip) => return skip,
    };
    completes_all(&mut bash);
    // Colons divide words in bash.
    bash.completes("dtrace -n syscall::getppid:e", "dtrace -n syscall::getppid:entry ");
    bash.completes("dtrace --post", "dtrace --postmortem ");
    bash.completes("dtrace --format=j", "dtrace --format=json ");
    // Several are listed, by a tabulator that follows another.
    bash.types("dtrace -n syscall::getppid:\t\t\t", "return");
    Pass
}

fn zsh_completes_probes_and_options() -> Verdict {
    let prepare = "PS1='> '; unsetopt beep; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D";
    let mut zsh = match Shell::start("zsh", &["-f"], prepare) {
        Ok(zsh) => zsh,
        Err(skip) => return skip,
    };
    completes_all(&mut zsh);
    zsh.completes("dtrace -n syscall::getppid:e", "dtrace -n syscall::getppid:entry ");
    zsh.completes("dtrace --post", "dtrace --postmortem=");
    zsh.completes("dtrace --format=j", "dtrace --format=json ");
    // What they are is shown beside them.
    zsh.types("dtrace -x buf\t\t", "bufresize= -- halve buffers until they fit");
    zsh.types("\u{15}dtrace -n syscall::getppid:\t\t", "return");
    Pass
}

fn fish_completes_probes_and_options() -> Verdict {
    // It asks the terminal of its size and colours where it believes in them.
    let prepare =
        "function fish_prompt; echo -n '> '; end; set -g fish_autosuggestion_enabled 0; . ./_dtrace";
    let prepare = prepare.to_string() + "; function ready; end";
    let mut fish = match Shell::start("fish", &["--no-config"], &prepare) {
        Ok(fish) => fish,
        Err(skip) => return skip,
    };
    completes_all(&mut fish);
    fish.completes("dtrace -n syscall::getppid:e", "dtrace -n syscall::getppid:entry ");
    fish.completes("dtrace --post", "dtrace --postmortem ");
    fish.completes("dtrace --format j", "dtrace --format json ");
    Pass
}

/// The candidates for a word, without what they are.
#[track_caller]
fn candidates(words: &[&str]) -> Vec<String> {
    let o = dtrace(&[&["--complete"], words].concat()).code(0);
    assert_eq!(o.err, "", "{words:?}");
    o.out.lines().map(|line| line.split('\t').next().unwrap_or_default().to_string()).collect()
}

fn every_candidate_is_a_probe_of_the_list() -> Verdict {
    if let Some(skip) = no_events() {
        return skip;
    }
    for (begun, provider) in [("proc:::", "proc"), ("sdt:sched::", "sdt"), ("syscall::getppid:", "syscall")] {
        let listed = dtrace(&["-l", "-P", provider]).code(0);
        let mut listed: Vec<String> =
            listed.out.lines().skip(1).map(|l| l.split_whitespace().last().unwrap().into()).collect();
        let mut found = candidates(&["n", begun]);
        found.iter_mut().for_each(|text| *text = text.rsplit(':').next().unwrap_or_default().into());
        assert!(!found.is_empty() && found.iter().all(|name| listed.contains(name)), "{begun}: {found:?}");
        if provider == "proc" {
            listed.sort();
            found.sort();
            assert_eq!(found, listed, "all probes of the provider");
        }
    }
    // The names of one call are its two probes, and its function that of a list.
    assert_eq!(
        candidates(&["n", "syscall::getppid:"]),
        ["syscall::getppid:entry", "syscall::getppid:return"]
    );
    assert_eq!(candidates(&["f", "syscall::getppi"]), ["syscall::getppid"]);
    assert_eq!(candidates(&["n", "BEG"]), ["BEGIN"]);
    Pass
}

fn functions_of_the_kernel_are_completed_without_its_list() -> Verdict {
    if let Some(skip) = no_function_list() {
        // What is not here is not offered either.
        assert_eq!(candidates(&["n", "fbt::vfs_rea"]), [""; 0]);
        assert!(!candidates(&["n", "fb"]).iter().any(|text| text.starts_with("fbt")));
        return skip;
    }
    let found = candidates(&["n", "fbt:vmlinux:vfs_rea"]);
    assert!(found.iter().any(|text| text == "fbt:vmlinux:vfs_read:"), "{found:?}");
    assert_eq!(candidates(&["n", "fbt::vfs_read:"]), ["fbt::vfs_read:entry", "fbt::vfs_read:return"]);
    // Of all functions the beginnings are given, and each leads to some.
    let all = candidates(&["n", "fbt::"]);
    assert!((2..=501).contains(&all.len()), "{}", all.len());
    Pass
}

fn functions_of_a_process_are_completed() -> Verdict {
    let me = std::process::id().to_string();
    let line = ["dtrace", "-p", &me];
    let found = candidates(&[&["n", "pid$target:libc:getppi"][..], &line].concat());
    assert_eq!(found, ["pid$target:libc:getppid:entry", "pid$target:libc:getppid:return"]);
    let numbered = format!("pid{me}:libc:getppi");
    assert_eq!(candidates(&["n", &numbered])[0], format!("pid{me}:libc:getppid:entry"));
    let files = candidates(&[&["n", "pid$target:li"][..], &line].concat());
    assert!(files.iter().any(|text| text.starts_with("pid$target:libc.so")), "{files:?}");
    // The process itself is among those of -p, by its name.
    let o = dtrace(&["--complete", "p", &me]).code(0);
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert!(o.out.lines().any(|l| l == format!("{me}\t{}", name.trim_end())), "{o:?}");
    Pass
}

fn probes_of_a_file_are_completed_by_their_process() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("completed"));
    // It waits until something is typed.
    let mut child = wait(&program);
    let pid = child.id().to_string();
    eventually("the program", LIMIT, || {
        std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(&program))
    });
    let line = ["dtrace", "-p", &pid];
    let of = |word: &str| candidates(&[&["n", word][..], &line].concat());
    assert!(of("ts").iter().all(|text| text.starts_with("tst$target:")), "{:?}", of("ts"));
    assert_eq!(of("tst$target:::pl"), ["tst$target:::plain-site"]);
    assert_eq!(of("tst$target:program:one:"), ["tst$target:program:one:everywhere"]);
    assert_eq!(candidates(&["n", &format!("tst{pid}:::pl")]), [format!("tst{pid}:::plain-site")]);
    let _ = child.kill();
    let _ = child.wait();
    Pass
}

/// A filter of system calls that ends the process at bpf(2) and perf_event_open(2).
fn forbid_tracing() -> std::io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD, 0, 0, 0),
        step(EQUAL, 2, 0, libc::SYS_bpf as u32),
        step(EQUAL, 1, 0, libc::SYS_perf_event_open as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads the filter during the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
    };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn completing_loads_nothing_into_the_kernel() -> Verdict {
    let me = std::process::id().to_string();
    let run = |words: &[&str]| {
        let mut command = Command::new(binary());
        command.args(words).stdin(Stdio::null());
        // SAFETY: prctl(2) is allowed between fork and exec.
        unsafe { command.pre_exec(forbid_tracing) };
        command.output().unwrap()
    };
    // The filter works: what loads programs ends.
    assert_eq!(run(&["-n", "BEGIN { exit(0); }"]).status.code(), None);
    // Any of which a base is a tracepoint that must be tried is among them.
    let begun = "s pid pid$target: pid$target:libc:m web$target: syscall: ::r fbt:: rawfbt:: rawtp::: sdt: proc: sched: io: ip: icmp: tcp: \
                 udp: mib: lockstat: fsinfo: vminfo: sysinfo: irq: softirq: cgroup: oom: kvm: cpc: profile: bio: dtrace:";
    let mut loading = Vec::new();
    for word in begun.split(' ').chain([""]) {
        let o = run(&["--complete", "n", word, "dtrace", "-p", &me]);
        if (o.status.code(), &*o.stderr) != (Some(0), &b""[..]) {
            loading.push(word);
        }
    }
    assert_eq!(loading, [""; 0]);
    Pass
}

/// A wrapper that drops root privileges.
const UNPRIVILEGED: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
];

fn without_privilege_there_are_no_candidates_and_no_messages() -> Verdict {
    for word in ["", "sys", "syscall::rea", "pid1:", "fbt::"] {
        let Some(o) = under(UNPRIVILEGED, &["--complete", "n", word]) else {
            return Skip("no setpriv".into());
        };
        if o.err.contains("setpriv:") {
            return Skip(o.err);
        }
        assert_eq!((o.code, &*o.out, &*o.err), (Some(0), "", ""), "{word}");
    }
    // Options need no privilege.
    let o = under(UNPRIVILEGED, &["--complete", "x", "bufp"]).unwrap();
    assert_eq!(o.out, "bufpolicy=\twhat a full buffer does\n");
    Pass
}

fn what_a_report_needs_is_one_screen() -> Verdict {
    let o = dtrace(&["--version"]).code(0);
    assert!(o.out.lines().count() <= 24 && o.out.lines().all(|line| line.len() <= 80), "{}", o.out);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for text in
        ["dtrace 0.", "(commit ", "Sun D ", release.trim(), "x86_64", "CAP_BPF", "kernel has", "mmap_array"]
    {
        assert!(o.out.contains(text), "{text} is not in\n{}", o.out);
    }
    // -V is the version of the language, as before.
    assert_eq!(dtrace(&["-V"]).code(0).out, "dtrace: Sun D 1.13\n");
    Pass
}

fn what_does_not_work_says_why_and_what_it_needs() -> Verdict {
    let o = dtrace(&["--check"]).code(0);
    let lines: Vec<&str> = o.out.lines().collect();
    // The name of a probe is not divided.
    assert!(lines.iter().all(|line| line.len() <= 80 || !line.trim().contains(' ')), "{}", o.out);
    let row = |name: &str| {
        let at = lines.iter().position(|line| line.split_whitespace().nth(1) == Some(name));
        at.unwrap_or_else(|| panic!("no row {name} in\n{}", o.out))
    };
    assert!(
        lines[row("dtrace")].starts_with("  yes   dtrace  ") && lines[row("dtrace")].ends_with(" 3 probes"),
        "{}",
        o.out
    );
    assert!(lines[row("syscall")].starts_with("  yes   "), "{}", o.out);
    // Each thing that does not work says why, and each facility what would give it.
    let facilities = lines.iter().position(|line| *line == "Facilities of the kernel").unwrap();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("  no    ")) {
        let below: Vec<&&str> =
            lines[at + 1..].iter().take_while(|line| line.starts_with("        ")).collect();
        assert!(below.iter().any(|line| line.trim_start().starts_with("why: ")), "{line}: {below:?}");
        let needs = below.iter().any(|line| line.trim_start().starts_with("needs: "));
        assert!(needs || at < facilities, "{line}: {below:?}");
    }
    // What it says of a facility is what -vV finds.
    let tried = dtrace(&["-vV"]).code(0);
    for name in ["fentry", "kprobe_multi", "uprobe_multi", "isa4"] {
        let has = tried.out.lines().any(|line| line.split_whitespace().eq([name, "yes"]));
        let is_named = lines[facilities + 1..]
            .iter()
            .take_while(|line| !line.starts_with("  no "))
            .any(|line| line.split_whitespace().any(|word| word == name));
        assert_eq!(is_named, has, "{name}\n{}", o.out);
        assert!(has || lines[row(name)].starts_with("  no "), "{name}\n{}", o.out);
    }
    Pass
}

fn without_privilege_the_check_says_so_and_fails() -> Verdict {
    let Some(o) = under(UNPRIVILEGED, &["--check"]) else { return Skip("no setpriv".into()) };
    if o.err.contains("setpriv:") {
        return Skip(o.err);
    }
    let o = o.code(1);
    let text: Vec<&str> = o.out.split_whitespace().collect();
    let text = text.join(" ");
    assert!(text.contains("no privileges why: needs CAP_BPF and CAP_PERFMON, or root"), "{}", o.out);
    assert!(text.contains("needs: run it as root (sudo dtrace --check)"), "{}", o.out);
    assert!(text.contains("Facilities of the kernel not tried: see privileges"), "{}", o.out);
    assert!(Path::new("/proc/self").exists() && o.err.is_empty(), "{}", o.err);
    Pass
}
