//! Writes captures.

use std::io::{self, Write};

use crate::block::{self, BLOCK_MAX, MAGIC, VERSION, kind};
use crate::model::{Firing, Head, Loss, Snapshot};
use crate::wire::{
    FIRING_MAX, ITEMS_MAX, Interned, put_firing, put_head, put_int, put_loss, put_snapshot, put_uint,
};

/// Bytes of firings after which a block is written: so much is lost with it if it is damaged.
const ENOUGH: usize = 256 << 10;

/// Bytes of the machine in one block.
const PART: usize = BLOCK_MAX / 2;

/// The most bytes before the firings of a block: how many there are, and the first time.
const HEAD_MAX: usize = 20;

/// Writes a capture.
pub struct Writer<W: Write> {
    out: W,
    /// The block that is being made.
    contents: Vec<u8>,
    table: Interned,
    count: u32,
    /// What the firings of the block take in memory.
    memory: usize,
    times: (u64, u64),
    scratch: Vec<u8>,
    written: u64,
    /// What is missing and not yet in the file.
    losses: Vec<Loss>,
}

/// A firing is left out of which more was read than fits.
const TOO_LONG: &str = "firings with more memory than a capture keeps";

impl<W: Write> Writer<W> {
    /// Begins a capture. `machine` is the record of the machine.
    pub fn new(mut out: W, head: &Head, machine: &[u8]) -> io::Result<Writer<W>> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut contents = Vec::new();
        put_head(&mut contents, head);
        if contents.len() > BLOCK_MAX {
            return Err(io::Error::other("too many probes for one capture: name fewer"));
        }
        out.write_all(&block::block(kind::HEAD, &contents, 0, (0, 0)))?;
        let parts = machine.chunks(PART).len() as u32;
        for (at, part) in (0u32..).zip(machine.chunks(PART)) {
            let contents = [&at.to_le_bytes()[..], &parts.to_le_bytes(), part].concat();
            out.write_all(&block::block(kind::MACHINE, &contents, 0, (0, 0)))?;
        }
        let (contents, table, scratch) = (Vec::new(), Interned::default(), Vec::new());
        let (count, memory, times, written, losses) = (0, 0, (0, 0), 0, Vec::new());
        Ok(Writer { out, contents, table, count, memory, times, scratch, written, losses })
    }

    /// Adds a firing. Those of a capture come in the order in which a replay fires them.
    pub fn firing(&mut self, firing: &Firing) -> io::Result<()> {
        let size = firing.size();
        if size > FIRING_MAX / 2 {
            self.loss(TOO_LONG, 1);
            return Ok(());
        }
        // A reader takes no block of more.
        if self.contents.len() > ENOUGH || self.memory + size > ITEMS_MAX {
            self.end_block()?;
        }
        self.encode(firing);
        if self.contents.len() + self.scratch.len() > BLOCK_MAX - HEAD_MAX {
            self.end_block()?;
            self.encode(firing);
        }
        if self.count == 0 {
            self.times.0 = firing.time;
        }
        self.contents.extend_from_slice(&self.scratch);
        self.count += 1;
        self.memory += size;
        self.times.1 = firing.time;
        self.written += 1;
        Ok(())
    }

    /// Encodes a firing as the next one of the block.
    fn encode(&mut self, firing: &Firing) {
        let before = if self.count == 0 { firing.time } else { self.times.1 };
        self.scratch.clear();
        put_firing(&mut self.scratch, firing, before, &mut self.table);
    }

    /// Adds something that is missing, `count` times more than before. It is in the file behind the
    /// next block of firings, so a capture that is killed has it.
    pub fn loss(&mut self, what: &str, count: u64) {
        match self.losses.iter_mut().find(|loss| loss.what == what) {
            Some(known) => known.count = known.count.saturating_add(count),
            None => self.losses.push(Loss { what: what.to_owned(), count }),
        }
    }

    /// Firings so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes what is there: a reader has all of it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.end_block()?;
        self.out.flush()
    }

    /// Says that it is a snapshot.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.end_block()?;
        let mut contents = Vec::new();
        put_snapshot(&mut contents, snapshot);
        self.out.write_all(&block::block(kind::SNAPSHOT, &contents, 0, (0, 0)))
    }

    /// Ends the capture.
    pub fn finish(mut self, status: i32) -> io::Result<W> {
        self.end_block()?;
        let mut contents = Vec::new();
        put_int(&mut contents, i64::from(status) as u64);
        self.out.write_all(&block::block(kind::END, &contents, 0, (0, 0)))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.count > 0 {
            let (contents, count, times) = (&self.contents, self.count, self.times);
            // The first time is where the differences begin.
            let mut all = Vec::with_capacity(contents.len() + HEAD_MAX);
            put_uint(&mut all, u64::from(count));
            put_uint(&mut all, times.0);
            all.extend_from_slice(contents);
            self.out.write_all(&block::block(kind::FIRINGS, &all, count, times))?;
        }
        self.contents.clear();
        self.table = Interned::default();
        (self.count, self.memory) = (0, 0);
        for loss in self.losses.drain(..).filter(|loss| loss.count > 0) {
            let mut contents = Vec::new();
            put_loss(&mut contents, &loss);
            self.out.write_all(&block::block(kind::LOSS, &contents, 0, (0, 0)))?;
        }
        Ok(())
    }
}
