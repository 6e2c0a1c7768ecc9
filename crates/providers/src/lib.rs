//! The providers: one module each, with its probes, their arguments and how they are attached.
//! Knows no D.
//!
//! ```text
//!  contract          what a provider is: Provider, ProbeSource, Unit, Method, and what the registry offers
//!  process, trace    what several providers share: processes and their files, tracepoints
//!  Registry          all providers; the checker asks it what a description matches (probes::Catalog)
//!  Provider::plan    enabled probes -> Units: one program shape and one way to attach each
//!  Unit              what bpf needs to build the program (context), and how it is attached (method)
//! ```
//!
//! The decision that shapes it: a provider never sees a program, and the session never sees a
//! tracepoint. A provider turns the set of enabled probes into as few [`Unit`]s as it can (one raw
//! tracepoint for all system calls), and says for each how a firing knows its probe and its
//! arguments ([`bpf_codegen::context::Context`]), and how the program is attached ([`Method`]).
//!
//! [`Registry`] hands out the ids of probes. An id means the same probe in every session. No
//! provider is listed before it is needed.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! arch/calls arch/functions arch/aarch64/functions arch/x86_64/functions
//! arch/aarch64/syscalls arch/x86_64/syscalls
//! arch/aarch64 arch/x86_64
//! arch
//! lib contract contract/changes contract/manual contract/method+contract/method/semaphores contract/method/process contract/source
//! contract/method/custom contract/method/functions contract/method/perf contract/method/tracepoint
//! contract/method/uprobes contract/env
//! contract/process contract/unit
//! contract/provider
//! elsewhere process process/kernel sample trace/format
//! process/lists+process/object trace/bare trace/event
//! process/read trace trace/mapped
//! trace/source trace/raw
//! cpc/events fbt/args fbt/context fbt/functions pid/context usdt/context usdt/fair
//! fbt/entries fbt/list pid/known syscall/names usdt/definitions usdt/names usdt/sites
//! fbt/method pid/matching pid/types syscall/args syscall/context usdt/shared usdt/unread
//! pid/follow
//! pid/deep pid/first pid/source usdt/follow+usdt/matching+usdt/source
//! bio cpc dtrace fbt pid+pid/sides profile rawtp sdt syscall usdt
//! registry+registry/ids+registry/own registry/manuals
//! registry/every registry/processes registry/store
//! ```
//!
//! Providers know nothing of each other:
//!
//! ```apart
//! bio cpc dtrace fbt pid profile rawtp sdt syscall usdt
//! ```

mod arch;
mod bio;
#[cfg(test)]
mod context_tests;
mod contract;
mod cpc;
mod dtrace;
mod elsewhere;
mod fbt;
mod pid;
mod process;
mod profile;
mod rawtp;
mod registry;
mod sample;
mod sdt;
mod syscall;
mod trace;
mod usdt;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use contract::method::{AttachFn, CustomAttach};
pub use contract::{
    Change, ChangeSource, EnabledProbe, Env, Follow, FoundProbe, IdRange, LoadedModules, MakeFn, Manual,
    Method, Names, OpenChanges, ProbeList, ProbeSource, ProbeStore, ProbesChanged, ProcessProvider, Provider,
    Returns, Role, Timing, Unit, UnloadedModules, method,
};
pub use cpc::hardware_counters;
pub use registry::{Cursor, MANUALS, ProviderProbes, Registry, may_be_of_no_thread};
pub use trace::{EventMember, event_format};

/// Locks a provider's memory of what it was asked. A session may move to another thread, so this
/// memory is shared safely; no firing takes a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
