//! A reader of BTF that decodes types in place.
//!
//! A BTF blob is a header, a section of consecutive types, and a section of strings. It has no
//! table of type offsets, so one pass over the types is unavoidable (0.3 ms for the 126,000 types
//! of a kernel). Opening a blob does nothing else. Types are decoded in place on demand
//! ([`Btf::def`]).
//!
//! **Names.** The obvious index is a hash of all names. It costs 1.5 ms and 1 MB, more than the
//! rest of the startup. For a program that names three structs, a linear search over the types of
//! that kind is cheaper (0.1 ms). So the first few lookups search, and further lookups in the same
//! blob build the index.
//!
//! **Trust.** The kernel's BTF is trusted, but a file named by a user is not. Every read is
//! bounds-checked, and every chain is followed for a bounded number of steps. A malformed blob
//! results in an error or `None`, never in a panic.
//!
//! Only this machine's byte order is supported; the running kernel has no other.

mod asked;
mod blob;
mod kernel;
mod names;
mod part;
mod query;
mod source;
pub mod synth;

pub use blob::{Btf, BtfError, BtfKind, BtfMember, Def, Members, Origin, Param, Params, Values, Vars};
pub use kernel::{BtfBlobs, KernelBtf};
pub use query::{Field, Func, Var};
