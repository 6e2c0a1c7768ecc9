//! The model of probes: names, globs, descriptions, argument types, stability. Does not depend on
//! how a probe is attached.
//!
//! A probe has four names ([`ProbeDesc`]), and a script selects probes by four globs ([`Pattern`]).
//! The trait [`Catalog`] separates the language from the providers. The checker queries it for the
//! probes that a pattern matches, and does not depend on the provider or the way it attaches. The
//! decision that shapes this interface: a query does not enumerate all probes. The catalog passes a
//! pattern only to providers whose name it can match, and a provider may *create* probes for a
//! pattern without globs (`profile-97`). A script that names `syscall` therefore pays nothing for
//! the functions of the kernel.
//!
//! A provider answers for a [`Family`] of names: most for one, a provider of process probes for a
//! name of each process (`pid123`).
//!
//! Invariant: a field of a [`ProbeDesc`] never contains `:` and never exceeds its [`FIELD_LIMITS`].
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! args version
//! desc
//! family stability
//! catalog
//! misnamed
//! ```

mod args;
mod catalog;
mod desc;
mod family;
mod misnamed;
mod stability;
mod version;

pub use args::{ArgPart, ArgType, Args, TypeRef};
pub use catalog::{
    Calls, Catalog, Definition, ListCatalog, MatchError, Matches, ProbeId, ProbeInfo, ProviderFacts,
    UserObject, UserVariable, VariablePlace,
};
pub use desc::{DescError, FIELD_LIMITS, FIELD_NAMES, FieldKind, Pattern, ProbeDesc};
pub use diagnostics::glob::{glob_escape, glob_matches, glob_prefix, is_glob};
pub use family::Family;
pub use misnamed::misnamed;
pub use stability::{Attributes, Class, ProviderStability, Stability};
pub use version::Version;
