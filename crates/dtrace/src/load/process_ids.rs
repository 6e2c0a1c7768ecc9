//! The numbers of processes in the initial pid namespace, where programs in the kernel see them.
//!
//! A process has a number in each namespace above its own. In a namespace that is not the initial
//! one, `/proc` shows those from here downwards and none from above. The kernel looks a process up
//! by its number here, though, and gives it to a program: an iterator over its threads, which
//! writes the number that all programs see, when the process began, and how far its namespace is
//! below the initial one.

use bpf_sys::insn::{Alu, Helper, Insn, Jmp, Reg, Size};
use bpf_sys::{AttachType, Prog, ProgKind, ProgSpec, iterate_process};
use types::btf::{BtfKind, KernelBtf};

/// What the program writes for a thread: its process, when that began, in nanoseconds since boot,
/// and the level of its namespace.
const RECORD: usize = 24;

/// A process as programs in the kernel see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InKernel {
    /// Its number in the initial namespace.
    pub(crate) pid: u32,
    /// When it began, in nanoseconds since boot.
    pub(crate) start: u64,
    /// How far its namespace is below the initial one.
    pub(crate) level: u32,
}

/// Asks the kernel for the numbers of processes. The program is loaded for the first of them.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Option<Result<Prog, String>>);

impl Numbers {
    /// A process that has this number here. `None`: it has ended.
    pub(crate) fn of(&mut self, pid: u32) -> Result<Option<InKernel>, String> {
        let program = self.0.get_or_insert_with(load);
        let program = program.as_ref().map_err(Clone::clone)?;
        match iterate_process(program, pid, RECORD as u64) {
            Ok(bytes) => Ok(record(&bytes)),
            Err(e) if e.errno == bpf_sys::errno::ESRCH => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }
}

fn record(bytes: &[u8]) -> Option<InKernel> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(InKernel { pid: word(0)? as u32, start: word(8)?, level: word(16)? as u32 })
}

/// The program, for each thread:
///
/// ```text
/// bpf_seq_write(meta->seq, {task->tgid, task->group_leader->start_boottime, task->thread_pid->level}, 24)
/// ```
fn load() -> Result<Prog, String> {
    let kernel = KernelBtf::running();
    let btf = kernel.vmlinux().map_err(ToString::to_string)?;
    let offset = |path: &str| {
        let field = btf.field(path).and_then(|field| i16::try_from(field.offset()).ok());
        field.ok_or_else(|| format!("the kernel's types have no {path}"))
    };
    let target =
        btf.find(&[BtfKind::Func], "bpf_iter_task").ok_or("the kernel has no iterators over tasks")?;
    let (ctx, task, value, frame) = (Reg::R6, Reg::R7, Reg::R1, Reg::R10);
    let code = [
        Insn::mov64(ctx, Reg::R1),
        Insn::ldx(Size::B8, task, ctx, offset("bpf_iter__task.task")?),
        Insn::jmp_imm(Jmp::Ne, task, 0, 2),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
        Insn::ldx(Size::B4, value, task, offset("task_struct.tgid")?),
        Insn::stx(Size::B8, frame, -24, value),
        Insn::ldx(Size::B8, value, task, offset("task_struct.group_leader")?),
        Insn::ldx(Size::B8, value, value, offset("task_struct.start_boottime")?),
        Insn::stx(Size::B8, frame, -16, value),
        Insn::ldx(Size::B8, value, task, offset("task_struct.thread_pid")?),
        Insn::ldx(Size::B4, value, value, offset("pid.level")?),
        Insn::stx(Size::B8, frame, -8, value),
        Insn::ldx(Size::B8, Reg::R1, ctx, offset("bpf_iter__task.meta")?),
        Insn::ldx(Size::B8, Reg::R1, Reg::R1, offset("bpf_iter_meta.seq")?),
        Insn::mov64(Reg::R2, frame),
        Insn::alu64_imm(Alu::Add, Reg::R2, -(RECORD as i32)),
        Insn::mov64_imm(Reg::R3, RECORD as i32),
        Insn::call(Helper::SEQ_WRITE),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ];
    let spec = ProgSpec {
        attach: AttachType::TraceIter,
        attach_btf_id: target,
        ..ProgSpec::new(ProgKind::Tracing, "processes", &code)
    };
    Prog::load(&spec).map_err(|failure| failure.error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_number_and_the_start_that_programs_see() {
        let mut numbers = Numbers::default();
        let me = std::process::id();
        let own = match numbers.of(me) {
            Ok(own) => own.unwrap(),
            Err(why) => return testing::skipped!("{why}"),
        };
        let stat = proc::parse_stat(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(own.start / plane::processes::TICK, stat.start);
        assert!(!proc::in_initial_namespace() || (own.pid, own.level) == (me, 0));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of_child = numbers.of(child.id()).unwrap().unwrap();
        assert!(of_child.pid != own.pid && of_child.start >= own.start);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(numbers.of(child.id()), Ok(None));
        assert_eq!(record(&[0; RECORD - 1]), None);
    }
}
