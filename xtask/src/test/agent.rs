//! What runs in a guest: this program again, which reads a plan and tells what becomes of it, line
//! by line.
//!
//! ```text
//!  /mnt/vmout/plan                       standard output, which the host reads as it grows
//!    dtrace /…/debug/dtrace                @lacks raw_tp_cookie kprobe_multi    of `dtrace -vV`, once
//!    a unit a line (`Unit::to_line`)       @begins TITLE                        a unit
//!                                          @ended SECONDS TITLE                 a unit, with its expected time
//!                                          @result …                            a test (`Result::to_line`), the last line holds
//!                                          @alive                               each ten seconds
//! ```
//!
//! All decisions are those of [`super::unit`]: deadlines, what is left, what is run again.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::board::Board;
use super::guests;
use super::report;
use super::result::Result;
use super::sweep;
use super::unit::{self, Unit, Watcher};

/// The name of the plan among the files of a guest.
pub(crate) const PLAN: &str = "plan";

/// Where a guest has its files.
const FILES: &str = "/mnt/vmout";

/// How often the guest says that it is alive.
const ALIVE: Duration = Duration::from_secs(10);

/// The text of a plan.
pub(crate) fn plan(dtrace: &std::path::Path, units: &[Unit]) -> String {
    let mut text = format!("dtrace {}\n", dtrace.display());
    units.iter().for_each(|unit| text.push_str(&format!("{}\n", unit.to_line())));
    text
}

/// `xtask agent [PLAN]`: runs the plan of this guest, or another one. `xtask agent --kernel K PLAN`
/// is the host's side: it runs a plan in a guest. The tests of the runner use both.
pub(crate) fn command(args: &[String]) -> std::result::Result<u8, String> {
    if let Some(status) = sweep::supervise()? {
        return Ok(status);
    }
    let of_guest = [format!("{FILES}/{PLAN}")];
    match if args.is_empty() { &of_guest } else { args } {
        [option, kernel, path] if option == "--kernel" => {
            let (dtrace, units) = read(path)?;
            let (machine, kernel, words) = (kernel.clone(), kernel.clone(), String::new());
            let plan = guests::Plan { machine, kernel, words, units };
            let ran = guests::run(&plan, std::path::Path::new(&dtrace), &Board::new())?;
            ran.results.iter().for_each(|result| say(&format!("@result {}", result.to_line())));
            ran.broken.iter().for_each(|why| say(&format!("broken: {why}")));
            Ok(0)
        }
        [path] => here(path),
        _ => Err("agent: [--kernel K] PLAN".into()),
    }
}

/// The path of dtrace and the units of a plan.
fn read(path: &str) -> std::result::Result<(String, Vec<Unit>), String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let (first, rest) = text.split_once('\n').ok_or("an empty plan")?;
    let dtrace = first.strip_prefix("dtrace ").ok_or("a plan without the path of dtrace")?;
    let units = rest.lines().map(|line| Unit::of_line(line).ok_or(format!("{path}: no unit: {line}")));
    Ok((dtrace.into(), units.collect::<std::result::Result<_, _>>()?))
}

/// Runs a plan on this machine.
fn here(path: &str) -> std::result::Result<u8, String> {
    let (dtrace, units) = read(path)?;
    let table = Command::new(&dtrace).arg("-vV").output().map_err(|e| format!("{dtrace}: {e}"))?;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    if let Some(lacks) = report::missing_facilities(&table) {
        say(&format!("@lacks {}", lacks.join(" ")));
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let alive = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                std::thread::park_timeout(ALIVE);
                say("@alive");
            }
        });
        let end = super::Raised(&ends);
        let mut results = Vec::new();
        // In the order of the plan: what killed a guest comes last.
        units.iter().for_each(|unit| results.extend(unit::run(unit, &Lines)));
        if unit::retries() {
            unit::retry(&units, &mut results, &Lines);
            results.iter().for_each(|result| say(&format!("@result {}", result.to_line())));
        }
        drop(end);
        alive.thread().unpark();
    });
    Ok(0)
}

/// One write, so that lines of two threads do not mix.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// Tells the host.
struct Lines;

impl Watcher for Lines {
    fn begins(&self, unit: &Unit) {
        say(&format!("@begins {}", unit.title()));
    }

    fn ended(&self, unit: &Unit, results: &[Result]) {
        results.iter().for_each(|result| say(&format!("@result {}", result.to_line())));
        say(&format!("@ended {} {}", unit.expected, unit.title()));
    }
}

/// What a guest has told so far.
pub(crate) struct Told<'a> {
    pub(crate) board: &'a Board,
    pub(crate) machine: &'a str,
    pub(crate) lacks: Option<Vec<String>>,
    /// The last result of each test.
    pub(crate) results: Vec<Result>,
    /// The unit that runs.
    pub(crate) running: Option<String>,
    /// What it printed that is no line of the protocol: of the shell, of a program that is missing.
    pub(crate) other: String,
    /// Results that are not yet on the board.
    fresh: Vec<Result>,
    unfinished: Vec<u8>,
}

impl<'a> Told<'a> {
    pub(crate) fn new(board: &'a Board, machine: &'a str) -> Told<'a> {
        Told {
            board,
            machine,
            lacks: None,
            results: Vec::new(),
            running: None,
            other: String::new(),
            fresh: Vec::new(),
            unfinished: Vec::new(),
        }
    }

    fn line(&mut self, line: &str) {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("@lacks", words) => self.lacks = Some(words.split_whitespace().map(String::from).collect()),
            ("@begins", title) => {
                self.running = Some(title.into());
                self.board.begins(self.machine, title);
            }
            ("@result", text) => {
                if let Some(result) = Result::of_line(text) {
                    self.results.retain(|r| r.name != result.name);
                    self.fresh.push(result.clone());
                    self.results.push(result);
                }
            }
            ("@ended", words) => {
                let (seconds, title) = words.split_once(' ').unwrap_or(("", words));
                self.running = None;
                let fresh = std::mem::take(&mut self.fresh);
                self.board.ended(self.machine, title, seconds.parse().unwrap_or(0.0), &fresh);
            }
            ("@alive", _) => self.board.tick(),
            _ => {
                self.other.push_str(line);
                self.other.push('\n');
            }
        }
    }
}

impl Write for Told<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.unfinished);
                    self.line(&String::from_utf8_lossy(&line));
                }
                byte => self.unfinished.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::result::{Name, Outcome};
    use super::*;

    #[test]
    fn what_a_guest_told_before_it_died_is_known_with_what_ran() {
        let board = Board::new();
        let mut told = Told::new(&board, "6.1");
        let name = Name { program: "files".into(), test: "a".into() };
        let result = |outcome| Result { name: name.clone(), outcome, seconds: 1.0, repeated: Vec::new() };
        let failed = result(Outcome::Failed("x\ny".into())).to_line();
        let text = format!(
            "@lacks kfuncs isa4\n@begins files a\n@result {failed}\n@ended 1 files a\nsh: odd\n@begins files b\n@alive\n@res"
        );
        // However the bytes come.
        for bytes in text.as_bytes().chunks(7) {
            told.write_all(bytes).unwrap();
        }
        assert_eq!(told.lacks.as_deref().unwrap(), ["kfuncs", "isa4"]);
        assert_eq!((told.running.as_deref(), told.other.as_str()), (Some("files b"), "sh: odd\n"));
        assert!(told.results.len() == 1 && told.results[0].has_failed());
        let flaky = result(Outcome::Flaky("x".into())).to_line();
        told.write_all(format!("\n@result {flaky}\n").as_bytes()).unwrap();
        assert_eq!(told.results, [result(Outcome::Flaky("x".into()))]);
    }
}
