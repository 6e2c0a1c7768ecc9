//! The targets of a session (`-c`, `-p`): when they run, and when their address maps are read.
//!
//! A program can live for less than a millisecond, and its addresses are symbolized after its end.
//! So if a session shows addresses of processes, a target stays seized while it runs, and stops at
//! its exit (`PTRACE_EVENT_EXIT`), when its mappings still exist. The session then reads the
//! target's map and resumes the target. While the target is seized, no debugger can attach to it,
//! and the tracer passes on the signals to its first thread. `-x exithold=no` avoids that: the
//! target is then known as all other processes are, by the watcher, which sees its code but
//! neither its data nor the names of its JIT code ([`super::watch`]).

use std::time::Duration;

use events::Sink;

use super::{Notice, Session};
use crate::options::Options;

/// How long a target is held at its exit, in addition to the time limit for reading its map.
const HOLD: Duration = Duration::from_secs(5);

/// The time limit for reading about one process or file.
pub(super) fn symtimeout(options: &Options) -> Duration {
    Duration::from_nanos(options.number("symtimeout")).max(Duration::from_millis(1))
}

impl<S: Sink> Session<S> {
    /// Releases the targets. If their addresses are symbolized, each is held at its exit.
    pub(super) fn release_targets(&mut self) {
        let names = self.consumer.names_user_addresses() && !self.options.flag("noresolve");
        self.hold_exits = names && self.options.flag("exithold");
        // The limit matters when the session is blocked, for example by an output that is not read.
        let limit = symtimeout(&self.options) * 2 + HOLD;
        if self.hold_exits {
            for target in &self.targets {
                self.consumer.note(target.pid() as u32);
            }
        }
        if let Some(watch) = &self.watch {
            watch.read(self.targets.iter().map(|target| target.pid() as u32));
        }
        for target in &mut self.targets {
            if self.hold_exits {
                target.release_until_exit(limit);
            } else {
                target.release();
            }
        }
    }

    /// Reads the address maps of targets that are held at their exit, and resumes them.
    pub(super) fn read_maps_at_exit(&mut self) {
        for target in self.targets.iter_mut().filter(|t| t.is_exiting()) {
            self.consumer.note(target.pid() as u32);
            target.resume_exit();
        }
    }

    /// Reports the targets that have ended. Returns true if there were targets and all have ended.
    pub(super) fn targets_ended(&mut self) -> bool {
        let mut left = 0;
        let had = !self.targets.is_empty();
        let mut ended = Vec::new();
        for (at, target) in self.targets.iter_mut().enumerate() {
            let pid = target.pid();
            match target.exit_status() {
                None => left += 1,
                Some(status) => ended.push((at, pid, status)),
            }
        }
        for (_, pid, status) in &ended {
            let text = match status {
                proc::ExitStatus::Exited(0) | proc::ExitStatus::Unknown => format!("pid {pid} has exited"),
                proc::ExitStatus::Exited(status) => format!("pid {pid} exited with status {status}"),
                proc::ExitStatus::Signaled(signal) => {
                    format!("pid {pid} terminated by {}", proc::signal_name(*signal))
                }
            };
            self.report(&Notice::Target(text));
        }
        // A target that has ended is removed, or it would be reported again.
        if left > 0 {
            for (at, ..) in ended.iter().rev() {
                self.targets.remove(*at);
            }
        }
        had && left == 0
    }
}
