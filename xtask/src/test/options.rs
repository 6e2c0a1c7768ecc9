//! The command line of `cargo xtask test`, and the environment variables that it heeds.

use crate::kernels::NAMES;

/// Seconds of a guest for the tests of one kernel in a run of everything, unless `DTRACE_BUDGET`
/// says otherwise.
const BUDGET: f64 = 150.0;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Parts of names: a test runs if one of them is in its name.
    pub(crate) filters: Vec<String>,
    /// Not on this machine's kernel.
    pub(crate) no_host: bool,
    /// In no guest.
    pub(crate) no_guests: bool,
    /// The kernels; all of the matrix when none is named.
    pub(crate) kernels: Vec<&'static str>,
    /// Whether kernels were named: then all tests that the filters leave run there.
    pub(crate) named: bool,
    /// Print what would run.
    pub(crate) list: bool,
    /// Only what failed in the last run.
    pub(crate) failed: bool,
    /// Only what has not run on a kernel in this round.
    pub(crate) uncovered: bool,
    /// Begin a new round.
    pub(crate) close: bool,
    /// The end-to-end tests run the static program.
    pub(crate) of_static: bool,
    /// Write the lists of skips anew instead of comparing.
    pub(crate) update_skips: bool,
}

pub(crate) const HELP: &str = "  test [FILTER...] [OPTION...]
                run every test here, and a choice of them on each stock kernel (testing/places says which)
                  FILTER        only tests with this in their names
                  --host        in no guest                  --vm         only in guests
                  --kernel K    every test that may run there, in the guest of K (more than one may be named)
                  --list        print what would run where   --failed     only what failed in the last run
                  --uncovered   only what has not run on a kernel since the last issue was closed
                  --close       check that nothing is uncovered, and begin the next round
                  --static      the end-to-end tests run the program that is published, which is built first
                  --update-skips  write testing/skips anew
                environment: DTRACE_SEED=N the choices of commit N; DTRACE_MATRIX=all all tests on each kernel;
                  DTRACE_BUDGET=S seconds for a kernel's tests; DTRACE_RETRY=0 run no failed test again;
                  DTRACE_JOBS=N tests at once here; DTRACE_PARENT=REV the commit that is asked whether a test
                  failed before; DTRACE_TEST_DIR=DIR where tests have their files; DTRACE_CACHE=DIR downloads
";

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--host" => options.no_guests = true,
                "--vm" => options.no_host = true,
                "--list" => options.list = true,
                "--failed" => options.failed = true,
                "--uncovered" => options.uncovered = true,
                "--close" => options.close = true,
                "--static" => options.of_static = true,
                "--update-skips" => options.update_skips = true,
                "--kernel" => {
                    let name = words.next().ok_or("test: --kernel needs a kernel")?;
                    let known = NAMES.into_iter().find(|k| k == name);
                    let known = known.ok_or_else(|| {
                        format!("test: {name} is no kernel of the matrix: {}", NAMES.join(", "))
                    })?;
                    options.kernels.push(known);
                    options.named = true;
                }
                option if option.starts_with("--") => {
                    return Err(format!("test: no option {option}\n{HELP}"));
                }
                filter => options.filters.push(filter.into()),
            }
        }
        if options.no_host && options.no_guests {
            return Err("test: --host and --vm leave nothing to run".into());
        }
        // A kernel that is named is what is asked for.
        options.no_host |= options.named || options.uncovered;
        if options.kernels.is_empty() {
            options.kernels = NAMES.to_vec();
        }
        if options.no_guests {
            options.kernels.clear();
        }
        Ok(options)
    }

    /// Whether everything runs that a run of `.ci/run` runs: only then are skips and flakes judged
    /// as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        let chosen = self.failed || self.uncovered || self.named || self.no_host || self.of_static;
        self.filters.is_empty() && !chosen
    }

    /// Whether the filters leave a test.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }

    /// Seconds for the tests of a kernel.
    pub(crate) fn budget() -> f64 {
        number("DTRACE_BUDGET").map_or(BUDGET, |n| n as f64)
    }
}

/// The number in an environment variable.
pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

/// Whether all tests run on each kernel.
pub(crate) fn all_on_each() -> bool {
    std::env::var_os("DTRACE_MATRIX").is_some_and(|which| which == "all")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Options, String> {
        Options::parse(&words.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_filters_and_options_choose_machines() {
        let options = parsed("pid:: --kernel 6.12 usdt::").unwrap();
        assert_eq!((options.filters.len(), options.kernels.as_slice()), (2, &["6.12"][..]));
        assert!(
            options.no_host && options.takes("cli:e2e e2e::pid::x") && !options.takes("cli:e2e e2e::fbt::x")
        );
        assert!(parsed("").unwrap().is_whole() && parsed("--host").unwrap().is_whole());
        for part in ["pid::", "--failed", "--vm", "--kernel 7.2", "--uncovered", "--static"] {
            assert!(!parsed(part).unwrap().is_whole(), "{part}");
        }
        assert!(parsed("--host").unwrap().kernels.is_empty() && parsed("").unwrap().kernels.len() == 3);
        for wrong in ["--host --vm", "--kernel", "--kernel 5.4", "--all"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
