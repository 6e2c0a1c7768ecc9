//! Scratch slots: memory of one firing, several a CPU.
//!
//! A program that needs more memory than registers and stack takes a slot for its time: strings, long keys, stacks,
//! `this->` variables, what ERROR is told. An interrupt in the middle of it, another program, or another thread after a
//! preemption takes another. The decision that shapes it: the taken slots of a CPU are one mask
//! ([`crate::control::SLOTS_TAKEN`]), and the slot's number comes out of the mask by arithmetic, not by a chain of
//! tests. Both are exact under any nesting and any order of giving back; but the verifier walks the rest of the program
//! once for each branch of a chain, and once in all for a number.
//!
//! ```text
//!  free = ~mask & 0xff         none: counted drop, the firing's clauses do nothing
//!  bit  = free & -free         the lowest free slot
//!  compare-exchange mask -> mask | bit (bounded tries)        give back: atomic and with ~bit
//!       or mask | bit | bit << 8, if it publishes its clock   and with ~(bit | bit << 8); see [`crate::order`]
//!  slot = (bit * 0x17 >> 5) & 7                               a different number for each of the eight bits
//! ```
//!
//! Slot `i` of CPU index `c` is at `(c * SLOTS + i) * slot_size`. Strings in it are padded with zeros to `strsize`, so
//! that words compare, hash and copy them.

/// Slots a CPU index.
pub const SLOTS: u32 = 8;
/// A firing that publishes its clock sets the bit that is so many places above its slot's, in the same exchange.
pub const PUBLISHES: u32 = SLOTS;
/// Tries to take one before the firing counts as dropped.
pub const TRIES: u32 = 4;
/// Makes a slot's number of its bit, with [`BIT_SHIFT`] (a de Bruijn sequence).
pub const BIT_MULTIPLIER: u32 = 0x17;
/// See [`BIT_MULTIPLIER`].
pub const BIT_SHIFT: u32 = 5;

/// The slot that belongs to a bit of the mask.
pub const fn slot_of(bit: u64) -> u32 {
    ((bit as u32).wrapping_mul(BIT_MULTIPLIER) >> BIT_SHIFT) & (SLOTS - 1)
}

/// The bytes of a slot for `bytes` used, on cache lines of its own.
pub const fn slot_size(bytes: u32) -> u32 {
    let lines = bytes.div_ceil(64);
    (if lines == 0 { 1 } else { lines }) * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_has_a_slot_of_its_own() {
        let mut seen = [false; SLOTS as usize];
        for bit in 0..SLOTS {
            let slot = slot_of(1 << bit) as usize;
            assert!(!std::mem::replace(&mut seen[slot], true));
        }
    }
}
