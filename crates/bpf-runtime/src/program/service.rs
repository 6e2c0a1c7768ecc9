//! Service programs of the session, which serve no probe.

use bpf_codegen::emit::assemble;
use bpf_codegen::mir::Builder;
use bpf_codegen::plan::Plan;
use bpf_codegen::target::ProcessOffsets;
use bpf_codegen::{Result, routines};
use bpf_sys::{AttachType, ProgKind};
use plane::deadman::Limits;

use super::image::Compiled;

/// The program for `sched_switch` that deletes a thread's elements of the `self->` arrays from
/// variable `first` on when the thread ends (see [`plane::owned`]). `state` is the offset of
/// `__state` in the task.
pub fn end_of_thread(plan: &Plan, first: u32, state: i16) -> Result<Compiled> {
    let spec = ("end_of_thread", ProgKind::RawTracepoint, AttachType::None, 0);
    program(spec, |b| routines::end_of_thread(b, plan, first, state))
}

/// The typed program for `sched_switch` (`btf_id` is that of `btf_trace_sched_switch`) that keeps
/// the accounts of `vtimestamp` (see [`plane::vtime`]).
pub fn vtime_switch(btf_id: u32) -> Result<Compiled> {
    program(("vtime", ProgKind::Tracing, AttachType::TraceRawTp, btf_id), routines::vtime_switch)
}

/// The typed program for `sched_process_fork` (`btf_id` is that of `btf_trace_sched_process_fork`)
/// that puts children in the sets of their parents (see [`plane::processes`]), or without `now`
/// lets them come there when they execute a program. Without a `plan` it counts no loss.
pub fn inherit(btf_id: u32, plan: Option<&Plan>, at: ProcessOffsets, now: bool) -> Result<Compiled> {
    program(("follow_fork", ProgKind::Tracing, AttachType::TraceRawTp, btf_id), |b| {
        routines::inherit(b, plan, at, now);
    })
}

/// The typed program for `sched_process_exec` that puts processes in the sets to which they were to
/// come.
pub fn enter(btf_id: u32, at: ProcessOffsets) -> Result<Compiled> {
    program(("follow_exec", ProgKind::Tracing, AttachType::TraceRawTp, btf_id), |b| routines::enter(b, at))
}

/// The typed program for `sched_process_exit` that takes processes that end out of the set.
pub fn leave(btf_id: u32, at: ProcessOffsets) -> Result<Compiled> {
    program(("follow_exit", ProgKind::Tracing, AttachType::TraceRawTp, btf_id), |b| routines::leave(b, at))
}

/// The heartbeat (see [`plane::deadman`]), for a clock of each CPU. Tests use another `kind`. With
/// `kills` it ends the session.
pub fn heartbeat(kind: ProgKind, plan: &Plan, limits: Limits, kills: bool) -> Result<Compiled> {
    program(("heartbeat", kind, AttachType::None, 0), |b| routines::heartbeat(b, plan, limits, kills))
}

fn program(
    (name, kind, attach, attach_btf_id): (&str, ProgKind, AttachType, u32),
    body: impl FnOnce(&mut Builder),
) -> Result<Compiled> {
    let mut b = Builder::new("main", 1);
    body(&mut b);
    let (main, subs) = b.finish();
    Ok(Compiled {
        name: name.into(),
        kind,
        attach,
        attach_btf_id,
        sleepable: false,
        code: assemble(std::iter::once(main).chain(subs).collect())?,
        table: None,
    })
}
