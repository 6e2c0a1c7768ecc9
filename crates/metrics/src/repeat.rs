//! Making up for numbers that did not arrive.

use std::io;

use events::Sink;

/// A sink whose numbers are mostly since the start, so that the last one of each series makes up
/// for those before it that did not arrive.
pub trait Repeat: Sink {
    /// Writes all numbers that are since the start once more. An interval's own is not one.
    fn repeat(&mut self) -> io::Result<()>;
}
