//! Scratch slots: temporary memory of one firing, several slots per CPU.
//!
//! A program that needs more memory than registers and stack takes a slot while it runs: for
//! strings, long keys, stacks, `this->` variables and the arguments of ERROR. An interrupt in the
//! middle of it, another program, or another thread after a preemption takes another slot. The key
//! decision: the taken slots of a CPU are one bit mask ([`crate::control::SLOTS_TAKEN`]), and the
//! slot number is computed from the bit by arithmetic instead of a chain of tests. Both ways are
//! exact under any nesting and in any order of release. But the verifier walks the rest of the
//! program once for each branch of a chain, and only once for a computed number.
//!
//! ```text
//!  free = ~mask & 0xff         none: counted drop; the clauses of the firing do nothing
//!  bit  = free & -free         the lowest free slot
//!  compare-exchange mask -> mask | bit (bounded tries)        release: atomic and with ~bit
//!       or mask | bit | bit << 8, if it publishes its clock   and with ~(bit | bit << 8);
//!                                                             see [`crate::order`]
//!  slot = (bit * 0x17 >> 5) & 7                               a different number for each bit
//! ```
//!
//! Slot `i` of CPU index `c` is at `(c * SLOTS + i) * slot_size`. Strings in it are padded with
//! zeros to `strsize`, so that programs can compare, hash and copy them by words.

/// Slots per CPU index.
pub const SLOTS: u32 = 8;
/// Distance from a slot's bit to the bit that says that its firing publishes its clock. Both bits
/// are set by the same exchange.
pub const PUBLISHES: u32 = SLOTS;
/// Tries to take a slot before the firing counts as dropped.
pub const TRIES: u32 = 4;
/// With [`BIT_SHIFT`], maps a bit of the mask to a slot number (a de Bruijn sequence).
pub const BIT_MULTIPLIER: u32 = 0x17;
/// See [`BIT_MULTIPLIER`].
pub const BIT_SHIFT: u32 = 5;

/// The slot number of a bit of the mask.
pub const fn slot_of(bit: u64) -> u32 {
    ((bit as u32).wrapping_mul(BIT_MULTIPLIER) >> BIT_SHIFT) & (SLOTS - 1)
}

/// The size of a slot for `bytes` of data: whole cache lines.
pub const fn slot_size(bytes: u32) -> u32 {
    let lines = bytes.div_ceil(64);
    (if lines == 0 { 1 } else { lines }) * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_maps_to_a_different_slot() {
        let mut seen = [false; SLOTS as usize];
        for bit in 0..SLOTS {
            let slot = slot_of(1 << bit) as usize;
            assert!(!std::mem::replace(&mut seen[slot], true));
        }
    }
}
