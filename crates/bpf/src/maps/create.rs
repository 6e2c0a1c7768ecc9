//! Creating the maps of a plan, and reducing those that do not fit.

use std::collections::BTreeMap;

use super::{Plan, SizeOption, VarPlan};
use crate::mir::MapRef;
use crate::sys::{Map, MapBtf, SysError};

/// A size that was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// DTrace's name of the size: `buffer size`, `aggregation size`, `dynamic variable size`.
    pub what: &'static str,
    /// The reduced size, in the unit of its option.
    pub bytes: u64,
}

/// Creates the maps of a plan that the plan `before` does not have.
pub(super) fn make(
    plan: Plan,
    before: Option<&Plan>,
    auto: bool,
    thread_btf: Option<MapBtf<'_>>,
) -> Result<Maps, SysError> {
    let mut maps = Maps { plan, lowered: Vec::new(), maps: BTreeMap::new() };
    let mut halvings: BTreeMap<&'static str, u32> = BTreeMap::new();
    if maps.plan.ring_capped && before.is_none_or(|b| b.bank != maps.plan.bank) {
        if !auto {
            return Err(SysError::new("create the buffers", libc::E2BIG));
        }
        halvings.insert("buffer size", 1);
    }
    for (map, sized) in maps.plan.wanted(before) {
        loop {
            match maps.plan.create(map, thread_btf, &maps.maps) {
                Ok(made) => break drop(maps.maps.insert(map, made)),
                Err(e) if auto && matches!(e.errno, libc::ENOMEM | libc::E2BIG) && maps.plan.halve(sized) => {
                    let what = match sized {
                        SizeOption::Aggregation(_) => "aggregation size",
                        SizeOption::Dynamic(_) => "dynamic variable size",
                        SizeOption::Buffer | SizeOption::Fixed => "buffer size",
                    };
                    *halvings.entry(what).or_default() += 1;
                }
                Err(e) => return Err(e),
            }
        }
    }
    maps.lowered = halvings.into_keys().map(|what| Lowered { what, bytes: maps.bytes_of(what) }).collect();
    Ok(maps)
}

/// The maps of a session.
#[derive(Debug)]
pub struct Maps {
    /// The plan of the created maps. Programs must be generated for this plan.
    pub plan: Plan,
    /// The sizes that were reduced to make the maps fit.
    pub lowered: Vec<Lowered>,
    pub(super) maps: BTreeMap<MapRef, Map>,
}

impl Maps {
    /// Creates the maps of a plan. `thread_btf` describes the value of `self->` (an array of
    /// `value_size / 8` words, see [`Plan::thread`]) and its key, a 32-bit int. Without
    /// `thread_btf`, the BTF is created here. With `auto`, a map that does not fit is halved until
    /// it does.
    pub fn create(plan: Plan, auto: bool, thread_btf: Option<MapBtf<'_>>) -> Result<Maps, SysError> {
        make(plan, None, auto, thread_btf)
    }

    fn bytes_of(&self, what: &str) -> u64 {
        match what {
            "aggregation size" => self.plan.aggs.iter().map(|a| 2 * u64::from(a.shape.table_size)).sum(),
            "dynamic variable size" => {
                let each = |v: &VarPlan| match v {
                    VarPlan::Assoc(a) => u64::from(a.elements) * u64::from(a.key_size() + a.value_size()),
                    _ => 0,
                };
                self.plan.vars.iter().map(each).sum()
            }
            _ => u64::from(self.plan.ring_size),
        }
    }

    /// A map of the session.
    pub fn get(&self, map: MapRef) -> Option<&Map> {
        self.maps.get(&map)
    }

    /// Adds a map that belongs to a program (strings, tables).
    pub fn insert(&mut self, at: MapRef, map: Map) {
        self.maps.insert(at, map);
    }

    /// Removes a map and returns it, for a reader that owns it (the doorbell).
    pub fn take(&mut self, map: MapRef) -> Option<Map> {
        self.maps.remove(&map)
    }

    /// All maps, with their names in programs.
    pub fn iter(&self) -> impl Iterator<Item = (MapRef, &Map)> {
        self.maps.iter().map(|(r, m)| (*r, m))
    }
}
