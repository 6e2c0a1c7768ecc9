//! Heat maps of distributions over time: a column for each interval, a row for each bucket, darker
//! where more values are.
//!
//! [`Heat`] is a sink of [events](events), beside the one for text. It draws what intervals have
//! added to `quantize()`, `lquantize()` and `llquantize()`. The decision that shapes the crate:
//! *the file has the counts, not the picture*. A count is kept for each interval, bucket and key,
//! and everything that is shown (darkness, tables, flame graphs of a range) is a sum of them that
//! the page computes. So every number in it is exact, and a selection needs nobody who answers.
//!
//! ```text
//!  Event::Interval ──collect──> Cells of each aggregation ──data──> bytes, compressed ──┐
//!                                        └──png──> the picture without a script ────────┴─> svg ──> html
//!
//!  cells    counts by interval, key and bucket; made coarser where they are too many
//!  collect  the sink
//!  data     the counts as bytes
//!  png      a picture of counts in a few hundred bytes for viewers that run no script
//!  svg      the document; picture.css and picture.js are its style and its script
//!  html     a page with it
//! ```
//!
//! **The size is bounded.** A file has at most 4 MB, and the sink at most two million counts (32
//! MB): beyond, two neighbouring intervals become one, which is exact too, and the page says so.
//! Keys beyond 65,536 are one, `[other keys]`.
//!
//! **Colors**: dark is much. Keys are not mixed in one cell by several hues: one key is selected,
//! and its share of a cell is red. What a key is called, a process chooses: names are data, which
//! the script makes text nodes of. A file loads nothing from elsewhere.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! cells png
//! collect
//! data
//! svg
//! html
//! file
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod cells;
mod collect;
mod data;
mod file;
mod html;
mod png;
mod svg;

pub use collect::Heat;
pub use file::Format;
