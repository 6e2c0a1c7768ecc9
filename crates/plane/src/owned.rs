//! Whose the elements of `self->` arrays are: a list for each thread, so that they end with it.
//!
//! The values of `self->` scalars are the kernel's to free: they are task storage. Elements of `self->a[k]` are elements of
//! one hash map, and nothing frees them but an assignment of 0. So each has a *node*, and the nodes of a thread's elements
//! are a list for each context level, whose heads are in the thread's storage. In the thread's last moment, the
//! `sched_switch` that it never comes back from, a program of ours walks the lists and deletes what is in them.
//!
//! The decision that shapes it: *a list belongs to one thread at one level*. Programs of one level of one thread run one
//! after the other, and the last `sched_switch` runs with interrupts off, so a list needs no lock. What all share is only
//! the free nodes, a stack whose head carries a tag that every change counts up (a node that was taken and given back
//! between a load and its compare-exchange would pass for unchanged). The alternatives: a sweep over the map at each
//! thread's end costs as much as the map is large; keys in the thread's storage have no bound; `sched_process_exit`
//! is not the end, for a thread goes on firing behind it.
//!
//! ```text
//!  an element   word | key's hash | data | node
//!                                           │
//!  nodes        0: free, fresh     1 2 3 …  v
//!               n: next  u64  0 at the end; of free nodes too
//!                  prev  u64  0 at the head
//!                  key   as the map has it
//!
//!  thread's storage, an array   head of level 0, 1, 2, 3
//!
//!  free   tag << 32 | node    compare-exchange; 0 when there is none
//!  fresh  nodes that were ever taken from behind                 fetch-add
//!
//!  insert   take a node, write the key, insert the element with its number, link the node first
//!  delete   remember the element's node, delete the element, unlink the node, give it back
//!  end      for each level: delete the head's key, unlink, give back, until there is none
//! ```

/// Offset of the stack of free nodes in node 0.
pub const FREE: u32 = 0;
/// Offset of the number of nodes ever taken from behind in node 0.
pub const FRESH: u32 = 8;
/// Offset of the next node's number.
pub const NEXT: u32 = 0;
/// Offset of the previous node's number.
pub const PREV: u32 = 8;
/// Offset of the key.
pub const KEY: u32 = 16;
/// Bits of a node's number in the word of free nodes; the rest is the tag.
pub const TAG_SHIFT: u32 = 32;
/// Bytes of an array's heads in a thread's storage.
pub const HEADS: u32 = 8 * crate::thread::LEVELS_MAX;
/// Tries to take a node or give it back before it counts as lost.
pub const TRIES: u32 = 64;
/// Nodes beyond the elements: those of inserts under way that find the element there.
const SPARE: u32 = 64;

/// `task_struct.__state` of a thread that leaves the CPU for ever (`TASK_DEAD`, linux/sched.h).
pub const TASK_DEAD: u32 = 0x80;

/// Bytes of a node.
pub const fn node_size(key_size: u32) -> u32 {
    KEY + key_size
}

/// Nodes of an array of so many elements, node 0 included.
pub const fn nodes(elements: u32) -> u32 {
    elements + SPARE + 1
}
