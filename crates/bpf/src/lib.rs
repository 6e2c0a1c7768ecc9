//! DIF to eBPF and the bpf(2) and perf_event_open(2) layer. Knows neither D nor providers.

pub mod disasm;
pub mod emit;
pub mod helpers;
pub mod insn;
mod liveness;
pub mod mir;
pub mod regalloc;
