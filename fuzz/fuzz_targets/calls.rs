//! The store of the names of a language runtime's functions, of any bytes, and frames in it: a name
//! of bounded length or none.
#![no_main]

use std::sync::atomic::AtomicU64;

use plane::calls::{Call, Code, NAME_MAX};

libfuzzer_sys::fuzz_target!(|input: (&[u8], u32)| {
    let (bytes, place) = input;
    let store: Vec<AtomicU64> = bytes
        .chunks(8)
        .map(|part| {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            AtomicU64::new(u64::from_le_bytes(word))
        })
        .collect();
    let places = (0..store.len() as u32).take(64).chain([place, u32::MAX]);
    for place in places {
        if let Some(code) = Code::read(&store, place) {
            assert!(code.file.chars().count() <= NAME_MAX as usize);
            assert!(code.name.chars().count() <= NAME_MAX as usize);
        }
    }
    for word in &store {
        let call = Call::of_word(word.load(std::sync::atomic::Ordering::Relaxed));
        assert_eq!(Call::of_word(call.word()), call);
    }
});
