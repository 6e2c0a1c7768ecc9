//! What `--check` says would give a facility, against the kernel that runs.

use std::process::Command;

use dtrace::System;
use dtrace::abilities::{Report, State};

use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] =
    &[("advice::no_kernel_is_told_to_become_what_it_is", no_kernel_is_told_to_become_what_it_is)];

/// `6.12.41+deb13-amd64`: 6 and 12.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// The options that the kernel was built with, where it tells.
fn options(release: &str) -> Option<String> {
    let packed = Command::new("zcat").arg("/proc/config.gz").output().ok().filter(|o| o.status.success());
    let file = || std::fs::read_to_string(format!("/boot/config-{release}")).ok();
    packed.and_then(|o| String::from_utf8(o.stdout).ok()).or_else(file)
}

fn no_kernel_is_told_to_become_what_it_is() -> Verdict {
    let system = System::live();
    let report = Report::of(&system);
    if !report.can_trace() {
        return Verdict::Skip("nothing can be traced here".into());
    }
    let release = system.release();
    let (running, options) = (version(&release).unwrap(), options(&release));
    let mut told = 0;
    for ability in report.facilities {
        let State::Missing { why, needs } = ability.state else { continue };
        // What follows says what is done without.
        let needs = needs.split(';').next().unwrap();
        let newer = needs.strip_prefix("Linux ").and_then(version);
        let config = needs.split_whitespace().filter(|word| word.starts_with("CONFIG_"));
        let config: Vec<&str> = config.map(|word| word.trim_end_matches(',')).collect();
        let has_version = newer.is_none_or(|newer| running >= newer);
        let has_options = |all: &String| config.iter().all(|one| all.lines().any(|line| line == *one));
        // An option that is not known may be what is missing, and what is refused is there.
        let has_options = config.is_empty() || options.as_ref().is_some_and(has_options);
        if newer.is_none() && config.is_empty() || why.contains("not permitted") {
            continue;
        }
        told += 1;
        assert!(!(has_version && has_options), "{}: {why}; needs {needs}; this is {release}", ability.name);
    }
    println!("{told} facilities are missing for a version or an option");
    Verdict::Pass
}
