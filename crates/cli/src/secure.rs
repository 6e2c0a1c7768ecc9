//! A command that has privileges which the process that started it does not have, by capabilities
//! of its file (`AT_SECURE`, getauxval(3)). Who may execute it may trace, and nothing else: no
//! variable of the environment tells the command what to do, and destructive actions are refused.
//! What it executes has none of these privileges, which are not inherited. A user or a group is, so
//! a set-user-id command is refused.

use std::ffi::OsString;
use std::sync::OnceLock;

use dtrace::Environment;

/// Where programs are looked for that the command itself executes.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment that the command was started with, if it does not obey it.
static STARTED_WITH: OnceLock<Vec<(OsString, OsString)>> = OnceLock::new();

/// True if the command was started so.
pub(crate) fn is_secure() -> bool {
    // SAFETY: it reads a number that the kernel gave to this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Why the command must not run: its file has the set-user-id or the set-group-id bit.
pub(crate) fn refusal() -> Option<&'static str> {
    // SAFETY: they have no arguments and no failure.
    let is_other = unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() };
    is_other.then_some(
        "it is set-user-id or set-group-id, which what it executes would inherit: give its file capabilities instead",
    )
}

/// Takes the environment away from a command that must not obey it. It is called before there is a
/// second thread.
pub(crate) fn leave_environment() {
    if !is_secure() {
        return;
    }
    let all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    // SAFETY: there is one thread. All variables go, also those whose names nobody could remove by
    // them.
    unsafe {
        libc::clearenv();
        std::env::set_var("PATH", PATH);
    }
    let _ = STARTED_WITH.set(all);
}

/// Gives a process of `-c` the environment of the user.
pub(crate) fn restore(environment: &mut Environment) {
    let Some(all) = STARTED_WITH.get() else { return };
    let kept = all.iter().filter(|(name, _)| !environment.unset.contains(name)).cloned();
    let own = std::mem::take(&mut environment.set);
    environment.set = kept.chain(own).collect();
}
