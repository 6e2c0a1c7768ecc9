//! True return addresses of functions whose return the kernel probes.

use super::super::window::{RETURNS, VALUE};
use crate::mir::{Builder, Helper, Jmp, Size, V};
use crate::target::ReturnOffsets;

/// The most returns that the kernel probes in a thread at once.
const RETURNS_MAX: i64 = 64;

/// Reads the return address that was at an address before its function was probed into the window's
/// value. Returns 0 if the kernel knows it.
pub(super) fn find_return(b: &mut Builder, offsets: ReturnOffsets) {
    let (window, addr) = (b.param(0), b.param(1));
    let (found, none) = (b.label(), b.label());
    let word = b.stack(8);
    let member = |b: &mut Builder, instance: V, offset: i16| {
        b.slot_store(Size::B8, word, 0, 0);
        let from = b.add(instance, i32::from(offset));
        let (to, size) = (b.slot_addr(word, 0), b.imm(8));
        b.call(Helper::PROBE_READ_KERNEL, &[to, size, from]);
        b.slot_load(Size::B8, word, 0)
    };
    let instance = b.load(Size::B8, window, RETURNS);
    b.repeat(RETURNS_MAX, |b| {
        b.br(Jmp::Eq, instance, 0, none);
        let place = member(b, instance, offsets.stack);
        b.br(Jmp::Eq, place, addr, found);
        let outer = member(b, instance, offsets.next);
        b.set(instance, outer);
    });
    b.bind(none);
    b.exit(1);
    b.bind(found);
    let address = member(b, instance, offsets.address);
    b.store(Size::B8, window, VALUE, address);
    let outer = member(b, instance, offsets.next);
    b.store(Size::B8, window, RETURNS, outer);
    b.exit(0);
}
