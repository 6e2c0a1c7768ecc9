//! The open calls of threads.
//!
//! Slices of a track nest, and firings do not always: a function is left by an exception or
//! `longjmp()`, one of both records is dropped, a return is of a call from before the session. So
//! a return closes the innermost open call of its function with all calls within, and without one
//! it is nothing. What closed without a return of its own, and what returned without an entry, is
//! counted.

/// The most open calls of a thread.
pub(crate) const DEEPEST: usize = 1024;

/// An open call.
#[derive(Clone, Copy, Debug)]
struct Open {
    function: u64,
    time: u64,
    /// A thread has at most one such at a time.
    sole: bool,
}

/// The open calls of a thread, the innermost last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    open: Vec<Open>,
    /// The last return and its time.
    ended: Option<(u64, u64)>,
}

/// What a firing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Another clause of the firing before.
    Again,
    /// A call begins; so many end before.
    Begins(usize),
    /// So many calls end: the one that returns last.
    Ends(usize),
    /// A return without an entry.
    Unmatched,
    /// It is no call.
    Alone,
}

impl Calls {
    /// A function is entered.
    pub(crate) fn enter(&mut self, function: u64, time: u64, sole: bool) -> Step {
        if self.open.last().is_some_and(|last| last.function == function && last.time == time) {
            return Step::Again;
        }
        let kept = match sole.then(|| self.open.iter().position(|open| open.sole)).flatten() {
            Some(before) => before,
            None if self.open.len() >= DEEPEST => 0,
            None => self.open.len(),
        };
        let closed = self.open.len() - kept;
        self.open.truncate(kept);
        self.open.push(Open { function, time, sole });
        Step::Begins(closed)
    }

    /// A function returns.
    pub(crate) fn leave(&mut self, function: u64, time: u64) -> Step {
        if self.ended == Some((function, time)) {
            return Step::Again;
        }
        self.ended = Some((function, time));
        match self.open.iter().rposition(|open| open.function == function) {
            Some(at) => {
                let closed = self.open.len() - at;
                self.open.truncate(at);
                self.shrink();
                Step::Ends(closed)
            }
            None => Step::Unmatched,
        }
    }

    /// Gives memory back that deeper calls have needed: a million threads may have been deep once.
    fn shrink(&mut self) {
        if self.open.capacity() > 32 && self.open.len() < self.open.capacity() / 4 {
            self.open.shrink_to(2 * self.open.len());
        }
    }

    /// Ends all calls; how many there were.
    pub(crate) fn end(&mut self) -> usize {
        std::mem::take(&mut self.open).len()
    }

    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_nest() {
        let mut calls = Calls::default();
        assert_eq!(calls.enter(1, 10, false), Step::Begins(0));
        assert_eq!(calls.enter(2, 11, false), Step::Begins(0));
        assert_eq!(calls.enter(2, 12, false), Step::Begins(0), "a recursion");
        assert_eq!(calls.leave(2, 13), Step::Ends(1));
        assert_eq!(calls.leave(3, 14), Step::Unmatched);
        assert_eq!(calls.leave(1, 15), Step::Ends(2), "the outer call ends the inner one");
        assert_eq!(calls.leave(1, 16), Step::Unmatched);
        assert_eq!(calls.end(), 0);
    }

    #[test]
    fn memory_of_deep_calls_is_given_back() {
        let mut calls = Calls::default();
        (0..1000).for_each(|n| assert_eq!(calls.enter(n, n, false), Step::Begins(0)));
        assert!(calls.open.capacity() >= 1000);
        (20..1000).rev().for_each(|n| assert_eq!(calls.leave(n, 2000 - n), Step::Ends(1)));
        assert!(calls.depth() == 20 && calls.open.capacity() < 100, "{}", calls.open.capacity());
        assert_eq!(calls.end(), 20);
        assert_eq!(calls.open.capacity(), 0);
    }

    #[test]
    fn clauses_of_a_firing_are_one_call() {
        let mut calls = Calls::default();
        assert_eq!(calls.enter(1, 10, false), Step::Begins(0));
        assert_eq!(calls.enter(1, 10, false), Step::Again);
        assert_eq!(calls.leave(1, 11), Step::Ends(1));
        assert_eq!(calls.leave(1, 11), Step::Again);
        assert_eq!(calls.depth(), 0);
    }

    #[test]
    fn a_thread_has_one_system_call_and_not_too_many_calls() {
        let mut calls = Calls::default();
        calls.enter(1, 1, false);
        calls.enter(2, 2, true);
        calls.enter(3, 3, false);
        assert_eq!(calls.enter(2, 4, true), Step::Begins(2), "what called it stays open");
        assert_eq!(calls.depth(), 2);
        for n in 2..DEEPEST as u64 {
            assert_eq!(calls.enter(n, 10 + n, false), Step::Begins(0));
        }
        assert_eq!(calls.enter(1, 9999, false), Step::Begins(DEEPEST));
        assert_eq!(calls.end(), 1);
    }
}
