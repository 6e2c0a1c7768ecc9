//! The hook by which the initramfs carries the tracer and what is stored (`-x initramfs`).

use super::place::Places;
use super::state::State;

/// Installs the hook, for a stored enabling. What was done, as messages.
pub(crate) fn install(_places: &Places, _state: &State) -> Result<Vec<String>, String> {
    Err("-x initramfs is not supported yet: leave it out, and tracing begins with the init system".into())
}

/// Removes the hook, if it is there. What was done, as messages.
pub(crate) fn remove(_places: &Places) -> Result<Vec<String>, String> {
    Ok(Vec::new())
}

/// Called once a second by the process that traces: the root of the system may be another one now.
pub(crate) fn turn() {}
