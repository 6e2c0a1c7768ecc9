//! What the manual page says about a provider, beside the code that makes it true.
//!
//! The page is the same on every machine, so nothing here asks the kernel.

/// A provider's entry in the manual page.
#[derive(Clone, Copy, Debug)]
pub struct Manual {
    /// The provider's name.
    pub name: &'static str,
    /// What its probes are, one sentence without its full stop.
    pub help: &'static str,
    /// Forms of its probes, and when each fires.
    pub probes: &'static [(&'static str, &'static str)],
    /// Arguments, and what each is.
    pub args: &'static [(&'static str, &'static str)],
}
