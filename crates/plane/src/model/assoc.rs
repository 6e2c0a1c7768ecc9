//! Associative arrays: load, store and delete of [`crate::assoc`], over the kernel's preallocated
//! hash map.
//!
//! The map is modelled with all its hazards. A deleted element is reused by the next insert at
//! once, even if another party still has its address. An insert writes the value word by word, in
//! either direction, where holders of old addresses can see it. A bucket's lock makes others wait,
//! and an interrupt of the holder gets EBUSY. The property is stronger than whole values: every
//! load that is not counted as busy returns a value that its key had at some time during the load.

use super::explore::{Phase, Schedule, Step, World};
use crate::assoc::{GONE, LOCKED, TIME_SHIFT, WRITE};

/// Tries before an element counts as busy; 4 in programs.
const TRIES: u8 = 2;
/// Elements of the map.
const ELEMENTS: usize = 2;
/// Words of the data: two, so that torn values are detected.
const DATA: usize = 2;
const WORD: usize = 0;
const HASH: usize = 1;
const FIRST: usize = 2;
/// The first version where versions are not unique.
const FIRST_WORD: u64 = 16;

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const BUSY: u32 = 1;
    pub(in super::super) const EXISTS: u32 = 2;
    pub(in super::super) const OTHER_KEY: u32 = 4;
    pub(in super::super) const LOST_LOCK: u32 = 8;
    pub(in super::super) const BUCKET_BUSY: u32 = 16;
    pub(in super::super) const TORN_RETRY: u32 = 32;
    pub(in super::super) const REUSED: u32 = 64;
    pub(in super::super) const NO_MEMORY: u32 = 128;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutation {
    None,
    /// Every insert begins with the same version.
    SameWord,
    /// An insert is not locked while it is written.
    OpenInsert,
    /// An insert is only locked while it is written, as a write is.
    InsertLikeWrite,
    /// A load does not read the version again.
    NoSecondLook,
    /// A load does not compare the key's hash.
    NoHash,
    /// A store does not compare the key's hash.
    NoHashToLock,
    /// Locks by load and store.
    PlainLock,
    /// A delete does not lock.
    OpenDelete,
}

/// An action of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    Load(u8),
    /// A load of one word of data, which a lock does not keep out.
    LoadWord(u8),
    Store(u8, u8),
    Delete(u8),
}

#[derive(Clone, Hash)]
struct Element {
    /// Word, hash of the key, data.
    words: [u64; 2 + DATA],
    /// The key that the kernel wrote; known to the explorer, not to programs.
    key: u8,
    used_before: bool,
}

#[derive(Clone)]
pub(super) struct Arrays {
    script: &'static [&'static [Act]],
    schedule: Schedule,
    /// The kernel copies values backwards.
    backwards: bool,
    mutation: Mutation,
    state: State,
}

#[derive(Clone, Hash)]
struct State {
    elements: [Element; ELEMENTS],
    /// Key to element; the kernel's bucket.
    linked: [Option<u8>; 3],
    /// Free elements, the last freed on top.
    free: Vec<u8>,
    /// The holder of the bucket's lock.
    bucket: Option<u8>,
    clock: u64,
    drops: u64,
    /// The value of each key after the operations so far; 0 for none.
    current: [u8; 3],
    parties: [Party; 3],
}

#[derive(Clone, Hash, Default)]
struct Party {
    done: u8,
    at: At,
    element: u8,
    word: u64,
    data: [u64; DATA],
    i: u8,
    foreign: bool,
    tries: u8,
    /// The values that the key has had since the action began, as bits.
    had: u32,
}

#[derive(Clone, Copy, Hash, Default, PartialEq, Eq)]
enum At {
    #[default]
    Lookup,
    Word,
    Data,
    ReadHash,
    After,
    LockHash,
    Lock,
    Put,
    Unlock,
    Clock,
    Update,
    Copy,
    Link,
    LookupAgain,
    Publish,
    KernelDelete,
    Clear,
    Restore,
    Busy,
}

impl std::hash::Hash for Arrays {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

impl Arrays {
    /// Key 1 exists, with value 1.
    pub(super) fn new(script: &'static [&'static [Act]], schedule: Schedule, mutation: Mutation) -> Arrays {
        let element = Element { words: [0; 2 + DATA], key: 0, used_before: false };
        let word = if mutation == Mutation::SameWord { FIRST_WORD } else { 1 << TIME_SHIFT };
        let first = Element { words: [word, 1, 1, 1], key: 1, used_before: true };
        let state = State {
            elements: [first, element],
            linked: [None, Some(0), None],
            free: (1..ELEMENTS as u8).collect(),
            bucket: None,
            clock: 1,
            drops: 0,
            current: [0, 1, 0],
            parties: Default::default(),
        };
        Arrays { script, schedule, backwards: false, mutation, state }
    }

    fn act(&self, party: usize) -> Option<Act> {
        self.script.get(party)?.get(usize::from(self.state.parties[party].done)).copied()
    }
}

impl Act {
    fn key(self) -> u8 {
        match self {
            Act::Load(key) | Act::LoadWord(key) | Act::Store(key, _) | Act::Delete(key) => key,
        }
    }
}

/// Starts again, or counts the action as busy when the tries are used up.
fn retry(p: &mut Party) {
    p.tries += 1;
    p.at = if p.tries == TRIES { At::Busy } else { At::Lookup };
    (p.element, p.word, p.data, p.i, p.foreign) = (0, 0, [0; DATA], 0, false);
}

impl State {
    /// Sets the value of a key.
    fn becomes(&mut self, key: u8, value: u8) {
        self.current[usize::from(key)] = value;
        for p in self.parties.iter_mut().filter(|p| p.at != At::Lookup || p.tries > 0) {
            p.had |= 1 << (8 * u32::from(key) + u32::from(value));
        }
    }

    fn had(&self, party: usize, key: u8, value: u64) -> bool {
        value < 8 && self.parties[party].had & 1 << (8 * u32::from(key) + value as u32) != 0
    }

    /// Checks a store into an element: it must be the element of the party's key.
    fn mine(&self, party: usize, key: u8) -> Result<(), String> {
        let element = self.parties[party].element;
        if self.linked[usize::from(key)] == Some(element) {
            return Ok(());
        }
        Err(format!("{party} wrote an element that is not that of key {key}"))
    }
}

impl World for Arrays {
    fn parties(&self) -> usize {
        self.script.len()
    }

    fn level(&self, party: usize) -> Option<u8> {
        Some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let p = &self.state.parties[party];
        let Some(_) = self.act(party) else { return Phase::Finished };
        let wants_bucket = matches!(p.at, At::Update | At::KernelDelete);
        let held = self.state.bucket.is_some_and(|h| usize::from(h) != party);
        match p.at {
            At::Lookup if p.tries == 0 => Phase::Idle,
            _ if wants_bucket && held && self.schedule == Schedule::Preempted => Phase::Waiting,
            _ => Phase::Running,
        }
    }

    #[allow(clippy::too_many_lines)]
    fn step(&mut self, party: usize) -> Result<Step, String> {
        let Some(act) = self.act(party) else { return Err("nothing left to do".into()) };
        let (mutation, backwards) = (self.mutation, self.backwards);
        let key = act.key();
        let s = &mut self.state;
        let begins = s.parties[party].at == At::Lookup && s.parties[party].tries == 0;
        if begins {
            s.parties[party].had = 1 << (8 * u32::from(key) + u32::from(s.current[usize::from(key)]));
        }
        let e = usize::from(s.parties[party].element);
        let mut over = false;
        let step = match s.parties[party].at {
            At::Lookup => {
                let p = &mut s.parties[party];
                match s.linked[usize::from(key)] {
                    Some(element) => (p.element, p.at) = (element, At::Word),
                    None => match act {
                        Act::Store(..) => p.at = At::Clock,
                        Act::Load(_) | Act::LoadWord(_) if !s.had(party, key, 0) => {
                            return Err(format!("key {key} was there all the time and not found"));
                        }
                        _ => over = true,
                    },
                }
                Step::of("look up")
            }
            At::Word => {
                let word = s.elements[e].words[WORD];
                let had_none = s.had(party, key, 0);
                let p = &mut s.parties[party];
                p.word = word;
                let open = mutation == Mutation::OpenDelete && matches!(act, Act::Delete(_));
                match act {
                    Act::Load(_) | Act::LoadWord(_) if word & GONE != 0 && !had_none => {
                        return Err(format!("key {key} is there and was found gone"));
                    }
                    Act::Load(_) | Act::LoadWord(_) | Act::Delete(_) if word & GONE != 0 => over = true,
                    Act::LoadWord(_) => p.at = At::Data,
                    _ if word & LOCKED != 0 && !open => retry(p),
                    Act::Load(_) => p.at = At::Data,
                    _ if open => p.at = At::KernelDelete,
                    _ => p.at = At::LockHash,
                }
                Step::of("load the word")
            }
            At::Data => {
                let p = &mut s.parties[party];
                p.data[usize::from(p.i)] = s.elements[e].words[FIRST + usize::from(p.i)];
                p.i += 1;
                if let Act::LoadWord(_) = act {
                    p.data = [p.data[0]; DATA];
                    p.at = At::ReadHash;
                } else if usize::from(p.i) == DATA {
                    p.at = At::ReadHash;
                }
                Step::of("load data")
            }
            At::ReadHash => {
                let p = &mut s.parties[party];
                p.foreign = s.elements[e].words[HASH] != u64::from(key) && mutation != Mutation::NoHash;
                p.at = At::After;
                Step::of("load the hash")
            }
            At::After => {
                let after = s.elements[e].words[WORD];
                let p = &mut s.parties[party];
                let same = after == p.word || mutation == Mutation::NoSecondLook;
                if p.foreign || !same {
                    let saw = if p.foreign { seen::OTHER_KEY } else { seen::TORN_RETRY };
                    retry(p);
                    return Ok(Step::seeing("load the word again: changed", saw));
                }
                let [a, b] = p.data;
                if a != b || !s.had(party, key, a) {
                    return Err(format!("key {key}: loaded {a}, {b}, which it was not"));
                }
                over = true;
                Step::of("load the word again")
            }
            At::LockHash => {
                let p = &mut s.parties[party];
                let other = s.elements[e].words[HASH] != u64::from(key) && mutation != Mutation::NoHashToLock;
                if other {
                    retry(p)
                } else {
                    p.at = At::Lock
                }
                Step::seeing("load the hash", if other { seen::OTHER_KEY } else { 0 })
            }
            At::Lock => {
                let bits = if matches!(act, Act::Delete(_)) { LOCKED | GONE } else { LOCKED };
                let p = &mut s.parties[party];
                if s.elements[e].words[WORD] != p.word && mutation != Mutation::PlainLock {
                    retry(p);
                    return Ok(Step::seeing("lose the word", seen::LOST_LOCK));
                }
                s.elements[e].words[WORD] = p.word | bits;
                p.at = if matches!(act, Act::Delete(_)) { At::KernelDelete } else { At::Put };
                s.mine(party, key)?;
                if matches!(act, Act::Delete(_)) {
                    s.becomes(key, 0);
                }
                Step::of("lock")
            }
            At::Put => {
                s.mine(party, key)?;
                let Act::Store(_, value) = act else { return Err("put what?".into()) };
                let p = &mut s.parties[party];
                s.elements[e].words[FIRST + usize::from(p.i)] = u64::from(value);
                p.i += 1;
                if usize::from(p.i) == DATA {
                    p.at = At::Unlock;
                }
                // Loads of one word see it from here on.
                s.becomes(key, value);
                Step::of("write data")
            }
            At::Unlock => {
                let Act::Store(_, value) = act else { return Err("put what?".into()) };
                s.mine(party, key)?;
                s.elements[e].words[WORD] = s.parties[party].word + WRITE;
                s.becomes(key, value);
                over = true;
                Step::of("unlock")
            }
            At::Clock => {
                s.clock += 1;
                let word = if mutation == Mutation::SameWord { FIRST_WORD } else { s.clock << TIME_SHIFT };
                let p = &mut s.parties[party];
                (p.word, p.at) = (word, At::Update);
                Step::of("read the clock")
            }
            At::Update => {
                let p = &mut s.parties[party];
                if s.bucket.is_some() {
                    p.at = At::Busy;
                    return Ok(Step::seeing("bucket busy", seen::BUCKET_BUSY));
                }
                if s.linked[usize::from(key)].is_some() {
                    retry(p);
                    return Ok(Step::seeing("exists", seen::EXISTS));
                }
                let Some(element) = s.free.pop() else {
                    p.at = At::Busy;
                    return Ok(Step::seeing("no memory", seen::NO_MEMORY));
                };
                s.bucket = Some(party as u8);
                (p.element, p.at, p.i) = (element, At::Copy, 0);
                let new = &mut s.elements[usize::from(element)];
                new.key = key;
                let again = std::mem::replace(&mut new.used_before, true);
                Step::seeing("insert: take an element", if again { seen::REUSED } else { 0 })
            }
            At::Copy => {
                let Act::Store(_, value) = act else { return Err("copy what?".into()) };
                let lock = match mutation {
                    Mutation::OpenInsert => 0,
                    Mutation::InsertLikeWrite => LOCKED,
                    _ => LOCKED | GONE,
                };
                let p = &mut s.parties[party];
                let i = if backwards { 1 + DATA - usize::from(p.i) } else { usize::from(p.i) };
                s.elements[e].words[i] = match i {
                    WORD => p.word | lock,
                    HASH => u64::from(key),
                    _ => u64::from(value),
                };
                p.i += 1;
                if usize::from(p.i) == 2 + DATA {
                    p.at = At::Link;
                }
                Step::of("insert: copy a word")
            }
            At::Link => {
                s.linked[usize::from(key)] = Some(s.parties[party].element);
                s.bucket = None;
                s.parties[party].at = At::LookupAgain;
                let Act::Store(_, value) = act else { return Err("link what?".into()) };
                if mutation == Mutation::OpenInsert {
                    s.becomes(key, value);
                    over = true;
                }
                Step::of("insert: link")
            }
            At::LookupAgain => {
                match s.linked[usize::from(key)] {
                    Some(element) => {
                        let p = &mut s.parties[party];
                        (p.element, p.at) = (element, At::Publish);
                    }
                    None => return Err("what was just inserted is gone".into()),
                }
                Step::of("look up what was inserted")
            }
            At::Publish => {
                let Act::Store(_, value) = act else { return Err("publish what?".into()) };
                s.mine(party, key)?;
                s.elements[e].words[WORD] = s.parties[party].word;
                s.becomes(key, value);
                over = true;
                Step::of("publish")
            }
            At::KernelDelete => {
                if s.bucket.is_some() {
                    s.parties[party].at = At::Clear;
                    return Ok(Step::seeing("bucket busy", seen::BUCKET_BUSY));
                }
                if let Some(element) = s.linked[usize::from(key)].take() {
                    s.free.push(element);
                    s.becomes(key, 0);
                }
                over = true;
                Step::of("delete the element")
            }
            At::Clear => {
                s.mine(party, key)?;
                let p = &mut s.parties[party];
                s.elements[e].words[FIRST + usize::from(p.i)] = 0;
                p.i += 1;
                if usize::from(p.i) == DATA {
                    p.at = At::Restore;
                }
                Step::of("write zero")
            }
            At::Restore => {
                s.mine(party, key)?;
                s.elements[e].words[WORD] = s.parties[party].word + WRITE;
                over = true;
                Step::of("unlock")
            }
            At::Busy => {
                s.drops += 1;
                over = true;
                Step::seeing("count a dynamic drop", seen::BUSY)
            }
        };
        if over {
            let done = s.parties[party].done + 1;
            s.parties[party] = Party { done, ..Party::default() };
        }
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        let s = &self.state;
        for (key, current) in s.current.iter().enumerate() {
            let value = match s.linked[key] {
                None => 0,
                Some(e) => {
                    let words = s.elements[usize::from(e)].words;
                    if words[WORD] & (LOCKED | GONE) != 0 {
                        return Err(format!("key {key} stays locked"));
                    }
                    if words[HASH] != key as u64 || words[FIRST..].iter().any(|w| *w != words[FIRST]) {
                        return Err(format!("key {key} holds {words:?}"));
                    }
                    words[FIRST]
                }
            };
            if value != u64::from(*current) {
                return Err(format!("key {key} ends as {value}, not {current}"));
            }
        }
        if s.bucket.is_some() { Err("a bucket stays locked".into()) } else { Ok(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{caught, holds};
    use super::*;
    use Act::{Delete, Load, LoadWord, Store};

    type Script = &'static [&'static [Act]];

    /// The element of key 1 becomes that of key 2 under a writer and a reader of key 1.
    const REUSE: Script = &[&[Store(1, 2)], &[Delete(1), Store(2, 3)], &[Load(1), Load(2)]];
    /// A key is deleted and inserted again under a writer and a reader.
    const AGAIN: Script = &[&[Store(1, 2)], &[Delete(1), Store(1, 3)], &[Load(1), Load(1)]];
    /// Two parties insert one key.
    const MADE: Script = &[&[Store(2, 2), Load(2)], &[Store(2, 3)], &[Load(2)]];
    /// More keys than elements.
    const MANY: Script = &[&[Store(2, 2)], &[Store(0, 3)], &[Delete(1), Load(0)]];
    /// Two parties delete, one inserts.
    const TWICE: Script = &[&[Delete(1)], &[Delete(1), Store(1, 4)], &[Store(1, 5), Load(1)]];
    /// The same with loads of one word.
    const REUSE_WORD: Script = &[&[Store(1, 2)], &[Delete(1), Store(2, 3)], &[LoadWord(1), LoadWord(2)]];
    const AGAIN_WORD: Script = &[&[Store(1, 2)], &[Delete(1), Store(1, 3)], &[LoadWord(1), LoadWord(1)]];
    const MADE_WORD: Script = &[&[Store(2, 2), LoadWord(2)], &[Store(2, 3)], &[LoadWord(2)]];
    /// The element of key 1 becomes that of key 2, and then of key 1 again.
    const BACK: Script = &[&[Delete(1), Store(2, 3), Delete(2), Store(1, 4)], &[LoadWord(1)]];

    fn breaks(script: Script, mutation: Mutation, words: &str) {
        caught(Arrays::new(script, Schedule::Preempted, mutation), Schedule::Preempted, words);
    }

    #[test]
    fn every_load_returns_a_value_that_its_key_had() {
        let mut seen = [0; 2];
        for (i, schedule) in (0..).zip([Schedule::Nested, Schedule::Preempted]) {
            for script in [REUSE, AGAIN, MADE, MANY, TWICE, REUSE_WORD, AGAIN_WORD, MADE_WORD, BACK] {
                for backwards in [false, true] {
                    let mut world = Arrays::new(script, schedule, Mutation::None);
                    world.backwards = backwards;
                    let report: super::super::explore::Report = holds(world, schedule);
                    seen[i] |= report.seen;
                }
            }
        }
        let both = seen::BUSY | seen::EXISTS | seen::LOST_LOCK | seen::TORN_RETRY | seen::REUSED;
        let both = both | seen::OTHER_KEY | seen::NO_MEMORY;
        // Only an interrupt of the holder finds a bucket busy; others wait.
        assert_eq!(seen, [both | seen::BUCKET_BUSY, both]);
    }

    #[test]
    fn a_word_that_is_not_unique_is_caught() {
        breaks(REUSE, Mutation::SameWord, "not that of key 1");
    }

    #[test]
    fn an_insert_that_is_not_locked_is_caught() {
        breaks(AGAIN, Mutation::OpenInsert, "");
    }

    #[test]
    fn an_insert_that_looks_like_a_write_is_caught() {
        breaks(BACK, Mutation::InsertLikeWrite, "");
    }

    #[test]
    fn a_load_that_reads_the_version_once_is_caught() {
        breaks(REUSE, Mutation::NoSecondLook, "which it was not");
    }

    #[test]
    fn a_load_of_another_keys_element_is_caught() {
        breaks(REUSE, Mutation::NoHash, "which it was not");
    }

    #[test]
    fn a_store_into_another_keys_element_is_caught() {
        breaks(REUSE, Mutation::NoHashToLock, "not that of key 1");
    }

    #[test]
    fn locking_by_load_and_store_is_caught() {
        breaks(REUSE, Mutation::PlainLock, "");
    }

    #[test]
    fn deleting_without_the_lock_is_caught() {
        breaks(REUSE, Mutation::OpenDelete, "");
    }
}
