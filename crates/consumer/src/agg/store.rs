//! Key → value for every aggregation of the session.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use plane::desc::{AddrForm, AggDesc, AggId, Datum};
use plane::stacks::Stack;

use super::rows;
use crate::options::Options;
use crate::record::Tables;
use crate::symbolizer::{Process, Symbolizer};

/// The value of one key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) words: Box<[u64]>,
    /// The value was cleared and nothing was merged since. It is printed as zero, whatever the
    /// initial words are.
    pub(crate) empty: bool,
    pub(crate) normal: u64,
    /// With `aggpercpu`: the words of each CPU.
    pub(crate) cpus: BTreeMap<u32, Box<[u64]>>,
    /// The stacks of the key's stack columns, in order. They are stored here because the cache of
    /// stacks may drop them.
    pub(crate) stacks: Box<[Arc<Stack>]>,
}

impl Entry {
    /// The words that are printed and compared.
    pub(crate) fn shown<'a>(&'a self, zeros: &'a [u64]) -> &'a [u64] {
        if self.empty { zeros.get(..self.words.len()).unwrap_or(zeros) } else { &self.words }
    }
}

/// An aggregation.
#[derive(Debug)]
pub(crate) struct Aggregation {
    pub(crate) desc: AggDesc,
    pub(crate) entries: HashMap<Box<[u8]>, Entry>,
    /// A `printa()` has printed it, so it is not printed at the end.
    pub(crate) printed: bool,
    /// Columns that are aggregated by symbol or module: offset, datum.
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
}

fn words_at(key: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(key.get(at..)?.get(..8)?.try_into().ok()?))
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
                _ => false,
            })
            .map(|field| (field.offset as usize, field.datum))
            .collect();
        let stacks = desc.key.iter().fold(Stacks::None, |before, field| match field.datum {
            Datum::UserStack { .. } => Stacks::Soon,
            Datum::KernelStack { .. } if before == Stacks::None => Stacks::Late,
            _ => before,
        });
        self.aggs.push(Aggregation { desc, entries: HashMap::new(), printed: false, folded, stacks });
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
        let Store { aggs, starts, per_cpu, .. } = self;
        let Some(agg) = aggs.get_mut(id.0 as usize) else {
            return;
        };
        let Some(key) = key.get(..agg.desc.key_size as usize) else {
            return;
        };
        let mut folded = Vec::new();
        let key = if agg.folded.is_empty() {
            key
        } else {
            folded.extend_from_slice(key);
            for (at, datum) in &agg.folded {
                let (pid, form) = match *datum {
                    Datum::UserAddr(form) => (words_at(key, at + 8).map(|p| p as u32), form),
                    Datum::KernelAddr(form) => (None, form),
                    _ => continue,
                };
                let Some(addr) = words_at(key, *at) else {
                    continue;
                };
                let start = starts.get(pid, addr, form, symbols);
                folded[*at..at + 8].copy_from_slice(&start.to_le_bytes());
            }
            &folded
        };
        let func = agg.desc.func;
        let initial = || vec![func.initial_word(); func.value_size() as usize / 8].into();
        let entry = match agg.entries.get_mut(key) {
            Some(entry) => entry,
            None => {
                if agg.stacks == Stacks::Soon {
                    wanted.push((id, key.into()));
                }
                agg.entries.entry(key.into()).or_insert(Entry {
                    words: initial(),
                    cpus: BTreeMap::new(),
                    empty: false,
                    normal: 1,
                    stacks: Box::default(),
                })
            }
        };
        plane::table::merge(func, &mut entry.words, words);
        if *per_cpu {
            plane::table::merge(func, entry.cpus.entry(cpu).or_insert_with(initial), words);
        }
        entry.empty = false;
    }

    /// Fetches the stacks of a new key.
    pub(crate) fn fetch_stacks(&mut self, id: AggId, key: &[u8], stack: &mut dyn FnMut(u64) -> Arc<Stack>) {
        let Some(agg) = self.get_mut(id) else {
            return;
        };
        if let Some(entry) = agg.entries.get_mut(key) {
            let ids = agg.desc.key.iter().filter(|f| is_stack(f.datum));
            entry.stacks = ids.map(|f| stack(words_at(key, f.offset as usize).unwrap_or(0))).collect();
        }
    }

    /// Keys of an aggregation whose stacks have not been fetched.
    pub(crate) fn unfetched(&self, id: AggId) -> Vec<Box<[u8]>> {
        let Some(agg) = self.get(id).filter(|agg| agg.stacks == Stacks::Late) else {
            return Vec::new();
        };
        agg.entries.iter().filter(|(_, e)| e.stacks.is_empty()).map(|(key, _)| key.clone()).collect()
    }

    /// The keys of [`Store::unfetched`] whose stacks affect the result of `trunc()`: if several
    /// keys have the smallest value that is kept, and not all of them are kept, their order
    /// decides.
    pub(crate) fn undecided(&self, id: AggId, count: i64, strings: &Tables) -> Vec<Box<[u8]>> {
        let unfetched = self.unfetched(id);
        let keep = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        if unfetched.is_empty() || keep == 0 {
            return Vec::new();
        }
        let mut weights: Vec<_> = rows::rows(self, id, strings)
            .iter()
            .filter_map(|r| Some((r.raw, r.cells.first()?.weight)))
            .collect();
        weights.sort_by_key(|(_, weight)| *weight);
        if count > 0 {
            weights.reverse();
        }
        let (Some(last), Some(next)) = (weights.get(keep - 1), weights.get(keep)) else {
            return Vec::new();
        };
        if last.1 != next.1 {
            return Vec::new();
        }
        let tied: HashSet<&[u8]> =
            weights.iter().filter(|(_, w)| *w == last.1).map(|(key, _)| *key).collect();
        unfetched.into_iter().filter(|key| tied.contains(&**key)).collect()
    }

    /// `clear()`: keeps the keys.
    pub(crate) fn clear(&mut self, id: AggId) {
        if let Some(agg) = self.get_mut(id) {
            let initial = agg.desc.func.initial_word();
            for entry in agg.entries.values_mut() {
                entry.words.fill(initial);
                entry.cpus.clear();
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

    /// `trunc()`: keeps the `count` keys of greatest value, or of least value when negative; 0
    /// keeps none.
    pub(crate) fn trunc(&mut self, id: AggId, count: i64, strings: &Tables) {
        let gone: Vec<Box<[u8]>> = {
            let Some(agg) = self.get(id) else {
                return;
            };
            if count == 0 {
                Vec::new()
            } else {
                let mut rows = rows::rows(self, id, strings);
                rows.sort_by(|a, b| rows::by_value(a, b, 0));
                if count > 0 {
                    rows.reverse();
                }
                let keep = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
                debug_assert_eq!(rows.len(), agg.entries.len());
                rows.iter().skip(keep).map(|row| row.raw.into()).collect()
            }
        };
        if let Some(agg) = self.get_mut(id) {
            if count == 0 {
                agg.entries.clear();
            }
            for key in &gone {
                agg.entries.remove(key);
            }
        }
    }

    /// The rows of one `printa()`, in the order that the options select.
    pub(crate) fn sorted<'a>(
        &'a self,
        ids: &[AggId],
        tables: &'a Tables,
        options: &Options,
    ) -> Vec<rows::Row<'a>> {
        let mut rows = match ids {
            [id] => rows::rows(self, *id, tables),
            ids => rows::joined(self, ids, tables),
        };
        rows::sort(&mut rows, options, ids.len());
        rows
    }
}
