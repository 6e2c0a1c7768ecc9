//! The state between firings, and the output of firings for the consumer.

use std::collections::BTreeMap;

use plane::desc::AggFunc;

use super::agg;
use crate::ir::{FaultKind, Module, VarId};

/// A value at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Val {
    /// An integer or a pointer.
    Int(i64),
    /// A string without its NUL.
    Str(Vec<u8>),
    /// A string that is NULL.
    Null,
    /// An object. Variables have such values, operations never do.
    Bytes(Vec<u8>),
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The clause.
    pub clause: usize,
    /// What went wrong.
    pub kind: FaultKind,
    /// The address, or the offending value.
    pub value: u64,
    /// The action; 0 is the predicate.
    pub action: u16,
    /// The instruction's position in block order.
    pub offset: u32,
}

/// A committed record, without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The clause that recorded it.
    pub clause: usize,
    /// The speculation in whose buffer it is; 0 for a usual record.
    pub speculation: u64,
    /// The bytes. Unwritten bytes are 0 here and unspecified in a ring.
    pub data: Vec<u8>,
    /// Which bytes were written.
    pub written: Vec<bool>,
}

/// Capacities. What exceeds them is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum number of records.
    pub records: usize,
    /// Maximum number of elements of all associative arrays together.
    pub elements: usize,
    /// Maximum number of keys of each aggregation.
    pub keys: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { records: usize::MAX, elements: usize::MAX, keys: usize::MAX }
    }
}

/// Counts of drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Clauses whose record had no space.
    pub principal: u64,
    /// Dropped elements of associative arrays.
    pub dynamic: u64,
    /// Dropped aggregation keys.
    pub aggregation: u64,
    /// Faults in clauses of ERROR.
    pub double_error: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ElementId {
    pub(super) var: VarId,
    /// Thread and level of a `self->` array.
    pub(super) owner: Option<(u64, u8)>,
    pub(super) key: Vec<u8>,
}

/// A session's state under the interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Committed records, oldest first. The caller may remove them.
    pub records: Vec<Record>,
    /// The record that the last fault discarded. The caller may remove it.
    pub discarded: Option<Record>,
    /// Faults, oldest first.
    pub faults: Vec<Fault>,
    /// Drop counts.
    pub drops: Drops,
    /// Capacities.
    pub capacity: Capacity,
    /// The status of the first `exit()`, or of the last one in END.
    pub exit: Option<i32>,
    /// How often `snap()` was executed.
    pub snaps: u64,
    /// Strings by interned number: the module's constants first, then others in order of use.
    pub interned: Vec<Vec<u8>>,
    /// For each aggregation, words by key bytes.
    pub aggregations: Vec<BTreeMap<Vec<u8>, Vec<u64>>>,
    /// The number of firings with clauses.
    pub(super) firings: u64,
    pub(super) globals: BTreeMap<VarId, Val>,
    pub(super) threads: BTreeMap<((u64, u8), VarId), Val>,
    pub(super) elements: BTreeMap<ElementId, Val>,
}

impl State {
    /// Creates the state of an empty session of this module, with its constants interned.
    pub fn new(module: &Module) -> State {
        let mut state = State::default();
        state.prepare(module);
        state
    }

    /// A global scalar, if it was ever assigned.
    pub fn global(&self, var: VarId) -> Option<&Val> {
        self.globals.get(&var)
    }

    /// A `self->` scalar of a thread and level, if it is not zero.
    pub fn thread(&self, context: (u64, u8), var: VarId) -> Option<&Val> {
        self.threads.get(&(context, var))
    }

    /// The elements of an array: owner (of `self->` arrays), key bytes, value.
    pub fn elements(&self, var: VarId) -> impl Iterator<Item = (Option<(u64, u8)>, &[u8], &Val)> {
        self.elements
            .iter()
            .filter(move |(id, _)| id.var == var)
            .map(|(id, v)| (id.owner, id.key.as_slice(), v))
    }

    /// Allocates the variables and aggregations that a module (or a longer one, later) names.
    pub(super) fn prepare(&mut self, module: &Module) {
        for s in module.strings.iter().skip(self.interned.len()) {
            self.interned.push(s.clone());
        }
        if self.aggregations.len() < module.aggs.len() {
            self.aggregations.resize_with(module.aggs.len(), BTreeMap::new);
        }
    }

    /// Interns a string and returns its number. Equal strings have one number, whether they are
    /// constants or probe names.
    pub fn intern(&mut self, text: &[u8]) -> u32 {
        let at = self.interned.iter().position(|s| s == text).unwrap_or_else(|| {
            self.interned.push(text.to_vec());
            self.interned.len() - 1
        });
        at as u32
    }

    pub(super) fn aggregate(&mut self, agg: usize, func: AggFunc, key: Vec<u8>, args: &[i64]) {
        let Some(table) = self.aggregations.get_mut(agg) else { return };
        if !table.contains_key(&key) && table.len() >= self.capacity.keys {
            self.drops.aggregation += 1;
            return;
        }
        let words =
            table.entry(key).or_insert_with(|| vec![func.initial_word(); func.value_size() as usize / 8]);
        agg::apply(func, words, args);
    }
}
