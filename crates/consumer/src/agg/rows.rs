//! Lists entries as rows in DTrace's order.
//!
//! There may be a million rows, so a row is decoded when it is delivered. What is sorted is small:
//! the place of an entry, its weight and the beginning of its key, in one vector. Only rows that
//! are equal in these are compared column by column: numbers as numbers, strings as bytes, stacks
//! frame by frame.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use events::{AggValue, Bucket, Growth, Int, buckets};
use plane::address::Text;
use plane::desc::{AggDesc, AggId, Datum, Field};

use super::store::{Entry, Store};
use super::value;
use crate::names::Names;
use crate::options::Options;
use crate::pad::up_to;
use crate::raw::{Raw, Space, text};
use crate::record::Tables;
use crate::stacks::no_stack;

/// One key with its values, not decoded.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    /// The aggregation that has the key.
    column: u32,
    /// The key as stored.
    raw: &'a [u8],
    entry: &'a Entry,
}

/// The rows of one or more aggregations, one value per aggregation.
pub(crate) struct Rows<'a> {
    aggs: Vec<(&'a AggDesc, Vec<Bucket>)>,
    rows: Vec<Row<'a>>,
    /// The values of other aggregations than the first, row by row.
    others: Vec<Option<&'a Entry>>,
    tables: &'a Tables,
    zeros: &'a [u64],
}

/// The order in which rows are compared.
#[derive(Clone, Copy, Debug)]
struct By {
    /// Keys are compared before values.
    key: bool,
    /// The first column of the key that is compared, and the first value.
    keypos: usize,
    pos: usize,
    reverse: bool,
}

/// A row in the list that is sorted.
#[derive(Clone, Copy, Debug)]
struct Place {
    weight: (i64, u64, i64),
    /// Orders as the first compared column of the key does, where two differ in it.
    prefix: u64,
    row: u32,
}

impl<'a> Rows<'a> {
    /// The rows of aggregations by key, unordered. An aggregation without a key has the value zero
    /// for it. Keys of different aggregations are equal if their columns are equal, however they
    /// are stored.
    pub(crate) fn new(store: &'a Store, ids: &[AggId], tables: &'a Tables) -> Rows<'a> {
        let known = ids.iter().filter_map(|id| store.get(*id));
        let aggs = known.clone().map(|agg| (&agg.desc, buckets(agg.desc.func))).collect();
        let mut all = Rows { aggs, rows: Vec::new(), others: Vec::new(), tables, zeros: &store.zeros };
        let several = all.aggs.len().saturating_sub(1);
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        for (column, agg) in (0..).zip(known) {
            let rows = agg.entries.iter().map(|(raw, entry)| Row { column, raw, entry });
            if several == 0 {
                all.rows.extend(rows);
                continue;
            }
            for row in rows {
                let identity = identity(all.columns(&row).map(|(field, n)| all.decode(&row, field, n)));
                let at = *places.entry(identity).or_insert_with(|| {
                    all.rows.push(row);
                    all.others.resize(all.others.len() + several, None);
                    all.rows.len() - 1
                });
                // The value of the first aggregation is in the row, unless another one has the key.
                if let Some(other) = (column as usize).checked_sub(1)
                    && let Some(place) = all.others.get_mut(at * several + other)
                {
                    *place = Some(row.entry);
                }
            }
        }
        all
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The fields of a row's key, each with the number of stacks before it.
    fn columns(&self, row: &Row<'a>) -> impl Iterator<Item = (Field, usize)> + use<'a> {
        let fields = self.aggs.get(row.column as usize).map_or(&[][..], |(desc, _)| &desc.key);
        let is_stack = |datum| matches!(datum, Datum::KernelStack { .. } | Datum::UserStack { .. });
        fields.iter().scan(0, move |stacks, field| {
            let before = *stacks;
            *stacks += usize::from(is_stack(field.datum));
            Some((*field, before))
        })
    }

    /// A column of a row's key.
    fn decode(&self, row: &Row<'a>, field: Field, stacks: usize) -> Raw<'a> {
        let (raw, tables) = (row.raw, self.tables);
        let bytes = |at: usize, size: u32| {
            raw.get(at..).and_then(|rest| rest.get(..size as usize)).unwrap_or_default()
        };
        let word = |at: usize| bytes(at, 8).try_into().map_or(0, u64::from_le_bytes);
        let at = field.offset as usize;
        match field.datum {
            // Every key column is a whole word.
            Datum::Int { size, signed } => Raw::Int(Int::new(word(at), size, signed)),
            Datum::Whole { size, signed } => Raw::Int(Int::whole(word(at), size, signed)),
            Datum::Str { size } => Raw::Str(text(bytes(at, size)), size),
            Datum::Name { size } => Raw::Name(text(bytes(at, size)), size),
            Datum::Interned => {
                let string = tables.string(word(at) as u32);
                Raw::Str(string, string.len() as u32 + 1)
            }
            Datum::Provider => tables.provider(word(at)),
            Datum::Address { strsize } => Raw::Address(Text::new([word(at), word(at + 8)]), strsize),
            Datum::Bytes { size } => Raw::Bytes(bytes(at, size)),
            Datum::KernelStack { .. } | Datum::UserStack { .. } => {
                Raw::Stack(row.entry.stacks().get(stacks).cloned().unwrap_or_else(no_stack))
            }
            Datum::KernelAddr(form) => Raw::KernelAddr(word(at), form),
            Datum::UserAddr(form) => Raw::UserAddr { addr: word(at), pid: word(at + 8) as u32, form },
        }
    }

    /// The columns of a row's key.
    fn keys(&self, row: &Row<'a>) -> impl Iterator<Item = Raw<'a>> {
        self.columns(row).map(|(field, n)| self.decode(row, field, n))
    }

    /// The value of an aggregation in a row.
    fn entry(&self, at: u32, column: usize) -> Option<&'a Entry> {
        let several = self.aggs.len().saturating_sub(1);
        match column.checked_sub(1) {
            None => self.rows.get(at as usize).filter(|row| row.column == 0).map(|row| row.entry),
            Some(other) => self.others.get(at as usize * several + other).copied().flatten(),
        }
    }

    /// The number by which a value is compared.
    fn weight(&self, at: u32, column: usize) -> (i128, i64) {
        let (Some((desc, buckets)), Some(entry)) = (self.aggs.get(column), self.entry(at, column)) else {
            return (0, 0);
        };
        value::weight(desc.func, buckets, entry.shown(self.zeros))
    }

    /// Compares by the value of column `from`, then by the values after it (wrapping).
    fn by_values(&self, a: u32, b: u32, from: usize) -> Ordering {
        let compare = |n: usize| self.weight(a, n).cmp(&self.weight(b, n));
        wrapping(self.aggs.len(), from).map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Compares by keys, starting at column `from` and wrapping.
    fn by_keys(&self, a: u32, b: u32, from: usize) -> Ordering {
        let (Some(a), Some(b)) = (self.rows.get(a as usize), self.rows.get(b as usize)) else {
            return Ordering::Equal;
        };
        let length = self.columns(a).count().min(self.columns(b).count());
        let compare = |n: usize| {
            let column = |row| self.columns(row).nth(n).map(|(field, n)| self.decode(row, field, n));
            column(a).zip(column(b)).map_or(Ordering::Equal, |(a, b)| compare_key(&a, &b))
        };
        wrapping(length, from).map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// The order of two rows.
    fn compare(&self, a: &Place, b: &Place, by: By) -> Ordering {
        let prefix = a.prefix.cmp(&b.prefix);
        let order = match by.key {
            true => prefix
                .then_with(|| self.by_keys(a.row, b.row, by.keypos))
                .then_with(|| self.by_values(a.row, b.row, by.pos)),
            false => a
                .weight
                .cmp(&b.weight)
                .then(prefix)
                .then_with(|| self.by_values(a.row, b.row, by.pos))
                .then_with(|| self.by_keys(a.row, b.row, by.keypos)),
        };
        if by.reverse { order.reverse() } else { order }
    }

    /// What is sorted; nothing if there is no memory for it.
    fn places(&self, by: By) -> Vec<Place> {
        let pos = wrapping(self.aggs.len(), by.pos).next().unwrap_or(0);
        // Columns of several aggregations may differ in their types, and other values come before
        // keys.
        let alone = self.aggs.len() == 1;
        let place = |(at, row): (u32, &Row<'a>)| {
            let (sum, zero) = if by.key { (0, 0) } else { self.weight(at, pos) };
            let prefix = || {
                let n = wrapping(self.columns(row).count(), by.keypos).next()?;
                let (field, n) = self.columns(row).nth(n)?;
                Some(prefix(&self.decode(row, field, n)))
            };
            let prefix = if alone { prefix().unwrap_or(0) } else { 0 };
            Place { weight: ((sum >> 64) as i64, sum as u64, zero), prefix, row: at }
        };
        let mut places = Vec::new();
        if places.try_reserve_exact(self.rows.len()).is_ok() {
            places.extend((0..).zip(&self.rows).map(place));
        }
        places
    }

    /// The numbers of all rows, in the order that the options select. Where there is no memory to
    /// sort them, they are in no order: it is the end of a session that gets no more.
    pub(crate) fn sorted(&self, options: &Options) -> Vec<u32> {
        let pos = if self.aggs.len() > 1 { options.aggsortpos } else { 0 };
        let (key, keypos, reverse) = (options.aggsortkey, options.aggsortkeypos, options.aggsortrev);
        let by = By { key, keypos, pos, reverse };
        let mut places = self.places(by);
        if places.is_empty() {
            return (0..self.rows.len() as u32).collect();
        }
        places.sort_unstable_by(|a, b| self.compare(a, b, by));
        places.into_iter().map(|place| place.row).collect()
    }

    /// The numbers of the rows that the options leave, in their order.
    pub(crate) fn shown(&self, options: &Options) -> Vec<u32> {
        let mut rows = self.sorted(options);
        if options.aggnozero {
            rows.retain(|at| (0..self.aggs.len()).any(|column| self.is_not_zero(*at, column)));
        }
        // The greatest are at the end, or at the beginning of the reverse order.
        match options.aggtop {
            0 => {}
            top if options.aggsortrev => rows.truncate(top),
            top => drop(rows.drain(..rows.len().saturating_sub(top))),
        }
        rows
    }

    fn is_not_zero(&self, at: u32, column: usize) -> bool {
        self.entry(at, column).is_some_and(|entry| entry.shown(self.zeros).iter().any(|word| *word != 0))
    }

    /// The keys beyond the `keep` greatest values, or the least ones.
    fn beyond(&self, keep: usize, greatest: bool) -> Vec<Box<[u8]>> {
        let by = By { key: false, keypos: 0, pos: 0, reverse: greatest };
        let mut places = self.places(by);
        if keep >= places.len() {
            return Vec::new();
        }
        let (_, _, beyond) = places.select_nth_unstable_by(keep, |a, b| self.compare(a, b, by));
        let rest: Vec<u32> = beyond.iter().map(|place| place.row).collect();
        let all = places.get(keep).map(|place| place.row).into_iter().chain(rest);
        all.filter_map(|at| self.rows.get(at as usize)).map(|row| row.raw.into()).collect()
    }

    /// Rows with their symbols. A format may print columns as addresses.
    pub(crate) fn named(
        &self,
        some: &[u32],
        addresses: &[Option<Space>],
        names: &mut Names<'_>,
    ) -> Vec<events::Row<'a>> {
        // Sorted rows are all over the memory. Reading something of each at first lets the
        // processor wait for many of them at once.
        let first = |at: &u32| {
            let row = self.rows.get(*at as usize)?;
            Some(row.entry.normal ^ u64::from(*row.raw.first()?))
        };
        std::hint::black_box(some.iter().filter_map(first).fold(0, |all, word| all ^ word));
        some.iter().filter_map(|at| self.named_row(*at, addresses, names)).collect()
    }

    fn named_row(
        &self,
        at: u32,
        addresses: &[Option<Space>],
        names: &mut Names<'_>,
    ) -> Option<events::Row<'a>> {
        let row = self.rows.get(at as usize)?;
        let address = |n: usize| addresses.get(n).copied().flatten();
        let key = self.keys(row).enumerate().map(|(n, raw)| names.argument(raw, address(n))).collect();
        let values = (0..self.aggs.len()).filter_map(|column| self.value(at, column)).collect();
        Some(events::Row { key, values })
    }

    /// A row of what an interval has added: its value is the increment, and `total` has the others.
    pub(crate) fn growth(
        &self,
        at: u32,
        total: &'a Store,
        id: AggId,
        names: &mut Names<'_>,
    ) -> Option<Growth<'a>> {
        let raw = self.rows.get(at as usize)?.raw;
        let events::Row { key, mut values } = self.named_row(at, &[], names)?;
        let increment = values.pop()?;
        // Without memory for the key there is no more than the increment.
        let words = total.words(id, raw).map_or_else(|| increment.words.clone(), Cow::Borrowed);
        let total = AggValue { words, ..increment.clone() };
        Some(Growth { key, increment, total })
    }

    fn value(&self, at: u32, column: usize) -> Option<AggValue<'a>> {
        let (desc, _) = self.aggs.get(column)?;
        let entry = self.entry(at, column);
        let words = match entry {
            Some(entry) => entry.shown(self.zeros),
            None => up_to(self.zeros, desc.func.value_size() as usize / 8),
        };
        let cpus = entry.into_iter().flat_map(Entry::cpus).map(|(cpu, words)| (cpu, Cow::Borrowed(words)));
        Some(AggValue {
            function: desc.func,
            words: Cow::Borrowed(words),
            normal: entry.map_or(1, |entry| entry.normal),
            cpus: cpus.collect(),
            absent: entry.is_none(),
        })
    }

    /// Looks up all symbols of processes in the keys together.
    pub(crate) fn prepare(&self, names: &mut Names<'_>) {
        let is_user = |field: &Field| field.datum.is_user();
        if self.aggs.iter().any(|(desc, _)| desc.key.iter().any(is_user)) {
            let keys = |row: &Row<'a>| -> Vec<Raw<'a>> {
                let columns = self.columns(row).filter(|(field, _)| is_user(field));
                columns.map(|(field, n)| self.decode(row, field, n)).collect()
            };
            names.prepare(self.rows.iter().flat_map(keys));
        }
    }
}

/// The numbers below `length`, starting at `from`; at 0 if there are fewer.
fn wrapping(length: usize, from: usize) -> impl Iterator<Item = usize> {
    let from = if from < length { from } else { 0 };
    (from..length).chain(0..from)
}

/// A number that orders as [`compare_key`], where two columns of a type differ in it.
fn prefix(key: &Raw<'_>) -> u64 {
    let start = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_be_bytes(word)
    };
    match key {
        Raw::Int(int) => int.as_unsigned(),
        Raw::Str(bytes, _) | Raw::Name(bytes, _) | Raw::Bytes(bytes) => start(bytes),
        Raw::Made(text) => start(text),
        Raw::Address(text, _) => start(text.as_bytes()),
        Raw::Stack(stack) => u64::from(stack.tgid),
        Raw::KernelAddr(addr, _) => *addr,
        Raw::UserAddr { pid, .. } => u64::from(*pid),
    }
}

/// Bytes that are equal if and only if the keys are printed and compared equally.
fn identity<'k>(keys: impl Iterator<Item = Raw<'k>>) -> Vec<u8> {
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    let mut out = Vec::new();
    for key in keys {
        match &key {
            Raw::Int(int) => out.extend_from_slice(&int.as_unsigned().to_le_bytes()),
            Raw::Str(bytes, _) | Raw::Name(bytes, _) | Raw::Bytes(bytes) => put(&mut out, bytes),
            Raw::Made(text) => put(&mut out, text),
            Raw::Address(text, _) => put(&mut out, text.as_bytes()),
            Raw::Stack(stack) => {
                let counts = [stack.pcs.len() as u64, stack.calls.len() as u64];
                out.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
                out.extend(stack.tgid.to_le_bytes());
                out.extend(stack.pcs.iter().chain(&stack.calls).flat_map(|word| word.to_le_bytes()));
            }
            Raw::KernelAddr(addr, _) => out.extend_from_slice(&addr.to_le_bytes()),
            Raw::UserAddr { pid, addr, .. } => {
                out.extend_from_slice(&pid.to_le_bytes());
                out.extend_from_slice(&addr.to_le_bytes());
            }
        }
    }
    out
}

fn compare_key(a: &Raw<'_>, b: &Raw<'_>) -> Ordering {
    match (a, b) {
        // Keys are compared as unsigned integers, whatever their type, as in the original.
        (Raw::Int(a), Raw::Int(b)) => a.as_unsigned().cmp(&b.as_unsigned()),
        (Raw::Bytes(a), Raw::Bytes(b)) => a.cmp(b),
        (Raw::Stack(a), Raw::Stack(b)) => {
            let by_frames = || a.pcs.cmp(&b.pcs).then_with(|| a.calls.cmp(&b.calls));
            a.tgid.cmp(&b.tgid).then_with(by_frames)
        }
        (Raw::KernelAddr(a, _), Raw::KernelAddr(b, _)) => a.cmp(b),
        (Raw::UserAddr { pid: p, addr: a, .. }, Raw::UserAddr { pid: q, addr: b, .. }) => {
            p.cmp(q).then(a.cmp(b))
        }
        (a, b) => a.text().zip(b.text()).map_or(Ordering::Equal, |(a, b)| a.cmp(b)),
    }
}

impl Store {
    /// The keys of [`Store::unfetched`] whose stacks affect the result of `trunc()`: if several
    /// keys have the smallest value that is kept, and not all of them are kept, their order
    /// decides.
    pub(crate) fn undecided(&self, id: AggId, count: i64, tables: &Tables) -> Vec<Box<[u8]>> {
        let unfetched = self.unfetched(id);
        let keep = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        if unfetched.is_empty() || keep == 0 {
            return Vec::new();
        }
        let rows = Rows::new(self, &[id], tables);
        let weighed = (0..).zip(&rows.rows).map(|(at, row)| (row.raw, rows.weight(at, 0)));
        let mut weights: Vec<(&[u8], (i128, i64))> = weighed.collect();
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

    /// `trunc()`: keeps the `count` keys of greatest value, or of least value when negative; 0
    /// keeps none.
    pub(crate) fn trunc(&mut self, id: AggId, count: i64, tables: &Tables) {
        let keep = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        let beyond = match count {
            0 => Vec::new(),
            _ => Rows::new(self, &[id], tables).beyond(keep, count > 0),
        };
        if let Some(agg) = self.get_mut(id) {
            if count == 0 {
                agg.entries.clear();
            }
            for key in &beyond {
                agg.entries.remove(&**key);
            }
        }
    }
}
