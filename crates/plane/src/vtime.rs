//! `vtimestamp`: the CPU time of a thread without the time spent in the session's programs.
//!
//! The key decision: *the session keeps its own account*. The kernel's account
//! (`sum_exec_runtime`) is updated at ticks only, and a program cannot request an update. It serves
//! as the initial value, so that not only differences but also the value itself is close to the
//! thread's CPU time. From then on a program at `sched_switch` ends the time slice of the previous
//! thread and begins that of the next one. A thread that has never read `vtimestamp` has no
//! account. The program at `sched_switch` does not create one, because it must not allocate memory.
//!
//! Time in the session's programs is subtracted by freezing the account. The first program that
//! runs in the thread computes the value and stores it for programs that interrupt it. When that
//! program ends, it adds its run time to [`OURS`]. So the value is constant during a firing, never
//! decreases, and time is not subtracted twice where programs nest.
//!
//! ```text
//!  account   +0  total   ns of finished time slices, and the initial value
//!            +8  since   start of the current time slice; 0 off the CPU
//!            +16 ours    ns in the session's programs
//!            +24 state   0: no program runs   1: one starts   else the frozen value + 2
//!            +32 last    the value of the last program that ended
//!            +40 made    1: the words above are valid
//!            +48 raw     total + (now - since) when the program that froze the account started
//!
//!  value = total + (now - since) - ours
//! ```
//!
//! A missed switch, or a time slice that began after the program at `sched_switch` ran, neither
//! decreases the value nor adds time off the CPU. A time slice without an end counts up to the last
//! value that was read. A time slice without a start begins at the first read. During a switch the
//! previous thread is still the current one, and its time slice is over.
//!
//! Programs in a thread nest and end in the reverse order. `state` changes from 0 to 1 by
//! compare-exchange, and only the program that did that changes it further and back.

/// Offset of the nanoseconds of finished time slices.
pub const TOTAL: u32 = 0;
/// Offset of the start of the current time slice.
pub const SINCE: u32 = 8;
/// Offset of the nanoseconds in the session's programs.
pub const OURS: u32 = 16;
/// Offset of the state.
pub const STATE: u32 = 24;
/// Offset of the last value.
pub const LAST: u32 = 32;
/// Offset of the mark of an initialized account.
pub const MADE: u32 = 40;
/// Offset of the account's time when it was frozen.
pub const RAW: u32 = 48;
/// Bytes of an account.
pub const SIZE: u32 = 56;

/// State: a program is starting.
pub const BEGINS: u32 = 1;
/// The amount added to a frozen value to make it a state.
pub const FROZEN: u32 = 2;
