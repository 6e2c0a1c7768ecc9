//! Writes each file that a command opens, or fails to open, by `openat` as a line of JSON.
//!
//! ```text
//! sudo -E cargo run --example to_json -- opened.json 'ls -l /etc'
//! ```
//!
//! A line has the time, the process and the thread, the probe, and the fields that the program
//! names.

use std::error::Error;
use std::fs::File;
use std::process::ExitCode;

use dtrace::{Json, Session, System};

const SCRIPT: &str = r#"
    syscall::openat:entry /pid == $target/ { self->path = arg1; }
    syscall::openat:return /self->path/ {
        printf("%s: %d\n", copyinstr(self->path), (int)arg1);
        self->path = 0;
    }
"#;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [file, command @ ..] => run(file, &command.join(" ")),
        [] => Err("give a file and a command".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command, and writes what it opens to a file.
pub(crate) fn run(file: &str, command: &str) -> Result<(), Box<dyn Error>> {
    let mut session = Session::builder(&System::live())
        .program(SCRIPT)
        .command(command)
        .start(Json::new(File::create(file)?))?;
    session.run()?;
    Ok(())
}
