//! `self->`: one task-storage value per thread for the whole session, with one struct per context
//! level.
//!
//! An interrupt is not the thread that it interrupts, so `self->x` in an interrupt must not be the
//! thread's `self->x`. Each level that an enabled probe can reach has its own copy. The key
//! decision: *one* map and one struct with a field for every variable. Creating task storage costs
//! 670 ns and a look-up 16 ns; a map per variable would pay both for each variable. (A variable
//! that is added to a running session has its own map, because the struct cannot grow while
//! programs use it.)
//!
//! ```text
//!  value   +0  thread id  u64  0 until assigned (control page's `unique` + 1): first word of
//!                              the keys of self-> arrays
//!          +8  level 0: thread       vars: 8 bytes per integer, strsize per string
//!              level 1: soft interrupt
//!              level 2: hard interrupt
//!              level 3: NMI
//!          +…  list heads of each self-> array: see [`crate::owned`]
//! ```
//!
//! Within a level the programs of a thread run one after the other, so plain stores are enough. The
//! value is not created in an NMI, because the allocator is not safe there on every kernel. Such a
//! store is a counted dynamic drop.

/// Offset of the thread id.
pub const THREAD_ID: u32 = 0;
/// Offset of the first level's variables.
pub const LEVELS: u32 = 8;
/// Number of context levels.
pub const LEVELS_MAX: u32 = 4;
/// Bytes of an array's heads in a thread's storage.
pub const HEADS: u32 = 8 * LEVELS_MAX;

/// Bits of the kernel's preempt count that tell the context level.
pub mod preempt_count {
    /// In a soft interrupt.
    pub const SOFTIRQ: u32 = 0x100;
    /// In a hard interrupt.
    pub const HARDIRQ: u32 = 0xf_0000;
    /// In an NMI.
    pub const NMI: u32 = 0xf0_0000;
}

/// The layout of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadShape {
    /// Number of levels, 1 to 4. A level beyond them uses the last one.
    pub levels: u32,
    /// Bytes of a level's variables.
    pub level_size: u32,
    /// Number of `self->` arrays whose list heads are in the value.
    pub arrays: u32,
}

impl ThreadShape {
    /// Bytes of the map's value.
    pub const fn value_size(self) -> u32 {
        self.heads(self.arrays)
    }

    /// Offset of the list heads of an array.
    pub const fn heads(self, array: u32) -> u32 {
        LEVELS + self.levels * self.level_size + array * HEADS
    }
}

/// The first key word of an element of a `self->` array.
pub const fn key_word(thread_id: u64, level: u32) -> u64 {
    thread_id << 2 | level as u64
}
