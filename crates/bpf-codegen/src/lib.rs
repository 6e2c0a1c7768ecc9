//! The code generator: DIF clauses become eBPF code.
//!
//! ```text
//!                      Session: the module, the plan, the layout of a slot, the target
//!                         │
//!  DIF clause ──► select ─┴──────► mir ──► simplify ──► regalloc ──► emit ──► Code
//!                  │  ▲             ▲      dead code,   registers,   jumps,     instructions; maps by name,
//!                  │  │ Context     │      constants    frame        moves      functions, source lines
//!                  │  (provider)    │
//!                  └──► routines ───┘
//!                       records, tables, arrays, stacks, strings
//! ```
//!
//! A *clause* comes as DIF, which is optimized and verified, and which the interpreter of `dif` can
//! run. *Selection* ([`select`]) walks its instructions once and writes MIR: eBPF instructions over
//! virtual registers ([`mir`]). What an instruction does to memory that the kernel side shares with
//! the consumer is written by a *routine* ([`routines`]), according to the layouts of `plane`. Then
//! nothing is left of D: the remaining stages know registers, jumps and the stack.
//!
//! # Decisions
//!
//! **Nothing here makes a system call.** Maps and kernel symbols have names ([`mir::MapRef`],
//! [`mir::KsymId`]) until the program is loaded, and the kernel is plain data ([`target::Target`]).
//! So golden files show the very code that is loaded, and the differential test compiles on one
//! machine what it runs on another kernel. The alternative, to ask the kernel where an answer is
//! needed, would make code depend on the machine that runs the tests.
//!
//! **Sizes are decided before code.** A [`plan::Plan`] has every size and place of the session's
//! maps, and [`Layout`] every offset of a scratch slot. Both are computed from the module alone. So
//! an address is a base and a constant, which is what the verifier understands, and the map that is
//! created cannot differ from the code that uses it.
//!
//! **Selection calls routines, and not the reverse.** A routine takes registers and a plan. It
//! knows neither clauses nor DIF's values. That is why routines are in this crate and not in the
//! runtime that creates the maps: an interface in between would have a method for each of them.
//!
//! **A provider is three questions.** Which probe fired, which argument, which error: a provider
//! answers them in MIR ([`context::Context`]). It knows nothing of clauses, and selection nothing
//! of providers.
//!
//! **MIR is not SSA.** DIF is, and what is worth optimizing was optimized there. From MIR on, the
//! task is to find registers for values whose lives are short, see [`regalloc`].
//!
//! What is *not* here: maps that exist, programs as a whole (a prologue, many clauses, an
//! epilogue), limits for the user, loading. They are in `bpf-runtime` and `bpf-sys`.
//!
//! # Files
//!
//! Lowest first; a file imports only from lines before its own (`cargo xtask tidy` checks that).
//!
//! ```layers
//! arch/machine error mir
//! arch/aarch64 arch/x86_64
//! arch
//! mir/build target
//! context liveness plan
//! plan/extend plan/share simplify frame
//! regalloc
//! emit
//! listing
//! routines routines/orc routines/shares routines/siphash routines/tracer_frames routines/unwind/rows routines/window routines/words
//! routines/numbers routines/runtimes/area routines/runtimes/cpython_3_11/given routines/runtimes/names
//! routines/runtimes/cpython_3_11/line
//! routines/runtimes/cpython_3_11/code
//! routines/runtimes/cpython_3_11
//! routines/runtimes routines/unwind/mappings routines/unwind/returns routines/unwind/slots
//! routines/unwind
//! routines/walk
//! routines/*
//! routines/agg routines/memory routines/owned routines/record+routines/overwrite
//! routines/assoc routines/speculation
//! select select/d_memory select/facts select/subr/needs
//! select/split select/task
//! select/fetch select/layout
//! session
//! select/clause
//! select/blocks select/fault select/int select/scratch select/segment select/strings
//! select/builtin select/effect select/memory select/subr/loops
//! select/subr/*
//! select/subr/find select/subr/json
//! select/subr
//! ```

pub mod arch;
pub mod context;
pub mod emit;
mod error;
mod frame;
pub mod listing;
mod liveness;
pub mod mir;
pub mod plan;
pub mod regalloc;
pub mod routines;
pub mod select;
mod session;
mod simplify;
pub mod target;

pub use error::{CodegenError, Result};
pub use select::{Division, Layout};
pub use session::Session;
