//! Programs of the session itself, which serve no probe.

use super::Compiled;
use crate::emit::assemble;
use crate::maps::Plan;
use crate::mir::Builder;
use crate::routines;
use crate::select::Result;
use crate::sys::{AttachType, ProgKind};

/// The program for `sched_switch` that deletes what a thread leaves in the `self->` arrays from variable `first` on when it
/// ends (see [`plane::owned`]). `state` is the offset of `__state` in the task.
pub fn end_of_thread(plan: &Plan, first: u32, state: i16) -> Result<Compiled> {
    let mut b = Builder::new("main", 1);
    routines::end_of_thread(&mut b, plan, first, state);
    let (main, subs) = b.finish();
    Ok(Compiled {
        name: "end_of_thread".into(),
        kind: ProgKind::RawTracepoint,
        attach: AttachType::None,
        attach_btf_id: 0,
        code: assemble(std::iter::once(main).chain(subs).collect())?,
        table: None,
    })
}
