//! The kernel-side algorithms as state machines that take one step per access to shared memory, and
//! an explorer that runs them in every order.
//!
//! The code that `bpf_codegen::routines` emits cannot be single-stepped, and the interleavings that
//! break an algorithm occur once in a billion firings. So each routine is written here again,
//! access by access, in the order of the emitted code. [`explore`] tries every order in which the
//! parties can be interleaved. There are two schedules. *Nested*: a higher context level interrupts
//! a lower one at any step and runs to its end (one CPU without preemption). *Preempted*: any party
//! continues at any time (threads of one preemptible CPU, and CPUs that share a ring, a mask or a
//! table). The consumer is on another CPU in both.
//!
//! ```text
//!  world      the property, in every order of steps
//!  rings      no record is torn, lost without being counted, delivered twice or read before its
//!             commit; delivered + dropped = fired; a ring that is more than half full rings the
//!             doorbell; an empty ring refuses no record
//!  fill       a ring that is full ends tracing and keeps its first records; recorded + dropped = fired
//!  overwrite  a ring that is overwritten has its newest records, whole; recorded + dropped = fired
//!  slots      a scratch slot has one owner; all slots are released
//!  firing     slot, record, commit and release together: the consumer reads the string that was made
//!  order      records are printed in the order of the clocks that firings read
//!  table      sums by key are exact through snapshots, with two slots for a key, full tables and
//!             changing epochs
//!  stacks     every recorded id of a stack resolves to that stack, through evictions
//!  speculation  records of a committed speculation are delivered once, others never; every id
//!             becomes free again
//!  values     minimum, maximum, 128-bit sums, thread ids
//!  assoc      a load returns a value that its key had during the load; no writer changes the
//!             element of another key
//!  owned      a node has one owner; when a thread has ended, its elements are gone and its nodes free
//!  sites      a firing is recorded for its own site or not at all, also where rows are reused
//!  activity   nothing is recorded before ACTIVE or after the grace period; END runs last; the first
//!             exit() determines the status
//! ```
//!
//! Every world has mutations: the algorithm with one thing done wrong (a commit without its stamp,
//! a reservation by load and store, a slot released early). A test checks that the explorer finds
//! each of them. A model that finds no error in a mutated algorithm proves nothing about the right
//! one. Tests also check that the interesting cases occurred at all (`seen`).
//!
//! **Bounds.** Within these bounds the search is complete:
//! - Three or four parties (two in `rings`' second world) of one or two firings each, and one or
//!   two drains or snapshots while they run. The real readers of [`crate::read`] take the rest from
//!   the same bytes. Every property concerns two accesses of two parties and what a third party
//!   does between them. Three parties are the fewest that show that; four firings are more than one
//!   lap of the rings here.
//! - Rings of two to four records, two scratch slots, tables of two slots, maps of two elements,
//!   two tries where programs have four or eight. They are small, so that full, lost and busy also
//!   occur in every order. No property depends on the size.
//! - Positions start shortly before a lap. They are 64 bits and never wrap. A stamp holds 40 of
//!   them and repeats after 8 TiB of one ring, whose memory has been zeroed many times by then.
//! - Memory is sequentially consistent. On x86-64 programs get that. Each word that two contexts
//!   change is changed by a locked instruction, which orders all accesses around it. Loads are not
//!   reordered with loads, nor stores with stores. Stores of the consumer before a release store
//!   are seen before it. A port to a weaker machine must check every atomic without fetch
//!   (releasing a slot, counting a claim, adding to a value: BPF leaves them unordered there) and
//!   the loads of [`crate::assoc`].
//! - The clock gives two inserts into one element different nanoseconds (see [`crate::assoc`]).
//! - A grace period waits for every program that was running when it began. The kernel guarantees
//!   that, and a test in `bpf-runtime` checks it against running programs.
//!
//! ARCH(x86-64): the memory of the model is sequentially consistent.

mod activity;
mod assoc;
mod explore;
mod fill;
mod firing;
mod order;
mod overwrite;
mod owned;
mod ring;
mod rings;
mod sites;
mod slots;
mod speculation;
mod stacks;
mod table;
mod values;
