//! Sites of the probe table: arrival, removal and reuse of a row ([`crate::probe_table`]).
//!
//! ```text
//!  session    site 1: members · link · generation · …  generation 0 · close · grace period · drain · ids and row free
//!             site 2, in the same row: the same
//!  firings    through a link that is open: take its cookie · (a delay of any length) · begin · compare the
//!             generations · read the members · commit a record
//! ```
//!
//! The properties: a record that a firing of a site commits has the enabled-probe id of that site;
//! when a record is drained, its id has a name. A grace period waits for the programs that run when
//! it begins, and not for firings that have not begun.

use super::explore::{Phase, Step, World};

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const RECORDED: u32 = 1;
    pub(in super::super) const LATE: u32 = 2;
    pub(in super::super) const EARLY: u32 = 4;
    pub(in super::super) const WAITED: u32 = 8;
    pub(in super::super) const REUSED: u32 = 16;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutation {
    None,
    /// The row is written again without a grace period.
    NoGrace,
    /// The program does not compare the generations.
    NoComparison,
    /// The generation is written before the members.
    GenerationFirst,
    /// The ids are freed before the drain.
    NoDrain,
    /// The row's next site has the same generation.
    SameGeneration,
}

/// Firings of each party.
const FIRINGS: u8 = 2;
/// Sites that use the row, one after the other.
const SITES: u8 = 2;

#[derive(Clone, Hash)]
pub(super) struct Table {
    mutation: Mutation,
    /// The row.
    generation: u8,
    epid: u8,
    /// The site whose link is open, or 0.
    link: u8,
    /// Ids that have a name, by site.
    named: [bool; SITES as usize + 1],
    /// Records that are not drained: the site that fired, and the id.
    records: Vec<(u8, u8)>,
    parties: [Party; 2],
    session: Session,
}

#[derive(Clone, Hash, Default)]
struct Party {
    fired: u8,
    at: At,
    /// The site whose cookie the firing has.
    site: u8,
    read: u8,
}

#[derive(Clone, Copy, Hash, Default, PartialEq, Eq)]
enum At {
    #[default]
    Outside,
    Delayed,
    Compare,
    Read,
    Commit,
}

#[derive(Clone, Hash)]
struct Session {
    /// The current site.
    site: u8,
    step: SessionStep,
    /// Programs that the grace period waits for.
    waits: [bool; 2],
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum SessionStep {
    Members,
    Link,
    Generation,
    Late,
    Withdraw,
    Close,
    Begin,
    Grace,
    Drain,
    Free,
    End,
}

impl Table {
    pub(super) fn new(mutation: Mutation) -> Table {
        Table {
            mutation,
            generation: 0,
            epid: 0,
            link: 0,
            named: [false; SITES as usize + 1],
            records: Vec::new(),
            parties: Default::default(),
            session: Session { site: 1, step: SessionStep::Members, waits: [false; 2] },
        }
    }

    fn generation_of(&self, site: u8) -> u8 {
        if self.mutation == Mutation::SameGeneration { 1 } else { site }
    }

    fn fire(&mut self, party: usize) -> Step {
        let current = self.parties[party].site;
        let (generation, compares) = (self.generation_of(current), self.mutation != Mutation::NoComparison);
        let p = &mut self.parties[party];
        match p.at {
            At::Outside => {
                (p.site, p.at) = (self.link, At::Delayed);
                Step::of("fire: take the cookie")
            }
            At::Delayed => {
                p.at = At::Compare;
                Step::of("begin the program")
            }
            At::Compare if compares && self.generation != generation => {
                let late = if self.session.site > p.site { seen::LATE } else { 0 };
                let early = if self.session.step == SessionStep::Generation { seen::EARLY } else { 0 };
                *p = Party { fired: p.fired + 1, ..Party::default() };
                Step::seeing("find another generation", late | early)
            }
            At::Compare => {
                p.at = At::Read;
                Step::of("compare the generations")
            }
            At::Read => {
                (p.read, p.at) = (self.epid, At::Commit);
                Step::of("read the members")
            }
            At::Commit => {
                self.records.push((p.site, p.read));
                *p = Party { fired: p.fired + 1, ..Party::default() };
                Step::seeing("commit a record", seen::RECORDED)
            }
        }
    }

    fn drain(&mut self) -> Result<(), String> {
        for (site, epid) in std::mem::take(&mut self.records) {
            if epid != site {
                return Err(format!("a firing of site {site} is recorded for {epid}"));
            }
            if !self.named[usize::from(epid)] {
                return Err(format!("a record of site {site} has no name"));
            }
        }
        Ok(())
    }

    fn manage(&mut self) -> Result<Step, String> {
        use SessionStep::{Begin, Close, Drain, End, Free, Generation, Grace, Late, Link, Members, Withdraw};
        let site = self.session.site;
        let swapped = self.mutation == Mutation::GenerationFirst;
        let (next, step) = match self.session.step {
            Members => {
                self.named[usize::from(site)] = true;
                if !swapped {
                    self.epid = site;
                }
                (Link, Step::seeing("write the members", if site > 1 { seen::REUSED } else { 0 }))
            }
            Link => {
                self.link = site;
                (Generation, Step::of("attach the link"))
            }
            Generation => {
                self.generation = self.generation_of(site);
                (if swapped { Late } else { Withdraw }, Step::of("write the generation"))
            }
            Late => {
                self.epid = site;
                (Withdraw, Step::of("write the members late"))
            }
            Withdraw => {
                self.generation = 0;
                (Close, Step::of("write generation 0"))
            }
            Close => {
                self.link = 0;
                (Begin, Step::of("close the link"))
            }
            Begin => {
                let inside = |p: &Party| !matches!(p.at, At::Outside | At::Delayed);
                for (waits, p) in self.session.waits.iter_mut().zip(&self.parties) {
                    *waits = inside(p) && self.mutation != Mutation::NoGrace;
                }
                let waited = self.session.waits.contains(&true);
                (Grace, Step::seeing("begin a grace period", if waited { seen::WAITED } else { 0 }))
            }
            Grace => {
                if self.mutation == Mutation::NoDrain {
                    self.named[usize::from(site)] = false;
                }
                (Drain, Step::of("end the grace period"))
            }
            Drain => {
                self.drain()?;
                (Free, Step::of("drain"))
            }
            Free => {
                if self.mutation != Mutation::NoGrace {
                    self.named[usize::from(site)] = false;
                }
                self.session.site += 1;
                (if site < SITES { Members } else { End }, Step::of("free the row and the ids"))
            }
            End => return Err("the session is over".into()),
        };
        self.session.step = next;
        Ok(step)
    }
}

impl World for Table {
    fn parties(&self) -> usize {
        3
    }

    fn level(&self, party: usize) -> Option<u8> {
        (party < 2).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let over = self.session.step == SessionStep::End;
        match self.parties.get(party) {
            Some(p) if p.at != At::Outside => Phase::Running,
            Some(p) if p.fired == FIRINGS || over => Phase::Finished,
            Some(_) if self.link == 0 => Phase::Waiting,
            Some(_) => Phase::Idle,
            None if over => Phase::Finished,
            None if self.session.step == SessionStep::Grace && self.session.waits.contains(&true) => {
                Phase::Waiting
            }
            None => Phase::Idle,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        if party == 2 {
            return self.manage();
        }
        let step = self.fire(party);
        if self.parties[party].at == At::Outside {
            self.session.waits[party] = false;
        }
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        let mut last = self.clone();
        last.drain()?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    #[test]
    fn every_firing_is_recorded_for_its_own_site_or_not_at_all() {
        let all = seen::RECORDED | seen::LATE | seen::EARLY | seen::WAITED | seen::REUSED;
        assert_eq!(holds(Table::new(Mutation::None), Schedule::Preempted).seen, all);
    }

    #[test]
    fn a_row_that_is_reused_without_a_grace_period_is_found() {
        caught(Table::new(Mutation::NoGrace), Schedule::Preempted, "is recorded for");
    }

    #[test]
    fn a_program_that_does_not_compare_generations_is_found() {
        caught(Table::new(Mutation::NoComparison), Schedule::Preempted, "");
        caught(Table::new(Mutation::SameGeneration), Schedule::Preempted, "is recorded for");
    }

    #[test]
    fn a_generation_that_is_written_before_the_members_is_found() {
        caught(Table::new(Mutation::GenerationFirst), Schedule::Preempted, "is recorded for 0");
    }

    #[test]
    fn ids_that_are_freed_before_the_drain_are_found() {
        caught(Table::new(Mutation::NoDrain), Schedule::Preempted, "has no name");
    }
}
