//! Programs that are enabled beside others that run.

use check::Checked;

/// Whether what runs may stay as it is: the columns of a key are fixed once programs write them.
pub(super) fn check_unchanged(running: &Checked, all: &Checked) -> Result<(), String> {
    let reject = |what: &str| {
        Err(format!(
            "could not enable tracing: {what} is already enabled with a narrower key; use another name, or enable both at once"
        ))
    };
    for (before, now) in running.aggs.iter().zip(&all.aggs) {
        if before != now {
            return reject(&format!("@{}", now.name));
        }
    }
    for (before, now) in running.vars.iter().zip(&all.vars) {
        if (&before.key, before.repr) != (&now.key, now.repr) {
            return reject(&format!("{}{}", now.scope.prefix(), now.name));
        }
    }
    Ok(())
}
