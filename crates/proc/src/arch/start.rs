//! What `_start` of a program passes on.

/// The function `main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Main {
    /// Its address.
    At(u64),
    /// The address is in this word, once the program has been relocated.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "instructions are not read here"))]
    Behind(u64),
}
