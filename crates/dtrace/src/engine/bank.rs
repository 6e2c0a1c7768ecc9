//! The rings of a session in memory, and its tables.

use std::collections::BTreeMap;

use bpf_codegen::mir::MapRef;
use bpf_runtime::maps::Maps;
use bpf_sys::Mmap;
use plane::control::{DropTracker, PerCpu};
use plane::read::Rings;

use crate::error::Error;

/// Rings and control elements that were created together; see [`bpf_codegen::plan`].
pub(crate) struct Bank {
    pub(crate) percpu: Mmap,
    rings: Option<Mmap>,
    pub(crate) cpus: u32,
    ring_size: u32,
    pub(crate) drops: DropTracker,
}

impl Bank {
    pub(crate) fn new(maps: &Maps) -> Result<Bank, Error> {
        let percpu = maps.get(MapRef::PerCpu).ok_or_else(|| Error::Internal("no control elements".into()))?;
        Ok(Bank {
            percpu: percpu.mmap(true)?,
            rings: maps.get(MapRef::Rings).map(|m| m.mmap(true)).transpose()?,
            cpus: maps.plan.cpus,
            ring_size: maps.plan.ring_size,
            drops: DropTracker::default(),
        })
    }

    pub(crate) fn rings(&self) -> Option<Rings<'_>> {
        let percpu = PerCpu::new(self.percpu.words(), self.cpus)?;
        Some(Rings { memory: self.rings.as_ref()?.words(), size: self.ring_size, percpu })
    }
}

/// The rings of all banks.
pub(crate) fn rings(banks: &[Bank]) -> Vec<Rings<'_>> {
    banks.iter().filter_map(Bank::rings).collect()
}

/// Maps the tables of aggregations into memory.
pub(crate) fn tables(maps: &Maps) -> Result<BTreeMap<u32, Mmap>, Error> {
    let all = maps.iter().filter_map(|(at, map)| match at {
        MapRef::Agg(number) => Some((number, map)),
        _ => None,
    });
    all.map(|(number, map)| Ok((number, map.mmap(true)?))).collect()
}
