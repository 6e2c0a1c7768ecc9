//! The target of code generation: what the running kernel offers, as plain data.

use crate::arch::Machine;
use crate::mir::KsymId;

/// What the running kernel offers to generated code, and where the tracer runs. Plain data, so that
/// tests need no kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The machine.
    pub machine: &'static Machine,
    /// Offsets for paths of files. Without them, paths are not available.
    pub path: Option<PathOffsets>,
    /// Offsets for the names of control groups. Without them, these are not available.
    pub group: Option<GroupOffsets>,
    /// Offsets in a packet's `struct sk_buff`. Without them, packets cannot be recorded.
    pub packet: Option<PacketOffsets>,
    /// Offsets in `struct task_struct`. Without them, `execname` costs a helper call and `ppid` is
    /// 0.
    pub task: Option<TaskOffsets>,
    /// Offsets by which the programs of a process are told apart. Without them its stacks have no
    /// generation.
    pub generation: Option<GenerationOffsets>,
    /// Offsets by which the address space of a process is known. Without them, stacks of processes
    /// are walked by frame pointers alone.
    pub unwind: Option<UnwindOffsets>,
    /// Offsets by which processes are found in the set of processes. Without them there is none.
    pub processes: Option<ProcessOffsets>,
    /// The kernel has `bpf_get_current_task_btf`, so members of the task are loaded directly.
    pub task_btf: bool,
    /// Members of `struct task_struct` that are numbers, whole and not in unions or arrays: offset
    /// and size. Empty where no program uses the task.
    pub task_numbers: std::collections::BTreeSet<(i16, u8)>,
    /// How to load numbers from kernel memory without a helper, where the kernel has that.
    pub direct_load: Option<DirectLoad>,
    /// How programs walk the kernel's stack themselves. `None`: the kernel's helper does it.
    pub kernel_walk: Option<KernelWalk>,
    /// The offset of `flags` in `struct task_struct`, by which a sample in a guest is known, where
    /// programs sample.
    pub guest: Option<i16>,
    /// Offsets of the registers that the thread structure holds, because the kernel entry does not
    /// save them.
    pub thread: Option<ThreadOffsets>,
    /// Offset of the kernel's account of the task's CPU time, for `vtimestamp`.
    pub runtime: Option<i16>,
    /// The kernel's preempt count, where programs may read it.
    pub preempt_count: Option<PreemptCount>,
    /// The tracer's pid namespace, when it is not the initial one.
    pub pid_namespace: Option<PidNamespace>,
    /// There is a [`crate::mir::MapRef::TracerFunctions`], so stacks of tracepoints are cut behind
    /// the tracer's own frames.
    pub tracer_functions: bool,
    /// Nanoseconds to add to the monotonic clock to get the wall-clock time.
    pub wall_offset: i64,
}

/// BTF ids by which a program loads from any address of the kernel with one instruction. The load
/// of an address that cannot be read gives 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectLoad {
    /// The function `bpf_rdonly_cast`. The verifier replaces its call by a move.
    pub cast: KsymId,
    /// A struct that begins with a number of 64 bits.
    pub number: u32,
}

/// How programs walk the kernel's stack: see [`crate::routines`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelWalk {
    /// What is walked by.
    pub tables: KernelTables,
    /// What happens beside the walk.
    pub mode: WalkMode,
}

/// What programs do beside their walk of the kernel's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkMode {
    /// What they cannot walk is walked by the helper.
    Auto,
    /// What they cannot walk is incomplete.
    Own,
    /// The helper walks each stack, too, and what differs is marked.
    Check,
}

/// The tables by which the kernel walks its own stacks (ORC), in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTables {
    /// How they are read.
    pub load: DirectLoad,
    /// The addresses at which the code begins that they are of, and how many bytes it has: `_stext`
    /// to `_etext`, and `_sinittext` to `_einittext`, in which the kernel was started and to which
    /// the idle task of a CPU never returns.
    pub text: [(u64, u32); 2],
    /// The address of the distances from their own places to the beginnings of rows, 4 bytes each
    /// (`__start_orc_unwind_ip`).
    pub places: u64,
    /// The address of the rows (`__start_orc_unwind`).
    pub rows: u64,
    /// The number of rows.
    pub count: u32,
    /// The members of a row.
    pub layout: RowLayout,
    /// What the numbers of registers in it mean.
    pub registers: RowRegisters,
    /// How modules and their rows are found.
    pub modules: Option<ModuleTables>,
    /// The addresses to which the kernel lets functions return whose return it traces.
    pub replaced: [Option<u64>; 2],
}

/// The tree of the kernel's modules (`mod_tree`), a latched tree, of which one of two copies is
/// never being changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleTables {
    /// The address of the number of changes, 4 bytes, whose lowest bit says which copy is to be
    /// read.
    pub sequence: u64,
    /// The address of the roots of both.
    pub roots: u64,
    /// Offsets in `struct rb_node`, and its bytes.
    pub left: i16,
    /// The same.
    pub right: i16,
    /// The same.
    pub node_size: i16,
    /// In `struct module_memory`: the nodes.
    pub nodes: i16,
    /// The address of the memory.
    pub base: i16,
    /// Its bytes, in 4 bytes.
    pub size: i16,
    /// The module.
    pub module: i16,
    /// In `struct module`: how far it is loaded, 4 bytes.
    pub state: i16,
    /// The address of [`KernelTables::places`] of the module.
    pub places: i16,
    /// The address of its rows.
    pub rows: i16,
    /// Their number, 4 bytes.
    pub count: i16,
}

impl ModuleTables {
    /// These, by the address of the tree and what tells the offset of a member of a type
    /// (`module_memory.base`). `None` if this kernel lacks one (before 6.4).
    pub fn by(tree: u64, offset: impl Fn(&str) -> Option<i16>) -> Option<ModuleTables> {
        let at = |member: &str| offset(member).map(|at| tree.wrapping_add(at as u64));
        Some(ModuleTables {
            sequence: at("mod_tree_root.root.seq")?,
            roots: at("mod_tree_root.root.tree")?,
            left: offset("rb_node.rb_left")?,
            right: offset("rb_node.rb_right")?,
            // Its three words.
            node_size: 24,
            nodes: offset("module_memory.mtn.node.node")?,
            base: offset("module_memory.base")?,
            size: offset("module_memory.size")?,
            module: offset("module_memory.mtn.mod")?,
            state: offset("module.state")?,
            places: offset("module.arch.orc_unwind_ip")?,
            rows: offset("module.arch.orc_unwind")?,
            count: offset("module.arch.num_orcs")?,
        })
    }
}

/// The numbers of registers in a row (`ORC_REG_*`), which no type of the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRegisters {
    /// The stack pointer.
    pub sp: u8,
    /// The frame pointer.
    pub bp: u8,
    /// The stack pointer of the caller.
    pub prev_sp: u8,
    /// r10, what bp points to, and what sp points to; `None` where their numbers are not known.
    pub rare: Option<[u8; 3]>,
}

impl RowRegisters {
    /// What they are on kernels that are known.
    pub const KNOWN: [RowRegisters; 2] = [
        RowRegisters { sp: 5, bp: 4, prev_sp: 1, rare: Some([6, 8, 9]) },
        // 7.2
        RowRegisters { sp: 3, bp: 4, prev_sp: 8, rare: None },
    ];
}

/// Where members of `struct orc_entry` are. It begins with two numbers of 16 bits, the offsets of
/// the frame and of bp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Bytes of a row.
    pub size: u8,
    /// The offset of the 16 bits that have the other members.
    pub bits: u8,
    /// The first bit of `sp_reg`.
    pub sp_register: u8,
    /// The first bit of `bp_reg`.
    pub bp_register: u8,
    /// The first bit of `type`.
    pub entered: u8,
    /// The bit of `signal`.
    pub signal: u8,
}

impl RowLayout {
    /// The layout, by what tells the first bit of a member and how many bits it has. `None` for
    /// rows of another form (before 6.4).
    pub fn by(size: u32, bits: impl Fn(&str) -> Option<(u64, u8)>) -> Option<RowLayout> {
        let offsets = [("sp_offset", 0, 16), ("bp_offset", 16, 16)];
        if !offsets.iter().all(|(name, at, width)| bits(name) == Some((*at, *width))) {
            return None;
        }
        let first = bits("sp_reg")?.0 / 16 * 16;
        let at = |name: &str, width: u8| {
            let (at, found) = bits(name).filter(|(_, found)| *found == width)?;
            let at = at.checked_sub(first).filter(|at| at + u64::from(found) <= 16)?;
            u8::try_from(at).ok()
        };
        Some(RowLayout {
            size: u8::try_from(size).ok()?,
            bits: u8::try_from(first / 8).ok()?,
            sp_register: at("sp_reg", 4)?,
            bp_register: at("bp_reg", 4)?,
            entered: at("type", 3)?,
            signal: at("signal", 1)?,
        })
    }
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

/// Offsets in `struct task_struct` of what makes the generation of a process
/// ([`plane::stacks::generation`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationOffsets {
    /// The first thread, whose start is that of the process.
    pub leader: i16,
    /// Its start in nanoseconds since boot.
    pub start: i16,
    /// The number of programs that a thread and what it was forked from have executed.
    pub execs: i16,
}

/// Offsets by which the address space of a process is known ([`plane::unwind::key`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindOffsets {
    /// In `struct task_struct`.
    pub mm: i16,
    /// In `struct mm_struct`.
    pub start_code: i16,
    /// The same.
    pub start_stack: i16,
    /// The same.
    pub arg_start: i16,
    /// In `struct task_struct`: the base of the thread-local storage of a thread. Without it the
    /// frames of an interpreter are not found.
    pub fs_base: Option<i16>,
    /// How the mapping of an address is found. `None`: the kernel has no such helper, or its types
    /// do not say what is in a mapping.
    pub mappings: Option<MappingOffsets>,
    /// Where the true return addresses of functions are whose return is probed. `None`: the kernel
    /// has no such probes, or its types do not say it.
    pub returns: Option<ReturnOffsets>,
}

/// Offsets on the way from a mapping to what its file is known by.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingOffsets {
    /// In `struct vm_area_struct`.
    pub start: i16,
    pub end: i16,
    pub page: i16,
    pub file: i16,
    /// In `struct file`.
    pub inode: i16,
    /// In `struct inode`.
    pub number: i16,
    pub superblock: i16,
    pub size: i16,
    /// The time of the last change (`ctime`): seconds, and nanoseconds.
    pub changed: i16,
    pub changed_ns: i16,
    /// In `struct super_block`.
    pub device: i16,
    /// In `struct mm_struct`: the address of the vdso, which has no file, but a table.
    pub vdso: i16,
}

impl MappingOffsets {
    /// These, by what tells the offset of a member of a type (`vm_area_struct.vm_start`). `None` if
    /// this kernel lacks one.
    pub fn by(offset: impl Fn(&str) -> Option<i16>) -> Option<MappingOffsets> {
        // Until 6.6, until 6.10, since.
        let changed = ["inode.i_ctime.tv_sec", "inode.__i_ctime.tv_sec", "inode.i_ctime_sec"];
        let changed_ns = ["inode.i_ctime.tv_nsec", "inode.__i_ctime.tv_nsec", "inode.i_ctime_nsec"];
        Some(MappingOffsets {
            start: offset("vm_area_struct.vm_start")?,
            end: offset("vm_area_struct.vm_end")?,
            page: offset("vm_area_struct.vm_pgoff")?,
            file: offset("vm_area_struct.vm_file")?,
            inode: offset("file.f_inode")?,
            number: offset("inode.i_ino")?,
            superblock: offset("inode.i_sb")?,
            size: offset("inode.i_size")?,
            changed: changed.into_iter().find_map(&offset)?,
            changed_ns: changed_ns.into_iter().find_map(&offset)?,
            device: offset("super_block.s_dev")?,
            vdso: offset("mm_struct.context.vdso")?,
        })
    }
}

/// Offsets of the list of returns of a thread that the kernel probes (`uretprobe`), innermost
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnOffsets {
    /// In `struct task_struct`: what uprobes have for a thread.
    pub utask: i16,
    /// In `struct uprobe_task`: the first of the list.
    pub instances: i16,
    /// In `struct return_instance`: where on the stack the return address was.
    pub stack: i16,
    /// The return address.
    pub address: i16,
    /// The next of the list.
    pub next: i16,
    /// In `struct mm_struct`: the page of the trampoline.
    pub area: i16,
    /// In `struct xol_area`: its address in the process.
    pub vaddr: i16,
}

/// Offsets for the set of processes ([`plane::processes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessOffsets {
    /// In `struct task_struct`: the id of the process.
    pub tgid: i16,
    /// Its first thread.
    pub leader: i16,
    /// The start of a thread in nanoseconds since boot.
    pub start: i16,
    /// What the threads share.
    pub signal: i16,
    /// In `struct signal_struct`: the number of threads that have not ended.
    pub live: i16,
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

/// A pid namespace that is not the initial one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace {
    /// Device of `/proc/self/ns/pid`, in the encoding of `bpf_get_ns_current_pid_tgid`.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// Where the numbers of tasks in it are. Without that, tasks of the namespaces below it have
    /// none.
    pub numbers: Option<PidOffsets>,
}

/// Offsets on the way from a task to its number in a pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidOffsets {
    /// In `struct task_struct`: the thread's `struct pid`.
    pub thread: i16,
    /// What the threads share.
    pub signal: i16,
    /// In `struct signal_struct`: the process's `struct pid`.
    pub process: i16,
    /// In `struct pid`: the level of the namespace of the task.
    pub level: i16,
    /// The level of the namespace that is meant, 0 for the initial one.
    pub own: u32,
    /// In `struct pid`: the `struct upid` of that level.
    pub number: i16,
    /// In `struct upid`.
    pub nr: i16,
    /// The same.
    pub ns: i16,
    /// In `struct pid_namespace`: the inode.
    pub inum: i16,
}

/// Offsets of the members that make up a path, in bytes from the start of their struct.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathOffsets {
    /// In `struct task_struct`.
    pub fs: i16,
    /// In `struct fs_struct`.
    pub root: i16,
    /// In `struct path`.
    pub mnt: i16,
    pub dentry: i16,
    /// In `struct dentry`.
    pub parent: i16,
    pub name_len: i16,
    pub name: i16,
    /// `mnt` in `struct mount`.
    pub vfsmount: i16,
    /// In `struct mount`.
    pub mnt_parent: i16,
    pub mountpoint: i16,
    /// In `struct vfsmount`.
    pub mnt_root: i16,
}

/// Offsets of the members by which a control group has a name and one above it.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOffsets {
    /// In `struct cgroup`.
    pub node: i16,
    pub state: i16,
    /// `self.parent` in `struct cgroup`: the state of the group above.
    pub above: i16,
    /// In `struct kernfs_node`.
    pub name: i16,
}

impl GroupOffsets {
    /// Finds the offsets by the members' paths. `None` when the kernel lacks one of them.
    pub fn find(offset: impl Fn(&str) -> Option<i16>) -> Option<GroupOffsets> {
        Some(GroupOffsets {
            node: offset("cgroup.kn")?,
            state: offset("cgroup.self")?,
            above: offset("cgroup.self.parent")?,
            name: offset("kernfs_node.name")?,
        })
    }
}

/// Offsets of the members of a socket buffer, in bytes from the start of their struct.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOffsets {
    /// In `struct sk_buff`.
    pub len: i16,
    pub data_len: i16,
    pub data: i16,
    /// How to read the pages of a packet. Without it, only the linear part is recorded.
    pub pages: Option<PageOffsets>,
}

/// Offsets on the way from a socket buffer to its pages.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOffsets {
    /// In `struct sk_buff`.
    pub head: i16,
    pub end: i16,
    /// In `struct skb_shared_info`.
    pub nr_frags: i16,
    /// Of `frags` in `struct skb_shared_info`, and its elements.
    pub at: i16,
    pub frags: Frags,
    /// Where the bytes of a page are.
    pub map: LinearMap,
}

/// The elements of `frags`, the pages of a packet.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frags {
    /// Offsets in an element.
    pub page: i16,
    pub size: i16,
    pub offset: i16,
    /// Bytes of an element.
    pub stride: i16,
    /// Elements at most.
    pub count: u16,
}

/// The kernel's linear map of the memory. The address of a page's bytes is that of its
/// `struct page`, shifted left by `shift` bits and increased by `base`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearMap {
    pub shift: u8,
    pub base: u64,
}

/// The kernel's per-CPU preempt count, or the per-CPU struct that contains it (`pcpu_hot`, 6.2 to
/// 6.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptCount {
    /// The variable.
    pub ksym: KsymId,
    /// Offset of the count in the variable.
    pub offset: i16,
}
