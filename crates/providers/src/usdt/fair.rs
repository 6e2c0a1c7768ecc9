//! What each process may have of what a description matches, so that none hides the probes of
//! others.
//!
//! A file of a hostile process may describe as many probes as it has bytes for, each with other
//! arguments, and take the reader all its time. So probes, forms of arguments and time are shared
//! as [`proc::share`] has it, root's processes are looked at first, those of users in turns, and
//! what is left out is said with its owner.

use std::time::{Duration, Instant};

use proc::share::{Owner, Shares};

/// The most probes that one description matches.
pub(super) const MAX_PROBES: usize = 1 << 18;

/// The most files whose arguments differ. A clause is checked for each of them.
const MAX_FORMS: usize = 1 << 10;

/// How long all processes may take.
pub(super) const ALL: Duration = Duration::from_secs(20);

/// The shares of one search.
pub(super) struct Fair {
    pub(super) probes: Shares,
    pub(super) forms: Shares,
    /// In milliseconds.
    time: Shares,
    said: Vec<String>,
}

impl Fair {
    pub(super) fn new() -> Fair {
        Fair::of(MAX_PROBES, MAX_FORMS, ALL)
    }

    fn of(probes: usize, forms: usize, time: Duration) -> Fair {
        let time = Shares::new(time.as_millis() as usize);
        Fair { probes: Shares::new(probes), forms: Shares::new(forms), time, said: Vec::new() }
    }

    /// How long a process may be looked at now.
    pub(super) fn time(&self, owner: &Owner) -> Duration {
        Duration::from_millis(self.time.left(owner) as u64)
    }

    /// True while the time of all processes is not over.
    pub(super) fn has_time(&self) -> bool {
        self.time.left(&Owner::new(0, 0, "")) > 0
    }

    /// A process was looked at since then.
    pub(super) fn looked(&mut self, owner: &Owner, since: Instant) {
        self.time.take(owner, since.elapsed().as_millis() as usize);
    }

    /// Probes of a file are left out.
    pub(super) fn leave_probes(&mut self, owner: &Owner, file: &str, count: usize) {
        let most = self.probes.most();
        let one = if count == 1 { "a probe".to_owned() } else { format!("{count} probes") };
        let are = if count == 1 { "is" } else { "are" };
        self.leave(format!(
            "{one} of {file} in {owner} {are} left out: it has its share of the {most} probes that a description matches"
        ));
    }

    /// A file is left out because its arguments are like no others.
    pub(super) fn leave_form(&mut self, owner: &Owner, file: &str) {
        let most = self.forms.most();
        self.leave(format!(
            "probes of {file} in {owner} are left out: it has its share of the {most} files whose arguments differ"
        ));
    }

    /// The rest of a process is left out.
    pub(super) fn leave_rest(&mut self, owner: &Owner) {
        self.leave(format!(
            "what {owner} describes is left out: to look at it takes longer than its share of {} s",
            ALL.as_secs()
        ));
    }

    /// Processes are left out that nobody could look at.
    pub(super) fn leave_processes(&mut self, provider: &str, count: usize) {
        if count > 0 {
            self.leave(format!(
                "{count} processes are not searched for probes of {provider}: to look at all takes longer than {} s",
                ALL.as_secs()
            ));
        }
    }

    fn leave(&mut self, text: String) {
        leave(&mut self.said, text);
    }

    /// What is to be said.
    pub(super) fn said(self) -> Vec<String> {
        self.said
    }
}

/// Adds what is to be said of what is left out. Of all that a session has, a [`diagnostics::Few`]
/// is said, which knows no more of them.
pub(super) fn leave(all: &mut Vec<String>, text: String) {
    const MOST: usize = 1 << 14;
    if all.len() < MOST {
        all.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_with_its_owner_and_no_more_often_than_a_limit() {
        let mut fair = Fair::of(4, 4, ALL);
        let owner = Owner::new(12, 1000, "/mine");
        fair.leave_probes(&owner, "many", 3);
        fair.leave_probes(&owner, "one", 1);
        fair.leave_form(&owner, "odd");
        fair.leave_rest(&owner);
        fair.leave_processes("x", 0);
        fair.leave_processes("x", 7);
        (20..100_000).for_each(|pid| fair.leave_rest(&Owner::new(pid, 1000, "/mine")));
        let said = fair.said();
        let whose = "process 12 of user 1000 in cgroup /mine";
        assert_eq!(
            said.first().unwrap(),
            &format!(
                "3 probes of many in {whose} are left out: it has its share of the 4 probes that a description matches"
            )
        );
        assert!(said[1].starts_with(&format!("a probe of one in {whose} is left out: ")));
        assert!(said[2].ends_with("its share of the 4 files whose arguments differ"));
        assert!(said[4].starts_with("7 processes are not searched for probes of x: "));
        assert_eq!(said.len(), 1 << 14);
    }

    #[test]
    fn who_has_many_files_with_arguments_of_their_own_leaves_some_to_others() {
        let mut fair = Fair::new();
        for pid in 1..=5000 {
            let owner = Owner::new(pid, 1000, "/mine");
            while fair.forms.left(&owner) > 0 {
                fair.forms.take(&owner, 1);
            }
        }
        assert!(fair.forms.left(&Owner::new(5001, 1001, "")) > 0);
        assert!(fair.forms.left(&Owner::new(5002, 0, "")) >= MAX_FORMS / 4);
    }

    #[test]
    fn who_takes_long_leaves_time_to_others() {
        let mut fair = Fair::of(1, 1, ALL);
        let (one, other, root) = (Owner::new(1, 1000, ""), Owner::new(2, 1001, ""), Owner::new(3, 0, ""));
        assert!(fair.time(&one) < ALL / 8);
        let since = Instant::now().checked_sub(ALL / 2).unwrap();
        fair.looked(&one, since);
        assert_eq!(fair.time(&one), Duration::ZERO);
        assert!(fair.time(&other) > Duration::ZERO && fair.time(&root) > ALL / 3);
    }
}
