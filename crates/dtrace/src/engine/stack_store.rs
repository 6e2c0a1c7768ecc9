//! The consumer's side of the stack store: reading, and replacing a side that is half full.
//! [`plane::stacks`] describes the protocol.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bpf_codegen::mir::MapRef;
use bpf_runtime::maps::{Maps, stack_side};
use bpf_sys::{Map, Mmap, SysError};
use plane::siphash;
use plane::stacks::{BlockShape, Side, Stack};

use crate::error::Error;

/// The key of a session's stacks: random numbers of the system.
pub(crate) fn random_key() -> siphash::Key {
    [0; 2].map(|_: u64| RandomState::new().build_hasher().finish())
}

/// See the [module](self).
pub(crate) struct StackStore {
    shape: BlockShape,
    /// The most blocks of a side.
    blocks_max: u32,
    /// The map of the side in use.
    sides: Arc<Map>,
    /// The side that programs use, or will use when `replacing` has ended.
    current: StackSide,
    /// The side before, and the thread that replaces it and waits for a grace period.
    replacing: Option<(StackSide, JoinHandle<Result<(), SysError>>)>,
    /// Replacements that failed.
    failures: Failures,
}

/// A side in memory.
struct StackSide {
    memory: Mmap,
    blocks: u32,
    /// When it was created.
    since: Instant,
}

/// When to try again after a replacement failed. The reason is a lack of memory or of threads, and
/// each attempt makes the kernel search for megabytes.
#[derive(Debug, Default)]
struct Failures {
    /// Not before this time, and the delay after another failure.
    next: Option<(Instant, Duration)>,
}

impl Failures {
    const FIRST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(60);

    fn allow(&self, now: Instant) -> bool {
        self.next.is_none_or(|(at, _)| now >= at)
    }

    fn failed(&mut self, now: Instant) {
        let delay = self.next.map_or(Self::FIRST, |(_, delay)| delay);
        self.next = Some((now + delay, (2 * delay).min(Self::MOST)));
    }

    fn succeeded(&mut self) {
        self.next = None;
    }
}

/// A side that was half full after less than this time is followed by a larger one.
const QUICK: Duration = Duration::from_secs(1);

impl StackSide {
    fn new(map: &Map, shape: BlockShape, blocks: u32) -> Result<StackSide, SysError> {
        let memory = map.mmap(true)?;
        Side::new(memory.words(), shape).begin();
        Ok(StackSide { memory, blocks, since: Instant::now() })
    }

    fn read(&self, shape: BlockShape) -> Side<'_> {
        Side::new(self.memory.words(), shape)
    }
}

impl StackStore {
    /// The store of these maps, if they have one. The maps of the store belong to it from now on.
    pub(crate) fn take(maps: &mut Maps, limit: u64) -> Result<Option<StackStore>, Error> {
        let shape = maps.plan.stack_block;
        let (Some(side), Some(sides)) = (maps.take(MapRef::StackSide), maps.take(MapRef::Stacks)) else {
            return Ok(None);
        };
        let current = StackSide::new(&side, shape, 1)?;
        let blocks_max = shape.blocks_max(limit);
        let (sides, failures) = (Arc::new(sides), Failures::default());
        Ok(Some(StackStore { shape, blocks_max, sides, current, replacing: None, failures }))
    }

    /// The map that programs use.
    pub(crate) fn fd(&self) -> (MapRef, RawFd) {
        (MapRef::Stacks, self.sides.as_fd().as_raw_fd())
    }

    /// The stack of an id that is not evicted.
    pub(crate) fn find(&self, id: u64) -> Option<Stack> {
        let before = self.replacing.as_ref().map(|(side, _)| side);
        [Some(&self.current), before].into_iter().flatten().find_map(|side| side.read(self.shape).find(id))
    }

    /// Begins to replace a side that is half full, if programs still fill it. When it is replaced,
    /// returns its stacks, which are evicted: they are not in the store any more.
    pub(crate) fn evict(&mut self, fills: bool) -> Vec<(u64, Stack)> {
        let mut evicted = Vec::new();
        if let Some((side, thread)) = self.replacing.take_if(|(_, thread)| thread.is_finished()) {
            match thread.join() {
                Ok(Ok(())) => {
                    self.failures.succeeded();
                    evicted.extend(side.read(self.shape).stacks());
                }
                // The kernel did not accept the new side, so programs still use the old one.
                _ => {
                    self.failures.failed(Instant::now());
                    self.current = side;
                }
            }
        }
        let wanted = fills && self.replacing.is_none() && self.current.read(self.shape).is_half_full();
        if wanted && self.failures.allow(Instant::now()) && self.replace().is_err() {
            // Without memory for another side, this one serves until it is full, and drops are
            // counted.
            self.failures.failed(Instant::now());
        }
        evicted
    }

    /// True while a side is being replaced.
    pub(crate) fn is_evicting(&self) -> bool {
        self.replacing.is_some()
    }

    fn replace(&mut self) -> Result<(), SysError> {
        let quick = self.current.since.elapsed() < QUICK;
        let larger = if quick { self.current.blocks * 2 } else { self.current.blocks }.min(self.blocks_max);
        let same = self.current.blocks;
        let created = |blocks| Ok((stack_side(self.shape, blocks)?, blocks));
        let (map, blocks) = created(larger).or_else(|_: SysError| created(same))?;
        let next = StackSide::new(&map, self.shape, blocks)?;
        let sides = self.sides.clone();
        // The update returns after a grace period, which may be long on an overloaded machine.
        let body = move || sides.set_fd(0, map.as_fd());
        let thread = threads::spawn("stacks", threads::SMALL_STACK, body);
        let thread = thread.map_err(|e| SysError::new("start a thread", e.raw_os_error().unwrap_or(0)))?;
        self.replacing = Some((std::mem::replace(&mut self.current, next), thread));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_session_has_a_key_of_its_own() {
        let (a, b) = (random_key(), random_key());
        assert!(a != b && a[0] != a[1], "{a:x?} {b:x?}");
    }

    #[test]
    fn a_failed_replacement_is_tried_again_after_growing_delays() {
        let (start, mut failures) = (Instant::now(), Failures::default());
        assert!(failures.allow(start));
        let mut now = start;
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            failures.failed(now);
            assert!(!failures.allow(now + Duration::from_millis(1000 * seconds - 1)));
            now += Duration::from_secs(seconds);
            assert!(failures.allow(now), "{seconds}");
        }
        failures.succeeded();
        assert!(failures.allow(start));
        failures.failed(start);
        assert!(failures.allow(start + Duration::from_secs(1)));
    }
}
