//! Stopping a target where it maps a file with probes that it has made itself (dynamic USDT).
//!
//! A program that makes a provider fires its probes at once. The watcher tells of the mapping when
//! most of them have fired. So a program in the kernel, at the end of each system call, sends a
//! thread a signal that has mapped such a file (`memfd:dtrace:NAME`, `dtrace:NAME`) for execution,
//! if this process traces it. Its tracer takes the signal and holds the process (`proc::Hold`)
//! until the probes are attached. The signal and why it is that one: [`crate::session::linker`].
//!
//! Why the system call: a program calls it in whatever language it is written, also without a C
//! library or without symbols, and no other place of the kernel that a program can be attached to
//! is passed by mappings alone. The price is that of a `syscall:::` probe: every system call of the
//! machine takes the slow way while a session has targets whose descriptions can mean such probes,
//! and in no other session.

use bpf_codegen::arch::Machine;
use bpf_sys::helpers::Helper;
use bpf_sys::insn::{Alu, Insn, Jmp, Reg, Size};
use bpf_sys::{AttachType, Link, Prog, ProgKind, ProgSpec};
use types::btf::{BtfKind, KernelBtf};

use crate::load::process_ids::Numbers;
use crate::session::linker::{read, send_signal, unless};

/// The name of such a file begins so, in memory behind what the kernel puts before it. Each is
/// shifted to the end of a word.
const PREFIX: &[u8; 8] = b"\0dtrace:";
const IN_MEMORY: &[u8; 8] = b"\0\0memfd:";

/// The bit of `mmap`'s argument that says what the memory is for.
const FOR_EXECUTION: i32 = 4;

/// The program, as long as it is attached.
pub(crate) struct FileStops {
    _link: Link,
    _prog: Prog,
}

impl FileStops {
    /// Stops what this process traces from now on. `None` if this kernel cannot do it.
    pub(crate) fn attach(kernel: &KernelBtf) -> Option<FileStops> {
        let own = std::process::id();
        let own = Numbers::default().of(own).ok().flatten().map_or(own, |known| known.pid);
        let btf = kernel.vmlinux().ok()?;
        let offset = |name: &str| i32::try_from(btf.field(name)?.offset()).ok();
        let code = code(own, &offset)?;
        let spec = ProgSpec {
            attach: AttachType::TraceRawTp,
            attach_btf_id: btf.find(&[BtfKind::Typedef], "btf_trace_sys_exit")?,
            ..ProgSpec::new(ProgKind::Tracing, "dt_file_stops", &code)
        };
        let prog = Prog::load(&spec).ok()?;
        let link = Link::tracing(&prog, 0).ok()?;
        Some(FileStops { _link: link, _prog: prog })
    }
}

/// The program for the end of a system call: its registers and its result. `own` is the number of
/// this process in the initial namespace.
fn code(own: u32, offset: &dyn Fn(&str) -> Option<i32>) -> Option<Vec<Insn>> {
    const WORD: i16 = -8;
    let (saved, result, at, fd, word) = (Reg::R6, Reg::R7, Reg::R8, Reg::R9, Reg::R1);
    let machine = Machine::own();
    let [_, _, protection, _, descriptor, _] = machine.call_args;
    // Reads a number or an address behind an address. A name is eight bytes, which are there
    // whether or not it has ended before.
    let load = |size: Size, bytes: i32, from: Reg, offset: i32, into: Reg| {
        let mut code = read(WORD, bytes, from, offset);
        code.push(Insn::ldx(size, into, Reg::R10, WORD));
        code
    };
    let follow = |offset: i32| load(Size::B8, 8, at, offset, at);
    let number = |offset: i32| load(Size::B4, 4, at, offset, word);
    let begin_of_name = |offset: i32| load(Size::B8, 8, at, offset, word);
    let mut code = vec![
        Insn::ldx(Size::B8, result, Reg::R1, 8),
        Insn::ldx(Size::B8, saved, Reg::R1, 0),
        Insn::ldx(Size::B4, word, saved, machine.call),
    ];
    code.extend(unless(Insn::jmp_imm(Jmp::Eq, word, machine.mmap, 2)));
    code.push(Insn::ldx(Size::B8, word, saved, protection));
    code.extend(unless(Insn::jmp_imm(Jmp::Set, word, FOR_EXECUTION, 2)));
    // An error is one of the 4,095 last numbers.
    code.extend(unless(Insn::jmp_imm(Jmp::Lt, result, -4095, 2)));
    code.extend([
        Insn::ldx(Size::B4, fd, saved, descriptor),
        Insn::call(Helper::GET_CURRENT_TASK),
        Insn::mov64(saved, Reg::R0),
        Insn::mov64(at, Reg::R0),
    ]);
    // It is traced, by a thread of this process.
    code.extend(number(offset("task_struct.ptrace")?));
    code.extend(unless(Insn::jmp_imm(Jmp::Ne, word, 0, 2)));
    code.extend(follow(offset("task_struct.parent")?));
    code.extend(number(offset("task_struct.tgid")?));
    code.extend(unless(Insn::jmp32_imm(Jmp::Eq, word, own as i32, 2)));
    // task->files->fdt->fd[fd]->f_path.dentry->d_name.name
    code.push(Insn::mov64(at, saved));
    code.extend(follow(offset("task_struct.files")?));
    code.extend(follow(offset("files_struct.fdt")?));
    code.extend(number(offset("fdtable.max_fds")?));
    code.extend(unless(Insn::jmp(Jmp::Gt, word, fd, 2)));
    code.extend(follow(offset("fdtable.fd")?));
    code.extend([Insn::alu64_imm(Alu::Lsh, fd, 3), Insn::alu64(Alu::Add, at, fd)]);
    code.extend(follow(0));
    code.extend(follow(offset("file.f_path.dentry")?));
    code.extend(follow(offset("dentry.d_name.name")?));
    let again = begin_of_name(6);
    code.extend(begin_of_name(0));
    code.extend([Insn::mov64(Reg::R2, word), Insn::alu64_imm(Alu::Lsh, Reg::R2, 16)]);
    code.extend(Insn::ld_imm64(Reg::R3, u64::from_le_bytes(*IN_MEMORY)));
    code.push(Insn::jmp(Jmp::Ne, Reg::R2, Reg::R3, i16::try_from(again.len()).ok()?));
    code.extend(again);
    code.push(Insn::alu64_imm(Alu::Lsh, word, 8));
    code.extend(Insn::ld_imm64(Reg::R3, u64::from_le_bytes(*PREFIX)));
    code.extend(unless(Insn::jmp(Jmp::Eq, word, Reg::R3, 2)));
    code.extend(send_signal(saved, offset("task_struct.blocked")?));
    Some(code)
}
