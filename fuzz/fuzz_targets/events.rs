//! Reads any bytes as events: they are rejected, or they are read, are the same when they are
//! encoded again, and are rendered as text and as JSON.
#![no_main]

use consumer::{Json, Text};
use events::{Encoder, Event, ReadError, Reader, Sink};

/// Receives the text.
struct Nothing;

impl std::io::Write for Nothing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl consumer::Output for Nothing {
    fn messages(&mut self, _messages: &[consumer::Message]) -> std::io::Result<()> {
        Ok(())
    }
}

fn encoded(event: &Event<'_>) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    encoder.event(event).expect("a Vec accepts all");
    encoder.flush().expect("a Vec accepts all");
    encoder.get_ref().clone()
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let stream = [&events::MAGIC[..], &events::VERSION.to_le_bytes(), bytes].concat();
    let mut reader = Reader::new(&stream[..]);
    let mut text = Text::of_stored_events(Nothing);
    let mut json = Json::of_stored_events(Nothing);
    loop {
        match reader.next_event() {
            Ok(Some(event)) => {
                text.event(&event).expect("nothing is performed");
                json.event(&event).expect("nothing is performed");
                let bytes = encoded(&event);
                let again =
                    Reader::new(&bytes[..]).next_event().expect("what was read").map(Event::into_owned);
                assert_eq!(again, Some(event.into_owned()));
            }
            Err(ReadError::Malformed { .. }) => {}
            Ok(None) | Err(_) => break,
        }
    }
});
