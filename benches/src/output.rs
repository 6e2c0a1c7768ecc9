//! The section `output`: rows of all CPUs into a file, and the processor time of a line.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::calls::BATCH;
use crate::run::{Tools, cost, dropped, figure, lines_with};

/// Loops of getppid: this number of calls on each of so many CPUs, each at this rate.
#[derive(Clone, Copy)]
struct Load {
    calls: u64,
    cpus: usize,
    rate: u64,
}

impl Load {
    /// Runs the loops to their end.
    fn run(&self) -> Option<()> {
        let me = std::env::current_exe().ok()?;
        let batches = (self.calls / u64::from(BATCH)).to_string();
        let mut loops: Vec<Child> = Vec::new();
        for cpu in bpf_sys::online_cpus().iter().rev().take(self.cpus) {
            let mut command = Command::new(&me);
            command.args(["--loop", "getppid", &batches, &cpu.to_string(), &self.rate.to_string()]);
            loops.push(command.stdout(Stdio::null()).spawn().ok()?);
        }
        loops.iter_mut().for_each(|l| drop(l.wait()));
        Some(())
    }
}

/// Makes the command of a tracer, if there is one.
type Start<'a> = &'a dyn Fn() -> Option<Command>;

/// What a tracer wrote into its file, and what that cost.
struct Written {
    lines: u64,
    dropped: u64,
    cpu: f64,
}

/// Runs a tracer beside a load, its output into a file. `row`: what a row has, and nothing else.
fn written(mut command: Command, row: &str, load: &Load) -> Option<Written> {
    let file = std::env::temp_dir().join(format!("dtrace-output-{}", std::process::id()));
    let out = std::fs::File::create(&file).ok()?;
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn().ok()?;
    let said = child.stderr.take()?;
    let said = std::thread::spawn(move || std::io::read_to_string(said).unwrap_or_default());
    let ready = || std::fs::read(&file).is_ok_and(|text| text.windows(5).any(|w| w == b"ready"));
    while !ready() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // In both tracers, BEGIN runs before the other probes are enabled.
    std::thread::sleep(Duration::from_millis(500));
    load.run();
    std::thread::sleep(Duration::from_millis(300));
    // SAFETY: our child, which has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let spent = cost(&child, start);
    let text = std::fs::read(&file);
    let _ = std::fs::remove_file(&file);
    let (said, text) = (said.join().ok()?, text.ok()?);
    let (lines, dropped) = (lines_with(&text, row), dropped(&said, " drop"));
    Some(Written { lines, dropped, cpu: spent?.cpu })
}

pub(crate) fn output(tools: &Tools) {
    let cpus = bpf_sys::online_cpus().len().min(2);
    let load = Load { calls: 3_000_000, cpus, rate: 1_500_000 };
    let all = load.calls * cpus as u64;
    println!("\nrows of {cpus} CPUs, 3 million a second for two seconds, into a file, bufsize=16m");
    let script =
        "BEGIN { printf(\"ready\"); } syscall::getppid:entry /execname == \"benches\"/ { trace(timestamp); }";
    let mut command = Command::new(&tools.dtrace);
    command.args(["-b", "16m", "-n", script]);
    match written(command, "getppid:entry", &load) {
        Some(w) => println!("  dtrace  {} printed + {} dropped of {all}", w.lines, w.dropped),
        None => println!("  dtrace  -"),
    }

    let load = Load { calls: 600_000, cpus: 1, rate: 200_000 };
    println!("\nlines: 200,000 a second for three seconds from one CPU into a file");
    println!("  {:<22} {:>9} {:>9} {:>12} {:>9}", "", "lines", "dropped", "CPU ns/line", "of a core");
    let clause =
        "syscall::getppid:entry /execname == \"benches\"/ { printf(\"row %d %s\\n\", pid, execname); }";
    let ours = format!("BEGIN {{ printf(\"ready\\n\"); }} {clause}");
    let theirs = "BEGIN { printf(\"ready\\n\"); } tracepoint:syscalls:sys_enter_getppid /comm == \"benches\"/ \
                  { printf(\"row %d %s\\n\", pid, comm); }";
    let text = || Some(tools.dtrace(&[], &ours));
    let json = || Some(tools.dtrace(&["-x", "oformat=json"], &ours));
    let peer = || tools.peer.as_ref().map(|p| p.command(theirs));
    let tracers: [(&str, Start<'_>, &str); 3] =
        [("dtrace, text", &text, "row "), ("dtrace, JSON", &json, "\"row "), ("peer", &peer, "row ")];
    for (name, command, row) in tracers {
        // Start and end are no cost of a line.
        let idle = command().and_then(|c| written(c, row, &Load { calls: 0, ..load }));
        let (Some(idle), Some(w)) = (idle, command().and_then(|c| written(c, row, &load))) else {
            println!("  {name:<22} {:>9}", "-");
            continue;
        };
        let cpu = w.cpu - idle.cpu;
        println!(
            "  {name:<22} {:>9} {:>9} {:>12} {:>9}",
            w.lines,
            w.dropped,
            figure(cpu * 1e9 / w.lines as f64, 0),
            figure(cpu * load.rate as f64 / load.calls as f64, 2)
        );
    }
}
