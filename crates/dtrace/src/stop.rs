//! Stopping a session from outside the thread that works for it, as a signal handler does.

use bpf::sys::Mmap;
use plane::control::{Activity, Control};

/// A handle that stops the probes of a session at once, also from a signal handler: one word of
/// memory that every program looks at first. The session then ends as after `exit()`:
/// [`crate::Session::work`] says that it is done.
#[derive(Debug)]
pub struct Stopper(Mmap);

impl Stopper {
    pub(crate) fn new(control: Mmap) -> Stopper {
        Stopper(control)
    }

    /// No probe but END fires from now on. Does nothing to a session that is over.
    pub fn stop(&self) {
        if let Some(control) = Control::new(self.0.words()) {
            control.become_state(Activity::Draining);
        }
    }
}
