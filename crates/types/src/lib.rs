//! The C type model and its readers. This crate knows no D programs.
//!
//! It has three parts, each usable alone:
//!
//! - **The model** ([`Types`], [`TypeId`], [`Kind`]): every type that a D program can name or
//!   reach, in one arena. The model uses an arena and ids, not trees of references, because C types
//!   are cyclic graphs and a checker copies types freely. All methods take `&self`: a query may
//!   have to import a type first, and a checker that needs `&mut` for a query is hard to write.
//! - **The rules** ([`rules`]): D's conversion, compatibility and classes of types. They differ
//!   from C's (no promotion to `int`, rank by bits). So they are all in this module and not spread
//!   over the checker.
//! - **The readers** ([`btf`]): kernel BTF, searched and decoded by name. Nothing is read before it
//!   is needed. An import stops at struct boundaries, so that naming `struct task_struct` does not
//!   import the whole kernel.
//!
//! Lookup order is D's: D's own types and those that the program declares, then the kernel, then
//! its modules. A type that is forward-declared and later defined keeps its id.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! btf/asked btf/names btf/source
//! btf/blob
//! btf/query btf/synth
//! btf/part
//! btf/kernel
//! btf
//! model
//! layout lookup padding print rules
//! import
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod btf;
mod import;
mod layout;
mod lookup;
mod model;
mod padding;
mod print;
pub mod rules;

pub use layout::{BitAccess, LayoutError, MemberDecl, ResolvedMember};
pub use lookup::base_type;
pub use model::{BUILTIN_TYPEDEFS, Int, IntClass, Kind, Member, Names, Quals, TagKind, TypeId, Types};
pub use padding::Padding;
