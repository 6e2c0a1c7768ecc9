//! ^C during what takes long: Python notes a signal, and whoever runs asks for it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How often Python is asked. That needs the GIL.
const EVERY: Duration = Duration::from_millis(50);

/// What a handler of a signal has raised while the library worked (`KeyboardInterrupt`).
pub(crate) struct Signals(Mutex<(Instant, Option<PyErr>)>);

impl Signals {
    pub(crate) fn new() -> Signals {
        Signals(Mutex::new((Instant::now(), None)))
    }

    /// Whether a handler has raised something. The library calls this from threads without the GIL.
    pub(crate) fn pending(&self) -> bool {
        {
            let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if now.1.is_some() || now.0.elapsed() < EVERY {
                return now.1.is_some();
            }
            now.0 = Instant::now();
        }
        // The handlers run here, and may call this package.
        let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.1 = now.1.take().or(raised);
        now.1.is_some()
    }

    /// Raises what a handler has raised meanwhile, or raises now.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        // Not within the match: the lock would be held while handlers run.
        let raised = self.0.lock().unwrap_or_else(PoisonError::into_inner).1.take();
        match raised {
            Some(raised) => Err(raised),
            None => py.check_signals(),
        }
    }
}
