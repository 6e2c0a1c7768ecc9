//! Functions of a process: what a firing costs, beside an empty program at the same place and the
//! peer; and how long all functions of the C library take from start to exit, and what they cost
//! other programs ([`crate::elsewhere`]).
//!
//! A process of its own calls a function of the C library, so that the tracers know it before it
//! runs. It waits for a line, measures, and prints the nanoseconds of a call.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bpf_sys::insn::{Insn, Reg};
use bpf_sys::{AttachType, Link, Prog, ProgKind, ProgSpec, UprobeTarget};

use crate::compiled::compiled_elsewhere;
use crate::elsewhere::elsewhere;
use crate::followed::followed;
use crate::run::{Cost, Running, Tools, figure, median, whole};

/// A function that does next to nothing and whose first instruction the kernel emulates (a push).
const CALLED: &std::ffi::CStr = c"mblen";

/// `--called`: says where the function is, and measures for each line of the standard input.
pub(crate) fn child() {
    const BATCH: u32 = 200;
    const TIME: Duration = Duration::from_millis(400);
    // SAFETY: the name is a string; the result is a function of the C library with these
    // parameters, or null.
    let function: Option<extern "C" fn(*const libc::c_char, usize) -> libc::c_int> = unsafe {
        let address = libc::dlsym(libc::RTLD_DEFAULT, CALLED.as_ptr());
        std::mem::transmute::<*mut libc::c_void, _>(address)
    };
    let Some(function) = function else { return eprintln!("bench: no {CALLED:?}") };
    println!("ready {:x}", function as usize);
    for _ in std::io::stdin().lock().lines() {
        let (begun, mut all) = (Instant::now(), Vec::new());
        while begun.elapsed() < TIME {
            let start = Instant::now();
            (0..BATCH).for_each(|_| _ = std::hint::black_box(function(std::ptr::null(), 0)));
            all.push(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
        }
        all.sort_by(f64::total_cmp);
        println!("{}", all.get(all.len() / 20).copied().unwrap_or(f64::NAN));
    }
}

/// The process, and where the function is.
pub(crate) struct Called {
    process: Child,
    lines: BufReader<ChildStdout>,
    file: OsString,
    offset: u64,
}

impl Called {
    fn start() -> Option<Called> {
        let me = std::env::current_exe().ok()?;
        let mut process =
            Command::new(me).arg("--called").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut lines = BufReader::new(process.stdout.take()?);
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let address = u64::from_str_radix(line.trim().strip_prefix("ready ")?, 16).ok()?;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.id())).ok()?;
        let (file, offset) = maps.lines().find_map(|line| mapped(line, address))?;
        Some(Called { process, lines, file, offset })
    }

    /// Nanoseconds of a call.
    fn measure(&mut self) -> f64 {
        let mut line = String::new();
        let asked = self.process.stdin.as_mut().is_some_and(|input| input.write_all(b"\n").is_ok());
        let answered = asked && self.lines.read_line(&mut line).is_ok();
        line.trim().parse().ok().filter(|_| answered).unwrap_or(f64::NAN)
    }

    /// The file as the peer finds it, which has a root of its own.
    fn place(&self) -> String {
        format!("/proc/{}/root{}", self.process.id(), self.file.display())
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The file that has the function.
    pub(crate) fn file(&self) -> &Path {
        Path::new(&self.file)
    }

    /// An empty program at the function.
    fn floor(&self, is_return: bool) -> Option<Link> {
        empty(self.file(), &[self.offset], Some(self.pid()), is_return)
    }
}

/// An empty program at places of a file, in one process or in all.
pub(crate) fn empty(file: &Path, offsets: &[u64], pid: Option<u32>, is_return: bool) -> Option<Link> {
    let insns = [Insn::mov64_imm(Reg::R0, 0), Insn::exit()];
    let spec =
        ProgSpec { attach: AttachType::UprobeMulti, ..ProgSpec::new(ProgKind::Kprobe, "floor", &insns) };
    let path = file.as_os_str();
    let target = UprobeTarget { path, offsets, cookies: &[], semaphores: &[], pid, is_return };
    Link::uprobe_multi(&Prog::load(&spec).ok()?, &target).ok()
}

impl Drop for Called {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The file that is mapped at an address, and the place in it.
fn mapped(line: &str, address: u64) -> Option<(OsString, u64)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |word: &str| u64::from_str_radix(word, 16).ok();
    let (from, to) = (number(from)?, number(to)?);
    let begins = number(words.nth(1)?)?;
    let path = words.nth(2)?;
    let file = OsString::from_vec(path.into());
    (from..to).contains(&address).then(|| (file, address - from + begins))
}

/// Measures both.
pub(crate) fn user(tools: &Tools) {
    let Some(mut called) = Called::start() else { return println!("\nuser: no process") };
    let name = CALLED.to_string_lossy();
    firings(tools, &mut called, &name);
    library(tools, &called);
    elsewhere(tools, &called);
    followed(tools);
}

fn firings(tools: &Tools, called: &mut Called, name: &str) {
    const ROUNDS: usize = 7;
    println!(
        "\ncost of a probe of a function of a process (ns a call, least of {ROUNDS} interleaved rounds)"
    );
    println!(
        "  {:<24} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}",
        "", "bare", "floor", "dtrace", "peer", "/floor", "ratio"
    );
    let (pid, place) = (called.process.id(), called.place());
    for (what, is_return, theirs) in [("entry", false, "uprobe"), ("return", true, "uretprobe")] {
        // `f64::min` prefers any number to NaN, and NaN is printed as not measured.
        let [mut bare, mut least, mut mine, mut peers] = [f64::NAN; 4];
        let ready = "BEGIN { printf(\"ready\\n\"); }";
        let ours = format!("{ready} pid{pid}:libc:{name}:{what} {{ @ = count(); }}");
        let theirs = format!("{ready} {theirs}:{place}:{name} {{ @ = count(); }}");
        for _ in 0..ROUNDS {
            bare = bare.min(called.measure());
            if let Some(_link) = called.floor(is_return) {
                least = least.min(called.measure());
            }
            let words = ["-x", "switchrate=10ms", "-x", "pidreturn=uretprobe"];
            if let Some(_tracer) = Running::start(tools.dtrace(&words, &ours)) {
                mine = mine.min(called.measure());
            }
            let peer = tools.peer.as_ref().map(|p| p.command(&theirs));
            if let Some(_tracer) = peer.and_then(Running::start) {
                peers = peers.min(called.measure());
            }
        }
        let (above, ratio) = ((mine - bare) / (least - bare), (mine - bare) / (peers - bare));
        println!(
            "  {:<24} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}  {}",
            format!("{what}, @ = count()"),
            figure(bare, 0),
            figure(least, 0),
            figure(mine, 0),
            figure(peers, 0),
            figure(above, 2),
            figure(ratio, 2),
            mark(above <= 1.1 && (ratio.is_nan() || ratio < 1.0)),
        );
    }
    println!("  /floor: dtrace over an empty program (at most 1.1); ratio: over the peer (below 1)");
}

/// Measures compilations beside a followed process.
pub(crate) fn compile(tools: &Tools) {
    match Called::start() {
        Some(called) => compiled_elsewhere(tools, &called),
        None => println!("\ncompilations are not measured: no process"),
    }
}

pub(crate) fn mark(reached: bool) -> &'static str {
    if reached { "reached" } else { "MISSED" }
}

/// The functions of the C library whose names begin with no `p`, enabled in a process that waits:
/// the peer attaches to none of those that a pattern names where the kernel refuses one of them
/// (`pthread_spin_lock`). The two do not find the same functions where there is a file of debug
/// information, so times are also those of one function.
fn library(tools: &Tools, called: &Called) {
    const ROUNDS: usize = 7;
    let (pid, place) = (called.process.id(), called.place());
    let ours = format!("pid{pid}:libc:[!p]*:entry {{ @[probefunc] = count(); }} BEGIN {{ exit(0); }}");
    let letters = ('a'..='z').chain('A'..='Z').chain(['_']).filter(|c| *c != 'p');
    let points: Vec<String> = letters.map(|c| format!("uprobe:{place}:{c}*")).collect();
    let points = points.join(", ");
    let theirs = format!(
        "config = {{ missing_probes = ignore }} {points} {{ @[func] = count(); }} BEGIN {{ exit(); }}"
    );
    println!("\nfunctions of the C library, start to exit (median of {ROUNDS} interleaved rounds)");
    let (mut mine, mut peers): (Vec<Cost>, Vec<Cost>) = Default::default();
    for _ in 0..ROUNDS {
        mine.extend(whole(tools.dtrace(&[], &ours)));
        peers.extend(tools.peer.as_ref().and_then(|peer| whole(peer.command(&theirs))));
    }
    let mut list = tools.dtrace(&["-l"], &format!("pid{pid}:libc:[!p]*:entry"));
    let listed = list.output().map_or(0, |o| o.stdout.iter().filter(|b| **b == b'\n').count());
    let attached = tools.peer.as_ref().and_then(|peer| peer.attached(&theirs));
    let counts = [listed.saturating_sub(1) as f64, attached.unwrap_or(f64::NAN)];
    let each: Vec<f64> = [("dtrace", &mine), ("peer", &peers)]
        .into_iter()
        .zip(counts)
        .map(|((name, all), count)| {
            let of = |cost: fn(&Cost) -> f64| median(all.iter().map(cost).collect());
            let (wall, cpu) = (of(|c| c.seconds), of(|c| c.cpu));
            println!(
                "  {name:<8} {:>8} s, {:>8} s of its CPU time, {:>6} functions, {:>8} us each",
                figure(wall, 3),
                figure(cpu, 3),
                figure(count, 0),
                figure(wall / count * 1e6, 1),
            );
            wall / count
        })
        .collect();
    let (wall, ratio) = (median(mine.iter().map(|c| c.seconds).collect()), each[0] / each[1]);
    let reached = mark(wall <= 0.2 && (ratio.is_nan() || ratio <= 0.4));
    println!("  at most 0.2 s, and for each function 0.4 of the peer ({}): {reached}", figure(ratio, 2));
}
