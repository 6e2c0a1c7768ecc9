//! The `dtrace` command: options, messages, exit codes. It knows nothing under `dtrace`, the library.
//!
//! ```text
//!  flags      the table of options and their parser
//!  command    what the words mean together
//!  run        list, compile only, or trace
//!  interrupt  SIGINT and SIGTERM as a readable descriptor
//! ```
//!
//! Exit status: 0, or what `exit()` was given; 1 when something failed; 2 for a wrong command line.

mod command;
mod flags;
mod interrupt;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = match std::env::args_os().skip(1).map(|w| w.into_string()).collect() {
        Ok(words) => words,
        Err(word) => {
            eprintln!("dtrace: {} is not UTF-8", word.to_string_lossy());
            return ExitCode::from(2);
        }
    };
    if words.first().is_some_and(|w| w == "--manual-page") {
        print!("{}", flags::manual_page());
        return ExitCode::SUCCESS;
    }
    match command::parse(&words) {
        Ok(command) => ExitCode::from(run::run(command)),
        Err(command::Wrong::Usage(message)) => {
            if let Some(message) = message {
                eprintln!("dtrace: {message}");
            }
            eprint!("{}", flags::usage());
            ExitCode::from(2)
        }
        Err(command::Wrong::Words(message)) => {
            eprintln!("dtrace: {message}");
            ExitCode::from(2)
        }
    }
}
