//! Stopping a target where its dynamic linker has changed its libraries.
//!
//! A library that is loaded while a program runs has constructors, which run before `dlopen`
//! returns. The dynamic linker calls a function for debuggers when its list of libraries is
//! complete and none of the new code has run. A program in the kernel, at a uprobe there, sends the
//! thread a signal if it is traced. Its tracer takes the signal and holds the process
//! (`proc::Hold`) until the probes of its libraries are attached.
//!
//! The signal is `SIGCHLD`, and is not sent where the thread blocks it: a tracer may die after it
//! was sent, and most programs ignore that one, or look for children and find none. Why not a
//! breakpoint in a debug register, as at the start of a process: the kernel leaves it in the
//! process when the tracer dies, and the process would end by it. Why not `SIGSTOP`: it would stay
//! stopped.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Duration;

use bpf_sys::features::Facility;
use bpf_sys::helpers::Helper;
use bpf_sys::insn::{Alu, Insn, Jmp, Reg, Size};
use bpf_sys::{AttachType, Link, PerfEvent, Prog, ProgKind, ProgSpec, UprobeTarget};
use proc::Caller;
use proc::maps::MappedFile;
use system::System;

/// How long the map of a process may take to be read.
const READING: Duration = Duration::from_secs(2);

/// The program, and its links to processes.
pub(crate) struct LinkerStops {
    prog: Prog,
    multi: bool,
    caller: Caller,
    /// With their places, which a process keeps if it executes a program with the same dynamic
    /// linker.
    links: HashMap<u32, (Place, Link)>,
}

/// A file and an offset in it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    file: MappedFile,
    offset: u64,
}

impl LinkerStops {
    /// Loads the program. `None` if this kernel cannot do it.
    pub(crate) fn load(system: &System) -> Option<LinkerStops> {
        let kernel = system.types();
        let offset = |name: &str| i32::try_from(kernel.vmlinux().ok()?.field(name)?.offset()).ok();
        let multi = system.features().has(Facility::UprobeMulti);
        let attach = if multi { AttachType::UprobeMulti } else { AttachType::None };
        let code = code(offset("task_struct.ptrace")?, offset("task_struct.blocked")?);
        let spec = ProgSpec { attach, ..ProgSpec::new(ProgKind::Kprobe, "dt_linker", &code) };
        let prog = Prog::load(&spec).ok()?;
        Some(LinkerStops { prog, multi, caller: Caller::default(), links: HashMap::new() })
    }

    /// Stops a process from now on, by the dynamic linker of the program that it runs. The process
    /// does not run meanwhile.
    pub(crate) fn follow(&mut self, pid: u32) {
        let Some(Some((path, place))) = self.caller.call(READING, move || hook(pid)) else { return };
        if self.links.get(&pid).is_some_and(|(known, _)| *known == place) {
            return;
        }
        self.forget(pid);
        let link = match self.multi {
            true => Link::uprobe_multi(
                &self.prog,
                &UprobeTarget {
                    path: &path,
                    offsets: &[place.offset],
                    cookies: &[],
                    semaphores: &[],
                    pid: Some(pid),
                    is_return: false,
                },
            ),
            false => PerfEvent::uprobe(&path, place.offset, 0, false, Some(pid))
                .and_then(|event| Link::perf_event(&self.prog, event, 0)),
        };
        // Where it fails the watcher tells of the libraries, later.
        self.links.extend(link.ok().map(|link| (pid, (place, link))));
    }

    /// The process has ended. The kernel takes some 30 ms to close a link, in which the session
    /// closes others.
    pub(crate) fn forget(&mut self, pid: u32) {
        let Some(link) = self.links.remove(&pid) else { return };
        // Without a thread it is closed here.
        drop(threads::spawn("detach", threads::SMALL_STACK, move || drop(link)));
    }
}

/// Where the dynamic linker of a process calls its function for debuggers: a path to its file, and
/// the offset there.
fn hook(pid: u32) -> Option<(OsString, Place)> {
    let pid = proc::thread_with_memory(pid);
    let address = proc::linker_hook(pid)?;
    let (mapping, file) = proc::maps::file_at(pid, address)?;
    let path = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    Some((path.into(), Place { file, offset: mapping.file_offset(address) }))
}

/// Ends the program where a condition does not hold.
pub(crate) fn unless(holds: Insn) -> [Insn; 3] {
    [holds, Insn::mov64_imm(Reg::R0, 0), Insn::exit()]
}

/// Reads bytes behind an address of the kernel to the stack.
pub(crate) fn read(to: i16, size: i32, from: Reg, offset: i32) -> Vec<Insn> {
    let mut code = vec![
        Insn::mov64(Reg::R3, from),
        Insn::alu64_imm(Alu::Add, Reg::R3, offset),
        Insn::mov64_imm(Reg::R2, size),
        Insn::mov64(Reg::R1, Reg::R10),
        Insn::alu64_imm(Alu::Add, Reg::R1, to.into()),
        Insn::call(Helper::PROBE_READ_KERNEL),
    ];
    code.extend(unless(Insn::jmp_imm(Jmp::Eq, Reg::R0, 0, 2)));
    code
}

/// Sends the signal to the thread of a task, which is the one that runs, if it does not block it,
/// and ends the program. The offset is that of the mask of signals in a task.
pub(crate) fn send_signal(task: Reg, blocked: i32) -> Vec<Insn> {
    const MASK: i16 = -8;
    const SIGCHLD: i32 = 17;
    let mut code = read(MASK, 8, task, blocked);
    code.extend([
        Insn::ldx(Size::B8, Reg::R1, Reg::R10, MASK),
        Insn::alu64_imm(Alu::And, Reg::R1, 1 << (SIGCHLD - 1)),
        Insn::jmp_imm(Jmp::Ne, Reg::R1, 0, 2),
        Insn::mov64_imm(Reg::R1, SIGCHLD),
        Insn::call(Helper::SEND_SIGNAL_THREAD),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    code
}

/// Sends the signal if the thread is traced. The offsets are those of the flags of ptrace and of
/// the mask of signals in a task.
fn code(traced: i32, blocked: i32) -> Vec<Insn> {
    const FLAGS: i16 = -8;
    let mut code = vec![Insn::call(Helper::GET_CURRENT_TASK), Insn::mov64(Reg::R6, Reg::R0)];
    code.extend(read(FLAGS, 4, Reg::R6, traced));
    code.push(Insn::ldx(Size::B4, Reg::R1, Reg::R10, FLAGS));
    code.extend(unless(Insn::jmp_imm(Jmp::Ne, Reg::R1, 0, 2)));
    code.extend(send_signal(Reg::R6, blocked));
    code
}
