//! Addresses to names: the kernel's and those of processes. Knows no probes.
//!
//! Nothing is read, and no process is made, before the first address is asked for. The two halves share only the form of their answer, [`Name`]:
//!
//! - [`Kernel`] reads `/proc/kallsyms` itself. A symbolizer library would look for a `vmlinux` and its DWARF as well,
//!   which costs seconds and answers a question that D does not ask (a line number); and only kallsyms knows modules,
//!   BPF programs and ftrace trampolines.
//! - [`Processes`] asks a *reader*, a process of its own, for everything that a traced process decides: its address map, its
//!   files, their symbols and debug files, the names of code that it makes. What a process decides can be hostile; see
//!   `open` for what is opened and how, and `reader` for what bounds time and memory. A symbolizer library opens paths
//!   by itself, so none is used but for demangling.
//!
//! The process is often gone when its stack is printed. So the address map of a process and handles of the files in it are
//! held from the moment it was seen ([`Processes::note`]), and an address is symbolized as (file, offset), which needs no
//! process.
//!
//! ```text
//!  session                                    reader (a process)
//!   process   processes, their maps            observe   maps, handles of files
//!   object    files, known symbols             elf, debug, perfmap, index
//!   client    deadline, replacement   ◄─wire─► demangle
//!                                              open      the only way to a file
//!   entry     how the reader begins
//! ```
//!
//! Names print as DTrace prints them: `` module`symbol+0x1f ``, `` module`0xffff… `` where the object is known and the
//! symbol is not, `0xffff…` else.

mod client;
mod entry;
mod kernel;
mod maps;
mod name;
mod object;
mod open;
mod process;
mod reader;
mod sys;
mod wire;

pub use client::Interrupted;
pub use kernel::{Kernel, KernelStatus, KernelSymbol};
pub use name::Name;
pub use process::{Processes, own_vdso_base};
