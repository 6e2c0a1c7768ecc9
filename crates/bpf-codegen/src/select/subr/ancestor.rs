//! `progenyof()`: walks the parents of the current process, up to the process that is its own
//! parent.

use super::loops::{each, next, stop};
use crate::mir::{Builder, Helper, Jmp, Label, Size, V};
use crate::routines::{Numbered, number_of};
use crate::target::{PidOffsets, TaskOffsets};

// Offsets in the work area.
const TASK: i16 = 0;
const FOUND: i16 = 8;
const PID: i16 = 16;
const READ: i16 = 24;

/// Maximum number of generations.
const GENERATIONS: i64 = 4096;

/// Reads kernel memory into the work area. Jumps to `end` when it cannot be read.
fn read(b: &mut Builder, work: V, (base, off): (V, i16), size: Size, end: Label) -> V {
    let (to, bytes) = (b.add(work, i32::from(READ)), b.imm(i64::from(size.bytes())));
    let from = b.add(base, i32::from(off));
    let failed = b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, from]);
    b.br(Jmp::Ne, failed, 0, end);
    b.load(size, work, READ)
}

/// 1 when the process or an ancestor has this id. With a pid namespace (given by its inode), the id
/// in that namespace counts.
pub(super) fn progenyof(b: &mut Builder, at: TaskOffsets, space: Option<(u64, PidOffsets)>) {
    let (pid, work) = (b.param(0), b.param(1));
    let task = b.call(Helper::GET_CURRENT_TASK, &[]);
    b.store(Size::B8, work, TASK, task);
    b.store(Size::B8, work, FOUND, 0);
    b.store(Size::B8, work, PID, pid);
    each(b, "dt_parents", GENERATIONS, &[work], |b, _, addresses| {
        let &[work] = addresses else { return };
        let (end, other) = (b.label(), b.label());
        let task = b.load(Size::B8, work, TASK);
        let number = match space {
            None => read(b, work, (task, at.tgid), Size::B4, end),
            Some((ino, numbers)) => {
                let number = number_of(b, (task, false), Numbered::Process, ino, numbers);
                // It is outside of the namespace.
                b.br(Jmp::Eq, number, 0, other);
                number
            }
        };
        let pid = b.load(Size::B8, work, PID);
        b.br(Jmp::Ne, number, pid, other);
        b.store(Size::B8, work, FOUND, 1);
        stop(b);
        b.bind(other);
        let task = b.load(Size::B8, work, TASK);
        let parent = read(b, work, (task, at.real_parent), Size::B8, end);
        b.br(Jmp::Eq, parent, task, end);
        b.store(Size::B8, work, TASK, parent);
        next(b);
        b.bind(end);
        stop(b);
    });
    let found = b.load(Size::B8, work, FOUND);
    b.exit(found);
}
