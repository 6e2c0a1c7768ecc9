//! Stopping all threads of a process that runs.
//!
//! ```text
//!  begin ──► look: seizes and interrupts each thread that is new ◄───────┐
//!                                                                        │ until a look finds all threads stopped,
//!            event: a thread has stopped, exited, or executes a program ─┘ and no new one
//! ```
//!
//! While threads are seized, others start, end, and execute programs, which ends all other threads.
//! When all threads that were found have stopped, only those that were not found can have started
//! more. So a look that finds none says that there are none.
//!
//! - A thread that was about to take a signal stops for that first. The signal is delivered, and
//!   the thread stops again before it executes an instruction.
//! - A thread can wait in the kernel, uninterruptibly, for any time. It stops when it is back.
//! - The first thread may have exited before the others: then it cannot be seized, and they are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::phase::lock;
use crate::refusal::status_field;
use crate::start::is_stop;

/// How often it is tried to seize the first thread while another one takes its place.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_micros(500);

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Interrupted, and not yet stopped.
    Coming,
    /// In an event stop.
    Stopped,
    /// In an event stop because all of its process is stopped by a signal.
    GroupStopped,
}

/// The threads that are seized, without first ones, for whoever reaps them.
pub(crate) type Seized = Arc<Mutex<BTreeSet<i32>>>;

/// Reaps the threads that have ended. Called by another thread while the tracing one seizes: a
/// thread that executes a program waits until all others are reaped, and who seizes one waits for
/// that thread.
pub(crate) fn reap(seized: &Seized) {
    let list: Vec<i32> = lock(seized).iter().copied().collect();
    for thread in list {
        let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
        // SAFETY: all-zero is a valid siginfo, which the kernel fills.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            // Stops are seen too, and are to be seen by the tracing thread.
            libc::waitid(libc::P_PID, thread as libc::id_t, &mut info, flags | libc::WNOWAIT);
            if matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
                libc::waitid(libc::P_PID, thread as libc::id_t, &mut info, flags);
            }
        }
    }
}

/// The threads of a process that is being stopped, or is stopped.
#[derive(Debug)]
pub(crate) struct Grab {
    pid: i32,
    /// The first thread is seized. (It may have exited.)
    first: bool,
    seized: Seized,
    threads: BTreeMap<i32, State>,
}

impl Grab {
    /// Begins to stop a process. The error is that of its first thread.
    pub(crate) fn begin(pid: i32, seized: Seized) -> io::Result<Grab> {
        let mut grab = Grab { pid, first: false, seized, threads: BTreeMap::new() };
        for _ in 0..TRIES {
            let Err(error) = grab.add(pid) else { return Ok(grab) };
            let (others, _) = living(pid);
            if others.contains(&pid) && tracer(pid) != Some(0) || others.is_empty() {
                return Err(error);
            }
            if others.into_iter().any(|thread| thread != pid && grab.add(thread).is_ok()) {
                return Ok(grab);
            }
            // A thread that executes a program takes the place of the first one.
            std::thread::sleep(PAUSE);
        }
        grab.add(pid).map(|()| grab)
    }

    fn add(&mut self, thread: i32) -> io::Result<()> {
        // No stop at the exit: a thread that executes a program would wait for it, and we for that
        // thread.
        seize(thread, libc::PTRACE_O_TRACEEXEC)?;
        match thread == self.pid {
            true => self.first = true,
            false => _ = lock(&self.seized).insert(thread),
        }
        ptrace(libc::PTRACE_INTERRUPT, thread, 0);
        self.threads.insert(thread, State::Coming);
        Ok(())
    }

    /// A thread has stopped or ended. True when all that are known have stopped.
    pub(crate) fn event(&mut self, thread: i32, status: i32) -> bool {
        match libc::WIFSTOPPED(status) {
            true => self.stopped(thread, status),
            false => _ = self.threads.remove(&thread),
        }
        self.all_stopped()
    }

    fn all_stopped(&self) -> bool {
        self.threads.values().all(|state| *state != State::Coming)
    }

    fn stopped(&mut self, thread: i32, status: i32) {
        let (event, signal) = (status >> 16, (status >> 8) & 0xff);
        match event {
            libc::PTRACE_EVENT_STOP => {
                let state = if is_stop(signal) { State::GroupStopped } else { State::Stopped };
                self.threads.insert(thread, state);
            }
            // It has another id now, and the others have ended.
            libc::PTRACE_EVENT_EXEC => {
                self.threads = [(thread, State::Coming)].into();
                self.first = true;
                ptrace(libc::PTRACE_INTERRUPT, thread, 0);
                ptrace(libc::PTRACE_CONT, thread, 0);
            }
            0 => ptrace(libc::PTRACE_CONT, thread, signal),
            _ => ptrace(libc::PTRACE_CONT, thread, 0),
        }
    }

    /// Seizes threads that are new. True when all threads have stopped.
    pub(crate) fn look(&mut self) -> bool {
        for _ in 0..TRIES {
            let (now, are_all) = living(self.pid);
            // Not all ends of threads are events: see ptrace(2), "execve(2) under ptrace".
            let pid = self.pid;
            self.threads.retain(|thread, state| {
                let is_ours = match state {
                    State::Coming => try_interrupt(*thread).is_ok(),
                    State::Stopped | State::GroupStopped => is_stopped(*thread),
                };
                self.first &= is_ours || *thread != pid || !lives(pid, pid);
                is_ours && (*thread != pid || lives(pid, pid))
            });
            let new: Vec<i32> = now.into_iter().filter(|thread| !self.threads.contains_key(thread)).collect();
            // One that cannot be seized is about to end, or to be replaced.
            let mut all_seized = true;
            for thread in new {
                all_seized &= self.add(thread).is_ok();
            }
            if !self.all_stopped() {
                return false;
            }
            if all_seized && are_all {
                return true;
            }
        }
        false
    }

    /// The threads other than the first one.
    pub(crate) fn others(&self) -> impl Iterator<Item = i32> + '_ {
        self.threads.keys().copied().filter(|thread| *thread != self.pid)
    }

    /// True where the first thread is seized.
    pub(crate) fn has_first(&self) -> bool {
        self.first
    }

    /// True for a thread that has stopped.
    pub(crate) fn has_stopped(&self, thread: i32) -> bool {
        self.threads.get(&thread).is_some_and(|state| *state != State::Coming)
    }

    /// True for a thread that was stopped before, with all of its process.
    pub(crate) fn is_in_group_stop(&self, thread: i32) -> bool {
        self.threads.get(&thread) == Some(&State::GroupStopped)
    }
}

fn lives(pid: i32, thread: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/task/{thread}/stat")).unwrap_or_default();
    let end = stat.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 2);
    stat.get(end).is_some_and(|state| !b"ZX".contains(state))
}

/// The threads of a process that have not exited, and whether these are all: the kernel's list ends
/// at a thread that ends while it is read.
fn living(pid: i32) -> (Vec<i32>, bool) {
    let Ok(list) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return (Vec::new(), true) };
    let ids: Vec<i32> =
        list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()).collect();
    let count = status_field(pid, "Threads", 0).and_then(|text| text.parse::<usize>().ok());
    let are_all = count.is_none_or(|count| count == ids.len());
    let (living, ended): (Vec<i32>, Vec<i32>) = ids.into_iter().partition(|thread| lives(pid, *thread));
    // One that has ended is counted in the list, and perhaps another one in the number.
    (living, are_all && ended.iter().all(|thread| *thread == pid))
}

/// The tracer of a process; 0 if it has none.
fn tracer(pid: i32) -> Option<i32> {
    status_field(pid, "TracerPid", 0)?.parse().ok()
}

fn try_interrupt(thread: i32) -> io::Result<()> {
    // SAFETY: plain system call without memory.
    match unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0usize, 0usize) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True for a thread that is stopped and ours: another one can have taken the place of a first one.
fn is_stopped(thread: i32) -> bool {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes to the valid word.
    unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, thread, 0usize, &raw mut message) == 0 }
}

/// What C libraries take a request of `ptrace` as: they differ.
#[cfg(target_env = "gnu")]
pub(crate) type Request = libc::c_uint;
#[cfg(not(target_env = "gnu"))]
pub(crate) type Request = libc::c_int;

/// A ptrace request whose data is a number. A process that died meanwhile is no error: the next
/// wait reports its end.
pub(crate) fn ptrace(request: Request, pid: i32, data: i32) {
    // SAFETY: plain system call on a seized process; no memory is passed.
    unsafe { libc::ptrace(request, pid, 0usize, data as usize) };
}

pub(crate) fn seize(pid: libc::pid_t, options: i32) -> io::Result<()> {
    // SAFETY: plain system call; the data argument is a number.
    match unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0usize, options as usize) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
