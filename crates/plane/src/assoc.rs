//! Associative arrays: elements of preallocated BPF hash maps, each with a sequence word.
//!
//! The kernel reuses a deleted element for the next insert at once. A program that still holds the
//! element's address would then read, or worse write, the value of another key. The key decision:
//! the first word of the value is a *version that no two incarnations share*. An even version is
//! stable. A writer locks the element by compare-exchange from the even version that it read. The
//! exchange fails if the element has been reused. A reader reads the version before and after the
//! data. The alternative is a tombstone that is kept for a grace period (dirty, rinsing, clean). It
//! needs a cleaner that runs at `cleanrate`, and inserts fail while the cleaner is behind.
//!
//! ```text
//!  value                                            word
//!   +0  word     u64                                 bit 0  LOCKED  a writer holds it
//!   +8  keyhash  u64  table::hash of the key's words bit 1  GONE    deleted, or not yet inserted; with LOCKED
//!   +16 data     8 bytes, or strsize                 else   version: nanoseconds of the insert
//!                                                           * 16; each write adds 4
//!
//!  insert  LOCKED|GONE, bpf_map_update_elem(NOEXIST) ──exchange──> even  (the kernel copies by words)
//!  write   even ──compare-exchange──> even|LOCKED, data ──exchange──> even + 4
//!  delete  even ──compare-exchange──> even|LOCKED|GONE, bpf_map_delete_elem
//!          the latter fails in an interrupt of the holder of the bucket lock:
//!          data = 0 ──exchange──> even + 4
//! ```
//!
//! A number is one word: it is read while a writer holds the element, and is the one before the
//! write or after it. Otherwise `a[k] = a[k] + 1` would begin again at 0 where the element was
//! busy. An element that is being inserted is GONE, because its word may be there before its data.
//!
//! Readers and writers also compare the key's hash, because an element may already belong to
//! another key when its version is read for the first time.
//!
//! A write takes longer than a nanosecond. So `inserted * 16 + writes * 4` never reaches the
//! version of a later insert. Retries are bounded ([`TRIES`]); running out of tries is a counted
//! dynamic drop. Keys are words (`LayoutBuilder::push_key`). The key of a `self->` array begins
//! with a word (thread id * 4 + context level), and its elements end with the number of a node
//! ([`crate::owned`]).

/// Offset of the sequence word.
pub const WORD: u32 = 0;
/// Offset of the key's hash.
pub const KEYHASH: u32 = 8;
/// Offset of the data.
pub const DATA: u32 = 16;
/// Flag: a writer holds the element.
pub const LOCKED: u64 = 1;
/// Flag: the element was deleted, or is not inserted yet (set with LOCKED).
pub const GONE: u64 = 2;
/// The amount that each write adds to the word.
pub const WRITE: u64 = 4;
/// Left shift that turns the time of the insert into the first version.
pub const TIME_SHIFT: u32 = 4;
/// Tries before an element counts as busy.
pub const TRIES: u32 = 4;

/// Bytes of kernel overhead per element of a preallocated hash map.
const ELEMENT_OVERHEAD: u64 = 64;

/// The most elements of an array.
pub const ELEMENTS_MAX: u32 = 1 << 20;

/// Bytes of a map value with `data` bytes of data.
pub const fn value_size(data: u32) -> u32 {
    DATA + data.div_ceil(8) * 8
}

/// Bytes of the node number after the data; only elements of `self->` arrays have one.
pub const NODE: u32 = 8;

/// The number of elements that fit into `bytes`, at least 16. `owned`: the array is a `self->`
/// array.
pub fn elements(bytes: u64, key_size: u32, data: u32, owned: bool) -> u32 {
    (bytes / element_size(key_size, data, owned)).clamp(16, u64::from(ELEMENTS_MAX)) as u32
}

/// True if more elements would fit into `bytes` than an array has.
pub fn exceeds_most(bytes: u64, key_size: u32, data: u32, owned: bool) -> bool {
    bytes / element_size(key_size, data, owned) > u64::from(ELEMENTS_MAX)
}

/// The memory of an element of an array.
pub fn element_size(key_size: u32, data: u32, owned: bool) -> u64 {
    let node = if owned { NODE + crate::owned::node_size(key_size) } else { 0 };
    u64::from(key_size) + u64::from(value_size(data)) + u64::from(node) + ELEMENT_OVERHEAD
}
