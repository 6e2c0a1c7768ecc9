//! What a session does with its [watcher](super::watch).

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bpf_sys::SysError;
use events::Sink;
use proc::watcher::SharedWatcher;

use super::Notice;
use super::state::Running;
use super::watch::{SOON, Watch, cannot_read, cannot_watch};

impl<S: Sink> Running<S> {
    /// Opens a watcher, if there is none and the consumer has a use for it. The first stacks of a
    /// session may come with a program that is enabled later: the tables of its targets are made
    /// then.
    pub(super) fn watch_processes(&mut self) {
        let Some(watch) = &mut self.watch else {
            self.watch = Watch::begin(&mut self.consumer, &self.cpus, (&*self.engine, false));
            return;
        };
        if watch.serve(&mut self.consumer, &*self.engine) {
            watch.read(self.targets.iter().map(|target| target.pid() as u32));
            self.prepare_stacks();
        }
    }

    /// The watcher for probes of processes.
    pub(super) fn watch_promptly(&mut self) -> Result<SharedWatcher, SysError> {
        let watch = match self.watch.take() {
            Some(watch) => watch,
            None => Watch::open(&self.cpus, true)?,
        };
        let watch = self.watch.insert(watch);
        if !watch.prompt {
            watch.interval = SOON;
        }
        Ok(watch.shared())
    }

    /// Takes the records of the watcher.
    pub(super) fn follow_processes(&mut self, now: Instant) {
        let Some(watch) = &mut self.watch else { return };
        // The first state is read in parts, so that the session's other work goes on.
        let has_all = self.consumer.watch_processes();
        let interval = if self.consumer.is_looking() { watch.interval.min(SOON) } else { watch.interval };
        (watch.looked, watch.next) = (now, now + if has_all { interval } else { Duration::ZERO });
    }

    /// Reports lost records, and follows CPUs that came online.
    pub(super) fn check_watcher(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let mut watcher = watch.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let followed = watcher.follow_cpus(&self.program.system.online_cpus());
        let lost = watcher.take_lost();
        let blocked = watcher.take_blocked().first().copied().filter(|_| !watch.told_blocked);
        drop(watcher);
        watch.told_blocked |= blocked.is_some();
        if let Err(why) = followed {
            // The CPU may be offline again. Otherwise its processes are read from /proc when
            // needed.
            self.report(&Notice::Detail(cannot_watch(&why)));
        }
        if let Some(pid) = blocked {
            self.report(&Notice::Unavailable(cannot_read(pid)));
        }
        if lost > 0 {
            self.report(&Notice::Unavailable(format!(
                "{lost} events of processes were lost: addresses of processes that ended meanwhile may be shown as numbers"
            )));
        }
    }
}
