//! The `dtrace` command: options, messages, exit codes. It knows nothing under `dtrace`, the
//! library.
//!
//! It is a library itself, so that its tests can run it without a kernel ([`Engine::Interpreter`]);
//! the program is one call of [`command`] with the kernel.
//!
//! ```text
//!  flags      the table of options and their parser
//!  formats    the words that name formats of results
//!  command    a parsed command line
//!  captures   the files of --capture, --replay and --capture-info
//!  definitions  the header and the object of provider definitions (-h, -G)
//!  drawing    the files of --flame
//!  flight     the files of a capture that keeps the last moments
//!  exports    the other files of results (--to, --format NAME=FILE), and where metrics go
//!  live       the terminal of --live
//!  postmortem  the records in a core file (--postmortem)
//!  stored     the events of another session (--events)
//!  secure     a command with more privileges than who started it
//!  prepare    reading and compiling programs, targets, the output
//!  run        list, compile only, or trace
//!  interrupt  SIGINT and SIGTERM as a readable descriptor
//!  arch       copying and comparing memory, where the C library is musl
//!  memory     the allocator, and the reserve with which a session ends
//!  output     where results and messages go
//!  progress   the line that says how far long work is
//!  results    the sink of a session
//!  panic      what is printed at a fault of the command itself
//!  manual     the manual page, from the tables
//!  completions  the completions of shells, from the tables, and what they ask while a user types (--complete)
//!  replacement  files that are replaced as a whole
//!  anonymous  what is traced from the boot on (-A, -a)
//!  about      this program and this system (--version, --check)
//!  status     the exit statuses
//! ```
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! arch/x86_64 bin/dtrace flags interrupt memory notify panic replacement secure status
//! anonymous/place
//! anonymous/boots anonymous/head anonymous/state
//! anonymous/clock anonymous/initramfs anonymous/recordings
//! anonymous/log
//! anonymous/spool
//! about arch completions formats manual
//! command
//! drawing output
//! anonymous/start definitions exports live progress
//! anonymous/words
//! anonymous/boot
//! results
//! flight prepare
//! anonymous/store captures postmortem stored
//! anonymous/claim
//! anonymous
//! lib+run
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod about;
mod anonymous;
mod arch;
mod captures;
mod command;
mod completions;
mod definitions;
mod drawing;
mod exports;
mod flags;
mod flight;
mod formats;
mod interrupt;
mod live;
mod manual;
mod memory;
mod notify;
mod output;
mod panic;
mod postmortem;
mod prepare;
mod progress;
mod replacement;
mod results;
mod run;
mod secure;
mod status;
mod stored;

use std::fmt::Display;
use std::io::Write;

use dtrace::Provider;
use dtrace::capture::Replay;
use dtrace::interpreter::Interpreter;
use dtrace::metrics::scrape;

pub use memory::Memory;
pub(crate) use output::to_stderr;

/// Prints a text that is all the command was asked for; the exit status.
pub(crate) fn to_stdout(text: impl Display) -> u8 {
    let printed = output::Output::stdout().and_then(|mut out| out.write_all(text.to_string().as_bytes()));
    printed.map_or_else(|e| run::failed_output(&e), |()| status::SUCCESS.code)
}

/// What executes the programs of the command.
pub enum Engine {
    /// The running kernel.
    Kernel,
    /// The interpreter, over firings that are given: for tests of what the command prints.
    Interpreter(Box<Given>),
    /// The interpreter, over a capture.
    Replay(Box<Replay>),
}

/// What an interpreted command runs on.
pub struct Given {
    /// Providers besides those of the system.
    pub providers: Vec<Box<dyn Provider>>,
    /// The firings.
    pub interpreter: Interpreter,
}

/// Executes the command with these words, and returns its exit status. It is made for a process of
/// its own: it installs signal handlers and a panic hook, and writes to the standard output and the
/// standard error.
pub fn command(words: &[String], engine: Engine) -> u8 {
    if let Some(why) = secure::refusal() {
        to_stderr(format!("dtrace: {why}\n"));
        return status::FAILURE.code;
    }
    secure::leave_environment();
    panic::install();
    interrupt::outlive_file_size_limit();
    match words.split_first() {
        Some((first, _)) if first == "--manual-page" => return to_stdout(manual::page()),
        Some((first, [address])) if first == scrape::WORD => return scrape::run(address),
        Some((first, [])) if first == anonymous::initramfs::WORD => return anonymous::start::launch(),
        Some((first, [])) if first == anonymous::store::SAVE => return anonymous::start::save(),
        Some((first, rest)) if first == "--complete" => return to_stdout(completions::candidates(rest)),
        _ => {}
    }
    match command::parse(words) {
        Ok(command) => run::run(command, engine),
        Err(command::Wrong::Usage(message)) => {
            if let Some(message) = message {
                to_stderr(format!("dtrace: {message}\n"));
            }
            to_stderr(flags::usage());
            status::USAGE.code
        }
        Err(command::Wrong::Words(message)) => {
            to_stderr(format!("dtrace: {message}\n"));
            status::USAGE.code
        }
        Err(command::Wrong::Value(message)) => {
            to_stderr(format!("dtrace: {message}\n"));
            status::FAILURE.code
        }
    }
}
