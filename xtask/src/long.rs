//! What takes too long for every run of the tests, in pieces that each end within two hours.
//!
//! `.ci/run` has a share of each: a choice of the tests a kernel, some seconds a fuzz target. A
//! piece has the whole. It runs until it is done or its time is over, and the next one follows
//! whatever has come of it.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "  long [PIECE...|all]
                run what takes too long for every run of the tests: without a word, list the pieces
";

/// A piece: `cargo xtask` runs each of its command lines, with these variables.
struct Piece {
    name: &'static str,
    about: &'static str,
    environment: &'static [(&'static str, &'static str)],
    lines: &'static [&'static str],
}

/// How long a piece may take.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
/// How long it may take to end what it has started.
const ENDING: Duration = Duration::from_secs(60);
/// How often it is looked whether the user wants it to end.
const LOOK: Duration = Duration::from_secs(1);

const ALL: &[(&str, &str)] = &[("DTRACE_MATRIX", "all")];

const PIECES: &[Piece] = &[
    piece(
        "matrix-6.1",
        "every test that may run there on a stock kernel 6.1",
        ALL,
        &["test --vm --kernel 6.1"],
    ),
    piece("matrix-6.12", "the same on 6.12", ALL, &["test --vm --kernel 6.12"]),
    piece("matrix-7.2", "the same on 7.2", ALL, &["test --vm --kernel 7.2"]),
    piece("fuzz", "each fuzz target for a minute", &[], &["fuzz --seconds 60"]),
    piece(
        "fuzz-guided",
        "each of them for a minute, following what inputs reach",
        &[],
        &["fuzz --guided --seconds 60"],
    ),
    piece(
        "packages",
        "the packages, twice the same bytes, in new Debian roots; the wheel in a new environment",
        &[],
        &["dist --test --lintian", "wheel --test"],
    ),
    piece("boot", "machines that boot and are traced from their first process on", &[], &["boot"]),
    piece("bench", "all benchmarks, with the peers that are there", &[], &["bench"]),
    piece("docs", "every command of the documents", &[], &["docs --check"]),
];

const fn piece(
    name: &'static str,
    about: &'static str,
    environment: &'static [(&'static str, &'static str)],
    lines: &'static [&'static str],
) -> Piece {
    Piece { name, about, environment, lines }
}

/// `cargo xtask long [PIECE...|all]`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    if args.is_empty() {
        PIECES.iter().for_each(|piece| println!("{:<13} {}", piece.name, piece.about));
        return Ok(0);
    }
    let chosen = chosen(args)?;
    crate::sys::note_interrupts();
    let timed = |piece: &Piece| {
        let begun = Instant::now();
        let result = run(piece);
        (piece.name, begun.elapsed(), result)
    };
    let going = |_: &&Piece| !crate::sys::interrupted();
    let results: Vec<_> = chosen.into_iter().take_while(going).map(timed).collect();
    for (name, took, result) in &results {
        let said = result.as_ref().err().map_or("passed", String::as_str);
        println!("long: {name}: {said} in {} s", took.as_secs());
    }
    Ok(u8::from(results.iter().any(|(.., result)| result.is_err())))
}

fn chosen(args: &[String]) -> Result<Vec<&'static Piece>, String> {
    if args == ["all"] {
        return Ok(PIECES.iter().collect());
    }
    let find = |name: &String| PIECES.iter().find(|piece| piece.name == name);
    args.iter().map(|name| find(name).ok_or_else(|| format!("long: there is no piece {name}"))).collect()
}

fn run(piece: &Piece) -> Result<(), String> {
    let end = Instant::now() + LIMIT;
    for line in piece.lines {
        println!("long: {}: cargo xtask {line}", piece.name);
        let mut command = Command::new(crate::own_program()?);
        // A group of its own: all of it ends with it.
        command.args(line.split(' ')).envs(piece.environment.iter().copied()).process_group(0);
        let mut child = command.spawn().map_err(|e| format!("cannot run: {e}"))?;
        let status = ended(&mut child, end, crate::sys::interrupted)?;
        // First as ^C does: it ends what it has started.
        for signal in [libc::SIGINT, libc::SIGKILL] {
            if child.try_wait().is_ok_and(|ended| ended.is_none()) {
                crate::sys::kill(-(child.id() as i32), signal);
                ended(&mut child, Instant::now() + ENDING, || false)?;
            }
        }
        match status {
            None if crate::sys::interrupted() => return Err(format!("interrupted: {line}")),
            None => return Err(format!("not done within {} s: {line}", LIMIT.as_secs())),
            Some(status) if status.success() => {}
            Some(_) => return Err(format!("failed: {line}")),
        }
    }
    Ok(())
}

/// How a process has ended, if it has until a time, and until nobody waits any more.
pub(crate) fn ended(
    child: &mut Child,
    end: Instant,
    is_over: impl Fn() -> bool,
) -> Result<Option<ExitStatus>, String> {
    let ending = crate::sys::end_of(child.id());
    let fds: Vec<i32> = ending.iter().map(AsRawFd::as_raw_fd).collect();
    loop {
        let status = child.try_wait().map_err(|e| format!("lost: {e}"))?;
        let left = end.saturating_duration_since(Instant::now());
        if status.is_some() || left.is_zero() || is_over() {
            return Ok(status);
        }
        // An interrupt that comes before it waits is seen after that.
        crate::sys::wait_for_any(&fds, LOOK.min(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_tasks_and_are_chosen_by_their_names() {
        let help = crate::help();
        for piece in PIECES {
            for line in piece.lines {
                let mut words = line.split(' ');
                let task = words.next().unwrap();
                assert!(help.contains(&format!("\n  {task} ")), "{line}");
                words
                    .filter(|word| word.starts_with("--"))
                    .for_each(|word| assert!(help.contains(word), "{line}"));
            }
        }
        let names = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            chosen(&words).map(|all| all.iter().map(|piece| piece.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["fuzz", "bench"]).unwrap(), ["fuzz", "bench"]);
        assert_eq!(names(&["all"]).unwrap().len(), PIECES.len());
        assert!(names(&["nobody"]).unwrap_err().contains("nobody"));
    }
}
