//! The C type model and its readers. Knows no D programs.
//!
//! Three things live here, each usable alone:
//!
//! - **The model** ([`Types`], [`TypeId`], [`Kind`]): every type a D program can name or reach, in one arena. Arena and
//!   ids rather than trees of references, because C types are cyclic graphs and a checker hands types around freely.
//!   All methods take `&self`: a look at a type may have to import it first, and a checker that must hold `&mut` to ask
//!   a question is a misery to write.
//! - **The rules** ([`rules`]): what D says about conversion, compatibility and classes of types. They differ from C's
//!   (no promotion to `int`, rank by bits), which is why they are here in one place and not sprinkled in the checker.
//! - **The readers** ([`btf`]): kernel BTF, found and decoded name by name. Nothing is read before it is asked for, and
//!   what is imported stops at struct boundaries, so that naming `struct task_struct` does not pull in the kernel.
//!
//! Lookup order is D's: D's own types and those that the program declares, then the kernel, then its modules. A type
//! that is forward-declared and later defined keeps its id.

pub mod btf;
mod import;
mod layout;
mod lookup;
mod model;
mod padding;
mod print;
pub mod rules;

pub use layout::{BitAccess, Found, LayoutError, Member, MemberDecl};
pub use lookup::{BUILTIN_TYPEDEFS, base_type};
pub use model::{Int, IntClass, Kind, Quals, TagKind, TypeId, Types};
pub use padding::Padding;
