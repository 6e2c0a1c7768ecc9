//! Converts entries to typed rows, in DTrace's order.
//!
//! Keys are decoded once, before sorting: numbers compare as numbers, strings as bytes, stacks
//! frame by frame.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use plane::desc::{AggDesc, AggId, Datum};
use plane::stacks::Stack;

use super::store::Store;
use super::value;
use crate::options::Options;
use crate::record::{Int, Tables, Value, no_stack, text};

/// The value of one aggregation in a row.
#[derive(Clone, Debug)]
pub struct Cell<'a> {
    /// The aggregation.
    pub agg: &'a AggDesc,
    /// Its words, in the layout of [`plane::desc::AggFunc`].
    pub words: &'a [u64],
    /// With `aggpercpu`: the words of each CPU that added to it.
    pub cpus: Option<&'a BTreeMap<u32, Box<[u64]>>>,
    /// The normalization factor of printed numbers; at least 1.
    pub normal: u64,
    /// The number that is compared.
    pub(super) weight: (i128, i64),
}

impl Cell<'_> {
    /// The printed number of a value that is not a histogram.
    pub fn scalar(&self) -> i64 {
        value::scalar(self.agg.func, self.words, self.normal)
    }

    /// The value of each CPU.
    pub(crate) fn each_cpu(&self) -> impl Iterator<Item = (u32, Cell<'_>)> {
        let cell = |words| Cell { agg: self.agg, words, cpus: None, normal: self.normal, weight: (0, 0) };
        self.cpus.into_iter().flatten().map(move |(cpu, words)| (*cpu, cell(words)))
    }

    /// Whether it is printed as a histogram.
    pub fn is_histogram(&self) -> bool {
        value::is_histogram(self.agg.func)
    }
}

/// One key with its values: one value per aggregation of the `printa()`.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The columns of the key.
    pub keys: Vec<Value<'a>>,
    /// The values.
    pub cells: Vec<Cell<'a>>,
    /// The key as stored.
    pub(crate) raw: &'a [u8],
}

/// All rows of one aggregation, unordered.
pub(crate) fn rows<'a>(store: &'a Store, id: AggId, tables: &'a Tables) -> Vec<Row<'a>> {
    let Some(agg) = store.get(id) else {
        return Vec::new();
    };
    let desc = &agg.desc;
    let buckets = value::buckets(desc.func);
    agg.entries
        .iter()
        .map(|(raw, entry)| {
            let words = entry.shown(&store.zeros);
            let weight = value::weight(desc.func, &buckets, words);
            Row {
                keys: keys(desc, raw, &entry.stacks, tables),
                cells: vec![Cell { agg: desc, words, cpus: Some(&entry.cpus), normal: entry.normal, weight }],
                raw,
            }
        })
        .collect()
}

/// The rows of several aggregations by key. An aggregation without a key has the value zero for it.
/// Keys of different aggregations are equal if their columns are equal, however they are stored.
pub(crate) fn joined<'a>(store: &'a Store, ids: &[AggId], tables: &'a Tables) -> Vec<Row<'a>> {
    let blank: Vec<Cell<'a>> = ids
        .iter()
        .filter_map(|id| store.get(*id))
        .map(|agg| Cell {
            agg: &agg.desc,
            words: &store.zeros[..agg.desc.func.value_size() as usize / 8],
            cpus: None,
            normal: 1,
            weight: (0, 0),
        })
        .collect();
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut out: Vec<Row<'a>> = Vec::new();
    for (column, id) in ids.iter().filter(|id| store.get(**id).is_some()).enumerate() {
        for mut row in rows(store, *id, tables) {
            let Some(cell) = row.cells.pop() else {
                continue;
            };
            let at = *known.entry(identity(&row.keys)).or_insert_with(|| {
                out.push(Row { cells: blank.clone(), ..row });
                out.len() - 1
            });
            out[at].cells[column] = cell;
        }
    }
    out
}

/// Bytes that are equal if and only if the keys are printed and compared equally.
fn identity(keys: &[Value<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for key in keys {
        match key {
            Value::Int(int) => out.extend_from_slice(&int.as_unsigned().to_le_bytes()),
            Value::Str { text: bytes, .. } | Value::Name { text: bytes, .. } | Value::Bytes(bytes) => {
                out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Value::Stack(stack) => {
                out.extend_from_slice(&(stack.pcs.len() as u64).to_le_bytes());
                out.extend(stack.tgid.to_le_bytes());
                out.extend(stack.pcs.iter().flat_map(|pc| pc.to_le_bytes()));
            }
            Value::KernelAddr(addr, _) => out.extend_from_slice(&addr.to_le_bytes()),
            Value::UserAddr { pid, addr, .. } => {
                out.extend_from_slice(&pid.to_le_bytes());
                out.extend_from_slice(&addr.to_le_bytes());
            }
        }
    }
    out
}

fn keys<'a>(desc: &AggDesc, raw: &'a [u8], stacks: &[Arc<Stack>], tables: &'a Tables) -> Vec<Value<'a>> {
    let word = |at: usize| -> u64 {
        raw.get(at..)
            .and_then(|rest| rest.get(..8))
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    };
    let mut stacks = stacks.iter();
    desc.key
        .iter()
        .map(|field| {
            let at = field.offset as usize;
            match field.datum {
                // Every key column is a whole word.
                Datum::Int { size, signed } => Value::Int(Int::new(word(at), size, signed)),
                Datum::Str { size } => {
                    let bytes = raw.get(at..).and_then(|rest| rest.get(..size as usize)).unwrap_or_default();
                    Value::Str { text: text(bytes), size }
                }
                Datum::Name { size } => {
                    let bytes = raw.get(at..).and_then(|rest| rest.get(..size as usize)).unwrap_or_default();
                    Value::Name { text: text(bytes), size }
                }
                Datum::Interned => {
                    let string = tables.string(word(at) as u32);
                    Value::Str { text: string, size: string.len() as u32 + 1 }
                }
                Datum::Bytes { size } => {
                    Value::Bytes(raw.get(at..).and_then(|rest| rest.get(..size as usize)).unwrap_or_default())
                }
                Datum::KernelStack { .. } | Datum::UserStack { .. } => {
                    Value::Stack(stacks.next().cloned().unwrap_or_else(no_stack))
                }
                Datum::KernelAddr(form) => Value::KernelAddr(word(at), form),
                Datum::UserAddr(form) => Value::UserAddr { addr: word(at), pid: word(at + 8) as u32, form },
            }
        })
        .collect()
}

fn compare_key(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    match (a, b) {
        // Keys are compared as unsigned integers, whatever their type, as in the original.
        (Value::Int(a), Value::Int(b)) => a.as_unsigned().cmp(&b.as_unsigned()),
        (
            Value::Str { text: a, .. } | Value::Name { text: a, .. },
            Value::Str { text: b, .. } | Value::Name { text: b, .. },
        ) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Stack(a), Value::Stack(b)) => a.tgid.cmp(&b.tgid).then_with(|| a.pcs.cmp(&b.pcs)),
        (Value::KernelAddr(a, _), Value::KernelAddr(b, _)) => a.cmp(b),
        (Value::UserAddr { pid: p, addr: a, .. }, Value::UserAddr { pid: q, addr: b, .. }) => {
            p.cmp(q).then(a.cmp(b))
        }
        _ => Ordering::Equal,
    }
}

/// Compares by keys, starting at column `from` and wrapping.
fn by_key(a: &Row<'_>, b: &Row<'_>, from: usize) -> Ordering {
    let count = a.keys.len().min(b.keys.len());
    let from = if from < count { from } else { 0 };
    (0..count)
        .map(|i| (from + i) % count)
        .map(|i| compare_key(&a.keys[i], &b.keys[i]))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Compares by the value of cell `from`, then by the cells after it (wrapping).
fn by_cells(a: &Row<'_>, b: &Row<'_>, from: usize) -> Ordering {
    let count = a.cells.len().min(b.cells.len());
    let from = if from < count { from } else { 0 };
    (0..count)
        .map(|i| (from + i) % count)
        .map(|i| a.cells[i].weight.cmp(&b.cells[i].weight))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Compares by value, then by keys.
pub(crate) fn by_value(a: &Row<'_>, b: &Row<'_>, from: usize) -> Ordering {
    by_cells(a, b, from).then_with(|| by_key(a, b, 0))
}

/// The order of `printa()` and of the aggregations printed at the end.
pub(crate) fn sort(rows: &mut [Row<'_>], options: &Options, aggregations: usize) {
    let pos = if aggregations > 1 { options.aggsortpos } else { 0 };
    let keypos = options.aggsortkeypos;
    rows.sort_by(|a, b| {
        let order = if options.aggsortkey {
            by_key(a, b, keypos).then_with(|| by_cells(a, b, pos))
        } else {
            by_cells(a, b, pos).then_with(|| by_key(a, b, keypos))
        };
        if options.aggsortrev { order.reverse() } else { order }
    });
}
