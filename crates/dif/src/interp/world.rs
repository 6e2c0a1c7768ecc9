//! What the interpreter asks of the system, and tells.

use super::state::{Fault, State};
use crate::ir::{IntBuiltin, Space, StrBuiltin};
use crate::subr::NameOf;

/// What a firing reads from the system. The defaults are an empty world: zeros, and no readable
/// memory.
pub trait World {
    /// An integer built-in. It must not change during a clause.
    fn builtin(&mut self, _builtin: IntBuiltin) -> i64 {
        0
    }

    /// Id of the enabled probe for which the clause of this number runs in this firing.
    fn epid(&mut self, _clause: usize) -> i64 {
        self.builtin(IntBuiltin::Epid)
    }

    /// A string built-in. It must not change during a firing.
    fn builtin_str(&mut self, _builtin: StrBuiltin) -> Vec<u8> {
        Vec::new()
    }

    /// Fills `buffer` from memory. Returns false when a byte is unreadable.
    fn read(&mut self, _space: Space, _addr: u64, _buffer: &mut [u8]) -> bool {
        false
    }

    /// Writes memory of the current process. Returns false when it is not writable.
    fn write_user(&mut self, _addr: u64, _bytes: &[u8]) -> bool {
        false
    }

    /// The same for the argument strings of the current process.
    fn arguments(&mut self, addr: u64, buffer: &mut [u8]) -> bool {
        self.read(Space::User, addr, buffer)
    }

    /// What the struct at an address is called; `None` when the struct is unreadable.
    fn name(&mut self, _addr: u64, _of: NameOf) -> Option<Vec<u8>> {
        None
    }

    /// The packet of the `struct sk_buff` at an address: its length and its bytes, as far as they
    /// are known. `None` when the struct is unreadable.
    fn packet(&mut self, _addr: u64) -> Option<(u32, Vec<u8>)> {
        None
    }

    /// Whether the current process is this one or a descendant of it.
    fn is_descendant(&mut self, _pid: i32) -> bool {
        false
    }

    /// A random number.
    fn random(&mut self) -> u32 {
        0
    }

    /// Sends a signal to the current process. Returns false for an invalid signal.
    fn raise(&mut self, _signal: i64) -> bool {
        true
    }

    /// Sets the result of the function that fired the probe.
    fn override_return(&mut self, _result: i64) {}

    /// Delays the CPU. Returns false when the CPU has already been delayed for too long.
    fn chill(&mut self, _nanoseconds: u64) -> bool {
        true
    }

    /// Captures a stack. Returns the id of its entry, or 0 when it could not be captured.
    fn stack(&mut self, _user: bool, _frames: u32) -> u64 {
        0
    }

    /// The owner of `self->` variables: a thread and its context level.
    fn context(&mut self) -> (u64, u8) {
        (0, 0)
    }

    /// Switches the firing to that of ERROR for this fault. With `None`, switches back.
    fn error(&mut self, _fault: Option<&Fault>) {}

    /// True if there is space for the record of a clause, of this size.
    fn reserve(&mut self, _clause: usize, _size: u32) -> bool {
        true
    }

    /// `speculation()`: an id, or 0.
    fn speculation(&mut self) -> i64 {
        0
    }

    /// `commit()` and `discard()`. Returns false for an id that does not exist.
    fn end_speculation(&mut self, _id: i64, _commit: bool) -> bool {
        true
    }

    /// `speculate()`; `size`: the bytes of the record, if the clause has one.
    fn speculate(&mut self, _id: i64, _size: Option<u32>) -> Speculate {
        Speculate::Refused
    }

    /// A clause has ended, before ERROR fires for its fault. The caller may take its record from
    /// the state. `in_error`: it was a clause of ERROR.
    fn ended(&mut self, _outcome: &Outcome, _in_error: bool, _state: &mut State) {}
}

/// The result of `speculate()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculate {
    /// The rest of the clause is speculative.
    Accepted,
    /// The id is 0, or its speculation is not active or has no space.
    Refused,
    /// There is no such id.
    Invalid,
}

/// How a clause ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The clause ran to its end.
    Completed,
    /// The predicate was false.
    PredicateFalse,
    /// There was no space for the record. The clause had no effect.
    Dropped,
    /// `speculate()` was refused. Nothing after it had an effect.
    Skipped,
    /// The clause faulted.
    Faulted(Fault),
}
