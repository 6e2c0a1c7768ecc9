//! Modules that are loaded while a session runs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::derived::Library;
use crate::machine::{no_argument_types, no_functions};
use crate::tool::{LIMIT, signal, start};

tests! {
    functions_of_a_module_loaded_later_are_traced
    arguments_of_a_module_loaded_later_have_their_types
    tracepoints_of_a_module_loaded_later_are_traced
    probes_of_a_library_fire_at_functions_of_a_module_loaded_later
    no_module_events_are_received_when_no_description_needs_them
}

/// A run whose output is read while it runs.
struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

fn read(from: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| to.send(line).ok())
    });
}

impl Running {
    fn of(words: &[&str]) -> Running {
        let mut child = start(words);
        let (to, lines) = channel();
        read(child.stdout.take().unwrap(), to.clone());
        read(child.stderr.take().unwrap(), to);
        Running { child, lines, seen: Vec::new() }
    }

    /// Waits for a line with this text. False when the run ends without such a line.
    #[track_caller]
    fn until(&mut self, text: &str) -> bool {
        let end = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(_) => {
                    let _ = self.child.kill();
                    panic!("no {text:?} in {:?}", self.seen);
                }
            }
            if self.seen.last().is_some_and(|l| l.contains(text)) {
                return true;
            }
        }
    }

    /// Interrupts the run, and returns all lines.
    fn end(mut self) -> Vec<String> {
        signal(&self.child, libc::SIGINT);
        assert!(!self.until("\0 no such line"));
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{:?}", self.seen);
        testing::suppressed::note_messages(&self.seen.join("\n"));
        self.seen
    }
}

/// The number behind a word at a line's beginning.
#[track_caller]
fn value(lines: &[String], key: &str) -> i64 {
    let line = lines.iter().find(|l| l.split_whitespace().next() == Some(key));
    let number = line.and_then(|l| l.split_whitespace().last()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {key} in {lines:?}"))
}

fn runs(words: &[&str]) -> bool {
    let command =
        Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    command.is_ok_and(|s| s.success())
}

fn is_loaded(module: &str) -> bool {
    std::path::Path::new("/sys/module").join(module).exists()
}

/// Why a module cannot be loaded and unloaded on this machine, if so.
fn cannot(module: &str, words: &[&str]) -> Option<Verdict> {
    let skip = |why: String| Some(Skip(why));
    if !std::path::Path::new("/proc/modules").exists() {
        return skip("this kernel has no modules".into());
    }
    if is_loaded(module) {
        return skip(format!("module {module} is loaded already"));
    }
    if !runs(words) || !is_loaded(module) {
        return skip(format!("module {module} cannot be loaded"));
    }
    unload(module);
    None
}

/// Unloads a module. Links that are closed in the background may hold the module for some time.
#[track_caller]
fn unload(module: &str) {
    eventually(format_args!("the end of module {module}"), LIMIT, || {
        !is_loaded(module) || runs(&["modprobe", "-r", module])
    });
}

const DUMMY: &[&str] = &["modprobe", "dummy", "numdummies=1"];
/// Each read of this file calls the device driver once.
const STATISTIC: &str = "/sys/class/net/dummy0/statistics/rx_packets";

fn read_statistic(times: u32) {
    (0..times).for_each(|_| _ = std::fs::read_to_string(STATISTIC).unwrap());
}

fn functions_of_a_module_loaded_later_are_traced() -> Verdict {
    if let Some(skip) = no_functions().or_else(|| cannot("dummy", DUMMY)) {
        return skip;
    }
    let me = std::process::id().to_string();
    let script = "fbt:dummy:dummy_get_stats64:entry /pid == $1/ { calls++; self->in++; @[probemod, probefunc, probename] = count(); }
        fbt:dummy:dummy_get_stats64:return /pid == $1 && self->in/ { returns++; self->in = 0; }
        fbt::dummy_get_stat*:, rawfbt:nosuch:: /pid == $1/ { both++; }
        ::dummy_get_stats64:entry /pid == $1/ { unnamed++; }
        fbt::vfs_read:entry /pid == $1/ { reads++; }
        BEGIN { begins++; printf(\"ready\\n\"); }
        END { printf(\"calls %d\\nreturns %d\\nboth %d\\nunnamed %d\\nbegins %d\\nreads %d\\n\", calls, returns, both, unnamed, begins, reads); }";
    let mut run = Running::of(&["-qvZ", "-n", script, &me]);
    assert!(run.until("ready"), "{:?}", run.seen);
    assert!(runs(DUMMY));
    // Entry and return, both a second time by the glob, and one without a provider, which
    // matches fbt and not rawfbt.
    assert!(run.until("module dummy was loaded: matched 5 probes"), "{:?}", run.seen);
    read_statistic(25);
    let mut times = 25;
    // Some attach methods hold the module. A module that can be unloaded can be loaded again.
    let held = !runs(&["modprobe", "-r", "dummy"]);
    if !held {
        assert!(!is_loaded("dummy") && runs(DUMMY));
        assert!(run.until("module dummy was loaded: matched 5 probes"), "{:?}", run.seen);
        read_statistic(25);
        times = 50;
    }
    let lines = run.end();
    unload("dummy");
    let by_one_link = lines.iter().any(|l| l.ends_with("by kprobe_multi"));
    assert_eq!(held, by_one_link, "{lines:?}");
    let got = ["calls", "returns", "both", "unnamed"].map(|key| value(&lines, key));
    assert_eq!(got, [times, times, 2 * times, times], "{lines:?}");
    // Running clauses were not enabled twice.
    assert_eq!(value(&lines, "begins"), 1, "{lines:?}");
    assert!(value(&lines, "reads") >= times, "{lines:?}");
    let key = |l: &&String| l.split_whitespace().take(3).eq(["dummy", "dummy_get_stats64", "entry"]);
    let counted = lines.iter().find(key).and_then(|l| l.split_whitespace().last()?.parse::<i64>().ok());
    assert_eq!(counted, Some(times), "{lines:?}");
    Pass
}

fn arguments_of_a_module_loaded_later_have_their_types() -> Verdict {
    if let Some(skip) = no_functions().or_else(|| cannot("dummy", DUMMY)) {
        return skip;
    }
    let me = std::process::id().to_string();
    let script = "BEGIN { printf(\"ready\\n\"); }
        fbt:dummy:dummy_get_stats64:entry /pid == $1/ { @[stringof(args[0]->name), args[1] == (void *)arg1] = count(); }";
    let mut run = Running::of(&["-qvZ", "-n", script, &me]);
    if !run.until("ready") {
        panic!("{:?}", run.seen);
    }
    let mut times = 0;
    // Where the module can be unloaded, it is loaded again. The clause for the probes that have gone
    // remains beside that for the new ones.
    for _ in 0..3 {
        assert!(runs(DUMMY));
        if !std::path::Path::new("/sys/kernel/btf/dummy").exists() {
            run.end();
            unload("dummy");
            return Skip("modules do not show their types".into());
        }
        assert!(run.until("module dummy was loaded: matched 1 probe"), "{:?}", run.seen);
        read_statistic(8);
        times += 8;
        if !runs(&["modprobe", "-r", "dummy"]) {
            break;
        }
    }
    let lines = run.end();
    unload("dummy");
    let key = |l: &&String| l.split_whitespace().take(2).eq(["dummy0", "1"]);
    let counted = lines.iter().find(key).and_then(|l| l.split_whitespace().last()?.parse::<i64>().ok());
    assert_eq!(counted, Some(times), "{lines:?}");
    Pass
}

/// Connects to a port of this machine on which no process listens, which sends one packet.
fn connect_to_nobody() {
    // SAFETY: plain calls with an address that lives across them; all zero is a valid address.
    unsafe {
        let fd = libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0);
        let mut to: libc::sockaddr_vm = std::mem::zeroed();
        to.svm_family = libc::AF_VSOCK as u16;
        to.svm_cid = libc::VMADDR_CID_LOCAL;
        to.svm_port = 9;
        libc::connect(fd, (&raw const to).cast(), std::mem::size_of_val(&to) as u32);
        libc::close(fd);
    }
}

fn tracepoints_of_a_module_loaded_later_are_traced() -> Verdict {
    const COMMON: &str = "vmw_vsock_virtio_transport_common";
    let load: &[&str] = &["modprobe", "vsock_loopback"];
    if is_loaded(COMMON) {
        return Skip(format!("module {COMMON} is loaded already"));
    }
    if let Some(skip) = cannot("vsock_loopback", load) {
        return skip;
    }
    if is_loaded(COMMON) {
        unload(COMMON);
    }
    let me = std::process::id().to_string();
    let script = "BEGIN { raw = events = 0; printf(\"ready\\n\"); }
        rawtp:vsock::virtio_transport_alloc_pkt /pid == $1/ { raw++; }
        sdt:vsock::virtio_transport_alloc_pkt /pid == $1/ { events++; @[args[3]] = count(); }
        END { printf(\"raw %d\\nevents %d\\n\", raw, events); }";
    let mut run = Running::of(&["-qvZ", "-n", script, &me]);
    assert!(run.until("ready"), "{:?}", run.seen);
    assert!(runs(load));
    assert!(run.until("loaded: matched 2 probes"), "{:?}", run.seen);
    (0..5).for_each(|_| connect_to_nobody());
    let lines = run.end();
    unload("vsock_loopback");
    assert_eq!((value(&lines, "raw"), value(&lines, "events")), (5, 5), "{lines:?}");
    Pass
}

/// One probe has all its bases in the module, one gets a base more.
fn probes_of_a_library_fire_at_functions_of_a_module_loaded_later() -> Verdict {
    if let Some(skip) = no_functions().or_else(no_argument_types).or_else(|| cannot("dummy", DUMMY)) {
        return skip;
    }
    let text = "typedef struct device { string d_name; } device_t;
        translator device_t < struct net_device *D > { d_name = stringof(D->name); };
        provider dummies { probe statistic(struct net_device *D : device_t *D); probe place(int WHERE); };
        self int calls;
        syscall::getppid:entry { self->calls++; place(0); }
        fbt:dummy:dummy_get_stats64:entry { place(self->calls); statistic(args[0]); }";
    let library = Library::new("dummies", text);
    let me = std::process::id().to_string();
    let script = "dummies:::statistic /pid == $1/ { @[args[0]->d_name] = count(); }
        dummies:::place /pid == $1/ { @[args[0] ? \"later\" : \"first\"] = count(); calls = args[0]; }
        BEGIN { printf(\"ready\\n\"); }
        END { printa(\"%s %@d\\n\", @); printf(\"calls %d\\n\", calls); }";
    let mut run = Running::of(&["-qvZ", "-L", &library.path(), "-n", script, &me]);
    assert!(run.until("ready"), "{:?}", run.seen);
    // SAFETY: no argument.
    (0..3).for_each(|_| _ = unsafe { libc::getppid() });
    let mut times = 0;
    // Where the module can be unloaded, it is loaded again.
    for _ in 0..2 {
        assert!(runs(DUMMY));
        assert!(run.until("module dummy was loaded: matched 2 probes"), "{:?}", run.seen);
        read_statistic(25);
        times += 25;
        if !runs(&["modprobe", "-r", "dummy"]) {
            break;
        }
    }
    let lines = run.end();
    unload("dummy");
    let got = ["first", "later", "dummy0", "calls"].map(|key| value(&lines, key));
    assert_eq!(got, [3, times, times, 3], "{lines:?}");
    Pass
}

/// No description can match a module, so no socket is open.
fn no_module_events_are_received_when_no_description_needs_them() -> Verdict {
    if !std::path::Path::new("/proc/modules").exists() {
        return Skip("this kernel has no modules".into());
    }
    let sockets = |script: &str| {
        let mut run = Running::of(&["-qZ", "-n", script]);
        assert!(run.until("ready"), "{:?}", run.seen);
        // BEGIN's output appears before the session continues.
        let fds = std::fs::read_dir(format!("/proc/{}/fd", run.child.id())).unwrap();
        let links = fds.flatten().filter_map(|f| std::fs::read_link(f.path()).ok());
        let count = links.filter(|l| l.to_string_lossy().starts_with("socket:")).count();
        run.end();
        count
    };
    let none = sockets("BEGIN { printf(\"ready\\n\"); } tick-1s, syscall::nosuch:entry, nosuch:::x {}");
    let one = sockets("BEGIN { printf(\"ready\\n\"); } rawtp:nosuch::nosuch {}");
    assert_eq!(one, none + 1);
    Pass
}
