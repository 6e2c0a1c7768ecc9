//! Rings: reserve, pad, commit, discard, the full rule and the doorbell of [`crate::ring`], against
//! a consumer.
//!
//! [`Writer`] performs the shared accesses of the emitted `reserve` and `commit` in their order.
//! [`Drainer`] performs those of [`crate::read`]. There, taking and zeroing a record are one step
//! each, because no other party may access a committed record. The explorer checks that at every
//! access: it keeps the owner of each word beside the memory. The real [`crate::read::RingReader`]
//! takes the remaining records from the same bytes at the end. The worlds are in `rings` (records
//! alone), `fill` (policy fill) and `firing` (with scratch slots).

use std::sync::atomic::AtomicU64;

use super::explore::Step;
use crate::control::{CONSUMED, PERCPU_STRIDE, PerCpu, RESERVE, RUNG};
use crate::read::RingReader;
use crate::ring::{PAD, flags, origin, read_stamp, stamp};

/// Words of the largest ring here; the smallest real one has 512.
pub(super) const WORDS: usize = 16;
/// Words of a header.
const HEADER: usize = 3;
/// Lost exchanges after which a reservation is dropped; 8 in programs.
const TRIES: u8 = 2;

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const FULL: u32 = 1;
    pub(in super::super) const PADDED: u32 = 2;
    pub(in super::super) const LOST_RACE: u32 = 4;
    pub(in super::super) const OUT_OF_TRIES: u32 = 8;
    pub(in super::super) const GAP: u32 = 16;
    pub(in super::super) const RUNG: u32 = 32;
    pub(in super::super) const DISCARDED: u32 = 64;
    pub(in super::super) const PASSED: u32 = 128;
    pub(in super::super) const CLOSED: u32 = 256;
    pub(in super::super) const LOST_CLOSE: u32 = 512;
}

/// An injected fault, which the explorer must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// Reserves by load and store.
    PlainReserve,
    /// Commits before the data is written.
    CommitFirst,
    /// Does not check the consumed position.
    NoFullRule,
    /// Writes no pad before the end of the ring.
    NoPad,
    /// Leaves a record of a clause that faulted uncommitted.
    NoDiscard,
    /// Does not count a drop.
    Uncounted,
    /// The commit word is the length alone, and the consumer zeroes nothing.
    NoStamp,
    /// The consumer returns the space of records before it has read them.
    GivesBackFirst,
    /// The consumer resets the doorbell after it has read the reserve position.
    SilencesLate,
    /// Policy fill: a full ring is not closed.
    NoClose,
    /// Policy fill: closes by a store.
    PlainClose,
    /// Policy fill: writes no pad behind the last record.
    NoClosingPad,
    /// Policy fill: counts the drop and does not end tracing.
    NoStop,
    /// Policy fill: closes the ring with the bytes that are kept for `exit()`.
    ClosesAll,
}

/// A ring and its words in the control element. Programs do not read `owner` and the masks; they
/// are for the explorer.
#[derive(Clone, Hash)]
pub(super) struct Ring {
    pub(super) reserve: u64,
    pub(super) consumed: u64,
    pub(super) rung: u64,
    pub(super) drops: u64,
    words: [u64; WORDS],
    /// The id of the record for which each word is reserved; 0 for none.
    owner: [u8; WORDS],
    committed: u32,
    delivered: u32,
    pub(super) discarded: u32,
    /// Policy fill: a record did not fit, and tracing has ended.
    pub(super) refused: bool,
    pub(super) stopped: bool,
    /// Policy fill: the bytes that only records with `exit()` may use.
    pub(super) kept_for_exit: u64,
    /// Such records.
    pub(super) exits: u8,
}

impl Ring {
    pub(super) fn new(start: u64) -> Ring {
        Ring {
            reserve: start,
            consumed: start,
            rung: 0,
            drops: 0,
            words: [0; WORDS],
            owner: [0; WORDS],
            committed: 0,
            delivered: 0,
            discarded: 0,
            refused: false,
            stopped: false,
            kept_for_exit: 0,
            exits: 0,
        }
    }

    fn place(size: u64, position: u64) -> usize {
        ((position & (size - 1)) / 8) as usize
    }

    /// Records a reservation and checks that no other party has the words.
    fn own(&mut self, size: u64, from: u64, to: u64, id: u8) -> Result<(), String> {
        for position in (from..to).step_by(8) {
            let at = Ring::place(size, position);
            if self.owner[at] != 0 {
                return Err(format!("record {id} reserved a word of record {}", self.owner[at]));
            }
            self.owner[at] = id;
        }
        Ok(())
    }

    /// A store into an open record.
    fn write(&mut self, at: usize, id: u8, value: u64) -> Result<(), String> {
        if self.owner[at] != id || self.committed & 1 << id != 0 {
            return Err(format!("record {id} wrote a word that is not its own"));
        }
        self.words[at] = value;
        Ok(())
    }

    /// Checks a record that the consumer has read: it is whole, and read for the first time.
    fn deliver(&mut self, id: u64, record: (u64, u64, &[u64]), length: u64) -> Result<u32, String> {
        let (time, origin_word, data) = record;
        let bit = 1u32.checked_shl(id as u32).filter(|_| id != 0).ok_or("a record that nobody wrote")?;
        if self.committed & bit == 0 {
            return Err(format!("record {id} was read before it was committed"));
        }
        if self.delivered & bit != 0 {
            return Err(format!("record {id} was delivered twice"));
        }
        let flagged = (origin_word >> 48) as u16 & flags::DISCARD != 0;
        let whole = flagged || data.iter().all(|w| *w == id);
        let fits = length == 8 * (HEADER + data.len()) as u64;
        if time != id || origin_word as u32 != id as u32 || !whole || !fits {
            return Err(format!("record {id} is torn"));
        }
        if flagged != (self.discarded & bit != 0) {
            return Err(format!("record {id}: discarded or not?"));
        }
        self.delivered |= bit;
        Ok(if flagged { seen::DISCARDED } else { 0 })
    }

    /// The end: takes the remaining records with the real reader and checks the total. `fired`: the
    /// number of records that were to be written.
    pub(super) fn end(&self, size: u64, fired: u64) -> Result<u32, String> {
        let mut ring = self.clone();
        let memory: Vec<AtomicU64> =
            self.words.iter().take(size as usize / 8).map(|w| AtomicU64::new(*w)).collect();
        let control: Vec<AtomicU64> = (0..PERCPU_STRIDE / 8).map(|_| AtomicU64::new(0)).collect();
        let percpu = PerCpu::new(&control, 1).ok_or("no control element")?;
        let order = std::sync::atomic::Ordering::Relaxed;
        percpu.word(0, RESERVE).store(self.reserve, order);
        percpu.word(0, CONSUMED).store(self.consumed, order);
        percpu.word(0, RUNG).store(self.rung, order);
        let batch = RingReader::default().drain(&memory, size as u32, percpu, 0, None);
        let mut seen = 0;
        for (r, data) in batch.iter() {
            let words: Vec<u64> =
                data.chunks_exact(8).filter_map(|c| Some(u64::from_le_bytes(c.try_into().ok()?))).collect();
            let length = 8 * (HEADER + words.len()) as u64;
            let origin = origin(r.epid, r.cpu, r.flags);
            seen |= ring.deliver(r.time, (r.time, origin, &words), length)?;
        }
        if percpu.word(0, CONSUMED).load(order) != self.reserve {
            return Err("a record is lost: the last drain stopped before the end".into());
        }
        if memory.iter().any(|w| w.load(order) != 0) {
            return Err("the drained ring is not zero".into());
        }
        if u64::from(ring.delivered.count_ones()) + self.drops != fired {
            return Err(format!(
                "fired {fired}, delivered {}, dropped {}",
                ring.delivered.count_ones(),
                self.drops
            ));
        }
        Ok(seen)
    }
}

/// A clause that records: its record and its progress.
#[derive(Clone, Hash)]
pub(super) struct Writer {
    at: At,
    id: u8,
    /// Words of the record, header included.
    length: u8,
    position: u64,
    start: u64,
    over_half: bool,
    tries: u8,
    /// Policy fill.
    fills: bool,
    /// The bytes of the ring that are kept for others.
    kept: u64,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum At {
    Position,
    Consumed,
    Close,
    ClosingPad,
    Stop,
    Drop,
    Exchange,
    Pad,
    Time,
    Origin,
    Rung,
    Ring,
    Open,
}

/// The result of a writer's step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Call again.
    On,
    /// The record is reserved and has its header: write the data, then commit.
    Reserved,
    /// Counted as dropped.
    Dropped,
}

impl Writer {
    pub(super) fn new(id: u8, length: u8) -> Writer {
        let (at, tries) = (At::Position, TRIES);
        Writer { at, id, length, position: 0, start: 0, over_half: false, tries, fills: false, kept: 0 }
    }

    /// True if its drop is that of a reservation that was lost too often.
    pub(super) fn is_out_of_tries(&self) -> bool {
        self.tries == 0
    }

    /// A writer by policy fill.
    pub(super) fn filling(id: u8, length: u8, kept: u64) -> Writer {
        Writer { fills: true, kept, ..Writer::new(id, length) }
    }

    /// The next access of `reserve`.
    pub(super) fn reserve(
        &mut self,
        ring: &mut Ring,
        size: u64,
        mutation: Mutation,
    ) -> Result<(Outcome, Step), String> {
        let mut outcome = Outcome::On;
        let step = match self.at {
            At::Position => {
                self.position = ring.reserve;
                self.at = At::Consumed;
                Step::of("load the reserve position")
            }
            At::Consumed => {
                let bytes = 8 * u64::from(self.length);
                let offset = self.position & (size - 1);
                let tight = offset > size - bytes;
                self.start = self.position + if tight { size - offset } else { 0 };
                let used = (self.start + bytes).wrapping_sub(ring.consumed) as i64;
                self.over_half = used > size as i64 / 2 && !self.fills;
                let most = size - self.kept;
                let full = used > most as i64 && mutation != Mutation::NoFullRule;
                if full && ring.consumed == self.position && ring.reserve == self.position {
                    return Err(format!("an empty ring refused record {}", self.id));
                }
                self.at = match (full, self.fills) {
                    (false, _) => At::Exchange,
                    (true, false) => At::Drop,
                    (true, true) if self.position < most && mutation != Mutation::NoClose => At::Close,
                    (true, true) => At::Stop,
                };
                let passed = if used < 0 { seen::PASSED } else { 0 };
                Step::seeing("load the consumed position", passed | if full { seen::FULL } else { 0 })
            }
            At::Close => {
                if ring.reserve != self.position && mutation != Mutation::PlainClose {
                    return Ok((outcome, self.lose(seen::LOST_CLOSE)));
                }
                let most = if mutation == Mutation::ClosesAll { size } else { size - self.kept };
                ring.own(size, self.position, most, self.id)?;
                ring.reserve = most;
                self.at = if mutation == Mutation::NoClosingPad { At::Stop } else { At::ClosingPad };
                Step::seeing("close the ring", seen::CLOSED)
            }
            At::ClosingPad => {
                let most = if mutation == Mutation::ClosesAll { size } else { size - self.kept };
                let word = stamp(self.position, (most - self.position) as u32) | PAD;
                ring.write(Ring::place(size, self.position), self.id, word)?;
                self.at = At::Stop;
                Step::of("write the pad behind the last record")
            }
            At::Stop => {
                ring.refused = true;
                ring.stopped |= mutation != Mutation::NoStop;
                self.at = At::Drop;
                Step::of("end tracing")
            }
            At::Drop => {
                ring.drops += u64::from(mutation != Mutation::Uncounted);
                outcome = Outcome::Dropped;
                Step::of("count a drop")
            }
            At::Exchange => {
                let end = self.start + 8 * u64::from(self.length);
                if ring.reserve != self.position && mutation != Mutation::PlainReserve {
                    return Ok((outcome, self.lose(seen::LOST_RACE)));
                }
                if ring.refused && end <= size - ring.kept_for_exit {
                    return Err(format!("record {} was recorded after one that did not fit", self.id));
                }
                ring.own(size, self.position, end, self.id)?;
                ring.reserve = end;
                ring.exits += u8::from(self.kept < ring.kept_for_exit);
                let padded = self.start != self.position && mutation != Mutation::NoPad;
                self.at = if padded { At::Pad } else { At::Time };
                Step::of("exchange the reserve position")
            }
            At::Pad => {
                let rest = (self.start - self.position) as u32;
                let at = Ring::place(size, self.position);
                ring.write(at, self.id, stamp(self.position, rest) | PAD)?;
                self.at = At::Time;
                Step::seeing("write the pad", seen::PADDED)
            }
            At::Time => {
                ring.write(Ring::place(size, self.start) + 1, self.id, u64::from(self.id))?;
                self.at = At::Origin;
                Step::of("write the time")
            }
            At::Origin => {
                let word = origin(u32::from(self.id), 0, 0);
                ring.write(Ring::place(size, self.start) + 2, self.id, word)?;
                self.at = if self.over_half { At::Rung } else { At::Open };
                Step::of("write the origin")
            }
            At::Rung => {
                self.at = if ring.rung == 0 { At::Ring } else { At::Open };
                Step::of("load rung")
            }
            At::Ring => {
                // Rings the doorbell if its exchange succeeded. The consumer wakes some time later,
                // and nothing waits for that.
                ring.rung = 1;
                self.at = At::Open;
                Step::seeing("exchange rung", seen::RUNG)
            }
            At::Open => return Err("reserved already".into()),
        };
        if self.at == At::Open {
            outcome = Outcome::Reserved;
        }
        Ok((outcome, step))
    }

    fn lose(&mut self, seen: u32) -> Step {
        self.tries -= 1;
        self.at = if self.tries == 0 { At::Drop } else { At::Position };
        let out = if self.tries == 0 { seen::OUT_OF_TRIES } else { 0 };
        Step::seeing("lose the reserve position", seen | out)
    }

    /// Writes data word `i`.
    pub(super) fn data(&self, ring: &mut Ring, size: u64, i: u8, value: u64) -> Result<(), String> {
        ring.write(Ring::place(size, self.start) + HEADER + usize::from(i), self.id, value)
    }

    /// The number of data words.
    pub(super) fn data_words(&self) -> u8 {
        self.length - HEADER as u8
    }

    /// Sets the flag of a discarded record.
    pub(super) fn flag(&self, ring: &mut Ring, size: u64) -> Result<(), String> {
        ring.discarded |= 1 << self.id;
        let word = origin(u32::from(self.id), 0, flags::DISCARD);
        ring.write(Ring::place(size, self.start) + 2, self.id, word)
    }

    /// The exchange that commits.
    pub(super) fn commit(&self, ring: &mut Ring, size: u64, mutation: Mutation) -> Result<(), String> {
        let length = 8 * u32::from(self.length);
        let word = if mutation == Mutation::NoStamp { stamp(0, length) } else { stamp(self.start, length) };
        ring.write(Ring::place(size, self.start), self.id, word)?;
        // For the mutation that commits too early, later writes are still allowed.
        if mutation != Mutation::CommitFirst {
            ring.committed |= 1 << self.id;
        }
        Ok(())
    }
}

/// The consumer.
#[derive(Clone, Hash)]
pub(super) struct Drainer {
    at: DrainAt,
    left: u8,
    reserved: u64,
    position: u64,
    length: u64,
    /// The last drain stopped at an uncommitted record.
    pub(super) gap: bool,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum DrainAt {
    Start,
    Reserved,
    Silence,
    Commit,
    Take,
    Zero,
    Give,
}

impl Drainer {
    pub(super) fn new(drains: u8) -> Drainer {
        Drainer { at: DrainAt::Start, left: drains, reserved: 0, position: 0, length: 0, gap: false }
    }

    pub(super) fn finished(&self) -> bool {
        self.left == 0
    }

    /// The next access of a drain.
    pub(super) fn step(&mut self, ring: &mut Ring, size: u64, mutation: Mutation) -> Result<Step, String> {
        let late = mutation == Mutation::SilencesLate;
        Ok(match self.at {
            DrainAt::Start => {
                self.position = ring.consumed;
                self.gap = false;
                self.at = DrainAt::Reserved;
                if late {
                    return self.look(ring, DrainAt::Silence);
                }
                ring.rung = 0;
                Step::of("reset the doorbell")
            }
            DrainAt::Silence => {
                ring.rung = 0;
                self.at = DrainAt::Commit;
                Step::of("reset the doorbell")
            }
            DrainAt::Reserved => return self.look(ring, DrainAt::Commit),
            DrainAt::Commit if self.position >= self.reserved => self.give(ring, size),
            DrainAt::Commit => {
                let word = ring.words[Ring::place(size, self.position)];
                let position = if mutation == Mutation::NoStamp { 0 } else { self.position };
                match read_stamp(word, position) {
                    None => {
                        self.gap = true;
                        self.at = DrainAt::Give;
                        Step::seeing("find nothing committed", seen::GAP)
                    }
                    Some((length, pad)) => {
                        self.length = u64::from(length);
                        if mutation == Mutation::GivesBackFirst {
                            self.free(ring, size, self.position + self.length);
                        }
                        self.at = if pad { DrainAt::Zero } else { DrainAt::Take };
                        Step::of("find a commit word")
                    }
                }
            }
            DrainAt::Take => {
                let from = Ring::place(size, self.position);
                let to = from + self.length as usize / 8;
                if to > size as usize / 8 {
                    return Err("a record that goes beyond the ring".into());
                }
                let (words, owners) = (ring.words, ring.owner);
                let id = words[from + 1];
                if mutation != Mutation::GivesBackFirst
                    && owners[from..to].iter().any(|o| u64::from(*o) != id)
                {
                    return Err(format!("record {id} was read before it was committed, or is not one"));
                }
                if mutation == Mutation::CommitFirst && id < 32 {
                    ring.committed |= 1 << id;
                }
                let record = (id, words[from + 2], &words[from + HEADER..to]);
                let seen = ring.deliver(id, record, self.length)?;
                self.at = DrainAt::Zero;
                Step::seeing("take the record", seen)
            }
            DrainAt::Zero => {
                let from = Ring::place(size, self.position);
                if mutation != Mutation::NoStamp {
                    ring.words[from..from + self.length as usize / 8].fill(0);
                }
                self.position += self.length;
                self.length = 0;
                self.at = DrainAt::Commit;
                Step::of("zero what was taken")
            }
            DrainAt::Give => self.give(ring, size),
        })
    }

    fn look(&mut self, ring: &Ring, then: DrainAt) -> Result<Step, String> {
        self.reserved = ring.reserve;
        self.at = then;
        Ok(Step::of("load the reserve position"))
    }

    fn give(&mut self, ring: &mut Ring, size: u64) -> Step {
        self.free(ring, size, self.position);
        (self.reserved, self.position, self.at) = (0, 0, DrainAt::Start);
        self.left -= 1;
        Step::of("give back")
    }

    fn free(&self, ring: &mut Ring, size: u64, to: u64) {
        for position in (ring.consumed..to).step_by(8) {
            ring.owner[Ring::place(size, position)] = 0;
        }
        ring.consumed = to.max(ring.consumed);
    }
}
