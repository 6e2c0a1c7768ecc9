//! Connects to a session that runs (`dtrace -x events=unix:PATH`), and prints the probe and the time
//! of each record until the session ends.
//!
//! ```text
//! sudo dtrace -q -x events=unix:/run/opens.events -n 'syscall::openat:entry { trace(execname); }' &
//! sudo cargo run --example events -- /run/opens.events
//! ```
//!
//! Any number of programs may connect and go as they like, while the session runs. It needs no
//! privilege but to open the socket, which is for the user that traces.

use std::error::Error;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use dtrace::events::{Event, Reader};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [path] => run(path, std::io::stdout()).map(|_| ()),
        _ => Err("give the path of a socket".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the records of a session. Their number.
pub(crate) fn run(path: &str, mut out: impl Write) -> Result<usize, Box<dyn Error>> {
    let mut reader = Reader::new(BufReader::new(UnixStream::connect(path)?));
    let mut records = 0;
    while let Some(event) = reader.next_event()? {
        match event {
            Event::Record(record) => {
                records += 1;
                let probe = &record.firing.probe;
                writeln!(out, "{} {}:{}", record.firing.time, probe.function, probe.name)?;
            }
            // How many events are missing, where this program was too slow for them.
            Event::Notice(notice) => eprintln!("{}", notice.text),
            Event::End { .. } => return Ok(records),
            _ => {}
        }
    }
    Err("the session has ended without an end".into())
}
