//! The probes that a file describes (USDT), as the reader finds them.

use text::Step;
use text::uprobe::Nop;
use usdt::Argument;

/// A place of a probe in a file. Every text of it is the file's, and means nothing before it was
/// checked ([`usdt::provider_name`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSite {
    /// The provider.
    pub provider: String,
    /// The name of the probe.
    pub name: String,
    /// The function that contains it, and how far it is in that. `None`: the file has no symbol
    /// there.
    pub function: Option<(String, u64)>,
    /// Where it is in the file.
    pub offset: u64,
    /// Where its semaphore is in the file.
    pub semaphore: Option<u64>,
    /// Its arguments. Symbols are resolved.
    pub arguments: Vec<Argument>,
    /// What a probe there costs, or why there can be none, on every kernel.
    pub step: Result<Step, String>,
    /// What some kernels do better at, if nothing else is in the way of a probe.
    pub nop: Option<Nop>,
}

/// What a file says of a provider of its own: D text, which is the file's and may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderText {
    /// The provider, as its sites have it.
    pub provider: String,
    /// The text.
    pub text: String,
}

/// The probes that a file describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedProbes {
    /// Where they are.
    pub sites: Vec<ProbeSite>,
    /// What it says of their providers. A provider that several objects of the file have may be
    /// there several times.
    pub providers: Vec<ProviderText>,
}
