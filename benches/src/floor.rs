//! The floors: the minimum cost for any tracer, each measured in a process of its own (`benches
//! --floor …`).
//!
//! A floor attaches a program of two instructions to the same probes as a tracer, waits for a
//! moment, and detaches it. It prints when everything was attached, when detaching began, and its
//! peak memory, as the tracers' scripts do; see `crate::session`.

use std::path::Path;
use std::time::Duration;

use bpf_sys::helpers::Helper;
use bpf_sys::insn::{Alu, Insn, Jmp, Reg, Size};
use bpf_sys::{AttachType, Link, PerfEvent, ProbeSite, Prog, ProgKind, ProgSpec, monotonic_ns, tracefs};
use types::btf::{Btf, BtfKind};

/// The time between the last attach and the first detach.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);

/// Runs the floor that the words after `--floor` select. A partial floor is an error: every probe
/// must be attached.
pub(crate) fn child(args: &[String]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut links = match words.as_slice() {
        ["raw", count] => raw(count.parse().map_err(|_| "how many?")?)?,
        [means, sides, prefix] => {
            let sides: &[bool] = match *sides {
                "entry" => &[false],
                "both" => &[false, true],
                other => return Err(format!("no sides {other}")),
            };
            match *means {
                "multi" => multi(sides, prefix)?,
                "fentry" => fentry(sides, prefix)?,
                "kprobe" => kprobe(sides, prefix)?,
                other => return Err(format!("no means {other}")),
            }
        }
        _ => return Err("raw N, or multi|fentry|kprobe entry|both PREFIX".into()),
    };
    println!("on {}", monotonic_ns());
    println!("links {}", links.len());
    std::thread::sleep(PAUSE);
    println!("off {}", monotonic_ns());
    // Last first: detaching the first of two programs of one tracepoint takes ten milliseconds.
    while links.pop().is_some() {}
    Ok(())
}

fn load(kind: ProgKind, attach: AttachType, btf_id: u32) -> Result<Prog, String> {
    load_insns(kind, attach, btf_id, &[Insn::mov64_imm(Reg::R0, 0), Insn::exit()])
}

fn load_insns(kind: ProgKind, attach: AttachType, btf_id: u32, insns: &[Insn]) -> Result<Prog, String> {
    let spec = ProgSpec { attach, attach_btf_id: btf_id, ..ProgSpec::new(kind, "floor", insns) };
    Prog::load(&spec).map_err(|e| format!("{e:?}"))
}

/// A raw-tracepoint program on `sys_enter` that walks the stack at getppid and does nothing else.
pub(crate) fn sys_enter_walk() -> Option<Link> {
    const BYTES: i32 = 24 * 8;
    let insns = [
        Insn::ldx(Size::B8, Reg::R2, Reg::R1, 8),
        Insn::jmp_imm(Jmp::Ne, Reg::R2, libc::SYS_getppid as i32, 5),
        Insn::mov64(Reg::R2, Reg::R10),
        Insn::alu64_imm(Alu::Add, Reg::R2, -BYTES),
        Insn::mov64_imm(Reg::R3, BYTES),
        Insn::mov64_imm(Reg::R4, 0),
        Insn::call(Helper::GET_STACK),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ];
    let prog = load_insns(ProgKind::RawTracepoint, AttachType::None, 0, &insns).ok()?;
    Link::raw_tracepoint(&prog, "sys_enter", 0).ok()
}

/// An empty raw-tracepoint program on `sys_enter`.
pub(crate) fn sys_enter() -> Option<Link> {
    let prog = load(ProgKind::RawTracepoint, AttachType::None, 0).ok()?;
    Link::raw_tracepoint(&prog, "sys_enter", 0).ok()
}

/// This number of links to raw tracepoints. The kernel's tracepoints are used in turn.
fn raw(count: usize) -> Result<Vec<Link>, String> {
    let prog = load(ProgKind::RawTracepoint, AttachType::None, 0)?;
    let btf = vmlinux()?;
    let mut names: Vec<&str> =
        btf.names(&[BtfKind::Typedef]).filter_map(|n| n.strip_prefix("btf_trace_")).collect();
    names.sort_unstable();
    names.dedup();
    let mut links = Vec::new();
    while links.len() < count {
        let before = links.len();
        for name in &names {
            if links.len() < count {
                links.extend(Link::raw_tracepoint(&prog, name, 0));
            }
        }
        if links.len() == before {
            return Err("no tracepoint takes a program".into());
        }
    }
    Ok(links)
}

fn vmlinux() -> Result<Btf, String> {
    Btf::open(Path::new("/sys/kernel/btf/vmlinux"), None).map_err(|e| format!("{e:?}"))
}

/// The lines of one of tracefs' lists of functions.
fn list(name: &str) -> Result<String, String> {
    let path = tracefs().map_err(str::to_owned)?.join(name);
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// False for entries of the kernel's list that refer to no existing function.
fn is_function(name: &str) -> bool {
    !name.starts_with("__ftrace_invalid_address")
}

/// One `kprobe_multi` link per side, by address.
fn multi(sides: &[bool], prefix: &str) -> Result<Vec<Link>, String> {
    let text = list("available_filter_functions_addrs")?;
    let addresses: Vec<u64> = text
        .lines()
        .filter_map(|l| l.split_once(' '))
        .filter(|(_, rest)| rest.starts_with(prefix) && is_function(rest))
        .filter_map(|(address, _)| u64::from_str_radix(address, 16).ok())
        .collect();
    drop(text);
    let prog = load(ProgKind::Kprobe, AttachType::KprobeMulti, 0)?;
    let attach = |is_return: &bool| {
        Link::kprobe_multi(&prog, ProbeSite::Addresses(&addresses), &[], *is_return, &|| false)
    };
    sides.iter().map(|side| attach(side).map_err(|e| e.to_string())).collect()
}

/// The names of the functions, without duplicates and without their modules.
fn functions(prefix: &str) -> Result<Vec<String>, String> {
    let text = list("available_filter_functions")?;
    let names = text.lines().filter_map(|l| l.split_whitespace().next());
    let mut names: Vec<String> =
        names.filter(|n| n.starts_with(prefix) && is_function(n)).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// One program and one link per function and side, for functions whose type the kernel knows.
fn fentry(sides: &[bool], prefix: &str) -> Result<Vec<Link>, String> {
    let btf = vmlinux()?;
    let names = functions(prefix)?;
    let ids: Vec<u32> = names.iter().filter_map(|n| btf.find(&[BtfKind::Func], n)).collect();
    drop(btf);
    let attach = |id: u32, is_return: bool| {
        let kind = if is_return { AttachType::TraceFexit } else { AttachType::TraceFentry };
        let prog = load(ProgKind::Tracing, kind, id)?;
        Link::tracing(&prog, 0).map_err(|e| e.to_string())
    };
    // A function that rejects this program rejects a tracer's program too.
    Ok(ids.iter().flat_map(|id| sides.iter().filter_map(|side| attach(*id, *side).ok())).collect())
}

/// One perf event per function and side, all with one program.
fn kprobe(sides: &[bool], prefix: &str) -> Result<Vec<Link>, String> {
    let prog = load(ProgKind::Kprobe, AttachType::None, 0)?;
    let attach = |name: &str, side: bool| Link::perf_event(&prog, PerfEvent::kprobe(name, 0, side)?, 0);
    let names = functions(prefix)?;
    Ok(names.iter().flat_map(|n| sides.iter().filter_map(|side| attach(n, *side).ok())).collect())
}
