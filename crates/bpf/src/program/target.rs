//! The target of code generation: what the running kernel offers, as plain data.

use crate::maps::PreemptCount;
use crate::routines::PathOffsets;

/// What the running kernel offers to generated code, and where the tracer runs. Plain data, so that
/// tests need no kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Offsets for paths of files. Without them, paths are not available.
    pub path: Option<PathOffsets>,
    /// Offsets in `struct task_struct`. Without them, `execname` costs a helper call and `ppid` is
    /// 0.
    pub task: Option<TaskOffsets>,
    /// The kernel has `bpf_get_current_task_btf`, so members of the task are loaded directly.
    pub task_btf: bool,
    /// Members of `struct task_struct` that are numbers, whole and not in unions or arrays: offset
    /// and size. Empty where no program uses the task.
    pub task_numbers: std::collections::BTreeSet<(i16, u8)>,
    /// Offsets of the registers that the thread structure holds, because the kernel entry does not
    /// save them.
    pub thread: Option<ThreadOffsets>,
    /// Offset of the kernel's account of the task's CPU time, for `vtimestamp`.
    pub runtime: Option<i16>,
    /// The kernel's preempt count, where programs may read it.
    pub preempt_count: Option<PreemptCount>,
    /// The tracer's pid namespace, when it is not the initial one.
    pub pid_namespace: Option<PidNamespace>,
    /// Offsets to find the ids of a process. Needed only in a pid namespace that is not the initial
    /// one.
    pub pids: Option<PidOffsets>,
    /// There is a [`MapRef::TracerFunctions`], so stacks of tracepoints are cut behind the tracer's
    /// own frames.
    pub tracer_functions: bool,
    /// Nanoseconds to add to the monotonic clock to get the wall-clock time.
    pub wall_offset: i64,
}

/// Offsets in `struct task_struct`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOffsets {
    pub comm: i16,
    pub real_parent: i16,
    pub tgid: i16,
    pub flags: i16,
}

/// Offsets in `struct task_struct` of members of its `thread`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadOffsets {
    pub ds: i16,
    pub es: i16,
    pub fs: i16,
    pub gs: i16,
    pub trap_nr: i16,
}

/// Offsets on the way from a task to the id of its process in a pid namespace.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidOffsets {
    /// In `struct task_struct`.
    pub signal: i16,
    /// Of the thread group's `struct pid *` in `struct signal_struct`.
    pub pid: i16,
    /// In `struct pid`.
    pub level: i16,
    pub numbers: i16,
    /// In `struct upid`, and its size.
    pub nr: i16,
    pub ns: i16,
    pub number: i16,
    /// In `struct pid_namespace`.
    pub inum: i16,
}

/// A pid namespace: device and inode of `/proc/self/ns/pid`. The device is in the encoding of
/// `bpf_get_ns_current_pid_tgid`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace {
    pub dev: u64,
    pub ino: u64,
}
