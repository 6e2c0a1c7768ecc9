//! Notes of USDT from any bytes: nothing panics, and every argument is within its bounds.
#![no_main]

use usdt::{MAX_ARGUMENTS, Machine, Notes, Source};

libfuzzer_sys::fuzz_target!(|input: (Option<u64>, bool, &str, &[u8])| {
    let (base, arm, text, bytes) = input;
    let machine = if arm { Machine::Arm64 } else { Machine::X86_64 };
    let texts = Notes::new(bytes, base).map(|note| note.arguments);
    for text in texts.chain([text]) {
        let all = machine.arguments(text);
        assert!(all.len() <= MAX_ARGUMENTS);
        for argument in all {
            assert!(matches!(argument.size, 1 | 2 | 4 | 8));
            if let Source::Register(register) = argument.source {
                assert!(machine.register_name(register.number).is_some());
            }
        }
    }
});
