//! Profiles of stacks: aggregations whose keys have stacks become flame graphs (SVG, HTML), folded
//! stacks, pprof or speedscope files.
//!
//! [`Flame`] is a sink of [events](events), beside the one for text. The decision that shapes the
//! crate: *everything is drawn from one tree of named frames*, in which equal paths are one path.
//! So the memory and the size of what is written follow the number of different paths and not of
//! samples, every format has the same frames and sums, and a difference is the same tree with two
//! numbers at a node.
//!
//! ```text
//!  Event ──collect──> Profile (tree of frames) ──flat──> rows in the order of drawing
//!  folded stacks ──folded──^    │                           │
//!                               ├──> folded                 └──> svg ──> html
//!                               ├──> pprof ──> gzip
//!                               └──> speedscope
//!
//!  escape      what a process chose is text, in XML and in JSON
//!  mix         a hash for the tree
//!  profile     the tree
//!  strings     the texts of messages
//!  flat        the tree in the order of drawing, bounded; the smallest frames folded
//!  loss        what is missing in the data
//!  collect     the sink
//!  otlp        intervals as profiles of OpenTelemetry
//!  svg, html   pictures; picture.css and picture.js are their style and their script
//!  file        the formats by the ending of a file's name
//! ```
//!
//! **A picture is two pictures.** The frames that can be seen at first are drawn here, so that any
//! viewer shows them. The whole tree is in the file as data too, and the script draws from it
//! whatever is zoomed to. Frames that are too narrow to be seen are drawn as one, and the search
//! finds them, because it reads the data. A file loads nothing from elsewhere.
//!
//! **Names are hostile**: a process chooses those of its functions. They are text in every format:
//! control characters are escaped, markup is escaped, their length is bounded, and the script
//! creates text nodes only.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! escape gzip mix strings
//! profile
//! loss
//! collect flat folded
//! otlp pprof speedscope svg
//! html
//! file
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod collect;
pub mod escape;
mod file;
mod flat;
mod folded;
mod gzip;
mod html;
mod loss;
mod mix;
mod otlp;
mod pprof;
mod profile;
mod speedscope;
mod strings;
mod svg;

pub use collect::{Baseline, Flame, Refused, Unnamed};
pub use file::Format;
pub use folded::{FoldedError, read as read_folded};
pub use loss::Loss;
pub use otlp::Otlp;
pub use profile::{Frame, Kind, Profile, Side};
