//! Signals that end a target with a core file: each is held until the session has written to the
//! target's memory.
//!
//! Any thread can get such a signal, so all of them stay traced, and new ones are from their first
//! instruction. The kernel stops a thread for each signal before it acts on it. One that has a
//! handler, is ignored, or makes no core file is passed on at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::limits::passes;
use super::{Command, Queue, Thread, Tracee, request};
use crate::grab::{Grab, ptrace};
use crate::phase::{Phase, lock};
use crate::refusal::status_field;
use crate::start::is_stop;

/// The signals that make a core file by default.
const CORE: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

/// True for a signal that will end the process with a core file.
fn is_fatal(thread: i32, signal: i32) -> bool {
    let has = |name| {
        let set = status_field(thread, name, 0).and_then(|text| u64::from_str_radix(&text, 16).ok());
        set.is_none_or(|set| set & 1 << (signal - 1) != 0)
    };
    CORE.contains(&signal) && !has("SigCgt") && !has("SigIgn")
}

impl Thread {
    /// A target has executed another program: its memory is gone, and so is that of the session in
    /// it. Nothing makes it anew: what runs now may be a program that filters its system calls, or
    /// one for which the tracer must not decide.
    pub(super) fn lose_memory(&mut self, pid: i32) {
        self.threads.retain(|_, process| *process != pid);
        let Some(tracee) = self.tracees.get(&pid) else { return };
        if lock(&tracee.shared.memory).take().is_some() {
            tracee.shared.set_lost("it has executed another program".into());
        }
    }

    /// Takes the stop of a thread, or its end. False if that is not the matter of this module.
    pub(super) fn thread_event(&mut self, id: i32, status: i32) -> bool {
        let (event, signal) = (status >> 16, (status >> 8) & 0xff);
        let holds = |thread: &Thread, pid: &i32| {
            thread.tracees.get(pid).is_some_and(|t| t.grab.is_none() && t.hold.is_some_and(|hold| hold.fatal))
        };
        let known = self.threads.get(&id).copied().or(self.tracees.contains_key(&id).then_some(id));
        let pid = match known {
            Some(pid) => pid,
            // The first stop of a new thread.
            None if event == libc::PTRACE_EVENT_STOP && libc::WIFSTOPPED(status) => {
                let process = status_field(id, "Tgid", 0).and_then(|text| text.parse().ok()).unwrap_or(id);
                if process == id || !holds(self, &process) {
                    return false;
                }
                self.threads.insert(id, process);
                ptrace(libc::PTRACE_SETOPTIONS, id, libc::PTRACE_O_TRACECLONE);
                process
            }
            None => return false,
        };
        // Threads stay traced when the first one has exited, whatever is asked of that.
        let is_other = id != pid && self.tracees.get(&pid).is_some_and(|tracee| tracee.grab.is_none());
        let held = holds(self, &pid);
        if !held && !is_other {
            return false;
        }
        if !libc::WIFSTOPPED(status) {
            if id == pid {
                return false;
            }
            self.threads.remove(&id);
            return true;
        }
        let has_memory = |tracee: &&Tracee| lock(&tracee.shared.memory).is_some();
        if held
            && event == 0
            && is_fatal(id, signal)
            && let Some(tracee) = self.tracees.get(&pid).filter(has_memory)
        {
            let limit = tracee.hold.map_or(Duration::ZERO, |hold| hold.limit);
            let shared = tracee.shared.clone();
            shared.add_fatal(id, signal);
            let (queue, target) = (Arc::downgrade(&self.queue), Arc::downgrade(&shared));
            let begun = Instant::now();
            let body = move || {
                let left = |_: &Queue| limit.saturating_sub(begun.elapsed());
                if passes((&queue, &target), |target| target.holds(id), left)
                    && let Some(queue) = queue.upgrade()
                {
                    request(&queue, |reply| Command::ResumeFatal(pid, reply));
                }
            };
            if threads::spawn("hold", threads::SMALL_STACK, body).is_err() {
                self.resume_fatal(pid);
            }
            return true;
        }
        if id == pid {
            return false;
        }
        match event {
            libc::PTRACE_EVENT_STOP if is_stop(signal) => ptrace(libc::PTRACE_LISTEN, id, 0),
            0 => ptrace(libc::PTRACE_CONT, id, signal),
            _ => ptrace(libc::PTRACE_CONT, id, 0),
        }
        true
    }

    /// Lets the first thread of a target exit, while other threads run on that are traced. False if
    /// there are none.
    pub(super) fn resume_first(&mut self, pid: i32) -> bool {
        let Some(tracee) = self.tracees.get(&pid) else { return false };
        let has_others = self.threads.values().any(|process| *process == pid);
        if has_others {
            tracee.shared.clear();
            tracee.shared.set(Phase::Running);
            ptrace(libc::PTRACE_CONT, pid, 0);
        }
        has_others
    }

    /// Lets the threads of a process that was grabbed run, other than the first one. They stay
    /// traced.
    pub(super) fn keep_threads(&self, grab: &Grab) {
        for thread in grab.others() {
            lock(&self.queue.seized).remove(&thread);
            ptrace(libc::PTRACE_SETOPTIONS, thread, libc::PTRACE_O_TRACECLONE);
            match grab.is_in_group_stop(thread) {
                true => ptrace(libc::PTRACE_LISTEN, thread, 0),
                false => ptrace(libc::PTRACE_CONT, thread, 0),
            }
        }
    }

    /// Delivers the signals for which threads of a target are held.
    pub(super) fn resume_fatal(&mut self, pid: i32) {
        let Some(shared) = self.tracees.get(&pid).map(|tracee| tracee.shared.clone()) else { return };
        for (thread, signal) in shared.take_fatal() {
            ptrace(libc::PTRACE_CONT, thread, signal);
        }
    }
}
