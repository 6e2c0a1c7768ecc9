//! What is printed when the command ends by a fault of its own: the error, and the aggregations as
//! they were last merged.
//!
//! The release aborts at a panic, so this is the last that runs. The thread that panics may hold
//! any lock, and the standard error may be a pipe that nobody reads. So another thread prints,
//! without a lock that it would wait for, and the process ends a second later at the latest.

use std::io::{self, ErrorKind, Write};
use std::os::fd::RawFd;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dtrace::diagnostics::control;
use dtrace::{Merged, Output};

/// How long the end of the process waits for what is printed.
const LONGEST: Duration = Duration::from_secs(1);
/// Interval at which a lock is tried.
const AGAIN: Duration = Duration::from_millis(10);

/// The aggregations of the session that runs.
static MERGED: Mutex<Option<Merged>> = Mutex::new(None);

/// The standard error, without the standard library's lock of it.
#[derive(Clone, Copy)]
struct StandardError {
    descriptor: RawFd,
    /// How long a write waits for a reader.
    until: Instant,
}

impl StandardError {
    /// Waits until it takes bytes. An error when there is no more time.
    fn wait(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut polled = libc::pollfd { fd: self.descriptor, events: libc::POLLOUT, revents: 0 };
        // One more, so that less than a millisecond is waited for too.
        let left = left.as_millis() as libc::c_int + 1;
        // SAFETY: one valid entry. Whatever ends the wait, the write or the time says what is next.
        unsafe { libc::poll(&raw mut polled, 1, left) };
        Ok(())
    }
}

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            // SAFETY: reads so many bytes of a valid slice.
            match unsafe { libc::write(self.descriptor, bytes.as_ptr().cast(), bytes.len()) } {
                count @ 0.. => return Ok(count as usize),
                _ => match io::Error::last_os_error() {
                    // Whoever shares the pipe or the terminal has made it non-blocking, and it is
                    // full. This error must not reach whoever takes it for that of a lock and
                    // prints everything again.
                    e if e.kind() == ErrorKind::WouldBlock => self.wait()?,
                    e => return Err(e),
                },
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for StandardError {
    fn is_terminal(&self) -> bool {
        // Whatever it is, control characters are escaped.
        true
    }
}

/// A session runs, with these aggregations.
pub(crate) fn keep(merged: Merged) {
    *MERGED.lock().unwrap_or_else(PoisonError::into_inner) = Some(merged);
}

/// Installs the hook, for this process and not for those that it forks.
pub(crate) fn install() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let process = std::process::id();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::process::id() != process || BEGUN.swap(true, Ordering::SeqCst) {
            return default(info);
        }
        let message = message(info);
        let out = StandardError { descriptor: libc::STDERR_FILENO, until: Instant::now() + LONGEST };
        let (done, printed) = channel();
        let body = move || {
            print(&message, out);
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("panic".into()).spawn(body).is_ok() {
            let _ = printed.recv_timeout(LONGEST);
        }
    }));
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace = match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => format!("{backtrace}\n"),
        _ => String::new(),
    };
    format!("dtrace: internal error: {info}\n{backtrace}")
}

fn print(message: &str, mut out: StandardError) {
    dtrace::live::leave();
    let _ = out.write_all(control::lines(message).to_string().as_bytes());
    while Instant::now() < out.until {
        let Ok(merged) = MERGED.try_lock() else {
            std::thread::sleep(AGAIN);
            continue;
        };
        let Some(merged) = merged.as_ref() else { return };
        match merged.print(Box::new(out)) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(AGAIN),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;

    /// A pipe whose writer does not block.
    fn pipe() -> (io::PipeReader, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        // SAFETY: plain system calls on a descriptor that is open.
        unsafe {
            let flags = libc::fcntl(writer.as_raw_fd(), libc::F_GETFL);
            assert_eq!(libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
        }
        (reader, writer)
    }

    #[test]
    fn a_full_pipe_that_does_not_block_is_waited_for_and_gets_everything_once() {
        let (mut reader, writer) = pipe();
        let text: Vec<u8> = (0..1_000_000u32).map(|n| b'a' + (n % 23) as u8).collect();
        let reading = std::thread::spawn(move || {
            let mut found = Vec::new();
            reader.read_to_end(&mut found).map(|_| found)
        });
        let until = Instant::now() + Duration::from_secs(60);
        let mut out = StandardError { descriptor: writer.as_raw_fd(), until };
        out.write_all(&text).unwrap();
        drop(writer);
        assert!(reading.join().unwrap().unwrap() == text);
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_waited_for_until_the_deadline() {
        let (_reader, writer) = pipe();
        let begun = Instant::now();
        let limit = Duration::from_millis(50);
        let mut out = StandardError { descriptor: writer.as_raw_fd(), until: begun + limit };
        assert_eq!(out.write_all(&vec![0; 1 << 20]).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() >= limit);
    }
}
