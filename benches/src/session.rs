//! Measures a whole session of a tracer: start, all probes attached, exit called, process ended,
//! last program unloaded.
//!
//! Every tracer prints `on T` when all its probes are enabled and `off T` when its exit begins. T
//! is the monotonic clock. The scripts print these in `BEGIN` and in a clock probe half a second
//! later; both tracers run these after attaching the other probes. Then the process exits. The
//! kernel may finish closing later: the last program is unloaded when the kernel has none of the
//! programs that the process held while all probes were enabled.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bpf_sys::{ObjectKind, ids, monotonic_ns};

use crate::floor::PAUSE;
use crate::run::{Tools, figure, median};

/// Figures of one session in milliseconds and kilobytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    /// From the start of the process until all probes are enabled.
    pub(crate) enable: f64,
    /// From `exit()` to the end of the process.
    pub(crate) exit: f64,
    /// From `exit()` until the kernel has unloaded its last program.
    pub(crate) unloaded: f64,
    /// CPU time of the process until all probes were enabled, and after that. Other work on the
    /// machine has less effect on it.
    pub(crate) cpu: [f64; 2],
    /// Peak memory of the process.
    pub(crate) peak_kb: f64,
    /// Number of BPF links it held.
    pub(crate) links: usize,
}

/// A session of our tracer with these clauses.
pub(crate) fn ours(tools: &Tools, words: &[&str], clauses: &str) -> Command {
    let script = format!(
        "BEGIN {{ printf(\"on %d\\n\", timestamp); }} {clauses} \
         tick-{}ms {{ printf(\"off %d\\n\", timestamp); exit(0); }}",
        PAUSE.as_millis()
    );
    let mut all = vec!["-x", "switchrate=10ms"];
    all.extend(words);
    tools.dtrace(&all, &script)
}

/// The same session of the peer.
pub(crate) fn theirs(tools: &Tools, clauses: &str) -> Option<Command> {
    let script = format!(
        "BEGIN {{ printf(\"on %llu\\n\", nsecs(monotonic)); }} {clauses} \
         interval:ms:{} {{ printf(\"off %llu\\n\", nsecs(monotonic)); exit(); }}",
        PAUSE.as_millis()
    );
    let mut command = tools.peer.as_ref()?.command(&script);
    command.env("BPFTRACE_MAX_PROBES", "1000000");
    Some(command)
}

/// A session of a floor.
pub(crate) fn floor(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.arg("--floor").args(words);
    command
}

/// CPU time of a process in milliseconds.
fn cpu_of(pid: u32) -> f64 {
    // SAFETY: both are plain integers, and the pointers are valid.
    unsafe {
        let (mut clock, mut time): (libc::clockid_t, libc::timespec) = std::mem::zeroed();
        if libc::clock_getcpuclockid(pid as i32, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
        {
            return f64::NAN;
        }
        time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
    }
}

/// The number of links that a process holds, and the ids of its programs. Other processes load
/// programs too, so the kernel's list of programs is not enough.
fn held(pid: u32) -> (usize, Vec<u32>) {
    let (mut links, mut programs) = (0, Vec::new());
    for info in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(info.path()).unwrap_or_default();
        links += usize::from(text.lines().any(|l| l.starts_with("link_type")));
        let ids = text.lines().filter_map(|l| l.strip_prefix("prog_id:")?.trim().parse::<u32>().ok());
        programs.extend(ids);
    }
    (links, programs)
}

/// Runs a session to its end and waits until its programs are unloaded. `None` when it failed; then
/// its last message is printed to standard error.
pub(crate) fn run(mut command: Command) -> Option<Session> {
    let started = monotonic_ns();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    let errors = child.stderr.take()?;
    let errors = std::thread::spawn(move || std::io::read_to_string(errors).unwrap_or_default());
    let mut session = Session::default();
    let (mut on, mut off, mut programs) = (None, None, Vec::new());
    for line in BufReader::new(child.stdout.take()?).lines().map_while(Result::ok) {
        let number = |name: &str| line.trim().strip_prefix(name)?.trim().parse::<u64>().ok();
        if let Some(at) = number("on ") {
            on = Some(at);
            session.cpu[0] = cpu_of(child.id());
            (session.links, programs) = held(child.id());
        }
        off = number("off ").or(off);
    }
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid, and both pointers are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::wait4(child.id() as i32, &mut status, 0, &mut usage);
        usage
    };
    let ended = monotonic_ns();
    let (Some(on), Some(off), 0) = (on, off, status) else {
        // Another process may hold its standard error open, so do not wait for the end of the file.
        std::thread::sleep(Duration::from_millis(100));
        let said = if errors.is_finished() { errors.join().unwrap_or_default() } else { String::new() };
        eprintln!("    failed: {}", said.lines().next_back().unwrap_or("it said nothing"));
        return None;
    };
    let limit = Instant::now() + Duration::from_secs(300);
    while ids(ObjectKind::Prog).is_ok_and(|now| now.iter().any(|id| programs.contains(id))) {
        if Instant::now() > limit {
            eprintln!("    programs are left after 300 s");
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    session.enable = ms(started, on);
    session.exit = ms(off, ended);
    session.unloaded = ms(off, monotonic_ns()).max(session.exit);
    let cpu = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
    session.cpu[1] = cpu(usage.ru_utime) + cpu(usage.ru_stime) - session.cpu[0];
    session.peak_kb = usage.ru_maxrss as f64;
    Some(session)
}

/// Several rounds of one tracer.
#[derive(Debug, Default)]
pub(crate) struct Rounds(pub(crate) Vec<Session>);

impl Rounds {
    /// The median of one figure.
    pub(crate) fn of(&self, figure: fn(&Session) -> f64) -> f64 {
        median(self.0.iter().map(figure).collect())
    }

    /// The heading of the table of [`Rounds::line`].
    pub(crate) fn heading() -> String {
        format!(
            "  {:<24} {:>9} {:>8} {:>8} {:>9} {:>9} {:>7} {:>7} {:>6} {:>6}",
            "", "enable ms", "exit", "gone", "en+exit", "en+gone", "CPU: en", "rest", "MiB", "links"
        )
    }

    /// One row of the table.
    pub(crate) fn line(&self, name: &str) -> String {
        format!(
            "  {name:<24} {:>9} {:>8} {:>8} {:>9} {:>9} {:>7} {:>7} {:>6} {:>6}",
            figure(self.of(|s| s.enable), 0),
            figure(self.of(|s| s.exit), 0),
            figure(self.of(|s| s.unloaded), 0),
            figure(self.of(Session::until_exit), 0),
            figure(self.of(Session::until_unloaded), 0),
            figure(self.of(|s| s.cpu[0]), 0),
            figure(self.of(|s| s.cpu[1]), 0),
            figure(self.of(|s| s.peak_kb / 1024.0), 1),
            figure(self.of(|s| s.links as f64), 0),
        )
    }
}

impl Session {
    /// Enable plus exit.
    pub(crate) fn until_exit(&self) -> f64 {
        self.enable + self.exit
    }

    /// Enable plus the time until the last program was unloaded.
    pub(crate) fn until_unloaded(&self) -> f64 {
        self.enable + self.unloaded
    }
}
