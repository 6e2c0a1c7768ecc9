//! The set of processes: see [`plane::processes`].

use plane::control::DropKind;
use plane::processes::{HEIRS, SETS, SIZE, START, TICK};

use super::{count_drop, firing};
use crate::mir::{AtomicOp, Builder, Helper, Jmp, Label, MapRef, Size, V};
use crate::plan::Plan;
use crate::target::ProcessOffsets;

/// Jumps to `out` unless the current process is in one of the sets, which are bits.
pub fn require_member(b: &mut Builder, at: ProcessOffsets, sets: u64, out: Label) {
    let both = b.call(Helper::GET_CURRENT_PID_TGID, &[]);
    let process = b.shr(both, 32);
    let found = find(b, process, out);
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    is_same(b, at, task, found, out);
    let of_process = b.load(Size::B8, found, SETS as i16);
    let wanted = b.imm(sets as i64);
    let mine = b.and(of_process, wanted);
    b.br(Jmp::Eq, mine, 0, out);
}

/// The element of a process. Jumps to `none` where there is none.
fn find(b: &mut Builder, process: V, none: Label) -> V {
    let key = b.stack(8);
    b.slot_store(Size::B4, key, 0, process);
    let (map, key) = (b.map(MapRef::Processes), b.slot_addr(key, 0));
    let found = b.call(Helper::MAP_LOOKUP_ELEM, &[map, key]);
    b.br(Jmp::Eq, found, 0, none);
    found
}

/// Jumps to `other` if the element is that of an earlier process with the number of this task's.
fn is_same(b: &mut Builder, at: ProcessOffsets, task: V, found: V, other: Label) {
    let start = start(b, at, task);
    let from = b.load(Size::B8, found, START as i16);
    let behind = b.sub(start, from);
    b.br(Jmp::Ge, behind, TICK as u32, other);
}

fn start(b: &mut Builder, at: ProcessOffsets, task: V) -> V {
    let leader = b.load(Size::B8, task, at.leader);
    b.load(Size::B8, leader, at.start)
}

/// The typed program for `sched_process_fork(parent, child)`: puts the child in the sets of its
/// parent, now or (without `now`) when it executes a program. It runs before the child does.
/// Without a `plan` it counts no loss.
pub fn inherit(b: &mut Builder, plan: Option<&Plan>, at: ProcessOffsets, now: bool) {
    let ctx = b.param(0);
    let (out, full) = (b.label(), b.label());
    let parent = b.load(Size::B8, ctx, 0);
    let child = b.load(Size::B8, ctx, 8);
    let of_parent = b.load(Size::B4, parent, at.tgid);
    let of_child = b.load(Size::B4, child, at.tgid);
    // A thread is in the sets of its process.
    b.br(Jmp::Eq, of_parent, of_child, out);
    let found = find(b, of_parent, out);
    is_same(b, at, parent, found, out);
    let heirs = b.load(Size::B8, found, HEIRS as i16);
    b.br(Jmp::Eq, heirs, 0, out);
    let begun = start(b, at, child);
    let (key, value) = (b.stack(8), b.stack(SIZE));
    b.slot_store(Size::B4, key, 0, of_child);
    b.slot_store(Size::B8, value, START as i16, begun);
    let sets = if now { heirs } else { b.imm(0) };
    b.slot_store(Size::B8, value, SETS as i16, sets);
    b.slot_store(Size::B8, value, HEIRS as i16, heirs);
    let (map, key, value) = (b.map(MapRef::Processes), b.slot_addr(key, 0), b.slot_addr(value, 0));
    let any = b.imm(0);
    let failed = b.call(Helper::MAP_UPDATE_ELEM, &[map, key, value, any]);
    b.br(Jmp::Ne, failed, 0, full);
    b.bind(out);
    b.exit(0);
    b.out_of_line(|b| {
        b.bind(full);
        if let Some(plan) = plan {
            let firing = firing(b, plan);
            count_drop(b, &firing, DropKind::Process);
        }
        b.exit(0);
    });
}

/// The typed program for `sched_process_exec(task)`: puts a process that was forked in the sets
/// that it was to come to. It runs before the new program does.
pub fn enter(b: &mut Builder, at: ProcessOffsets) {
    let (ctx, out) = (b.param(0), b.label());
    let task = b.load(Size::B8, ctx, 0);
    let process = b.load(Size::B4, task, at.tgid);
    let found = find(b, process, out);
    is_same(b, at, task, found, out);
    let heirs = b.load(Size::B8, found, HEIRS as i16);
    b.atomic(AtomicOp::Or, Size::B8, found, SETS as i16, heirs);
    b.bind(out);
    b.exit(0);
}

/// The typed program for `sched_process_exit(task)`: takes a process out when its last thread ends.
pub fn leave(b: &mut Builder, at: ProcessOffsets) {
    let ctx = b.param(0);
    let task = b.load(Size::B8, ctx, 0);
    let signal = b.load(Size::B8, task, at.signal);
    // The kernel has subtracted this thread.
    let live = b.load(Size::B4, signal, at.live);
    b.if_(Jmp::Eq, live, 0, |b| {
        let process = b.load(Size::B4, task, at.tgid);
        let key = b.stack(8);
        b.slot_store(Size::B4, key, 0, process);
        let (map, key) = (b.map(MapRef::Processes), b.slot_addr(key, 0));
        b.call(Helper::MAP_DELETE_ELEM, &[map, key]);
    });
    b.exit(0);
}
