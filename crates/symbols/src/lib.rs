//! Addresses to names: the kernel's and those of processes. Knows no probes.
//!
//! Nothing is read before the first address is asked for. The two halves share only the form of their answer, [`Name`]:
//!
//! - [`Kernel`] reads `/proc/kallsyms` itself. A symbolizer library would look for a `vmlinux` and its DWARF as well,
//!   which costs seconds and answers a question that D does not ask (a line number); and only kallsyms knows modules,
//!   BPF programs and ftrace trampolines.
//! - [`Processes`] leaves ELF, split debug files and demangling to blazesym, and keeps for itself what a *tracer* needs
//!   beyond a symbolizer: the process is often gone when its stack is printed. So the address map of a process and the
//!   files in it are held from the moment it was seen ([`Processes::note`]), and an address is symbolized as (file,
//!   offset), which needs no process.
//!
//! Names print as DTrace prints them: `` module`symbol+0x1f ``, `` module`0xffff… `` where the object is known and the
//! symbol is not, `0xffff…` else.

mod kernel;
mod maps;
mod name;
mod object;
mod perfmap;
mod process;

pub use kernel::{Kernel, KernelStatus, KernelSymbol};
pub use name::Name;
pub use process::{Processes, own_vdso_base};
