//! How functions of the kernel begin.

/// No instruction stands before the one that the kernel patches.
pub(crate) const MARK: u64 = 0;

/// True for such an instruction.
pub(crate) fn is_mark(_word: u32) -> bool {
    false
}
