//! `vtimestamp`: how long a thread has run, less what our programs took of it.
//!
//! The decision that shapes it: *our own clock and our own account*. The kernel's (`sum_exec_runtime`) is brought up to date at
//! ticks only and cannot be asked for more by a program; it serves as the beginning of ours, so that the value is near the
//! thread's CPU time and not only its differences right. From then on a program at `sched_switch` ends the stay
//! of the thread that goes and begins that of the one that comes. Who has never read `vtimestamp` has no account: the program makes none,
//! for it runs where no memory should be asked for.
//!
//! Time in our programs is taken back by freezing: the first program that runs in the thread computes the value and leaves
//! it for those that interrupt it; its end moves [`OURS`] so far that the account is where it was. So it is one value for the
//! whole of a firing, never less than the one before, and time is not taken back twice where programs nest.
//!
//! ```text
//!  account   +0  total   ns of the stays that are over, and what there was before
//!            +8  since   when the present stay began; 0 off the CPU
//!            +16 ours    ns in our programs
//!            +24 state   0: none of ours runs   1: one begins   else the frozen value + 2
//!            +32 last    the value of the last program that ended
//!            +40 made    1: the above stand
//!            +48 raw     total + (now - since) when the program that froze the account began
//!
//!  value = total + (now - since) - ours
//! ```
//!
//! A switch that nobody saw, or a stay that began behind the program of the switches, neither turns an account back nor gives
//! it time off the CPU: of a stay without an end counts what was shown, and one without a beginning begins at the first look.
//! While a switch is in progress the thread that goes is still the current one, and its stay is over.
//!
//! Programs nest in a thread and end in the reverse order; `state` goes from 0 to 1 by compare-exchange, and only who did that
//! brings it on and back.

/// Offset of the nanoseconds of stays that are over.
pub const TOTAL: u32 = 0;
/// Offset of the beginning of the present stay.
pub const SINCE: u32 = 8;
/// Offset of the nanoseconds in our programs.
pub const OURS: u32 = 16;
/// Offset of the state.
pub const STATE: u32 = 24;
/// Offset of the last value.
pub const LAST: u32 = 32;
/// Offset of the mark of a finished account.
pub const MADE: u32 = 40;
/// Offset of what the running program found.
pub const RAW: u32 = 48;
/// Bytes of an account.
pub const SIZE: u32 = 56;

/// A program begins.
pub const BEGINS: u32 = 1;
/// What is added to a frozen value.
pub const FROZEN: u32 = 2;
