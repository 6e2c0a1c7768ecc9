//! Files of the last moments: what a capture with `bufpolicy=ring` writes, and when.
//!
//! The rings stay in the kernel while the session runs. Their records come to the sink behind a
//! [window](events::Sink::window), for a snapshot or at the end, and each time to a file of their
//! own. What was lost is said in the files of the moments in which that was noticed.

use std::collections::VecDeque;
use std::io::{self, Write};

use capture::{Head, Snapshot, Writer};
use providers::Role;

/// The most losses that are kept for the next files.
const LOSSES: usize = 4096;

/// See the [module](self).
pub(super) struct Flight<W: Write> {
    head: Head,
    machine: Vec<u8>,
    /// What the end writes to.
    last: Option<W>,
    /// What the next snapshot writes to.
    next: Option<W>,
    /// The window that is being written.
    pub(super) from: u64,
    /// What was lost: when that was noticed, what, and how much.
    losses: VecDeque<(u64, &'static str, u64)>,
    /// The first reason in the window that is later than `reasons_from`, with its time.
    reason: Option<(u64, Vec<u8>)>,
    reasons_from: u64,
    /// The time of the last record in the window.
    until: u64,
}

/// Records that were being written when a snapshot was taken.
const UNREAD: &str = "records that were being written when it was taken";

impl<W: Write> Flight<W> {
    /// `out` is for the end.
    pub(super) fn new(head: Head, machine: Vec<u8>, out: W) -> Flight<W> {
        let (last, next, losses) = (Some(out), None, VecDeque::new());
        Flight { head, machine, last, next, from: 0, losses, reason: None, reasons_from: 0, until: 0 }
    }

    /// The next window goes there.
    pub(super) fn begin(&mut self, out: W) {
        self.next = Some(out);
    }

    /// A window begins, for the snapshot that has begun or for the end. `None`: there was one for
    /// the end.
    pub(super) fn window(&mut self, from: u64, unread: u64) -> io::Result<Option<Writer<W>>> {
        let Some(out) = self.next.take().or_else(|| self.last.take()) else { return Ok(None) };
        let passed = bpf_sys::monotonic_ns().saturating_sub(from);
        let clock = (from, bpf_sys::wall_ns().saturating_sub(passed));
        let head = Head { clock, ..self.head.clone() };
        (self.from, self.until, self.reason) = (from, from, None);
        let mut writer = Writer::new(out, &head, &self.machine)?;
        let since = |(when, ..): &&(u64, &str, u64)| *when >= from;
        self.losses.iter().filter(since).for_each(|(_, what, count)| writer.loss(what, *count));
        writer.loss(UNREAD, unread);
        Ok(Some(writer))
    }

    /// True of a record that is in the window.
    pub(super) fn has(&mut self, time: u64, role: Role) -> bool {
        // The other probes have stopped long before END fires.
        if role != Role::End {
            self.until = self.until.max(time);
        }
        time >= self.from
    }

    /// Something was lost, as was noticed at a time.
    pub(super) fn lose(&mut self, time: Option<u64>, what: &'static str, count: u64) {
        if self.losses.len() >= LOSSES {
            self.losses.pop_front();
        }
        self.losses.push_back((time.unwrap_or_else(bpf_sys::monotonic_ns), what, count));
    }

    /// `snap()` was called.
    pub(super) fn snap(&mut self, time: u64, reason: Vec<u8>) {
        if time > self.reasons_from && self.reason.is_none() {
            self.reason = Some((time, reason));
        }
    }

    /// The calls of `snap()` until now ask for nothing more.
    pub(super) fn pass(&mut self) {
        self.reasons_from = bpf_sys::monotonic_ns();
    }

    /// What is to be said of the window. `reason`: why it was written; if that is not known, what
    /// `snap()` was called with.
    pub(super) fn end(&mut self, reason: Option<&str>) -> Snapshot {
        // Also if it never began.
        self.next = None;
        if reason.is_none() {
            self.reasons_from = self.reasons_from.max(self.until);
        }
        let called = self.reason.take().map(|(_, reason)| reason);
        let reason = reason.map(|reason| reason.as_bytes().to_vec()).or(called);
        let passed = bpf_sys::monotonic_ns().saturating_sub(self.until);
        Snapshot {
            from: self.from,
            until: self.until,
            wall: bpf_sys::wall_ns().saturating_sub(passed),
            reason: reason.unwrap_or_else(|| b"snap".to_vec()),
        }
    }
}
