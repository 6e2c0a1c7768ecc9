//! Associative arrays: values of preallocated BPF hash maps under a sequence word.
//!
//! The kernel hands a deleted element to the next insert at once, so whoever still holds its address reads, or worse
//! writes, another key's value. The decision that shapes it: the value's first word is a *version that no two
//! incarnations share*, even = stable. A writer locks by compare-exchange from the even word it saw, which fails if the
//! element has since become something else; a reader takes the word before and after. The alternative, a tombstone kept
//! until a grace period has passed (dirty, rinsing, clean), needs a cleaner that runs at `cleanrate` and loses
//! inserts while it does not.
//!
//! ```text
//!  value                                            word
//!   +0  word     u64                                 bit 0  LOCKED  a writer is in it
//!   +8  keyhash  u64  table::hash of the key's words bit 1  GONE    deleted; with LOCKED
//!   +16 data     8 bytes, or strsize                 else   unique: nanoseconds of the insert * 16, each write adds 4
//!
//!  insert  LOCKED, bpf_map_update_elem(NOEXIST) ──exchange──> even     (the kernel copies a value word by word)
//!  write   even ──compare-exchange──> even|LOCKED, data ──exchange──> even + 4
//!  delete  even ──compare-exchange──> even|LOCKED|GONE, bpf_map_delete_elem
//!          which fails in an interrupt of whoever holds the bucket: data = 0 ──exchange──> even + 4
//! ```
//!
//! The key's hash is looked at too, between word and exchange and between word and word: an address that was looked up may
//! belong to another key by the time its word is read.
//!
//! A write takes longer than a nanosecond, so `inserted * 16 + writes * 4` never reaches the word of a later insert.
//! Retries are bounded ([`TRIES`]); too busy is a counted dynamic drop. Keys are words (`LayoutBuilder::push_key`);
//! those of `self->` arrays begin with a word thread id * 4 + context level, and their elements end with the number of a
//! node ([`crate::owned`]).

/// Offset of the sequence word.
pub const WORD: u32 = 0;
/// Offset of the key's hash.
pub const KEYHASH: u32 = 8;
/// Offset of the data.
pub const DATA: u32 = 16;
/// A writer is in the element.
pub const LOCKED: u64 = 1;
/// The element was deleted (set with LOCKED).
pub const GONE: u64 = 2;
/// What each write adds to the word.
pub const WRITE: u64 = 4;
/// How far the insert's nanoseconds are shifted to make a first word.
pub const TIME_SHIFT: u32 = 4;
/// Tries before an element counts as busy.
pub const TRIES: u32 = 4;

/// What the kernel keeps beside key and value for an element of a preallocated hash.
const ELEMENT_OVERHEAD: u64 = 64;

/// Bytes of a map value with `data` bytes of data.
pub const fn value_size(data: u32) -> u32 {
    DATA + data.div_ceil(8) * 8
}

/// Bytes of the number of an element's node, behind the data: elements of `self->` arrays have one.
pub const NODE: u32 = 8;

/// Elements that `room` bytes hold, at least 16. Those of `self->` arrays are `owned`.
pub fn elements(room: u64, key_size: u32, data: u32, owned: bool) -> u32 {
    let node = if owned { NODE + crate::owned::node_size(key_size) } else { 0 };
    let each = u64::from(key_size) + u64::from(value_size(data)) + u64::from(node) + ELEMENT_OVERHEAD;
    (room / each).clamp(16, 1 << 20) as u32
}
