//! Provider definitions (`provider NAME { probe p(int); };`) as the programs that have the probes
//! need them: a header for C and C++ (`dtrace -h`), and an object file (`dtrace -G`). It knows no
//! probes of the running system.
//!
//! The main design decision: **a probe needs nothing but the header.** The original compiles calls
//! of functions that do not exist, and `-G` overwrites them in the objects before they are linked.
//! That excludes LTO, and every build system must know the step. Here a probe is an `asm`
//! statement: a place in the code and a note in the format of SystemTap, which gdb, perf, bpftrace
//! and this program read. The semaphore that `PROVIDER_PROBE_ENABLED()` reads is defined by the
//! header too, weak and hidden. So the object that `-G` writes is not needed; it is for build
//! systems that link one.
//!
//! ```text
//!  definition   provider blocks → checked providers; errors with their tags
//!  ctype        how an argument of a declared type is passed: its size and sign, the C that converts it
//!  description  the provider as D text, and the note that has it
//!  header       the header
//!  object       the object
//! ```
//!
//! # What a site is
//!
//! x86-64: `nop` and the 10-byte `nop` `66 2e 0f 1f 84 00 00 00 00 00`, with the note at the
//! one-byte one; arm64: `nop`. Kernels that replace a long `nop` by a call look for one of 10
//! bytes, behind the note's. A 5-byte one would be replaced on some kernels by a call that
//! overwrites the red zone of a leaf function.
//!
//! A site refers to the description and to the base of the notes (`_.stapsdt.base`) by relocations
//! that change nothing (`R_X86_64_NONE`). So the linker keeps these sections with the code
//! (`--gc-sections`).
//!
//! # Arguments
//!
//! An argument is converted to its declared type and is in a register or is a constant. Memory
//! operands would save a load, but refer to symbols that `strip` removes. `float` and `double` are
//! passed as their bits: no tracer in the kernel reads vector registers. The note shows an integer
//! of 4 or 8 bytes, which every reader accepts, and the description the type.
//!
//! ARCH(x86-64): the instructions of a site, beside those of arm64.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! ctype description
//! definition
//! header object
//! lib
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod ctype;
mod definition;
mod description;
mod header;
mod object;

pub use definition::{Definitions, TypesOfSystem, declares_types, define};
pub use header::header;
pub use object::{Processor, object, processor_of, processor_of_compiler};
