//! The table of what the manual page says about each provider. A test checks that it has every
//! provider.

use crate::contract::Manual;

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
    use system::System;

    use super::super::Registry;
    use super::*;

    #[test]
    fn every_provider_has_an_entry_in_the_manual_page() {
        let registry = Registry::new(&System::live());
        let mut names: Vec<&str> = MANUALS.iter().map(|m| m.name).collect();
        let mut there: Vec<String> = registry.families().iter().map(|f| f.to_string()).collect();
        names.sort_unstable();
        there.sort_unstable();
        assert_eq!(there, names);
    }
}
