//! What is printed when the command ends by a fault of its own: the error, and the aggregations as they were last merged.
//!
//! The release aborts at a panic, so this is the last that runs. The thread that panics may hold any lock, and the standard
//! error may be a pipe that nobody reads. So another thread prints, without a lock that it would wait for, and the process
//! ends a second later at the latest.

use std::io::{self, ErrorKind, Write};
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
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: reads so many bytes of a valid slice.
        match unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) } {
            count @ 0.. => Ok(count as usize),
            _ => Err(io::Error::last_os_error()),
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
        let (done, printed) = channel();
        let body = move || {
            print(&message);
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

fn print(message: &str) {
    let _ = StandardError.write_all(control::lines(message).to_string().as_bytes());
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        let Ok(merged) = MERGED.try_lock() else {
            std::thread::sleep(AGAIN);
            continue;
        };
        let Some(merged) = merged.as_ref() else { return };
        match merged.print(StandardError) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(AGAIN),
            _ => return,
        }
    }
}
