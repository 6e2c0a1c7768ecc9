//! The tree as text.
