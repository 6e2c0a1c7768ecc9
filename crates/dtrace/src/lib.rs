//! The public library: a session, from program to results. It knows no command line.
//!
//! ```no_run
//! use dtrace::{Options, Session, System, Target, Text};
//!
//! let mut session = Session::builder(&System::live())
//!     .program("syscall:::entry /pid == $target/ { @[probefunc] = count(); }")
//!     .options(Options { quiet: true, ..Options::default() })
//!     .target(Target::create("ls -l /etc")?)
//!     .start(Text::new(std::io::stdout()))?;
//! session.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs to start from are in its folder `examples`: `count_calls`, `top`, `to_json` and
//! `slow_queries`. Its parts:
//!
//! ```text
//!  Session::builder(system) ──► start(sink) ──► run
//!
//!  compile(system, sources) ──► Program        no privilege, no kernel facility
//!  Session::start(program) ──► work … ──► finish
//!                              enable(more)
//!
//!  options         the table of -x options
//!  compile/        texts to a module: syntax, check, lower
//!    visibility      the probes that each text can match
//!    libraries       the D libraries, and their dependencies
//!    lookup          typedefs and symbols of the kernel
//!    described       definitions that the files of processes have of their probes
//!    families        descriptions of several processes' providers that libraries define
//!  load/           a module to maps and programs in the kernel
//!    assemble        clauses and probes to programs and ids
//!    facts           facts of the running kernel for code generation
//!    linear_map      where the kernel has the bytes of a page
//!    prefault        programs that fault in user memory before probes read it
//!    services        the programs that serve all clauses: a table
//!  engine/         what executes programs, as the session sees it
//!    kernel          the engine that runs them in the kernel
//!    machine         its maps, programs and links
//!    growth          programs and sites of probes that come and go
//!    clocks          counting missing firings of clocks
//!    deadman         stopping a session that takes too much time of the CPUs
//!    interpreter/    the engine that interprets them, over firings that are given
//!  session/        a running session, from start to end
//!    handle          the session of a process, as programs have it
//!    builder         what a program sets before a session begins
//!    modules, processes  what comes while it runs
//!    advice          what is said of a fault that a script can avoid
//!  provider        what a provider of a program that uses this library is made of
//!  list            the probes of a machine, their arguments and stability
//!  recording       what compiling asks of a machine, as bytes
//!  abilities       what works on this system
//!  completion      what can follow at a prompt
//!  capture/        programs whose firings are captured, and asked of later
//!  reference       tables for the manual page
//!  formats         the formats of files of results: a table
//!  narrow          a program with one more condition
//! ```
//!
//! A program can do everything that the command can do: the command only parses arguments and
//! prints text.
//!
//! When a session symbolizes the first address of a process, it starts its own executable once
//! more, as a process that reads symbols (`symbols::entry`). That process does not reach `main`,
//! and a program that embeds this library needs no code for it. If the library is part of a shared
//! object, such a process is another executable that has the library in the same version, as the
//! `dtrace` command: `System::live_with_reader` takes its path, and `reader_on_path` looks for it.
//! Without one addresses of processes are numbers.
//!
//! A program that forks while it has sessions calls `close_in_forked_children` once: the children
//! do not keep probes in the kernel, and sessions are errors there. Values that stand beside a
//! session (`Target`, `Program`) may be dropped in a child, not used. The profile `library` of the
//! workspace builds the library as a program needs it that goes on after a panic.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! capture/flight capture/instrument capture/names compile/families compile/lookup compile/probe_set compile/stability compile/stable compile/visibility engine/clocks engine/interpreter/firing engine/interpreter/missing engine/interpreter/names engine/interpreter/probes engine/interpreter/symbols engine/snapshots engine/unwinder/aside engine/unwinder/entries engine/unwinder/file_map engine/unwinder/memory error load/linear_map load/process_ids options/kinds provider reference session/host session/linker session/stop
//! options/value
//! options/table
//! options
//! compile/container compile/cpp compile/described compile/input compile/libraries compile/pragma compile/unchanged engine/bank engine/deadman engine/interpreter engine/interpreter/world engine/speculation engine/stack_store engine/unwinder/tables load/attach load/facts load/names load/prefault load/probe_table session/file_stops session/settings
//! compile+compile/frontend engine/growth/late engine/unwinder load/detach session/notice
//! engine/growth
//! capture/restore capture/wide compile/evaltime engine list load/assemble session/modules session/processes
//! abilities capture+capture/recorder+capture/replay completion definitions formats narrow recording load/environment load/process_set session/advice
//! load/services
//! engine/interpreter/engine load/kernel_stack+load
//! engine/machine
//! engine/kernel
//! session/intervals session/recorded session/shapes
//! session/source session/watch
//! session/held
//! session/state
//! session/enable session/end session/postmortem session/snapshot session/watching
//! session/arrivals session/targets
//! session
//! session/handle
//! session/builder
//! ```

pub mod abilities;
pub mod capture;
mod compile;
pub mod completion;
mod definitions;
mod engine;
mod error;
pub mod formats;
pub mod list;
mod load;
mod narrow;
pub mod options;
pub mod provider;
mod recording;
pub mod reference;
mod session;

/// The results of a session as typed events, and their encoding.
pub use events;

/// The last events of a session in the core file of a target.
pub use postmortem;

/// Flame graphs and other files of the stacks in aggregations: a sink beside another.
pub use flame;
pub use heat;
pub use metrics;
pub use timeline;

/// Aggregations as tables that a terminal redraws: a sink beside another.
pub use live;

pub use narrow::narrowed;

pub use consumer::{
    AnyOutput, Effects, Json, Merged, Message, MessageKind, Output, Printer, Text, render, render_action,
};
pub use events::{Event, Needs, Sink};
pub use options::{Bytes, Options};

pub use bpf_codegen::CodegenError;
pub use bpf_sys::SysError;
pub use bpf_sys::load::LoadError;
/// For programs that run sessions: raises the limit on open descriptors as far as every process
/// may. What the library executes (targets, `system()`, the preprocessor) has the limit that was
/// there before.
pub use bpf_sys::raise_fd_limit_at_start;
/// For programs that may fork while they have sessions: see [`Session`].
pub use bpf_sys::{close_in_forked_children, forks};
pub use compile::evaltime::{Targets, Wanted};
pub use compile::{Field, Macros, Program, Setup, Source, compile, compile_as, compile_with};
pub use consumer::Aborted;
pub use definitions::{Processor, ProviderDefinitions, processor_of, processor_of_compiler};
pub use engine::interpreter;
pub use error::{CompileError, Error};
pub use load::attach::Progress;
pub use probes::{FieldKind, Pattern, ProbeInfo};
pub use proc::{
    Environment, Error as TargetError, ExitStatus, Hold, Moment, Target, TargetOutput, signal_name,
};
pub use providers::Provider;
pub use recording::{record_program, record_system};
pub use session::builder::Builder;
pub use session::stop::Stopper;
pub use session::{Session, Status};
/// For a library in a shared object: see [`System::live_with_reader`].
pub use symbols::reader_on_path;
/// The symbols of a machine's kernel.
pub mod kernel_symbols {
    pub use symbols::{Kernel, KernelStatus, KernelSymbol, Name, SymbolText};
}
/// The machine for which programs are compiled: the running one, or a recorded one.
pub use system::{Blob, Facts, LARGEST_RECORD, Record, RecordError, System};

/// Source texts and errors in them; what a terminal must not interpret; errors of the system in
/// words.
pub use diagnostics;
pub use diagnostics::nearest;

/// What a library user may move to another thread. A field that cannot be moved does not compile
/// here.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<Session<Text<Vec<u8>>>>();
    is_send::<Event<'static>>();
    is_send::<Program>();
    is_sync::<Program>();
    is_send::<Stopper>();
    is_send::<Target>();
    is_send::<Error>();
    is_send::<CompileError>();
};

/// Ends this process at once with an exit status, whatever its threads are doing. A process in the
/// background detaches the probes of its sessions. This function can be called from a signal
/// handler.
pub fn end_process(status: i32) -> ! {
    bpf_sys::end_process(status)
}

/// The facilities of a machine's kernel, one a line. Those of the running one are tried now.
pub fn facilities(system: &System) -> String {
    system.features().table()
}
