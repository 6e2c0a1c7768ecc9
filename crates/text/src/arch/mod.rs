//! The code of machines, a folder for each: its instructions, its flags, and what the kernel does
//! with a probe at one.
//!
//! Whoever reads a file compares its machine with [`EM`]: the code of others is not decoded, and
//! has no probes.

pub(crate) mod x86_64;

pub use x86_64::condition::Condition;
pub use x86_64::entry::{EntryProbe, Uses};
pub use x86_64::function::{Flow, Function, Instruction, LONGEST};
pub use x86_64::references::{Reference, references};
pub use x86_64::returns::{Departure, ReturnSite};
pub use x86_64::uprobe::{Kernel, Step};
pub use x86_64::{entry, references, resolver, returns, uprobe};

/// The machine of an ELF file whose code is decoded (`e_machine`).
pub const EM: u16 = x86_64::EM;
