//! What a provider is made of that a program brings along: see [`Provider`], which a program passes
//! to [`Builder::provider`](crate::Builder::provider).
//!
//! ```text
//!  Provider ── probes ──► ProbeSource       which probes there are: a ProbeList, or its own
//!           ── facts ───► ProviderFacts     its names (Family), stability
//!           ── plan ────► Unit ── context   how a firing finds its probe and its arguments, in machine code
//!                              └─ method    how the program is attached: CustomAttach, or a Method of its own
//!           ── changes ─► ChangeSource      probes that come and go
//! ```
//!
//! `examples/provider.rs` is a provider that uses nothing but this library.

pub use bpf_codegen::{arch, context, mir};
pub use bpf_sys;
pub use diagnostics::Tag;
pub use probes::{
    ArgPart, ArgType, Args, Attributes, Calls, Catalog, Definition, DescError, Family, MatchError, Matches,
    Pattern, ProbeDesc, ProbeId, ProbeInfo, ProviderFacts, ProviderStability, TypeRef, UserObject,
    UserVariable, VariablePlace,
};
pub use proc::Selection;
pub use providers::{
    Change, ChangeSource, Cursor, EnabledProbe, Env, Follow, FoundProbe, IdRange, LoadedModules, MakeFn,
    Names, OpenChanges, ProbeList, ProbeSource, ProbeStore, ProbesChanged, ProcessProvider, Provider,
    ProviderProbes, Registry, Returns, Role, Timing, Unit, UnloadedModules, method,
};
pub use symbols::{Readers, ReadingWatch};
pub use types;
