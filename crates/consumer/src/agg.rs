//! The consumer's aggregations.
//!
//! A snapshot reads the kernel's tables and clears them, so the complete value of an aggregation
//! exists only here. Merging adds deltas, and `clear trunc normalize` do not access the kernel.
//! Therefore `clear()` loses no concurrent firing, and a cleared `min()` must restart instead of
//! comparing with the zero it prints.
//!
//! ```text
//!  value   the number by which values are compared
//!  store   key -> value for every aggregation; clear, trunc, normalize
//!  rows    the store's entries as typed rows in DTrace's order
//! ```

pub(crate) mod rows;
pub(crate) mod store;
pub(crate) mod value;
