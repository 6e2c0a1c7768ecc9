//! Compiles DIF to eBPF, and wraps the bpf(2) and perf_event_open(2) system calls.
//!
//! This crate knows neither D nor providers. The stages of code generation, in order:
//!
//! ```text
//!  DIF clauses ──► select ──► mir ──► regalloc, frame ──► emit ──► load
//!                    │ one program a unit: program          symbolic code   descriptors patched in
//!                    └ calls into: routines (records, tables, stacks, …)
//! ```
//!
//! - `maps` plans the maps of a session and creates them. All programs of the session share them.
//! - `program` builds one program: its prologue, its clauses, its epilogue.
//! - `routines` are the parts of a program that change shared memory. Their layouts come from
//!   `plane`.
//! - `sys` is the system call layer: programs, maps, links, perf events.
//! - `features` tells what the running kernel can do, found by trying and never by version.
//!
//! The decision that shapes the crate: everything up to `emit` needs no kernel. Maps and kernel
//! symbols stay symbolic until `load`, so golden tests print the same code that the kernel gets.

pub mod arch;
pub mod btf;
pub mod disasm;
pub mod emit;
pub mod features;
mod frame;
pub mod helpers;
pub mod insn;
pub mod kernel_read;
pub mod limits;
mod liveness;
pub mod load;
pub mod maps;
pub mod mir;

pub mod program;
pub mod regalloc;
pub mod routines;
mod select;
pub mod sys;
