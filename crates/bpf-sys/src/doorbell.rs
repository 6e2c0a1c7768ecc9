//! The doorbell with which programs wake the consumer: the smallest possible BPF ring buffer.
//!
//! The buffer carries no data. A program outputs a word with a forced wakeup. The consumer waits in
//! poll(2), and silences the doorbell by advancing the buffer's consumer position to the
//! producer's. Records use our own rings.

use crate::error::SysError;
use crate::map::page_size;
use crate::map::{Map, MapSpec};
use crate::mmap::Mmap;
use crate::syscall::last_errno;
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
    /// Creates the map too.
    pub fn new() -> Result<Doorbell, SysError> {
        let page = u32::try_from(page_size()).unwrap_or(4096);
        Doorbell::over(Map::create(&MapSpec::ringbuf("doorbell", page))?)
    }

    /// Uses an existing ring buffer.
    pub fn over(map: Map) -> Result<Doorbell, SysError> {
        // Layout: a page with the consumer's position, a page with the producer's position, the
        // data.
        let consumer = Mmap::new(&map, 0, page_size(), true)?;
        let producer = Mmap::new(&map, page_size(), page_size(), false)?;
        Ok(Doorbell { map, consumer, producer })
    }

    /// The map, to be used in programs.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Whether it rang since it was last silenced.
    pub fn is_rung(&self) -> bool {
        self.positions().is_some_and(|(consumed, produced)| consumed != produced)
    }

    fn positions(&self) -> Option<(u64, u64)> {
        let produced = self.producer.load(0, Ordering::Acquire)?;
        Some((self.consumer.word(0)?.load(Ordering::Relaxed), produced))
    }

    /// Silences it. Later rings are reported again.
    pub fn silence(&self) {
        if let (Some(to), Some(from)) = (self.consumer.word(0), self.producer.load(0, Ordering::Acquire)) {
            to.store(from, Ordering::Release);
        }
    }

    /// Waits for a ring (true), or the timeout or a signal (false). Does not silence the doorbell.
    pub fn wait(&self, at_most: Duration) -> Result<bool, SysError> {
        let mut poll = libc::pollfd { fd: self.map.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up, because a timeout of 0 ms for the last fraction would spin.
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
