//! Probes and definitions in the formats of the original and of its port, from any bytes: a bounded
//! number of sites whose arguments are within their bounds, and texts that are no longer than the
//! notes allow.
#![no_main]

use usdt::{
    DofSite, MAX_ARGUMENTS, Machine, definitions, port_definitions, port_notes, probe_name, provider_name,
};

libfuzzer_sys::fuzz_target!(|input: (bool, &[u8])| {
    let (arm, bytes) = input;
    let machine = if arm { Machine::Arm64 } else { Machine::X86_64 };
    let sites = machine.dof_sites(bytes);
    assert!(sites.len() <= 1 << 15);
    for DofSite { provider, name, arguments, .. } in sites.iter().take(1000) {
        let all = machine.arguments(arguments);
        assert!(all.len() <= MAX_ARGUMENTS);
        provider_name(provider);
        probe_name(name);
    }
    for note in port_notes(bytes) {
        assert!(machine.arguments(note.arguments).len() <= MAX_ARGUMENTS);
        assert!(note.provider.len() + note.name.len() <= bytes.len());
    }
    for (provider, text) in port_definitions(bytes) {
        assert!(provider.len() <= bytes.len() && text.len() <= 1 << 18);
    }
    for definition in definitions(bytes) {
        assert!(definition.provider.len() + definition.text.len() <= bytes.len());
    }
});
