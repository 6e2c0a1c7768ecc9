//! Settings that a session rejects rather than ignores.

use crate::compile::Program;
use crate::error::Error;
use crate::options::Options;

/// Values of options that no session can have.
pub(crate) fn refuse_options(options: &Options, cpus: &[u32]) -> Result<(), Error> {
    let refused = |name: &str, why: &str| {
        Err(Error::Setting(format!(
            "failed to set option '{name}': {} is not supported yet ({why})",
            options.text(name)
        )))
    };
    if options.text("bufpolicy") != "switch" {
        return refused("bufpolicy", "only switch is");
    }
    if options.text("evaltime") != "exec" {
        return refused("evaltime", "only exec is");
    }
    let cpu = options.maybe_number("cpu");
    if let Some(cpu) = cpu.filter(|cpu| !cpus.iter().any(|c| u64::from(*c) == *cpu)) {
        return Err(Error::Setting(format!("failed to set option 'cpu': there is no CPU {cpu} online")));
    }
    Ok(())
}

/// As [`refuse_options`], for a program.
pub(crate) fn refuse(options: &Options, program: &Program, cpus: &[u32]) -> Result<(), Error> {
    refuse_options(options, cpus)?;
    if program.is_destructive() && !options.flag("destructive") {
        return Err(Error::Setting("could not enable tracing: Destructive actions not allowed".into()));
    }
    Ok(())
}
