//! Symbolization: names of addresses in the kernel and in processes. Does not depend on probes.
//!
//! Nothing is read, and no process is started, before the first address is looked up. The two
//! halves share only the type of their result, [`Name`]:
//!
//! - [`Kernel`] parses `/proc/kallsyms`. A symbolizer library would also load a `vmlinux` with its
//!   DWARF. That takes seconds and yields line numbers, which D does not print. Only kallsyms lists
//!   modules, BPF programs and ftrace trampolines.
//! - [`Processes`] queries a *reader*, a separate process, for everything that a traced process
//!   controls: its address map, its files, their symbols and debug files, the names of JIT code.
//!   This data can be hostile. `files::open` defines which files are opened and how, and `reader`
//!   bounds time and memory. A symbolizer library opens paths by itself, so this crate uses
//!   libraries only for what is in memory already: demangling, debug information.
//!
//! A process has often exited when its stack is printed. The session therefore keeps the address
//! map of a process, and handles of its mapped files, from the moment it first sees the process
//! ([`Processes::note`]). An address is symbolized as (file, offset), which does not need the
//! process. For processes that were never read, a watcher (`proc::watcher`) knows what they had
//! mapped.
//!
//! ```text
//!  session                                    reader (a separate process)
//!   process   processes, address maps          observe   address maps, file handles
//!   watched   those that have ended            elf, debug, perfmap, index
//!   object    resolved symbols of files        demangle, functions
//!   client    deadlines, budgets      ◄─wire─►
//!   pool      the readers of all sessions
//!   entry     start of the reader              files::open      opens all files
//! ```
//!
//! The reader also lists the functions of a file ([`Processes::functions`]) and decodes their code,
//! because both are a traced process's.
//!
//! Names have DTrace's format: `` module`symbol+0x1f ``; if only the object is known,
//! `module+0x1f40` with the address in the file of a process and `` module`0xffff… `` in the
//! kernel; otherwise `0xffff…`.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! arch/x86_64 name process/apart process/perf_map sys
//! arch
//! kernel/table
//! frames functions kernel sources usdt
//! wire/codec
//! wire/functions wire/lines wire/types
//! wire/list wire/usdt
//! wire+wire/mappings
//! reader/demangle reader/elf
//! reader/compressed reader/debug reader/elf/code reader/elf/contents reader/elf/relocations reader/perfmap
//! reader/functions/chosen reader/functions/decode reader/functions/go reader/functions/named reader/functions/reach
//! reader/elf/places
//! reader/frames reader/functions reader/observe reader/usdt
//! reader/describing reader/guest+reader/guest/memory+reader/guest/tables
//! reader/functions/belonging reader/functions/unwind reader/types
//! reader/extents reader/lines reader/servers/http reader/split
//! reader/servers
//! reader/index reader/whole
//! reader
//! entry
//! pool
//! client
//! object
//! object/lines process/known_guests
//! process
//! process/ask process/guests process/perf_maps process/sources process/watched
//! process/frames process/functions process/real process/usdt
//! process/aside process/types process/unmapped
//! process/answered
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arch;
mod client;
mod entry;
mod frames;
mod functions;
mod kernel;
mod name;
mod object;
mod pool;
mod process;
mod reader;
mod sources;
mod sys;
mod usdt;
mod wire;

pub use crate::usdt::{DescribedProbes, ProbeSite, ProviderText};
pub use client::Interrupted;
pub use debuginfo::{
    Answer as TypesAnswer, NameKind, ObjectPart, Place as ParameterPlace, Query as TypesQuery,
};
pub use entry::reader_on_path;
pub use frames::{CodeLoad, FrameTable};
pub use functions::{
    Calling, Function, FunctionName, FunctionQuery, InstructionSite, MAX_USES, Select, SymbolSource,
};
pub use kernel::{Kernel, KernelStatus, KernelSymbol, SymbolText};
pub use name::Name;
pub use pool::{Readers, ReadingWatch};
pub use process::{Answered, answered, own_vdso_base, sample_answers};
pub use process::{CodeSource, FrameReader, FrameRequest, Guests, MappedCode, MappedText, Processes};
pub use reader::{Files, Read as FileFacts, fetched, file_facts, functions_of_bytes, perf_map, process_ids};
pub use sources::SourceFrame;
pub use sys::since_boot;
pub use wire::list::{FileFunctions, FunctionIter, FunctionList};
pub use wire::wait_for;
