//! The numbers of processes and threads in the tracer's pid namespace.
//!
//! A task has a number in its own pid namespace and in each one above, up to the initial one; its
//! `struct pid` has them in the order of these levels. In the initial namespace the number is in
//! the task. In another one it is read at the tracer's level: the kernel's helper
//! (`bpf_get_ns_current_pid_tgid`) gives numbers only to tasks whose own namespace is the tracer's,
//! and none to those of a container below it. The helper serves where the kernel's types do not say
//! where the numbers are.

use super::words::read_kernel;
use crate::mir::{Builder, Helper, Jmp, Label, Size, V};
use crate::target::{PidNamespace, PidOffsets, Target};

/// What a number is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// A thread.
    Thread,
    /// Its process.
    Process,
}

/// The number of the current thread or process; 0 if it has none in the tracer's namespace.
pub fn current_number(b: &mut Builder, target: &Target, of: Numbered) -> V {
    match target.pid_namespace {
        None => {
            let both = b.call(Helper::GET_CURRENT_PID_TGID, &[]);
            if of == Numbered::Process { b.shr(both, 32) } else { b.low32(both) }
        }
        Some(PidNamespace { ino, numbers: Some(at), .. }) => {
            let helper =
                if target.task_btf { Helper::GET_CURRENT_TASK_BTF } else { Helper::GET_CURRENT_TASK };
            let task = b.call(helper, &[]);
            number_of(b, (task, target.task_btf), of, ino, at)
        }
        Some(PidNamespace { dev, ino, numbers: None }) => {
            // { u32 pid, u32 tgid }: zeros for tasks of other namespaces.
            let buffer = b.stack(8);
            let (dev, ino) = (b.imm(dev as i64), b.imm(ino as i64));
            let (to, size) = (b.slot_addr(buffer, 0), b.imm(8));
            b.call(Helper::GET_NS_CURRENT_PID_TGID, &[dev, ino, to, size]);
            b.slot_load(Size::B4, buffer, if of == Numbered::Process { 4 } else { 0 })
        }
    }
}

/// The number of a task in the namespace that has this inode; 0 if it has none there. `typed`: the
/// kernel knows what the address is of, so members are loaded directly.
pub fn number_of(b: &mut Builder, (task, typed): (V, bool), of: Numbered, ino: u64, at: PidOffsets) -> V {
    let (number, none) = (b.copy(0), b.label());
    let member = |b: &mut Builder, of: V, offset, size| match typed {
        true => b.load(size, of, offset),
        false => read(b, of, offset, size, none),
    };
    let ids = match of {
        Numbered::Thread => member(b, task, at.thread, Size::B8),
        Numbered::Process => {
            let signal = member(b, task, at.signal, Size::B8);
            member(b, signal, at.process, Size::B8)
        }
    };
    let level = member(b, ids, at.level, Size::B4);
    b.br(Jmp::Lt, level, at.own, none);
    // The array has as many elements as the process has levels, which its type does not say.
    let namespace = read(b, ids, at.number + at.ns, Size::B8, none);
    let inode = read(b, namespace, at.inum, Size::B4, none);
    b.br(Jmp::Ne, inode, ino as u32, none);
    let found = read(b, ids, at.number + at.nr, Size::B4, none);
    b.set(number, found);
    b.bind(none);
    number
}

/// Reads kernel memory. Jumps to `none` where it cannot be read.
fn read(b: &mut Builder, base: V, offset: i16, size: Size, none: Label) -> V {
    let buffer = b.stack(8);
    read_kernel(b, (buffer, 0), (base, offset), size, none)
}
