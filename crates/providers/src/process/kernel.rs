//! What uprobes of the running kernel do at nops, which is tried when a place asks for it: a trial
//! takes the kernel two grace periods.

use bpf_sys::features::{Facility, Features};
use text::Kernel;
use text::uprobe::Nop;

/// The running kernel.
pub(crate) fn running_kernel() -> Kernel {
    let features = Features::running();
    Kernel::tried(features.has(Facility::UprobeNop10), !features.has(Facility::UprobeNop5))
}

/// Tries it aside, because it will be asked for when there is no time.
pub(crate) fn try_aside() {
    const ASKED: [Facility; 4] =
        [Facility::UprobeMulti, Facility::UprobeProcess, Facility::UprobeNop5, Facility::UprobeNop10];
    let body = || _ = Features::running().facilities(&ASKED);
    // Without a thread it is tried when it is asked for.
    let _ = threads::spawn("features", 256 << 10, body);
}

/// The running kernel, as far as it matters at a nop.
pub(crate) fn kernel_for(nop: Nop) -> Kernel {
    let features = Features::running();
    match nop {
        Nop::Five if !features.has(Facility::UprobeNop5) => Kernel::UNKNOWN,
        Nop::Five => running_kernel(),
        Nop::Ten { .. } if features.has(Facility::UprobeNop10) => Kernel::BEST,
        Nop::Ten { .. } => Kernel::UNKNOWN,
    }
}
