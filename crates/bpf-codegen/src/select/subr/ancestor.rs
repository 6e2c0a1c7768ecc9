//! `progenyof()`: walks the parents of the current process, up to the process that is its own
//! parent.

use super::loops::{each, next, stop};
use crate::mir::{Builder, Helper, Jmp, Label, Size, V};
use crate::target::{PidOffsets, TaskOffsets};

// Offsets in the work area.
const TASK: i16 = 0;
const FOUND: i16 = 8;
const PID: i16 = 16;
const READ: i16 = 24;
const IDS: i16 = 32;

/// Maximum number of generations.
const GENERATIONS: i64 = 4096;
/// Maximum nesting of pid namespaces, the kernel's limit.
const LEVELS: i64 = 32;

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
        match space {
            None => {
                let tgid = read(b, work, (task, at.tgid), Size::B4, end);
                let pid = b.load(Size::B8, work, PID);
                b.br(Jmp::Ne, tgid, pid, other);
                b.store(Size::B8, work, FOUND, 1);
            }
            Some((ino, o)) => {
                let signal = read(b, work, (task, o.signal), Size::B8, end);
                let ids = read(b, work, (signal, o.pid), Size::B8, end);
                b.store(Size::B8, work, IDS, ids);
                numbers(b, work, ino, o);
                let found = b.load(Size::B8, work, FOUND);
                b.br(Jmp::Eq, found, 0, other);
            }
        }
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

/// Searches the ids of a process, of which it has one in each namespace.
fn numbers(b: &mut Builder, work: V, ino: u64, o: PidOffsets) {
    each(b, "dt_numbers", LEVELS, &[work], |b, turn, addresses| {
        let &[work] = addresses else { return };
        let (end, on) = (b.label(), b.label());
        let ids = b.load(Size::B8, work, IDS);
        let level = read(b, work, (ids, o.level), Size::B4, end);
        b.br(Jmp::Gt, turn, level, end);
        let offset = b.mul(turn, i32::from(o.number));
        let number = b.add(ids, offset);
        let space = read(b, work, (number, o.numbers + o.ns), Size::B8, end);
        let inum = read(b, work, (space, o.inum), Size::B4, end);
        b.br(Jmp::Ne, inum, ino as u32, on);
        let nr = read(b, work, (number, o.numbers + o.nr), Size::B4, end);
        let pid = b.load(Size::B8, work, PID);
        b.br(Jmp::Ne, nr, pid, end);
        b.store(Size::B8, work, FOUND, 1);
        b.bind(end);
        stop(b);
        b.bind(on);
        next(b);
    });
}
