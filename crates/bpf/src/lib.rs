//! DIF to eBPF and the bpf(2) and perf_event_open(2) layer. Knows neither D nor providers.

pub mod arch;
pub mod btf;
pub mod disasm;
pub mod emit;
pub mod features;
mod frame;
pub mod helpers;
pub mod insn;
pub mod limits;
mod liveness;
pub mod load;
pub mod maps;
pub mod mir;
pub mod peek;
pub mod program;
pub mod regalloc;
pub mod routines;
mod select;
pub mod sys;
