//! Core files of any bytes: the events in them are read, or there is an error.
#![no_main]

use events::{ReadError, Reader};
use postmortem::find;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = find(&bytes) else { return };
    assert!(found.events.len() <= bytes.len());
    let mut reader = Reader::new(&found.events[..]);
    while let Ok(Some(_)) | Err(ReadError::Malformed { .. }) = reader.next_event() {}
});
