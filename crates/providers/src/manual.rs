//! What the manual page says about each provider: a table, beside the code that makes it true.
//!
//! The page is the same on every machine, so nothing here asks the kernel. A test checks that the table has every
//! provider of [`crate::Registry`], in the same order.

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

/// Every provider, in the order of the page.
pub const MANUALS: &[&Manual] = &[
    &crate::dtrace::MANUAL,
    &crate::profile::MANUAL,
    &crate::cpc::MANUAL,
    &crate::syscall::MANUAL,
    &crate::bio::MANUAL,
    &crate::sdt::MANUAL,
    &crate::rawtp::MANUAL,
    &crate::pid::MANUAL,
    &crate::usdt::MANUAL,
    &crate::fbt::MANUAL,
    &crate::fbt::RAW_MANUAL,
];

#[cfg(test)]
mod tests {
    use probes::Catalog;
    use types::btf::KernelBtf;

    use super::*;
    use crate::Registry;

    #[test]
    fn every_provider_has_an_entry_in_the_manual_page() {
        let registry = Registry::new(KernelBtf::running());
        let mut names: Vec<&str> = MANUALS.iter().map(|m| m.name).collect();
        let mut there: Vec<String> = registry.families().iter().map(|f| f.to_string()).collect();
        names.sort_unstable();
        there.sort_unstable();
        assert_eq!(there, names);
    }
}
