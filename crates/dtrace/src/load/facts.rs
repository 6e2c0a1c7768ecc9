//! Facts of a machine's kernel for code generation: offsets in its structs, and ids of this
//! process.
//!
//! A fact is read only if the module has an operation that needs it. A session that needs none
//! reads no BTF.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use bpf_codegen::arch::Machine;
use bpf_codegen::mir::KsymId;
use bpf_codegen::target::PreemptCount;
use bpf_codegen::target::{
    DirectLoad, Frags, GenerationOffsets, GroupOffsets, MappingOffsets, PacketOffsets, PathOffsets,
    PidNamespace, PidOffsets, ProcessOffsets, ReturnOffsets, Target, TaskOffsets, ThreadOffsets,
    UnwindOffsets,
};
use bpf_codegen::{CodegenError, Layout};
use bpf_sys::features::{Facility, Features};
use bpf_sys::{Map, MapSpec, SysError, Update};
use dif::ir::{InstData, IntBuiltin, Module, Op, Space, StrBuiltin, Ty};
use dif::subr::Subr;
use system::System;
use types::btf::{Btf, BtfKind, Def, KernelBtf};

use crate::error::Error;
use crate::load::linear_map;
use crate::load::process_ids::Numbers;
use crate::options::Options;

/// The system that programs are generated for.
pub(crate) struct SystemContext<'a> {
    pub(crate) machine: &'a System,
    pub(crate) kernel: &'a KernelBtf,
    pub(crate) features: &'a Features,
    pub(crate) cpus: &'a [u32],
    /// The kernel's symbols.
    pub(crate) symbols: &'a RefCell<symbols::Kernel>,
}

impl<'a> SystemContext<'a> {
    pub(crate) fn new(
        machine: &'a System,
        cpus: &'a [u32],
        symbols: &'a RefCell<symbols::Kernel>,
    ) -> SystemContext<'a> {
        SystemContext { machine, kernel: machine.types(), features: machine.features(), cpus, symbols }
    }
}

/// True if the predicate holds for an operation of the module.
pub(crate) fn uses(module: &Module, predicate: impl Fn(&Op) -> bool) -> bool {
    module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).any(|i| predicate(&i.op))
}

/// True if an operation needs the layout of `task_struct`.
pub(crate) fn uses_task(module: &Module) -> bool {
    use IntBuiltin::{CurThread, Ppid, Ureg, UserThread};
    uses(module, |op| match op {
        Op::BuiltinStr(b) => *b == StrBuiltin::Execname,
        Op::Builtin(b) => matches!(b, CurThread | Ppid | UserThread | Ureg(_)),
        Op::Call(Subr::Progenyof, _) => true,
        _ => false,
    })
}

/// The facts that a module needs.
pub(crate) fn target(
    module: &Module,
    has_processes: bool,
    system: &SystemContext<'_>,
) -> Result<Target, Error> {
    let task = uses_task(module).then(|| task_offsets(system.kernel)).flatten();
    if task.is_none()
        && let Some(inst) = insts(module).find(|i| i.op == Op::Builtin(IntBuiltin::Ppid))
    {
        // A guess at the offset of the parent in the task would give a wrong number.
        let message = "ppid needs the kernel's types, and this kernel gives none (no BTF)".into();
        return Err(Error::Codegen(CodegenError { span: inst.span, message }));
    }
    let pid_namespace = pid_namespace(system);
    let ustack = uses(module, |op| matches!(op, Op::Stack { user: true, .. }));
    let generation = ustack.then(|| generation_offsets(system.kernel)).flatten();
    let processes = has_processes.then(|| process_offsets(system)).flatten();
    let numbers = pid_namespace.is_some_and(|namespace| namespace.numbers.is_some());
    let task_btf =
        (task.is_some() || generation.is_some() || numbers) && system.features.has(Facility::TaskBtf);
    let registers = |n: u8| move |op: &Op| matches!(op, Op::Builtin(IntBuiltin::Ureg(r)) if *r >= n);
    if !task_btf && let Some(inst) = insts(module).find(|i| registers(0)(&i.op)) {
        let message = "uregs[] needs the kernel's types, and this kernel gives none (no BTF)".into();
        return Err(Error::Codegen(CodegenError { span: inst.span, message }));
    }
    let writes = |op: &Op| matches!(op, Op::CopyOut { .. } | Op::CopyOutStr { .. });
    if let Some(inst) = insts(module).find(|i| writes(&i.op))
        && let Some(why) = system.features.why_not(Facility::ProbeWriteUser)
    {
        let message =
            format!("copyout( ) and copyoutstr( ): this kernel lets no program write user memory ({why})");
        return Err(Error::Codegen(CodegenError { span: inst.span, message }));
    }
    let of_thread = uses(module, registers(Machine::own().uregs.len() as u8));
    let thread = of_thread.then(|| thread_offsets(system.kernel)).flatten();
    let reads_vtime = |i: &&InstData| i.op == Op::Builtin(IntBuiltin::Vtimestamp);
    let runtime = insts(module).find(reads_vtime).map(|inst| {
        let field = system.kernel.vmlinux().ok().and_then(|b| b.field("task_struct.se.sum_exec_runtime"));
        let offset = field.and_then(|f| i16::try_from(f.offset()).ok());
        let able = system.features.has(Facility::TaskBtf) && system.features.has(Facility::TpBtf);
        offset.filter(|_| able).ok_or_else(|| {
            let message =
                "vtimestamp needs typed tracepoints, which this kernel does not have (no BTF)".into();
            Error::Codegen(CodegenError { span: inst.span, message })
        })
    });
    let runtime = runtime.transpose()?;
    let ipl = uses(module, |op| matches!(op, Op::Builtin(IntBuiltin::Ipl)));
    let preempt_count = ipl.then(|| preempt_count(system)).flatten();
    let path = uses(module, |op| matches!(op, Op::Call(subr, _) if subr.makes_path()));
    let path = path.then(|| path_offsets(system.kernel)).flatten();
    let group = uses(module, |op| matches!(op, Op::Call(subr, _) if subr.names_group()));
    let group = group.then(|| group_offsets(system.kernel)).flatten();
    let packet = uses(module, |op| matches!(op, Op::RecordPacket { .. }));
    let packet = packet.then(|| packet_offsets(system)).flatten();
    let direct_load = loads_numbers(module).then(|| direct_load(system)).flatten();
    let wall_offset = system.machine.wall_offset();
    let task_numbers = match uses(module, |op| *op == Op::Builtin(IntBuiltin::CurThread)) {
        true => task_numbers(system.kernel).unwrap_or_default(),
        false => BTreeSet::new(),
    };
    Ok(Target {
        machine: Machine::own(),
        runtime,
        task,
        generation,
        unwind: None,
        processes,
        task_btf,
        task_numbers,
        direct_load,
        thread,
        path,
        group,
        packet,
        preempt_count,
        pid_namespace,
        wall_offset,
        tracer_functions: false,
        kernel_walk: None,
        guest: None,
    })
}

/// Every instruction of every clause.
fn insts(module: &Module) -> impl Iterator<Item = &InstData> {
    module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts)
}

/// True if a clause reads a number from memory of the kernel.
fn loads_numbers(module: &Module) -> bool {
    module.clauses.iter().any(|clause| {
        let loads = |op: &Op| {
            let Op::Load { addr, .. } = op else { return false };
            let ty = clause.func.values.get(addr.0 as usize);
            matches!(ty, Some(Ty::Int | Ty::Ptr(Space::Kernel | Space::Unknown)))
        };
        clause.func.blocks.iter().flat_map(|b| &b.insts).any(|i| loads(&i.op))
    })
}

/// How programs load from kernel memory, if this kernel allows it.
pub(crate) fn direct_load(system: &SystemContext<'_>) -> Option<DirectLoad> {
    let btf = system.kernel.vmlinux().ok().filter(|_| system.features.has(Facility::Kfuncs))?;
    let (cast, number) = bpf_sys::features::direct_load(btf)?;
    Some(DirectLoad { cast: KsymId(cast), number })
}

/// Major number of a device as `stat` shows it.
fn device_major(dev: u64) -> u32 {
    ((dev >> 8) & 0xfff) as u32
}

/// Minor number, likewise.
fn device_minor(dev: u64) -> u32 {
    ((dev & 0xff) | ((dev >> 12) & 0xf_ff00)) as u32
}

/// Members of the task that the verifier lets a program load as numbers: see
/// [`Target::task_numbers`].
fn task_numbers(kernel: &KernelBtf) -> Option<BTreeSet<(i16, u8)>> {
    let btf = kernel.vmlinux().ok()?;
    let (mut found, mut left) = (BTreeSet::new(), MEMBERS);
    numbers_in(btf, btf.find_sou(false, "task_struct")?, (0, 6), &mut left, &mut found);
    Some(found)
}

/// The members that are looked at. A kernel's has some thousand; types of a record may be anything.
const MEMBERS: u32 = 100_000;

fn numbers_in(
    btf: &Btf,
    sou: u32,
    (base, depth): (u64, u32),
    left: &mut u32,
    found: &mut BTreeSet<(i16, u8)>,
) {
    let Some(Def::Sou { union: false, members, .. }) = btf.def(sou) else { return };
    for m in members.filter(|m| m.bits.is_none() && m.bit_offset % 8 == 0) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            return;
        }
        let (ty, at) = (btf.resolve(m.ty), base + m.bit_offset / 8);
        match btf.def(ty) {
            Some(Def::Int { size: size @ (1 | 2 | 4 | 8), .. } | Def::Enum { size: size @ (4 | 8), .. }) => {
                found.extend(i16::try_from(at).ok().map(|at| (at, size as u8)));
            }
            Some(Def::Sou { .. }) if depth > 0 => numbers_in(btf, ty, (at, depth - 1), left, found),
            _ => {}
        }
    }
}

/// The offset of a member of one of the kernel's structs, as an instruction has it.
fn offset_of(btf: &Btf, path: &str) -> Option<i16> {
    i16::try_from(btf.field(path)?.offset()).ok()
}

fn task_offsets(kernel: &KernelBtf) -> Option<TaskOffsets> {
    let btf = kernel.vmlinux().ok()?;
    let offset = |member: &str| offset_of(btf, &format!("task_struct.{member}"));
    Some(TaskOffsets {
        comm: offset("comm")?,
        real_parent: offset("real_parent")?,
        tgid: offset("tgid")?,
        flags: offset("flags")?,
    })
}

/// How programs know the address space of a process, if they walk stacks of processes by tables.
pub(crate) fn unwind_offsets(
    layout: &Layout,
    options: &Options,
    system: &SystemContext<'_>,
) -> Option<UnwindOffsets> {
    layout.stacks.user.filter(|_| options.unwindsize.0 > 0)?;
    let btf = system.kernel.vmlinux().ok().filter(|_| system.features.has(Facility::TaskBtf))?;
    let offset = |path: &str| offset_of(btf, path);
    Some(UnwindOffsets {
        mm: offset("task_struct.mm")?,
        start_code: offset("mm_struct.start_code")?,
        start_stack: offset("mm_struct.start_stack")?,
        arg_start: offset("mm_struct.arg_start")?,
        fs_base: offset("task_struct.thread.fsbase"),
        mappings: mapping_offsets(btf),
        returns: return_offsets(btf),
    })
}

/// How the kernel tells what is mapped at an address.
fn mapping_offsets(btf: &Btf) -> Option<MappingOffsets> {
    btf.find(&[BtfKind::Func], "bpf_find_vma")?;
    MappingOffsets::by(|path| offset_of(btf, path))
}

/// Where the kernel has the true return addresses of functions whose return it probes.
fn return_offsets(btf: &Btf) -> Option<ReturnOffsets> {
    let offset = |member: &str| i16::try_from(btf.field(member)?.offset()).ok();
    Some(ReturnOffsets {
        utask: offset("task_struct.utask")?,
        instances: offset("uprobe_task.return_instances")?,
        stack: offset("return_instance.stack")?,
        address: offset("return_instance.orig_ret_vaddr")?,
        next: offset("return_instance.next")?,
        area: offset("mm_struct.uprobes_state.xol_area")?,
        vaddr: offset("xol_area.vaddr")?,
    })
}

fn generation_offsets(kernel: &KernelBtf) -> Option<GenerationOffsets> {
    let btf = kernel.vmlinux().ok()?;
    let offset = |member: &str| offset_of(btf, &format!("task_struct.{member}"));
    Some(GenerationOffsets {
        leader: offset("group_leader")?,
        start: offset("start_boottime")?,
        execs: offset("self_exec_id")?,
    })
}

/// The offsets for the set of processes, where the kernel has what programs need for it.
pub(crate) fn process_offsets(system: &SystemContext<'_>) -> Option<ProcessOffsets> {
    let able = system.features.has(Facility::TaskBtf) && system.features.has(Facility::TpBtf);
    let btf = system.kernel.vmlinux().ok().filter(|_| able)?;
    let offset = |path: &str| offset_of(btf, path);
    Some(ProcessOffsets {
        tgid: offset("task_struct.tgid")?,
        leader: offset("task_struct.group_leader")?,
        start: offset("task_struct.start_boottime")?,
        signal: offset("task_struct.signal")?,
        live: offset("signal_struct.live.counter")?,
    })
}

/// The id of a tracepoint's type.
pub(crate) fn tracepoint(kernel: &KernelBtf, name: &str) -> Option<u32> {
    kernel.vmlinux().ok()?.find(&[BtfKind::Typedef], &format!("btf_trace_{name}"))
}

/// The offset of a task's state.
pub(crate) fn task_state(kernel: &KernelBtf) -> Option<i16> {
    offset_of(kernel.vmlinux().ok()?, "task_struct.__state")
}

/// The tracer's pid namespace, if it is not the initial one.
fn pid_namespace(system: &SystemContext<'_>) -> Option<PidNamespace> {
    // Of this process, which stays in its namespace.
    static LEVEL: OnceLock<Option<u32>> = OnceLock::new();
    let (kernel, is_inside) = (system.kernel, system.machine.is_live() && !proc::in_initial_namespace());
    let proc::PidNamespace { dev, ino } = is_inside.then(proc::pid_namespace).flatten()?;
    // The kernel counts a device as 12 bits of major and 20 of minor number.
    let dev = u64::from(device_major(dev)) << 20 | u64::from(device_minor(dev));
    let own = *LEVEL.get_or_init(|| {
        let own = Numbers::default().of(std::process::id()).ok().flatten();
        own.map(|own| own.level)
    });
    Some(PidNamespace { dev, ino, numbers: own.and_then(|own| pid_offsets(kernel, own)) })
}

/// Where a task has its number at a level.
fn pid_offsets(kernel: &KernelBtf, own: u32) -> Option<PidOffsets> {
    let btf = kernel.vmlinux().ok()?;
    let offset = |path: &str| offset_of(btf, path);
    // An array by the kind of id: that of the thread group is the second, and a pointer long
    // behind.
    const THREAD_GROUP: i16 = 8;
    // `struct upid` has a number and a pointer.
    const UPID: i16 = 16;
    Some(PidOffsets {
        thread: offset("task_struct.thread_pid")?,
        signal: offset("task_struct.signal")?,
        process: offset("signal_struct.pids")? + THREAD_GROUP,
        level: offset("pid.level")?,
        own,
        number: offset("pid.numbers")?.checked_add(UPID.checked_mul(i16::try_from(own).ok()?)?)?,
        nr: offset("upid.nr")?,
        ns: offset("upid.ns")?,
        inum: offset("pid_namespace.ns.inum")?,
    })
}

fn thread_offsets(kernel: &KernelBtf) -> Option<ThreadOffsets> {
    let btf = kernel.vmlinux().ok()?;
    let offset = |member: &str| offset_of(btf, &format!("task_struct.thread.{member}"));
    Some(ThreadOffsets {
        ds: offset("ds")?,
        es: offset("es")?,
        fs: offset("fsindex")?,
        gs: offset("gsindex")?,
        trap_nr: offset("trap_nr")?,
    })
}

/// Where programs read the preempt count, if this kernel allows it.
pub(crate) fn preempt_count(system: &SystemContext<'_>) -> Option<PreemptCount> {
    let btf = system.kernel.vmlinux().ok().filter(|_| system.features.has(Facility::PreemptCount))?;
    let (var, offset) = bpf_sys::features::preempt_count(btf)?;
    Some(PreemptCount { ksym: KsymId(var), offset })
}

fn packet_offsets(system: &SystemContext<'_>) -> Option<PacketOffsets> {
    let btf = system.kernel.vmlinux().ok()?;
    let frags = || {
        let all = btf.field("skb_shared_info.frags")?;
        let Some(Def::Array { elem, len }) = btf.def(btf.resolve(all.ty)) else { return None };
        let offset = |member: &str| i16::try_from(btf.member(elem, member)?.offset()).ok();
        Frags::find(offset, btf.size(elem)?.try_into().ok()?, len.try_into().ok()?)
    };
    // It is found in memory, which no record has.
    let linear_map = if system.machine.is_live() { linear_map::find(btf) } else { None };
    PacketOffsets::find(|path| offset_of(btf, path), frags(), linear_map)
}

fn path_offsets(kernel: &KernelBtf) -> Option<PathOffsets> {
    let btf = kernel.vmlinux().ok()?;
    PathOffsets::find(|path| offset_of(btf, path))
}

fn group_offsets(kernel: &KernelBtf) -> Option<GroupOffsets> {
    let btf = kernel.vmlinux().ok()?;
    GroupOffsets::find(|path| offset_of(btf, path))
}

/// Reads the facts of a machine that the D libraries use, when a program uses them.
pub(crate) fn reader(machine: &System) -> check::FactsReader {
    let machine = machine.clone();
    check::FactsReader::new(move || machine_facts(&machine))
}

fn machine_facts(machine: &System) -> check::Facts {
    let facts = machine.facts();
    let of = machine.clone();
    check::Facts {
        boottime: facts.boottime,
        pagesize: facts.page_size,
        tick: facts.tick,
        pid_namespace: facts.pid_namespace,
        cpus: facts.cpus,
        processor_type: machine.arch().into(),
        fputypes: facts.fputypes,
        clocks: check::ClocksReader::new(move || of.clocks()),
    }
}

/// A map of one element that programs only read.
pub(crate) fn read_only(name: &str, bytes: &[u8]) -> Result<Map, SysError> {
    let mut value = bytes.to_vec();
    value.resize(bytes.len().max(8).next_multiple_of(8), 0);
    let map = Map::create(&MapSpec::array(name, value.len() as u32, 1))?;
    map.update(&0u32.to_ne_bytes(), &value, Update::Any)?;
    Ok(map)
}
