//! Firings that the kernel suppressed while a test ran.
//!
//! A kernel that preempts a tracepoint's program (7.2 does by default) suppresses the other firings
//! of that program on that CPU until the program has ended. DTrace counts and reports them. A test
//! that expects exact numbers fails then, though nothing is wrong. Two kinds of tests remain:
//!
//! ```text
//!  a test that adds the reported number       [`counted`]: its failure is a failure
//!  a test that does not read the reports      it is run again when it fails after a report, up to
//!                                             three times, and that is printed
//! ```
//!
//! A failure without a report is never repeated.

use std::sync::{Mutex, PoisonError};

static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes a report that the running test may overlook.
pub fn note(report: impl Into<String>) {
    REPORTS.lock().unwrap_or_else(PoisonError::into_inner).push(report.into());
}

/// Notes the reports in what `dtrace` printed as messages.
pub fn note_messages(text: &str) {
    text.lines().filter(|l| is_report(l)).for_each(note);
}

/// Whether a message reports suppressed firings.
fn is_report(line: &str) -> bool {
    line.contains(" suppressed by the kernel")
}

/// Declares that the running test takes the reports of its session so far into account.
pub fn counted() {
    take();
}

/// The reports since the last call.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut REPORTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Number of firings that the messages report as suppressed, of `program` or, if it is empty, of
/// all. The test takes them into account.
pub fn count(text: &str, program: &str) -> i64 {
    counted();
    let of = |l: &&str| is_report(l) && (program.is_empty() || l.contains(&format!(" of {program} ")));
    let number = |l: &str| l.split_whitespace().find_map(|w| w.parse::<i64>().ok());
    text.lines().filter(of).filter_map(number).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_firings_are_counted_by_program_or_all() {
        let text = "dtrace: up to 1408 firings of syscall_entry suppressed by the kernel\n\
                    dtrace: 12 firings of profile-997 on CPU 0 suppressed by the kernel\n\
                    dtrace: 1 firing of tick-20ms on CPU 1 suppressed by the kernel\n\
                    dtrace: 7 drops on CPU 1\n";
        let counts = ["", "syscall_entry", "profile-997", "tick-20ms", "tick-20"].map(|p| count(text, p));
        assert_eq!(counts, [1421, 1408, 12, 1, 0]);
    }
}
