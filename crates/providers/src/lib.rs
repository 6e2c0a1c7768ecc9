//! The providers: one module each, with its probes, their arguments and how they are attached. Knows no D.
//!
//! ```text
//!  Registry          all providers; the checker asks it what a description matches (probes::Catalog)
//!  Provider::plan    enabled probes -> Units: one program shape and one way to attach each
//!  Unit              what bpf needs to build the program (context), and how it is attached (method)
//! ```
//!
//! The decision that shapes it: a provider never sees a program, and the session never sees a tracepoint. A provider turns the set
//! of enabled probes into as few [`Unit`]s as it can (one raw tracepoint for all system calls), and says for each how a
//! firing knows its probe and its arguments ([`bpf_codegen::context::Context`]), and how the program is attached ([`Method`]).
//!
//! [`Registry`] hands out the ids of probes. An id means the same probe in every session. No provider is listed before it is needed.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! method/process
//! lib cpc/events fbt/args fbt/context fbt/functions kernel method pid/context source syscall/table trace/format usdt/context usdt/fair
//! fbt/entries fbt/list method/custom method/functions method/perf method/tracepoint syscall/names trace/bare usdt/definitions
//! method/uprobes trace/event
//! pid/lists+pid/object syscall/args syscall/context trace/mapped
//! pid/known pid/processes
//! pid/matching
//! pid/follow+pid/source pid/types
//! pid/deep pid/first
//! usdt/follow+usdt/matching+usdt/shared+usdt/source
//! bio+changes+cpc+dtrace+fbt+fbt/method+manual+pid+pid/sides+profile+provider+rawtp+registry+registry/every+registry/ids+sdt+syscall+trace+trace/raw+trace/source+unit+usdt
//! ```

mod bio;
mod changes;
mod cpc;
mod dtrace;
mod fbt;
mod kernel;
mod manual;
pub mod method;
mod pid;
mod profile;
mod provider;
mod rawtp;
mod registry;
mod sdt;
mod source;
mod syscall;
mod trace;
mod unit;
mod usdt;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use changes::{Change, ChangeSource, ProbesChanged};
pub use manual::{MANUALS, Manual};
pub use method::{AttachFn, CustomAttach, Method};
pub use pid::Returns;
pub use provider::{EnabledProbe, Env, Follow, Provider};
pub use registry::{Cursor, ProviderProbes, Registry};
pub use source::{Found, IdRange, LoadedModules, MakeFn, ProbeList, ProbeSource, UnloadedModules};
pub use trace::{EventMember, event_format};
pub use unit::{Role, Unit};

/// Locks a provider's memory of what it was asked. A session may move to another thread, so this
/// memory is shared safely; no firing takes a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
