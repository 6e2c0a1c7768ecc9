//! Counts the system calls of a command.
//!
//! ```text
//! sudo -E cargo run --example count_calls -- 'ls -l /etc'
//! ```
//!
//! Tracing needs root, or `CAP_BPF` and `CAP_PERFMON`. The output is DTrace's text: the command's
//! calls, the rarest first.

use std::error::Error;
use std::process::ExitCode;

use dtrace::{Options, Output, Session, System, Text};

const SCRIPT: &str = "syscall:::entry /pid == $target/ { @calls[probefunc] = count(); }";

fn main() -> ExitCode {
    let command: Vec<String> = std::env::args().skip(1).collect();
    match run(&command.join(" "), std::io::stdout()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command, and writes how often it has made each call.
pub(crate) fn run<W: Output + Send>(command: &str, out: W) -> Result<W, Box<dyn Error>> {
    let mut session = Session::builder(&System::live())
        .program(SCRIPT)
        .options(Options { quiet: true, ..Options::default() })
        // It waits until it is traced, and its process is `$target`.
        .command(command)
        .start(Text::new(out))?;
    session.run()?;
    Ok(session.into_sink().into_output())
}
