//! Activity: the edges of the word of [`crate::control`], `exit()`, and the order in which a
//! session ends.
//!
//! ```text
//!  consumer   BEGIN's program (test_run): first clause (a record, perhaps exit()), load the word,
//!             second clause · ACTIVE · … · DRAINING · grace period · drain ·
//!             END's program (a record, perhaps exit(), a record) · drain · STOPPED
//!  firings    load the word; ACTIVE: first clause (a record, perhaps exit()); load it again;
//!             second clause (a record)
//!  heartbeat  load the word; ACTIVE: KILLED, after which the consumer gives up
//! ```
//!
//! A record is one step here (`rings` shows that this is valid), and a drain takes all records. The
//! properties: probes record nothing before ACTIVE and nothing after the grace period. When END's
//! clauses run, all records of probes have been drained. Every record is drained once. No program
//! runs to an end that nobody waits for. No clause of a firing runs behind one that called
//! `exit()`, except in END. The first `exit()` determines the status, and one of END's replaces it.
//! If the heartbeat is first, no exit() has succeeded and END does not run.

use super::explore::{Phase, Step, World};
use crate::control::{Activity, activity_word, exit_status};

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const EXIT_IN_BEGIN: u32 = 1;
    pub(in super::super) const EXIT_WON: u32 = 2;
    pub(in super::super) const EXIT_LOST: u32 = 4;
    pub(in super::super) const TOO_EARLY: u32 = 8;
    pub(in super::super) const TOO_LATE: u32 = 16;
    pub(in super::super) const CUT_SHORT: u32 = 32;
    pub(in super::super) const WAITED: u32 = 64;
    pub(in super::super) const LOST_RACE: u32 = 128;
    pub(in super::super) const KILLED: u32 = 256;
    pub(in super::super) const KILL_LOST: u32 = 512;
    pub(in super::super) const GIVEN_UP: u32 = 1024;
    pub(in super::super) const REPLACED: u32 = 2048;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutation {
    None,
    /// The drain follows DRAINING without a grace period.
    NoGrace,
    /// ACTIVE is stored without looking at the word.
    PlainActivation,
    /// DRAINING is stored over the value that was loaded a step before.
    PlainDraining,
    /// exit() stores DRAINING and its status.
    PlainExit,
    /// A program does not test the word.
    NoGate,
    /// The clause after one with exit() runs too.
    NoSecondGate,
    /// exit() in END looks for WARMUP and ACTIVE.
    EndExchanges,
    /// END runs before the drain.
    EarlyEnd,
    /// The heartbeat stores KILLED.
    PlainKill,
    /// The consumer does not test for KILLED.
    NoGivingUp,
}

/// The actions of the parties.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// The status of exit() in BEGIN, if BEGIN calls it.
    pub(super) begin_exit: Option<u8>,
    /// The same of END.
    pub(super) end_exit: Option<u8>,
    /// For each firing of each party: the status of exit() in its first clause, if it calls it.
    pub(super) firings: &'static [&'static [Option<u8>]],
    /// The consumer ends the session itself (`^C`); else it waits for an exit().
    pub(super) interrupted: bool,
    /// A heartbeat finds a limit exceeded.
    pub(super) alarm: bool,
    pub(super) mutation: Mutation,
}

#[derive(Clone)]
pub(super) struct Session {
    setup: Setup,
    state: State,
}

#[derive(Clone, Hash)]
struct State {
    word: u64,
    /// Records that are committed and not drained, of probes and of BEGIN and END.
    records: u8,
    drained: u8,
    recorded: u8,
    parties: [Party; 3],
    consumer: Consumer,
    heartbeat: Heartbeat,
    killed: bool,
    found: u64,
    waits: u8,
    /// The status of the exchange that succeeded.
    first_exit: Option<u8>,
    /// That of END.
    last_exit: Option<u8>,
    graced: bool,
    ended: bool,
}

#[derive(Clone, Hash, Default)]
struct Party {
    fired: u8,
    at: At,
    attempt: u8,
}

#[derive(Clone, Copy, Hash, Default, PartialEq, Eq)]
enum At {
    #[default]
    Gate,
    First,
    Exit,
    Regate,
    Second,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum Heartbeat {
    Gate,
    Kill,
    Done,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum Consumer {
    Begin,
    BeginExit(u8),
    BeginGate,
    BeginSecond,
    Activate,
    ActivateExchange,
    Work,
    Drain,
    DrainExchange,
    Grace,
    Take,
    EndGate,
    End,
    EndExit,
    EndSecond,
    LastTake,
    Stop,
    Done,
}

impl std::hash::Hash for Session {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

impl Session {
    pub(super) fn new(setup: Setup) -> Session {
        let state = State {
            word: activity_word(Activity::Warmup, 0),
            records: 0,
            drained: 0,
            recorded: 0,
            parties: Default::default(),
            consumer: Consumer::Begin,
            heartbeat: if setup.alarm { Heartbeat::Gate } else { Heartbeat::Done },
            killed: false,
            found: 0,
            waits: 0,
            first_exit: None,
            last_exit: None,
            graced: false,
            ended: false,
        };
        Session { setup, state }
    }

    fn fire(&mut self, party: usize) -> Result<Step, String> {
        let (setup, s) = (self.setup, &mut self.state);
        let exits = setup.firings[party][usize::from(s.parties[party].fired)];
        let active = Activity::of(s.word) == Activity::Active;
        let at = s.parties[party].at;
        let mut over = false;
        let step = match at {
            At::Gate | At::Regate => {
                let skips = setup.mutation == Mutation::NoGate && at == At::Gate
                    || setup.mutation == Mutation::NoSecondGate && at == At::Regate;
                over = !active && !skips;
                let next = if at == At::Gate { At::First } else { At::Second };
                s.parties[party].at = next;
                let why = match (over, at) {
                    (false, _) => 0,
                    (_, At::Regate) => seen::CUT_SHORT,
                    _ if Activity::of(s.word) == Activity::Warmup => seen::TOO_EARLY,
                    _ => seen::TOO_LATE,
                };
                Step::seeing("load the activity", why)
            }
            At::First | At::Second => {
                s.record("a probe")?;
                if at == At::Second && exits.is_some() {
                    return Err("a clause ran after exit()".into());
                }
                over = at == At::Second;
                s.parties[party].at = if exits.is_some() { At::Exit } else { At::Second };
                Step::of("record")
            }
            At::Exit => {
                let attempt = s.parties[party].attempt;
                let (done, step) = s.exit(attempt, exits.unwrap_or(0), setup.mutation);
                s.parties[party].attempt += 1;
                if done {
                    s.parties[party].at = At::Regate;
                }
                step
            }
        };
        if over {
            let fired = s.parties[party].fired + 1;
            s.parties[party] = Party { fired, ..Party::default() };
            s.waits &= !(1 << party);
        }
        Ok(step)
    }

    fn beat(&mut self) -> Step {
        let s = &mut self.state;
        let active = s.word == activity_word(Activity::Active, 0);
        if s.heartbeat == Heartbeat::Gate {
            s.heartbeat = if active { Heartbeat::Kill } else { Heartbeat::Done };
            return Step::of("the heartbeat loads the activity");
        }
        s.heartbeat = Heartbeat::Done;
        if active || self.setup.mutation == Mutation::PlainKill {
            s.word = activity_word(Activity::Killed, 0);
            s.killed = true;
            return Step::seeing("the heartbeat kills", seen::KILLED);
        }
        Step::seeing("the heartbeat finds another state", seen::KILL_LOST)
    }

    fn consume(&mut self) -> Result<Step, String> {
        let (setup, s) = (self.setup, &mut self.state);
        let (next, step) = match s.consumer {
            Consumer::Begin => {
                s.record("BEGIN")?;
                let next =
                    if setup.begin_exit.is_some() { Consumer::BeginExit(0) } else { Consumer::BeginSecond };
                (next, Step::of("BEGIN records"))
            }
            Consumer::BeginExit(attempt) => {
                let (done, step) = s.exit(attempt, setup.begin_exit.unwrap_or(0), setup.mutation);
                let next = if done { Consumer::BeginGate } else { Consumer::BeginExit(attempt + 1) };
                (next, Step { seen: step.seen | seen::EXIT_IN_BEGIN, ..step })
            }
            Consumer::BeginGate => {
                let runs =
                    Activity::of(s.word) == Activity::Warmup || setup.mutation == Mutation::NoSecondGate;
                let next = if runs { Consumer::BeginSecond } else { Consumer::Activate };
                (next, Step::of("BEGIN loads the activity"))
            }
            Consumer::BeginSecond => {
                s.record("BEGIN")?;
                if setup.begin_exit.is_some() {
                    return Err("a clause ran after exit()".into());
                }
                (Consumer::Activate, Step::of("BEGIN records"))
            }
            Consumer::Activate if setup.mutation == Mutation::PlainActivation => {
                s.word = activity_word(Activity::Active, 0);
                (Consumer::Work, Step::of("store ACTIVE"))
            }
            Consumer::Activate => s.look(Activity::Active, Consumer::ActivateExchange, Consumer::Work),
            Consumer::ActivateExchange => {
                s.change(Activity::Active, false, Consumer::Activate, Consumer::Work)
            }
            Consumer::Work => (Consumer::Drain, Step::of("stop waiting")),
            Consumer::Drain
                if Activity::of(s.word) == Activity::Killed && setup.mutation != Mutation::NoGivingUp =>
            {
                (Consumer::Stop, Step::seeing("give up", seen::GIVEN_UP))
            }
            Consumer::Drain => s.look(Activity::Draining, Consumer::DrainExchange, Consumer::Grace),
            Consumer::DrainExchange => {
                let plain = setup.mutation == Mutation::PlainDraining;
                s.change(Activity::Draining, plain, Consumer::Drain, Consumer::Grace)
            }
            Consumer::Grace => {
                let firing = (0..).zip(&s.parties).filter(|(_, p)| p.at != At::Gate);
                s.waits = firing.fold(0, |waits, (i, _)| waits | 1 << i);
                let waited = if s.waits != 0 { seen::WAITED } else { 0 };
                if setup.mutation == Mutation::NoGrace {
                    s.waits = 0;
                }
                let early = setup.mutation == Mutation::EarlyEnd;
                (
                    if early { Consumer::EndGate } else { Consumer::Take },
                    Step::seeing("begin a grace period", waited),
                )
            }
            Consumer::Take => {
                s.graced = true;
                s.take();
                (Consumer::EndGate, Step::of("drain"))
            }
            Consumer::EndGate => {
                if Activity::of(s.word) != Activity::Draining {
                    return Err("END does not fire".into());
                }
                (Consumer::End, Step::of("END loads the activity"))
            }
            Consumer::End => {
                if s.records != 0 {
                    return Err("END runs with records of probes undrained".into());
                }
                s.ended = true;
                s.record("END")?;
                let next = if setup.end_exit.is_some() { Consumer::EndExit } else { Consumer::EndSecond };
                (next, Step::of("END records"))
            }
            Consumer::EndExit => {
                let status = setup.end_exit.unwrap_or(0);
                if setup.mutation != Mutation::EndExchanges {
                    s.word = activity_word(Activity::Draining, u32::from(status));
                }
                s.last_exit = Some(status);
                (Consumer::EndSecond, Step::seeing("exit() in END", seen::REPLACED))
            }
            Consumer::EndSecond => {
                s.record("END")?;
                (Consumer::LastTake, Step::of("END records"))
            }
            Consumer::LastTake => {
                s.take();
                (Consumer::Stop, Step::of("drain"))
            }
            Consumer::Stop => {
                s.word = s.word & !0xff | Activity::Stopped as u64;
                (Consumer::Done, Step::of("stop"))
            }
            Consumer::Done => return Err("done already".into()),
        };
        s.consumer = next;
        Ok(step)
    }
}

impl State {
    /// Adds a record of `who`, and checks that it is allowed now.
    fn record(&mut self, who: &str) -> Result<(), String> {
        let ours = matches!(who, "BEGIN" | "END");
        use Consumer::{Begin, BeginExit, BeginGate, BeginSecond};
        let begun = !matches!(self.consumer, Begin | BeginExit(_) | BeginGate | BeginSecond);
        if !ours && (!begun || self.graced || self.ended) {
            return Err(format!("{who} recorded outside of the session's time"));
        }
        self.records += 1;
        self.recorded += 1;
        Ok(())
    }

    fn take(&mut self) {
        self.drained += std::mem::take(&mut self.records);
    }

    /// `exit(status)`: an exchange from WARMUP, then one from ACTIVE; true when it is done.
    fn exit(&mut self, attempt: u8, status: u8, mutation: Mutation) -> (bool, Step) {
        let from = [Activity::Warmup, Activity::Active][usize::from(attempt.min(1))];
        let plain = mutation == Mutation::PlainExit;
        if self.word == activity_word(from, 0) || plain {
            self.word = activity_word(Activity::Draining, u32::from(status));
            self.first_exit.get_or_insert(status);
            return (true, Step::seeing("exit() wins", seen::EXIT_WON));
        }
        (
            attempt == 1,
            Step::seeing("exit() finds another state", if attempt == 1 { seen::EXIT_LOST } else { 0 }),
        )
    }

    /// The load of `become_state`.
    fn look(&mut self, to: Activity, change: Consumer, stay: Consumer) -> (Consumer, Step) {
        let may = Activity::of(self.word).may_become(to);
        self.found = if may { self.word } else { 0 };
        (if may { change } else { stay }, Step::of("load the activity"))
    }

    /// The exchange of `become_state`.
    fn change(&mut self, to: Activity, plain: bool, again: Consumer, done: Consumer) -> (Consumer, Step) {
        let found = std::mem::take(&mut self.found);
        if self.word != found && !plain {
            return (again, Step::seeing("lose the activity", seen::LOST_RACE));
        }
        self.word = found & !0xff | to as u64;
        (done, Step::of("exchange the activity"))
    }
}

impl World for Session {
    fn parties(&self) -> usize {
        self.setup.firings.len() + 2
    }

    fn level(&self, party: usize) -> Option<u8> {
        // The heartbeat interrupts every firing.
        (party != self.setup.firings.len()).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let s = &self.state;
        if party > self.setup.firings.len() {
            return match s.heartbeat {
                Heartbeat::Gate => Phase::Idle,
                Heartbeat::Kill => Phase::Running,
                Heartbeat::Done => Phase::Finished,
            };
        }
        let Some(firings) = self.setup.firings.get(party) else {
            let active = Activity::of(s.word) == Activity::Active;
            return match s.consumer {
                Consumer::Done => Phase::Finished,
                Consumer::Work if !self.setup.interrupted && active => Phase::Waiting,
                Consumer::Take | Consumer::EndGate if s.waits != 0 => Phase::Waiting,
                _ => Phase::Running,
            };
        };
        let p = &s.parties[party];
        match p.at {
            At::Gate if usize::from(p.fired) == firings.len() => Phase::Finished,
            At::Gate => Phase::Idle,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        match party.cmp(&self.setup.firings.len()) {
            std::cmp::Ordering::Less => self.fire(party),
            std::cmp::Ordering::Equal => self.consume(),
            std::cmp::Ordering::Greater => Ok(self.beat()),
        }
    }

    fn end(&self) -> Result<u32, String> {
        let s = &self.state;
        if s.killed {
            let clean = !s.ended && s.first_exit.is_none() && s.word == activity_word(Activity::Stopped, 0);
            return if clean { Ok(0) } else { Err("a session that ended was killed".into()) };
        }
        if s.drained != s.recorded || s.records != 0 {
            return Err(format!("recorded {}, drained {}", s.recorded, s.drained));
        }
        if Activity::of(s.word) != Activity::Stopped {
            return Err(format!("ends as {:?}", Activity::of(s.word)));
        }
        let status = exit_status(s.word);
        match s.last_exit {
            Some(of_end) if status != i32::from(of_end) => {
                Err(format!("status {status}, that of END was {of_end}"))?;
            }
            None if status != i32::from(s.first_exit.unwrap_or(0)) => {
                Err(format!("status {status}, the first was {:?}", s.first_exit))?;
            }
            _ => {}
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    /// Two parties exit with different statuses, one only records; the user interrupts at any time.
    const RACE: Setup = Setup {
        begin_exit: None,
        end_exit: None,
        firings: &[&[None, Some(3)], &[Some(4), None], &[None]],
        interrupted: true,
        alarm: false,
        mutation: Mutation::None,
    };

    /// A session that the heartbeat kills, while one party exits and the user interrupts.
    const ALARM: Setup = Setup { firings: &[&[None], &[Some(4), None]], alarm: true, ..RACE };

    fn both(setup: Setup) -> u32 {
        holds(Session::new(setup), Schedule::Nested).seen
            | holds(Session::new(setup), Schedule::Preempted).seen
    }

    fn breaks(setup: Setup, mutation: Mutation, words: &str) {
        caught(Session::new(Setup { mutation, ..setup }), Schedule::Preempted, words);
    }

    #[test]
    fn a_session_ends_once_and_loses_nothing() {
        let all = seen::EXIT_WON | seen::EXIT_LOST | seen::TOO_EARLY | seen::TOO_LATE | seen::CUT_SHORT;
        let all = all | seen::WAITED | seen::LOST_RACE;
        assert_eq!(both(RACE) & all, all);
        let begin = both(Setup { begin_exit: Some(7), ..RACE });
        assert_eq!(begin & (seen::EXIT_IN_BEGIN | seen::WAITED), seen::EXIT_IN_BEGIN);
    }

    #[test]
    fn an_exit_in_end_replaces_the_status() {
        let end = Setup { end_exit: Some(9), ..RACE };
        assert_eq!(both(end) & seen::REPLACED, seen::REPLACED);
        breaks(end, Mutation::EndExchanges, "that of END was 9");
    }

    #[test]
    fn a_clause_of_begin_after_exit_is_caught() {
        let begin = Setup { begin_exit: Some(7), firings: &[&[None]], ..RACE };
        breaks(begin, Mutation::NoSecondGate, "a clause ran after exit()");
    }

    #[test]
    fn draining_without_a_grace_period_is_caught() {
        breaks(RACE, Mutation::NoGrace, "outside of the session's time");
    }

    #[test]
    fn activating_over_an_exit_is_caught() {
        let begin = Setup { begin_exit: Some(7), firings: &[&[None]], ..RACE };
        breaks(begin, Mutation::PlainActivation, "status 0, the first was Some(7)");
    }

    #[test]
    fn draining_over_an_exit_is_caught() {
        breaks(RACE, Mutation::PlainDraining, "status 0, the first was");
    }

    #[test]
    fn an_exit_that_stores_is_caught() {
        breaks(RACE, Mutation::PlainExit, "status");
    }

    #[test]
    fn a_program_without_the_activity_test_is_caught() {
        breaks(RACE, Mutation::NoGate, "outside of the session's time");
    }

    #[test]
    fn a_clause_after_exit_is_caught() {
        breaks(RACE, Mutation::NoSecondGate, "a clause ran after exit()");
    }

    #[test]
    fn running_end_before_the_drain_is_caught() {
        breaks(RACE, Mutation::EarlyEnd, "undrained");
    }

    #[test]
    fn a_session_is_either_killed_or_ended() {
        let all = seen::KILLED | seen::KILL_LOST | seen::GIVEN_UP | seen::EXIT_WON | seen::EXIT_LOST;
        assert_eq!(both(ALARM) & all, all);
        let begin = both(Setup { begin_exit: Some(7), ..ALARM });
        assert_eq!(begin & (seen::EXIT_IN_BEGIN | seen::KILLED), seen::EXIT_IN_BEGIN);
    }

    #[test]
    fn killing_over_an_exit_is_caught() {
        breaks(ALARM, Mutation::PlainKill, "a session that ended was killed");
    }

    #[test]
    fn ending_a_killed_session_is_caught() {
        breaks(ALARM, Mutation::NoGivingUp, "END does not fire");
    }
}
