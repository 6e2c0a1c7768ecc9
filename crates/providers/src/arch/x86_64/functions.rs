//! How functions of the kernel begin.

/// Bytes of the instruction that stands before the one that the kernel patches, on machines with
/// branch protection: `endbr64`.
pub(crate) const MARK: u64 = 4;

/// True for such an instruction: `endbr64`, `endbr32`, and the instructions that the kernel puts in
/// their place.
pub(crate) fn is_mark(word: u32) -> bool {
    const ENDBRS: [[u8; 4]; 4] = [
        [0xf3, 0x0f, 0x1e, 0xfa],
        [0xf3, 0x0f, 0x1e, 0xfb],
        [0x66, 0x0f, 0x1f, 0x00],
        [0x0f, 0x1f, 0x40, 0xd6],
    ];
    ENDBRS.contains(&word.to_le_bytes())
}
