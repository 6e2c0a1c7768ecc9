//! The runtime of a session: the maps and the programs that it has in the kernel.
//!
//! ```text
//!                 plan ──► Maps::create ──────────────► maps in the kernel ────────┐
//!                  │         sizes that do not fit are halved: a new plan          │ descriptors
//!                  ▼                                                               ▼
//!  ProgramSpec ──► compile ────────────────────────────► Compiled ──► image ──► bpf-sys: load
//!    context         first     counts the firing           code with names of maps, the table of its probes,
//!    probes          gate      the session's activity      functions, source lines
//!    clauses         index     which probe
//!    ERROR           union     does any clause want it
//!                    slot      scratch memory, the clock
//!                    clauses   each behind its test: inline, in functions, in segments
//!                    release
//!
//!  service programs: heartbeat (deadman), vtime (accounts of threads), end_of_thread (elements of self-> arrays),
//!                    prefault (pages that the clauses will read)
//! ```
//!
//! One *program* serves the probes of one attachment, with all clauses that enable them:
//! [`program`]. All programs of a session share its *maps*: [`maps`]. A program is generated for
//! maps that exist already, because a map that does not fit is made smaller, and the code has its
//! size.
//!
//! # Decisions
//!
//! **A program is compiled for a set of probes, and the probe is a number.** Of all functions of
//! the kernel or all system calls there is one program. Which clauses a probe enables is a bit in a
//! table, its name is a row. So the cost of a probe is bits, and the cost of a session is the
//! number of its *shapes*.
//!
//! **What ends most firings is tested first**: the session's activity, then the probe, then the
//! clauses. Resources (the slot, the clock) are taken after the last test that needs none, and
//! released at one place.
//!
//! **A long program is divided, not rejected.** The verifier and the distances of jumps bound a
//! function. So clauses are grouped into functions, and a long clause is split into segments. The
//! state of the firing is then in the scratch slot. [`limits`] are what remains: each is below a
//! limit of the kernel, and names the clause that exceeds it before anything is created.
//!
//! **Programs never change while they run.** A session grows by new programs and new maps
//! ([`maps::Maps::extend`]). Only tables, which are data, change in place.
//!
//! What is *not* here: how a clause becomes instructions (`bpf-codegen`), system calls (`bpf-sys`),
//! what to attach to (`providers`), when to load and close (`dtrace`).
//!
//! # Files
//!
//! Lowest first; a file imports only from lines before its own (`cargo xtask tidy` checks that).
//!
//! ```layers
//! limits needed
//! maps
//! program program/image program/spec
//! program/dispatch program/facts program/service
//! program/clauses program/clock program/prefault
//! program/parts
//! program/compile
//! ```

pub mod limits;
pub mod maps;
pub mod needed;
pub mod program;
