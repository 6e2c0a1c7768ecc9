//! `self->`: one task-storage value a thread for the whole session, with a struct for each context level.
//!
//! An interrupt is not the thread that it interrupted, so `self->x` in an interrupt must not be the thread's: each level
//! that an enabled probe can reach has its own copy. The decision that shapes it: *one* map and one struct with a place
//! for every variable. Creating task storage costs 670 ns, getting it 16; a map a variable would pay both for each. (What a
//! running session is given later has such a map: the struct cannot grow under the programs that use it.)
//!
//! ```text
//!  value   +0  thread id  u64  0 until given (control page's `unique` + 1): first word of keys of self-> arrays
//!          +8  level 0: thread       vars: 8 bytes an integer, strsize a string
//!              level 1: soft interrupt
//!              level 2: hard interrupt
//!              level 3: NMI
//!          +…  heads of the lists of each self-> array: see [`crate::owned`]
//! ```
//!
//! Within a level a thread's programs run one after the other, so plain stores will do. The value is not created in an
//! NMI (the allocator is not safe there on every kernel): that store is a counted dynamic drop.

/// Offset of the thread id.
pub const THREAD_ID: u32 = 0;
/// Offset of the first level's variables.
pub const LEVELS: u32 = 8;
/// Context levels there are.
pub const LEVELS_MAX: u32 = 4;

/// Bits of the kernel's preempt count that say which level runs.
pub mod preempt_count {
    /// Serving a soft interrupt.
    pub const SOFTIRQ: u32 = 0x100;
    /// In a hard interrupt.
    pub const HARDIRQ: u32 = 0xf_0000;
    /// In an NMI.
    pub const NMI: u32 = 0xf0_0000;
}

/// Where things are in the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadShape {
    /// Levels kept, 1 to 4. A higher level than these shares the last.
    pub levels: u32,
    /// Bytes of a level's variables.
    pub level_size: u32,
    /// `self->` arrays whose heads are here.
    pub arrays: u32,
}

impl ThreadShape {
    /// Bytes of the map's value.
    pub const fn value_size(self) -> u32 {
        self.heads(self.arrays)
    }

    /// Where the heads of an array are.
    pub const fn heads(self, array: u32) -> u32 {
        LEVELS + self.levels * self.level_size + array * crate::owned::HEADS
    }
}

/// The first key word of an element of a `self->` array.
pub const fn key_word(thread_id: u64, level: u32) -> u64 {
    thread_id << 2 | level as u64
}
