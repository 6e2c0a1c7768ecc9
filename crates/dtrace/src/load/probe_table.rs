//! The probe table of a session in the kernel: its chunks, and who installs and takes them away.
//! See [`plane::probe_table`].
//!
//! An update of a map of maps waits for a grace period. So a chunk is installed in another thread
//! before it is needed; what an arrival needs beyond that is installed by one update.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use bpf_sys::{Map, MapSpec, Mmap, SysError};
use plane::probe_table::{CHUNK_ROWS, CHUNKS, Chunk, ROW, Rows, Site};

use crate::error::Error;

/// See the [module](self).
pub(crate) struct ProbeTable {
    map: Arc<Map>,
    chunks: Vec<Mmap>,
    rows: Rows,
    /// Installs the next chunk, or takes the last ones away: then it gives none.
    other: Option<JoinHandle<Result<Vec<Mmap>, SysError>>>,
}

/// Creates chunks and installs them. The kernel waits for a grace period.
fn install(table: &Map, first: u32, count: u32) -> Result<Vec<Mmap>, SysError> {
    let chunks = (0..count).map(|_| new_chunk()).collect::<Result<Vec<Map>, _>>()?;
    let memory = chunks.iter().map(|chunk| chunk.mmap(true)).collect();
    table.set_fds(first, &chunks.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
    memory
}

/// Takes chunks out of the table, the last one first, and then their memory. The kernel waits for
/// grace periods before that.
fn take_away(table: &Map, first: u32, chunks: Vec<Mmap>) -> Result<Vec<Mmap>, SysError> {
    let numbers = first..first + chunks.len() as u32;
    numbers.rev().try_for_each(|number| table.delete(&number.to_ne_bytes()).map(|_| ()))?;
    drop(chunks);
    Ok(Vec::new())
}

fn new_chunk() -> Result<Map, SysError> {
    Map::create(&MapSpec::mmapable("dt_probe_rows", ROW, CHUNK_ROWS))
}

impl ProbeTable {
    /// A table of one chunk.
    pub(crate) fn new() -> Result<ProbeTable, SysError> {
        let like = new_chunk()?;
        let map = Arc::new(Map::create(&MapSpec::array_of_maps("dt_probes", like.as_fd(), CHUNKS))?);
        let first = install(&map, 0, 1)?;
        let mut table = ProbeTable { map, chunks: Vec::new(), rows: Rows::default(), other: None };
        table.installed(first);
        Ok(table)
    }

    pub(crate) fn map(&self) -> &Map {
        &self.map
    }

    fn installed(&mut self, chunks: Vec<Mmap>) {
        for chunk in chunks {
            self.chunks.push(chunk);
            self.rows.installed();
        }
    }

    /// Makes sure that so many rows are free.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), Error> {
        if self.rows.available() >= count {
            return Ok(());
        }
        self.join();
        let missing = count.saturating_sub(self.rows.available()).div_ceil(CHUNK_ROWS as usize);
        let (first, most) = (self.chunks.len() as u32, CHUNKS * CHUNK_ROWS);
        let Some(more) = u32::try_from(missing).ok().filter(|more| *more <= CHUNKS - first) else {
            return Err(Error::Setting(format!(
                "too many probes that came while tracing: a session has {most} at most"
            )));
        };
        if more > 0 {
            let chunks = install(&self.map, first, more)?;
            self.installed(chunks);
        }
        Ok(())
    }

    /// Waits for the other thread and takes its chunk. If that failed, the chunk is installed when
    /// it is needed.
    fn join(&mut self) {
        if let Some(Ok(Ok(chunks))) = self.other.take().map(JoinHandle::join) {
            self.installed(chunks);
        }
    }

    fn in_thread(&mut self, work: impl FnOnce(&Map) -> Result<Vec<Mmap>, SysError> + Send + 'static) {
        let map = self.map.clone();
        // Without the thread, a chunk is installed when it is needed.
        self.other = threads::spawn("chunks", threads::SMALL_STACK, move || work(&map)).ok();
    }

    /// Installs one more chunk in another thread when the last one is in use.
    pub(crate) fn keep_spare(&mut self) {
        let number = self.chunks.len() as u32;
        if self.other.is_none() && self.rows.chunks_used() >= number && number < CHUNKS {
            self.in_thread(move |map| install(map, number, 1));
        }
    }

    /// Takes chunks that are not in use away, in another thread.
    pub(crate) fn trim(&mut self) {
        if self.other.as_ref().is_some_and(|other| !other.is_finished()) {
            return;
        }
        self.join();
        let first = self.rows.trim();
        let chunks = self.chunks.split_off((first as usize).min(self.chunks.len()));
        if !chunks.is_empty() {
            self.in_thread(move |map| take_away(map, first, chunks));
        }
    }

    /// Writes a site into a free row, without its generation. Returns the row and the generation.
    pub(crate) fn write(&mut self, site: &Site) -> Result<(u32, u32), Error> {
        let full = || Error::Setting("every generation of the probe table was used".into());
        let (row, generation) = self.rows.take().ok_or_else(full)?;
        self.chunk(row).into_iter().for_each(|chunk| chunk.write(row, site));
        Ok((row, generation))
    }

    /// The chunk of a row.
    pub(crate) fn chunk(&self, row: u32) -> Option<Chunk<'_>> {
        Chunk::new(self.chunks.get((row / CHUNK_ROWS) as usize)?.words())
    }

    /// The row is free.
    pub(crate) fn give_back(&mut self, row: u32) {
        self.rows.give_back(row);
    }
}
