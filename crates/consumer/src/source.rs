//! What the consumer reads: records, and the data that is not in them.

use std::io;

use events::Clock;
use plane::desc::AggId;
use plane::ring::flags;
use plane::stacks::Stack;

use crate::options::Options;
use crate::raw::CallContext;

/// A committed record as read from a ring.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// The CPU that recorded it.
    pub cpu: u32,
    /// Its time.
    pub time: u64,
    /// The enabled probe.
    pub epid: u32,
    /// [`plane::ring::flags`].
    pub flags: u16,
    /// The data after the header.
    pub data: &'a [u8],
}

impl RawRecord<'_> {
    /// The lowest bits of the thread's id. The idle thread of a CPU has no id.
    pub(crate) fn thread(&self) -> Option<u16> {
        Some(flags::thread(self.flags)).filter(|thread| *thread != 0)
    }

    pub(crate) fn context(&self) -> CallContext {
        self.thread().map_or(CallContext::Cpu(self.cpu), CallContext::Thread)
    }
}

/// Receives the slots of a snapshot: aggregation, CPU, key, value in the words of
/// [`plane::desc::AggFunc`]. A key may occur more than once (once per CPU).
pub type SlotSink<'a> = dyn FnMut(AggId, u32, &[u8], &[u64]) + 'a;

/// The source of data that is not in the records.
pub trait Source {
    /// Reads and clears what the kernel has aggregated since the last call.
    fn snapshot(&mut self, sink: &mut SlotSink<'_>) -> io::Result<()>;

    /// When the interval ended that the last snapshot completes, if it completes one.
    fn interval_end(&mut self) -> Option<Clock> {
        None
    }

    /// The time now, if there is one.
    fn clock(&mut self) -> Option<Clock> {
        None
    }

    /// The stack of an id.
    fn stack(&mut self, id: u64) -> Option<Stack>;

    /// `setopt()`: sets an option of the session. Returns the new options, or the reason for the
    /// failure.
    fn set_option(&mut self, _name: &str, _value: Option<&str>) -> Result<Options, String> {
        Err("Operation illegal when tracing is active".into())
    }
}
