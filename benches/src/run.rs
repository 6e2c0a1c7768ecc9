//! Runs the tracers and the traced loop.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::peer::Peer;

/// The programs used by a run.
pub(crate) struct Tools {
    pub(crate) dtrace: PathBuf,
    pub(crate) peer: Option<Peer>,
    /// The C port of DTrace.
    pub(crate) port: Option<Peer>,
}

/// `--loop CALL [BATCHES [CPU [RATE]]]` measures one call of the traced loop in nanoseconds, on one
/// CPU (by default the last). It runs this number of batches, or half a second's worth, at most
/// RATE calls a second, and reports the 5th percentile. Disturbed batches are above it. The lowest
/// values are artefacts of the clock.
pub(crate) fn child_loop(args: &[String]) {
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let (batches, cpu, rate) = (number(1), number(2), number(3));
    if let Some(cpu) = cpu.or_else(|| Some(u64::from(*bpf_sys::online_cpus().last()?))) {
        // SAFETY: an all-zero set is valid, and the kernel reads only its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu as usize, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
    // What it needs besides is made on that CPU.
    let (batch, mut call) = match crate::calls::named(args.first().map_or("", String::as_str)) {
        Ok(call) => call,
        Err(e) => return eprintln!("bench: {e}"),
    };
    let pause = rate.map(|r| Duration::from_secs_f64(f64::from(batch) / r.max(1) as f64));
    let end = Instant::now() + Duration::from_millis(500);
    let (mut all, begun) = (Vec::new(), Instant::now());
    loop {
        if let Some(pause) = pause {
            std::thread::sleep((begun + pause * all.len() as u32).saturating_duration_since(Instant::now()));
        }
        let start = Instant::now();
        if batches.map_or(start >= end, |b| all.len() as u64 == b) {
            break;
        }
        call();
        all.push(start.elapsed().as_nanos() as f64 / f64::from(batch));
    }
    all.sort_by(f64::total_cmp);
    println!("{}", all.get(all.len() / 20).copied().unwrap_or(f64::NAN));
}

/// Formats a figure, or a dash if it was not measured.
pub(crate) fn figure(value: f64, decimals: usize) -> String {
    if value.is_nan() { "-".into() } else { format!("{value:.decimals$}") }
}

/// The median of some figures.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A tracer that runs beside the loop. Dropping it stops it.
pub(crate) struct Running {
    child: Child,
    /// Drains its output, so that the tracer never blocks.
    reader: Option<JoinHandle<u64>>,
}

/// Counts the lines that begin with a digit.
fn rows(lines: impl BufRead) -> u64 {
    let lines = lines.lines().map_while(Result::ok);
    lines.filter(|l| l.starts_with(|c: char| c.is_ascii_digit())).count() as u64
}

impl Running {
    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts a tracer whose script first prints "ready", and waits for that line.
    pub(crate) fn start(mut command: Command) -> Option<Running> {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let out = child.stdout.take()?;
        let mut lines = BufReader::new(out);
        let mut line = String::new();
        while lines.read_line(&mut line).ok()? > 0 && !line.contains("ready") {
            line.clear();
        }
        if line.is_empty() {
            // It exited before printing the line.
            let _ = child.wait();
            return None;
        }
        let reader = std::thread::spawn(move || rows(lines));
        // In both tracers, BEGIN runs before the other probes are enabled.
        std::thread::sleep(Duration::from_millis(300));
        Some(Running { child, reader: Some(reader) })
    }

    /// Stops it. Returns the number of rows printed after "ready".
    pub(crate) fn end(mut self) -> u64 {
        let reader = self.reader.take();
        drop(self);
        reader.and_then(|r| r.join().ok()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: our child, which has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sum of the drops of this kind that dtrace reported.
pub(crate) fn dropped(said: &str, kind: &str) -> u64 {
    let drops = said.lines().filter(|l| l.contains(kind));
    drops.filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// The number of lines that contain a word.
pub(crate) fn lines_with(text: &[u8], word: &str) -> u64 {
    let has = |line: &&[u8]| line.windows(word.len()).any(|w| w == word.as_bytes());
    text.split(|b| *b == b'\n').filter(has).count() as u64
}

/// Wall and CPU seconds and peak memory in kilobytes of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) cpu: f64,
    pub(crate) peak_kb: f64,
}

/// Runs a command to its end. `None` when it fails.
pub(crate) fn whole(mut command: Command) -> Option<Cost> {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    cost(&child, start)
}

/// Waits for a child that was started then. `None` when it fails.
pub(crate) fn cost(child: &Child, start: Instant) -> Option<Cost> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid, and both pointers are valid.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(child.id() as i32, &mut status, 0, &mut usage), usage)
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (pid > 0 && status == 0).then(|| Cost {
        seconds: start.elapsed().as_secs_f64(),
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_kb: usage.ru_maxrss as f64,
    })
}

impl Tools {
    /// Finds the release binary beside this one.
    pub(crate) fn new(peer: Option<Peer>, port: Option<Peer>) -> Result<Tools, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let dtrace =
            std::env::var_os("DTRACE_BIN").map_or_else(|| me.with_file_name("dtrace"), PathBuf::from);
        if !dtrace.exists() {
            return Err(format!("{}: build it first (cargo build --release)", dtrace.display()));
        }
        Ok(Tools { dtrace, peer, port })
    }

    /// Describes kernel, CPUs and programs of this run.
    pub(crate) fn heading(&self) -> String {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let version = |peer: &Option<Peer>| {
            peer.as_ref().map_or("none (see benches/src/main.rs)".into(), |p| p.version.clone())
        };
        let (peer, port) = (version(&self.peer), version(&self.port));
        let cpus = bpf_sys::online_cpus().len();
        format!("kernel {}, {cpus} CPUs; peer: {peer}; C port: {port}", kernel.trim())
    }

    /// `dtrace -qn SCRIPT`, with further options before the script.
    pub(crate) fn dtrace(&self, words: &[&str], script: &str) -> Command {
        let mut command = Command::new(&self.dtrace);
        command.arg("-q").args(words).arg("-n").arg(script);
        command
    }

    /// Nanoseconds per call of the getppid loop.
    pub(crate) fn loop_ns(&self) -> f64 {
        self.loop_of("getppid")
    }

    /// Nanoseconds per call of a loop ([`crate::calls`]).
    pub(crate) fn loop_of(&self, call: &str) -> f64 {
        let me = std::env::current_exe().unwrap_or_default();
        let out = Command::new(me).args(["--loop", call]).output();
        out.ok().and_then(|o| String::from_utf8_lossy(&o.stdout).trim().parse().ok()).unwrap_or(f64::NAN)
    }
}
