//! What is delivered in more than one event.

/// A part of something that is delivered in one or more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// It is the first one.
    pub first: bool,
    /// It is the last one.
    pub last: bool,
}

impl Part {
    /// All of it.
    pub const WHOLE: Part = Part { first: true, last: true };
}
