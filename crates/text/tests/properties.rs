//! Any bytes: nothing panics, everything is bounded, every place is an instruction.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use iced_x86::{Decoder, DecoderOptions};
use testing::rng::Rng;
use text::{Function, Kernel, Refusal, Step, Uses, uprobe};

const NEW: Kernel = Kernel { emulates_long_nops: true, clobbers_at_nop5: false, accepts_nop10: true };

/// Bytes that decode for a while: pieces of real code and any bytes.
fn code(rng: &mut Rng) -> Vec<u8> {
    const PIECES: [&[u8]; 14] = [
        &[0x55],
        &[0x48, 0x89, 0xe5],
        &[0x74, 0x03],
        &[0xeb, 0xf8],
        &[0xe8, 0, 0, 0, 0],
        &[0xc3],
        &[0x31, 0xc0],
        &[0x48, 0x83, 0xec, 8],
        &[0xf3, 0x0f, 0x1e, 0xfa],
        &[0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0],
        &[0xc5, 0xf9, 0x76, 0xc0],
        &[0x0f, 0x1f, 0x44, 0, 0],
        &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0xf0, 0xff, 0x0f],
    ];
    let mut bytes = Vec::new();
    let is_any = rng.one_in(4);
    for _ in 0..rng.below(40) {
        if is_any || rng.one_in(8) {
            bytes.extend((0..rng.below(6)).map(|_| rng.bits() as u8));
        } else {
            bytes.extend(rng.pick(&PIECES).unwrap());
        }
    }
    bytes
}

fn uses(rng: &mut Rng) -> Uses {
    let mut uses = Uses::NOTHING;
    for n in 0..8 {
        uses = if rng.one_in(4) { uses.and_argument(n) } else { uses };
    }
    uses = if rng.one_in(3) { uses.and_stack() } else { uses };
    if rng.one_in(6) { uses.and_registers() } else { uses }
}

/// The offsets at which instructions begin, by the disassembler alone.
fn boundaries(bytes: &[u8], address: u64) -> Vec<u64> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut offsets = Vec::new();
    while decoder.can_decode() {
        offsets.push(decoder.position() as u64);
        if decoder.decode().is_invalid() {
            break;
        }
    }
    offsets
}

fn check(bytes: &[u8], address: u64, entries: &[u64], kernel: Kernel, uses: Uses) {
    let function = Function::decode(bytes, address, entries);
    let starts = boundaries(bytes, address);
    assert!(function.instructions().len() <= bytes.len());
    let total: usize = function.instructions().iter().map(|i| usize::from(i.length)).sum();
    assert!(total <= bytes.len() && (total == bytes.len() || function.refusal().is_some()));
    assert!(function.instructions().iter().all(|i| starts.contains(&u64::from(i.offset))));
    let targets = function.targets();
    assert!(targets.iter().all(|t| (1..bytes.len()).contains(&(*t as usize))));
    for (offset, step) in function.offsets(kernel) {
        assert!(starts.contains(&offset));
        assert_eq!(function.offset(kernel, offset), Ok(step));
    }
    if let Ok(entry) = function.entry(kernel, uses) {
        assert!(starts.contains(&entry.offset));
        assert!(!targets.iter().any(|t| u64::from(*t) <= entry.offset), "moved past a target");
        let at = &bytes[entry.offset as usize..];
        assert_eq!(uprobe::step(at, address.wrapping_add(entry.offset), kernel), Ok(entry.step));
    }
    match function.returns(kernel) {
        Ok(sites) => assert!(sites.iter().all(|s| function.offset(kernel, s.offset as u64) == Ok(s.step))),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

const CASES: usize = 20_000;

#[test]
fn any_bytes_give_places_that_are_instructions() {
    let mut rng = Rng::new(1);
    for _ in 0..CASES {
        let (bytes, address) = (code(&mut rng), rng.bits());
        let inside =
            (0..rng.below(3)).map(|_| address.wrapping_add(rng.below(200) as u64)).collect::<Vec<_>>();
        let kernel = if rng.one_in(2) { NEW } else { Kernel::UNKNOWN };
        check(&bytes, address, &inside, kernel, uses(&mut rng));
    }
}

#[test]
fn a_kernel_of_which_nothing_is_known_gets_no_probe_that_another_would_refuse() {
    let mut rng = Rng::new(2);
    for _ in 0..CASES {
        let bytes = code(&mut rng);
        if let Ok(step) = uprobe::step(&bytes, 0, Kernel::UNKNOWN) {
            let new = uprobe::step(&bytes, 0, NEW);
            assert!(new.is_ok_and(|new| new <= step), "{bytes:02x?}: {step:?} {new:?}");
            assert_ne!(step, Step::Call);
        }
    }
}

#[test]
fn a_function_of_the_greatest_length_is_decoded() {
    let mut bytes = vec![0x90; text::LONGEST];
    check(&bytes[..4096], 0x1000, &[], Kernel::UNKNOWN, Uses::NOTHING);
    assert_eq!(Function::decode(&bytes, 0x1000, &[]).instructions().len(), text::LONGEST);
    bytes.push(0x90);
    let refusal = Function::decode(&bytes, 0x1000, &[]).refusal();
    assert_eq!(refusal, Some(Refusal::TooLong { length: bytes.len() as u64 }));
}
