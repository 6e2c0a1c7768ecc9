//! The stack store: a preallocated BPF hash map from the hash of a stack to its frames. Each
//! different stack is stored once.
//!
//! A record or key holds 8 bytes, the hash; 0 means that the stack could not be taken. The key
//! decision: a 64-bit hash of the frames *is* the id. The kernel's own stack maps use 32 bits and
//! either lose or overwrite stacks that collide. Here two of a million stacks collide with
//! probability 3e-8, and nothing is ever overwritten. So a recorded id names the same stack until
//! the session ends. The hash of a user stack includes its process, because the same addresses mean
//! other code in another process.
//!
//! ```text
//!  key    u64  hash
//!  value  +0  tgid     u32   0 for kernel stacks
//!         +4  nframes  u32
//!         +8  exec     u64   generation of the process's image (always 0 so far)
//!         +16 pcs[frames]    the first nframes are valid
//! ```

/// Offset of the process (tgid, the tracer's namespace).
pub const TGID: u32 = 0;
/// Offset of the number of frames.
pub const NFRAMES: u32 = 4;
/// Offset of the exec generation.
pub const EXEC: u32 = 8;
/// Offset of the frames.
pub const PCS: u32 = 16;
/// Maximum number of frames of a stack (`kernel.perf_event_max_stack`'s default).
pub const FRAMES_MAX: u32 = 127;
/// Capacity of the store, in stacks.
pub const STACKS: u32 = 8192;

/// Bytes of a value for stacks of at most `frames` frames.
pub const fn value_size(frames: u32) -> u32 {
    PCS + 8 * frames
}

/// A stack read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Process (tgid, the tracer's namespace; 0 outside of it); 0 for kernel stacks.
    pub tgid: u32,
    /// Generation of the process's image.
    pub exec: u64,
    /// Return addresses, innermost first.
    pub pcs: Vec<u64>,
}

impl Stack {
    /// Reads a value; `None` when it is malformed.
    pub fn read(value: &[u8]) -> Option<Stack> {
        let word = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
        let head = word(0)?;
        let frames = (head >> 32) as usize;
        let pcs = (0..frames).map(|i| word(PCS as usize + 8 * i)).collect::<Option<_>>()?;
        Some(Stack { tgid: head as u32, exec: word(EXEC as usize)?, pcs })
    }
}
