//! Aggregations as the consumer holds them.
//!
//! A snapshot brings what the kernel gathered since the last one and empties it there, so the only whole value of an
//! aggregation is here: merging is adding deltas, and `clear trunc normalize` never touch the kernel. That is why a
//! `clear()` loses nothing that fires meanwhile, and why a cleared `min()` must start anew rather than compare with the
//! zero it shows.
//!
//! ```text
//!  value   arithmetic on the words of one value: what is shown, what is compared
//!  store   key -> value for every aggregation; clear, trunc, normalize
//!  rows    the store's entries as typed rows in DTrace's order
//! ```

pub(crate) mod rows;
pub(crate) mod store;
pub(crate) mod value;
