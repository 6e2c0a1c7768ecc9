//! A session in an event loop of the program: one `poll(2)` waits for the session, for lines on
//! standard input, and for a timer.
//!
//! ```text
//! cargo run --example event_loop -- 'ls -l /etc'
//! ```
//!
//! It runs the command, echoes the lines of standard input, counts the ticks of its timer, and
//! prints the system calls of the command at the end. The loop asks the session for its descriptors
//! and its deadline before each wait, and lets it work after each.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dtrace::{Options, Session, Status, System, Text};

const SCRIPT: &str = r#"
syscall:::entry /pid == $target/ { @calls[probefunc] = count(); }
END { printa("%s %@d\n", @calls); }
"#;

/// The timer of the program itself.
const EVERY: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let command: Vec<String> = std::env::args().skip(1).collect();
    match run(&command.join(" ")) {
        Ok(status) => ExitCode::from(status as u8),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn run(command: &str) -> Result<i32, String> {
    let mut session = start(command)?;
    let mut next_tick = Instant::now() + EVERY;
    let mut ticks = 0;
    // Without a buffer, whose content poll(2) would not see.
    let mut input = Some(file(&io::stdin())?);
    loop {
        let deadline = session.next_deadline().min(next_tick);
        let mut all: Vec<libc::pollfd> = session.descriptors().iter().map(readable).collect();
        let of_session = all.len();
        all.extend(input.as_ref().map(readable));
        wait(&mut all, deadline).map_err(|e| e.to_string())?;

        // What is the program's own.
        if all.get(of_session).is_some_and(|own| own.revents != 0) {
            let mut bytes = [0; 4096];
            match input.as_mut().map_or(Ok(0), |i| i.read(&mut bytes)).map_err(|e| e.to_string())? {
                0 => input = None,
                n => io::stdout().write_all(&bytes[..n]).map_err(|e| e.to_string())?,
            }
        }
        while next_tick <= Instant::now() {
            ticks += 1;
            next_tick += EVERY;
        }

        // What is the session's.
        let status = session.ready().map_err(|e| e.to_string())?;
        if status == Status::Done {
            break;
        }
    }
    let status = session.finish().map_err(|e| e.to_string())?;
    println!("ticks {ticks}");
    Ok(status)
}

fn start(command: &str) -> Result<Session<Text<File>>, String> {
    let session = Session::builder(&System::live())
        .program(SCRIPT)
        .options(Options { quiet: true, ..Options::default() })
        .command(command);
    session.start(Text::new(file(&io::stdout())?)).map_err(|e| e.to_string())
}

fn file(fd: &impl AsFd) -> Result<File, String> {
    fd.as_fd().try_clone_to_owned().map(File::from).map_err(|e| e.to_string())
}

fn readable(fd: &impl AsFd) -> libc::pollfd {
    libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Waits until a descriptor is readable or the deadline has come. A signal ends the wait early.
fn wait(all: &mut [libc::pollfd], deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    // SAFETY: as many entries as said, a valid time, no mask.
    let ready = unsafe { libc::ppoll(all.as_mut_ptr(), all.len() as u64, &limit, std::ptr::null()) };
    match ready {
        0.. => Ok(()),
        _ => Some(io::Error::last_os_error())
            .filter(|e| e.kind() != io::ErrorKind::Interrupted)
            .map_or(Ok(()), Err),
    }
}
