//! What a runtime is found by in a file.

/// A file that processes map as code.
pub trait Image {
    /// The address of a section. `None`: it has none of this name.
    fn section(&self, name: &str) -> Option<u64>;

    /// The eight bytes that the file has at a symbol, little-endian. `None`: there is no such
    /// symbol, or the file has no bytes there.
    fn word(&self, symbol: &str) -> Option<u64>;
}
