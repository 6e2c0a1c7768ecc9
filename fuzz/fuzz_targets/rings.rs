//! Memory that programs in the kernel share with a session, of any bytes: what is taken of it is
//! bounded by it, and ends.
#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

use plane::control::{PERCPU_STRIDE, PerCpu, RESERVE};
use plane::desc::AggFunc;
use plane::read::{RingReader, Rings, take_table};
use plane::stacks::{BlockShape, Side};
use plane::table::TableShape;

/// Words of a size, filled with bytes again and again.
fn words(bytes: &[u8], count: usize) -> Vec<AtomicU64> {
    let mut bytes = bytes.iter().copied().cycle();
    let mut word = || u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0)));
    (0..count).map(|_| AtomicU64::new(word())).collect()
}

libfuzzer_sys::fuzz_target!(|input: (&[u8], &[u8], u64, bool, u8)| {
    const SIZE: u32 = 1 << 12;
    let (ring, control, now, overwrites, key) = input;
    let memory = words(ring, 2 * SIZE as usize / 8);
    let control = words(control, 2 * PERCPU_STRIDE as usize / 8);
    let Some(percpu) = PerCpu::new(&control, 2) else { return };
    // Programs reserve at most what a ring has.
    for cpu in 0..2 {
        let reserve = percpu.word(cpu, RESERVE);
        reserve.store(reserve.load(Ordering::Relaxed) & 0xffff_fff8, Ordering::Relaxed);
    }
    let set = Rings { memory: &memory, size: SIZE, percpu };
    let mut reader = RingReader::new(now);
    let mut taken = 0;
    for round in 0..3u64 {
        let batch = match overwrites {
            true => {
                reader.pass(&[set], now.wrapping_add(round));
                reader.take_newest(&[set], now.wrapping_add(round))
            }
            false => reader.drain_all(&[set], now.wrapping_add(round), (round == 1).then_some(1000)),
        };
        taken += batch.iter().map(|(_, data)| data.len()).sum::<usize>();
        assert!(taken <= 4 * 2 * SIZE as usize, "{taken}");
    }
    reader.take_late();
    let funcs = [AggFunc::Count, AggFunc::Quantize];
    let func = funcs[usize::from(key) % funcs.len()];
    let shape = TableShape::new(func, u32::from(key / 8 % 8) * 8, u64::from(SIZE));
    let table = words(ring, shape.total(2) as usize / 8 + 1);
    let mut slots = 0;
    take_table((&table, 0, shape.table_size), (func, shape), (0, 2), &mut |_, _, _| slots += 1);
    assert!(slots <= 2 * shape.slots());
    let shape = BlockShape::new(1 << 15);
    let store = words(ring, 2 * shape.size as usize / 8);
    let side = Side::new(&store, shape);
    side.is_half_full();
    for (id, stack) in side.stacks().take(10_000) {
        assert!(stack.pcs.len() + stack.calls.len() <= shape.size as usize / 8);
        side.find(id);
    }
    side.begin();
});
