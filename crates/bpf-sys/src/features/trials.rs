//! One trial for each facility: the smallest program or map that needs it is loaded and, where that
//! matters, attached.
//!
//! The trials attach only to quiet targets: a tracepoint and a kernel function that hardly ever
//! run, and a function of our own that is never called.

use crate::btf::Builder;
use crate::insn::{Alu, Helper, Insn, Jmp, Reg, Size};
use crate::load::Param;
use crate::load::{ProgramImage, Subprogram};
use crate::{
    AttachType, Link, Map, MapBtf, MapSpec, PerfEvent, Prog, ProgKind, ProgSpec, Rate, SLEEPABLE, SysError,
    UprobeTarget, online_cpus,
};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd};
use types::btf::{BtfKind, KernelBtf};

pub(super) type Outcome = Result<(), String>;

/// A tracepoint that every kernel has and that fires rarely.
const TRACEPOINT: &str = "sched_process_exec";
/// A function that only the kernel's tests call, and a function that is called rarely.
const FUNCTIONS: [&str; 2] = ["bpf_fentry_test1", "vfs_fsync_range"];

/// The BTF id of a type of the running kernel, or the reason why there is none.
fn id(kind: BtfKind, name: &str) -> Result<u32, String> {
    let kernel = KernelBtf::running();
    let btf = kernel.vmlinux().map_err(ToString::to_string)?;
    btf.find(&[kind], name).ok_or_else(|| format!("the kernel's BTF has no {name}"))
}

fn text(error: SysError) -> String {
    error.to_string()
}

/// A program that returns 0.
fn nothing() -> Vec<Insn> {
    vec![Insn::mov64_imm(Reg::R0, 0), Insn::exit()]
}

fn load(kind: ProgKind, attach: AttachType, btf_id: u32, insns: &[Insn]) -> Result<Prog, String> {
    let spec = ProgSpec { attach, attach_btf_id: btf_id, ..ProgSpec::new(kind, "try", insns) };
    Prog::load(&spec).map_err(|refusal| {
        // The reason is the last line of the log before the statistics.
        let reason = refusal.log.lines().rev().find(|l| !l.starts_with("processed") && !l.is_empty());
        match reason {
            Some(reason) => format!("{} ({})", text(refusal.error), reason.trim()),
            None => text(refusal.error),
        }
    })
}

fn load_raw_tp(insns: &[Insn]) -> Result<Prog, String> {
    load(ProgKind::RawTracepoint, AttachType::None, 0, insns)
}

pub(super) fn btf() -> Outcome {
    KernelBtf::running().vmlinux().map(drop).map_err(ToString::to_string)
}

pub(super) fn raw_tp() -> Outcome {
    let prog = load_raw_tp(&nothing())?;
    Link::raw_tracepoint(&prog, TRACEPOINT, 0).map(drop).map_err(text)
}

pub(super) fn raw_tp_cookie() -> Outcome {
    let prog = load_raw_tp(&nothing())?;
    Link::raw_tracepoint(&prog, TRACEPOINT, 1).map(drop).map_err(text)
}

pub(super) fn test_run() -> Outcome {
    let prog = load_raw_tp(&[Insn::mov64_imm(Reg::R0, 7), Insn::exit()])?;
    match prog.test_run(&[], None) {
        Ok(7) => Ok(()),
        Ok(other) => Err(format!("the program gave {other}")),
        Err(e) => Err(text(e)),
    }
}

pub(super) fn tp_btf() -> Outcome {
    let id = id(BtfKind::Typedef, &format!("btf_trace_{TRACEPOINT}"))?;
    let prog = load(ProgKind::Tracing, AttachType::TraceRawTp, id, &nothing())?;
    Link::tracing(&prog, 0).map(drop).map_err(text)
}

pub(super) fn fentry() -> Outcome {
    let [quiet, other] = FUNCTIONS;
    let id = id(BtfKind::Func, quiet).or_else(|_| id(BtfKind::Func, other))?;
    let prog = load(ProgKind::Tracing, AttachType::TraceFentry, id, &nothing())?;
    Link::tracing(&prog, 0).map(drop).map_err(text)
}

pub(super) fn kprobe_multi() -> Outcome {
    let prog = load(ProgKind::Kprobe, AttachType::KprobeMulti, 0, &nothing())?;
    Link::has_kprobe_multi(&prog).map_err(text)
}

pub(super) fn kprobe_perf() -> Outcome {
    first_ok(|function| PerfEvent::kprobe(function, 0, false).map(drop).map_err(text))
}

fn first_ok(attempt: impl Fn(&str) -> Outcome) -> Outcome {
    let [quiet, other] = FUNCTIONS;
    attempt(quiet).or_else(|_| attempt(other))
}

/// The target of uprobe trials. It is patched, but never called.
#[inline(never)]
extern "C" fn never_called(x: u64) -> u64 {
    std::hint::black_box(x).wrapping_mul(3)
}

/// A mapped code address as (file, offset in the file).
fn place_of(address: u64) -> Option<(OsString, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        // Columns: start-end perms offset dev inode path
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let inside = (start..end).contains(&address);
        inside.then(|| (OsString::from("/proc/self/exe"), address - start + offset))
    })
}

fn never_called_place() -> Result<(OsString, u64), String> {
    place_of(never_called as *const () as u64).ok_or_else(|| "own code not found in /proc/self/maps".into())
}

pub(super) fn uprobe_perf() -> Outcome {
    let (path, offset) = never_called_place()?;
    let event = PerfEvent::uprobe(&path, offset, 0, false, Some(std::process::id())).map_err(text)?;
    let prog = load(ProgKind::Kprobe, AttachType::None, 0, &nothing())?;
    Link::perf_event(&prog, event, 0).map(drop).map_err(text)
}

fn attach_uprobe_multi(path: &OsStr, offset: u64, pid: Option<u32>) -> Result<Link, SysError> {
    let unknown = |why: String| SysError::new(why, libc::EINVAL);
    let prog = load(ProgKind::Kprobe, AttachType::UprobeMulti, 0, &nothing()).map_err(unknown)?;
    let offsets = &[offset];
    let target = UprobeTarget { path, offsets, cookies: &[], semaphores: &[], pid, is_return: false };
    Link::uprobe_multi(&prog, &target)
}

/// Asks for a link to a directory, which a kernel that makes such links refuses as no file. One to
/// a file would take it two grace periods, 30 ms.
pub(super) fn uprobe_multi() -> Outcome {
    match attach_uprobe_multi(OsStr::new("/"), 0, None) {
        Ok(_) => Err("the kernel attaches to a directory".into()),
        Err(e) if e.errno == libc::EBADF => Ok(()),
        Err(e) => Err(text(e)),
    }
}

/// A kernel that takes processes knows none with the number of a thread; one that takes threads
/// (6.6 to 6.9) does.
pub(super) fn uprobe_process() -> Outcome {
    let (path, offset) = never_called_place()?;
    let thread = threads::spawn("trial", threads::LARGE_STACK, move || {
        // SAFETY: plain system call without memory.
        let id = unsafe { libc::gettid() };
        attach_uprobe_multi(&path, offset, Some(id.unsigned_abs()))
    });
    let attached = thread.map_err(|e| e.to_string())?.join();
    match attached.map_err(|_| "the trial failed".to_string())? {
        Ok(_) => Err("the kernel takes the number of a process for that of a thread".into()),
        Err(e) if e.errno == libc::ESRCH => Ok(()),
        Err(e) => Err(text(e)),
    }
}

/// A probe of this process that does nothing.
pub(super) fn uprobe_at(path: &OsStr, offset: u64) -> Result<Link, String> {
    let pid = Some(std::process::id());
    if uprobe_multi().is_ok() {
        return attach_uprobe_multi(path, offset, pid).map_err(text);
    }
    let event = PerfEvent::uprobe(path, offset, 0, false, pid).map_err(text)?;
    let prog = load(ProgKind::Kprobe, AttachType::None, 0, &nothing())?;
    Link::perf_event(&prog, event, 0).map_err(text)
}

pub(super) fn uprobe_nop5() -> Outcome {
    super::nops::nop5()
}

pub(super) fn uprobe_nop10() -> Outcome {
    super::nops::nop10()
}

pub(super) fn cpu_clock() -> Outcome {
    const NEVER: u64 = 1 << 40;
    let cpu = online_cpus().first().copied().unwrap_or(0);
    let event = PerfEvent::cpu_clock(cpu, Rate::Period(NEVER)).map_err(text)?;
    let prog = load(ProgKind::PerfEvent, AttachType::None, 0, &nothing())?;
    Link::perf_event(&prog, event, 1).map(drop).map_err(text)
}

pub(super) fn side_band() -> Outcome {
    let cpu = online_cpus().first().copied().unwrap_or(0);
    PerfEvent::side_band(cpu, 4096).map(drop).map_err(text)
}

/// Follows a mapping of this process. For those of other users' processes CAP_SYS_PTRACE and
/// CAP_DAC_READ_SEARCH are needed besides.
pub(super) fn map_files() -> Outcome {
    let all = std::fs::read_dir("/proc/self/map_files").map_err(|e| format!("/proc/self/map_files: {e}"))?;
    let first = all.filter_map(Result::ok).next().ok_or("no file is mapped")?;
    match std::fs::metadata(first.path()) {
        Ok(_) => Ok(()),
        Err(e) => Err(text(
            SysError::new("follow /proc/PID/map_files", e.raw_os_error().unwrap_or_default())
                .or_hint(|| Some("needs CAP_CHECKPOINT_RESTORE".into())),
        )),
    }
}

pub(super) fn task_storage() -> Outcome {
    task_storage_of(8).map(drop)
}

fn task_storage_of(bytes: u32) -> Result<Map, String> {
    let mut b = Builder::new();
    let (key, value) = (b.i32(), b.words("try", bytes.div_ceil(8)));
    let btf = b.load().map_err(text)?;
    let types = MapBtf { btf: btf.as_fd(), key: key.0, value: value.0 };
    Map::create(&MapSpec::task_storage("try", bytes.div_ceil(8) * 8, types)).map_err(text)
}

/// Some kernels create the map and reject the value.
pub(super) fn allows_thread_value(bytes: u32) -> bool {
    const CREATE: i32 = 1;
    let Ok(map) = task_storage_of(bytes) else { return false };
    let mut insns = vec![Insn::call(Helper::GET_CURRENT_TASK_BTF), Insn::mov64(Reg::R2, Reg::R0)];
    insns.extend(Insn::ld_map_fd(Reg::R1, map.as_fd().as_raw_fd()));
    insns.extend([
        Insn::mov64_imm(Reg::R3, 0),
        Insn::mov64_imm(Reg::R4, CREATE),
        Insn::call(Helper::TASK_STORAGE_GET),
        Insn::jmp_imm(Jmp::Eq, Reg::R0, 0, 1),
        Insn::mov64_imm(Reg::R0, 1),
        Insn::exit(),
    ]);
    load_raw_tp(&insns).is_ok_and(|prog| prog.test_run(&[], None).is_ok_and(|r| r == 1))
}

pub(super) fn ringbuf() -> Outcome {
    let page = crate::page_size() as u32;
    Map::create(&MapSpec::ringbuf("try", page)).map(drop).map_err(text)
}

pub(super) fn mmap_array() -> Outcome {
    let map = Map::create(&MapSpec::mmapable("try", 8, 1)).map_err(text)?;
    map.mmap(true).map(drop).map_err(text)
}

pub(super) fn big_values() -> Outcome {
    const JUST_ABOVE: u32 = (4 << 20) + 8;
    if allows_array_value(JUST_ABOVE) { Ok(()) } else { Err("array values are limited to 4 MiB".into()) }
}

pub(super) fn allows_array_value(bytes: u32) -> bool {
    // 2^56 bytes or more in total exceed any machine's memory, so the allocation fails at once with
    // ENOMEM.
    let elements = u32::try_from((1u64 << 56) / u64::from(bytes.max(1))).unwrap_or(1 << 31);
    match Map::create(&MapSpec::mmapable("try", bytes, elements)) {
        Ok(_) => true,
        Err(e) => e.errno == libc::ENOMEM,
    }
}

pub(super) fn bpf_loop() -> Outcome {
    const CALLBACK: u32 = 8;
    let mut insns = vec![Insn::mov64_imm(Reg::R1, 1)];
    insns.extend(Insn::ld_func(Reg::R2, CALLBACK as i32 - 2));
    insns.extend([
        Insn::mov64_imm(Reg::R3, 0),
        Insn::mov64_imm(Reg::R4, 0),
        Insn::call(Helper::LOOP),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    insns.extend(nothing());
    load_funcs(insns, CALLBACK, false)
}

pub(super) fn global_funcs() -> Outcome {
    const SECOND: u32 = 3;
    let mut insns = vec![Insn::mov64_imm(Reg::R1, 1), Insn::call_pseudo(SECOND as i32 - 2), Insn::exit()];
    insns.extend([Insn::mov64(Reg::R0, Reg::R1), Insn::exit()]);
    load_funcs(insns, SECOND, true)
}

fn load_funcs(insns: Vec<Insn>, second: u32, global: bool) -> Outcome {
    let mut image = ProgramImage::new("try", ProgKind::RawTracepoint, insns);
    let params = vec![Param::Word; if global { 1 } else { 2 }];
    image.funcs = vec![
        Subprogram { name: "first".into(), start: 0, params: vec![Param::Word], global: true },
        Subprogram { name: "second".into(), start: second, params, global },
    ];
    image.load(0).map(drop).map_err(|e| e.reason.unwrap_or_else(|| e.error.to_string()))
}

pub(super) fn task_btf() -> Outcome {
    let insns = [Insn::call(Helper::GET_CURRENT_TASK_BTF), Insn::mov64_imm(Reg::R0, 0), Insn::exit()];
    load_raw_tp(&insns).map(drop)
}

/// The BTF id of the per-CPU variable that holds the preempt count, and the offset of the count in
/// that variable. Kernels from 6.2 to 6.14 have the count in `pcpu_hot`.
pub fn preempt_count_variable(btf: &types::btf::Btf) -> Option<(u32, i16)> {
    if let Some(var) = btf.var("__preempt_count") {
        return Some((var.id, 0));
    }
    let offset = btf.field("pcpu_hot.preempt_count")?.offset();
    Some((btf.var("pcpu_hot")?.id, i16::try_from(offset).ok()?))
}

pub(super) fn preempt_count() -> Outcome {
    let kernel = KernelBtf::running();
    let btf = kernel.vmlinux().map_err(ToString::to_string)?;
    let (id, at) = preempt_count_variable(btf).ok_or("the kernel's BTF has no preempt count")?;
    let mut insns = Insn::ld_btf_id(Reg::R1, id, 0).to_vec();
    insns.extend([
        Insn::call(Helper::THIS_CPU_PTR),
        Insn::ldx(Size::B4, Reg::R0, Reg::R0, at),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    load_raw_tp(&insns).map(drop)
}

/// Tracepoints accept sleepable programs only on recent kernels, and only at system calls, where
/// the thread holds no locks. Older kernels (6.1) do not check where a sleepable program is
/// attached: they accept it at every tracepoint, and it can sleep at none. So the trial also
/// requires that an unsuitable tracepoint rejects a sleepable program.
pub(super) fn sleepable_calls() -> Outcome {
    let idle = [Insn::mov64_imm(Reg::R0, 0), Insn::exit()];
    if sleepable_at(&format!("btf_trace_{TRACEPOINT}"), &idle)?.is_ok() {
        return Err("the kernel does not look where a program that waits is attached".into());
    }
    let mut insns = on_stack();
    insns.extend([
        Insn::mov64_imm(Reg::R2, 8),
        Insn::mov64_imm(Reg::R3, 0),
        Insn::call(Helper::COPY_FROM_USER),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    sleepable_at("btf_trace_sys_enter", &insns)?
}

/// Whether a sleepable program can be attached to a tracepoint.
fn sleepable_at(tracepoint: &str, insns: &[Insn]) -> Result<Outcome, String> {
    let spec = ProgSpec {
        attach: AttachType::TraceRawTp,
        attach_btf_id: id(BtfKind::Typedef, tracepoint)?,
        flags: SLEEPABLE,
        ..ProgSpec::new(ProgKind::Tracing, "try", insns)
    };
    Ok(match Prog::load(&spec) {
        Ok(prog) => Link::tracing(&prog, 0).map(drop).map_err(text),
        Err(refusal) => Err(text(refusal.error)),
    })
}

pub(super) fn probe_read() -> Outcome {
    let mut insns = on_stack();
    insns.extend([
        Insn::mov64_imm(Reg::R2, 8),
        Insn::mov64_imm(Reg::R3, 0),
        Insn::call(Helper::PROBE_READ_KERNEL),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    load_raw_tp(&insns).map(drop)
}

pub(super) fn probe_write_user() -> Outcome {
    // Arguments: user address, stack address, size.
    let mut insns = on_stack();
    insns.extend([
        Insn::mov64(Reg::R2, Reg::R1),
        Insn::mov64_imm(Reg::R1, 0),
        Insn::mov64_imm(Reg::R3, 8),
        Insn::call(Helper::PROBE_WRITE_USER),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    load_raw_tp(&insns).map(drop)
}

pub(super) fn override_return() -> Outcome {
    // Arguments: context, result.
    let insns = [
        Insn::mov64_imm(Reg::R2, 0),
        Insn::call(Helper::OVERRIDE_RETURN),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ];
    load(ProgKind::Kprobe, AttachType::None, 0, &insns).map(drop)
}

pub(super) fn modify_return() -> Outcome {
    // The function rarely runs, and the program does not change its result.
    let id = id(BtfKind::Func, "security_settime64")?;
    let prog = load(ProgKind::Tracing, AttachType::ModifyReturn, id, &nothing())?;
    Link::tracing(&prog, 0).map(drop).map_err(text)
}

/// R1 = the address of eight zero bytes.
fn on_stack() -> Vec<Insn> {
    vec![
        Insn::st(Size::B8, Reg::R10, -8, 0),
        Insn::mov64(Reg::R1, Reg::R10),
        Insn::alu64_imm(Alu::Add, Reg::R1, -8),
    ]
}

/// The BTF ids of the function that makes any number a pointer to a struct, which programs then
/// load from, and of a struct that begins with a number of 64 bits.
pub fn direct_load_ids(btf: &types::btf::Btf) -> Option<(u32, u32)> {
    Some((btf.find(&[BtfKind::Func], "bpf_rdonly_cast")?, btf.find(&[BtfKind::Struct], "timespec64")?))
}

pub(super) fn kfuncs() -> Outcome {
    let kernel = KernelBtf::running();
    let btf = kernel.vmlinux().map_err(ToString::to_string)?;
    let (cast, number) = direct_load_ids(btf).ok_or("the kernel's BTF has no bpf_rdonly_cast")?;
    let mut insns = vec![Insn::mov64_imm(Reg::R1, 0)];
    insns.extend([Insn::mov64_imm(Reg::R2, number as i32), Insn::call_kfunc(cast, 0)]);
    insns.extend([8, 4, 2, 1].map(|bytes| {
        let size = Size::of(bytes).unwrap_or(Size::B8);
        Insn::ldx(size, Reg::R3, Reg::R0, 0)
    }));
    insns.extend(nothing());
    load_raw_tp(&insns).map(drop)
}

pub(super) fn isa4() -> Outcome {
    let insns = [Insn::mov64_imm(Reg::R1, 1), Insn::movsx64(Reg::R0, Reg::R1, 8), Insn::exit()];
    load_raw_tp(&insns).map(drop)
}
