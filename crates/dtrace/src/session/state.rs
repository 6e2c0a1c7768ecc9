//! What a session has. Each of the files beside this one has some of its methods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use consumer::Consumer;
use events::Sink;
use providers::ChangeSource;
use symbols::Interrupted;

use super::held::HeldRecords;
use super::recorded::Recorded;
use super::shapes::{RemovedIds, Shapes};
use super::watch::Watch;
use crate::compile::Program;
use crate::engine::Engine;
use crate::engine::deadman::OverloadMonitor;
use crate::error::Error;
use crate::options::Options;
use crate::session::file_stops::FileStops;
use crate::session::linker::LinkerStops;
use crate::session::processes::ProcessChanges;

/// A session in the process that has started it: see [`Session`](super::Session).
pub(super) struct Running<S: Sink> {
    /// All enabled programs.
    pub(super) program: Program,
    /// Interned strings. A number never changes its string.
    pub(super) strings: Vec<Arc<[u8]>>,
    /// The next free enabled-probe id.
    pub(super) next_epid: u32,
    /// Suppressed firings that were reported, by program.
    pub(super) suppressed: BTreeMap<String, u64>,
    pub(super) engine: Box<dyn Engine>,
    pub(super) consumer: Consumer<Recorded<S>>,
    pub(super) held: HeldRecords,
    pub(super) targets: Vec<proc::Target>,
    pub(super) options: Options,
    pub(super) next: Deadlines,
    pub(super) monitor: Option<OverloadMonitor>,
    pub(super) cpus: Vec<u32>,
    /// Watches the processes of the system, if their addresses are printed.
    pub(super) watch: Option<Watch>,
    /// The sources of probes that come and go, if a description can match them.
    pub(super) sources: Vec<Box<dyn ChangeSource>>,
    /// Modules are among them, and providers.
    pub(super) follows_modules: bool,
    pub(super) follows_providers: bool,
    /// The changes of processes of which descriptions have asked for probes.
    pub(super) processes: Option<ProcessChanges>,
    /// Stops targets where they have loaded libraries.
    pub(super) linker: Option<LinkerStops>,
    /// Stops targets where they have mapped files with probes that they have made.
    pub(super) files: Option<FileStops>,
    /// The sets and programs of held children whose probes stand.
    pub(super) programs: BTreeSet<(u64, ProgramKey)>,
    /// What is compiled for probes that come later.
    pub(super) shapes: Shapes,
    pub(super) removed: RemovedIds,
    /// Targets are held at their exit until their address maps are read.
    pub(super) hold_exits: bool,
    pub(super) ending: Ending,
    pub(super) interrupted: Interrupted,
}

/// When what is due next.
pub(super) struct Deadlines {
    pub(super) switch: Instant,
    pub(super) aggregate: Instant,
    pub(super) status: Instant,
    pub(super) clean: Instant,
    /// A pending snapshot.
    pub(super) snapshot: Instant,
    /// The same by the clock of the firings, if they are given.
    pub(super) given_status: u64,
}

/// What tells the program that a process runs from others: device, inode, size and time of change.
pub(super) type ProgramKey = (u64, u64, u64, i64, i64);

/// How far the end of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It has not begun.
    None,
    /// It has begun and did not complete, or the session was aborted.
    Begun,
    /// It is complete, with this exit status.
    Complete(i32),
}

/// The error of an operation that needs a session that has not ended.
pub(super) fn over(what: &str) -> Error {
    Error::Setting(format!("could not {what}: the session is over"))
}
