//! `-x postmortem=SIZE`: the last events of a session are in the core file of a target.
//!
//! ```text
//!  start            each target has SIZE bytes of private memory (one mmap, before its first instruction); a head says that nothing is written
//!  each event       is encoded into a log of the newest SIZE bytes, beside the sink
//!  fatal signal     the target is held before the kernel acts on it: rings are read, a snapshot is taken, log and
//!                   totals are written to the memory, the signal is delivered, and the kernel dumps the process
//! ```
//!
//! The memory is not touched until then, so it costs the target one page. What is written is in
//! [`::postmortem`].

use events::Sink;
use postmortem::{Head, Log, blank};

use super::Notice;
use super::state::Running;
use crate::error::Error;
use crate::options::{Options, Policy};

/// Rejects the option where no memory can be had.
pub(super) fn check(options: &Options, targets: &[proc::Target]) -> Result<(), Error> {
    if options.postmortem.is_none() {
        return Ok(());
    }
    let refused = |why: &str| Err(Error::Setting(format!("failed to set option 'postmortem': {why}")));
    if targets.is_empty() {
        return refused("it needs a process that is held when a signal ends it: -c");
    }
    if let Some(target) = targets.iter().find(|target| !target.is_created()) {
        let pid = target.pid();
        return refused(&format!(
            "pid {pid} runs already, and no memory is made in a process that dtrace did not start: use -c"
        ));
    }
    if options.bufpolicy != Policy::Switch {
        return refused("records must be read while tracing, which bufpolicy=fill and ring do not");
    }
    Ok(())
}

fn text(path: &str) -> String {
    std::fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
}

/// Why a core file of a process would not have the memory, or not be made.
fn obstacle(pid: i32) -> Option<String> {
    /// Bit of `coredump_filter`: private memory without a file.
    const PRIVATE: u64 = 1;
    let filter = u64::from_str_radix(text(&format!("/proc/{pid}/coredump_filter")).trim(), 16);
    if filter.is_ok_and(|filter| filter & PRIVATE == 0) {
        return Some(
            "its coredump_filter leaves private memory out of core files, and the records with it".into(),
        );
    }
    let pattern = text("/proc/sys/kernel/core_pattern");
    let limits = text(&format!("/proc/{pid}/limits"));
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
    let limit = limit.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match (pattern.trim(), limit) {
        ("", _) => Some("no core files are made here: /proc/sys/kernel/core_pattern is empty".into()),
        (pattern, Some(0)) if !pattern.starts_with('|') => {
            Some("it makes no core file: its limit is 0 (ulimit -c unlimited)".into())
        }
        _ => None,
    }
}

impl<S: Sink> Running<S> {
    /// Prepares the memory that the targets have, before they are released. True if they are to be
    /// held at signals.
    pub(super) fn begin_postmortem(&mut self) -> Result<bool, Error> {
        let Some(size) = self.options.postmortem.map(|size| size.0) else { return Ok(false) };
        let mut notices = Vec::new();
        for target in &mut self.targets {
            let pid = target.pid();
            let done = match target.memory() {
                Some(there) if there >= size => {
                    target.write_memory(&blank(size)).map_err(|e| diagnostics::system_text(&e))
                }
                Some(there) => Err(format!("it was started with {there} bytes of memory for the records")),
                None => Err(target.lost_memory().unwrap_or_else(|| {
                    "its memory is made when it is started: set the option on the command line".into()
                })),
            };
            done.map_err(|why| {
                Error::Setting(format!("failed to set option 'postmortem': pid {pid}: {why}"))
            })?;
            notices.extend(
                obstacle(pid).map(|why| Notice::Unavailable(format!("postmortem: pid {pid}: {why}"))),
            );
        }
        notices.iter().for_each(|notice| self.report(notice));
        Ok(true)
    }

    /// Writes the last events to targets that a signal is about to end, and delivers the signals.
    pub(super) fn serve_postmortem(&mut self) -> Result<(), Error> {
        if self.options.postmortem.is_none() {
            return Ok(());
        }
        for at in 0..self.targets.len() {
            let target = self.targets.get(at);
            if let Some((pid, why)) = target.and_then(|target| Some((target.pid(), target.lost_memory()?))) {
                let text =
                    format!("postmortem: pid {pid} has no memory for the last records any more: {why}");
                self.report(&Notice::Unavailable(text));
            }
            let target = self.targets.get(at);
            let Some((thread, signal)) = target.and_then(proc::Target::fatal_signal) else { continue };
            let done = self.write_postmortem(at, thread, signal);
            self.targets.get_mut(at).into_iter().for_each(proc::Target::resume_fatal);
            done?;
        }
        Ok(())
    }

    fn write_postmortem(&mut self, at: usize, thread: i32, signal: i32) -> Result<(), Error> {
        let Some(target) = self.targets.get(at) else { return Ok(()) };
        let (pid, name) = (target.pid(), proc::signal_name(signal));
        // Its addresses, while it has them.
        self.consumer.note(pid as u32);
        self.drain(true)?;
        self.consume_held(true)?;
        self.report_drops();
        // The faults of the last second, which the log would not have otherwise.
        self.consumer.report_counted();
        let recorded = self.consumer.sink_mut();
        recorded.totals = recorded.log.as_ref().map(Log::totals);
        let (consumer, mut source) = self.consumer_and_source();
        let delivered = consumer.deliver_aggregations(&mut source).map_err(Error::Output);
        let recorded = self.consumer.sink_mut();
        let totals = recorded.totals.take();
        let (Some(log), Some(totals)) = (&mut recorded.log, totals) else { return delivered };
        let whom = Head {
            pid: pid as u32,
            tid: thread as u32,
            signal: signal as u32,
            wall: bpf_sys::wall_ns(),
            ..Head::default()
        };
        let image = log.image(totals, whom);
        let written = self.targets.get(at).map_or(Ok(()), |target| target.write_memory(&image));
        let notice = match written {
            Ok(()) => Notice::Target(format!("pid {pid} gets {name}: the last records are in its memory")),
            Err(e) => Notice::Unavailable(format!(
                "postmortem: pid {pid}: failed to write the records to its memory: {}",
                diagnostics::system_text(&e)
            )),
        };
        self.report(&notice);
        delivered
    }
}
