//! The targets of a session (`-c`, `-p`): when they run, and how their address maps are had.
//!
//! A program can live for less than a millisecond, and its addresses are named when it is gone. So where addresses of processes
//! are shown, a target stays seized while it runs and stops once more at its exit (`PTRACE_EVENT_EXIT`), with all that it has
//! mapped; its map is read then, and it goes on. While it is seized nobody else can attach to it, and signals to its first
//! thread pass through us. `-x exithold=no` does without: then its map is read again and again while it runs, which may be too
//! late. (Events of mappings, as perf gives them, would leave the target alone, but name files by their path, which may be gone
//! by then; they are for processes that are no targets.)

use std::time::{Duration, Instant};

use consumer::{Output, Process};

use super::{Notice, Session};
use crate::options::Options;

/// How soon after its start a target's address map is read again: it loads its libraries now, and may end soon. Each time
/// twice as long, up to [`NOTE_LAST`].
pub(super) const NOTE_FIRST: Duration = Duration::from_micros(200);
const NOTE_LAST: Duration = Duration::from_secs(1);

/// How long a target is held at its exit beyond what reading its map may take.
const HOLD: Duration = Duration::from_secs(5);

/// How long reading may take that concerns one process or file.
pub(super) fn symtimeout(options: &Options) -> Duration {
    Duration::from_nanos(options.number("symtimeout")).max(Duration::from_millis(1))
}

impl<W: Output> Session<W> {
    /// Lets the targets run. Where their addresses are to be named, each is held at its exit.
    pub(super) fn release_targets(&mut self) {
        let names = self.consumer.names_user_addresses() && !self.options.flag("noresolve");
        self.holds = names && self.options.flag("exithold");
        // It is for an output that nobody reads, when the session does nothing.
        let limit = symtimeout(&self.options) * 2 + HOLD;
        if self.holds {
            for target in &self.targets {
                self.consumer.note(Process::now(target.pid() as u32));
            }
        }
        for target in &mut self.targets {
            if self.holds {
                target.release_until_exit(limit);
            } else {
                target.release();
            }
        }
    }

    /// Reads the address maps of targets that are held at their exit, and lets them go.
    pub(super) fn note_exits(&mut self) {
        for target in self.targets.iter_mut().filter(|t| t.is_exiting()) {
            self.consumer.note(Process::now(target.pid() as u32));
            target.resume_exit();
        }
    }

    /// Reads the targets' address maps while they can be read: a target that has ended is still to be symbolized.
    pub(super) fn note_targets(&mut self, now: Instant) {
        for target in &self.targets {
            self.consumer.note(Process::now(target.pid() as u32));
        }
        let wait = self.next.note.1;
        self.next.note = (now + wait, (wait * 2).min(NOTE_LAST));
    }

    /// Notes the ends of targets; true when there were some and all are gone.
    pub(super) fn targets_ended(&mut self) -> bool {
        let mut left = 0;
        let had = !self.targets.is_empty();
        let mut gone = Vec::new();
        for (at, target) in self.targets.iter_mut().enumerate() {
            let pid = target.pid();
            match target.exit_status() {
                None => left += 1,
                Some(how) => gone.push((at, pid, how)),
            }
        }
        for (_, pid, how) in &gone {
            self.notices.push(Notice::Target(match how {
                proc::ExitStatus::Exited(0) | proc::ExitStatus::Unknown => format!("pid {pid} has exited"),
                proc::ExitStatus::Exited(status) => format!("pid {pid} exited with status {status}"),
                proc::ExitStatus::Signaled(signal) => {
                    format!("pid {pid} terminated by {}", proc::signal_name(*signal))
                }
            }));
        }
        // Kept while others live would report them again.
        if left > 0 {
            for (at, ..) in gone.iter().rev() {
                self.targets.remove(*at);
            }
        }
        had && left == 0
    }
}
