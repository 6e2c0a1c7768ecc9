//! Tests that measure the whole process: each runs in a process of its own, whatever other tests
//! its program has.

use std::process::Command;

/// Names the test that the process is for.
const VARIABLE: &str = "DTRACE_TEST_ALONE";

/// True in a process that runs no other test. Elsewhere the calling test is run in such a process,
/// which must pass, and the answer is false: the test returns.
///
/// ```text
///  if !testing::alone!() {
///      return;
///  }
/// ```
#[macro_export]
macro_rules! alone {
    () => {{
        fn place() {}
        $crate::alone::run(std::any::type_name_of_val(&place))
    }};
}

/// What [`alone!`] does. `place` is the path of a function inside the test. A panic is how a test
/// fails.
#[allow(clippy::panic)]
pub fn run(place: &str) -> bool {
    let test = test_name(place);
    if std::env::var(VARIABLE).is_ok_and(|name| name == test) {
        return true;
    }
    let program = std::env::current_exe().unwrap_or_else(|e| panic!("this program: {e}"));
    let words = ["--exact", test, "--nocapture"];
    let out = Command::new(program).args(words).env(VARIABLE, test).output();
    let out = out.unwrap_or_else(|e| panic!("{test}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout);
    // Shown if the test fails.
    println!("{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("test result: ok. 1 passed"), "{test}: {}", out.status);
    false
}

/// The name of the test that has this function: its path without the crate.
fn test_name(place: &str) -> &str {
    let path = place.trim_end_matches("::place").trim_end_matches("::{{closure}}");
    path.split_once("::").map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    static BEGUN: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn the_process_is_another_and_runs_no_other_test() {
        if !crate::alone!() {
            assert_eq!(BEGUN.load(Ordering::Relaxed), 0);
            return;
        }
        BEGUN.fetch_add(1, Ordering::Relaxed);
        let words: Vec<String> = std::env::args().collect();
        assert_eq!(
            words.get(2).map(String::as_str),
            Some("alone::tests::the_process_is_another_and_runs_no_other_test")
        );
    }

    #[test]
    #[should_panic = "alone::tests::none"]
    fn a_test_that_does_not_pass_alone_fails() {
        super::run("testing::alone::tests::none::place");
    }
}
