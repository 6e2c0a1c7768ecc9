//! The `dtrace` command: options, messages, exit codes. It knows nothing under `dtrace`, the library.
//!
//! ```text
//!  flags      the table of options and their parser
//!  command    a parsed command line
//!  run        list, compile only, or trace
//!  interrupt  SIGINT and SIGTERM as a readable descriptor
//!  output     where results go
//!  manual     the manual page, from the tables
//!  status     the exit statuses
//! ```

mod command;
mod flags;
mod interrupt;
mod manual;
mod output;
mod run;
mod status;

use std::fmt::Display;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use diagnostics::{control, raw};

/// Prints a text that is all the command was asked for; the exit status.
pub(crate) fn to_stdout(text: impl Display) -> u8 {
    let printed = output::Output::stdout().and_then(|mut out| out.write_all(text.to_string().as_bytes()));
    printed.map_or_else(|e| run::failed_output(&e), |()| status::SUCCESS.code)
}

/// Prints what is no result. What it quotes of others cannot control a terminal.
pub(crate) fn to_stderr(text: impl Display) {
    let _ = write!(std::io::stderr(), "{}", control::lines(&text.to_string()));
}

fn main() -> ExitCode {
    interrupt::outlive_file_size_limit();
    let words: Vec<String> = std::env::args_os().skip(1).map(|w| raw::text(w.into_vec())).collect();
    if words.first().is_some_and(|w| w == "--manual-page") {
        return ExitCode::from(to_stdout(manual::page()));
    }
    match command::parse(&words) {
        Ok(command) => ExitCode::from(run::run(command)),
        Err(command::Wrong::Usage(message)) => {
            if let Some(message) = message {
                to_stderr(format!("dtrace: {message}\n"));
            }
            to_stderr(flags::usage());
            ExitCode::from(status::USAGE.code)
        }
        Err(command::Wrong::Words(message)) => {
            to_stderr(format!("dtrace: {message}\n"));
            ExitCode::from(status::USAGE.code)
        }
        Err(command::Wrong::Value(message)) => {
            to_stderr(format!("dtrace: {message}\n"));
            ExitCode::from(status::FAILURE.code)
        }
    }
}
