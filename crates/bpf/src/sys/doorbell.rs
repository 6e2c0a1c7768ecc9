//! The bell by which programs wake the consumer: the smallest BPF ring buffer there is.
//!
//! Nothing travels through it. A program outputs a word with a forced wakeup; the consumer, poll(2)ing, moves the
//! buffer's own consumer position up to the producer's, which silences it. Records go through our own rings.

use super::map::page_size;
use super::{Map, MapSpec, Mmap, SysError, last_errno};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A one-page ring buffer and its positions.
#[derive(Debug)]
pub struct Doorbell {
    map: Map,
    consumer: Mmap,
    producer: Mmap,
}

impl Doorbell {
    /// Makes the map, too.
    pub fn new() -> Result<Doorbell, SysError> {
        let page = u32::try_from(page_size()).unwrap_or(4096);
        Doorbell::over(Map::create(&MapSpec::ringbuf("doorbell", page))?)
    }

    /// Over a ring buffer that exists.
    pub fn over(map: Map) -> Result<Doorbell, SysError> {
        // Layout: a page with the consumer's position, one with the producer's, the data.
        let consumer = Mmap::new(&map, 0, page_size(), true)?;
        let producer = Mmap::new(&map, page_size(), page_size(), false)?;
        Ok(Doorbell { map, consumer, producer })
    }

    /// The map, for programs.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Whether it was rung since it was last silenced.
    pub fn is_rung(&self) -> bool {
        self.positions().is_some_and(|(consumed, produced)| consumed != produced)
    }

    fn positions(&self) -> Option<(u64, u64)> {
        let produced = self.producer.word(0)?.load(Ordering::Acquire);
        Some((self.consumer.word(0)?.load(Ordering::Relaxed), produced))
    }

    /// Silences it; rings from now on will be heard.
    pub fn silence(&self) {
        if let (Some(to), Some(from)) = (self.consumer.word(0), self.producer.word(0)) {
            to.store(from.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// Waits until it is rung (true) or the time is over or a signal came (false). Does not silence it.
    pub fn wait(&self, at_most: Duration) -> Result<bool, SysError> {
        let mut poll = libc::pollfd { fd: self.map.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up: to wait 0 ms for the last half would be to spin.
        let ms = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: one valid pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, ms) } {
            n if n >= 0 => Ok(n > 0),
            _ if last_errno() == libc::EINTR => Ok(false),
            _ => Err(SysError::new("wait for the doorbell", last_errno())),
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
