//! The explorer: runs every order of steps that a schedule allows, depth first.
//!
//! A [`World`] is shared memory, the parties that work on it (small state machines with one access
//! to shared memory per step), and the properties that must hold. The explorer lets each party that
//! may run take one step on a copy of the world, and continues from there unless it has visited
//! that state before. A state is stored as a 128-bit fingerprint. Two different states have the
//! same fingerprint with a probability below 1e-25 in the largest run here.
//!
//! The result of a failed search is a [`Counterexample`]: the steps from the start to the
//! violation, in order.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Which parties may run between two steps of another party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// One CPU without preemption: a higher level interrupts a lower one at any step and runs to
    /// its end.
    Nested,
    /// Threads on one preemptible CPU, or CPUs that share memory: any party at any step.
    Preempted,
}

/// The progress of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between two firings, with another one to come.
    Idle,
    /// In a firing.
    Running,
    /// In a firing (or the consumer at work), waiting for another party.
    Waiting,
    /// Done.
    Finished,
}

/// A step: its description for counterexamples, and bits for the cases that occurred in it. Tests
/// use the bits to check that the interesting cases occurred.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) did: &'static str,
    pub(super) seen: u32,
}

impl Step {
    pub(super) const fn of(did: &'static str) -> Step {
        Step { did, seen: 0 }
    }

    pub(super) const fn seeing(did: &'static str, seen: u32) -> Step {
        Step { did, seen }
    }
}

/// Shared memory, parties, and properties.
pub(super) trait World: Clone + Hash {
    /// Number of parties.
    fn parties(&self) -> usize;
    /// The context level at which a party fires; `None` for the consumer, which is on another CPU.
    fn level(&self, party: usize) -> Option<u8>;
    /// The progress of a party.
    fn phase(&self, party: usize) -> Phase;
    /// Takes the next step of a party; an error is a violation.
    fn step(&mut self, party: usize) -> Result<Step, String>;
    /// Checks the properties at the end, when all parties are finished.
    fn end(&self) -> Result<u32, String>;
}

/// The extent of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// Number of different states.
    pub(super) states: usize,
    /// Number of final states.
    pub(super) ends: usize,
    /// The union of [`Step::seen`].
    pub(super) seen: u32,
}

/// The steps to a violation.
#[derive(Debug)]
pub(super) struct Counterexample {
    steps: Vec<(usize, &'static str)>,
    pub(super) what: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (party, did) in &self.steps {
            writeln!(f, "  {party}: {did}")?;
        }
        write!(f, "{}", self.what)
    }
}

/// Maximum number of states of a world.
const MOST: usize = 3_000_000;

/// A world on the path that is explored.
struct Place<W> {
    world: W,
    /// The next party to try.
    next: usize,
    /// The step that led here.
    by: (usize, &'static str),
}

/// Runs every order of steps.
pub(super) fn explore<W: World>(world: W, schedule: Schedule) -> Result<Report, Counterexample> {
    let mut known: HashSet<u128, BuildHasherDefault<Folded>> = HashSet::default();
    known.insert(fingerprint(&world));
    let mut report = Report { states: 1, ends: 0, seen: 0 };
    let mut way = vec![Place { world, next: 0, by: (0, "") }];
    let violation = |way: &[Place<W>], last: Option<(usize, &'static str)>, what: String| Counterexample {
        steps: way.iter().skip(1).map(|p| p.by).chain(last).collect(),
        what,
    };
    while let Some(place) = way.last_mut() {
        let party = place.next;
        place.next += 1;
        if party == place.world.parties() {
            way.pop();
            continue;
        }
        if !may_run(&place.world, party, schedule) {
            continue;
        }
        let mut world = place.world.clone();
        let step = match world.step(party) {
            Ok(step) => step,
            Err(what) => return Err(violation(&way, Some((party, "violation")), what)),
        };
        report.seen |= step.seen;
        if !known.insert(fingerprint(&world)) {
            continue;
        }
        report.states += 1;
        let stuck = (0..world.parties()).all(|p| !may_run(&world, p, schedule));
        way.push(Place { world, next: 0, by: (party, step.did) });
        if report.states > MOST {
            return Err(violation(&way, None, format!("more than {MOST} states")));
        }
        if let Some(at) = way.last().filter(|_| stuck) {
            let all_done = (0..at.world.parties()).all(|p| at.world.phase(p) == Phase::Finished);
            let end = if all_done { at.world.end() } else { Err("nobody can go on".into()) };
            match end {
                Ok(seen) => report.seen |= seen,
                Err(what) => return Err(violation(&way, None, what)),
            }
            report.ends += 1;
        }
    }
    Ok(report)
}

fn may_run<W: World>(world: &W, party: usize, schedule: Schedule) -> bool {
    let phase = world.phase(party);
    if matches!(phase, Phase::Finished | Phase::Waiting) {
        return false;
    }
    let (Schedule::Nested, Some(level)) = (schedule, world.level(party)) else { return true };
    let in_firing = |p: usize| matches!(world.phase(p), Phase::Running | Phase::Waiting);
    (0..world.parties()).filter(|p| *p != party && in_firing(*p)).filter_map(|p| world.level(p)).all(
        // Running levels differ, so the highest one interrupted last.
        |other| other < level,
    )
}

/// Two 64-bit lanes, each word multiplied to 128 bits and folded.
#[derive(Clone, Copy, Default)]
struct Lanes {
    a: u64,
    b: u64,
}

fn fold(x: u64, y: u64) -> u64 {
    let wide = u128::from(x) * u128::from(y);
    wide as u64 ^ (wide >> 64) as u64
}

impl Hasher for Lanes {
    fn write_u64(&mut self, x: u64) {
        self.a = fold(self.a ^ x, 0x9e37_79b9_7f4a_7c15).wrapping_add(0x2545_f491_4f6c_dd1d);
        self.b = fold(self.b.rotate_left(23) ^ x, 0xd6e8_feb8_6659_fd93).wrapping_add(self.a);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn finish(&self) -> u64 {
        self.a
    }
}

fn fingerprint(world: &impl Hash) -> u128 {
    let mut lanes = Lanes { a: 0x243f_6a88_85a3_08d3, b: 0x1319_8a2e_0370_7344 };
    world.hash(&mut lanes);
    u128::from(lanes.a) << 64 | u128::from(lanes.b)
}

/// A fingerprint needs no further hashing.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let mut lanes = Lanes::default();
        lanes.write(bytes);
        self.0 = lanes.a;
    }

    fn write_u128(&mut self, x: u128) {
        self.0 = x as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Explores a world whose properties must hold.
#[cfg(test)]
#[track_caller]
pub(super) fn holds<W: World>(world: W, schedule: Schedule) -> Report {
    match explore(world, schedule) {
        Ok(report) => {
            println!("{schedule:?}: {} states, {} ends", report.states, report.ends);
            report
        }
        Err(violation) => panic!("{schedule:?}:\n{violation}"),
    }
}

/// Explores a mutated world. The explorer must find a violation whose text contains `words`.
#[cfg(test)]
#[track_caller]
pub(super) fn caught<W: World>(world: W, schedule: Schedule, words: &str) {
    match explore(world, schedule) {
        Ok(report) => panic!("{schedule:?}: nothing found in {} states", report.states),
        Err(violation) => {
            assert!(violation.what.contains(words), "{schedule:?}: found something else:\n{violation}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each party adds to a word by load and store.
    #[derive(Clone, Hash)]
    struct Adders {
        word: u64,
        at: [(u8, u64); 3],
        levels: [u8; 3],
    }

    impl World for Adders {
        fn parties(&self) -> usize {
            3
        }

        fn level(&self, party: usize) -> Option<u8> {
            Some(self.levels[party])
        }

        fn phase(&self, party: usize) -> Phase {
            [Phase::Idle, Phase::Running, Phase::Finished][usize::from(self.at[party].0)]
        }

        fn step(&mut self, party: usize) -> Result<Step, String> {
            let (at, found) = &mut self.at[party];
            match at {
                0 => *found = self.word,
                _ => self.word = std::mem::take(found) + 1,
            }
            *at += 1;
            Ok(Step::of("step"))
        }

        fn end(&self) -> Result<u32, String> {
            Ok(1 << self.word)
        }
    }

    #[test]
    fn every_allowed_order_is_run_and_no_other() {
        // Three increments of two steps: the sum can be 1, 2 or 3 if any party runs at any time.
        let world = Adders { word: 0, at: [(0, 0); 3], levels: [0, 1, 2] };
        assert_eq!(holds(world.clone(), Schedule::Preempted).seen, 0b1110);
        // Nested, the addition of an interrupt between a load and its store is lost.
        assert_eq!(holds(world, Schedule::Nested).seen, 0b1110);
        // Parties of one level do not interrupt each other.
        let equal = Adders { word: 0, at: [(0, 0); 3], levels: [1; 3] };
        assert_eq!(holds(equal, Schedule::Nested).seen, 0b1000);
    }

    #[test]
    fn a_party_that_waits_forever_is_a_violation() {
        #[derive(Clone, Hash)]
        struct Waiter(bool);
        impl World for Waiter {
            fn parties(&self) -> usize {
                1
            }
            fn level(&self, _: usize) -> Option<u8> {
                None
            }
            fn phase(&self, _: usize) -> Phase {
                if self.0 { Phase::Waiting } else { Phase::Idle }
            }
            fn step(&mut self, _: usize) -> Result<Step, String> {
                self.0 = true;
                Ok(Step::of("waits"))
            }
            fn end(&self) -> Result<u32, String> {
                Ok(0)
            }
        }
        caught(Waiter(false), Schedule::Preempted, "nobody can go on");
    }
}
