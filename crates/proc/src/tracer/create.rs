//! Creating a target: from its fork to its exec, where it is held, with the memory that the session
//! asks for.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use super::{STOPS, Thread};
use crate::exec::{Exec, check, child, pipe};
use crate::grab::{ptrace, seize};
use crate::inject::{self, Refused, wait_for};
use crate::phase::{Memory, TargetState, lock, signal_name, taken};

/// How long it is waited for the exec of a created process: its file may be on a server that does
/// not answer.
const EXECUTES: Duration = Duration::from_secs(60);

/// There is no child to wait for: somebody else has.
fn of_wait(e: io::Error) -> io::Error {
    if e.raw_os_error() == Some(libc::ECHILD) { io::Error::other(taken()) } else { e }
}

impl Thread {
    pub(super) fn create(&mut self, exec: &Exec) -> io::Result<(i32, Arc<TargetState>)> {
        let mut argv: Vec<*const libc::c_char> = exec.words.iter().map(|w| w.as_ptr()).collect();
        argv.push(std::ptr::null());
        let mut envp: Vec<*const libc::c_char> = exec.environment.iter().map(|v| v.as_ptr()).collect();
        envp.push(std::ptr::null());
        let (start_read, start_write) = pipe()?;
        let (report_read, report_write) = pipe()?;
        // SAFETY: the child runs only `child`, which allocates nothing and never returns.
        let pid = check(i64::from(unsafe { libc::fork() }))? as libc::pid_t;
        if pid == 0 {
            // SAFETY: closes the child's copy of the write end, so that the tracer's death is an
            // end of file.
            unsafe { libc::close(start_write.as_raw_fd()) };
            child(start_read.as_raw_fd(), report_write.as_raw_fd(), &argv, &envp, exec);
        }
        drop(report_write);
        // Until it is released, the process dies with the tracer, however the tracer ends. A
        // release clears both options.
        let seized = seize(pid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL);
        let shared = seized.and_then(|()| self.insert(pid, true, None));
        let shared = shared.inspect_err(|_| {
            // SAFETY: plain system calls on a child that was not reaped.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            let _ = wait_for(pid, STOPS);
        })?;
        // SAFETY: one byte from a valid buffer.
        check(unsafe { libc::write(start_write.as_raw_fd(), [1u8].as_ptr().cast(), 1) } as i64)?;
        loop {
            let status = match wait_for(pid, EXECUTES) {
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    return Err(self.kill(pid, "it did not begin to run in a minute"));
                }
                done => done.inspect_err(|_| _ = self.tracees.remove(&pid)).map_err(of_wait)?,
            };
            if libc::WIFSTOPPED(status) && status >> 8 == (libc::SIGTRAP | (libc::PTRACE_EVENT_EXEC << 8)) {
                match exec.memory.map(|size| (size, inject::map(pid, size))) {
                    None => return Ok((pid, shared)),
                    Some((size, Ok(address))) => {
                        *lock(&shared.memory) = Some(Memory { address, size });
                        return Ok((pid, shared));
                    }
                    Some((_, Err(Refused::Because(why)))) => {
                        shared.set_lost(why);
                        return Ok((pid, shared));
                    }
                    Some((_, Err(Refused::Stuck))) => {
                        return Err(self.kill(pid, "its mmap for the last records does not return"));
                    }
                    Some((_, Err(Refused::Ended))) => {
                        self.tracees.remove(&pid);
                        return Err(io::Error::other("it ended in its mmap for the last records"));
                    }
                }
            }
            if libc::WIFSTOPPED(status) {
                // A signal before the exec is delivered.
                ptrace(libc::PTRACE_CONT, pid, (status >> 8) & 0xff);
                continue;
            }
            self.tracees.remove(&pid);
            let mut errno = 0i32;
            // SAFETY: four bytes into a valid int.
            let got = unsafe { libc::read(report_read.as_raw_fd(), (&raw mut errno).cast(), 4) };
            return Err(match got {
                4 => io::Error::from_raw_os_error(errno),
                // The kernel has given up the old program when it finds that the new one cannot be
                // loaded.
                _ if libc::WIFSIGNALED(status) => io::Error::other(format!(
                    "the kernel ended it by {} before it ran: the file may be damaged",
                    signal_name(libc::WTERMSIG(status))
                )),
                _ => io::Error::other("it ended before it ran"),
            });
        }
    }

    /// Ends a process that was created and has not run.
    fn kill(&mut self, pid: i32, why: &str) -> io::Error {
        self.tracees.remove(&pid);
        // SAFETY: a plain system call on a child that was not reaped.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let _ = wait_for(pid, STOPS);
        io::Error::other(why)
    }
}
