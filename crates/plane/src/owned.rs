//! Ownership of the elements of `self->` arrays: one list per thread, so that a thread's elements
//! are deleted when it ends.
//!
//! The kernel frees the values of `self->` scalars, because they are task storage. The elements of
//! `self->a[k]` are elements of one hash map, and only an assignment of 0 frees them. So each
//! element has a *node*. The nodes of a thread's elements form one list per context level, and the
//! heads of the lists are in the thread's storage. At the last `sched_switch` of a thread a program
//! of the session walks the lists and deletes the elements.
//!
//! The key decision: *a list belongs to one thread at one level*. Programs of one level of one
//! thread run one after the other, and the last `sched_switch` runs with interrupts disabled. So a
//! list needs no lock. Only the free nodes are shared. They are a stack whose head carries a tag
//! that every change increments; without the tag, a node that was taken and returned between a load
//! and its compare-exchange would look unchanged (the ABA problem). The alternatives are worse: a
//! sweep over the map at each thread's end costs time proportional to the map; keys in the thread's
//! storage have no bound; and `sched_process_exit` is too early, because a thread goes on firing
//! after it.
//!
//! ```text
//!  an element   word | key's hash | data | node
//!                                           │
//!  nodes        0: free, fresh     1 2 3 …  v
//!               n: next  u64  0 at the end; also used by the stack of free nodes
//!                  prev  u64  0 at the head
//!                  key   as in the map
//!
//!  thread's storage, per array   heads of levels 0, 1, 2, 3
//!
//!  free   tag << 32 | node    compare-exchange; node 0 when the stack is empty
//!  fresh  number of nodes that were ever used              fetch-add
//!
//!  insert   take a node, write the key, insert the element with its number, link the node first
//!  delete   remember the element's node, delete the element, unlink the node, return it
//!  end      for each level: delete the head's key, unlink, return, until the list is empty
//! ```

pub use crate::thread::HEADS;

/// Offset of the head of the stack of free nodes, in node 0.
pub const FREE: u32 = 0;
/// Offset of the number of nodes ever used, in node 0.
pub const FRESH: u32 = 8;
/// Offset of the next node's number.
pub const NEXT: u32 = 0;
/// Offset of the previous node's number.
pub const PREV: u32 = 8;
/// Offset of the key.
pub const KEY: u32 = 16;
/// Bits of a node number in the head of the free nodes; the bits above are the tag.
pub const TAG_SHIFT: u32 = 32;
/// Tries to take or return a node before it counts as lost.
pub const TRIES: u32 = 64;
/// Nodes beyond the number of elements: for concurrent inserts that find that their element exists.
const SPARE: u32 = 64;

/// `task_struct.__state` of a thread at its last `sched_switch` (`TASK_DEAD`, linux/sched.h).
pub const TASK_DEAD: u32 = 0x80;

/// Bytes of a node.
pub const fn node_size(key_size: u32) -> u32 {
    KEY + key_size
}

/// Number of nodes for an array of `elements` elements, including node 0.
pub const fn nodes(elements: u32) -> u32 {
    elements + SPARE + 1
}
