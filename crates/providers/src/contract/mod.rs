//! What a provider is, for those who write one and for those who ask one. No file here knows a
//! provider, nor the registry.
//!
//! ```text
//!  provider   Provider: its names, its probes, how they are attached      every provider
//!  process    ProcessProvider: more, of probes in processes               pid, usdt
//!  source     ProbeSource: which probes there are
//!  changes    ChangeSource, ProbeStore: probes that come and go, and who gives them their ids
//!  env        what a provider plans for
//!  unit       Unit: the plan of one program
//!  method     Method: how a program is attached
//!  manual     Manual: an entry of the manual page
//! ```

pub(crate) mod changes;
pub(crate) mod env;
pub(crate) mod manual;
pub mod method;
pub(crate) mod process;
pub(crate) mod provider;
pub(crate) mod source;
pub(crate) mod unit;

pub use changes::{Change, ChangeSource, ProbeStore, ProbesChanged};
pub use env::{EnabledProbe, Env, Follow, Returns};
pub use manual::Manual;
pub use method::Method;
pub use process::ProcessProvider;
pub use provider::{Names, OpenChanges, Provider};
pub use source::{FoundProbe, IdRange, LoadedModules, MakeFn, ProbeList, ProbeSource, UnloadedModules};
pub(crate) use unit::NoArguments;
pub use unit::{Role, Timing, Unit};
