//! Which tracepoints the running kernel has.
//!
//! tracefs lists the events, and a tracepoint need not be an event. The types of the kernel (BTF)
//! have a prototype of each tracepoint, and may have more prototypes than the kernel has
//! tracepoints. So a tracepoint is tried. Attaching would patch the kernel's code. The kernel looks
//! for the tracepoint before it compares the number of its arguments with those that the program
//! reads: a program that reads more than any tracepoint has is attached to none, and the error
//! tells which ones exist.

use crate::errno;
use crate::error::SysError;
use crate::insn::{Insn, Reg, Size};
use crate::link::Link;
use crate::prog::{AttachType, Prog, ProgKind, ProgSpec};

/// The offset of the last argument that a program at a raw tracepoint may read (`MAX_BPF_FUNC_ARGS`
/// is 12).
const LAST_ARGUMENT: i16 = 11 * 8;

/// Tests which tracepoints exist.
#[derive(Debug)]
pub struct TracepointTrial {
    prog: Prog,
}

impl TracepointTrial {
    /// Loads the program that is tried.
    pub fn new() -> Result<TracepointTrial, SysError> {
        let insns =
            [Insn::ldx(Size::B8, Reg::R0, Reg::R1, LAST_ARGUMENT), Insn::mov64_imm(Reg::R0, 0), Insn::exit()];
        let spec =
            ProgSpec { attach: AttachType::None, ..ProgSpec::new(ProgKind::RawTracepoint, "try", &insns) };
        let prog = Prog::load(&spec).map_err(|refusal| refusal.error)?;
        Ok(TracepointTrial { prog })
    }

    /// False if the kernel has no tracepoint of this name. Names of tracepoints of loaded modules
    /// are known too.
    pub fn exists(&self, name: &str) -> bool {
        match Link::raw_tracepoint(&self.prog, name, 0) {
            // It has twelve arguments. It is detached at once.
            Ok(_) => true,
            Err(e) => e.errno != errno::ENOENT,
        }
    }
}
