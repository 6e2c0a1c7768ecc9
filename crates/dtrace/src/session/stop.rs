//! Stopping a session from another thread or a signal handler.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bpf_sys::{Mmap, OfProcess};
use plane::control::{Activity, Control};

/// A handle that stops the probes of a session at once, also from a signal handler. It writes one
/// word of memory that every program reads first. The session then ends as after `exit()`:
/// [`crate::Session::work`] returns `Done`.
#[derive(Debug)]
pub struct Stopper(ControlPage);

/// The control page of a session.
#[derive(Debug)]
enum ControlPage {
    Kernel(OfProcess<Mmap>),
    Interpreter(Arc<[AtomicU64]>),
}

impl Stopper {
    pub(crate) fn of_kernel(control: Mmap) -> Stopper {
        Stopper(ControlPage::Kernel(OfProcess::new(control)))
    }

    pub(crate) fn of_memory(control: Arc<[AtomicU64]>) -> Stopper {
        Stopper(ControlPage::Interpreter(control))
    }

    /// Stops all probes but END. Has no effect on a session that is over.
    pub fn stop(&self) {
        let words = match &self.0 {
            // A forked child does not have the memory.
            ControlPage::Kernel(memory) if !memory.is_here() => return,
            ControlPage::Kernel(memory) => memory.words(),
            ControlPage::Interpreter(words) => words,
        };
        if let Some(control) = Control::new(words) {
            control.become_state(Activity::Draining);
        }
    }
}
