//! The frames of a language runtime in the stack of a process ([`plane::calls`] has what is stored
//! of them).
//!
//! They are followed behind a walk by tables, which knows the runtime of the process by its number.
//! A runtime has a walker: the part of the program that knows its memory, whose layout is in the
//! crate `runtimes`.
//!
//! ```text
//!  area      what a walker is given                names   what frames are called: the words that a CPU remembers, the store
//!  the others are walkers
//! ```

mod area;
mod cpython_3_11;
mod names;

use plane::unwind::RUNTIME_SHIFT;
use runtimes::Runtime;

pub(super) use area::{CallArea, Process};

use crate::mir::{Builder, Jmp, V};
use crate::plan::Plan;

/// How the frames of a runtime are walked.
struct Walker {
    /// Bytes that it needs in the state.
    state: u32,
    /// Follows the frames of the current thread, and stores them. The runtime has its state at the
    /// address. The stack has been walked into the area at the place, with the ends of its frames.
    walk: fn(b: &mut Builder, plan: &Plan, place: V, area: CallArea, state: V, of: &Process),
}

/// The walker of a runtime.
const fn walker(runtime: Runtime) -> Walker {
    match runtime {
        Runtime::Cpython3_11 => Walker { state: cpython_3_11::STATE, walk: cpython_3_11::walk },
    }
}

/// Where the frames of a runtime are, from an offset in the area of a stack on.
pub(super) fn call_area(at: u32, frames: u32, calls: u32) -> CallArea {
    let state = Runtime::ALL.map(|runtime| walker(runtime).state).into_iter().max().unwrap_or(0);
    CallArea { at, most: calls, frames, state_bytes: area::STATE_HEAD + state }
}

/// Follows the frames of the process's runtime, and stores them.
pub(super) fn walk(b: &mut Builder, plan: &Plan, place: V, area: CallArea, of: &Process) {
    let number = b.shr(of.runtime, i64::from(RUNTIME_SHIFT));
    let state = b.shl(of.runtime, i64::from(64 - RUNTIME_SHIFT));
    let state = b.shr(state, i64::from(64 - RUNTIME_SHIFT));
    for runtime in Runtime::ALL {
        b.if_(Jmp::Eq, number, i64::from(runtime.number()), |b| {
            (walker(runtime).walk)(b, plan, place, area, state, of);
        });
    }
}
