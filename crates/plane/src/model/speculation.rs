//! Speculation: begin, speculate, commit and discard of [`crate::speculation`], against the
//! consumer that takes the records and frees the id.
//!
//! One id and one ring. Reservations in a ring and the order of the session's records have models
//! of their own (`rings`, `order`), so here a record is one cell, and a record of a commit is
//! written in one step. Several parties use the same id: threads that do not wait for each other.

use super::explore::{Phase, Step, World};

/// Cells of a lap of the ring.
const LAP: u8 = 4;
/// Cells that a speculation may use.
const LIMIT: u8 = 2;
/// Cells in the model: enough laps for all generations.
const CELLS: usize = 24;

/// What a party does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Begin,
    Speculate,
    Commit,
    Discard,
}

/// An injected fault, which the explorer must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A firing does not look at the state again after it has reserved.
    NoSecondCheck,
    /// The state word has no generation.
    NoGeneration,
    /// The consumer frees the id although a record is still being written.
    FreesEarly,
    /// The consumer frees the id before it has met the record of the commit.
    FreesUnmet,
    /// The consumer moves the reserve position by a store.
    PlainRestart,
    /// The consumer forgets records that were written after it met the commit.
    ForgetsLate,
    /// The state stays COMMITTING when the record of the commit does not fit.
    KeepsLost,
    /// `commit()` changes the state by a store.
    PlainCommit,
}

mod seen {
    pub(super) const STALE: u32 = 1;
    pub(super) const FULL: u32 = 2;
    pub(super) const LATE: u32 = 4;
    pub(super) const LOST: u32 = 8;
    pub(super) const BUSY: u32 = 16;
    pub(super) const REUSED: u32 = 32;
    pub(super) const DELAYED: u32 = 64;
    pub(super) const DISCARDED: u32 = 128;
}

#[derive(Clone, Copy, Hash, PartialEq, Eq, Debug)]
enum State {
    Inactive,
    Active,
    Committing,
    Discarding,
}

/// A state word: generation and state.
type Word = (u8, State);

#[derive(Clone, Copy, Hash, PartialEq, Eq, Debug)]
enum Cell {
    Free,
    /// Reserved.
    Open(u8),
    /// A committed record of this firing; whether it belongs to the speculation.
    Done(u8, bool),
}

#[derive(Clone, Copy, Hash, PartialEq, Eq, Debug)]
enum At {
    Start,
    Reserve(Word),
    Consumed(Word, u8),
    Exchange(Word, u8),
    Full(Word),
    Check(Word, u8),
    Write(u8, bool),
    Change(Word),
    Record(Word),
}

#[derive(Clone, Hash)]
struct Party {
    done: u8,
    at: At,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq, Debug)]
enum Consumer {
    /// Looks for records of commits.
    Batch,
    Splice(Word),
    State,
    Take(Word),
    Restart(Word),
    Moved(Word),
    Free(Word),
    Over,
}

#[derive(Clone, Hash)]
struct SharedWords {
    word: Word,
    reserve: u8,
    consumed: u8,
    cells: [Cell; CELLS],
    /// Records of commits in the session's ring.
    commits: Vec<Word>,
    read: u8,
    met: Option<Word>,
    /// Generations of which the records were lost with the record of their commit.
    lost: u8,
    /// By generation: the firings whose records were accepted, and those that were delivered.
    accepted: [u8; 4],
    delivered: [u8; 4],
    committed: u8,
    rounds: u8,
}

#[derive(Clone)]
struct Speculation {
    setup: Setup,
    shared: SharedWords,
    parties: [Party; 3],
    consumer: Consumer,
}

#[derive(Clone, Copy)]
struct Setup {
    parties: &'static [&'static [Action]],
    /// Rounds of the consumer while the parties run.
    rounds: u8,
    /// Commits, by number, whose record finds a full ring.
    full: u8,
    mutation: Mutation,
}

impl std::hash::Hash for Speculation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.shared, &self.parties, self.consumer).hash(state);
    }
}

impl Speculation {
    fn new(setup: Setup) -> Speculation {
        let shared = SharedWords {
            word: (0, State::Inactive),
            reserve: 0,
            consumed: 0,
            cells: [Cell::Free; CELLS],
            commits: Vec::new(),
            read: 0,
            met: None,
            lost: 0,
            accepted: [0; 4],
            delivered: [0; 4],
            committed: 0,
            rounds: setup.rounds,
        };
        let parties = std::array::from_fn(|_| Party { done: 0, at: At::Start });
        Speculation { setup, shared, parties, consumer: Consumer::Batch }
    }

    /// The number of a firing, over all parties.
    fn firing(&self, party: usize) -> u8 {
        let before: usize = self.setup.parties[..party].iter().map(|p| p.len()).sum();
        before as u8 + self.parties[party].done
    }

    fn program(&mut self, party: usize) -> Result<Step, String> {
        let action = self.setup.parties[party][usize::from(self.parties[party].done)];
        let (firing, mutation, full) = (self.firing(party), self.setup.mutation, self.setup.full);
        let s = &mut self.shared;
        let same = |a: Word, b: Word| match mutation {
            Mutation::NoGeneration => a.1 == b.1,
            _ => a == b,
        };
        let mut over = false;
        let next = &mut self.parties[party].at;
        let step = match (*next, action) {
            (At::Start, Action::Begin) => {
                // The load and the compare-exchange: a lost exchange only makes the id busy.
                over = true;
                let busy = !matches!(s.word.1, State::Inactive | State::Active);
                let reused = s.word == (s.word.0.max(1), State::Inactive);
                if s.word.1 == State::Inactive {
                    s.word.1 = State::Active;
                }
                let bits = if busy { seen::BUSY } else { 0 } | if reused { seen::REUSED } else { 0 };
                Step::seeing("speculation()", bits)
            }
            (At::Start, Action::Speculate) => {
                over = s.word.1 != State::Active;
                *next = At::Reserve(s.word);
                Step::of("load the state")
            }
            (At::Start, Action::Commit | Action::Discard) => {
                over = s.word.1 != State::Active;
                *next = At::Change(s.word);
                Step::of("load the state to end it")
            }
            (At::Reserve(word), _) => {
                *next = At::Consumed(word, s.reserve);
                Step::of("load the reserve position")
            }
            (At::Consumed(word, position), _) => {
                let full = i16::from(position) + 1 - i16::from(s.consumed) > i16::from(LIMIT);
                *next = if full { At::Full(word) } else { At::Exchange(word, position) };
                Step::seeing("load the consumed position", if full { seen::FULL } else { 0 })
            }
            (At::Full(_), _) => {
                over = true;
                Step::of("count a speculative drop")
            }
            (At::Exchange(word, position), _) => {
                if s.reserve != position {
                    *next = At::Reserve(word);
                    return Ok(Step::of("lose the reserve position"));
                }
                if s.cells[usize::from(position)] != Cell::Free {
                    return Err("a cell was reserved twice".into());
                }
                s.cells[usize::from(position)] = Cell::Open(firing);
                s.reserve += 1;
                *next = At::Check(word, position);
                Step::of("exchange the reserve position")
            }
            (At::Check(word, position), _) => {
                let accepted = same(s.word, word) || mutation == Mutation::NoSecondCheck;
                if accepted {
                    s.accepted[usize::from(word.0)] |= 1 << firing;
                }
                *next = At::Write(position, accepted);
                Step::seeing("load the state again", if accepted { 0 } else { seen::STALE })
            }
            (At::Write(position, accepted), _) => {
                if s.cells[usize::from(position)] != Cell::Open(firing) {
                    return Err(format!("firing {firing} wrote a cell that is not its own"));
                }
                s.cells[usize::from(position)] = Cell::Done(firing, accepted);
                over = true;
                Step::of("commit the record")
            }
            (At::Change(word), action) => {
                let won = s.word == word || mutation == Mutation::PlainCommit;
                over = !won || action == Action::Discard;
                if won {
                    s.word = (
                        word.0,
                        if action == Action::Commit { State::Committing } else { State::Discarding },
                    );
                }
                *next = At::Record(s.word);
                let discarded = if won && action == Action::Discard { seen::DISCARDED } else { 0 };
                Step::seeing("exchange the state", discarded)
            }
            (At::Record(word), _) => {
                over = true;
                let number = s.committed;
                s.committed += 1;
                if full & 1 << number == 0 {
                    s.commits.push(word);
                    Step::of("record the commit")
                } else {
                    s.lost |= 1 << word.0;
                    if mutation != Mutation::KeepsLost {
                        s.word.1 = State::Discarding;
                    }
                    Step::seeing("the record of the commit does not fit", seen::LOST)
                }
            }
        };
        if over {
            let done = self.parties[party].done + 1;
            self.parties[party] = Party { done, at: At::Start };
        }
        Ok(step)
    }

    /// Takes the committed records up to the reserve position; true if that is all.
    fn take(&mut self, word: Word, deliver: bool) -> Result<bool, String> {
        let s = &mut self.shared;
        let reserved = s.reserve;
        while s.consumed < reserved {
            let cell = &mut s.cells[usize::from(s.consumed)];
            let Cell::Done(firing, accepted) = *cell else { return Ok(false) };
            *cell = Cell::Free;
            s.consumed += 1;
            if accepted && deliver {
                if s.accepted[usize::from(word.0)] & 1 << firing == 0 {
                    return Err(format!("the record of firing {firing} is in another speculation"));
                }
                s.delivered[usize::from(word.0)] |= 1 << firing;
            }
        }
        Ok(true)
    }

    fn consume(&mut self) -> Result<Step, String> {
        let mutation = self.setup.mutation;
        let s = &mut self.shared;
        let (next, step) = match self.consumer {
            Consumer::Batch => match s.commits.get(usize::from(s.read)) {
                Some(word) => {
                    let word = *word;
                    s.read += 1;
                    (Consumer::Splice(word), Step::of("meet a commit"))
                }
                None => (Consumer::State, Step::of("meet no commit")),
            },
            Consumer::Splice(word) => {
                let known = s.word == (word.0, State::Committing);
                if !known {
                    return Err("the speculation of a commit has ended before it was met".into());
                }
                s.met = Some(word);
                let all = self.take(word, true)?;
                (Consumer::Batch, Step::seeing("print the records", if all { 0 } else { seen::LATE }))
            }
            Consumer::State => {
                let word = s.word;
                let met = s.met == Some(word) || mutation == Mutation::FreesUnmet;
                let ended = word.1 == State::Discarding || word.1 == State::Committing && met;
                let next = match ended {
                    true => Consumer::Take(word),
                    false if s.rounds == 0 => Consumer::Over,
                    false => Consumer::Batch,
                };
                if !ended {
                    s.rounds = s.rounds.saturating_sub(1);
                }
                (next, Step::of("load the state to free the id"))
            }
            Consumer::Take(word) => {
                let committed = word.1 == State::Committing;
                let all = self.take(word, committed && mutation != Mutation::ForgetsLate)?;
                let frees = all || mutation == Mutation::FreesEarly;
                if !frees {
                    self.shared.rounds = self.shared.rounds.saturating_sub(1);
                }
                let wait = if self.shared.rounds == 0 { Consumer::Over } else { Consumer::Batch };
                (if frees { Consumer::Restart(word) } else { wait }, Step::of("take the rest"))
            }
            Consumer::Restart(word) => {
                let moved = s.reserve == s.consumed;
                let to = s.consumed.next_multiple_of(LAP);
                if moved || matches!(mutation, Mutation::PlainRestart | Mutation::FreesEarly) {
                    s.reserve = to;
                    (Consumer::Moved(word), Step::of("move the reserve position"))
                } else {
                    s.rounds = s.rounds.saturating_sub(1);
                    let wait = if s.rounds == 0 { Consumer::Over } else { Consumer::Batch };
                    (wait, Step::seeing("a firing was faster", seen::DELAYED))
                }
            }
            Consumer::Moved(word) => {
                s.consumed = s.reserve.min(s.consumed.next_multiple_of(LAP));
                (Consumer::Free(word), Step::of("move the consumed position"))
            }
            Consumer::Free(word) => {
                s.word = (word.0 + 1, State::Inactive);
                s.rounds = s.rounds.saturating_sub(1);
                let next = if s.rounds == 0 { Consumer::Over } else { Consumer::Batch };
                (next, Step::of("free the id"))
            }
            Consumer::Over => return Err("the consumer is over".into()),
        };
        self.consumer = next;
        Ok(step)
    }
}

impl World for Speculation {
    fn parties(&self) -> usize {
        self.setup.parties.len() + 1
    }

    fn level(&self, party: usize) -> Option<u8> {
        (party < self.setup.parties.len()).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let Some(actions) = self.setup.parties.get(party) else {
            return if self.consumer == Consumer::Over { Phase::Finished } else { Phase::Running };
        };
        match self.parties[party] {
            Party { done, at: At::Start } if usize::from(done) == actions.len() => Phase::Finished,
            Party { at: At::Start, .. } => Phase::Idle,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        if party == self.setup.parties.len() { self.consume() } else { self.program(party) }
    }

    /// The rest, after all firings: the consumer drains twice.
    fn end(&self) -> Result<u32, String> {
        let mut end = self.clone();
        for _ in 0..2 {
            end.shared.rounds = 1;
            end.consumer = Consumer::Batch;
            while end.consumer != Consumer::Over {
                end.consume()?;
            }
        }
        let s = &end.shared;
        if matches!(s.word.1, State::Committing | State::Discarding) {
            return Err("the id is never free again".into());
        }
        for word in &s.commits {
            let (accepted, delivered) = (s.accepted[usize::from(word.0)], s.delivered[usize::from(word.0)]);
            if accepted != delivered {
                return Err(format!("accepted {accepted:b}, delivered {delivered:b}"));
            }
        }
        let committed: u8 = s.commits.iter().fold(0, |all, word| all | 1 << word.0);
        for (generation, delivered) in (0..).zip(&s.delivered) {
            if *delivered != 0 && committed & 1 << generation == 0 {
                return Err("records of a speculation that was not committed".into());
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::Action::{Begin, Commit, Discard, Speculate};
    use super::*;

    /// Two threads speculate while a third one begins, commits, and begins again.
    const SHARED: Setup = Setup {
        parties: &[&[Begin, Speculate, Commit, Begin, Commit], &[Speculate], &[Speculate]],
        rounds: 3,
        full: 0,
        mutation: Mutation::None,
    };

    /// Two threads end the same speculation, one with its records and one without.
    const ENDED_TWICE: Setup =
        Setup { parties: &[&[Begin, Speculate, Commit], &[Speculate, Discard], &[Speculate]], ..SHARED };

    fn breaks(setup: Setup, mutation: Mutation, words: &str) {
        caught(Speculation::new(Setup { mutation, ..setup }), Schedule::Preempted, words);
    }

    #[test]
    fn committed_records_are_delivered_once_and_ids_become_free() {
        let nested = holds(Speculation::new(SHARED), Schedule::Nested);
        let preempted = holds(Speculation::new(SHARED), Schedule::Preempted);
        let all = seen::STALE | seen::LATE | seen::BUSY | seen::REUSED | seen::DELAYED | seen::FULL;
        assert_eq!(preempted.seen & all, all);
        assert_eq!(nested.seen & seen::BUSY, seen::BUSY);
    }

    #[test]
    fn of_commit_and_discard_the_first_wins() {
        let report = holds(Speculation::new(ENDED_TWICE), Schedule::Preempted);
        assert_eq!(report.seen & seen::DISCARDED, seen::DISCARDED);
    }

    #[test]
    fn a_commit_whose_record_does_not_fit_frees_its_id() {
        let report = holds(Speculation::new(Setup { full: 1, ..SHARED }), Schedule::Preempted);
        assert_eq!(report.seen & seen::LOST, seen::LOST);
        breaks(Setup { full: 1, ..SHARED }, Mutation::KeepsLost, "the id is never free again");
    }

    #[test]
    fn a_missing_second_look_at_the_state_is_caught() {
        breaks(SHARED, Mutation::NoSecondCheck, "");
    }

    #[test]
    fn a_state_without_generation_is_caught() {
        breaks(SHARED, Mutation::NoGeneration, "is in another speculation");
    }

    #[test]
    fn freeing_an_id_while_a_record_is_written_is_caught() {
        breaks(SHARED, Mutation::FreesEarly, "");
    }

    #[test]
    fn freeing_an_id_before_its_commit_was_met_is_caught() {
        breaks(SHARED, Mutation::FreesUnmet, "has ended before it was met");
    }

    #[test]
    fn moving_the_reserve_position_by_a_store_is_caught() {
        breaks(SHARED, Mutation::PlainRestart, "");
    }

    #[test]
    fn forgetting_records_behind_a_commit_is_caught() {
        breaks(SHARED, Mutation::ForgetsLate, "accepted");
    }

    #[test]
    fn changing_the_state_by_a_store_is_caught() {
        breaks(ENDED_TWICE, Mutation::PlainCommit, "");
    }
}
