//! Settings that a session rejects, because ignoring them would give wrong results.

use crate::compile::Program;
use crate::error::Error;
use crate::options::Options;

/// Rejects option values that are not supported.
pub(crate) fn check_options(options: &Options, cpus: &[u32]) -> Result<(), Error> {
    let rejected = |name: &str, why: &str| {
        Err(Error::Setting(format!(
            "failed to set option '{name}': {} is not supported yet ({why})",
            options.text(name)
        )))
    };
    if options.text("bufpolicy") != "switch" {
        return rejected("bufpolicy", "only switch is");
    }
    if options.text("evaltime") != "exec" {
        return rejected("evaltime", "only exec is");
    }
    let cpu = options.maybe_number("cpu");
    if let Some(cpu) = cpu.filter(|cpu| !cpus.iter().any(|c| u64::from(*c) == *cpu)) {
        return Err(Error::Setting(format!("failed to set option 'cpu': there is no CPU {cpu} online")));
    }
    Ok(())
}

/// As [`check_options`]; also rejects a destructive program without `-w`.
pub(crate) fn check(options: &Options, program: &Program, cpus: &[u32]) -> Result<(), Error> {
    check_options(options, cpus)?;
    if program.is_destructive() && !options.flag("destructive") {
        return Err(Error::Setting("could not enable tracing: Destructive actions not allowed".into()));
    }
    Ok(())
}
