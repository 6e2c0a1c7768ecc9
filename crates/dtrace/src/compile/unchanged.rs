//! Programs that are enabled beside others that run.

use check::Checked;

use crate::error::Error;

/// Whether what runs may stay as it is: the columns of a key are fixed once programs write them,
/// and clauses and variables are known by their numbers. `trees`: how many of the programs run.
pub(super) fn check_unchanged(running: &Checked, all: &Checked, trees: usize) -> Result<(), Error> {
    let reject = |what: &str| {
        Err(Error::Setting(format!(
            "could not enable tracing: {what} is already enabled with a narrower key; use another name, or enable both at once"
        )))
    };
    for (before, now) in running.aggs.iter().zip(&all.aggs) {
        if before != now {
            return reject(&format!("@{}", now.name));
        }
    }
    let ran = all.clauses.iter().filter(|clause| clause.program < trees).count();
    let mut vars = running.vars.iter().zip(&all.vars);
    let are_same = vars.all(|(before, now)| (&before.name, before.scope) == (&now.name, now.scope));
    if ran != running.clauses.len() || !are_same {
        // It is checked for what it was compiled for (`check::Record`), so it is the same.
        return Err(Error::Internal("what runs has other clauses when it is checked again".into()));
    }
    for (before, now) in running.vars.iter().zip(&all.vars) {
        if (&before.key, before.repr) != (&now.key, now.repr) {
            return reject(&format!("{}{}", now.scope.prefix(), now.name));
        }
    }
    Ok(())
}
