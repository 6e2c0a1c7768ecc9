//! The kernel side's algorithms a second time, as state machines that take one step for each access to shared memory, and an
//! explorer that runs them in every order.
//!
//! What `bpf::routines` emits cannot be stepped through: it runs where we cannot stop it, and the interleavings that hurt
//! come once in a billion firings. Here each routine is written again, access by access in the order of the emitted code, and
//! [`explore`] tries every order in which the parties may be interleaved. Two schedules: *nested*, where a higher context level
//! interrupts a lower one at any step and runs to its end (one CPU without preemption), and *preempted*, where anybody
//! goes on at any time (threads of one preemptible CPU, and CPUs that share a ring, a mask or a table). The consumer is on
//! another CPU in both.
//!
//! ```text
//!  world      what is shown, in every order of steps
//!  rings      no record torn, lost uncounted, delivered twice or read before its commit; delivered + dropped = fired;
//!             a ring over half full rings the bell; an empty ring refuses nothing
//!  slots      a scratch slot has one owner; all come back
//!  firing     slot, record, commit, release together: the string that was made is the string that is read
//!  order      what is printed is in the order of the clocks that firings read
//!  table      sums by key are exact through snapshots, with two entries for a key, full tables and turning epochs
//!  values     minimum, maximum, 128-bit sums, ids of threads
//!  assoc      a load gives a value that its key had during the load; no writer touches another key's element
//!  owned      a node has one owner; when a thread has ended, its elements are gone and all its nodes free
//!  activity   nothing is recorded before ACTIVE or after the grace period; END comes last; the first exit() gives the status
//! ```
//!
//! Every world has faults that can be put in, an algorithm with one thing done wrong (a commit without its stamp, a
//! reservation by load and store, a slot given back early), and a test that the explorer finds each. A model that
//! finds no fault in a broken algorithm shows nothing about the right one. Tests also check that the interesting cases came up
//! at all (`seen`).
//!
//! **Bounds.** Within these the search is complete:
//! - three or four parties (two in `rings`' second world) of one or two firings each, and one or two drains or snapshots while
//!   they run; what is left is taken by the real readers of [`crate::read`] out of the same bytes. Every rule above concerns a
//!   pair of accesses of two parties and what a third does between them; three is the least that shows that, four firings
//!   are more than one lap of the rings here.
//! - rings of two to four records, two scratch slots, tables of two slots, maps of two elements, two tries where programs
//!   have four or eight: small, so that full, lost and busy come up in every order too. No rule depends on the size.
//! - positions start shortly before a lap; they are 64 bits and never wrap. A stamp holds 40 of them and repeats after 8 TiB
//!   of one ring, whose place has been zeroed many times by then.
//! - memory is sequentially consistent. On x86-64 that is what programs get: each word that two contexts change is
//!   changed by a locked instruction, which orders everything around it, loads are not reordered with loads, nor stores with
//!   stores; and what a consumer stores before it hands it over by a release store is seen before that. A port to a weaker
//!   machine must look at every atomic without fetch (giving a slot back, counting a claim, adding to a value: BPF leaves
//!   them unordered there) and at the loads of [`crate::assoc`].
//! - the clock gives two inserts into one element different nanoseconds ([`crate::assoc`] says why).
//! - a grace period waits for every program that was running when it began. That is the kernel's promise, and `bpf` has a
//!   test that holds it against running programs.

mod activity;
mod assoc;
mod explore;
mod firing;
mod order;
mod owned;
mod ring;
mod rings;
mod slots;
mod table;
mod values;
