//! Key → value for every aggregation of the session.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use events::Int;
use plane::desc::{AddrForm, AggDesc, AggFunc, AggId, Datum};
use plane::stacks::Stack;

use crate::symbolizer::{Process, Symbolizer};

/// The bytes of a key. Short ones are in the table itself: with a million keys, each access to
/// memory elsewhere takes longer than everything that is done with it.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Short { length: u8, bytes: [u8; Key::SHORT] },
    Long(Box<[u8]>),
}

impl Key {
    const SHORT: usize = 24;

    /// A copy of a key. `None`: there is no memory for it.
    fn copied(key: &[u8]) -> Option<Key> {
        let mut bytes = [0; Key::SHORT];
        Some(match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(key);
                Key::Short { length, bytes }
            }
            _ => Key::Long(copied(key)?),
        })
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Key::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Key::Long(bytes) => bytes,
        }
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// Keys are found by their bytes, so they hash and compare as these do.
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.as_slice().hash(hasher);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Key {}

/// The words of a value. Most values have one, and there may be millions of them.
#[derive(Clone, Debug)]
pub(crate) enum Words {
    One(u64),
    Many(Box<[u64]>),
}

impl Words {
    /// `None`: there is no memory for them.
    fn new(func: AggFunc) -> Option<Words> {
        let count = match func.value_size() / 8 {
            1 => return Some(Words::One(func.initial_word())),
            count => count as usize,
        };
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize(count, func.initial_word());
        Some(Words::Many(words.into()))
    }

    fn as_slice(&self) -> &[u64] {
        match self {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u64] {
        match self {
            Words::One(word) => std::slice::from_mut(word),
            Words::Many(words) => words,
        }
    }
}

/// What few entries have.
#[derive(Clone, Debug, Default)]
struct Extra {
    /// With `aggpercpu`: the words of each CPU.
    cpus: BTreeMap<u32, Box<[u64]>>,
    /// The stacks of the key's stack columns, in order. They are stored here because the cache of
    /// stacks may drop them.
    stacks: Box<[Arc<Stack>]>,
}

/// The value of one key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    words: Words,
    /// The value was cleared and nothing was merged since. It is printed as zero, whatever the
    /// initial words are.
    empty: bool,
    pub(crate) normal: u64,
    extra: Option<Box<Extra>>,
}

impl Entry {
    /// `None`: there is no memory for its value.
    fn new(func: AggFunc) -> Option<Entry> {
        Some(Entry { words: Words::new(func)?, empty: false, normal: 1, extra: None })
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// The words of each CPU, with `aggpercpu`.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.extra.iter().flat_map(|extra| &extra.cpus).map(|(cpu, words)| (*cpu, &**words))
    }

    /// The stacks of the key, as far as they have been fetched.
    pub(crate) fn stacks(&self) -> &[Arc<Stack>] {
        self.extra.as_ref().map_or(&[], |extra| &extra.stacks)
    }

    /// The words that are printed and compared.
    pub(crate) fn shown<'a>(&'a self, zeros: &'a [u64]) -> &'a [u64] {
        let words = self.words.as_slice();
        if self.empty { zeros.get(..words.len()).unwrap_or(zeros) } else { words }
    }
}

/// An aggregation.
#[derive(Debug)]
pub(crate) struct Aggregation {
    pub(crate) desc: AggDesc,
    /// The expressions of the columns of the key.
    pub(crate) key_names: Vec<Arc<str>>,
    /// No value that is added can be negative. Known of those that intervals have.
    pub(crate) unsigned: bool,
    pub(crate) entries: HashMap<Key, Entry>,
    /// A `printa()` has printed it, so it is not printed at the end.
    pub(crate) printed: bool,
    /// Columns of which several values are one: those that are aggregated by symbol or module, and
    /// those of variables, which print two numbers alike where their type has too few bits to tell
    /// them apart. Offset, datum.
    folded: Vec<(usize, Datum)>,
    /// When the stacks in the key are fetched.
    stacks: Stacks,
}

/// When the stacks of a new key are fetched. Each costs a system call. A session may see tens of
/// thousands of stacks and print three, and fetching all of them could take longer than tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stacks {
    /// The key has no stacks.
    None,
    /// Before they are printed.
    Late,
    /// Immediately, because the processes must be read while they exist.
    Soon,
}

fn is_stack(datum: Datum) -> bool {
    matches!(datum, Datum::KernelStack { .. } | Datum::UserStack { .. })
}

/// A cache of symbol starts within one snapshot. Every CPU's table has the same addresses, and
/// symbol lookup is expensive. It is cleared before the next snapshot, because a process may have
/// executed another program by then.
#[derive(Debug, Default)]
struct StartCache(HashMap<(Option<u32>, u64, AddrForm), u64>);

impl StartCache {
    fn get(&mut self, pid: Option<u32>, addr: u64, form: AddrForm, symbols: &mut dyn Symbolizer) -> u64 {
        *self.0.entry((pid, addr, form)).or_insert_with(|| match pid {
            None => symbols.kernel_start(addr, form),
            Some(pid) => symbols.user_start(Process::now(pid), addr, form),
        })
    }
}

/// Every aggregation of the session.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) aggs: Vec<Aggregation>,
    /// Zeros, as many as the largest value has words.
    pub(crate) zeros: Vec<u64>,
    /// `aggpercpu`: store the value of each CPU.
    pub(crate) per_cpu: bool,
    starts: StartCache,
    /// Slots of snapshots for whose keys there was no memory.
    lost: u64,
}

fn words_at(key: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(key.get(at..)?.get(..8)?.try_into().ok()?))
}

/// A copy of a key. `None`: there is no memory for it.
fn copied(key: &[u8]) -> Option<Box<[u8]>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(key.len()).ok()?;
    bytes.extend_from_slice(key);
    Some(bytes.into())
}

/// What a new key takes: its copy, its value, and another copy if its stacks are wanted. `None`:
/// there is no memory for it. A table of millions of keys doubles at once, and whoever aborts there
/// loses what is in it.
#[allow(clippy::type_complexity)]
fn new_entry(
    agg: &mut Aggregation,
    key: &[u8],
    is_wanted: bool,
    wanted: &mut Vec<(AggId, Box<[u8]>)>,
) -> Option<(Key, Entry, Option<Box<[u8]>>)> {
    agg.entries.try_reserve(1).ok()?;
    wanted.try_reserve(1).ok()?;
    let stacked = if is_wanted { Some(copied(key)?) } else { None };
    Some((Key::copied(key)?, Entry::new(agg.desc.func)?, stacked))
}

impl Store {
    /// A store without aggregations.
    pub(crate) fn new(per_cpu: bool) -> Store {
        Store { per_cpu, ..Store::default() }
    }

    /// Adds the next aggregation.
    pub(crate) fn add(&mut self, desc: AggDesc) -> AggId {
        let words = desc.func.value_size() as usize / 8;
        if self.zeros.len() < words {
            self.zeros.resize(words, 0);
        }
        let folded = desc
            .key
            .iter()
            .filter(|field| match field.datum {
                Datum::KernelAddr(form) | Datum::UserAddr(form) => form != AddrForm::Address,
                Datum::Whole { .. } => true,
                _ => false,
            })
            .map(|field| (field.offset as usize, field.datum))
            .collect();
        let stacks = desc.key.iter().fold(Stacks::None, |before, field| match field.datum {
            Datum::UserStack { .. } => Stacks::Soon,
            Datum::KernelStack { .. } if before == Stacks::None => Stacks::Late,
            _ => before,
        });
        let (key_names, entries) = (Vec::new(), HashMap::new());
        self.aggs.push(Aggregation {
            desc,
            key_names,
            unsigned: false,
            entries,
            printed: false,
            folded,
            stacks,
        });
        AggId(self.aggs.len() as u32 - 1)
    }

    /// Begins a snapshot.
    pub(crate) fn begin_snapshot(&mut self) {
        self.starts.0.clear();
    }

    pub(crate) fn get(&self, id: AggId) -> Option<&Aggregation> {
        self.aggs.get(id.0 as usize)
    }

    pub(crate) fn get_mut(&mut self, id: AggId) -> Option<&mut Aggregation> {
        self.aggs.get_mut(id.0 as usize)
    }

    /// The expressions of the key of aggregations that are printed together; empty where they
    /// differ or are not known.
    pub(crate) fn key_names(&self, ids: &[AggId]) -> Vec<Arc<str>> {
        let mut all = ids.iter().filter_map(|id| self.get(*id));
        let Some(first) = all.next() else { return Vec::new() };
        let mut names = first.key_names.clone();
        names.resize_with(first.desc.key.len(), Arc::default);
        for agg in all {
            let others = agg.key_names.iter().map(Some).chain(std::iter::repeat(None));
            names.iter_mut().zip(others).filter(|(n, o)| Some(&**n) != *o).for_each(|(n, _)| *n = "".into());
        }
        names
    }

    /// Adds one slot of a snapshot. A new key that has stacks of processes is added to `wanted`,
    /// for [`Store::fetch_stacks`]. Other stacks are fetched later, see [`Store::unfetched`].
    pub(crate) fn merge(
        &mut self,
        id: AggId,
        cpu: u32,
        key: &[u8],
        words: &[u64],
        symbols: &mut dyn Symbolizer,
        wanted: &mut Vec<(AggId, Box<[u8]>)>,
    ) {
        let Store { aggs, starts, per_cpu, lost, .. } = self;
        let Some(agg) = aggs.get_mut(id.0 as usize) else {
            return;
        };
        let Some(key) = key.get(..agg.desc.key_size as usize) else {
            return;
        };
        let mut folded;
        let key = if agg.folded.is_empty() {
            key
        } else {
            let Some(own) = copied(key) else {
                *lost += 1;
                return;
            };
            folded = own;
            for (at, datum) in &agg.folded {
                let Some(word) = words_at(key, *at) else {
                    continue;
                };
                let one = match *datum {
                    Datum::UserAddr(form) => {
                        let pid = words_at(key, at + 8).map(|p| p as u32);
                        starts.get(pid, word, form, symbols)
                    }
                    Datum::KernelAddr(form) => starts.get(None, word, form, symbols),
                    Datum::Whole { size, signed } => Int::whole(word, size, signed).bits,
                    _ => continue,
                };
                if let Some(place) = folded.get_mut(*at..at + 8) {
                    place.copy_from_slice(&one.to_le_bytes());
                }
            }
            &folded
        };
        let func = agg.desc.func;
        let entry = match agg.entries.get_mut(key) {
            Some(entry) => entry,
            None => {
                let is_wanted = agg.stacks == Stacks::Soon;
                let Some((own, new, stacked)) = new_entry(agg, key, is_wanted, wanted) else {
                    *lost += 1;
                    return;
                };
                wanted.extend(stacked.map(|key| (id, key)));
                agg.entries.entry(own).or_insert(new)
            }
        };
        plane::table::merge(func, entry.words.as_mut_slice(), words);
        if *per_cpu {
            let initial = || vec![func.initial_word(); func.value_size() as usize / 8].into();
            plane::table::merge(func, entry.extra().cpus.entry(cpu).or_insert_with(initial), words);
        }
        entry.empty = false;
    }

    /// The slots that were lost since the last call, because there was no memory for their keys.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Fetches the stacks of a new key.
    pub(crate) fn fetch_stacks(&mut self, id: AggId, key: &[u8], stack: &mut dyn FnMut(u64) -> Arc<Stack>) {
        let Some(agg) = self.get_mut(id) else {
            return;
        };
        if let Some(entry) = agg.entries.get_mut(key) {
            let ids = agg.desc.key.iter().filter(|f| is_stack(f.datum));
            entry.extra().stacks =
                ids.map(|f| stack(words_at(key, f.offset as usize).unwrap_or(0))).collect();
        }
    }

    /// The ids of stacks in keys whose stacks have not been fetched.
    pub(crate) fn named_stacks(&self) -> HashSet<u64> {
        let with_stacks = self.aggs.iter().filter(|agg| agg.stacks != Stacks::None);
        let ids = with_stacks.flat_map(|agg| {
            let fields = || agg.desc.key.iter().filter(|f| is_stack(f.datum));
            let keys = agg.entries.iter().filter(|(_, e)| e.stacks().is_empty()).map(|(key, _)| key);
            keys.flat_map(move |key| fields().filter_map(|f| words_at(key, f.offset as usize)))
        });
        ids.collect()
    }

    /// Keys of an aggregation whose stacks have not been fetched.
    pub(crate) fn unfetched(&self, id: AggId) -> Vec<Box<[u8]>> {
        let Some(agg) = self.get(id).filter(|agg| agg.stacks == Stacks::Late) else {
            return Vec::new();
        };
        agg.entries.iter().filter(|(_, e)| e.stacks().is_empty()).map(|(key, _)| (**key).into()).collect()
    }

    /// Adds the values of another store that has the same aggregations.
    pub(crate) fn absorb(&mut self, other: &Store, most: impl Fn(AggId) -> usize) {
        let Store { aggs, lost, .. } = self;
        for (n, (agg, from)) in aggs.iter_mut().zip(&other.aggs).enumerate() {
            let most = most(AggId(n as u32));
            for (key, entry) in &from.entries {
                let there = match agg.entries.get_mut(&**key) {
                    Some(there) => there,
                    None => {
                        let new = (agg.entries.len() < most)
                            .then(|| new_entry(agg, key, false, &mut Vec::new()))
                            .flatten();
                        let Some((own, new, _)) = new else {
                            *lost += 1;
                            continue;
                        };
                        agg.entries.entry(own).or_insert(new)
                    }
                };
                plane::table::merge(agg.desc.func, there.words.as_mut_slice(), entry.words.as_slice());
            }
        }
    }

    /// Forgets all keys. Memory for as many remains.
    pub(crate) fn restart(&mut self) {
        for agg in &mut self.aggs {
            let used = agg.entries.len();
            agg.entries.clear();
            agg.entries.shrink_to(2 * used);
        }
    }

    /// The words of a key.
    pub(crate) fn words(&self, id: AggId, key: &[u8]) -> Option<&[u64]> {
        self.get(id)?.entries.get(key).map(|entry| entry.words.as_slice())
    }

    /// `clear()`: keeps the keys.
    pub(crate) fn clear(&mut self, id: AggId) {
        if let Some(agg) = self.get_mut(id) {
            let initial = agg.desc.func.initial_word();
            for entry in agg.entries.values_mut() {
                entry.words.as_mut_slice().fill(initial);
                entry.extra.iter_mut().for_each(|extra| extra.cpus.clear());
                entry.empty = true;
            }
        }
    }

    /// `normalize()`, and `denormalize()` with 1.
    pub(crate) fn normalize(&mut self, id: AggId, normal: u64) {
        if let Some(agg) = self.get_mut(id) {
            for entry in agg.entries.values_mut() {
                entry.normal = normal.max(1);
            }
        }
    }
}
