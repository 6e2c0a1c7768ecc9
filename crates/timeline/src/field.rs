//! The numbers of fields and values in Perfetto's messages, of those that are written.

/// `Trace`.
pub(crate) const PACKET: u64 = 1;

/// `TracePacket`.
pub(crate) mod packet {
    pub(crate) const CLOCK_SNAPSHOT: u64 = 6;
    pub(crate) const TIMESTAMP: u64 = 8;
    pub(crate) const SEQUENCE: u64 = 10;
    pub(crate) const EVENT: u64 = 11;
    pub(crate) const INTERNED: u64 = 12;
    pub(crate) const FLAGS: u64 = 13;
    pub(crate) const TIMESTAMP_CLOCK: u64 = 58;
    pub(crate) const DEFAULTS: u64 = 59;
    pub(crate) const TRACK: u64 = 60;
    pub(crate) const FIRST_ON_SEQUENCE: u64 = 87;
    /// The numbers of texts begin anew.
    pub(crate) const CLEARED: u64 = 1;
    /// Says numbers of texts, or has a time by the clock of the sequence.
    pub(crate) const NEEDS: u64 = 2;
}

/// `ClockSnapshot`, and the numbers of clocks.
pub(crate) mod clock {
    pub(crate) const CLOCKS: u64 = 1;
    pub(crate) const PRIMARY: u64 = 2;
    pub(crate) const ID: u64 = 1;
    pub(crate) const TIMESTAMP: u64 = 2;
    pub(crate) const IS_INCREMENTAL: u64 = 3;
    pub(crate) const REALTIME: u64 = 1;
    pub(crate) const MONOTONIC: u64 = 3;
    /// The first of those that belong to a sequence.
    pub(crate) const OF_SEQUENCE: u64 = 64;
}

/// `TrackEvent`.
pub(crate) mod event {
    pub(crate) const ANNOTATIONS: u64 = 4;
    pub(crate) const KIND: u64 = 9;
    pub(crate) const NAME_NUMBER: u64 = 10;
    pub(crate) const TRACK: u64 = 11;
    pub(crate) const NAME: u64 = 23;
    pub(crate) const VALUE: u64 = 30;
    pub(crate) const CALLSTACK: u64 = 56;
}

/// `DebugAnnotation`.
pub(crate) mod annotation {
    pub(crate) const NAME_NUMBER: u64 = 1;
    pub(crate) const UNSIGNED: u64 = 3;
    pub(crate) const SIGNED: u64 = 4;
    pub(crate) const TEXT: u64 = 6;
    pub(crate) const POINTER: u64 = 7;
    pub(crate) const NAME: u64 = 10;
}

/// `InternedData`; each entry has its number and its text or parts.
pub(crate) mod interned {
    pub(crate) const EVENT_NAMES: u64 = 2;
    pub(crate) const ANNOTATION_NAMES: u64 = 3;
    pub(crate) const FUNCTIONS: u64 = 5;
    pub(crate) const FRAMES: u64 = 6;
    pub(crate) const CALLSTACKS: u64 = 7;
    pub(crate) const PATHS: u64 = 17;
    pub(crate) const MAPPINGS: u64 = 19;
    pub(crate) const NUMBER: u64 = 1;
    pub(crate) const TEXT: u64 = 2;
    pub(crate) const CALLSTACK_FRAME: u64 = 2;
    pub(crate) const FRAME_FUNCTION: u64 = 2;
    pub(crate) const FRAME_MAPPING: u64 = 3;
    pub(crate) const MAPPING_PATH: u64 = 7;
}

/// `TrackDescriptor`, and the descriptors of processes and threads.
pub(crate) mod track {
    pub(crate) const ID: u64 = 1;
    pub(crate) const NAME: u64 = 2;
    pub(crate) const PROCESS: u64 = 3;
    pub(crate) const THREAD: u64 = 4;
    pub(crate) const PARENT: u64 = 5;
    pub(crate) const COUNTER: u64 = 8;
    pub(crate) const PID: u64 = 1;
    pub(crate) const PROCESS_NAME: u64 = 6;
    pub(crate) const TID: u64 = 2;
    pub(crate) const THREAD_NAME: u64 = 5;
}
