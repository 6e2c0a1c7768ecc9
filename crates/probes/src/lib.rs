//! What a probe is: names, globs, descriptions, signatures, stability. Does not know how a probe attaches.
//!
//! A probe has four names ([`ProbeDesc`]); a script selects probes by four globs ([`Pattern`]). Between the language and
//! the providers stands one trait, [`Catalog`]: the checker asks it which probes a pattern can match, and never learns
//! which provider answered or how it attaches. The decision that shapes it: nobody enumerates all probes to answer. The
//! catalog hands a pattern only to providers whose name it can match, and each provider may *make* probes for a pattern
//! without globs (`profile-97`), so a script that names `syscall` pays nothing for the functions of the kernel.
//!
//! Invariant: a [`ProbeDesc`] never holds `:`, and every field respects its [`FIELD_LIMITS`].

mod args;
mod catalog;
mod desc;
mod glob;
mod stability;
mod version;

pub use args::{ArgType, Args, TypeRef};
pub use catalog::{Catalog, ListCatalog, MatchError, Matches, ProbeId, ProbeInfo, ProviderFacts};
pub use desc::{DescError, FIELD_LIMITS, FIELD_NAMES, FieldKind, Pattern, ProbeDesc};
pub use glob::{glob_matches, glob_prefix, is_glob};
pub use stability::{Attributes, Class, ProviderStability, Stability};
pub use version::Version;
