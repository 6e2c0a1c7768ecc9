//! What a followed child costs the tracer: its CPU time while a process forks children that end at
//! once, and children that execute a program.
//!
//! A process of its own forks for each line of its input. It is traced as one of `-x processes`,
//! and as one of `-p`, whose children are held where they execute.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Running, Tools, figure, median};
use crate::user::mark;

/// Microseconds of the tracer's CPU time for a child, at most.
const TARGET: f64 = 200.0;

/// Children for each line.
const CHILDREN: u32 = 300;

/// `--forks`: makes children for each line of the standard input, one after the other.
pub(crate) fn child() {
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        for _ in 0..CHILDREN {
            if line == "exec" {
                let _ = Command::new("/bin/true").status();
                continue;
            }
            // SAFETY: the child only ends.
            unsafe {
                match libc::fork() {
                    0 => libc::_exit(0),
                    pid => libc::waitpid(pid, std::ptr::null_mut(), 0),
                };
            }
        }
        println!("done");
    }
}

struct Forks {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Forks {
    fn start() -> Option<Forks> {
        let me = std::env::current_exe().ok()?;
        let mut process =
            Command::new(me).arg("--forks").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut forks = Forks { lines: BufReader::new(process.stdout.take()?), process };
        forks.says("ready").then_some(forks)
    }

    fn says(&mut self, word: &str) -> bool {
        let mut line = String::new();
        self.lines.read_line(&mut line).is_ok() && line.trim() == word
    }

    /// Makes children. False if it has ended.
    fn fork(&mut self, how: &str) -> bool {
        let asked = self.process.stdin.as_mut().is_some_and(|input| writeln!(input, "{how}").is_ok());
        asked && self.says("done")
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Nanoseconds of CPU time of all threads of a process and of its children that run.
fn cpu_time(pid: u32) -> f64 {
    let threads = |pid: &str| {
        let all = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let time = |path: std::path::PathBuf| {
            std::fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse::<f64>().ok()
        };
        all.filter_map(|task| time(task.path())).sum::<f64>()
    };
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    threads(&pid.to_string()) + children.split_whitespace().map(threads).sum::<f64>()
}

/// Measures all.
pub(crate) fn followed(tools: &Tools) {
    const ROUNDS: usize = 5;
    println!(
        "\na followed child (us of dtrace's CPU time, median of {ROUNDS} rounds of {CHILDREN} children)"
    );
    for (what, held, follow, how) in [
        ("forked, follow=fork", false, "follow=fork", "fork"),
        ("forked, follow=all", false, "follow=all", "fork"),
        ("executes, follow=fork", false, "follow=fork", "exec"),
        ("executes, follow=all", false, "follow=all", "exec"),
        ("executes, follow=all, held", true, "follow=all", "exec"),
    ] {
        let Some(mut forks) = Forks::start() else { return println!("  no process") };
        let pid = forks.process.id();
        let script =
            "BEGIN { printf(\"ready\\n\"); } pid*:a.out:main:entry, pid*:true:main:entry { @ = count(); }";
        let (number, selected) = (pid.to_string(), format!("processes={pid}"));
        let whose = if held { ["-p", &number] } else { ["-x", &selected] };
        let words = [&["-Z", "-x", follow], &whose[..]].concat();
        let Some(tracer) = Running::start(tools.dtrace(&words, script)) else {
            println!("  {what:<32} {:>8}", figure(f64::NAN, 0));
            continue;
        };
        // What is new costs once.
        let mut each = Vec::new();
        let mut runs = forks.fork(how);
        // Of a round, what the tracer uses in the same time while nothing is forked is not the
        // children's.
        let measured = |work: &mut dyn FnMut()| {
            let (begun, before) = (Instant::now(), cpu_time(tracer.pid()));
            work();
            (cpu_time(tracer.pid()) - before, begun.elapsed().as_secs_f64())
        };
        for _ in 0..ROUNDS {
            let (idle, pause) = measured(&mut || std::thread::sleep(Duration::from_millis(300)));
            let (cpu, time) = measured(&mut || runs &= forks.fork(how));
            each.push((cpu - idle * time / pause) / 1e3 / f64::from(CHILDREN));
        }
        let us = if runs { median(each) } else { f64::NAN };
        println!("  {what:<32} {:>8} at most {TARGET}: {}", figure(us, 1), mark(us <= TARGET));
    }
}
