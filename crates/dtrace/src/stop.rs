//! Stopping a session from another thread or a signal handler.

use bpf::sys::Mmap;
use plane::control::{Activity, Control};

/// A handle that stops the probes of a session at once, also from a signal handler. It writes one
/// word of memory that every program reads first. The session then ends as after `exit()`:
/// [`crate::Session::work`] returns `Done`.
#[derive(Debug)]
pub struct Stopper(Mmap);

impl Stopper {
    pub(crate) fn new(control: Mmap) -> Stopper {
        Stopper(control)
    }

    /// Stops all probes but END. Has no effect on a session that is over.
    pub fn stop(&self) {
        if let Some(control) = Control::new(self.0.words()) {
            control.become_state(Activity::Draining);
        }
    }
}
