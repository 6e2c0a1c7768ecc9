//! Formats of events in tracefs, of any text: members with a name and a type.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some((_, fields)) = providers::event_format(text) {
        assert!(fields.len() <= text.len());
        for (name, ty, ..) in fields {
            assert!(name.len() + ty.len() <= 2 * text.len() + 16);
        }
    }
});
