//! A unit: the plan of one program, from a provider to the session. It says how the program finds
//! its probe and its arguments, and how it is attached.

use std::sync::Arc;

use bpf_codegen::context::Context;

use crate::contract::env::EnabledProbe;
use crate::contract::method::Method;

/// When a unit's program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// When its probes fire.
    Probe,
    /// Once, before anything else.
    Begin,
    /// Once, after everything else.
    End,
    /// When a clause faults.
    Error,
}

/// When time alone fires a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Once in so many nanoseconds.
    Tick(u64),
    /// Again and again on every CPU, in what runs there.
    EveryCpu,
}

/// A context of probes without arguments.
pub(crate) struct NoArguments;

impl Context for NoArguments {
    /// The frame of the program itself.
    fn tracer_frames(&self) -> u8 {
        1
    }
}

/// One program to build and attach.
#[derive(Clone)]
pub struct Unit {
    /// The program's name, in the kernel's lists and in messages.
    pub name: String,
    /// When the program runs.
    pub role: Role,
    /// Its probes, each with its index.
    pub probes: Vec<(u32, EnabledProbe)>,
    /// One more than the greatest possible index.
    pub space: u32,
    /// How a firing finds its probe and its arguments.
    pub context: Arc<dyn Context>,
    /// How the program is attached.
    pub method: Arc<dyn Method>,
    /// True if it also fires in interrupts. `self->` then has a copy for each context level.
    pub interrupts: bool,
}
