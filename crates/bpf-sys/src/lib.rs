//! The `bpf(2)` and `perf_event_open(2)` layer: what the kernel has, as owned values.
//!
//! The crate is usable alone. It knows instructions, types, maps, programs, links, events and what
//! the running kernel can do. It does not know what they are for.
//!
//! ```text
//!  write           insn, helpers ──► Vec<Insn>         btf ──► BtfObject
//!                                      │                         │ types, functions, lines
//!  load            load::ProgramImage ─┴─────────────────────────┴──► verifier ──► Prog
//!                                      ▲ descriptors                    └► LoadError: the source line, the log's end
//!  share           Map ────────────────┘
//!                   └► Mmap (words), Doorbell (wakes the reader), GracePeriod (waits until no program runs)
//!  attach          Prog + PerfEvent, ProbeSite, UprobeTarget ──► Link        run once: Prog::test_run
//!  inspect         features (what is possible, by trying), system (privileges, lockdown), ids (what is loaded),
//!                  modules, tracefs, disasm (a listing in the verifier's notation)
//!  close           by drop; close_in_background and end_process for what the kernel closes slowly
//! ```
//!
//! A program that runs once, without any event:
//!
//! ```no_run
//! use std::os::fd::{AsFd, AsRawFd};
//! use std::sync::atomic::Ordering;
//!
//! use bpf_sys::insn::{Insn, Reg, Size};
//! use bpf_sys::load::ProgramImage;
//! use bpf_sys::{Map, MapSpec, ProgKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let map = Map::create(&MapSpec::mmapable("answer", 8, 1))?;
//! let mut code = Insn::ld_map_value(Reg::R1, map.as_fd().as_raw_fd(), 0).to_vec();
//! code.push(Insn::st(Size::B8, Reg::R1, 0, 42));
//! code.push(Insn::mov64_imm(Reg::R0, 0));
//! code.push(Insn::exit());
//! let loaded = ProgramImage::new("answer", ProgKind::RawTracepoint, code).load(0)?;
//! loaded.prog.test_run(&[], None)?;
//! assert_eq!(map.mmap(false)?.load(0, Ordering::Relaxed), Some(42));
//! # Ok(())
//! # }
//! ```
//!
//! # Decisions
//!
//! **One structure for each command.** Attributes are small `repr(C)` structures, written by hand
//! from `uapi/linux/bpf.h` instead of the header's union. So a command can only get its own fields,
//! and there is no generated file to maintain. The kernel accepts an attribute that is longer than
//! it knows if the rest is zero, so newer fields cost nothing on older kernels.
//!
//! **Every object is an owned descriptor** that is closed on drop, and nothing is pinned. So a
//! process that ends, however it ends, leaves nothing in the kernel.
//!
//! **Every failure is a [`SysError`]**: the attempt, the errno, and a remedy where one is known.
//! The rejection of a program is a [`load::LoadError`], which names the line of the source that the
//! instruction came from.
//!
//! **Facilities are found by trying**, never by version ([`features`]): distributions backport,
//! configurations differ, lockdown takes facilities away.
//!
//! **No libbpf.** We write our own instructions, BTF and maps, so libbpf's ELF code would be
//! unused, and its 1–2 ms of feature probes at start would be most of our time budget.
//!
//! What is *not* here: maps and programs of a session (`bpf-runtime`), code generation
//! (`bpf-codegen`). The only crate of the workspace that this one uses is `types`, the reader of
//! the kernel's BTF.
//!
//! # Files
//!
//! Lowest first; a file imports only from lines before its own (`cargo xtask tidy` checks that).
//!
//! ```layers
//! arch/aarch64 arch/x86_64 errno fd_limit fork helpers nested system time tracefs
//! arch syscall
//! error insn
//! child disasm ids mmap modules perf
//! btf map
//! doorbell prog
//! iterator link load kernel_read
//! background_close features/nops+features/trials tracepoint
//! features
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arch;
mod background_close;
pub mod btf;
mod child;
pub mod disasm;
mod doorbell;
pub mod errno;
mod error;
mod fd_limit;
pub mod features;
mod fork;
pub mod helpers;
mod ids;
pub mod insn;
mod iterator;
pub mod kernel_read;
mod link;
pub mod load;
mod map;
mod mmap;
mod modules;
mod nested;
mod perf;
mod prog;
mod syscall;
mod system;
mod time;
mod tracefs;
mod tracepoint;

pub use background_close::{close_in_background, end_process};
pub use doorbell::Doorbell;
pub use error::{SysError, missing_privilege, out_of_files};
pub use fd_limit::{
    fd_limit, give_back_fd_limit, raise_fd_limit, raise_fd_limit_at_start, raise_fd_limit_by,
    with_original_fd_limit,
};
pub use fork::{KernelFd, OfProcess, close_in_forked_children, forks};
pub use ids::{BtfObject, ObjectKind, btf_load, enable_run_stats, fd_by_id, ids};
pub use iterator::iterate_process;
pub use link::{Link, LinkInfo, ProbeSite, UprobeTarget};
pub use map::page_size;
pub use map::{
    Element, GracePeriod, Map, MapBtf, MapInfo, MapKind, MapSpec, Update, cpu_numbers_end, flags,
    online_cpus, possible_cpus,
};
pub use mmap::Mmap;
pub use modules::{ModuleChanges, ModuleEvents, Modules, modules};
pub use nested::NestedReturns;
pub use perf::{Counter, PerfEvent, Rate};
pub use prog::{AttachType, FuncInfo, LineInfo, LoadFailure, Prog, ProgInfo, ProgKind, ProgSpec, SLEEPABLE};
pub use system::{Capabilities, Lockdown, perf_paranoid, release};
pub use time::{boot_ns, monotonic_ns, tick_ns, wall_ns};
pub use tracefs::tracefs;
pub use tracepoint::TracepointTrial;
/// The reader of the kernel's types, which some interfaces take.
pub use types;
