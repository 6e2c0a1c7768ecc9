//! What every walker of a runtime is given: the area of a stack, and what is known of the process.
//!
//! ```text
//!  area of the stack   frames, state of the walk             see `stack`
//!  calls     +0        count, words                          what is kept
//!            ends      where each frame of the stack ends
//!            state     the stack pointer, then what the walker needs
//!            joined    an entry of the store with both
//! ```

use crate::mir::{Builder, Helper, Label, Size, V};
use crate::routines::words::read_by;

/// Offset of the stack pointer in the state.
pub(super) const LOW: i16 = 0;
/// Bytes of the state before what the walker needs.
pub(super) const STATE_HEAD: u32 = 8;

/// Where the frames of a runtime are in the area of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::routines) struct CallArea {
    /// The offset of their number, behind which they are.
    pub(in crate::routines) at: u32,
    /// The most frames of a runtime.
    pub(in crate::routines) most: u32,
    /// The most frames of the stack.
    pub(in crate::routines) frames: u32,
    /// Bytes of the state: the most that a walker needs.
    pub(super) state_bytes: u32,
}

impl CallArea {
    /// The offset of where the first frame of the stack ends.
    pub(in crate::routines) fn ends(self) -> u32 {
        self.at + 8 + 8 * self.most
    }

    /// The offset of the state.
    pub(super) fn state(self) -> u32 {
        self.ends() + 8 * self.frames
    }

    /// The offset of the stack pointer, which the walk by tables stores.
    pub(in crate::routines) fn low(self) -> i16 {
        self.state() as i16 + LOW
    }

    /// The offset of an entry with both.
    pub(in crate::routines) fn joined(self) -> u32 {
        self.state() + self.state_bytes
    }

    /// The offset behind it.
    pub(in crate::routines) fn end(self) -> u32 {
        self.joined() + plane::stacks::value_size(self.frames + self.most)
    }

    /// Adds the word of a frame to so many, and returns how many there are then. The caller has
    /// compared their number with the most.
    pub(super) fn push(self, b: &mut Builder, place: V, calls: V, word: V) -> V {
        let offset = b.shl(calls, 3);
        let there = b.add(place, offset);
        b.store(Size::B8, there, self.at as i16 + 8, word);
        let calls = b.add(calls, 1);
        b.store(Size::B8, place, self.at as i16, calls);
        calls
    }
}

/// What is known of the process.
#[derive(Clone, Copy)]
pub(in crate::routines) struct Process {
    /// The number of its runtime, and the address of the state of that: see
    /// [`plane::unwind::RUNTIME_SHIFT`].
    pub(in crate::routines) runtime: V,
    /// The base of the thread-local storage of this thread.
    pub(in crate::routines) thread: V,
    /// Where the stack of the first thread begins.
    pub(in crate::routines) start_stack: V,
    /// What tells its program from others.
    pub(in crate::routines) who: V,
    /// The offset of the walk's window, which nobody needs any more.
    pub(in crate::routines) window: u32,
}

/// A word of the process at an address and an offset. Jumps to `failed` if it cannot be read.
pub(super) fn read_word(b: &mut Builder, base: V, offset: i32, failed: Label) -> V {
    let word = b.stack(8);
    read_by(b, Helper::PROBE_READ_USER, (word, 0), (base, offset), Size::B8, failed)
}
