//! The table of names: the text of interned strings for programs that serve later probes. Its
//! layout is described in [`plane::names`].

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bpf_codegen::plan::Area;
use bpf_sys::{Map, MapSpec, Mmap, SysError};
use plane::names::{CHUNKS, chunk_strings, write};

use crate::error::Error;

/// See the [module](self).
pub(crate) struct NameTable {
    map: Map,
    storage: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunks: BTreeMap<u32, Mmap>,
    /// The strings that are in the table.
    written: HashSet<u32>,
}

impl NameTable {
    /// A table without strings.
    pub(crate) fn new(storage: u32) -> Result<NameTable, SysError> {
        let like = chunk(storage)?;
        let map = Map::create(&MapSpec::array_of_maps("dt_names", like.as_fd(), CHUNKS))?;
        Ok(NameTable { map, storage, state: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.map.as_fd().as_raw_fd()
    }

    /// Makes sure that these strings are in the table. `text` gives the text of one.
    pub(crate) fn add<'t>(
        &self,
        numbers: impl Iterator<Item = u32>,
        text: impl Fn(u32) -> Option<&'t [u8]>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { chunks, written } = &mut *state;
        for number in numbers {
            if written.contains(&number) {
                continue;
            }
            let at = number / chunk_strings(self.storage);
            if at >= CHUNKS {
                let most = CHUNKS * chunk_strings(self.storage);
                return Err(Error::Setting(format!(
                    "too many names of probes: a session has {most} at most"
                )));
            }
            if let std::collections::btree_map::Entry::Vacant(place) = chunks.entry(at) {
                let chunk = chunk(self.storage)?;
                self.map.set_fd(at, chunk.as_fd())?;
                place.insert(chunk.mmap(true)?);
            }
            if let (Some(chunk), Some(text)) = (chunks.get(&at), text(number)) {
                write(chunk.words(), self.storage, number, text);
                written.insert(number);
            }
        }
        Ok(())
    }
}

fn chunk(storage: u32) -> Result<Map, SysError> {
    Map::create(&MapSpec::mmapable("dt_names_chunk", storage, chunk_strings(storage)))
}

/// A map of the interned strings, for programs that use their text and not only their numbers.
pub(crate) fn strings(area: Area, strings: &[Arc<[u8]>]) -> Result<Map, SysError> {
    let total = u32::try_from(area.total()).unwrap_or(u32::MAX);
    let (stride, count) = if area.direct() { (total, 1) } else { (area.stride, area.count) };
    let map = Map::create(&MapSpec::mmapable("dt_strings", stride, count))?;
    // Written in place, because the names of a kernel are many megabytes.
    let memory = map.mmap(true)?;
    let slots = memory.words().chunks(area.stride as usize / 8);
    for (text, slot) in strings.iter().zip(slots) {
        let text = &text[..text.len().min(area.stride as usize - 1)];
        for (chunk, word) in text.chunks(8).zip(slot) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }
    Ok(map)
}
