//! The providers: one module each, with its probes, their arguments and how they are attached. Knows no D.
//!
//! ```text
//!  Registry          all providers; the checker asks it what a description matches (probes::Catalog)
//!  Provider::plan    enabled probes -> Units: one program shape and one way to attach each
//!  Unit              what bpf needs to build the program (context), and attach::attach to attach it
//! ```
//!
//! The decision that shapes it: a provider never sees a program, and the session never sees a tracepoint. A provider turns the set
//! of enabled probes into as few [`Unit`]s as it can (one raw tracepoint for all system calls), and says for each how a
//! firing knows its probe and its arguments ([`bpf::program::Context`]).
//!
//! [`Registry`] hands out the ids of probes. An id means the same probe in every session. No provider is listed before it is needed.

pub mod attach;
mod cpc;
mod dtrace;
mod fbt;
mod manual;
mod profile;
mod rawtp;
mod registry;
mod sdt;
pub mod sites;
mod syscall;
mod trace;
mod unit;

pub use manual::{MANUALS, Manual};
pub use registry::{EnabledProbe, Env, LoadedModules, ProbeIndex, Provider, Registry};
pub use unit::{Attach, AttachFn, CustomAttach, Role, Unit};
